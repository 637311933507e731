//! What can be wrong with a capture file, where, and how much.

use std::{fmt, io};

/// Why reading ended before the file did. Every variant knows the byte (of the uncompressed file) where it was found.
#[derive(Debug)]
pub enum Error {
    /// The bytes could not be fetched.
    Io {
        /// How far reading had come.
        offset: u64,
        /// The operating system's answer.
        error: io::Error,
    },
    /// The content is in no format known here.
    NotACapture {
        /// Its first bytes.
        head: [u8; 4],
        /// How many of them there are.
        have: usize,
    },
    /// The format is known but this version of it is not.
    Version {
        /// Where the version stands.
        offset: u64,
        /// Its first number.
        major: u16,
        /// Its second number.
        minor: u16,
    },
    /// The file ends inside something.
    Truncated {
        /// Where that begins.
        offset: u64,
        /// What it is.
        what: &'static str,
        /// Its length in bytes.
        need: u64,
        /// How many of them the file has.
        have: u64,
    },
    /// A length or number that no real file has.
    LengthTooLarge {
        /// Where the record or block begins.
        offset: u64,
        /// What was measured.
        what: &'static str,
        /// What the file claims.
        len: u64,
        /// The most that is believed.
        limit: u64,
    },
    /// A pcapng block contradicts itself.
    BadBlock {
        /// Where it begins.
        offset: u64,
        /// Its type.
        block: u32,
        /// The contradiction.
        why: &'static str,
    },
    /// A RAW record contradicts itself.
    BadRecord {
        /// Where it begins.
        offset: u64,
        /// The contradiction.
        why: &'static str,
    },
    /// A pcapng packet names an interface that its section has not described.
    UnknownInterface {
        /// Where its block begins.
        offset: u64,
        /// The number it names.
        interface: u32,
        /// How many have been described.
        known: u32,
    },
}

impl Error {
    /// The byte of the (uncompressed) file at which the trouble begins.
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

    /// Whether asking again may help, because the source only had nothing ready (`WouldBlock`).
    pub fn is_pause(&self) -> bool {
        matches!(self, Self::Io { error, .. } if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// What is wrong, without the offset.
    pub fn reason(&self) -> String {
        match self {
            Self::Io { error, .. } => format!("cannot read on: {error}"),
            Self::NotACapture { have: 0, .. } => "the file is empty; a capture has at least a header".to_owned(),
            Self::NotACapture { head: [0x1f, 0x8b, ..], .. } => "compressed with gzip; unpack it first".to_owned(),
            Self::NotACapture { head: [0x28, 0xb5, 0x2f, 0xfd], .. } => {
                "compressed with zstd; unpack it first".to_owned()
            }
            Self::NotACapture { head: [0xfd, b'7', b'z', b'X'], .. } => {
                "compressed with xz; unpack it first".to_owned()
            }
            Self::NotACapture { head: [b'B', b'Z', b'h', _], .. } => {
                "compressed with bzip2; unpack it first".to_owned()
            }
            Self::NotACapture { head, have } => format!(
                "not a capture: it begins with the bytes {}, which is neither pcap, pcapng nor a plausible RAW record (if it is \
                 RAW, `netgrain record -r` can be told so)",
                head[..*have].iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
            ),
            Self::Version { major, minor, .. } => {
                format!(
                    "version {major}.{minor} of the format is not known (known are 2 of pcap and 1 of pcapng): have the program that \
                     wrote the file write one of these; if it did, these bytes are damaged"
                )
            }
            Self::Truncated { what, need, have, .. } => {
                format!("the {what} needs {need} bytes, the file has {have}; it was cut short")
            }
            Self::LengthTooLarge { what, len, limit, .. } => {
                format!("the {what} is {len}, more than the {limit} that are believed; the file is damaged here")
            }
            Self::BadBlock { block, why, .. } => format!("block of type {block:#x}: {why}"),
            Self::BadRecord { why, .. } => (*why).to_owned(),
            Self::UnknownInterface { interface, known, .. } => {
                format!("the packet names interface {interface}, but {known} are described before it")
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
