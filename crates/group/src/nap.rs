//! How long a member sleeps when its branches are empty.
//!
//! Nobody wakes it (decision 6), and to wake by itself costs as much processor time as some thousand records. A member that gets a
//! quarter of the packets and wakes as often as one that gets all of them pays that price four times for the same work. So
//! it sleeps longer while each sleep brings little of what its branch has room for, as long as there is enough to be worth it;
//! where next to nothing comes, being prompt costs nothing, and it sleeps no longer than [`SHORT`].

use std::time::Duration;

/// As long as a reader of whom nothing is known sleeps.
const SHORT: Duration = Duration::from_micros(500);

/// Nobody wants to see a packet later than this because of a sleep.
const LONG: Duration = Duration::from_millis(4);

/// Records for the sake of which it does not matter when one wakes up: they take less time than waking.
const FEW: u64 = 500;

/// While a sleep brings less than this part of the branch, the next may be longer; twice as much, and it is too long.
const PART: u64 = 16;

/// See the module's text.
#[derive(Clone, Copy, Debug)]
pub struct Nap {
    room: u64,
    length: Duration,
}

impl Nap {
    /// For branches that hold so many descriptors together.
    pub fn new(room: u64) -> Self {
        Self { room, length: SHORT }
    }

    /// How long to sleep now, after so many descriptors have come since the sleep before.
    pub fn after(&mut self, came: u64) -> Duration {
        self.length = match came {
            0..FEW => SHORT,
            n if n < self.room / PART => (self.length * 2).min(LONG),
            n if n > self.room / PART * 2 => (self.length / 2).max(SHORT),
            _ => self.length,
        };
        self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes at this rate in a sleep of that length.
    fn settled(per_second: u64, room: u64) -> (Duration, u64) {
        let (mut nap, mut length) = (Nap::new(room), SHORT);
        for _ in 0..20 {
            length = nap.after(per_second * length.as_micros() as u64 / 1_000_000);
        }
        (length, per_second * length.as_micros() as u64 / 1_000_000)
    }

    #[test]
    fn at_any_rate_a_sleep_is_short_or_brings_much_and_never_more_than_there_is_room_for() {
        const ROOM: u64 = 131_072;
        assert_eq!((settled(0, ROOM).0, settled(900_000, ROOM).0), (SHORT, SHORT));
        assert_eq!(settled(2_000_000, ROOM).0, LONG, "half a part in the longest sleep");
        for rate in (1..=100).map(|millions| millions * 1_000_000) {
            let (length, brings) = settled(rate, ROOM);
            assert!((SHORT..=LONG).contains(&length));
            assert!(length == SHORT || brings >= FEW, "{rate}: {length:?}");
            assert!(length == SHORT || brings <= ROOM / PART * 2, "{rate}: {length:?}");
        }
    }

    #[test]
    fn when_the_flood_ends_it_is_prompt_again_at_once() {
        let mut nap = Nap::new(1 << 20);
        while nap.after(5000) < LONG {}
        assert_eq!(nap.after(10), SHORT);
    }
}
