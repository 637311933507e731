//! The multivariate Behrens–Fisher test: are the mean vectors of two samples with different covariances equal?
//!
//! With the means `m1`, `m2` and the covariances `S1`, `S2` of `n1` and `n2` days, `V = S1/n1 + S2/n2` and
//! `T² = (m1 - m2)ᵀ V⁻¹ (m1 - m2)`. If the means are equal, `T² (ν - p + 1) / (ν p)` has approximately an F
//! distribution with `p` and `ν - p + 1` degrees of freedom. Nel and van der Merwe (1986) approximate `ν`; the variant
//! of Krishnamoorthy and Yu (Statistics and Probability Letters 66, 2004) is invariant under linear transformations and
//! at least the smaller of `n1 - 1` and `n2 - 1`, and is used here:
//! `ν = (p + p²) / Σ (tr((Si/ni V⁻¹)²) + tr(Si/ni V⁻¹)²) / (ni - 1)`.

use super::days::{Day, PARTS};
use super::matrix;
use statrs::distribution::{ContinuousCDF, FisherSnedecor};

/// The result of a test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BehrensFisher {
    /// The number of parts of the day.
    pub dimension: usize,
    /// `T²`.
    pub statistic: f64,
    /// `ν`.
    pub degrees: f64,
    /// The probability of a statistic at least as large if the means are equal.
    pub p_value: f64,
}

/// There are too few days, or their values do not vary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooFewDays;

impl std::fmt::Display for TooFewDays {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a comparison needs at least four complete days on each side, with values that vary")
    }
}

impl std::error::Error for TooFewDays {}

/// The number of parts of the day for this number of days on the smaller side; `None` for fewer than four days.
pub fn dimension(days: usize) -> Option<usize> {
    [16, 8, 4, 2, 1].into_iter().find(|p| days >= 2 * p + 2)
}

/// Tests whether the means of two samples of days are equal.
///
/// # Errors
/// A side has fewer than four days, or the covariances are singular.
pub fn compare(before: &[Day], after: &[Day]) -> Result<BehrensFisher, TooFewDays> {
    let largest = dimension(before.len().min(after.len())).ok_or(TooFewDays)?;
    // Parts of the day that always change together have a singular covariance; fewer parts have not.
    let dimensions = [16, 8, 4, 2, 1].into_iter().filter(|p| *p <= largest);
    dimensions.map(|p| compare_merged(&merged(before, p), &merged(after, p))).find(Result::is_ok).ok_or(TooFewDays)?
}

/// The days as vectors of `p` averages.
pub(super) fn merged(days: &[Day], p: usize) -> Vec<Vec<f64>> {
    let part = PARTS / p;
    days.iter().map(|day| day.0.chunks(part).map(|values| values.iter().sum::<f64>() / part as f64).collect()).collect()
}

pub(super) fn compare_merged(before: &[Vec<f64>], after: &[Vec<f64>]) -> Result<BehrensFisher, TooFewDays> {
    let (first, second) = (Moments::of(before), Moments::of(after));
    let p = first.mean.len();
    let sum: Vec<Vec<f64>> = first.of_mean.iter().zip(&second.of_mean).map(|(a, b)| add(a, b)).collect();
    let inverse = matrix::inverse(&sum).ok_or(TooFewDays)?;
    let distance: Vec<f64> = first.mean.iter().zip(&second.mean).map(|(a, b)| a - b).collect();
    let statistic = matrix::quadratic(&inverse, &distance);
    let spent: f64 = [&first, &second]
        .iter()
        .map(|side| {
            let ratio = matrix::product(&side.of_mean, &inverse);
            let squared = matrix::trace(&matrix::product(&ratio, &ratio));
            (squared + matrix::trace(&ratio).powi(2)) / (side.count - 1.0)
        })
        .sum();
    let size = p as f64;
    let degrees = (size + size * size) / spent;
    let denominator = degrees - size + 1.0;
    let f = statistic * denominator / (degrees * size);
    let distribution = FisherSnedecor::new(size, denominator).map_err(|_| TooFewDays)?;
    Ok(BehrensFisher { dimension: p, statistic, degrees, p_value: distribution.sf(f) })
}

fn add(left: &[f64], right: &[f64]) -> Vec<f64> {
    left.iter().zip(right).map(|(a, b)| a + b).collect()
}

/// The mean of a sample, and the covariance of the mean: `S / n`.
struct Moments {
    count: f64,
    mean: Vec<f64>,
    of_mean: Vec<Vec<f64>>,
}

impl Moments {
    fn of(sample: &[Vec<f64>]) -> Self {
        let count = sample.len() as f64;
        let p = sample.first().map_or(0, Vec::len);
        let mean: Vec<f64> = (0..p).map(|i| sample.iter().map(|vector| vector[i]).sum::<f64>() / count).collect();
        let product = |i: usize, j: usize| -> f64 {
            sample.iter().map(|vector| (vector[i] - mean[i]) * (vector[j] - mean[j])).sum()
        };
        let cell = |i: usize, j: usize| product(i, j) / (count - 1.0) / count;
        let of_mean = (0..p).map(|i| (0..p).map(|j| cell(i, j)).collect()).collect();
        Self { count, mean, of_mean }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use base::Prng;

    pub fn normal(prng: &mut Prng) -> f64 {
        (-2.0 * (1.0 - prng.unit()).ln()).sqrt() * (std::f64::consts::TAU * prng.unit()).cos()
    }

    /// Days with a common factor, so that the parts are correlated, and a shift in standard deviations of a part.
    pub fn days(prng: &mut Prng, count: usize, deviation: f64, shift: f64) -> Vec<Day> {
        let day = |prng: &mut Prng| {
            let common = normal(prng);
            let value = |part: usize, noise: f64| {
                let level = 100.0 + 40.0 * ((part as f64 - 8.0) / 5.0).cos();
                level + deviation * (0.7 * common + 0.7 * noise) + shift * 10.0
            };
            Day(std::array::from_fn(|part| value(part, normal(prng))))
        };
        (0..count).map(|_| day(prng)).collect()
    }

    #[test]
    fn the_dimension_follows_from_the_number_of_days() {
        let all = [3, 4, 5, 6, 9, 10, 17, 18, 33, 34, 500].map(dimension);
        let expected =
            [None, Some(1), Some(1), Some(2), Some(2), Some(4), Some(4), Some(8), Some(8), Some(16), Some(16)];
        assert_eq!(all, expected);
        assert_eq!(compare(&[], &[]), Err(TooFewDays));
        assert_eq!(compare(&[Day([1.0; 16]); 20], &[Day([1.0; 16]); 20]), Err(TooFewDays));
    }

    /// The test of Welch (1938) is the Behrens–Fisher test of one dimension.
    #[test]
    fn one_dimension_is_the_test_of_welch() {
        let column = |values: &[f64]| values.iter().map(|value| vec![*value]).collect::<Vec<_>>();
        let (a, b) =
            (column(&[27.5, 21.0, 19.0, 23.6, 17.0, 17.9]), column(&[16.9, 20.1, 27.1, 25.8, 30.2, 29.0, 26.4]));
        let found = compare_merged(&a, &b).expect("a result");
        let moments = |values: &[Vec<f64>]| {
            let n = values.len() as f64;
            let mean = values.iter().map(|v| v[0]).sum::<f64>() / n;
            (mean, values.iter().map(|v| (v[0] - mean).powi(2)).sum::<f64>() / (n - 1.0) / n, n)
        };
        let ((m1, v1, n1), (m2, v2, n2)) = (moments(&a), moments(&b));
        let degrees = (v1 + v2).powi(2) / (v1 * v1 / (n1 - 1.0) + v2 * v2 / (n2 - 1.0));
        assert!((found.statistic - (m1 - m2).powi(2) / (v1 + v2)).abs() < 1e-9, "{found:?}");
        assert!((found.degrees - degrees).abs() < 1e-9, "{found:?} {degrees}");
    }

    /// With equal means, the share of rejections is that of the significance level; the bounds are four standard
    /// deviations of the binomial distribution, and 40 % of the level for the approximation of the test.
    #[test]
    fn the_type_one_error_is_the_significance_level_for_each_dimension_and_unequal_covariances() {
        let seed = testkit::seed("the_type_one_error_is_the_significance_level");
        let mut prng = Prng::new(seed);
        for (before, after) in [(4, 4), (6, 12), (10, 10), (18, 40), (34, 34)] {
            let (runs, level) = (1500, 0.05);
            let mut rejected = 0;
            for _ in 0..runs {
                let (first, second) = (days(&mut prng, before, 10.0, 0.0), days(&mut prng, after, 25.0, 0.0));
                rejected += u32::from(compare(&first, &second).expect("a result").p_value < level);
            }
            let share = f64::from(rejected) / f64::from(runs);
            let bound = 4.0 * (level * (1.0 - level) / f64::from(runs)).sqrt() + 0.4 * level;
            assert!((share - level).abs() < bound, "seed {seed}, {before} and {after} days: {share}");
        }
    }

    #[test]
    fn a_change_of_two_standard_deviations_is_found_from_ten_days() {
        let seed = testkit::seed("a_change_of_two_standard_deviations_is_found_from_ten_days");
        let mut prng = Prng::new(seed);
        let mut found = 0;
        for _ in 0..300 {
            let (first, second) = (days(&mut prng, 20, 10.0, 0.0), days(&mut prng, 10, 10.0, 2.0));
            found += u32::from(compare(&first, &second).expect("a result").p_value < 0.01);
        }
        // The bound is 12 below the 285 changes expected at a power of 95 %: about three standard deviations (3 · 3.8)
        // of that number.
        assert!(found >= 300 * 95 / 100 - 12, "seed {seed}: {found}");
    }

    #[test]
    fn the_p_values_are_those_of_scipy() {
        let test = "the_p_values_are_those_of_scipy";
        let Some(mut python) = testkit::python_with(test, "scipy") else { return };
        let seed = testkit::seed(test);
        let mut prng = Prng::new(seed);
        let mut results = Vec::new();
        for (before, after, shift) in [(4, 9, 0.5), (6, 6, 1.0), (10, 14, 1.0), (20, 30, 0.7), (40, 34, 1.5)] {
            let (first, second) = (days(&mut prng, before, 10.0, 0.0), days(&mut prng, after, 20.0, shift));
            results.push(compare(&first, &second).expect("a result"));
        }
        let rows: Vec<String> =
            results.iter().map(|r| format!("({}, {}, {})", r.dimension, r.statistic, r.degrees)).collect();
        let script = format!(
            "from scipy.stats import f\nfor p, t, v in [{}]:\n    print(repr(float(f.sf(t * (v - p + 1) / (v * p), p, \
             v - p + 1))))",
            rows.join(", ")
        );
        let done = python.args(["-c", &script]).output().expect("python starts");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let expected: Vec<f64> =
            String::from_utf8_lossy(&done.stdout).lines().map(|line| line.parse().expect("a number")).collect();
        assert_eq!(expected.len(), results.len());
        for (result, expected) in results.iter().zip(expected) {
            let error = (result.p_value - expected).abs();
            assert!(error < 1e-12 + 1e-6 * expected, "seed {seed}: {result:?} {expected}");
        }
    }
}
