//! Instructions and block ends.

use super::{BlockId, Cmp, Fact, FragmentScope, Layer, Meta, Op, Operand, Reg, Var};

/// The content of a log line that a program writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Log {
    /// A text of [`super::Program::messages`].
    Message(u16),
    /// A one-line summary of the packet in the style of tcpdump.
    Packet,
    /// The first bytes of the packet in hexadecimal.
    Buffer,
    /// The current values of the verdict record.
    Trace,
}

/// One instruction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Inst {
    /// `to = value`
    Const {
        /// Destination register.
        to: Reg,
        /// The constant.
        value: u64,
    },
    /// `to = from`
    Copy {
        /// Destination register.
        to: Reg,
        /// Source register.
        from: Reg,
    },
    /// `to = a op b`
    Op {
        /// Destination register.
        to: Reg,
        /// The operation.
        op: Op,
        /// Left operand.
        a: Reg,
        /// Right operand.
        b: Operand,
    },
    /// `to = 1` if `a cmp b`, otherwise 0.
    Is {
        /// Destination register.
        to: Reg,
        /// The comparison.
        cmp: Cmp,
        /// Left operand.
        a: Reg,
        /// Right operand.
        b: Operand,
    },
    /// `to = mix64(from)`
    Mix {
        /// Destination register.
        to: Reg,
        /// Source register.
        from: Reg,
    },
    /// Sets `to` to a packet fact of one layer (outer or inner).
    Fact {
        /// Destination register.
        to: Reg,
        /// The layer.
        layer: Layer,
        /// The packet fact.
        fact: Fact,
    },
    /// Sets `to` to a packet fact that is the same for both layers.
    Meta {
        /// Destination register.
        to: Reg,
        /// The packet fact.
        meta: Meta,
    },
    /// Sets `to` to the number in the `width` packet bytes at `base + offset`, in network byte order. Without a base,
    /// `offset` counts from the first byte of the frame.
    Load {
        /// Destination register.
        to: Reg,
        /// Offset of a header.
        base: Option<Reg>,
        /// Offset from `base`.
        offset: u32,
        /// Width in bytes, 1 to 8.
        width: u8,
    },
    /// Sets `to` to a variable of the verdict record.
    Get {
        /// Destination register.
        to: Reg,
        /// The variable.
        var: Var,
    },
    /// Sets a variable of the verdict record to `from`. All variables except the classes store only the low 32 bits.
    Set {
        /// The variable.
        var: Var,
        /// The value.
        from: Operand,
    },
    /// Sets `to` to 1 if the set contains the address, otherwise to 0. An IPv4 address is passed as `hi = 0`, `lo =
    /// 0xffff << 32 | address`.
    Member {
        /// Destination register.
        to: Reg,
        /// Index into [`super::Program::sets`].
        set: u16,
        /// The first eight bytes of the address.
        hi: Reg,
        /// The last eight bytes of the address.
        lo: Reg,
    },
    /// Sets `to` to 1 if the map contains the key, otherwise to 0.
    Has {
        /// Destination register.
        to: Reg,
        /// Index into [`super::Program::maps`].
        map: u16,
        /// The words of the key; the map declares how many words a key has.
        key: Vec<Reg>,
    },
    /// Sets `to` to the number that is stored in the map entry; to 0 if the map has no entry with this key.
    MapGet {
        /// Destination register.
        to: Reg,
        /// Index into [`super::Program::maps`].
        map: u16,
        /// The words of the key; the map declares how many words a key has.
        key: Vec<Reg>,
    },
    /// Stores `value` in the map entry; creates the entry if the map has none with this key.
    MapPut {
        /// Index into [`super::Program::maps`].
        map: u16,
        /// The words of the key; the map declares how many words a key has.
        key: Vec<Reg>,
        /// The number.
        value: Operand,
    },
    /// Atomically adds `by` to the number that is stored in the map entry (wrapping), and sets `to` to the sum; creates
    /// the entry if the map has none with this key.
    MapAdd {
        /// Destination register.
        to: Reg,
        /// Index into [`super::Program::maps`].
        map: u16,
        /// The words of the key; the map declares how many words a key has.
        key: Vec<Reg>,
        /// The addend.
        by: Operand,
    },
    /// Removes the map entry if it is present.
    MapDelete {
        /// Index into [`super::Program::maps`].
        map: u16,
        /// The words of the key; the map declares how many words a key has.
        key: Vec<Reg>,
    },
    /// Sets `to` to the number that fragment tracking stores for the datagram of this fragment, or to `value` if no
    /// number is stored; see [`FragmentTracker::number`](crate::FragmentTracker::number).
    Datagram {
        /// Destination register.
        to: Reg,
        /// Selects which of the nested IP packets is the fragment.
        parts: FragmentScope,
        /// 24 bits that say what the stored number is: the hash of one steering function with its parameters, or the
        /// pair of ports. Fragment tracking stores a separate number for each form.
        form: u32,
        /// The value that follows from the headers of this packet alone; 0 if there is none.
        value: Operand,
    },
    /// Sets `to` to the number of the duplicate class of the packet among the packets that the detector compared
    /// before; to 0 if the packet is no duplicate; see [`DuplicateDetectors`](crate::DuplicateDetectors::class).
    Duplicate {
        /// Destination register.
        to: Reg,
        /// Index into [`super::Program::detectors`].
        detector: u16,
    },
    /// Adds `by` to a counter of the group; the counter wraps around.
    Count {
        /// The counter, below [`super::COUNTERS`].
        counter: u8,
        /// The addend.
        by: Operand,
    },
    /// Sends a copy of the packet through a network interface.
    Forward {
        /// Index into [`super::Program::egress_interfaces`].
        interface: u16,
    },
    /// Passes a copy of the packet to the network stack of the host.
    Kernel,
    /// Writes a line about the packet to the log; the number of lines per second is limited.
    Log(
        /// The content.
        Log,
    ),
}

/// The end of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// Unconditional jump.
    Jump(BlockId),
    /// Branch on a comparison.
    If {
        /// The comparison.
        cmp: Cmp,
        /// Left operand.
        a: Reg,
        /// Right operand.
        b: Operand,
        /// The target of the branch if the comparison holds.
        yes: BlockId,
        /// The target of the branch if the comparison does not hold.
        no: BlockId,
    },
    /// Branches on whether the `len` bytes at `base + offset` were captured. If `base` is 2^32 or more, the bytes count
    /// as not captured.
    Fits {
        /// Offset of a header.
        base: Option<Reg>,
        /// Offset from `base`.
        offset: u32,
        /// Number of bytes.
        len: u32,
        /// The target of the branch if the bytes were captured.
        yes: BlockId,
        /// The target of the branch if the bytes were not captured.
        no: BlockId,
    },
    /// Ends the program; the verdict record is the result.
    Pass,
    /// Ends the program; the packet is dropped ([`super::VerdictKind::Drop`]).
    Drop,
}

/// A basic block: instructions that run in order, and an end that selects the next block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The instructions in order.
    pub code: Vec<Inst>,
    /// The end of the block.
    pub end: End,
}

impl Inst {
    /// The register that the instruction writes.
    pub const fn target(&self) -> Option<Reg> {
        match *self {
            Self::Const { to, .. }
            | Self::Copy { to, .. }
            | Self::Op { to, .. }
            | Self::Is { to, .. }
            | Self::Mix { to, .. }
            | Self::Fact { to, .. }
            | Self::Meta { to, .. }
            | Self::Load { to, .. }
            | Self::Get { to, .. }
            | Self::Member { to, .. }
            | Self::Has { to, .. }
            | Self::MapGet { to, .. }
            | Self::MapAdd { to, .. }
            | Self::Datagram { to, .. }
            | Self::Duplicate { to, .. } => Some(to),
            Self::Set { .. }
            | Self::MapPut { .. }
            | Self::MapDelete { .. }
            | Self::Count { .. }
            | Self::Forward { .. }
            | Self::Kernel
            | Self::Log(_) => None,
        }
    }

    /// Calls `see` with each register that the instruction reads.
    pub fn sources(&self, mut see: impl FnMut(Reg)) {
        let mut operand = |o: &Operand| {
            if let Operand::Reg(r) = o {
                see(*r);
            }
        };
        match self {
            Self::Const { .. } | Self::Fact { .. } | Self::Meta { .. } | Self::Get { .. } => (),
            Self::Duplicate { .. } | Self::Forward { .. } | Self::Kernel | Self::Log(_) => (),
            Self::Copy { from, .. } | Self::Mix { from, .. } => operand(&(*from).into()),
            Self::Op { a, b, .. } | Self::Is { a, b, .. } => {
                operand(&(*a).into());
                operand(b);
            }
            Self::Load { base, .. } => base.iter().for_each(|b| operand(&(*b).into())),
            Self::Set { from, .. } | Self::Datagram { value: from, .. } => operand(from),
            Self::Count { by, .. } => operand(by),
            Self::Member { hi, lo, .. } => {
                operand(&(*hi).into());
                operand(&(*lo).into());
            }
            Self::Has { key, .. } | Self::MapGet { key, .. } | Self::MapDelete { key, .. } => {
                key.iter().for_each(|k| operand(&(*k).into()));
            }
            Self::MapPut { key, value: other, .. } | Self::MapAdd { key, by: other, .. } => {
                key.iter().for_each(|k| operand(&(*k).into()));
                operand(other);
            }
        }
    }
}

impl End {
    /// The possible successors.
    pub fn targets(&self) -> impl Iterator<Item = BlockId> {
        let (a, b) = match *self {
            Self::Jump(to) => (Some(to), None),
            Self::If { yes, no, .. } | Self::Fits { yes, no, .. } => (Some(yes), Some(no)),
            Self::Pass | Self::Drop => (None, None),
        };
        a.into_iter().chain(b)
    }
}
