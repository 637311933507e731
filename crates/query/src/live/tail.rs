//! The end of one queue's recording: its file that is being written, then what its recorder has in the ring behind it,
//! and with a question that follows all that comes after, over every rotation.
//!
//! A position in the stream joins the two: a file's first position is in its index, and a packet lies at the same position
//! in the ring. Invariant: everything before `next` was given out or did not answer the question, everything behind it is
//! still to come, and file and ring are asked for `next` in turn until one of them has it. The file first, as far as the
//! index's word goes; then the ring. A ring that has overwritten `next` meanwhile proves that it is on disk and told of in
//! the index; so the file has it now. Neither a gap nor a second time is possible, and no more is kept than a block of the
//! file and a batch of descriptors.
//!
//! What is asked for without following ends at the last packet that was published when it was asked.

use super::chain::{self, Next};
use super::ears::{Ears, Heard};
use super::growing::Growing;
use super::walk::{Record, Walk};
use crate::cursor::{Cursor, Stand};
use crate::{Book, Found, Origin, QueryError};
use base::{Tally, Timestamp};
use ring::{BLOCK, Control, Desc, FILE_HEADER, RECORD_HEADER, flag};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use store::{Claim, Claimant, Hold};
use wire::filter::Need;

/// From its stamp to its place in the ring a packet takes no longer than this: a batch, or a block of the kernel's.
const RING_DELAY: Duration = Duration::from_millis(200);

/// From its stamp to its place in the index: the recorder writes ahead at each second.
const FILE_DELAY: Duration = Duration::from_millis(1250);

/// In what steps it is told that time passes.
const STEP: Duration = Duration::from_millis(10);

/// How often files are looked at where nobody can be listened to, and how large a part of the time that may take: the
/// index of a long file is long, and all of it is read.
const LOOK: Duration = Duration::from_millis(20);
const LOOK_PART: u32 = 20;

/// How often it is asked whether the recorder still records.
const LIFE: Duration = Duration::from_millis(200);

/// Packets passed over between two looks at whether the answer is still wanted.
const PATIENCE: u32 = 4096;

/// Up to where an answer goes that does not follow: behind this position, of a file that begins here or later.
#[derive(Clone, Copy, Debug)]
pub struct Until {
    /// First position of the file.
    pub file: u64,
    /// The position.
    pub pos: u64,
}

impl Until {
    fn is_reached(self, file: u64, pos: u64) -> bool {
        file >= self.file && pos >= self.pos
    }
}

/// See the module.
pub struct Tail {
    folder: PathBuf,
    queue: u16,
    need: Need,
    walk: Option<Walk>,
    /// Nothing of the hour that is walked is removed meanwhile.
    hold: Option<Hold>,
    ears: Option<Ears>,
    origin: usize,
    link_type: u16,
    /// The ring has the turn.
    listening: bool,
    /// Stream position of what comes next, while the ring has the turn.
    next: u64,
    /// Position and first moment of the segment that this lies in.
    segment: (u64, Timestamp),
    /// What was counted from the ring: of the block, and not told yet.
    counted: Tally,
    untold: Tally,
    /// Where the ring began too late, and the file was asked again.
    doubted: Option<u64>,
    until: Option<Until>,
    /// Whom the answer follows.
    follows: Option<Claimant>,
    over: bool,
    /// When files were looked at last, and for how long they are left alone now.
    looked: Instant,
    pause: Duration,
    asked: Instant,
    /// The latest stamp met, whether it answered or not.
    latest: Timestamp,
    /// The first moment, until it was told.
    begins: Option<Timestamp>,
    stood: Stood,
    lost: u64,
}

/// What the cursor stands on.
enum Stood {
    Nothing,
    File(Record),
    Ring(Timestamp, u32),
}

impl Tail {
    /// Begins nowhere; [`Tail::enter`] or [`Tail::listen`] says where.
    pub fn new(folder: &Path, queue: u16, need: Need, ears: Option<Ears>) -> Self {
        Self {
            folder: folder.to_owned(),
            queue,
            need,
            walk: None,
            hold: None,
            ears,
            origin: 0,
            link_type: 0,
            listening: false,
            next: 0,
            segment: (0, Timestamp::ZERO),
            counted: Tally::default(),
            untold: Tally::default(),
            doubted: None,
            until: None,
            follows: None,
            over: false,
            looked: Instant::now(),
            pause: Duration::ZERO,
            asked: Instant::now(),
            latest: Timestamp::ZERO,
            begins: None,
            stood: Stood::Nothing,
            lost: 0,
        }
    }

    /// The answer ends here.
    pub fn until(&mut self, until: Option<Until>) {
        self.until = until;
    }

    /// The answer goes on as long as this recorder does.
    pub fn follow(&mut self, whom: Option<Claimant>) {
        self.follows = whom;
    }

    /// Begins with a file; at its end if others read it.
    pub fn begin(&mut self, file: Growing, read_by_others: bool, book: &mut Book) {
        self.begins = Some(file.header().start);
        let end = file.vouched();
        self.enter(file, book);
        if let Some(walk) = self.walk.as_mut().filter(|_| read_by_others) {
            walk.seek(end, None);
        }
    }

    /// Begins with the oldest packet in the ring: there is no file yet.
    pub fn listen(&mut self, book: &mut Book) {
        let Some(ears) = &mut self.ears else { return };
        let (link_type, snaplen) = ears.kind();
        self.link_type = link_type as u16;
        let (interface, link_type) = (ears.name().to_owned(), self.link_type);
        let (filter, stamps) = (String::new(), String::new());
        self.origin = book.origin(Origin { interface, queue: self.queue, link_type, snaplen, filter, stamps });
        ears.rewind(0);
        self.listening = true;
    }

    fn enter(&mut self, file: Growing, book: &mut Book) {
        let header = file.header();
        self.link_type = header.link_type as u16;
        self.origin = book.origin(Origin {
            interface: header.interface.clone(),
            queue: header.queue,
            link_type: self.link_type,
            snaplen: header.snaplen,
            filter: header.filter.clone(),
            stamps: header.stamps.clone(),
        });
        self.segment = (file.first_pos(), file.entry.start);
        // A folder that has gone holds nothing that could be removed.
        self.hold = file.entry.path.parent().and_then(|hour| Hold::reader(hour).ok());
        self.walk = Some(Walk::new(file, self.origin, book));
        self.listening = false;
    }

    fn io(&self, error: io::Error) -> QueryError {
        QueryError::Io { path: self.folder.clone(), error }
    }

    /// One record of the file, or what is behind the last.
    fn read(&mut self, book: &mut Book) -> Result<Option<Stand>, QueryError> {
        let Some(walk) = &mut self.walk else { return self.behind_the_file(book) };
        let Some(record) = walk.next(book)? else { return self.behind_the_file(book) };
        let file = walk.file.first_pos();
        if self.until.is_some_and(|until| until.is_reached(file, file + record.offset)) {
            return Ok(Some(Stand::End));
        }
        self.doubted = None;
        self.latest = self.latest.max(record.ts);
        book.cost.packets += 1;
        if !book.wants(record.ts, record.wire_len, walk.data(&record), self.link_type) {
            return Ok(None);
        }
        self.stood = Stood::File(record);
        self.lost = book.take_lost(self.origin);
        Ok(Some(Stand::Packet(record.ts)))
    }

    /// The index's word ends: on with what was written meanwhile, with the next file, or with the ring.
    fn behind_the_file(&mut self, book: &mut Book) -> Result<Option<Stand>, QueryError> {
        let idle = self.follows.is_some() && self.ears.is_none() && !self.over;
        if idle && self.looked.elapsed() < self.pause {
            return Ok(Some(self.wait(FILE_DELAY, book)));
        }
        self.looked = Instant::now();
        let mut later = None;
        let (mut file, mut pos) = (0, self.next);
        if let Some(walk) = &mut self.walk {
            let more = walk.refresh(book)?;
            self.pause = LOOK.max(LOOK_PART * self.looked.elapsed());
            if more {
                return Ok(None);
            }
            (file, pos) = (walk.file.first_pos(), walk.pos());
            if self.until.is_some_and(|until| until.is_reached(file, pos)) {
                return Ok(Some(Stand::End));
            }
            if walk.file.is_complete() {
                pos = chain::end_of(&walk.file);
                match chain::behind(&self.folder, self.queue, &walk.file, &self.need) {
                    Ok(Next::Follows(next)) => {
                        self.enter(*next, book);
                        return Ok(None);
                    }
                    Ok(Next::Later(next)) => later = Some(next),
                    Ok(Next::None) => {}
                    Err(error) => return Err(self.io(error)),
                }
            }
        }
        if self.until.is_some_and(|until| until.is_reached(file, pos)) {
            return Ok(Some(Stand::End));
        }
        let again = self.doubted.replace(pos) == Some(pos);
        if let Some(ears) = &mut self.ears {
            // Whatever the ring has overwritten was written before. So if the file, asked again after that, has nothing,
            // nothing was overwritten that was to come, or the recorder could not write it.
            if ears.rewind(pos) || (again && later.is_none()) {
                self.listening = true;
                self.next = pos;
                self.counted = self.walk.as_ref().map(Walk::counted).unwrap_or_default();
                return Ok(None);
            }
            if !again {
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
                book.remark(remark);
                self.enter(*next, book);
            }
            return Ok(None);
        }
        if self.follows.is_none() || self.over {
            return Ok(Some(Stand::End));
        }
        self.look_after_the_recorder(book);
        Ok(Some(self.wait(FILE_DELAY, book)))
    }

    /// Once the recorder has ended there is one last look at what it has left.
    fn look_after_the_recorder(&mut self, book: &mut Book) {
        if self.asked.elapsed() < LIFE {
            return;
        }
        self.asked = Instant::now();
        let Some(whom) = &self.follows else { return };
        self.over = Claim::holder(&self.folder).is_none_or(|now| (now.pid, now.since) != (whom.pid, whom.since));
        if self.over {
            self.tell_end(book);
        }
    }

    fn tell_end(&self, book: &mut Book) {
        if let Some(whom) = &self.follows {
            let name = self.folder.file_name().unwrap_or_default().to_string_lossy();
            book.remark(format!(
                "{name}: its recorder (process {}) has ended, and with it what was followed",
                whom.pid
            ));
        }
    }

    /// One descriptor of the ring.
    fn hear(&mut self, book: &mut Book) -> Result<Option<Stand>, QueryError> {
        let Some(ears) = &mut self.ears else {
            self.listening = false;
            return Ok(None);
        };
        let heard = ears.next();
        if !matches!(heard, Heard::Packet(_)) {
            book.count(self.origin, &std::mem::take(&mut self.untold));
        }
        match heard {
            Heard::Packet(desc) => return self.hear_packet(&desc, book),
            Heard::Control(Control::Segment { pos, .. }, start) => {
                self.segment = (pos, start);
                self.next = pos.saturating_add(FILE_HEADER as u64);
                self.counted = Tally::default();
                // What is behind is not needed any more, and may be removed.
                (self.walk, self.hold) = (None, None);
            }
            Heard::Control(control, ts) => self.hear_control(control, ts, book),
            Heard::Nothing if self.follows.is_some() => return Ok(Some(self.wait(RING_DELAY, book))),
            Heard::Nothing => return Ok(Some(Stand::End)),
            Heard::Lapped => self.back(book)?,
            Heard::End => {
                self.tell_end(book);
                return Ok(Some(Stand::End));
            }
        }
        Ok(None)
    }

    fn hear_packet(&mut self, desc: &Desc, book: &mut Book) -> Result<Option<Stand>, QueryError> {
        if desc.pos < self.next {
            return Ok(None);
        }
        if self.until.is_some_and(|until| until.is_reached(self.segment.0, desc.pos)) {
            return Ok(Some(Stand::End));
        }
        let ts = desc.timestamp();
        self.latest = self.latest.max(ts);
        let Some(ears) = &mut self.ears else { return Ok(None) };
        let wanted = book.is_inside(ts);
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
        let seconds = book.question.from.secs()..=book.question.to.secs();
        for tally in [&mut self.counted, &mut self.untold].into_iter().filter(|_| seconds.contains(&ts.secs())) {
            tally.offered += 1;
            tally.stored += 1;
            tally.stored_bytes += u64::from(wire_len);
            for (bit, note) in flag::REMARKS.into_iter().filter(|_| desc.flags != 0) {
                tally.notes[note as usize] += u64::from(desc.flags & bit != 0);
            }
        }
        // As the recorder has it: a packet that reaches the end of a block is its last, and what follows is the next one's.
        if desc.pos.saturating_sub(self.segment.0) / BLOCK != self.next.saturating_sub(self.segment.0) / BLOCK {
            self.counted = Tally::default();
        }
        let data = record.get(RECORD_HEADER..).unwrap_or_default();
        if !wanted || !book.wants(ts, wire_len, data, self.link_type) {
            return Ok(None);
        }
        self.stood = Stood::Ring(ts, wire_len);
        self.lost = book.take_lost(self.origin);
        Ok(Some(Stand::Packet(ts)))
    }

    fn hear_control(&mut self, control: Control, ts: Timestamp, book: &mut Book) {
        if !(book.question.from.secs()..=book.question.to.secs()).contains(&ts.secs()) {
            return;
        }
        let mut tally = Tally::default();
        match control {
            Control::Lost { cause, packets, .. } => tally.lose(cause, packets),
            Control::Filtered { packets } => (tally.offered, tally.filtered) = (packets, packets),
            Control::Segment { .. } | Control::Tick | Control::End => return,
        }
        self.counted += &tally;
        book.count(self.origin, &tally);
        book.lose(self.origin, tally.lost_total());
    }

    /// What comes next was overwritten: back to the file that has it.
    fn back(&mut self, book: &mut Book) -> Result<(), QueryError> {
        book.count(self.origin, &std::mem::take(&mut self.untold));
        self.listening = false;
        if self.walk.is_none() {
            let (first, start) = self.segment;
            let found = chain::covering(&self.folder, self.queue, start, self.next.max(first), &self.need);
            let Some(file) = found.map_err(|e| self.io(e))? else {
                // Not named at this moment, or never written; the ring is asked again, from where it is whole.
                return Ok(());
            };
            if file.is_raw() {
                let path = file.entry.path.display();
                book.remark(format!(
                    "{path}: RAW files do not say where in the ring their packets were; what the ring has overwritten \
                     before it was read is left out here, and found when it is asked for again"
                ));
                return Ok(());
            }
            let counted = (file.first_pos() == first).then_some(self.counted);
            self.enter(file, book);
            if let Some(walk) = &mut self.walk {
                walk.seek(self.next.saturating_sub(walk.file.first_pos()), counted);
            }
            return Ok(());
        }
        if let Some(walk) = &mut self.walk {
            walk.refresh(book)?;
            walk.seek(self.next.saturating_sub(walk.file.first_pos()), Some(self.counted));
        }
        Ok(())
    }

    /// Nothing now; what will come has a stamp that is not much older than this moment. The end, if the interval ends
    /// before that.
    fn wait(&self, delay: Duration, book: &Book) -> Stand {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let from = Timestamp::ZERO.after(now).before(delay).floor_to(STEP);
        let to = book.question.to;
        if from > to || self.latest > to { Stand::End } else { Stand::Waiting(from) }
    }
}

impl Cursor for Tail {
    fn advance(&mut self, book: &mut Book) -> Result<Stand, QueryError> {
        self.stood = Stood::Nothing;
        if let Some(begins) = self.begins.take() {
            // Nothing is read before it is needed: what was sealed before comes first.
            return Ok(Stand::Waiting(begins));
        }
        let mut patience = PATIENCE;
        loop {
            let stand = if self.listening { self.hear(book)? } else { self.read(book)? };
            if let Some(stand) = stand {
                return Ok(stand);
            }
            patience -= 1;
            if patience == 0 {
                if book.is_stopped() {
                    return Ok(Stand::End);
                }
                patience = PATIENCE;
            }
        }
    }

    fn packet(&self) -> Found<'_> {
        let (ts, wire_len, data): (_, _, &[u8]) = match (&self.stood, &self.walk, &self.ears) {
            (Stood::File(record), Some(walk), _) => (record.ts, record.wire_len, walk.data(record)),
            (Stood::Ring(ts, wire_len), _, Some(ears)) => {
                (*ts, *wire_len, ears.latest().get(RECORD_HEADER..).unwrap_or_default())
            }
            _ => (Timestamp::ZERO, 0, &[]),
        };
        Found { ts, wire_len, data, link_type: self.link_type, origin: self.origin, lost: self.lost }
    }
}
