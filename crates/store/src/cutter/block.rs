//! One block while it fills.

use super::job::{Cut, Part, Release};
use crate::bytes::{Bytes, PAGE, Slice};
use crate::index::{Entry, Keys};
use base::{Note, Row, Tally, Timestamp};
use ring::{BLOCK, Desc, RECORD_HEADER, flag};
use std::sync::Arc;

/// How far the checksum may lag behind the descriptors: little enough that the bytes are still in the processor's cache.
const CHECKSUM_STEP: u64 = 32 << 10;

/// Rows looked at for the second of a new one, so that hours of silence do not make each second dearer.
const NEAR: usize = 8;

const NANOS: u64 = 1_000_000_000;

/// A flag whose packets the ledger remarks on, and the remark.
const REMARKS: [(u8, Note); 6] = [
    (flag::TRUNCATED, Note::Truncated),
    (flag::MALFORMED, Note::Malformed),
    (flag::SUPER_FRAME, Note::SuperFrame),
    (flag::VLAN_RESTORED, Note::VlanRestored),
    (flag::OUTGOING, Note::Outgoing),
    (flag::CLAMPED, Note::Clamped),
];

/// The block that is filling. Positions are those of the stream.
#[derive(Default)]
pub(super) struct Block {
    start: u64,
    number: u32,
    /// What is on its way to disk already.
    sent: u64,
    /// The checksum covers the block up to here.
    summed: u64,
    crc: u32,
    first_record: Option<u32>,
    stamps: Option<(Timestamp, Timestamp)>,
    latest: Timestamp,
    /// Rows sent, and rows since.
    rows: Vec<Row>,
    news: Vec<Row>,
    /// The row being filled, and the first nanosecond of its second: one compare per packet instead of a division.
    tally: Tally,
    second_at: u64,
    counted: bool,
    cut: Option<Cut>,
    keys: Keys,
}

impl Block {
    /// Becomes the block at `start`. What was counted and not sent stays, and becomes part of it.
    pub fn begin(&mut self, start: u64, number: u32, header: u64) {
        (self.start, self.number, self.sent, self.summed) = (start, number, start, start);
        (self.crc, self.first_record, self.stamps) = (0, None, None);
        if header > 0 {
            self.latest = Timestamp::ZERO;
        }
        self.rows.clear();
        self.keys.clear();
    }

    /// First position behind the block.
    pub fn limit(&self) -> u64 {
        self.start + BLOCK
    }

    /// What is on its way to disk, down to a page.
    pub fn sent(&self) -> u64 {
        self.sent & !(PAGE - 1)
    }

    /// The latest stamp in this file.
    pub fn last(&self) -> Timestamp {
        self.latest
    }

    /// Whether a tick has something to send ahead; seconds of silence can wait.
    pub fn has_news(&mut self, end: u64) -> bool {
        self.end_row();
        end > self.sent || self.news.iter().any(|r| !r.tally.is_empty())
    }

    /// Whether the block has bytes, or rows that no block has told.
    pub fn has_anything(&mut self, end: u64) -> bool {
        self.end_row();
        end > self.start || !self.news.is_empty() || !self.rows.is_empty()
    }

    /// Takes one packet; true when it reaches the block's end.
    #[inline]
    pub fn packet(&mut self, d: &Desc, memory: &dyn Bytes) -> bool {
        let record = memory.at(d.pos, RECORD_HEADER + usize::from(d.caplen));
        let wire_len = match d.wire_len {
            u16::MAX => u32::from_le_bytes([record[12], record[13], record[14], record[15]]),
            n => u32::from(n),
        };
        self.keys.add(d, &record[RECORD_HEADER..]);
        if d.ts.wrapping_sub(self.second_at) >= NANOS || !self.counted {
            self.begin_row(d.timestamp().secs());
        }
        self.tally.offered += 1;
        self.tally.stored += 1;
        self.tally.stored_bytes += u64::from(wire_len);
        if d.flags != 0 {
            remark(&mut self.tally, d.flags);
        }
        let ts = d.timestamp();
        match &mut self.stamps {
            Some((first, last)) => (*first, *last) = ((*first).min(ts), (*last).max(ts)),
            None => {
                self.stamps = Some((ts, ts));
                self.first_record = Some((d.pos - self.start) as u32);
            }
        }
        if d.end() >= self.limit() {
            self.reach(d, wire_len, memory);
            return true;
        }
        if d.pos - self.summed >= CHECKSUM_STEP {
            self.sum_to(d.pos, memory);
        }
        false
    }

    /// Adds to the row of a second.
    pub fn count(&mut self, second: u64, tally: &Tally) {
        if !self.counted || self.second_at != second.saturating_mul(NANOS) {
            self.begin_row(second);
        }
        self.tally += tally;
    }

    /// The full block, as a part; becomes the next one.
    pub fn whole(&mut self, memory: &Arc<dyn Bytes>, release: Release) -> Box<Part> {
        self.sum_to(self.limit(), &**memory);
        let part = self.part(self.limit(), true, memory, release);
        self.begin(self.limit(), self.number + 1, 0);
        part
    }

    /// What there is up to `end`, sent ahead.
    pub fn so_far(&mut self, end: u64, memory: &Arc<dyn Bytes>, seen: u64) -> Box<Part> {
        self.sum_to(end, &**memory);
        self.part(end, false, memory, Release { pos: end & !(PAGE - 1), descriptors: seen })
    }

    /// The last part of the file.
    pub fn rest(&mut self, end: u64, memory: &Arc<dyn Bytes>, seen: u64) -> Box<Part> {
        self.sum_to(end, &**memory);
        self.part(end, true, memory, Release { pos: end & !(PAGE - 1), descriptors: seen })
    }

    fn part(&mut self, end: u64, last: bool, memory: &Arc<dyn Bytes>, release: Release) -> Box<Part> {
        self.end_row();
        let news = std::mem::take(&mut self.news);
        for row in &news {
            add(&mut self.rows, row);
        }
        let from = self.sent();
        self.sent = end;
        let cut = self.cut.take().unwrap_or(Cut { bytes: (end - self.start) as u32, crc: self.crc, straddler: None });
        let (first, latest) = self.stamps.unwrap_or_default();
        self.latest = self.latest.max(latest);
        Box::new(Part {
            offset: u64::from(self.number) * BLOCK + (from - self.start),
            bytes: Slice::stream(memory, from, (end - from) as usize),
            entry: Entry {
                block: self.number,
                bytes: (end - self.start) as u32,
                first_record: self.first_record,
                crc: self.crc,
                first,
                last: latest,
                rows: self.rows.clone(),
                sets: self.keys.sets(),
            },
            last,
            news,
            cut,
            release,
        })
    }

    /// The packet reaches the block's end: remembers how the block would look without it, if it goes beyond.
    fn reach(&mut self, d: &Desc, wire_len: u32, memory: &dyn Bytes) {
        if d.end() == self.limit() {
            return;
        }
        self.sum_to(d.pos, memory);
        let mut tally = Tally { offered: 1, stored: 1, stored_bytes: u64::from(wire_len), ..Tally::default() };
        remark(&mut tally, d.flags);
        let straddler = Some(Row { second: d.timestamp().secs(), tally });
        self.cut = Some(Cut { bytes: (d.pos - self.start) as u32, crc: self.crc, straddler });
    }

    fn sum_to(&mut self, pos: u64, memory: &dyn Bytes) {
        let bytes = memory.at(self.summed, (pos - self.summed) as usize);
        self.crc = crc32c::crc32c_append(self.crc, bytes);
        self.summed = pos;
    }

    #[inline(never)]
    fn begin_row(&mut self, second: u64) {
        self.end_row();
        self.second_at = second.saturating_mul(NANOS);
        self.counted = true;
    }

    fn end_row(&mut self) {
        if self.counted {
            let tally = std::mem::take(&mut self.tally);
            add(&mut self.news, &Row { second: self.second_at / NANOS, tally });
            self.counted = false;
        }
    }
}

/// Adds a row to rows; almost always to the last one. Rows of one second may stay apart when that second is long past:
/// their sum is what counts.
pub(crate) fn add(rows: &mut Vec<Row>, row: &Row) {
    match rows.iter_mut().rev().take(NEAR).find(|r| r.second == row.second) {
        Some(found) => found.tally += &row.tally,
        None => rows.push(*row),
    }
}

#[cold]
fn remark(tally: &mut Tally, flags: u8) {
    for (bit, note) in REMARKS {
        tally.notes[note as usize] += u64::from(flags & bit != 0);
    }
}
