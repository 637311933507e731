//! Where the pools and tables get their memory: reserved at once, and announced to whoever can make it cheaper to reach.
//!
//! A packet finds its flow anywhere in hundreds of megabytes. In pages of 4 KiB each such access also misses the TLB, and
//! the walk through the page tables misses the caches in its turn; in pages of 2 MiB it mostly does not. Asking for
//! them is a system call, which this room does not make, so each region is shown once to a closure of the
//! owner (`sys::memory::prefer_huge_pages` in `engine`) before it is touched for the first time.

use std::ops::Range;

/// Takes reservations, and shows each to the owner.
pub(crate) struct Reserve<'a> {
    shown: &'a mut dyn FnMut(Range<*const u8>),
}

impl<'a> Reserve<'a> {
    pub fn new(shown: &'a mut dyn FnMut(Range<*const u8>)) -> Self {
        Self { shown }
    }

    /// An empty vector with room for so many. Its pages are given by the kernel when they are first written to, and it
    /// never moves unless it is pushed beyond that.
    pub fn room<T>(&mut self, count: usize) -> Vec<T> {
        let room: Vec<T> = Vec::with_capacity(count);
        let start = room.as_ptr().cast::<u8>();
        (self.shown)(start..start.wrapping_add(room.capacity() * size_of::<T>()));
        room
    }
}
