//! The due time of each packet of a file, computed from the intervals between the packets of the file and the speed of
//! the replay. The functions read no clock: the caller passes the time.

use base::Timestamp;
use std::fmt;
use std::time::Duration;

/// The speed of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Speed {
    /// Packets are replayed as fast as the file can be read.
    #[default]
    Flat,
    /// Packets are replayed at the speed of the capture times the given factor; 1 is the original speed.
    Scaled(f64),
}

impl Speed {
    /// The original speed.
    pub const ORIGINAL: Self = Self::Scaled(1.0);
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flat => f.write_str("at full speed"),
            Self::Scaled(factor) if *factor == 1.0 => f.write_str("at original speed"),
            Self::Scaled(factor) => write!(f, "at {factor} times the original speed"),
        }
    }
}

/// The schedule of a replay.
///
/// The due time is the sum of the intervals, and a step back in time counts as an interval of 0. So the packets after
/// the step retain their own intervals, and are not all due immediately until the file reaches its former time.
#[derive(Debug)]
pub(super) struct ReplaySchedule {
    factor: Option<f64>,
    last: Option<Timestamp>,
    elapsed: Duration,
}

impl ReplaySchedule {
    /// Creates a schedule; `None` if the factor is not a positive finite number.
    pub fn new(speed: Speed) -> Option<Self> {
        let factor = match speed {
            Speed::Flat => None,
            Speed::Scaled(factor) if factor > 0.0 && factor.is_finite() => Some(factor),
            Speed::Scaled(_) => return None,
        };
        Some(Self { factor, last: None, elapsed: Duration::ZERO })
    }

    /// True if the replay waits for the due times of packets.
    #[inline]
    pub fn is_paced(&self) -> bool {
        self.factor.is_some()
    }

    /// Adds the interval from the previous packet to this packet.
    #[inline]
    pub fn schedule(&mut self, ts: Timestamp) {
        if self.is_paced() {
            self.elapsed = self.elapsed.saturating_add(ts.since(self.last.unwrap_or(ts)));
            self.last = Some(ts);
        }
    }

    /// Due time of the latest packet, counted from the first packet.
    pub fn due(&self) -> Duration {
        match self.factor {
            None => Duration::ZERO,
            Some(factor) => Duration::try_from_secs_f64(self.elapsed.as_secs_f64() / factor).unwrap_or(Duration::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dues(speed: Speed, seconds: &[u64]) -> Vec<f64> {
        let mut pace = ReplaySchedule::new(speed).unwrap();
        let due = |s: &u64| {
            pace.schedule(Timestamp::from_secs_nanos(*s, 0));
            pace.due().as_secs_f64()
        };
        seconds.iter().map(due).collect()
    }

    #[test]
    fn a_speed_that_is_not_a_positive_number_is_rejected() {
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(ReplaySchedule::new(Speed::Scaled(bad)).is_none(), "{bad}");
        }
    }

    #[test]
    fn intervals_are_scaled_and_a_step_back_in_time_counts_as_zero() {
        assert_eq!(dues(Speed::ORIGINAL, &[100, 101, 105]), [0.0, 1.0, 5.0]);
        assert_eq!(dues(Speed::Scaled(4.0), &[100, 101, 105]), [0.0, 0.25, 1.25]);
        assert_eq!(dues(Speed::ORIGINAL, &[100, 103, 50, 51]), [0.0, 3.0, 3.0, 4.0]);
        assert_eq!(dues(Speed::Flat, &[100, 1000]), [0.0, 0.0]);
    }

    #[test]
    fn the_longest_interval_at_the_slowest_speed_does_not_overflow() {
        let mut pace = ReplaySchedule::new(Speed::Scaled(f64::MIN_POSITIVE)).unwrap();
        pace.schedule(Timestamp::ZERO);
        pace.schedule(Timestamp::MAX);
        assert_eq!(pace.due(), Duration::MAX);
    }
}
