//! The payload of a packet of a train: the first 48 bytes after the UDP header.
//!
//! ```text
//! byte  0        4         5       6        8         12      16       20      22
//!      +--------+---------+-------+--------+---------+-------+--------+-------+-------------+
//!      | "ngtr" | version | place | error  | session | train | burst  | index | burst size  |
//!      +--------+---------+-------+--------+---------+-------+--------+-------+-------------+
//!       24                 32                    40                    48
//!      +------------------+---------------------+---------------------+----- - - - -
//!      |     sequence     |      departure      |       planned       |   filling
//!      +------------------+---------------------+---------------------+----- - - - -
//! ```
//!
//! - All fields are big-endian.
//! - `version` is 1.
//! - `place` is the point at which the departure time was taken; see [`DeparturePlace`].
//! - `error` is the error estimate of the sender's clock in the format of RFC 4656 §4.1.2; see [`ErrorEstimate`].
//! - `session` is a number that distinguishes runs of generators.
//! - `train`, `burst` (within the train) and `index` (within the burst) count from 0. `burst size` is the number of
//!   packets of a burst, at least 1.
//! - `sequence` counts the packets of the session from 0.
//! - `departure` is the departure time in UTC nanoseconds since 1970.
//! - `planned` is the planned departure in nanoseconds after the planned departure of the first packet of the session.
//!
//! The UDP checksum covers the payload.

use base::{ErrorEstimate, Timestamp};
use std::fmt;
use std::time::Duration;

/// Length of the payload without filling.
pub const PAYLOAD_LEN: usize = 48;

const MAGIC: [u8; 4] = *b"ngtr";
const VERSION: u8 = 1;

mod at {
    use std::ops::Range;
    pub const MAGIC: Range<usize> = 0..4;
    pub const VERSION: usize = 4;
    pub const PLACE: usize = 5;
    pub const ERROR: Range<usize> = 6..8;
    pub const SESSION: Range<usize> = 8..12;
    pub const TRAIN: Range<usize> = 12..16;
    pub const BURST: Range<usize> = 16..20;
    pub const INDEX: Range<usize> = 20..22;
    pub const BURST_SIZE: Range<usize> = 22..24;
    pub const SEQUENCE: Range<usize> = 24..32;
    pub const DEPARTURE: Range<usize> = 32..40;
    pub const PLANNED: Range<usize> = 40..48;
}

/// The point at which the departure time was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeparturePlace {
    /// The departure time is the planned time. No packet was sent: the train was written to a file.
    Schedule,
    /// The sending process read its clock immediately before the system call that sends the packet.
    BeforeSend,
    /// The departure time is the launch time that the process requested from the kernel or the NIC.
    LaunchTime,
}

impl DeparturePlace {
    const ALL: [Self; 3] = [Self::Schedule, Self::BeforeSend, Self::LaunchTime];

    /// The name of the point in JSON and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Schedule => "schedule",
            Self::BeforeSend => "before-send",
            Self::LaunchTime => "launch-time",
        }
    }

    const fn code(self) -> u8 {
        match self {
            Self::Schedule => 1,
            Self::BeforeSend => 2,
            Self::LaunchTime => 3,
        }
    }
}

/// The fields of the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// The point at which `departure` was taken.
    pub place: DeparturePlace,
    /// The error estimate of the sender's clock.
    pub error: ErrorEstimate,
    /// The session of the packet.
    pub session: u32,
    /// The train of the packet, from 0.
    pub train: u32,
    /// The burst of the packet within its train, from 0.
    pub burst: u32,
    /// The number of the packet within its burst, from 0; less than `burst_size`.
    pub index: u16,
    /// The number of packets of a burst, at least 1.
    pub burst_size: u16,
    /// The number of the packet within its session, from 0.
    pub sequence: u64,
    /// The departure time.
    pub departure: Timestamp,
    /// The planned departure, after the planned departure of the first packet of the session.
    pub planned: Duration,
}

impl Payload {
    /// The bytes of the payload.
    pub fn bytes(&self) -> [u8; PAYLOAD_LEN] {
        let mut out = [0; PAYLOAD_LEN];
        out[at::MAGIC].copy_from_slice(&MAGIC);
        out[at::VERSION] = VERSION;
        out[at::PLACE] = self.place.code();
        out[at::ERROR].copy_from_slice(&self.error.bits().to_be_bytes());
        out[at::SESSION].copy_from_slice(&self.session.to_be_bytes());
        out[at::TRAIN].copy_from_slice(&self.train.to_be_bytes());
        out[at::BURST].copy_from_slice(&self.burst.to_be_bytes());
        out[at::INDEX].copy_from_slice(&self.index.to_be_bytes());
        out[at::BURST_SIZE].copy_from_slice(&self.burst_size.to_be_bytes());
        out[at::SEQUENCE].copy_from_slice(&self.sequence.to_be_bytes());
        out[at::DEPARTURE].copy_from_slice(&self.departure.nanos().to_be_bytes());
        let planned = u64::try_from(self.planned.as_nanos()).unwrap_or(u64::MAX);
        out[at::PLANNED].copy_from_slice(&planned.to_be_bytes());
        out
    }

    /// Parses the bytes after a UDP header.
    ///
    /// # Errors
    /// [`PayloadError::Foreign`] if the bytes are not the payload of a train, and the other errors if a field of such a
    /// payload is invalid.
    pub fn parse(bytes: &[u8]) -> Result<Self, PayloadError> {
        let Some(head) = bytes.first_chunk::<PAYLOAD_LEN>().filter(|head| head[at::MAGIC] == MAGIC) else {
            return Err(PayloadError::Foreign);
        };
        if head[at::VERSION] != VERSION {
            return Err(PayloadError::Version(head[at::VERSION]));
        }
        let number = |range: std::ops::Range<usize>| head[range].iter().fold(0, |n, b| n << 8 | u64::from(*b));
        let place = DeparturePlace::ALL.into_iter().find(|place| place.code() == head[at::PLACE]);
        let payload = Self {
            place: place.ok_or(PayloadError::Place(head[at::PLACE]))?,
            error: ErrorEstimate::from_bits(number(at::ERROR) as u16).ok_or(PayloadError::ErrorEstimate)?,
            session: number(at::SESSION) as u32,
            train: number(at::TRAIN) as u32,
            burst: number(at::BURST) as u32,
            index: number(at::INDEX) as u16,
            burst_size: number(at::BURST_SIZE) as u16,
            sequence: number(at::SEQUENCE),
            departure: Timestamp::from_nanos(number(at::DEPARTURE)),
            planned: Duration::from_nanos(number(at::PLANNED)),
        };
        if payload.index >= payload.burst_size {
            return Err(PayloadError::Index { index: payload.index, burst_size: payload.burst_size });
        }
        Ok(payload)
    }
}

/// The reason why bytes are not the payload of a train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadError {
    /// The bytes are shorter than a payload or have another magic number: they belong to other traffic.
    Foreign,
    /// The payload has a version that this program does not support.
    Version(u8),
    /// The payload has an unknown code for the point at which the departure time was taken.
    Place(u8),
    /// The multiplier of the error estimate is 0.
    ErrorEstimate,
    /// The index is not below the number of packets of a burst.
    Index {
        /// The index.
        index: u16,
        /// The number of packets of a burst.
        burst_size: u16,
    },
}

impl fmt::Display for PayloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => f.write_str("the payload is not that of a train"),
            Self::Version(version) => {
                write!(f, "the train payload has version {version}, but this program reads version {VERSION}")
            }
            Self::Place(place) => write!(f, "the train payload has the unknown departure place {place}"),
            Self::ErrorEstimate => f.write_str("the error estimate of the train payload has the multiplier 0"),
            Self::Index { index, burst_size } => {
                write!(f, "the train payload has index {index} in a burst of {burst_size} packets")
            }
        }
    }
}

impl std::error::Error for PayloadError {}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    const EXAMPLE: Payload = Payload {
        place: DeparturePlace::BeforeSend,
        error: match ErrorEstimate::from_bits(0x8301) {
            Some(error) => error,
            None => unreachable!(),
        },
        session: 0x0102_0304,
        train: 5,
        burst: 6,
        index: 7,
        burst_size: 8,
        sequence: 9,
        departure: Timestamp::from_nanos(0x1122_3344_5566_7788),
        planned: Duration::from_nanos(10),
    };

    #[test]
    fn invalid_fields_are_named() {
        let wrong = |at: usize, value: u8| {
            let mut bytes = EXAMPLE.bytes();
            bytes[at] = value;
            Payload::parse(&bytes)
        };
        assert_eq!(wrong(0, 0), Err(PayloadError::Foreign));
        assert_eq!(Payload::parse(&EXAMPLE.bytes()[..47]), Err(PayloadError::Foreign));
        assert_eq!(wrong(4, 2), Err(PayloadError::Version(2)));
        assert_eq!(wrong(5, 0), Err(PayloadError::Place(0)));
        assert_eq!(wrong(7, 0), Err(PayloadError::ErrorEstimate));
        assert_eq!(wrong(23, 7), Err(PayloadError::Index { index: 7, burst_size: 7 }));
    }

    #[test]
    fn the_fields_are_at_the_documented_offsets() {
        let bytes = EXAMPLE.bytes();
        assert_eq!(bytes[..8], [b'n', b'g', b't', b'r', 1, 2, 0x83, 1]);
        assert_eq!(bytes[8..24], [1, 2, 3, 4, 0, 0, 0, 5, 0, 0, 0, 6, 0, 7, 0, 8]);
        assert_eq!(bytes[24..40], [0, 0, 0, 0, 0, 0, 0, 9, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88]);
        assert_eq!(bytes[40..], [0, 0, 0, 0, 0, 0, 0, 10]);
    }

    #[test]
    fn a_payload_that_is_written_and_read_is_unchanged_and_random_bytes_do_not_panic() {
        let mut prng = Prng::new(48);
        for _ in 0..20_000 {
            let mut bytes = EXAMPLE.bytes();
            let from = prng.below(40) as usize;
            prng.fill(&mut bytes[from..]);
            if let Ok(payload) = Payload::parse(&bytes) {
                assert_eq!(payload.bytes(), bytes, "seed 48");
            }
        }
        assert_eq!(Payload::parse(&EXAMPLE.bytes()), Ok(EXAMPLE));
    }
}
