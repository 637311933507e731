//! The contents of a complete index in memory.

use crate::{Entry, Header, Rows};
use base::Timestamp;
use std::ops::Range;

/// An index in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// The properties of the whole packet file.
    pub header: Header,
    /// The blocks, in order. In a sealed index, all filters of a kind have one size, which may differ from their sizes
    /// while the index grew.
    pub entries: Vec<Entry>,
    /// The end of the index.
    pub tail: Tail,
}

/// The end of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tail {
    /// The index is sealed: the packet file is complete.
    Complete(Footer),
    /// The index is growing, or was when the recorder died.
    Open {
        /// Offset in the index at which the valid entries of full blocks end.
        at: usize,
        /// Offset of the first invalid entry: it is being written at this moment, or is damaged.
        broken: Option<u64>,
        /// True if the torn entry was the block's only index entry.
        torn: bool,
        /// Earlier entries of the same blocks, with fewer packets: the newest first.
        earlier: Vec<Entry>,
    },
}

/// The properties of a complete packet file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footer {
    /// Length of the packet file.
    pub bytes: u64,
    /// The time at which the file ended.
    pub end: Timestamp,
    /// Number of entries.
    pub entries: u32,
    /// The ledger rows: the sum of the entries' rows.
    pub rows: Rows,
    /// Bytes of the packet file that must be read before the records of any block.
    pub context: Vec<Range<u64>>,
}
