//! Reads the records of the two formats that the recorder writes: nanosecond pcap and HPCAP RAW. The length of each
//! record gives the offset of the next record, so the records of a file are a chain, which ends at the first invalid
//! record.

use super::Window;
use base::Timestamp;
use pcap::MAX_PACKET;
use std::io;
use store::device::Device;

const NANOS: u32 = 1_000_000_000;

/// The bytes of the pcap file header that are equal in all files: magic number, version, time zone and accuracy.
/// Snaplen and link type follow these bytes.
const FIXED: usize = 16;

/// The format of a packet file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Nanosecond pcap, little-endian.
    Pcap,
    /// HPCAP RAW.
    Raw,
}

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Offset in the file.
    pub at: u64,
    /// Offset of its end.
    pub end: u64,
    /// The timestamp.
    pub ts: Timestamp,
    /// Wire length.
    pub wire_len: u32,
    /// True for a padding record of a RAW file, which is no packet.
    pub padding: bool,
}

impl Layout {
    /// The format of a packet file with this name ending.
    pub fn of(ending: &str) -> Option<Self> {
        match ending {
            "pcap" => Some(Self::Pcap),
            "raw" => Some(Self::Raw),
            _ => None,
        }
    }

    /// The ending of the names of files in this format.
    pub const fn ending(self) -> &'static str {
        match self {
            Self::Pcap => "pcap",
            Self::Raw => "raw",
        }
    }

    /// Size of the file header.
    pub const fn file_header(self) -> u64 {
        match self {
            Self::Pcap => pcap::classic::FILE_HEADER as u64,
            Self::Raw => 0,
        }
    }

    /// Size of the record header.
    pub const fn record_header(self) -> usize {
        match self {
            Self::Pcap => pcap::classic::RECORD_HEADER,
            Self::Raw => pcap::raw::RECORD_HEADER,
        }
    }

    /// True if `head` is the file header that the recorder writes. RAW files have no header.
    pub fn begins(self, head: &[u8]) -> bool {
        match self {
            Self::Pcap => head.len() >= FIXED && head[..FIXED] == pcap::FILE_HEADER_NS[..FIXED],
            Self::Raw => true,
        }
    }

    /// Parses a record header. `None` if it is invalid: its timestamp is before `latest` (timestamps of a queue never
    /// decrease), or its lengths are inconsistent. Zeros are preallocated space, not a record.
    pub fn record(self, at: u64, header: &[u8], latest: Timestamp) -> Option<Record> {
        let word = |i: usize| header.get(4 * i..4 * i + 4).map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]]));
        let (secs, nanos) = (word(0)?, word(1)?);
        let (caplen, wire_len) = match self {
            Self::Pcap => (word(2)?, word(3)?),
            Self::Raw => (word(2)? & 0xffff, word(2)? >> 16),
        };
        let ts = Timestamp::from_secs_nanos(secs.into(), nanos.into());
        let padding = self == Self::Raw && ts == Timestamp::ZERO && caplen == wire_len && caplen > 0;
        let blank = ts == Timestamp::ZERO && caplen == 0 && wire_len == 0;
        let sound = nanos < NANOS && caplen <= MAX_PACKET && caplen <= wire_len && (ts >= latest || padding) && !blank;
        let end = at + self.record_header() as u64 + u64::from(caplen);
        sound.then_some(Record { at, end, ts, wire_len, padding })
    }

    /// The record at offset `at`, if it is valid and completely in the file.
    ///
    /// # Errors
    /// Any error that the device returns.
    pub fn next<D: Device>(self, window: &mut Window<'_, D>, at: u64, latest: Timestamp) -> io::Result<Option<Record>> {
        let record = self.record(at, window.get(at, self.record_header())?, latest);
        Ok(record.filter(|r| r.end <= window.size()))
    }
}
