//! Reads of whole blocks, several under way at once, into memory that is used again.
//!
//! A [`Chunk`] has room before the bytes that were read, where the beginning of a record is put that the block before
//! ended in: so a record is one slice wherever it lies, and nothing else is copied. Memory is bounded by [`MAX_AHEAD`]
//! whole blocks, or as many bytes in smaller pieces, that nobody waits for yet, and one for each cursor.
//!
//! How many reads are begun ahead doubles with each that is waited for ([`Disk::deepen`]), over all files of an answer: the first read of a
//! short answer is a short one, and a long one keeps the disk busy.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;
use sys::uring::{Aligned, Uring, UringCompletion};

/// Room before the bytes and behind a whole block: the longest record and a page to round up to.
pub const SPARE_BYTES: usize = 17 * Aligned::ALIGN;

/// Bytes of a block.
pub const BLOCK: usize = ring::BLOCK as usize;

const _: () = assert!(SPARE_BYTES >= ring::RECORD_HEADER + ring::CAPLEN_MAX && BLOCK.is_multiple_of(Aligned::ALIGN));

/// Blocks that are begun to be read before anybody waits for them: deep enough to keep a disk busy, and bounded whatever the
/// number of cursors.
const MAX_AHEAD: usize = 16;

/// Reads of a few parts of blocks that are begun ahead: they are answered one by one, so more of them keep a disk busy.
const DEEPEST: usize = 32;

/// Reads under way at once, the ones that somebody waits for included.
const ENTRIES: u32 = 2 * DEEPEST as u32;

/// What is read in one piece and is no block has at most these bytes in memory of its own size: two parts, and a record.
const SMALL: usize = 2 * index::SUB_BLOCK as usize + SPARE_BYTES;

/// A read that was begun.
#[derive(Debug)]
pub struct Ticket(u64);

/// What was read.
pub struct Chunk {
    /// The bytes lie from [`SPARE_BYTES`] on.
    pub memory: Aligned,
    /// How many.
    pub len: usize,
}

/// See the module.
pub struct Disk {
    engine: Engine,
    next: u64,
    /// What is to be read by a ticket, and what has become of it.
    reads: BTreeMap<u64, Read>,
    /// Bytes of memory that these have or will have.
    begun: usize,
    idle: Idle,
    depth: usize,
    waited: u64,
}

/// Memory that waits to be used again: of blocks, and of smaller pieces.
#[derive(Default)]
struct Idle {
    blocks: Vec<Aligned>,
    pieces: Vec<Aligned>,
}

enum Engine {
    /// Nothing was read yet.
    Unknown,
    Uring(Box<Uring<Aligned>>),
    /// The kernel has no io_uring for us: a read is done when somebody waits for it.
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
    /// Nothing is opened before the first read.
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

    /// Whether another read may be begun that nobody waits for yet.
    pub fn has_capacity(&self) -> bool {
        self.reads.len() < self.depth && self.begun + size(BLOCK) <= MAX_AHEAD * size(BLOCK)
    }

    /// What is read next is needed now: more may be begun ahead than before.
    pub fn deepen(&mut self) {
        self.depth = (2 * self.depth).min(DEEPEST);
    }

    /// How many reads were waited for.
    pub fn waited(&self) -> u64 {
        self.waited
    }

    /// Is to read `len` bytes, at most a block and [`SPARE_BYTES`], from `offset` on, a multiple of a page; begins with the next
    /// [`Disk::hand_over`] or [`Disk::wait`].
    ///
    /// # Errors
    /// What the system says of the queue; what it says of the file comes with [`Disk::wait`].
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

    /// Begins what is to be read, in one call: the disk works while this thread walks what it has.
    ///
    /// # Errors
    /// What the system says of the queue.
    pub fn hand_over(&mut self) -> io::Result<()> {
        match &mut self.engine {
            Engine::Uring(ring) => reap(ring, &mut self.reads, (&mut self.begun, &mut self.idle), Duration::ZERO),
            Engine::Unknown | Engine::Plain => Ok(()),
        }
    }

    /// The bytes of a read; fewer than asked only at the end of the file.
    ///
    /// # Errors
    /// What the system says.
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
                // A file system whose direct reads want more alignment than a page: its cache will do.
                read.file = Arc::new(File::open(format!("/proc/self/fd/{}", read.file.as_raw_fd()))?);
                (self.idle.take(read.len), 0)
            }
            Some(Err(e)) => return Err(e),
            None => (self.idle.take(read.len), 0),
        };
        let len = read.finish(&mut memory, have)?;
        Ok(Chunk { memory, len })
    }

    /// Nobody will ask for this one.
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

    /// Memory that is needed no more.
    pub fn recycle(&mut self, memory: Aligned) {
        self.idle.keep(memory);
    }
}

impl Idle {
    /// Memory for a read of so many bytes. What lies idle for reads of the other size makes room for it.
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

/// Bytes of memory for a read of so many.
const fn size(len: usize) -> usize {
    SPARE_BYTES + if len <= SMALL { SMALL } else { BLOCK + SPARE_BYTES }
}

impl Read {
    /// Reads on where `have` bytes are there already: a read may come back short anywhere.
    fn finish(&self, memory: &mut Aligned, have: usize) -> io::Result<usize> {
        let mut have = have;
        while have < self.len {
            // Direct reads go on at a page.
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

/// Takes what has ended.
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
    fn any_reads_in_any_order_give_the_bytes_of_the_file_with_io_uring_and_without() {
        let test = "any_reads_in_any_order_give_the_bytes_of_the_file_with_io_uring_and_without";
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
                        disk.hand_over().expect("a queue");
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
                        "seed {seed}: {len} bytes at {offset}"
                    );
                    disk.recycle(chunk.memory);
                }
            }
            flying.drain(..).for_each(|(.., ticket)| disk.abandon(ticket));
            assert!(disk.idle.blocks.len() <= MAX_AHEAD && disk.idle.pieces.len() <= DEEPEST);
        }
    }

    #[test]
    fn what_the_system_refuses_comes_with_the_read_that_asked() {
        let folder = Arc::new(File::open(std::env::temp_dir()).expect("a folder"));
        for mut disk in [Disk::new(), plain()] {
            let ticket = disk.start(&folder, 0, 4096).expect("a queue");
            assert!(disk.wait(ticket).is_err(), "a folder has no bytes");
        }
    }
}
