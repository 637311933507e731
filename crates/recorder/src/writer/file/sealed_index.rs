//! The sealed index of a packet file. Its data stays in memory until the file is complete, and is then written in
//! chunks, so that blocks of the next file do not wait for a complete index.

use base::Timestamp;
use index::{Builder, Entry, Header, Sealing};
use std::io;
use std::path::PathBuf;
use store::device::{Content, Device, FileId};

/// The sealed index.
pub struct SealedIndex {
    /// The path; a hidden name until publication.
    pub path: PathBuf,
    /// The file; `None` until it is created.
    pub file: Option<FileId>,
    state: SealedIndexState,
}

enum SealedIndexState {
    /// The entries of blocks are collected: all blocks except the last one.
    Collecting(Builder),
    /// The index is being written.
    Writing(Chunks),
    /// All chunks are written.
    Complete,
    /// The packet file is too large for an index.
    Impossible,
}

struct Chunks {
    rest: Sealing,
    /// The next chunk to write; `at` is its offset in the index.
    chunk: Vec<u8>,
    at: u64,
}

impl SealedIndex {
    /// The index of a file without blocks.
    pub fn new(path: PathBuf, header: Header) -> Self {
        Self { path, file: None, state: SealedIndexState::Collecting(Builder::new(header)) }
    }

    /// Adds the final entry of a block.
    pub fn push(&mut self, entry: Entry) {
        if let SealedIndexState::Collecting(builder) = &mut self.state {
            builder.push(entry);
        }
    }

    /// Writes a chunk of the index under a hidden name; returns true after the last chunk. `len` is the length of the
    /// packet file and `end` the time at which it ended. If the write of a chunk fails, the next call repeats it.
    pub fn write_chunk<D: Device>(&mut self, device: &mut D, len: u64, end: Timestamp) -> io::Result<bool> {
        match std::mem::replace(&mut self.state, SealedIndexState::Impossible) {
            SealedIndexState::Collecting(builder) => {
                let rest = builder.seal(len, end, &[])?;
                self.state = SealedIndexState::Writing(Chunks { rest, chunk: Vec::new(), at: 0 });
            }
            SealedIndexState::Impossible => {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "the packet file is too large for an index"));
            }
            other => self.state = other,
        }
        let file = self.create(device)?;
        let SealedIndexState::Writing(chunks) = &mut self.state else { return Ok(true) };
        device.put(file, chunks.at, &chunks.chunk)?;
        chunks.at += chunks.chunk.len() as u64;
        match chunks.rest.next() {
            Some(chunk) => {
                chunks.chunk = chunk;
                Ok(false)
            }
            None => {
                self.state = SealedIndexState::Complete;
                Ok(true)
            }
        }
    }

    /// The file, which is created if it does not exist yet.
    fn create<D: Device>(&mut self, device: &mut D) -> io::Result<FileId> {
        let file = match self.file {
            Some(file) => file,
            None => match device.create(&self.path, Content::Index) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                    // This file was left by a recorder that was killed while it sealed a file of the same name.
                    device.remove(&self.path)?;
                    device.create(&self.path, Content::Index)?
                }
                other => other?,
            },
        };
        self.file = Some(file);
        Ok(file)
    }
}
