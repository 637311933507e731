//! Prints distributions: as JSON, and as rows of a histogram for a terminal.

use base::{Distribution, Histogram};
use serde_json::{Value, json};

/// The largest number of rows between the lowest and the highest row of a plot.
const ROWS: u64 = 16;

/// The longest bar of a plot in characters.
const BAR: u64 = 40;

/// The quantiles that JSON documents have.
const QUANTILES: [(&str, f64); 6] =
    [("p1", 0.01), ("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)];

/// The distribution as JSON. The key of the object names the unit.
pub fn to_json(distribution: &Distribution) -> Value {
    let quantile = |q| distribution.quantile(q).map(|(value, _)| value);
    let mut document = json!({
        "count": distribution.count(),
        "min": distribution.min(),
        "max": distribution.max(),
        "mean": distribution.mean(),
        "standard_deviation": distribution.standard_deviation(),
    });
    for (name, q) in QUANTILES {
        document[name] = quantile(q).into();
    }
    let buckets = distribution.histogram().buckets();
    document["histogram"] = buckets.map(|b| json!({"from": b.from, "to": b.to, "count": b.count})).collect();
    document
}

/// A time with three significant digits and its unit: `12.3 µs`, `-450 ns`.
pub fn show_nanos(nanos: f64) -> String {
    let magnitude = nanos.abs();
    let (scale, unit) = match magnitude {
        m if m < 999.5 => (1.0, "ns"),
        m if m < 999.5e3 => (1e3, "µs"),
        m if m < 999.5e6 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    let value = nanos / scale;
    let digits = match value.abs() {
        v if v >= 99.95 || (v - v.round()).abs() < 1e-9 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$} {unit}")
}

/// The rows of a plot: for each range of values its number of values and a bar. The rows cover the values between the
/// quantiles 0.1 % and 99.9 %. The first and the last row have the values outside of this range.
pub fn plot(histogram: &Histogram, show: impl Fn(f64) -> String) -> Vec<String> {
    let (Some((low, _)), Some((high, _))) = (histogram.quantile(0.001), histogram.quantile(0.999)) else {
        return Vec::new();
    };
    let step = step_for(high.abs_diff(low));
    let first = low.div_euclid(step);
    let last = high.div_euclid(step);
    // Counts of the values below the first row, of each row, and above the last row.
    let mut counts = vec![0u64; (last - first + 3) as usize];
    for bucket in histogram.buckets() {
        let middle = bucket.from.saturating_add_unsigned(bucket.to.abs_diff(bucket.from) / 2);
        let row = middle.div_euclid(step).clamp(first - 1, last + 1) - first + 1;
        counts[row as usize] += bucket.count;
    }
    let most = counts.iter().copied().max().unwrap_or(1).max(1);
    let label = |row: usize| {
        let from = (first + row as i64 - 1).saturating_mul(step) as f64;
        match row {
            0 => format!("below {}", show(first.saturating_mul(step) as f64)),
            row if row + 1 == counts.len() => format!("from {}", show(from)),
            _ => format!("{} to {}", show(from), show(from + step as f64)),
        }
    };
    let rows: Vec<(String, u64)> = counts.iter().enumerate().map(|(row, count)| (label(row), *count)).collect();
    let is_shown = |(row, (_, count)): &(usize, &(String, u64))| *count > 0 || (*row > 0 && *row + 1 < rows.len());
    let shown: Vec<&(String, u64)> = rows.iter().enumerate().filter(is_shown).map(|(_, row)| row).collect();
    let width = shown.iter().map(|(label, _)| label.chars().count()).max().unwrap_or(0);
    let line = |(label, count): &&(String, u64)| {
        // A row with few values still has a mark.
        let bar = "█".repeat((count * BAR).div_ceil(most) as usize);
        format!("  {label:>width$}  {count:>10}  {bar}").trim_end().to_owned()
    };
    shown.iter().map(line).collect()
}

/// The smallest of the numbers 1, 2, 5, 10, … that divides the range into at most [`ROWS`] rows.
fn step_for(range: u64) -> i64 {
    let mut step = 1i64;
    loop {
        for factor in [1, 2, 5] {
            let candidate = step.saturating_mul(factor);
            if range / candidate.unsigned_abs() < ROWS {
                return candidate;
            }
        }
        step = step.saturating_mul(10);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn distribution(values: impl IntoIterator<Item = i64>) -> Distribution {
        let mut distribution = Distribution::new();
        values.into_iter().for_each(|value| distribution.add(value));
        distribution
    }

    #[test]
    fn no_values_have_no_rows_and_null_figures() {
        assert_eq!(plot(Distribution::new().histogram(), show_nanos), Vec::<String>::new());
        let document = to_json(&Distribution::new());
        assert_eq!((&document["count"], &document["p50"]), (&json!(0), &Value::Null));
    }

    #[test]
    fn the_rows_have_all_values() {
        for values in [
            distribution(0..1000),
            distribution([-5, -5, 3]),
            distribution((0..10_000).map(|i| i * i)),
            distribution([i64::MIN, 0, i64::MAX]),
            distribution([7]),
        ] {
            let rows = plot(values.histogram(), show_nanos);
            let count = |row: &String| {
                let words: Vec<&str> = row.split_whitespace().filter(|word| !word.starts_with('█')).collect();
                words.last().expect("a number").parse::<u64>().expect("a number")
            };
            assert_eq!(rows.iter().map(count).sum::<u64>(), values.count(), "{rows:#?}");
            assert!(rows.len() <= ROWS as usize + 3, "{rows:#?}");
        }
    }

    #[test]
    fn rows_have_round_limits() {
        let rows = plot(distribution((0..2000).map(|i| i * 1000)).histogram(), show_nanos);
        assert!(rows[0].contains("0 ns to 200 µs") && rows[1].contains("200 µs to 400 µs"), "{rows:#?}");
    }

    #[test]
    fn times_have_three_digits_and_a_unit() {
        let shown = [0.0, 7.0, 999.4, 999.6, -450.0, 12_345.0, 1e6, 2_345_678.0, 1e10].map(show_nanos);
        assert_eq!(shown, ["0 ns", "7 ns", "999 ns", "1.00 µs", "-450 ns", "12.3 µs", "1 ms", "2.35 ms", "10 s"]);
    }
}
