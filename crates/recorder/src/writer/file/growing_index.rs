//! The growing index of a packet file on the volume, which is always up to date for queries and recovery.

use super::as_lost;
use crate::cutter::{Cut, Part};
use base::{Row, Timestamp, TimestampQuality};
use index::{Entry, Growing, IndexWrite, Rows, Sets, SubBlocks};
use std::path::PathBuf;
use store::device::{Device, FileId};

/// The growing index, and the entry that was written last.
pub struct GrowingIndex {
    pub file: FileId,
    pub path: PathBuf,
    /// The write position.
    pub positions: Growing,
    /// The last part of a block that the volume has written.
    last: Option<Accepted>,
}

struct Accepted {
    entry: Entry,
    /// True if this part of a block is the last part of the block.
    last: bool,
    cut: Cut,
}

/// The error of a file to which nothing was written, so that it cannot be published.
#[derive(Debug)]
pub struct EmptyFile;

/// The end of a file that was cut after its last complete packet.
pub struct CutEnd {
    /// The length of the file in bytes.
    pub len: u64,
    /// The latest timestamp of the last block.
    pub last: Timestamp,
    /// The row that counts the incomplete packet after the end, if there is one.
    pub straddler: Option<Row>,
    /// The ledger rows that were added to the last index entry.
    pub rows: Rows,
}

impl GrowingIndex {
    /// An index without entries.
    pub fn new(file: FileId, path: PathBuf, positions: Growing) -> Self {
        Self { file, path, positions, last: None }
    }

    /// The number of the block whose index entry is not final; `None` if all entries are final.
    pub fn filling(&self) -> Option<u32> {
        self.last.as_ref().filter(|a| !a.last).map(|a| a.entry.block)
    }

    /// Registers that a part of a block and the index entry of the block are written. Returns the entry of the block
    /// before it, if this part is the first part of its block.
    pub fn accept(&mut self, part: Part, write: IndexWrite) -> Option<Entry> {
        self.positions.entry_written(write);
        let complete = self.last.take_if(|last| last.last);
        let mut rows = self.last.take().map(|before| before.entry.rows).unwrap_or_default();
        rows.merge(&part.new_rows);
        self.last = Some(Accepted { entry: Entry { rows, ..part.entry }, last: part.last, cut: part.cut });
        complete.map(|accepted| accepted.entry)
    }

    /// Removes and returns the entry of the last block, after the last part of the file.
    pub fn take_last(&mut self) -> Option<Entry> {
        self.last.take().map(|accepted| accepted.entry)
    }

    /// Adds `lost`, the ledger rows of the packets that were lost after the last written part of a block, to the
    /// growing index on the volume, so that the ledger counts these packets even if no sealed index can be written. The
    /// index entry uses the space that was reserved when the growing index was created. If the volume refuses this
    /// write too, there is no retry.
    pub fn write_losses<D: Device>(&mut self, device: &mut D, lost: &Rows) {
        let Some(Accepted { entry, last, .. }) = &self.last else { return };
        let write = if *last {
            let block = entry.block + 1;
            let (first, last) = (Timestamp::ZERO, Timestamp::ZERO);
            let (parts, rows, sets) = (SubBlocks::NONE, Rows::new(), Sets::NONE);
            let timestamps = TimestampQuality::UNKNOWN;
            let next = Entry {
                block,
                bytes: 0,
                first_record: None,
                crc: 0,
                sub_blocks: parts,
                first,
                last,
                timestamps,
                rows,
                sets,
            };
            self.positions.write_entry(&next, lost, false)
        } else {
            self.positions.write_entry(entry, lost, false)
        };
        if device.put(self.file, write.at, &write.bytes).is_ok() {
            self.positions.entry_written(write);
        }
    }

    /// Ends the last block after its last complete packet and adds the losses to its entry. An incomplete packet after
    /// it counts as lost.
    pub fn cut(&mut self, lost: &Rows) -> Result<CutEnd, EmptyFile> {
        let Accepted { entry, cut, .. } = self.last.as_mut().ok_or(EmptyFile)?;
        let straddler = cut.straddler;
        let mut rows = lost.clone();
        if let Some(row) = straddler {
            // The incomplete packet was counted as stored in the block in which it begins, but the truncation removes
            // its bytes.
            entry.rows.subtract(row.second, &row.tally);
            rows.add(row.second, &as_lost(&row.tally));
        }
        entry.rows.merge(&rows);
        (entry.bytes, entry.crc) = (cut.bytes, cut.crc);
        entry.sub_blocks.cut(cut.bytes);
        // Verification compares the timestamps in the index entry with the timestamps of the packets in the file, and
        // queries use the index entry. So the index entry must not include the timestamp of the removed packet.
        (entry.first, entry.last) = cut.stamps;
        let len = u64::from(entry.block) * ring::BLOCK + u64::from(entry.bytes);
        Ok(CutEnd { len, last: entry.last, straddler, rows })
    }
}
