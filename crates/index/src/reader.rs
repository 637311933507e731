//! Reads from an index only the parts that a query needs. From a sealed index, the reader first loads header and
//! summary with one read of a few kilobytes (which covers a small index completely), then the parts that the query
//! needs. The reader reads a growing index completely.

use crate::bytes::checked;
use crate::header::Layout;
use crate::read::{read_header, read_parts, read_rows, read_summary, read_timestamps};
use crate::read_at::{ReadAt, up_to};
use crate::sealed::{self, SubBlockIndex, Summary};
use crate::set::decode_groups;
use crate::set_query::SetQuery;
use crate::sub_blocks::{SubBlockMask, SubBlocks};
use crate::{Block, Entry, Header, Index, IndexError, Rows, Tail};
use base::TimestampQuality;
use filter::KeyCondition;
use std::cell::Cell;
use std::io;
use std::ops::Range;

/// Bytes of the first read.
const FIRST: usize = 8 << 10;

/// An index that is read only as far as queries need.
pub struct Reader {
    header: Header,
    summary: Summary,
    blocks: Vec<Block>,
    kind: IndexState,
    read: u64,
}

enum IndexState {
    Growing {
        entries: Vec<Entry>,
        /// Entries that later entries of the same block replaced, the newest first.
        earlier: Vec<Entry>,
        /// Offset of the first invalid entry, or the end of the file.
        end: u64,
        torn: bool,
    },
    Sealed {
        /// The first bytes of the index, which the first read returned.
        front: Vec<u8>,
        host_sub_blocks: SubBlockIndex,
        /// The byte range of each block's ledger rows; empty until the table is read.
        rows: Vec<Range<u64>>,
    },
}

/// Returns bytes of the index from memory (`front`) if the first read of the file contained them, otherwise reads them
/// from the file; counts the bytes read from the file.
struct CountingReader<'a, R> {
    source: &'a R,
    front: &'a [u8],
    read: Cell<u64>,
}

impl<R: ReadAt> ReadAt for CountingReader<'_, R> {
    fn size(&self) -> io::Result<u64> {
        self.source.size()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let n = self.front.read_at(buffer, offset)?;
        if n == buffer.len() {
            return Ok(n);
        }
        let n = self.source.read_at(buffer, offset)?;
        self.read.set(self.read.get() + n as u64);
        Ok(n)
    }
}

impl Reader {
    /// Opens an index: reads header, summary and block table.
    ///
    /// # Errors
    /// The error of the system call, or [`IndexError`] as `InvalidData`.
    pub fn open(source: &impl ReadAt) -> io::Result<Self> {
        let mut reader = Self::begin(source)?;
        reader.load(source)?;
        Ok(reader)
    }

    /// Reads only header and summary: enough to exclude a packet file by its time range, and to find candidate blocks.
    /// [`Reader::blocks`] is empty before [`Reader::load`], unless the index is growing.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn begin(source: &impl ReadAt) -> io::Result<Self> {
        let front = up_to(source, 0, FIRST)?;
        let counted = CountingReader { source, front: &front, read: Cell::new(front.len() as u64) };
        let (header, layout, at) = read_header(&counted)?;
        if layout == Layout::Growing {
            let size = source.size()?;
            let index = Index::read(&counted)?;
            let blocks = index.entries.iter().map(|e| Block::of(e, &e.tally())).collect();
            let (summary, read) = (Summary::growing(&index.entries), counted.read.get());
            let Tail::Open { broken, torn, earlier, .. } = index.tail else {
                return Err(IndexError::Damaged { part: "end" }.into());
            };
            let kind = IndexState::Growing { entries: index.entries, earlier, end: broken.unwrap_or(size), torn };
            return Ok(Self { header, summary, blocks, kind, read });
        }
        let (summary, places) = read_summary(&counted, at)?;
        let read = counted.read.get();
        Ok(Self {
            header,
            summary,
            blocks: Vec::new(),
            kind: IndexState::Sealed { front, host_sub_blocks: places, rows: Vec::new() },
            read,
        })
    }

    /// Reads the block table if it is not in memory yet.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn load(&mut self, source: &impl ReadAt) -> io::Result<()> {
        let count = self.summary.blocks as usize;
        let IndexState::Sealed { front, host_sub_blocks: places, rows } = &mut self.kind else { return Ok(()) };
        if self.blocks.len() == count {
            return Ok(());
        }
        let counted = CountingReader { source, front, read: Cell::new(0) };
        let table = up_to(&counted, places.table, sealed::table(count));
        self.read += counted.read.get();
        let table = sealed::decode_table(&table?).ok_or(IndexError::Damaged { part: "table" })?;
        (self.blocks, *rows) = table.into_iter().unzip();
        Ok(())
    }

    /// The header of the index.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The summary of the packet file: length, timestamps, counts.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// True if the index is sealed: the packet file is complete, and no packets will be added.
    pub fn is_sealed(&self) -> bool {
        matches!(self.kind, IndexState::Sealed { .. })
    }

    /// For a growing index, the offset of its first invalid entry: this entry is being written at this moment, or is
    /// damaged. If no entry is invalid, the length that the index had when it was read. `None` for a sealed index.
    pub fn end(&self) -> Option<u64> {
        match self.kind {
            IndexState::Growing { end, .. } => Some(end),
            IndexState::Sealed { .. } => None,
        }
    }

    /// True if an entry of the growing index is torn and was the only entry of its block.
    pub fn is_torn(&self) -> bool {
        matches!(self.kind, IndexState::Growing { torn: true, .. })
    }

    /// For the last blocks of a growing index: the entries that later entries of the same block replaced, the newest
    /// first. They describe fewer packets of their block, and have all ledger rows of these packets. A caller needs
    /// them after a power failure: the newest entry may be on disk while the packets that it describes are not.
    pub fn earlier(&self) -> &[Entry] {
        match &self.kind {
            IndexState::Growing { earlier, .. } => earlier,
            IndexState::Sealed { .. } => &[],
        }
    }

    /// The blocks, in order.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// For each block: true if it may contain a packet that satisfies the key condition. A damaged part of the index
    /// excludes no block.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn candidates(&mut self, source: &impl ReadAt, need: &KeyCondition) -> io::Result<Vec<bool>> {
        Ok(self.sub_block_mask(source, need)?.into_iter().map(SubBlockMask::is_somewhere).collect())
    }

    /// For each block, the sub-blocks in which a packet that satisfies the key condition may begin. A damaged part of
    /// the index excludes no sub-block.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn sub_block_mask(&mut self, source: &impl ReadAt, need: &KeyCondition) -> io::Result<Vec<SubBlockMask>> {
        let plan = SetQuery::of(need);
        match &self.kind {
            IndexState::Growing { entries, .. } => Ok(entries.iter().map(|e| plan.sub_block_mask(&e.sets)).collect()),
            IndexState::Sealed { front, host_sub_blocks: places, .. } => {
                let source = CountingReader { source, front, read: Cell::new(0) };
                let mut stripes =
                    Stripes { source: &source, host_sub_blocks: places, blocks: self.summary.blocks as usize };
                let answer = stripes.read_groups(&plan);
                self.read += source.read.get();
                answer
            }
        }
    }

    /// The sub-blocks of these blocks with the offsets of their first records; if the index is damaged there, offsets
    /// and checksums are unknown.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn sub_blocks(&mut self, source: &impl ReadAt, blocks: Range<usize>) -> io::Result<Vec<SubBlocks>> {
        let blocks = blocks.start.min(blocks.end)..blocks.end.min(self.summary.blocks as usize);
        match &self.kind {
            IndexState::Growing { entries, .. } => Ok(entries[blocks].iter().map(|e| e.sub_blocks).collect()),
            IndexState::Sealed { front, host_sub_blocks: places, .. } => {
                let source = CountingReader { source, front, read: Cell::new(0) };
                let parts = read_parts(&source, places, blocks);
                self.read += source.read.get();
                Ok(parts?.into_iter().map(Option::unwrap_or_default).collect())
            }
        }
    }

    /// The quality of the timestamps of each block.
    ///
    /// # Errors
    /// The error of the system call; [`IndexError`] as `InvalidData` if this part of the index is damaged.
    pub fn timestamps(&mut self, source: &impl ReadAt) -> io::Result<Vec<TimestampQuality>> {
        match &self.kind {
            IndexState::Growing { entries, .. } => Ok(entries.iter().map(|e| e.timestamps).collect()),
            IndexState::Sealed { front, host_sub_blocks: places, .. } => {
                let source = CountingReader { source, front, read: Cell::new(0) };
                let qualities = read_timestamps(&source, places, self.summary.blocks as usize);
                self.read += source.read.get();
                qualities
            }
        }
    }

    /// The ledger rows of a block; empty before [`Reader::load`].
    ///
    /// # Errors
    /// The error of the system call; [`IndexError`] as `InvalidData` if the rows are damaged.
    pub fn rows(&mut self, source: &impl ReadAt, block: usize) -> io::Result<Rows> {
        match &self.kind {
            IndexState::Growing { entries, .. } => Ok(entries.get(block).map(|e| e.rows.clone()).unwrap_or_default()),
            IndexState::Sealed { front, host_sub_blocks: places, rows } => {
                let Some(at) = rows.get(block) else { return Ok(Rows::new()) };
                let source = CountingReader { source, front, read: Cell::new(0) };
                let rows = read_rows(&source, places, at.clone());
                self.read += source.read.get();
                rows
            }
        }
    }

    /// Bytes of the index read so far.
    pub fn bytes_read(&self) -> u64 {
        self.read
    }
}

/// The key sets of a sealed index, read only for the groups that the query needs.
struct Stripes<'a, R> {
    source: &'a R,
    host_sub_blocks: &'a SubBlockIndex,
    blocks: usize,
}

impl<R: ReadAt> Stripes<'_, R> {
    fn read_groups(&mut self, plan: &SetQuery) -> io::Result<Vec<SubBlockMask>> {
        match plan {
            SetQuery::Anything => Ok(vec![SubBlockMask::ANYWHERE; self.blocks]),
            SetQuery::Key(kind, _) | SetQuery::Map(kind, _) => {
                let (offset, groups) = self.host_sub_blocks.sets[*kind as usize];
                if groups == 0 {
                    return Ok(vec![SubBlockMask::ANYWHERE; self.blocks]);
                }
                let length = sealed::stripe(self.blocks);
                let at = offset + (plan.group(groups as usize) * length) as u64;
                let stripe = up_to(self.source, at, length)?;
                let Some(stripe) = checked(&stripe) else { return Ok(vec![SubBlockMask::ANYWHERE; self.blocks]) };
                Ok(decode_groups(stripe).map(|group| plan.of_group(&group)).collect())
            }
            SetQuery::All(parts) => {
                let mut answer = vec![SubBlockMask::ANYWHERE; self.blocks];
                for part in parts {
                    if !answer.iter().any(|spots| spots.is_somewhere()) {
                        break;
                    }
                    let more = self.read_groups(part)?;
                    answer.iter_mut().zip(more).for_each(|(a, b)| a.0 &= b.0);
                }
                Ok(answer)
            }
            SetQuery::Any(parts) => {
                let mut answer = vec![SubBlockMask::NOWHERE; self.blocks];
                for part in parts {
                    if answer.iter().all(|spots| *spots == SubBlockMask::ANYWHERE) {
                        break;
                    }
                    let more = self.read_groups(part)?;
                    answer.iter_mut().zip(more).for_each(|(a, b)| a.0 |= b.0);
                }
                Ok(answer)
            }
        }
    }
}
