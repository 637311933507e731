//! A gate in the writer's own process: reads in place, is never lapped and never expired. The recorder is one.

use crate::desc::DescPosition;
use crate::desc::{Control, Desc, FILE_HEADER};
use crate::layout::CursorPage;
use crate::listener_registry::{JoinError, ListenerRegistry, Mode};
use crate::memory::RingMemory;
use std::sync::Arc;

/// See the module's text.
#[derive(Debug)]
pub struct LosslessReader {
    memory: Arc<RingMemory>,
    hub: Arc<ListenerRegistry>,
    cursor: Arc<CursorPage>,
    slot: u8,
    read: u64,
    released: DescPosition,
    /// Stream position after the last byte that was given out.
    end: u64,
}

impl LosslessReader {
    /// Joins; the writer must be calling [`crate::Producer::service`] (from another thread) for this to return.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn join(memory: &Arc<RingMemory>, hub: &Arc<ListenerRegistry>, name: &str) -> Result<Self, JoinError> {
        let (state, place) = hub.join(name, Mode::Lossless, true)?;
        let place = place.ok_or(JoinError::NoAnswer)?;
        Ok(Self {
            memory: Arc::clone(memory),
            hub: Arc::clone(hub),
            cursor: state.cursor,
            slot: state.slot,
            read: place.desc,
            released: place,
            end: place.pos,
        })
    }

    /// Where the gate joined, or what it has released since.
    pub fn released(&self) -> DescPosition {
        self.released
    }

    /// Index of the first descriptor of the next [`Lossless::next`].
    pub fn position(&self) -> u64 {
        self.read
    }

    /// Descriptors published and not yet given out.
    pub fn waiting(&self) -> u64 {
        self.memory.control.positions().head() - self.read
    }

    /// The descriptors published since the last call, in place; they and their bytes stay until released.
    pub fn next(&mut self, most: usize) -> &[Desc] {
        let head = self.memory.control.positions().head();
        let to = head.min(self.read.saturating_add(most as u64));
        // SAFETY: below the head, not below what was released, and the writer waits for this gate.
        let descs = unsafe { self.memory.held_descs(self.read, to) };
        self.read = to;
        self.end = descs.iter().rev().find_map(end_of).unwrap_or(self.end);
        descs
    }

    /// Bytes of the stream in place, given out and not yet released.
    ///
    /// # Panics
    /// When the range begins below what was released or ends beyond what was given out: it may be something else.
    pub fn bytes(&self, pos: u64, len: usize) -> &[u8] {
        assert!(pos >= self.released.pos, "position {pos} was released ({})", self.released.pos);
        assert!(pos + len as u64 <= self.end, "position {} was not given out ({})", pos + len as u64, self.end);
        // SAFETY: published, not below what was released, and the writer waits for this gate.
        unsafe { self.memory.held_bytes(pos, len) }
    }

    /// Lets the writer have everything below this place.
    ///
    /// # Panics
    /// When the place goes back or beyond what was read.
    pub fn release(&mut self, place: DescPosition) {
        assert!(place.desc >= self.released.desc && place.pos >= self.released.pos && place.desc <= self.read);
        self.released = place;
        self.cursor.release(place.desc, place.pos);
    }

    /// Whether the writer has finished; what was published before can still be read.
    pub fn ended(&self) -> bool {
        self.memory.control.ended()
    }

    /// The ring's memory.
    pub fn memory(&self) -> &Arc<RingMemory> {
        &self.memory
    }
}

/// Where the bytes of a descriptor end, if it has any.
fn end_of(desc: &Desc) -> Option<u64> {
    match desc.as_control() {
        None if desc.is_packet() => Some(desc.end()),
        Some(Control::Segment { pos, .. }) => Some(pos + FILE_HEADER as u64),
        _ => None,
    }
}

impl Drop for LosslessReader {
    fn drop(&mut self) {
        self.hub.leave(self.slot);
    }
}
