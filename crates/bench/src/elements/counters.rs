//! Counters that several threads increment, one increment per operation.

use super::OwnLine;
use crate::cpu_placement::CpuPlacement;
use crate::output::Stop;
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Number of increments between two checks of the end of a run.
const CHUNK: u64 = 256;

/// Number of polls after which a thread that waits for the spinlock yields its processor, because the holder may wait
/// for this processor.
const POLLS: u32 = 1000;

/// The kinds of counters.
#[derive(Clone, Copy, Debug)]
pub enum CounterKind {
    /// One counter for all threads, behind a mutex.
    Mutex,
    /// One counter for all threads, behind a ticket spinlock.
    Spinlock,
    /// One counter for all threads, which atomic additions increment.
    Atomic,
    /// A counter for each thread; the counters share cache lines.
    Adjacent,
    /// A counter for each thread; each counter has cache lines of its own.
    Padded,
}

impl CounterKind {
    pub const ALL: [Self; 5] = [Self::Mutex, Self::Spinlock, Self::Atomic, Self::Adjacent, Self::Padded];

    pub fn name(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::Spinlock => "ticket spinlock",
            Self::Atomic => "atomic addition",
            Self::Adjacent => "per thread, adjacent",
            Self::Padded => "per thread, padded",
        }
    }
}

/// Returns the increments per second of all threads together.
///
/// # Errors
/// The counter does not have the number of increments that the threads made, or a thread cannot be placed.
pub fn measure(kind: CounterKind, threads: usize, duration: Duration, places: &CpuPlacement) -> Result<f64, Stop> {
    match kind {
        CounterKind::Mutex => increment_in_threads(&Mutex::new(0), threads, duration, places),
        CounterKind::Spinlock => increment_in_threads(&TicketLocked::default(), threads, duration, places),
        CounterKind::Atomic => increment_in_threads(&AtomicU64::new(0), threads, duration, places),
        CounterKind::Adjacent => {
            let counters: Vec<AtomicU64> = (0..threads).map(|_| AtomicU64::new(0)).collect();
            increment_in_threads(&counters, threads, duration, places)
        }
        CounterKind::Padded => {
            let counters: Vec<OwnLine<AtomicU64>> = (0..threads).map(|_| OwnLine::default()).collect();
            increment_in_threads(&counters, threads, duration, places)
        }
    }
}

/// A counter that threads increment.
trait Counter: Sync {
    fn increment(&self, thread: usize);

    /// The sum of the increments of all threads. No thread may increment the counter meanwhile.
    fn total(&self) -> u64;
}

impl Counter for Mutex<u64> {
    fn increment(&self, _: usize) {
        *self.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }

    fn total(&self) -> u64 {
        *self.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A counter behind a ticket spinlock: threads get the lock in the order in which they took a ticket.
#[derive(Default)]
struct TicketLocked {
    next: AtomicU64,
    served: AtomicU64,
    counter: AtomicU64,
}

impl Counter for TicketLocked {
    fn increment(&self, _: usize) {
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        let mut polls = 0;
        while self.served.load(Ordering::Acquire) != ticket {
            spin_loop();
            polls += 1;
            if polls % POLLS == 0 {
                std::thread::yield_now();
            }
        }
        self.counter.store(self.counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.served.store(ticket + 1, Ordering::Release);
    }

    fn total(&self) -> u64 {
        self.counter.load(Ordering::Relaxed)
    }
}

impl Counter for AtomicU64 {
    fn increment(&self, _: usize) {
        self.fetch_add(1, Ordering::Relaxed);
    }

    fn total(&self) -> u64 {
        self.load(Ordering::Relaxed)
    }
}

/// Increments a counter that only one thread writes, so no atomic addition is needed.
fn increment_own(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

impl Counter for Vec<AtomicU64> {
    fn increment(&self, thread: usize) {
        increment_own(&self[thread]);
    }

    fn total(&self) -> u64 {
        self.iter().map(|counter| counter.load(Ordering::Relaxed)).sum()
    }
}

impl Counter for Vec<OwnLine<AtomicU64>> {
    fn increment(&self, thread: usize) {
        increment_own(&self[thread].0);
    }

    fn total(&self) -> u64 {
        self.iter().map(|counter| counter.0.load(Ordering::Relaxed)).sum()
    }
}

fn increment_in_threads<C: Counter>(
    counter: &C,
    threads: usize,
    duration: Duration,
    places: &CpuPlacement,
) -> Result<f64, Stop> {
    let start = Barrier::new(threads + 1);
    let stop = AtomicBool::new(false);
    let (made, seconds) = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (start, stop) = (&start, &stop);
                // The last thread has the processor of the engine, the others have the other processors.
                let processor = if thread + 1 == threads { places.engine() } else { places.other(thread) };
                scope.spawn(move || {
                    let placed = sys::cpu::pin(processor);
                    start.wait();
                    let mut made = 0;
                    // Each thread makes at least `CHUNK` increments, even if it begins late.
                    while {
                        (0..CHUNK).for_each(|_| black_box(counter).increment(thread));
                        made += CHUNK;
                        !stop.load(Ordering::Relaxed)
                    } {}
                    placed.map(|()| made)
                })
            })
            .collect();
        start.wait();
        let begun = Instant::now();
        std::thread::sleep(duration);
        stop.store(true, Ordering::Relaxed);
        let made: Result<u64, Stop> = workers.into_iter().map(joined).sum();
        (made, begun.elapsed().as_secs_f64())
    });
    let made = made?;
    match counter.total() {
        total if total == made => Ok(made as f64 / seconds),
        total => Err(Stop::error(format_args!("{made} increments were made and {total} counted; please report this"))),
    }
}

/// Waits for a thread and returns its number of increments.
fn joined(worker: std::thread::ScopedJoinHandle<'_, std::io::Result<u64>>) -> Result<u64, Stop> {
    let made = worker.join().map_err(|_| Stop::error("a thread panicked; please report this"))?;
    made.map_err(|e| Stop::error(format_args!("a thread cannot be placed on a processor: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_increment_of_several_threads_is_lost() {
        let places = CpuPlacement::find();
        for kind in CounterKind::ALL {
            let rate = measure(kind, 3, Duration::from_millis(2), &places);
            assert!(rate.is_ok_and(|rate| rate > 0.0), "{kind:?}");
        }
    }

    #[test]
    fn a_counter_that_loses_increments_is_an_error() {
        struct Lossy(AtomicU64);
        impl Counter for Lossy {
            fn increment(&self, thread: usize) {
                self.0.fetch_add(u64::from(thread == 0), Ordering::Relaxed);
            }
            fn total(&self) -> u64 {
                self.0.load(Ordering::Relaxed)
            }
        }
        let lossy = Lossy(AtomicU64::new(0));
        let outcome = increment_in_threads(&lossy, 2, Duration::from_millis(2), &CpuPlacement::find());
        assert!(matches!(outcome, Err(Stop::Failed(text)) if text.contains("please report this")));
    }
}
