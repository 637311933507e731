//! The writing side: one thread, one copy and one descriptor per packet, one release store per batch.
//!
//! The bytes are a stream of nanosecond-pcap records cut into *segments*. A segment begins at a multiple of [`BLOCK`] with
//! a pcap file header, so that what lies in the ring is byte for byte what goes to disk. Where a segment ends is decided
//! here, by size and by the clock of the packets, because only here is it known before the next byte is written.
//!
//! The producer also keeps the ledger: it sees every packet's fate exactly once, and puts losses into the stream as
//! control descriptors, so that whoever reads the stream arrives at the same sums by itself.

use crate::back_pressure::BackPressure;
use crate::config::{CAPLEN_MAX, Config, file_header};
use crate::desc::DescPosition;
use crate::desc::{BLOCK, Control, Desc, FILE_HEADER, RECORD_HEADER};
use crate::listener_registry::{ListenerRegistry, Request};
use crate::memory::RingMemory;
use crate::packet::{Packet, RingFull};
use crate::pending_discards::{Discard, PendingDiscards};
use crate::protocol;
use base::{Cause, Ledger, Note, Tally, Timestamp};
use std::sync::Arc;
use std::time::Duration;

const NANOS: u64 = 1_000_000_000;

/// Bytes announced ahead of the writer at a time, so that most packets need no announcement of their own.
const CLAIM_BYTES: u64 = 256 << 10;
/// Descriptors announced ahead at a time.
const CLAIM_DESCS: u64 = 1024;
/// Descriptors that packets leave free for control descriptors.
const CONTROL_RESERVE: u64 = 128;
/// Control descriptors that may precede one packet: a tick, and everything that can be pending.
const CONTROLS_BEFORE: u64 = 16;
/// Once no more packets come, the patience with a gate that otherwise would be waited for without end.
const LAST_TIMEOUT: Duration = Duration::from_secs(10);

/// The writer of a ring.
pub struct Producer {
    memory: Arc<RingMemory>,
    hub: Arc<ListenerRegistry>,
    config: Config,
    /// Next byte and descriptor to write.
    pos: u64,
    desc: u64,
    controls: u64,
    published: u64,
    /// While `pos + need` stays at or below this and `desc` below that, a packet needs no thought.
    known_free_pos: u64,
    known_free_desc: u64,
    claimed: DescPosition,
    back_pressure: BackPressure,
    /// Where the segment in progress must end at the latest; `None` before the first.
    segment_limit: Option<u64>,
    /// When the next segment is due by the clock; `None` without rotation.
    boundary: Option<Timestamp>,
    second_start: u64,
    last_tick: u64,
    tally: Tally,
    row_base: Tally,
    ledger: Ledger,
    pending: PendingDiscards,
    notes_changed: bool,
}

impl Producer {
    /// Makes the ring: memory created, touched as far as [`Config::prefault`] says, locked where permitted, and sealed.
    ///
    /// # Errors
    /// When the machine has not that much memory.
    pub fn new(config: Config) -> std::io::Result<Self> {
        let config = config.rounded();
        let memory = Arc::new(RingMemory::create(&config.shape(), config.prefault)?);
        let mut producer = Self {
            memory,
            hub: Arc::default(),
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
            notes_changed: false,
            config,
        };
        producer.claim(DescPosition { desc: 0, pos: producer.pos });
        Ok(producer)
    }

    /// The memory, for listeners in this process.
    pub fn memory(&self) -> &Arc<RingMemory> {
        &self.memory
    }

    /// Where listeners are let in.
    pub fn registry(&self) -> &Arc<ListenerRegistry> {
        &self.hub
    }

    /// The configuration in force, with everything rounded.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Writes one packet, or counts it as lost to a full ring.
    ///
    /// # Errors
    /// [`RingFull`]; the loss is already in the books.
    #[inline]
    pub fn push(&mut self, p: &Packet<'_>) -> Result<(), RingFull> {
        let ts = p.ts.nanos();
        if ts.wrapping_sub(self.second_start) >= NANOS {
            self.turn(p.ts);
        }
        let caplen = p.bytes.len() + p.tag_len();
        // The mirror's promise of contiguous room ends with the longest packet, so this is not left to the caller.
        assert!(caplen <= CAPLEN_MAX, "a packet of {caplen} bytes");
        let need = (RECORD_HEADER + caplen) as u64;
        if self.pos + need > self.known_free_pos || self.desc >= self.known_free_desc {
            self.make_room(need, p.ts)?;
        }
        let wire_len = p.wire_len.saturating_add(p.tag_len() as u32);
        let seconds = u32::try_from(self.second_start / NANOS).unwrap_or(u32::MAX);
        let nanos = ts.wrapping_sub(self.second_start) as u32;
        let to = self.memory.at(self.pos);
        // SAFETY: `make_room` has found `need` bytes that no gate holds and has announced them to lossy readers; the
        // mirror makes them contiguous, and this thread is the only writer.
        unsafe {
            to.cast::<u64>().write_unaligned((u64::from(seconds) | u64::from(nanos) << 32).to_le());
            to.add(8).cast::<u64>().write_unaligned((caplen as u64 | u64::from(wire_len) << 32).to_le());
            p.copy_to(to.add(RECORD_HEADER));
        }
        protocol::store(
            self.memory.slot(self.desc),
            Desc {
                pos: self.pos,
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

    /// Counts packets of this time that did not match the capture filter.
    #[inline]
    pub fn filtered(&mut self, ts: Timestamp, packets: u64) {
        if ts.nanos().wrapping_sub(self.second_start) >= NANOS {
            self.turn(ts);
        }
        self.pending.add(Discard::Filtered, packets);
    }

    /// Counts packets that were lost before they came here.
    pub fn lost(&mut self, cause: Cause, packets: u64) {
        self.pending.add(Discard::Lost { cause, gate: 0 }, packets);
    }

    /// Counts a remark; remarks are not in the stream, but on the descriptors themselves or nowhere.
    #[inline]
    pub fn note(&mut self, note: Note, count: u64) {
        self.tally.notes[note as usize] += count;
        self.notes_changed = true;
    }

    /// Makes everything written so far visible; call once per batch.
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

    /// Tells the stream what time it is: each second, also in silence. Begins the segment of a new period.
    pub fn tick(&mut self, now: Timestamp) {
        if now.nanos().wrapping_sub(self.second_start) >= NANOS {
            self.turn(now);
        }
        if self.segment_limit.is_none() || self.is_past(now) {
            // Without room the segment begins with the first packet that finds some.
            let _ = self.make_room(0, now);
        }
    }

    /// Somebody has set the clock: time goes on from here, back or forward, in a segment of its own.
    pub fn clock_was_set(&mut self) {
        self.last_tick = 0;
        self.boundary = None;
        self.segment_limit = self.segment_limit.map(|_| self.pos);
        self.known_free_pos = 0;
        self.back_pressure.clear_stall();
    }

    /// Whether the segment in progress has reached its time.
    #[inline]
    fn is_past(&self, ts: Timestamp) -> bool {
        self.boundary.is_some_and(|b| ts >= b)
    }

    /// Serves requests of listeners to join and leave, and looks again at what the gates have released.
    pub fn service(&mut self) {
        for request in self.hub.requests() {
            match request {
                Request::Join { slot, cursor, patient, reply } => {
                    self.publish();
                    let place = DescPosition { desc: self.desc, pos: self.pos };
                    self.back_pressure.join(slot, cursor, place, patient);
                    self.update_back_pressure();
                    // A newcomer that has already gone will also have left a request to leave.
                    let _ = reply.send(place);
                }
                Request::Leave { slot } => {
                    self.pending.attribute_loss(&self.hub);
                    self.hub.gone(slot);
                    self.back_pressure.leave(slot);
                    self.update_back_pressure();
                }
            }
        }
    }

    /// Whether [`Producer::push`] of a packet of `len` stored bytes and this stamp would find room: for a source that can
    /// wait, such as a file. Without room, the time for which gates hold the ring up counts by `now`, this machine's clock,
    /// because the stamps of a file may leap; so ask again until there is room, publishing and serving in between.
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

    /// Whether [`Producer::push`] of such a packet finds room without a new look at the gates. If so, a caller need
    /// not ask [`Producer::has_room`], which takes the time of day.
    #[inline]
    pub fn has_easy_room(&self, len: usize, ts: Timestamp) -> bool {
        ts.nanos().wrapping_sub(self.second_start) < NANOS
            && self.pos + (RECORD_HEADER + len) as u64 <= self.known_free_pos
            && self.desc < self.known_free_desc
    }

    /// Soon no more packets will come: from now on even a gate with unlimited patience is waited for only for a while.
    pub fn closing(&mut self) {
        self.config.reader_timeout.get_or_insert(LAST_TIMEOUT);
    }

    /// Ends the stream: everything pending is written, the end marked, and listeners no longer let in. Returns false,
    /// and may be called again, while a gate leaves no room for the last descriptors.
    pub fn finish(&mut self, now: Timestamp) -> bool {
        self.service();
        self.tick(now);
        self.publish();
        if !self.pending.is_empty() || self.segment_limit.is_none() || !self.write_control(Control::End, now) {
            self.update_back_pressure();
            return false;
        }
        self.close_row();
        self.publish();
        self.memory.control.set_losses(&self.tally);
        self.memory.control.set_ended();
        self.hub.close();
        true
    }

    /// Everything counted so far, including losses that have not found room in the stream yet.
    pub fn tally(&self) -> Tally {
        let mut tally = self.tally;
        self.pending.add_to(&mut tally);
        tally
    }

    /// The rows of the seconds that have passed since the last call.
    pub fn take_ledger(&mut self) -> Ledger {
        std::mem::take(&mut self.ledger)
    }

    /// Bytes and descriptors in use as a fraction of the ring, judged by the slowest gate; 0 without gates.
    pub fn fill(&mut self) -> f64 {
        self.update_back_pressure();
        self.back_pressure.fill(DescPosition { desc: self.desc, pos: self.pos }, &self.memory)
    }

    /// A new second begins (or time jumps, in either direction).
    #[cold]
    fn turn(&mut self, ts: Timestamp) {
        self.write_pending();
        self.close_row();
        self.second_start = ts.secs() * NANOS;
        if self.second_start > self.last_tick && self.segment_limit.is_some() {
            self.last_tick = self.second_start;
            // Only news of the time: when there is no room for it, the next second brings another.
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

    /// Finds room for `need` bytes and one descriptor: begins a segment if one is due, reads the gates again, announces.
    #[cold]
    fn make_room(&mut self, need: u64, ts: Timestamp) -> Result<(), RingFull> {
        let (start, gap, due) = self.next_record(need, ts);
        let end = if due { start + FILE_HEADER as u64 + need } else { start + need };
        // Two descriptors: the segment's and the packet's.
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
        self.known_free_pos = self.claimed.pos.min(self.segment_limit.unwrap_or(0));
        self.known_free_desc = self.claimed.desc.min(self.back_pressure.limit().desc.saturating_sub(CONTROL_RESERVE));
        Ok(())
    }

    /// Where a record of `need` bytes would begin, how much is skipped before it, and whether in a new segment.
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
        let gate = self.back_pressure.limiting();
        if need > 0 {
            self.pending.add(Discard::Lost { cause: Cause::RingFull, gate }, 1);
        }
        self.expire_reader(ts);
        Err(RingFull { reader: gate })
    }

    /// A gate that holds the ring up for too long is no longer waited for.
    fn expire_reader(&mut self, now: Timestamp) {
        let gate = self.back_pressure.limiting();
        if let Some(patience) = self.config.reader_timeout
            && self.back_pressure.held_up_for(gate, now) > patience
        {
            self.back_pressure.leave(gate);
            self.hub.expire(gate);
            self.update_back_pressure();
        }
    }

    /// Announces ground to lossy readers, never beyond what the gates allow (a gate elsewhere judges by the same words).
    fn claim(&mut self, to: DescPosition) {
        let to = DescPosition {
            desc: to.desc.min(self.back_pressure.limit().desc).max(self.claimed.desc),
            pos: to.pos.min(self.back_pressure.limit().pos).max(self.claimed.pos),
        };
        self.claimed = to;
        self.memory.control.positions().claim(to.desc, to.pos);
    }

    /// Looks again at how far the gates have come.
    fn update_back_pressure(&mut self) {
        self.back_pressure.read(DescPosition { desc: self.published, pos: self.pos }, &self.memory);
    }

    fn begin_segment(&mut self, start: u64, gap: u64, ts: Timestamp) {
        let by_clock = self.is_past(ts);
        let named = match self.config.rotate {
            Some(period) if by_clock => ts.floor_to(period),
            _ => ts,
        };
        self.claim(DescPosition { desc: self.desc + 2, pos: start + FILE_HEADER as u64 });
        let header = file_header(self.config.snaplen, self.config.link_type);
        // SAFETY: `make_room` has found these bytes free and they are announced; this thread is the only writer.
        unsafe { std::ptr::copy_nonoverlapping(header.as_ptr(), self.memory.at(start), FILE_HEADER) };
        self.pos = start + FILE_HEADER as u64;
        self.put(Desc::control(Control::Segment { pos: start, gap: gap as u32 }, named));
        self.segment_limit = Some(start + self.config.segment_bytes);
        self.boundary = self.config.rotate.map(|period| ts.floor_to(period).after(period));
    }

    fn put(&mut self, desc: Desc) {
        protocol::store(self.memory.slot(self.desc), desc);
        self.desc += 1;
        self.controls += 1;
    }

    /// Writes a control descriptor if there is room for one.
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

    #[cold]
    fn write_pending(&mut self) {
        self.pending.attribute_loss(&self.hub);
        if self.segment_limit.is_none() {
            // The stream begins with a segment; until there is one, everything else waits.
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
        self.hub.close();
    }
}
