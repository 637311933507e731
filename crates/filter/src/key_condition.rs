//! Derives from a filter a condition on the keys of an index. Each frame that matches the filter fulfils the condition;
//! a frame that fulfils the condition need not match, because an index has no keys for some tests.
//!
//! `not`, tests of lengths and tests of MAC addresses yield no condition. If tests that are joined by `and` determine
//! both endpoints of a flow, a condition on the flow is added, because far fewer blocks contain the flow than contain
//! both hosts and both ports.

use crate::names;
use crate::tree::{AddressProtocol, ArithExpr, Dir, Expr, Leaf, Primitive, Version};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wire::{EtherType, IpProtocol};

/// A necessary condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyCondition {
    /// The filter yields no condition: any frame may match.
    Anything,
    /// The frame contains this address as source or destination (in ARP too).
    Host(IpAddr),
    /// The frame contains an address within this prefix (in ARP too); the bits after the prefix length are zero.
    Net(IpAddr, u8),
    /// The frame contains a port in this range as source or destination; both ends belong to the range.
    Ports(u16, u16),
    /// The frame has this IP protocol; for IPv6, the protocol at the end of the chain of extension headers.
    Protocol(u8),
    /// The frame has this ethertype inside all VLAN tags and MPLS labels.
    EtherType(u16),
    /// The frame has a VLAN tag with this ID; with any ID if `None`.
    Vlan(Option<u16>),
    /// The frame belongs to this flow, in either direction: the protocol, the lower endpoint, the higher endpoint. The
    /// ports are 0 if the protocol has none.
    Flow(u8, (IpAddr, u16), (IpAddr, u16)),
    /// All of these.
    All(Vec<KeyCondition>),
    /// At least one of these conditions is fulfilled; if the list is empty, no frame matches.
    Any(Vec<KeyCondition>),
}

impl KeyCondition {
    /// The condition that follows from a packet filter.
    pub(crate) fn of(expr: Option<&Expr>) -> Self {
        let plain = |leaf: &Leaf, moved: HeaderShift| of_leaf(leaf, moved);
        Self::by(expr, &plain)
    }

    /// The condition that follows from a filter on flow records, whose primitives refer to the innermost packet.
    pub(crate) fn of_flows(expr: Option<&Expr>) -> Self {
        Self::by(expr, &|leaf, _| of_flow(leaf))
    }

    fn by(expr: Option<&Expr>, of: &KeyContext<'_>) -> Self {
        let mut moved = HeaderShift::default();
        expr.map_or(Self::Anything, |e| of_expr(&located(e, &mut moved), true, 0, of))
    }

    /// The simplified conjunction.
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

    /// The simplified disjunction.
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

type KeyContext<'a> = dyn Fn(&Leaf, HeaderShift) -> KeyCondition + 'a;

/// Describes the headers by which earlier primitives of the filter, such as `vlan`, have moved the offsets from which a
/// primitive reads its fields.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct HeaderShift {
    tags: usize,
    /// True after `mpls`, `pppoes` and `geneve`: primitives may then read headers for which the index has no keys.
    elsewhere: bool,
}

/// The syntax tree of a filter, in which each primitive is stored with its [`HeaderShift`].
enum LocatedExpr<'a> {
    Leaf(&'a Leaf, HeaderShift),
    Not(Box<LocatedExpr<'a>>),
    And(Box<LocatedExpr<'a>>, Box<LocatedExpr<'a>>),
    Or(Box<LocatedExpr<'a>>, Box<LocatedExpr<'a>>),
}

fn located<'a>(expr: &'a Expr, moved: &mut HeaderShift) -> LocatedExpr<'a> {
    match expr {
        Expr::Leaf(leaf) => {
            let here = *moved;
            match leaf.prim {
                _ if leaf.any => (),
                Primitive::Vlan(_) => moved.tags += 1,
                Primitive::Mpls(_) | Primitive::Pppoes(_) | Primitive::Geneve(_) => moved.elsewhere = true,
                _ => (),
            }
            LocatedExpr::Leaf(leaf, if leaf.any { HeaderShift::default() } else { here })
        }
        Expr::Not(inner) => LocatedExpr::Not(Box::new(located(inner, moved))),
        Expr::And(a, b) => {
            let a = Box::new(located(a, moved));
            LocatedExpr::And(a, Box::new(located(b, moved)))
        }
        Expr::Or(a, b) => {
            let a = Box::new(located(a, moved));
            LocatedExpr::Or(a, Box::new(located(b, moved)))
        }
    }
}

/// The condition that each frame fulfils for which the value of the expression is `holds`. `tags` is the number of VLAN
/// tags that the enclosing chain of `and` requires.
fn of_expr(expr: &LocatedExpr<'_>, holds: bool, tags: usize, of: &KeyContext<'_>) -> KeyCondition {
    let mut parts = Vec::new();
    match (expr, holds) {
        (LocatedExpr::Leaf(leaf, moved), true) => {
            // As in libpcap, tests after `vlan` read behind a tag even if the frame has no tag. Hence the keys of such
            // tests apply only if the enclosing chain of `and` requires the tag.
            let own = usize::from(matches!(leaf.prim, Primitive::Vlan(_)) && !leaf.any);
            let elsewhere = moved.elsewhere || moved.tags + own > tags.max(own);
            of(leaf, HeaderShift { elsewhere, ..*moved })
        }
        (LocatedExpr::Leaf(..), false) => KeyCondition::Anything,
        (LocatedExpr::Not(inner), _) => of_expr(inner, !holds, tags, of),
        (LocatedExpr::And(..), true) | (LocatedExpr::Or(..), false) => {
            operands(expr, holds, holds, &mut parts);
            let is_tag = |part: &&(&LocatedExpr<'_>, bool)| match part {
                (LocatedExpr::Leaf(leaf, _), true) => matches!(leaf.prim, Primitive::Vlan(_)) && !leaf.any,
                _ => false,
            };
            let tags = tags + parts.iter().filter(is_tag).count();
            let tests = parts.iter().filter_map(|part| match part {
                (LocatedExpr::Leaf(leaf, moved), true) if !moved.elsewhere && moved.tags <= tags => Some(&leaf.prim),
                _ => None,
            });
            let flows = flows(&tests.collect::<Vec<_>>());
            KeyCondition::all(parts.iter().map(|(e, holds)| of_expr(e, *holds, tags, of)).chain([flows]))
        }
        (LocatedExpr::Or(..), true) | (LocatedExpr::And(..), false) => {
            operands(expr, holds, !holds, &mut parts);
            KeyCondition::any(parts.iter().map(|(e, holds)| of_expr(e, *holds, tags, of)))
        }
    }
}

/// Collects the operands of a chain of `and` (or of `or`), and for each operand whether it must be true or false.
fn operands<'a, 'b>(expr: &'b LocatedExpr<'a>, holds: bool, and: bool, out: &mut Vec<(&'b LocatedExpr<'a>, bool)>) {
    match expr {
        LocatedExpr::And(a, b) if and => {
            operands(a, holds, and, out);
            operands(b, holds, and, out);
        }
        LocatedExpr::Or(a, b) if !and => {
            operands(a, holds, and, out);
            operands(b, holds, and, out);
        }
        // By De Morgan's laws, `not` turns a chain of `and` into a chain of `or` and vice versa.
        LocatedExpr::Not(inner) => operands(inner, !holds, !and, out),
        _ => out.push((expr, holds)),
    }
}

const IPV4: KeyCondition = KeyCondition::EtherType(EtherType::IPV4.0);
const IPV6: KeyCondition = KeyCondition::EtherType(EtherType::IPV6.0);

fn of_version(version: Option<Version>) -> KeyCondition {
    match version {
        Some(Version::V4) => IPV4,
        Some(Version::V6) => IPV6,
        None => KeyCondition::Anything,
    }
}

/// The condition that follows from a test of packets. The keys of an index are the values that [`wire::Headers`] finds
/// inside all VLAN tags, also in truncated or malformed headers. A filter that reads behind MPLS labels or inside
/// sessions and tunnels may see other values.
fn of_leaf(leaf: &Leaf, moved: HeaderShift) -> KeyCondition {
    // [`wire::Headers`] skips at most [`wire::MAX_TAGS`] VLAN tags.
    if moved.elsewhere || moved.tags >= wire::MAX_TAGS {
        return KeyCondition::Anything;
    }
    match &leaf.prim {
        Primitive::Protocol(name) => of_name(name),
        Primitive::IpProto(version, p) => of_protocol(*version, *p),
        Primitive::Chain(version, _) => of_version(*version),
        Primitive::EtherProto(ethertype) => of_ethertype(*ethertype),
        Primitive::Host4 { within, address, mask, .. } => of_address4(*within, *address, *mask),
        Primitive::Host6 { address, mask, .. } => of_address6(*address, *mask),
        Primitive::Ports { of, low, high, .. } => {
            let protocol = of.map_or(KeyCondition::Anything, KeyCondition::Protocol);
            KeyCondition::all([KeyCondition::Ports(*low, *high), protocol])
        }
        // The index contains the IDs of all tags of the frame, so the condition applies whichever tag this `vlan`
        // tests.
        Primitive::Vlan(id) => KeyCondition::Vlan(*id),
        Primitive::IpBroadcast => IPV4,
        Primitive::Multicast(version) => of_version(*version),
        Primitive::Relation(left, _, right) => KeyCondition::all([of_sum(left, leaf.any), of_sum(right, leaf.any)]),
        _ => KeyCondition::Anything,
    }
}

/// The condition under which the packet contains the bytes of an arithmetic expression. For an operator, this is the
/// condition of the left operand.
fn of_sum(sum: &ArithExpr, any: bool) -> KeyCondition {
    match sum {
        ArithExpr::Is(_) | ArithExpr::Len => KeyCondition::Anything,
        ArithExpr::Op(_, a, _) | ArithExpr::Negative(a) => of_sum(a, any),
        ArithExpr::Load { protocol, index, .. } => {
            let own = if any { of_name(protocol) } else { KeyCondition::all([of_name(protocol), of_header(protocol)]) };
            KeyCondition::all([own, of_sum(index, any)])
        }
    }
}

/// The condition for an expression such as `tcp[0]`, which reads a transport header: without `anylink`, such an
/// expression reads only IPv4 packets.
fn of_header(protocol: &str) -> KeyCondition {
    match protocol {
        "tcp" | "udp" | "sctp" | "pim" => IPV4,
        _ => KeyCondition::Anything,
    }
}

fn of_name(name: &str) -> KeyCondition {
    match (name, names::above(name)) {
        ("tcp" | "udp" | "sctp" | "pim" | "ah" | "esp", Some(p)) => of_protocol(None, p),
        ("icmp6", _) => of_protocol(Some(Version::V6), 58),
        (_, Some(p)) => of_protocol(Some(Version::V4), p),
        _ => names::ethertype(name).map_or(KeyCondition::Anything, of_ethertype),
    }
}

/// The key of an IPv6 packet is the protocol at the end of its chain of headers, but a filter without `anylink` tests
/// the first header of the chain. Hence tests of extension headers yield no condition.
fn of_protocol(version: Option<Version>, p: u32) -> KeyCondition {
    let number = u8::try_from(p).ok().filter(|p| version == Some(Version::V4) || !IpProtocol(*p).is_extension());
    KeyCondition::all([number.map_or(KeyCondition::Anything, KeyCondition::Protocol), of_version(version)])
}

/// Only IPv4, IPv6 and ARP yield a condition, because [`wire::Headers`] parses no further ethertype behind these
/// ethertypes.
fn of_ethertype(ethertype: u32) -> KeyCondition {
    match u16::try_from(ethertype).map(EtherType) {
        Ok(e @ (EtherType::IPV4 | EtherType::IPV6 | EtherType::ARP)) => KeyCondition::EtherType(e.0),
        _ => KeyCondition::Anything,
    }
}

fn of_address4(within: Option<AddressProtocol>, address: u32, mask: u32) -> KeyCondition {
    let carrier = match within {
        Some(AddressProtocol::Ip) => IPV4,
        Some(AddressProtocol::Arp) => KeyCondition::EtherType(EtherType::ARP.0),
        Some(AddressProtocol::Rarp) | None => KeyCondition::Anything,
    };
    // Only the leading ones of the mask are used. If the mask has further ones after a zero, the condition is weaker
    // than the test.
    let length = mask.leading_ones();
    let bits = if length == 0 { 0 } else { address >> (32 - length) << (32 - length) };
    let address = prefix(Ipv4Addr::from(bits).into(), length, 32).unwrap_or(KeyCondition::Anything);
    KeyCondition::all([address, carrier])
}

fn of_address6(address: u128, mask: u128) -> KeyCondition {
    let length = mask.leading_ones();
    let bits = if length == 0 { 0 } else { address >> (128 - length) << (128 - length) };
    prefix(Ipv6Addr::from(bits).into(), length, 128).unwrap_or(IPV6)
}

fn prefix(address: IpAddr, length: u32, whole: u32) -> Option<KeyCondition> {
    match length {
        0 => None,
        n if n == whole => Some(KeyCondition::Host(address)),
        n => Some(KeyCondition::Net(address, n as u8)),
    }
}

/// The condition that follows from a test of flow records.
fn of_flow(leaf: &Leaf) -> KeyCondition {
    match &leaf.prim {
        Primitive::Protocol(name) => match names::above(name) {
            Some(p) => KeyCondition::Protocol(p as u8),
            None => KeyCondition::Anything,
        },
        Primitive::IpProto(_, p) => u8::try_from(*p).map_or(KeyCondition::Anything, KeyCondition::Protocol),
        Primitive::Host4 { address, mask, .. } => of_address4(None, *address, *mask),
        Primitive::Host6 { address, mask, .. } => match of_address6(*address, *mask) {
            KeyCondition::EtherType(_) => KeyCondition::Anything,
            need => need,
        },
        Primitive::Ports { of, low, high, .. } => {
            let protocol = of.map_or(KeyCondition::Anything, KeyCondition::Protocol);
            KeyCondition::all([KeyCondition::Ports(*low, *high), protocol])
        }
        _ => KeyCondition::Anything,
    }
}

/// The condition that a frame belongs to one of the flows that the primitives in `tests` determine. If they do not
/// determine both endpoints, there is no condition.
fn flows(tests: &[&Primitive]) -> KeyCondition {
    let mut hosts: Vec<(Dir, IpAddr)> = Vec::new();
    let mut ports: Vec<(Dir, u16)> = Vec::new();
    let mut protocols: Vec<u32> = Vec::new();
    for test in tests {
        match **test {
            // A host test without a protocol also matches ARP, which has no flow. But this condition is used only if
            // another test names the IP protocol, and that test does not match ARP.
            Primitive::Host4 { dir, address, mask: u32::MAX, .. } => hosts.push((dir, Ipv4Addr::from(address).into())),
            Primitive::Host6 { dir, address, mask: u128::MAX } => hosts.push((dir, Ipv6Addr::from(address).into())),
            Primitive::Ports { of, dir, low, high } => {
                protocols.extend(of.map(u32::from));
                if low == high {
                    ports.push((dir, low));
                }
            }
            Primitive::IpProto(_, p) => protocols.push(p),
            Primitive::Protocol(name) => protocols.extend(names::above(name)),
            _ => {}
        }
    }
    protocols.dedup();
    let [protocol] = protocols[..] else { return KeyCondition::Anything };
    let Ok(protocol) = u8::try_from(protocol).map(IpProtocol) else { return KeyCondition::Anything };
    if protocol.is_extension() {
        return KeyCondition::Anything;
    }
    let Some(hosts) = ends(&hosts) else { return KeyCondition::Anything };
    let ports = if protocol.has_ports() { ends(&ports) } else { Some(vec![(0, 0)]) };
    let Some(ports) = ports else { return KeyCondition::Anything };
    let pairs = hosts.iter().flat_map(|(a, b)| ports.iter().map(move |(p, q)| ((*a, *p), (*b, *q))));
    KeyCondition::any(pairs.map(|(one, other)| KeyCondition::Flow(protocol.0, one.min(other), one.max(other))))
}

/// Returns the pairs of a source value and a destination value (addresses or ports) that fulfil all tests; `None` if an
/// endpoint may have any value, or if the tests contain more than two different values.
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
        // If all tests have the same value, the other endpoint may have any value, unless the tests require this value
        // of both endpoints.
        [one] if named(Dir::Src) && named(Dir::Dst) => Some(vec![(one, one)]),
        _ => None,
    }
}
