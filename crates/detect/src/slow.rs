//! Slow changes: CUSUM on the means of the residuals over ten seconds.
//!
//! The scores per second stay small during a slow growth, because the prediction of the next residual adapts to the
//! growth. The means over ten seconds are divided by their own robust spread, which includes the slow fluctuations of
//! the series. The correlation of the means is part of the limit ([`crate::cusum::limit`]).

use crate::cusum::{self, Cusum, SCORE_MAX};
use crate::event::Change;
use crate::state::{Codec, Field};

/// Seconds of a mean.
pub(crate) const MEAN_SECONDS: u32 = 10;

/// Means before the first verdict.
const MEANS_MIN: u32 = 360;

/// Number of means over which their spread is averaged: six hours.
const SPREAD_MEANS: f64 = 2160.0;

/// The reference value, in spreads of the means.
const REFERENCE: f64 = 1.5;

/// The exponent of the distribution of the scores: that of normal scores, with a reserve for heavier tails.
const EXPONENT: f64 = 2.0 * REFERENCE * 0.8;

/// The smallest limit: a change lasts for at least four means.
const LIMIT_MIN: f64 = 8.0;

/// When the spread is estimated, means are limited to this multiple of the spread.
const CLIP: f64 = 2.5;

/// The mean square of a standard normal number that is limited to ±`CLIP`.
const CLIPPED_SQUARE: f64 = 0.977_57;

/// The numbers of means in the short and in the long sums. The variances of these sums show the correlation of the
/// means.
const SUM_LENGTHS: [u32; 2] = [4, 24];

/// Number of sums over which their variance is averaged.
const SUMS: f64 = 100.0;

/// A confirmed slow change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SlowChange {
    /// The sign.
    pub change: Change,
    /// The seconds of the means since the onset.
    pub seconds: u64,
    /// The last mean of the residuals.
    pub mean: f64,
}

/// The sums of means, and the statistics of the means.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SlowSums {
    sum: f32,
    values: u32,
    means: u32,
    square: f32,
    sums: [f32; 2],
    sum_squares: [f32; 2],
    score_square: f32,
    limit: f32,
    increase: Cusum,
    decrease: Cusum,
}

impl SlowSums {
    /// Adds a residual, which is limited to a few spreads. The spread of the means is at least `floor`. Returns a
    /// change when it is confirmed.
    pub fn add(&mut self, residual: f64, floor: f64, run_length: f64) -> Option<SlowChange> {
        self.sum += residual as f32;
        self.values += 1;
        if self.values < MEAN_SECONDS {
            return None;
        }
        let mean = f64::from(self.sum) / f64::from(MEAN_SECONDS);
        (self.sum, self.values) = (0.0, 0);
        let spread = f64::from(self.square).sqrt().max(floor).max(f64::MIN_POSITIVE);
        let score = (mean / spread).clamp(-SCORE_MAX, SCORE_MAX);
        self.learn(mean, score, floor);
        if self.means < MEANS_MIN {
            return None;
        }
        if self.means.is_multiple_of(SUM_LENGTHS[1]) || self.limit == 0.0 {
            let means = 2.0 * run_length / f64::from(MEAN_SECONDS);
            let variance = f64::from(self.score_square).min(1.0);
            let limit = cusum::limit(means, REFERENCE, EXPONENT, |length| variance * self.ratio(length));
            self.limit = limit.max(LIMIT_MIN) as f32;
        }
        self.increase.add(score, REFERENCE);
        self.decrease.add(-score, REFERENCE);
        let limit = self.limit;
        let found = if self.increase.sum > limit {
            Some((Change::Increase, self.increase.run))
        } else if self.decrease.sum > limit {
            Some((Change::Decrease, self.decrease.run))
        } else {
            None
        };
        found.map(|(change, run)| SlowChange { change, seconds: u64::from(run) * u64::from(MEAN_SECONDS), mean })
    }

    /// True if a sum is above half of its limit.
    pub fn is_suspicious(&self) -> bool {
        self.increase.sum.max(self.decrease.sum) > self.limit / 2.0
    }

    /// Ends the present sums and the present mean.
    pub fn reset(&mut self) {
        (self.sum, self.values) = (0.0, 0);
        self.increase = Cusum::default();
        self.decrease = Cusum::default();
    }

    fn learn(&mut self, mean: f64, score: f64, floor: f64) {
        self.means = self.means.saturating_add(1);
        if self.means == 1 {
            self.square = (mean * mean).max(floor * floor) as f32;
        }
        let step = (1.0 / f64::from(self.means)).max(1.0 / SPREAD_MEANS);
        let spread = f64::from(self.square).sqrt().max(floor).max(f64::MIN_POSITIVE);
        let limited = mean.clamp(-CLIP * spread, CLIP * spread);
        self.square += (step * (limited * limited / CLIPPED_SQUARE - f64::from(self.square))) as f32;
        self.score_square += (step * (score * score - f64::from(self.score_square))) as f32;
        for ((sum, average), length) in self.sums.iter_mut().zip(&mut self.sum_squares).zip(SUM_LENGTHS) {
            *sum += score as f32;
            if self.means.is_multiple_of(length) {
                let number = f64::from(self.means / length);
                let square = f64::from(*sum).powi(2) / f64::from(length);
                *average += ((1.0 / number).max(1.0 / SUMS) * (square - f64::from(*average))) as f32;
                *sum = 0.0;
            }
        }
    }

    /// The ratio of the variance of sums of means to that of sums of independent means, at least 1.
    fn ratio(&self, length: u32) -> f64 {
        let square = f64::from(self.score_square).max(1e-6);
        cusum::interpolated_ratio(SUM_LENGTHS, self.sum_squares.map(|sum| f64::from(sum) / square), length)
    }
}

impl Field for SlowSums {
    fn visit(&mut self, codec: &mut dyn Codec) {
        codec.f32(&mut self.sum);
        codec.u32(&mut self.values);
        codec.u32(&mut self.means);
        codec.f32(&mut self.square);
        self.sums.iter_mut().for_each(|value| codec.f32(value));
        self.sum_squares.iter_mut().for_each(|value| codec.f32(value));
        codec.f32(&mut self.score_square);
        codec.f32(&mut self.limit);
        self.increase.visit(codec);
        self.decrease.visit(codec);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    fn normal(prng: &mut Prng) -> f64 {
        (-2.0 * (1.0 - prng.unit()).ln()).sqrt() * (std::f64::consts::TAU * prng.unit()).cos()
    }

    #[test]
    fn a_slow_growth_is_found_and_its_duration_is_estimated() {
        let mut prng = Prng::new(testkit::seed("a_slow_growth_is_found_and_its_duration_is_estimated"));
        let mut slow = SlowSums::default();
        for _ in 0..40_000 {
            assert_eq!(slow.add(normal(&mut prng), 0.0, 1e7), None);
        }
        let found = (0..1800u32).find_map(|second| {
            let growth = f64::from(second) / 1800.0;
            slow.add(growth + normal(&mut prng), 0.0, 1e7).map(|found| (second, found.change, found.seconds))
        });
        let Some((second, Change::Increase, seconds)) = found else { panic!("{found:?}") };
        assert!(second < 1400 && seconds <= u64::from(second) + 60, "{found:?}");
    }

    #[test]
    fn the_rate_of_false_alarms_holds_for_independent_means() {
        let seed = testkit::seed("the_rate_of_false_alarms_holds_for_independent_means");
        let (mut prng, mut slow, mut alarms) = (Prng::new(seed), SlowSums::default(), 0);
        for _ in 0..1_000_000 {
            if slow.add(normal(&mut prng), 0.0, 20_000.0).is_some() {
                alarms += 1;
                slow.reset();
            }
        }
        assert!(alarms <= 50 + 20, "seed {seed}: {alarms}");
    }
}
