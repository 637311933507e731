//! An allocator that counts bytes, for tests of memory use. It counts the allocations of the whole program, so such a
//! test is a program of its own.

#![allow(unsafe_code, reason = "an allocator is unsafe to write; this one passes everything on")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The system's allocator with a count: `#[global_allocator] static COUNTING: Counting = Counting::new();`
#[derive(Debug, Default)]
pub struct Counting {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Counting {
    /// An allocator before the first allocation.
    pub const fn new() -> Self {
        Self { now: AtomicUsize::new(0), most: AtomicUsize::new(0) }
    }

    /// Begins a measurement; returns the bytes that are allocated now, for [`Self::most_since`].
    pub fn begin(&self) -> usize {
        let now = self.now.load(Relaxed);
        self.most.store(now, Relaxed);
        now
    }

    /// The largest number of bytes allocated at once since [`Self::begin`] returned `begun`, less `begun`.
    pub fn most_since(&self, begun: usize) -> usize {
        self.most.load(Relaxed) - begun
    }
}

// SAFETY: the system's allocator does everything; only numbers are added.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = self.now.fetch_add(layout.size(), Relaxed) + layout.size();
        self.most.fetch_max(now, Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        self.now.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}
