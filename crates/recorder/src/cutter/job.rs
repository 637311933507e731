//! The jobs that the cutter sends to the writer.

use super::order::OutOfOrderCounts;
use base::{Row, Timestamp};
use index::{Entry, Rows};
use store::bytes::Slice;

/// The part of the ring that the producer may overwrite after a job is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Release {
    /// The bytes of the stream before this position may be overwritten.
    pub pos: u64,
    /// Number of descriptors, counted from the begin of the stream, that may be overwritten.
    pub descriptors: u64,
}

/// One job for the writer, which finishes jobs in order.
pub enum Job {
    /// Begin a file.
    Open {
        /// First stream position of the file.
        pos: u64,
        /// Begin of the file's time range, from which the file name is formed.
        start: Timestamp,
        /// The ring memory that may be overwritten after this job: the memory before the first byte of this file.
        release: Release,
    },
    /// Write a part of a block, and the index entry of the block.
    Write(Box<Part>),
    /// Close the open file: no more bytes of the file follow.
    Close {
        /// Final length in bytes.
        len: u64,
        /// End of the file's time range.
        end: Timestamp,
        /// The ring memory that may be overwritten after this job: the memory up to the end of the file.
        release: Release,
    },
    /// Release this ring memory as soon as all earlier jobs are done; the job writes nothing.
    Release(Release),
    /// The stream has ended.
    End,
}

/// A part of a block: bytes of the block, and the index entry that describes the block up to the end of these bytes.
pub struct Part {
    /// Offset of the first byte of the part in the file, a multiple of the page size.
    pub offset: u64,
    /// The bytes of the part. They begin with the last, incomplete page of the previous part, and continue with the
    /// bytes that no earlier part contains.
    pub bytes: Slice,
    /// The index entry of the block up to the end of this part, without its ledger rows: the writer adds up
    /// [`Part::new_rows`].
    pub entry: Entry,
    /// True if this is the last part of the block.
    pub last: bool,
    /// The ledger rows of the block since the previous part.
    pub new_rows: Rows,
    /// Number of packets since the previous part whose timestamps are earlier than that of a preceding packet in the
    /// stream, and the largest of these time differences.
    pub out_of_order: OutOfOrderCounts,
    /// True if a packet since the previous part has an earlier timestamp than a preceding packet in the same file.
    pub is_out_of_order: bool,
    /// The end of the last complete packet. The file ends there if nothing after this part can be written.
    pub cut: Cut,
    /// The ring memory that may be overwritten after this part is written.
    pub release: Release,
}

impl Part {
    /// True if a file that begins at `start` is an out-of-order file because of this part: a packet of the part is
    /// earlier than `start`, or than a preceding packet of the file.
    pub fn is_out_of_order(&self, start: Timestamp) -> bool {
        self.is_out_of_order || self.entry.first_record.is_some() && self.entry.first < start
    }
}

/// The end of the last record that is complete in a block. A record that begins in the block and ends in the next block
/// follows this boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Number of bytes of the block before the boundary.
    pub bytes: u32,
    /// CRC32C of those bytes.
    pub crc: u32,
    /// Earliest and latest timestamp of the packets of the block before the boundary; meaningless if there are none.
    pub stamps: (Timestamp, Timestamp),
    /// The ledger row of the record that begins at the boundary and ends in the next block, if there is one.
    pub straddler: Option<Row>,
}
