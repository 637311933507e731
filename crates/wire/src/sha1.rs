//! SHA-1 (RFC 3174), for identifiers that other programs compute in the same way. It is not used for security.

/// Offset in bytes of the message length in the last SHA-1 block.
const LENGTH_AT: usize = 56;

/// The digest of a message.
pub fn sha1(message: &[u8]) -> [u8; 20] {
    let mut state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    let (blocks, rest) = message.as_chunks();
    for block in blocks {
        compress(&mut state, block);
    }
    // The padding: a one bit, zeros, and the message length in bits in the last eight bytes of a block.
    let mut last = [0; 64];
    last[..rest.len()].copy_from_slice(rest);
    last[rest.len()] = 0x80;
    if rest.len() >= LENGTH_AT {
        compress(&mut state, &last);
        last.fill(0);
    }
    last[LENGTH_AT..].copy_from_slice(&(message.len() as u64 * 8).to_be_bytes());
    compress(&mut state, &last);
    let mut digest = [0; 20];
    for (bytes, word) in digest.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    digest
}

fn compress(state: &mut [u32; 5], block: &[u8; 64]) {
    let mut w = [0; 80];
    for (word, bytes) in w.iter_mut().zip(block.as_chunks().0) {
        *word = u32::from_be_bytes(*bytes);
    }
    for t in 16..w.len() {
        w[t] = (w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16]).rotate_left(1);
    }
    let [mut a, mut b, mut c, mut d, mut e] = *state;
    for (t, word) in w.into_iter().enumerate() {
        let (f, k) = match t / 20 {
            0 => (b & c | !b & d, 0x5a82_7999),
            1 => (b ^ c ^ d, 0x6ed9_eba1),
            2 => (b & c | b & d | c & d, 0x8f1b_bcdc),
            _ => (b ^ c ^ d, 0xca62_c1d6_u32),
        };
        let next = a.rotate_left(5).wrapping_add(f).wrapping_add(e).wrapping_add(word).wrapping_add(k);
        (a, b, c, d, e) = (next, a, b.rotate_left(30), c, d);
    }
    for (sum, part) in state.iter_mut().zip([a, b, c, d, e]) {
        *sum = sum.wrapping_add(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(digest: [u8; 20]) -> String {
        digest.iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn the_vectors_of_the_rfc() {
        let long = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        let digits = b"0123456701234567012345670123456701234567012345670123456701234567";
        for (message, expected) in [
            (b"abc".to_vec(), "a9993e364706816aba3e25717850c26c9cd0d89d"),
            (long.to_vec(), "84983e441c3bd26ebaae4aa1f95129e5e54670f1"),
            (vec![b'a'; 1_000_000], "34aa973cd4c4daa4f61eeb2bdbad27316534016f"),
            (digits.repeat(10), "dea356a2cddd90c7a7ecedc5ebb563934f460452"),
        ] {
            assert_eq!(hex(sha1(&message)), expected);
        }
    }

    #[test]
    fn lengths_near_a_block_boundary() {
        for (length, expected) in [
            (0, "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
            (55, "cef734ba81a024479e09eb5a75b6ddae62e6abf1"),
            (56, "901305367c259952f4e7af8323f480d59f81335b"),
            (63, "0ddc4e0cccd9a12850deb5abb0853a4425559fec"),
            (64, "bb2fa3ee7afb9f54c6dfb5d021f14b1ffe40c163"),
            (119, "4300320394f7ee239bcdce7d3b8bcee173a0cd5c"),
            (120, "ceb2821639c4b6dcb10bce0e522ca2e608ce056d"),
        ] {
            assert_eq!(hex(sha1(&vec![b'x'; length])), expected, "{length}");
        }
    }
}
