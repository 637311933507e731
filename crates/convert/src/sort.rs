//! Sorts a stream by time with bounded memory: a window of packets is held back, and the oldest of them is released
//! when the window is full.
//!
//! A packet whose timestamp is earlier than that of the last released packet is released immediately, and the caller
//! counts it as out of order. Packets of equal timestamp keep their order.

use base::Timestamp;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Greatest memory that an allocation needs in addition to the requested bytes: the allocator's header and rounding.
const ALLOCATION: usize = 32;

/// The packets that are held back, each with data of the caller.
pub struct SortWindow<T> {
    held: BinaryHeap<HeldPacket<T>>,
    bytes: usize,
    limit: usize,
    arrivals: u64,
}

/// A packet that is held back.
pub struct HeldPacket<T> {
    ts: Timestamp,
    arrival: u64,
    /// The bytes of the packet.
    pub data: Box<[u8]>,
    /// The caller's data.
    pub meta: T,
}

impl<T> SortWindow<T> {
    /// Memory of a packet that is held back, without the packet's bytes: its entry in the heap. The heap doubles its
    /// capacity when it is full, so up to half of the capacity is unused.
    const OVERHEAD: usize = 2 * size_of::<HeldPacket<T>>() + ALLOCATION;

    /// A window that holds back at most `limit` bytes, but always accepts one packet.
    pub fn new(limit: usize) -> Self {
        Self { held: BinaryHeap::new(), bytes: 0, limit, arrivals: 0 }
    }

    /// Adds a packet.
    pub fn push(&mut self, ts: Timestamp, data: &[u8], meta: T) {
        self.bytes += data.len() + Self::OVERHEAD;
        self.held.push(HeldPacket { ts, arrival: self.arrivals, data: data.into(), meta });
        self.arrivals += 1;
    }

    /// Removes and returns the oldest packet if the packets in the window exceed the memory limit.
    pub fn overflow(&mut self) -> Option<HeldPacket<T>> {
        if self.bytes > self.limit && self.held.len() > 1 { self.pop() } else { None }
    }

    /// Removes the oldest packet.
    pub fn pop(&mut self) -> Option<HeldPacket<T>> {
        let held = self.held.pop()?;
        self.bytes -= held.data.len() + Self::OVERHEAD;
        // When large packets follow many small packets, fewer packets fit into the window. Then the unused capacity of
        // the heap is freed.
        let len = self.held.len();
        if self.held.capacity() > 2 * len {
            self.held.shrink_to(len + len / 2);
        }
        Some(held)
    }
}

impl<T> HeldPacket<T> {
    /// The timestamp of the packet.
    pub fn ts(&self) -> Timestamp {
        self.ts
    }
}

/// The heap yields its greatest element, so the order is reversed: the oldest is the greatest.
impl<T> Ord for HeldPacket<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.ts, other.arrival).cmp(&(self.ts, self.arrival))
    }
}

impl<T> PartialOrd for HeldPacket<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for HeldPacket<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for HeldPacket<T> {}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    #[test]
    fn a_window_as_large_as_the_disorder_sorts_stably() {
        let seed = testkit::seed("a_window_as_large_as_the_disorder_sorts_stably");
        let mut prng = Prng::new(seed);
        let mut window = SortWindow::new(100 * (4 + SortWindow::<u32>::OVERHEAD));
        // Each packet is at most 20 positions from its sorted position, and several have equal timestamps.
        let packets: Vec<(u64, u32)> = (0..5000).map(|i| (i / 3 + prng.below(20), i as u32)).collect();
        let mut out = Vec::new();
        for (ts, i) in &packets {
            window.push(Timestamp::from_nanos(*ts), &i.to_le_bytes(), *i);
            while let Some(h) = window.overflow() {
                out.push((h.ts().nanos(), h.meta));
            }
        }
        while let Some(h) = window.pop() {
            out.push((h.ts().nanos(), h.meta));
        }
        let mut sorted = packets;
        sorted.sort_by_key(|(ts, _)| *ts);
        assert_eq!(out, sorted, "seed {seed}");
    }

    /// Memory of the window: the capacity of the heap, and the bytes of each packet.
    fn memory<T>(window: &SortWindow<T>) -> usize {
        let heap = window.held.capacity() * size_of::<HeldPacket<T>>();
        heap + window.held.iter().map(|h| h.data.len() + ALLOCATION).sum::<usize>()
    }

    #[test]
    fn the_window_stays_within_its_memory_and_accepts_one_packet_always() {
        /// The data of the caller have the same size as in a conversion.
        type Large = [u64; 10];
        for (len, later, limit) in [(300, 300, 2000), (0, 0, 100_000), (40, 40, 1 << 20), (0, 9000, 1 << 20)] {
            let (mut window, mut most) = (SortWindow::<Large>::new(limit), 0);
            for i in 0..20_000 {
                let len = if i < 10_000 { len } else { later };
                window.push(Timestamp::from_nanos(20_000 - i), &vec![0; len], [0; 10]);
                while window.overflow().is_some() {}
                most = most.max(memory(&window));
            }
            assert!(most <= limit, "packets of {len} bytes use {most} bytes, the limit is {limit}");
            assert!(most > limit / 4, "packets of {len} bytes use only {most} bytes, the limit is {limit}");
        }
        let mut tiny = SortWindow::new(0);
        tiny.push(Timestamp::ZERO, &[0; 50], ());
        assert!(tiny.overflow().is_none() && tiny.pop().is_some() && tiny.bytes == 0);
    }
}
