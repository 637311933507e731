//! A uniform random sample of bounded size (Vitter 1985, algorithm R). The distribution of the delays without skew
//! needs a second pass over the packets, because the skew is known only after the last packet. The sample stores the
//! points for this pass.

use base::Prng;

/// The largest number of points of a sample.
pub const SAMPLE: usize = 1 << 16;

/// The seed is constant, so that equal packets give an equal report.
const SEED: u64 = 1985;

/// A uniform sample of points (departure, delay), in nanoseconds.
#[derive(Clone, Debug)]
pub struct Sample {
    points: Vec<(i64, i64)>,
    offered: u64,
    prng: Prng,
}

impl Sample {
    /// A sample without points.
    pub fn new() -> Self {
        Self { points: Vec::new(), offered: 0, prng: Prng::new(SEED) }
    }

    /// Adds a point. If the sample is full, the point replaces a random point of the sample, or is discarded.
    pub fn add(&mut self, departure: i64, delay: i64) {
        self.offered += 1;
        if self.points.len() < SAMPLE {
            self.points.push((departure, delay));
            return;
        }
        let slot = self.prng.below(self.offered) as usize;
        if let Some(point) = self.points.get_mut(slot) {
            *point = (departure, delay);
        }
    }

    /// The sampled points, in no particular order.
    pub fn points(&self) -> &[(i64, i64)] {
        &self.points
    }

    /// True if the sample contains all points that were added.
    pub const fn is_complete(&self) -> bool {
        self.offered <= SAMPLE as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_of_few_points_is_complete_and_a_sample_of_many_points_is_uniform() {
        let mut sample = Sample::new();
        (0..1000).for_each(|i| sample.add(i, -i));
        assert!(sample.is_complete() && sample.points().len() == 1000);
        (1000..1_000_000).for_each(|i| sample.add(i, -i));
        assert!(!sample.is_complete() && sample.points().len() == SAMPLE);
        let mean = sample.points().iter().map(|p| p.0 as f64).sum::<f64>() / SAMPLE as f64;
        // The standard error of the mean is 1128.
        assert!((mean - 500_000.0).abs() < 5_000.0, "{mean}");
    }
}
