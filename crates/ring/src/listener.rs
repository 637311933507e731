//! A listener in any process: it copies descriptors and, on demand, packet bytes, and cannot harm capture.
//!
//! When the producer overtakes a lossy listener, the listener continues at a later position and counts the missed
//! packets exactly. The count is exact, because the head and the number of control descriptors are published together:
//! packets = descriptors - control descriptors. The producer overtakes a lossless listener only after the reader
//! timeout.
//!
//! The listener does not trust the engine. For any memory contents, and at whatever point the engine dies, a listener
//! neither panics nor hangs nor reads outside of its mappings. For this reason the sums saturate, and the loops have at
//! most as many steps as the ring has descriptors.

use crate::desc::DescPosition;
use crate::desc::{Desc, FILE_HEADER, RECORD_HEADER};
use crate::layout::{CursorPage, RingParameters};
use crate::listener_registry::{JoinError, ListenerRegistry, ListenerState, Mode};
use crate::memory::RingMemory;
use crate::protocol;
use crate::search;
use std::cell::Cell;
use std::sync::Arc;

/// Maximum number of attempts of a rewind. An attempt fails if the producer overwrites the target position during the
/// attempt.
const REWINDS: u32 = 8;

/// Outcome counters of one listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenerCounts {
    /// Packets published since the listener joined, or after the position of its last rewind.
    pub published: u64,
    /// Packets that the listener has received.
    pub seen: u64,
    /// Packets overwritten before the listener read them.
    pub missed: u64,
    /// Packets published and not yet read.
    pub waiting: u64,
}

/// A reader that copies from the ring, in any process.
#[derive(Debug)]
pub struct Listener {
    memory: Arc<RingMemory>,
    cursor: Arc<CursorPage>,
    shape: RingParameters,
    mode: Mode,
    next: u64,
    start: u64,
    start_controls: u64,
    /// The last pair of head and number of control descriptors that the producer stored in one publication.
    settled: Cell<(u64, u64)>,
    /// Descriptors received so far, and the number of control descriptors among them.
    seen_descs: u64,
    seen_controls: u64,
    /// Stream position after the last packet received.
    end: u64,
    /// Packets whose bytes were overwritten before the listener copied them.
    torn: Cell<u64>,
    /// The listener's registration: a slot in this process, or a connection.
    registration: Registration,
}

#[derive(Debug)]
pub(crate) enum Registration {
    Slot(Arc<ListenerRegistry>, u8),
    Connection(Arc<sys::unix::Connection>),
    /// The reader of a branch needs no registration: the code that created the branch tells the writer of the branch
    /// when the reader leaves.
    Branch,
}

impl Listener {
    /// Joins a ring of this process.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn join(
        memory: &Arc<RingMemory>,
        registry: &Arc<ListenerRegistry>,
        shape: RingParameters,
        name: &str,
        mode: Mode,
    ) -> Result<Self, JoinError> {
        let (state, joined_at) = registry.join(name, mode, false)?;
        let ListenerState { slot, cursor, .. } = state;
        Ok(Self::new(
            Arc::clone(memory),
            cursor,
            shape,
            mode,
            joined_at,
            Registration::Slot(Arc::clone(registry), slot),
        ))
    }

    pub(crate) fn new(
        memory: Arc<RingMemory>,
        cursor: Arc<CursorPage>,
        shape: RingParameters,
        mode: Mode,
        joined_at: Option<DescPosition>,
        registration: Registration,
    ) -> Self {
        // The head and the number of control descriptors belong to different publications only if the producer died
        // during a publication. In that case no further publication follows.
        let positions = memory.control.positions();
        let (head, controls) = settled(&memory).unwrap_or_else(|| (positions.head(), positions.controls()));
        let mut listener = Self {
            memory,
            cursor,
            shape,
            mode,
            next: head,
            start: head,
            start_controls: controls,
            settled: Cell::new((head, controls)),
            seen_descs: 0,
            seen_controls: 0,
            end: 0,
            torn: Cell::new(0),
            registration,
        };
        // A lossless listener starts at the producer's position of the join, which may be before the present head. The
        // descriptors in between were published after the join; reading them gives the number of control descriptors
        // among them.
        let capacity = listener.memory.desc_capacity();
        if let Some(joined_at) = joined_at.filter(|p| p.desc <= head && head - p.desc <= capacity) {
            listener.next = joined_at.desc;
            listener.start = joined_at.desc;
            let between = (joined_at.desc..head).filter(|i| !protocol::load(listener.memory.slot(*i)).is_packet());
            listener.start_controls = controls.saturating_sub(between.count() as u64);
            listener.end = joined_at.pos;
        }
        listener
    }

    /// The ring's parameters.
    pub fn shape(&self) -> &RingParameters {
        &self.shape
    }

    /// Lossless or lossy.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Releases the descriptors of the last call, then copies up to `most` further descriptors. An empty `out` means
    /// that no further descriptor is available now. A lossless listener that does not call this function blocks its
    /// producer.
    pub fn next(&mut self, most: usize, out: &mut Vec<Desc>) {
        out.clear();
        self.cursor.release(self.next, self.end);
        let positions = self.memory.control.positions();
        let head = positions.head();
        // If the listener is behind by more than the ring's capacity, it was overtaken, so a copy of more descriptors
        // than the capacity is useless.
        let most = (most as u64).min(self.memory.desc_capacity());
        let to = head.min(self.next.saturating_add(most)).max(self.next);
        // PERF: 7.3 → 4.5 ns per record with three listeners on one core (bench ring, 60 B), by copying the words
        // unchanged and counting the control descriptors during the copy.
        let controls = self.memory.copy_descs(self.next, to, out);
        let oldest = positions.oldest_desc(self.memory.desc_capacity());
        if oldest > self.next {
            // The listener was overtaken, so the copies below `oldest` are invalid. The new position is so far from the
            // oldest descriptor that the listener is not overtaken again at once.
            out.clear();
            let head = positions.head();
            self.next = oldest.saturating_add(self.memory.desc_capacity() / 4).min(head).max(self.next);
            return;
        }
        self.next = to;
        self.seen_descs += out.len() as u64;
        self.seen_controls += controls;
        if let Some(last) = out.iter().rev().find(|d| d.is_packet()) {
            self.end = last.end();
        }
    }

    /// Moves, back or forward, to the first packet or segment begin at or after this stream position that is not
    /// overwritten; 0 finds the oldest. The listener's counters restart at the new position. Returns true if no packet
    /// at or after `pos` was skipped because it was overwritten. Returns false for a lossless listener, which does not
    /// move: the producer retains only the packets after that listener's position.
    pub fn rewind(&mut self, pos: u64) -> bool {
        if self.mode == Mode::Lossless {
            return false;
        }
        let capacity = self.memory.desc_capacity();
        for _ in 0..REWINDS {
            let Some((head, controls)) = settled(&self.memory) else { break };
            let positions = self.memory.control.positions();
            // The claim is the position up to which the producer may be overwriting the ring. If it contradicts the
            // head, the engine is faulty or dead. The search then reads at most as many descriptors as the ring has.
            let oldest = || positions.oldest_desc(capacity).max(head.saturating_sub(capacity));
            let load = |i| protocol::load(self.memory.slot(i));
            let found = search::first_from(pos, head, load, oldest);
            let between = (found.index..head).filter(|i| !load(*i).is_packet()).count() as u64;
            if oldest() <= found.index {
                self.begin(found.index, controls.saturating_sub(between), (head, controls));
                return found.complete;
            }
        }
        let (head, controls) = settled(&self.memory).unwrap_or(self.settled.get());
        self.begin(head, controls, (head, controls));
        false
    }

    fn begin(&mut self, next: u64, controls: u64, settled: (u64, u64)) {
        (self.next, self.start, self.start_controls) = (next, next, controls);
        (self.seen_descs, self.seen_controls) = (0, 0);
        self.settled.set(settled);
    }

    /// Index of the first descriptor that the next call of [`Listener::next`] returns. The listener was overtaken if
    /// this index is not the index after the last returned descriptor.
    pub fn position(&self) -> u64 {
        self.next
    }

    /// The index after the last published descriptor, and the stream position of the end of the last packet that is not
    /// overwritten; `None` if the ring holds no packet.
    pub fn published(&self) -> (u64, Option<u64>) {
        let (head, capacity) = (self.memory.control.positions().head(), self.memory.desc_capacity());
        let last = (head.saturating_sub(capacity)..head).rev().map(|i| protocol::load(self.memory.slot(i)));
        let end = last.into_iter().find(Desc::is_packet).map(|d| d.end());
        (head, end)
    }

    /// Reports this listener's counters to the engine, for display. Call it about once per second.
    pub fn report(&self) {
        let counts = self.counts();
        self.cursor.report(counts.seen, counts.missed + self.torn.get());
    }

    /// Copies a packet's bytes; `None` if they were overwritten. Checks lengths against the ring before it reads,
    /// because the descriptor may hold any values.
    pub fn packet<'b>(&self, desc: &Desc, buffer: &'b mut Vec<u8>) -> Option<&'b [u8]> {
        self.copy(desc.pos() + RECORD_HEADER as u64, usize::from(desc.caplen), buffer)
    }

    /// As [`Listener::packet`], but at most the first `most` bytes, for readers that need only headers.
    pub fn first_bytes<'b>(&self, desc: &Desc, most: usize, buffer: &'b mut Vec<u8>) -> Option<&'b [u8]> {
        self.copy(desc.pos() + RECORD_HEADER as u64, usize::from(desc.caplen).min(most), buffer)
    }

    /// Copies a packet's nanosecond-pcap record, including the record header.
    pub fn record<'b>(&self, desc: &Desc, buffer: &'b mut Vec<u8>) -> Option<&'b [u8]> {
        self.copy(desc.pos(), RECORD_HEADER + usize::from(desc.caplen), buffer)
    }

    /// Copies a range of the stream. False if part of it was overwritten or it is longer than the ring. Bytes of a
    /// range that is not yet published are undefined.
    pub fn copy_range(&self, pos: u64, out: &mut [u8]) -> bool {
        if out.len() as u64 > self.memory.byte_capacity() {
            return false;
        }
        self.memory.copy_racy(pos, out);
        self.memory.stream_base().positions().oldest_pos(self.memory.byte_capacity()) <= pos
    }

    fn copy<'b>(&self, pos: u64, len: usize, buffer: &'b mut Vec<u8>) -> Option<&'b [u8]> {
        buffer.resize(len, 0);
        if self.copy_range(pos, buffer) {
            return Some(buffer.as_slice());
        }
        self.torn.set(self.torn.get() + 1);
        None
    }

    /// In a branch, packets lost because this listener released too slowly, as last published by the branch's writer;
    /// they were never published to the listener. 0 in a ring.
    pub fn lost(&self) -> u64 {
        if self.memory.is_branch() { self.memory.control.tally().lost[base::Cause::RingFull as usize] } else { 0 }
    }

    /// Packets whose descriptors were received, but whose bytes were overwritten before they were copied.
    pub fn torn(&self) -> u64 {
        self.torn.get()
    }

    /// The counters, exact as of the latest complete publication.
    pub fn counts(&self) -> ListenerCounts {
        let (head, controls) = settled(&self.memory).unwrap_or(self.settled.get());
        self.settled.set((head, controls));
        let published = head.saturating_sub(self.start).saturating_sub(controls.saturating_sub(self.start_controls));
        let seen = self.seen_descs - self.seen_controls;
        // The descriptors between `next` and the head are not read yet. The listener must read them to find how many
        // are packets and how many are control descriptors.
        let oldest = self.memory.control.positions().oldest_desc(self.memory.desc_capacity());
        let from = self.next.max(oldest);
        let to = head.min(from.saturating_add(self.memory.desc_capacity()));
        let waiting = (from..to).filter(|i| protocol::load(self.memory.slot(*i)).is_packet()).count() as u64;
        ListenerCounts { published, seen, missed: published.saturating_sub(seen + waiting), waiting }
    }

    /// Descriptors between the listener and the head.
    pub fn lag(&self) -> u64 {
        self.memory.control.positions().head().saturating_sub(self.next)
    }

    /// True if the producer has finished and this listener has received everything published.
    pub fn ended(&self) -> bool {
        self.memory.control.ended() && self.lag() == 0
    }

    /// True if the producer of the ring has finished. A branch may end before its ring does.
    pub fn ring_ended(&self) -> bool {
        self.memory.stream_base().ended()
    }

    /// True if the engine is alive (its socket is open), or this listener is in the engine's own process.
    pub fn connected(&self) -> bool {
        match &self.registration {
            Registration::Slot(..) | Registration::Branch => true,
            Registration::Connection(c) => {
                use std::os::fd::AsFd;
                // The engine never writes after the welcome, so a readable socket is a closed socket.
                sys::unix::wait_readable(&[c.as_fd()], std::time::Duration::ZERO).is_ok_and(|r| r.is_empty())
            }
        }
    }

    /// True if the reader timeout of this lossless listener has expired.
    pub fn expired(&self) -> bool {
        self.cursor.expired()
    }

    /// The producer's counters.
    pub fn tally(&self) -> base::Tally {
        self.memory.control.tally()
    }

    /// The pcap file header of the stream.
    pub fn file_header(&self) -> [u8; FILE_HEADER] {
        crate::config::file_header(self.shape.snaplen, self.shape.link_type)
    }
}

/// Head and control count of the same publication. The producer stores them nanoseconds apart, so the first attempts
/// spin; the later attempts sleep, in case the producer was preempted between the stores. `None` if all attempts fail:
/// the producer must have died between the two stores.
fn settled(memory: &RingMemory) -> Option<(u64, u64)> {
    const ATTEMPTS: u32 = 1000;
    const TIMEOUT: u32 = 100;
    const IDLE_SLEEP: std::time::Duration = std::time::Duration::from_millis(1);
    (0..ATTEMPTS + TIMEOUT).find_map(|i| {
        if i >= ATTEMPTS {
            std::thread::sleep(IDLE_SLEEP);
        }
        memory.control.positions().head_and_controls()
    })
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Registration::Slot(registry, slot) = &self.registration {
            registry.leave(*slot);
        }
    }
}
