//! The reason why bytes are not a valid index.

use crate::VERSION;
use std::fmt;
use std::io;

/// Programs that read a packet file without the index.
const READERS: &str = "capinfos, tcpdump -r";

/// The reason why bytes are not a valid index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexError {
    /// The magic number is missing.
    NotAnIndex,
    /// Another version of the format.
    Version {
        /// The version found.
        found: u16,
    },
    /// The header is truncated or damaged.
    Header,
    /// A part of a sealed index is truncated or damaged.
    Damaged {
        /// The part.
        part: &'static str,
    },
    /// The summary contradicts the blocks.
    Contradiction {
        /// The quantity that differs.
        what: &'static str,
        /// The value in the summary.
        summary: u64,
        /// The value from the blocks.
        blocks: u64,
    },
}

impl fmt::Display for IndexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAnIndex => {
                write!(f, "not a netgrain index; the packet file beside it is readable without its index ({READERS})")
            }
            Self::Version { found } => write!(
                f,
                "index version {found}, this program reads {VERSION}: use the netgrain that wrote it, or rebuild the \
                 index from its packet file (netgrain repair)"
            ),
            Self::Header => {
                write!(
                    f,
                    "the index header is damaged; the packet file beside it is readable without its index ({READERS})"
                )
            }
            Self::Damaged { part } => write!(
                f,
                "the index is damaged ({part}): rebuild it from the packet file (netgrain repair), which is readable \
                 without an index ({READERS})"
            ),
            Self::Contradiction { what, summary, blocks } => write!(
                f,
                "{what}: {summary} in the summary, {blocks} in the blocks; check the packet file itself ({READERS})"
            ),
        }
    }
}

impl std::error::Error for IndexError {}

impl From<IndexError> for io::Error {
    fn from(error: IndexError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}
