//! What a frame must have if a filter is to match it, as far as an index of keys can know: the filter without whatever no
//! index holds. It may ask for less than the filter, never for more.
//!
//! `not`, lengths and link addresses ask for nothing. Two ends in one conjunction also ask for their conversation, which
//! far fewer blocks have than have both hosts and both ports.

use crate::names;
use crate::tree::{Carrier, Dir, Expr, Leaf, Prim, Sum, Version};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wire::{EtherType, IpProtocol};

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
    /// Of a filter of packets.
    pub(crate) fn of(expr: Option<&Expr>) -> Self {
        let plain = |leaf: &Leaf, moved: Moved| of_leaf(leaf, moved);
        Self::by(expr, &plain)
    }

    /// Of a filter of flow records, whose words are about the innermost packet.
    pub(crate) fn of_flows(expr: Option<&Expr>) -> Self {
        Self::by(expr, &|leaf, _| of_flow(leaf))
    }

    fn by(expr: Option<&Expr>, of: &Of<'_>) -> Self {
        let mut moved = Moved::default();
        expr.map_or(Self::Anything, |e| of_expr(&placed(e, &mut moved), true, 0, of))
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

type Of<'a> = dyn Fn(&Leaf, Moved) -> Need + 'a;

/// What the words at this point of the filter look behind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Moved {
    tags: usize,
    /// Labels, sessions and tunnels, behind which an index need not see what a filter sees.
    elsewhere: bool,
}

/// The tree with what each test looks behind.
enum Placed<'a> {
    Leaf(&'a Leaf, Moved),
    Not(Box<Placed<'a>>),
    And(Box<Placed<'a>>, Box<Placed<'a>>),
    Or(Box<Placed<'a>>, Box<Placed<'a>>),
}

fn placed<'a>(expr: &'a Expr, moved: &mut Moved) -> Placed<'a> {
    match expr {
        Expr::Leaf(leaf) => {
            let here = *moved;
            match leaf.prim {
                _ if leaf.any => (),
                Prim::Vlan(_) => moved.tags += 1,
                Prim::Mpls(_) | Prim::Pppoes(_) | Prim::Geneve(_) => moved.elsewhere = true,
                _ => (),
            }
            Placed::Leaf(leaf, if leaf.any { Moved::default() } else { here })
        }
        Expr::Not(inner) => Placed::Not(Box::new(placed(inner, moved))),
        Expr::And(a, b) => {
            let a = Box::new(placed(a, moved));
            Placed::And(a, Box::new(placed(b, moved)))
        }
        Expr::Or(a, b) => {
            let a = Box::new(placed(a, moved));
            Placed::Or(a, Box::new(placed(b, moved)))
        }
    }
}

/// What a frame needs for which the expression is `holds` and which has so many tags, as tests around the expression say.
fn of_expr(expr: &Placed<'_>, holds: bool, tags: usize, of: &Of<'_>) -> Need {
    let mut parts = Vec::new();
    match (expr, holds) {
        (Placed::Leaf(leaf, moved), true) => {
            // A tag that a test looks behind need not be there, unless another test asks for it: libpcap then reads what lies there.
            let own = usize::from(matches!(leaf.prim, Prim::Vlan(_)) && !leaf.any);
            let elsewhere = moved.elsewhere || moved.tags + own > tags.max(own);
            of(leaf, Moved { elsewhere, ..*moved })
        }
        (Placed::Leaf(..), false) => Need::Anything,
        (Placed::Not(inner), _) => of_expr(inner, !holds, tags, of),
        (Placed::And(..), true) | (Placed::Or(..), false) => {
            operands(expr, holds, holds, &mut parts);
            let is_tag = |part: &&(&Placed<'_>, bool)| match part {
                (Placed::Leaf(leaf, _), true) => matches!(leaf.prim, Prim::Vlan(_)) && !leaf.any,
                _ => false,
            };
            let tags = tags + parts.iter().filter(is_tag).count();
            let tests = parts.iter().filter_map(|part| match part {
                (Placed::Leaf(leaf, moved), true) if !moved.elsewhere && moved.tags <= tags => Some(&leaf.prim),
                _ => None,
            });
            let flows = flows(&tests.collect::<Vec<_>>());
            Need::all(parts.iter().map(|(e, holds)| of_expr(e, *holds, tags, of)).chain([flows]))
        }
        (Placed::Or(..), true) | (Placed::And(..), false) => {
            operands(expr, holds, !holds, &mut parts);
            Need::any(parts.iter().map(|(e, holds)| of_expr(e, *holds, tags, of)))
        }
    }
}

/// The operands of a whole chain of `and` (or of `or`), and whether each is to hold.
fn operands<'a, 'b>(expr: &'b Placed<'a>, holds: bool, and: bool, out: &mut Vec<(&'b Placed<'a>, bool)>) {
    match expr {
        Placed::And(a, b) if and => {
            operands(a, holds, and, out);
            operands(b, holds, and, out);
        }
        Placed::Or(a, b) if !and => {
            operands(a, holds, and, out);
            operands(b, holds, and, out);
        }
        // What a `not` turns round is a chain of the other kind.
        Placed::Not(inner) => operands(inner, !holds, !and, out),
        _ => out.push((expr, holds)),
    }
}

const IPV4: Need = Need::EtherType(EtherType::IPV4.0);
const IPV6: Need = Need::EtherType(EtherType::IPV6.0);

fn of_version(version: Option<Version>) -> Need {
    match version {
        Some(Version::V4) => IPV4,
        Some(Version::V6) => IPV6,
        None => Need::Anything,
    }
}

/// Of packets. Keys are what [`wire::Headers`] finds under all tags, and, where a header is cut or contradicts itself, what lies where
/// the header would be; a filter that looks behind labels or into sessions and tunnels may see something else.
fn of_leaf(leaf: &Leaf, moved: Moved) -> Need {
    // More tags than the walk looks through.
    if moved.elsewhere || moved.tags >= wire::MAX_TAGS {
        return Need::Anything;
    }
    match &leaf.prim {
        Prim::Protocol(name) => of_name(name),
        Prim::IpProto(version, p) => of_protocol(*version, *p),
        Prim::Chain(version, _) => of_version(*version),
        Prim::EtherProto(ethertype) => of_ethertype(*ethertype),
        Prim::Host4 { within, address, mask, .. } => of_address4(*within, *address, *mask),
        Prim::Host6 { address, mask, .. } => of_address6(*address, *mask),
        Prim::Ports { of, low, high, .. } => {
            let protocol = of.map_or(Need::Anything, Need::Protocol);
            Need::all([Need::Ports(*low, *high), protocol])
        }
        // The index has the tags of the frame, of which each `vlan` asks for the next.
        Prim::Vlan(id) => Need::Vlan(*id),
        Prim::IpBroadcast => IPV4,
        Prim::Multicast(version) => of_version(*version),
        Prim::Relation(left, _, right) => Need::all([of_sum(left, leaf.any), of_sum(right, leaf.any)]),
        _ => Need::Anything,
    }
}

/// What must hold for a number to exist. Of an operator only the left operand is asked.
fn of_sum(sum: &Sum, any: bool) -> Need {
    match sum {
        Sum::Is(_) | Sum::Len => Need::Anything,
        Sum::Op(_, a, _) | Sum::Negative(a) => of_sum(a, any),
        Sum::Load { protocol, index, .. } => {
            let own = if any { of_name(protocol) } else { Need::all([of_name(protocol), of_header(protocol)]) };
            Need::all([own, of_sum(index, any)])
        }
    }
}

/// Without `anylink`, bytes of transport headers are those over IPv4.
fn of_header(protocol: &str) -> Need {
    match protocol {
        "tcp" | "udp" | "sctp" | "pim" => IPV4,
        _ => Need::Anything,
    }
}

fn of_name(name: &str) -> Need {
    match (name, names::above(name)) {
        ("tcp" | "udp" | "sctp" | "pim" | "ah" | "esp", Some(p)) => of_protocol(None, p),
        ("icmp6", _) => of_protocol(Some(Version::V6), 58),
        (_, Some(p)) => of_protocol(Some(Version::V4), p),
        _ => names::ethertype(name).map_or(Need::Anything, of_ethertype),
    }
}

/// The key of a packet is the last protocol of IPv6's chain, a filter without `anylink` asks for the first.
fn of_protocol(version: Option<Version>, p: u32) -> Need {
    let number = u8::try_from(p).ok().filter(|p| version == Some(Version::V4) || !IpProtocol(*p).is_extension());
    Need::all([number.map_or(Need::Anything, Need::Protocol), of_version(version)])
}

/// Only ethertypes behind which nothing else is looked for.
fn of_ethertype(ethertype: u32) -> Need {
    match u16::try_from(ethertype).map(EtherType) {
        Ok(e @ (EtherType::IPV4 | EtherType::IPV6 | EtherType::ARP)) => Need::EtherType(e.0),
        _ => Need::Anything,
    }
}

fn of_address4(within: Option<Carrier>, address: u32, mask: u32) -> Need {
    let carrier = match within {
        Some(Carrier::Ip) => IPV4,
        Some(Carrier::Arp) => Need::EtherType(EtherType::ARP.0),
        Some(Carrier::Rarp) | None => Need::Anything,
    };
    // A mask with holes asks for no less than the ones it begins with.
    let length = mask.leading_ones();
    let bits = if length == 0 { 0 } else { address >> (32 - length) << (32 - length) };
    let address = prefix(Ipv4Addr::from(bits).into(), length, 32).unwrap_or(Need::Anything);
    Need::all([address, carrier])
}

fn of_address6(address: u128, mask: u128) -> Need {
    let length = mask.leading_ones();
    let bits = if length == 0 { 0 } else { address >> (128 - length) << (128 - length) };
    prefix(Ipv6Addr::from(bits).into(), length, 128).unwrap_or(IPV6)
}

fn prefix(address: IpAddr, length: u32, whole: u32) -> Option<Need> {
    match length {
        0 => None,
        n if n == whole => Some(Need::Host(address)),
        n => Some(Need::Net(address, n as u8)),
    }
}

/// Of flow records.
fn of_flow(leaf: &Leaf) -> Need {
    match &leaf.prim {
        Prim::Protocol(name) => match names::above(name) {
            Some(p) => Need::Protocol(p as u8),
            None => Need::Anything,
        },
        Prim::IpProto(_, p) => u8::try_from(*p).map_or(Need::Anything, Need::Protocol),
        Prim::Host4 { address, mask, .. } => of_address4(None, *address, *mask),
        Prim::Host6 { address, mask, .. } => match of_address6(*address, *mask) {
            Need::EtherType(_) => Need::Anything,
            need => need,
        },
        Prim::Ports { of, low, high, .. } => {
            let protocol = of.map_or(Need::Anything, Need::Protocol);
            Need::all([Need::Ports(*low, *high), protocol])
        }
        _ => Need::Anything,
    }
}

/// The conversations of which a frame must be one that passes all of these tests; as far as they name both ends.
fn flows(tests: &[&Prim]) -> Need {
    let mut hosts: Vec<(Dir, IpAddr)> = Vec::new();
    let mut ports: Vec<(Dir, u16)> = Vec::new();
    let mut protocols: Vec<u32> = Vec::new();
    for test in tests {
        match **test {
            // Without a carrier it may be ARP, which is no conversation: another test names the protocol then, and is about IP.
            Prim::Host4 { dir, address, mask: u32::MAX, .. } => hosts.push((dir, Ipv4Addr::from(address).into())),
            Prim::Host6 { dir, address, mask: u128::MAX } => hosts.push((dir, Ipv6Addr::from(address).into())),
            Prim::Ports { of, dir, low, high } => {
                protocols.extend(of.map(u32::from));
                if low == high {
                    ports.push((dir, low));
                }
            }
            Prim::IpProto(_, p) => protocols.push(p),
            Prim::Protocol(name) => protocols.extend(names::above(name)),
            _ => {}
        }
    }
    protocols.dedup();
    let [protocol] = protocols[..] else { return Need::Anything };
    let Ok(protocol) = u8::try_from(protocol).map(IpProtocol) else { return Need::Anything };
    if protocol.is_extension() {
        return Need::Anything;
    }
    let Some(hosts) = ends(&hosts) else { return Need::Anything };
    let ports = if protocol.has_ports() { ends(&ports) } else { Some(vec![(0, 0)]) };
    let Some(ports) = ports else { return Need::Anything };
    let pairs = hosts.iter().flat_map(|(a, b)| ports.iter().map(move |(p, q)| ((*a, *p), (*b, *q))));
    Need::any(pairs.map(|(one, other)| Need::Flow(protocol.0, one.min(other), one.max(other))))
}

/// What source and destination can be, if these tests leave only a few pairs.
fn ends<T: Copy + PartialEq>(tests: &[(Dir, T)]) -> Option<Vec<(T, T)>> {
    let mut values: Vec<T> = Vec::new();
    tests.iter().for_each(|(_, v)| {
        if !values.contains(v) {
            values.push(*v)
        }
    });
    let fits = |src: T, dst: T| {
        tests.iter().all(|(direction, value)| match direction {
            Dir::Either => src == *value || dst == *value,
            Dir::Src => src == *value,
            Dir::Dst => dst == *value,
            Dir::Both => src == *value && dst == *value,
        })
    };
    let named = |wanted: Dir| tests.iter().any(|(d, _)| *d == wanted || *d == Dir::Both);
    match values[..] {
        [one, other] => Some([(one, other), (other, one)].into_iter().filter(|(s, d)| fits(*s, *d)).collect()),
        // One value leaves the other end open, unless both ends are asked for.
        [one] if named(Dir::Src) && named(Dir::Dst) => Some(vec![(one, one)]),
        _ => None,
    }
}
