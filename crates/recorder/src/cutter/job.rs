//! What the index machine tells the writing machine.

use super::order::OutOfOrderCounts;
use base::{Row, Timestamp};
use index::{Entry, Rows};
use store::bytes::Slice;

/// What may be given back to the ring once a job is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Release {
    /// The stream before this position.
    pub pos: u64,
    /// The first so many descriptors of the stream.
    pub descriptors: u64,
}

/// One thing to do, in order.
pub enum Job {
    /// Begin a file.
    Open {
        /// Its first stream position.
        pos: u64,
        /// Its first moment, which names it.
        start: Timestamp,
        /// What was before.
        release: Release,
    },
    /// Write a part of a block, and its index entry.
    Write(Box<Part>),
    /// End the file: nothing more will be written to it.
    Close {
        /// Its true length.
        len: u64,
        /// Its last moment.
        end: Timestamp,
        /// What was before.
        release: Release,
    },
    /// Nothing to write; only this to give back, once all before is done.
    Release(Release),
    /// The stream has ended.
    End,
}

/// Bytes of one block, and the entry that describes the block up to their end.
pub struct Part {
    /// Offset in the file of the first byte, a multiple of a page.
    pub offset: u64,
    /// The bytes, of any length: what was sent ahead of this block is not repeated, but for its last page.
    pub bytes: Slice,
    /// The block so far, without its rows: the writing machine adds up [`Part::new_rows`].
    pub entry: Entry,
    /// Nothing more will come for this block.
    pub last: bool,
    /// The rows of the block since the part before.
    pub new_rows: Rows,
    /// Which of its packets, and of those since the part before, are earlier than one before them in the stream.
    pub out_of_order: OutOfOrderCounts,
    /// Whether one of these is so in the file.
    pub is_out_of_order: bool,
    /// How to end the file behind the last whole packet, if nothing after this part can ever be written.
    pub cut: Cut,
    /// What may be given back when this is done.
    pub release: Release,
}

impl Part {
    /// Whether a file that begins at `start` is not in order because of it: a packet in it is earlier than that, or than one
    /// before it.
    pub fn is_out_of_order(&self, start: Timestamp) -> bool {
        self.is_out_of_order || self.entry.first_record.is_some() && self.entry.first < start
    }
}

/// The last record boundary in a block. A record that begins in the block but ends in the next is not whole here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Bytes of the block up to the boundary.
    pub bytes: u32,
    /// CRC32C of those.
    pub crc: u32,
    /// Earliest and latest stamp of the packets before it; meaningless without packets.
    pub stamps: (Timestamp, Timestamp),
    /// The record behind the boundary, as the ledger counted it.
    pub straddler: Option<Row>,
}
