//! The memory that packets are written from: shared with the ring, never copied.
//!
//! Invariant: bytes that a [`Slice`] names do not change while it lives. The ring keeps it because a gate listener's part
//! is not overwritten before it is released, and the recorder releases a part only when its slices are gone.

use std::sync::Arc;
use sys::uring::{Region, Stable};

/// Direct writes are cut at multiples of this many bytes, in memory and in the file.
pub const PAGE: u64 = 4096;

/// Memory that holds a stretch of the packet stream, addressed by stream position.
pub trait Bytes: Send + Sync {
    /// The `len` bytes at stream position `pos`, contiguous. Whole blocks (1 MiB at a multiple of it) are aligned to
    /// [`PAGE`] in memory too. Only positions that were published and not yet released may be asked for.
    fn at(&self, pos: u64, len: usize) -> &[u8];

    /// Where the memory lies, for pinning it; each byte once.
    fn regions(&self) -> Vec<Region>;

    /// Whether pinning it is worth while by now: it would make all pages of memory that is made as it is written.
    fn is_warm(&self) -> bool {
        true
    }
}

/// One page with its alignment, for the tail of a partial block.
#[repr(align(4096))]
#[derive(Clone, Debug)]
pub struct Page(pub [u8; PAGE as usize]);

/// Read-only bytes that live as long as the slice does.
#[derive(Clone)]
pub struct Slice(Kind);

#[derive(Clone)]
enum Kind {
    Stream {
        memory: Arc<dyn Bytes>,
        pos: u64,
        len: usize,
    },
    /// Pages of its own: these, from the first number up to the second.
    Own(Arc<Vec<Page>>, usize, usize),
}

impl Slice {
    /// A stretch of the stream.
    pub fn stream(memory: &Arc<dyn Bytes>, pos: u64, len: usize) -> Self {
        Self(Kind::Stream { memory: Arc::clone(memory), pos, len })
    }

    /// A page of its own that begins with `content` (at most a page) and ends in zeros, so that nothing stale that lies
    /// behind the content in memory reaches the disk.
    pub fn padded(content: &[u8]) -> Self {
        let Self(kind) = Self::copied(content);
        match kind {
            Kind::Own(pages, from, _) => Self(Kind::Own(pages, from, PAGE as usize)),
            stream @ Kind::Stream { .. } => Self(stream),
        }
    }

    /// A copy in pages of its own.
    pub fn copied(content: &[u8]) -> Self {
        let page = |part: &[u8]| {
            let mut page = Page([0; PAGE as usize]);
            page.0[..part.len()].copy_from_slice(part);
            page
        };
        let pages = content.chunks(PAGE as usize).map(page).collect();
        Self(Kind::Own(Arc::new(pages), 0, content.len()))
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match &self.0 {
            Kind::Stream { memory, pos, len } => memory.at(*pos, *len),
            Kind::Own(pages, from, to) => &flat(pages)[*from..*to],
        }
    }

    /// How many.
    pub fn len(&self) -> usize {
        match &self.0 {
            Kind::Stream { len, .. } => *len,
            Kind::Own(_, from, to) => to - from,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first `len` bytes, at most all.
    #[must_use]
    pub fn until(&self, len: usize) -> Self {
        let mut out = self.clone();
        match &mut out.0 {
            Kind::Stream { len: all, .. } => *all = len.min(*all),
            Kind::Own(_, from, to) => *to = (*to).min(*from + len),
        }
        out
    }

    /// The bytes from `from` on.
    #[must_use]
    pub fn after(&self, from: usize) -> Self {
        let mut out = self.clone();
        match &mut out.0 {
            Kind::Stream { pos, len, .. } => (*pos, *len) = (*pos + from as u64, *len - from),
            Kind::Own(_, begin, _) => *begin += from,
        }
        out
    }
}

fn flat(pages: &[Page]) -> &[u8] {
    // SAFETY: a page is an array of bytes whose size is its alignment, so a slice of pages is one of bytes.
    unsafe { std::slice::from_raw_parts(pages.as_ptr().cast(), size_of_val(pages)) }
}

// SAFETY: the pages and the shared memory are behind an Arc and do not move with the slice; the module's invariant says
// that the bytes do not change while it lives.
unsafe impl Stable for Slice {
    fn bytes(&self) -> &[u8] {
        Self::bytes(self)
    }
}
