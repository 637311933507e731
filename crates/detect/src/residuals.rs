//! Residuals and their scores: the spread of the residuals, their correlation from second to second, and the
//! standardised innovations.
//!
//! The spread is Huber's proposal 2 as a recursion: the mean square of the residuals, limited to [`CLIP`] spreads and
//! divided by the mean square of a limited normal number (Huber, Annals of Mathematical Statistics 35, 1964).
//!
//! Correlation over seconds is removed by prediction: the innovation is the residual minus the best linear prediction
//! by the last residual and by an exponential mean of the last residuals. Correlation over longer times remains in the
//! scores; its effect on sums is measured by the variance of the sums of 8 and of 32 scores.

use crate::cusum::{self, SCORE_MAX};
use crate::state::{Codec, Field};

/// Residuals are limited to this multiple of the spread when the spread is estimated.
const CLIP: f64 = 2.5;

/// The mean square of a standard normal number that is limited to [`CLIP`].
const CLIPPED_SQUARE: f64 = 0.977_57;

/// Time constant of the spread in seconds.
const SPREAD_SECONDS: f64 = 900.0;

/// Time constant of the correlation in seconds.
const CORRELATION_SECONDS: f64 = 3600.0;

/// Time constant of the fast level, which predicts the next residual together with the last residual, in seconds.
const FAST_SECONDS: f64 = 10.0;

/// Seconds after which the coefficients of the prediction are computed anew.
const COEFFICIENT_SECONDS: u32 = 64;

/// The largest sum of the coefficients of the prediction.
const COEFFICIENTS_MAX: f64 = 0.95;

/// The lengths of the sums of scores, in seconds.
const SUM_LENGTHS: [u32; 2] = [8, 32];

/// Number of sums over which their variance is averaged.
const SUMS: f64 = 300.0;

/// Spread and correlation of the residuals of a series.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Residuals {
    /// Mean square of the residuals.
    square: f64,
    /// Mean square of the innovations.
    innovation_square: f64,
    /// Mean products of limited residuals, in the order of [`products`].
    products: [f32; 5],
    /// The coefficients of the prediction: of the last residual, and of the fast level.
    coefficients: [f32; 2],
    /// The last residual, if the last second had a value.
    last: f32,
    /// Exponential mean of the residuals over [`FAST_SECONDS`].
    fast: f32,
    has_last: bool,
    count: u32,
    /// Mean square of the scores.
    score_square: f32,
    /// The present sums of scores.
    sums: [f32; 2],
    /// Mean square of the sums, divided by their length.
    sum_squares: [f32; 2],
    /// Scores in the sums of both lengths.
    summed: u16,
}

/// A residual with its score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scored {
    /// The distance from the expected value.
    residual: f64,
    innovation: f64,
    /// The innovation in standard deviations, limited to [`SCORE_MAX`].
    pub score: f64,
    spread: f64,
}

impl Residuals {
    /// Residuals with a first guess of the spread.
    pub fn restart(&mut self, spread: f64) {
        let square = spread * spread;
        *self = Self { square, innovation_square: square, ..Self::default() };
    }

    /// After a jump to a new level: the spread is estimated anew from a wide first guess.
    pub fn widen(&mut self) {
        self.count = 0;
        self.square *= 4.0;
        self.innovation_square *= 4.0;
        self.forget_last();
    }

    /// Changes the spread by a factor.
    pub fn scale(&mut self, factor: f64) {
        self.square *= factor * factor;
        self.innovation_square *= factor * factor;
    }

    /// Values since the begin.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// The standard deviation of the residuals.
    pub fn spread(&self) -> f64 {
        self.square.sqrt()
    }

    /// The share of a lasting change of the residuals that the innovations show, in standard deviations of the
    /// innovations per standard deviation of the residuals.
    pub fn visibility(&self) -> f64 {
        let ratio = (self.square / self.innovation_square.max(f64::MIN_POSITIVE)).sqrt();
        (1.0 - f64::from(self.coefficients[0])) * ratio.clamp(1.0, 10.0)
    }

    /// The ratio of the variance of a sum of `length` scores to that of independent scores, at least 1. It is measured
    /// for two lengths and interpolated between and beyond them.
    pub fn sum_ratio(&self, length: u32) -> f64 {
        let square = f64::from(self.score_square).max(1e-6);
        cusum::interpolated_ratio(SUM_LENGTHS, self.sum_squares.map(|sum| f64::from(sum) / square), length)
    }

    /// After an alarm, the fast level begins at the present residual.
    pub const fn continue_at(&mut self, residual: f64) {
        (self.last, self.fast, self.has_last) = (residual as f32, residual as f32, true);
    }

    /// The next residual has no predecessor.
    pub const fn forget_last(&mut self) {
        self.has_last = false;
    }

    /// The score of a residual. The spread is at least `floor`.
    pub fn score(&self, residual: f64, floor: f64) -> Scored {
        let spread = self.spread().max(floor);
        let (innovation, innovation_spread) = match self.has_last {
            true => {
                let [last, fast] = self.coefficients.map(f64::from);
                (
                    residual - last * f64::from(self.last) - fast * f64::from(self.fast),
                    self.innovation_square.sqrt().max(floor),
                )
            }
            false => (residual, spread),
        };
        let score = (innovation / innovation_spread.max(f64::MIN_POSITIVE)).clamp(-SCORE_MAX, SCORE_MAX);
        Scored { residual, innovation, score, spread }
    }

    /// Learns from a scored residual. The spread does not follow a suspicious residual.
    pub fn learn(&mut self, scored: &Scored, is_suspicious: bool) {
        self.count = self.count.saturating_add(1);
        let gain = |seconds: f64| (1.0 / (f64::from(self.count) + 10.0)).max(1.0 / seconds);
        let step = gain(SPREAD_SECONDS);
        let limited = |value: f64, square: f64| value.clamp(-CLIP * square.sqrt(), CLIP * square.sqrt());
        // A spread of 0 would never grow, because residuals are limited to multiples of the spread.
        let least = (scored.spread * 1e-3).powi(2);
        let square = self.square.max(least);
        if !is_suspicious {
            self.square += step * (limited(scored.residual, square).powi(2) / CLIPPED_SQUARE - self.square);
        }
        let unit = scored.spread.max(f64::MIN_POSITIVE);
        let now = (scored.residual / unit).clamp(-CLIP, CLIP);
        if self.has_last {
            let square = self.innovation_square.max(least);
            self.innovation_square +=
                step * (limited(scored.innovation, square).powi(2) / CLIPPED_SQUARE - self.innovation_square);
            let step = gain(CORRELATION_SECONDS);
            let last = (f64::from(self.last) / unit).clamp(-CLIP, CLIP);
            let fast = (f64::from(self.fast) / unit).clamp(-CLIP, CLIP);
            for (mean, value) in self.products.iter_mut().zip(products(now, last, fast)) {
                *mean += (step * (value - f64::from(*mean))) as f32;
            }
            self.fast += ((now * unit - f64::from(self.fast)) / FAST_SECONDS) as f32;
        } else {
            self.fast = 0.0;
        }
        if self.count.is_multiple_of(COEFFICIENT_SECONDS) {
            self.coefficients = coefficients(self.products.map(f64::from)).map(|value| value as f32);
        }
        (self.last, self.has_last) = (scored.residual as f32, true);
        self.add_to_sums(scored.score);
    }

    fn add_to_sums(&mut self, score: f64) {
        let step = (1.0 / (f64::from(self.count) + 1.0)).max(1.0 / CORRELATION_SECONDS);
        self.score_square += (step * (score * score - f64::from(self.score_square))) as f32;
        self.summed = (self.summed + 1) % SUM_LENGTHS[1] as u16;
        for ((sum, mean), length) in self.sums.iter_mut().zip(&mut self.sum_squares).zip(SUM_LENGTHS) {
            *sum += score as f32;
            if u32::from(self.summed).is_multiple_of(length) {
                let number = f64::from(self.count / length) + 1.0;
                let square = f64::from(*sum).powi(2) / f64::from(length);
                *mean += ((1.0 / number).max(1.0 / SUMS) * (square - f64::from(*mean))) as f32;
                *sum = 0.0;
            }
        }
    }
}

/// The products from which the coefficients follow.
fn products(now: f64, last: f64, fast: f64) -> [f64; 5] {
    [now * last, now * fast, last * last, fast * fast, last * fast]
}

/// The coefficients of the best linear prediction of a residual by the last residual and the fast level. Both are at
/// least 0, and their sum is at most [`COEFFICIENTS_MAX`].
fn coefficients([now_last, now_fast, last_last, fast_fast, last_fast]: [f64; 5]) -> [f64; 2] {
    let alone = if last_last > 0.0 { (now_last / last_last).max(0.0) } else { 0.0 };
    let determinant = last_last * fast_fast - last_fast * last_fast;
    let (last, fast) = if determinant > 1e-3 * last_last * fast_fast {
        let last = (now_last * fast_fast - now_fast * last_fast) / determinant;
        let fast = (now_fast * last_last - now_last * last_fast) / determinant;
        match (last < 0.0, fast < 0.0) {
            (_, true) => (alone, 0.0),
            (true, false) => (0.0, (now_fast / fast_fast).max(0.0)),
            (false, false) => (last, fast),
        }
    } else {
        (alone, 0.0)
    };
    let scale = (COEFFICIENTS_MAX / (last + fast).max(COEFFICIENTS_MAX)).min(1.0);
    [last * scale, fast * scale]
}

impl Field for Residuals {
    fn visit(&mut self, codec: &mut dyn Codec) {
        codec.f64(&mut self.square);
        codec.f64(&mut self.innovation_square);
        self.products.iter_mut().for_each(|value| codec.f32(value));
        self.coefficients.iter_mut().for_each(|value| codec.f32(value));
        codec.f32(&mut self.last);
        codec.f32(&mut self.fast);
        codec.bool(&mut self.has_last);
        codec.u32(&mut self.count);
        codec.f32(&mut self.score_square);
        self.sums.iter_mut().for_each(|value| codec.f32(value));
        self.sum_squares.iter_mut().for_each(|value| codec.f32(value));
        codec.u16(&mut self.summed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    fn normal(prng: &mut Prng) -> f64 {
        (-2.0 * (1.0 - prng.unit()).ln()).sqrt() * (std::f64::consts::TAU * prng.unit()).cos()
    }

    /// Residuals after `n` numbers with this correlation from second to second and a standard deviation of 7.
    fn trained(prng: &mut Prng, correlation: f64, n: u32, outliers: bool) -> Residuals {
        let (mut residuals, mut value) = (Residuals::default(), 0.0);
        residuals.restart(100.0);
        for index in 0..n {
            value = correlation * value + (1.0 - correlation * correlation).sqrt() * normal(prng);
            let outlier = if outliers && index % 100 == 0 { 1e6 } else { 0.0 };
            let scored = residuals.score(7.0 * value + outlier, 0.0);
            residuals.learn(&scored, false);
        }
        residuals
    }

    #[test]
    fn spread_and_correlation_are_those_of_the_process() {
        let mut prng = Prng::new(testkit::seed("spread_and_correlation_are_those_of_the_process"));
        for correlation in [0.0, 0.5, 0.8] {
            let residuals = trained(&mut prng, correlation, 50_000, false);
            let [last, fast] = residuals.coefficients.map(f64::from);
            assert!((last - correlation).abs() < 0.12 && fast < 0.15, "{correlation}: {last} {fast}");
            assert!((residuals.spread() / 7.0 - 1.0).abs() < 0.3, "{correlation}: {}", residuals.spread());
            assert!(residuals.sum_ratio(32) < 1.6, "{correlation}: {}", residuals.sum_ratio(32));
            // After a lasting change of one standard deviation, the mean residual of an autoregressive process with the
            // correlation c is (1 - c) / sqrt(1 - c²) standard deviations of the residuals.
            let expected = ((1.0 - correlation) / (1.0f64 + correlation)).sqrt();
            assert!((residuals.visibility() / expected - 1.0).abs() < 0.3, "{correlation}: {}", residuals.visibility());
        }
    }

    #[test]
    fn one_outlier_in_a_hundred_values_hardly_changes_the_spread() {
        let mut prng = Prng::new(testkit::seed("one_outlier_in_a_hundred_values_hardly_changes_the_spread"));
        let spread = trained(&mut prng, 0.0, 20_000, true).spread();
        assert!((spread / 7.0 - 1.0).abs() < 0.15, "{spread}");
    }

    #[test]
    fn correlation_over_many_seconds_raises_the_ratio_of_long_sums() {
        let mut prng = Prng::new(testkit::seed("correlation_over_many_seconds_raises_the_ratio_of_long_sums"));
        let (mut residuals, mut slow) = (Residuals::default(), 0.0);
        residuals.restart(1.0);
        for _ in 0..50_000 {
            slow = 0.99 * slow + 0.1 * normal(&mut prng);
            let scored = residuals.score(slow + normal(&mut prng), 0.0);
            // Without the fast level, the correlation remains in the scores.
            residuals.learn(&scored, true);
        }
        let ratios = [1, 4, 8, 32, 64].map(|length| residuals.sum_ratio(length));
        assert_eq!(ratios[0], 1.0);
        assert!(ratios.windows(2).all(|two| two[0] <= two[1] + 1e-9), "{ratios:?}");
        assert!(ratios[3] > 1.05, "{ratios:?}");
    }

    #[test]
    fn the_coefficients_are_those_of_least_squares() {
        // A process that follows the prediction exactly, with noise.
        let seed = testkit::seed("the_coefficients_are_those_of_least_squares");
        let mut prng = Prng::new(seed);
        let (mut last, mut fast, mut sums) = (0.0, 0.0, [0.0; 5]);
        for _ in 0..200_000 {
            let now = 0.3 * last + 0.4 * fast + normal(&mut prng);
            sums.iter_mut().zip(products(now, last, fast)).for_each(|(sum, product)| *sum += product);
            fast += (now - fast) / FAST_SECONDS;
            last = now;
        }
        let [found_last, found_fast] = coefficients(sums);
        assert!(
            (found_last - 0.3).abs() < 0.03 && (found_fast - 0.4).abs() < 0.05,
            "seed {seed}: {found_last} {found_fast}"
        );
        assert_eq!(coefficients([0.0; 5]), [0.0, 0.0]);
    }
}
