//! Defines the input and the output of a program: packets and verdicts. Their memory layouts are fixed, because
//! generated code reads and writes them directly.

use ::ir::Facts;
use ::ir::interp::{Action, Execution};
use ::ir::{Fact, FragmentScope, Inst, Layer, Meta, Program, VerdictKind};
use std::marker::PhantomData;

/// A packet to evaluate. If several programs evaluate the same packet one after the other, the headers are parsed only
/// once, because the packet stores the results of the header parser. (For most packets the machine code needs no header
/// parser, because they match a common case: see `specialisations.rs`.)
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Packet<'a> {
    start: *const u8,
    len: u64,
    /// The facts of the packet. The producer of the packet sets those facts that the capture source supplies; the facts
    /// that follow from the headers are computed when a program needs them.
    pub facts: Facts,
    link_type: u16,
    known: ParseDepth,
    bytes: PhantomData<&'a [u8]>,
}

// SAFETY: pointer and length are those of a shared slice of bytes, which may be sent to another thread.
unsafe impl Send for Packet<'_> {}
// SAFETY: as above.
unsafe impl Sync for Packet<'_> {}

/// The depth to which the headers of a packet are parsed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
pub enum ParseDepth {
    /// No header is parsed: the program uses only bytes and facts from the capture source.
    #[default]
    Bytes,
    /// The headers of the outermost packet are parsed.
    Outer,
    /// The headers of the outermost and of the innermost packet are parsed.
    Inner,
}

impl ParseDepth {
    /// The depth to which a program needs the headers parsed.
    pub fn of(program: &Program) -> Self {
        let insts = program.blocks.iter().flat_map(|b| &b.code);
        insts.map(Self::of_inst).max().unwrap_or_default()
    }

    pub(crate) const fn of_inst(inst: &Inst) -> Self {
        match inst {
            Inst::Fact { layer: Layer::Inner, .. }
            | Inst::Meta { meta: Meta::Depth | Meta::Part, .. }
            | Inst::Datagram { parts: FragmentScope::Inner | FragmentScope::Enclosing, .. } => Self::Inner,
            Inst::Fact { layer: Layer::Outer, .. }
            | Inst::Meta { meta: Meta::Ethernet | Meta::Vlan, .. }
            | Inst::Duplicate { .. }
            | Inst::Datagram { parts: FragmentScope::Outer, .. } => Self::Outer,
            _ => Self::Bytes,
        }
    }
}

impl<'a> Packet<'a> {
    /// Creates a packet whose facts contain only the values from the capture source; the headers are parsed when a
    /// program needs them.
    ///
    /// # Panics
    /// `bytes` has 4 GiB or more, which no captured packet has.
    #[inline]
    pub fn new(bytes: &'a [u8], link_type: u16, mut facts: Facts) -> Self {
        assert!(u32::try_from(bytes.len()).is_ok(), "a packet of {} bytes, 4 GiB or more", bytes.len());
        facts.wire_len = facts.wire_len.max(bytes.len() as u32);
        let (start, len) = (bytes.as_ptr(), bytes.len() as u64);
        Self { start, len, facts, link_type, known: ParseDepth::Bytes, bytes: PhantomData }
    }

    /// Creates a packet whose facts are complete, so that no header must be parsed.
    #[inline]
    pub fn with_facts(bytes: &'a [u8], facts: Facts) -> Self {
        Self { known: ParseDepth::Inner, ..Self::new(bytes, 0, facts) }
    }

    /// The captured bytes.
    #[inline]
    pub const fn bytes(&self) -> &'a [u8] {
        // SAFETY: pointer and length are those of a slice that lives for `'a`.
        unsafe { std::slice::from_raw_parts(self.start, self.len as usize) }
    }

    /// Parses the headers to this depth, unless the packet is already parsed to this depth.
    #[inline]
    pub(crate) fn look(&mut self, depth: ParseDepth) {
        if self.known < depth {
            self.find(depth);
        }
    }

    #[inline]
    fn find(&mut self, depth: ParseDepth) {
        self.facts.look(self.bytes(), self.link_type, depth == ParseDepth::Inner);
        self.known = depth;
    }
}

/// The result of a program for one packet: kind of delivery, classes, hashes, mark and state.
/// [`crate::Worker::actions`] returns the actions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Verdict {
    /// The class mask.
    pub classes: u64,
    /// The hash for steering.
    pub hash: u32,
    /// The hash that selects the recipient of the second copy ([`VerdictKind::DoubleSteer`]).
    pub hash2: u32,
    /// The packet's mark.
    pub mark: u32,
    /// The state of this evaluation.
    pub state: u32,
    kind: u8,
    kernel: u8,
}

impl Verdict {
    /// Creates the verdict that the first part of a program produced elsewhere, as input for [`crate::Worker::resume`].
    #[inline]
    pub const fn resumed(kind: VerdictKind, classes: u64, [hash, hash2]: [u32; 2], mark: u32, state: u32) -> Self {
        Self { classes, hash, hash2, mark, state, kind: kind as u8, kernel: 0 }
    }

    /// Converts the verdict to the type that the interpreter uses, so that the interpreter can continue with it as the
    /// initial verdict record.
    pub(crate) fn outcome(&self) -> Execution {
        let Self { classes, hash, hash2, mark, state, .. } = *self;
        let (kind, kernel) = (self.kind(), self.kernel());
        Execution { kind, classes, hash, hash2, mark, state, kernel, ..Execution::default() }
    }

    /// The kind of delivery.
    #[inline]
    pub const fn kind(&self) -> VerdictKind {
        VerdictKind::from_number(self.kind as u64)
    }

    /// True if a copy of the packet is passed to the network stack of the host.
    #[inline]
    pub const fn kernel(&self) -> bool {
        self.kernel != 0
    }

    pub(crate) fn of(outcome: &Execution) -> Self {
        let Execution { kind, classes, hash, hash2, mark, state, kernel, .. } = *outcome;
        Self { classes, hash, hash2, mark, state, kind: kind as u8, kernel: kernel.into() }
    }
}

/// An action that a program requests for a packet, in addition to the delivery to members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketAction {
    /// The index of the packet in the batch.
    pub packet: u32,
    /// The action.
    pub action: Action,
}

/// Offsets of the fields of packets and verdicts that generated code accesses.
pub(crate) mod at {
    use super::{Fact, Facts, Layer, Meta, Packet, Verdict};
    use ::ir::facts::LayerFacts;
    use cranelift_codegen::ir::{Type, types};
    use std::mem::offset_of;

    pub const START: usize = offset_of!(Packet<'_>, start);
    pub const LEN: usize = offset_of!(Packet<'_>, len);
    pub const MARK: usize = FACTS + offset_of!(Facts, mark);
    pub const TIME: usize = FACTS + offset_of!(Facts, time);
    pub const WIRE_LEN: usize = FACTS + offset_of!(Facts, wire_len);
    pub const PACKET: usize = size_of::<Packet<'_>>();

    /// Offset of two adjacent fields, link type and parse depth, which generated code compares as one 32-bit number.
    pub const LINK_TYPE_AND_KNOWN: usize = offset_of!(Packet<'_>, link_type);
    pub const KNOWN: usize = offset_of!(Packet<'_>, known);
    const _: () = assert!(KNOWN == LINK_TYPE_AND_KNOWN + 2 && LINK_TYPE_AND_KNOWN.is_multiple_of(4));

    pub const CLASSES: usize = offset_of!(Verdict, classes);
    pub const HASH: usize = offset_of!(Verdict, hash);
    pub const HASH2: usize = offset_of!(Verdict, hash2);
    pub const OUT_MARK: usize = offset_of!(Verdict, mark);
    pub const STATE: usize = offset_of!(Verdict, state);
    pub const KIND: usize = offset_of!(Verdict, kind);
    pub const KERNEL: usize = offset_of!(Verdict, kernel);
    pub const VERDICT: usize = size_of::<Verdict>();

    const FACTS: usize = offset_of!(Packet<'_>, facts);

    /// The offset in [`Packet`] and the type of a fact of one layer, for loads by generated code.
    pub fn fact(layer: Layer, fact: Fact) -> (usize, Type) {
        let layer = match layer {
            Layer::Outer => offset_of!(Facts, outer),
            Layer::Inner => offset_of!(Facts, inner),
        };
        let (at, width) = match fact {
            Fact::Ethertype => (offset_of!(LayerFacts, ethertype), types::I16),
            Fact::L3 => (offset_of!(LayerFacts, l3), types::I16),
            Fact::L4 => (offset_of!(LayerFacts, l4), types::I16),
            Fact::Family => (offset_of!(LayerFacts, family), types::I8),
            Fact::Protocol => (offset_of!(LayerFacts, protocol), types::I8),
            Fact::Fragment => (offset_of!(LayerFacts, fragment), types::I8),
        };
        (FACTS + layer + at, width)
    }

    /// The offset in [`Packet`] and the type of a packet fact that is the same for both layers, for loads by generated
    /// code; `None` if [`Packet`] does not store this fact.
    pub fn meta(meta: Meta) -> Option<(usize, Type)> {
        let (at, width) = match meta {
            Meta::Time => (offset_of!(Facts, time), types::I64),
            Meta::Sequence => (offset_of!(Facts, sequence), types::I64),
            Meta::WireLen => (offset_of!(Facts, wire_len), types::I32),
            Meta::Rss => (offset_of!(Facts, rss), types::I32),
            Meta::Port => (offset_of!(Facts, port), types::I16),
            Meta::Duplicate => (offset_of!(Facts, duplicate), types::I8),
            Meta::Queue => (offset_of!(Facts, queue), types::I16),
            Meta::Vlan => (offset_of!(Facts, vlan), types::I16),
            Meta::Ingress => (offset_of!(Facts, ingress), types::I16),
            Meta::Ethernet => (offset_of!(Facts, ethernet), types::I8),
            Meta::Depth => (offset_of!(Facts, depth), types::I8),
            Meta::Part => (offset_of!(Facts, part), types::I8),
            Meta::Outgoing => (offset_of!(Facts, outgoing), types::I8),
            Meta::CapLen | Meta::HashKey => return None,
        };
        Some((FACTS + at, width))
    }
}
