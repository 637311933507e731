//! A packet file and its index while they are being written.
//!
//! The growing index on disk is always up to date for queries and recovery. The data for the sealed index stays in
//! memory: at most 1 % of the size of the packet file, and the encoded ledger rows (outcome counters of one second
//! each), about 5 bytes for each second with packets. The ledger rows are the only memory that grows with the duration
//! of a recording; each new file starts without ledger rows.

mod extent;
mod growing_index;
mod name;
mod order;
mod sealed_index;
mod step;

pub(super) use step::Step;

use super::checkpoint::{Checkpoint, StartedSync, SyncedFile};
use super::volume::VolumeFailure;
use crate::cutter::Part;
use base::{Cause, Row, Tally, Timestamp};
use extent::Extent;
use growing_index::{CutEnd, EmptyFile, GrowingIndex};
use index::{self, Growing, Header, IndexWrite, Rows};
use name::FileName;
use order::TimeOrder;
use sealed_index::SealedIndex;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::device::{Content, Device, FileId};
use store::out_of_order;

/// A packet file that is being written or published.
pub(super) struct OpenFile {
    pub data: FileId,
    /// The path of the packet file; a hidden name until publication.
    pub path: PathBuf,
    pub name: FileName,
    pub extent: Extent,
    pub order: TimeOrder,
    pub index: GrowingIndex,
    pub sealed: SealedIndex,
    /// The time at which the file ended. `end` and `ledger` are written into the summary of the sealed index.
    end: Timestamp,
    pub ledger: Rows,
    pub step: Step,
    pub checkpoint: Checkpoint,
    /// The failure of the current step of publication, which is retried.
    pub trouble: Option<VolumeFailure>,
}

impl OpenFile {
    /// Moves a prepared file to its hour directory under a hidden name and creates its growing index. If the file
    /// begins before the end of an earlier file, `marker_root` must be the directory of the interface, in which an
    /// out-of-order marker for the file is then created.
    pub fn place<D: Device>(
        device: &mut D,
        (data, prepared): (FileId, &Path),
        directory: &Path,
        header: &Header,
        queue: Option<u16>,
        suffix: &'static str,
        marker_root: Option<&Path>,
    ) -> io::Result<Self> {
        device.create_directory(directory)?;
        for copy in 0.. {
            let name = FileName { directory: directory.to_owned(), start: header.start, queue, suffix, copy };
            let (path, index_path) = (name.hidden(suffix), name.hidden(index::SUFFIX));
            if device.exists(&path) || device.exists(&name.published(suffix)) {
                continue;
            }
            let file = match device.create(&index_path, Content::Index) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                other => other?,
            };
            let mut bytes = header.encode();
            let growing = Growing::behind(&bytes);
            // The zeros reserve space for the last index entry (`write_losses`), which must be writable on a full
            // volume.
            bytes.resize(growing.begins() as usize, 0);
            let stem = name.stem();
            let noted = marker_root.map_or(Ok(()), |root| out_of_order::write_marker(device, root, &stem, None));
            let placed = noted.and_then(|()| device.put(file, 0, &bytes));
            let placed = placed.and_then(|()| device.rename(prepared, &path));
            if let Err(error) = placed {
                device.close(file);
                let _ = device.remove(&index_path);
                if error.kind() == io::ErrorKind::AlreadyExists {
                    continue;
                }
                return Err(error);
            }
            return Ok(Self {
                data,
                path,
                extent: Extent::EMPTY,
                order: TimeOrder::new(header.start, marker_root.is_some().then_some(stem)),
                index: GrowingIndex::new(file, index_path, growing),
                sealed: SealedIndex::new(name.hidden(&format!("sealed.{}", index::SUFFIX)), header.clone()),
                name,
                end: header.start,
                ledger: Rows::new(),
                step: Step::Open,
                checkpoint: Checkpoint::default(),
                trouble: None,
            });
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Registers a part of a block whose write has begun.
    pub fn expect(&mut self, part: &Part) {
        self.order.expect(part, self.name.start);
    }

    /// True if the packet file has its final name.
    pub fn is_named(&self) -> bool {
        matches!(self.step, Step::SyncDirectory(_) | Step::Done)
    }

    /// Writes an out-of-order marker for the growing file.
    pub fn write_marker<D: Device>(&mut self, device: &mut D, root: &Path) -> io::Result<()> {
        self.order.write_marker(device, root, &self.name)
    }

    /// Writes an out-of-order marker, and registers that the packets of the file are not in order of time.
    pub fn mark_out_of_order<D: Device>(&mut self, device: &mut D, root: &Path) -> io::Result<()> {
        self.order.set_out_of_order();
        self.write_marker(device, root)
    }

    /// True if further parts of blocks may be written to this file.
    pub fn is_open(&self) -> bool {
        matches!(self.step, Step::Open)
    }

    /// True if the sealed index is being written and no failure of the volume delays the write.
    pub fn is_sealing(&self) -> bool {
        matches!(self.step, Step::Seal) && self.trouble.is_none()
    }

    /// The token of the operation in progress for this file, if there is any.
    pub fn token(&self) -> Option<u64> {
        self.step.token()
    }

    /// Registers that a part of a block and the index entry of the block are written.
    pub fn accept(&mut self, part: Part, write: IndexWrite) {
        self.ledger.merge(&part.new_rows);
        self.order.accept(&part);
        if let Some(complete) = self.index.accept(part, write) {
            self.sealed.push(complete);
        }
        self.checkpoint.touch();
    }

    /// Begins the publication of the file, after the last part of its last block.
    pub fn begin_seal(&mut self, len: u64, end: Timestamp) {
        self.extent.set_len(len);
        self.end = end;
        self.step = Step::Truncate;
    }

    /// Ends the file after its last complete packet, because no more bytes can be written, and adds the losses to its
    /// last index entry. If an incomplete packet followed, returns the ledger row that counts this packet. Returns an
    /// error if nothing was written to the file.
    pub fn cut_short(&mut self, lost: &Rows) -> Result<Option<Row>, EmptyFile> {
        let CutEnd { len, last, straddler, rows } = self.index.cut(lost)?;
        if let Some(row) = straddler {
            self.ledger.subtract(row.second, &row.tally);
        }
        self.ledger.merge(&rows);
        self.begin_seal(len, self.end.max(last));
        Ok(straddler)
    }

    /// Writes a chunk of the sealed index under a hidden name; returns true after the last chunk.
    pub fn seal<D: Device>(&mut self, device: &mut D) -> io::Result<bool> {
        if let Some(last) = self.index.take_last() {
            self.sealed.push(last);
        }
        self.sealed.write_chunk(device, self.extent.len(), self.end)
    }

    /// Starts the sync of a checkpoint that is due, with this token; returns true if a sync was started.
    pub fn start_checkpoint<D: Device>(&mut self, device: &mut D, token: u64, now: Duration) -> bool {
        if !self.is_open() {
            return false;
        }
        let (directory, filling) = (&*self.name.directory, self.index.filling());
        let file = SyncedFile { data: self.data, index: self.index.file, directory, filling };
        let started = self.checkpoint.start(device, &file, token, now);
        if matches!(started, Some(StartedSync::Index)) {
            self.index.positions.sync_begins();
        }
        started.is_some()
    }

    /// Processes the completion of a checkpoint's sync.
    pub fn complete_checkpoint<D: Device>(&mut self, device: &mut D, result: io::Result<usize>) {
        if self.checkpoint.complete(device, result) {
            self.index.positions.sync_ends();
        }
    }

    /// Writes the marker with the time range of an out-of-order file, under the name to which the file is renamed next.
    pub fn write_final_marker<D: Device>(&mut self, device: &mut D, root: &Path) -> io::Result<()> {
        self.order.write_final_marker(device, root, &self.name, self.end)
    }

    /// Undoes [`Self::write_final_marker`], because another file already has the name.
    pub fn remove_final_marker<D: Device>(&mut self, device: &mut D, root: &Path) -> io::Result<()> {
        self.order.remove_final_marker(device, root, &self.name, self.end)
    }
}

/// Converts counts of stored packets into counts of packets lost by the disk. Notes count only stored packets, so they
/// are set to zero.
pub(super) fn as_lost(tally: &Tally) -> Tally {
    let mut tally = *tally;
    tally.lost[Cause::Disk as usize] += std::mem::take(&mut tally.stored);
    tally.stored_bytes = 0;
    tally.notes = Default::default();
    tally
}
