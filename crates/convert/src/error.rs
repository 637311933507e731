//! Why a conversion cannot go on. A damaged input is none of it: what precedes the damage is converted, and the
//! [`crate::Report`] names it.

use crate::Format;
use std::{fmt, io};

/// What happened, and what to do.
#[derive(Debug)]
pub enum Error {
    /// A file could not be begun, written or ended.
    Output(io::Error),
    /// Packets of several link types, for a format that has one for all.
    LinkTypes {
        /// The format.
        format: Format,
        /// That of the first packet, as pcap numbers them.
        first: u16,
        /// The other.
        other: u16,
        /// The input that has it.
        input: String,
        /// Where its record begins there.
        offset: u64,
    },
    /// RAW knows Ethernet only.
    NotEthernet {
        /// What the packets are.
        link_type: u16,
        /// The input that has them.
        input: String,
    },
    /// Files of this size could not take every packet.
    SplitTooSmall {
        /// What was asked for.
        bytes: u64,
        /// The least that is possible.
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
