//! The cutter for files in HPCAP's RAW format ([`pcap::raw`]). This cutter copies the packets into its own blocks,
//! because RAW records have another layout than the records of the ring.
//!
//! Files end at a fixed size, as the format requires, and at a clock boundary if the producer rotates by time. A full
//! file has exactly the fixed size; a file that ends at a clock boundary, and the last file, end after their last
//! packet. The cutter ignores segments that the producer began because of their size: a RAW record is shorter than a
//! ring record, so such a segment would end a file early. At each tick, the bytes of the incomplete block are sent to
//! the writer. For a rotation period without packets, no file is created; the next file contains the ledger rows of
//! this period.

use super::BrokenStream;
use super::block::{link_type, wire_len};
use super::job::{Cut, Job, Part, Release};
use super::order::OrderTracker;
use super::quality::Quality;
use super::seconds::{Seconds, row_of, steps_tally};
use base::{Row, Tally, Timestamp};
use index::{BlockKeys, Entry, Rows, SubBlocks, sub_block_of};
use pcap::raw::{MAX_CAPLEN, MIN_FILE, fits, padding_header, paddings, record_header};
use ring::{BLOCK, Control, Desc, RECORD_HEADER, flag};
use std::sync::Arc;
use store::bytes::{Bytes, PAGE, Slice};

/// Earliest and latest timestamp of the packets of a block; `None` if the block has no packets.
type Stamps = Option<(Timestamp, Timestamp)>;

/// The cutter for RAW files.
pub struct RawCutter {
    memory: Arc<dyn Bytes>,
    file_bytes: u64,
    /// Number of bytes in the open file; `None` if no file is open.
    written: Option<u64>,
    buffer: Vec<u8>,
    number: u32,
    /// Number of bytes of the buffer that were sent to the writer.
    sent: usize,
    first_record: Option<u32>,
    parts: SubBlocks,
    /// End of the bytes of the buffer that the checksum `crc` covers.
    summed: usize,
    crc: u32,
    stamps: Stamps,
    /// The latest timestamp in the earlier blocks of the file.
    latest: Timestamp,
    order: OrderTracker,
    quality: Quality,
    seconds: Seconds,
    keys: BlockKeys,
    link_type: u16,
    next: Option<u64>,
    seen: u64,
    last: Timestamp,
    /// As in [`super::Cutter`].
    ticked: bool,
}

impl RawCutter {
    /// A cutter for RAW files of `file_bytes` bytes each; the size is raised to [`MIN_FILE`] if it is smaller, and
    /// rounded up to a page.
    pub fn new(memory: Arc<dyn Bytes>, file_bytes: u64) -> Self {
        Self {
            memory,
            file_bytes: file_bytes.max(MIN_FILE).next_multiple_of(PAGE),
            written: None,
            buffer: Vec::with_capacity(2 * BLOCK as usize),
            number: 0,
            sent: 0,
            first_record: None,
            parts: SubBlocks::NONE,
            summed: 0,
            crc: 0,
            stamps: None,
            latest: Timestamp::ZERO,
            order: OrderTracker::default(),
            quality: Quality::default(),
            seconds: Seconds::default(),
            keys: BlockKeys::default(),
            link_type: 0,
            next: None,
            seen: 0,
            last: Timestamp::ZERO,
            ticked: false,
        }
    }

    /// Like [`super::Cutter::read_descriptors`].
    ///
    /// # Errors
    /// Those of [`super::Cutter::read_descriptors`].
    pub fn read_descriptors(&mut self, descriptors: &[Desc], jobs: &mut Vec<Job>) -> Result<bool, BrokenStream> {
        let memory = Arc::clone(&self.memory);
        for d in descriptors {
            self.seen += 1;
            if d.is_packet() {
                let expected = self.next.unwrap_or_default();
                if d.pos() != expected {
                    return Err(BrokenStream::Position { expected, found: d.pos() });
                }
                self.next = Some(d.end());
                self.packet(d, memory.at(d.pos(), RECORD_HEADER + usize::from(d.caplen)), jobs);
                continue;
            }
            self.last = self.last.max(d.timestamp());
            let second = d.timestamp().secs();
            match d.as_control() {
                Some(Control::Segment { pos, .. }) => {
                    self.next = Some(pos + ring::FILE_HEADER as u64);
                    self.link_type = link_type(pos, &*memory);
                    if by_clock(d.timestamp()) {
                        self.close(jobs);
                    }
                }
                Some(Control::Lost { cause, packets, .. }) => {
                    let mut tally = Tally::default();
                    tally.add_lost(cause, packets);
                    self.seconds.count(second, &tally);
                }
                Some(Control::Filtered { packets }) => {
                    self.seconds.count(second, &Tally { offered: packets, filtered: packets, ..Tally::default() });
                }
                Some(Control::Duplicate { packets }) => {
                    self.seconds.count(second, &Tally { offered: packets, duplicate: packets, ..Tally::default() });
                }
                Some(Control::Tick) => {
                    self.seconds.count(second, &Tally::default());
                    self.ticked = true;
                }
                Some(Control::Timestamps { deviation_nanos, clock }) => self.quality.report(deviation_nanos, clock),
                Some(Control::ClockStep { steps, nanos }) => {
                    self.quality.step(steps, nanos);
                    self.seconds.count(second, &steps_tally(steps));
                }
                Some(Control::End) => {
                    self.finish(jobs);
                    return Ok(true);
                }
                None => {}
            }
        }
        if std::mem::take(&mut self.ticked) {
            self.flush(jobs);
        }
        Ok(false)
    }

    /// Sends the writer the bytes and ledger rows that were added to the block since the last job was sent.
    fn flush(&mut self, jobs: &mut Vec<Job>) {
        if self.written.is_some() && (self.buffer.len() > self.sent || self.seconds.has_unreported()) {
            let part = self.part(self.buffer.len(), false, None);
            jobs.push(Job::Write(part));
        } else if self.next.is_some() {
            jobs.push(Job::Release(self.release()));
        }
    }

    /// Like [`super::Cutter::finish`].
    pub fn finish(&mut self, jobs: &mut Vec<Job>) {
        if self.written.is_none() && self.seconds.has_content() {
            self.open(self.next.unwrap_or_default(), self.last, jobs);
        }
        self.close(jobs);
        jobs.push(Job::End);
    }

    fn release(&self) -> Release {
        Release { pos: self.next.unwrap_or_default(), descriptors: self.seen }
    }

    fn packet(&mut self, d: &Desc, record: &[u8], jobs: &mut Vec<Job>) {
        let wire_len = wire_len(d, record);
        let caplen = d.caplen.min(MAX_CAPLEN);
        let flags = if caplen < d.caplen { d.flags | flag::TRUNCATED } else { d.flags };
        let d = &Desc { caplen, flags, ..*d };
        let ts = d.timestamp();
        if let Some(written) = self.written
            && !fits(self.file_bytes - written, caplen)
        {
            for len in paddings(self.file_bytes - written) {
                let at = self.buffer.len();
                self.append(&padding_header(len), &vec![0; usize::from(len)]);
                self.cut_full(at, self.stamps, None, jobs);
            }
            self.close(jobs);
        }
        if self.written.is_none() {
            self.open(d.pos(), ts, jobs);
        }
        self.last = self.last.max(ts);
        let (stamps, latest) = (self.stamps, self.latest);
        self.order.packet(ts, || stamps.map_or(latest, |(_, last)| last.max(latest)));
        let data = &record[RECORD_HEADER..][..usize::from(caplen)];
        let (at, before) = (self.buffer.len(), self.stamps);
        self.begin_record(at);
        // The RAW format stores the wire length in 16 bits, so the keys are computed with the wire length that a reader
        // of the file finds.
        self.keys.add(data, wire_len.min(u16::MAX.into()), self.link_type);
        self.seconds.packet(d, wire_len);
        self.quality.packet(d);
        self.first_record.get_or_insert(at as u32);
        self.stamps = Some(self.stamps.map_or((ts, ts), |(a, b)| (a.min(ts), b.max(ts))));
        self.append(&record_header(ts, caplen, wire_len), data);
        self.cut_full(at, before, Some(row_of(d, wire_len)), jobs);
    }

    /// Begins a sub-block if the record at offset `at` is the first record of the sub-block.
    fn begin_record(&mut self, at: usize) {
        let part = sub_block_of(at as u32);
        if self.parts.first(part).is_none() {
            self.sum_to(at);
            self.parts.begin(at as u32, self.crc);
            self.keys.enter(part);
        }
    }

    fn sum_to(&mut self, len: usize) {
        self.crc = crc32c::crc32c_append(self.crc, &self.buffer[self.summed..len]);
        self.summed = len;
    }

    fn append(&mut self, header: &[u8], data: &[u8]) {
        self.buffer.extend_from_slice(header);
        self.buffer.extend_from_slice(data);
        self.written = self.written.map(|n| n + (header.len() + data.len()) as u64);
    }

    /// Sends the block to the writer if the block is full. `at` is the offset of the record that was appended last,
    /// `packet` is the ledger row that counts the packet of this record (`None` for padding), and `before` are the
    /// timestamps of the block without this record.
    fn cut_full(&mut self, at: usize, before: Stamps, packet: Option<Row>, jobs: &mut Vec<Job>) {
        let block = BLOCK as usize;
        if self.buffer.len() < block {
            return;
        }
        let beyond = (self.buffer.len() > block).then(|| Cut {
            bytes: at as u32,
            crc: crc32c::crc32c(&self.buffer[..at]),
            stamps: before.unwrap_or_default(),
            straddler: packet,
        });
        let part = self.part(block, true, beyond);
        jobs.push(Job::Write(part));
        self.buffer.drain(..block);
        self.next_block(self.number + 1);
    }

    fn next_block(&mut self, number: u32) {
        if let Some((_, last)) = self.stamps {
            self.latest = self.latest.max(last);
        }
        (self.number, self.sent, self.first_record, self.stamps) = (number, 0, None, None);
        (self.parts, self.summed, self.crc) = (SubBlocks::NONE, 0, 0);
        self.keys.clear();
        self.quality.next_block();
        self.seconds.next_block();
    }

    fn part(&mut self, len: usize, last: bool, beyond: Option<Cut>) -> Box<Part> {
        let from = self.sent & !(PAGE as usize - 1);
        self.sent = len;
        self.sum_to(len);
        let (block, crc) = (&self.buffer[..len], self.crc);
        let stamps = self.stamps.unwrap_or_default();
        let cut = beyond.unwrap_or(Cut { bytes: len as u32, crc, stamps, straddler: None });
        let news = self.seconds.report();
        let (late, mixed) = self.order.report();
        Box::new(Part {
            offset: u64::from(self.number) * BLOCK + from as u64,
            bytes: Slice::copied(&block[from..]),
            entry: Entry {
                block: self.number,
                bytes: len as u32,
                first_record: self.first_record,
                crc,
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
            release: self.release(),
        })
    }

    fn open(&mut self, pos: u64, start: Timestamp, jobs: &mut Vec<Job>) {
        self.written = Some(0);
        self.buffer.clear();
        self.next_block(0);
        self.latest = Timestamp::ZERO;
        jobs.push(Job::Open { pos, start, release: Release::default() });
    }

    fn close(&mut self, jobs: &mut Vec<Job>) {
        let Some(len) = self.written.take() else { return };
        if !self.buffer.is_empty() || self.seconds.has_content() {
            let part = self.part(self.buffer.len(), true, None);
            jobs.push(Job::Write(part));
        }
        let release = self.release();
        jobs.push(Job::Close { len, end: self.last, release });
    }
}

/// True if this segment begins at a clock boundary. Then its start time has no fraction of a second. A segment that
/// begins because of its size starts at the timestamp of a packet. In the rare case (one of 10⁹) that this timestamp is
/// a whole second, the RAW file in progress is closed at that packet: the file is shorter than usual, but valid.
const fn by_clock(start: Timestamp) -> bool {
    start.subsec_nanos() == 0
}
