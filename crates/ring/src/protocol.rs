//! How one writer and any number of readers agree without locks. Everything else in this room is bookkeeping around it.
//!
//! *Publish*: the writer stores the new head with release order after the descriptors and bytes below it; a reader that
//! loads the head with acquire order sees them.
//!
//! *Claim*: before the writer overwrites old ground it announces how far it may go, then fences. A lossy reader copies
//! first and looks at the claim afterwards, behind a fence of its own: if what it copied could have been touched by then,
//! the copy is thrown away. (A sequence lock whose sequence is the position; Boehm, MSPC 2012.) The copies themselves are
//! relaxed atomic words, so that the race they may lose is a defined one.
//!
//! *Release*: a gate stores how far it is done with release order after its last read; the writer that loads it with
//! acquire order may overwrite what lies below. A gate is a stranger's process: the writer believes only what can be true.

use crate::atomic::{AtomicU64, Ordering, fence};
use crate::desc::Desc;
use crate::desc::DescPosition;

/// The words through which writer and readers meet. All only grow.
pub struct Positions<'a> {
    /// Descriptors published.
    pub head: &'a AtomicU64,
    /// Control descriptors among them, stored before the head…
    pub controls_before: &'a AtomicU64,
    /// …and after it, so that a reader can tell which head they belong to.
    pub controls_after: &'a AtomicU64,
    /// Descriptors that may have been overwritten: those below `claimed_desc - capacity`.
    pub claimed_desc: &'a AtomicU64,
    /// Stream positions that may have been overwritten: those below `claimed_pos - capacity`.
    pub claimed_pos: &'a AtomicU64,
}

impl Positions<'_> {
    /// Writer: announces ground, before touching it.
    #[inline]
    pub fn claim(&self, desc: u64, pos: u64) {
        self.claimed_desc.store(desc, Ordering::Relaxed);
        self.claimed_pos.store(pos, Ordering::Relaxed);
        fence(Ordering::Release);
    }

    /// Writer: makes everything below `head` visible.
    #[inline]
    pub fn publish(&self, head: u64, controls: u64) {
        self.controls_before.store(controls, Ordering::Relaxed);
        self.head.store(head, Ordering::Release);
        self.controls_after.store(controls, Ordering::Release);
    }

    /// Reader: how far one may read.
    #[inline]
    pub fn head(&self) -> u64 {
        self.head.load(Ordering::Acquire)
    }

    /// Reader: how many controls were published, which may belong to a head a little further on.
    pub fn controls(&self) -> u64 {
        self.controls_after.load(Ordering::Acquire)
    }

    /// Reader: head and control count that belong together; `None` when a publication came between the loads.
    ///
    /// If both counts are equal, every head stored between them was published with that count: a later one would have
    /// brought its own `controls_before` along, an earlier one is excluded by `controls_after`.
    pub fn head_and_controls(&self) -> Option<(u64, u64)> {
        let after = self.controls_after.load(Ordering::Acquire);
        let head = self.head.load(Ordering::Acquire);
        let before = self.controls_before.load(Ordering::Relaxed);
        (before == after).then_some((head, after))
    }

    /// Reader: the first descriptor that was not overwritten, judged after copying.
    #[inline]
    pub fn oldest_desc(&self, capacity: u64) -> u64 {
        fence(Ordering::Acquire);
        self.claimed_desc.load(Ordering::Relaxed).saturating_sub(capacity)
    }

    /// Reader: the first stream position that was not overwritten, judged after copying.
    #[inline]
    pub fn oldest_pos(&self, capacity: u64) -> u64 {
        fence(Ordering::Acquire);
        self.claimed_pos.load(Ordering::Relaxed).saturating_sub(capacity)
    }
}

/// The words by which a gate lets the writer go on; anything at all may stand there.
pub struct Released<'a> {
    /// Descriptors below this are done with.
    pub desc: &'a AtomicU64,
    /// Stream positions below this are done with.
    pub pos: &'a AtomicU64,
}

impl Released<'_> {
    /// Gate: everything below may be overwritten.
    pub fn set(&self, to: DescPosition) {
        self.desc.store(to.desc, Ordering::Release);
        self.pos.store(to.pos, Ordering::Release);
    }

    /// What the gate says. The two need not come from one [`Released::set`]: each holds for its own memory.
    pub fn get(&self) -> DescPosition {
        let pos = self.pos.load(Ordering::Acquire);
        DescPosition { desc: self.desc.load(Ordering::Acquire), pos }
    }

    /// Writer: what the gate says if it can be true, that is neither before `known` nor beyond `written`; else `known`.
    pub fn credible(&self, known: DescPosition, written: DescPosition) -> DescPosition {
        let said = self.get();
        let within = |from: u64, said: u64, to: u64| from <= said && said <= to;
        if within(known.desc, said.desc, written.desc) && within(known.pos, said.pos, written.pos) {
            said
        } else {
            known
        }
    }
}

/// Stores a descriptor word by word.
#[inline]
pub fn store(slot: &[AtomicU64; 4], desc: Desc) {
    for (to, word) in slot.iter().zip(desc.to_words()) {
        to.store(word, Ordering::Relaxed);
    }
}

/// Loads a descriptor word by word; it means nothing until the claim has been looked at.
#[inline]
pub fn load(slot: &[AtomicU64; 4]) -> Desc {
    Desc::from_words(std::array::from_fn(|i| slot[i].load(Ordering::Relaxed)))
}
