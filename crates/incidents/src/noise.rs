//! Noise of simulated series: random numbers of several distributions, and correlated processes.

use base::Prng;

/// A standard normal number (Box and Muller 1958).
pub(crate) fn normal(prng: &mut Prng) -> f64 {
    (-2.0 * (1.0 - prng.unit()).ln()).sqrt() * (std::f64::consts::TAU * prng.unit()).cos()
}

/// A number with Student's t distribution, scaled to a standard deviation of 1. `freedom` is at least 3.
pub(crate) fn student(prng: &mut Prng, freedom: u32) -> f64 {
    let squares: f64 = (0..freedom).map(|_| normal(prng).powi(2)).sum();
    let freedom = f64::from(freedom);
    normal(prng) / (squares / freedom).sqrt() * ((freedom - 2.0) / freedom).sqrt()
}

/// A count with a Poisson distribution. Above a mean of 30, a rounded normal number replaces it.
pub(crate) fn poisson(prng: &mut Prng, mean: f64) -> f64 {
    if mean > 30.0 {
        return (mean + mean.sqrt() * normal(prng)).round().max(0.0);
    }
    let (mut product, mut count, least) = (prng.unit(), 0.0, (-mean).exp());
    while product > least {
        product *= prng.unit();
        count += 1.0;
    }
    count
}

/// The form of the noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NoiseShape {
    /// Standard deviation of the fast component, as a share of the level.
    pub relative: f64,
    /// Correlation of the fast component from second to second.
    pub correlation: f64,
    /// Degrees of freedom of Student's t; `None` for normal numbers.
    pub freedom: Option<u32>,
    /// Standard deviation of the slow components as a share of that of the fast component.
    pub slow: f64,
}

/// Time constants of the slow components in seconds.
const SLOW_SECONDS: [f64; 3] = [10.0, 100.0, 1000.0];

/// A source of correlated noise.
#[derive(Clone, Debug)]
pub(crate) struct Noise {
    shape: NoiseShape,
    fast: f64,
    slow: [f64; 3],
}

impl Noise {
    pub fn new(shape: NoiseShape) -> Self {
        Self { shape, fast: 0.0, slow: [0.0; 3] }
    }

    /// The next value, as a share of the level.
    pub fn next(&mut self, prng: &mut Prng) -> f64 {
        let shape = self.shape;
        let innovation = match shape.freedom {
            Some(freedom) => student(prng, freedom),
            None => normal(prng),
        };
        self.fast = shape.correlation * self.fast + (1.0 - shape.correlation.powi(2)).sqrt() * innovation;
        let mut sum = self.fast;
        if shape.slow > 0.0 {
            for (value, seconds) in self.slow.iter_mut().zip(SLOW_SECONDS) {
                let keep: f64 = 1.0 - 1.0 / seconds;
                *value = keep * *value + (1.0 - keep * keep).sqrt() * normal(prng);
                sum += shape.slow / 3f64.sqrt() * *value;
            }
        }
        shape.relative * sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_have_their_mean_and_standard_deviation() {
        let seed = testkit::seed("distributions_have_their_mean_and_standard_deviation");
        let mut prng = Prng::new(seed);
        let mut moments = |draw: &dyn Fn(&mut Prng) -> f64| {
            let values: Vec<f64> = (0..100_000).map(|_| draw(&mut prng)).collect();
            let mean = values.iter().sum::<f64>() / 1e5;
            (mean, (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 1e5).sqrt())
        };
        for (draw, mean, deviation) in [
            (&normal as &dyn Fn(&mut Prng) -> f64, 0.0, 1.0),
            (&|prng: &mut Prng| student(prng, 6), 0.0, 1.0),
            (&|prng: &mut Prng| poisson(prng, 4.0), 4.0, 2.0),
            (&|prng: &mut Prng| poisson(prng, 100.0), 100.0, 10.0),
        ] {
            let found = moments(draw);
            assert!((found.0 - mean).abs() < 0.2 * deviation, "seed {seed}: {found:?}");
            assert!((found.1 / deviation - 1.0).abs() < 0.05, "seed {seed}: {found:?}");
        }
    }
}
