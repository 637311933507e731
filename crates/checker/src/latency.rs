//! The time of frames from departure to timestamp: the exact minimum and maximum, and the median with an error of at
//! most 1/32 of its value.
//!
//! This time is the latency only if the departure time and the timestamp come from the same clock. Otherwise it
//! includes the difference of the two clocks, and may be negative.

/// Each value below this limit has its own bucket.
const EXACT: u64 = 32;

/// There are 32 buckets for each power of two up to 2^47.
const BUCKETS: usize = 32 * 44;

/// Times from departure to timestamp, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Latency {
    /// The minimum.
    pub min: i64,
    /// The maximum.
    pub max: i64,
    count: u64,
    /// The number of negative values in each bucket: a value v is counted in the bucket of -v - 1. The field `positive`
    /// has the number of values of at least zero in each bucket.
    negative: Vec<u64>,
    positive: Vec<u64>,
}

impl Latency {
    pub(crate) fn new() -> Self {
        Self { min: i64::MAX, max: i64::MIN, count: 0, negative: vec![0; BUCKETS], positive: vec![0; BUCKETS] }
    }

    #[inline]
    pub(crate) fn add(&mut self, nanos: i64) {
        (self.min, self.max) = (self.min.min(nanos), self.max.max(nanos));
        self.count += 1;
        // The bitwise complement maps the negative values -1, -2, … to 0, 1, …
        let (side, magnitude) =
            if nanos < 0 { (&mut self.negative, !nanos as u64) } else { (&mut self.positive, nanos as u64) };
        side[bucket(magnitude)] += 1;
    }

    /// Number of measured frames.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The median, with an error of at most 1/32 of its value; `None` if nothing was measured.
    pub fn median(&self) -> Option<i64> {
        let mut before = 0;
        let negative = self.negative.iter().enumerate().rev().map(|(i, n)| (!(lowest(i) as i64), n));
        let positive = self.positive.iter().enumerate().map(|(i, n)| (lowest(i) as i64, n));
        let (value, _) = negative.chain(positive).find(|(_, n)| {
            before += **n;
            before * 2 > self.count
        })?;
        Some(value.clamp(self.min, self.max))
    }
}

/// The bucket of a value below 2^48.
#[inline]
fn bucket(value: u64) -> usize {
    if value < EXACT {
        return value as usize;
    }
    let shift = value.ilog2() - EXACT.ilog2();
    ((shift as usize) << 5) + (value >> shift) as usize
}

/// The least value in a bucket.
fn lowest(bucket: usize) -> u64 {
    if bucket < 2 * EXACT as usize {
        return bucket as u64;
    }
    let shift = (bucket >> 5) - 1;
    ((bucket & 31) as u64 + EXACT) << shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_distribution_has_no_median() {
        assert_eq!(Latency::new().median(), None);
    }

    #[test]
    fn buckets_are_narrow_and_in_order() {
        let mut last = 0;
        for bit in 0..47 {
            for value in [1u64 << bit, (1 << bit) + (1 << bit) / 3, (2 << bit) - 1] {
                let b = bucket(value);
                assert!(b >= last && b < BUCKETS, "{value}");
                assert!(
                    lowest(b) <= value && value - lowest(b) <= value / 32,
                    "{value} in bucket {b}, whose least value is {}",
                    lowest(b)
                );
                last = b;
            }
        }
    }

    #[test]
    fn the_median_is_close_to_the_exact_median_also_of_negative_values() {
        for shift in [0i64, 300_000, 700_000, -5_000_000] {
            let mut values: Vec<i64> = (0..1_000_001i64).map(|i| i * 7919 % 1_000_001 - shift).collect();
            let mut latency = Latency::new();
            values.iter().for_each(|v| latency.add(*v));
            values.sort_unstable();
            let exact = values[values.len() / 2];
            let median = latency.median().unwrap();
            assert!((median - exact).abs() <= exact.abs() / 32 + 1, "{median}, exact median {exact}");
            assert_eq!((latency.min, latency.max), (values[0], values[values.len() - 1]));
        }
    }
}
