//! Plans which parts of a packet file a query reads, from the index of the file.

use super::file::{Blocks, FileMeta, Layout, SealedFile};
use super::index_ledger::IndexLedger;
use super::indexed::{IndexProblem, Indexed, begin_index, is_hidden, shown};
use super::out_of_order_file::OutOfOrderFile;
use super::read_plan::{ReadPlan, SeekOffsets};
use super::unindexed::UnindexedFile;
use crate::cursor::Cursor;
use crate::{Origin, QueryContext, QueryError, SeekHint};
use base::Timestamp;
use filter::KeyCondition;
use index::{Content, SubBlockMask, UNKNOWN_POS};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::Hold;
use store::catalogue::Entry;
use store::names;

/// The conditions of the query, which are equal for all files.
#[derive(Clone, Debug)]
pub struct FileQuery {
    /// First and last timestamp of the interval.
    pub interval: (Timestamp, Timestamp),
    /// The condition on keys; `None` without a condition.
    pub need: Option<KeyCondition>,
    /// Stream positions of the matching packets, if known.
    pub seek: Option<SeekHint>,
    /// True if the quality of the timestamps of the selected blocks is read.
    pub with_timestamp_quality: bool,
}

/// The order of the packets in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOrder {
    /// The packets are in order of time, as far as the out-of-order marker and the index show.
    InOrder,
    /// The packets are out of order, so the blocks are read in the order of their timestamps.
    OutOfOrder,
}

/// The evaluation of the index of one file. It is computed without the query context, so that another thread can
/// compute it in advance.
pub struct IndexProbe {
    path: PathBuf,
    size: u64,
    order: FileOrder,
    outcome: Result<(Indexed, ReadPlan), IndexProblem>,
    /// The open packet file, if it must be read.
    packets: Option<io::Result<File>>,
    remarks: Vec<String>,
}

/// Evaluates the index of a packet file, and opens the file if it must be read.
///
/// # Errors
/// If the index or the packet file cannot be opened or read.
pub fn probe_index(entry: &Entry, order: FileOrder, query: &FileQuery) -> io::Result<IndexProbe> {
    let (path, size) = find(entry)?;
    let fitting = (!is_hidden(entry)).then_some(size);
    let mut remarks = Vec::new();
    let outcome = begin_index(entry).and_then(|mut indexed| {
        indexed.fits(entry.start, fitting)?;
        let plan = plan(&mut indexed, &entry.path, order, query, &mut remarks)?;
        Ok((indexed, plan))
    });
    let packets = outcome.as_ref().is_ok_and(|(_, plan)| !plan.wanted.is_empty()).then(|| {
        // The file may have been renamed to its published name since the listing.
        let opened = sys::uring::open_aligned(&path).or_else(|e| match shown(&path) {
            Some(shown) if e.kind() == io::ErrorKind::NotFound => sys::uring::open_aligned(&shown),
            _ => Err(e),
        });
        opened.map(|(file, _)| file)
    });
    Ok(IndexProbe { path, size, order, outcome, packets, remarks })
}

/// Creates a cursor over a packet file of the store; `None` if the file contains no match or was removed.
///
/// # Errors
/// If an existing file cannot be opened.
pub fn open(
    entry: &Entry,
    probed: io::Result<IndexProbe>,
    interface: &str,
    hold: &Arc<Hold>,
    context: &mut QueryContext,
) -> Result<Option<Box<dyn Cursor>>, QueryError> {
    let io = |error| QueryError::Io { path: entry.path.clone(), error };
    let name = entry.path.display().to_string();
    context.cost.files += 1;
    let IndexProbe { path, size, order, outcome, packets, remarks } = match probed {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            context.damage(format!("{name}: removed during the query"));
            return Ok(None);
        }
        other => other.map_err(io)?,
    };
    context.cost.bytes += size;
    let (indexed, plan) = match outcome {
        Ok(useful) => useful,
        Err(why) => return open_without(entry, &path, interface, &why, hold, context),
    };
    let behind = if is_hidden(entry) { 0 } else { size.saturating_sub(indexed.reader.summary().bytes) };
    if behind > 0 {
        context.warning(format!(
            "{name}: {behind} bytes after the recorded bytes are ignored; netgrain repair removes these bytes"
        ));
    }
    remarks.into_iter().for_each(|remark| context.warning(remark));
    context.cost.blocks += u64::from(indexed.reader.summary().blocks);
    context.cost.blocks_skipped_time += plan.skipped_time;
    context.cost.blocks_skipped_keys += plan.skipped_keys;
    context.cost.blocks_skipped_sub_block += plan.skipped_sub_block;
    context.cost.index_bytes_read += indexed.reader.bytes_read();
    context.cost.files_skipped += u64::from(plan.wanted.is_empty());
    let header = indexed.reader.header();
    let link_type = u16::try_from(header.link_type).unwrap_or(u16::MAX);
    let origin = context.origin(Origin {
        interface: header.interface.clone(),
        queue: header.queue,
        link_type,
        snaplen: header.snaplen,
        filter: header.filter.clone(),
        timestamp_source: header.timestamp_source.clone(),
    });
    context.add_timestamps(origin, plan.timestamps);
    let file = match packets {
        None => {
            // No packet of the file is read, but the losses in its ledger are counted.
            IndexLedger::new(origin, plan.lost_after, indexed).enter(context);
            return Ok(None);
        }
        Some(Err(e)) if e.kind() == io::ErrorKind::NotFound => {
            context.damage(format!("{name}: removed during the query"));
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
        return Ok(Some(OutOfOrderFile::cursor(about, file, wanted, reported, hold, context)));
    }
    let reported = IndexLedger::new(origin, plan.lost_after, indexed);
    let mut file = SealedFile::new(about, Blocks::new(file, plan.wanted), Some(reported), hold);
    file.prepare(context);
    Ok(Some(Box::new(file)))
}

/// The current path of the file, and its length.
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

/// Creates the read plan; reads as little of the index as possible.
fn plan(
    indexed: &mut Indexed,
    name: &Path,
    order: FileOrder,
    query: &FileQuery,
    remarks: &mut Vec<String>,
) -> Result<ReadPlan, IndexProblem> {
    let (from, to) = query.interval;
    let blocks = indexed.reader.summary().blocks;
    if !indexed.overlaps(from, to) {
        return Ok(ReadPlan { skipped_time: u64::from(blocks), ..ReadPlan::default() });
    }
    let seek_offsets = query.seek.as_ref().and_then(|seek| seek_offsets(seek, indexed, name));
    if seek_offsets.as_ref().is_some_and(SeekOffsets::is_empty) && indexed.is_inside(from, to) {
        let lost_after = indexed.reader.summary().tally.lost_total();
        return Ok(ReadPlan { lost_after, skipped_sub_block: u64::from(blocks), ..ReadPlan::default() });
    }
    let unreadable =
        |e: io::Error| format!("{}: the rest of its index cannot be read ({e}); run netgrain verify", name.display());
    let mut spots = None;
    if let Some(need) = &query.need {
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
        (keys, seek_offsets.as_ref().map_or(SubBlockMask::ANYWHERE, |seek_offsets| seek_offsets.sub_blocks(i)))
    };
    let mut plan = ReadPlan::of(indexed.reader.blocks(), indexed.reader.header().start, (from, to), spot);
    let mut parts = Vec::new();
    // If the blocks of a file are not read one after the other, a record that ends in the next block is read from there
    // too. The checksums of the sub-blocks of that block verify these bytes.
    let all = (order == FileOrder::OutOfOrder).then_some(0..blocks as usize);
    let pieces = all.or_else(|| plan.in_pieces()).unwrap_or(0..0);
    if !pieces.is_empty() {
        match indexed.reader.sub_blocks(&indexed.file, pieces.clone()) {
            Ok(found) => parts = found,
            Err(e) => remarks.push(unreadable(e)),
        }
    }
    plan.add_costs(indexed.reader.blocks(), pieces.start, &parts, order == FileOrder::OutOfOrder);
    if query.with_timestamp_quality && !plan.wanted.is_empty() {
        match indexed.reader.timestamps(&indexed.file) {
            Ok(qualities) => plan.add_timestamps(&qualities),
            Err(e) => remarks.push(unreadable(e)),
        }
    }
    Ok(plan)
}

/// The offsets in the file that correspond to the stream positions in `seek`; `None` if they are unknown for this file.
fn seek_offsets(seek: &SeekHint, indexed: &Indexed, path: &Path) -> Option<SeekOffsets> {
    let (header, bytes) = (indexed.reader.header(), indexed.reader.summary().bytes);
    let is_there = (&header.interface, header.queue) == (&seek.interface, seek.queue);
    (is_of_stream(indexed, path) && is_there).then(|| SeekOffsets::of(&seek.positions, header.first_pos, bytes))
}

/// True if an offset in the file can be computed from a stream position: the records of the file are those of the
/// queue's stream (pcap, not RAW), and the first stream position is known.
fn is_of_stream(indexed: &Indexed, path: &Path) -> bool {
    let header = indexed.reader.header();
    header.content == Content::Recorded
        && header.first_pos != UNKNOWN_POS
        && path.extension().is_some_and(|ending| ending == names::PACKETS[0])
}

/// Opens a packet file without a usable index.
fn open_without(
    entry: &Entry,
    path: &Path,
    interface: &str,
    why: &IndexProblem,
    hold: &Arc<Hold>,
    context: &mut QueryContext,
) -> Result<Option<Box<dyn Cursor>>, QueryError> {
    let name = entry.path.display();
    if is_hidden(entry) {
        // An unfinished file without an index cannot be read: preallocated space follows the written bytes, and only
        // the index shows where they end.
        context.damage(format!(
            "{name}: the file is unfinished and has no index, so its end is unknown; run netgrain repair"
        ));
        return Ok(None);
    }
    let why = match why {
        IndexProblem::Index(why) => why,
        IndexProblem::Gone => "has lost its index",
    };
    context.warning(format!("{name}: {why}; the whole file is read"));
    let plain = UnindexedFile::open(path, interface, entry.queue, hold, context)?;
    Ok(plain.map(|p| Box::new(p) as Box<dyn Cursor>))
}
