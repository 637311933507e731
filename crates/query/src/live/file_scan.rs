//! Scans a file that may still be growing, record by record, and skips blocks that cannot contain a packet of the
//! result.
//!
//! The scan reads one block at a time, up to the end of the bytes that the index covers. If the recorder's ring still
//! contains the block, the scan reads it from the ring, because the disk is busy with writes; the checksum confirms
//! that the bytes are equal to those in the file. If the ring no longer contains the block, the scan reads it from the
//! file. A record that crosses the end of a block is read as soon as the index covers the complete record. The scan
//! does not trust the content: it treats an impossible length, a block with a wrong checksum, and an unreadable block
//! as damage. The query warns about damage, and the scan continues after the damaged block.

use super::bounds::TailBegin;
use super::growing::Growing;
use super::ring_reader::RingReader;
use crate::QueryContext;
use crate::sealed::index_ledger::ledger_of;
use base::{Tally, Timestamp};
use index::{Block, ReadAt};
use ring::BLOCK;
use std::io;

/// Maximum size of a record: header and packet.
const RECORD_MAX: u64 = 16 + ring::CAPLEN_MAX as u64;

/// A record in the buffer.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// Offset of the record in the file.
    pub offset: u64,
    /// Offset of its end.
    pub end: u64,
    /// The timestamp.
    pub ts: Timestamp,
    /// Wire length.
    pub wire_len: u32,
    /// Size of the record header.
    header: usize,
}

/// A scan of one file.
pub struct FileScan {
    /// The file.
    pub file: Growing,
    /// Index of the origin in the list of origins of the query context.
    pub origin: usize,
    tail_begin: TailBegin,
    /// Offset of the next record if `exact`; otherwise the scan continues with the first record of the block at this
    /// offset.
    at: u64,
    exact: bool,
    /// True if `at` is the end of a record; false if it is the end of a skipped block, which may be within a record.
    is_after_record: bool,
    buffer: Vec<u8>,
    /// Offset in the file at which the buffer begins.
    begin: u64,
    /// The buffer contains the records that begin before this offset.
    stop: u64,
    /// The current block, and true if its bytes came from the ring.
    block: Option<u32>,
    of_ring: bool,
    /// The number of the latest block whose ledger was counted, and the ledger counts of this block that were already
    /// added to the query context.
    counted: Option<(u32, Tally)>,
}

impl FileScan {
    /// A scan from the first record on.
    pub fn new(file: Growing, origin: usize, tail_begin: TailBegin, context: &mut QueryContext) -> Self {
        context.cost.files += 1;
        context.cost.bytes += file.covered_bytes();
        let (exact, is_after_record, buffer) = (false, false, Vec::new());
        Self {
            file,
            origin,
            tail_begin,
            at: 0,
            exact,
            is_after_record,
            buffer,
            begin: 0,
            stop: 0,
            block: None,
            of_ring: false,
            counted: None,
        }
    }

    /// Moves to the record at this offset. The ledgers of the blocks before the record were already added to the query
    /// context. `counted` contains the ledger counts that were already added for the record's own block.
    pub fn seek(&mut self, offset: u64, counted: Option<Tally>) {
        (self.at, self.exact, self.begin, self.stop) = (offset, offset > 0, 0, 0);
        self.is_after_record = offset > 0;
        self.block = None;
        self.counted = counted.map(|tally| ((offset / BLOCK) as u32, tally));
    }

    /// The ledger counts that were already added for the block in which the scan continues.
    pub fn counted(&self) -> Tally {
        match &self.counted {
            Some((number, tally)) if u64::from(*number) == self.at / BLOCK => *tally,
            _ => Tally::default(),
        }
    }

    /// Stream position at which the scan continues.
    pub fn pos(&self) -> u64 {
        self.file.first_pos().saturating_add(self.at)
    }

    /// Maximum distance from [`FileScan::pos`] to the next record.
    pub fn slack(&self) -> u64 {
        if self.is_after_record { 0 } else { RECORD_MAX }
    }

    /// Calls [`Growing::refresh`], and reports an index that has become unreadable as damage.
    pub fn refresh(&mut self, context: &mut QueryContext) -> bool {
        let (before, index) = (self.file.covered_bytes(), self.file.index_bytes());
        let more = self.file.refresh().unwrap_or_else(|e| {
            context.damage(format!("{}: the rest of its index cannot be read ({e})", self.file.entry.path.display()));
            false
        });
        context.cost.bytes += self.file.covered_bytes() - before;
        context.cost.index_bytes_read += self.file.index_bytes().saturating_sub(index);
        more
    }

    /// The next record; `None` at the end of the bytes that the index covers. `ring` is the reader of the ring of the
    /// file's recorder.
    pub fn next(&mut self, ring: Option<&RingReader>, context: &mut QueryContext) -> Option<Record> {
        loop {
            if self.begin <= self.at && self.at < self.stop {
                match self.parse(ring, context) {
                    Parsed::Record(record) => {
                        context.cost.from_ring += u64::from(self.of_ring);
                        (self.at, self.exact, self.is_after_record) = (record.end, true, true);
                        return Some(record);
                    }
                    Parsed::Moved => continue,
                    Parsed::NotYet => return None,
                }
            }
            if self.at >= self.file.covered_bytes() || !self.load(ring, context) {
                return None;
            }
        }
    }

    /// The packet bytes of a record that the scan returned last.
    pub fn data(&self, record: &Record) -> &[u8] {
        let from = (record.offset - self.begin) as usize + record.header;
        self.buffer.get(from..(record.end - self.begin) as usize).unwrap_or_default()
    }

    fn parse(&mut self, ring: Option<&RingReader>, context: &mut QueryContext) -> Parsed {
        let header = if self.file.is_raw() { pcap::raw::RECORD_HEADER } else { ring::RECORD_HEADER };
        let from = (self.at - self.begin) as usize;
        let Some(head) = self.buffer.get(from..from + header) else { return self.read_more(header, ring, context) };
        let word = |i: usize| u32::from_le_bytes([head[i], head[i + 1], head[i + 2], head[i + 3]]);
        let half = |i: usize| u32::from(u16::from_le_bytes([head[i], head[i + 1]]));
        let (secs, nanos) = (word(0), word(4));
        let (caplen, wire_len) = if self.file.is_raw() { (half(8), half(10)) } else { (word(8), word(12)) };
        if caplen as usize > ring::CAPLEN_MAX || u64::from(nanos) >= 1_000_000_000 {
            self.damaged("has a record with an impossible length or time", context);
            return Parsed::Moved;
        }
        let whole = header + caplen as usize;
        if self.buffer.len() < from + whole {
            return self.read_more(whole, ring, context);
        }
        let end = self.at + whole as u64;
        if self.file.is_raw() && secs == 0 && nanos == 0 {
            self.at = end;
            return Parsed::Moved;
        }
        let ts = Timestamp::from_secs_nanos(secs.into(), nanos.into());
        Parsed::Record(Record { offset: self.at, end, ts, wire_len, header })
    }

    /// Reads more bytes after the end of the block, for a record of `whole` bytes that begins in the block.
    fn read_more(&mut self, whole: usize, ring: Option<&RingReader>, context: &mut QueryContext) -> Parsed {
        let have = self.begin + self.buffer.len() as u64;
        if self.at + whole as u64 > self.file.covered_bytes() {
            if self.file.is_complete() {
                self.damaged("has a truncated record", context);
                return Parsed::Moved;
            }
            return Parsed::NotYet;
        }
        let to = self.file.covered_bytes().min(self.at + RECORD_MAX);
        let len = self.buffer.len();
        self.buffer.resize(len + (to - have) as usize, 0);
        if let Err(e) = self.read(len, have, ring, context) {
            self.damaged(&format!("cannot be read ({e})"), context);
        } else if self.buffer.len() as u64 + self.begin < self.at + whole as u64 {
            self.damaged("has fewer bytes than its index describes", context);
        }
        Parsed::Moved
    }

    /// Fills the buffer from its byte `from` on with the file content from `offset` on, as far as available. If the
    /// block came from the ring, the bytes after it are read from the ring too.
    fn read(
        &mut self,
        from: usize,
        offset: u64,
        ring: Option<&RingReader>,
        context: &mut QueryContext,
    ) -> io::Result<()> {
        let pos = self.file.first_pos().saturating_add(offset);
        if self.of_ring && ring.is_some_and(|ring| ring.copy_range(pos, &mut self.buffer[from..])) {
            return Ok(());
        }
        self.of_ring = false;
        let n = ReadAt::read_at(&self.file.packets, &mut self.buffer[from..], offset)?;
        self.buffer.truncate(from + n);
        context.cost.bytes_read += n as u64;
        Ok(())
    }

    /// Reads or skips the current block; returns false at the end of the bytes that the index covers.
    fn load(&mut self, ring: Option<&RingReader>, context: &mut QueryContext) -> bool {
        let Some((block, candidate)) = self.file.block(self.at) else { return false };
        let start = u64::from(block.number) * BLOCK;
        let end = start + u64::from(block.bytes);
        if self.at >= end {
            // The indexed bytes of the block end at or before this offset, so no record of the block remains.
            return false;
        }
        let entered = self.block.replace(block.number) != Some(block.number);
        context.cost.blocks += u64::from(entered);
        // Lost packets are counted first, because they may be in the interval even if no packet of the block is.
        if self.may_have_rows(&block, context) {
            self.count(&block, context);
        }
        let outside = block.last < self.from(end.saturating_sub(1)) || context.query.to < block.first;
        if let (true, Some(_)) = (outside, block.first_record) {
            context.cost.blocks_skipped_time += u64::from(entered);
            self.pass(&block);
            return true;
        }
        let Some(first_record) = block.first_record else {
            self.pass(&block);
            return true;
        };
        if !candidate {
            context.cost.blocks_skipped_keys += u64::from(entered);
            self.pass(&block);
            return true;
        }
        // The checksum is tested only if the complete block is read. If an earlier part of a growing block was already
        // scanned, only the rest of the block is read, without a test of the checksum.
        let from = if entered || !self.exact { start } else { self.at };
        self.buffer.clear();
        self.buffer.resize((end - from) as usize, 0);
        (self.begin, self.stop) = (from, end);
        if from == start {
            self.of_ring = !self.file.is_raw() && ring.is_some_and(|ring| self.load_from_ring(ring, &block));
        }
        let read = if from == start && self.of_ring { Ok(()) } else { self.read(0, from, ring, context) };
        context.cost.blocks_read += u64::from(entered);
        if !self.exact {
            self.at = start + u64::from(first_record);
        }
        if let Err(e) = read {
            self.damaged(&format!("cannot be read ({e})"), context);
        } else if (self.buffer.len() as u64) < end - from {
            self.damaged("has fewer bytes than its index describes", context);
        } else if from == start && !self.of_ring && crc32c::crc32c(&self.buffer) != block.crc {
            self.damaged("does not match its checksum", context);
        } else if self.at >= end {
            self.damaged("does not contain the record that its index describes", context);
        }
        true
    }

    /// The earliest timestamp that the query admits for packets at this offset of the file.
    fn from(&self, offset: u64) -> Timestamp {
        let first = self.file.first_pos();
        self.tail_begin.at(first, first.saturating_add(offset))
    }

    /// True if ledger rows of the block may overlap the interval.
    fn may_have_rows(&self, block: &Block, context: &QueryContext) -> bool {
        let at = u64::from(block.number) * BLOCK;
        let before = at.checked_sub(BLOCK).and_then(|at| self.file.block(at));
        let since = before.map_or(self.file.header().start, |(before, _)| before.last);
        let is_last = self.file.block(at + BLOCK).is_none();
        let (first, last) = ledger_of(block, since, if is_last { Timestamp::MAX } else { block.last });
        first.secs() <= context.query.to.secs() && self.from(at).secs() <= last.secs()
    }

    /// Fills the buffer with a complete block from the ring; returns false if the ring has overwritten a part of the
    /// block.
    fn load_from_ring(&mut self, ring: &RingReader, block: &Block) -> bool {
        ring.copy_range(self.file.first_pos().saturating_add(self.begin), &mut self.buffer)
            && crc32c::crc32c(&self.buffer) == block.crc
    }

    /// Skips a block. A full block may end within a record; an incomplete block ends at the end of a record.
    fn pass(&mut self, block: &Block) {
        self.at = u64::from(block.number) * BLOCK + u64::from(block.bytes);
        self.exact = u64::from(block.bytes) < BLOCK;
        self.is_after_record = false;
        (self.begin, self.stop) = (0, 0);
    }

    fn damaged(&mut self, what: &str, context: &mut QueryContext) {
        let number = self.at / BLOCK;
        context.damage(format!(
            "{}: block {number} {what}; netgrain verify reports details",
            self.file.entry.path.display()
        ));
        match self.file.block(self.at) {
            Some((block, _)) => self.pass(&block),
            None => self.at = self.file.covered_bytes(),
        }
    }

    /// Adds the ledger rows of a block to the context, except those that were already counted.
    fn count(&mut self, block: &Block, context: &mut QueryContext) {
        let rows = match self.file.rows(block.number) {
            Ok(rows) => rows,
            Err(e) => {
                let path = self.file.entry.path.display();
                return context.warning(format!("{path}: {e}; the number of lost packets is unknown"));
            }
        };
        let from = self.from(u64::from(block.number) * BLOCK);
        let tally = tally_within(&rows, (from, context.query.to));
        let news = match &self.counted {
            Some((number, before)) if *number == block.number => new_rows(&tally, before),
            _ => tally,
        };
        context.add_lost(self.origin, news.lost_total());
        context.count(self.origin, &news);
        self.counted = Some((block.number, tally));
    }
}

enum Parsed {
    Record(Record),
    /// The step returns no record: it has moved the scan to another offset, or has read more bytes.
    Moved,
    /// The index does not yet cover the rest of the record.
    NotYet,
}

/// The sum of the ledger rows (outcome counters of one second each) whose seconds overlap the interval.
fn tally_within(rows: &index::Rows, (from, to): (Timestamp, Timestamp)) -> Tally {
    let seconds = from.secs()..=to.secs();
    let mut out = Tally::default();
    for run in rows.runs().filter(|run| !run.is_silent() && seconds.contains(&run.second)) {
        out += &run.tally;
    }
    out
}

/// The difference of two tallies; zero where a counter has decreased.
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
