//! The methods that the adaptive detector is compared with.

use ::detect::Change;
use incidents::BEGIN;
use std::collections::VecDeque;

/// Seconds below a limit, or within a band, after which an alarm ends.
const RETURN_SECONDS: u64 = 15;

/// A fixed threshold on the mean of five seconds, as FastNetMon has. An operator sets the limit to 1.5 times the
/// largest mean of the first day. There is no lower limit.
pub struct FixedThreshold;

/// Seconds of the first day, after which the limit is fixed.
const FIRST_DAY: usize = 86_400;

/// Seconds of the mean.
const MEAN_SECONDS: usize = 5;

impl FixedThreshold {
    /// The alarms of a series.
    pub fn alarms(values: &[Option<f64>]) -> Vec<(u64, Change)> {
        let (mut window, mut sum, mut largest) = (VecDeque::new(), 0.0, f64::MIN);
        let (mut alarms, mut quiet, mut is_active) = (Vec::new(), 0, false);
        for (index, value) in values.iter().enumerate() {
            let Some(value) = value else { continue };
            window.push_back(*value);
            sum += value;
            if window.len() > MEAN_SECONDS {
                sum -= window.pop_front().unwrap_or(0.0);
            }
            let mean = sum / window.len() as f64;
            if index < FIRST_DAY {
                largest = largest.max(mean);
                continue;
            }
            let is_above = mean > 1.5 * largest;
            quiet = if is_above { 0 } else { quiet + 1 };
            if is_above && !is_active {
                alarms.push((BEGIN + index as u64, Change::Increase));
            }
            is_active = is_above || (is_active && quiet < RETURN_SECONDS);
        }
        alarms
    }
}

/// An exponential mean and variance over five minutes, with a band of four standard deviations. Both are not updated
/// during an alarm, at most for an hour.
pub struct Ewma;

/// The weight of a new value.
const WEIGHT: f64 = 1.0 / 300.0;

/// The half width of the band in standard deviations.
const BAND: f64 = 4.0;

/// Seconds after which an alarm ends in any case.
const ALARM_MAX: u64 = 3600;

impl Ewma {
    /// The alarms of a series, after `duration` seconds in succession outside of the band.
    pub fn alarms(values: &[Option<f64>], duration: u64) -> Vec<(u64, Change)> {
        let (mut mean, mut square, mut count) = (0.0, 0.0, 0u64);
        let (mut alarms, mut outside, mut quiet, mut active_since) = (Vec::new(), 0, 0, None);
        for (value, second) in values.iter().zip(BEGIN..) {
            let Some(value) = value else { continue };
            let distance = value - mean;
            let is_outside = count > 900 && distance.abs() > BAND * f64::sqrt(square);
            outside = if is_outside { outside + 1 } else { 0 };
            if let Some(since) = active_since {
                quiet = if is_outside { 0 } else { quiet + 1 };
                if quiet >= RETURN_SECONDS || second - since > ALARM_MAX {
                    active_since = None;
                }
                if active_since.is_some() {
                    continue;
                }
            } else if outside >= duration {
                alarms.push((second, if distance > 0.0 { Change::Increase } else { Change::Decrease }));
                (active_since, quiet) = (Some(second), 0);
                continue;
            }
            count += 1;
            let weight = WEIGHT.max(1.0 / count as f64);
            mean += weight * distance;
            square += weight * (distance * distance - square);
        }
        alarms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A day of about 100 per second, and a minute of `flood` a while later.
    fn values(flood: f64) -> Vec<Option<f64>> {
        let mut values: Vec<Option<f64>> = (0..90_000).map(|second| Some(100.0 + f64::from(second % 7))).collect();
        values[88_000..88_060].fill(Some(flood));
        values[100] = None;
        values
    }

    #[test]
    fn each_method_raises_one_alarm_for_a_flood_and_none_without_it() {
        let (quiet, flood) = (values(103.0), values(1000.0));
        assert_eq!(FixedThreshold::alarms(&quiet), []);
        assert_eq!(FixedThreshold::alarms(&flood), [(BEGIN + 88_000, Change::Increase)]);
        for duration in [1, 3] {
            assert_eq!(Ewma::alarms(&quiet, duration), []);
            assert_eq!(Ewma::alarms(&flood, duration), [(BEGIN + 88_000 + duration - 1, Change::Increase)]);
        }
    }
}
