//! How long a reader in this process sleeps before it polls an empty ring again. The producer does not wake readers: a
//! wake-up call per batch would cost the producer more than short sleeps cost the reader.

use std::time::Duration;

/// The first sleep. Descriptors arrive in batches, either many times per millisecond or rarely.
const SHORT: Duration = Duration::from_micros(500);

/// The longest sleep for a ring of 8 MiB, which can hold three times the traffic that arrives during this sleep at 10
/// Gb/s. Larger rings allow longer sleeps.
const LONG: Duration = Duration::from_millis(2);
const LONG_RING_BYTES: u64 = 8 << 20;

/// The longest sleep for a ring of any size. It is short in relation to the 250 ms after which new flow records and
/// series rows are handed over to readers of the store.
const LONGEST: Duration = Duration::from_millis(50);

/// The sleep times of a reader. On a silent interface, a reader whose sleeps become longer uses a tenth of the CPU time
/// of a reader that repeats the shortest sleep.
#[derive(Clone, Copy, Debug)]
pub struct IdleBackoff {
    next: Duration,
    longest: Duration,
}

impl IdleBackoff {
    /// The sleep times for a reader of one or more rings, the smallest of which has this many bytes of packet memory.
    pub fn of(bytes: u64) -> Self {
        let times = u32::try_from(bytes / LONG_RING_BYTES).unwrap_or(u32::MAX).max(1);
        Self { next: SHORT, longest: LONG.saturating_mul(times).min(LONGEST) }
    }

    /// The next sleep after a poll without descriptors; each sleep is twice as long as the one before, up to the
    /// longest.
    #[must_use]
    pub fn next_sleep(&mut self) -> Duration {
        let now = self.next;
        self.next = (now * 2).min(self.longest);
        now
    }

    /// Makes the next sleep the shortest; call it after a poll that returned descriptors.
    pub fn reset(&mut self) {
        self.next = SHORT;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_grow_to_the_maximum_of_the_ring_and_are_short_after_a_reset() {
        for (mib, longest) in [(8, 2), (16, 4), (64, 16), (1024, 50)] {
            let mut backoff = IdleBackoff::of(mib << 20);
            let sleeps: Vec<Duration> = (0..9).map(|_| backoff.next_sleep()).collect();
            assert!(sleeps.is_sorted() && sleeps[0] == SHORT, "{sleeps:?}");
            assert_eq!(sleeps[8], Duration::from_millis(longest), "{mib} MiB");
            backoff.reset();
            assert_eq!(backoff.next_sleep(), SHORT);
        }
    }
}
