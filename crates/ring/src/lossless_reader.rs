//! A lossless reader in the producer's own process, for example the recorder. It reads packets in place, without
//! copies; the producer never overwrites unreleased packets, and no reader timeout applies.

use crate::desc::DescPosition;
use crate::desc::{Control, Desc, FILE_HEADER};
use crate::layout::CursorPage;
use crate::listener_registry::{JoinError, ListenerRegistry, Mode};
use crate::memory::RingMemory;
use std::sync::Arc;

/// A lossless reader in the producer's own process.
#[derive(Debug)]
pub struct LosslessReader {
    memory: Arc<RingMemory>,
    registry: Arc<ListenerRegistry>,
    cursor: Arc<CursorPage>,
    slot: u8,
    read: u64,
    released: DescPosition,
    /// Stream position after the last byte that `next` returned.
    end: u64,
}

impl LosslessReader {
    /// Registers the reader. Returns only if another thread calls [`crate::Producer::service`] meanwhile.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn join(memory: &Arc<RingMemory>, registry: &Arc<ListenerRegistry>, name: &str) -> Result<Self, JoinError> {
        let (state, position) = registry.join(name, Mode::Lossless, true)?;
        let position = position.ok_or(JoinError::NoAnswer)?;
        Ok(Self {
            memory: Arc::clone(memory),
            registry: Arc::clone(registry),
            cursor: state.cursor,
            slot: state.slot,
            read: position.desc,
            released: position,
            end: position.pos,
        })
    }

    /// The position up to which the reader has released the ring; before the first release, the position at which the
    /// reader joined.
    pub fn released(&self) -> DescPosition {
        self.released
    }

    /// Index of the first descriptor that the next call of `next` returns.
    pub fn position(&self) -> u64 {
        self.read
    }

    /// Number of descriptors that are published and that `next` has not yet returned.
    pub fn waiting(&self) -> u64 {
        self.memory.control.positions().head() - self.read
    }

    /// The descriptors published since the last call, in place. Descriptors and packet bytes stay valid until released.
    pub fn next(&mut self, most: usize) -> &[Desc] {
        let head = self.memory.control.positions().head();
        let to = head.min(self.read.saturating_add(most as u64));
        // SAFETY: the descriptors are below the head and not below the released position, and the producer waits for
        // this reader.
        let descs = unsafe { self.memory.held_descs(self.read, to) };
        self.read = to;
        self.end = descs.iter().rev().find_map(end_of).unwrap_or(self.end);
        descs
    }

    /// Returns a reference to bytes of the stream in the ring. `next` must have returned the descriptors of these
    /// bytes, and the reader must not have released them yet.
    ///
    /// # Panics
    /// If the range begins below the released position or ends after the last returned byte: the producer may overwrite
    /// such bytes.
    pub fn bytes(&self, pos: u64, len: usize) -> &[u8] {
        assert!(pos >= self.released.pos, "position {pos} is before the released position {}", self.released.pos);
        assert!(
            pos + len as u64 <= self.end,
            "position {} is after the last returned byte ({})",
            pos + len as u64,
            self.end
        );
        // SAFETY: the bytes are published and not below the released position, and the producer waits for this reader.
        unsafe { self.memory.held_bytes(pos, len) }
    }

    /// Releases everything before `position`, so that the producer may overwrite it.
    ///
    /// # Panics
    /// If `position` is before the released position or after the last returned descriptor.
    pub fn release(&mut self, position: DescPosition) {
        assert!(position.desc >= self.released.desc && position.pos >= self.released.pos && position.desc <= self.read);
        self.released = position;
        self.cursor.release(position.desc, position.pos);
    }

    /// True if the producer has finished. Descriptors published before remain readable.
    pub fn ended(&self) -> bool {
        self.memory.control.ended()
    }

    /// The ring's memory.
    pub fn memory(&self) -> &Arc<RingMemory> {
        &self.memory
    }
}

/// Stream position after the bytes of a descriptor; `None` for a descriptor without bytes.
fn end_of(desc: &Desc) -> Option<u64> {
    match desc.as_control() {
        None if desc.is_packet() => Some(desc.end()),
        Some(Control::Segment { pos, .. }) => Some(pos + FILE_HEADER as u64),
        _ => None,
    }
}

impl Drop for LosslessReader {
    fn drop(&mut self) {
        self.registry.leave(self.slot);
    }
}
