//! Those whom the writer waits for, and how far they let it go.

use crate::desc::DescPosition;
use crate::layout::CursorPage;
use crate::memory::RingMemory;
use base::Timestamp;
use std::sync::Arc;
use std::time::Duration;

/// A ring that was not full for this long had rest from its gates, and patience begins anew. While it is full every now
/// and then, because a slow gate lets a packet in here and there, it had none.
const REST: Duration = Duration::from_secs(1);

/// The gates of one ring, as the writer sees them.
pub struct BackPressure {
    gates: Vec<LosslessSlot>,
    limit: DescPosition,
    limiting: u8,
}

struct LosslessSlot {
    slot: u8,
    cursor: Arc<CursorPage>,
    /// The last credible release.
    released: DescPosition,
    /// Never expired.
    waits: bool,
    /// When the ring was first full because of it without rest since, and when last.
    held_up: Option<(Timestamp, Timestamp)>,
}

impl BackPressure {
    /// Nobody.
    pub fn new() -> Self {
        Self { gates: Vec::new(), limit: DescPosition { desc: u64::MAX, pos: u64::MAX }, limiting: 0 }
    }

    /// Whether the writer may write below these.
    #[inline]
    pub fn allow(&self, pos: u64, desc: u64) -> bool {
        pos <= self.limit.pos && desc <= self.limit.desc
    }

    /// As far as the writer may write.
    #[inline]
    pub fn limit(&self) -> DescPosition {
        self.limit
    }

    /// Slot of the gate that sets the limit.
    pub fn limiting(&self) -> u8 {
        self.limiting
    }

    /// One more, from this place on.
    pub fn join(&mut self, slot: u8, cursor: Arc<CursorPage>, place: DescPosition, patient: bool) {
        cursor.release(place.desc, place.pos);
        self.gates.push(LosslessSlot { slot, cursor, released: place, waits: patient, held_up: None });
    }

    /// One fewer.
    pub fn leave(&mut self, slot: u8) {
        self.gates.retain(|g| g.slot != slot);
    }

    /// The ring is full because of this gate; for how long that has been so, by `now`. Zero for a gate that is never
    /// expired.
    pub fn held_up_for(&mut self, slot: u8, now: Timestamp) -> Duration {
        let Some(gate) = self.gates.iter_mut().find(|g| g.slot == slot && !g.waits) else { return Duration::ZERO };
        let since = match gate.held_up {
            Some((since, last)) if now.since(last) <= REST => since,
            _ => now,
        };
        gate.held_up = Some((since, now));
        now.since(since)
    }

    /// Time has leapt: how long anybody held the ring up is unknown.
    pub fn clear_stall(&mut self) {
        for gate in &mut self.gates {
            gate.held_up = None;
        }
    }

    /// Takes the cursors over, as far as they are credible: one that goes back or runs ahead of `written` is ignored.
    pub fn read(&mut self, written: DescPosition, memory: &RingMemory) {
        let mut limit = DescPosition { desc: u64::MAX, pos: u64::MAX };
        for gate in &mut self.gates {
            gate.released = gate.cursor.positions().credible(gate.released, written);
            let desc = gate.released.desc + memory.desc_capacity();
            let pos = gate.released.pos + memory.byte_capacity();
            if desc < limit.desc || pos < limit.pos {
                self.limiting = gate.slot;
            }
            limit = DescPosition { desc: limit.desc.min(desc), pos: limit.pos.min(pos) };
        }
        self.limit = limit;
    }

    /// Bytes and descriptors between the slowest gate and `written`, the larger as a fraction of the ring; 0 without gates.
    pub fn fill(&self, written: DescPosition, memory: &RingMemory) -> f64 {
        let used = |g: &LosslessSlot| {
            let bytes = (written.pos - g.released.pos) as f64 / memory.byte_capacity() as f64;
            bytes.max((written.desc - g.released.desc) as f64 / memory.desc_capacity() as f64)
        };
        self.gates.iter().map(used).fold(0.0, f64::max)
    }
}
