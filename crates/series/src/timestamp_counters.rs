//! The quality of the timestamps of a second: packets by timestamp method, the estimated deviation, and the state and
//! the steps of the system clock.

use base::{ClockState, ClockSteps, TimestampMethod};

/// The rate of a clock that is not corrected, in billionths.
const NOMINAL_RATE: i64 = 1_000_000_000;

/// The quality of the timestamps of a second, in the numbers of a [`crate::Row`]. A number that is not known is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimestampCounters {
    /// Number of stored packets by timestamp method.
    pub methods: [u64; TimestampMethod::COUNT],
    /// The largest estimated standard deviation, in nanoseconds.
    pub deviation_nanos: u64,
    /// 1 if a time daemon synchronised the system clock.
    pub synchronised: u64,
    /// 1 if no time daemon synchronised the system clock. In rows of several interfaces, both numbers can be 1.
    pub unsynchronised: u64,
    /// The maximum error of the system clock, in microseconds.
    pub maximum_error_micros: u64,
    /// The rate of the system clock in relation to its oscillator, in billionths.
    pub clock_rate: u64,
    /// The largest step of the system clock forward, in nanoseconds.
    pub step_forward_nanos: u64,
    /// The largest step of the system clock back, in nanoseconds.
    pub step_back_nanos: u64,
}

impl TimestampCounters {
    /// The numbers of this estimate and of this state of the clock.
    pub fn of_report(deviation_nanos: u64, clock: Option<ClockState>) -> Self {
        let Some(clock) = clock else { return Self { deviation_nanos, ..Self::default() } };
        Self {
            deviation_nanos,
            synchronised: clock.synchronised.into(),
            unsynchronised: (!clock.synchronised).into(),
            maximum_error_micros: clock.maximum_error_micros.into(),
            clock_rate: NOMINAL_RATE.saturating_add(clock.frequency_ppb.into()).max(1).unsigned_abs(),
            ..Self::default()
        }
    }

    /// The numbers of these clock steps; their count is in the ledger.
    pub fn of_steps(steps: &ClockSteps) -> Self {
        let (step_forward_nanos, step_back_nanos) = (steps.forward_nanos, steps.back_nanos);
        Self { step_forward_nanos, step_back_nanos, ..Self::default() }
    }

    /// The numbers of these packets by timestamp method.
    pub fn of_methods(methods: [u64; TimestampMethod::COUNT]) -> Self {
        Self { methods, ..Self::default() }
    }

    /// Adds the numbers of packets, and stores the larger one of each other number.
    pub fn merge(&mut self, other: &Self) {
        self.methods.iter_mut().zip(other.methods).for_each(|(sum, more)| *sum += more);
        self.deviation_nanos = self.deviation_nanos.max(other.deviation_nanos);
        self.synchronised = self.synchronised.max(other.synchronised);
        self.unsynchronised = self.unsynchronised.max(other.unsynchronised);
        self.maximum_error_micros = self.maximum_error_micros.max(other.maximum_error_micros);
        self.clock_rate = self.clock_rate.max(other.clock_rate);
        self.step_forward_nanos = self.step_forward_nanos.max(other.step_forward_nanos);
        self.step_back_nanos = self.step_back_nanos.max(other.step_back_nanos);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Row, quantities};

    #[test]
    fn merging_counters_equals_the_addition_of_rows() {
        let mut prng = base::Prng::new(4);
        let random = |prng: &mut base::Prng| {
            let mut row = Row::default();
            quantities().iter().for_each(|q| *q.of_mut(&mut row) = prng.below(100));
            row.timestamps
        };
        for _ in 0..100 {
            let (a, b) = (random(&mut prng), random(&mut prng));
            let mut sum = Row { timestamps: a, ..Row::default() };
            sum += &Row { timestamps: b, ..Row::default() };
            let mut merged = a;
            merged.merge(&b);
            assert_eq!(merged, sum.timestamps);
        }
    }

    #[test]
    fn a_report_without_a_clock_says_nothing_about_the_clock() {
        assert_eq!(TimestampCounters::of_report(0, None), TimestampCounters::default());
        let state = ClockState { synchronised: false, maximum_error_micros: 9, frequency_ppb: -20_000 };
        let counters = TimestampCounters::of_report(7, Some(state));
        assert_eq!((counters.synchronised, counters.unsynchronised), (0, 1));
        assert_eq!((counters.clock_rate, counters.maximum_error_micros), (999_980_000, 9));
    }
}
