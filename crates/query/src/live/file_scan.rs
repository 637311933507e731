//! Record by record through a file that may still be written, over the blocks that cannot hold what is asked for.
//!
//! Blocks are read one at a time, from where the walk is to where the index's word ends: out of the ring of the recorder
//! where it still has them, because the disk is busy with what that writes, and the bytes are the same (the checksum
//! says whether they are); else from the file. A record that begins in a block
//! and ends behind it is read once all of it is vouched for. Nothing in the file is believed: a length that cannot be, or
//! a block that does not have the checksum of its entry or cannot be read at all, is damage, which is told, and the walk
//! goes on behind that block.

use super::growing::Growing;
use super::ring_reader::RingReader;
use super::tail::TailBegin;
use crate::QueryContext;
use crate::sealed::index_ledger::ledger_of;
use base::{Tally, Timestamp};
use index::{Block, ReadAt};
use ring::BLOCK;
use std::io;

/// Most bytes of a record: header and packet.
const RECORD_MAX: u64 = 16 + ring::CAPLEN_MAX as u64;

/// A record in the buffer.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// Where it begins in the file.
    pub offset: u64,
    /// Where it ends.
    pub end: u64,
    /// Its stamp.
    pub ts: Timestamp,
    /// Bytes of the packet on the wire.
    pub wire_len: u32,
    /// Bytes of its header.
    header: usize,
}

/// See the module.
pub struct FileScan {
    /// The file.
    pub file: Growing,
    /// Number of the origin in the book.
    pub origin: usize,
    begin_of_answer: TailBegin,
    /// Where the next record is looked for, and whether one begins just there; if not, with the first one of its block.
    at: u64,
    exact: bool,
    /// Whether it is where a record has ended, and not a block that was passed over, which may end within one.
    behind_a_record: bool,
    buffer: Vec<u8>,
    /// Where the buffer lies in the file.
    begin: u64,
    /// Records that begin before this are to be read from the buffer.
    stop: u64,
    /// The block that the walk is in, and whether its bytes came out of the ring.
    block: Option<u32>,
    of_ring: bool,
    /// What was counted of the block that was counted last.
    counted: Option<(u32, Tally)>,
}

impl FileScan {
    /// From the first record on.
    pub fn new(file: Growing, origin: usize, begin_of_answer: TailBegin, book: &mut QueryContext) -> Self {
        book.cost.files += 1;
        book.cost.bytes += file.vouched();
        let (exact, behind_a_record, buffer) = (false, false, Vec::new());
        Self {
            file,
            origin,
            begin_of_answer,
            at: 0,
            exact,
            behind_a_record,
            buffer,
            begin: 0,
            stop: 0,
            block: None,
            of_ring: false,
            counted: None,
        }
    }

    /// Goes to a record. What the blocks up to there have counted is told: `counted` of the block that it lies in.
    pub fn seek(&mut self, offset: u64, counted: Option<Tally>) {
        (self.at, self.exact, self.begin, self.stop) = (offset, offset > 0, 0, 0);
        self.behind_a_record = offset > 0;
        self.block = None;
        self.counted = counted.map(|tally| ((offset / BLOCK) as u32, tally));
    }

    /// What was counted of the block that comes next.
    pub fn counted(&self) -> Tally {
        match &self.counted {
            Some((number, tally)) if u64::from(*number) == self.at / BLOCK => *tally,
            _ => Tally::default(),
        }
    }

    /// Stream position of what comes next.
    pub fn pos(&self) -> u64 {
        self.file.first_pos().saturating_add(self.at)
    }

    /// How far behind [`FileScan::pos`] the next record may begin.
    pub fn slack(&self) -> u64 {
        if self.behind_a_record { 0 } else { RECORD_MAX }
    }

    /// As [`Growing::refresh`]; an index that cannot be read any more is damage.
    pub fn refresh(&mut self, book: &mut QueryContext) -> bool {
        let (before, index) = (self.file.vouched(), self.file.index_bytes());
        let more = self.file.refresh().unwrap_or_else(|e| {
            book.damage(format!("{}: its index cannot be read on ({e})", self.file.entry.path.display()));
            false
        });
        book.cost.bytes += self.file.vouched() - before;
        book.cost.index_bytes_read += self.file.index_bytes().saturating_sub(index);
        more
    }

    /// The next record; `None` where the index's word ends. `ears` listen to the recorder of this file.
    pub fn next(&mut self, ears: Option<&RingReader>, book: &mut QueryContext) -> Option<Record> {
        loop {
            if self.begin <= self.at && self.at < self.stop {
                match self.parse(ears, book) {
                    Parsed::Record(record) => {
                        book.cost.from_ring += u64::from(self.of_ring);
                        (self.at, self.exact, self.behind_a_record) = (record.end, true, true);
                        return Some(record);
                    }
                    Parsed::Moved => continue,
                    Parsed::NotYet => return None,
                }
            }
            if self.at >= self.file.vouched() || !self.load(ears, book) {
                return None;
            }
        }
    }

    /// The bytes of the packet of the latest record.
    pub fn data(&self, record: &Record) -> &[u8] {
        let from = (record.offset - self.begin) as usize + record.header;
        self.buffer.get(from..(record.end - self.begin) as usize).unwrap_or_default()
    }

    fn parse(&mut self, ears: Option<&RingReader>, book: &mut QueryContext) -> Parsed {
        let header = if self.file.is_raw() { pcap::raw::RECORD_HEADER } else { ring::RECORD_HEADER };
        let from = (self.at - self.begin) as usize;
        let Some(head) = self.buffer.get(from..from + header) else { return self.reach(header, ears, book) };
        let word = |i: usize| u32::from_le_bytes([head[i], head[i + 1], head[i + 2], head[i + 3]]);
        let half = |i: usize| u32::from(u16::from_le_bytes([head[i], head[i + 1]]));
        let (secs, nanos) = (word(0), word(4));
        let (caplen, wire_len) = if self.file.is_raw() { (half(8), half(10)) } else { (word(8), word(12)) };
        if caplen as usize > ring::CAPLEN_MAX || u64::from(nanos) >= 1_000_000_000 {
            self.damaged("has a record that cannot be", book);
            return Parsed::Moved;
        }
        let whole = header + caplen as usize;
        if self.buffer.len() < from + whole {
            return self.reach(whole, ears, book);
        }
        let end = self.at + whole as u64;
        if self.file.is_raw() && secs == 0 && nanos == 0 {
            self.at = end;
            return Parsed::Moved;
        }
        let ts = Timestamp::from_secs_nanos(secs.into(), nanos.into());
        Parsed::Record(Record { offset: self.at, end, ts, wire_len, header })
    }

    /// Reads on behind the block, as the record that begins in it does, up to so many bytes from where it begins.
    fn reach(&mut self, whole: usize, ears: Option<&RingReader>, book: &mut QueryContext) -> Parsed {
        let have = self.begin + self.buffer.len() as u64;
        if self.at + whole as u64 > self.file.vouched() {
            if self.file.is_complete() {
                self.damaged("has a record that is cut off", book);
                return Parsed::Moved;
            }
            return Parsed::NotYet;
        }
        let to = self.file.vouched().min(self.at + RECORD_MAX);
        let len = self.buffer.len();
        self.buffer.resize(len + (to - have) as usize, 0);
        if let Err(e) = self.read(len, have, ears, book) {
            self.damaged(&format!("cannot be read ({e})"), book);
        } else if self.buffer.len() as u64 + self.begin < self.at + whole as u64 {
            self.damaged("has less than its index tells of", book);
        }
        Parsed::Moved
    }

    /// Fills the buffer from byte `from` of it on with what lies at this offset of the file, as far as there is any. What
    /// continues a block that came out of the ring comes from there too.
    fn read(&mut self, from: usize, offset: u64, ears: Option<&RingReader>, book: &mut QueryContext) -> io::Result<()> {
        let pos = self.file.first_pos().saturating_add(offset);
        if self.of_ring && ears.is_some_and(|ears| ears.stretch(pos, &mut self.buffer[from..])) {
            return Ok(());
        }
        self.of_ring = false;
        let n = ReadAt::read_at(&self.file.packets, &mut self.buffer[from..], offset)?;
        self.buffer.truncate(from + n);
        book.cost.bytes_read += n as u64;
        Ok(())
    }

    /// Reads the block that the walk is in, or goes behind it; false where the index's word ends.
    fn load(&mut self, ears: Option<&RingReader>, book: &mut QueryContext) -> bool {
        let Some((block, candidate)) = self.file.block(self.at) else { return false };
        let start = u64::from(block.number) * BLOCK;
        let end = start + u64::from(block.bytes);
        if self.at >= end {
            // Between what two entries vouch for: nothing lies there.
            return false;
        }
        let entered = self.block.replace(block.number) != Some(block.number);
        book.cost.blocks += u64::from(entered);
        // What was lost has seconds of its own, also where no packet of the block is in the interval.
        if self.is_about(&block, book) {
            self.count(&block, book);
        }
        let outside = block.last < self.from(end.saturating_sub(1)) || book.query.to < block.first;
        if let (true, Some(_)) = (outside, block.first_record) {
            book.cost.blocks_skipped_time += u64::from(entered);
            self.pass(&block);
            return true;
        }
        let Some(first_record) = block.first_record else {
            self.pass(&block);
            return true;
        };
        if !candidate {
            book.cost.blocks_skipped_keys += u64::from(entered);
            self.pass(&block);
            return true;
        }
        // From its first byte, for the checksum; but what grows while it is read is not read again each time.
        let from = if entered || !self.exact { start } else { self.at };
        self.buffer.clear();
        self.buffer.resize((end - from) as usize, 0);
        (self.begin, self.stop) = (from, end);
        if from == start {
            self.of_ring = !self.file.is_raw() && ears.is_some_and(|ears| self.hear(ears, &block));
        }
        let read = if from == start && self.of_ring { Ok(()) } else { self.read(0, from, ears, book) };
        book.cost.blocks_read += u64::from(entered);
        if !self.exact {
            self.at = start + u64::from(first_record);
        }
        if let Err(e) = read {
            self.damaged(&format!("cannot be read ({e})"), book);
        } else if (self.buffer.len() as u64) < end - from {
            self.damaged("has less than its index tells of", book);
        } else if from == start && !self.of_ring && crc32c::crc32c(&self.buffer) != block.crc {
            self.damaged("has other bytes than its index tells of", book);
        } else if self.at >= end {
            self.damaged("has no record where its index tells of one", book);
        }
        true
    }

    /// The first moment that is asked for at an offset of the file.
    fn from(&self, offset: u64) -> Timestamp {
        let first = self.file.first_pos();
        self.begin_of_answer.at(first, first.saturating_add(offset))
    }

    /// Whether the ledger rows of a block can be of the interval.
    fn is_about(&self, block: &Block, book: &QueryContext) -> bool {
        let at = u64::from(block.number) * BLOCK;
        let before = at.checked_sub(BLOCK).and_then(|at| self.file.block(at));
        let since = before.map_or(self.file.header().start, |(before, _)| before.last);
        let is_last = self.file.block(at + BLOCK).is_none();
        let (first, last) = ledger_of(block, since, if is_last { Timestamp::MAX } else { block.last });
        first.secs() <= book.query.to.secs() && self.from(at).secs() <= last.secs()
    }

    /// Fills the buffer with a whole block out of the ring; false if it has other bytes there by now.
    fn hear(&mut self, ears: &RingReader, block: &Block) -> bool {
        ears.stretch(self.file.first_pos().saturating_add(self.begin), &mut self.buffer)
            && crc32c::crc32c(&self.buffer) == block.crc
    }

    /// Goes behind a block. One that is full may end within a record, which belongs to it; one that is not does not.
    fn pass(&mut self, block: &Block) {
        self.at = u64::from(block.number) * BLOCK + u64::from(block.bytes);
        self.exact = u64::from(block.bytes) < BLOCK;
        self.behind_a_record = false;
        (self.begin, self.stop) = (0, 0);
    }

    fn damaged(&mut self, what: &str, book: &mut QueryContext) {
        let number = self.at / BLOCK;
        book.damage(format!("{}: block {number} {what}: netgrain verify tells more", self.file.entry.path.display()));
        match self.file.block(self.at) {
            Some((block, _)) => self.pass(&block),
            None => self.at = self.file.vouched(),
        }
    }

    /// Counts what the index tells of a block and was not counted yet.
    fn count(&mut self, block: &Block, book: &mut QueryContext) {
        let rows = match self.file.rows(block.number) {
            Ok(rows) => rows,
            Err(e) => {
                let path = self.file.entry.path.display();
                return book.warning(format!("{path}: {e}; what was lost is not known"));
            }
        };
        let from = self.from(u64::from(block.number) * BLOCK);
        let tally = tally_within(&rows, (from, book.query.to));
        let news = match &self.counted {
            Some((number, before)) if *number == block.number => new_rows(&tally, before),
            _ => tally,
        };
        book.add_lost(self.origin, news.lost_total());
        book.count(self.origin, &news);
        self.counted = Some((block.number, tally));
    }
}

enum Parsed {
    Record(Record),
    /// The walk has moved on, or more was read.
    Moved,
    /// The rest of the record is not vouched for.
    NotYet,
}

/// What rows tell of the seconds that are asked for.
fn tally_within(rows: &index::Rows, (from, to): (Timestamp, Timestamp)) -> Tally {
    let seconds = from.secs()..=to.secs();
    let mut out = Tally::default();
    for run in rows.runs().filter(|run| !run.is_silent() && seconds.contains(&run.second)) {
        out += &run.tally;
    }
    out
}

/// What has come since; nothing where numbers have gone down.
fn new_rows(now: &Tally, before: &Tally) -> Tally {
    let mut out = Tally {
        offered: now.offered.saturating_sub(before.offered),
        stored: now.stored.saturating_sub(before.stored),
        stored_bytes: now.stored_bytes.saturating_sub(before.stored_bytes),
        filtered: now.filtered.saturating_sub(before.filtered),
        duplicate: now.duplicate.saturating_sub(before.duplicate),
        ..Tally::default()
    };
    for (out, (now, before)) in out.lost.iter_mut().zip(now.lost.iter().zip(before.lost)) {
        *out = now.saturating_sub(before);
    }
    for (out, (now, before)) in out.notes.iter_mut().zip(now.notes.iter().zip(before.notes)) {
        *out = now.saturating_sub(before);
    }
    out
}
