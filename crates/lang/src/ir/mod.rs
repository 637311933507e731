//! The intermediate form: what every surface compiles to and every back end runs. This page is the contract of the back ends.
//!
//! ```text
//! program = tables (devices, messages, maps, sets) + blocks b0 b1 … bn
//! block   = instructions, one after the other, then one end: jump · if · fits · pass · drop
//! ```
//! **Control.** Execution begins in b0. An end only leads to blocks with a greater number, so every program ends, after at most
//! as many instructions as it has. `pass` ends it with the record as it stands, `drop` with the kind set to [`Kind::Drop`].
//!
//! **Values.** Everything is an unsigned 64-bit number in a register. Registers are variables: an instruction may write one that
//! was written before. Arithmetic wraps; `x / 0` is 0 and `x % 0` is `x` (RFC 9669); shifts count modulo 64. Truth is 0 or 1.
//! [`Inst::Mix`] is [`base::hash::mix64`].
//!
//! **The packet.** Bytes are read by [`Inst::Load`], network order, 1 to 8 bytes. A load must lie behind an [`End::Fits`] that
//! promised these bytes on every way to it: [`verify`](Program::verify) proves it, so a back end may load without a check of its own. What
//! the walk along the headers found is asked by [`Inst::Fact`] and [`Inst::Meta`] ([`crate::facts::Facts`] is its fixed layout). Facts
//! never fail: an offset that is not known is 0.
//!
//! **The record.** Six variables ([`Var`]) are the packet's fate: kind, classes, hash, hash2, mark, state. At the start the kind is
//! [`Kind::Copy`], the classes are [`DEFAULT_CLASS`], mark is the packet's, the rest 0: a program that only passes delivers a copy to
//! each member of the default class. All but the classes keep 32 bits.
//!
//! **Effects** happen when their instruction is reached, in order, and are not undone by a later drop: [`Inst::Forward`],
//! [`Inst::Kernel`], [`Inst::Log`], [`Inst::Count`], and what is written to maps. Of `kernel` once is as good as often.
//!
//! **Maps** hold a number per key. A key is a list of words, as many as the map says; the IR spells out how it is made, symmetry
//! included. An entry that [`Expiry`] has reached is absent. With [`Expiry::Idle`] every `get`, `put` and `add` that finds
//! or makes the entry touches it (its stamp becomes the packet's time if that is later), [`Inst::Has`] does not; with
//! [`Expiry::Lifetime`] the stamp is when it was made. Time is that of the packets; a packet older than the stamp expires nothing. An absent entry reads as 0. A map
//! that is full (counting no expired entries) refuses new entries: `put` and `add` change nothing, `add` answers what it would have
//! answered, and [`crate::interp::Table::refused`] counts it.
//!
//! **Fragments.** [`Inst::Datagram`] answers what the parts of a datagram are steered or known by, and remembers it ([`FragmentTracker`](crate::FragmentTracker)). For a packet
//! that is no part of one, the answer is the number that was given.
//!
//! **Stages.** [`Program::stages`] are the steps of the pipeline as the user wrote them. A stage ends only by jumping to the first block of
//! the next one, by `pass` or by `drop`, and no register lives across, so a program can be cut between two of them
//! ([`Program::split`]): the record alone crosses.

mod build;
mod common_case;
mod cost;
mod effects;
mod inst;
mod placement;
mod print;
mod simplify;
mod split;
mod tables;
mod verify;

pub use build::{Builder, Label};
pub use common_case::CommonCase;
pub use cost::Cost;
pub use effects::{Effect, Effects};
pub use inst::{Block, End, Inst, Log};
pub(crate) use placement::KernelPrefix;
pub use placement::{Placement, copies_to_stack, placement};
pub use simplify::Start;
pub use tables::{Expiry, Map, Set, mapped, wide};
pub use verify::VerifyError;

/// Most blocks of a program.
pub const MAX_BLOCKS: usize = 1 << 15;
/// Most instructions of a program, ends not counted.
pub const MAX_INSTRUCTIONS: usize = 1 << 16;
/// Most registers of a program.
pub const MAX_REGISTERS: u16 = 1 << 13;
/// Most words of a map's key.
pub const MAX_KEY_WORDS: usize = 8;
/// Most maps of a program.
pub const MAX_MAPS: usize = 64;
/// Most `forward` on one way through a program.
pub const MAX_FORWARDS: u32 = 16;
/// Counters of a group.
pub const COUNTERS: u8 = 64;
/// Most entries a map may be asked to hold.
pub const MAX_CAPACITY: u32 = 1 << 26;
/// A load or a test of bounds reaches at most this far behind its base.
pub const MAX_OFFSET: u32 = 1 << 16;

/// The class mask that a program starts with: class 0.
pub const DEFAULT_CLASS: u64 = 1;
/// The class of controllers, which `broadcast` leaves out.
pub const CONTROL_CLASS: u8 = 63;
/// All classes but that of controllers.
pub const ANY_CLASS: u64 = !(1 << CONTROL_CLASS);

/// A register's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reg(pub u16);

/// A block's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

/// A register or a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// What the register holds.
    Reg(Reg),
    /// This number.
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

/// Arithmetic on two numbers; see the module for the corners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Sum.
    Add,
    /// Difference.
    Sub,
    /// Product.
    Mul,
    /// Quotient; 0 by 0.
    Div,
    /// Remainder; the dividend by 0.
    Rem,
    /// Bits of both.
    And,
    /// Bits of either.
    Or,
    /// Bits of one.
    Xor,
    /// Towards the high bits, by the count modulo 64.
    Shl,
    /// Towards the low bits, zeroes coming in, by the count modulo 64.
    Shr,
    /// The lesser.
    Min,
    /// The greater.
    Max,
}

impl Op {
    /// The meaning.
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

/// A comparison, unsigned.
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
    /// The one that holds where this does not, if there is one.
    pub(crate) const fn turned(self) -> Option<Self> {
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

    /// The meaning.
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

/// Which packet of those in each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layer {
    /// The outermost IP packet.
    Outer,
    /// The innermost, through tunnels; the outermost where there is no tunnel.
    Inner,
}

/// Whose parts are asked about: which of the packets in each other are pieces of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FragmentScope {
    /// The outermost packet.
    Outer,
    /// The innermost.
    Inner,
    /// The innermost and, beside it, the outermost of those around it that is a part of a datagram: what is inside serves what is around it.
    Enclosing,
}

/// What is known of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fact {
    /// The ethertype under all tags and labels; 0 where there is none.
    Ethertype,
    /// 4, 6, or 0 for anything else. If 4, the 20 bytes from [`Fact::L3`] were captured; if 6, the 40 bytes.
    Family,
    /// The protocol above IP, behind the extension headers; 0 if the family is.
    Protocol,
    /// 0 all of a datagram, 1 its first part, 2 another part.
    Fragment,
    /// Offset of the network header.
    L3,
    /// Offset of the transport header; 0 where there is none: not IP, a later fragment, cut.
    L4,
}

/// What is known of the packet as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Meta {
    /// Bytes on the wire.
    WireLen,
    /// Bytes captured.
    CapLen,
    /// Nanoseconds since 1970.
    Time,
    /// Number of the port it came from, as the engine counts its sources.
    Port,
    /// Number of the queue it came from.
    Queue,
    /// The hash that the card gave; 0 where it gave none.
    Rss,
    /// How many packets this worker had run the program on before.
    Sequence,
    /// 1 if this host sent it.
    Outgoing,
    /// 1 if it begins with a whole Ethernet header.
    Ethernet,
    /// The id of the outermost VLAN tag plus 4096; 0 where there is none.
    Vlan,
    /// How many tunnels are around the innermost packet.
    Depth,
    /// Of the innermost packet and those around it, which part of a datagram the outermost one is that is a part: 1 the first, 2 another;
    /// 0 if all of them are whole.
    Part,
    /// One plus the index in [`Program::devices`] of the device it came from; 0 if it is not among them.
    Ingress,
    /// The secret of the hashes: the same on all workers of an engine.
    HashKey,
}

/// A variable of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Var {
    /// A [`Kind`] as number.
    Kind,
    /// Bit n: class n.
    Classes,
    /// What steers: a hash, or an index for [`Kind::Pick`].
    Hash,
    /// The second hash of [`Kind::DoubleSteer`].
    Hash2,
    /// The packet's mark, which stays with it.
    Mark,
    /// The state of this run, which does not.
    State,
}

/// What becomes of a packet. The members in question are those that are in one of the classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum VerdictKind {
    /// To nobody.
    Drop = 0,
    /// To all of them.
    #[default]
    Copy = 1,
    /// To the one that wins the rendezvous for the hash.
    Steer = 2,
    /// To the one that wins for the hash and the one that wins for the second; once if it is the same.
    DoubleSteer = 3,
    /// To the one with this number, modulo how many there are, in the order of their places: who joins takes the lowest free one.
    Pick = 4,
}

impl VerdictKind {
    /// From its number; unknown ones are drops.
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

/// A step of the pipeline as the user wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// The text.
    pub text: String,
    /// Its first block.
    pub first: BlockId,
}

/// A program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// In order; b0 begins.
    pub blocks: Vec<Block>,
    /// How many registers it uses.
    pub registers: u16,
    /// Names of devices.
    pub devices: Vec<String>,
    /// Texts of log messages.
    pub messages: Vec<String>,
    /// Tables of state.
    pub maps: Vec<Map>,
    /// Sets of addresses.
    pub sets: Vec<Set>,
    /// The steps of the pipeline, in order; their first blocks ascend and the first is b0.
    pub stages: Vec<Stage>,
    /// The first filter of tcpdump in it, and the link type of the frames that it looks into.
    pub filter: Option<(String, u16)>,
}

impl Program {
    /// Whether it means what it says of frames of this link type, as pcap numbers it.
    ///
    /// # Errors
    /// Names the filter that looks elsewhere.
    pub fn fits_link(&self, link_type: u16) -> Result<(), LinkMismatch> {
        match &self.filter {
            Some((filter, made_for)) if link_type != *made_for => {
                Err(LinkMismatch { filter: filter.clone(), made_for: *made_for, link_type })
            }
            _ => Ok(()),
        }
    }
}

/// A filter of tcpdump and frames of another link than it was made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkMismatch {
    /// As the user wrote it.
    pub filter: String,
    /// What it was made for, as pcap numbers it.
    pub made_for: u16,
    /// What the frames are, as pcap numbers it.
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
            "the filter {:?} looks where {made_for} has its headers, and these frames are {link}; \
                   write it in words of the language, such as `tcp` and `port 80`, which know all links",
            self.filter
        )
    }
}

impl std::error::Error for LinkMismatch {}
