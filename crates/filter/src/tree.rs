//! The syntax tree: what the words of a filter say, before it is decided of what they are asked.

use std::fmt;

/// A filter that says something.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// A test.
    Leaf(Leaf),
    /// The operand does not hold.
    Not(Box<Expr>),
    /// Both hold.
    And(Box<Expr>, Box<Expr>),
    /// One of them holds.
    Or(Box<Expr>, Box<Expr>),
}

/// A test and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Leaf {
    /// What is tested.
    pub prim: Primitive,
    /// Below the word `anylink`: asked of the packet under all tags, labels and sessions.
    pub any: bool,
    /// Where the word that decides stands.
    pub span: Span,
}

/// A piece of the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Its first byte.
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

/// A protocol with addresses of IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressProtocol {
    /// IPv4.
    Ip,
    /// ARP.
    Arp,
    /// Reverse ARP.
    Rarp,
}

/// Which end.
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
    /// Whether it holds of these two.
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

/// How two numbers are compared.
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
    /// Of its sign.
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

    /// Whether it holds.
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

/// An operator of arithmetic, which has 32 bits.
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
    /// Bits of both.
    And,
    /// Bits of either.
    Or,
    /// Bits of one.
    Xor,
    /// Towards the high bits.
    Shl,
    /// Towards the low bits.
    Shr,
}

impl Op {
    /// The result; `None` of a division by 0. A shift by more than 31 bits leaves 0.
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

/// A number made from bytes of the packet.
#[derive(Clone, Debug, PartialEq)]
pub enum ArithExpr {
    /// The number itself.
    Is(u32),
    /// Bytes on the wire.
    Len,
    /// Two numbers and an operator.
    Op(Op, Box<ArithExpr>, Box<ArithExpr>),
    /// The number with the other sign.
    Negative(Box<ArithExpr>),
    /// `protocol[index:width]`.
    Load {
        /// The protocol from whose header the index counts.
        protocol: &'static str,
        /// Bytes behind the beginning of that header.
        index: Box<ArithExpr>,
        /// 1, 2 or 4 bytes.
        width: u8,
        /// Where the protocol's name stands.
        span: Span,
    },
}

/// One test.
#[derive(Clone, Debug, PartialEq)]
pub enum Primitive {
    /// A protocol's name alone.
    Protocol(&'static str),
    /// An address of IPv4 under a mask; without a carrier in IPv4, ARP and reverse ARP.
    Host4 {
        /// Where it is looked for.
        within: Option<AddressProtocol>,
        /// Which end.
        dir: Dir,
        /// The address; bits that the mask leaves out are 0.
        address: u32,
        /// The mask.
        mask: u32,
    },
    /// An address of IPv6 under a mask.
    Host6 {
        /// Which end.
        dir: Dir,
        /// The address; bits that the mask leaves out are 0.
        address: u128,
        /// The mask.
        mask: u128,
    },
    /// A link address.
    Mac(Dir, [u8; 6]),
    /// Area and node of DECnet.
    Decnet(Dir, u16, u16),
    /// A port between these two, of one protocol, or of TCP, UDP and SCTP.
    Ports {
        /// The protocol.
        of: Option<u8>,
        /// Which end.
        dir: Dir,
        /// The least port.
        low: u16,
        /// The greatest port.
        high: u16,
    },
    /// The protocol above IP, of one version or of both.
    IpProto(Option<Version>, u32),
    /// A protocol anywhere in the chain of headers.
    Chain(Option<Version>, u32),
    /// An ethertype, or a service access point of 802.2.
    EtherProto(u32),
    /// A protocol of ISO's network layer.
    IsoProto(u32),
    /// IS-IS of one of these kinds.
    IsIs(Vec<u8>),
    /// A VLAN tag.
    Vlan(Option<u16>),
    /// An MPLS label.
    Mpls(Option<u32>),
    /// A frame of PPPoE's session stage.
    Pppoes(Option<u16>),
    /// A frame of PPPoE's discovery stage.
    Pppoed,
    /// A tunnel of Geneve.
    Geneve(Option<u32>),
    /// Sent by the capturing host, or not.
    Outgoing(bool),
    /// The number of the device that the frame came by.
    Device(u32),
    /// A header of 802.2; with mask and value of its control field.
    Llc(Option<(u64, u64)>),
    /// To all stations of the link.
    Broadcast,
    /// To all hosts, as far as that is known without the network's mask.
    IpBroadcast,
    /// To a group of the link, of IPv4 or of IPv6.
    Multicast(Option<Version>),
    /// Two numbers compared.
    Relation(ArithExpr, Cmp, ArithExpr),
    /// A question about a flow record.
    Flow(FlowTest),
}

/// What a flow record can be asked beside the words of packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FlowTest {
    /// A quantity against a number in its base unit.
    Count(Quantity, Dir, Cmp, u64),
    /// Flags of TCP that were seen: all of these bits, or any.
    Flags {
        /// Of whose packets.
        dir: Dir,
        /// All of the bits are wanted, not any.
        all: bool,
        /// FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128.
        bits: u8,
    },
    /// How far TCP got: index in [`crate::flow::TCP_STATES`].
    State(u8),
    /// Why the record was made: index in [`crate::flow::END_REASONS`].
    End(u8),
}

/// A quantity of a flow record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Bytes of frames.
    Bytes,
    /// Packets.
    Packets,
    /// Nanoseconds from the first packet to the last.
    Duration,
    /// Bits of frames per second.
    BitRate,
    /// Packets per second.
    PacketRate,
    /// Bytes of each packet, rounded down.
    PacketSize,
    /// Nanoseconds from SYN to SYN and ACK.
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
