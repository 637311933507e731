//! The statistics of the storage study in the PhD thesis (tables 4.4 and 4.5): mean, 99 % confidence interval of the
//! mean (Student's t), 5th and 95th percentile.

use serde::Serialize;

/// Statistics of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SampleStats {
    /// Number of values.
    pub samples: usize,
    /// Mean.
    pub mean: f64,
    /// 99 % confidence interval of the mean, for independent values.
    pub ci99: [f64; 2],
    /// 5th percentile: 5 % of the values are below it.
    pub p5: f64,
    /// 95th percentile: 5 % of the values are above it.
    pub p95: f64,
}

impl SampleStats {
    /// Statistics of the values; for a single value the interval is that value alone, because there is no standard
    /// deviation.
    pub fn of(values: &[f64]) -> Self {
        let n = values.len();
        let mean = values.iter().sum::<f64>() / n.max(1) as f64;
        let half = if n > 1 {
            let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1) as f64;
            student_t99(n - 1) * (variance / n as f64).sqrt()
        } else {
            0.0
        };
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Self {
            samples: n,
            mean,
            ci99: [mean - half, mean + half],
            p5: percentile(&sorted, 5.0),
            p95: percentile(&sorted, 95.0),
        }
    }
}

/// The value below which `percent` of the ascending values lie, interpolated between neighbours; 0 for an empty slice.
pub fn percentile(ascending: &[f64], percent: f64) -> f64 {
    let Some(last) = ascending.len().checked_sub(1) else { return 0.0 };
    let at = last as f64 * percent / 100.0;
    let (low, high) = (ascending[at.floor() as usize], ascending[at.ceil() as usize]);
    low + (high - low) * at.fract()
}

/// The half width of a two-sided 99 % interval in standard errors of the mean, for `freedom` degrees of freedom (at
/// least one).
fn student_t99(freedom: usize) -> f64 {
    const TABLE: [f64; 30] = [
        63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169, 3.106, 3.055, 3.012, 2.977, 2.947,
        2.921, 2.898, 2.878, 2.861, 2.845, 2.831, 2.819, 2.807, 2.797, 2.787, 2.779, 2.771, 2.763, 2.756, 2.750,
    ];
    match TABLE.get(freedom - 1) {
        Some(t) => *t,
        // Two terms of the expansion of Student's quantile around the normal quantile (Abramowitz and Stegun 26.7.5).
        None => {
            let (z, n) = (2.5758f64, freedom as f64);
            let first = (z.powi(3) + z) / (4.0 * n);
            let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * n * n);
            z + first + second
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_and_one_value_have_no_interval() {
        assert_eq!(percentile(&[], 50.0), 0.0);
        assert_eq!(SampleStats::of(&[7.0]), SampleStats { samples: 1, mean: 7.0, ci99: [7.0, 7.0], p5: 7.0, p95: 7.0 });
    }

    #[test]
    fn a_known_sample_has_the_expected_statistics() {
        // The values 1 to 5 have the mean 3 and the standard deviation sqrt(2.5). Half the width of the confidence
        // interval is 4.604 * sqrt(2.5 / 5).
        let s = SampleStats::of(&[5.0, 1.0, 4.0, 2.0, 3.0]);
        assert_eq!((s.mean, s.samples), (3.0, 5));
        assert!((s.ci99[1] - (3.0 + 4.604 * 0.5f64.sqrt())).abs() < 1e-9);
        assert!((s.p5 - 1.2).abs() < 1e-9 && (s.p95 - 4.8).abs() < 1e-9);
    }

    #[test]
    fn the_expansion_continues_the_table() {
        // The half widths of two-sided 99 % intervals for 40, 60 and 120 degrees of freedom, in standard errors, from a
        // table of Student's t distribution.
        for (freedom, t) in [(40, 2.704), (60, 2.660), (120, 2.617)] {
            assert!((student_t99(freedom) - t).abs() < 0.001, "{freedom}: {}", student_t99(freedom));
        }
        assert!(student_t99(31) < student_t99(30));
    }

    #[test]
    fn the_interval_contains_the_true_mean_at_the_stated_rate() {
        let seed = 17;
        let mut prng = base::Prng::new(seed);
        let mut hits = 0;
        for _ in 0..2000 {
            // The sum of twelve uniform values is nearly normal.
            let values: Vec<f64> = (0..8).map(|_| (0..12).map(|_| prng.below(1000) as f64).sum::<f64>()).collect();
            let s = SampleStats::of(&values);
            hits += u32::from(s.ci99[0] <= 5994.0 && 5994.0 <= s.ci99[1]);
        }
        assert!((1960..=1998).contains(&hits), "{hits} of 2000 intervals contain the mean, seed {seed}");
    }
}
