//! What a frame must have if a filter is to match it, as far as an index of keys can know: the filter without whatever no
//! index holds. It may ask for less than the filter, never for more.
//!
//! `not`, lengths and link addresses ask for nothing. Two ends in one conjunction also ask for their conversation, which
//! far fewer blocks have than have both hosts and both ports.

use super::syntax::Expr;
use super::test::{Direction, Network, Test, Within};
use crate::{EtherType, Family, IpProtocol};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Necessary conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// None: any frame may match.
    Anything,
    /// This address, as source or destination (of ARP too).
    Host(IpAddr),
    /// An address within this prefix (of ARP too); the bits beyond it are zero.
    Net(IpAddr, u8),
    /// A port within these two, as source or destination.
    Ports(u16, u16),
    /// This IP protocol (the last one of IPv6's headers).
    Protocol(u8),
    /// This ethertype under all tags and labels.
    EtherType(u16),
    /// A VLAN tag; with this id, if one is given.
    Vlan(Option<u16>),
    /// This conversation, in either direction: protocol and both ends. Ports are 0 where the protocol has none.
    Flow(u8, (IpAddr, u16), (IpAddr, u16)),
    /// Each of these.
    All(Vec<Need>),
    /// One of these; none can match if there is none.
    Any(Vec<Need>),
}

impl Need {
    pub(super) fn of(expr: Option<&Expr>) -> Self {
        expr.map_or(Self::Anything, |e| of_expr(e, true))
    }

    /// Each of these, in the fewest words.
    fn all(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut out: Vec<Self> = Vec::new();
        let flat = parts.into_iter().flat_map(|p| if let Self::All(inner) = p { inner } else { vec![p] });
        for part in flat.filter(|p| *p != Self::Anything) {
            if !out.contains(&part) {
                out.push(part);
            }
        }
        match out.len() {
            0 => Self::Anything,
            1 => out.remove(0),
            _ => Self::All(out),
        }
    }

    /// One of these, in the fewest words.
    fn any(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut out: Vec<Self> = Vec::new();
        for part in parts.into_iter().flat_map(|p| if let Self::Any(inner) = p { inner } else { vec![p] }) {
            if part == Self::Anything {
                return part;
            }
            if !out.contains(&part) {
                out.push(part);
            }
        }
        if out.len() == 1 { out.remove(0) } else { Self::Any(out) }
    }
}

/// What a frame needs for which the expression is `holds`.
fn of_expr(expr: &Expr, holds: bool) -> Need {
    let mut parts = Vec::new();
    match (expr, holds) {
        (Expr::Test(test), true) => of_test(test),
        (Expr::Test(_), false) => Need::Anything,
        (Expr::Not(inner), _) => of_expr(inner, !holds),
        (Expr::And(..), true) | (Expr::Or(..), false) => {
            operands(expr, holds, holds, &mut parts);
            let tests = parts.iter().filter_map(|part| match part {
                (Expr::Test(test), true) => Some(test),
                _ => None,
            });
            let flows = flows(&tests.collect::<Vec<_>>());
            Need::all(parts.iter().map(|(e, holds)| of_expr(e, *holds)).chain([flows]))
        }
        (Expr::Or(..), true) | (Expr::And(..), false) => {
            operands(expr, holds, !holds, &mut parts);
            Need::any(parts.iter().map(|(e, holds)| of_expr(e, *holds)))
        }
    }
}

/// The operands of a whole chain of `and` (or of `or`), and whether each is to hold.
fn operands<'a>(expr: &'a Expr, holds: bool, and: bool, out: &mut Vec<(&'a Expr, bool)>) {
    match expr {
        Expr::And(a, b) if and => {
            operands(a, holds, and, out);
            operands(b, holds, and, out);
        }
        Expr::Or(a, b) if !and => {
            operands(a, holds, and, out);
            operands(b, holds, and, out);
        }
        // What a `not` turns round is a chain of the other kind.
        Expr::Not(inner) => operands(inner, !holds, !and, out),
        _ => out.push((expr, holds)),
    }
}

fn of_test(test: &Test) -> Need {
    match *test {
        Test::EtherType(ethertype) => Need::EtherType(ethertype.0),
        Test::Protocol(family, protocol) => {
            let family = match family {
                Some(Family::V4) => Need::EtherType(EtherType::IPV4.0),
                Some(Family::V6) => Need::EtherType(EtherType::IPV6.0),
                Some(Family::Other) | None => Need::Anything,
            };
            Need::all([Need::Protocol(protocol.0), family])
        }
        Test::Address(within, _, network) => of_address(within, network),
        Test::Ports(protocol, _, first, last) => {
            let protocol = protocol.map_or(Need::Anything, |p| Need::Protocol(p.0));
            Need::all([Need::Ports(first, last), protocol])
        }
        Test::Vlan(id) => Need::Vlan(id),
        Test::Mac(..) | Test::Length(..) => Need::Anything,
    }
}

fn of_address(within: Within, network: Network) -> Need {
    let ethertype = |e: EtherType| Need::EtherType(e.0);
    let (carriers, address) = match network {
        // A mask with holes asks for no less than the ones it begins with.
        Network::V4 { address, mask } => {
            let carriers = match within {
                Within::Any | Within::Ip6 => Need::any([ethertype(EtherType::IPV4), ethertype(EtherType::ARP)]),
                Within::Ip => ethertype(EtherType::IPV4),
                Within::Arp => ethertype(EtherType::ARP),
            };
            let length = mask.leading_ones();
            let bits = if length == 0 { 0 } else { address >> (32 - length) << (32 - length) };
            (carriers, prefix(Ipv4Addr::from(bits).into(), length, 32))
        }
        Network::V6 { address, mask } => {
            let length = mask.leading_ones();
            let bits = if length == 0 { 0 } else { address >> (128 - length) << (128 - length) };
            (ethertype(EtherType::IPV6), prefix(Ipv6Addr::from(bits).into(), length, 128))
        }
    };
    match (address, within) {
        (None, _) => carriers,
        // An address says by itself what carries it.
        (Some(address), Within::Any) => address,
        (Some(address), _) => Need::all([address, carriers]),
    }
}

fn prefix(address: IpAddr, length: u32, whole: u32) -> Option<Need> {
    match length {
        0 => None,
        n if n == whole => Some(Need::Host(address)),
        n => Some(Need::Net(address, n as u8)),
    }
}

/// The conversations of which a frame must be one that passes all of these tests; as far as they name both ends.
fn flows(tests: &[&Test]) -> Need {
    let mut hosts: Vec<(Direction, IpAddr)> = Vec::new();
    let mut ports: Vec<(Direction, u16)> = Vec::new();
    let mut protocols: Vec<IpProtocol> = Vec::new();
    for test in tests {
        match **test {
            Test::Address(_, d, Network::V4 { address, mask: u32::MAX }) => {
                hosts.push((d, Ipv4Addr::from(address).into()))
            }
            Test::Address(_, d, Network::V6 { address, mask: u128::MAX }) => {
                hosts.push((d, Ipv6Addr::from(address).into()))
            }
            Test::Ports(protocol, d, first, last) => {
                protocols.extend(protocol);
                if first == last {
                    ports.push((d, first));
                }
            }
            Test::Protocol(_, protocol) => protocols.push(protocol),
            _ => {}
        }
    }
    protocols.dedup();
    let [protocol] = protocols[..] else { return Need::Anything };
    let Some(hosts) = ends(&hosts) else { return Need::Anything };
    let ports = if protocol.has_ports() { ends(&ports) } else { Some(vec![(0, 0)]) };
    let Some(ports) = ports else { return Need::Anything };
    let pairs = hosts.iter().flat_map(|(a, b)| ports.iter().map(move |(p, q)| ((*a, *p), (*b, *q))));
    Need::any(pairs.map(|(one, other)| Need::Flow(protocol.0, one.min(other), one.max(other))))
}

/// What source and destination can be, if these tests leave only a few pairs.
fn ends<T: Copy + PartialEq>(tests: &[(Direction, T)]) -> Option<Vec<(T, T)>> {
    let mut values: Vec<T> = Vec::new();
    tests.iter().for_each(|(_, v)| {
        if !values.contains(v) {
            values.push(*v)
        }
    });
    let fits = |src: T, dst: T| {
        tests.iter().all(|(direction, value)| match direction {
            Direction::Either => src == *value || dst == *value,
            Direction::Src => src == *value,
            Direction::Dst => dst == *value,
            Direction::Both => src == *value && dst == *value,
        })
    };
    let named = |wanted: Direction| tests.iter().any(|(d, _)| *d == wanted || *d == Direction::Both);
    match values[..] {
        [one, other] => Some([(one, other), (other, one)].into_iter().filter(|(s, d)| fits(*s, *d)).collect()),
        // One value leaves the other end open, unless both ends are asked for.
        [one] if named(Direction::Src) && named(Direction::Dst) => Some(vec![(one, one)]),
        _ => None,
    }
}
