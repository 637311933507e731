//! Decides whether the clock is reliable enough for the age rule. A clock that is set forward, or is wrong after boot,
//! would make a whole store too old at once. So the age rule applies only after the clock has run in step with the
//! monotonic clock for a while.

use base::Timestamp;
use std::time::Duration;

/// How long the clock must have run in step.
pub(super) const STEADY: Duration = Duration::from_secs(600);

/// A larger difference from the expected time counts as a clock step.
const STEP: Duration = Duration::from_secs(60);

/// One moment, by two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// The system time, which can be set.
    pub now: Timestamp,
    /// The monotonic time since any begin.
    pub up: Duration,
}

/// Compares the system clock with the monotonic clock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClockMonitor {
    last: Option<ClockReading>,
    since: Duration,
    trusted: bool,
}

impl ClockMonitor {
    /// Trusts the clock from now on, whatever it shows.
    pub fn trust(&mut self) {
        self.trusted = true;
    }

    /// True if [`ClockMonitor::trust`] was called.
    pub fn is_trusted(&self) -> bool {
        self.trusted
    }

    /// Compares the clocks; true if the period in step restarted at this moment.
    pub fn see(&mut self, at: ClockReading) -> bool {
        let before = (self.last.is_some(), self.since);
        if let Some(last) = self.last {
            let expected = last.now.after(at.up.saturating_sub(last.up));
            if at.now.since(expected).max(expected.since(at.now)) > STEP {
                self.since = at.up;
            }
        } else {
            self.since = at.up;
        }
        self.last = Some(at);
        before != (true, self.since)
    }

    /// True if the age rule may apply.
    pub fn is_steady(&self, at: ClockReading) -> bool {
        self.trusted || at.up >= self.since + STEADY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_of_the_clock_starts_the_wait_anew() {
        let mut steady = ClockMonitor::default();
        let at = |now, up| ClockReading { now: Timestamp::from_secs_nanos(now, 0), up: Duration::from_secs(up) };
        steady.see(at(1_000_000, 5));
        assert!(!steady.is_steady(at(1_000_000, 5)));
        steady.see(at(1_000_600, 605));
        assert!(steady.is_steady(at(1_000_600, 605)));
        for (now, up) in [(40_000_000, 606), (1_000_602, 607)] {
            steady.see(at(now, up));
            assert!(!steady.is_steady(at(now, up)), "{now}");
        }
        steady.see(at(1_001_202, 1207));
        assert!(steady.is_steady(at(1_001_202, 1207)));
    }
}
