//! Reasons why a conversion fails. A damaged input is not among them: the part before the damage is converted, and the
//! [`crate::Report`] lists the input.

use crate::Format;
use std::{fmt, io};

/// The reason; its text includes the remedy.
#[derive(Debug)]
pub enum Error {
    /// An output file could not be begun, written or ended.
    Output(io::Error),
    /// Packets of several link types, for a format with one link type per file.
    LinkTypes {
        /// The format.
        format: Format,
        /// The link type of the first packet, numbered as in pcap.
        first: u16,
        /// The other link type.
        other: u16,
        /// The input that has it.
        input: String,
        /// Offset of its record there.
        offset: u64,
    },
    /// RAW supports Ethernet only.
    NotEthernet {
        /// The link type of the packets.
        link_type: u16,
        /// The input that has them.
        input: String,
    },
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
                "{input}: the packet at byte {offset} has link type {other}, those before have {first}, and {format} \
                 holds one for all: write pcapng instead"
            ),
            Self::NotEthernet { link_type, input } => {
                write!(f, "{input}: link type {link_type}; RAW holds Ethernet only: write pcap or pcapng instead")
            }
            Self::SplitTooSmall { bytes, least } => {
                write!(f, "files of {bytes} bytes do not take every packet: split at {least} or more")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Output(e) => Some(e),
            _ => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(e: io::Error) -> Self {
        Self::Output(e)
    }
}
