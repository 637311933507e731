//! Decides whether the clock is reliable enough for the age rule. If the clock is set forward, or is wrong after boot,
//! all files of a store may seem too old. So the age rule applies only after the system clock has run in step with the
//! monotonic clock for [`STEADY`].

use base::Timestamp;
use std::time::Duration;

/// Time for which the system clock must have run in step with the monotonic clock.
pub(super) const STEADY: Duration = Duration::from_secs(600);

/// If the system clock differs from the time that the monotonic clock implies by more than this, it has stepped.
const STEP: Duration = Duration::from_secs(60);

/// One moment, by two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// The system time, which can be set.
    pub now: Timestamp,
    /// The monotonic time since an arbitrary origin.
    pub up: Duration,
}

/// Compares the system clock with the monotonic clock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClockMonitor {
    last: Option<ClockReading>,
    since: Duration,
}

impl ClockMonitor {
    /// Compares the system clock with the monotonic clock. Returns true at the first call and after a step of the
    /// system clock; at both, a new period begins in which the two clocks run in step.
    pub fn update(&mut self, at: ClockReading) -> bool {
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

    /// True if the system clock has run in step with the monotonic clock for [`STEADY`].
    pub fn is_steady(&self, at: ClockReading) -> bool {
        at.up >= self.since + STEADY
    }
}

/// The state of the system clock, as far as the age rule needs it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AgeClock {
    monitor: ClockMonitor,
    trust: ClockTrust,
    /// True if the system clock is synchronised.
    pub is_synchronised: bool,
}

/// Whether the age rule trusts the system clock, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ClockTrust {
    /// A user started the worker: the clock is trusted whatever it shows.
    ByUser,
    /// The clock is trusted as soon as it has run in step with the monotonic clock for [`STEADY`]: the store had no
    /// file when the clock began to run in step, or [`AgeClock::check`] has found the clock plausible.
    #[default]
    InStep,
    /// The clock is not trusted yet. `newest` is the start time of the newest file when the clock began to run in step.
    Doubted { newest: Timestamp },
}

/// The result of [`AgeClock::check`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClockFinding {
    /// The clock is plausible or already trusted, or has not yet run in step with the monotonic clock for long enough
    /// to be tested.
    Plausible,
    /// The clock runs in step with the monotonic clock but is not synchronised, and all files that existed when it
    /// began to run in step are too old by this clock.
    AllTooOld,
}

impl AgeClock {
    /// From now on, the clock is trusted, whatever time it shows.
    pub fn trust(&mut self) {
        self.trust = ClockTrust::ByUser;
    }

    /// Compares the system clock with the monotonic clock. At the first call and after a step of the system clock, a
    /// clock that no user trusts is doubted if the store has a file. `newest` returns the start time of the newest file
    /// that is not in the future by the system clock; `None` if there is no such file.
    pub fn update(&mut self, at: ClockReading, newest: impl FnOnce() -> Option<Timestamp>) {
        if self.monitor.update(at) && self.trust != ClockTrust::ByUser {
            self.trust = newest().map_or(ClockTrust::InStep, |newest| ClockTrust::Doubted { newest });
        }
    }

    /// Decides whether a clock that has run in step with the monotonic clock is plausible, if files may have at most
    /// this age.
    pub fn check(&mut self, at: ClockReading, age: Duration) -> ClockFinding {
        match self.trust {
            ClockTrust::Doubted { newest } if self.is_steady(at) => {
                if !self.is_synchronised && newest < at.now.before(age) {
                    return ClockFinding::AllTooOld;
                }
                self.trust = ClockTrust::InStep;
                ClockFinding::Plausible
            }
            _ => ClockFinding::Plausible,
        }
    }

    /// True if the age rule with this largest age may be applied.
    pub fn allows(&self, at: ClockReading, age: Duration) -> bool {
        self.is_steady(at)
            && match self.trust {
                ClockTrust::ByUser | ClockTrust::InStep => true,
                ClockTrust::Doubted { newest } => newest >= at.now.before(age),
            }
    }

    /// True if the clock has run in step for [`STEADY`], or if the worker was started by a user.
    fn is_steady(&self, at: ClockReading) -> bool {
        self.trust == ClockTrust::ByUser || self.monitor.is_steady(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_step_restarts_the_wait() {
        let mut steady = ClockMonitor::default();
        let at = |now, up| ClockReading { now: Timestamp::from_secs_nanos(now, 0), up: Duration::from_secs(up) };
        steady.update(at(1_000_000, 5));
        assert!(!steady.is_steady(at(1_000_000, 5)));
        steady.update(at(1_000_600, 605));
        assert!(steady.is_steady(at(1_000_600, 605)));
        for (now, up) in [(40_000_000, 606), (1_000_602, 607)] {
            steady.update(at(now, up));
            assert!(!steady.is_steady(at(now, up)), "{now}");
        }
        steady.update(at(1_001_202, 1207));
        assert!(steady.is_steady(at(1_001_202, 1207)));
    }

    #[test]
    fn a_clock_that_makes_all_files_too_old_is_not_trusted_until_synchronised() {
        let (age, mut clock) = (Duration::from_secs(1000), AgeClock::default());
        let at = |up| ClockReading { now: Timestamp::from_secs_nanos(1_000_000 + up, 0), up: Duration::from_secs(up) };
        let newest = Timestamp::from_secs_nanos(900_000, 0);
        clock.update(at(0), || Some(newest));
        assert_eq!(clock.check(at(0), age), ClockFinding::Plausible, "the clocks were not in step for long enough");
        assert!(!clock.allows(at(0), age));
        clock.update(at(600), || panic!("the system clock did not step"));
        assert_eq!(clock.check(at(600), age), ClockFinding::AllTooOld);
        assert!(!clock.allows(at(600), age) && clock.allows(at(600), Duration::from_secs(200_000)));
        clock.is_synchronised = true;
        assert_eq!(clock.check(at(600), age), ClockFinding::Plausible);
        assert!(clock.allows(at(600), age));
    }

    #[test]
    fn a_clock_that_a_user_trusts_is_always_trusted() {
        let (age, mut clock) = (Duration::from_secs(1000), AgeClock::default());
        clock.trust();
        let at = ClockReading { now: Timestamp::from_secs_nanos(1_000_000, 0), up: Duration::ZERO };
        clock.update(at, || Some(Timestamp::ZERO));
        assert_eq!(clock.check(at, age), ClockFinding::Plausible);
        assert!(clock.allows(at, age));
    }
}
