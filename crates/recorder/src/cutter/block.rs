//! The state of one block while it is being filled.

use super::job::{Cut, Part, Release};
use super::order::OrderTracker;
use super::quality::Quality;
use super::seconds::{Seconds, row_of, steps_tally};
use base::{ClockState, Tally, Timestamp};
use index::{BlockKeys, Entry, Rows, SUB_BLOCK, SubBlocks, sub_block_of};
use ring::{BLOCK, Desc, FILE_HEADER, RECORD_HEADER};
use std::num::NonZeroU32;
use std::sync::Arc;
use store::bytes::{Bytes, PAGE, Slice};

/// The checksum is updated after this number of bytes, while the bytes are still in the processor's cache.
const CHECKSUM_STEP: u64 = 32 << 10;

/// The block that is being filled. All positions are stream positions.
#[derive(Default)]
pub(super) struct Block {
    start: u64,
    number: u32,
    /// End of the bytes that were sent to the writer.
    sent: u64,
    /// End of the bytes that the checksum covers.
    summed: u64,
    crc: u32,
    first_record: Option<u32>,
    parts: SubBlocks,
    /// Begin of the next sub-block: a packet record that begins here or later is the first record of its sub-block.
    next_part: u64,
    stamps: Option<(Timestamp, Timestamp)>,
    /// The latest timestamp in the earlier blocks of the file.
    latest: Timestamp,
    order: OrderTracker,
    quality: Quality,
    seconds: Seconds,
    cut: Option<Cut>,
    keys: BlockKeys,
    link_type: u16,
}

impl Block {
    /// Begins the first block of a segment. Ledger rows that were counted but not sent become part of this block.
    pub fn begin_segment(&mut self, pos: u64, memory: &dyn Bytes) {
        self.latest = Timestamp::ZERO;
        self.link_type = link_type(pos, memory);
        self.begin(pos, 0);
    }

    fn begin(&mut self, start: u64, number: u32) {
        (self.start, self.number, self.sent, self.summed) = (start, number, start, start);
        (self.crc, self.first_record, self.stamps) = (0, None, None);
        (self.parts, self.next_part) = (SubBlocks::NONE, start);
        self.quality.next_block();
        self.seconds.next_block();
        self.keys.clear();
    }

    /// The first position after the block.
    pub fn limit(&self) -> u64 {
        self.start + BLOCK
    }

    /// End of the bytes that were sent to the writer, rounded down to a page.
    pub fn sent(&self) -> u64 {
        self.sent & !(PAGE - 1)
    }

    /// The latest timestamp in this file.
    pub fn last(&self) -> Timestamp {
        self.stamps.map_or(self.latest, |(_, last)| last.max(self.latest))
    }

    /// True if bytes or ledger rows with counts were not sent yet. Rows of zeros alone need no job at a tick.
    pub fn has_unreported(&mut self, end: u64) -> bool {
        end > self.sent || self.seconds.has_unreported()
    }

    /// True if the block has bytes or ledger rows.
    pub fn has_content(&mut self, end: u64) -> bool {
        end > self.start || self.seconds.has_content()
    }

    /// Adds one packet; returns true if the packet reaches the end of the block.
    #[inline]
    pub fn packet(&mut self, d: &Desc, memory: &dyn Bytes) -> bool {
        if d.pos() >= self.next_part {
            self.enter_sub_block(d.pos(), memory);
        }
        let record = memory.at(d.pos(), RECORD_HEADER + usize::from(d.caplen));
        let wire_len = wire_len(d, record);
        self.keys.add(&record[RECORD_HEADER..], wire_len, self.link_type);
        self.seconds.packet(d, wire_len);
        self.quality.packet(d);
        if d.end() > self.limit() {
            self.save_cut(d, wire_len, memory);
        }
        let ts = d.timestamp();
        let (stamps, before) = (self.stamps, self.latest);
        self.order.packet(ts, || stamps.map_or(before, |(_, last)| last.max(before)));
        match &mut self.stamps {
            Some((first, last)) => (*first, *last) = ((*first).min(ts), (*last).max(ts)),
            None => {
                self.stamps = Some((ts, ts));
                self.first_record = Some((d.pos() - self.start) as u32);
            }
        }
        if d.end() >= self.limit() {
            return true;
        }
        if d.pos() - self.summed >= CHECKSUM_STEP {
            self.sum_to(d.pos(), memory);
        }
        false
    }

    /// Adds outcome counts to the ledger row of a second.
    pub fn count(&mut self, second: u64, tally: &Tally) {
        self.seconds.count(second, tally);
    }

    /// Adds a report of the deviation of the timestamps and of the state of the clock.
    pub fn report_timestamps(&mut self, deviation_nanos: Option<NonZeroU32>, clock: Option<ClockState>) {
        self.quality.report(deviation_nanos, clock);
    }

    /// Adds steps of the clock to the block, and to the ledger row of a second.
    pub fn clock_step(&mut self, second: u64, steps: u32, nanos: i64) {
        self.quality.step(steps, nanos);
        self.count(second, &steps_tally(steps));
    }

    /// Returns the full block as a part and begins the next block.
    pub fn full_block(&mut self, memory: &Arc<dyn Bytes>, release: Release) -> Box<Part> {
        self.sum_to(self.limit(), &**memory);
        let part = self.part(self.limit(), true, memory, release);
        self.latest = self.last();
        self.begin(self.limit(), self.number + 1);
        part
    }

    /// Returns the bytes up to `end` as a part of a block that is not full; `last` is true for the last part of the
    /// file.
    pub fn partial_block(&mut self, end: u64, last: bool, memory: &Arc<dyn Bytes>, seen: u64) -> Box<Part> {
        self.sum_to(end, &**memory);
        self.part(end, last, memory, Release { pos: end & !(PAGE - 1), descriptors: seen })
    }

    fn part(&mut self, end: u64, last: bool, memory: &Arc<dyn Bytes>, release: Release) -> Box<Part> {
        let news = self.seconds.report();
        let from = self.sent();
        self.sent = end;
        let bytes = (end - self.start) as u32;
        let stamps = self.stamps.unwrap_or_default();
        let (late, mixed) = self.order.report();
        let cut = self.cut.take().unwrap_or(Cut { bytes, crc: self.crc, stamps, straddler: None });
        Box::new(Part {
            offset: u64::from(self.number) * BLOCK + (from - self.start),
            bytes: Slice::stream(memory, from, (end - from) as usize),
            entry: Entry {
                block: self.number,
                bytes,
                first_record: self.first_record,
                crc: self.crc,
                sub_blocks: self.parts,
                first: stamps.0,
                last: stamps.1,
                timestamps: self.quality.of_block(),
                rows: Rows::new(),
                sets: self.keys.sets(),
            },
            last,
            new_rows: news,
            out_of_order: late,
            is_out_of_order: mixed,
            cut,
            release,
        })
    }

    /// Saves the state of the block before a packet that crosses the end of the block, so that the file can end before
    /// this packet.
    fn save_cut(&mut self, d: &Desc, wire_len: u32, memory: &dyn Bytes) {
        self.sum_to(d.pos(), memory);
        let straddler = Some(row_of(d, wire_len));
        let stamps = self.stamps.unwrap_or_default();
        self.cut = Some(Cut { bytes: (d.pos() - self.start) as u32, crc: self.crc, stamps, straddler });
    }

    /// Begins a sub-block; its first record is at `pos`.
    #[inline(never)]
    fn enter_sub_block(&mut self, pos: u64, memory: &dyn Bytes) {
        self.sum_to(pos, memory);
        let offset = (pos - self.start) as u32;
        self.parts.begin(offset, self.crc);
        self.keys.enter(sub_block_of(offset));
        self.next_part = self.start + (u64::from(offset / SUB_BLOCK) + 1) * u64::from(SUB_BLOCK);
    }

    fn sum_to(&mut self, pos: u64, memory: &dyn Bytes) {
        let bytes = memory.at(self.summed, (pos - self.summed) as usize);
        self.crc = crc32c::crc32c_append(self.crc, bytes);
        self.summed = pos;
    }
}

/// The link type in the pcap header at the begin of this segment.
pub(super) fn link_type(segment: u64, memory: &dyn Bytes) -> u16 {
    let header = memory.at(segment, FILE_HEADER);
    u16::from_le_bytes([header[20], header[21]])
}

/// The wire length of a packet: from the descriptor, or from the record header if the length does not fit into the
/// descriptor.
#[inline]
pub(super) fn wire_len(d: &Desc, record: &[u8]) -> u32 {
    match d.wire_len {
        u16::MAX => u32::from_le_bytes([record[12], record[13], record[14], record[15]]),
        n => u32::from(n),
    }
}
