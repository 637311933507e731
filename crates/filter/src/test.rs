//! Defines the tests to which lowering translates the primitives of a filter, and the locations of the bytes that the
//! tests read. The tests are those that libpcap generates.

use crate::anylink::AnyLinkTest;
use crate::number::Number;
use crate::tree::Cmp;

pub use crate::header_offset::{HeaderOffset, TunnelRef};

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
        /// Width of the field in bytes: 1, 2, 4, 6 or 8.
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
    /// True if this host sent the frame; used for link layers whose header does not contain the direction.
    Outgoing,
    /// True if the frame contains this tunnel. The test also stores the offsets of the tunnel's headers for later
    /// tests.
    Tunnel(Box<Tunnel>),
    /// True if the payload of the tunnel with this number begins with a link header.
    HasLink(u16),
    /// True if the chain of headers behind the IP header contains the protocol of the [`Chain`].
    Chain(Chain),
    /// A test of the packet that [`wire::Headers`] found inside all VLAN tags, MPLS labels and PPPoE sessions.
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

/// The location of bytes in a frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ByteLocation {
    /// A fixed offset.
    At(HeaderOffset),
    /// A location after the IPv4 header, whose length varies.
    BehindIpv4 {
        /// Location of the IPv4 header.
        header: HeaderOffset,
        /// Offset in bytes from the end of the IPv4 header.
        offset: u32,
    },
}

/// A Geneve tunnel (RFC 8926) over UDP.
#[derive(Clone, Debug, PartialEq)]
pub struct Tunnel {
    /// The number of the tunnel primitive in the filter, counted from 0.
    pub number: u16,
    /// Offset of the network header that encloses the tunnel.
    pub network: HeaderOffset,
    /// The test that is evaluated if the outer packet is IPv4.
    pub over_ip: Test,
    /// The test that is evaluated if the outer packet is IPv6 and `over_ip` is false.
    pub over_ip6: Test,
}

impl Test {
    /// The number of nodes of this test: tests, logical operators, and the operators and operands of arithmetic
    /// expressions.
    pub fn node_count(&self) -> usize {
        match self {
            Self::Always(_)
            | Self::Field { .. }
            | Self::Outgoing
            | Self::HasLink(_)
            | Self::Chain(_)
            | Self::Deep(_) => 1,
            Self::Not(t) => 1 + t.node_count(),
            Self::And(s, t) | Self::Or(s, t) => 1 + s.node_count() + t.node_count(),
            Self::Relation(a, _, b) => 1 + a.node_count() + b.node_count(),
            Self::Tunnel(tunnel) => 1 + tunnel.over_ip.node_count() + tunnel.over_ip6.node_count(),
        }
    }

    /// True if the test follows a chain of headers or tags, so that evaluating it requires a loop.
    pub fn loops(&self) -> bool {
        match self {
            Self::Chain(_) | Self::Deep(AnyLinkTest::Vlan(Some(_))) => true,
            Self::Not(t) => t.loops(),
            Self::And(s, t) | Self::Or(s, t) => s.loops() || t.loops(),
            _ => false,
        }
    }

    /// The number of tunnel primitives in the test.
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
        // If the mask is 0, no byte is read, as in libpcap's optimiser, so the test never rejects a truncated frame.
        if mask == 0 {
            return Self::Always(value == 0);
        }
        Self::field(ByteLocation::At(at), width, mask, value)
    }

    pub(crate) fn field(place: ByteLocation, width: u8, mask: u64, value: u64) -> Self {
        Self::Field { place, width, mask, cmp: Cmp::Eq, value }
    }

    /// A test that the field is equal to one of these numbers.
    pub(crate) fn any(at: HeaderOffset, width: u8, values: impl IntoIterator<Item = u64>) -> Self {
        values.into_iter().map(|v| Self::equal(at, width, v)).reduce(Self::or).unwrap_or(Self::Always(false))
    }
}
