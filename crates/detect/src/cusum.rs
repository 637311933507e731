//! CUSUM (Page, Biometrika 41, 1954) with a designed rate of false alarms.
//!
//! The sum `S = max(0, S + score - k)` raises an alarm above the limit `h`. Scores are standardised residuals, limited
//! to [`SCORE_MAX`], so that a few extreme values raise no alarm.
//!
//! The limit follows from the distribution of the scores while no alarm is active. Let `t > 0` be the root of
//! `E[exp(t (score - k))] = 1`. For independent scores, the probability that an excursion of the sum reaches `h` is at
//! most `exp(-t h)` (Wald's identity), so the average run length between false alarms is at least `exp(t h)` (Lorden,
//! Annals of Mathematical Statistics 42, 1971, theorem 2), and `h = ln(run length) / t` suffices. For normal scores,
//! `t = 2 k`.
//!
//! For correlated normal scores whose sums over `n` values have the variance `n r(n)`, the sum reaches `h` most
//! probably within the `n` for which `(h + k n)² / (2 n r(n))` is smallest, and the logarithm of the run length is
//! about this minimum. Therefore `h` is at least `sqrt(2 n r(n) ln(run length)) - k n` for each `n`. The ratio `2 k /
//! t` corrects for tails that are not normal.

use crate::state::{Codec, Field};

/// Largest absolute value of a score, in standard deviations.
pub const SCORE_MAX: f64 = 4.0;

/// Width of the bins of the distribution, in standard deviations.
const BIN_WIDTH: f64 = 0.5;

/// Bins between the two limits, and a bin for each limit.
const BINS: usize = 18;

/// The number of scores that the prior distribution counts as. The prior has heavier tails than a normal distribution,
/// so the limit is higher while few scores are known.
const PRIOR_WEIGHT: f64 = 200.0;

/// The factor by which each hour multiplies the counts: 38 % of a count remain after 24 hours.
const KEPT_PER_HOUR: f32 = 0.96;

/// A score above this multiple of the reference value counts as a second of the change. After a usual score that is a
/// little above the reference value, a burst of two seconds is then no change of three seconds.
const ABOVE: f64 = 1.25;

/// One-sided CUSUM.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cusum {
    /// The sum, in standard deviations.
    pub sum: f32,
    /// Number of values since the sum was last 0.
    pub run: u32,
    /// Number of these values whose score is above the reference value by the factor `ABOVE`.
    pub above: u32,
}

impl Cusum {
    /// Adds a score with the reference value `k`, both in standard deviations.
    pub fn add(&mut self, score: f64, k: f64) {
        self.sum = (f64::from(self.sum) + score - k).max(0.0) as f32;
        if self.sum > 0.0 {
            self.run = self.run.saturating_add(1);
            self.above = self.above.saturating_add(u32::from(score > ABOVE * k));
        } else {
            (self.run, self.above) = (0, 0);
        }
    }
}

impl Field for Cusum {
    fn visit(&mut self, codec: &mut dyn Codec) {
        codec.f32(&mut self.sum);
        codec.u32(&mut self.run);
        codec.u32(&mut self.above);
    }
}

/// The average run length of a one-sided CUSUM of independent normal scores, by Siegmund's approximation (Siegmund,
/// Sequential Analysis, 1985, §2.6): `(exp(2 k b) - 2 k b - 1) / (2 k²)` with `b = h + 1.166`.
pub fn normal_run_length(k: f64, h: f64) -> f64 {
    let exponent = 2.0 * k * (h + 1.166);
    (exponent.exp() - exponent - 1.0) / (2.0 * k * k)
}

/// The lengths of sums that are considered for correlated scores.
const LENGTHS: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// The ratio `r(length)`, interpolated between and beyond two measured ratios, and at least 1.
pub(crate) fn interpolated_ratio(lengths: [u32; 2], ratios: [f64; 2], length: u32) -> f64 {
    let [first, second] = lengths.map(|length| f64::from(length).ln());
    let short = ratios[0].max(1.0).ln();
    let long = ratios[1].max(1.0).ln().max(short);
    let at = f64::from(length).ln();
    let log = if at <= first { short * at / first } else { short + (long - short) * (at - first) / (second - first) };
    log.exp()
}

/// The limit of the sum for an average run length, a reference value `k`, the exponent `t` of the scores and the ratio
/// `r(n)` of the variance of a sum of `n` scores to `n`.
pub fn limit(run_length: f64, k: f64, exponent: f64, ratio: impl Fn(u32) -> f64) -> f64 {
    let log = run_length.ln();
    let independent = log * ratio(1) / (2.0 * k);
    let correlated = LENGTHS.iter().map(|length| {
        let n = f64::from(*length);
        (2.0 * n * ratio(*length) * log).sqrt() - k * n
    });
    correlated.fold(independent, f64::max) * 2.0 * k / exponent
}

/// The distribution of scores while no alarm is active.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoreDistribution {
    counts: [f32; BINS],
}

impl Default for ScoreDistribution {
    fn default() -> Self {
        Self { counts: [0.0; BINS] }
    }
}

impl ScoreDistribution {
    /// Adds a score, limited to [`SCORE_MAX`].
    pub fn add(&mut self, score: f64) {
        let bin = ((score + SCORE_MAX) / BIN_WIDTH).floor() + 1.0;
        let bin = if score >= SCORE_MAX { BINS - 1 } else { (bin.max(0.0) as usize).min(BINS - 2) };
        let bin = if score <= -SCORE_MAX { 0 } else { bin };
        self.counts[bin] += 1.0;
    }

    /// Reduces the weight of all scores; called once per hour.
    pub fn age(&mut self) {
        self.counts.iter_mut().for_each(|count| *count *= KEPT_PER_HOUR);
    }

    /// The root `t` of `E[exp(t (sign score - k))] = 1`, in (0, 8].
    pub fn exponent(&self, sign: f64, k: f64) -> f64 {
        let weights = self.weights();
        let mean = |t: f64| -> f64 {
            let half = t * BIN_WIDTH / 2.0;
            // The factor is the mean of the exponential function over a bin.
            let within = if half > 1e-6 { half.sinh() / half } else { 1.0 };
            let terms = weights.iter().enumerate().map(|(bin, weight)| {
                let is_limit = bin == 0 || bin == BINS - 1;
                weight * (t * (sign * value_of(bin) - k)).exp() * if is_limit { 1.0 } else { within }
            });
            terms.sum()
        };
        // The function is convex, is 1 at 0, and falls at 0 if the mean score is below k.
        let (mut low, mut high) = (0.0, 8.0);
        for _ in 0..40 {
            let middle = (low + high) / 2.0;
            if mean(middle) < 1.0 { low = middle } else { high = middle }
        }
        low.max(1e-3)
    }

    /// The weights of all bins with the prior; their sum is 1.
    fn weights(&self) -> [f64; BINS] {
        let mut weights = self.counts.map(f64::from);
        // Student's t with 5 degrees of freedom, without its constant factor.
        let prior: [f64; BINS] = std::array::from_fn(|bin| (1.0 + value_of(bin).powi(2) / 5.0).powi(-3));
        let prior_sum: f64 = prior.iter().sum();
        weights.iter_mut().zip(prior).for_each(|(weight, prior)| *weight += PRIOR_WEIGHT * prior / prior_sum);
        let sum: f64 = weights.iter().sum();
        weights.map(|weight| weight / sum)
    }
}

/// The score that represents a bin.
fn value_of(bin: usize) -> f64 {
    ((bin as f64 - 0.5) * BIN_WIDTH - SCORE_MAX).clamp(-SCORE_MAX, SCORE_MAX)
}

impl Field for ScoreDistribution {
    fn visit(&mut self, codec: &mut dyn Codec) {
        self.counts.iter_mut().for_each(|count| codec.f32(count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    /// A standard normal number (Box and Muller 1958).
    fn normal(prng: &mut Prng) -> f64 {
        let radius = (-2.0 * (1.0 - prng.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * prng.unit()).cos()
    }

    /// Student's t with 3 degrees of freedom.
    fn heavy(prng: &mut Prng) -> f64 {
        let squares: f64 = (0..3).map(|_| normal(prng).powi(2)).sum();
        normal(prng) / (squares / 3.0).sqrt()
    }

    fn run_length(prng: &mut Prng, k: f64, h: f64, runs: u32, draw: fn(&mut Prng) -> f64) -> f64 {
        let mut total = 0u64;
        for _ in 0..runs {
            let mut cusum = Cusum::default();
            while f64::from(cusum.sum) <= h {
                cusum.add(draw(prng).clamp(-SCORE_MAX, SCORE_MAX), k);
                total += 1;
            }
        }
        total as f64 / f64::from(runs)
    }

    #[test]
    fn the_run_length_of_normal_scores_is_that_of_siegmund() {
        let mut prng = Prng::new(testkit::seed("the_run_length_of_normal_scores_is_that_of_siegmund"));
        for (k, h) in [(0.25, 6.0), (0.5, 4.0), (0.5, 5.0), (1.0, 2.0)] {
            let (found, expected) = (run_length(&mut prng, k, h, 2000, normal), normal_run_length(k, h));
            // The standard deviation of the mean of 2000 run lengths is 2.2 %.
            assert!((found / expected - 1.0).abs() < 0.15, "k {k}, h {h}: {found} instead of {expected}");
        }
    }

    #[test]
    fn the_designed_run_length_is_reached_for_normal_and_heavy_tailed_scores() {
        let mut prng =
            Prng::new(testkit::seed("the_designed_run_length_is_reached_for_normal_and_heavy_tailed_scores"));
        for (name, draw) in [("normal", normal as fn(&mut Prng) -> f64), ("heavy", heavy)] {
            for k in [0.5, 1.0, 1.5] {
                let mut scores = ScoreDistribution::default();
                (0..50_000).for_each(|_| scores.add(draw(&mut prng)));
                let designed = 3000.0;
                let h = f64::ln(designed) / scores.exponent(1.0, k);
                let found = run_length(&mut prng, k, h, 300, draw);
                // The bound is a lower bound. The limit must not be useless either.
                assert!(found > designed * 0.8, "{name}, k {k}, h {h}: {found}");
                assert!(found < designed * 60.0, "{name}, k {k}, h {h}: {found}");
            }
        }
    }

    #[test]
    fn the_exponent_of_normal_scores_is_twice_the_reference_value() {
        let mut prng = Prng::new(testkit::seed("the_exponent_of_normal_scores_is_twice_the_reference_value"));
        let mut scores = ScoreDistribution::default();
        (0..200_000).for_each(|_| scores.add(normal(&mut prng)));
        for k in [0.25, 0.5, 0.75] {
            let found = scores.exponent(1.0, k);
            assert!((found / (2.0 * k) - 1.0).abs() < 0.12, "k {k}: {found}");
        }
    }

    #[test]
    fn a_skewed_distribution_has_a_smaller_exponent_on_its_long_side() {
        let mut prng = Prng::new(testkit::seed("a_skewed_distribution_has_a_smaller_exponent_on_its_long_side"));
        let mut scores = ScoreDistribution::default();
        (0..50_000).for_each(|_| scores.add(-(1.0 - prng.unit()).ln() - 1.0));
        assert!(scores.exponent(1.0, 1.0) < scores.exponent(-1.0, 1.0) / 1.5);
    }
}
