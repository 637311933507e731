//! Queues with one producer and one consumer. The consumer checks that the elements arrive complete and in order.
//!
//! The ring queue has an index of the next element to write and an index of the next element to read. Three variants
//! differ in when a side reads the index of the other side and publishes its own index (thesis, figures 1.3 to 1.5):
//!
//! | variant | reads the other index | publishes its own index |
//! |---|---|---|
//! | shared indices | for each element | for each element |
//! | cached indices | when the queue appears full or empty | for each element |
//! | delayed publication | when the queue appears full or empty | after N elements; when it appears full or empty |

use super::OwnLine;
use crate::cpu_placement::CpuPlacement;
use crate::output::Stop;
use std::collections::VecDeque;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// Number of elements between two checks of the end of a run.
const CHUNK: u64 = 256;

/// Number of polls of a full or empty queue after which a thread yields its processor.
const POLLS: u32 = 1000;

/// The kinds of queues.
#[derive(Clone, Copy, Debug)]
pub enum QueueKind {
    /// A `VecDeque` behind a mutex.
    Mutex,
    /// The bounded channel of the standard library.
    Channel,
    /// A ring queue whose sides read both indices for each element.
    SharedIndices,
    /// A ring queue whose sides keep a copy of the index of the other side.
    CachedIndices,
    /// The same, and each side publishes its index after 8 elements.
    Delayed8,
    /// The same with 32 elements.
    Delayed32,
    /// The same with 128 elements.
    Delayed128,
}

impl QueueKind {
    pub const ALL: [Self; 7] = [
        Self::Mutex,
        Self::Channel,
        Self::SharedIndices,
        Self::CachedIndices,
        Self::Delayed8,
        Self::Delayed32,
        Self::Delayed128,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::Channel => "std::sync::mpsc",
            Self::SharedIndices => "shared indices",
            Self::CachedIndices => "cached indices",
            Self::Delayed8 => "cached, delayed by 8",
            Self::Delayed32 => "cached, delayed by 32",
            Self::Delayed128 => "cached, delayed by 128",
        }
    }
}

/// Returns the elements per second that passed the queue.
///
/// # Errors
/// An element was lost or overtaken, or a thread cannot be placed.
pub fn measure(kind: QueueKind, capacity: usize, duration: Duration, places: &CpuPlacement) -> Result<f64, Stop> {
    let capacity = capacity.next_power_of_two();
    match kind {
        QueueKind::Mutex => {
            let queue = Mutex::new(VecDeque::with_capacity(capacity));
            pass(MutexSide { queue: &queue, capacity }, MutexSide { queue: &queue, capacity }, duration, places)
        }
        QueueKind::Channel => {
            let (producer, consumer) = mpsc::sync_channel(capacity);
            pass(producer, consumer, duration, places)
        }
        QueueKind::SharedIndices => pass_through_ring::<false, 1>(capacity, duration, places),
        QueueKind::CachedIndices => pass_through_ring::<true, 1>(capacity, duration, places),
        QueueKind::Delayed8 => pass_through_ring::<true, 8>(capacity, duration, places),
        QueueKind::Delayed32 => pass_through_ring::<true, 32>(capacity, duration, places),
        QueueKind::Delayed128 => pass_through_ring::<true, 128>(capacity, duration, places),
    }
}

/// The side of a queue that inserts elements.
trait Producer: Send {
    /// Inserts an element; false if the queue is full.
    fn push(&mut self, element: u64) -> bool;

    /// Makes all inserted elements visible to the consumer.
    fn publish(&mut self) {}
}

/// The side of a queue that removes elements.
trait Consumer: Send {
    /// Removes the oldest element; `None` if the queue is empty.
    fn pop(&mut self) -> Option<u64>;
}

struct MutexSide<'a> {
    queue: &'a Mutex<VecDeque<u64>>,
    capacity: usize,
}

impl Producer for MutexSide<'_> {
    fn push(&mut self, element: u64) -> bool {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let is_free = queue.len() < self.capacity;
        if is_free {
            queue.push_back(element);
        }
        is_free
    }
}

impl Consumer for MutexSide<'_> {
    fn pop(&mut self) -> Option<u64> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

impl Producer for mpsc::SyncSender<u64> {
    fn push(&mut self, element: u64) -> bool {
        self.try_send(element).is_ok()
    }
}

impl Consumer for mpsc::Receiver<u64> {
    fn pop(&mut self) -> Option<u64> {
        self.try_recv().ok()
    }
}

/// The shared memory of a ring queue. The indices only grow; the place of an element is its index modulo the capacity.
struct RingQueue {
    elements: Box<[AtomicU64]>,
    /// Index of the next element to write, published by the producer.
    written: OwnLine<AtomicU64>,
    /// Index of the next element to read, published by the consumer.
    read: OwnLine<AtomicU64>,
}

impl RingQueue {
    fn place(&self, index: u64) -> &AtomicU64 {
        &self.elements[index as usize & (self.elements.len() - 1)]
    }
}

/// A side of a ring queue. `CACHED`: the side reads the index of the other side only when the queue appears full or
/// empty. `DELAY`: the number of elements after which the side publishes its index.
struct RingSide<'a, const CACHED: bool, const DELAY: u64> {
    queue: &'a RingQueue,
    /// Index of this side's next element.
    next: u64,
    /// The index of this side that the other side can see.
    published: u64,
    /// The last index of the other side that this side has read.
    other: u64,
}

impl<'a, const CACHED: bool, const DELAY: u64> RingSide<'a, CACHED, DELAY> {
    fn new(queue: &'a RingQueue) -> Self {
        Self { queue, next: 0, published: 0, other: 0 }
    }

    fn publish_at(&mut self, index: &AtomicU64) {
        // The release makes the elements visible before the index, and the acquire of the other side sees them.
        index.store(self.next, Ordering::Release);
        self.published = self.next;
    }
}

impl<const CACHED: bool, const DELAY: u64> Producer for RingSide<'_, CACHED, DELAY> {
    fn push(&mut self, element: u64) -> bool {
        let capacity = self.queue.elements.len() as u64;
        if !CACHED || self.next - self.other == capacity {
            self.other = self.queue.read.0.load(Ordering::Acquire);
        }
        if self.next - self.other == capacity {
            self.publish_at(&self.queue.written.0);
            return false;
        }
        self.queue.place(self.next).store(element, Ordering::Relaxed);
        self.next += 1;
        if self.next - self.published >= DELAY {
            self.publish_at(&self.queue.written.0);
        }
        true
    }

    fn publish(&mut self) {
        self.publish_at(&self.queue.written.0);
    }
}

impl<const CACHED: bool, const DELAY: u64> Consumer for RingSide<'_, CACHED, DELAY> {
    fn pop(&mut self) -> Option<u64> {
        if !CACHED || self.next == self.other {
            self.other = self.queue.written.0.load(Ordering::Acquire);
        }
        if self.next == self.other {
            self.publish_at(&self.queue.read.0);
            return None;
        }
        let element = self.queue.place(self.next).load(Ordering::Relaxed);
        self.next += 1;
        if self.next - self.published >= DELAY {
            self.publish_at(&self.queue.read.0);
        }
        Some(element)
    }
}

fn pass_through_ring<const CACHED: bool, const DELAY: u64>(
    capacity: usize,
    duration: Duration,
    places: &CpuPlacement,
) -> Result<f64, Stop> {
    let elements = (0..capacity).map(|_| AtomicU64::new(0)).collect();
    let queue = RingQueue { elements, written: OwnLine::default(), read: OwnLine::default() };
    pass(RingSide::<CACHED, DELAY>::new(&queue), RingSide::<CACHED, DELAY>::new(&queue), duration, places)
}

/// Passes numbered elements from one thread to another and returns the elements per second.
fn pass(
    mut producer: impl Producer,
    mut consumer: impl Consumer,
    duration: Duration,
    places: &CpuPlacement,
) -> Result<f64, Stop> {
    let start = Barrier::new(3);
    let stop = AtomicBool::new(false);
    // Number of elements that the producer inserted in the whole run; `u64::MAX` until it has ended.
    let inserted = AtomicU64::new(u64::MAX);
    let (start, stop, inserted) = (&start, &stop, &inserted);
    let (producing, consuming) = (places.engine(), places.other(0));
    std::thread::scope(|scope| {
        let producer = scope.spawn(move || {
            let placed = sys::cpu::pin(producing);
            start.wait();
            let (mut next, mut polls) = (0, 0);
            // Each run has at least `CHUNK` elements, even if this thread begins late.
            while {
                let end = next + CHUNK;
                while next < end {
                    if producer.push(next) {
                        next += 1;
                    } else {
                        wait(&mut polls);
                    }
                }
                !stop.load(Ordering::Relaxed)
            } {}
            producer.publish();
            inserted.store(next, Ordering::Release);
            placed
        });
        let consumer = scope.spawn(move || {
            let placed = sys::cpu::pin(consuming);
            start.wait();
            let (mut next, mut polls, mut is_ordered) = (0, 0, true);
            loop {
                // The end is read before the queue, so an empty queue after the end stays empty.
                let end = inserted.load(Ordering::Acquire);
                let popped = (0..CHUNK).map_while(|_| consumer.pop()).fold(0, |popped, element| {
                    is_ordered &= element == next;
                    next += 1;
                    popped + 1
                });
                if popped < CHUNK {
                    if end != u64::MAX {
                        is_ordered &= end == next;
                        break;
                    }
                    wait(&mut polls);
                }
            }
            placed.map(|()| (next, is_ordered))
        });
        start.wait();
        let begun = Instant::now();
        std::thread::sleep(duration);
        stop.store(true, Ordering::Relaxed);
        let panicked = |_| Stop::error("a thread panicked; please report this");
        let unplaced = |e| Stop::error(format_args!("a thread cannot be placed on a processor: {e}"));
        producer.join().map_err(panicked)?.map_err(unplaced)?;
        let (passed, is_ordered) = consumer.join().map_err(panicked)?.map_err(unplaced)?;
        if is_ordered {
            Ok(passed as f64 / begun.elapsed().as_secs_f64())
        } else {
            Err(Stop::error("elements of a queue were lost or overtaken; please report this"))
        }
    })
}

/// Waits a short time for the other side of a full or empty queue.
fn wait(polls: &mut u32) {
    spin_loop();
    *polls += 1;
    if (*polls).is_multiple_of(POLLS) {
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_queues_pass_all_elements_in_order() {
        let places = CpuPlacement::find();
        for kind in QueueKind::ALL {
            let rate = measure(kind, 512, Duration::from_millis(2), &places);
            assert!(rate.is_ok_and(|rate| rate > 0.0), "{kind:?}");
        }
    }

    #[test]
    fn a_queue_that_loses_or_overtakes_elements_is_an_error() {
        struct Swapping(mpsc::SyncSender<u64>);
        impl Producer for Swapping {
            fn push(&mut self, element: u64) -> bool {
                self.0.push(element ^ 1)
            }
        }
        struct Losing(mpsc::SyncSender<u64>);
        impl Producer for Losing {
            fn push(&mut self, element: u64) -> bool {
                element == 7 || self.0.push(element)
            }
        }
        let (producer, consumer) = mpsc::sync_channel(512);
        let outcome = pass(Losing(producer), consumer, Duration::from_millis(2), &CpuPlacement::find());
        assert!(matches!(outcome, Err(Stop::Failed(text)) if text.contains("lost")));
        let (producer, consumer) = mpsc::sync_channel(512);
        let outcome = pass(Swapping(producer), consumer, Duration::from_millis(2), &CpuPlacement::find());
        assert!(matches!(outcome, Err(Stop::Failed(text)) if text.contains("overtaken")));
    }

    #[test]
    fn a_delayed_queue_hides_elements_until_they_are_published() {
        let elements = (0..8).map(|_| AtomicU64::new(0)).collect();
        let queue = RingQueue { elements, written: OwnLine::default(), read: OwnLine::default() };
        let (mut producer, mut consumer) = (RingSide::<true, 4>::new(&queue), RingSide::<true, 4>::new(&queue));
        assert!((0..3).all(|n| producer.push(n)));
        assert_eq!(consumer.pop(), None);
        assert!(producer.push(3));
        assert_eq!(consumer.pop(), Some(0));
        assert!((4..8).all(|n| producer.push(n)));
        assert!(!producer.push(8), "the consumer has not published that it read an element");
        assert_eq!((1..8).map_while(|_| consumer.pop()).collect::<Vec<_>>(), (1..8).collect::<Vec<_>>());
        assert_eq!(consumer.pop(), None);
        assert!(producer.push(8));
        producer.publish();
        assert_eq!(consumer.pop(), Some(8));
    }
}
