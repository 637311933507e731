//! What is to be read of a packet file, by its index.

use super::file::{Blocks, FileMeta, Layout, SealedFile};
use super::index_ledger::IndexLedger;
use super::out_of_order_file::OutOfOrderFile;
use super::read_plan::{ReadPlan, SeekOffsets};
use super::unindexed::UnindexedFile;
use crate::cursor::Cursor;
use crate::disk::BLOCK;
use crate::{Origin, QueryContext, QueryError, SeekHint};
use base::Timestamp;
use filter::KeyCondition;
use index::{Content, Reader, SubBlockMask, UNKNOWN_POS};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::Hold;
use store::catalogue::Entry;
use store::names;

/// An index with its file.
pub struct Indexed {
    pub reader: Reader,
    pub file: File,
}

/// Why an index is of no use.
pub enum IndexProblem {
    /// There is none, or it cannot be believed.
    Index(String),
    /// Somebody removed it or its packets meanwhile.
    Gone,
}

/// Opens the index of a packet file, up to its summary.
pub fn begin_index(entry: &Entry) -> Result<Indexed, IndexProblem> {
    let path = entry.index.as_ref().ok_or_else(|| IndexProblem::Index("has no index".to_owned()))?;
    let file = match open_shown(path) {
        Ok((file, _)) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(IndexProblem::Gone),
        Err(e) => return Err(IndexProblem::Index(format!("has an index that cannot be opened ({e})"))),
    };
    let reader = Reader::begin(&file).map_err(useless)?;
    Ok(Indexed { reader, file })
}

fn useless(error: io::Error) -> IndexProblem {
    IndexProblem::Index(format!("has a useless index ({error})"))
}

impl Indexed {
    /// Looks whether it fits a packet file that begins then and has this size; `None` for one that still grows. What lies
    /// behind the bytes that it describes somebody else put there: it vouches for its own, block by block, all the same.
    fn fits(&self, start: Timestamp, size: Option<u64>) -> Result<(), IndexProblem> {
        let (sealed, bytes) = (self.reader.is_sealed(), self.reader.summary().bytes);
        match size {
            Some(size) if !sealed || bytes > size || bytes < size && self.reader.header().start != start => {
                Err(IndexProblem::Index(format!("has {size} bytes, and an index for {bytes}")))
            }
            _ => Ok(()),
        }
    }

    /// Reads the table of blocks and looks whether it makes sense.
    fn load(&mut self) -> Result<(), IndexProblem> {
        self.reader.load(&self.file).map_err(useless)?;
        let blocks = self.reader.blocks();
        let in_order = (0u32..).zip(blocks).all(|(number, b)| b.number == number && b.bytes as usize <= BLOCK);
        let last = blocks.len().saturating_sub(1);
        let whole = blocks.iter().take(last).all(|b| b.bytes as usize == BLOCK);
        let inside = blocks.iter().all(|b| b.first_record.is_none_or(|at| at < b.bytes));
        let bytes: u64 = blocks.iter().map(|b| u64::from(b.bytes)).sum();
        match in_order && whole && inside && bytes == self.reader.summary().bytes {
            true => Ok(()),
            false => Err(IndexProblem::Index("has an index that contradicts itself".to_owned())),
        }
    }

    /// Whether the file has packets of the interval, or anything to tell of its seconds.
    pub fn overlaps(&self, from: Timestamp, to: Timestamp) -> bool {
        let (first, last) = self.span();
        first <= to && from <= last
    }

    /// Whether the interval has all of the file.
    pub fn is_inside(&self, from: Timestamp, to: Timestamp) -> bool {
        let (first, last) = self.span();
        from <= first && last <= to
    }

    /// From its beginning to its end, which are not those of its packets: before and behind them some may have been lost.
    fn span(&self) -> (Timestamp, Timestamp) {
        let (start, summary) = (self.reader.header().start, self.reader.summary());
        let (first, last) = summary.stamps.unwrap_or((start, summary.end));
        (first.min(start), last.max(summary.end))
    }
}

/// Opens a file by its name, or, if it is hidden and gone, by the name that it gets when it is whole.
fn open_shown(path: &Path) -> io::Result<(File, PathBuf)> {
    match sys::nofollow::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let shown = shown(path).ok_or(e)?;
            Ok((sys::nofollow::open(&shown)?, shown))
        }
        other => Ok((other?, path.to_owned())),
    }
}

fn shown(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let name = name.strip_prefix('.')?.strip_suffix(names::PARTIAL)?.strip_suffix('.')?;
    Some(path.with_file_name(name))
}

/// Whether the name of a file says that it is not finished.
pub fn is_hidden(entry: &Entry) -> bool {
    shown(&entry.path).is_some()
}

/// What is asked of every file.
#[derive(Clone, Debug)]
pub struct FileQuery {
    /// The first and the last moment.
    pub interval: (Timestamp, Timestamp),
    /// What a packet must have; `None` if nothing.
    pub need: Option<KeyCondition>,
    /// Where it can be.
    pub seek: Option<SeekHint>,
}

/// How the packets of a file lie in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOrder {
    /// One after the other, as far as is known.
    InOrder,
    /// In any order: its blocks are read in that of their stamps.
    OutOfOrder,
}

/// What the index of a file says of the question: found out without the answer's book, so that it can be done ahead.
pub struct IndexProbe {
    path: PathBuf,
    size: u64,
    order: FileOrder,
    outcome: Result<(Indexed, ReadPlan), IndexProblem>,
    /// The packets, if they are wanted.
    packets: Option<io::Result<File>>,
    remarks: Vec<String>,
}

/// Asks the index of a packet file, and opens the file if there is anything to read.
///
/// # Errors
/// What the system says of the file.
pub fn probe_index(entry: &Entry, order: FileOrder, asked: &FileQuery) -> io::Result<IndexProbe> {
    let (path, size) = find(entry)?;
    let fitting = (!is_hidden(entry)).then_some(size);
    let mut remarks = Vec::new();
    let outcome = begin_index(entry).and_then(|mut indexed| {
        indexed.fits(entry.start, fitting)?;
        let plan = plan(&mut indexed, &entry.path, order, asked, &mut remarks)?;
        Ok((indexed, plan))
    });
    let packets = outcome.as_ref().is_ok_and(|(_, plan)| !plan.wanted.is_empty()).then(|| {
        // It may have got its name since it was found.
        let opened = sys::uring::open_aligned(&path).or_else(|e| match shown(&path) {
            Some(shown) if e.kind() == io::ErrorKind::NotFound => sys::uring::open_aligned(&shown),
            _ => Err(e),
        });
        opened.map(|(file, _)| file)
    });
    Ok(IndexProbe { path, size, order, outcome, packets, remarks })
}

/// Makes a cursor of a packet file of the store. `None` if nothing in it can answer, or if it is gone.
///
/// # Errors
/// When a file that is there cannot be opened.
pub fn open(
    entry: &Entry,
    scouted: io::Result<IndexProbe>,
    interface: &str,
    hold: &Arc<Hold>,
    book: &mut QueryContext,
) -> Result<Option<Box<dyn Cursor>>, QueryError> {
    let io = |error| QueryError::Io { path: entry.path.clone(), error };
    let name = entry.path.display().to_string();
    book.cost.files += 1;
    let IndexProbe { path, size, order, outcome, packets, remarks } = match scouted {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            book.damage(format!("{name}: removed while the question was being answered"));
            return Ok(None);
        }
        other => other.map_err(io)?,
    };
    book.cost.bytes += size;
    let (indexed, plan) = match outcome {
        Ok(useful) => useful,
        Err(why) => return open_without(entry, &path, interface, &why, hold, book),
    };
    let behind = if is_hidden(entry) { 0 } else { size.saturating_sub(indexed.reader.summary().bytes) };
    if behind > 0 {
        book.warning(format!(
            "{name}: {behind} bytes lie behind those that were recorded, and are no part of the answer; netgrain repair cuts \
             them off"
        ));
    }
    remarks.into_iter().for_each(|remark| book.warning(remark));
    book.cost.blocks += u64::from(indexed.reader.summary().blocks);
    book.cost.blocks_skipped_time += plan.skipped_time;
    book.cost.blocks_skipped_keys += plan.skipped_keys;
    book.cost.blocks_skipped_sub_block += plan.skipped_sub_block;
    book.cost.index_bytes_read += indexed.reader.bytes_read();
    book.cost.files_skipped += u64::from(plan.wanted.is_empty());
    let header = indexed.reader.header();
    let link_type = u16::try_from(header.link_type).unwrap_or(u16::MAX);
    let origin = book.origin(Origin {
        interface: header.interface.clone(),
        queue: header.queue,
        link_type,
        snaplen: header.snaplen,
        filter: header.filter.clone(),
        timestamp_source: header.timestamp_source.clone(),
    });
    let file = match packets {
        None => {
            // Its packets were not even opened; what was lost is told all the same.
            IndexLedger::new(origin, plan.lost_after, indexed).enter(book);
            return Ok(None);
        }
        Some(Err(e)) if e.kind() == io::ErrorKind::NotFound => {
            book.damage(format!("{name}: removed while the question was being answered"));
            return Ok(None);
        }
        Some(opened) => opened.map_err(io)?,
    };
    let named = shown(&path).unwrap_or(path);
    let layout = match named.extension().is_some_and(|ending| ending == names::PACKETS[1]) {
        true => Layout::Raw,
        false => Layout::Pcap,
    };
    let first_pos = is_of_stream(&indexed, &named).then_some(header.first_pos);
    let about = FileMeta { name: name.into(), layout, link_type, origin, first_pos };
    let file = Arc::new(file);
    if order == FileOrder::OutOfOrder {
        let first = |number: u32| indexed.reader.blocks().get(number as usize).map_or(Timestamp::ZERO, |b| b.first);
        let wanted: Vec<_> = plan.wanted.into_iter().map(|wanted| (first(wanted.number), wanted)).collect();
        let (wanted, reported) = (wanted.into_iter(), IndexLedger::new(origin, plan.lost_after, indexed));
        return Ok(Some(OutOfOrderFile::cursor(about, file, wanted, reported, hold, book)));
    }
    let reported = IndexLedger::new(origin, plan.lost_after, indexed);
    let mut file = SealedFile::new(about, Blocks::new(file, plan.wanted), Some(reported), hold);
    file.prepare(book);
    Ok(Some(Box::new(file)))
}

/// Where the file is now, and its length.
fn find(entry: &Entry) -> io::Result<(PathBuf, u64)> {
    match sys::nofollow::stat(&entry.path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let shown = shown(&entry.path).ok_or(e)?;
            let size = sys::nofollow::stat(&shown)?.len();
            Ok((shown, size))
        }
        other => Ok((entry.path.clone(), other?.len())),
    }
}

/// What to read; as little of the index is read as tells that.
fn plan(
    indexed: &mut Indexed,
    name: &Path,
    order: FileOrder,
    asked: &FileQuery,
    remarks: &mut Vec<String>,
) -> Result<ReadPlan, IndexProblem> {
    let (from, to) = asked.interval;
    let blocks = indexed.reader.summary().blocks;
    if !indexed.overlaps(from, to) {
        return Ok(ReadPlan { skipped_time: u64::from(blocks), ..ReadPlan::default() });
    }
    let sought = asked.seek.as_ref().and_then(|seek| sought(seek, indexed, name));
    if sought.as_ref().is_some_and(SeekOffsets::is_empty) && indexed.is_inside(from, to) {
        let lost_after = indexed.reader.summary().tally.lost_total();
        return Ok(ReadPlan { lost_after, skipped_sub_block: u64::from(blocks), ..ReadPlan::default() });
    }
    let unreadable = |e: io::Error| format!("{}: its index cannot be read on ({e}); netgrain verify", name.display());
    let mut spots = None;
    if let Some(need) = &asked.need {
        match indexed.reader.sub_block_mask(&indexed.file, need) {
            Ok(found) => spots = Some(found),
            Err(e) => remarks.push(unreadable(e)),
        }
    }
    if spots.as_ref().is_some_and(|s| !s.iter().any(|s| s.is_somewhere())) && indexed.is_inside(from, to) {
        let lost_after = indexed.reader.summary().tally.lost_total();
        return Ok(ReadPlan { lost_after, skipped_keys: u64::from(blocks), ..ReadPlan::default() });
    }
    indexed.load()?;
    let spot = |i: usize| {
        let keys = spots.as_ref().and_then(|s| s.get(i).copied()).unwrap_or(SubBlockMask::ANYWHERE);
        (keys, sought.as_ref().map_or(SubBlockMask::ANYWHERE, |sought| sought.sub_blocks(i)))
    };
    let mut plan = ReadPlan::of(indexed.reader.blocks(), indexed.reader.header().start, (from, to), spot);
    let mut parts = Vec::new();
    // Of blocks that are read each by itself, the parts also vouch for what ends their last records.
    let all = (order == FileOrder::OutOfOrder).then_some(0..blocks as usize);
    let pieces = all.or_else(|| plan.in_pieces()).unwrap_or(0..0);
    if !pieces.is_empty() {
        match indexed.reader.parts(&indexed.file, pieces.clone()) {
            Ok(found) => parts = found,
            Err(e) => remarks.push(unreadable(e)),
        }
    }
    plan.add_costs(indexed.reader.blocks(), pieces.start, &parts, order == FileOrder::OutOfOrder);
    Ok(plan)
}

/// Where in the file what is sought lies; `None` if that is not known of this file.
fn sought(seek: &SeekHint, indexed: &Indexed, path: &Path) -> Option<SeekOffsets> {
    let (header, bytes) = (indexed.reader.header(), indexed.reader.summary().bytes);
    let is_there = (&header.interface, header.queue) == (&seek.interface, seek.queue);
    (is_of_stream(indexed, path) && is_there).then(|| SeekOffsets::of(&seek.positions, header.first_pos, bytes))
}

/// Whether its records lie as they did in the stream of their queue, and it is known where in that it begins.
fn is_of_stream(indexed: &Indexed, path: &Path) -> bool {
    let header = indexed.reader.header();
    header.content == Content::Recorded
        && header.first_pos != UNKNOWN_POS
        && path.extension().is_some_and(|ending| ending == names::PACKETS[0])
}

/// Opens a packet file whose index is of no use.
fn open_without(
    entry: &Entry,
    path: &Path,
    interface: &str,
    why: &IndexProblem,
    hold: &Arc<Hold>,
    book: &mut QueryContext,
) -> Result<Option<Box<dyn Cursor>>, QueryError> {
    let name = entry.path.display();
    if is_hidden(entry) {
        // Behind what was written lies room that was made ahead: only an index tells the one from the other.
        book.damage(format!("{name}: was not finished and has no index that tells how far it goes; netgrain repair"));
        return Ok(None);
    }
    let why = match why {
        IndexProblem::Index(why) => why,
        IndexProblem::Gone => "has lost its index",
    };
    book.warning(format!("{name}: {why}; all of it is read"));
    let plain = UnindexedFile::open(path, interface, entry.queue, hold, book)?;
    Ok(plain.map(|p| Box::new(p) as Box<dyn Cursor>))
}
