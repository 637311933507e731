//! Memory hints that need unsafe code and system calls, which the owner of a large table provides: huge pages of 2 MiB,
//! and prefetches of cache lines.
//!
//! The entry of a packet can be anywhere in hundreds of megabytes. With pages of 4 KiB each such access also misses the
//! TLB; with pages of 2 MiB most do not. A cache miss costs ten nanoseconds if other misses are in flight, but 170 if
//! the core must wait for it (`docs/design/flow-metering.md`).

use std::ops::Range;

/// The memory hints: huge pages and prefetches. They do not change any result; without them a meter of many flows takes
/// about twice as long.
///
/// The hints are a type parameter of the table, so that a prefetch is one instruction instead of a call through a
/// pointer; a flow needs nine prefetches.
pub trait Hints: Copy {
    /// Called with each reserved region of memory before the first access, so that the region can get huge pages.
    fn reserved(self, region: Range<*const u8>);

    /// Prefetches the cache line at this address.
    fn prefetch(self, address: *const u8);
}

/// Hints without effect.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHints;

impl Hints for NoHints {
    fn reserved(self, _: Range<*const u8>) {}

    #[inline(always)]
    fn prefetch(self, _: *const u8) {}
}

/// Hints for typed values.
pub trait HintsExt: Hints {
    /// An empty vector with capacity for `count` values. The kernel allocates its pages at the first write, and the
    /// vector never moves unless it exceeds the capacity.
    fn reserve<T>(self, count: usize) -> Vec<T> {
        let room: Vec<T> = Vec::with_capacity(count);
        let start = room.as_ptr().cast::<u8>();
        self.reserved(start..start.wrapping_add(room.capacity() * size_of::<T>()));
        room
    }

    /// Prefetches the cache line in which the value begins.
    #[inline(always)]
    fn fetch<T>(self, what: &T) {
        self.prefetch(std::ptr::from_ref(what).cast());
    }
}

impl<H: Hints> HintsExt for H {}
