//! The writing side: one thread, one copy and one descriptor per packet, one release store per batch.
//!
//! The bytes are a stream of nanosecond-pcap records cut into *segments*. A segment begins at a multiple of [`BLOCK`] with
//! a pcap file header, so that what lies in the ring is byte for byte what goes to disk. Where a segment ends is decided
//! here, by size and by the clock of the packets, because only here is it known before the next byte is written.
//!
//! The producer also keeps the ledger: it sees every packet's fate exactly once, and puts losses into the stream as
//! control descriptors, so that whoever reads the stream arrives at the same sums by itself.

use crate::desc::{BLOCK, Control, Desc, FILE_HEADER, RECORD_HEADER, flag};
use crate::hub::{Hub, Place, Request};
use crate::layout::{CursorPage, Shape};
use crate::memory::RingMemory;
use crate::protocol;
use base::{Cause, Ledger, Note, Tally, Timestamp};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

const NANOS: u64 = 1_000_000_000;

/// Most bytes stored of one packet: what 16 bits can say.
pub const CAPLEN_MAX: usize = 65_535;

/// Bytes announced ahead of the writer at a time, so that most packets need no announcement of their own.
const CLAIM_BYTES: u64 = 256 << 10;
/// Descriptors announced ahead at a time.
const CLAIM_DESCS: u64 = 1024;
/// Descriptors that packets leave free for control descriptors.
const CONTROL_RESERVE: u64 = 128;
/// Control descriptors that may precede one packet: a tick, and everything that can be pending.
const CONTROLS_BEFORE: u64 = 16;
/// Once no more packets come, the patience with a gate that otherwise would be waited for without end.
const LAST_PATIENCE: Duration = Duration::from_secs(10);

/// The size and behaviour of a ring.
#[derive(Clone, Debug)]
pub struct Config {
    /// Interface, file or simulation.
    pub name: String,
    /// Bytes of packet memory, rounded up to a power of two of at least 8 MiB.
    pub bytes: u64,
    /// Descriptors, rounded up to a power of two; 0 gives one per 128 bytes of packet memory.
    pub descs: u64,
    /// Link type as in pcap.
    pub link_type: u32,
    /// Most bytes stored of one packet, at most [`CAPLEN_MAX`].
    pub snaplen: u32,
    /// Queue number.
    pub queue: u16,
    /// Most bytes of one segment (one file); at least two blocks.
    pub segment_bytes: u64,
    /// A new segment at every multiple of this (counted from the epoch, at least one second), silence included.
    pub rotate: Option<Duration>,
    /// How long the ring may be full because of a gate in another process before it is no longer waited for.
    pub gate_expiry: Option<Duration>,
    /// First stream position, rounded up to a block. Anything but 0 serves tests of the counters' width.
    pub start: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: String::new(),
            bytes: 1 << 30,
            descs: 0,
            link_type: 1,
            snaplen: CAPLEN_MAX as u32,
            queue: 0,
            segment_bytes: 2 << 30,
            rotate: None,
            gate_expiry: None,
            start: 0,
        }
    }
}

/// A packet to be written.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Its bytes, at most [`CAPLEN_MAX`] (4 fewer with `vlan`).
    pub bytes: &'a [u8],
    /// Length on the wire, without the tag in `vlan`.
    pub wire_len: u32,
    /// When it arrived.
    pub ts: Timestamp,
    /// Flow hash.
    pub hash: u32,
    /// Free for programs.
    pub mark: u32,
    /// Bits of [`flag`].
    pub flags: u8,
    /// Offset of the network header in the packet as it will be stored, tag included.
    pub l3: u8,
    /// Offset of the transport header in the packet as it will be stored, tag included.
    pub l4: u8,
    /// A tag to put back behind the two MAC addresses: TPID and TCI, big-endian.
    pub vlan: Option<[u8; 4]>,
}

/// The packet was not written: the ring is full, because of the gate in this slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// The gate that has not released.
    pub gate: u8,
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the ring is full: the gate in slot {} has not released its part", self.gate)
    }
}

impl std::error::Error for Full {}

struct Gate {
    slot: u8,
    cursor: Arc<CursorPage>,
    /// The last credible release.
    released: Place,
    /// Never expired.
    patient: bool,
}

/// The writer of a ring.
pub struct Producer {
    memory: Arc<RingMemory>,
    hub: Arc<Hub>,
    config: Config,
    /// Next byte and descriptor to write.
    pos: u64,
    desc: u64,
    controls: u64,
    published: u64,
    /// While `pos + need` stays at or below this and `desc` below that, a packet needs no thought.
    easy_pos: u64,
    easy_desc: u64,
    claimed: Place,
    /// What the gates allow.
    limit: Place,
    limiting_gate: u8,
    gates: Vec<Gate>,
    blocked_since: Option<Timestamp>,
    /// Where the segment in progress must end at the latest; `None` before the first.
    segment_limit: Option<u64>,
    boundary: Timestamp,
    second_start: u64,
    last_tick: u64,
    tally: Tally,
    row_base: Tally,
    ledger: Ledger,
    pending: Vec<Pending>,
    notes_changed: bool,
}

/// Packets whose fate is not yet in the stream.
struct Pending {
    fate: Fate,
    packets: u64,
    /// How many of them the hub knows of (see [`Hub::blame`]).
    told: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Filtered,
    Lost { cause: Cause, gate: u8 },
}

impl Fate {
    fn control(self, packets: u64) -> Control {
        match self {
            Self::Filtered => Control::Filtered { packets },
            Self::Lost { cause, gate } => Control::Lost { cause, gate, packets },
        }
    }

    fn count(self, packets: u64, tally: &mut Tally) {
        match self {
            Self::Filtered => {
                tally.offered += packets;
                tally.filtered += packets;
            }
            Self::Lost { cause, .. } => tally.lose(cause, packets),
        }
    }
}

impl Producer {
    /// Makes the ring: memory created, touched, locked where permitted, and sealed.
    ///
    /// # Errors
    /// When the machine has not that much memory.
    pub fn new(mut config: Config) -> std::io::Result<Self> {
        config.bytes = config.bytes.max(8 * BLOCK).next_power_of_two();
        config.descs = match config.descs {
            0 => config.bytes / 128,
            n => n,
        }
        .max(64 * 1024)
        .next_power_of_two();
        config.snaplen = config.snaplen.min(CAPLEN_MAX as u32);
        config.segment_bytes = config.segment_bytes.max(2 * BLOCK);
        config.rotate = config.rotate.map(|p| Duration::from_secs(p.as_secs().max(1)));
        config.start = config.start.next_multiple_of(BLOCK);
        let shape = Shape {
            bytes: config.bytes,
            descs: config.descs,
            link_type: config.link_type,
            snaplen: config.snaplen,
            queue: config.queue,
            name: config.name.clone(),
        };
        let memory = Arc::new(RingMemory::create(&shape)?);
        let mut producer = Self {
            memory,
            hub: Arc::default(),
            pos: config.start,
            desc: 0,
            controls: 0,
            published: 0,
            easy_pos: 0,
            easy_desc: 0,
            claimed: Place { desc: 0, pos: config.start },
            limit: Place { desc: u64::MAX, pos: u64::MAX },
            limiting_gate: 0,
            gates: Vec::new(),
            blocked_since: None,
            segment_limit: None,
            boundary: Timestamp::MAX,
            second_start: 0,
            last_tick: 0,
            tally: Tally::default(),
            row_base: Tally::default(),
            ledger: Ledger::new(),
            pending: Vec::new(),
            notes_changed: false,
            config,
        };
        producer.claim(Place { desc: 0, pos: producer.pos });
        Ok(producer)
    }

    /// The memory, for listeners in this process.
    pub fn memory(&self) -> &Arc<RingMemory> {
        &self.memory
    }

    /// Where listeners are let in.
    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// The configuration in force, with everything rounded.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Writes one packet, or counts it as lost to a full ring.
    ///
    /// # Errors
    /// [`Full`]; the loss is already in the books.
    #[inline]
    pub fn push(&mut self, p: &Packet<'_>) -> Result<(), Full> {
        debug_assert!(p.bytes.len() + 4 * usize::from(p.vlan.is_some()) <= CAPLEN_MAX);
        let ts = p.ts.nanos();
        if ts.wrapping_sub(self.second_start) >= NANOS {
            self.turn(p.ts);
        }
        let tag = if p.vlan.is_some() { 4 } else { 0 };
        let caplen = p.bytes.len() + tag;
        let need = (RECORD_HEADER + caplen) as u64;
        if self.pos + need > self.easy_pos || self.desc >= self.easy_desc {
            self.make_room(need, p.ts)?;
        }
        let wire_len = p.wire_len + tag as u32;
        let seconds = (self.second_start / NANOS) as u32;
        let nanos = ts.wrapping_sub(self.second_start) as u32;
        let to = self.memory.at(self.pos);
        // SAFETY: `make_room` has found `need` bytes that no gate holds and has announced them to lossy readers; the
        // mirror makes them contiguous, and this thread is the only writer.
        unsafe {
            to.cast::<u64>().write_unaligned((u64::from(seconds) | u64::from(nanos) << 32).to_le());
            to.add(8).cast::<u64>().write_unaligned((caplen as u64 | u64::from(wire_len) << 32).to_le());
            copy(p, to.add(RECORD_HEADER));
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
        self.pend(Fate::Filtered, packets);
    }

    /// Counts packets that were lost before they came here.
    pub fn lost(&mut self, cause: Cause, packets: u64) {
        self.pend(Fate::Lost { cause, gate: 0 }, packets);
    }

    /// Counts a remark; remarks are not in the stream, but on the descriptors themselves or nowhere.
    #[inline]
    pub fn note(&mut self, note: Note, count: u64) {
        self.tally.notes[note as usize] += count;
        self.notes_changed = true;
    }

    fn pend(&mut self, fate: Fate, packets: u64) {
        if packets == 0 {
            return;
        }
        match self.pending.iter_mut().find(|p| p.fate == fate) {
            Some(p) => p.packets += packets,
            None => self.pending.push(Pending { fate, packets, told: 0 }),
        }
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
        if self.segment_limit.is_none() || now >= self.boundary {
            // Without room the segment begins with the first packet that finds some.
            let _ = self.make_room(0, now);
        }
    }

    /// Serves requests of listeners to join and leave, and looks again at what the gates have released.
    pub fn service(&mut self) {
        for request in self.hub.requests() {
            match request {
                Request::Join { slot, cursor, patient, reply } => {
                    self.publish();
                    let place = Place { desc: self.desc, pos: self.pos };
                    cursor.release(place.desc, place.pos);
                    self.gates.push(Gate { slot, cursor, released: place, patient });
                    self.read_gates();
                    // A newcomer that has already gone will also have left a request to leave.
                    let _ = reply.send(place);
                }
                Request::Leave { slot } => {
                    self.blame();
                    self.hub.gone(slot);
                    self.gates.retain(|g| g.slot != slot);
                    self.read_gates();
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
        if !self.allowed(end, desc) {
            self.read_gates();
            if !self.allowed(end, desc) {
                self.lose_patience(now);
                return false;
            }
        }
        self.blocked_since = None;
        true
    }

    /// Soon no more packets will come: from now on even a gate with unlimited patience is waited for only for a while.
    pub fn closing(&mut self) {
        self.config.gate_expiry.get_or_insert(LAST_PATIENCE);
    }

    /// Ends the stream: everything pending is written, the end marked, and listeners no longer let in. Returns false,
    /// and may be called again, while a gate leaves no room for the last descriptors.
    pub fn finish(&mut self, now: Timestamp) -> bool {
        self.service();
        self.tick(now);
        self.publish();
        if !self.pending.is_empty() || self.segment_limit.is_none() || !self.write_control(Control::End, now) {
            self.read_gates();
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
        for p in &self.pending {
            p.fate.count(p.packets, &mut tally);
        }
        tally
    }

    /// The rows of the seconds that have passed since the last call.
    pub fn take_ledger(&mut self) -> Ledger {
        std::mem::take(&mut self.ledger)
    }

    /// Bytes and descriptors in use as a fraction of the ring, judged by the slowest gate; 0 without gates.
    pub fn fill(&mut self) -> f64 {
        self.read_gates();
        let oldest = self.gates.iter().map(|g| g.released).fold(None, |a: Option<Place>, b| {
            Some(a.map_or(b, |a| Place { desc: a.desc.min(b.desc), pos: a.pos.min(b.pos) }))
        });
        oldest.map_or(0.0, |o| {
            let bytes = (self.pos - o.pos) as f64 / self.memory.byte_capacity() as f64;
            bytes.max((self.desc - o.desc) as f64 / self.memory.desc_capacity() as f64)
        })
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
        if ts >= self.boundary {
            self.easy_pos = 0;
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
    fn make_room(&mut self, need: u64, ts: Timestamp) -> Result<(), Full> {
        let (start, gap, due) = self.next_record(need, ts);
        let end = if due { start + FILE_HEADER as u64 + need } else { start + need };
        // Two descriptors: the segment's and the packet's.
        if !self.allowed(end, self.desc + 2 + CONTROL_RESERVE) {
            self.read_gates();
            if !self.allowed(end, self.desc + 2 + CONTROL_RESERVE) {
                return self.refuse(need, ts);
            }
        }
        self.blocked_since = None;
        if due {
            self.begin_segment(start, gap, ts);
        }
        self.claim(Place { desc: self.desc + CLAIM_DESCS, pos: end + CLAIM_BYTES });
        self.easy_pos = self.claimed.pos.min(self.segment_limit.unwrap_or(0));
        self.easy_desc = self.claimed.desc.min(self.limit.desc.saturating_sub(CONTROL_RESERVE));
        Ok(())
    }

    /// Where a record of `need` bytes would begin, how much is skipped before it, and whether in a new segment.
    #[inline]
    fn next_record(&self, need: u64, ts: Timestamp) -> (u64, u64, bool) {
        let due = match self.segment_limit {
            None => true,
            Some(limit) => self.pos + need > limit || ts >= self.boundary,
        };
        let start = if due { self.pos.next_multiple_of(BLOCK) } else { self.pos };
        (start, start - self.pos, due)
    }

    #[inline]
    fn allowed(&self, pos: u64, desc: u64) -> bool {
        pos <= self.limit.pos && desc <= self.limit.desc
    }

    fn refuse(&mut self, need: u64, ts: Timestamp) -> Result<(), Full> {
        self.easy_pos = 0;
        let gate = self.limiting_gate;
        if need > 0 {
            self.pend(Fate::Lost { cause: Cause::RingFull, gate }, 1);
        }
        self.lose_patience(ts);
        Err(Full { gate })
    }

    /// A gate that holds the ring up for too long is no longer waited for.
    fn lose_patience(&mut self, now: Timestamp) {
        let gate = self.limiting_gate;
        let since = *self.blocked_since.get_or_insert(now);
        if let Some(patience) = self.config.gate_expiry
            && now.since(since) > patience
            && let Some(i) = self.gates.iter().position(|g| g.slot == gate && !g.patient)
        {
            self.gates.remove(i);
            self.hub.expire(gate);
            self.blocked_since = None;
            self.read_gates();
        }
    }

    /// Announces ground to lossy readers, never beyond what the gates allow (a gate elsewhere judges by the same words).
    fn claim(&mut self, to: Place) {
        let to = Place {
            desc: to.desc.min(self.limit.desc).max(self.claimed.desc),
            pos: to.pos.min(self.limit.pos).max(self.claimed.pos),
        };
        self.claimed = to;
        self.memory.control.positions().claim(to.desc, to.pos);
    }

    /// Takes the gates' cursors over, as far as they are credible: a cursor that goes back or runs ahead is ignored.
    fn read_gates(&mut self) {
        let written = Place { desc: self.published, pos: self.pos };
        let mut limit = Place { desc: u64::MAX, pos: u64::MAX };
        for gate in &mut self.gates {
            gate.released = gate.cursor.positions().credible(gate.released, written);
            let desc = gate.released.desc + self.memory.desc_capacity();
            let byte = gate.released.pos + self.memory.byte_capacity();
            if desc < limit.desc || byte < limit.pos {
                self.limiting_gate = gate.slot;
            }
            limit = Place { desc: limit.desc.min(desc), pos: limit.pos.min(byte) };
        }
        self.limit = limit;
    }

    fn begin_segment(&mut self, start: u64, gap: u64, ts: Timestamp) {
        let by_clock = ts >= self.boundary;
        let named = match self.config.rotate {
            Some(period) if by_clock => ts.floor_to(period),
            _ => ts,
        };
        self.claim(Place { desc: self.desc + 2, pos: start + FILE_HEADER as u64 });
        let header = file_header(self.config.snaplen, self.config.link_type);
        // SAFETY: `make_room` has found these bytes free and they are announced; this thread is the only writer.
        unsafe { std::ptr::copy_nonoverlapping(header.as_ptr(), self.memory.at(start), FILE_HEADER) };
        self.pos = start + FILE_HEADER as u64;
        self.put(Desc::control(Control::Segment { pos: start, gap: gap as u32 }, named));
        self.segment_limit = Some(start + self.config.segment_bytes);
        self.boundary = match self.config.rotate {
            Some(period) => ts.floor_to(period).after(period),
            None => Timestamp::MAX,
        };
    }

    fn put(&mut self, desc: Desc) {
        protocol::store(self.memory.slot(self.desc), desc);
        self.desc += 1;
        self.controls += 1;
    }

    /// Writes a control descriptor if there is room for one.
    fn write_control(&mut self, control: Control, ts: Timestamp) -> bool {
        if self.desc + 1 > self.limit.desc {
            self.read_gates();
            if self.desc + 1 > self.limit.desc {
                return false;
            }
        }
        if self.desc + 1 > self.claimed.desc {
            self.claim(Place { desc: self.desc + CLAIM_DESCS, pos: self.claimed.pos });
        }
        self.put(Desc::control(control, ts));
        true
    }

    /// Tells the hub of the losses that it does not know of yet.
    fn blame(&mut self) {
        for p in &mut self.pending {
            if let Fate::Lost { cause: Cause::RingFull, gate } = p.fate {
                self.hub.blame(gate, p.packets - p.told);
                p.told = p.packets;
            }
        }
    }

    #[cold]
    fn write_pending(&mut self) {
        self.blame();
        if self.segment_limit.is_none() {
            // The stream begins with a segment; until there is one, everything else waits.
            return;
        }
        let ts = Timestamp::from_nanos(self.second_start);
        while let Some(p) = self.pending.pop() {
            if !self.write_control(p.fate.control(p.packets), ts) {
                self.pending.push(p);
                break;
            }
            p.fate.count(p.packets, &mut self.tally);
        }
        self.notes_changed = true;
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.memory.control.set_ended();
        self.hub.close();
    }
}

/// Copies the packet's bytes, putting a tag back behind the addresses.
///
/// # Safety
/// `to` is writable for the bytes of the packet and its tag.
#[inline]
unsafe fn copy(p: &Packet<'_>, to: *mut u8) {
    match p.vlan {
        // SAFETY: the caller's promise.
        None => unsafe { std::ptr::copy_nonoverlapping(p.bytes.as_ptr(), to, p.bytes.len()) },
        Some(tag) => {
            let split = p.bytes.len().min(12);
            // SAFETY: the caller's promise; the three pieces follow each other.
            unsafe {
                std::ptr::copy_nonoverlapping(p.bytes.as_ptr(), to, split);
                std::ptr::copy_nonoverlapping(tag.as_ptr(), to.add(split), 4);
                std::ptr::copy_nonoverlapping(p.bytes.as_ptr().add(split), to.add(split + 4), p.bytes.len() - split);
            }
        }
    }
}

/// The header of a nanosecond pcap file, little-endian (draft-ietf-opsawg-pcap).
pub fn file_header(snaplen: u32, link_type: u32) -> [u8; FILE_HEADER] {
    let mut h = [0; FILE_HEADER];
    h[0..4].copy_from_slice(&0xa1b2_3c4d_u32.to_le_bytes());
    h[4..6].copy_from_slice(&2u16.to_le_bytes());
    h[6..8].copy_from_slice(&4u16.to_le_bytes());
    h[16..20].copy_from_slice(&snaplen.to_le_bytes());
    h[20..24].copy_from_slice(&link_type.to_le_bytes());
    h
}

/// Whether a descriptor's flags say that something about the packet is remarkable.
pub const REMARKS: u8 =
    flag::TRUNCATED | flag::MALFORMED | flag::SUPER_FRAME | flag::VLAN_RESTORED | flag::OUTGOING | flag::CLAMPED;
