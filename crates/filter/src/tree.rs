//! The syntax tree of a filter. Packet filters, filters on flow records and index conditions use the same tree.

use std::fmt;

/// A filter that contains at least one test.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// A test.
    Leaf(Leaf),
    /// Negation.
    Not(Box<Expr>),
    /// Conjunction.
    And(Box<Expr>, Box<Expr>),
    /// Disjunction.
    Or(Box<Expr>, Box<Expr>),
}

/// A test and its position.
#[derive(Clone, Debug, PartialEq)]
pub struct Leaf {
    /// The test.
    pub prim: Primitive,
    /// True if `anylink` modifies the test: it applies to the packet inside all VLAN tags, MPLS labels and PPPoE
    /// sessions.
    pub any: bool,
    /// The position in the filter of the word to which an error refers.
    pub span: Span,
}

/// A range of the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Offset of the first byte.
    pub at: usize,
    /// Its length in bytes.
    pub len: usize,
}

/// A version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// A protocol whose header contains IPv4 addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressProtocol {
    /// IPv4.
    Ip,
    /// ARP.
    Arp,
    /// Reverse ARP.
    Rarp,
}

/// An endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dir {
    /// Source or destination.
    Either,
    /// Source.
    Src,
    /// Destination.
    Dst,
    /// Source and destination.
    Both,
}

impl Dir {
    /// True if `is` is true for the selected endpoints: for the source, for the destination, for at least one of the
    /// two, or for both.
    #[inline]
    pub fn holds<T>(self, src: T, dst: T, is: impl Fn(T) -> bool) -> bool {
        match self {
            Self::Either => is(src) || is(dst),
            Self::Src => is(src),
            Self::Dst => is(dst),
            Self::Both => is(src) && is(dst),
        }
    }
}

/// A comparison of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cmp {
    /// `a == b`
    Eq,
    /// `a != b`
    Ne,
    /// `a < b`
    Lt,
    /// `a <= b`
    Le,
    /// `a > b`
    Gt,
    /// `a >= b`
    Ge,
}

impl Cmp {
    /// The comparison with this sign.
    pub fn of(sign: &str) -> Option<Self> {
        Some(match sign {
            ">" => Self::Gt,
            ">=" => Self::Ge,
            "<" => Self::Lt,
            "<=" => Self::Le,
            "=" | "==" => Self::Eq,
            "!=" => Self::Ne,
            _ => return None,
        })
    }

    /// Evaluates the comparison.
    #[inline]
    pub const fn holds(self, a: u64, b: u64) -> bool {
        match self {
            Self::Eq => a == b,
            Self::Ne => a != b,
            Self::Lt => a < b,
            Self::Le => a <= b,
            Self::Gt => a > b,
            Self::Ge => a >= b,
        }
    }
}

/// An operator of 32-bit arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Sum.
    Add,
    /// Difference.
    Sub,
    /// Product.
    Mul,
    /// Quotient.
    Div,
    /// Remainder.
    Rem,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
    /// Shift left.
    Shl,
    /// Shift right.
    Shr,
}

impl Op {
    /// Evaluates the operation; `None` for a division by 0. A shift by more than 31 bits yields 0.
    #[inline]
    pub const fn apply(self, a: u32, b: u32) -> Option<u32> {
        Some(match self {
            Self::Add => a.wrapping_add(b),
            Self::Sub => a.wrapping_sub(b),
            Self::Mul => a.wrapping_mul(b),
            Self::Div => return a.checked_div(b),
            Self::Rem => return a.checked_rem(b),
            Self::And => a & b,
            Self::Or => a | b,
            Self::Xor => a ^ b,
            Self::Shl if b > 31 => 0,
            Self::Shl => a << b,
            Self::Shr if b > 31 => 0,
            Self::Shr => a >> b,
        })
    }
}

/// An arithmetic expression over bytes of the packet.
#[derive(Clone, Debug, PartialEq)]
pub enum ArithExpr {
    /// A constant.
    Is(u32),
    /// The wire length in bytes.
    Len,
    /// An operator and its operands.
    Op(Op, Box<ArithExpr>, Box<ArithExpr>),
    /// The negated number.
    Negative(Box<ArithExpr>),
    /// `protocol[index:width]`.
    Load {
        /// The protocol from whose header the bytes are read.
        protocol: &'static str,
        /// Offset in bytes from the start of the header of `protocol`.
        index: Box<ArithExpr>,
        /// Number of bytes to read: 1, 2 or 4.
        width: u8,
        /// The position of the protocol's name in the filter.
        span: Span,
    },
}

/// A test of a filter.
#[derive(Clone, Debug, PartialEq)]
pub enum Primitive {
    /// Tests for a protocol that a single word names, such as `tcp`.
    Protocol(&'static str),
    /// Tests for an IPv4 address under a mask. With `within: None` the address may be in an IPv4, an ARP or a reverse
    /// ARP header.
    Host4 {
        /// The protocol whose header contains the address.
        within: Option<AddressProtocol>,
        /// The endpoint.
        dir: Dir,
        /// The address; bits outside the mask are 0.
        address: u32,
        /// The mask.
        mask: u32,
    },
    /// Tests for an IPv6 address under a mask.
    Host6 {
        /// The endpoint.
        dir: Dir,
        /// The address; bits outside the mask are 0.
        address: u128,
        /// The mask.
        mask: u128,
    },
    /// Tests for a MAC address.
    Mac(Dir, [u8; 6]),
    /// Tests for a DECnet address: area and node.
    Decnet(Dir, u16, u16),
    /// Tests for a port in this range, of this protocol; without a protocol, of TCP, UDP or SCTP.
    Ports {
        /// The protocol.
        of: Option<u8>,
        /// The endpoint.
        dir: Dir,
        /// The lowest port.
        low: u16,
        /// The highest port.
        high: u16,
    },
    /// Tests the IP protocol of packets of one IP version, or of both versions.
    IpProto(Option<Version>, u32),
    /// Tests for an IP protocol anywhere in the chain of headers.
    Chain(Option<Version>, u32),
    /// Tests for an ethertype or an 802.2 service access point.
    EtherProto(u32),
    /// Tests for a protocol of the ISO network layer.
    IsoProto(u32),
    /// Tests for an IS-IS packet with one of these PDU types.
    IsIs(Vec<u8>),
    /// Tests for a VLAN tag.
    Vlan(Option<u16>),
    /// Tests for an MPLS label.
    Mpls(Option<u32>),
    /// Tests for PPPoE in the session stage.
    Pppoes(Option<u16>),
    /// Tests for PPPoE in the discovery stage.
    Pppoed,
    /// Tests for a Geneve tunnel.
    Geneve(Option<u32>),
    /// Tests the direction of the frame: true if the capturing host sent the frame, false if not.
    Outgoing(bool),
    /// Tests the index of the interface on which the frame was captured.
    Interface(u32),
    /// Tests for an 802.2 header whose control field has this value under this mask.
    Llc(Option<(u64, u64)>),
    /// Tests for broadcast on the link layer.
    Broadcast,
    /// Tests for IPv4 broadcast. Without the network mask, only addresses are recognised that are broadcast addresses
    /// in every network.
    IpBroadcast,
    /// Tests for multicast on the link layer, in IPv4 or in IPv6.
    Multicast(Option<Version>),
    /// Compares two numbers.
    Relation(ArithExpr, Cmp, ArithExpr),
    /// Tests a value that only flow records have; packet filters cannot contain it.
    Flow(FlowTest),
}

/// A test of a flow record; filters for packets cannot contain it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FlowTest {
    /// Compares a quantity of the flow record with a number, which is in the base unit of the quantity (bytes, bits per
    /// second, nanoseconds).
    Count(Quantity, Dir, Cmp, u64),
    /// Tests the TCP flags that the endpoints sent.
    Flags {
        /// The endpoint whose packets are tested.
        dir: Dir,
        /// True if all of these flags must be set, false if one of them is sufficient.
        all: bool,
        /// The flags as a bit mask: FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128.
        bits: u8,
    },
    /// Tests for a TCP state, given as an index in [`crate::flow::TCP_STATES`].
    State(u8),
    /// Tests for a flow end reason, given as an index in [`crate::flow::END_REASONS`].
    End(u8),
}

/// A quantity of a flow record that a filter can compare with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Bytes of frames.
    Bytes,
    /// Packets.
    Packets,
    /// Time from the first packet to the last packet, in nanoseconds.
    Duration,
    /// Bits of frames per second.
    BitRate,
    /// Packets per second.
    PacketRate,
    /// Bytes per packet, rounded down.
    PacketSize,
    /// Time from the SYN to the SYN/ACK, in nanoseconds.
    RoundTrip,
}

impl Expr {
    /// Calls `each` with every test from left to right.
    pub fn each<'a>(&'a self, each: &mut impl FnMut(&'a Leaf)) {
        match self {
            Self::Leaf(leaf) => each(leaf),
            Self::Not(inner) => inner.each(each),
            Self::And(a, b) | Self::Or(a, b) => {
                a.each(each);
                b.each(each);
            }
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::V4 { "ip" } else { "ip6" })
    }
}
