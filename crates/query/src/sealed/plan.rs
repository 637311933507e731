//! What is to be read of a packet file, by its index.

use super::file::{Blocks, Layout, SealedFile};
use super::plain::Plain;
use super::told::Told;
use crate::cursor::Cursor;
use crate::disk::{BLOCK, ROOM};
use crate::{Book, Origin, QueryError, Seek};
use base::Timestamp;
use index::{Block, Content, PARTS, Parts, Reader, Spots, Stretch, UNKNOWN_POS, part_of};
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::Hold;
use store::catalogue::Entry;
use store::names;
use sys::uring::Aligned;
use wire::filter::Need;

const PAGE: u64 = Aligned::ALIGN as u64;

/// Of a block that is read in pieces, at most so many sixteenths of its bytes; for more, all of it is read at once.
const MOST_IN_PIECES: u64 = 11;

/// Bytes of a block that are to be walked: all of them, or those of some of its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Number of the block in the file.
    pub number: u32,
    /// Its bytes, and their checksum.
    pub stretch: Stretch,
    /// Where the first record begins in the block.
    pub first_record: u32,
    /// Where an answer can be in it.
    pub spots: Spots,
    /// Bytes of the next block that end its last record, where that block is not read behind it.
    pub tail: u32,
    /// Their CRC32C, as far as it is known.
    pub tail_crc: Option<u32>,
    /// Whether it begins where the one before ends, within a record or not.
    pub follows: bool,
    /// Lost in it, and in those since the wanted one before.
    pub lost: u64,
}

impl Wanted {
    /// What must be read of the file: from a page on.
    pub fn bytes(&self) -> Range<u64> {
        let block = u64::from(self.number) * BLOCK as u64;
        let from = u64::from(self.stretch.bytes.start) & !(PAGE - 1);
        block + from..block + u64::from(self.stretch.bytes.end) + u64::from(self.tail)
    }
}

/// What is to be walked of a file, and what was lost behind it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub wanted: Vec<Wanted>,
    pub lost_after: u64,
    pub skipped_time: u64,
    pub skipped_keys: u64,
    pub skipped_place: u64,
}

impl Plan {
    /// The blocks that can hold an answer, of a file that begins at `start`: by time, and by `spots`, which is asked only
    /// of those and says where one can be by its keys, and by its place.
    pub fn of(
        blocks: &[Block],
        start: Timestamp,
        (from, to): (Timestamp, Timestamp),
        spots: impl Fn(usize) -> (Spots, Spots),
    ) -> Self {
        let mut plan = Self::default();
        // Whether the walk is inside the interval; a block without packets is where the one before it is, or where the file
        // begins.
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
            let (keys, place) = spots(i);
            if !place.is_somewhere() {
                plan.skipped_place += 1;
                continue;
            }
            let spots = Spots(keys.0 & place.0);
            if !spots.is_somewhere() {
                plan.skipped_keys += 1;
                continue;
            }
            let stretch = Stretch { bytes: 0..block.bytes, before: 0, after: block.crc };
            let (number, tail, tail_crc, follows) = (block.number, 0, None, false);
            plan.wanted.push(Wanted { number, stretch, first_record, spots, tail, tail_crc, follows, lost });
            lost = 0;
        }
        plan.lost_after = lost;
        plan
    }

    /// The blocks whose parts it is good to know.
    pub fn in_pieces(&self) -> Option<Range<usize>> {
        let mut wanted = self.wanted.iter().filter(|w| w.spots != Spots::ANYWHERE).map(|w| w.number as usize);
        let first = wanted.next()?;
        Some(first..wanted.next_back().unwrap_or(first) + 2)
    }

    /// Says what to read, now that it is known where the parts begin that `parts` has, those of the block `first` in front.
    pub fn settle(&mut self, blocks: &[Block], first: usize, parts: &[Parts]) {
        let of = |number: usize| number.checked_sub(first).and_then(|i| parts.get(i)).unwrap_or(&Parts::NONE);
        let mut wanted: Vec<Wanted> = Vec::with_capacity(self.wanted.len());
        let mut lost = 0u64;
        for block in self.wanted.drain(..) {
            lost = lost.saturating_add(block.lost);
            match stretches(&block, of(block.number as usize)) {
                Some(pieces) => {
                    self.skipped_keys += u64::from(pieces.is_empty());
                    for stretch in pieces {
                        let lost = std::mem::take(&mut lost);
                        wanted.push(Wanted { first_record: stretch.bytes.start, stretch, lost, ..block.clone() });
                    }
                }
                None => wanted.push(Wanted { lost: std::mem::take(&mut lost), ..block }),
            }
        }
        self.lost_after = self.lost_after.saturating_add(lost);
        for i in 0..wanted.len() {
            let from_start = |w: &Wanted| w.stretch.bytes.start == 0;
            let number = wanted[i].number as usize;
            let at_end = blocks.get(number).is_some_and(|block| wanted[i].stretch.bytes.end == block.bytes);
            let follower = wanted.get(i + 1).is_some_and(|w| w.number as usize == number + 1 && from_start(w));
            if at_end && follower {
                wanted[i + 1].follows = true;
            } else if at_end && let Some(next) = blocks.get(number + 1) {
                let parts = of(number + 1);
                let (tail, crc) = match next.first_record {
                    Some(first) => (first, parts.lead().filter(|_| parts.fit(next.bytes, Some(first)))),
                    None => (next.bytes, Some(next.crc)),
                };
                wanted[i].tail = tail.min(ROOM as u32);
                wanted[i].tail_crc = crc.filter(|_| tail <= ROOM as u32);
            }
        }
        self.wanted = wanted;
    }
}

/// The pieces of a block in which an answer can be; `None` where they are not known, or nearly all of it.
fn stretches(block: &Wanted, parts: &Parts) -> Option<Vec<Stretch>> {
    let Range { end: bytes, .. } = block.stretch.bytes;
    if block.spots == Spots::ANYWHERE || parts.is_unknown() || !parts.fit(bytes, Some(block.first_record)) {
        return None;
    }
    let mut out: Vec<Stretch> = Vec::new();
    for part in (0..PARTS).filter(|part| block.spots.has(*part)) {
        // No record begins in a part that is within one.
        let Some(stretch) = parts.stretch(part..part + 1, bytes, block.stretch.after) else { continue };
        match out.last_mut() {
            Some(last) if last.bytes.end == stretch.bytes.start => {
                (last.bytes.end, last.after) = (stretch.bytes.end, stretch.after);
            }
            _ => out.push(stretch),
        }
    }
    let sum: u64 = out.iter().map(|s| u64::from(s.bytes.end - s.bytes.start)).sum();
    (sum * 16 <= MOST_IN_PIECES * BLOCK as u64).then_some(out)
}

fn overlaps(block: &Block, from: Timestamp, to: Timestamp) -> bool {
    block.packets > 0 && block.first <= to && from <= block.last
}

/// An index with its file.
pub struct Indexed {
    pub reader: Reader,
    pub file: File,
}

/// Why an index is of no use.
pub enum Useless {
    /// There is none, or it cannot be believed.
    Index(String),
    /// Somebody removed it or its packets meanwhile.
    Gone,
}

/// Opens the index of a packet file, up to its summary.
pub fn begin_index(entry: &Entry) -> Result<Indexed, Useless> {
    let path = entry.index.as_ref().ok_or_else(|| Useless::Index("has no index".to_owned()))?;
    let file = match open_shown(path) {
        Ok((file, _)) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(Useless::Gone),
        Err(e) => return Err(Useless::Index(format!("has an index that cannot be opened ({e})"))),
    };
    let reader = Reader::begin(&file).map_err(useless)?;
    Ok(Indexed { reader, file })
}

fn useless(error: io::Error) -> Useless {
    Useless::Index(format!("has a useless index ({error})"))
}

impl Indexed {
    /// Looks whether it fits a packet file that begins then and has this size; `None` for one that still grows. What lies
    /// behind the bytes that it describes somebody else put there: it vouches for its own, block by block, all the same.
    fn fits(&self, start: Timestamp, size: Option<u64>) -> Result<(), Useless> {
        let (sealed, bytes) = (self.reader.is_sealed(), self.reader.summary().bytes);
        match size {
            Some(size) if !sealed || bytes > size || bytes < size && self.reader.header().start != start => {
                Err(Useless::Index(format!("has {size} bytes, and an index for {bytes}")))
            }
            _ => Ok(()),
        }
    }

    /// Reads the table of blocks and looks whether it makes sense.
    fn load(&mut self) -> Result<(), Useless> {
        self.reader.load(&self.file).map_err(useless)?;
        let blocks = self.reader.blocks();
        let in_order = (0u32..).zip(blocks).all(|(number, b)| b.number == number && b.bytes as usize <= BLOCK);
        let last = blocks.len().saturating_sub(1);
        let whole = blocks.iter().take(last).all(|b| b.bytes as usize == BLOCK);
        let inside = blocks.iter().all(|b| b.first_record.is_none_or(|at| at < b.bytes));
        let bytes: u64 = blocks.iter().map(|b| u64::from(b.bytes)).sum();
        match in_order && whole && inside && bytes == self.reader.summary().bytes {
            true => Ok(()),
            false => Err(Useless::Index("has an index that contradicts itself".to_owned())),
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
    match File::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let shown = shown(path).ok_or(e)?;
            Ok((File::open(&shown)?, shown))
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
pub struct Asked {
    /// The first and the last moment.
    pub interval: (Timestamp, Timestamp),
    /// What a packet must have; `None` if nothing.
    pub need: Option<Need>,
    /// Where it can be.
    pub seek: Option<Seek>,
}

/// What the index of a file says of the question: found out without the answer's book, so that it can be done ahead.
pub struct Scouted {
    path: PathBuf,
    size: u64,
    outcome: Result<(Indexed, Plan), Useless>,
    /// The packets, if they are wanted.
    packets: Option<io::Result<File>>,
    remarks: Vec<String>,
}

/// Asks the index of a packet file, and opens the file if there is anything to read.
///
/// # Errors
/// What the system says of the file.
pub fn scout(entry: &Entry, asked: &Asked) -> io::Result<Scouted> {
    let (path, size) = find(entry)?;
    let fitting = (!is_hidden(entry)).then_some(size);
    let mut remarks = Vec::new();
    let outcome = begin_index(entry).and_then(|mut indexed| {
        indexed.fits(entry.start, fitting)?;
        let plan = plan(&mut indexed, &entry.path, asked, &mut remarks)?;
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
    Ok(Scouted { path, size, outcome, packets, remarks })
}

/// Makes a cursor of a packet file of the store. `None` if nothing in it can answer, or if it is gone.
///
/// # Errors
/// When a file that is there cannot be opened.
pub fn open(
    entry: &Entry,
    scouted: io::Result<Scouted>,
    interface: &str,
    hold: &Arc<Hold>,
    book: &mut Book,
) -> Result<Option<Box<dyn Cursor>>, QueryError> {
    let io = |error| QueryError::Io { path: entry.path.clone(), error };
    let name = entry.path.display().to_string();
    book.cost.files += 1;
    let Scouted { path, size, outcome, packets, remarks } = match scouted {
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
        book.remark(format!(
            "{name}: {behind} bytes lie behind those that were recorded, and are no part of the answer; netgrain repair cuts \
             them off"
        ));
    }
    remarks.into_iter().for_each(|remark| book.remark(remark));
    book.cost.blocks += u64::from(indexed.reader.summary().blocks);
    book.cost.blocks_skipped_time += plan.skipped_time;
    book.cost.blocks_skipped_keys += plan.skipped_keys;
    book.cost.blocks_skipped_place += plan.skipped_place;
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
        stamps: header.stamps.clone(),
    });
    let file = match packets {
        None => {
            // Its packets were not even opened; what was lost is told all the same.
            Told::new(origin, plan.lost_after, indexed).enter(book);
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
    let told = Told::new(origin, plan.lost_after, indexed);
    let mut file = SealedFile::new(name, layout, link_type, Blocks::new(file, plan.wanted), told, hold);
    file.prepare(book);
    Ok(Some(Box::new(file)))
}

/// Where the file is now, and its length.
fn find(entry: &Entry) -> io::Result<(PathBuf, u64)> {
    match fs::metadata(&entry.path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let shown = shown(&entry.path).ok_or(e)?;
            let size = fs::metadata(&shown)?.len();
            Ok((shown, size))
        }
        other => Ok((entry.path.clone(), other?.len())),
    }
}

/// What to read; as little of the index is read as tells that.
fn plan(indexed: &mut Indexed, name: &Path, asked: &Asked, remarks: &mut Vec<String>) -> Result<Plan, Useless> {
    let (from, to) = asked.interval;
    let blocks = indexed.reader.summary().blocks;
    if !indexed.overlaps(from, to) {
        return Ok(Plan { skipped_time: u64::from(blocks), ..Plan::default() });
    }
    let sought = asked.seek.as_ref().and_then(|seek| Sought::of(seek, indexed, name));
    if sought.as_ref().is_some_and(|s| s.0.is_empty()) && indexed.is_inside(from, to) {
        let lost_after = indexed.reader.summary().tally.lost_total();
        return Ok(Plan { lost_after, skipped_place: u64::from(blocks), ..Plan::default() });
    }
    let unreadable = |e: io::Error| format!("{}: its index cannot be read on ({e}); netgrain verify", name.display());
    let mut spots = None;
    if let Some(need) = &asked.need {
        match indexed.reader.spots(&indexed.file, need) {
            Ok(found) => spots = Some(found),
            Err(e) => remarks.push(unreadable(e)),
        }
    }
    if spots.as_ref().is_some_and(|s| !s.iter().any(|s| s.is_somewhere())) && indexed.is_inside(from, to) {
        let lost_after = indexed.reader.summary().tally.lost_total();
        return Ok(Plan { lost_after, skipped_keys: u64::from(blocks), ..Plan::default() });
    }
    indexed.load()?;
    let spot = |i: usize| {
        let keys = spots.as_ref().and_then(|s| s.get(i).copied()).unwrap_or(Spots::ANYWHERE);
        (keys, sought.as_ref().map_or(Spots::ANYWHERE, |sought| sought.spots(i)))
    };
    let mut plan = Plan::of(indexed.reader.blocks(), indexed.reader.header().start, (from, to), spot);
    let mut parts = Vec::new();
    let pieces = plan.in_pieces().unwrap_or(0..0);
    if !pieces.is_empty() {
        match indexed.reader.parts(&indexed.file, pieces.clone()) {
            Ok(found) => parts = found,
            Err(e) => remarks.push(unreadable(e)),
        }
    }
    plan.settle(indexed.reader.blocks(), pieces.start, &parts);
    Ok(plan)
}

/// Where in a file the records are that were sought, as offsets.
struct Sought(Vec<Range<u64>>);

impl Sought {
    /// `None` if that is not known of this file.
    fn of(seek: &Seek, indexed: &Indexed, path: &Path) -> Option<Self> {
        let (header, bytes) = (indexed.reader.header(), indexed.reader.summary().bytes);
        let is_of_stream = header.content == Content::Recorded
            && header.first_pos != UNKNOWN_POS
            && path.extension().is_some_and(|ending| ending == names::PACKETS[0]);
        if !is_of_stream || (&header.interface, header.queue) != (&seek.interface, seek.queue) {
            return None;
        }
        let offset = |pos: u64| pos.saturating_sub(header.first_pos).min(bytes);
        let ranges = seek.positions.iter().filter(|range| *range.end() >= header.first_pos);
        let ranges = ranges.map(|range| offset(*range.start())..offset(range.end().saturating_add(1)));
        Some(Self(ranges.filter(|range| !range.is_empty()).collect()))
    }

    /// In which parts of a block they begin.
    fn spots(&self, block: usize) -> Spots {
        let start = block as u64 * BLOCK as u64;
        let end = start + BLOCK as u64;
        let here = self.0.iter().filter(|range| range.start < end && start < range.end);
        here.fold(Spots::NOWHERE, |spots, range| {
            let part = |offset: u64| part_of((offset.clamp(start, end - 1) - start) as u32);
            let (first, last) = (part(range.start), part(range.end - 1));
            Spots(spots.0 | Spots::ANYWHERE.0 >> (PARTS - 1 - (last - first)) << first)
        })
    }
}

/// Opens a packet file whose index is of no use.
fn open_without(
    entry: &Entry,
    path: &Path,
    interface: &str,
    why: &Useless,
    hold: &Arc<Hold>,
    book: &mut Book,
) -> Result<Option<Box<dyn Cursor>>, QueryError> {
    let name = entry.path.display();
    if is_hidden(entry) {
        // Behind what was written lies room that was made ahead: only an index tells the one from the other.
        book.damage(format!("{name}: was not finished and has no index that tells how far it goes; netgrain repair"));
        return Ok(None);
    }
    let why = match why {
        Useless::Index(why) => why,
        Useless::Gone => "has lost its index",
    };
    book.remark(format!("{name}: {why}; all of it is read"));
    let plain = Plain::open(path, interface, entry.queue, hold, book)?;
    Ok(plain.map(|p| Box::new(p) as Box<dyn Cursor>))
}
