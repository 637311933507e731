//! Fragment tracking of the model: all fragments of a datagram get the steering target and the ports of the fragment
//! that was captured first, which is normally the first fragment.

use super::steering::{SteeringTarget, ends_at};
use super::view::Layer;
use super::{ParsedPacket, Run};
use ir::{Field, Key};
use lang::term::Steering;
use std::collections::BTreeMap;
use std::net::IpAddr;
use wire::Fragment;

/// The time for which the state of a datagram is valid, in nanoseconds of packet time.
const TIMEOUT: u64 = 30_000_000_000;

/// The key of a datagram: addresses, identification, the protocol (IPv4 only), and the steering function, because each
/// function has its own state.
type Datagram = ([IpAddr; 2], u32, Option<u8>, String);

/// Steering targets and ports of fragmented datagrams.
#[derive(Clone, Debug, Default)]
pub struct FragmentTracker {
    steerings: FragmentInfo<SteeringTarget>,
    ports: FragmentInfo<[u16; 2]>,
}

/// Selects the IP packets of a frame that are tested for fragmentation: only the outermost packet, only the innermost
/// packet, or the innermost packet and all packets that enclose it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FragmentScope {
    Outer,
    Inner,
    Around,
}

/// The state of fragment tracking: for each tracked datagram, the steering target or the ports that all its fragments
/// get.
#[derive(Clone, Debug)]
struct FragmentInfo<T>(BTreeMap<Datagram, TrackedDatagram<T>>);

impl<T> Default for FragmentInfo<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

#[derive(Clone, Debug)]
struct TrackedDatagram<T> {
    /// The steering target or ports that all fragments of the datagram get; `None` if they get none.
    target: Option<T>,
    /// The steering target or ports that follow from the headers of the first fragment; `None` until the first fragment
    /// has arrived.
    first: Option<Option<T>>,
    since: u64,
}

impl<T: Copy + PartialEq> FragmentInfo<T> {
    /// Returns the steering target or ports of a fragment; `own` is the value that follows from the headers of this
    /// fragment alone. `mistakes` is true for steering functions that may find a target for a later fragment in the
    /// headers of that fragment alone. Then a first fragment is stored even if its `own` is `None`.
    fn find_or_insert(&mut self, of: Datagram, part: Fragment, own: Option<T>, mistakes: bool, now: u64) -> Option<T> {
        let known = self.0.get_mut(&of).filter(|known| now.abs_diff(known.since) <= TIMEOUT);
        match (part, known, own) {
            (Fragment::Later, Some(known), _) => known.target,
            (Fragment::Later, None, own) => {
                if own.is_some() {
                    self.0.insert(of, TrackedDatagram { target: own, first: None, since: now });
                }
                own
            }
            (_, _, None) if !mistakes => {
                self.0.remove(&of);
                None
            }
            (_, Some(known), own) if known.first.is_none_or(|first| first == own) => {
                if known.first.is_some() {
                    known.since = now;
                }
                known.first = Some(own);
                known.target
            }
            // If the steering target or ports of this first fragment differ from those of the stored first fragment,
            // this fragment belongs to another datagram with the same identification.
            (_, _, own) => {
                self.0.insert(of, TrackedDatagram { target: own, first: Some(own), since: now });
                own
            }
        }
    }
}

impl Run<'_> {
    /// Returns the steering target of the packet. All fragments of a datagram get the same target; the target of an
    /// unfragmented packet follows from its own headers.
    pub(super) fn followed(&mut self, steer: &Steering, scope: ParsedPacket) -> Option<SteeringTarget> {
        let mut target = self.target(steer, scope);
        let Some(inside) = self.lacks(steer, scope) else { return target };
        // These steering functions may yield no target for a later fragment alone, because it lacks header fields, such
        // as ports, that its first fragment contains. Then fragment tracking may still supply the target.
        let selects = matches!(steer, Steering::Local(..) | Steering::Rtp(_) | Steering::GtpUser(_));
        if target.is_none() && !selects {
            return None;
        }
        let fragment_scope = if inside { FragmentScope::Around } else { FragmentScope::Outer };
        for (part, at) in self.parts(fragment_scope) {
            let form = format!("{steer:?} {inside}");
            if let Some(datagram) = self.datagram(at, form) {
                let mistakes = matches!(steer, Steering::Local(..));
                target = self.memory.datagrams.steerings.find_or_insert(
                    datagram,
                    part,
                    target,
                    mistakes,
                    self.packet.facts.time,
                );
            }
        }
        target
    }

    /// Returns the ports of the datagram to which the packet belongs: the ports of the first fragment, or 0 if a later
    /// fragment arrived before the first fragment.
    pub(super) fn datagram_ports(&mut self, layer: Layer, fragment_scope: FragmentScope) -> [u16; 2] {
        let (mut ports, now) = (self.ports_of(layer), self.packet.facts.time);
        for (part, at) in self.parts(fragment_scope) {
            if let Some(datagram) = self.datagram(at, format!("{fragment_scope:?}")) {
                let tracked = self.memory.datagrams.ports.find_or_insert(datagram, part, Some(ports), false, now);
                ports = tracked.expect("find_or_insert got the ports of this packet, so it returns ports");
            }
        }
        ports
    }

    /// The packet's own ports.
    pub(super) fn ports_of(&self, layer: Layer) -> [u16; 2] {
        layer.ip.map_or([0; 2], |ip| self.view.flow_ports(&ip))
    }

    /// Returns those IP packets of the frame that are fragments, with their offsets. Inner packets precede outer
    /// packets, because the steering target or ports of an inner fragment are then also stored for the fragment that
    /// encloses it.
    fn parts(&self, fragment_scope: FragmentScope) -> Vec<(Fragment, usize)> {
        let of = |layer: Layer| layer.ip.map_or((Fragment::Whole, 0), |ip| (ip.part, ip.at));
        let (outer, inner) = (of(self.view.outer), of(self.view.inner));
        let parts = match fragment_scope {
            FragmentScope::Outer => vec![outer],
            FragmentScope::Inner => vec![inner],
            FragmentScope::Around if inner.1 == self.view.part.1 => vec![self.view.part],
            FragmentScope::Around => vec![inner, self.view.part],
        };
        parts.into_iter().filter(|part| part.0 != Fragment::Whole).collect()
    }

    /// Returns `Some` if later fragments may lack the input of the steering function (ports, or headers inside
    /// tunnels). The value is then true if the input is in the innermost packet.
    fn lacks(&self, steer: &Steering, scope: ParsedPacket) -> Option<bool> {
        const PORTS: [Field; 4] = [Field::SrcPort, Field::DstPort, Field::IcmpType, Field::IcmpCode];
        const FRAME: [Field; 3] = [Field::EthSrc, Field::EthDst, Field::Vlan];
        let by_key = |key: Key, inside: bool| {
            let lacked = |f: Field| if inside { !FRAME.contains(&f) } else { PORTS.contains(&f) };
            key.fields().any(lacked).then_some(inside)
        };
        match steer {
            Steering::Pair | Steering::DoubleIp | Steering::Local(..) => (!scope.outside).then_some(true),
            Steering::Flow => Some(!scope.outside),
            Steering::Key(key) => by_key(*key, !scope.outside),
            Steering::Common => {
                let key = self.world.common?;
                by_key(key, !key.is_outside())
            }
            Steering::Rtp(_) | Steering::GtpUser(_) => Some(scope.shifts > 0),
            _ => None,
        }
    }

    fn datagram(&self, at: usize, form: String) -> Option<Datagram> {
        let id = wire::fragments::identification(self.view.bytes, at)?;
        let ends = ends_at(self.view.bytes, at)?;
        let protocol = self.view.number(at + 9, 1).filter(|_| ends[0].is_ipv4()).map(|p| p as u8);
        Some((ends, id, protocol, form))
    }
}
