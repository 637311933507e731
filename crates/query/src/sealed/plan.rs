//! What is to be read of a packet file, by its index.

use super::file::{Blocks, Layout, SealedFile};
use super::plain::Plain;
use crate::cursor::Cursor;
use crate::disk::{BLOCK, ROOM};
use crate::{Book, Origin, QueryError};
use base::Timestamp;
use index::{Block, Reader};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::Hold;
use store::catalogue::Entry;
use store::names;

/// A block that is to be walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its number in the file.
    pub number: u32,
    /// Its bytes.
    pub bytes: u32,
    /// Where the first record begins in it.
    pub first_record: u32,
    /// CRC32C of its bytes.
    pub crc: u32,
    /// Bytes of the next block that end its last record, where that block is not wanted itself.
    pub tail: u32,
    /// Whether the block before is wanted too.
    pub follows: bool,
    /// Lost in it, and in those since the wanted one before.
    pub lost: u64,
}

/// What is to be walked of a file, and what was lost behind it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub wanted: Vec<Wanted>,
    pub lost_after: u64,
    pub skipped_time: u64,
    pub skipped_keys: u64,
}

impl Plan {
    /// The blocks that can hold an answer: by time, and by `candidate`, which is asked only of those.
    pub fn of(blocks: &[Block], from: Timestamp, to: Timestamp, candidate: impl Fn(usize) -> bool) -> Self {
        let mut plan = Self::default();
        // Whether the walk is inside the interval; a block without packets is where the one before it is.
        let mut inside = false;
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
            if !candidate(i) {
                plan.skipped_keys += 1;
                continue;
            }
            let follows = plan.wanted.last().is_some_and(|w| w.number + 1 == block.number);
            if follows && let Some(before) = plan.wanted.last_mut() {
                before.tail = 0;
            }
            let next = blocks.get(i + 1);
            let tail = next.map_or(0, |n| n.first_record.unwrap_or(n.bytes).min(ROOM as u32));
            let (number, bytes, crc) = (block.number, block.bytes, block.crc);
            plan.wanted.push(Wanted { number, bytes, first_record, crc, tail, follows, lost });
            lost = 0;
        }
        plan.lost_after = lost;
        plan
    }
}

pub fn overlaps(block: &Block, from: Timestamp, to: Timestamp) -> bool {
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

/// Opens the index of a packet file and looks whether it fits a file of this size; `None` for one that still grows.
pub fn open_index(entry: &Entry, size: Option<u64>) -> Result<Indexed, Useless> {
    let no = |why: &str| Useless::Index(why.to_owned());
    let path = entry.index.as_ref().ok_or_else(|| no("has no index"))?;
    let file = match open_shown(path) {
        Ok((file, _)) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(Useless::Gone),
        Err(e) => return Err(Useless::Index(format!("has an index that cannot be opened ({e})"))),
    };
    let reader = Reader::open(&file).map_err(|e| Useless::Index(format!("has a useless index ({e})")))?;
    let blocks = reader.blocks();
    let in_order = (0u32..).zip(blocks).all(|(number, b)| b.number == number && b.bytes as usize <= BLOCK);
    let last = blocks.len().saturating_sub(1);
    let whole = blocks.iter().take(last).all(|b| b.bytes as usize == BLOCK);
    let inside = blocks.iter().all(|b| b.first_record.is_none_or(|at| at < b.bytes));
    if !(in_order && whole && inside) {
        return Err(no("has an index that contradicts itself"));
    }
    if let Some(size) = size {
        let bytes: u64 = blocks.iter().map(|b| u64::from(b.bytes)).sum();
        if !reader.is_sealed() || bytes != size {
            return Err(Useless::Index(format!("has {size} bytes, and an index for {bytes}")));
        }
    }
    Ok(Indexed { reader, file })
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

/// Opens a packet file of the store as a cursor. `None` if nothing in it can answer, or if it is gone.
///
/// # Errors
/// When a file that is there cannot be opened.
pub fn open(
    entry: &Entry,
    interface: &str,
    hold: &Arc<Hold>,
    book: &mut Book,
) -> Result<Option<Box<dyn Cursor>>, QueryError> {
    let io = |error| QueryError::Io { path: entry.path.clone(), error };
    let name = entry.path.display().to_string();
    book.cost.files += 1;
    let opened = sys::uring::open_aligned(&entry.path).map(|(file, _)| file).or_else(|e| match shown(&entry.path) {
        Some(shown) if e.kind() == io::ErrorKind::NotFound => Ok(sys::uring::open_aligned(&shown)?.0),
        _ => Err(e),
    });
    let file = match opened {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            book.remark(format!("{name}: removed while the question was being answered"));
            return Ok(None);
        }
        other => other.map_err(io)?,
    };
    let size = file.metadata().map_err(io)?.len();
    book.cost.bytes += size;
    let Indexed { mut reader, file: index } = match open_index(entry, (!is_hidden(entry)).then_some(size)) {
        Ok(indexed) => indexed,
        Err(Useless::Gone | Useless::Index(_)) if is_hidden(entry) => {
            book.remark(format!(
                "{name}: was not finished and has no index that tells how far it goes; netgrain repair"
            ));
            return Ok(None);
        }
        Err(why) => {
            let why = match why {
                Useless::Index(why) => why,
                Useless::Gone => "has lost its index".to_owned(),
            };
            book.remark(format!("{name}: {why}; all of it is read"));
            let plain = Plain::open(&entry.path, interface, entry.queue, hold, book)?;
            return Ok(plain.map(|p| Box::new(p) as Box<dyn Cursor>));
        }
    };
    let (from, to) = (book.question.from, book.question.to);
    let total = reader.blocks().len() as u64;
    book.cost.blocks += total;
    let any = reader.blocks().iter().any(|b| overlaps(b, from, to));
    let candidates = match any && !book.question.filter.is_empty() {
        false => None,
        true => match reader.candidates(&index, &book.question.filter.need()) {
            Ok(candidates) => Some(candidates),
            Err(e) => {
                book.remark(format!("{name}: its index cannot be read on ({e}); netgrain verify"));
                None
            }
        },
    };
    let candidate = |i: usize| candidates.as_ref().is_none_or(|c| c.get(i).copied().unwrap_or(true));
    let plan = Plan::of(reader.blocks(), from, to, candidate);
    book.cost.blocks_skipped_time += plan.skipped_time;
    book.cost.blocks_skipped_keys += plan.skipped_keys;
    book.cost.index_bytes_read += reader.bytes_read();
    book.cost.files_skipped += u64::from(plan.wanted.is_empty());
    let header = reader.header();
    let link_type = u16::try_from(header.link_type).unwrap_or(u16::MAX);
    let origin = book.origin(Origin {
        interface: header.interface.clone(),
        queue: header.queue,
        link_type,
        snaplen: header.snaplen,
        filter: header.filter.clone(),
        stamps: header.stamps.clone(),
    });
    let layout = match names::PACKETS[1] == entry.path.extension().and_then(|e| e.to_str()).unwrap_or_default() {
        true => Layout::Raw,
        false => Layout::Pcap,
    };
    let blocks = Blocks::new(file, plan.wanted);
    let indexed = Indexed { reader, file: index };
    Ok(Some(Box::new(SealedFile::new(name, layout, link_type, origin, blocks, plan.lost_after, indexed, hold))))
}
