//! Instructions, and how a block ends.

use super::{BlockId, Cmp, Fact, FragmentScope, Layer, Meta, Op, Operand, Reg, Var};

/// What is written about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Log {
    /// A text of [`super::Program::messages`].
    Message(u16),
    /// One line in the manner of tcpdump.
    Packet,
    /// The first bytes.
    Buffer,
    /// The record, as it is there.
    Trace,
}

/// One instruction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Inst {
    /// `to = value`
    Const {
        /// Where to.
        to: Reg,
        /// The number.
        value: u64,
    },
    /// `to = from`
    Copy {
        /// Where to.
        to: Reg,
        /// Where from.
        from: Reg,
    },
    /// `to = a op b`
    Op {
        /// Where to.
        to: Reg,
        /// What is done.
        op: Op,
        /// Left.
        a: Reg,
        /// Right.
        b: Operand,
    },
    /// `to = 1` if `a cmp b`, else 0.
    Is {
        /// Where to.
        to: Reg,
        /// The comparison.
        cmp: Cmp,
        /// Left.
        a: Reg,
        /// Right.
        b: Operand,
    },
    /// `to = mix64(from)`
    Mix {
        /// Where to.
        to: Reg,
        /// Where from.
        from: Reg,
    },
    /// `to` = what is known of a layer.
    Fact {
        /// Where to.
        to: Reg,
        /// Of which layer.
        layer: Layer,
        /// What.
        fact: Fact,
    },
    /// `to` = what is known of the packet.
    Meta {
        /// Where to.
        to: Reg,
        /// What.
        meta: Meta,
    },
    /// `to` = the number in the `width` bytes from `base + offset`, network order. Without a base, from the first byte of the frame.
    Load {
        /// Where to.
        to: Reg,
        /// Offset of a header.
        base: Option<Reg>,
        /// Offset behind it.
        offset: u32,
        /// Bytes: 1 to 8.
        width: u8,
    },
    /// `to` = a variable of the record.
    Get {
        /// Where to.
        to: Reg,
        /// Which.
        var: Var,
    },
    /// A variable of the record = `from`; all but the classes keep its low 32 bits.
    Set {
        /// Which.
        var: Var,
        /// What.
        from: Operand,
    },
    /// `to` = 1 if the address is in a set. An IPv4 address is `hi = 0`, `lo = 0xffff << 32 | address`.
    Member {
        /// Where to.
        to: Reg,
        /// Index into [`super::Program::sets`].
        set: u16,
        /// The address's first eight bytes.
        hi: Reg,
        /// The last eight.
        lo: Reg,
    },
    /// `to` = 1 if the map has the entry.
    Has {
        /// Where to.
        to: Reg,
        /// Index into [`super::Program::maps`].
        map: u16,
        /// As many words as the map's key has.
        key: Vec<Reg>,
    },
    /// `to` = the entry's number, 0 if absent.
    MapGet {
        /// Where to.
        to: Reg,
        /// Index into [`super::Program::maps`].
        map: u16,
        /// As many words as the map's key has.
        key: Vec<Reg>,
    },
    /// The entry's number = `value`; made if absent.
    MapPut {
        /// Index into [`super::Program::maps`].
        map: u16,
        /// As many words as the map's key has.
        key: Vec<Reg>,
        /// The number.
        value: Operand,
    },
    /// `to` = the entry's number, raised by `by` (wrapping) in one step; made if absent.
    MapAdd {
        /// Where to.
        to: Reg,
        /// Index into [`super::Program::maps`].
        map: u16,
        /// As many words as the map's key has.
        key: Vec<Reg>,
        /// By how much.
        by: Operand,
    },
    /// Takes an entry out, if it is there.
    MapDelete {
        /// Index into [`super::Program::maps`].
        map: u16,
        /// As many words as the map's key has.
        key: Vec<Reg>,
    },
    /// `to` = the number remembered of the datagram that the packet is part of, else `value`; see
    /// [`FragmentTracker::number`](crate::FragmentTracker::number).
    Datagram {
        /// Where to.
        to: Reg,
        /// The datagram of which packet.
        parts: FragmentScope,
        /// Each form of steering, and of asking for ports, has numbers of its own; 24 bits of it count.
        form: u32,
        /// What the packet says itself; 0 for nothing.
        value: Operand,
    },
    /// A counter of the group goes up by `by` (wrapping).
    Count {
        /// Below [`super::COUNTERS`].
        counter: u8,
        /// By how much.
        by: Operand,
    },
    /// A copy of the packet goes out of a device.
    Forward {
        /// Index into [`super::Program::devices`].
        device: u16,
    },
    /// A copy goes to the stack of this host.
    Kernel,
    /// Something is written about the packet, at a bounded rate.
    Log(
        /// What.
        Log,
    ),
}

/// How a block ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// On to that block.
    Jump(BlockId),
    /// By a comparison.
    If {
        /// The comparison.
        cmp: Cmp,
        /// Left.
        a: Reg,
        /// Right.
        b: Operand,
        /// Where to if it holds.
        yes: BlockId,
        /// Where to if not.
        no: BlockId,
    },
    /// By whether the `len` bytes from `base + offset` were captured. A base of 2^32 or more never fits.
    Fits {
        /// Offset of a header.
        base: Option<Reg>,
        /// Offset behind it.
        offset: u32,
        /// How many bytes.
        len: u32,
        /// Where to if they were.
        yes: BlockId,
        /// Where to if not.
        no: BlockId,
    },
    /// The program ends; the record stands.
    Pass,
    /// The program ends; the kind becomes [`super::Kind::Drop`].
    Drop,
}

/// Instructions and an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// In order.
    pub code: Vec<Inst>,
    /// Then this.
    pub end: End,
}

impl Inst {
    /// The register it writes.
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
            | Self::Datagram { to, .. } => Some(to),
            Self::Set { .. }
            | Self::MapPut { .. }
            | Self::MapDelete { .. }
            | Self::Count { .. }
            | Self::Forward { .. }
            | Self::Kernel
            | Self::Log(_) => None,
        }
    }

    /// Calls `see` with each register it reads.
    pub fn sources(&self, mut see: impl FnMut(Reg)) {
        let mut operand = |o: &Operand| {
            if let Operand::Reg(r) = o {
                see(*r);
            }
        };
        match self {
            Self::Const { .. } | Self::Fact { .. } | Self::Meta { .. } | Self::Get { .. } => (),
            Self::Forward { .. } | Self::Kernel | Self::Log(_) => (),
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
    /// The blocks it may lead to.
    pub fn targets(&self) -> impl Iterator<Item = BlockId> {
        let (a, b) = match *self {
            Self::Jump(to) => (Some(to), None),
            Self::If { yes, no, .. } | Self::Fits { yes, no, .. } => (Some(yes), Some(no)),
            Self::Pass | Self::Drop => (None, None),
        };
        a.into_iter().chain(b)
    }
}
