//! Memory hints for the benchmarks of pure crates, which make no system calls themselves.

use base::memory::Hints;
use std::ops::Range;

/// Huge pages and prefetches, as in the engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryHints;

impl Hints for MemoryHints {
    fn reserved(self, region: Range<*const u8>) {
        sys::memory::prefer_huge_pages(region);
    }

    #[inline(always)]
    fn prefetch(self, address: *const u8) {
        sys::memory::prefetch(address);
    }
}
