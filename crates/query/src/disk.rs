//! Reads complete blocks of packet files, with several reads in progress, into reused memory.
//!
//! A [`Chunk`] has free space before the bytes that were read. If a record began in the previous block, the caller
//! copies the beginning of the record into this space. So each record is one slice, and no other bytes are copied. The
//! memory is limited: it holds at most [`MAX_AHEAD`] complete blocks that are read in advance (or as many bytes in
//! smaller pieces), and one block for each cursor.
//!
//! The permitted number of reads in advance applies to all files of a query together. It doubles with each read for
//! which the query waits ([`Disk::deepen`]). So a query with a short result reads little in advance, and a query with a
//! long result keeps the disk busy.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;
use sys::uring::{Aligned, Uring, UringCompletion};

/// Free space in a chunk before the bytes that were read, and after a complete block: the length of the longest record,
/// rounded up to a page.
pub const SPARE_BYTES: usize = 17 * Aligned::ALIGN;

/// Size of a block in bytes.
pub const BLOCK: usize = ring::BLOCK as usize;

const _: () = assert!(SPARE_BYTES >= ring::RECORD_HEADER + ring::CAPLEN_MAX && BLOCK.is_multiple_of(Aligned::ALIGN));

/// The largest number of blocks that are read in advance, for all cursors together: enough to keep a disk busy.
const MAX_AHEAD: usize = 16;

/// The largest number of reads of single sub-blocks that are in progress in advance. These reads are small, so more of
/// them are needed to keep a disk busy.
const DEEPEST: usize = 32;

/// The largest number of reads in progress, including those for which a cursor waits.
const ENTRIES: u32 = 2 * DEEPEST as u32;

/// A read of at most this size gets the smaller of the two kinds of buffers, for two sub-blocks and a record, instead
/// of a buffer for a block.
const SMALL: usize = 2 * index::SUB_BLOCK as usize + SPARE_BYTES;

/// A read in progress.
#[derive(Debug)]
pub struct Ticket(u64);

/// The result of a read.
pub struct Chunk {
    /// The memory into which the bytes were read; they begin at offset [`SPARE_BYTES`].
    pub memory: Aligned,
    /// Number of bytes read.
    pub len: usize,
}

/// The read queue of one query.
pub struct Disk {
    engine: Engine,
    next: u64,
    /// The reads in progress or complete, by ticket number.
    reads: BTreeMap<u64, Read>,
    /// Number of bytes of memory that the reads in `reads` use or will use.
    begun: usize,
    idle: Idle,
    depth: usize,
    waited: u64,
}

/// Memory for reuse: for complete blocks, and for smaller pieces.
#[derive(Default)]
struct Idle {
    blocks: Vec<Aligned>,
    pieces: Vec<Aligned>,
}

enum Engine {
    /// Before the first read.
    Unknown,
    Uring(Box<Uring<Aligned>>),
    /// Without io_uring: a read is executed when a cursor waits for it.
    Plain,
}

struct Read {
    file: Arc<File>,
    offset: u64,
    len: usize,
    outcome: Option<io::Result<Chunk>>,
    abandoned: bool,
}

impl Disk {
    /// A queue without reads; the first read sets up io_uring.
    pub fn new() -> Self {
        Self {
            engine: Engine::Unknown,
            next: 0,
            reads: BTreeMap::new(),
            begun: 0,
            idle: Idle::default(),
            depth: 1,
            waited: 0,
        }
    }

    /// True if another read in advance may start.
    pub fn has_capacity(&self) -> bool {
        self.reads.len() < self.depth && self.begun + size(BLOCK) <= MAX_AHEAD * size(BLOCK)
    }

    /// Doubles the permitted number of reads in advance; called when a cursor has to wait for a read.
    pub fn deepen(&mut self) {
        self.depth = (2 * self.depth).min(DEEPEST);
    }

    /// The number of reads for which cursors had to wait.
    pub fn waited(&self) -> u64 {
        self.waited
    }

    /// Queues a read of `len` bytes, at most a block and [`SPARE_BYTES`], at `offset`, a multiple of the page size. The
    /// read starts with the next [`Disk::submit`] or [`Disk::wait`].
    ///
    /// # Errors
    /// An error of the io_uring; an error of the file is returned by [`Disk::wait`].
    pub fn start(&mut self, file: &Arc<File>, offset: u64, len: usize) -> io::Result<Ticket> {
        if matches!(self.engine, Engine::Unknown) {
            self.engine = Uring::new(ENTRIES).map_or(Engine::Plain, |ring| Engine::Uring(Box::new(ring)));
        }
        let token = self.next;
        self.next += 1;
        if let Engine::Uring(ring) = &mut self.engine {
            while ring.in_flight() >= ENTRIES as usize {
                reap(ring, &mut self.reads, (&mut self.begun, &mut self.idle), Duration::from_secs(1))?;
            }
            let memory = self.idle.take(len);
            ring.read(file, offset, memory, SPARE_BYTES..SPARE_BYTES + rounded(len), token)?;
        }
        self.begun += size(len);
        self.reads.insert(token, Read { file: Arc::clone(file), offset, len, outcome: None, abandoned: false });
        Ok(Ticket(token))
    }

    /// Starts all queued reads with one system call, so that the disk reads while this thread processes packets.
    ///
    /// # Errors
    /// An error of the io_uring.
    pub fn submit(&mut self) -> io::Result<()> {
        match &mut self.engine {
            Engine::Uring(ring) => reap(ring, &mut self.reads, (&mut self.begun, &mut self.idle), Duration::ZERO),
            Engine::Unknown | Engine::Plain => Ok(()),
        }
    }

    /// Waits for a read. The chunk has fewer bytes than requested only at the end of the file.
    ///
    /// # Errors
    /// The error of the read.
    pub fn wait(&mut self, ticket: Ticket) -> io::Result<Chunk> {
        let token = ticket.0;
        self.waited += 1;
        while let Engine::Uring(ring) = &mut self.engine
            && self.reads.get(&token).is_some_and(|read| read.outcome.is_none())
        {
            reap(ring, &mut self.reads, (&mut self.begun, &mut self.idle), Duration::from_secs(1))?;
        }
        let Some(mut read) = self.reads.remove(&token) else { return Err(io::ErrorKind::NotFound.into()) };
        self.begun -= size(read.len);
        let (mut memory, have) = match read.outcome.take() {
            Some(Ok(chunk)) => (chunk.memory, chunk.len),
            Some(Err(e)) if e.kind() == io::ErrorKind::InvalidInput => {
                // Direct I/O on this file system requires more alignment than a page, so the file is read through the
                // page cache.
                read.file = Arc::new(File::open(format!("/proc/self/fd/{}", read.file.as_raw_fd()))?);
                (self.idle.take(read.len), 0)
            }
            Some(Err(e)) => return Err(e),
            None => (self.idle.take(read.len), 0),
        };
        let len = read.finish(&mut memory, have)?;
        Ok(Chunk { memory, len })
    }

    /// Discards the result of a read that is no longer needed.
    pub fn abandon(&mut self, ticket: Ticket) {
        match self.reads.get_mut(&ticket.0) {
            Some(read) if read.outcome.is_none() && matches!(self.engine, Engine::Uring(_)) => read.abandoned = true,
            _ => {
                if let Some(Read { outcome, len, .. }) = self.reads.remove(&ticket.0) {
                    self.begun -= size(len);
                    if let Some(Ok(chunk)) = outcome {
                        self.recycle(chunk.memory);
                    }
                }
            }
        }
    }

    /// Takes back memory for reuse.
    pub fn recycle(&mut self, memory: Aligned) {
        self.idle.keep(memory);
    }
}

impl Idle {
    /// Memory for a read of this many bytes. If only idle memory of the wrong size exists, it is freed before new
    /// memory is allocated.
    fn take(&mut self, len: usize) -> Aligned {
        let (same, other) = match len <= SMALL {
            true => (&mut self.pieces, &mut self.blocks),
            false => (&mut self.blocks, &mut self.pieces),
        };
        same.pop().unwrap_or_else(|| {
            other.truncate(other.len().saturating_sub(size(len).div_ceil(size(SMALL))));
            Aligned::new(size(len))
        })
    }

    fn keep(&mut self, memory: Aligned) {
        let (same, most) = match memory.len() < size(BLOCK) {
            true => (&mut self.pieces, DEEPEST),
            false => (&mut self.blocks, MAX_AHEAD),
        };
        if same.len() < most {
            same.push(memory);
        }
    }
}

/// Number of bytes of memory that a read of `len` bytes needs.
const fn size(len: usize) -> usize {
    SPARE_BYTES + if len <= SMALL { SMALL } else { BLOCK + SPARE_BYTES }
}

impl Read {
    /// Reads the bytes after the first `have` bytes, because a read may return fewer bytes than requested.
    fn finish(&self, memory: &mut Aligned, have: usize) -> io::Result<usize> {
        let mut have = have;
        while have < self.len {
            // Direct reads must start at a page boundary.
            let from = have - have % Aligned::ALIGN;
            let part = &mut memory[SPARE_BYTES + from..SPARE_BYTES + rounded(self.len)];
            match self.file.read_at(part, self.offset + from as u64) {
                Ok(n) if from + n <= have => break,
                Ok(n) => have = from + n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(have.min(self.len))
    }
}

fn rounded(len: usize) -> usize {
    len.min(BLOCK + SPARE_BYTES).next_multiple_of(Aligned::ALIGN)
}

/// Collects the completed reads.
fn reap(
    ring: &mut Uring<Aligned>,
    reads: &mut BTreeMap<u64, Read>,
    (begun, idle): (&mut usize, &mut Idle),
    wait: Duration,
) -> io::Result<()> {
    let mut done: Vec<UringCompletion<Aligned>> = Vec::new();
    ring.reap(wait, &mut done)?;
    for UringCompletion { token, result, buffer } in done {
        let Some(memory) = buffer else { continue };
        match reads.get_mut(&token) {
            Some(read) if !read.abandoned => {
                read.outcome = Some(match result {
                    Ok(len) => Ok(Chunk { memory, len }),
                    Err(e) => {
                        idle.keep(memory);
                        Err(e)
                    }
                });
            }
            _ => {
                *begun -= reads.remove(&token).map_or(0, |read| size(read.len));
                idle.keep(memory);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;
    use std::collections::VecDeque;

    fn plain() -> Disk {
        Disk { engine: Engine::Plain, ..Disk::new() }
    }

    #[test]
    fn reads_in_any_order_give_the_file_with_and_without_io_uring() {
        let test = "reads_in_any_order_give_the_file_with_and_without_io_uring";
        let seed = testkit::seed(test);
        let mut prng = Prng::new(seed);
        let dir = testkit::TempDir::new("query-disk");
        let mut content = vec![0; 5 * BLOCK + 12_345];
        prng.fill(&mut content);
        std::fs::write(dir.join("file"), &content).expect("a file");
        let (file, _) = sys::uring::open_aligned(&dir.join("file")).expect("the file");
        let file = Arc::new(file);
        for mut disk in [Disk::new(), plain()] {
            let mut flying = VecDeque::new();
            for _ in 0..300 {
                if disk.has_capacity() && prng.below(3) > 0 {
                    let offset = prng.below(6 * 256) as usize * Aligned::ALIGN;
                    let most = if prng.below(2) == 0 { SMALL } else { BLOCK + SPARE_BYTES };
                    let len = 1 + prng.below(most as u64) as usize;
                    let ticket = disk.start(&file, offset as u64, len).expect("a queue");
                    flying.push_back((offset, len, ticket));
                    if prng.below(2) == 0 {
                        disk.submit().expect("a queue");
                    }
                } else if let Some((offset, len, ticket)) = flying.swap_remove_back(0) {
                    if prng.below(5) == 0 {
                        disk.abandon(ticket);
                        continue;
                    }
                    let chunk = disk.wait(ticket).expect("a read");
                    let end = (offset + len).min(content.len());
                    let expected = content.get(offset..end).unwrap_or(&[]);
                    assert!(
                        chunk.memory[SPARE_BYTES..SPARE_BYTES + chunk.len] == *expected,
                        "seed {seed}: read of {len} bytes at offset {offset}"
                    );
                    disk.recycle(chunk.memory);
                }
            }
            flying.drain(..).for_each(|(.., ticket)| disk.abandon(ticket));
            assert!(disk.idle.blocks.len() <= MAX_AHEAD && disk.idle.pieces.len() <= DEEPEST);
        }
    }

    #[test]
    fn an_error_is_returned_by_the_wait_for_its_read() {
        let directory = Arc::new(File::open(std::env::temp_dir()).expect("a directory"));
        for mut disk in [Disk::new(), plain()] {
            let ticket = disk.start(&directory, 0, 4096).expect("a queue");
            assert!(disk.wait(ticket).is_err(), "reading a directory must return an error");
        }
    }
}
