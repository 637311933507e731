//! How one writer and any number of readers agree without locks. Everything else in this room is bookkeeping around it.
//!
//! *Publish*: the writer stores the new head with release order after the descriptors and bytes below it; a reader that
//! loads the head with acquire order sees them.
//!
//! *Claim*: before the writer overwrites old ground it announces how far it may go, then fences. A lossy reader copies
//! first and looks at the claim afterwards, behind a fence of its own: if what it copied could have been touched by then,
//! the copy is thrown away. (A sequence lock whose sequence is the position; Boehm, MSPC 2012.) The copies themselves are
//! relaxed atomic words, so that the race they may lose is a defined one.

use crate::atomic::{AtomicU64, Ordering, fence};
use crate::desc::Desc;

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
