//! Arithmetic of filters: numbers of 32 bits made from bytes of the packet.

use super::link::{IP, IP6};
use super::offsets::Offsets;
use super::test::{Spot, Test};
use crate::ir::Op;

/// A number.
#[derive(Clone, Debug, PartialEq)]
pub enum Number {
    Is(u32),
    /// Bytes on the wire.
    Len,
    Op(Op, Box<Number>, Box<Number>),
    /// Bytes of the frame.
    Load {
        base: Base,
        index: Box<Number>,
        width: u8,
    },
}

/// What an index counts from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Base {
    At(Spot),
    BehindIpv4(Spot),
}

/// A number and what must hold for it to exist.
#[derive(Clone, Debug, PartialEq)]
pub struct Guarded {
    pub number: Number,
    pub needs: Option<Test>,
}

impl Guarded {
    pub fn is(n: u32) -> Self {
        Self { number: Number::Is(n), needs: None }
    }

    /// As libpcap has it, what the *right* operand needs is not asked: `ip[2:2] - tcp[12]` reads where TCP would be.
    pub fn op(op: Op, a: Self, b: Self) -> Self {
        Self { number: Number::Op(op, Box::new(a.number), Box::new(b.number)), needs: a.needs }
    }

    /// The number with the other sign.
    pub fn negative(self) -> Self {
        Self { number: Number::Op(Op::Sub, Box::new(Number::Is(0)), Box::new(self.number)), needs: self.needs }
    }

    /// `protocol[index:width]`.
    pub fn load(protocol: &str, index: Self, width: u8, at: &Offsets) -> Result<Self, &'static str> {
        let network = at.network();
        let (base, needs) = match protocol {
            // libpcap takes all of these for "the link layer, whichever it is".
            "ether" | "link" | "ppp" | "slip" | "fddi" | "tr" | "wlan" => (Base::At(at.header()), None),
            "icmp6" => (Base::At(network.plus(40)), Some(at.ip6_next(58)?)),
            "tcp" | "udp" | "icmp" | "sctp" | "igmp" | "igrp" | "pim" | "vrrp" | "carp" | "ah" | "esp" => {
                let is = super::parse::abbreviation(protocol, at).unwrap_or(Ok(Test::Always(false)))?;
                let ip = at.carries(IP)?;
                (Base::BehindIpv4(network), Some(ip.and(is).and(at.not_later())))
            }
            other => match super::parse::abbreviation(other, at) {
                Some(is) => (Base::At(network), Some(is?)),
                None => return Err("nothing of it can be indexed"),
            },
        };
        let needs = both(index.needs, needs);
        Ok(Self { number: Number::Load { base, index: Box::new(index.number), width }, needs })
    }
}

impl Offsets {
    /// IPv6 whose header itself names the protocol.
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

impl Number {
    /// How many numbers it is made of.
    pub fn words(&self) -> usize {
        match self {
            Self::Is(_) | Self::Len => 1,
            Self::Op(_, a, b) => 1 + a.words() + b.words(),
            Self::Load { index, .. } => 1 + index.words(),
        }
    }

    /// The number, if no packet is needed to know it.
    pub fn constant(&self) -> Option<u32> {
        match self {
            Self::Is(n) => Some(*n),
            Self::Len | Self::Load { .. } => None,
            Self::Op(op, a, b) => {
                let (a, b) = (a.constant()?, b.constant()?);
                Some(match op {
                    Op::Shl => a.checked_shl(b).unwrap_or(0),
                    Op::Shr => a.checked_shr(b).unwrap_or(0),
                    _ => op.apply(a.into(), b.into()) as u32,
                })
            }
        }
    }
}
