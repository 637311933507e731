//! CryptoPAn (Xu, Fan, Ammar, Moon: "Prefix-Preserving IP Address Anonymization", ICNP 2002), for addresses of up to
//! 128 bits.
//!
//! Whether bit `i` of an address is flipped depends on the `i` bits before it: these bits, filled up to a cipher block
//! with the padding, are encrypted, and bit `i` is flipped if the first bit of the result is 1. So addresses with a
//! common prefix have the same flips in that prefix. The blocks of one address do not depend on each other and are
//! encrypted together.
//!
//! The caches are tables of fixed size, in which a later address replaces an earlier address. They never change a
//! result.

use super::Key;
use aes::Aes128;
use aes::cipher::{Block, BlockEncrypt, KeyInit};
use base::hash::mix64;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Number of blocks that are encrypted together.
const BATCH: usize = 32;

/// Number of entries of each cache: the cache of whole addresses, and the cache of upper halves of IPv6 addresses.
const ENTRIES: usize = 1 << 14;

/// Number of leading bits of IPv4 addresses whose flips are cached in a table that has an entry for each value of these
/// bits.
const UPPER: u32 = 16;

/// The address mapping of one key.
pub struct CryptoPan {
    cipher: Aes128,
    pad: u128,
    v4_upper: Vec<Option<u16>>,
    v4: Vec<Option<(u32, u32)>>,
    v6_upper: Vec<Option<(u64, u64)>>,
    v6: Vec<Option<(u128, u128)>>,
}

impl CryptoPan {
    /// The mapping of a key.
    pub fn new(key: &Key) -> Self {
        let (key, pad) = key.halves();
        let cipher = Aes128::new(&key.into());
        let mut pad: Block<Aes128> = pad.into();
        cipher.encrypt_block(&mut pad);
        Self {
            cipher,
            pad: u128::from_be_bytes(pad.into()),
            v4_upper: vec![None; 1 << UPPER],
            v4: vec![None; ENTRIES],
            v6_upper: vec![None; ENTRIES],
            v6: vec![None; ENTRIES],
        }
    }

    /// Maps an IPv4 address.
    ///
    /// ```
    /// use netgrain_convert::anonymise::{CryptoPan, Key};
    /// let mut pan = CryptoPan::new(&Key::new([7; 32]));
    /// let (a, b) = (pan.v4([10, 1, 2, 3].into()).octets(), pan.v4([10, 1, 2, 200].into()).octets());
    /// assert!(a[..3] == b[..3] && a[3] >> 7 != b[3] >> 7);
    /// ```
    pub fn v4(&mut self, address: Ipv4Addr) -> Ipv4Addr {
        let bits = address.to_bits();
        let entry = mix64(u64::from(bits)) as usize % ENTRIES;
        if let Some((of, mapped)) = self.v4[entry]
            && of == bits
        {
            return Ipv4Addr::from_bits(mapped);
        }
        let wide = u128::from(bits) << 96;
        let upper = (bits >> UPPER) as usize;
        let upper_flips = match self.v4_upper[upper] {
            Some(flips) => flips,
            None => {
                let flips = (self.flips(wide, 0, UPPER) >> 112) as u16;
                self.v4_upper[upper] = Some(flips);
                flips
            }
        };
        let lower = (self.flips(wide, UPPER, 32) >> 96) as u32;
        let mapped = bits ^ (u32::from(upper_flips) << 16 | lower);
        self.v4[entry] = Some((bits, mapped));
        Ipv4Addr::from_bits(mapped)
    }

    /// Maps an IPv6 address.
    pub fn v6(&mut self, address: Ipv6Addr) -> Ipv6Addr {
        let bits = address.to_bits();
        let (upper, lower) = ((bits >> 64) as u64, bits as u64);
        let entry = mix64(mix64(upper) ^ lower) as usize % ENTRIES;
        if let Some((of, mapped)) = self.v6[entry]
            && of == bits
        {
            return Ipv6Addr::from_bits(mapped);
        }
        let at = mix64(upper) as usize % ENTRIES;
        let upper_flips = match self.v6_upper[at] {
            Some((of, flips)) if of == upper => flips,
            _ => {
                let flips = (self.flips(bits, 0, 64) >> 64) as u64;
                self.v6_upper[at] = Some((upper, flips));
                flips
            }
        };
        let mapped = bits ^ (u128::from(upper_flips) << 64 | self.flips(bits, 64, 128));
        self.v6[entry] = Some((bits, mapped));
        Ipv6Addr::from_bits(mapped)
    }

    /// Of the bits `from` to `to` of a left-aligned address, counted from the highest bit, those that the mapping
    /// flips.
    pub(super) fn flips(&self, address: u128, from: u32, to: u32) -> u128 {
        let mut flips = 0;
        let mut at = from;
        while at < to {
            let many = (to - at).min(BATCH as u32);
            let mut blocks = [Block::<Aes128>::default(); BATCH];
            for (bit, block) in (at..at + many).zip(&mut blocks) {
                let rest = u128::MAX >> bit;
                *block = (address & !rest | self.pad & rest).to_be_bytes().into();
            }
            self.cipher.encrypt_blocks(&mut blocks[..many as usize]);
            for (bit, block) in (at..at + many).zip(&blocks) {
                flips |= u128::from(block[0] >> 7) << (127 - bit);
            }
            at += many;
        }
        flips
    }

    /// Another address mapping, whose key is `purpose` encrypted with the given key.
    pub(super) fn derived(key: &Key, purpose: &[u8; 15]) -> Self {
        let (half, _) = key.halves();
        let cipher = Aes128::new(&half.into());
        let mut bytes = [0; super::key::LEN];
        for (i, part) in bytes.chunks_exact_mut(16).enumerate() {
            part[..15].copy_from_slice(purpose);
            part[15] = i as u8;
            let mut block = *Block::<Aes128>::from_slice(part);
            cipher.encrypt_block(&mut block);
            part.copy_from_slice(&block);
        }
        Self::new(&Key::new(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    /// The key of the sample in the Crypto-PAn distribution.
    const SAMPLE: Key = Key::new([
        21, 34, 23, 141, 51, 164, 207, 128, 19, 10, 91, 22, 73, 144, 125, 16, 216, 152, 143, 131, 121, 121, 101, 39,
        98, 87, 76, 45, 42, 132, 34, 2,
    ]);

    #[test]
    fn the_published_sample_is_reproduced() {
        let mut pan = CryptoPan::new(&SAMPLE);
        // Addresses of sample_trace_raw.dat in the Crypto-PAn distribution, and the mapped addresses of
        // sample_trace_sanitized.dat.
        for (raw, sanitized) in [
            ("128.11.68.132", "135.242.180.132"),
            ("129.118.74.4", "134.136.186.123"),
            ("130.132.252.244", "133.68.164.234"),
            ("141.223.7.43", "141.167.8.160"),
            ("141.233.145.108", "141.129.237.235"),
            ("152.163.225.39", "151.140.114.167"),
            ("156.29.3.236", "147.225.12.42"),
            ("165.247.96.84", "162.9.99.234"),
            ("166.107.77.190", "160.132.178.185"),
            ("192.102.249.13", "252.138.62.131"),
            ("192.215.32.125", "252.43.47.189"),
            ("192.233.80.103", "252.25.108.8"),
            ("192.41.57.43", "252.222.221.184"),
            ("193.150.244.223", "253.169.52.216"),
            ("212.146.8.236", "228.19.4.234"),
            ("216.157.30.252", "235.89.31.26"),
            ("24.0.250.221", "100.15.198.226"),
            ("38.15.67.68", "64.3.66.187"),
            ("4.3.88.225", "124.60.155.63"),
            ("63.195.241.44", "95.179.238.44"),
            ("64.39.15.238", "0.219.7.41"),
            ("10.185.25.118", "117.161.29.118"),
        ] {
            let raw: Ipv4Addr = raw.parse().unwrap();
            assert_eq!(pan.v4(raw).to_string(), sanitized, "{raw}");
            assert_eq!(pan.v4(raw).to_string(), sanitized, "{raw} from the cache");
        }
        // The Crypto-PAn distribution does not support IPv6. The expected addresses were computed by other
        // implementations.
        for (raw, sanitized) in [
            ("::1", "78ff:f001:9fc0:20df:8380:b1f1:704:ed"),
            ("::2", "78ff:f001:9fc0:20df:8380:b1f1:704:ef"),
            ("::ffff", "78ff:f001:9fc0:20df:8380:b1f1:704:f838"),
            ("2001:db8::1", "4401:2bc:603f:d91d:27f:ff8e:e6f1:dc1e"),
            ("2001:db8::2", "4401:2bc:603f:d91d:27f:ff8e:e6f1:dc1c"),
        ] {
            assert_eq!(pan.v6(raw.parse().unwrap()).to_string(), sanitized, "{raw}");
        }
    }

    #[test]
    fn common_prefixes_have_the_same_length_and_caches_change_nothing() {
        let seed = testkit::seed("common_prefixes_have_the_same_length_and_caches_change_nothing");
        let mut prng = Prng::new(seed);
        let (mut pan, fresh) = (CryptoPan::new(&SAMPLE), CryptoPan::new(&SAMPLE));
        for round in 0..3000 {
            let a = prng.next_u64() as u32;
            let b = a ^ (prng.next_u64() as u32 >> prng.below(32)) >> prng.below(2);
            let (x, y) = (pan.v4(a.into()).to_bits(), pan.v4(b.into()).to_bits());
            assert_eq!((x ^ y).leading_zeros(), (a ^ b).leading_zeros(), "seed {seed}, round {round}");
            let plain = a ^ (fresh.flips(u128::from(a) << 96, 0, 32) >> 96) as u32;
            assert_eq!(x, plain, "seed {seed}, round {round}");
            let a = u128::from(prng.next_u64()) << 64 | u128::from(prng.next_u64());
            let b = a ^ u128::from(prng.next_u64()) << 64 >> prng.below(128);
            let (x, y) = (pan.v6(a.into()).to_bits(), pan.v6(b.into()).to_bits());
            assert_eq!((x ^ y).leading_zeros(), (a ^ b).leading_zeros(), "seed {seed}, round {round}");
            assert_eq!(x, a ^ fresh.flips(a, 0, 128), "seed {seed}, round {round}");
        }
    }

    #[test]
    fn another_key_or_purpose_gives_another_mapping() {
        let mut pans = [
            CryptoPan::new(&SAMPLE),
            CryptoPan::new(&Key::new([7; 32])),
            CryptoPan::derived(&SAMPLE, b"another purpose"),
        ];
        let [a, b, c] = pans.each_mut().map(|p| p.v4([10, 1, 2, 3].into()));
        assert!(a != b && b != c && a != c);
    }
}
