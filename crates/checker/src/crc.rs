//! CRC32C (RFC 9260 appendix A), sixteen bytes at a time (Kounavis and Berry, "Novel table lookup-based algorithms for
//! high-performance CRC generation", 2008): table `k` has the contribution of each byte value to the CRC after `k`
//! further bytes.

static TABLES: [[u32; 256]; 16] = tables();

const fn tables() -> [[u32; 256]; 16] {
    let mut t = [[0u32; 256]; 16];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 * (crc & 1));
            bit += 1;
        }
        t[0][byte] = crc;
        byte += 1;
    }
    let mut later = 1;
    while later < 16 {
        let mut byte = 0;
        while byte < 256 {
            let before = t[later - 1][byte];
            t[later][byte] = (before >> 8) ^ t[0][(before & 0xff) as usize];
            byte += 1;
        }
        later += 1;
    }
    t
}

/// CRC32C of `bytes`.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    let (blocks, rest) = bytes.as_chunks::<16>();
    for block in blocks {
        let mut b = *block;
        for (byte, old) in b.iter_mut().zip(crc.to_le_bytes()) {
            *byte ^= old;
        }
        crc = 0;
        for (i, byte) in b.iter().enumerate() {
            crc ^= TABLES[15 - i][usize::from(*byte)];
        }
    }
    for byte in rest {
        crc = (crc >> 8) ^ TABLES[0][usize::from(crc as u8 ^ byte)];
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crc_has_the_check_values_of_the_standard() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn the_block_algorithm_equals_the_bytewise_crc_at_every_length() {
        let bytes: Vec<u8> = (0..200u32).map(|i| (i * i * 7 + 3) as u8).collect();
        for len in 0..bytes.len() {
            let mut crc = !0u32;
            for byte in &bytes[..len] {
                crc ^= u32::from(*byte);
                for _ in 0..8 {
                    crc = (crc >> 1) ^ (0x82f6_3b78 * (crc & 1));
                }
            }
            assert_eq!(crc32c(&bytes[..len]), !crc, "length {len}");
        }
    }
}
