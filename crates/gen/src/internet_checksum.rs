//! The Internet checksum (RFC 1071). It shares no code with the functions by which netgrain verifies checksums, so that
//! an error in those functions is found.

/// The sum of the 16-bit words of `bytes`. If the number of bytes is odd, the last byte is the upper half of a word.
pub fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<2>();
    words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum::<u64>()
        + rest.first().map_or(0, |last| u64::from(*last) << 8)
}

/// Adds the carries of a sum to its lower 16 bits. The checksum is the complement of the result.
pub fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071_section_3_has_its_sum() {
        assert_eq!(fold(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7])), 0xddf2);
        assert_eq!(sum(&[0x01, 0x02, 0x03]), 0x0102 + 0x0300);
    }
}
