//! Evaluates predicates and properties on packets in the model.

use super::address::is_in;
use super::fragment::FragmentScope;
use super::view::{Ip, Layer};
use super::{ParsedPacket, Run};
use ir::Prefix;
use ir::{Cmp, Op};
use lang::term::{Endpoint, Gtp, HeaderField, Pred, Prop, Voip};
use wire::Fragment;

impl Run<'_> {
    /// The IP packet that predicates test: the innermost packet inside a `shift` term, otherwise the outermost packet.
    pub(super) fn layer_for(&self, scope: ParsedPacket) -> Layer {
        if scope.shifts > 0 { self.view.inner } else { self.view.outer }
    }

    pub(super) fn holds(&mut self, p: &Pred, scope: ParsedPacket) -> bool {
        let layer = self.layer_for(scope);
        match p {
            Pred::Always(is) => *is,
            Pred::Not(p) => !self.holds(p, scope),
            Pred::And(p, q) => self.holds(p, scope) && self.holds(q, scope),
            Pred::Or(p, q) => self.holds(p, scope) || self.holds(q, scope),
            Pred::Xor(p, q) => self.holds(p, scope) != self.holds(q, scope),
            Pred::Compare(of, cmp, n) => self.property(of, scope).is_some_and(|value| compares(value, *cmp, *n)),
            Pred::Ip(version) => layer.ip.is_some_and(|ip| version.is_none_or(|v| ip.version == v)),
            Pred::Transport(version, protocols, header) => layer.ip.is_some_and(|ip| {
                let is = version.is_none_or(|v| ip.version == v) && protocols.contains(&ip.protocol);
                is && ip.above.is_some_and(|at| at + *header as usize <= self.view.bytes.len())
            }),
            Pred::EtherType(n) => layer.ethertype == Some(*n),
            Pred::Protocol(n) => layer.ip.is_some_and(|ip| ip.protocol == *n),
            Pred::Port(end, low, high) => layer
                .ip
                .and_then(|ip| self.view.ports(&ip))
                .is_some_and(|ports| of_endpoint(scope, *end, ports).any(|port| (*low..=*high).contains(&port))),
            Pred::FlowPort(end, port) => {
                let fragment_scope = if scope.outside { FragmentScope::Outer } else { FragmentScope::Around };
                let ports = self.datagram_ports(self.flows_of(scope), fragment_scope);
                of_endpoint(scope, *end, ports).any(|known| known == *port)
            }
            Pred::Address(end, nets) => self.has_address(*end, nets, scope),
            Pred::Host(end) => self.has_address(*end, &self.world.host, scope),
            Pred::Duplicate(class) => {
                let marked = self.packet.facts.duplicate;
                class.map_or(marked != 0, |class| marked == class as u8)
            }
            Pred::Outgoing => self.packet.facts.outgoing != 0,
            Pred::Fragment(first, later) => layer.ip.is_some_and(|ip| match ip.part {
                Fragment::Whole => false,
                Fragment::First => *first,
                Fragment::Later => *later,
            }),
            Pred::Vlan(ids) => self.view.vlan.is_some_and(|id| ids.is_empty() || ids.contains(&id)),
            Pred::Mac { end, broadcast } => self.view.macs.is_some_and(|macs| {
                of_endpoint(scope, *end, macs).any(|mac| if *broadcast { mac == [0xff; 6] } else { mac[0] & 1 == 1 })
            }),
            Pred::Voip(kind) => layer.ip.is_some_and(|ip| self.is_voip(&ip, *kind)),
            Pred::Gtp(kind) => layer.ip.is_some_and(|ip| self.is_gtp(&ip, *kind)),
            Pred::Known(map) => {
                let now = self.packet.facts.time;
                self.entry(map, scope).is_some_and(|(table, key)| table.has(&key, now))
            }
            Pred::Filter(filter) => {
                let (bytes, len) = (&self.packet.bytes, self.view.len);
                let headers = wire::Headers::of(bytes, len, self.world.link_type);
                filter.matches(bytes, len, &headers, self.packet.facts.outgoing != 0)
            }
        }
    }

    fn has_address(&self, end: Endpoint, nets: &[Prefix], scope: ParsedPacket) -> bool {
        self.layer_for(scope).ip.is_some_and(|ip| {
            of_endpoint(scope, end, [ip.src, ip.dst]).any(|address| nets.iter().any(|net| is_in(address, *net)))
        })
    }

    /// Recognises VoIP packets heuristically: SIP is recognised by its port. RTP and RTCP packets have UDP ports of
    /// 1024 or more and version 2 (RFC 3550). RTCP (packet types 200 to 204) has two odd ports. RTP has two even ports
    /// and a known payload type, or one odd and one even port and any payload type.
    pub(super) fn is_voip(&self, ip: &Ip, kind: Voip) -> bool {
        let Some(ports) = self.view.ports(ip) else { return false };
        let is_sip = ports.iter().any(|p| matches!(p, 5060 | 5061));
        if is_sip || kind == Voip::Sip {
            return is_sip && kind == Voip::Sip;
        }
        let (Some(first), Some(second)) = (self.view.above(ip, 8, 1), self.view.above(ip, 9, 1)) else { return false };
        if ip.protocol != 17 || ports.iter().any(|p| *p < 1024) || first >> 6 != 2 {
            return false;
        }
        let known = matches!(second & 0x7f, 0..=18 | 25 | 26 | 28 | 31..=34 | 96..);
        match (ports.map(|p| p % 2), kind) {
            ([1, 1], kind) => kind == Voip::Rtcp && (200..=204).contains(&second),
            (_, Voip::Rtcp) => false,
            ([0, 0], _) => known,
            _ => true,
        }
    }

    /// Recognises GTP packets by port: GTP-C on port 2123; on port 2152 user packets (type 255) and signalling messages
    /// of GTP-U.
    pub(super) fn is_gtp(&self, ip: &Ip, kind: Gtp) -> bool {
        let Some(ports) = self.view.ports(ip).filter(|_| ip.protocol == 17) else { return false };
        let is_user = if ports.contains(&2123) {
            false
        } else if ports.contains(&2152)
            && let (Some(_), Some(message)) = (self.view.above(ip, 8, 1), self.view.above(ip, 9, 1))
        {
            message == 255
        } else {
            return false;
        };
        match kind {
            Gtp::Any => true,
            Gtp::User => is_user,
            Gtp::Control => !is_user,
        }
    }

    /// The value of the property; `None` if the packet does not have it.
    pub(super) fn property(&mut self, of: &Prop, scope: ParsedPacket) -> Option<u64> {
        match of {
            Prop::Header(field) => self.field(*field, self.layer_for(scope)),
            Prop::Bytes(at, size) => self.view.number(*at as usize, (*size).into()),
            Prop::Length => Some(self.view.len.into()),
            Prop::Mark => Some(self.record.mark.into()),
            Prop::State => Some(self.record.state.into()),
            Prop::VlanId => self.view.vlan.map(u64::from),
            Prop::Flow(map) => {
                let now = self.packet.facts.time;
                self.entry(map, scope).map(|(table, key)| table.get(&key, now))
            }
            Prop::Op(of, op, by) => {
                let value = self.property(of, scope)?;
                assert_eq!(*op, Op::And, "properties in the function table use only the operation `and`");
                Some(value & by)
            }
        }
    }

    pub(super) fn field(&self, field: HeaderField, layer: Layer) -> Option<u64> {
        use HeaderField as F;
        let view = &self.view;
        if field == F::EtherType {
            return layer.ethertype.map(u64::from);
        }
        let ip = layer.ip?;
        let four = |at: usize, size| if ip.version == 4 { view.number(ip.at + at, size) } else { None };
        let of = |protocols: &[u8], at, size| view.above(&ip, at, size).filter(|_| protocols.contains(&ip.protocol));
        let tcp_or_udp = |tcp: bool| if tcp { &[6_u8] } else { &[17_u8] };
        match field {
            F::EtherType => unreachable!("the caller evaluates the ethertype field"),
            F::IpProtocol => Some(ip.protocol.into()),
            F::IpTos if ip.version == 6 => Some(view.number(ip.at, 2)? >> 4 & 0xff),
            F::IpTos => four(1, 1),
            F::IpTtl if ip.version == 6 => view.number(ip.at + 7, 1),
            F::IpTtl => four(8, 1),
            F::IpTotalLen if ip.version == 6 => Some(view.number(ip.at + 4, 2)? + 40),
            F::IpTotalLen => four(2, 2),
            F::IpId => four(4, 2),
            F::IpFragment => four(6, 2),
            F::SrcPort(tcp) => of(tcp_or_udp(tcp), 0, 2),
            F::DstPort(tcp) => of(tcp_or_udp(tcp), 2, 2),
            F::TcpHeaderLen => of(&[6], 12, 1).map(|n| n / 16 * 4),
            F::TcpFlags => of(&[6], 13, 1),
            F::TcpWindow => of(&[6], 14, 2),
            F::UdpLen => of(&[17], 4, 2),
            F::IcmpType => of(&[1, 58], 0, 1),
            F::IcmpCode => of(&[1, 58], 1, 1),
        }
    }
}

/// Given one value of the source and one of the destination (for example their addresses), returns the values of those
/// endpoints that the predicate tests.
fn of_endpoint<T: Copy>(scope: ParsedPacket, end: Endpoint, [src, dst]: [T; 2]) -> impl Iterator<Item = T> {
    let (is_src, is_dst) = scope.ends(end);
    [(is_src, src), (is_dst, dst)].into_iter().filter(|e| e.0).map(|e| e.1)
}

fn compares(value: u64, cmp: Cmp, n: u64) -> bool {
    match cmp {
        Cmp::Eq => value == n,
        Cmp::Ne => value != n,
        Cmp::Lt => value < n,
        Cmp::Le => value <= n,
        Cmp::Gt => value > n,
        Cmp::Ge => value >= n,
        Cmp::AnyBit => value & n > 0,
        Cmp::AllBits => value | n == value,
    }
}
