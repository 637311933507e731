//! The producer is one thread. It makes one copy and one descriptor for each packet, and one release store for each
//! batch.
//!
//! The bytes are a stream of nanosecond-pcap records, cut into *segments*. A segment begins at a multiple of [`BLOCK`]
//! with a pcap file header, so that the ring holds exactly the bytes that the recorder writes to disk. The producer
//! decides where a segment ends, by size and by packet time, because the decision must precede the next byte.
//!
//! The producer also maintains the ledger of losses. It counts the outcome of each packet exactly once, and writes
//! losses into the stream as control descriptors, so that a reader of the stream computes the same totals.

use crate::annotation::{AnnotatedPosition, STREAM_POSITION_MAX};
use crate::back_pressure::BackPressure;
use crate::config::{CAPLEN_MAX, Config, file_header};
use crate::desc::DescPosition;
use crate::desc::{BLOCK, Control, Desc, FILE_HEADER, RECORD_HEADER};
use crate::listener_registry::{ListenerRegistry, Request};
use crate::memory::RingMemory;
use crate::packet::{Packet, RingFull};
use crate::pending_discards::{Discard, PendingDiscards};
use crate::pending_timestamps::PendingTimestamps;
use crate::protocol;
use base::{Cause, ClockState, Ledger, Note, Tally, Timestamp};
use std::sync::Arc;
use std::time::Duration;

const NANOS: u64 = 1_000_000_000;

/// Number of bytes by which the claim (the position up to which the producer may write, see `protocol.rs`) is ahead of
/// the next write, so that one update of the claim covers many packets.
const CLAIM_BYTES: u64 = 256 << 10;
/// Number of descriptors by which the claim is ahead of the next write.
const CLAIM_DESCS: u64 = 1024;
/// Number of descriptors that are reserved for control descriptors; the descriptors of packets never use them.
const CONTROL_RESERVE: u64 = 128;
/// Largest number of control descriptors that are written before one packet: a tick, the quality of the timestamps of
/// the second before, a clock step, and all pending counts of discards.
const CONTROLS_BEFORE: u64 = 18;
/// The reader timeout that applies after the last packet to lossless readers that have no timeout before the last
/// packet.
const LAST_TIMEOUT: Duration = Duration::from_secs(10);

/// The producer of a ring.
pub struct Producer {
    memory: Arc<RingMemory>,
    registry: Arc<ListenerRegistry>,
    config: Config,
    /// Stream position and descriptor index of the next write.
    pos: u64,
    desc: u64,
    controls: u64,
    published: u64,
    /// A packet needs no further check while `pos + need <= known_free_pos` and `desc < known_free_desc`.
    known_free_pos: u64,
    known_free_desc: u64,
    claimed: DescPosition,
    back_pressure: BackPressure,
    /// The stream position at which the present segment must end at the latest; `None` before the first segment.
    segment_limit: Option<u64>,
    /// Packet time at which the next segment begins; `None` without rotation.
    boundary: Option<Timestamp>,
    second_start: u64,
    last_tick: u64,
    tally: Tally,
    row_base: Tally,
    ledger: Ledger,
    pending: PendingDiscards,
    timestamps: PendingTimestamps,
    notes_changed: bool,
}

impl Producer {
    /// Creates the ring: allocates the memory as far as [`Config::prefault`] requests, locks it where permitted, seals
    /// it.
    ///
    /// # Errors
    /// If the machine has not enough memory.
    pub fn new(config: Config) -> std::io::Result<Self> {
        let config = config.rounded();
        let memory = Arc::new(RingMemory::create(&config.shape(), config.prefault)?);
        let mut producer = Self {
            memory,
            registry: Arc::default(),
            pos: config.start,
            desc: 0,
            controls: 0,
            published: 0,
            known_free_pos: 0,
            known_free_desc: 0,
            claimed: DescPosition { desc: 0, pos: config.start },
            back_pressure: BackPressure::new(),
            segment_limit: None,
            boundary: None,
            second_start: 0,
            last_tick: 0,
            tally: Tally::default(),
            row_base: Tally::default(),
            ledger: Ledger::new(),
            pending: PendingDiscards::default(),
            timestamps: PendingTimestamps::default(),
            notes_changed: false,
            config,
        };
        producer.claim(DescPosition { desc: 0, pos: producer.pos });
        Ok(producer)
    }

    /// The ring's memory, for listeners in this process.
    pub fn memory(&self) -> &Arc<RingMemory> {
        &self.memory
    }

    /// The registry that admits listeners.
    pub fn registry(&self) -> &Arc<ListenerRegistry> {
        &self.registry
    }

    /// The configuration in force, in which each value was rounded to a permitted value.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Writes one packet, or counts it as lost to a full ring.
    ///
    /// # Errors
    /// [`RingFull`]; the packet is already counted as lost.
    #[inline]
    pub fn push(&mut self, p: &Packet<'_>) -> Result<(), RingFull> {
        let ts = p.ts.nanos();
        if ts.wrapping_sub(self.second_start) >= NANOS {
            self.begin_second(p.ts);
        }
        let caplen = p.bytes.len() + p.tag_len();
        // The mapping guarantees contiguous space only up to the longest packet, so the length is checked here.
        assert!(caplen <= CAPLEN_MAX, "a packet of {caplen} bytes exceeds {CAPLEN_MAX} bytes");
        let need = (RECORD_HEADER + caplen) as u64;
        if self.pos + need > self.known_free_pos || self.desc >= self.known_free_desc {
            self.make_room(need, p.ts)?;
        }
        let wire_len = p.wire_len.saturating_add(p.tag_len() as u32);
        let seconds = u32::try_from(self.second_start / NANOS).unwrap_or(u32::MAX);
        let nanos = ts.wrapping_sub(self.second_start) as u32;
        let to = self.memory.at(self.pos);
        // SAFETY: `make_room` has found `need` bytes that no lossless reader holds, and has claimed them, so that lossy
        // readers discard copies of them; the double mapping makes them contiguous, and this thread is the only writer.
        unsafe {
            to.cast::<u64>().write_unaligned((u64::from(seconds) | u64::from(nanos) << 32).to_le());
            to.add(8).cast::<u64>().write_unaligned((caplen as u64 | u64::from(wire_len) << 32).to_le());
            p.copy_to(to.add(RECORD_HEADER));
        }
        protocol::store(
            self.memory.slot(self.desc),
            Desc {
                annotated_pos: AnnotatedPosition::of_packet(self.pos, p.annotations),
                ts,
                hash: p.hash,
                mark: p.mark,
                caplen: caplen as u16,
                wire_len: wire_len.min(0xffff) as u16,
                queue: self.config.queue as u8,
                flags: p.flags,
                l3: p.l3,
                l4: p.l4,
            },
        );
        self.pos += need;
        self.desc += 1;
        self.tally.offered += 1;
        self.tally.stored += 1;
        self.tally.stored_bytes += u64::from(wire_len);
        Ok(())
    }

    /// Counts packets with this timestamp that did not match the capture filter.
    #[inline]
    pub fn filtered(&mut self, ts: Timestamp, packets: u64) {
        if ts.nanos().wrapping_sub(self.second_start) >= NANOS {
            self.begin_second(ts);
        }
        self.pending.add(Discard::Filtered, packets);
    }

    /// Counts packets with this timestamp that were removed as duplicates.
    #[inline]
    pub fn duplicate(&mut self, ts: Timestamp, packets: u64) {
        if ts.nanos().wrapping_sub(self.second_start) >= NANOS {
            self.begin_second(ts);
        }
        self.pending.add(Discard::Duplicate, packets);
    }

    /// Counts packets that were lost before they reached the ring.
    pub fn lost(&mut self, cause: Cause, packets: u64) {
        self.pending.add(Discard::Lost { cause, reader: 0 }, packets);
    }

    /// Counts a note. A note is not a control descriptor; some notes are also flags of a packet's descriptor.
    #[inline]
    pub fn note(&mut self, note: Note, count: u64) {
        self.tally.notes[note as usize] += count;
        self.notes_changed = true;
    }

    /// Adds the estimated variances of the timestamps of packets of the present second: the number of packets, and the
    /// sum of their variances in square nanoseconds. At the end of the second, the deviation is written to the stream.
    #[inline]
    pub fn timestamp_variance(&mut self, packets: u64, sum: f64) {
        self.timestamps.add_variance(packets, sum);
    }

    /// Stores the state of the system clock, which is written to the stream at the end of each second.
    pub fn clock_state(&mut self, state: ClockState) {
        self.timestamps.set_clock(state);
    }

    /// Publishes all descriptors written so far to the readers. Call it once per batch.
    #[inline]
    pub fn publish(&mut self) {
        if !self.pending.is_empty() {
            self.write_pending();
        }
        if self.desc != self.published {
            self.memory.control.positions().publish(self.desc, self.controls);
            self.published = self.desc;
            self.memory.control.set_flow(&self.tally);
        }
        if self.notes_changed {
            self.notes_changed = false;
            self.memory.control.set_losses(&self.tally());
        }
    }

    /// Advances the stream's time: writes one tick per second, even without packets, and begins the segment of a new
    /// rotation period.
    pub fn tick(&mut self, now: Timestamp) {
        if now.nanos().wrapping_sub(self.second_start) >= NANOS {
            self.begin_second(now);
        }
        if self.segment_limit.is_none() || self.is_past(now) {
            // If there is no free space now, the segment begins with the next packet for which there is space.
            let _ = self.make_room(0, now);
        }
    }

    /// Handles a clock step of `nanos` nanoseconds, back or forward, to the time `now`: the step is written to the
    /// stream, and the packets after the step are in a new segment.
    pub fn clock_was_set(&mut self, nanos: i64, now: Timestamp) {
        self.timestamps.add_step(nanos);
        self.write_steps(now);
        self.last_tick = 0;
        self.boundary = None;
        self.segment_limit = self.segment_limit.map(|_| self.pos);
        self.known_free_pos = 0;
        self.back_pressure.clear_stall();
    }

    /// True if packet time has reached the end of the present segment.
    #[inline]
    fn is_past(&self, ts: Timestamp) -> bool {
        self.boundary.is_some_and(|b| ts >= b)
    }

    /// Serves the join and leave requests of listeners, and reads the cursors of the lossless readers.
    pub fn service(&mut self) {
        for request in self.registry.requests() {
            match request {
                Request::Join { slot, cursor, has_no_timeout, reply } => {
                    self.publish();
                    let position = DescPosition { desc: self.desc, pos: self.pos };
                    self.back_pressure.join(slot, cursor, position, has_no_timeout);
                    self.update_back_pressure();
                    // If the joining thread no longer waits, it has also queued a request to leave.
                    let _ = reply.send(position);
                }
                Request::Leave { slot } => {
                    self.pending.attribute_loss(&self.registry);
                    self.registry.free_slot(slot);
                    self.back_pressure.leave(slot);
                    self.update_back_pressure();
                }
            }
        }
    }

    /// True if [`Producer::push`] would find space for a packet of `len` stored bytes and this timestamp. The function
    /// is for sources that can wait, such as a file. While there is no space, the reader timeout is measured by `now`,
    /// the machine's clock, because the timestamps of a file may jump. So repeat the call until it returns true, and
    /// call `publish` and `service` in between.
    #[inline]
    pub fn has_room(&mut self, len: usize, ts: Timestamp, now: Timestamp) -> bool {
        let (start, _, due) = self.next_record((RECORD_HEADER + len) as u64, ts);
        let header = if due { FILE_HEADER } else { 0 };
        let end = start + (header + RECORD_HEADER + len) as u64;
        let desc = self.desc + 2 + CONTROL_RESERVE + CONTROLS_BEFORE;
        if !self.back_pressure.allow(end, desc) {
            self.update_back_pressure();
            if !self.back_pressure.allow(end, desc) {
                self.expire_reader(now);
                return false;
            }
        }
        true
    }

    /// True if [`Producer::push`] finds space for such a packet without reading the readers' cursors. Then the caller
    /// need not call [`Producer::has_room`], which needs the time of day.
    #[inline]
    pub fn has_easy_room(&self, len: usize, ts: Timestamp) -> bool {
        ts.nanos().wrapping_sub(self.second_start) < NANOS
            && self.pos + (RECORD_HEADER + len) as u64 <= self.known_free_pos
            && self.desc < self.known_free_desc
    }

    /// Prepares for the end of the stream: from now on a reader timeout applies even to lossless readers without a
    /// timeout.
    pub fn closing(&mut self) {
        self.config.reader_timeout.get_or_insert(LAST_TIMEOUT);
    }

    /// Ends the stream: writes all pending counts of discards and the end flag, and admits no further listeners.
    /// Returns false while a lossless reader leaves no space for the last descriptors; in that case call the function
    /// again.
    pub fn finish(&mut self, now: Timestamp) -> bool {
        self.service();
        self.tick(now);
        self.publish();
        self.write_steps(now);
        self.write_quality();
        if !self.pending.is_empty() || self.segment_limit.is_none() || !self.write_control(Control::End, now) {
            self.update_back_pressure();
            return false;
        }
        self.close_row();
        self.publish();
        self.memory.control.set_losses(&self.tally);
        self.memory.control.set_ended();
        self.registry.close();
        true
    }

    /// All counters, including losses for which the stream has no space yet.
    pub fn tally(&self) -> Tally {
        let mut tally = self.tally;
        self.pending.add_to(&mut tally);
        tally
    }

    /// The ledger rows (counts of packets by outcome) of the seconds that have passed since the last call.
    pub fn take_ledger(&mut self) -> Ledger {
        std::mem::take(&mut self.ledger)
    }

    /// Fill level of the ring with respect to the slowest lossless reader: the larger of the fractions of bytes and of
    /// descriptors; 0 without lossless readers.
    pub fn fill(&mut self) -> f64 {
        self.update_back_pressure();
        self.back_pressure.fill(DescPosition { desc: self.desc, pos: self.pos }, &self.memory)
    }

    /// Begins a new second. The timestamps may also jump forward or backward by more than a second.
    #[cold]
    fn begin_second(&mut self, ts: Timestamp) {
        self.write_pending();
        self.write_quality();
        self.close_row();
        self.second_start = ts.secs() * NANOS;
        self.write_steps(ts);
        if self.second_start > self.last_tick && self.segment_limit.is_some() {
            self.last_tick = self.second_start;
            // A tick may be missing: if there is no space for it, the next tick is that of the next second.
            self.write_control(Control::Tick, Timestamp::from_nanos(self.second_start));
        }
        if self.is_past(ts) {
            self.known_free_pos = 0;
        }
    }

    fn close_row(&mut self) {
        let row = self.tally.minus(&self.row_base);
        if self.second_start > 0 || !row.is_empty() {
            self.ledger.add(self.second_start / NANOS, &row);
        }
        self.row_base = self.tally;
        self.memory.control.set_losses(&self.tally());
    }

    /// Finds space for `need` bytes and one descriptor, and updates the claim (the position up to which the producer
    /// may write). If necessary, the function reads the cursors of the lossless readers and begins a segment.
    #[cold]
    fn make_room(&mut self, need: u64, ts: Timestamp) -> Result<(), RingFull> {
        let (start, gap, due) = self.next_record(need, ts);
        let end = if due { start + FILE_HEADER as u64 + need } else { start + need };
        if end > STREAM_POSITION_MAX {
            // A descriptor cannot hold the position. Only a stream of 64 PiB reaches this limit.
            return self.refuse(need, ts);
        }
        // The write needs two descriptors: one for a segment, one for the packet. The quality of the timestamps, which
        // follows the first segment, uses the reserve.
        if !self.back_pressure.allow(end, self.desc + 2 + CONTROL_RESERVE) {
            self.update_back_pressure();
            if !self.back_pressure.allow(end, self.desc + 2 + CONTROL_RESERVE) {
                return self.refuse(need, ts);
            }
        }
        if due {
            self.begin_segment(start, gap, ts);
        }
        self.claim(DescPosition { desc: self.desc + CLAIM_DESCS, pos: end + CLAIM_BYTES });
        self.known_free_pos = self.claimed.pos.min(self.segment_limit.unwrap_or(0)).min(STREAM_POSITION_MAX);
        self.known_free_desc = self.claimed.desc.min(self.back_pressure.limit().desc.saturating_sub(CONTROL_RESERVE));
        Ok(())
    }

    /// Start of a record of `need` bytes, the unused bytes before the record, and true if the record begins a new
    /// segment.
    #[inline]
    fn next_record(&self, need: u64, ts: Timestamp) -> (u64, u64, bool) {
        let due = match self.segment_limit {
            None => true,
            Some(limit) => self.pos + need > limit || self.is_past(ts),
        };
        let start = if due { self.pos.next_multiple_of(BLOCK) } else { self.pos };
        (start, start - self.pos, due)
    }

    fn refuse(&mut self, need: u64, ts: Timestamp) -> Result<(), RingFull> {
        self.known_free_pos = 0;
        let reader = self.back_pressure.limiting();
        if need > 0 {
            self.pending.add(Discard::Lost { cause: Cause::RingFull, reader }, 1);
        }
        self.expire_reader(ts);
        Err(RingFull { reader })
    }

    /// Stops waiting for the limiting lossless reader if the ring was full because of it for longer than the timeout.
    fn expire_reader(&mut self, now: Timestamp) {
        let reader = self.back_pressure.limiting();
        if let Some(timeout) = self.config.reader_timeout
            && self.back_pressure.held_up_for(reader, now) > timeout
        {
            self.back_pressure.leave(reader);
            self.registry.expire(reader);
            self.update_back_pressure();
        }
    }

    /// Claims positions, so that lossy readers discard copies of bytes that the producer may be overwriting. The claim
    /// is at most the limit of the lossless readers, because a lossless reader in another process checks the same
    /// claim.
    fn claim(&mut self, to: DescPosition) {
        let to = DescPosition {
            desc: to.desc.min(self.back_pressure.limit().desc).max(self.claimed.desc),
            pos: to.pos.min(self.back_pressure.limit().pos).max(self.claimed.pos),
        };
        self.claimed = to;
        self.memory.control.positions().claim(to.desc, to.pos);
    }

    /// Reads the cursors of the lossless readers.
    fn update_back_pressure(&mut self) {
        self.back_pressure.read(DescPosition { desc: self.published, pos: self.pos }, &self.memory);
    }

    fn begin_segment(&mut self, start: u64, gap: u64, ts: Timestamp) {
        let by_clock = self.is_past(ts);
        let named = match self.config.rotate {
            Some(period) if by_clock => ts.floor_to(period),
            _ => ts,
        };
        self.claim(DescPosition { desc: self.desc + 3, pos: start + FILE_HEADER as u64 });
        let header = file_header(self.config.snaplen, self.config.link_type);
        // SAFETY: `make_room` has found these bytes free and they are claimed; this thread is the only writer.
        unsafe { std::ptr::copy_nonoverlapping(header.as_ptr(), self.memory.at(start), FILE_HEADER) };
        self.pos = start + FILE_HEADER as u64;
        self.put(Desc::control(Control::Segment { pos: start, gap: gap as u32 }, named));
        if self.segment_limit.is_none()
            && let Some(quality) = self.timestamps.quality()
        {
            self.put(Desc::control(quality, named));
        }
        self.segment_limit = Some(start + self.config.segment_bytes);
        self.boundary = self.config.rotate.map(|period| ts.floor_to(period).after(period));
    }

    fn put(&mut self, desc: Desc) {
        protocol::store(self.memory.slot(self.desc), desc);
        self.desc += 1;
        self.controls += 1;
    }

    /// Writes a control descriptor; returns false if there is no space for it.
    fn write_control(&mut self, control: Control, ts: Timestamp) -> bool {
        if self.desc + 1 > self.back_pressure.limit().desc {
            self.update_back_pressure();
            if self.desc + 1 > self.back_pressure.limit().desc {
                return false;
            }
        }
        if self.desc + 1 > self.claimed.desc {
            self.claim(DescPosition { desc: self.desc + CLAIM_DESCS, pos: self.claimed.pos });
        }
        self.put(Desc::control(control, ts));
        true
    }

    /// Writes the quality of the timestamps of the present second. Without space in the stream, the variances count in
    /// the next second.
    fn write_quality(&mut self) {
        let Some(quality) = self.timestamps.quality() else { return };
        if self.segment_limit.is_some() && self.write_control(quality, Timestamp::from_nanos(self.second_start)) {
            self.timestamps.quality_written();
        }
    }

    /// Writes the clock steps that are not in the stream yet. Without space in the stream, they wait for the next
    /// second.
    fn write_steps(&mut self, now: Timestamp) {
        let Some(steps) = self.timestamps.steps() else { return };
        if self.segment_limit.is_some() && self.write_control(steps, now) {
            self.timestamps.steps_written();
        }
    }

    #[cold]
    fn write_pending(&mut self) {
        self.pending.attribute_loss(&self.registry);
        if self.segment_limit.is_none() {
            // The stream must begin with a segment, so all other descriptors wait for the first segment.
            return;
        }
        let ts = Timestamp::from_nanos(self.second_start);
        let (mut pending, mut tally) = (std::mem::take(&mut self.pending), self.tally);
        while pending.write_one(&mut tally, |control| self.write_control(control, ts)) {}
        (self.pending, self.tally) = (pending, tally);
        self.notes_changed = true;
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.memory.control.set_ended();
        self.registry.close();
    }
}
