//! The index machine: walks descriptors, cuts the stream into blocks of 1 MiB, and says what is to be written.
//!
//! A record belongs to the block in which it starts. Every tick, what a block has so far is sent ahead, so that a packet
//! is on disk within a second of its arrival however slow the traffic; the block's entry is then final only when the
//! block is. Ticks that come together (the replay of a slow capture) are answered once, behind the last of them. The machine
//! never waits and asks no clock: time comes in the stream.

mod block;
mod job;
mod order;
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

/// The stream is not what the producer promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokenStream {
    /// A record does not begin where the one before ended.
    Position {
        /// Where it should.
        expected: u64,
        /// Where it does.
        found: u64,
    },
    /// A segment does not begin at a multiple of a block, or before the end of the one before.
    Segment {
        /// Where it begins.
        pos: u64,
        /// Where the one before is said to have ended.
        end: u64,
    },
}

impl fmt::Display for BrokenStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Position { expected, found } => write!(
                f,
                "the packet stream jumps from position {expected} to {found}: a bug in the producer; \
                 the file is closed at the last whole packet"
            ),
            Self::Segment { pos, end } => write!(
                f,
                "a segment at position {pos}, the one before ended at {end}: a bug in the producer; \
                 the file is closed at the last whole packet"
            ),
        }
    }
}

impl std::error::Error for BrokenStream {}

/// The machine.
pub struct Cutter {
    memory: Arc<dyn Bytes>,
    block: Block,
    /// The open segment's first position.
    segment: Option<u64>,
    /// Where the next record begins.
    next: u64,
    /// Descriptors seen.
    seen: u64,
    last: Timestamp,
    /// A tick came, and what the block has was not sent since.
    ticked: bool,
}

impl Cutter {
    /// A machine over this memory, before the first segment.
    pub fn new(memory: Arc<dyn Bytes>) -> Self {
        Self { memory, block: Block::default(), segment: None, next: 0, seen: 0, last: Timestamp::ZERO, ticked: false }
    }

    /// Walks descriptors and appends what is to be done. Returns true when the stream has ended.
    ///
    /// # Errors
    /// [`BrokenStream`]; what came before is in `jobs`, and [`Cutter::finish`] closes the file.
    pub fn read_descriptors(&mut self, descriptors: &[Desc], jobs: &mut Vec<Job>) -> Result<bool, BrokenStream> {
        // One borrow of the memory for the whole batch: a virtual call per packet is cheap, a counted reference is not.
        let memory = Arc::clone(&self.memory);
        for d in descriptors {
            if d.is_packet() {
                if d.pos != self.next || self.segment.is_none() {
                    return Err(BrokenStream::Position { expected: self.next, found: d.pos });
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

    /// The stream ends without having said so: closes what is open.
    pub fn finish(&mut self, jobs: &mut Vec<Job>) {
        self.close(self.next, jobs);
        jobs.push(Job::End);
    }

    fn control(&mut self, d: &Desc, jobs: &mut Vec<Job>) -> Result<bool, BrokenStream> {
        let second = d.timestamp().secs();
        // A kind that this version does not know says nothing about packets, by the ring's contract.
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
        // What was counted before the boundary belongs to the old file; the boundary itself may be after it in time.
        self.close(self.next, jobs);
        self.segment = Some(pos);
        self.next = pos + FILE_HEADER as u64;
        self.block.begin_segment(pos, &*self.memory);
        self.last = ts;
        jobs.push(Job::Open { pos, start: ts, release: Release { pos, descriptors: self.seen } });
        Ok(())
    }

    /// The block is full.
    fn cut(&mut self, jobs: &mut Vec<Job>) {
        let release = Release { pos: self.block.limit(), descriptors: self.seen };
        jobs.push(Job::Write(self.block.whole(&self.memory, release)));
    }

    /// Sends ahead what the block has so far.
    fn flush(&mut self, jobs: &mut Vec<Job>) {
        if self.segment.is_none() {
            return;
        }
        if self.block.has_unreported(self.next) {
            jobs.push(Job::Write(self.block.so_far(self.next, false, &self.memory, self.seen)));
        } else {
            jobs.push(Job::Release(Release { pos: self.block.sent(), descriptors: self.seen }));
        }
    }

    fn close(&mut self, end: u64, jobs: &mut Vec<Job>) {
        let Some(first) = self.segment.take() else { return };
        self.last = self.last.max(self.block.last());
        if self.block.has_anything(end) {
            jobs.push(Job::Write(self.block.so_far(end, true, &self.memory, self.seen)));
        }
        jobs.push(Job::Close {
            len: end - first,
            end: self.last,
            release: Release { pos: end, descriptors: self.seen },
        });
    }
}
