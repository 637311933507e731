//! The journal: what a meter made, on disk within a second, while the file that it will be sealed into is not yet whole.
//!
//! Layout, little-endian: a header (`NGJ1`, kind, shape of the things, id of the journal, CRC32C), then batches: length
//! of what follows the head, things in it, CRC32C of both numbers and of what follows; and of each thing its length, its
//! place in the order, and its bytes ([`crate::pack`]). A batch counts if it is whole; behind the first that is not, nothing
//! does. So a reader may read while the writer appends, and a crash at any byte costs at most the last batch.

use crate::error::ColumnsError;
use crate::pack::{Order, Pack};
use crate::shelf::{self, Kind};
use base::Timestamp;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read};
use std::marker::PhantomData;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const MAGIC: [u8; 4] = *b"NGJ1";

/// Bytes of the header.
const HEADER: usize = 24;

/// Bytes before a batch.
const HEAD: usize = 12;

/// Bytes before a thing: its length and its place in the order.
const FRAME: usize = 24;

/// No journal is longer, whatever its writer was told: places in it are 32 bits.
pub const MOST_BYTES: u64 = 1 << 30;

/// Things on their way into a journal.
#[derive(Default)]
pub struct BatchBytes {
    bytes: Vec<u8>,
    count: u32,
}

impl BatchBytes {
    /// Appends one.
    pub fn push<T: Pack>(&mut self, thing: &T) {
        if self.bytes.is_empty() {
            self.bytes.resize(HEAD, 0);
        }
        let at = self.bytes.len();
        let (time, id, part) = thing.order();
        self.bytes.extend([0; 4]);
        self.bytes.extend(time.to_le_bytes());
        self.bytes.extend(id.to_le_bytes());
        self.bytes.extend(part.to_le_bytes());
        thing.pack(&mut self.bytes);
        let len = (self.bytes.len() - at - FRAME) as u32;
        self.bytes[at..at + 4].copy_from_slice(&len.to_le_bytes());
        self.count += 1;
    }

    /// How many things.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The whole batch; nothing is left.
    pub fn take(&mut self) -> Vec<u8> {
        if !self.bytes.is_empty() {
            let len = (self.bytes.len() - HEAD) as u32;
            self.bytes[..4].copy_from_slice(&len.to_le_bytes());
            self.bytes[4..8].copy_from_slice(&self.count.to_le_bytes());
            let crc = checksum(&self.bytes);
            self.bytes[8..HEAD].copy_from_slice(&crc.to_le_bytes());
        }
        self.count = 0;
        let room = self.bytes.len();
        std::mem::replace(&mut self.bytes, Vec::with_capacity(room))
    }
}

/// Of the numbers of a batch and of what follows.
fn checksum(batch: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&batch[..8]), &batch[HEAD..])
}

/// A journal that is being written, locked for as long as it is open.
pub struct Journal {
    /// Where it is.
    pub path: PathBuf,
    file: File,
    len: u64,
    dirty: bool,
}

impl Journal {
    /// Creates one under a name that is free.
    ///
    /// # Errors
    /// What the file system says.
    pub fn create<T: Shaped>(root: &Path, kind: Kind, start: Timestamp) -> Result<Self, ColumnsError> {
        let mut copy = 0;
        let (path, file) = loop {
            let path = shelf::journal(root, kind, start, copy);
            copy += 1;
            match sys::disk::create_new(&path, false) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(ColumnsError::io(&path)(e)),
                // A file system without locks has nobody who asks for them either.
                Ok(file) => {
                    let _ = file.try_lock();
                    break (path, file);
                }
            }
        };
        let mut header = [0; HEADER];
        header[..4].copy_from_slice(&MAGIC);
        header[4..8].copy_from_slice(&(kind as u32).to_le_bytes());
        header[8..12].copy_from_slice(&T::SHAPE.to_le_bytes());
        // The standard library's own secret: no two journals of a store have the same.
        header[12..20].copy_from_slice(&RandomState::new().hash_one(&path).to_le_bytes());
        let crc = crc32c::crc32c(&header[..20]);
        header[20..].copy_from_slice(&crc.to_le_bytes());
        file.write_all_at(&header, 0).map_err(ColumnsError::io(&path))?;
        Ok(Self { path, file, len: HEADER as u64, dirty: true })
    }

    /// Appends a batch; what a failure left of it is cut off again.
    ///
    /// # Errors
    /// What the file system says.
    pub fn append(&mut self, batch: &[u8]) -> Result<(), ColumnsError> {
        if let Err(error) = self.file.write_all_at(batch, self.len) {
            // What stays all the same is no whole batch, and the next one is written over it.
            let _ = self.file.set_len(self.len);
            return Err(ColumnsError::io(&self.path)(error));
        }
        self.len += batch.len() as u64;
        self.dirty = true;
        Ok(())
    }

    /// Makes what was appended survive a failure of the power.
    ///
    /// # Errors
    /// What the file system says.
    pub fn sync(&mut self) -> Result<(), ColumnsError> {
        if self.dirty {
            self.file.sync_data().map_err(ColumnsError::io(&self.path))?;
            self.dirty = false;
        }
        Ok(())
    }
}

/// What a thing looks like in bytes, as a number that changes with it.
pub trait Shaped: Pack {
    /// See there.
    const SHAPE: u32;
}

impl Shaped for flow::Record {
    const SHAPE: u32 = 2;
}

impl Shaped for series::Row {
    // Counters are only ever added.
    const SHAPE: u32 = 2 << 16 | (base::Cause::COUNT << 8 | base::Note::COUNT) as u32;
}

/// A journal that was read, as far as it is whole.
pub struct Loaded<T> {
    /// Which one; the file that it is sealed into says the same.
    pub id: u64,
    /// Bytes behind the last whole batch.
    pub torn: u64,
    bytes: Vec<u8>,
    /// In order; where each lies.
    index: Vec<(Order, u32)>,
    what: PhantomData<T>,
}

impl<T: Shaped> Loaded<T> {
    /// Reads what is there at this moment.
    ///
    /// # Errors
    /// When it cannot be read, or is no journal of such things.
    pub fn read(path: &Path, file: &File, kind: Kind) -> Result<Self, ColumnsError> {
        let len = file.metadata().map_or(0, |meta| meta.len().min(MOST_BYTES));
        let mut bytes = Vec::with_capacity(usize::try_from(len).unwrap_or(0) + 1);
        file.take(MOST_BYTES).read_to_end(&mut bytes).map_err(ColumnsError::io(path))?;
        Self::of(bytes, kind).map_err(|what| ColumnsError::damaged(path, what))
    }

    fn of(bytes: Vec<u8>, kind: Kind) -> Result<Self, &'static str> {
        let Some(header) = bytes.first_chunk::<HEADER>() else { return Err("ends within its header") };
        let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        if header[..4] != MAGIC || word(20) != crc32c::crc32c(&header[..20]) {
            return Err("is not a journal, or its header is damaged");
        }
        if word(4) != kind as u32 || word(8) != T::SHAPE {
            return Err("is a journal of another version of netgrain, which has to seal it (netgrain repair)");
        }
        let id = u64::from(word(12)) | u64::from(word(16)) << 32;
        let (mut index, mut at) = (Vec::new(), HEADER);
        while let Some(len) = whole(&bytes[at..]) {
            let Some(mut batch) = frames(&bytes[at..at + len], at) else { break };
            index.append(&mut batch);
            at += len;
        }
        index.sort_unstable();
        Ok(Self { id, torn: (bytes.len() - at) as u64, bytes, index, what: PhantomData })
    }

    /// How many things.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// The one at this place of the order; `None` behind the last.
    pub fn get(&self, place: usize) -> Option<Result<T, &'static str>> {
        let (_, at) = self.index.get(place)?;
        let mut bytes = &self.bytes[*at as usize..];
        Some(T::unpack(&mut bytes).ok_or("a checksum vouches for what is no record: the journal of another version"))
    }
}

/// The length of the batch that these bytes begin with, if it is whole.
fn whole(bytes: &[u8]) -> Option<usize> {
    let head = bytes.first_chunk::<HEAD>()?;
    let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
    let batch = bytes.get(..HEAD.checked_add(len)?)?;
    let crc = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
    (len > 0 && crc == checksum(batch)).then_some(batch.len())
}

/// The things in a batch that lies at this place of the journal.
fn frames(batch: &[u8], begins: usize) -> Option<Vec<(Order, u32)>> {
    let mut out = Vec::new();
    let mut at = HEAD;
    while at < batch.len() {
        let frame: &[u8; FRAME] = batch.get(at..)?.first_chunk()?;
        let word = |at: usize| u32::from_le_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        out.push(((long(4), long(12), word(20)), u32::try_from(begins + at + FRAME).ok()?));
        at = at.checked_add(FRAME)?.checked_add(word(0) as usize)?;
    }
    (at == batch.len()).then_some(out)
}
