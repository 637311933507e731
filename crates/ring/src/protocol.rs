//! The lock-free protocol between one producer and any number of readers. The rest of this crate is built on it.
//!
//! *Publish*: the producer stores the new head with release order after the descriptors and bytes below it; a reader
//! that loads the head with acquire order sees them.
//!
//! *Claim*: before the producer overwrites old data, it stores the position up to which it may write (the claim), then
//! executes a fence. A lossy reader copies first, executes a fence, then loads the claim: if the claim covers the
//! copied data, the reader discards the copy. (A sequence lock whose sequence is the position; Boehm, MSPC 2012.) The
//! copies use relaxed atomic words, so that a race with the producer is defined behaviour.
//!
//! *Release*: a lossless reader stores its released position with release order after its last read; the producer that
//! loads the position with acquire order may overwrite everything below it. A lossless reader may be an untrusted
//! process: the producer ignores positions that are impossible.

use crate::atomic::{AtomicU64, Ordering, fence};
use crate::desc::Desc;
use crate::desc::DescPosition;

/// The words of the control page that the producer writes and readers load. All values only grow.
pub struct Positions<'a> {
    /// Number of descriptors published.
    pub head: &'a AtomicU64,
    /// Number of published control descriptors. The producer stores it before the head.
    pub controls_before: &'a AtomicU64,
    /// Number of published control descriptors, stored again after the head. If a reader finds both numbers equal, they
    /// belong to the head that it read between them.
    pub controls_after: &'a AtomicU64,
    /// Descriptors below `claimed_desc - capacity` may have been overwritten.
    pub claimed_desc: &'a AtomicU64,
    /// Stream positions below `claimed_pos - capacity` may have been overwritten.
    pub claimed_pos: &'a AtomicU64,
}

impl Positions<'_> {
    /// Called by the producer before it writes: announces the positions up to which it may write.
    #[inline]
    pub fn claim(&self, desc: u64, pos: u64) {
        self.claimed_desc.store(desc, Ordering::Relaxed);
        self.claimed_pos.store(pos, Ordering::Relaxed);
        fence(Ordering::Release);
    }

    /// Called by the producer: makes all descriptors below `head`, and their bytes, visible to the readers.
    #[inline]
    pub fn publish(&self, head: u64, controls: u64) {
        self.controls_before.store(controls, Ordering::Relaxed);
        self.head.store(head, Ordering::Release);
        self.controls_after.store(controls, Ordering::Release);
    }

    /// Called by a reader: returns the index below which descriptors are readable.
    #[inline]
    pub fn head(&self) -> u64 {
        self.head.load(Ordering::Acquire)
    }

    /// Called by a reader: returns the number of published control descriptors, which may belong to a slightly later
    /// head.
    pub fn controls(&self) -> u64 {
        self.controls_after.load(Ordering::Acquire)
    }

    /// Called by a reader: returns head and number of control descriptors of the same publication; `None` if the
    /// producer published between the loads.
    ///
    /// If `controls_before` and `controls_after` are equal, the loaded head was published with this number of control
    /// descriptors. The load of a head that was published with a later number would also have made the later
    /// `controls_before` visible. A head that was published with an earlier number is excluded, because
    /// `controls_after` is loaded first.
    pub fn head_and_controls(&self) -> Option<(u64, u64)> {
        let after = self.controls_after.load(Ordering::Acquire);
        let head = self.head.load(Ordering::Acquire);
        let before = self.controls_before.load(Ordering::Relaxed);
        (before == after).then_some((head, after))
    }

    /// Called by a reader after it has copied descriptors: returns the index of the oldest descriptor that was not
    /// overwritten.
    #[inline]
    pub fn oldest_desc(&self, capacity: u64) -> u64 {
        fence(Ordering::Acquire);
        self.claimed_desc.load(Ordering::Relaxed).saturating_sub(capacity)
    }

    /// Called by a reader after it has copied bytes: returns the oldest stream position that was not overwritten.
    #[inline]
    pub fn oldest_pos(&self, capacity: u64) -> u64 {
        fence(Ordering::Acquire);
        self.claimed_pos.load(Ordering::Relaxed).saturating_sub(capacity)
    }
}

/// The words in which a lossless reader stores its released position. An untrusted reader may store any value.
pub struct Released<'a> {
    /// The reader has released all descriptors below this index.
    pub desc: &'a AtomicU64,
    /// The reader has released all bytes below this stream position.
    pub pos: &'a AtomicU64,
}

impl Released<'_> {
    /// Called by a lossless reader: releases all descriptors and bytes below `to`.
    pub fn set(&self, to: DescPosition) {
        self.desc.store(to.desc, Ordering::Release);
        self.pos.store(to.pos, Ordering::Release);
    }

    /// Returns the stored position. Its descriptor index and its stream position may come from different calls of
    /// [`Released::set`]. This does no harm: the index releases only descriptors, the position only packet bytes.
    pub fn get(&self) -> DescPosition {
        let pos = self.pos.load(Ordering::Acquire);
        DescPosition { desc: self.desc.load(Ordering::Acquire), pos }
    }

    /// Called by the producer: returns the position that the reader has stored if this position is possible (not before
    /// `known`, the last accepted position, and not after `written`), else `known`.
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

/// Loads a descriptor word by word. The copy is valid only if the claim, loaded afterwards, does not cover it.
#[inline]
pub fn load(slot: &[AtomicU64; 4]) -> Desc {
    Desc::from_words(std::array::from_fn(|i| slot[i].load(Ordering::Relaxed)))
}
