//! Functions that compute the Internet checksum (RFC 1071) and update it after a change of a field (RFC 1624).

/// The checksum of `bytes`. The result is 0 for a header that contains its correct checksum.
///
/// ```
/// # use netgrain_wire::checksum;
/// assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2); // the example of RFC 1071 §3
/// ```
pub fn checksum(bytes: &[u8]) -> u16 {
    Checksum::new().bytes(bytes).finish()
}

/// The new checksum of a header in which a 16-bit field changed from `old` to `new`, by equation 3 of RFC 1624. Unlike
/// the older equations it never turns 0xffff into 0.
///
/// ```
/// # use netgrain_wire::update_checksum;
/// assert_eq!(update_checksum(0xdd2f, 0x5555, 0x3285), 0x0000); // the example of RFC 1624 §4
/// ```
pub const fn update_checksum(sum: u16, old: u16, new: u16) -> u16 {
    !fold(!sum as u64 + !old as u64 + new as u64)
}

/// A checksum over several byte slices, for example pseudo header and segment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checksum {
    sum: u64,
}

impl Checksum {
    /// The checksum of no bytes.
    pub const fn new() -> Self {
        Self { sum: 0 }
    }

    /// Adds bytes. Only the last slice may have an odd length; it is padded with a zero byte.
    #[must_use]
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        // A ones' complement sum does not depend on the word size (RFC 1071 §2 C), so the loop adds four bytes at a
        // time. The 64-bit sum has space for 2^32 such words.
        let (words, rest) = bytes.as_chunks::<4>();
        for word in words {
            self.sum += u64::from(u32::from_be_bytes(*word));
        }
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        self.sum = u64::from(fold(self.sum)) + u64::from(u32::from_be_bytes(last));
        self
    }

    /// Adds a 16-bit number.
    #[must_use]
    pub const fn word(mut self, word: u16) -> Self {
        self.sum += word as u64;
        self
    }

    /// The value of the checksum field.
    pub const fn finish(self) -> u16 {
        !fold(self.sum)
    }
}

const fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    /// The checksum by its definition, as the oracle: adds two bytes at a time and adds each carry at once.
    fn by_definition(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn the_sum_equals_the_definition_at_every_length_and_split() {
        let seed = testkit::seed("the_sum_equals_the_definition_at_every_length_and_split");
        let mut prng = Prng::new(seed);
        for len in 0..200 {
            let mut bytes = vec![0; len];
            prng.fill(&mut bytes);
            if len % 7 == 0 {
                bytes.fill(0xff);
            }
            assert_eq!(checksum(&bytes), by_definition(&bytes), "seed {seed}, length {len}");
            let cut = prng.below(len as u64 / 2 + 1) as usize * 2;
            let (a, b) = bytes.split_at(cut.min(len & !1));
            assert_eq!(Checksum::new().bytes(a).bytes(b).finish(), by_definition(&bytes), "seed {seed}, length {len}");
        }
    }

    #[test]
    fn an_update_equals_the_sum_of_the_changed_header() {
        let seed = testkit::seed("an_update_equals_the_sum_of_the_changed_header");
        let mut prng = Prng::new(seed);
        for round in 0..20_000 {
            let mut header = [0; 20];
            prng.fill(&mut header);
            header[0] |= 1; // an all-zero header has two correct checksums; real headers are never zero
            let before = checksum(&header);
            let at = 2 + 2 * prng.below(9) as usize;
            let old = u16::from_be_bytes([header[at], header[at + 1]]);
            let new = [0, 0xffff, old, prng.next_u64() as u16][prng.below(4) as usize];
            header[at..at + 2].copy_from_slice(&new.to_be_bytes());
            assert_eq!(update_checksum(before, old, new), checksum(&header), "seed {seed}, round {round}");
        }
    }
}
