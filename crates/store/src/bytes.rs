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
    /// The page from this byte on.
    Page(Arc<Page>, usize),
}

impl Slice {
    /// A stretch of the stream.
    pub fn stream(memory: &Arc<dyn Bytes>, pos: u64, len: usize) -> Self {
        Self(Kind::Stream { memory: Arc::clone(memory), pos, len })
    }

    /// A page of its own that begins with `content` (at most a page) and ends in zeros, so that nothing stale that lies
    /// behind the content in memory reaches the disk.
    pub fn padded(content: &[u8]) -> Self {
        let mut page = Page([0; PAGE as usize]);
        page.0[..content.len()].copy_from_slice(content);
        Self(Kind::Page(Arc::new(page), 0))
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match &self.0 {
            Kind::Stream { memory, pos, len } => memory.at(*pos, *len),
            Kind::Page(page, from) => &page.0[*from..],
        }
    }

    /// How many.
    pub fn len(&self) -> usize {
        match &self.0 {
            Kind::Stream { len, .. } => *len,
            Kind::Page(_, from) => PAGE as usize - from,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first `len` bytes of a stretch of the stream; a page is always whole.
    #[must_use]
    pub fn until(&self, len: usize) -> Self {
        Self(match &self.0 {
            Kind::Stream { memory, pos, len: all } => {
                Kind::Stream { memory: Arc::clone(memory), pos: *pos, len: len.min(*all) }
            }
            Kind::Page(page, from) => Kind::Page(Arc::clone(page), *from),
        })
    }

    /// The bytes from `from` on.
    #[must_use]
    pub fn after(&self, from: usize) -> Self {
        Self(match &self.0 {
            Kind::Stream { memory, pos, len } => {
                Kind::Stream { memory: Arc::clone(memory), pos: pos + from as u64, len: len - from }
            }
            Kind::Page(page, at) => Kind::Page(Arc::clone(page), at + from),
        })
    }
}

// SAFETY: the page and the shared memory are behind an Arc and do not move with the slice; the module's invariant says
// that the bytes do not change while it lives.
unsafe impl Stable for Slice {
    fn bytes(&self) -> &[u8] {
        Self::bytes(self)
    }
}
