//! A distribution: exact minimum, maximum, mean and standard deviation, and a histogram for the quantiles.

use crate::Histogram;

/// The distribution of integers, such as delays in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Distribution {
    histogram: Histogram,
    mean: f64,
    /// The sum of the squared differences from the mean (Welford 1962).
    squares: f64,
}

impl Distribution {
    /// A distribution without values.
    pub const fn new() -> Self {
        Self { histogram: Histogram::new(), mean: 0.0, squares: 0.0 }
    }

    /// Adds a value.
    #[inline]
    pub fn add(&mut self, value: i64) {
        self.histogram.add(value);
        let from_old_mean = value as f64 - self.mean;
        self.mean += from_old_mean / self.histogram.count() as f64;
        self.squares += from_old_mean * (value as f64 - self.mean);
    }

    /// Number of values.
    pub const fn count(&self) -> u64 {
        self.histogram.count()
    }

    /// The smallest value.
    pub fn min(&self) -> Option<i64> {
        self.histogram.range().map(|(min, _)| min)
    }

    /// The largest value.
    pub fn max(&self) -> Option<i64> {
        self.histogram.range().map(|(_, max)| max)
    }

    /// The mean.
    pub fn mean(&self) -> Option<f64> {
        (self.count() > 0).then_some(self.mean)
    }

    /// The standard deviation of these values (divided by their number).
    pub fn standard_deviation(&self) -> Option<f64> {
        (self.count() > 0).then(|| (self.squares / self.count() as f64).max(0.0).sqrt())
    }

    /// The histogram of the values.
    pub const fn histogram(&self) -> &Histogram {
        &self.histogram
    }

    /// See [`Histogram::quantile`].
    pub fn quantile(&self, q: f64) -> Option<(i64, u64)> {
        self.histogram.quantile(q)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prng;

    #[test]
    fn mean_and_standard_deviation_equal_those_of_two_passes() {
        let seed = testkit::seed("mean_and_standard_deviation_equal_those_of_two_passes");
        let mut prng = Prng::new(seed);
        // An offset of a day in nanoseconds is the case in which a sum of squares would lose all digits.
        for offset in [0, 86_400_000_000_000i64] {
            let values: Vec<i64> = (0..5000).map(|_| offset + prng.below(1_000_000) as i64 - 500_000).collect();
            let mut distribution = Distribution::new();
            values.iter().for_each(|value| distribution.add(*value));
            let mean = values.iter().map(|v| (*v - offset) as f64).sum::<f64>() / 5000.0;
            let variance = values.iter().map(|v| ((*v - offset) as f64 - mean).powi(2)).sum::<f64>() / 5000.0;
            let found = distribution.mean().expect("a mean") - offset as f64;
            assert!((found - mean).abs() < 1.0, "seed {seed}: {found} {mean}");
            let found = distribution.standard_deviation().expect("a deviation");
            assert!((found - variance.sqrt()).abs() < 1.0, "seed {seed}: {found} {}", variance.sqrt());
        }
        assert_eq!(Distribution::new().mean(), None);
    }
}
