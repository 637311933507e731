//! Reads a complete index. The code checks every length and checksum before it uses a number.

use crate::bytes::{CRC, Cursor};
use crate::growing;
use crate::header::{self, Header, Layout};
use crate::key::{KINDS, Sets};
use crate::read_at::{ReadAt, up_to};
use crate::rows::{self, ReadLimits, Rows};
use crate::sealed::{self, SubBlockIndex, Summary};
use crate::set::{Set, decode_groups};
use crate::set_query::SetQuery;
use crate::sub_blocks::{SubBlockMask, SubBlocks};
use crate::{Entry, Footer, Index, IndexError, Tail, bytes};
use base::TimestampQuality;
use filter::KeyCondition;
use std::io;
use std::ops::Range;

impl Index {
    /// Reads an index: sealed, growing, or truncated while it grew.
    ///
    /// # Errors
    /// If the header is invalid, a part of a sealed index is damaged, or its parts contradict each other.
    pub fn parse(bytes: &[u8]) -> Result<Self, IndexError> {
        // A read from a slice cannot fail, so an error without an [`IndexError`] means that the slice ends too early.
        Self::read(&bytes).map_err(|e| e.downcast().unwrap_or(IndexError::Damaged { part: "end" }))
    }

    /// Reads an index as [`Index::parse`] does, from a file or memory.
    ///
    /// # Errors
    /// The error of the system call; an [`IndexError`] as `InvalidData`.
    pub fn read(source: &impl ReadAt) -> io::Result<Self> {
        let (header, layout, at) = read_header(source)?;
        match layout {
            Layout::Growing => growing::read(source, header, at),
            Layout::Sealed => sealed(source, header, at),
        }
    }

    /// Numbers of the blocks that may contain a packet that satisfies the key condition.
    pub fn candidates(&self, need: &KeyCondition) -> impl Iterator<Item = u32> + '_ {
        let plan = SetQuery::of(need);
        self.entries.iter().filter(move |e| plan.sub_block_mask(&e.sets).is_somewhere()).map(|e| e.block)
    }
}

impl Sets {
    /// True if the block may contain a packet that satisfies the key condition.
    pub fn admit(&self, need: &KeyCondition) -> bool {
        self.sub_block_mask(need).is_somewhere()
    }

    /// The sub-blocks in which a packet that satisfies the key condition may begin.
    pub fn sub_block_mask(&self, need: &KeyCondition) -> SubBlockMask {
        SetQuery::of(need).sub_block_mask(self)
    }
}

/// The header, and the offset of its end.
pub(crate) fn read_header(source: &impl ReadAt) -> io::Result<(Header, Layout, usize)> {
    let mut bytes = up_to(source, 0, 1024)?;
    let length = Header::length(&bytes)?;
    if length > bytes.len() {
        bytes = up_to(source, 0, length)?;
    }
    let (header, layout) = Header::parse(bytes.get(..length).ok_or(IndexError::Header)?)?;
    debug_assert!(length <= header::LEN_MAX);
    Ok((header, layout, length))
}

/// Reads the summary that begins at offset `at`.
pub(crate) fn read_summary(source: &impl ReadAt, at: usize) -> io::Result<(Summary, SubBlockIndex)> {
    let damaged = IndexError::Damaged { part: "summary" };
    let head = up_to(source, at as u64, sealed::HEAD)?;
    let length = Summary::length(&head).ok_or(damaged)?;
    let (summary, places) = Summary::parse(&up_to(source, at as u64, length)?).ok_or(damaged)?;
    // An index whose length differs from the length in its summary is incomplete, even if all its parts are valid.
    if source.size()? != places.size {
        return Err(IndexError::Damaged { part: "end" }.into());
    }
    Ok((summary, places))
}

fn sealed(source: &impl ReadAt, header: Header, at: usize) -> io::Result<Index> {
    let damaged = |part| IndexError::Damaged { part };
    let (summary, places) = read_summary(source, at)?;
    let blocks = summary.blocks as usize;
    let table = up_to(source, places.table, sealed::table(blocks))?;
    let table = sealed::decode_table(&table).ok_or(damaged("table"))?;
    let mut sets = vec![Sets::ALL; blocks];
    for (kind, (offset, groups)) in places.sets.into_iter().enumerate() {
        if groups == 0 {
            continue;
        }
        // Memory is allocated stripe by stripe. If the number of groups is forged, the loop ends at the first wrong
        // checksum, before the memory for all these groups is allocated.
        sets.iter_mut().for_each(|s| s.0[kind] = Set::NONE);
        for i in 0..u64::from(groups) {
            let length = sealed::stripe(blocks);
            let stripe = up_to(source, offset + i * length as u64, length)?;
            let stripe = bytes::checked(&stripe).ok_or(damaged("key sets"))?;
            for (group, sets) in decode_groups(stripe).zip(&mut sets) {
                if let Set::Groups(groups) = &mut sets.0[kind] {
                    groups.push(group);
                }
            }
        }
    }
    let mut entries = Vec::with_capacity(blocks);
    let mut sums = ReadLimits::new();
    let parts = read_parts(source, &places, 0..blocks)?;
    let qualities = read_timestamps(source, &places, blocks)?;
    for ((((block, rows), sets), parts), timestamps) in table.into_iter().zip(sets).zip(parts).zip(qualities) {
        let parts = parts.ok_or(damaged("sub-blocks"))?;
        let rows = read_rows(source, &places, rows)?;
        if !sums.add(&rows) {
            return Err(damaged("ledger rows").into());
        }
        let sets = empty_as_none(sets);
        let (number, first_record) = (block.number, block.first_record);
        let entry = Entry {
            block: number,
            bytes: block.bytes,
            first_record,
            crc: block.crc,
            sub_blocks: parts,
            first: block.first,
            last: block.last,
            timestamps,
            rows,
            sets,
        };
        entries.push(entry);
    }
    checked(header, entries, summary)
}

/// Replaces each set in which no bit is set by the empty set.
fn empty_as_none(mut sets: Sets) -> Sets {
    for set in &mut sets.0 {
        if matches!(&*set, Set::Groups(groups) if groups.iter().all(|g| *g == [0; 4])) {
            *set = Set::NONE;
        }
    }
    sets
}

/// The sub-blocks of these blocks; `None` for blocks whose sub-block data is damaged.
pub(crate) fn read_parts(
    source: &impl ReadAt,
    places: &SubBlockIndex,
    blocks: Range<usize>,
) -> io::Result<Vec<Option<SubBlocks>>> {
    let from = places.parts + (blocks.start * sealed::PARTS) as u64;
    let bytes = up_to(source, from, blocks.len() * sealed::PARTS)?;
    let parts = |bytes: &[u8]| SubBlocks::decode(&mut Cursor(bytes::checked(bytes)?));
    let mut out: Vec<Option<SubBlocks>> = bytes.chunks(sealed::PARTS).map(parts).collect();
    out.resize(blocks.len(), None);
    Ok(out)
}

/// Reads the qualities of the timestamps of all blocks.
pub(crate) fn read_timestamps(
    source: &impl ReadAt,
    places: &SubBlockIndex,
    blocks: usize,
) -> io::Result<Vec<TimestampQuality>> {
    let bytes = up_to(source, places.timestamps, sealed::timestamps_length(blocks))?;
    Ok(sealed::decode_timestamps(&bytes).ok_or(IndexError::Damaged { part: "timestamps" })?)
}

/// Reads the ledger rows of a block from this byte range, which is relative to the first ledger row.
pub(crate) fn read_rows(source: &impl ReadAt, places: &SubBlockIndex, at: Range<u64>) -> io::Result<Rows> {
    let damaged = IndexError::Damaged { part: "ledger rows" };
    let length = (at.end - at.start) as usize;
    let from = places.rows.checked_add(at.start).ok_or(damaged)?;
    if length < CRC || from + length as u64 > places.size {
        return Err(damaged.into());
    }
    let bytes = up_to(source, from, length)?;
    Ok(bytes::checked(&bytes).and_then(rows::decode).ok_or(damaged)?)
}

fn checked(header: Header, entries: Vec<Entry>, summary: Summary) -> io::Result<Index> {
    let check = |what, summary: u64, blocks: u64| {
        if summary == blocks { Ok(()) } else { Err(IndexError::Contradiction { what, summary, blocks }) }
    };
    check("bytes", summary.bytes, entries.iter().map(|e| u64::from(e.bytes)).sum())?;
    check("packets stored", summary.tally.stored, entries.iter().map(|e| e.tally().stored).sum())?;
    let quality = entries.iter().fold(TimestampQuality::UNKNOWN, |sum, e| sum.and(e.timestamps));
    if quality != summary.timestamps {
        return Err(IndexError::Damaged { part: "timestamps" }.into());
    }
    let footer = Footer {
        bytes: summary.bytes,
        end: summary.end,
        entries: summary.blocks,
        rows: Summary::rows(&entries),
        context: summary.context,
    };
    Ok(Index { header, entries, tail: Tail::Complete(footer) })
}

const _: () = assert!(KINDS == 8, "the layout in the documentation of sealed.rs and entry.rs has eight key kinds");
