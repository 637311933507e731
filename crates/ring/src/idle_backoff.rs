//! How long a gate in this process sleeps between two looks at a ring that has nothing for it. Nobody wakes it: a wake-up call
//! per batch would cost the writer more than short naps cost the reader.

use std::time::Duration;

/// The first nap. Descriptors come in batches many times a millisecond or hardly at all.
const SHORT: Duration = Duration::from_micros(500);

/// The longest nap at a ring of 8 MiB, which holds three times what comes meanwhile at 10 Gb/s; larger rings allow longer ones.
const LONG: Duration = Duration::from_millis(2);
const LONG_OF: u64 = 8 << 20;

/// The longest nap at any ring: whoever follows the records and rows of a silent port should not notice.
const LEN_MAX: Duration = Duration::from_millis(20);

/// See the module. A silent port costs a tenth of what naps of the first length do.
#[derive(Clone, Copy, Debug)]
pub struct IdleBackoff {
    next: Duration,
    most: Duration,
}

impl IdleBackoff {
    /// For a reader of rings, the smallest of which has so many bytes of packet memory.
    pub fn of(bytes: u64) -> Self {
        let times = u32::try_from(bytes / LONG_OF).unwrap_or(u32::MAX).max(1);
        Self { next: SHORT, most: LONG.saturating_mul(times).min(LEN_MAX) }
    }

    /// How long to sleep now that there was nothing; each time twice as long.
    #[must_use]
    pub fn nothing(&mut self) -> Duration {
        let now = self.next;
        self.next = (now * 2).min(self.most);
        now
    }

    /// There was something: the next nap is a short one.
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
