//! The *hold* of a NIC: the time from the arrival of a packet to the write of its descriptor, if the NIC writes several
//! descriptors together.

use base::Timestamp;
use std::time::Duration;

/// The longest time that is attributed to the NIC. Drivers set 2 to 20 µs for polling.
pub const HOLD_MAX: Duration = Duration::from_micros(50);

/// A shorter excess is attributed to the jitter of the NIC and of the polls.
const EXCESS_MIN: Duration = Duration::from_nanos(500);

/// The largest excess is forgotten after one to two of these periods.
const PERIOD: Duration = Duration::from_millis(250);

/// Estimates the longest hold of a NIC from polls that find more packets than the link can carry since the previous
/// poll.
///
/// If a poll finds no packet, and a later poll finds several packets that occupied the link for longer than the time
/// between the polls, the first packet had already arrived at the earlier poll, and was not visible. The largest such
/// excess of the last half second is a lower limit of the hold. The hold is at most one packet longer, because a
/// further packet would otherwise have been visible too; this upper limit is used.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hold {
    /// The largest excess of the present and of the previous period.
    present: Duration,
    previous: Duration,
    period_end: Timestamp,
}

impl Hold {
    /// Takes the packets that a poll at `polled` found into account, and returns the hold. `after_first_nanos` is the
    /// time for which the packets after the first occupied the link, `window` the time since the previous poll, and
    /// `packet_nanos` the time for which one packet occupied the link.
    #[inline]
    pub fn observe(
        &mut self,
        after_first_nanos: u64,
        packet_nanos: u64,
        window: Duration,
        polled: Timestamp,
    ) -> Duration {
        if polled >= self.period_end {
            self.begin_period(polled);
        }
        let excess = Duration::from_nanos(after_first_nanos).saturating_sub(window);
        if excess >= EXCESS_MIN {
            self.present = self.present.max((excess + Duration::from_nanos(packet_nanos)).min(HOLD_MAX));
        }
        self.present.max(self.previous)
    }

    #[cold]
    fn begin_period(&mut self, polled: Timestamp) {
        (self.previous, self.present) = (self.present, Duration::ZERO);
        self.period_end = polled.after(PERIOD);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn packets_that_are_visible_too_fast_prove_a_hold_and_later_polls_forget_it() {
        let mut hold = Hold::default();
        let (short, long) = (Duration::from_nanos(100), Duration::from_micros(9));
        assert_eq!(hold.observe(5000, 1000, long, at(1000)), Duration::ZERO);
        assert_eq!(hold.observe(550, 1000, short, at(1000)), Duration::ZERO, "this is jitter");
        assert_eq!(hold.observe(3700, 1000, short, at(1001)), Duration::from_nanos(4600));
        assert_eq!(hold.observe(0, 1000, long, at(1300)), Duration::from_nanos(4600), "the previous period counts");
        assert_eq!(hold.observe(0, 1000, long, at(1600)), Duration::ZERO);
        assert_eq!(hold.observe(1_000_000, 1000, short, at(1601)), HOLD_MAX);
    }
}
