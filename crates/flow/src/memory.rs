//! What only the owner of a meter can ask of the machine, since it takes unsafe code and system calls: pages of 2 MiB, and
//! lines before they are needed.
//!
//! A packet finds its flow anywhere in hundreds of megabytes. In pages of 4 KiB each such access also misses the TLB; in
//! pages of 2 MiB it mostly does not. And a miss costs ten nanoseconds if there are others beside it, but 170 if it must be
//! waited for (`docs/design/flow-metering.md`).

use std::ops::Range;

/// Two hints. They change no record; without them a meter of many flows takes about twice as long.
///
/// They are part of the meter's type, so that asking for a line is one instruction in the middle of others and not a call
/// through a pointer, of which there were nine per flow.
pub trait Hints: Copy {
    /// Shown each region of memory that is reserved, before it is touched: to be made of huge pages if possible.
    fn reserved(self, region: Range<*const u8>);

    /// The line at this address will be needed soon.
    fn prefetch(self, address: *const u8);
}

/// Nothing is asked.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHints;

impl Hints for NoHints {
    fn reserved(self, _: Range<*const u8>) {}

    #[inline(always)]
    fn prefetch(self, _: *const u8) {}
}

/// The hints in the words of who keeps values.
pub(crate) trait HintsExt: Hints {
    /// An empty vector with room for so many. Its pages are given by the kernel when they are first written to, and it
    /// never moves unless it is pushed beyond that.
    fn reserve<T>(self, count: usize) -> Vec<T> {
        let room: Vec<T> = Vec::with_capacity(count);
        let start = room.as_ptr().cast::<u8>();
        self.reserved(start..start.wrapping_add(room.capacity() * size_of::<T>()));
        room
    }

    /// The line in which this begins.
    #[inline(always)]
    fn fetch<T>(self, what: &T) {
        self.prefetch(std::ptr::from_ref(what).cast());
    }
}

impl<H: Hints> HintsExt for H {}
