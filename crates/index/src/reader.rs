//! Asking an index without reading all of it. Of a sealed one the header and summary are read first (a few kilobytes, which
//! is all of a small index), then what is asked for; a growing one is read whole.

use crate::bytes::checked;
use crate::header::Layout;
use crate::read::{Tail, read_header, read_parts, read_rows, read_summary, up_to};
use crate::sealed::{self, SubBlockIndex, Summary};
use crate::set::decode_groups;
use crate::set_query::SetQuery;
use crate::sub_blocks::{SubBlockMask, SubBlocks};
use crate::{Entry, Header, Index, IndexError, Rows};
use base::{Tally, Timestamp};
use filter::KeyCondition;
use std::cell::Cell;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Bytes read first.
const FIRST: usize = 8 << 10;

/// Bytes that can be read at any place.
pub trait ReadAt {
    /// How many there are.
    ///
    /// # Errors
    /// What the system says.
    fn size(&self) -> io::Result<u64>;

    /// Fills `buffer` from `offset` on; fewer bytes than asked only at the end.
    ///
    /// # Errors
    /// What the system says.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl ReadAt for File {
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match FileExt::read_at(self, &mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }
}

impl ReadAt for &[u8] {
    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|at| self.get(at..)).unwrap_or(&[]);
        let n = rest.len().min(buffer.len());
        buffer[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
}

/// One block, without its keys and its ledger rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Number of the block in the file; it begins at this many MiB.
    pub number: u32,
    /// Bytes that are on disk.
    pub bytes: u32,
    /// Offset in the block of the first record that starts in it.
    pub first_record: Option<u32>,
    /// CRC32C of those bytes.
    pub crc: u32,
    /// Earliest and latest stamp in it; meaningless without packets.
    pub first: Timestamp,
    /// See `first`.
    pub last: Timestamp,
    /// Packets that begin in it.
    pub packets: u64,
    /// Packets lost since the block before, by all causes.
    pub lost: u64,
}

impl Block {
    pub(crate) fn of(entry: &Entry, tally: &Tally) -> Self {
        Self {
            number: entry.block,
            bytes: entry.bytes,
            first_record: entry.first_record,
            crc: entry.crc,
            first: entry.first,
            last: entry.last,
            packets: tally.stored,
            lost: tally.lost.iter().fold(0, |n, l| n.saturating_add(*l)),
        }
    }
}

/// An index that is read as far as it is asked.
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
        /// What was said of the same blocks before.
        earlier: Vec<Entry>,
        /// Where words begin that cannot be believed, or the file ends.
        end: u64,
        torn: bool,
    },
    Sealed {
        /// What was read first.
        front: Vec<u8>,
        host_sub_blocks: SubBlockIndex,
        /// Where each block's rows are, once the table is read.
        rows: Vec<Range<u64>>,
    },
}

/// What was read at first, then the file; and how much of it.
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
    /// Reads what says when: header, summary, block table.
    ///
    /// # Errors
    /// What the system says, or [`IndexError`] as `InvalidData`.
    pub fn open(source: &impl ReadAt) -> io::Result<Self> {
        let mut reader = Self::begin(source)?;
        reader.load(source)?;
        Ok(reader)
    }

    /// Reads header and summary only: enough to pass over a file because of its time, and to ask for candidates. There
    /// are no [`Reader::blocks`] before [`Reader::load`], unless the index grows.
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

    /// Reads the block table, if it was not yet.
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

    /// What holds for the whole file.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// What is known of the whole file: length, stamps, counts.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Whether the packet file is whole: nothing will be added.
    pub fn is_sealed(&self) -> bool {
        matches!(self.kind, IndexState::Sealed { .. })
    }

    /// Where words begin that cannot be believed, of an index that grows: they are being written at this moment, or are
    /// damaged. If there are none, where it ended when it was read. `None` for a sealed one.
    pub fn end(&self) -> Option<u64> {
        match self.kind {
            IndexState::Growing { end, .. } => Some(end),
            IndexState::Sealed { .. } => None,
        }
    }

    /// Whether that were the only words about a block.
    pub fn is_torn(&self) -> bool {
        matches!(self.kind, IndexState::Growing { torn: true, .. })
    }

    /// What an index that grows said of its last blocks before, with fewer packets and all their rows, the newest first:
    /// whether its newest words survived a failure of the power says nothing of the packets that they are about.
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

    /// For each block, whether it may hold a packet that has what is needed. A part of the index that is damaged denies
    /// nothing.
    ///
    /// # Errors
    /// What the system says.
    pub fn candidates(&mut self, source: &impl ReadAt, need: &KeyCondition) -> io::Result<Vec<bool>> {
        Ok(self.sub_block_mask(source, need)?.into_iter().map(SubBlockMask::is_somewhere).collect())
    }

    /// For each block, in which of its parts a packet may begin that has what is needed. A part of the index that is damaged
    /// denies nothing.
    ///
    /// # Errors
    /// What the system says.
    pub fn sub_block_mask(&mut self, source: &impl ReadAt, need: &KeyCondition) -> io::Result<Vec<SubBlockMask>> {
        let plan = SetQuery::of(need);
        match &self.kind {
            IndexState::Growing { entries, .. } => Ok(entries.iter().map(|e| plan.spots(&e.sets)).collect()),
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

    /// Where the parts of these blocks begin; nothing of those of which the index is damaged.
    ///
    /// # Errors
    /// What the system says.
    pub fn parts(&mut self, source: &impl ReadAt, blocks: Range<usize>) -> io::Result<Vec<SubBlocks>> {
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

    /// The ledger rows of a block; none before [`Reader::load`].
    ///
    /// # Errors
    /// What the system says; [`IndexError`] as `InvalidData` if they are damaged.
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

/// The sets of a sealed index, of which only the groups that matter are read.
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
