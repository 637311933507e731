//! What goes into a judge and what comes out, in layouts that generated code reads and writes directly.

use lang::Facts;
use lang::interp::{Action, Execution};
use lang::ir::{Fact, FragmentScope, Inst, Layer, Meta, Program, VerdictKind};
use std::marker::PhantomData;

/// One packet to judge. Several programs may judge the same packets one after the other: what one of them had to look for in the
/// headers stays. (For most packets machine code need not look: see `form.rs`.)
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Packet<'a> {
    start: *const u8,
    len: u64,
    /// What the source knows is put in by whoever makes the packet; what the headers say is found when a program asks for it.
    pub facts: Facts,
    link_type: u16,
    known: ParseDepth,
    bytes: PhantomData<&'a [u8]>,
}

// SAFETY: it is a shared slice of bytes taken apart, and a slice may go to another thread.
unsafe impl Send for Packet<'_> {}
// SAFETY: as above.
unsafe impl Sync for Packet<'_> {}

/// How far into a packet one has to look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
pub enum ParseDepth {
    /// Bytes and what the source says of them.
    #[default]
    Bytes,
    /// The headers of the outermost packet.
    Outer,
    /// Those of the innermost.
    Inner,
}

impl ParseDepth {
    /// How far a program looks.
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
            | Inst::Datagram { parts: FragmentScope::Outer, .. } => Self::Outer,
            _ => Self::Bytes,
        }
    }
}

impl<'a> Packet<'a> {
    /// With facts of which only those of the source count: the headers are looked at when a program asks.
    ///
    /// # Panics
    /// Never for a frame: only where `bytes` has 4 GiB and more.
    #[inline]
    pub fn new(bytes: &'a [u8], link_type: u16, mut facts: Facts) -> Self {
        assert!(u32::try_from(bytes.len()).is_ok(), "a packet of {} bytes", bytes.len());
        facts.wire_len = facts.wire_len.max(bytes.len() as u32);
        let (start, len) = (bytes.as_ptr(), bytes.len() as u64);
        Self { start, len, facts, link_type, known: ParseDepth::Bytes, bytes: PhantomData }
    }

    /// With facts that are complete.
    #[inline]
    pub fn seen(bytes: &'a [u8], facts: Facts) -> Self {
        Self { known: ParseDepth::Inner, ..Self::new(bytes, 0, facts) }
    }

    /// Its bytes.
    #[inline]
    pub const fn bytes(&self) -> &'a [u8] {
        // SAFETY: start and length are those of a slice that lives for `'a`.
        unsafe { std::slice::from_raw_parts(self.start, self.len as usize) }
    }

    /// Sees to it that the facts are known so far.
    #[inline]
    pub(crate) fn look(&mut self, sight: ParseDepth) {
        if self.known < sight {
            self.find(sight);
        }
    }

    #[inline]
    fn find(&mut self, sight: ParseDepth) {
        self.facts.look(self.bytes(), self.link_type, sight == ParseDepth::Inner);
        self.known = sight;
    }
}

/// The record as a program leaves it; what it did to the packet beside is in [`crate::Worker::acts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Verdict {
    /// To the members of which classes.
    pub classes: u64,
    /// What steers.
    pub hash: u32,
    /// What steers the second copy.
    pub hash2: u32,
    /// The packet's mark.
    pub mark: u32,
    /// The state of this run.
    pub state: u32,
    kind: u8,
    kernel: u8,
}

impl Verdict {
    /// The record that a first part of a program left behind, for [`crate::Worker::resume`].
    #[inline]
    pub const fn resumed(kind: VerdictKind, classes: u64, [hash, hash2]: [u32; 2], mark: u32, state: u32) -> Self {
        Self { classes, hash, hash2, mark, state, kind: kind as u8, kernel: 0 }
    }

    /// As the interpreter goes on from it.
    pub(crate) fn outcome(&self) -> Execution {
        let Self { classes, hash, hash2, mark, state, .. } = *self;
        let (kind, kernel) = (self.kind(), self.kernel());
        Execution { kind, classes, hash, hash2, mark, state, kernel, ..Execution::default() }
    }

    /// What becomes of the packet.
    #[inline]
    pub const fn kind(&self) -> VerdictKind {
        VerdictKind::from_number(self.kind as u64)
    }

    /// Whether a copy goes to the stack of this host.
    #[inline]
    pub const fn kernel(&self) -> bool {
        self.kernel != 0
    }

    pub(crate) fn of(outcome: &Execution) -> Self {
        let Execution { kind, classes, hash, hash2, mark, state, kernel, .. } = *outcome;
        Self { classes, hash, hash2, mark, state, kind: kind as u8, kernel: kernel.into() }
    }
}

/// Something done to a packet beside its delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketAction {
    /// Which packet of those judged together.
    pub packet: u32,
    /// What.
    pub action: Action,
}

/// Offsets of what generated code reads and writes.
pub(crate) mod at {
    use super::{Fact, Facts, Layer, Meta, Packet, Verdict};
    use cranelift_codegen::ir::{Type, types};
    use lang::facts::LayerFacts;
    use std::mem::offset_of;

    pub const START: usize = offset_of!(Packet<'_>, start);
    pub const LEN: usize = offset_of!(Packet<'_>, len);
    pub const MARK: usize = FACTS + offset_of!(Facts, mark);
    pub const TIME: usize = FACTS + offset_of!(Facts, time);
    pub const WIRE_LEN: usize = FACTS + offset_of!(Facts, wire_len);
    pub const PACKET: usize = size_of::<Packet<'_>>();

    /// Two neighbours that are looked at as one number of four bytes.
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

    /// Where a fact is, and how wide.
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

    /// The same of the packet as a whole; `None` for what is no fact.
    pub fn meta(meta: Meta) -> Option<(usize, Type)> {
        let (at, width) = match meta {
            Meta::Time => (offset_of!(Facts, time), types::I64),
            Meta::Sequence => (offset_of!(Facts, sequence), types::I64),
            Meta::WireLen => (offset_of!(Facts, wire_len), types::I32),
            Meta::Rss => (offset_of!(Facts, rss), types::I32),
            Meta::Port => (offset_of!(Facts, port), types::I32),
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
