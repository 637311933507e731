//! The intermediate representation (IR) of programs: all front ends compile to it and all back ends run it. This page
//! defines what back ends must do. The interpreter [`interp`] is the reference implementation. [`Facts`] are the values
//! that a program may read in addition to the bytes of a packet.
//!
//! ```text
//! program = tables (egress interfaces, messages, maps, sets, detectors) + blocks b0 b1 … bn
//! block   = instructions, one after the other, then one end: jump · if · fits · pass · drop
//! ```
//! **Control.** Execution begins in block b0. The end of a block leads only to blocks with a greater number. So no
//! instruction runs twice for a packet, and every program terminates. `pass` ends the program with the current verdict
//! record. `drop` sets the kind of the record to [`VerdictKind::Drop`] and ends the program.
//!
//! **Values.** Every value is an unsigned 64-bit number in a register. Registers are variables: an instruction may
//! overwrite a register. Arithmetic wraps; `x / 0` is 0 and `x % 0` is `x` (RFC 9669); shift counts are taken modulo
//! 64. Truth values are 0 and 1. [`Inst::Mix`] computes the hash function [`base::hash::mix64`].
//!
//! **The packet.** [`Inst::Load`] reads 1 to 8 bytes in network order. On every path to a load, an [`End::Fits`] must
//! have tested that these bytes were captured. [`verify`](Program::verify) proves this, so a back end may load the
//! bytes without another check. [`Inst::Fact`] and [`Inst::Meta`] read the results of the header parser
//! ([`crate::facts::Facts`] is their fixed layout). These reads never fail: an unknown offset is 0.
//!
//! **The verdict record.** Six variables ([`Var`]) form the verdict record, which is the result of the program: kind,
//! classes, hash, hash2, mark, state. At the start of a program the kind is [`VerdictKind::Copy`], the classes are
//! [`DEFAULT_CLASS`], the mark is the mark of the packet, and the other variables are 0. So a program that passes a
//! packet without a change of the record delivers a copy to each member of the default class. All variables except the
//! classes store 32 bits.
//!
//! **Effects** take place in the order of execution, and a later drop does not undo them: [`Inst::Forward`],
//! [`Inst::Kernel`], [`Inst::Log`], [`Inst::Count`], and writes to maps. If a program executes [`Inst::Kernel`] several
//! times for a packet, the host receives one copy.
//!
//! **Maps** store a number for each key. A key is a list of words; the map declares how many. The IR computes the words
//! explicitly, also the order of endpoints in symmetric keys. An entry that has expired according to [`Expiry`] counts
//! as absent. With [`Expiry::Idle`] every `get`, `put` and `add` that finds or creates the entry touches it: the
//! timestamp of the entry becomes the packet's time if that is later; [`Inst::Has`] does not touch the entry. With
//! [`Expiry::Lifetime`] the timestamp is the time of creation. Time is packet time; an entry does not expire for a
//! packet whose time is earlier than the timestamp of the entry. Reading an absent entry yields 0. A full map (expired
//! entries do not count) refuses new entries: `put` and `add` then change nothing, `add` nevertheless returns the sum
//! that it would have stored, and [`crate::interp::Table::refused`] counts the refusal.
//!
//! **Fragments.** [`Inst::Datagram`] yields the value that applies to all fragments of a datagram (a steering hash, or
//! the ports). If the [`FragmentTracker`] has no value for the datagram yet, the instruction stores its operand `value`
//! there, unless it is 0, and yields it. If the packet is not a fragment, the instruction yields its operand `value`.
//!
//! **Duplicates.** [`Inst::Duplicate`] compares the packet with the packets that its detector compared before, and
//! yields the duplicate class of the packet ([`DuplicateDetectors`]). [`Meta::Duplicate`] is the class that the engine
//! found.
//!
//! **Stages.** [`Program::stages`] are the steps of the pipeline as the user wrote them. A stage ends only with a jump
//! to the first block of the next stage, with `pass` or with `drop`, and no register is live across the boundary. Hence
//! a program can be split between two stages ([`Program::split`]): only the verdict record is passed from the first
//! part to the second part.
#![forbid(unsafe_code)]

mod address;
mod build;
mod common_case;
mod cost;
pub mod duplicate_detectors;
mod effects;
pub mod facts;
pub mod fragment_tracker;
mod inst;
pub mod interp;
pub mod key;
pub mod log;
mod placement;
mod prefix;
mod print;
mod simplify;
mod split;
mod tables;
mod verify;

pub use address::{mapped, wide};
pub use build::{Builder, Label};
pub use common_case::CommonCase;
pub use cost::Cost;
pub use duplicate_detectors::{Detection, DuplicateDetectors};
pub use effects::{Effect, Effects};
pub use facts::Facts;
pub use fragment_tracker::FragmentTracker;
pub use inst::{Block, End, Inst, Log};
pub use key::{Field, Key};
pub use placement::KernelPrefix;
pub use placement::{Obstacle, Placement, UserSpaceReason, copies_to_stack, placement};
pub use prefix::Prefix;
pub use simplify::Start;
pub use tables::{Expiry, Map, Set};
pub use verify::VerifyError;

/// Maximum number of blocks of a program.
pub const MAX_BLOCKS: usize = 1 << 15;
/// Maximum number of instructions of a program, block ends not counted.
pub const MAX_INSTRUCTIONS: usize = 1 << 16;
/// Maximum number of registers of a program.
pub const MAX_REGISTERS: u16 = 1 << 13;
/// Maximum number of words of a map's key.
pub const MAX_KEY_WORDS: usize = 8;
/// Maximum number of maps of a program.
pub const MAX_MAPS: usize = 64;
/// Maximum number of detectors of duplicates of a program.
pub const MAX_DETECTORS: usize = 8;
/// Maximum number of `forward` instructions on one path through a program.
pub const MAX_FORWARDS: u32 = 16;
/// Number of counters of a group.
pub const COUNTERS: u8 = 64;
/// Maximum capacity of a map, in entries.
pub const MAX_CAPACITY: u32 = 1 << 26;
/// Maximum offset of a load or a bounds test, counted from its base, in bytes.
pub const MAX_OFFSET: u32 = 1 << 16;

/// The class mask of the verdict record at the start of a program: class 0.
pub const DEFAULT_CLASS: u64 = 1;
/// The class `management`. No member can join it, and the function `broadcast` delivers to all classes except this one.
pub const CONTROL_CLASS: u8 = 63;
/// All classes except [`CONTROL_CLASS`].
pub const ANY_CLASS: u64 = !(1 << CONTROL_CLASS);

/// A register's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reg(pub u16);

/// A block's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

/// An operand: a register or a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// The value of a register.
    Reg(Reg),
    /// A constant.
    Imm(u64),
}

impl From<Reg> for Operand {
    fn from(r: Reg) -> Self {
        Self::Reg(r)
    }
}

impl From<u64> for Operand {
    fn from(n: u64) -> Self {
        Self::Imm(n)
    }
}

/// Arithmetic on two numbers; the module documentation defines overflow, division by zero and large shift counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Sum.
    Add,
    /// Difference.
    Sub,
    /// Product.
    Mul,
    /// The quotient; division by zero yields 0.
    Div,
    /// The remainder; modulo zero yields the dividend.
    Rem,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
    /// Shift left by the count modulo 64.
    Shl,
    /// Logical shift right by the count modulo 64.
    Shr,
    /// The smaller number.
    Min,
    /// The greater number.
    Max,
}

impl Op {
    /// Evaluates the operation.
    pub const fn apply(self, a: u64, b: u64) -> u64 {
        match self {
            Self::Add => a.wrapping_add(b),
            Self::Sub => a.wrapping_sub(b),
            Self::Mul => a.wrapping_mul(b),
            Self::Div if b == 0 => 0,
            Self::Div => a / b,
            Self::Rem if b == 0 => a,
            Self::Rem => a % b,
            Self::And => a & b,
            Self::Or => a | b,
            Self::Xor => a ^ b,
            Self::Shl => a.wrapping_shl(b as u32),
            Self::Shr => a.wrapping_shr(b as u32),
            Self::Min => {
                if a < b {
                    a
                } else {
                    b
                }
            }
            Self::Max => {
                if a > b {
                    a
                } else {
                    b
                }
            }
        }
    }
}

/// An unsigned comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// `a & b != 0`
    AnyBit,
    /// `a & b == b`
    AllBits,
}

impl Cmp {
    /// The comparison that is true exactly if this comparison is false; `None` if the IR has no such comparison.
    pub const fn turned(self) -> Option<Self> {
        match self {
            Self::Eq => Some(Self::Ne),
            Self::Ne => Some(Self::Eq),
            Self::Lt => Some(Self::Ge),
            Self::Ge => Some(Self::Lt),
            Self::Gt => Some(Self::Le),
            Self::Le => Some(Self::Gt),
            Self::AnyBit | Self::AllBits => None,
        }
    }

    /// Evaluates the comparison.
    pub const fn holds(self, a: u64, b: u64) -> bool {
        match self {
            Self::Eq => a == b,
            Self::Ne => a != b,
            Self::Lt => a < b,
            Self::Le => a <= b,
            Self::Gt => a > b,
            Self::Ge => a >= b,
            Self::AnyBit => a & b != 0,
            Self::AllBits => a & b == b,
        }
    }
}

/// Selects the outermost or the innermost of nested IP packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layer {
    /// The outermost IP packet.
    Outer,
    /// The IP packet inside all tunnels; without a tunnel, the outermost IP packet.
    Inner,
}

/// Selects which of the nested IP packets [`Inst::Datagram`] tracks if it is a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FragmentScope {
    /// The outermost packet.
    Outer,
    /// The innermost packet.
    Inner,
    /// The innermost packet, and the outermost enclosing packet that is a fragment. All fragments of the enclosing
    /// datagram then get the steering hash or the ports of the innermost packet.
    Enclosing,
}

/// A packet fact that exists once for the outer layer and once for the inner layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fact {
    /// The ethertype behind all VLAN tags and MPLS labels; 0 if there is none.
    Ethertype,
    /// The IP version: 4, 6, or 0 if the packet is not IP. The fixed IP header at [`Fact::L3`] was then captured
    /// completely: 20 bytes for IPv4, 40 bytes for IPv6.
    Family,
    /// The transport protocol: the IP protocol number behind all extension headers; 0 if the packet is not IP.
    Protocol,
    /// The fragmentation of the IP packet: 0 if unfragmented, 1 for a first fragment, 2 for a later fragment.
    Fragment,
    /// Offset of the network header.
    L3,
    /// Offset of the transport header; 0 if the packet is not IP or is a later fragment, or if the header was not
    /// captured.
    L4,
}

/// A packet fact that is the same for the outer and the inner layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Meta {
    /// The wire length in bytes.
    WireLen,
    /// The caplen in bytes.
    CapLen,
    /// The timestamp of the packet in nanoseconds since 1970.
    Time,
    /// The number of the interface on which the packet arrived, as the engine numbers its sources.
    Port,
    /// The number of the receive queue on which the packet arrived.
    Queue,
    /// The hash that the NIC computed for the packet; 0 if there is none.
    Rss,
    /// The number of packets that this worker (instance of the program) evaluated before this packet.
    Sequence,
    /// The number of the duplicate class ([`base::DuplicateClass`]) with which the engine marked the packet; 0 if the
    /// packet is not marked.
    Duplicate,
    /// 1 if this host sent the packet, 0 if the packet was received.
    Outgoing,
    /// 1 if the packet begins with a complete Ethernet header, otherwise 0.
    Ethernet,
    /// The ID of the outermost VLAN tag plus 4096; 0 if there is no tag.
    Vlan,
    /// The number of tunnels that enclose the innermost packet.
    Depth,
    /// The fragmentation of the outermost IP packet that is a fragment; tunnelled packets are included: 1 for a first
    /// fragment, 2 for a later fragment, 0 if no packet is a fragment.
    Part,
    /// One plus the index in [`Program::egress_interfaces`] of the interface on which the packet arrived; 0 if the list
    /// does not contain the interface.
    Ingress,
    /// The secret key of the flow hashes; all workers of an engine use the same key.
    HashKey,
}

/// A variable of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Var {
    /// A [`VerdictKind`] as a number.
    Kind,
    /// The class mask: bit n is set if the packet is for the members of class n.
    Classes,
    /// The hash by which the packet is steered; for [`VerdictKind::Pick`], the index of the member.
    Hash,
    /// The second hash of [`VerdictKind::DoubleSteer`].
    Hash2,
    /// The mark of the packet. Unlike the variable [`Self::State`], the mark is stored with the packet when the program
    /// ends.
    Mark,
    /// A number that a stage passes to later stages of the program. It is discarded when the program ends.
    State,
}

/// How a packet is delivered. Only members of at least one class in the class mask of the verdict record can
/// receive it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum VerdictKind {
    /// No delivery.
    Drop = 0,
    /// Each member receives a copy of the packet.
    #[default]
    Copy = 1,
    /// The packet is delivered to the member that wins the rendezvous hashing for `hash`.
    Steer = 2,
    /// The packet is delivered to the member that wins the rendezvous hashing for `hash` and to the member that wins
    /// for `hash2`. If they are the same member, it gets one copy.
    DoubleSteer = 3,
    /// The packet is delivered to one member: `hash` modulo the number of members is its index, in the order of member
    /// slots. (A new member takes the lowest free slot.)
    Pick = 4,
}

impl VerdictKind {
    /// The kind with this number. An unknown number is treated as [`Self::Drop`].
    pub const fn from_number(n: u64) -> Self {
        match n {
            1 => Self::Copy,
            2 => Self::Steer,
            3 => Self::DoubleSteer,
            4 => Self::Pick,
            _ => Self::Drop,
        }
    }
}

/// A stage: one step of the pipeline as the user wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// The source text of the stage.
    pub text: String,
    /// The first block of the stage.
    pub first: BlockId,
}

/// A program in the IR.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// The blocks in order; execution begins in block b0.
    pub blocks: Vec<Block>,
    /// The number of registers that the program uses.
    pub registers: u16,
    /// Names of the egress interfaces.
    pub egress_interfaces: Vec<String>,
    /// Texts of log messages.
    pub messages: Vec<String>,
    /// The flow maps.
    pub maps: Vec<Map>,
    /// The sets of addresses.
    pub sets: Vec<Set>,
    /// The detectors of duplicates.
    pub detectors: Vec<Detection>,
    /// The stages of the pipeline, in order. Their first blocks ascend, and the first stage begins with b0.
    pub stages: Vec<Stage>,
    /// The first tcpdump filter in the program, and the link type for which that filter was compiled.
    pub filter: Option<(String, u16)>,
}

impl Program {
    /// Checks that the tcpdump filter of the program was compiled for this pcap link type.
    ///
    /// # Errors
    /// A tcpdump filter was compiled for another link type.
    pub fn fits_link(&self, link_type: u16) -> Result<(), LinkMismatch> {
        match &self.filter {
            Some((filter, made_for)) if link_type != *made_for => {
                Err(LinkMismatch { filter: filter.clone(), made_for: *made_for, link_type })
            }
            _ => Ok(()),
        }
    }
}

/// The error that a tcpdump filter was compiled for another link type than that of the frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkMismatch {
    /// The filter as the user wrote it.
    pub filter: String,
    /// The pcap link type for which the filter was compiled.
    pub made_for: u16,
    /// The pcap link type of the frames.
    pub link_type: u16,
}

impl std::fmt::Display for LinkMismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let link = |link_type: u16| match wire::link::name(link_type) {
            Some(name) => name.to_owned(),
            None => format!("link type {link_type}"),
        };
        let (made_for, link) = (link(self.made_for), link(self.link_type));
        write!(
            f,
            "the filter {:?} was compiled for frames of type {made_for}, and these frames are {link}; \
                   use functions of the language, such as `tcp` and `port 80`, which apply to every link type",
            self.filter
        )
    }
}

impl std::error::Error for LinkMismatch {}
