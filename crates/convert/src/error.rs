//! The errors of a conversion. A damaged input is no error: the part before the damage is converted, and the
//! [`crate::Report`] lists the input.

use crate::Format;
use std::{fmt, io};

/// The reason why a conversion failed. The text includes the remedy.
#[derive(Debug)]
pub enum Error {
    /// An output file could not be begun, written or ended.
    Output(io::Error),
    /// The packets have several link types, but the format has one link type per file.
    LinkTypes {
        /// The format.
        format: Format,
        /// The link type of the first packet, numbered as in pcap.
        first: u16,
        /// The other link type.
        other: u16,
        /// The input that contains the packet with the other link type.
        input: String,
        /// Offset of the packet's record in this input.
        offset: u64,
    },
    /// RAW supports Ethernet only.
    NotEthernet {
        /// The link type of the packets, which is not Ethernet.
        link_type: u16,
        /// The input that contains these packets.
        input: String,
    },
    /// The settings of the removal of duplicates are out of range.
    Duplicates(duplicates::SettingsError),
    /// The requested file size is too small for the largest packet.
    SplitTooSmall {
        /// The requested size.
        bytes: u64,
        /// The least possible size.
        least: u64,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Output(e) => write!(f, "{e}"),
            Self::LinkTypes { format, first, other, input, offset } => write!(
                f,
                "{input}: the packet at byte {offset} has link type {other}, the packets before it have {first}, and a \
                 {format} file has one link type: write pcapng instead"
            ),
            Self::NotEthernet { link_type, input } => {
                write!(
                    f,
                    "{input}: the packets have link type {link_type}, and RAW supports Ethernet only: write pcap or \
                     pcapng instead"
                )
            }
            Self::Duplicates(e) => write!(f, "{e}"),
            Self::SplitTooSmall { bytes, least } => {
                write!(f, "files of {bytes} bytes are too small for the largest packet: split at {least} bytes or more")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Output(e) => Some(e),
            Self::Duplicates(e) => Some(e),
            _ => None,
        }
    }
}

impl From<duplicates::SettingsError> for Error {
    fn from(e: duplicates::SettingsError) -> Self {
        Self::Duplicates(e)
    }
}

impl From<io::Error> for Error {
    fn from(e: io::Error) -> Self {
        Self::Output(e)
    }
}
