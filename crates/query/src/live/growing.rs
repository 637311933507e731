//! A packet file that a recorder may still be writing, with its index. The query reads the file as far as the index
//! covers it, and keeps it open while it grows, is sealed and is published.
//!
//! The recorder writes bytes before their index entry, so the bytes that an entry describes exist. The entry of the
//! growing block alternates between slots; a partly written entry has a wrong checksum, and is read again some
//! milliseconds later. Packet file and index stay open, so that neither a rename nor a removal interrupts the query.
//! The kernel reports the current name of an open file (proc_pid_fd(5)), and that name shows whether the file is
//! sealed.

use crate::QueryContext;
use filter::KeyCondition;
use index::{Block, Reader, UNKNOWN_POS};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use store::catalogue::Entry;
use store::names;

/// Granularity of file modification times: if a file was modified less than this time ago, it may be written again
/// without a change of its modification time.
const TICK: Duration = Duration::from_millis(50);

/// Number of attempts to open the index of a file, because the recorder may be renaming the index or the file.
const ATTEMPTS: u32 = 20;

/// Number of attempts to read an index whose last bytes are invalid, because the recorder may be writing them.
const TORN_ATTEMPTS: u32 = 5;

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(1);

/// A packet file that may still grow.
pub struct Growing {
    /// The packet file.
    pub packets: File,
    index: File,
    reader: Reader,
    need: KeyCondition,
    candidates: Vec<bool>,
    /// The name and the start time of the file in the directory listing.
    pub entry: Entry,
    raw: bool,
    complete: bool,
    verified: u64,
    /// Length and modification time of the index at the last read.
    seen: Option<(u64, SystemTime)>,
}

impl Growing {
    /// Opens a file by the name in the listing, or by its published name. `None` if the file was removed, or if its
    /// index cannot be read; an unreadable index is reported as damage, because a recorder writes the complete header
    /// of the index before it moves the packet file into the hour directory.
    ///
    /// # Errors
    /// If the file or its index cannot be opened or read.
    pub fn open(entry: &Entry, need: &KeyCondition, context: &mut QueryContext) -> io::Result<Option<Self>> {
        let Some(packets) = open_either(&entry.path)? else { return Ok(None) };
        let mut why = "has no index, so its end is unknown".to_owned();
        for _ in 0..ATTEMPTS {
            let path = path_now(&packets).unwrap_or_else(|| entry.path.clone());
            let Some(index) = open_index(&path)? else {
                std::thread::sleep(PAUSE);
                continue;
            };
            let (reader, at_end) = match read_stable(&index) {
                Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                    why = format!("has an unusable index ({e})");
                    break;
                }
                other => other?,
            };
            if !at_end {
                let path = path.display();
                context.warning(format!(
                    "{path}: its index ends in an incomplete entry; the file is read only up to the last complete entry"
                ));
            }
            let entry = Entry { path, ..entry.clone() };
            let (need, candidates) = (need.clone(), Vec::new());
            let raw = shown(&entry.path).unwrap_or_else(|| entry.path.clone()).extension().is_some_and(|e| e == "raw");
            let (complete, covered_bytes, seen) = (false, 0, None);
            let mut file =
                Self { packets, index, reader, need, candidates, entry, raw, complete, verified: covered_bytes, seen };
            file.update_state()?;
            return Ok(Some(file));
        }
        // If the packet file was removed too, the missing index is not reported; the tail reports the gap in the
        // stream.
        if packets.metadata()?.nlink() > 0 {
            context.damage(format!("{}: {why}; the file is not read; run netgrain repair", entry.path.display()));
        }
        Ok(None)
    }

    /// Stream position of the first byte of the file.
    pub fn first_pos(&self) -> u64 {
        self.reader.header().first_pos
    }

    /// Stream position of the record at this offset; `None` if unknown.
    pub fn position(&self, offset: u64) -> Option<u64> {
        let header = self.reader.header();
        let is_known = header.first_pos != UNKNOWN_POS && !self.raw;
        is_known.then(|| header.first_pos.saturating_add(offset))
    }

    /// The header of the index.
    pub fn header(&self) -> &index::Header {
        self.reader.header()
    }

    /// The quality of the timestamps of all blocks.
    pub fn timestamps(&self) -> base::TimestampQuality {
        self.reader.summary().timestamps
    }

    /// True if the file contains HPCAP RAW records, which have no stream positions.
    pub fn is_raw(&self) -> bool {
        self.raw
    }

    /// True if the file will not grow any longer.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Number of bytes that the index covers.
    pub fn covered_bytes(&self) -> u64 {
        self.verified
    }

    /// Number of bytes of the index that were read since it was opened.
    pub fn index_bytes(&self) -> u64 {
        self.reader.bytes_read()
    }

    /// True if the recorder of the file is running; also true if the file system does not support locks, because the
    /// state is then unknown.
    pub fn is_held(&self) -> bool {
        match self.packets.try_lock_shared() {
            Ok(()) => {
                // The shared lock is released at once, because a recovery would treat a locked file as the file of a
                // running recorder.
                let _ = self.packets.unlock();
                false
            }
            Err(_) => true,
        }
    }

    /// True if the file still has a hidden name.
    pub fn is_hidden(&self) -> bool {
        let name = path_now(&self.packets).unwrap_or_else(|| self.entry.path.clone());
        is_hidden(&name)
    }

    /// The block that contains this offset, if the index covers the offset; the flag is true if the block may contain
    /// matches.
    pub fn block(&self, offset: u64) -> Option<(Block, bool)> {
        let number = usize::try_from(offset / ring::BLOCK).ok()?;
        let block = self.reader.blocks().get(number).copied()?;
        Some((block, self.candidates.get(number).copied().unwrap_or(true)))
    }

    /// The ledger rows of a block.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub fn rows(&mut self, number: u32) -> io::Result<index::Rows> {
        self.reader.rows(&self.index, number as usize)
    }

    /// Reads the index again if it has changed; returns true if it covers more bytes than before.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub fn refresh(&mut self) -> io::Result<bool> {
        if self.complete {
            return Ok(false);
        }
        let before = self.verified;
        match path_now(&self.packets) {
            Some(path) if !is_hidden(&path) => {
                // The index is published before the packet file. If both were removed, the state from the last read is
                // final.
                if let Some(index) = open_index(&path)?
                    && let Ok(reader) = Reader::open(&index)
                    && reader.is_sealed()
                {
                    (self.index, self.reader) = (index, reader);
                } else if let Ok((reader, _)) = read_stable(&self.index)
                    && bytes_of(&reader) >= self.verified
                {
                    self.reader = reader;
                }
                self.entry.path = path;
                self.complete = true;
            }
            _ => {
                // Only sealed files are removed, so the state from the last read is final.
                self.complete = self.packets.metadata()?.nlink() == 0;
                let metadata = self.index.metadata()?;
                let now = (metadata.len(), metadata.modified()?);
                if self.seen == Some(now) {
                    return Ok(false);
                }
                self.seen = now.1.elapsed().is_ok_and(|age| age > TICK).then_some(now);
                match read_stable(&self.index) {
                    Ok((reader, _)) if bytes_of(&reader) >= self.verified => self.reader = reader,
                    Ok(_) => return Ok(false),
                    // Invalid data in the index is treated as a temporary error, because the header was complete at an
                    // earlier read. The next refresh reads the index again.
                    Err(e) if e.kind() == io::ErrorKind::InvalidData => return Ok(false),
                    Err(e) => return Err(e),
                }
            }
        }
        self.update_state()?;
        Ok(self.verified > before)
    }

    fn update_state(&mut self) -> io::Result<()> {
        self.complete |= self.reader.is_sealed();
        self.verified = self.verified.max(bytes_of(&self.reader));
        if self.need != KeyCondition::Anything {
            self.candidates = self.reader.candidates(&self.index, &self.need)?;
        }
        Ok(())
    }
}

/// Reads an index. If invalid bytes follow its last entry, which the recorder may just be writing, the index is read
/// again, up to a number of attempts. The flag is true if the last read found no invalid bytes.
fn read_stable(index: &File) -> io::Result<(Reader, bool)> {
    let mut attempts = 1;
    loop {
        // The length is determined before the read, so that bytes appended during the read do not count as invalid.
        let len = index.metadata()?.len();
        let reader = Reader::open(index)?;
        let at_end = reader.end().is_none_or(|end| len <= end);
        if at_end || attempts == TORN_ATTEMPTS {
            return Ok((reader, at_end));
        }
        attempts += 1;
        std::thread::sleep(PAUSE);
    }
}

/// End of the last block.
fn bytes_of(reader: &Reader) -> u64 {
    reader.blocks().last().map_or(0, |b| u64::from(b.number) * ring::BLOCK + u64::from(b.bytes))
}

/// True if this is the name of an unsealed file.
pub fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// The path to which a file with a hidden name will be renamed when it is published, if no other file has that name.
fn shown(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let name = name.strip_prefix('.')?.strip_suffix(names::PARTIAL)?.strip_suffix('.')?;
    Some(path.with_file_name(name))
}

fn open_either(path: &Path) -> io::Result<Option<File>> {
    for path in std::iter::once(path.to_owned()).chain(shown(path)) {
        if let Some(file) = found(sys::nofollow::open(&path))? {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

/// Opens the index of the packet file with this name. Both names of the index are tried, because the index is renamed
/// before the packet file.
fn open_index(packets: &Path) -> io::Result<Option<File>> {
    let shown = shown(packets);
    let index = shown.as_deref().unwrap_or(packets).with_extension(names::INDEX);
    if let Some(stem) = index.file_stem().and_then(|s| s.to_str()).filter(|_| shown.is_some()) {
        let hidden = index.with_file_name(names::hidden(stem, names::INDEX));
        if let Some(file) = found(sys::nofollow::open(&hidden))? {
            return Ok(Some(file));
        }
    }
    found(sys::nofollow::open(&index))
}

fn found(opened: io::Result<File>) -> io::Result<Option<File>> {
    match opened {
        Ok(file) => Ok(Some(file)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// The current name of an open file; `None` if the name is unknown or the file was removed.
fn path_now(file: &File) -> Option<PathBuf> {
    let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    (path.is_absolute() && !path.as_os_str().as_encoded_bytes().ends_with(b" (deleted)")).then_some(path)
}
