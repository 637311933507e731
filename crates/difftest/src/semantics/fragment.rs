//! Fragments: later ones go where the first one of their datagram went, or where the one that came before it did.

use super::steering::{SteeringTarget, ends_at};
use super::view::Layer;
use super::{ParsedPacket, Run};
use ir::{Field, Key};
use lang::term::Steering;
use std::collections::BTreeMap;
use std::net::IpAddr;
use wire::Fragment;

/// Nanoseconds of packet time for which a datagram is remembered.
const TIMEOUT: u64 = 30_000_000_000;

/// Addresses, identification and, of IPv4, the protocol; and the way of steering, each of which remembers by itself.
type Datagram = ([IpAddr; 2], u32, Option<u8>, String);

/// Which way the parts of datagrams go, and which ports they have.
#[derive(Clone, Debug, Default)]
pub struct FragmentTracker {
    steerings: FragmentInfo<SteeringTarget>,
    ports: FragmentInfo<[u16; 2]>,
}

/// Whose parts are asked about: the packet's that is meant alone, or the innermost one's and those of what is around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FragmentScope {
    Outer,
    Inner,
    Around,
}

/// What is the same for all parts of a datagram.
#[derive(Clone, Debug)]
struct FragmentInfo<T>(BTreeMap<Datagram, TrackedDatagram<T>>);

impl<T> Default for FragmentInfo<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

#[derive(Clone, Debug)]
struct TrackedDatagram<T> {
    /// What holds for all parts, if anything.
    way: Option<T>,
    /// What the first one said, once it came.
    first: Option<Option<T>>,
    since: u64,
}

impl<T: Copy + PartialEq> FragmentInfo<T> {
    /// What holds for a part that itself says this. `mistakes`: a later one may say something although the first one does not.
    fn find_or_insert(&mut self, of: Datagram, part: Fragment, own: Option<T>, mistakes: bool, now: u64) -> Option<T> {
        let known = self.0.get_mut(&of).filter(|known| now.abs_diff(known.since) <= TIMEOUT);
        match (part, known, own) {
            (Fragment::Later, Some(known), _) => known.way,
            (Fragment::Later, None, own) => {
                if own.is_some() {
                    self.0.insert(of, TrackedDatagram { way: own, first: None, since: now });
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
                known.way
            }
            // Another datagram of the same number.
            (_, _, own) => {
                self.0.insert(of, TrackedDatagram { way: own, first: Some(own), since: now });
                own
            }
        }
    }
}

impl Run<'_> {
    /// Where the packet goes: where it says itself, unless it is a part of a datagram, which stays together.
    pub(super) fn followed(&mut self, steer: &Steering, sight: ParsedPacket) -> Option<SteeringTarget> {
        let mut way = self.way(steer, sight);
        let Some(inside) = self.lacks(steer, sight) else { return way };
        // Of these a later part may not be for them, though its first one is.
        let selects = matches!(steer, Steering::Local(..) | Steering::Rtp(_) | Steering::GtpUser(_));
        if way.is_none() && !selects {
            return None;
        }
        let whose = if inside { FragmentScope::Around } else { FragmentScope::Outer };
        for (part, at) in self.parts(whose) {
            let form = format!("{steer:?} {inside}");
            if let Some(datagram) = self.datagram(at, form) {
                let mistakes = matches!(steer, Steering::Local(..));
                way = self.memory.datagrams.steerings.find_or_insert(
                    datagram,
                    part,
                    way,
                    mistakes,
                    self.packet.facts.time,
                );
            }
        }
        way
    }

    /// The ports of the datagram that a packet is, or is a part of: those of its first part; none where a later one came first.
    pub(super) fn datagram_ports(&mut self, layer: Layer, whose: FragmentScope) -> [u16; 2] {
        let (mut ports, now) = (self.ports_of(layer), self.packet.facts.time);
        for (part, at) in self.parts(whose) {
            if let Some(datagram) = self.datagram(at, format!("{whose:?}")) {
                let settled = self.memory.datagrams.ports.find_or_insert(datagram, part, Some(ports), false, now);
                ports = settled.expect("each says something");
            }
        }
        ports
    }

    /// The ports that the packet itself has.
    pub(super) fn ports_of(&self, layer: Layer) -> [u16; 2] {
        layer.ip.map_or([0; 2], |ip| self.view.flow_ports(&ip))
    }

    /// Those packets that are parts, and where they begin. From the inside outwards: what an inner one knows serves the one around it.
    fn parts(&self, whose: FragmentScope) -> Vec<(Fragment, usize)> {
        let of = |layer: Layer| layer.ip.map_or((Fragment::Whole, 0), |ip| (ip.part, ip.at));
        let (outer, inner) = (of(self.view.outer), of(self.view.inner));
        let parts = match whose {
            FragmentScope::Outer => vec![outer],
            FragmentScope::Inner => vec![inner],
            FragmentScope::Around if inner.1 == self.view.part.1 => vec![self.view.part],
            FragmentScope::Around => vec![inner, self.view.part],
        };
        parts.into_iter().filter(|part| part.0 != Fragment::Whole).collect()
    }

    /// Whether later fragments lack what is steered by: ports, and what is in tunnels. Says whether what is inside is meant.
    fn lacks(&self, steer: &Steering, sight: ParsedPacket) -> Option<bool> {
        const PORTS: [Field; 4] = [Field::SrcPort, Field::DstPort, Field::IcmpType, Field::IcmpCode];
        const FRAME: [Field; 3] = [Field::EthSrc, Field::EthDst, Field::Vlan];
        let by_key = |key: Key, inside: bool| {
            let lacked = |f: Field| if inside { !FRAME.contains(&f) } else { PORTS.contains(&f) };
            key.fields().any(lacked).then_some(inside)
        };
        match steer {
            Steering::Pair | Steering::DoubleIp | Steering::Local(..) => (!sight.outside).then_some(true),
            Steering::Flow => Some(!sight.outside),
            Steering::Key(key) => by_key(*key, !sight.outside),
            Steering::Common => {
                let key = self.world.common?;
                by_key(key, !key.is_outside())
            }
            Steering::Rtp(_) | Steering::GtpUser(_) => Some(sight.shifts > 0),
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
