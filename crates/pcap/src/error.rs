//! Errors in a capture file, with the offset and the lengths or numbers involved.

use std::{fmt, io};

/// The reason why reading ended before the end of the file. [`Self::offset`] returns the byte offset of the error.
#[derive(Debug)]
pub enum Error {
    /// The source failed.
    Io {
        /// Offset of the bytes that were to be read.
        offset: u64,
        /// The error that the operating system returned.
        error: io::Error,
    },
    /// The content has no known format.
    NotACapture {
        /// The first bytes of the content.
        head: [u8; 4],
        /// Number of bytes in `head` that are from the content; less than 4 if the content is shorter.
        have: usize,
    },
    /// The version of the format is not supported.
    Version {
        /// Offset of the version.
        offset: u64,
        /// Major version.
        major: u16,
        /// Minor version.
        minor: u16,
    },
    /// The file ends inside a structure.
    Truncated {
        /// Begin of the structure.
        offset: u64,
        /// Name of the structure.
        what: &'static str,
        /// Length of the structure in bytes.
        need: u64,
        /// Number of bytes of the structure that are in the file.
        have: u64,
    },
    /// A length or number is larger than in any real file.
    LengthTooLarge {
        /// Offset of the record or block.
        offset: u64,
        /// The quantity that is too large.
        what: &'static str,
        /// The value in the file.
        len: u64,
        /// The largest accepted value.
        limit: u64,
    },
    /// A pcapng block is inconsistent.
    BadBlock {
        /// Begin of the block.
        offset: u64,
        /// Type of the block.
        block: u32,
        /// The inconsistency.
        why: &'static str,
    },
    /// A RAW record is inconsistent.
    BadRecord {
        /// Begin of the record.
        offset: u64,
        /// The inconsistency.
        why: &'static str,
    },
    /// A pcapng packet block has the number of an interface that its section has not described.
    UnknownInterface {
        /// Begin of the block.
        offset: u64,
        /// The interface number.
        interface: u32,
        /// Number of interfaces described.
        known: u32,
    },
}

impl Error {
    /// The byte offset of the error in the uncompressed file.
    pub const fn offset(&self) -> u64 {
        match *self {
            Self::NotACapture { .. } => 0,
            Self::Io { offset, .. }
            | Self::Version { offset, .. }
            | Self::Truncated { offset, .. }
            | Self::LengthTooLarge { offset, .. }
            | Self::BadBlock { offset, .. }
            | Self::BadRecord { offset, .. }
            | Self::UnknownInterface { offset, .. } => offset,
        }
    }

    /// True if a retry may succeed, because the source has only had no data ready (`WouldBlock`).
    pub fn is_pause(&self) -> bool {
        matches!(self, Self::Io { error, .. } if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// A description of the error without the offset.
    pub fn reason(&self) -> String {
        match self {
            Self::Io { error, .. } => format!("the file cannot be read further: {error}"),
            Self::NotACapture { have: 0, .. } => "the file is empty; a capture file has at least a header".to_owned(),
            Self::NotACapture { head, .. } if Compression::of(head).is_some() => {
                let name = Compression::of(head).map_or("", |packed| packed.name);
                format!("the file is compressed with {name}; decompress it first")
            }
            Self::NotACapture { head, have } => format!(
                "not a capture file: the first bytes are {}, which is neither pcap, pcapng nor a plausible RAW record \
                 (for a RAW file, `netgrain record -r` and `netgrain convert` have the option --read-raw)",
                head[..*have].iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
            ),
            Self::Version { major, minor, .. } => {
                format!(
                    "version {major}.{minor} of the format is not supported (supported are 2 of pcap and 1 of \
                     pcapng): write the file in one of these versions; if the file has one of them, these bytes are \
                     damaged"
                )
            }
            Self::Truncated { what, need, have, .. } => {
                format!("the {what} needs {need} bytes, the file has {have}; it was cut short")
            }
            Self::LengthTooLarge { what, len, limit, .. } => {
                format!("the {what} is {len}, above the limit of {limit}; the file is damaged here")
            }
            Self::BadBlock { block, why, .. } => format!("block of type {block:#x}: {why}"),
            Self::BadRecord { why, .. } => (*why).to_owned(),
            Self::UnknownInterface { interface, known, .. } => {
                format!("the packet has interface {interface}, but only {known} interfaces are described before it")
            }
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: {}", self.offset(), self.reason())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { error, .. } => Some(error),
            _ => None,
        }
    }
}

/// A compressed file, which has to be decompressed before it can be read at any offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compression {
    /// The name of the format.
    pub name: &'static str,
    /// The command that decompresses a file and keeps the original.
    pub command: &'static str,
}

impl Compression {
    /// The compression of a file with these first bytes; `None` if they are those of no known format.
    pub fn of(head: &[u8]) -> Option<Self> {
        let (name, command) = match head {
            [0x1f, 0x8b, _, _, ..] => ("gzip", "gzip -dk"),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => ("zstd", "zstd -dk"),
            [b'B', b'Z', b'h', _, ..] => ("bzip2", "bzip2 -dk"),
            [0xfd, b'7', b'z', b'X', ..] => ("xz", "xz -dk"),
            _ => return None,
        };
        Some(Self { name, command })
    }
}
