//! The header of an index contains the properties of the packet file. A growing index and a sealed index both begin
//! with it.
//!
//! ```text
//! magic 8 | version u16 | layout u16 | length u32 | content u16 | queue u16 | link type u32 | snaplen u32
//! | timestamp error ns u32 | first position u64 | start ns u64 | foreign bytes u64 | foreign modified ns u64
//! | 3 × (length u16, text): interface, timestamp source, filter | crc
//! ```
//! `length` counts the whole header. The layout is 1 for a sealed and 2 for a growing index (0 was the growing layout
//! of versions without slots). The content is 0 for a file recorded by netgrain; for foreign captures it is 1 for pcap,
//! 2 for pcapng and 3 for RAW.

use crate::bytes::{CRC, Cursor, checked, close};
use crate::{IndexError, VERSION};
use base::Timestamp;

const MAGIC: [u8; 8] = *b"\x89NGI\r\n\x1a\n";
const SEALED: u16 = 1;
const GROWING: u16 = 2;
const LENGTH_AT: usize = 12;
const FIXED: usize = 64;

/// The longest header that a reader accepts: three texts of 65 535 bytes.
pub(crate) const LEN_MAX: usize = FIXED + 3 * (2 + u16::MAX as usize) + CRC;

/// Stands for the stream position of a file whose stream position is unknown.
pub const UNKNOWN_POS: u64 = u64::MAX;

/// The properties of a packet file that are equal for all of its blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The interface, file or simulation.
    pub interface: String,
    /// The hardware queue.
    pub queue: u16,
    /// The link type, with the number that pcap uses.
    pub link_type: u32,
    /// The snaplen: the largest number of captured bytes per packet.
    pub snaplen: u32,
    /// The timestamp source of the packets.
    pub timestamp_source: String,
    /// The largest error of a timestamp, in nanoseconds; 0 if not known.
    pub timestamp_error: u32,
    /// The capture filter; empty without a capture filter.
    pub filter: String,
    /// Stream position of the file's first byte; [`UNKNOWN_POS`] in an index that was rebuilt from the packets.
    pub first_pos: u64,
    /// The start time of the file.
    pub start: Timestamp,
    /// The origin of the packets.
    pub content: Content,
}

/// The origin of the packets of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Content {
    /// The packet file was recorded by netgrain; index and packets were written together.
    #[default]
    Recorded,
    /// A foreign capture (a capture file of another program). If length or modification time of the capture differ from
    /// these values, the index does not describe the present file and is not used.
    Foreign {
        /// The format of the file.
        format: Format,
        /// The length of the file.
        bytes: u64,
        /// The modification time of the file, in nanoseconds since 1970.
        modified: u64,
    },
}

/// Formats of foreign captures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Classic pcap, of any byte order and timestamp resolution.
    Pcap,
    /// pcapng.
    PcapNg,
    /// HPCAP's RAW.
    Raw,
}

/// The layout of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    Growing,
    Sealed,
}

impl Header {
    /// The bytes of the header at the beginning of a growing index. Texts are truncated at 65 535 bytes.
    pub fn encode(&self) -> Vec<u8> {
        self.encode_for(Layout::Growing)
    }

    pub(crate) fn encode_for(&self, layout: Layout) -> Vec<u8> {
        let (content, bytes, modified) = match self.content {
            Content::Recorded => (0u16, 0, 0),
            Content::Foreign { format: Format::Pcap, bytes, modified } => (1, bytes, modified),
            Content::Foreign { format: Format::PcapNg, bytes, modified } => (2, bytes, modified),
            Content::Foreign { format: Format::Raw, bytes, modified } => (3, bytes, modified),
        };
        let mut out = MAGIC.to_vec();
        out.extend(VERSION.to_le_bytes());
        out.extend(if layout == Layout::Sealed { SEALED } else { GROWING }.to_le_bytes());
        out.extend([0; 4]);
        out.extend(content.to_le_bytes());
        out.extend(self.queue.to_le_bytes());
        [self.link_type, self.snaplen, self.timestamp_error].iter().for_each(|n| out.extend(n.to_le_bytes()));
        [self.first_pos, self.start.nanos(), bytes, modified].iter().for_each(|n| out.extend(n.to_le_bytes()));
        debug_assert_eq!(out.len(), FIXED);
        for text in [&self.interface, &self.timestamp_source, &self.filter] {
            let mut len = text.len().min(usize::from(u16::MAX));
            while !text.is_char_boundary(len) {
                len -= 1;
            }
            out.extend((len as u16).to_le_bytes());
            out.extend(&text.as_bytes()[..len]);
        }
        close(out, LENGTH_AT)
    }

    /// Length in bytes of the header that begins with `bytes`.
    pub(crate) fn length(bytes: &[u8]) -> Result<usize, IndexError> {
        let mut head = Cursor(bytes);
        if head.take(MAGIC.len()) != Some(&MAGIC[..]) {
            return Err(IndexError::NotAnIndex);
        }
        let found = head.u16().ok_or(IndexError::Header)?;
        if found != VERSION {
            return Err(IndexError::Version { found });
        }
        let length = head.u16().and(head.u32()).ok_or(IndexError::Header)? as usize;
        if (FIXED..=LEN_MAX).contains(&length) { Ok(length) } else { Err(IndexError::Header) }
    }

    /// Parses a header from `bytes`, which must contain nothing else.
    pub(crate) fn parse(bytes: &[u8]) -> Result<(Self, Layout), IndexError> {
        if Self::length(bytes)? != bytes.len() {
            return Err(IndexError::Header);
        }
        let read = || {
            let mut part = Cursor(checked(bytes)?);
            part.take(MAGIC.len() + 2)?;
            let layout = match part.u16()? {
                GROWING => Layout::Growing,
                SEALED => Layout::Sealed,
                _ => return None,
            };
            part.u32()?;
            let content = part.u16()?;
            let queue = part.u16()?;
            let (link_type, snaplen, stamp_error) = (part.u32()?, part.u32()?, part.u32()?);
            let (first_pos, start) = (part.u64()?, Timestamp::from_nanos(part.u64()?));
            let (bytes, modified) = (part.u64()?, part.u64()?);
            let foreign = |format| Content::Foreign { format, bytes, modified };
            let content = match content {
                0 => Content::Recorded,
                1 => foreign(Format::Pcap),
                2 => foreign(Format::PcapNg),
                3 => foreign(Format::Raw),
                _ => return None,
            };
            let mut text = || {
                let len = part.u16()?;
                String::from_utf8(part.take(len.into())?.to_vec()).ok()
            };
            let (interface, stamps, filter) = (text()?, text()?, text()?);
            let header = Self {
                interface,
                queue,
                link_type,
                snaplen,
                timestamp_source: stamps,
                timestamp_error: stamp_error,
                filter,
                first_pos,
                start,
                content,
            };
            Some((header, layout))
        };
        read().ok_or(IndexError::Header)
    }
}
