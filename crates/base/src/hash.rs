//! Mixing functions made only of 64-bit multiply, xor, add and shift, so that Rust, generated machine code and eBPF
//! (which has no wide multiply and no CRC) compute the same integers.

/// A bijection on 64 bits with full avalanche: the finaliser of SplitMix64 (Stafford's variant 13).
#[inline]
pub const fn mix64(mut x: u64) -> u64 {
    x ^= x >> 30;
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^= x >> 27;
    x = x.wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Mixes a word into a keyed hash state. The first state is the secret key. The result depends on the order of the
/// words.
#[inline]
pub const fn combine(state: u64, word: u64) -> u64 {
    mix64(state.rotate_left(23) ^ word.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_input_bit_flips_about_half_of_the_output_bits() {
        let mut total = 0;
        for bit in 0..64 {
            total += (mix64(0x0123_4567_89ab_cdef) ^ mix64(0x0123_4567_89ab_cdef ^ (1 << bit))).count_ones();
        }
        assert!((28..36).contains(&(total / 64)), "{total}");
    }

    #[test]
    fn the_result_depends_on_the_order_of_the_words() {
        assert_ne!(combine(combine(1, 2), 3), combine(combine(1, 3), 2));
    }
}
