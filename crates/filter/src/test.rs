//! The tests that words stand for, as libpcap makes them, and where in the frame they look.

use crate::anylink::AnyLinkTest;
use crate::arith::Number;
use crate::tree::Cmp;

/// A question about the frame.
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    /// Every frame, or none.
    Always(bool),
    /// The operand does not hold.
    Not(Box<Test>),
    /// Both hold.
    And(Box<Test>, Box<Test>),
    /// One of them holds.
    Or(Box<Test>, Box<Test>),
    /// The bytes at a place, with a mask, against a number.
    Field {
        /// Where.
        place: ByteLocation,
        /// How many bytes: 1, 2, 4, 6 or 8.
        width: u8,
        /// The bits that are compared.
        mask: u64,
        /// How they are compared.
        cmp: Cmp,
        /// With what.
        value: u64,
    },
    /// Two results of arithmetic, as 32-bit numbers.
    Relation(Number, Cmp, Number),
    /// This host sent it; of links whose frames do not say so themselves.
    Outgoing,
    /// The frame is a tunnel; what is in it is found for the tests that follow.
    Tunnel(Box<Tunnel>),
    /// What is in the tunnel begins with a link header.
    HasLink(u16),
    /// A protocol in the chain of headers behind that of IP.
    Chain(Chain),
    /// A question about the packet under all tags, labels and sessions, which [`wire::Headers`] found.
    Deep(AnyLinkTest),
}

/// See [`Test::Chain`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chain {
    /// The header of IP.
    pub header: HeaderOffset,
    /// Whether it is that of IPv6.
    pub is_v6: bool,
    /// The protocol that is looked for.
    pub protocol: u32,
}

/// Where bytes are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ByteLocation {
    /// At a spot.
    At(HeaderOffset),
    /// Behind the IPv4 header that begins at `header`, however long it is.
    BehindIpv4 {
        /// Where that header begins.
        header: HeaderOffset,
        /// Bytes behind its end.
        offset: u32,
    },
}

/// So many bytes behind the start of the frame, or behind what a tunnel was found to have in it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HeaderOffset {
    /// What it counts from, if not from the start of the frame.
    pub from: Option<TunnelRef>,
    /// Bytes.
    pub at: u32,
}

/// What is found in a tunnel, by its number in the filter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TunnelRef {
    /// The ethertype of what it carries.
    Kind(u16),
    /// Where that begins, with its link header.
    Link(u16),
    /// Where its network header begins.
    Payload(u16),
}

/// Geneve (RFC 8926) in UDP: the number of the tunnel, and the tests for it over either version of IP, whose header begins at `network`.
#[derive(Clone, Debug, PartialEq)]
pub struct Tunnel {
    /// Its number in the filter, from 0.
    pub number: u16,
    /// The network header around it.
    pub network: HeaderOffset,
    /// The frame has it over IPv4.
    pub over_ip: Test,
    /// The frame has it over IPv6.
    pub over_ip6: Test,
}

impl HeaderOffset {
    /// Behind the start of the frame.
    pub const fn frame(at: u32) -> Self {
        Self { from: None, at }
    }

    /// So many bytes on.
    pub const fn plus(self, bytes: u32) -> Self {
        Self { at: self.at.wrapping_add(bytes), ..self }
    }
}

impl TunnelRef {
    /// The number of the tunnel.
    pub const fn tunnel(self) -> u16 {
        match self {
            Self::Kind(n) | Self::Link(n) | Self::Payload(n) => n,
        }
    }
}

impl Test {
    /// How many tests and numbers it is made of.
    pub fn words(&self) -> usize {
        match self {
            Self::Always(_)
            | Self::Field { .. }
            | Self::Outgoing
            | Self::HasLink(_)
            | Self::Chain(_)
            | Self::Deep(_) => 1,
            Self::Not(t) => 1 + t.words(),
            Self::And(s, t) | Self::Or(s, t) => 1 + s.words() + t.words(),
            Self::Relation(a, _, b) => 1 + a.words() + b.words(),
            Self::Tunnel(tunnel) => 1 + tunnel.over_ip.words() + tunnel.over_ip6.words(),
        }
    }

    /// Whether headers or tags are followed in it, which takes a loop.
    pub fn loops(&self) -> bool {
        match self {
            Self::Chain(_) | Self::Deep(AnyLinkTest::Vlan(Some(_))) => true,
            Self::Not(t) => t.loops(),
            Self::And(s, t) | Self::Or(s, t) => s.loops() || t.loops(),
            _ => false,
        }
    }

    /// How many tunnels are numbered in it.
    pub fn tunnels(&self) -> u16 {
        match self {
            Self::Not(t) => t.tunnels(),
            Self::And(s, t) | Self::Or(s, t) => s.tunnels().max(t.tunnels()),
            Self::Tunnel(tunnel) => tunnel.number + 1,
            _ => 0,
        }
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self::And(Box::new(self), Box::new(other))
    }

    pub(crate) fn or(self, other: Self) -> Self {
        Self::Or(Box::new(self), Box::new(other))
    }

    pub(crate) fn not(self) -> Self {
        Self::Not(Box::new(self))
    }

    pub(crate) fn equal(at: HeaderOffset, width: u8, value: u64) -> Self {
        Self::masked(at, width, u64::MAX, value)
    }

    pub(crate) fn masked(at: HeaderOffset, width: u8, mask: u64, value: u64) -> Self {
        // libpcap's optimiser sees this too, and then no byte is asked for.
        if mask == 0 {
            return Self::Always(value == 0);
        }
        Self::field(ByteLocation::At(at), width, mask, value)
    }

    pub(crate) fn field(place: ByteLocation, width: u8, mask: u64, value: u64) -> Self {
        Self::Field { place, width, mask, cmp: Cmp::Eq, value }
    }

    /// One of these numbers.
    pub(crate) fn any(at: HeaderOffset, width: u8, values: impl IntoIterator<Item = u64>) -> Self {
        values.into_iter().map(|v| Self::equal(at, width, v)).reduce(Self::or).unwrap_or(Self::Always(false))
    }
}
