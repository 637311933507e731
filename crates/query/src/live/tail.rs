//! The live tail of one queue: its growing file, then the packets in the recorder's ring after it, and for a query that
//! follows also all later packets, over every rotation.
//!
//! Stream positions join file and ring: the index of a file gives its first position, and a packet has the same
//! position in the ring. Invariant: every packet before `next` was lent or did not match, and every packet after it is
//! still to come. The tail looks for `next` in the file, as far as its index covers the file, then in the ring, in turn
//! until it finds the packet. If the ring has overwritten `next` meanwhile, the packet is on disk and in the index, so
//! the file has it now. So the tail neither skips nor repeats a packet, and it holds no more than a block of the file
//! and a batch of descriptors.
//!
//! A query that does not follow ends at the last packet that was published when the query began.

use super::chain::{self, Next};
use super::file_scan::{FileScan, Record};
use super::growing::Growing;
use super::ring_reader::{RingEvent, RingReader};
use crate::cursor::{Cursor, CursorState};
use crate::{FoundPacket, Origin, QueryContext, QueryError};
use base::{Tally, Timestamp};
use filter::KeyCondition;
use ring::{BLOCK, Control, Desc, FILE_HEADER, RECORD_HEADER, flag};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use store::{Claim, Claimant, Hold};

/// The longest time from a packet's timestamp to its publication in the ring: a batch, or a block of the kernel.
const RING_DELAY: Duration = Duration::from_millis(200);

/// The longest time from a packet's timestamp to its index entry: the recorder writes each second.
const FILE_DELAY: Duration = Duration::from_millis(1250);

/// A packet older than the query by more than this was not in flight when the query began: the clock was set back
/// since.
const ON_ITS_WAY: Duration = Duration::from_secs(5);

/// The step in which a waiting cursor reports the progress of time.
const STEP: Duration = Duration::from_millis(10);

/// How often files are read when there is no ring reader, and the largest part of the time that reading may take: the
/// index of a long file is long, and each refresh reads all of it.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
const SCAN_PART: u32 = 20;

/// How often the tail checks that the recorder is alive.
const LIFE: Duration = Duration::from_millis(200);

/// Packets skipped between two checks of the stop flag.
const TIMEOUT: u32 = 4096;

/// How often the tail tries file and ring again when neither has the next packet, and the pause between: the recorder
/// may be between two of its steps.
const DOUBTS: u32 = 5;
const DOUBT: Duration = Duration::from_millis(2);

/// How long the tail waits for the end of a file that is being sealed to a slow disk while the next file grows.
const SEALING: Duration = Duration::from_secs(10);

/// The end of a query that does not follow: a position in a file that begins at `file` or later.
#[derive(Clone, Copy, Debug)]
pub struct TailEnd {
    /// First position of the file.
    pub file: u64,
    /// The position.
    pub pos: u64,
}

impl TailEnd {
    fn is_reached(self, file: u64, pos: u64) -> bool {
        file >= self.file && pos >= self.pos
    }
}

/// The begin of a query that follows, in two parts. Timestamps select the packets published before the query. Packets
/// that arrive afterwards count as new whatever their timestamps, because the clock may be set back meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct TailBegin {
    /// The begin for packets published before the query.
    pub from: Timestamp,
    /// The begin for packets that arrive; later than zero only if the query begins in the future.
    pub arriving: Timestamp,
    /// Packets after this position arrive after the query; `None` if the query does not follow.
    pub behind: Option<TailEnd>,
    /// True after the first packet that was not in flight when the query began.
    pub begun: bool,
}

impl TailBegin {
    /// The begin of a query for published packets.
    pub fn of(from: Timestamp) -> Self {
        Self { from, arriving: from, behind: None, begun: false }
    }

    /// The begin that applies to a packet. A packet that is a little older than the query was in flight when the query
    /// began.
    fn of_packet(&mut self, file: u64, pos: u64, ts: Timestamp) -> Timestamp {
        let arrives = self.behind.is_some_and(|behind| behind.is_reached(file, pos));
        self.begun |= arrives && (ts >= self.from || ts < self.from.before(ON_ITS_WAY));
        if self.begun { self.arriving } else { self.from }
    }

    /// The begin that applies at a stream position of a file that begins at `file`.
    pub fn at(&self, file: u64, pos: u64) -> Timestamp {
        match self.behind.is_some_and(|behind| behind.is_reached(file, pos)) {
            true => self.arriving,
            false => self.from,
        }
    }
}

/// The tail of one queue.
pub struct Tail {
    folder: PathBuf,
    queue: u16,
    need: KeyCondition,
    scan: Option<FileScan>,
    /// The hold on the hour directory of the file being read, so that retention removes nothing from it.
    hold: Option<Hold>,
    ring_reader: Option<RingReader>,
    origin: usize,
    link_type: u16,
    /// True while the tail reads from the ring.
    listening: bool,
    /// Stream position of the next packet, while the tail reads from the ring.
    next: u64,
    /// Position and first timestamp of the segment that contains `next`.
    segment: (u64, Timestamp),
    /// The counts of the current block from the ring, and the counts not yet added to the context.
    counted: Tally,
    unreported: Tally,
    /// The position that the ring did not have any more, and the number of new attempts on the file.
    doubted: Option<(u64, u32)>,
    /// The position at which the ring should continue when it could not confirm that, and the possible deviation.
    unsure: Option<(u64, u64)>,
    /// The position for which the tail waits, and since when.
    stuck: Option<(u64, Instant)>,
    /// True if the origin was added from the ring.
    origin_of_ring: bool,
    until: Option<TailEnd>,
    begin: TailBegin,
    /// Time since the query: the clock of this machine, replaced by the elapsed time when the clock is set back.
    clock: MonotonicClock,
    /// The recorder that the query follows.
    follows: Option<Claimant>,
    over: bool,
    /// The time of the last check of files, and the pause until the next.
    last_check: Instant,
    pause: Duration,
    query: Instant,
    /// The latest timestamp so far, of any packet.
    latest: Timestamp,
    /// The begin of the file, until the cursor has reported it.
    begins: Option<Timestamp>,
    state: TailState,
    lost: u64,
}

/// The current packet.
enum TailState {
    Nothing,
    File(Record),
    Ring { ts: Timestamp, wire_len: u32, pos: u64 },
}

impl Tail {
    /// A tail without a begin; [`Tail::enter`] or [`Tail::listen`] sets it.
    pub fn new(folder: &Path, queue: u16, need: KeyCondition, ears: Option<RingReader>, begin: TailBegin) -> Self {
        Self {
            begin,
            clock: MonotonicClock::start(),
            folder: folder.to_owned(),
            queue,
            need,
            scan: None,
            hold: None,
            ring_reader: ears,
            origin: 0,
            link_type: 0,
            listening: false,
            next: 0,
            segment: (0, Timestamp::ZERO),
            counted: Tally::default(),
            unreported: Tally::default(),
            doubted: None,
            unsure: None,
            stuck: None,
            origin_of_ring: false,
            until: None,
            follows: None,
            over: false,
            last_check: Instant::now(),
            pause: Duration::ZERO,
            query: Instant::now(),
            latest: Timestamp::ZERO,
            begins: None,
            state: TailState::Nothing,
            lost: 0,
        }
    }

    /// Sets the end of the query.
    pub fn until(&mut self, until: Option<TailEnd>) {
        self.until = until;
    }

    /// Follows this recorder until it ends.
    pub fn follow(&mut self, whom: Option<Claimant>) {
        self.follows = whom;
    }

    /// Begins with a file; at the file's end if another cursor reads it.
    pub fn begin(&mut self, file: Growing, read_by_others: bool, book: &mut QueryContext) {
        self.begins = Some(file.header().start);
        let end = file.vouched();
        self.enter(file, book);
        if let Some(walk) = self.scan.as_mut().filter(|_| read_by_others) {
            walk.seek(end, None);
        }
    }

    /// Begins with the oldest packet in the ring, because there is no file yet.
    pub fn listen(&mut self, book: &mut QueryContext) {
        let Some(ears) = &mut self.ring_reader else { return };
        let (link_type, snaplen) = ears.kind();
        self.link_type = link_type as u16;
        let (interface, link_type) = (ears.name().to_owned(), self.link_type);
        let (filter, stamps) = (String::new(), String::new());
        self.origin =
            book.origin(Origin { interface, queue: self.queue, link_type, snaplen, filter, timestamp_source: stamps });
        self.origin_of_ring = true;
        ears.rewind(0);
        self.listening = true;
    }

    fn enter(&mut self, file: Growing, book: &mut QueryContext) {
        let header = file.header();
        let link_type = header.link_type as u16;
        // A tail that began without a file keeps its origin, although the file's header gives more details.
        if !self.origin_of_ring || link_type != self.link_type {
            self.link_type = link_type;
            self.origin = book.origin(Origin {
                interface: header.interface.clone(),
                queue: header.queue,
                link_type,
                snaplen: header.snaplen,
                filter: header.filter.clone(),
                timestamp_source: header.timestamp_source.clone(),
            });
        }
        self.segment = (file.first_pos(), file.entry.start);
        // A directory that has vanished contains nothing that retention could remove.
        self.hold = file.entry.path.parent().and_then(|hour| Hold::reader(hour).ok());
        self.scan = Some(FileScan::new(file, self.origin, self.begin, book));
        self.listening = false;
    }

    fn io(&self, error: io::Error) -> QueryError {
        QueryError::Io { path: self.folder.clone(), error }
    }

    /// Reads one record of the file; after the last record, continues behind the file.
    fn read(&mut self, book: &mut QueryContext) -> Result<Option<CursorState>, QueryError> {
        let Some(walk) = &mut self.scan else { return self.behind_the_file(book) };
        let Some(record) = walk.next(self.ring_reader.as_ref(), book) else { return self.behind_the_file(book) };
        let file = walk.file.first_pos();
        if self.until.is_some_and(|until| until.is_reached(file, file + record.offset)) {
            return Ok(Some(CursorState::End));
        }
        self.doubted = None;
        self.latest = self.latest.max(record.ts);
        book.cost.packets += 1;
        let from = self.begin.of_packet(file, file.saturating_add(record.offset), record.ts);
        if !(from..=book.query.to).contains(&record.ts)
            || !book.matches(record.wire_len, walk.data(&record), self.link_type)
        {
            return Ok(None);
        }
        self.state = TailState::File(record);
        self.lost = book.take_lost(self.origin);
        Ok(Some(CursorState::Packet(record.ts)))
    }

    /// Continues after the part that the index covers: with newly written blocks, with the next file, or with the ring.
    fn behind_the_file(&mut self, book: &mut QueryContext) -> Result<Option<CursorState>, QueryError> {
        let idle = self.follows.is_some() && self.ring_reader.is_none() && !self.over;
        if idle && self.last_check.elapsed() < self.pause {
            return Ok(Some(self.wait(FILE_DELAY, book)));
        }
        self.last_check = Instant::now();
        let mut later = None;
        let (mut file, mut pos, mut slack) = (0, self.next, 0);
        if let Some(walk) = &mut self.scan {
            let more = walk.refresh(book);
            self.pause = CHECK_INTERVAL.max(SCAN_PART * self.last_check.elapsed());
            if more {
                return Ok(None);
            }
            (file, pos, slack) = (walk.file.first_pos(), walk.pos(), walk.slack());
            if self.until.is_some_and(|until| until.is_reached(file, pos)) {
                return Ok(Some(CursorState::End));
            }
            let complete = walk.file.is_complete();
            if let Some(walk) = self.scan.as_ref().filter(|_| !complete && self.is_awaited(file)) {
                // The recorder seals the file while it writes the next one: the missing blocks are on their way to the
                // disk.
                let patience = if walk.file.is_held() { SEALING } else { DOUBT };
                let path = walk.file.entry.path.display().to_string();
                if !self.is_stuck(pos, patience) {
                    return Ok(Some(self.wait_here()));
                }
                book.damage(format!("{path}: is not finished, and its last packets are missing here; netgrain repair"));
            }
            if complete || self.is_awaited(file) {
                let Some(walk) = &self.scan else { return Ok(None) };
                pos = chain::end_of(&walk.file);
                match chain::behind(&self.folder, self.queue, &walk.file, &self.need, book) {
                    Ok(Next::Follows(next)) => {
                        self.enter(*next, book);
                        return Ok(None);
                    }
                    Ok(Next::Later(next)) => later = Some(next),
                    Ok(Next::None) if self.is_awaited(file) => {
                        if !self.is_stuck(pos, SEALING) {
                            return Ok(Some(self.wait_here()));
                        }
                        let name = self.folder.display();
                        book.damage(format!("{name}: the file behind {} has gone before it was read", self.segment.1));
                    }
                    Ok(Next::None) => {}
                    Err(error) => return Err(self.io(error)),
                }
            }
        }
        if self.until.is_some_and(|until| until.is_reached(file, pos)) {
            return Ok(Some(CursorState::End));
        }
        let doubts = self.doubted.filter(|(at, _)| *at == pos).map_or(0, |(_, doubts)| doubts);
        self.doubted = Some((pos, doubts + 1));
        let again = doubts > 0;
        if let Some(ears) = &mut self.ring_reader {
            // Packets that the ring has overwritten were written to the file before, so the tail reads the file again
            // after the rewind. If the file still has nothing new, then either no packet of interest was overwritten,
            // or the recorder could not write it. The next descriptor of the ring shows which.
            let sure = ears.rewind(pos);
            if sure || (doubts >= DOUBTS && later.is_none()) {
                self.unsure = (!sure).then_some((pos, slack));
                self.listening = true;
                self.next = pos;
                self.counted = self.scan.as_ref().map(FileScan::counted).unwrap_or_default();
                return Ok(None);
            }
            if later.is_none() {
                std::thread::sleep(DOUBT);
                return Ok(None);
            }
        }
        if let Some(next) = later {
            if again {
                let remark = format!(
                    "{}: what was recorded before it has gone, with the packets in it: retention, or somebody else, removed \
                     it before it was read",
                    next.entry.path.display()
                );
                book.damage(remark);
                self.enter(*next, book);
            }
            return Ok(None);
        }
        if self.follows.is_none() || self.over {
            return Ok(Some(CursorState::End));
        }
        self.check_recorder(book);
        Ok(Some(self.wait(FILE_DELAY, book)))
    }

    /// True if the rest of the result lies only in files after this one.
    fn is_awaited(&self, file: u64) -> bool {
        self.ring_reader.is_none() && self.until.is_some_and(|until| file < until.file)
    }

    /// True if the tail has waited this long for the packet at this position.
    fn is_stuck(&mut self, pos: u64, most: Duration) -> bool {
        match self.stuck {
            Some((at, since)) if at == pos => since.elapsed() >= most,
            _ => {
                self.stuck = Some((pos, Instant::now()));
                false
            }
        }
    }

    /// No packet now; later packets are not much older than the latest packet.
    fn wait_here(&self) -> CursorState {
        CursorState::Waiting(self.latest.max(self.segment.1))
    }

    /// Continues at this position of the ring after a rewind that could not confirm completeness: skipped positions are
    /// lost.
    fn resume(&mut self, at: u64, room: u64, book: &mut QueryContext) {
        let Some((from, slack)) = self.unsure.take() else { return };
        let skipped = at.saturating_sub(from);
        if skipped > slack && skipped != room {
            book.damage(format!(
                "{}: queue {}: positions {from} to {at} of its stream are neither on disk nor in the ring any more; the packets \
                 there are missing here",
                self.folder.display(),
                self.queue
            ));
        }
    }

    /// Checks at most once per `LIFE` whether the recorder that is followed still holds the interface. If it does not,
    /// the tail ends after it has read the rest of the ring and of the files.
    fn check_recorder(&mut self, book: &mut QueryContext) {
        if self.query.elapsed() < LIFE {
            return;
        }
        self.query = Instant::now();
        let Some(whom) = &self.follows else { return };
        self.over = Claim::holder(&self.folder).is_none_or(|now| (now.pid, now.since) != (whom.pid, whom.since));
        if self.over {
            self.report_end(book);
        }
    }

    fn report_end(&self, book: &mut QueryContext) {
        if let Some(whom) = &self.follows {
            let name = self.folder.file_name().unwrap_or_default().to_string_lossy();
            book.warning(format!(
                "{name}: its recorder (process {}) has ended, and with it what was followed",
                whom.pid
            ));
        }
    }

    /// Reads one descriptor of the ring.
    fn read_ring(&mut self, book: &mut QueryContext) -> Result<Option<CursorState>, QueryError> {
        let Some(ears) = &mut self.ring_reader else {
            self.listening = false;
            return Ok(None);
        };
        let heard = ears.next();
        if !matches!(heard, RingEvent::Packet(_)) {
            book.count(self.origin, &std::mem::take(&mut self.unreported));
        }
        match heard {
            RingEvent::Packet(desc) => return self.ring_packet(&desc, book),
            RingEvent::Control(Control::Segment { pos, gap }, start) => {
                self.resume(pos, gap.into(), book);
                self.segment = (pos, start);
                self.next = pos.saturating_add(FILE_HEADER as u64);
                self.counted = Tally::default();
                // The file before this position is not needed any more, and retention may remove it.
                (self.scan, self.hold) = (None, None);
            }
            RingEvent::Control(control, ts) => self.ring_control(control, ts, book),
            RingEvent::Nothing if self.follows.is_some() => return Ok(Some(self.wait(RING_DELAY, book))),
            RingEvent::Nothing => return Ok(Some(CursorState::End)),
            RingEvent::Lapped => self.back(book)?,
            RingEvent::End => {
                self.report_end(book);
                return Ok(Some(CursorState::End));
            }
        }
        Ok(None)
    }

    fn ring_packet(&mut self, desc: &Desc, book: &mut QueryContext) -> Result<Option<CursorState>, QueryError> {
        if desc.pos < self.next {
            return Ok(None);
        }
        if self.until.is_some_and(|until| until.is_reached(self.segment.0, desc.pos)) {
            return Ok(Some(CursorState::End));
        }
        self.resume(desc.pos, FILE_HEADER as u64, book);
        let ts = desc.timestamp();
        self.latest = self.latest.max(ts);
        let Some(ears) = &mut self.ring_reader else { return Ok(None) };
        let interval = self.begin.of_packet(self.segment.0, desc.pos, ts)..=book.query.to;
        let wanted = interval.contains(&ts);
        if wanted && ears.record(desc).is_none() {
            self.next = desc.pos;
            self.back(book)?;
            return Ok(None);
        }
        let record = if wanted { ears.latest() } else { &[] };
        let wire_len = match record.get(12..16) {
            Some(b) => u32::from_le_bytes([b[0], b[1], b[2], b[3]]),
            None => desc.wire_len.into(),
        };
        self.doubted = None;
        self.next = desc.end();
        book.cost.packets += 1;
        book.cost.from_ring += 1;
        let seconds = interval.start().secs()..=interval.end().secs();
        for tally in [&mut self.counted, &mut self.unreported].into_iter().filter(|_| seconds.contains(&ts.secs())) {
            tally.offered += 1;
            tally.stored += 1;
            tally.stored_bytes += u64::from(wire_len);
            for (bit, note) in flag::NOTE_FLAGS.into_iter().filter(|_| desc.flags != 0) {
                tally.notes[note as usize] += u64::from(desc.flags & bit != 0);
            }
        }
        // As in the recorder: a packet that reaches the end of a block is its last, and later packets belong to the
        // next block.
        if desc.pos.saturating_sub(self.segment.0) / BLOCK != self.next.saturating_sub(self.segment.0) / BLOCK {
            self.counted = Tally::default();
        }
        let data = record.get(RECORD_HEADER..).unwrap_or_default();
        if !wanted || !book.matches(wire_len, data, self.link_type) {
            return Ok(None);
        }
        self.state = TailState::Ring { ts, wire_len, pos: desc.pos };
        self.lost = book.take_lost(self.origin);
        Ok(Some(CursorState::Packet(ts)))
    }

    fn ring_control(&mut self, control: Control, ts: Timestamp, book: &mut QueryContext) {
        let from = if self.begin.begun { self.begin.arriving } else { self.begin.from };
        if !(from.secs()..=book.query.to.secs()).contains(&ts.secs()) {
            return;
        }
        let mut tally = Tally::default();
        match control {
            Control::Lost { cause, packets, .. } => tally.add_lost(cause, packets),
            Control::Filtered { packets } => (tally.offered, tally.filtered) = (packets, packets),
            Control::Segment { .. } | Control::Tick | Control::End => return,
        }
        self.counted += &tally;
        book.count(self.origin, &tally);
        book.add_lost(self.origin, tally.lost_total());
    }

    /// Returns to the file, because the ring has overwritten the next packet.
    fn back(&mut self, book: &mut QueryContext) -> Result<(), QueryError> {
        book.count(self.origin, &std::mem::take(&mut self.unreported));
        self.listening = false;
        if self.scan.is_none() {
            let (first, start) = self.segment;
            let found = chain::covering(&self.folder, self.queue, start, self.next.max(first), &self.need, book);
            let Some(file) = found.map_err(|e| self.io(e))? else {
                // The file is being renamed, or was never written; the tail reads the ring again from its oldest
                // complete record.
                return Ok(());
            };
            if file.is_raw() {
                let path = file.entry.path.display();
                book.damage(format!(
                    "{path}: RAW files do not say where in the ring their packets were; what the ring has overwritten \
                     before it was read is left out here, and found when it is asked for again"
                ));
                return Ok(());
            }
            let counted = (file.first_pos() == first).then_some(self.counted);
            self.enter(file, book);
            if let Some(walk) = &mut self.scan {
                walk.seek(self.next.saturating_sub(walk.file.first_pos()), counted);
            }
            return Ok(());
        }
        if let Some(walk) = &mut self.scan {
            walk.refresh(book);
            walk.seek(self.next.saturating_sub(walk.file.first_pos()), Some(self.counted));
        }
        Ok(())
    }

    /// No packet now; later packets have timestamps that are not much older than this moment. The end, if the interval
    /// ends before that.
    fn wait(&mut self, delay: Duration, book: &QueryContext) -> CursorState {
        let from = self.clock.now().before(delay).floor_to(STEP);
        let to = book.query.to;
        if from > to || self.latest > to { CursorState::End } else { CursorState::Waiting(from) }
    }
}

/// A clock that never steps back. Otherwise other queues would wait until a clock that was set back has caught up.
struct MonotonicClock {
    /// The latest time returned, and when.
    reported: (Timestamp, Instant),
}

impl MonotonicClock {
    fn start() -> Self {
        Self { reported: (sys::clock::realtime(), Instant::now()) }
    }

    fn now(&mut self) -> Timestamp {
        self.at(sys::clock::realtime(), Instant::now())
    }

    fn at(&mut self, clock: Timestamp, now: Instant) -> Timestamp {
        let (result, then) = self.reported;
        self.reported = (clock.max(result.after(now.saturating_duration_since(then))), now);
        self.reported.0
    }
}

impl Cursor for Tail {
    fn advance(&mut self, book: &mut QueryContext) -> Result<CursorState, QueryError> {
        self.state = TailState::Nothing;
        if let Some(begins) = self.begins.take() {
            // Read nothing before it is needed: sealed files come first.
            return Ok(CursorState::Waiting(begins));
        }
        let mut patience = TIMEOUT;
        loop {
            let stand = if self.listening { self.read_ring(book)? } else { self.read(book)? };
            if let Some(stand) = stand {
                return Ok(stand);
            }
            patience -= 1;
            if patience == 0 {
                if book.is_stopped() {
                    return Ok(CursorState::End);
                }
                patience = TIMEOUT;
            }
        }
    }

    fn packet(&self) -> FoundPacket<'_> {
        let (ts, wire_len, data, position): (_, _, &[u8], _) = match (&self.state, &self.scan, &self.ring_reader) {
            (TailState::File(record), Some(walk), _) => {
                let position = walk.file.position(record.offset);
                (record.ts, record.wire_len, walk.data(record), position)
            }
            (TailState::Ring { ts, wire_len, pos }, _, Some(ears)) => {
                (*ts, *wire_len, ears.latest().get(RECORD_HEADER..).unwrap_or_default(), Some(*pos))
            }
            _ => (Timestamp::ZERO, 0, &[], None),
        };
        FoundPacket { ts, wire_len, data, link_type: self.link_type, origin: self.origin, lost: self.lost, position }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_back_holds_up_nobody_until_it_has_come_there_again() {
        let (begin, hour) = (Instant::now(), Duration::from_secs(3600));
        let at = |secs: u64| Timestamp::from_secs_nanos(1_795_290_000 + secs, 0);
        let mut clock = MonotonicClock { reported: (at(0), begin) };
        let mut see = |shown: Timestamp, after: u64| clock.at(shown, begin + Duration::from_secs(after));
        assert_eq!(see(at(1), 1), at(1));
        assert_eq!(see(at(2).before(hour), 2), at(2), "as if it had not been set");
        assert_eq!(see(at(5).before(hour), 5), at(5));
        assert_eq!(see(at(100), 6), at(100), "set forward it is believed");
        assert_eq!(see(at(7), 7), at(101));
    }

    #[test]
    fn what_arrives_behind_the_question_is_asked_for_whatever_its_stamp_says() {
        let at = |secs: u64| Timestamp::from_secs_nanos(secs, 0);
        let published = TailEnd { file: 50, pos: 100 };
        let begin = TailBegin { from: at(90), arriving: Timestamp::ZERO, behind: Some(published), begun: false };
        for (file, pos, from) in [(0, 99, 90), (50, 99, 90), (50, 100, 0), (60, 400, 0), (0, 400, 90)] {
            assert_eq!(begin.at(file, pos), at(from), "{file} {pos}");
        }
        // A packet in flight, the first that is not, and a clock set back by little; or by much before any packet
        // arrives.
        for (ts, pos, from) in [(88, 100, 90), (89, 110, 90), (90, 120, 0), (88, 130, 0)] {
            let mut begin = TailBegin { begun: pos > 120, ..begin };
            assert_eq!(begin.of_packet(50, pos, at(ts)), at(from), "{ts} at {pos}");
        }
        for (ts, pos, from) in [(10, 99, 90), (10, 100, 0)] {
            let mut begin = begin;
            assert_eq!(begin.of_packet(50, pos, at(ts)), at(from), "{ts} at {pos}");
        }
        assert_eq!(TailBegin::of(at(90)).of_packet(60, 400, at(10)), at(90), "what does not follow");
    }
}
