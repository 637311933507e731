//! A loop compiled twice, for the baseline CPU and for CPUs with wide registers, and selected at run time.
//!
//! A binary that must run on any x86-64 CPU uses registers of 128 bits, and no instruction that counts the set bits of
//! a number. With the instructions of newer CPUs, loops over slices of numbers need half the time.

/// A loop over slices, with the arguments of the loop as fields.
pub trait SimdLoop {
    /// The result of the loop.
    type Out;

    /// Runs the loop. Must be `#[inline(always)]`, with all called functions inlined, so that it is compiled twice.
    fn run(self) -> Self::Out;
}

/// Runs the loop with AVX2, BMI and POPCNT if the CPU has them.
#[inline]
pub fn simd<L: SimdLoop>(work: L) -> L::Out {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt")
    {
        // SAFETY: the lines above have detected exactly these features.
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
    fn both_versions_give_the_same_result() {
        let words: Vec<u64> = (0..1000u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
        assert_eq!(simd(Bits(&words)), Bits(&words).run());
    }
}
