//! Computes the byte ranges of a packet file that a query reads: complete blocks, or only the sub-blocks that may
//! contain matches. The computation uses only the contents of the index, and has three steps: select blocks by time,
//! keys and stream position; divide blocks with known sub-blocks into ranges; add the bytes that complete the last
//! record of each range.

use crate::disk::{BLOCK, SPARE_BYTES};
use base::{Timestamp, TimestampQuality};
use index::{Block, SUB_BLOCKS, SubBlockMask, SubBlockRange, SubBlocks, sub_block_of};
use std::ops::{Range, RangeInclusive};
use sys::uring::Aligned;

const PAGE: u64 = Aligned::ALIGN as u64;

/// A block is read in separate ranges only if these cover at most this number of its 16 sub-blocks; otherwise the
/// complete block is read.
const MAX_IN_PIECES: u64 = 11;

/// A range of bytes of a block that is read and scanned: the complete block, or some of its sub-blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockRead {
    /// Number of the block in the packet file.
    pub number: u32,
    /// The byte range in the block, with the checksums that verify it.
    pub range: SubBlockRange,
    /// Offset of the first record in the block.
    pub first_record: u32,
    /// The sub-blocks that may contain matches.
    pub sub_blocks: SubBlockMask,
    /// Number of bytes of the next block that complete the last record of this range, if the next block is not read
    /// directly after this range.
    pub tail: u32,
    /// CRC32C of the bytes of the next block that complete the last record, if known.
    pub tail_crc: Option<u32>,
    /// True if the range begins where the previous range ends, which may be within a record.
    pub follows: bool,
    /// Number of packets lost in this block and in the blocks since the previous selected block.
    pub lost: u64,
}

impl BlockRead {
    /// The byte range of the file to read, beginning at a page boundary.
    pub fn bytes(&self) -> Range<u64> {
        let block = u64::from(self.number) * BLOCK as u64;
        let from = u64::from(self.range.bytes.start) & !(PAGE - 1);
        block + from..block + u64::from(self.range.bytes.end) + u64::from(self.tail)
    }
}

/// The ranges of a file that are scanned, and the number of packets lost after the last range.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ReadPlan {
    pub wanted: Vec<BlockRead>,
    pub lost_after: u64,
    pub skipped_time: u64,
    pub skipped_keys: u64,
    pub skipped_sub_block: u64,
    /// The quality of the timestamps of the selected blocks, if it was requested.
    pub timestamps: TimestampQuality,
}

impl ReadPlan {
    /// Selects the blocks that may contain matches, of a file that begins at the time `start`. `sub_blocks` is called
    /// only for blocks that overlap the interval; it returns the sub-blocks selected by keys and by stream position.
    pub fn of(
        blocks: &[Block],
        start: Timestamp,
        (from, to): (Timestamp, Timestamp),
        sub_blocks: impl Fn(usize) -> (SubBlockMask, SubBlockMask),
    ) -> Self {
        let mut plan = Self::default();
        // True if the block overlaps the interval. A block without packets has no time range, so the value of the
        // previous block applies to it; before the first block, the value is that of the start time of the file.
        let mut inside = from <= start && start <= to;
        let mut lost = 0u64;
        for (i, block) in blocks.iter().enumerate() {
            if block.packets > 0 {
                inside = overlaps(block, from, to);
            }
            if inside {
                lost = lost.saturating_add(block.lost);
            }
            let Some(first_record) = block.first_record.filter(|_| block.packets > 0) else { continue };
            if !inside {
                plan.skipped_time += 1;
                continue;
            }
            let (keys, positions) = sub_blocks(i);
            if !positions.is_somewhere() {
                plan.skipped_sub_block += 1;
                continue;
            }
            let mask = SubBlockMask(keys.0 & positions.0);
            if !mask.is_somewhere() {
                plan.skipped_keys += 1;
                continue;
            }
            let stretch = SubBlockRange { bytes: 0..block.bytes, before: 0, after: block.crc };
            let (number, tail, tail_crc, follows) = (block.number, 0, None, false);
            plan.wanted.push(BlockRead {
                number,
                range: stretch,
                first_record,
                sub_blocks: mask,
                tail,
                tail_crc,
                follows,
                lost,
            });
            lost = 0;
        }
        plan.lost_after = lost;
        plan
    }

    /// Adds the quality of the timestamps of the selected blocks; `qualities` has that of each block of the file.
    pub fn add_timestamps(&mut self, qualities: &[TimestampQuality]) {
        // A block that is read in several ranges is selected once for each range, but its steps count once.
        let mut last = None;
        for number in self.wanted.iter().map(|wanted| wanted.number) {
            if last.replace(number) != Some(number)
                && let Some(quality) = qualities.get(number as usize)
            {
                self.timestamps = self.timestamps.and(*quality);
            }
        }
    }

    /// Numbers of the blocks whose sub-block offsets the plan needs.
    pub fn in_pieces(&self) -> Option<Range<usize>> {
        let mut wanted =
            self.wanted.iter().filter(|w| w.sub_blocks != SubBlockMask::ANYWHERE).map(|w| w.number as usize);
        let first = wanted.next()?;
        Some(first..wanted.next_back().unwrap_or(first) + 2)
    }

    /// Computes the byte ranges from the sub-block offsets in `parts`; the first element of `parts` belongs to block
    /// `first`. If `apart` is true, the blocks are read in any order, so each range includes the end of its last
    /// record.
    pub fn add_costs(&mut self, blocks: &[Block], first: usize, parts: &[SubBlocks], apart: bool) {
        let of = |number: usize| number.checked_sub(first).and_then(|i| parts.get(i)).unwrap_or(&SubBlocks::NONE);
        let mut wanted: Vec<BlockRead> = Vec::with_capacity(self.wanted.len());
        let mut lost = 0u64;
        for block in self.wanted.drain(..) {
            lost = lost.saturating_add(block.lost);
            match ranges_of(&block, of(block.number as usize)) {
                Some(pieces) => {
                    self.skipped_keys += u64::from(pieces.is_empty());
                    for stretch in pieces {
                        let lost = std::mem::take(&mut lost);
                        wanted.push(BlockRead {
                            first_record: stretch.bytes.start,
                            range: stretch,
                            lost,
                            ..block.clone()
                        });
                    }
                }
                None => wanted.push(BlockRead { lost: std::mem::take(&mut lost), ..block }),
            }
        }
        self.lost_after = self.lost_after.saturating_add(lost);
        for i in 0..wanted.len() {
            let from_start = |w: &BlockRead| w.range.bytes.start == 0;
            let number = wanted[i].number as usize;
            let at_end = blocks.get(number).is_some_and(|block| wanted[i].range.bytes.end == block.bytes);
            let follower = wanted.get(i + 1).is_some_and(|w| w.number as usize == number + 1 && from_start(w));
            if at_end && follower && !apart {
                wanted[i + 1].follows = true;
            } else if at_end && let Some(next) = blocks.get(number + 1) {
                let parts = of(number + 1);
                let (tail, crc) = match next.first_record {
                    Some(first) => (first, parts.lead().filter(|_| parts.fit(next.bytes, Some(first)))),
                    None => (next.bytes, Some(next.crc)),
                };
                wanted[i].tail = tail.min(SPARE_BYTES as u32);
                wanted[i].tail_crc = crc.filter(|_| tail <= SPARE_BYTES as u32);
            }
        }
        self.wanted = wanted;
    }
}

/// The ranges of a block that may contain matches; `None` if the offsets of the sub-blocks are unknown, or if the
/// ranges cover nearly the complete block.
fn ranges_of(block: &BlockRead, parts: &SubBlocks) -> Option<Vec<SubBlockRange>> {
    let Range { end: bytes, .. } = block.range.bytes;
    if block.sub_blocks == SubBlockMask::ANYWHERE || parts.is_unknown() || !parts.fit(bytes, Some(block.first_record)) {
        return None;
    }
    let mut out: Vec<SubBlockRange> = Vec::new();
    for part in (0..SUB_BLOCKS).filter(|part| block.sub_blocks.has(*part)) {
        // If no record begins in a sub-block, because the sub-block is in the middle of a long record, it is ignored.
        let Some(range) = parts.range_of(part..part + 1, bytes, block.range.after) else { continue };
        match out.last_mut() {
            Some(last) if last.bytes.end == range.bytes.start => {
                (last.bytes.end, last.after) = (range.bytes.end, range.after);
            }
            _ => out.push(range),
        }
    }
    let sum: u64 = out.iter().map(|s| u64::from(s.bytes.end - s.bytes.start)).sum();
    (sum * 16 <= MAX_IN_PIECES * BLOCK as u64).then_some(out)
}

fn overlaps(block: &Block, from: Timestamp, to: Timestamp) -> bool {
    block.packets > 0 && block.first <= to && from <= block.last
}

/// The requested stream positions, converted to offsets in a file.
pub struct SeekOffsets(Vec<Range<u64>>);

impl SeekOffsets {
    /// Converts stream positions to offsets in a file of `bytes` bytes that begins at stream position `first_pos`.
    pub fn of(positions: &[RangeInclusive<u64>], first_pos: u64, bytes: u64) -> Self {
        let offset = |pos: u64| pos.saturating_sub(first_pos).min(bytes);
        let ranges = positions.iter().filter(|range| *range.end() >= first_pos);
        let ranges = ranges.map(|range| offset(*range.start())..offset(range.end().saturating_add(1)));
        Self(ranges.filter(|range| !range.is_empty()).collect())
    }

    /// True if no requested position is in the file.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The sub-blocks of a block that contain these offsets.
    pub fn sub_blocks(&self, block: usize) -> SubBlockMask {
        let start = block as u64 * BLOCK as u64;
        let end = start + BLOCK as u64;
        let here = self.0.iter().filter(|range| range.start < end && start < range.end);
        here.fold(SubBlockMask::NOWHERE, |mask, range| {
            let part = |offset: u64| sub_block_of((offset.clamp(start, end - 1) - start) as u32);
            let (first, last) = (part(range.start), part(range.end - 1));
            SubBlockMask(mask.0 | SubBlockMask::ANYWHERE.0 >> (SUB_BLOCKS - 1 - (last - first)) << first)
        })
    }
}
