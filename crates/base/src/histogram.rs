//! A histogram of signed nanoseconds or other integers, in buckets whose width grows with the value.
//!
//! Magnitudes below 256 have a bucket each. Each power of two above is divided into 256 buckets of equal width, so a
//! bucket is at most 1/256 of its values wide. Negative and other values have separate buckets. The 64 bits of a
//! magnitude have 14 592 buckets, so the memory is at most 228 KiB; magnitudes below 2^34 (17 seconds in nanoseconds)
//! take 54 KiB.

/// Number of buckets per power of two.
const PARTS: u64 = 256;
const PART_BITS: u32 = PARTS.trailing_zeros();

/// A histogram of integers; see the module documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Counts of the values below zero, by the bucket of their magnitude.
    below: Vec<u64>,
    /// Counts of the other values.
    above: Vec<u64>,
    count: u64,
    /// The smallest and the largest value.
    range: Option<(i64, i64)>,
}

/// A bucket that is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The smallest value of the bucket.
    pub from: i64,
    /// The largest value of the bucket.
    pub to: i64,
    /// Number of values.
    pub count: u64,
}

impl Histogram {
    /// A histogram without values.
    pub const fn new() -> Self {
        Self { below: Vec::new(), above: Vec::new(), count: 0, range: None }
    }

    /// Adds a value.
    #[inline]
    pub fn add(&mut self, value: i64) {
        let counts = if value < 0 { &mut self.below } else { &mut self.above };
        let bucket = bucket_of(value.unsigned_abs());
        if bucket >= counts.len() {
            counts.resize(bucket + 1, 0);
        }
        counts[bucket] += 1;
        self.count += 1;
        self.range = Some(self.range.map_or((value, value), |(min, max)| (min.min(value), max.max(value))));
    }

    /// Number of values.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The smallest and the largest value, exact; `None` without values.
    pub const fn range(&self) -> Option<(i64, i64)> {
        self.range
    }

    /// The buckets that are not empty, in order of their values.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> {
        let below = self.below.iter().enumerate().rev().map(|(bucket, count)| {
            let (low, high) = bounds(bucket);
            // The magnitude of `i64::MIN` is 2^63, which its negative value represents.
            let negative = |magnitude: u64| 0i64.saturating_sub_unsigned(magnitude);
            Bucket { from: negative(high), to: negative(low), count: *count }
        });
        let above = self.above.iter().enumerate().map(|(bucket, count)| {
            let (low, high) = bounds(bucket);
            let positive = |magnitude: u64| i64::try_from(magnitude).unwrap_or(i64::MAX);
            Bucket { from: positive(low), to: positive(high), count: *count }
        });
        below.chain(above).filter(|bucket| bucket.count > 0)
    }

    /// The value below or at which the share `q` (0 to 1) of the values is, with the largest difference from the exact
    /// value (nearest-rank definition); `None` without values.
    pub fn quantile(&self, q: f64) -> Option<(i64, u64)> {
        let (min, max) = self.range?;
        let rank = ((q * self.count as f64).ceil() as u64).clamp(1, self.count);
        let mut before = 0;
        let bucket = self.buckets().find(|bucket| {
            before += bucket.count;
            before >= rank
        })?;
        let (from, to) = (bucket.from.max(min), bucket.to.min(max));
        let width = to.abs_diff(from);
        Some((from.saturating_add_unsigned(width / 2), width.div_ceil(2)))
    }
}

fn bucket_of(magnitude: u64) -> usize {
    if magnitude < PARTS {
        return magnitude as usize;
    }
    let shift = magnitude.ilog2() - PART_BITS;
    // The upper nine bits of the magnitude, of which the first is 1: 256 to 511.
    let part = magnitude >> shift;
    (u64::from(shift) * PARTS + part) as usize
}

/// The smallest and the largest magnitude of a bucket.
fn bounds(bucket: usize) -> (u64, u64) {
    let bucket = bucket as u64;
    if bucket < PARTS {
        return (bucket, bucket);
    }
    let shift = (bucket / PARTS - 1) as u32;
    let part = bucket % PARTS + PARTS;
    let low = part << shift;
    (low, low + ((1u64 << shift) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prng;

    #[test]
    fn a_histogram_without_values_has_no_quantile() {
        assert_eq!(Histogram::new().quantile(0.5), None);
        assert_eq!(Histogram::new().range(), None);
        assert_eq!(Histogram::new().buckets().count(), 0);
    }

    #[test]
    fn the_buckets_are_contiguous_and_narrow() {
        let mut next = 0u64;
        for bucket in 0..14_592 {
            let (low, high) = bounds(bucket);
            assert_eq!(low, next, "bucket {bucket}");
            assert!((high - low) <= low / PARTS, "bucket {bucket}");
            assert_eq!((bucket_of(low), bucket_of(high)), (bucket, bucket));
            next = high.wrapping_add(1);
        }
        assert_eq!(next, 0, "the last bucket ends with the largest magnitude");
    }

    #[test]
    fn quantiles_differ_from_the_sorted_values_by_at_most_the_stated_error() {
        let seed = testkit::seed("quantiles_differ_from_the_sorted_values_by_at_most_the_stated_error");
        let mut prng = Prng::new(seed);
        for round in 0..300 {
            let scale = prng.below(63);
            let mut values: Vec<i64> =
                (0..1 + prng.below(400)).map(|_| prng.next_u64().cast_signed() >> scale).collect();
            values.extend([i64::MIN, i64::MAX].into_iter().filter(|_| round % 50 == 0));
            let mut histogram = Histogram::new();
            values.iter().for_each(|value| histogram.add(*value));
            values.sort_unstable();
            assert_eq!(histogram.range(), Some((values[0], values[values.len() - 1])));
            for q in [0.0, 0.01, 0.25, 0.5, 0.9, 0.99, 1.0] {
                let rank = ((q * values.len() as f64).ceil() as usize).clamp(1, values.len());
                let (value, error) = histogram.quantile(q).expect("a value");
                let exact = values[rank - 1];
                assert!(value.abs_diff(exact) <= error, "seed {seed}, round {round}, q {q}: {value} {exact} {error}");
                assert!(error <= exact.unsigned_abs() / 256 + 1, "seed {seed}, round {round}, q {q}");
            }
            let listed: Vec<Bucket> = histogram.buckets().collect();
            assert!(listed.is_sorted_by(|a, b| a.to < b.from), "seed {seed}, round {round}");
            for bucket in &listed {
                let inside = values.iter().filter(|v| (bucket.from..=bucket.to).contains(*v)).count();
                assert_eq!(bucket.count, inside as u64, "seed {seed}, round {round}");
            }
            assert_eq!(listed.iter().map(|bucket| bucket.count).sum::<u64>(), values.len() as u64);
        }
    }
}
