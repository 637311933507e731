//! Lowers a filter: translates its syntax tree to tests for frames of one link type, as libpcap does. The tree is
//! visited from left to right, because `vlan`, `mpls`, `pppoes` and `geneve` move the offsets of the primitives after
//! them.

use crate::anylink::AnyLinkTest;
use crate::arith::{Guarded, both};
use crate::link::{ARP, IP, Link, RARP};
use crate::names;
use crate::offsets::Offsets;
use crate::protocol_test::protocol_test;
use crate::test::Test;
use crate::tree::{AddressProtocol, Dir, Expr, Leaf, Primitive, Span, Version};

/// The test for frames of this link layer. The error names the first primitive that does not apply to such frames, and
/// the reason.
pub fn lower(expr: &Expr, link: Link) -> Result<Test, (Span, &'static str)> {
    of_expr(expr, &mut Offsets::of(link))
}

fn of_expr(expr: &Expr, at: &mut Offsets) -> Result<Test, (Span, &'static str)> {
    Ok(match expr {
        Expr::Leaf(leaf) => of_leaf(leaf, at)?,
        Expr::Not(inner) => of_expr(inner, at)?.not(),
        Expr::And(a, b) => {
            let a = of_expr(a, at)?;
            a.and(of_expr(b, at)?)
        }
        Expr::Or(a, b) => {
            let a = of_expr(a, at)?;
            a.or(of_expr(b, at)?)
        }
    })
}

fn of_leaf(leaf: &Leaf, at: &mut Offsets) -> Result<Test, (Span, &'static str)> {
    if let Primitive::Relation(left, cmp, right) = &leaf.prim {
        let (left, right) = (Guarded::of(left, at, leaf.any)?, Guarded::of(right, at, leaf.any)?);
        let test = Test::Relation(left.number, *cmp, right.number);
        return Ok(match both(left.needs, right.needs) {
            Some(needs) => needs.and(test),
            None => test,
        });
    }
    let test = if leaf.any { of_deep(&leaf.prim, at) } else { of_prim(&leaf.prim, at) };
    test.map_err(|why| (leaf.span, why))
}

fn of_prim(prim: &Primitive, at: &mut Offsets) -> Result<Test, &'static str> {
    match *prim {
        Primitive::Protocol(name) => protocol_test(name, at).unwrap_or(Err("not a protocol")),
        Primitive::Host4 { within, dir, address, mask } => {
            let host = |carrier| at.host(carrier, dir, address, mask);
            match within {
                Some(AddressProtocol::Ip) => host(IP),
                Some(AddressProtocol::Arp) => host(ARP),
                Some(AddressProtocol::Rarp) => host(RARP),
                None => Ok(match (host(IP)?, host(ARP), host(RARP)) {
                    (ip, Ok(arp), Ok(rarp)) => ip.or(arp).or(rarp),
                    // Behind MPLS labels, only IP packets are recognised.
                    (ip, ..) => ip,
                }),
            }
        }
        Primitive::Host6 { dir, address, mask } => at.host6(dir, address, mask),
        Primitive::Mac(dir, mac) => at.mac(dir, mac),
        Primitive::Decnet(dir, area, node) => at.decnet(dir, area, node),
        Primitive::Ports { of: Some(of), dir, low, high } => at.ports(&[of], dir, low, high),
        Primitive::Ports { of: None, dir, low, high } => at.ports(&[6, 17, 132], dir, low, high),
        Primitive::IpProto(version, p) => versions(version, |v| match v {
            Version::V4 => at.ip_protocol(p),
            Version::V6 => at.ip6_protocol(p),
        }),
        Primitive::Chain(version, p) => versions(version, |v| at.chain(v, p)),
        Primitive::EtherProto(ethertype) => at.carries(ethertype),
        Primitive::IsoProto(p) => at.iso_protocol(p),
        Primitive::IsIs(ref kinds) => at.isis(kinds),
        Primitive::Vlan(id) => at.vlan(id),
        Primitive::Mpls(label) => at.mpls(label),
        Primitive::Pppoes(session) => at.pppoes(session),
        Primitive::Pppoed => at.carries(0x8863),
        Primitive::Geneve(vni) => at.geneve(vni),
        Primitive::Outgoing(true) => at.outgoing(),
        Primitive::Outgoing(false) => at.outgoing().map(Test::not),
        Primitive::Device(number) => at.device(number),
        Primitive::Llc(control) => at.llc(control),
        Primitive::Broadcast => at.mac(Dir::Dst, [0xff; 6]),
        Primitive::IpBroadcast => at.ip_broadcast(),
        Primitive::Multicast(version) => at.multicast(version),
        Primitive::Relation(..) => unreachable!("relations are lowered elsewhere"),
        Primitive::Flow(_) => Err("this word tests flow records, not packets; use `netgrain flows`"),
    }
}

fn versions(
    version: Option<Version>,
    of: impl Fn(Version) -> Result<Test, &'static str>,
) -> Result<Test, &'static str> {
    match version {
        Some(version) => of(version),
        None => Ok(of(Version::V4)?.or(of(Version::V6)?)),
    }
}

/// Lowers a primitive that `anylink` modifies.
fn of_deep(prim: &Primitive, at: &mut Offsets) -> Result<Test, &'static str> {
    const LOOKED_THROUGH: &str = "`anylink` already skips these headers; omit one of the two words";
    let deep = |deep| Ok(Test::Deep(deep));
    let v4 = |address: u32, mask, dir| AnyLinkTest::Address4 { within: Some(AddressProtocol::Ip), dir, address, mask };
    match *prim {
        Primitive::Protocol(name) => match (name, names::above(name)) {
            ("tcp" | "udp" | "sctp" | "pim" | "ah" | "esp", Some(p)) => deep(AnyLinkTest::Protocol(None, p as u8)),
            ("icmp6", _) => deep(AnyLinkTest::Protocol(Some(Version::V6), 58)),
            (_, Some(p)) => deep(AnyLinkTest::Protocol(Some(Version::V4), p as u8)),
            _ => match names::ethertype(name) {
                Some(ethertype) if ethertype > 1500 => deep(AnyLinkTest::EtherType(ethertype as u16)),
                _ => of_prim(prim, at),
            },
        },
        Primitive::Host4 { within, dir, address, mask } => deep(AnyLinkTest::Address4 { within, dir, address, mask }),
        Primitive::Host6 { dir, address, mask } => deep(AnyLinkTest::Address6 { dir, address, mask }),
        Primitive::Ports { of, dir, low, high } => deep(AnyLinkTest::Ports { of, dir, low, high }),
        Primitive::IpProto(version, p) => match u8::try_from(p) {
            Ok(p) => deep(AnyLinkTest::Protocol(version, p)),
            Err(_) => Ok(Test::Always(false)),
        },
        Primitive::EtherProto(ethertype) if (1501..=0xffff).contains(&ethertype) => {
            deep(AnyLinkTest::EtherType(ethertype as u16))
        }
        Primitive::IpBroadcast => {
            Ok(Test::Deep(v4(0, u32::MAX, Dir::Dst)).or(Test::Deep(v4(u32::MAX, u32::MAX, Dir::Dst))))
        }
        Primitive::Multicast(Some(Version::V4)) => deep(v4(0xe000_0000, 0xe000_0000, Dir::Dst)),
        Primitive::Multicast(Some(Version::V6)) => {
            deep(AnyLinkTest::Address6 { dir: Dir::Dst, address: 0xff << 120, mask: 0xff << 120 })
        }
        Primitive::Vlan(id) => deep(AnyLinkTest::Vlan(id)),
        Primitive::Mpls(_) | Primitive::Pppoes(_) => Err(LOOKED_THROUGH),
        Primitive::Geneve(_) => Err("`anylink` does not enter tunnels; write `geneve` before it"),
        Primitive::Chain(..) => Err("`anylink` already skips all extension headers; write `proto`"),
        _ => of_prim(prim, at),
    }
}
