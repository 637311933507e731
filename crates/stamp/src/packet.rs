//! Test packets and replies in unauthenticated mode (RFC 8762 §4.2.1 and §4.3.1).
//!
//! ```text
//! byte  0          4                    12      14                             44
//!      +----------+--------------------+-------+--------- - - - --------------+
//!      | sequence |  T1 (timestamp)    | error |  must be zero                |   test packet
//!      +----------+--------------------+-------+--------- - - - --------------+
//!
//! byte  0          4             12      14    16              24         28     36      38   40    41  44
//!      +----------+-------------+-------+-----+---------------+----------+------+-------+----+-----+---+
//!      | sequence |  T3 (sent)  | error |  0  | T2 (received) | sequence |  T1  | error | 0  | ttl | 0 |   reply
//!      +----------+-------------+-------+-----+---------------+----------+------+-------+----+-----+---+
//!                                                             '--- of the test packet --'
//! ```
//!
//! All fields are big-endian. `error` is the error estimate of the clock of the node that wrote the field (RFC 4656
//! §4.1.2). Bit Z of `error` states whether the timestamps of this node have the format NTP or PTP. `ttl` is the TTL or
//! hop limit with which the test packet arrived at the reflector.

use crate::time::{from_ntp, from_ptp, to_ntp};
use base::{ErrorEstimate, Timestamp};
use std::fmt;

/// Length of a test packet and of a reply in bytes, without padding.
pub const BASE_LEN: usize = 44;

/// Length of the shortest reply in bytes. Reflectors of TWAMP Light may send replies without the last three bytes (RFC
/// 8762 §4.6).
const REPLY_MIN: usize = 41;

mod at {
    use std::ops::Range;
    pub const SEQUENCE: Range<usize> = 0..4;
    pub const TIMESTAMP: Range<usize> = 4..12;
    pub const ERROR: Range<usize> = 12..14;
    pub const RECEIVED: Range<usize> = 16..24;
    pub const SENDER_SEQUENCE: Range<usize> = 24..28;
    pub const SENDER_TIMESTAMP: Range<usize> = 28..36;
    pub const SENDER_ERROR: Range<usize> = 36..38;
    pub const SENDER_TTL: usize = 40;
}

/// A test packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestPacket {
    /// The number of the packet.
    pub sequence: u32,
    /// The time T1 at which the sender sends the packet.
    pub sent: Timestamp,
    /// The error estimate of the sender's clock.
    pub error: ErrorEstimate,
}

impl TestPacket {
    /// Writes the packet, with an NTP timestamp, to the first [`BASE_LEN`] bytes of `buf`. Further bytes of `buf` are
    /// padding and remain unchanged.
    ///
    /// # Panics
    /// If `buf` is shorter than [`BASE_LEN`].
    pub fn write(&self, buf: &mut [u8]) {
        buf[..BASE_LEN].fill(0);
        buf[at::SEQUENCE].copy_from_slice(&self.sequence.to_be_bytes());
        buf[at::TIMESTAMP].copy_from_slice(&to_ntp(self.sent).to_be_bytes());
        buf[at::ERROR].copy_from_slice(&self.error.bits().to_be_bytes());
    }

    /// Parses a test packet.
    ///
    /// # Errors
    /// [`PacketError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, PacketError> {
        let head = head::<BASE_LEN>(bytes)?;
        let error = error_estimate(&head[at::ERROR])?;
        let sent = time(&head[at::TIMESTAMP], error)?;
        Ok(Self { sequence: number(&head[at::SEQUENCE]) as u32, sent, error })
    }
}

/// A reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The sequence number of the reply. A stateless reflector copies the number of the test packet. A stateful
    /// reflector counts the replies of the session from 0.
    pub sequence: u32,
    /// The time T3 at which the reflector sends the reply.
    pub sent: Timestamp,
    /// The error estimate of the reflector's clock.
    pub error: ErrorEstimate,
    /// The time T2 at which the reflector received the test packet.
    pub received: Timestamp,
    /// The number of the test packet.
    pub test_sequence: u32,
    /// The TTL or hop limit of the test packet on arrival.
    pub test_ttl: u8,
}

impl Reply {
    /// Writes the reply to `test`, the bytes of a valid test packet, to the beginning of `buf`. The sequence number,
    /// timestamp and error estimate of the test packet are copied unchanged.
    ///
    /// # Panics
    /// If `buf` or `test` is shorter than [`BASE_LEN`].
    pub fn write(&self, test: &[u8], buf: &mut [u8]) {
        buf[..BASE_LEN].fill(0);
        buf[at::SEQUENCE].copy_from_slice(&self.sequence.to_be_bytes());
        buf[at::TIMESTAMP].copy_from_slice(&to_ntp(self.sent).to_be_bytes());
        buf[at::ERROR].copy_from_slice(&self.error.bits().to_be_bytes());
        buf[at::RECEIVED].copy_from_slice(&to_ntp(self.received).to_be_bytes());
        buf[at::SENDER_SEQUENCE].copy_from_slice(&test[at::SEQUENCE]);
        buf[at::SENDER_TIMESTAMP].copy_from_slice(&test[at::TIMESTAMP]);
        buf[at::SENDER_ERROR].copy_from_slice(&test[at::ERROR]);
        buf[at::SENDER_TTL] = self.test_ttl;
    }

    /// Parses a reply.
    ///
    /// # Errors
    /// [`PacketError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, PacketError> {
        let head = head::<REPLY_MIN>(bytes)?;
        let error = error_estimate(&head[at::ERROR])?;
        Ok(Self {
            sequence: number(&head[at::SEQUENCE]) as u32,
            sent: time(&head[at::TIMESTAMP], error)?,
            error,
            received: time(&head[at::RECEIVED], error)?,
            test_sequence: number(&head[at::SENDER_SEQUENCE]) as u32,
            test_ttl: head[at::SENDER_TTL],
        })
    }
}

fn head<const N: usize>(bytes: &[u8]) -> Result<&[u8; N], PacketError> {
    bytes.first_chunk().ok_or(PacketError::TooShort { need: N, have: bytes.len() })
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |n, byte| n << 8 | u64::from(*byte))
}

fn error_estimate(bytes: &[u8]) -> Result<ErrorEstimate, PacketError> {
    ErrorEstimate::from_bits(number(bytes) as u16).ok_or(PacketError::ErrorEstimate)
}

fn time(bytes: &[u8], error: ErrorEstimate) -> Result<Timestamp, PacketError> {
    match error.has_ptp_timestamps() {
        true => from_ptp(number(bytes)).ok_or(PacketError::Timestamp),
        false => Ok(from_ntp(number(bytes))),
    }
}

/// The reason why bytes are no test packet or reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketError {
    /// The packet is too short.
    TooShort {
        /// The shortest length in bytes.
        need: usize,
        /// The length in bytes.
        have: usize,
    },
    /// The multiplier of the error estimate is 0.
    ErrorEstimate,
    /// The nanoseconds of a PTP timestamp are a second or more.
    Timestamp,
}

impl fmt::Display for PacketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort { need, have } => write!(f, "the STAMP packet has {have} bytes, but needs {need}"),
            Self::ErrorEstimate => f.write_str("the error estimate of the STAMP packet has the multiplier 0"),
            Self::Timestamp => f.write_str("a PTP timestamp of the STAMP packet has too many nanoseconds"),
        }
    }
}

impl std::error::Error for PacketError {}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;
    use std::time::Duration;

    fn error() -> ErrorEstimate {
        ErrorEstimate::of(Duration::from_micros(30), true)
    }

    #[test]
    fn invalid_packets_are_rejected() {
        assert_eq!(TestPacket::parse(&[0; 43]), Err(PacketError::TooShort { need: 44, have: 43 }));
        assert_eq!(TestPacket::parse(&[0; 44]), Err(PacketError::ErrorEstimate));
        assert_eq!(Reply::parse(&[1; 40]), Err(PacketError::TooShort { need: 41, have: 40 }));
        let mut ptp = [0; 44];
        ptp[8..12].fill(0xff);
        ptp[12..14].copy_from_slice(&[0x40, 1]);
        assert_eq!(TestPacket::parse(&ptp), Err(PacketError::Timestamp));
    }

    #[test]
    fn packets_that_are_written_and_read_are_unchanged() {
        let mut prng = Prng::new(8762);
        let mut time = || Timestamp::from_secs_nanos(1_700_000_000 + prng.below(1 << 28), prng.below(1_000_000_000));
        for i in 0..1000 {
            let test = TestPacket { sequence: i, sent: time(), error: error() };
            let (mut sent, mut replied) = ([0xee; 60], [0xee; 60]);
            test.write(&mut sent);
            assert_eq!(TestPacket::parse(&sent), Ok(test), "seed 8762");
            let reply = Reply {
                sequence: i + 5,
                sent: time(),
                error: error(),
                received: time(),
                test_sequence: i,
                test_ttl: i as u8,
            };
            reply.write(&sent, &mut replied);
            assert_eq!(Reply::parse(&replied), Ok(reply), "seed 8762");
            assert_eq!(replied[28..38], sent[4..14]);
        }
    }

    #[test]
    fn the_fields_are_at_the_offsets_of_rfc_8762() {
        let (mut test, mut buf) = ([0; 44], [0; 44]);
        TestPacket { sequence: 0x0102_0304, sent: Timestamp::ZERO, error: error() }.write(&mut test);
        assert_eq!(test[..8], [1, 2, 3, 4, 0x83, 0xaa, 0x7e, 0x80]);
        let reply = Reply {
            sequence: 0x0a0b_0c0d,
            sent: Timestamp::from_secs_nanos(1, 0),
            error: error(),
            received: Timestamp::from_secs_nanos(2, 0),
            test_sequence: 0x0102_0304,
            test_ttl: 63,
        };
        reply.write(&test, &mut buf);
        assert_eq!(buf[..8], [0xa, 0xb, 0xc, 0xd, 0x83, 0xaa, 0x7e, 0x81]);
        assert_eq!(buf[14..28], [0, 0, 0x83, 0xaa, 0x7e, 0x82, 0, 0, 0, 0, 1, 2, 3, 4]);
        assert_eq!(buf[38..], [0, 0, 63, 0, 0, 0]);
    }

    #[test]
    fn random_bytes_do_not_panic() {
        let mut prng = Prng::new(44);
        for _ in 0..50_000 {
            let mut bytes = vec![0; prng.below(80) as usize];
            prng.fill(&mut bytes);
            let _ = (TestPacket::parse(&bytes), Reply::parse(&bytes));
        }
    }
}
