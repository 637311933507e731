//! Lowers arithmetic expressions: translates them to numbers that are computed from the packet, and to the conditions
//! under which the packet contains the bytes.

use crate::anylink::AnyLinkTest;
use crate::header_offset::HeaderOffset;
use crate::link::{ARP, IP, IP6, RARP};
use crate::number::{Base, Number};
use crate::offsets::Offsets;
use crate::protocol_test::protocol_test;
use crate::test::Test;
use crate::tree::{ArithExpr, Op, Span, Version};

/// A number that is computed from the packet, and the condition under which the packet contains the bytes for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Guarded {
    /// The number.
    pub number: Number,
    /// The condition.
    pub needs: Option<Test>,
}

impl Guarded {
    /// Translates an arithmetic expression at this point of the filter. If `any` is true, offsets count from the
    /// headers inside all VLAN tags and MPLS labels.
    pub fn of(sum: &ArithExpr, at: &Offsets, any: bool) -> Result<Self, (Span, &'static str)> {
        Ok(match sum {
            ArithExpr::Is(n) => Self { number: Number::Is(*n), needs: None },
            ArithExpr::Len => Self { number: Number::Len, needs: None },
            // As in libpcap, only the protocol of the *left* operand is tested: in `ip[2:2] - tcp[12]`, the second load
            // reads the bytes at the offset of a TCP header, whatever the protocol of the packet is.
            ArithExpr::Op(op, a, b) => {
                let (a, b) = (Self::of(a, at, any)?, Self::of(b, at, any)?);
                Self { number: Number::Op(*op, Box::new(a.number), Box::new(b.number)), needs: a.needs }
            }
            ArithExpr::Negative(n) => {
                let n = Self::of(n, at, any)?;
                let number = Number::Op(Op::Sub, Box::new(Number::Is(0)), Box::new(n.number));
                Self { number, needs: n.needs }
            }
            ArithExpr::Load { protocol, index, width, span } => {
                let index = Self::of(index, at, any)?;
                let found = if any { deep_base(protocol, at) } else { base(protocol, at) };
                let (base, needs) = found.map_err(|why| (*span, why))?;
                let needs = both(index.needs, needs);
                Self { number: Number::Load { base, index: Box::new(index.number), width: *width }, needs }
            }
        })
    }
}

/// The position in the frame from which `i` in `protocol[i]` counts, and the condition that the packet contains the
/// protocol.
fn base(protocol: &str, at: &Offsets) -> Result<(Base, Option<Test>), &'static str> {
    let network = at.network();
    Ok(match protocol {
        "ether" => (Base::At(at.header()), None),
        "icmp6" => (Base::At(network.plus(40)), Some(at.ip6_next(58)?)),
        "tcp" | "udp" | "icmp" | "sctp" | "igmp" | "igrp" | "pim" | "vrrp" | "carp" => {
            let is = protocol_test(protocol, at).unwrap_or(Ok(Test::Always(false)))?;
            let ip = at.carries(IP)?;
            (Base::BehindIpv4(network), Some(ip.and(is).and(at.not_later())))
        }
        other => match protocol_test(other, at) {
            Some(is) => (Base::At(network), Some(is?)),
            None => return Err("the bytes of this protocol cannot be read"),
        },
    })
}

/// Like `base`, for a test that `anylink` modifies: the position in the frame from which `i` in `protocol[i]` counts,
/// and the condition that the packet contains the protocol.
fn deep_base(protocol: &str, at: &Offsets) -> Result<(Base, Option<Test>), &'static str> {
    let network = Base::Network { may_begin: at.is_raw() };
    let transport = |number| (Base::Transport, Some(Test::Deep(AnyLinkTest::Protocol(None, number))));
    let carried = |ethertype: u32| (network, Some(Test::Deep(AnyLinkTest::EtherType(ethertype as u16))));
    Ok(match protocol {
        "ether" => (Base::At(HeaderOffset::frame(0)), None),
        "ip" => (network, Some(Test::Deep(AnyLinkTest::Version(Version::V4)))),
        "ip6" => (network, Some(Test::Deep(AnyLinkTest::Version(Version::V6)))),
        "arp" => carried(ARP),
        "rarp" => carried(RARP),
        "tcp" => transport(6),
        "udp" => transport(17),
        "sctp" => transport(132),
        "icmp" => transport(1),
        "icmp6" => transport(58),
        _ => {
            return Err(
                "after `anylink`, only bytes of ether, ip, ip6, arp, rarp, tcp, udp, sctp, icmp and icmp6 can be read",
            );
        }
    })
}

impl Offsets {
    /// True for an IPv6 packet whose fixed header contains this protocol as the next header.
    fn ip6_next(&self, protocol: u8) -> Result<Test, &'static str> {
        let next = Test::equal(self.network().plus(6), 1, protocol.into());
        Ok(self.carries(IP6)?.and(next))
    }
}

pub fn both(a: Option<Test>, b: Option<Test>) -> Option<Test> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.and(b)),
        (one, None) | (None, one) => one,
    }
}
