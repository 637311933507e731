//! The jobs that the index machine sends to the writing machine.

use super::order::OutOfOrderCounts;
use base::{Row, Timestamp};
use index::{Entry, Rows};
use store::bytes::Slice;

/// The part of the ring that may be overwritten after a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Release {
    /// The stream before this position may be overwritten.
    pub pos: u64,
    /// This many descriptors, from the begin of the stream, may be overwritten.
    pub descriptors: u64,
}

/// One job; jobs are done in order.
pub enum Job {
    /// Begin a file.
    Open {
        /// First stream position of the file.
        pos: u64,
        /// Begin of the file's time range, which names the file.
        start: Timestamp,
        /// The ring memory before this file.
        release: Release,
    },
    /// Write a part of a block, and its index entry.
    Write(Box<Part>),
    /// Close the file: no more bytes follow.
    Close {
        /// Final length in bytes.
        len: u64,
        /// End of the file's time range.
        end: Timestamp,
        /// The ring memory up to the end of the file.
        release: Release,
    },
    /// Nothing to write; release this ring memory once all earlier jobs are done.
    Release(Release),
    /// The stream has ended.
    End,
}

/// Bytes of one block, and the index entry that describes the block up to the end of these bytes.
pub struct Part {
    /// Offset in the file of the first byte, a multiple of a page.
    pub offset: u64,
    /// The bytes, of any length; bytes of the block that an earlier part carried are not repeated, except for its last
    /// page.
    pub bytes: Slice,
    /// The block so far, without its ledger rows: the writing machine adds up [`Part::new_rows`].
    pub entry: Entry,
    /// True if this is the last part of the block.
    pub last: bool,
    /// The ledger rows of the block since the previous part.
    pub new_rows: Rows,
    /// Packets since the previous part that are earlier than a packet before them in the stream.
    pub out_of_order: OutOfOrderCounts,
    /// True if one of these packets is earlier than a packet before it in the same file.
    pub is_out_of_order: bool,
    /// How to end the file after its last complete packet, if nothing after this part can be written.
    pub cut: Cut,
    /// The ring memory that may be overwritten when this part is written.
    pub release: Release,
}

impl Part {
    /// True if this part makes a file that begins at `start` out of order: a packet of the part is earlier than
    /// `start`, or than a packet before it.
    pub fn is_out_of_order(&self, start: Timestamp) -> bool {
        self.is_out_of_order || self.entry.first_record.is_some() && self.entry.first < start
    }
}

/// The last record boundary in a block. A record that begins in the block but ends in the next is incomplete here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Bytes of the block up to the boundary.
    pub bytes: u32,
    /// CRC32C of those bytes.
    pub crc: u32,
    /// Earliest and latest timestamp of the packets before the boundary; meaningless without packets.
    pub stamps: (Timestamp, Timestamp),
    /// The ledger row of the record that begins at the boundary.
    pub straddler: Option<Row>,
}
