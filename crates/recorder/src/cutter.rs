//! The cutter: reads descriptors, divides the stream into blocks of 1 MiB, indexes them, and creates the jobs for the
//! writer.
//!
//! A record belongs to the block in which it starts. At every tick the cutter sends the bytes that the current block
//! has so far to the writer, so a packet is on disk within a second of its arrival even at a low packet rate. The index
//! entry of the block is final only when the block is complete. If one batch of descriptors contains several ticks (as
//! in a replay of a slow capture), the cutter sends these bytes only once, after the batch. The cutter never waits and
//! reads no clock: it takes the time from the descriptors.

mod block;
mod job;
mod order;
mod quality;
mod raw;
mod seconds;

pub use job::{Cut, Job, Part, Release};
pub use order::OutOfOrderCounts;
pub use raw::RawCutter;

use base::{Tally, Timestamp};
use block::Block;
use ring::{BLOCK, Control, Desc, FILE_HEADER};
use std::fmt;
use std::sync::Arc;
use store::bytes::Bytes;

/// A contradiction in the descriptor stream, caused by a bug in the producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokenStream {
    /// A record does not begin where the previous record ended.
    Position {
        /// End of the previous record, as a stream position.
        expected: u64,
        /// Begin of the record that the descriptor describes, as a stream position.
        found: u64,
    },
    /// A segment does not begin at a multiple of the block size, or the gap before the segment does not start at the
    /// end of the previous record.
    Segment {
        /// Begin of the new segment, as a stream position.
        pos: u64,
        /// End of the previous segment according to the descriptor of the new segment, as a stream position.
        end: u64,
    },
}

impl fmt::Display for BrokenStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Position { expected, found } => write!(
                f,
                "the packet stream jumps from position {expected} to {found} because of a bug in netgrain; \
                 the file ends at the last complete packet"
            ),
            Self::Segment { pos, end } => write!(
                f,
                "a segment begins at position {pos}, the previous segment ended at {end}: a bug in netgrain; \
                 the file ends at the last complete packet"
            ),
        }
    }
}

impl std::error::Error for BrokenStream {}

/// The cutter for pcap files.
pub struct Cutter {
    memory: Arc<dyn Bytes>,
    block: Block,
    /// First stream position of the open segment.
    segment: Option<u64>,
    /// Stream position at which the next record begins.
    next: u64,
    /// Number of descriptors processed.
    seen: u64,
    last: Timestamp,
    /// True if a tick was processed after the last job for the block.
    ticked: bool,
}

impl Cutter {
    /// A new cutter for the stream in this memory. Its first descriptor must begin a segment.
    pub fn new(memory: Arc<dyn Bytes>) -> Self {
        Self { memory, block: Block::default(), segment: None, next: 0, seen: 0, last: Timestamp::ZERO, ticked: false }
    }

    /// Processes descriptors and appends the resulting jobs. Returns true when the stream has ended.
    ///
    /// # Errors
    /// [`BrokenStream`]; the jobs for the descriptors before the error are in `jobs`, and [`Cutter::finish`] closes the
    /// file.
    pub fn read_descriptors(&mut self, descriptors: &[Desc], jobs: &mut Vec<Job>) -> Result<bool, BrokenStream> {
        // The `Arc` is cloned once per batch: the virtual call per packet is cheap, but a change of an atomic reference
        // count per packet would not be.
        let memory = Arc::clone(&self.memory);
        for d in descriptors {
            if d.is_packet() {
                if d.pos() != self.next || self.segment.is_none() {
                    return Err(BrokenStream::Position { expected: self.next, found: d.pos() });
                }
                self.seen += 1;
                self.next = d.end();
                if self.block.packet(d, &*memory) {
                    self.cut(jobs);
                }
            } else {
                self.seen += 1;
                self.last = self.last.max(d.timestamp());
                if self.control(d, jobs)? {
                    return Ok(true);
                }
            }
        }
        if std::mem::take(&mut self.ticked) {
            self.flush(jobs);
        }
        Ok(false)
    }

    /// Closes the open segment when the stream ends without an end descriptor.
    pub fn finish(&mut self, jobs: &mut Vec<Job>) {
        self.close(self.next, jobs);
        jobs.push(Job::End);
    }

    fn control(&mut self, d: &Desc, jobs: &mut Vec<Job>) -> Result<bool, BrokenStream> {
        let second = d.timestamp().secs();
        // A control descriptor of an unknown kind is skipped: the specification of the ring guarantees that it does not
        // concern packets.
        let Some(control) = d.as_control() else { return Ok(false) };
        match control {
            Control::Segment { pos, gap } => self.open(pos, gap, d.timestamp(), jobs)?,
            Control::Lost { cause, packets, .. } => {
                let mut tally = Tally::default();
                tally.add_lost(cause, packets);
                self.block.count(second, &tally);
            }
            Control::Filtered { packets } => {
                self.block.count(second, &Tally { offered: packets, filtered: packets, ..Tally::default() });
            }
            Control::Duplicate { packets } => {
                self.block.count(second, &Tally { offered: packets, duplicate: packets, ..Tally::default() });
            }
            Control::Timestamps { deviation_nanos, clock } => self.block.report_timestamps(deviation_nanos, clock),
            Control::ClockStep { steps, nanos } => self.block.clock_step(second, steps, nanos),
            Control::Tick => {
                self.block.count(second, &Tally::default());
                self.ticked = true;
            }
            Control::End => {
                self.finish(jobs);
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn open(&mut self, pos: u64, gap: u32, ts: Timestamp, jobs: &mut Vec<Job>) -> Result<(), BrokenStream> {
        let end = pos.wrapping_sub(u64::from(gap));
        let follows = self.segment.is_none() || (end == self.next && u64::from(gap) <= BLOCK);
        if !pos.is_multiple_of(BLOCK) || !follows {
            return Err(BrokenStream::Segment { pos, end });
        }
        // Losses and filtered packets that were counted before the segment boundary belong to the old file, although
        // the boundary may have a later timestamp.
        self.close(self.next, jobs);
        self.segment = Some(pos);
        self.next = pos + FILE_HEADER as u64;
        self.block.begin_segment(pos, &*self.memory);
        self.last = ts;
        jobs.push(Job::Open { pos, start: ts, release: Release { pos, descriptors: self.seen } });
        Ok(())
    }

    /// Sends the full block.
    fn cut(&mut self, jobs: &mut Vec<Job>) {
        let release = Release { pos: self.block.limit(), descriptors: self.seen };
        jobs.push(Job::Write(self.block.full_block(&self.memory, release)));
    }

    /// Sends the bytes and ledger rows that were added to the block since the last job.
    fn flush(&mut self, jobs: &mut Vec<Job>) {
        if self.segment.is_none() {
            return;
        }
        if self.block.has_unreported(self.next) {
            jobs.push(Job::Write(self.block.partial_block(self.next, false, &self.memory, self.seen)));
        } else {
            jobs.push(Job::Release(Release { pos: self.block.sent(), descriptors: self.seen }));
        }
    }

    fn close(&mut self, end: u64, jobs: &mut Vec<Job>) {
        let Some(first) = self.segment.take() else { return };
        self.last = self.last.max(self.block.last());
        if self.block.has_content(end) {
            jobs.push(Job::Write(self.block.partial_block(end, true, &self.memory, self.seen)));
        }
        jobs.push(Job::Close {
            len: end - first,
            end: self.last,
            release: Release { pos: end, descriptors: self.seen },
        });
    }
}
