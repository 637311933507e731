//! The keyed 64-bit hash of the compared bytes.
//!
//! Each step multiplies two 64-bit words to 128 bits and folds the product, as in wyhash. The hash selects candidates,
//! and replaces the comparison of the bytes after the stored bytes. The key is secret, so that traffic cannot be made
//! in which different packets have equal hashes.

/// A hash in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Digest {
    state: u64,
    secret: u64,
}

/// Bytes that the loop over long inputs reads per step, in four independent lanes. A single lane would wait for the
/// latency of each multiplication.
const BLOCK: usize = 64;
const LANES: usize = 4;

impl Digest {
    /// The hash of no bytes under this key.
    pub fn new(key: u64) -> Self {
        Self { state: base::hash::mix64(key), secret: base::hash::mix64(key ^ 0x9e37_79b9_7f4a_7c15) | 1 }
    }

    /// Adds two words.
    #[inline(always)]
    pub fn words(self, a: u64, b: u64) -> Self {
        Self { state: fold(self.state ^ a, self.secret ^ b), ..self }
    }

    /// Adds bytes and their number.
    #[inline]
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        if !blocks.is_empty() {
            self = self.blocks(blocks);
        }
        let (pairs, tail) = rest.as_chunks::<16>();
        for pair in pairs {
            let (a, b) = halves(pair);
            self = self.words(a, b);
        }
        let (a, b) = last_words(tail);
        self.words(a ^ (bytes.len() as u64) << 32, b)
    }

    fn blocks(self, blocks: &[[u8; BLOCK]]) -> Self {
        let mut lanes = [self; LANES];
        for (i, lane) in lanes.iter_mut().enumerate() {
            lane.state ^= i as u64;
        }
        for block in blocks {
            for (lane, pair) in lanes.iter_mut().zip(block.as_chunks::<16>().0) {
                let (a, b) = halves(pair);
                *lane = lane.words(a, b);
            }
        }
        let [a, b, c, d] = lanes.map(|lane| lane.state);
        self.words(a, b).words(c, d)
    }

    /// The hash.
    #[inline(always)]
    pub fn finish(self) -> u64 {
        self.state
    }
}

#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[inline(always)]
fn halves(pair: &[u8; 16]) -> (u64, u64) {
    let word = u128::from_le_bytes(*pair);
    (word as u64, (word >> 64) as u64)
}

/// Fewer than 16 bytes as two words, which overlap if necessary. With the number of bytes the words determine them.
#[inline(always)]
fn last_words(tail: &[u8]) -> (u64, u64) {
    if let (Some(first), Some(last)) = (tail.first_chunk::<8>(), tail.last_chunk::<8>()) {
        return (u64::from_le_bytes(*first), u64::from_le_bytes(*last));
    }
    if let (Some(first), Some(last)) = (tail.first_chunk::<4>(), tail.last_chunk::<4>()) {
        return (u32::from_le_bytes(*first).into(), u32::from_le_bytes(*last).into());
    }
    match *tail {
        [] => (0, 0),
        [a, ..] => (u64::from(a) | u64::from(tail[tail.len() / 2]) << 8, tail[tail.len() - 1].into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;
    use std::collections::HashSet;

    #[test]
    fn every_changed_bit_and_every_length_gives_another_hash() {
        let seed = testkit::seed("every_changed_bit_and_every_length_gives_another_hash");
        let mut prng = Prng::new(seed);
        let mut bytes = vec![0; 300];
        prng.fill(&mut bytes);
        let digest = Digest::new(prng.next_u64());
        let mut seen = HashSet::new();
        for len in 0..bytes.len() {
            assert!(seen.insert(digest.bytes(&bytes[..len]).finish()), "seed {seed}, length {len}");
        }
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(seen.insert(digest.bytes(&bytes).finish()), "seed {seed}, bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let zeros: HashSet<u64> = (0..300).map(|len| digest.bytes(&vec![0; len]).finish()).collect();
        assert_eq!(zeros.len(), 300, "zero bytes of different lengths");
    }

    #[test]
    fn another_key_gives_other_hashes() {
        assert_ne!(Digest::new(1).bytes(b"packet").finish(), Digest::new(2).bytes(b"packet").finish());
    }
}
