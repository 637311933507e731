//! Records of the two formats that are recorded: nanosecond pcap, and HPCAP's RAW. Each says where the next begins, so a
//! file is a chain, and a link that cannot be one ends it.

use super::Window;
use base::Timestamp;
use pcap::MAX_PACKET;
use std::io;
use store::device::Device;

const NANOS: u32 = 1_000_000_000;

/// Of a pcap file header, the bytes that are the same in all: magic, version, zone. Snaplen and link type follow.
const FIXED: usize = 16;

/// How a packet file is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Nanosecond pcap, little-endian.
    Pcap,
    /// RAW.
    Raw,
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Where it begins in the file.
    pub at: u64,
    /// First byte behind it.
    pub end: u64,
    /// When the packet arrived.
    pub ts: Timestamp,
    /// Bytes it had on the wire.
    pub wire_len: u32,
    /// Padding of a RAW file: no packet.
    pub padding: bool,
}

impl Layout {
    /// Of a packet file by the ending of its name.
    pub fn of(ending: &str) -> Option<Self> {
        match ending {
            "pcap" => Some(Self::Pcap),
            "raw" => Some(Self::Raw),
            _ => None,
        }
    }

    /// How the names of such files end.
    pub const fn ending(self) -> &'static str {
        match self {
            Self::Pcap => "pcap",
            Self::Raw => "raw",
        }
    }

    /// Bytes before the first record.
    pub const fn file_header(self) -> u64 {
        match self {
            Self::Pcap => pcap::classic::FILE_HEADER as u64,
            Self::Raw => 0,
        }
    }

    /// Bytes before the packet in its record.
    pub const fn record_header(self) -> usize {
        match self {
            Self::Pcap => pcap::classic::RECORD_HEADER,
            Self::Raw => pcap::raw::RECORD_HEADER,
        }
    }

    /// Whether a file that begins so is one of these, as the recorder writes them. RAW has nothing to know it by.
    pub fn begins(self, head: &[u8]) -> bool {
        match self {
            Self::Pcap => head.len() >= FIXED && head[..FIXED] == pcap::FILE_HEADER_NS[..FIXED],
            Self::Raw => true,
        }
    }

    /// The record whose header this is, if it can be one: not before `latest`, because stamps of a queue never fall, and
    /// with lengths that fit each other. Zeros are room that was never written, and no record.
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

    /// The record at `at`, if there is one and all of it is in the file.
    ///
    /// # Errors
    /// What the device says.
    pub fn next<D: Device>(self, window: &mut Window<'_, D>, at: u64, latest: Timestamp) -> io::Result<Option<Record>> {
        let record = self.record(at, window.get(at, self.record_header())?, latest);
        Ok(record.filter(|r| r.end <= window.size()))
    }
}
