//! The index of a packet file, opened and validated for a query.

use crate::disk::BLOCK;
use base::Timestamp;
use index::Reader;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use store::catalogue::Entry;
use store::names;

/// An open index.
pub struct Indexed {
    pub reader: Reader,
    pub file: File,
}

/// The reason why an index is unusable.
pub enum IndexProblem {
    /// The index is missing or invalid.
    Index(String),
    /// The index or its packet file was removed during the query.
    Gone,
}

/// Opens the index of a packet file and reads it up to its summary.
pub fn begin_index(entry: &Entry) -> Result<Indexed, IndexProblem> {
    let path = entry.index.as_ref().ok_or_else(|| IndexProblem::Index("has no index".to_owned()))?;
    let file = match open_shown(path) {
        Ok((file, _)) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(IndexProblem::Gone),
        Err(e) => return Err(IndexProblem::Index(format!("has an index that cannot be opened ({e})"))),
    };
    let reader = Reader::begin(&file).map_err(unusable)?;
    Ok(Indexed { reader, file })
}

fn unusable(error: io::Error) -> IndexProblem {
    IndexProblem::Index(format!("has an unusable index ({error})"))
}

impl Indexed {
    /// Checks that the index belongs to a packet file with this start time and size; `size` is `None` for a growing
    /// file. Bytes after those that the index covers were appended by another program; the index remains valid for its
    /// own blocks.
    pub fn fits(&self, start: Timestamp, size: Option<u64>) -> Result<(), IndexProblem> {
        let (sealed, bytes) = (self.reader.is_sealed(), self.reader.summary().bytes);
        match size {
            Some(size) if !sealed || bytes > size || bytes < size && self.reader.header().start != start => {
                Err(IndexProblem::Index(format!("has {size} bytes, but its index describes {bytes}")))
            }
            _ => Ok(()),
        }
    }

    /// Reads and validates the block table.
    pub fn load(&mut self) -> Result<(), IndexProblem> {
        self.reader.load(&self.file).map_err(unusable)?;
        let blocks = self.reader.blocks();
        let in_order = (0u32..).zip(blocks).all(|(number, b)| b.number == number && b.bytes as usize <= BLOCK);
        let last = blocks.len().saturating_sub(1);
        let whole = blocks.iter().take(last).all(|b| b.bytes as usize == BLOCK);
        let inside = blocks.iter().all(|b| b.first_record.is_none_or(|at| at < b.bytes));
        let bytes: u64 = blocks.iter().map(|b| u64::from(b.bytes)).sum();
        match in_order && whole && inside && bytes == self.reader.summary().bytes {
            true => Ok(()),
            false => Err(IndexProblem::Index("has an inconsistent index".to_owned())),
        }
    }

    /// True if packets or ledger rows of the file overlap the interval.
    pub fn overlaps(&self, from: Timestamp, to: Timestamp) -> bool {
        let (first, last) = self.span();
        first <= to && from <= last
    }

    /// True if the interval contains the whole file.
    pub fn is_inside(&self, from: Timestamp, to: Timestamp) -> bool {
        let (first, last) = self.span();
        from <= first && last <= to
    }

    /// The begin and the end of the file. They include the seconds of the ledger rows, because packets may have been
    /// lost before the first and after the last stored packet.
    fn span(&self) -> (Timestamp, Timestamp) {
        let (start, summary) = (self.reader.header().start, self.reader.summary());
        let (first, last) = summary.stamps.unwrap_or((start, summary.end));
        (first.min(start), last.max(summary.end))
    }
}

/// Opens a file by its name; if the name is hidden and no longer exists, by its published name.
fn open_shown(path: &Path) -> io::Result<(File, PathBuf)> {
    match sys::nofollow::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let shown = shown(path).ok_or(e)?;
            Ok((sys::nofollow::open(&shown)?, shown))
        }
        other => Ok((other?, path.to_owned())),
    }
}

/// The published name of a file with a hidden name; `None` for any other name.
pub fn shown(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let name = name.strip_prefix('.')?.strip_suffix(names::PARTIAL)?.strip_suffix('.')?;
    Some(path.with_file_name(name))
}

/// True if the name of the file is that of an unfinished file.
pub fn is_hidden(entry: &Entry) -> bool {
    shown(&entry.path).is_some()
}
