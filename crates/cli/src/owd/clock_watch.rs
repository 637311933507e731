//! Watches the system clock during a live measurement: steps of the clock, and the worst state of its synchronisation.
//!
//! A step is a change of the difference between the system clock and the monotonic clock that the kernel does not make
//! by a gradual correction. The kernel corrects the system clock by at most 500 ppm (adjtimex(2)), and corrects the
//! monotonic clock by the same amount, so the difference changes only by a step.

use super::clock::ClockArg;
use base::ErrorEstimate;
use delay::{ReceiverClock, worse};
use std::time::{Duration, Instant};

/// Time between two checks.
const PERIOD: Duration = Duration::from_secs(1);

/// The largest change of the difference that is no step, in nanoseconds. The thread may be interrupted between the
/// readings of the two clocks.
const STEP_MIN: u64 = 100_000;

/// Number of readings of which the reading with the shortest interruption is used.
const READINGS: usize = 5;

/// The state of the system clock during a measurement.
#[derive(Debug)]
pub struct ClockWatch {
    checked: Instant,
    difference: Difference,
    steps: u64,
    present: ErrorEstimate,
    worst: ErrorEstimate,
}

/// The difference between the system clock and the monotonic clock, and the largest error of the difference, both in
/// nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Difference {
    nanos: i128,
    error: u64,
}

impl Difference {
    fn read() -> Self {
        let reading = || {
            let before = sys::clock::monotonic();
            let real = sys::clock::realtime();
            let after = sys::clock::monotonic();
            let error = u64::try_from((after - before).as_nanos()).unwrap_or(u64::MAX);
            Self { nanos: i128::from(real.nanos()) - before.as_nanos() as i128, error }
        };
        let first = reading();
        (1..READINGS).map(|_| reading()).fold(first, |best, next| if next.error < best.error { next } else { best })
    }

    /// True if the clock was set between two readings.
    fn is_step_from(self, earlier: Self) -> bool {
        let changed = self.nanos.abs_diff(earlier.nanos);
        changed > u128::from(STEP_MIN) + u128::from(self.error) + u128::from(earlier.error)
    }
}

impl ClockWatch {
    /// Reads the state of the clock at the begin of a measurement.
    pub fn start() -> Self {
        let present = own_error();
        Self { checked: Instant::now(), difference: Difference::read(), steps: 0, present, worst: present }
    }

    /// Reads the state of the clock again if a second has passed. Returns true if the state was read.
    pub fn check(&mut self) -> bool {
        if self.checked.elapsed() < PERIOD {
            return false;
        }
        self.checked = Instant::now();
        self.observe(Difference::read(), own_error());
        true
    }

    /// Reads the state of the clock at the end of a measurement.
    pub fn end(&mut self) {
        self.observe(Difference::read(), own_error());
    }

    fn observe(&mut self, difference: Difference, error: ErrorEstimate) {
        self.steps += u64::from(difference.is_step_from(self.difference));
        (self.difference, self.present, self.worst) = (difference, error, worse(self.worst, error));
    }

    /// Number of times that the clock was set.
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    /// The error estimate at the last reading.
    pub const fn error(&self) -> ErrorEstimate {
        self.present
    }

    /// The receiver's clock as the user stated it, otherwise the worst state so far. A clock that was set had no known
    /// error.
    pub fn receiver(&self, stated: ClockArg) -> ReceiverClock {
        match stated {
            ClockArg::Stated(clock) => clock,
            ClockArg::Auto if self.worst.is_synchronised() && self.steps == 0 => {
                ReceiverClock::Synchronised(self.worst.error())
            }
            ClockArg::Auto => ReceiverClock::Unknown,
        }
    }

    /// The message about steps of the clock; `None` without a step.
    pub fn note(&self) -> Option<String> {
        (self.steps > 0).then(|| {
            format!(
                "the system clock was set {} during the measurement; delays before and after the step do not fit \
                 together: measure again while a time daemon slews the clock",
                crate::style::plural(self.steps, "time", "times")
            )
        })
    }
}

/// The error estimate of this host's clock.
pub fn own_error() -> ErrorEstimate {
    match sys::timex::clock_status() {
        Ok(status) => ErrorEstimate::of(status.maximum_error, status.synchronised),
        Err(_) => ErrorEstimate::of(Duration::MAX, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(error: ErrorEstimate) -> ClockWatch {
        let difference = Difference { nanos: 1_795_257_720_000_000_000, error: 50 };
        ClockWatch { checked: Instant::now(), difference, steps: 0, present: error, worst: error }
    }

    #[test]
    fn the_worst_state_of_the_clock_counts() {
        let micros = |n, synchronised| ErrorEstimate::of(Duration::from_micros(n), synchronised);
        let mut watch = watch(micros(10, true));
        let difference = watch.difference;
        watch.observe(difference, micros(90, true));
        watch.observe(difference, micros(20, true));
        assert_eq!(watch.receiver(ClockArg::Auto), ReceiverClock::Synchronised(micros(90, true).error()));
        assert_eq!(watch.error(), micros(20, true));
        watch.observe(difference, micros(20, false));
        watch.observe(difference, micros(20, true));
        assert_eq!(watch.receiver(ClockArg::Auto), ReceiverClock::Unknown);
        let stated = ReceiverClock::SameAsSender;
        assert_eq!(watch.receiver(ClockArg::Stated(stated)), stated);
    }

    #[test]
    fn a_step_is_counted_and_an_interruption_between_the_readings_is_not() {
        let error = ErrorEstimate::of(Duration::from_micros(10), true);
        let mut watch = watch(error);
        let at = |offset: i128, error| Difference { nanos: 1_795_257_720_000_000_000 + offset, error };
        watch.observe(at(2_000_000, 2_000_000), error);
        watch.observe(at(90_000, 50), error);
        assert_eq!((watch.steps(), watch.note()), (0, None));
        watch.observe(at(-3_000_000, 50), error);
        assert_eq!(watch.steps(), 1);
        assert!(watch.note().is_some_and(|note| note.contains("set 1 time ")));
        assert_eq!(watch.receiver(ClockArg::Auto), ReceiverClock::Unknown);
    }
}
