//! One packet file that may still be written, with its index: read up to what the index vouches for, and kept hold of
//! while it grows, is sealed and gets its name.
//!
//! The recorder writes bytes first and the entry that tells of them afterwards, so what an entry vouches for is there. What
//! it says of the block that grows goes into slots; words caught in the middle of being written fail their checksum and are
//! read again a moment later. Both files are kept open, so that no rename and no removal takes away what was begun; the
//! system knows by what name an open file goes now (proc_pid_fd(5)), and that name tells when it is sealed.

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

/// Files were written at these times to the granularity of a timer tick; what is younger may have been written again.
const TICK: Duration = Duration::from_millis(50);

/// How often a file is looked for under its two names while it goes from one to the other, how often an index is read whose
/// end cannot be believed, and how long to wait in between.
const ATTEMPTS: u32 = 20;
const TORN_ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(1);

/// See the module.
pub struct Growing {
    /// The packets.
    pub packets: File,
    index: File,
    reader: Reader,
    need: KeyCondition,
    candidates: Vec<bool>,
    /// Where it was found, and when it begins.
    pub entry: Entry,
    raw: bool,
    complete: bool,
    verified: u64,
    /// Length and time of the index as they were last read.
    seen: Option<(u64, SystemTime)>,
}

impl Growing {
    /// Opens a file by the name that it had a moment ago, or the one that it has got since; `None` if it has gone, or its
    /// index cannot be read, which is entered in the book: an index is there, and its header whole, before its packets have
    /// a name.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(entry: &Entry, need: &KeyCondition, book: &mut QueryContext) -> io::Result<Option<Self>> {
        let Some(packets) = open_either(&entry.path)? else { return Ok(None) };
        let mut why = "has no index that tells how far it goes".to_owned();
        for _ in 0..ATTEMPTS {
            let path = path_now(&packets).unwrap_or_else(|| entry.path.clone());
            let Some(index) = open_index(&path)? else {
                std::thread::sleep(PAUSE);
                continue;
            };
            let (reader, at_end) = match read_stable(&index) {
                Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                    why = format!("has a useless index ({e})");
                    break;
                }
                other => other?,
            };
            if !at_end {
                let path = path.display();
                book.warning(format!("{path}: its index ends in an entry that is not whole; it is read up to there"));
            }
            let entry = Entry { path, ..entry.clone() };
            let (need, candidates) = (need.clone(), Vec::new());
            let raw = shown(&entry.path).unwrap_or_else(|| entry.path.clone()).extension().is_some_and(|e| e == "raw");
            let (complete, vouched, seen) = (false, 0, None);
            let mut file =
                Self { packets, index, reader, need, candidates, entry, raw, complete, verified: vouched, seen };
            file.take_stock()?;
            return Ok(Some(file));
        }
        // What was removed needs no index; whoever comes upon a gap in the stream says so.
        if packets.metadata()?.nlink() > 0 {
            book.damage(format!("{}: {why}, so nothing of it is read; netgrain repair", entry.path.display()));
        }
        Ok(None)
    }

    /// The stream position of its first byte.
    pub fn first_pos(&self) -> u64 {
        self.reader.header().first_pos
    }

    /// Where in the stream of its queue the record at this offset begins; `None` where that is not known.
    pub fn position(&self, offset: u64) -> Option<u64> {
        let header = self.reader.header();
        let is_known = header.first_pos != UNKNOWN_POS && !self.raw;
        is_known.then(|| header.first_pos.saturating_add(offset))
    }

    /// What holds for the whole file.
    pub fn header(&self) -> &index::Header {
        self.reader.header()
    }

    /// Whether it holds HPCAP's RAW records, which lie at no position of the stream.
    pub fn is_raw(&self) -> bool {
        self.raw
    }

    /// Nothing will be added.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// How many bytes may be read.
    pub fn vouched(&self) -> u64 {
        self.verified
    }

    /// Bytes of the index read since it was opened.
    pub fn index_bytes(&self) -> u64 {
        self.reader.bytes_read()
    }

    /// Whether its recorder lives. Where files cannot be locked, nobody can know, and it is said to.
    pub fn is_held(&self) -> bool {
        match self.packets.try_lock_shared() {
            Ok(()) => {
                // Whoever wants to remove it asks by an exclusive lock.
                let _ = self.packets.unlock();
                false
            }
            Err(_) => true,
        }
    }

    /// Whether its name is still hidden.
    pub fn is_hidden(&self) -> bool {
        let name = path_now(&self.packets).unwrap_or_else(|| self.entry.path.clone());
        is_hidden(&name)
    }

    /// The block that covers this byte, if it is vouched for, and whether it may hold what is needed.
    pub fn block(&self, offset: u64) -> Option<(Block, bool)> {
        let number = usize::try_from(offset / ring::BLOCK).ok()?;
        let block = self.reader.blocks().get(number).copied()?;
        Some((block, self.candidates.get(number).copied().unwrap_or(true)))
    }

    /// The ledger rows of a block.
    ///
    /// # Errors
    /// What the system says.
    pub fn rows(&mut self, number: u32) -> io::Result<index::Rows> {
        self.reader.rows(&self.index, number as usize)
    }

    /// Looks at what was written meanwhile; true if more may be read than before.
    ///
    /// # Errors
    /// What the system says.
    pub fn refresh(&mut self) -> io::Result<bool> {
        if self.complete {
            return Ok(false);
        }
        let before = self.verified;
        match path_now(&self.packets) {
            Some(path) if !is_hidden(&path) => {
                // The index got its name before the packets did. If somebody has removed both since, what the recorder
                // had told until then is all that there is.
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
                // Removed, which happens to sealed files only: what was known of it is all that will be.
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
                    // The header was whole once; what is there now will be read the next time.
                    Err(e) if e.kind() == io::ErrorKind::InvalidData => return Ok(false),
                    Err(e) => return Err(e),
                }
            }
        }
        self.take_stock()?;
        Ok(self.verified > before)
    }

    fn take_stock(&mut self) -> io::Result<()> {
        self.complete |= self.reader.is_sealed();
        self.verified = self.verified.max(bytes_of(&self.reader));
        if self.need != KeyCondition::Anything {
            self.candidates = self.reader.candidates(&self.index, &self.need)?;
        }
        Ok(())
    }
}

/// Reads an index; again, while bytes that cannot be believed follow its last entry: its recorder is writing them. Whether
/// none did in the end.
fn read_stable(index: &File) -> io::Result<(Reader, bool)> {
    let mut looks = 1;
    loop {
        // As long as it was before: what is appended while it is read is no damage.
        let len = index.metadata()?.len();
        let reader = Reader::open(index)?;
        let at_end = reader.end().is_none_or(|end| len <= end);
        if at_end || looks == TORN_ATTEMPTS {
            return Ok((reader, at_end));
        }
        looks += 1;
        std::thread::sleep(PAUSE);
    }
}

/// Where the last block ends.
fn bytes_of(reader: &Reader) -> u64 {
    reader.blocks().last().map_or(0, |b| u64::from(b.number) * ring::BLOCK + u64::from(b.bytes))
}

/// Whether this is the name of a file that is not sealed.
pub fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// The name under which a hidden file will be published, as far as no other has it.
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

/// The index beside a packet file that has this name now. It has its own name first.
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

/// By what name an open file goes now; `None` where the system does not say, or when it has none any more.
fn path_now(file: &File) -> Option<PathBuf> {
    let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    (path.is_absolute() && !path.as_os_str().as_encoded_bytes().ends_with(b" (deleted)")).then_some(path)
}
