//! Determines how long a member sleeps when its branches are empty.
//!
//! The dispatcher does not wake members (decision 6), and a timer wake-up costs as much processor time as a thousand
//! records. If a member that receives a quarter of the packets woke as often as a member that receives all packets, it
//! would pay this cost four times for the same number of records. Therefore the back-off lengthens the sleep of a
//! member until a sleep brings enough records to be worth a wake-up, but no more records than fit into the L1 and L2
//! caches. At low rates the wake-ups cost little in total, and the member sleeps no longer than [`SHORT`].

use std::time::Duration;

/// The initial and shortest sleep.
const SHORT: Duration = Duration::from_micros(500);

/// The longest sleep of a member. The smallest ring (8 MiB) can hold the packets that arrive at 25 Gb/s in this time. A
/// longer sleep would also delay packets noticeably.
const LONG: Duration = Duration::from_millis(2);

/// If a sleep brings fewer records than this number, the next sleep is the shortest. At such low packet rates the
/// processor time of the wake-ups does not matter.
const FEW: u64 = 500;

/// If a sleep brings fewer records than this number, the next sleep may be longer. The descriptors of this many records
/// take 128 kB, a sixteenth of the smallest branch.
const ENOUGH: u64 = 4096;

/// If a sleep brings more records than this number, the next sleep is shorter. The first of so many records leave the
/// caches before the member reads them, and a record then costs twice as much.
const TOO_MANY: u64 = 4 * ENOUGH;

/// The sleep length of one member; see the module documentation.
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
    /// Returns the length of the next sleep. `came` is the number of descriptors that arrived during the previous
    /// sleep.
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

    /// Returns the sleep length to which the back-off converges if this number of records arrives per second, and the
    /// number of records per sleep.
    fn settled(per_second: u64) -> (Duration, u64) {
        let brings = |length: Duration| per_second * length.as_micros() as u64 / 1_000_000;
        let (mut nap, mut length) = (MemberBackoff::default(), SHORT);
        for _ in 0..20 {
            length = nap.after(brings(length));
        }
        (length, brings(length))
    }

    #[test]
    fn at_any_rate_a_sleep_is_shortest_or_brings_a_useful_number_of_records() {
        assert_eq!((settled(0).0, settled(900_000).0), (SHORT, SHORT));
        assert_eq!(settled(1_000_000), (LONG, 2000), "the longest sleep");
        for rate in (1..=100).map(|millions| millions * 1_000_000) {
            let (length, brings) = settled(rate);
            assert!((SHORT..=LONG).contains(&length));
            assert!(length == LONG || brings >= ENOUGH, "{rate}: {length:?}");
            assert!(length == SHORT || brings <= TOO_MANY, "{rate}: {length:?}");
        }
    }

    #[test]
    fn the_sleep_is_shortest_again_as_soon_as_few_records_come() {
        let mut nap = MemberBackoff::default();
        while nap.after(ENOUGH - 1) < LONG {}
        assert_eq!(nap.after(10), SHORT);
    }
}
