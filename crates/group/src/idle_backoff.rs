//! How long a member sleeps when its branches are empty.
//!
//! Nobody wakes it (decision 6), and to wake by itself costs as much processor time as a thousand records. A member that gets a
//! quarter of the packets and wakes as often as one that gets all of them pays that price four times for the same work. So
//! it sleeps longer while a sleep brings enough to be worth waking for and no more than fits the nearest caches; where next to nothing
//! comes, being prompt costs nothing, and it sleeps no longer than [`SHORT`].

use std::time::Duration;

/// As long as a reader of whom nothing is known sleeps.
const SHORT: Duration = Duration::from_micros(500);

/// The smallest ring (8 MiB) holds what comes at 25 Gb/s in this time, and nobody wants to see a packet later because of a sleep.
const LONG: Duration = Duration::from_millis(2);

/// Records for the sake of which it does not matter when one wakes up: they take less time than waking.
const FEW: u64 = 500;

/// A sleep that brings fewer may be longer: 128 kB of descriptors, a sixteenth of the smallest branch.
const ENOUGH: u64 = 4096;

/// One that brings more was too long: what came first leaves the caches before it is read, and a record costs twice as much.
const TOO_MANY: u64 = 4 * ENOUGH;

/// See the module's text.
#[derive(Clone, Copy, Debug)]
pub struct MemberBackoff {
    length: Duration,
}

impl Default for MemberBackoff {
    fn default() -> Self {
        Self { length: SHORT }
    }
}

impl MemberBackoff {
    /// How long to sleep now, after so many descriptors have come since the sleep before.
    pub fn after(&mut self, came: u64) -> Duration {
        self.length = match came {
            0..FEW => SHORT,
            FEW..ENOUGH => (self.length * 2).min(LONG),
            ENOUGH..=TOO_MANY => self.length,
            _ => (self.length / 2).max(SHORT),
        };
        self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes at this rate in the sleep that it settles at.
    fn settled(per_second: u64) -> (Duration, u64) {
        let brings = |length: Duration| per_second * length.as_micros() as u64 / 1_000_000;
        let (mut nap, mut length) = (MemberBackoff::default(), SHORT);
        for _ in 0..20 {
            length = nap.after(brings(length));
        }
        (length, brings(length))
    }

    #[test]
    fn at_any_rate_a_sleep_is_short_or_brings_enough_and_not_too_many() {
        assert_eq!((settled(0).0, settled(900_000).0), (SHORT, SHORT));
        assert_eq!(settled(1_000_000), (LONG, 2000), "as long as it may be");
        for rate in (1..=100).map(|millions| millions * 1_000_000) {
            let (length, brings) = settled(rate);
            assert!((SHORT..=LONG).contains(&length));
            assert!(length == LONG || brings >= ENOUGH, "{rate}: {length:?}");
            assert!(length == SHORT || brings <= TOO_MANY, "{rate}: {length:?}");
        }
    }

    #[test]
    fn when_the_flood_ends_it_is_prompt_again_at_once() {
        let mut nap = MemberBackoff::default();
        while nap.after(ENOUGH - 1) < LONG {}
        assert_eq!(nap.after(10), SHORT);
    }
}
