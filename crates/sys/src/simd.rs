//! One loop, compiled twice: for every processor of its kind, and for those with wide registers, chosen when it runs.
//!
//! A binary that is built for any x86-64 has registers of 128 bits and no instruction that counts bits. Loops over slices of
//! numbers take half the time where there is more.

/// A loop over slices, with what it needs.
pub trait SimdLoop {
    /// What it gives.
    type Out;

    /// Runs it. Has to be `#[inline(always)]`, and what it calls to be inlined, to be compiled twice.
    fn run(self) -> Self::Out;
}

/// Runs it with AVX2, BMI and POPCNT where the processor has them.
#[inline]
pub fn simd<L: SimdLoop>(work: L) -> L::Out {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt")
    {
        // SAFETY: the processor was asked for exactly these features.
        return unsafe { with_avx2(work) };
    }
    work.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn with_avx2<L: SimdLoop>(work: L) -> L::Out {
    work.run()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bits<'a>(&'a [u64]);

    impl SimdLoop for Bits<'_> {
        type Out = u32;

        #[inline(always)]
        fn run(self) -> u32 {
            self.0.iter().map(|word| word.count_ones()).sum()
        }
    }

    #[test]
    fn both_ways_give_the_same() {
        let words: Vec<u64> = (0..1000u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
        assert_eq!(simd(Bits(&words)), Bits(&words).run());
    }
}
