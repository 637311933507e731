//! Builds a sealed index from the entries of all blocks. The recorder uses the builder when a packet file is complete;
//! recovery and the indexing of foreign captures use it too. So all sealed indexes have one layout.

use crate::block::Block;
use crate::bytes::{CRC, append_crc, close_stripe};
use crate::header::Layout;
use crate::key::{KINDS, KeyKind, Sets};
use crate::rows;
use crate::sealed::{self, MAX_BLOCKS, MAX_CONTEXT, SubBlockIndex, Summary};
use crate::set::{GROUP, Set, encode_group};
use crate::set_sizing::{self, Occupancy};
use crate::{Entry, Header, Rows, timestamps};
use base::{Tally, Timestamp, TimestampQuality};
use std::io::{self, Write};
use std::ops::Range;

/// The largest size of a summary without context ranges, in bytes.
const SUMMARY: usize = 512;

/// The size up to which an index may always grow, however short its packet file is.
// PERF: 10 000 files of 100 packets, one of 200 hosts in each: a query for a host that is in none of the files read
// 1600 files without a match, while their indexes were limited to 1 % of the packet file.
const PAGE: usize = 4096;

/// Number of stripes that are encoded together. A stripe contains one group of each block. The number is greater than 1
/// because a block's groups for consecutive stripes are contiguous in memory.
const TILE: usize = 16;

/// An index under construction. It holds the key sets of all blocks, which take at most 1 % of the size of the packet
/// file.
pub struct Builder {
    header: Header,
    blocks: Vec<(Block, Tally)>,
    /// The encoded sub-block data of all blocks, as in the index file.
    parts: Vec<u8>,
    /// The encoded qualities of the timestamps of all blocks, as in the index file.
    timestamps: Vec<u8>,
    /// The quality of the timestamps of all blocks together.
    quality: TimestampQuality,
    sets: Vec<Sets>,
    /// The encoded ledger rows of each block with their checksum, as in the index file; `rows_end` has the end offset
    /// of the rows of each block.
    rows: Vec<u8>,
    rows_end: Vec<usize>,
}

impl Builder {
    /// A builder without blocks for a file with this header.
    pub fn new(header: Header) -> Self {
        Self {
            header,
            blocks: Vec::new(),
            parts: Vec::new(),
            timestamps: Vec::new(),
            quality: TimestampQuality::UNKNOWN,
            sets: Vec::new(),
            rows: Vec::new(),
            rows_end: Vec::new(),
        }
    }

    /// Adds a block.
    pub fn push(&mut self, entry: Entry) {
        let tally = entry.tally();
        self.blocks.push((Block::of(&entry, &tally), tally));
        let from = self.parts.len();
        entry.sub_blocks.encode(&mut self.parts);
        append_crc(&mut self.parts, from);
        timestamps::encode(&entry.timestamps, &mut self.timestamps);
        self.quality = self.quality.and(entry.timestamps);
        let from = self.rows.len();
        rows::encode(&entry.rows, &mut self.rows);
        append_crc(&mut self.rows, from);
        self.rows_end.push(self.rows.len());
        let mut sets = entry.sets;
        let places = &mut sets.0[KeyKind::HostSubBlocks as usize];
        if entry.sub_blocks.is_unknown() && *places != Set::NONE {
            // If the offsets of the sub-blocks are unknown, a query reads the complete block, so the key set that gives
            // the sub-blocks of each host would have no use.
            *places = Set::All;
        }
        self.sets.push(sets);
    }

    /// Number of blocks.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// True if the builder has no blocks.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Writes the complete index that [`Builder::seal`] returns; the builder has no blocks afterwards.
    ///
    /// # Errors
    /// The errors of [`Builder::seal`], and the errors of writing to `out`.
    pub fn finish(
        &mut self,
        bytes: u64,
        end: Timestamp,
        context: &[Range<u64>],
        out: &mut impl Write,
    ) -> io::Result<()> {
        let builder = std::mem::replace(self, Self::new(self.header.clone()));
        builder.seal(bytes, end, context)?.try_for_each(|piece| out.write_all(&piece))
    }

    /// Returns the index in pieces. `bytes` is the length of the packet file and `end` the time at which it ended.
    /// `context` gives the byte ranges of the packet file that a query must read before the records of any block.
    ///
    /// # Errors
    /// `InvalidInput` if the packet file has more than 1 TiB.
    pub fn seal(mut self, bytes: u64, end: Timestamp, context: &[Range<u64>]) -> io::Result<Sealing> {
        if self.blocks.len() > MAX_BLOCKS || self.rows.len() > u32::MAX as usize {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a packet file of more than 1 TiB cannot be indexed; split it (netgrain convert)",
            ));
        }
        append_crc(&mut self.timestamps, 0);
        let mut summary = Summary {
            bytes,
            end,
            timestamps: self.quality,
            blocks: self.blocks.len() as u32,
            context: joined(context),
            ..Summary::default()
        };
        for (block, tally) in &self.blocks {
            summary.tally += tally;
            summary.stamps = join(summary.stamps, block);
        }
        let mut front = self.header.encode_for(Layout::Sealed);
        let groups = self.fit(bytes, front.len());
        let mut places = SubBlockIndex::default();
        let mut at = (front.len() + summary.encode(&places).len()) as u64;
        let mut place = |len: usize| {
            at += len as u64;
            at - len as u64
        };
        places.table = place(sealed::table(self.blocks.len()));
        places.parts = place(self.parts.len());
        places.timestamps = place(self.timestamps.len());
        for (groups, to) in groups.into_iter().zip(&mut places.sets) {
            *to = (place(groups * sealed::stripe(self.blocks.len())), groups as u32);
        }
        places.rows = place(self.rows.len());
        places.size = at;
        front.extend(summary.encode(&places));
        front.extend(self.table());
        front.append(&mut self.parts);
        front.append(&mut self.timestamps);
        Ok(Sealing { builder: self, groups, next: Next::Front(front) })
    }

    fn table(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(sealed::table(self.blocks.len()));
        let mut from = 0;
        for ((block, _), end) in self.blocks.iter().zip(&self.rows_end) {
            sealed::encode_block(block, (from as u32, (end - from) as u32), &mut out);
            from = *end;
        }
        append_crc(&mut out, 0);
        out
    }

    /// Chooses the number of filter groups for each key kind, and folds all key sets to at most that number.
    fn fit(&mut self, bytes: u64, header: usize) -> [usize; KINDS] {
        let mut fills: [Occupancy; KINDS] = std::array::from_fn(|kind| {
            let mut fill = Occupancy::new(KeyKind::ALL[kind], CRC);
            self.sets.iter().for_each(|sets| fill.add(&sets.0[kind]));
            fill
        });
        let (fills, maps) = fills.split_at_mut(KINDS - 2);
        // The parts of the index whose size does not depend on the chosen numbers of groups: exact bitmaps, block
        // table, sub-blocks, timestamps, ledger rows, header and summary.
        let maps = maps.len() * sealed::stripe(self.blocks.len());
        let fixed = maps
            + sealed::table(self.blocks.len())
            + self.parts.len()
            + self.timestamps.len()
            + self.rows.len()
            + header
            + SUMMARY;
        // The index of a packet file with few packets may exceed 1 % of the file. It may have 4 KiB, because any index
        // file takes a page of the volume, and it may always have one filter group for each key kind and block.
        let least = (fills.len() * sealed::stripe(self.blocks.len())).max(PAGE.saturating_sub(fixed));
        let room = (bytes as usize / 100).saturating_sub(fixed).max(least);
        set_sizing::fit(fills, room);
        for sets in &mut self.sets {
            fills.iter().zip(&mut sets.0).for_each(|(fill, set)| fill.apply(set));
        }
        std::array::from_fn(|kind| fills.get(kind).map_or(1, Occupancy::groups))
    }

    /// The encoded stripes of one kind from stripe number `first` on, at most [`TILE`]. Stripe `n` contains group `n`
    /// of every block.
    // PERF: 1000 blocks of 1000 B packets, each packet of another flow: 79 ms if stripes are encoded one by one (each
    // access to a group is a cache miss), 17 ms if [`TILE`] stripes are encoded together.
    fn tile(&self, kind: usize, first: usize, groups: usize) -> Vec<u8> {
        let stripe = sealed::stripe(self.sets.len());
        let mut out = vec![0; TILE.min(groups - first) * stripe];
        for (block, sets) in self.sets.iter().enumerate() {
            for (i, to) in out.chunks_exact_mut(stripe).enumerate() {
                to[block * GROUP..][..GROUP].copy_from_slice(&encode_group(&sets.0[kind].group(first + i, groups)));
            }
        }
        out.chunks_exact_mut(stripe).for_each(close_stripe);
        out
    }
}

/// A sealed index as an iterator of pieces, each of at most a few times 32 bytes per block. The caller writes the
/// pieces one after the other, and can do other work between two pieces.
pub struct Sealing {
    builder: Builder,
    groups: [usize; KINDS],
    next: Next,
}

enum Next {
    /// Header, summary and table.
    Front(Vec<u8>),
    /// Groups of a kind.
    Sets {
        kind: usize,
        first: usize,
    },
    Rows,
    Nothing,
}

impl Iterator for Sealing {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        match std::mem::replace(&mut self.next, Next::Nothing) {
            Next::Front(front) => {
                self.next = Next::Sets { kind: 0, first: 0 };
                Some(front)
            }
            Next::Sets { kind, first } => {
                let Some(groups) = self.groups.get(kind) else {
                    self.next = Next::Rows;
                    return self.next();
                };
                if first >= *groups {
                    self.next = Next::Sets { kind: kind + 1, first: 0 };
                    return self.next();
                }
                self.next = Next::Sets { kind, first: first + TILE };
                Some(self.builder.tile(kind, first, *groups))
            }
            Next::Rows => Some(std::mem::take(&mut self.builder.rows)),
            Next::Nothing => None,
        }
    }
}

impl Summary {
    /// The summary of a growing file.
    pub(crate) fn growing(entries: &[Entry]) -> Self {
        let mut summary = Self { blocks: entries.len() as u32, ..Self::default() };
        for entry in entries {
            let tally = entry.tally();
            summary.stamps = join(summary.stamps, &Block::of(entry, &tally));
            summary.tally += &tally;
            summary.timestamps = summary.timestamps.and(entry.timestamps);
            summary.bytes += u64::from(entry.bytes);
        }
        summary.end = summary.stamps.map_or(Timestamp::ZERO, |(_, last)| last);
        summary
    }

    /// The ledger rows of all blocks.
    pub(crate) fn rows(entries: &[Entry]) -> Rows {
        let mut rows = Rows::new();
        entries.iter().for_each(|e| rows.merge(&e.rows));
        rows
    }
}

fn join(stamps: Option<(Timestamp, Timestamp)>, block: &Block) -> Option<(Timestamp, Timestamp)> {
    match stamps {
        _ if block.packets == 0 => stamps,
        Some((first, last)) => Some((first.min(block.first), last.max(block.last))),
        None => Some((block.first, block.last)),
    }
}

/// Sorts the byte ranges and joins those that touch. If more than [`MAX_CONTEXT`] ranges would remain, the last range
/// extends to the end of all ranges.
fn joined(context: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut sorted: Vec<Range<u64>> = context.iter().filter(|r| !r.is_empty()).cloned().collect();
    sorted.sort_by_key(|r| r.start);
    let mut out: Vec<Range<u64>> = Vec::new();
    for range in sorted {
        let full = out.len() == MAX_CONTEXT;
        match out.last_mut() {
            Some(last) if range.start <= last.end || full => last.end = last.end.max(range.end),
            _ => out.push(range),
        }
    }
    out
}
