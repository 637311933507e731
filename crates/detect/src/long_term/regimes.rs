//! Stationary regimes: the division of days, in order of time, by significant changes.
//!
//! Days are clustered by binary segmentation, so that a regime is an interval of time. The best split of an interval is
//! the split with the smallest p-value; the p-value is multiplied by the number of splits that were tried (Bonferroni).
//! A significant split is reported only if neither side is split itself (both are stationary) and both sides are fairly
//! normal; otherwise the sides are divided further.

use super::behrens_fisher::{BehrensFisher, compare};
use super::days::Day;
use statrs::distribution::{ChiSquared, ContinuousCDF};

/// The parameters of the search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// The smallest number of days of a regime, at least 4.
    pub days_min: usize,
    /// The probability of a false change in a series without a change.
    pub significance: f64,
    /// The p-value below which the daily averages of a regime are not normal.
    pub normality: f64,
}

impl Default for Parameters {
    fn default() -> Self {
        Self { days_min: 6, significance: 0.01, normality: 0.001 }
    }
}

/// A stationary and significant change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LongTermChange {
    /// The index of the first day after the change.
    pub day: usize,
    /// The test of the regimes on both sides.
    pub test: BehrensFisher,
    /// The p-value, corrected for the number of splits.
    pub p_value: f64,
    /// The mean of all averages of the regime before the change.
    pub before: f64,
    /// The mean of all averages of the regime after the change.
    pub after: f64,
}

/// The changes of complete days, in order of time.
pub fn changes(days: &[Day], parameters: &Parameters) -> Vec<LongTermChange> {
    let mut splits = Vec::new();
    divide(days, 0, parameters, &mut splits);
    splits.sort_unstable();
    let mut found = Vec::new();
    for (index, split) in splits.iter().enumerate() {
        let begin = if index == 0 { 0 } else { splits[index - 1] };
        let end = splits.get(index + 1).copied().unwrap_or(days.len());
        let (before, after) = (&days[begin..*split], &days[*split..end]);
        let tried = (end - begin + 1).saturating_sub(2 * parameters.days_min).max(1) as f64;
        let Ok(test) = compare(before, after) else { continue };
        let p_value = (test.p_value * tried).min(1.0);
        let is_normal = normality(before).min(normality(after)) >= parameters.normality;
        if p_value < parameters.significance && is_normal {
            found.push(LongTermChange { day: *split, test, p_value, before: mean(before), after: mean(after) });
        }
    }
    found
}

/// Appends the significant splits of an interval that begins at `offset`.
fn divide(days: &[Day], offset: usize, parameters: &Parameters, splits: &mut Vec<usize>) {
    let least = parameters.days_min.max(4);
    if days.len() < 2 * least {
        return;
    }
    let candidates = least..=days.len() - least;
    let tried = candidates.clone().count() as f64;
    let p_values = candidates.filter_map(|split| {
        let test = compare(&days[..split], &days[split..]).ok()?;
        Some((split, test.p_value))
    });
    let Some((split, p_value)) = p_values.min_by(|a, b| a.1.total_cmp(&b.1)) else { return };
    if p_value * tried < parameters.significance {
        splits.push(offset + split);
        divide(&days[..split], offset, parameters, splits);
        divide(&days[split..], offset + split, parameters, splits);
    }
}

fn mean(days: &[Day]) -> f64 {
    days.iter().flat_map(|day| day.0).sum::<f64>() / (days.len() * super::PARTS) as f64
}

/// The p-value of the test of Jarque and Bera (Economics Letters 6, 1980) on the daily means: small if the skewness or
/// the kurtosis is not that of a normal distribution. With few days, the test rejects extreme days only.
pub(super) fn normality(days: &[Day]) -> f64 {
    let values: Vec<f64> = days.iter().map(|day| day.0.iter().sum::<f64>() / super::PARTS as f64).collect();
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let moment = |power: i32| values.iter().map(|value| (value - mean).powi(power)).sum::<f64>() / count;
    let variance = moment(2);
    if variance <= 0.0 {
        return 1.0;
    }
    let (skewness, kurtosis) = (moment(3) / variance.powf(1.5), moment(4) / (variance * variance));
    let statistic = count / 6.0 * (skewness * skewness + (kurtosis - 3.0).powi(2) / 4.0);
    ChiSquared::new(2.0).map_or(1.0, |distribution| distribution.sf(statistic))
}

#[cfg(test)]
mod tests {
    use super::super::behrens_fisher::tests::{days, normal};
    use super::*;
    use base::Prng;

    #[test]
    fn days_without_a_change_have_one_regime() {
        let seed = testkit::seed("days_without_a_change_have_one_regime");
        let mut prng = Prng::new(seed);
        let (runs, parameters) = (200, Parameters { significance: 0.05, ..Parameters::default() });
        let false_changes = (0..runs).filter(|_| !changes(&days(&mut prng, 40, 10.0, 0.0), &parameters).is_empty());
        // The correction makes the test conservative; the bound is four standard deviations above the level.
        assert!(false_changes.count() <= 10 + 13, "seed {seed}");
    }

    #[test]
    fn a_lasting_change_is_found_at_its_day() {
        let seed = testkit::seed("a_lasting_change_is_found_at_its_day");
        let mut prng = Prng::new(seed);
        let mut exact = 0;
        for _ in 0..50 {
            let mut all = days(&mut prng, 24, 10.0, 0.0);
            all.extend(days(&mut prng, 16, 10.0, 4.0));
            let found = changes(&all, &Parameters::default());
            exact += u32::from(found.len() == 1 && found[0].day.abs_diff(24) <= 1 && found[0].after > found[0].before);
        }
        assert!(exact >= 45, "seed {seed}: {exact}");
    }

    #[test]
    fn a_single_extreme_day_is_no_change() {
        let seed = testkit::seed("a_single_extreme_day_is_no_change");
        let mut prng = Prng::new(seed);
        let mut all = days(&mut prng, 30, 10.0, 0.0);
        all[20] = Day(all[20].0.map(|value| value * 3.0));
        assert_eq!(changes(&all, &Parameters::default()), [], "seed {seed}");
    }

    #[test]
    fn values_that_are_not_normal_are_recognised() {
        let seed = testkit::seed("values_that_are_not_normal_are_recognised");
        let mut prng = Prng::new(seed);
        let day = |value: f64| Day([value; 16]);
        let mut rejected = |draw: &dyn Fn(&mut Prng) -> f64| {
            let samples = (0..300).map(|_| (0..60).map(|_| day(draw(&mut prng))).collect::<Vec<_>>());
            samples.filter(|days| normality(days) < 0.001).count()
        };
        // The distribution of the statistic has a heavier tail than its approximation: 1 % instead of 0.1 %.
        let (normal_days, skewed_days) = (rejected(&normal), rejected(&|prng| (1.5 * normal(prng)).exp()));
        assert!(normal_days <= 12 && skewed_days >= 280, "seed {seed}: {normal_days} {skewed_days}");
        assert_eq!(normality(&[day(1.0); 10]), 1.0);
    }
}
