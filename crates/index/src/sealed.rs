//! The sealed index is written once, when the packet file is complete. Its layout allows a query to read only a small
//! part of the index.
//!
//! ```text
//! header | summary | table | sub-blocks | timestamps | sets, kind by kind | rows of block 0 | crc | rows of block 1
//! | crc | …
//!
//! summary "SUM5" | length u32 | bytes of the index u64 | bytes of the packet file u64 | end ns u64 | first ns u64
//!         | last ns u64 | offset of the table u64 | offset of the sub-blocks u64 | offset of the rows u64
//!         | offset of the timestamps u64 | quality of the timestamps (`timestamps.rs`) | blocks u32
//!         | 8 × (offset u64, groups u32): position of the sets of a kind | ranges of context u32
//!         | each: from u64, to u64 | tally, as the row of second 0 | crc
//! table   per block: block u32 | bytes u32 | first record u32 | crc u32 | first ns u64 | last ns u64 | packets u32
//!         | lost u64 | offset of its rows u32 | length u32; then crc
//! sub-blocks  per block: those of `sub_blocks.rs`, crc
//! timestamps  per block: the quality of its timestamps (`timestamps.rs`); then crc
//! sets    per group: the 32 bytes of that group of block 0, of block 1, …, crc. 0 groups mean "any key".
//! ```
//! All blocks have the same number of groups of a kind, so the data about one key is contiguous: one read of 32 bytes
//! per block gets the data about a key for all blocks of the file. A reader loads header and summary together; they
//! show whether the file can contain results. Each part that is read separately ends in its own CRC32C.

use crate::block::Block;
use crate::bytes::{CRC, Cursor, checked, close};
use crate::key::KINDS;
use crate::rows::{self, Rows};
use crate::set::{GROUP, MAX_GROUPS};
use crate::sub_blocks::{self, NO_RECORD};
use crate::timestamps;
use base::{Row, Tally, Timestamp, TimestampQuality};
use std::ops::Range;

const TAG: [u8; 4] = *b"SUM5";
const LENGTH_AT: usize = 4;

/// Number of bytes at the beginning of a summary that a reader needs to determine the length of the summary.
pub(crate) const HEAD: usize = 8;

/// Length in bytes of one row of the block table.
pub(crate) const TABLE_ROW: usize = 52;

/// Length in bytes of the sub-block data of one block, with its checksum.
pub(crate) const PARTS: usize = sub_blocks::ENCODED + CRC;

/// The largest number of blocks of one packet file that a reader accepts: the blocks of 1 TiB.
pub(crate) const MAX_BLOCKS: usize = 1 << 20;

/// The largest number of packets lost before one block that a reader accepts, so that the sum over all blocks does not
/// overflow.
const MAX_LOST: u64 = 1 << 40;

/// The largest number of context ranges of one packet file that a reader accepts ([`Summary::context`]).
pub(crate) const MAX_CONTEXT: usize = 4096;

/// The length in bytes of the longest summary, which has [`MAX_CONTEXT`] context ranges and the longest tally.
pub(crate) const LEN_MAX: usize = 512 + 16 * MAX_CONTEXT;

/// The summary of a packet file: length, times, number of blocks, and tally.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Number of bytes of the packet file that the index describes.
    pub bytes: u64,
    /// The time at which the file ended; for a growing file, its latest timestamp.
    pub end: Timestamp,
    /// Earliest and latest timestamp of the packets; `None` if the file has no packets.
    pub stamps: Option<(Timestamp, Timestamp)>,
    /// The quality of the timestamps of all blocks together.
    pub timestamps: TimestampQuality,
    /// Number of blocks of the packet file.
    pub blocks: u32,
    /// The sum of all ledger rows of the file.
    pub tally: Tally,
    /// Byte ranges of the packet file that a query must read before the records of any block: the headers of a foreign
    /// capture that define how records are read.
    pub context: Vec<Range<u64>>,
}

/// Size of the index and offsets of its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SubBlockIndex {
    pub size: u64,
    pub table: u64,
    pub parts: u64,
    pub rows: u64,
    pub timestamps: u64,
    pub sets: [(u64, u32); KINDS],
}

/// Length in bytes of a stripe (the 256-bit groups with the same number in the Bloom filters of all blocks), with its
/// checksum.
pub(crate) const fn stripe(blocks: usize) -> usize {
    blocks * GROUP + CRC
}

/// Length in bytes of the block table for this number of blocks, with its checksum.
pub(crate) const fn table(blocks: usize) -> usize {
    blocks * TABLE_ROW + CRC
}

/// Length in bytes of the qualities of the timestamps for this number of blocks, with their checksum.
pub(crate) const fn timestamps_length(blocks: usize) -> usize {
    blocks * timestamps::ENCODED + CRC
}

impl Summary {
    pub(crate) fn encode(&self, places: &SubBlockIndex) -> Vec<u8> {
        let mut out = TAG.to_vec();
        out.extend([0; 4]);
        let (first, last) = self.stamps.unwrap_or((Timestamp::MAX, Timestamp::ZERO));
        let (size, end) = (places.size, self.end.nanos());
        let numbers = [size, self.bytes, end, first.nanos(), last.nanos(), places.table, places.parts, places.rows];
        numbers.iter().for_each(|n| out.extend(n.to_le_bytes()));
        out.extend(places.timestamps.to_le_bytes());
        timestamps::encode(&self.timestamps, &mut out);
        out.extend(self.blocks.to_le_bytes());
        for (offset, groups) in &places.sets {
            out.extend(offset.to_le_bytes());
            out.extend(groups.to_le_bytes());
        }
        out.extend((self.context.len() as u32).to_le_bytes());
        for range in &self.context {
            out.extend(range.start.to_le_bytes());
            out.extend(range.end.to_le_bytes());
        }
        let tally: Rows = [Row { second: 0, tally: self.tally }].into_iter().collect();
        rows::encode(&tally, &mut out);
        close(out, LENGTH_AT)
    }

    pub(crate) fn length(head: &[u8]) -> Option<usize> {
        let mut head = Cursor(head);
        let length = (head.take(4)? == TAG).then(|| head.u32())?? as usize;
        (HEAD + CRC..=LEN_MAX).contains(&length).then_some(length)
    }

    /// Parses a summary from `bytes`, which must contain nothing else. `None` if the checksum is wrong or an offset is
    /// outside of the index.
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Self, SubBlockIndex)> {
        let mut part = Cursor(checked(bytes)?);
        part.take(HEAD)?;
        let mut places = SubBlockIndex { size: part.u64()?, ..SubBlockIndex::default() };
        let time = |part: &mut Cursor<'_>| Some(Timestamp::from_nanos(part.u64()?));
        let bytes = part.u64()?;
        let (end, first, last) = (time(&mut part)?, time(&mut part)?, time(&mut part)?);
        (places.table, places.parts, places.rows) = (part.u64()?, part.u64()?, part.u64()?);
        places.timestamps = part.u64()?;
        let timestamps = timestamps::decode(&mut part)?;
        let blocks = part.u32()?;
        for place in &mut places.sets {
            *place = (part.u64()?, part.u32()?);
        }
        let ranges = part.u32()? as usize;
        if blocks as usize > MAX_BLOCKS || ranges > MAX_CONTEXT || !places.fit(blocks as usize) {
            return None;
        }
        let mut context = Vec::with_capacity(ranges);
        for _ in 0..ranges {
            context.push(part.u64()?..part.u64()?);
        }
        let tally = rows::decode(part.0)?.total();
        let stamps = (first <= last).then_some((first, last));
        Some((Self { bytes, end, stamps, timestamps, blocks, tally, context }, places))
    }
}

impl SubBlockIndex {
    /// True if all parts are within the length of the index.
    fn fit(&self, blocks: usize) -> bool {
        let within = |offset: u64, len: u64| offset.checked_add(len).is_some_and(|end| end <= self.size);
        self.rows <= self.size
            && within(self.table, table(blocks) as u64)
            && within(self.parts, (blocks * PARTS) as u64)
            && within(self.timestamps, timestamps_length(blocks) as u64)
            && self.sets.iter().all(|(offset, groups)| {
                let groups = *groups as usize;
                let is_size = groups == 0 || groups.is_power_of_two() && groups <= MAX_GROUPS;
                is_size && within(*offset, (groups * stripe(blocks)) as u64)
            })
    }
}

/// Appends one row of the table: the block, and the position of its ledger rows.
pub(crate) fn encode_block(block: &Block, rows: (u32, u32), out: &mut Vec<u8>) {
    let first_record = block.first_record.unwrap_or(NO_RECORD);
    [block.number, block.bytes, first_record, block.crc].iter().for_each(|n| out.extend(n.to_le_bytes()));
    [block.first, block.last].iter().for_each(|t| out.extend(t.nanos().to_le_bytes()));
    out.extend(u32::try_from(block.packets).unwrap_or(u32::MAX).to_le_bytes());
    out.extend(block.lost.min(MAX_LOST).to_le_bytes());
    [rows.0, rows.1].iter().for_each(|n| out.extend(n.to_le_bytes()));
}

/// The qualities of the timestamps of all blocks; `None` if they are damaged.
pub(crate) fn decode_timestamps(bytes: &[u8]) -> Option<Vec<TimestampQuality>> {
    checked(bytes)?.chunks_exact(timestamps::ENCODED).map(|quality| timestamps::decode(&mut Cursor(quality))).collect()
}

/// The rows of a table, each with the byte range of the block's ledger rows, relative to the first ledger row.
pub(crate) fn decode_table(bytes: &[u8]) -> Option<Vec<(Block, Range<u64>)>> {
    let content = checked(bytes)?;
    content
        .chunks_exact(TABLE_ROW)
        .zip(0u32..)
        .map(|(row, place)| {
            let mut row = Cursor(row);
            let (number, bytes, first_record, crc) = (row.u32()?, row.u32()?, row.u32()?, row.u32()?);
            let (first, last) = (Timestamp::from_nanos(row.u64()?), Timestamp::from_nanos(row.u64()?));
            let (packets, lost) = (row.u32()?.into(), row.u64()?);
            let (offset, length) = (u64::from(row.u32()?), u64::from(row.u32()?));
            let first_record = (first_record != NO_RECORD).then_some(first_record);
            if number != place || lost > MAX_LOST {
                return None;
            }
            Some((Block { number, bytes, first_record, crc, first, last, packets, lost }, offset..offset + length))
        })
        .collect()
}
