//! A reproducible pseudo-random generator, SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). A number takes one addition
//! and one call of the mixing function.

use crate::hash::mix64;

/// A fast pseudo-random generator. Equal seeds give equal sequences on every platform. It is not cryptographically
/// secure.
#[derive(Clone, Debug)]
pub struct Prng(u64);

impl Prng {
    /// A generator for this seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix64(self.0)
    }

    /// Returns a random number below `bound`, or 0 if `bound` is 0. The bias is below `bound / 2^64`.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a random number in `[0, 1)` with 53 random bits.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Fills `bytes` with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_returns_every_value_below_the_bound_and_no_other() {
        let mut prng = Prng::new(1);
        let mut seen = [false; 10];
        for _ in 0..1000 {
            seen[prng.below(10) as usize] = true;
        }
        assert!(seen.iter().all(|s| *s));
        assert_eq!(prng.below(0), 0);
    }
}
