//! Authenticated mode (RFC 8762 §4.2.2, §4.3.2 and §4.4): test packets and replies of 112 bytes that end in an HMAC.
//!
//! ```text
//! byte  0          4      16            24      26                                              96       112
//!      +----------+------+-------------+-------+------------------- - - - -------------------+--------+
//!      | sequence |  0   |  T1         | error |  must be zero                                |  HMAC  |   test packet
//!      +----------+------+-------------+-------+------------------- - - - -------------------+--------+
//!
//! byte  0     4    16   24    26   32   40   48     52   64   72    74   80   81   96     112
//!      +-----+----+----+-----+----+----+----+------+----+----+-----+----+----+----+------+
//!      | seq | 0  | T3 | err | 0  | T2 | 0  | seq  | 0  | T1 | err | 0  | ttl| 0  | HMAC |   reply
//!      +-----+----+----+-----+----+----+----+------+----+----+-----+----+----+----+------+
//!                                           '-- of the test packet --'
//! ```
//!
//! The fields are those of unauthenticated mode ([`crate::packet`]) at other offsets, so a packet is converted to its
//! unauthenticated form after its HMAC was verified. The HMAC is HMAC-SHA-256 over the first 96 bytes, truncated to 128
//! bits. Bytes after byte 112 are padding, which the HMAC does not cover.

use crate::BASE_LEN;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use std::fmt;
use std::ops::Range;

/// Length of a test packet and of a reply in authenticated mode in bytes, without padding.
pub const AUTHENTICATED_LEN: usize = 112;

/// Position of the HMAC; the bytes before it are covered by the HMAC.
const HMAC: Range<usize> = 96..AUTHENTICATED_LEN;

/// The fields of a test packet: their place in unauthenticated and in authenticated mode.
const TEST: [(Range<usize>, usize); 3] = [(0..4, 0), (4..12, 16), (12..14, 24)];

/// The fields of a reply: their place in unauthenticated and in authenticated mode.
const REPLY: [(Range<usize>, usize); 8] =
    [(0..4, 0), (4..12, 16), (12..14, 24), (16..24, 32), (24..28, 48), (28..36, 64), (36..38, 72), (40..41, 80)];

/// A key that sender and reflector share.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Vec<u8>);

/// The permitted lengths of a key in bytes. A key that is shorter than the HMAC of 16 bytes can be guessed more easily
/// than the HMAC.
pub const KEY_LEN: std::ops::RangeInclusive<usize> = 16..=1024;

/// The error for a key of another length than [`KEY_LEN`]; the value is the length in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyLengthError(pub usize);

impl fmt::Display for KeyLengthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the key has {} bytes, but needs {} to {}: head -c 32 /dev/urandom > FILE makes a key",
            self.0,
            KEY_LEN.start(),
            KEY_LEN.end()
        )
    }
}

impl std::error::Error for KeyLengthError {}

/// Shows only the length, so that no message contains the key.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} bytes)", self.0.len())
    }
}

impl Key {
    /// The key with these bytes.
    ///
    /// # Errors
    /// If the length is not permitted.
    pub fn new(bytes: &[u8]) -> Result<Self, KeyLengthError> {
        if KEY_LEN.contains(&bytes.len()) { Ok(Self(bytes.to_vec())) } else { Err(KeyLengthError(bytes.len())) }
    }

    /// The HMAC with this key, before its first input. `None` cannot occur, because HMAC accepts keys of every length.
    fn hmac(&self) -> Option<Hmac<Sha256>> {
        Hmac::new_from_slice(&self.0).ok()
    }

    /// Writes the authenticated form of a test packet into `buf`. Bytes of `buf` after the packet are unchanged.
    ///
    /// # Panics
    /// If `buf` is shorter than [`AUTHENTICATED_LEN`].
    pub fn seal_test(&self, test: &[u8; BASE_LEN], buf: &mut [u8]) {
        self.seal(&TEST, test, buf);
    }

    /// Writes the authenticated form of a reply into `buf`. Bytes of `buf` after the reply are unchanged.
    ///
    /// # Panics
    /// If `buf` is shorter than [`AUTHENTICATED_LEN`].
    pub fn seal_reply(&self, reply: &[u8; BASE_LEN], buf: &mut [u8]) {
        self.seal(&REPLY, reply, buf);
    }

    /// The unauthenticated form of a test packet; `None` if the packet is too short or its HMAC is wrong.
    pub fn open_test(&self, bytes: &[u8]) -> Option<[u8; BASE_LEN]> {
        self.open(&TEST, bytes)
    }

    /// The unauthenticated form of a reply; `None` if the reply is too short or its HMAC is wrong.
    pub fn open_reply(&self, bytes: &[u8]) -> Option<[u8; BASE_LEN]> {
        self.open(&REPLY, bytes)
    }

    fn seal(&self, fields: &[(Range<usize>, usize)], plain: &[u8; BASE_LEN], buf: &mut [u8]) {
        buf[..AUTHENTICATED_LEN].fill(0);
        for (from, to) in fields {
            buf[*to..to + from.len()].copy_from_slice(&plain[from.clone()]);
        }
        if let Some(mut hmac) = self.hmac() {
            hmac.update(&buf[..HMAC.start]);
            let code = hmac.finalize().into_bytes();
            buf[HMAC].copy_from_slice(&code[..HMAC.len()]);
        }
    }

    fn open(&self, fields: &[(Range<usize>, usize)], bytes: &[u8]) -> Option<[u8; BASE_LEN]> {
        let code = bytes.get(HMAC)?;
        let mut hmac = self.hmac()?;
        hmac.update(&bytes[..HMAC.start]);
        // The comparison takes the same time for every wrong code.
        hmac.verify_truncated_left(code).ok()?;
        let mut plain = [0; BASE_LEN];
        for (to, from) in fields {
            plain[to.clone()].copy_from_slice(&bytes[*from..from + to.len()]);
        }
        Some(plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Reply, TestPacket};
    use base::{ErrorEstimate, Prng, Timestamp};
    use std::time::Duration;

    fn key(byte: u8) -> Key {
        Key::new(&[byte; 32]).expect("a key")
    }

    #[test]
    fn short_and_long_keys_are_refused_and_no_text_shows_a_key() {
        for len in [0, 15, 1025] {
            assert_eq!(Key::new(&vec![7; len]), Err(KeyLengthError(len)));
        }
        assert!(KeyLengthError(5).to_string().contains("16 to 1024"));
        assert_eq!(format!("{:?}", key(7)), "Key(32 bytes)");
    }

    #[test]
    fn the_hmac_is_that_of_rfc_4231() {
        // Test case 1 of RFC 4231: key of 20 bytes 0x0b, data "Hi There".
        let mut hmac = Key(vec![0x0b; 20]).hmac().expect("a key");
        hmac.update(b"Hi There");
        let code = hmac.finalize().into_bytes();
        assert_eq!(code[..8], [0xb0, 0x34, 0x4c, 0x61, 0xd8, 0xdb, 0x38, 0x53]);
    }

    #[test]
    fn packets_that_are_sealed_and_opened_are_unchanged_and_a_changed_bit_or_key_is_found() {
        let seed = testkit::seed("packets_that_are_sealed_and_opened_are_unchanged");
        let mut prng = Prng::new(seed);
        let error = ErrorEstimate::of(Duration::from_micros(30), true);
        for i in 0..2000u32 {
            let mut time =
                || Timestamp::from_secs_nanos(1_700_000_000 + prng.below(1 << 28), prng.below(1_000_000_000));
            let test = TestPacket { sequence: i, sent: time(), error };
            let (sent, received) = (time(), time());
            let reply = Reply { sequence: i + 5, sent, error, received, test_sequence: i, test_ttl: i as u8 };
            let (mut plain_test, mut plain_reply) = ([0; BASE_LEN], [0; BASE_LEN]);
            test.write(&mut plain_test);
            reply.write(&plain_test, &mut plain_reply);
            let (mut sealed_test, mut sealed_reply) = ([0xee; 130], [0xee; 130]);
            key(1).seal_test(&plain_test, &mut sealed_test);
            key(1).seal_reply(&plain_reply, &mut sealed_reply);
            assert_eq!(
                (key(1).open_test(&sealed_test), key(1).open_reply(&sealed_reply)),
                (Some(plain_test), Some(plain_reply))
            );
            assert!(sealed_test[AUTHENTICATED_LEN..].iter().all(|byte| *byte == 0xee), "the padding is unchanged");
            assert_eq!(key(2).open_test(&sealed_test), None, "another key");
            assert_eq!(key(1).open_test(&sealed_test[..111]), None, "too short");
            sealed_test[prng.below(AUTHENTICATED_LEN as u64) as usize] ^= 1 << prng.below(8);
            assert_eq!(key(1).open_test(&sealed_test), None, "seed {seed}, round {i}");
        }
    }

    #[test]
    fn the_fields_are_at_the_offsets_of_rfc_8762() {
        let mut plain = [0; BASE_LEN];
        plain.iter_mut().zip(1..).for_each(|(byte, n)| *byte = n);
        let mut sealed = [0; AUTHENTICATED_LEN];
        key(1).seal_reply(&plain, &mut sealed);
        for (range, first) in
            [(0..4, 1), (16..24, 5), (24..26, 13), (32..40, 17), (48..52, 25), (64..72, 29), (72..74, 37), (80..81, 41)]
        {
            let expected: Vec<u8> = (first..).take(range.len()).collect();
            assert_eq!(sealed[range.clone()], expected, "{range:?}");
        }
        for zero in [4..16, 26..32, 40..48, 52..64, 74..80, 81..96] {
            assert!(sealed[zero].iter().all(|byte| *byte == 0));
        }
    }
}
