//! The memory from which the recorder writes packets to disk. The memory is shared with the ring, so packets are not
//! copied.
//!
//! Invariant: the bytes of a [`Slice`] do not change while it lives. The producer does not overwrite memory that a
//! lossless reader has not released, and the recorder releases a range of the memory only after all slices of that
//! range are dropped.

use std::sync::Arc;
use sys::uring::{Region, Stable};

/// Alignment of direct writes (`O_DIRECT`), for the address in memory and for the offset in the file.
pub const PAGE: u64 = 4096;

/// Memory that holds a range of the packet stream, addressed by stream position.
pub trait Bytes: Send + Sync {
    /// The `len` bytes at stream position `pos`, contiguous. A complete block (1 MiB at a multiple of 1 MiB) is also
    /// aligned to [`PAGE`] in memory. The caller must request only positions that are published and not yet released.
    fn at(&self, pos: u64, len: usize) -> &[u8];

    /// The address ranges of the memory that io_uring pins; no byte is in two ranges.
    fn regions(&self) -> Vec<Region>;

    /// True if the memory may be pinned now. Pinning allocates all pages, so memory whose pages are allocated on first
    /// write must not be pinned before these writes.
    fn is_warm(&self) -> bool {
        true
    }
}

/// One aligned page, for the end of a partial block.
#[repr(align(4096))]
#[derive(Clone, Debug)]
pub struct Page(pub [u8; PAGE as usize]);

/// Read-only bytes that stay valid as long as the slice lives.
#[derive(Clone)]
pub struct Slice(Kind);

#[derive(Clone)]
enum Kind {
    Stream {
        memory: Arc<dyn Bytes>,
        pos: u64,
        len: usize,
    },
    /// A copy of bytes in newly allocated pages. The two numbers are the offsets in these pages at which the slice
    /// begins and ends.
    Own(Arc<Vec<Page>>, usize, usize),
}

impl Slice {
    /// A range of the stream.
    pub fn stream(memory: &Arc<dyn Bytes>, pos: u64, len: usize) -> Self {
        Self(Kind::Stream { memory: Arc::clone(memory), pos, len })
    }

    /// A copy of `content` (at most a page), padded with zeros to a page, so that the bytes that follow `content` in
    /// memory are not written to the disk.
    pub fn padded(content: &[u8]) -> Self {
        let Self(kind) = Self::copied(content);
        match kind {
            Kind::Own(pages, from, _) => Self(Kind::Own(pages, from, PAGE as usize)),
            stream @ Kind::Stream { .. } => Self(stream),
        }
    }

    /// A copy of `content` in newly allocated pages.
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

    /// Number of bytes.
    pub fn len(&self) -> usize {
        match &self.0 {
            Kind::Stream { len, .. } => *len,
            Kind::Own(_, from, to) => to - from,
        }
    }

    /// True if the slice has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first `len` bytes, or all bytes if the slice is shorter.
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
    // SAFETY: a page is an array of bytes whose size equals its alignment, so a slice of pages can be read as a slice
    // of bytes.
    unsafe { std::slice::from_raw_parts(pages.as_ptr().cast(), size_of_val(pages)) }
}

// SAFETY: the pages and the shared memory are behind an Arc and do not move when the slice moves; the module's
// invariant says that the bytes do not change while it lives.
unsafe impl Stable for Slice {
    fn bytes(&self) -> &[u8] {
        Self::bytes(self)
    }
}
