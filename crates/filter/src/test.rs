//! Tests: the primitives of a filter after lowering, as in libpcap, and the locations of the bytes that they read.

use crate::anylink::AnyLinkTest;
use crate::arith::Number;
use crate::tree::Cmp;

/// A condition on a frame.
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    /// A constant.
    Always(bool),
    /// Negation.
    Not(Box<Test>),
    /// Conjunction.
    And(Box<Test>, Box<Test>),
    /// Disjunction.
    Or(Box<Test>, Box<Test>),
    /// Compares the masked bytes at a location with a number.
    Field {
        /// The location.
        place: ByteLocation,
        /// Width in bytes: 1, 2, 4, 6 or 8.
        width: u8,
        /// The mask.
        mask: u64,
        /// The comparison.
        cmp: Cmp,
        /// The number.
        value: u64,
    },
    /// Compares two 32-bit numbers.
    Relation(Number, Cmp, Number),
    /// This host sent the frame; for link layers whose header does not contain the direction.
    Outgoing,
    /// The frame is a tunnel; stores the offsets of the tunnel's headers for the following tests.
    Tunnel(Box<Tunnel>),
    /// The payload of the tunnel begins with a link header.
    HasLink(u16),
    /// The chain of headers behind the IP header contains a protocol.
    Chain(Chain),
    /// A test of the packet under all tags, labels and sessions that [`wire::Headers`] found.
    Deep(AnyLinkTest),
}

/// See [`Test::Chain`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chain {
    /// Location of the IP header.
    pub header: HeaderOffset,
    /// True for IPv6.
    pub is_v6: bool,
    /// The protocol to find.
    pub protocol: u32,
}

/// A location of bytes in the frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ByteLocation {
    /// A fixed offset.
    At(HeaderOffset),
    /// Behind the IPv4 header, whatever its length.
    BehindIpv4 {
        /// Location of the IPv4 header.
        header: HeaderOffset,
        /// Offset from the end of the IPv4 header.
        offset: u32,
    },
}

/// An offset from the start of the frame, or from a header of a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HeaderOffset {
    /// The header from which the offset counts; `None` for the start of the frame.
    pub from: Option<TunnelRef>,
    /// The offset in bytes.
    pub at: u32,
}

/// A header of a tunnel; the number is that of the tunnel in the filter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TunnelRef {
    /// The field with the ethertype of the tunnel's payload.
    Kind(u16),
    /// The start of the tunnel's payload, with its link header.
    Link(u16),
    /// The network header in the tunnel.
    Payload(u16),
}

/// A Geneve tunnel (RFC 8926) over UDP.
#[derive(Clone, Debug, PartialEq)]
pub struct Tunnel {
    /// The number of the tunnel in the filter, from 0.
    pub number: u16,
    /// Location of the enclosing network header.
    pub network: HeaderOffset,
    /// The test for the tunnel over IPv4.
    pub over_ip: Test,
    /// The test for the tunnel over IPv6.
    pub over_ip6: Test,
}

impl HeaderOffset {
    /// An offset from the start of the frame.
    pub const fn frame(at: u32) -> Self {
        Self { from: None, at }
    }

    /// The offset moved by this number of bytes.
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
    /// The number of tests and numbers in this test.
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

    /// True if the test follows headers or tags, which requires a loop.
    pub fn loops(&self) -> bool {
        match self {
            Self::Chain(_) | Self::Deep(AnyLinkTest::Vlan(Some(_))) => true,
            Self::Not(t) => t.loops(),
            Self::And(s, t) | Self::Or(s, t) => s.loops() || t.loops(),
            _ => false,
        }
    }

    /// The number of tunnels in the test.
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
        // As in libpcap's optimiser: no byte is read.
        if mask == 0 {
            return Self::Always(value == 0);
        }
        Self::field(ByteLocation::At(at), width, mask, value)
    }

    pub(crate) fn field(place: ByteLocation, width: u8, mask: u64, value: u64) -> Self {
        Self::Field { place, width, mask, cmp: Cmp::Eq, value }
    }

    /// Equality with one of these numbers.
    pub(crate) fn any(at: HeaderOffset, width: u8, values: impl IntoIterator<Item = u64>) -> Self {
        values.into_iter().map(|v| Self::equal(at, width, v)).reduce(Self::or).unwrap_or(Self::Always(false))
    }
}
