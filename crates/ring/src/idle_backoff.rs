//! How long a reader in this process sleeps before it polls an empty ring again. The producer does not wake readers: a
//! wake-up call per batch would cost the producer more than short sleeps cost the reader.

use std::time::Duration;

/// The first sleep. Descriptors arrive in batches, either many times per millisecond or rarely.
const SHORT: Duration = Duration::from_micros(500);

/// The longest sleep at a ring of 8 MiB, which holds three times the traffic of that time at 10 Gb/s. Larger rings
/// allow longer sleeps.
const LONG: Duration = Duration::from_millis(2);
const LONG_OF: u64 = 8 << 20;

/// The longest sleep at any ring: a client that follows the records and rows of a silent interface sees no delay.
const LEN_MAX: Duration = Duration::from_millis(20);

/// The sleep times of a reader. On a silent interface they cost a tenth of the CPU time of sleeps of the first length.
#[derive(Clone, Copy, Debug)]
pub struct IdleBackoff {
    next: Duration,
    most: Duration,
}

impl IdleBackoff {
    /// For a reader of one or more rings, the smallest of which has this many bytes of packet memory.
    pub fn of(bytes: u64) -> Self {
        let times = u32::try_from(bytes / LONG_OF).unwrap_or(u32::MAX).max(1);
        Self { next: SHORT, most: LONG.saturating_mul(times).min(LEN_MAX) }
    }

    /// The next sleep after a poll without descriptors; each sleep is twice as long as the one before, up to the
    /// longest.
    #[must_use]
    pub fn nothing(&mut self) -> Duration {
        let now = self.next;
        self.next = (now * 2).min(self.most);
        now
    }

    /// The last poll returned descriptors: the next sleep is the shortest.
    pub fn something(&mut self) {
        self.next = SHORT;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn naps_grow_to_what_the_ring_allows_and_begin_anew() {
        for (mib, most) in [(8, 2), (16, 4), (64, 16), (1024, 20)] {
            let mut pause = IdleBackoff::of(mib << 20);
            let naps: Vec<Duration> = (0..9).map(|_| pause.nothing()).collect();
            assert!(naps.is_sorted() && naps[0] == SHORT, "{naps:?}");
            assert_eq!(naps[8], Duration::from_millis(most), "{mib} MiB");
            pause.something();
            assert_eq!(pause.nothing(), SHORT);
        }
    }
}
