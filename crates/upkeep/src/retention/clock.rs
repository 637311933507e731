//! When a clock may decide what is too old. A clock that is set forward, or comes up wrong, would age a whole store in a
//! moment; so age counts only after the clock has gone along with the machine's steady one for a while.

use base::Timestamp;
use std::time::Duration;

/// How long the clock has to have gone steadily.
pub(super) const STEADY: Duration = Duration::from_secs(600);

/// A clock that differs by more than this from what it should show was set.
const STEP: Duration = Duration::from_secs(60);

/// One moment by two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// What the clock says, which may be set.
    pub now: Timestamp,
    /// Counted from any beginning, and never set.
    pub up: Duration,
}

/// How steadily the clock goes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClockMonitor {
    last: Option<ClockReading>,
    since: Duration,
    trusted: bool,
}

impl ClockMonitor {
    /// The clock is right, whatever it says.
    pub fn trust(&mut self) {
        self.trusted = true;
    }

    /// Whether somebody said so.
    pub fn is_trusted(&self) -> bool {
        self.trusted
    }

    /// Compares the clocks; true if the clock goes steadily from this moment on at the earliest.
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

    /// Whether ages may be believed.
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
