//! An allocator that counts the allocated bytes, for tests of memory use. It counts the allocations of the whole test
//! program, so such a test must be the only test of its program.

#![allow(
    unsafe_code,
    reason = "an allocator is unsafe to write; this allocator forwards every call to the system's allocator"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

thread_local! {
    /// The number of bytes that this thread has allocated minus the number that it has freed, and the highest value of
    /// this balance. A thread may free memory that another thread allocated, so the balance can be negative.
    static BALANCE: Cell<isize> = const { Cell::new(0) };
    static HIGHEST: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator with a count: `#[global_allocator] static COUNTING: Counting = Counting::new();`
#[derive(Debug, Default)]
pub struct Counting {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Counting {
    /// An allocator whose counters are zero.
    pub const fn new() -> Self {
        Self { now: AtomicUsize::new(0), most: AtomicUsize::new(0) }
    }

    /// Begins a measurement. Returns the number of bytes that are allocated now, which is the argument of
    /// [`Self::most_since`].
    pub fn begin(&self) -> usize {
        let now = self.now.load(Relaxed);
        self.most.store(now, Relaxed);
        now
    }

    /// The highest number of allocated bytes since [`Self::begin`] returned `begun`, minus `begun`.
    pub fn most_since(&self, begun: usize) -> usize {
        self.most.load(Relaxed) - begun
    }

    /// Begins a measurement of the allocations of this thread only, so that several tests can measure in parallel. In
    /// all other respects it is like [`Self::begin`].
    pub fn begin_thread(&self) -> isize {
        let now = BALANCE.get();
        HIGHEST.set(now);
        now
    }

    /// Like [`Self::most_since`], but for the allocations of this thread.
    pub fn most_of_thread_since(&self, begun: isize) -> usize {
        usize::try_from(HIGHEST.get() - begun).unwrap_or(0)
    }
}

// SAFETY: every call goes to the system's allocator; only counters are added.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = self.now.fetch_add(layout.size(), Relaxed) + layout.size();
        self.most.fetch_max(now, Relaxed);
        // Both thread-local cells have a constant initial value and no destructor, so access neither allocates nor
        // fails.
        let balance = BALANCE.get() + layout.size() as isize;
        BALANCE.set(balance);
        HIGHEST.set(HIGHEST.get().max(balance));
        // SAFETY: the caller guarantees the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        self.now.fetch_sub(layout.size(), Relaxed);
        BALANCE.set(BALANCE.get() - layout.size() as isize);
        // SAFETY: the caller guarantees the contract of `dealloc`.
        unsafe { System.dealloc(memory, layout) }
    }
}
