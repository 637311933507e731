//! The model of the work that interrupts the thread.

use super::picoseconds::{MICRO, SECOND, exponential};
use base::Prng;

/// The work that interrupts the thread on its CPU. The values are those of a CPU that is not isolated, on a kernel with
/// 250 timer ticks per second, as the tracers `osnoise` and `hwlat` of Linux show them; `netgrain-bench time` prints
/// the interruptions of the present machine for comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noise {
    /// No interruption.
    None,
    /// The timer tick (each 4 ms, 1 to 5 µs), interrupts of devices (100 per second, mean 5 µs), and other threads (2
    /// per second, mean 50 µs).
    Host,
}

const TICK: u64 = SECOND / 250;
const TICK_SHORTEST: u64 = MICRO;
const TICK_RANGE: u64 = 4 * MICRO;
const INTERRUPTS_PER_SECOND: u64 = 100;
const INTERRUPT_MEAN: u64 = 5 * MICRO;
const THREADS_PER_SECOND: u64 = 2;
const THREAD_MEAN: u64 = 50 * MICRO;

/// The interruptions of one run, in order of time, without end.
pub struct Interruptions {
    /// Next time of each kind: tick, interrupt, thread. `u64::MAX` if the kind does not occur.
    next: [u64; 3],
    prng: Prng,
}

impl Noise {
    /// The interruptions of one run.
    pub fn events(self, prng: &mut Prng) -> Interruptions {
        let mut prng = Prng::new(prng.next_u64());
        let next = match self {
            Self::None => [u64::MAX; 3],
            Self::Host => [
                prng.below(TICK),
                exponential((SECOND / INTERRUPTS_PER_SECOND) as f64, &mut prng),
                exponential((SECOND / THREADS_PER_SECOND) as f64, &mut prng),
            ],
        };
        Interruptions { next, prng }
    }
}

impl Interruptions {
    /// The time of the next interruption.
    pub fn next(&self) -> u64 {
        self.next[0].min(self.next[1]).min(self.next[2])
    }

    /// The time at which work is complete that begins at `now` and takes `work`, with all interruptions until then.
    pub fn complete(&mut self, now: u64, work: u64) -> u64 {
        let mut end = now + work;
        while self.next() <= end {
            end += self.take();
        }
        end
    }

    /// As [`Interruptions::complete`], after a sleep until `now`: interruptions during the sleep do not delay the work.
    pub fn resume(&mut self, now: u64, work: u64) -> u64 {
        while self.next() <= now {
            self.take();
        }
        self.complete(now, work)
    }

    /// Length of the next interruption, which is removed.
    fn take(&mut self) -> u64 {
        let at = self.next();
        let prng = &mut self.prng;
        if self.next[0] == at {
            self.next[0] += TICK;
            TICK_SHORTEST + prng.below(TICK_RANGE)
        } else if self.next[1] == at {
            self.next[1] += 1 + exponential((SECOND / INTERRUPTS_PER_SECOND) as f64, prng);
            exponential(INTERRUPT_MEAN as f64, prng)
        } else {
            self.next[2] += 1 + exponential((SECOND / THREADS_PER_SECOND) as f64, prng);
            exponential(THREAD_MEAN as f64, prng)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interruptions_take_the_stated_share_of_the_time() {
        let mut events = Noise::Host.events(&mut Prng::new(3));
        let work = 100 * SECOND;
        let lost = events.complete(0, work) - work;
        // 250 × 3 µs + 100 × 5 µs + 2 × 50 µs = 1.35 ms per second.
        assert!((120_000 * MICRO..150_000 * MICRO).contains(&lost), "{} µs", lost / MICRO);
        assert_eq!(Noise::None.events(&mut Prng::new(3)).complete(5, work), 5 + work);
    }
}
