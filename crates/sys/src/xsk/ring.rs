//! The four rings of AF_XDP sockets: each has a single producer and a single consumer, one of which is the kernel
//! (net/xdp/xsk_queue.h).
//!
//! ```text
//!   producer (u32) ... consumer (u32) ... flags (u32) ... entries[size], size a power of two
//! ```
//! Indexes wrap only at 2^32 and are masked on access. The producer writes entries, then its index with release order;
//! the consumer reads that index with acquire order, then the entries, then writes its own index with release order.
//! Producer and consumer each have a private copy of the other's index, and read the index in shared memory only when
//! no entry is left according to the copy.

use super::{Step, StepError};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::sockopt::{
    set_xdp_rx_ring_size, set_xdp_tx_ring_size, set_xdp_umem_completion_ring_size, set_xdp_umem_fill_ring_size,
    xdp_mmap_offsets,
};
use rustix::net::xdp::{
    XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING,
};
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

/// An entry of the receive and transmit rings (`struct xdp_desc`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Desc {
    pub addr: u64,
    pub len: u32,
    pub options: u32,
}

/// Selects one of the four rings, and with it the socket option and the mmap offset of that ring.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Receive,
    Transmit,
    Fill,
    Completion,
}

/// The shared memory of one ring. `E` is `Desc` for receive and transmit, `u64` for fill and completion.
struct Shared<E> {
    map: NonNull<u8>,
    map_bytes: usize,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<E>,
    size: u32,
}

/// A ring that we write and the kernel reads.
pub(super) struct Producer<E> {
    shared: Shared<E>,
    /// Index of the next entry to write. [`Producer::submit`] stores it in the shared memory.
    next: u32,
    /// The kernel's index, as last read from the shared memory.
    consumer: u32,
}

/// A ring that the kernel writes and we read.
pub(super) struct Consumer<E> {
    shared: Shared<E>,
    /// Index of the next entry to read. [`Consumer::release`] stores it in the shared memory.
    next: u32,
    /// The kernel's index, as last read from the shared memory.
    producer: u32,
}

// SAFETY: the mapping is not bound to a thread, and each ring has one owner on our side.
unsafe impl<E: Send> Send for Shared<E> {}

impl<E: Copy> Producer<E> {
    pub fn open(fd: &OwnedFd, kind: Kind, size: u32) -> Result<Self, StepError> {
        let shared = Shared::open(fd, kind, size)?;
        Ok(Self { shared, next: 0, consumer: 0 })
    }

    /// Number of entries that can be written now.
    pub fn room(&mut self) -> u32 {
        self.consumer = self.shared.consumer().load(Ordering::Acquire);
        self.shared.size - self.next.wrapping_sub(self.consumer)
    }

    /// Number of entries that the kernel has not read yet.
    pub fn waiting(&mut self) -> u32 {
        self.shared.size - self.room()
    }

    /// Writes one entry. The caller guarantees that there is space: by [`Producer::room`], or because there are no more
    /// chunks than entries. The kernel's index can lag behind: `xsk_flush` publishes received frames before it
    /// publishes that it has read their fill entries, so a chunk may be returned before its old entry is visible as
    /// free.
    #[inline]
    pub fn write(&mut self, entry: E) {
        // SAFETY: the masked index lies in the ring, and the kernel does not access an entry that is not submitted yet.
        unsafe { self.shared.entries.add((self.next & (self.shared.size - 1)) as usize).write(entry) };
        self.next = self.next.wrapping_add(1);
    }

    /// Publishes the written entries.
    #[inline]
    pub fn submit(&mut self) {
        self.shared.producer().store(self.next, Ordering::Release);
    }

    /// True if the kernel processes new entries only after a system call.
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        self.shared.flags().load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

impl<E: Copy> Consumer<E> {
    pub fn open(fd: &OwnedFd, kind: Kind, size: u32) -> Result<Self, StepError> {
        let shared = Shared::open(fd, kind, size)?;
        Ok(Self { shared, next: 0, producer: 0 })
    }

    /// Number of entries that can be read, at most `most`.
    #[inline]
    pub fn ready(&mut self, most: u32) -> u32 {
        if self.producer.wrapping_sub(self.next) < most {
            self.producer = self.shared.producer().load(Ordering::Acquire);
        }
        self.producer.wrapping_sub(self.next).min(most)
    }

    /// Number of entries that can be read, with those that the kernel has written since the last call.
    #[inline]
    pub fn all_ready(&mut self) -> u32 {
        self.producer = self.shared.producer().load(Ordering::Acquire);
        self.producer.wrapping_sub(self.next).min(self.shared.size)
    }

    /// The entry `ahead` positions after the next one; the caller has checked with [`Consumer::ready`] that it exists.
    #[inline]
    pub fn peek(&self, ahead: u32) -> E {
        debug_assert!(ahead < self.producer.wrapping_sub(self.next), "ring underrun");
        let index = self.next.wrapping_add(ahead) & (self.shared.size - 1);
        // SAFETY: the masked index lies in the ring, and the kernel does not write the entry until it is released.
        unsafe { self.shared.entries.add(index as usize).read() }
    }

    /// Skips `count` entries. The next call of [`Consumer::release`] returns them to the kernel.
    #[inline]
    pub fn advance(&mut self, count: u32) {
        self.next = self.next.wrapping_add(count);
    }

    /// Returns to the kernel all entries that [`Consumer::advance`] has skipped.
    #[inline]
    pub fn release(&mut self) {
        self.shared.consumer().store(self.next, Ordering::Release);
    }
}

impl<E> Shared<E> {
    fn open(fd: &OwnedFd, kind: Kind, size: u32) -> Result<Self, StepError> {
        let step = match kind {
            Kind::Receive => "make the receive ring",
            Kind::Transmit => "make the transmit ring",
            Kind::Fill => "make the fill ring",
            Kind::Completion => "make the completion ring",
        };
        Self::map(fd, kind, size).step(step)
    }

    fn map(fd: &OwnedFd, kind: Kind, size: u32) -> io::Result<Self> {
        match kind {
            Kind::Receive => set_xdp_rx_ring_size(fd, size)?,
            Kind::Transmit => set_xdp_tx_ring_size(fd, size)?,
            Kind::Fill => set_xdp_umem_fill_ring_size(fd, size)?,
            Kind::Completion => set_xdp_umem_completion_ring_size(fd, size)?,
        }
        let all = xdp_mmap_offsets(fd)?;
        let (offset, at) = match kind {
            Kind::Receive => (XDP_PGOFF_RX_RING, all.rx),
            Kind::Transmit => (XDP_PGOFF_TX_RING, all.tx),
            Kind::Fill => (XDP_UMEM_PGOFF_FILL_RING, all.fr),
            Kind::Completion => (XDP_UMEM_PGOFF_COMPLETION_RING, all.cr),
        };
        let flags_at = at.flags.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::Unsupported,
                "the AF_XDP rings of this kernel have no flags; Linux 5.4 or later is required",
            )
        })?;
        let map_bytes = at.desc as usize + size as usize * size_of::<E>();
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: a new mapping at an address of the kernel's choice affects no existing memory.
        let map = unsafe { mmap(null_mut(), map_bytes, prot, flags, fd, offset) }?;
        let map = NonNull::new(map.cast::<u8>()).ok_or_else(|| io::Error::other("mapping at address zero"))?;
        // SAFETY: according to the kernel, the four fields lie at these offsets of the mapping, aligned for their
        // types.
        unsafe {
            Ok(Self {
                map,
                map_bytes,
                producer: map.add(at.producer as usize).cast(),
                consumer: map.add(at.consumer as usize).cast(),
                flags: map.add(flags_at as usize).cast(),
                entries: map.add(at.desc as usize).cast(),
                size,
            })
        }
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: points into the mapping, which lives as long as self; the kernel treats it as an atomic as well.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as for the producer.
        unsafe { self.consumer.as_ref() }
    }

    fn flags(&self) -> &AtomicU32 {
        // SAFETY: as for the producer.
        unsafe { self.flags.as_ref() }
    }
}

impl<E> Drop for Shared<E> {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing borrows from it any more.
        let _ = unsafe { munmap(self.map.as_ptr().cast(), self.map_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;
    use rustix::mm::{MremapFlags, mmap_anonymous, mremap};
    use std::collections::VecDeque;

    /// Two views of one ring whose indexes are at `start`: ours as the producer, the kernel's as the consumer.
    fn pair(size: u32, start: u32) -> (Producer<u64>, Consumer<u64>) {
        let map_bytes = 4096 + size as usize * 8;
        let view = |map: *mut libc::c_void| {
            let map = NonNull::new(map.cast::<u8>()).expect("a mapping");
            // SAFETY: all four fields lie in the mapping, on separate cache lines, aligned for their types.
            unsafe {
                Shared::<u64> {
                    map,
                    map_bytes,
                    producer: map.cast(),
                    consumer: map.add(64).cast(),
                    flags: map.add(128).cast(),
                    entries: map.add(4096).cast(),
                    size,
                }
            }
        };
        // SAFETY: new mappings at addresses of the kernel's choice; `mremap` with an old size of zero makes a second
        // view of a shared mapping.
        let (first, second) = unsafe {
            let prot = ProtFlags::READ | ProtFlags::WRITE;
            let first = mmap_anonymous(null_mut(), map_bytes, prot, MapFlags::SHARED).expect("a mapping");
            let second = mremap(first, 0, map_bytes, MremapFlags::MAYMOVE).expect("a second view");
            (view(first), view(second))
        };
        first.producer().store(start, Ordering::Release);
        first.consumer().store(start, Ordering::Release);
        (
            Producer { shared: first, next: start, consumer: start },
            Consumer { shared: second, next: start, producer: start },
        )
    }

    #[test]
    fn a_ring_agrees_with_a_queue_also_when_its_indexes_wrap() {
        const SEED: u64 = 7;
        eprintln!("seed {SEED}");
        let mut random = Prng::new(SEED);
        for start in [0, u32::MAX - 100] {
            let (mut producer, mut consumer) = pair(16, start);
            let (mut model, mut unreleased, mut number) = (VecDeque::new(), 0, 0u64);
            for _ in 0..5000 {
                if random.below(2) == 0 {
                    assert_eq!(producer.room(), 16 - model.len() as u32 - unreleased);
                    for _ in 0..random.below(u64::from(producer.room()) + 1) {
                        producer.write(number);
                        model.push_back(number);
                        number += 1;
                    }
                    producer.submit();
                } else {
                    let ready = consumer.ready(1 + random.below(20) as u32);
                    assert!(ready as usize <= model.len() && (ready > 0 || model.is_empty()));
                    for ahead in 0..ready {
                        assert_eq!(Some(consumer.peek(ahead)), model.pop_front());
                    }
                    consumer.advance(ready);
                    unreleased += ready;
                    if random.below(2) == 0 {
                        consumer.release();
                        unreleased = 0;
                    }
                }
            }
            assert!(number > 1000, "the test must pass the end of the ring many times");
        }
    }

    #[test]
    fn entries_pass_between_two_threads_unchanged() {
        const COUNT: u64 = 200_000;
        let (mut producer, mut consumer) = pair(64, u32::MAX - 1000);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut next = 0;
                while next < COUNT {
                    let room = u64::from(producer.room()).min(COUNT - next);
                    (next..next + room).for_each(|number| producer.write(number));
                    next += room;
                    producer.submit();
                    if room == 0 {
                        std::thread::yield_now();
                    }
                }
            });
            let mut expected = 0;
            while expected < COUNT {
                let ready = consumer.ready(64);
                for ahead in 0..ready {
                    assert_eq!(consumer.peek(ahead), expected);
                    expected += 1;
                }
                consumer.advance(ready);
                consumer.release();
                if ready == 0 {
                    std::thread::yield_now();
                }
            }
        });
    }
}
