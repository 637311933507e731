//! The contents of a complete index in memory.

use crate::{Entry, Header, Rows};
use base::Timestamp;
use std::ops::Range;

/// An index in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// The properties of the packet file.
    pub header: Header,
    /// The blocks, in the order of the packet file. In a sealed index, all filters of a kind have the same size; in a
    /// growing index, the sizes may differ.
    pub entries: Vec<Entry>,
    /// The end of the index.
    pub tail: Tail,
}

/// The end of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tail {
    /// The index is sealed, so the packet file is complete.
    Complete(Footer),
    /// The index is growing, or was growing when the recorder ended unexpectedly.
    Open {
        /// Offset in the index at which the chain of valid entries of full blocks ends.
        at: usize,
        /// Offset of the first invalid entry, which is being written at this moment or is damaged; `None` if all
        /// entries are valid.
        broken: Option<u64>,
        /// True if an entry is torn and was the only entry of its block, so that the block has no valid entry.
        torn: bool,
        /// Entries that later entries of the same block replaced, the newest first. Each of them describes fewer
        /// packets than the entry that replaced it.
        earlier: Vec<Entry>,
    },
}

/// The properties of a complete packet file, from the summary of its sealed index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footer {
    /// Length of the packet file.
    pub bytes: u64,
    /// End of the time range of the packet file.
    pub end: Timestamp,
    /// Number of entries.
    pub entries: u32,
    /// The ledger rows of the file: the sum of the ledger rows of all entries.
    pub rows: Rows,
    /// Byte ranges of the packet file that a query must read before the records of any block.
    pub context: Vec<Range<u64>>,
}
