//! The lossless readers of a ring, and the position up to which the producer may write without overwriting their data.

use crate::desc::DescPosition;
use crate::layout::CursorPage;
use crate::memory::RingMemory;
use base::Timestamp;
use std::sync::Arc;
use std::time::Duration;

/// If a reader did not cause a full ring for this long, its reader timeout starts anew. During a shorter interruption a
/// slow reader may have released only a few packets, so such an interruption does not restart the timeout.
const RECOVERY: Duration = Duration::from_secs(1);

/// The lossless readers of one ring, as the producer tracks them.
pub struct BackPressure {
    readers: Vec<LosslessSlot>,
    limit: DescPosition,
    limiting: u8,
}

struct LosslessSlot {
    slot: u8,
    cursor: Arc<CursorPage>,
    /// The last valid release.
    released: DescPosition,
    /// True if no reader timeout applies to this reader.
    has_no_timeout: bool,
    /// First and last time at which the ring was full because of this reader, in a period without an interruption of
    /// [`RECOVERY`] or longer.
    held_up: Option<(Timestamp, Timestamp)>,
}

impl BackPressure {
    /// Without lossless readers: the producer may write anywhere.
    pub fn new() -> Self {
        Self { readers: Vec::new(), limit: DescPosition { desc: u64::MAX, pos: u64::MAX }, limiting: 0 }
    }

    /// True if the producer may write all bytes below the stream position `pos` and all descriptors below the index
    /// `desc`.
    #[inline]
    pub fn allow(&self, pos: u64, desc: u64) -> bool {
        pos <= self.limit.pos && desc <= self.limit.desc
    }

    /// The stream position and the descriptor index below which the producer may write.
    #[inline]
    pub fn limit(&self) -> DescPosition {
        self.limit
    }

    /// Slot of the lossless reader whose released position determines [`BackPressure::limit`].
    pub fn limiting(&self) -> u8 {
        self.limiting
    }

    /// Adds a lossless reader that starts at `position`. If `has_no_timeout`, no reader timeout applies to the reader.
    pub fn join(&mut self, slot: u8, cursor: Arc<CursorPage>, position: DescPosition, has_no_timeout: bool) {
        cursor.release(position.desc, position.pos);
        self.readers.push(LosslessSlot { slot, cursor, released: position, has_no_timeout, held_up: None });
    }

    /// Removes the lossless reader of this slot.
    pub fn leave(&mut self, slot: u8) {
        self.readers.retain(|g| g.slot != slot);
    }

    /// Records that the ring is full at `now` because of this reader, and returns for how long the ring has been full
    /// because of it. Zero for a reader without timeout.
    pub fn held_up_for(&mut self, slot: u8, now: Timestamp) -> Duration {
        let Some(reader) = self.readers.iter_mut().find(|g| g.slot == slot && !g.has_no_timeout) else {
            return Duration::ZERO;
        };
        let since = match reader.held_up {
            Some((since, last)) if now.since(last) <= RECOVERY => since,
            _ => now,
        };
        reader.held_up = Some((since, now));
        now.since(since)
    }

    /// Resets the reader timeouts after a clock step: the time for which the ring was full is unknown.
    pub fn clear_stall(&mut self) {
        for reader in &mut self.readers {
            reader.held_up = None;
        }
    }

    /// Reads the cursors of all readers. Ignores an invalid cursor: a cursor that moved back or is ahead of `written`.
    pub fn read(&mut self, written: DescPosition, memory: &RingMemory) {
        let mut limit = DescPosition { desc: u64::MAX, pos: u64::MAX };
        for reader in &mut self.readers {
            reader.released = reader.cursor.positions().credible(reader.released, written);
            let desc = reader.released.desc + memory.desc_capacity();
            let pos = reader.released.pos + memory.byte_capacity();
            if desc < limit.desc || pos < limit.pos {
                self.limiting = reader.slot;
            }
            limit = DescPosition { desc: limit.desc.min(desc), pos: limit.pos.min(pos) };
        }
        self.limit = limit;
    }

    /// Fill level between the slowest reader and `written`: the larger of the fractions of bytes and of descriptors; 0
    /// without lossless readers.
    pub fn fill(&self, written: DescPosition, memory: &RingMemory) -> f64 {
        let used = |g: &LosslessSlot| {
            let bytes = (written.pos - g.released.pos) as f64 / memory.byte_capacity() as f64;
            bytes.max((written.desc - g.released.desc) as f64 / memory.desc_capacity() as f64)
        };
        self.readers.iter().map(used).fold(0.0, f64::max)
    }
}
