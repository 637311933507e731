//! Header, entries and footer as structures and as bytes.
//!
//! ```text
//! header  magic 8 | version u16 | queue u16 | length u32 | first position u64 | start ns u64 | link type u32
//!         | snaplen u32 | stamp error ns u32 | 3 × (length u16, text): interface, stamp method, filter | crc
//! entry   "BLK1" | length u32 | block u32 | bytes u32 | first record u32 | crc of the bytes u32 | first ns u64
//!         | last ns u64 | groups of hosts u16, ports u16, flows u16 | 0 u16 | length of rows u32 | rows | filters | crc
//! footer  "END1" | length u32 | bytes of the packet file u64 | end ns u64 | entries u32 | rows | crc
//! ```
//! `length` counts the whole part with its CRC. 65 535 groups mean "any key".

use super::rows::{self, Rows};
use super::set::{GROUP, Set};
use base::{Tally, Timestamp};

pub(crate) const MAGIC: [u8; 8] = *b"\x89NGI\r\n\x1a\n";
pub(crate) const VERSION: u16 = 2;
pub(crate) const ENTRY_TAG: [u8; 4] = *b"BLK1";
pub(crate) const FOOTER_TAG: [u8; 4] = *b"END1";
pub(crate) const ALL_GROUPS: u16 = u16::MAX;
pub(crate) const NO_RECORD: u32 = u32::MAX;
pub(crate) const CRC: usize = 4;

pub(crate) mod header {
    use std::ops::Range;
    pub const MAGIC: Range<usize> = 0..8;
    pub const VERSION: Range<usize> = 8..10;
    pub const QUEUE: Range<usize> = 10..12;
    pub const LENGTH: Range<usize> = 12..16;
    pub const FIRST_POS: Range<usize> = 16..24;
    pub const START: Range<usize> = 24..32;
    pub const LINK_TYPE: Range<usize> = 32..36;
    pub const SNAPLEN: Range<usize> = 36..40;
    pub const STAMP_ERROR: Range<usize> = 40..44;
    pub const TEXTS: usize = 44;
}

pub(crate) mod entry {
    use std::ops::Range;
    pub const LENGTH: Range<usize> = 4..8;
    pub const BLOCK: Range<usize> = 8..12;
    pub const BYTES: Range<usize> = 12..16;
    pub const FIRST_RECORD: Range<usize> = 16..20;
    pub const BLOCK_CRC: Range<usize> = 20..24;
    pub const FIRST: Range<usize> = 24..32;
    pub const LAST: Range<usize> = 32..40;
    pub const GROUPS: [Range<usize>; 3] = [40..42, 42..44, 44..46];
    pub const ROWS_LENGTH: Range<usize> = 48..52;
    pub const ROWS: usize = 52;
}

pub(crate) mod footer {
    use std::ops::Range;
    pub const LENGTH: Range<usize> = 4..8;
    pub const BYTES: Range<usize> = 8..16;
    pub const END: Range<usize> = 16..24;
    pub const ENTRIES: Range<usize> = 24..28;
    pub const ROWS: usize = 28;
}

/// What holds for the whole file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The interface, file or simulation.
    pub interface: String,
    /// The hardware queue.
    pub queue: u16,
    /// As pcap numbers it.
    pub link_type: u32,
    /// Bytes kept of each packet.
    pub snaplen: u32,
    /// Who stamped the packets.
    pub stamps: String,
    /// How far off a stamp may be, in nanoseconds; 0 where nobody knows.
    pub stamp_error: u32,
    /// The capture filter; empty for none.
    pub filter: String,
    /// Stream position of the file's first byte.
    pub first_pos: u64,
    /// When the file begins.
    pub start: Timestamp,
}

/// The key sets of one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sets {
    /// Addresses.
    pub hosts: Set,
    /// Ports.
    pub ports: Set,
    /// Flows.
    pub flows: Set,
}

impl Sets {
    fn each(&self) -> [&Set; 3] {
        [&self.hosts, &self.ports, &self.flows]
    }
}

/// One block of the packet file. A record belongs to the block in which it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Number of the block in the file; it begins at this many MiB.
    pub block: u32,
    /// Bytes of the block: a MiB, or fewer in the last one.
    pub bytes: u32,
    /// Offset in the block of the first record that starts in it.
    pub first_record: Option<u32>,
    /// CRC32C of those bytes.
    pub crc: u32,
    /// Stamp of the first packet; of the last one in `last`. Meaningless without packets.
    pub first: Timestamp,
    /// See `first`.
    pub last: Timestamp,
    /// What happened, by second, since the block before: packets stored in this block, losses, filtered, remarks; a row
    /// of zeros for each second in which nothing did.
    pub rows: Rows,
    /// Who is in it.
    pub sets: Sets,
}

impl Entry {
    /// The sum of the rows.
    pub fn tally(&self) -> Tally {
        self.rows.total()
    }
}

/// What is known once the file is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footer {
    /// Length of the packet file.
    pub bytes: u64,
    /// When it ended.
    pub end: Timestamp,
    /// Number of entries.
    pub entries: u32,
    /// What happened by second: the sum of the entries' rows.
    pub rows: Rows,
}

fn seal(mut out: Vec<u8>, length_at: std::ops::Range<usize>) -> Vec<u8> {
    let length = (out.len() + CRC) as u32;
    out[length_at].copy_from_slice(&length.to_le_bytes());
    let crc = crc32c::crc32c(&out);
    out.extend(crc.to_le_bytes());
    out
}

impl Header {
    /// As bytes. Texts are cut at 65 535 bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; header::TEXTS];
        out[header::MAGIC].copy_from_slice(&MAGIC);
        out[header::VERSION].copy_from_slice(&VERSION.to_le_bytes());
        out[header::QUEUE].copy_from_slice(&self.queue.to_le_bytes());
        out[header::FIRST_POS].copy_from_slice(&self.first_pos.to_le_bytes());
        out[header::START].copy_from_slice(&self.start.nanos().to_le_bytes());
        out[header::LINK_TYPE].copy_from_slice(&self.link_type.to_le_bytes());
        out[header::SNAPLEN].copy_from_slice(&self.snaplen.to_le_bytes());
        out[header::STAMP_ERROR].copy_from_slice(&self.stamp_error.to_le_bytes());
        for text in [&self.interface, &self.stamps, &self.filter] {
            let mut len = text.len().min(usize::from(u16::MAX));
            while !text.is_char_boundary(len) {
                len -= 1;
            }
            out.extend((len as u16).to_le_bytes());
            out.extend(&text.as_bytes()[..len]);
        }
        seal(out, header::LENGTH)
    }
}

impl Entry {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(super::SETS_BUDGET + 512);
        out.resize(entry::ROWS, 0);
        out[..4].copy_from_slice(&ENTRY_TAG);
        out[entry::BLOCK].copy_from_slice(&self.block.to_le_bytes());
        out[entry::BYTES].copy_from_slice(&self.bytes.to_le_bytes());
        out[entry::FIRST_RECORD].copy_from_slice(&self.first_record.unwrap_or(NO_RECORD).to_le_bytes());
        out[entry::BLOCK_CRC].copy_from_slice(&self.crc.to_le_bytes());
        out[entry::FIRST].copy_from_slice(&self.first.nanos().to_le_bytes());
        out[entry::LAST].copy_from_slice(&self.last.nanos().to_le_bytes());
        rows::encode(&self.rows, &mut out);
        let rows_length = (out.len() - entry::ROWS) as u32;
        out[entry::ROWS_LENGTH].copy_from_slice(&rows_length.to_le_bytes());
        for (at, set) in entry::GROUPS.into_iter().zip(self.sets.each()) {
            let groups = match set {
                Set::All => ALL_GROUPS,
                Set::Filter(bytes) => {
                    out.extend(bytes);
                    (bytes.len() / GROUP) as u16
                }
            };
            out[at].copy_from_slice(&groups.to_le_bytes());
        }
        seal(out, entry::LENGTH)
    }
}

impl Footer {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; footer::ROWS];
        out[..4].copy_from_slice(&FOOTER_TAG);
        out[footer::BYTES].copy_from_slice(&self.bytes.to_le_bytes());
        out[footer::END].copy_from_slice(&self.end.nanos().to_le_bytes());
        out[footer::ENTRIES].copy_from_slice(&self.entries.to_le_bytes());
        rows::encode(&self.rows, &mut out);
        seal(out, footer::LENGTH)
    }
}
