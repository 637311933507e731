//! A histogram of times in nanoseconds, of fixed size, with a relative error of at most 1/16.
//!
//! Values below 32 have a bucket each. Above, each power of two is divided into 16 buckets, as in HdrHistogram
//! (hdrhistogram.org). The largest value and the sum are exact.

/// log2 of the number of buckets per power of two.
const SUB: u32 = 4;
const BUCKETS: usize = ((64 - SUB as usize) << SUB) + (1 << SUB);

/// A histogram of nanoseconds.
#[derive(Clone)]
pub struct Histogram {
    buckets: Box<[u64]>,
    count: u64,
    sum: u128,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: vec![0; BUCKETS].into_boxed_slice(), count: 0, sum: 0, max: 0 }
    }
}

impl Histogram {
    /// Adds a value.
    #[inline]
    pub fn add(&mut self, nanos: u64) {
        self.buckets[bucket(nanos)] += 1;
        self.count += 1;
        self.sum += u128::from(nanos);
        self.max = self.max.max(nanos);
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The largest value; 0 without values.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The mean; 0 without values.
    pub fn mean(&self) -> u64 {
        self.sum.checked_div(u128::from(self.count)).unwrap_or(0) as u64
    }

    /// The smallest bucket end that is not below the fraction `part` (0 to 1) of the values, limited to the largest
    /// value; 0 without values.
    pub fn quantile(&self, part: f64) -> u64 {
        let rank = ((part * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let mut below = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            below += count;
            if below >= rank {
                return last_of(index).min(self.max);
            }
        }
        0
    }

    /// The number of values of each power of two that has values: pairs of the exclusive upper end in nanoseconds and
    /// the number of values below it that are not below half of it. The first range is 0 to 1.
    pub fn by_power_of_two(&self) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for (index, count) in self.buckets.iter().enumerate().filter(|(_, count)| **count > 0) {
            let end = last_of(index).saturating_add(1).checked_next_power_of_two().unwrap_or(u64::MAX);
            match ranges.last_mut() {
                Some((last, sum)) if *last == end => *sum += count,
                _ => ranges.push((end, *count)),
            }
        }
        ranges
    }
}

/// The bucket of a value.
#[inline]
fn bucket(value: u64) -> usize {
    let shift = (u64::BITS - value.leading_zeros()).saturating_sub(SUB + 1);
    ((shift as usize) << SUB) + (value >> shift) as usize
}

/// The largest value of a bucket.
fn last_of(index: usize) -> u64 {
    let shift = (index >> SUB).saturating_sub(1) as u32;
    let first = (index - ((shift as usize) << SUB)) as u64;
    (first << shift) | ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    #[test]
    fn every_value_is_in_a_bucket_whose_end_is_at_most_a_sixteenth_larger() {
        let mut prng = Prng::new(8);
        for value in (0..5000).chain((0..20_000).map(|_| prng.next_u64() >> prng.below(64))).chain([u64::MAX]) {
            let end = last_of(bucket(value));
            assert!(end >= value && end - value <= value / 16, "{value} in a bucket that ends at {end}");
        }
    }

    #[test]
    fn quantiles_agree_with_sorted_values() {
        let seed = testkit::seed("quantiles_agree_with_sorted_values");
        let mut prng = Prng::new(seed);
        for round in 0..50 {
            let mut histogram = Histogram::default();
            let mut values: Vec<u64> =
                (0..1 + prng.below(500)).map(|_| prng.next_u64() >> (20 + prng.below(44))).collect();
            values.iter().for_each(|value| histogram.add(*value));
            values.sort_unstable();
            for part in [0.0, 0.5, 0.9, 0.99, 0.999, 1.0] {
                let rank = ((part * values.len() as f64).ceil() as usize).max(1);
                let (exact, found) = (values[rank - 1], histogram.quantile(part));
                assert!(found >= exact && found - exact <= exact / 16, "seed {seed}, round {round}: {found}, {exact}");
            }
            assert_eq!(histogram.max(), values[values.len() - 1]);
            assert_eq!(histogram.by_power_of_two().iter().map(|(_, count)| count).sum::<u64>(), histogram.count());
        }
    }

    #[test]
    fn ranges_are_powers_of_two() {
        let mut histogram = Histogram::default();
        [0, 0, 1, 2, 3, 4, 1000, 1023, 1024].into_iter().for_each(|value| histogram.add(value));
        assert_eq!(histogram.by_power_of_two(), [(1, 2), (2, 1), (4, 2), (8, 1), (1024, 2), (2048, 1)]);
        assert_eq!((Histogram::default().quantile(0.99), Histogram::default().mean()), (0, 0));
    }
}
