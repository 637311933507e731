//! The unit of time of the model, and random times.

use base::Prng;

/// Picoseconds in a nanosecond.
pub const NANO: u64 = 1000;
/// Picoseconds in a microsecond.
pub const MICRO: u64 = 1000 * NANO;
/// Picoseconds in a second.
pub const SECOND: u64 = 1_000_000 * MICRO;

/// A random number with an exponential distribution of this mean.
pub fn exponential(mean: f64, prng: &mut Prng) -> u64 {
    (-(1.0 - prng.unit()).ln() * mean) as u64
}
