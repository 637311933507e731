//! The description of one block, as it is stored in the block table of an index.

use crate::Entry;
use base::{Tally, Timestamp};

/// One block, without its key sets and its ledger rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Number of the block in the file: block `n` begins at `n` MiB.
    pub number: u32,
    /// Length of the block in the packet file, in bytes.
    pub bytes: u32,
    /// Offset, in the block, of the first packet record that starts in the block.
    pub first_record: Option<u32>,
    /// CRC32C of the bytes of the block.
    pub crc: u32,
    /// Earliest timestamp in the block; meaningless if the block has no packets.
    pub first: Timestamp,
    /// Latest timestamp in the block; meaningless if the block has no packets.
    pub last: Timestamp,
    /// Number of packets whose records begin in the block.
    pub packets: u64,
    /// Number of packets lost since the previous block, by all causes.
    pub lost: u64,
}

impl Block {
    pub(crate) fn of(entry: &Entry, tally: &Tally) -> Self {
        Self {
            number: entry.block,
            bytes: entry.bytes,
            first_record: entry.first_record,
            crc: entry.crc,
            first: entry.first,
            last: entry.last,
            packets: tally.stored,
            lost: tally.lost.iter().fold(0, |n, l| n.saturating_add(*l)),
        }
    }
}
