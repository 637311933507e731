//! A packet file and its index while they are being written.
//!
//! The growing index on disk is always up to date for queries and recovery. The data for the sealed index stays in
//! memory: at most 1 % of the size of the packet file, and the encoded ledger rows (outcome counters of one second
//! each), about 5 bytes for each second with packets. The ledger rows are the only memory that grows with the duration
//! of a recording; each new file starts without ledger rows.

use super::checkpoint::Checkpoint;
use super::seal::Step;
use super::volume::VolumeFailure;
use crate::cutter::{Cut, Part};
use base::{Cause, Row, Tally, Timestamp, TimestampQuality};
use index::{self, Builder, Entry, Growing, Header, IndexWrite, Rows, Sealing, Sets, SubBlocks};
use std::io;
use std::path::{Path, PathBuf};
use store::device::{Content, Device, FileId};
use store::names;
use store::out_of_order::{self, Span};

/// A packet file that is being written or published.
pub(super) struct OpenFile {
    pub data: FileId,
    pub index: FileId,
    pub hidden_data: PathBuf,
    /// Path of the growing index.
    pub hidden_index: PathBuf,
    /// The file of the sealed index; `None` until it is created. `sealed_path` is its path, a hidden name until
    /// publication.
    pub sealed: Option<FileId>,
    pub sealed_path: PathBuf,
    pub directory: PathBuf,
    pub start: Timestamp,
    pub queue: Option<u16>,
    pub suffix: &'static str,
    /// Copy number in the file name; more than 0 if other files of the queue have the same start time.
    pub copy: u32,
    /// The latest timestamp in the file, including the packets whose write is in progress; the start time of the file
    /// while it has no packets.
    pub latest: Timestamp,
    /// True if an out-of-order packet was written to the file, or its write is in progress.
    will_be_out_of_order: bool,
    /// Earliest and latest timestamp of the written packets.
    stamps: Option<(Timestamp, Timestamp)>,
    /// The file name for which an out-of-order marker was written; `None` without a marker.
    pub has_marker: Option<String>,
    /// True if a packet is earlier than a preceding packet in the file, or than the start of the file.
    pub is_out_of_order: bool,
    /// Write position in the growing index.
    pub growing: Growing,
    /// End of the bytes written so far; the checksums of the growing index cover these bytes.
    written: u64,
    /// True if the file was truncated to its final length, which is in the sealed index, but not in the growing index.
    pub is_shortened: bool,
    /// Final length of the packet file. `len`, `end` and `ledger` are written into the summary of the sealed index.
    pub len: u64,
    pub end: Timestamp,
    pub ledger: Rows,
    /// The builder of the sealed index, with all blocks except the last one; `None` after sealing has begun.
    builder: Option<Builder>,
    sealing: Option<IndexChunks>,
    /// The last part of a block that the volume has written.
    last: Option<Accepted>,
    pub step: Step,
    pub checkpoint: Checkpoint,
    /// The failure of the current step of publication, which is retried.
    pub trouble: Option<VolumeFailure>,
}

struct Accepted {
    entry: Entry,
    /// True if this part of a block is the last part of the block.
    last: bool,
    cut: Cut,
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
            let stem = names::stem(header.start, queue, copy);
            let hidden_data = directory.join(names::hidden(&stem, suffix));
            let hidden_index = directory.join(names::hidden(&stem, index::SUFFIX));
            if device.exists(&hidden_data) || device.exists(&directory.join(format!("{stem}.{suffix}"))) {
                continue;
            }
            let file = match device.create(&hidden_index, Content::Index) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                other => other?,
            };
            let mut bytes = header.encode();
            let growing = Growing::behind(&bytes);
            // The zeros reserve space for the last index entry (`write_losses`), which must be writable on a full
            // volume.
            bytes.resize(growing.begins() as usize, 0);
            let noted = marker_root.map_or(Ok(()), |root| out_of_order::write_marker(device, root, &stem, None));
            let placed = noted.and_then(|()| device.put(file, 0, &bytes));
            let placed = placed.and_then(|()| device.rename(prepared, &hidden_data));
            if let Err(error) = placed {
                device.close(file);
                let _ = device.remove(&hidden_index);
                if error.kind() == io::ErrorKind::AlreadyExists {
                    continue;
                }
                return Err(error);
            }
            return Ok(Self {
                data,
                index: file,
                hidden_data,
                hidden_index,
                sealed: None,
                sealed_path: directory.join(names::hidden(&stem, &format!("sealed.{}", index::SUFFIX))),
                directory: directory.to_owned(),
                start: header.start,
                queue,
                suffix,
                copy,
                latest: header.start,
                will_be_out_of_order: false,
                stamps: None,
                has_marker: marker_root.is_some().then_some(stem),
                is_out_of_order: false,
                growing,
                written: 0,
                is_shortened: false,
                len: 0,
                end: header.start,
                ledger: Rows::new(),
                builder: Some(Builder::new(header.clone())),
                sealing: None,
                last: None,
                step: Step::Open,
                checkpoint: Checkpoint::default(),
                trouble: None,
            });
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Registers a part of a block whose write has begun.
    pub fn expect(&mut self, part: &Part) {
        self.will_be_out_of_order |= part.is_out_of_order(self.start);
        if part.entry.first_record.is_some() {
            self.latest = self.latest.max(part.entry.last);
        }
    }

    /// True if the file has no out-of-order marker and needs none for the packets whose write has begun.
    pub fn is_in_order(&self) -> bool {
        self.has_marker.is_none() && !self.will_be_out_of_order
    }

    /// True if the packet file has its final name.
    pub fn is_named(&self) -> bool {
        matches!(self.step, Step::SyncDirectory(_) | Step::Done)
    }

    /// Writes an out-of-order marker for the growing file.
    pub fn write_marker<D: Device>(&mut self, device: &mut D, root: &Path) -> io::Result<()> {
        if self.has_marker.is_none() {
            let stem = names::stem(self.start, self.queue, self.copy);
            out_of_order::write_marker(device, root, &stem, None)?;
            self.has_marker = Some(stem);
        }
        Ok(())
    }

    /// Writes an out-of-order marker, and registers that the packets of the file are not in order of time.
    pub fn mark_out_of_order<D: Device>(&mut self, device: &mut D, root: &Path) -> io::Result<()> {
        self.is_out_of_order = true;
        self.write_marker(device, root)
    }

    /// The number of the block whose index entry is not final; `None` if all entries are final.
    pub fn filling(&self) -> Option<u32> {
        self.last.as_ref().filter(|a| !a.last).map(|a| a.entry.block)
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

    /// Registers that the bytes up to offset `end` are written; returns the number of bytes by which the file grew.
    pub fn grow(&mut self, end: u64) -> u64 {
        let more = end.saturating_sub(self.written);
        self.written += more;
        more
    }

    /// Registers that a part of a block and the index entry of the block are written.
    pub fn accept(&mut self, part: Part, write: IndexWrite) {
        self.growing.entry_written(write);
        self.ledger.merge(&part.new_rows);
        let Entry { first, last, first_record, .. } = part.entry;
        if first_record.is_some() {
            self.stamps = Some(self.stamps.map_or((first, last), |(a, b)| (a.min(first), b.max(last))));
        }
        if self.last.as_ref().is_some_and(|l| l.last) {
            self.keep_last();
        }
        let mut rows = self.last.take().map(|before| before.entry.rows).unwrap_or_default();
        rows.merge(&part.new_rows);
        self.last = Some(Accepted { entry: Entry { rows, ..part.entry }, last: part.last, cut: part.cut });
    }

    fn keep_last(&mut self) {
        if let (Some(builder), Some(last)) = (&mut self.builder, self.last.take()) {
            builder.push(last.entry);
        }
    }

    /// Begins the publication of the file, after the last part of its last block.
    pub fn begin_seal(&mut self, len: u64, end: Timestamp) {
        (self.len, self.end) = (len, end);
        self.step = Step::Truncate;
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
            self.growing.write_entry(&next, lost, false)
        } else {
            self.growing.write_entry(entry, lost, false)
        };
        if device.put(self.index, write.at, &write.bytes).is_ok() {
            self.growing.entry_written(write);
        }
    }

    /// The length to which the file may be truncated before the sealed index is synced. The file must keep all bytes
    /// that the growing index describes, because they are needed if no sealed index can be written.
    pub fn indexed_len(&self) -> u64 {
        self.len.max(self.written)
    }

    /// True if the file is longer than its length in the sealed index.
    pub fn is_long(&self) -> bool {
        self.len < self.written && !self.is_shortened
    }

    /// Ends the file after its last complete packet, because no more bytes can be written, and adds the losses to its
    /// last index entry. If an incomplete packet followed, returns the ledger row that counts this packet. Returns an
    /// error if nothing was written to the file.
    pub fn cut_short(&mut self, lost: &Rows) -> Result<Option<Row>, EmptyFile> {
        let Accepted { entry, cut, .. } = self.last.as_mut().ok_or(EmptyFile)?;
        let straddler = cut.straddler;
        let mut rows = lost.clone();
        if let Some(row) = straddler {
            // The incomplete packet was counted as stored in the block in which it begins, but the truncation removes
            // its bytes.
            entry.rows.subtract(row.second, &row.tally);
            self.ledger.subtract(row.second, &row.tally);
            rows.add(row.second, &as_lost(&row.tally));
        }
        entry.rows.merge(&rows);
        (entry.bytes, entry.crc) = (cut.bytes, cut.crc);
        entry.sub_blocks.cut(cut.bytes);
        // Verification compares the timestamps in the index entry with the timestamps of the packets in the file, and
        // queries use the index entry. So the index entry must not include the timestamp of the removed packet.
        (entry.first, entry.last) = cut.stamps;
        let len = u64::from(entry.block) * ring::BLOCK + u64::from(entry.bytes);
        let end = self.end.max(entry.last);
        self.ledger.merge(&rows);
        self.begin_seal(len, end);
        Ok(straddler)
    }

    /// Writes a chunk of the sealed index under a hidden name; returns true after the last chunk. If the write of a
    /// chunk fails, the next call repeats it.
    pub fn seal<D: Device>(&mut self, device: &mut D) -> io::Result<bool> {
        self.keep_last();
        if let Some(builder) = self.builder.take() {
            self.sealing = Some(IndexChunks { rest: builder.seal(self.len, self.end, &[])?, piece: Vec::new(), at: 0 });
        }
        let file = match self.sealed {
            Some(file) => file,
            None => match device.create(&self.sealed_path, Content::Index) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                    // This file was left by a recorder that was killed while it sealed a file of the same name.
                    device.remove(&self.sealed_path)?;
                    device.create(&self.sealed_path, Content::Index)?
                }
                other => other?,
            },
        };
        self.sealed = Some(file);
        let Some(pieces) = &mut self.sealing else { return Ok(true) };
        device.put(file, pieces.at, &pieces.piece)?;
        pieces.at += pieces.piece.len() as u64;
        match pieces.rest.next() {
            Some(piece) => pieces.piece = piece,
            None => self.sealing = None,
        }
        Ok(self.sealing.is_none())
    }

    /// Writes the marker with the time range of an out-of-order file, under the name to which the file is renamed next.
    pub fn write_final_marker<D: Device>(&mut self, device: &mut D, root: &Path) -> io::Result<()> {
        let Some(before) = &self.has_marker else { return Ok(()) };
        let stem = names::stem(self.start, self.queue, self.copy);
        out_of_order::write_marker(device, root, &stem, self.span())?;
        if *before != stem {
            out_of_order::remove_marker(device, root, before, None)?;
        }
        self.has_marker = Some(stem);
        Ok(())
    }

    /// Undoes [`Self::write_final_marker`], because another file already has the name.
    pub fn remove_final_marker<D: Device>(&mut self, device: &mut D, root: &Path) -> io::Result<()> {
        match &self.has_marker {
            Some(stem) => out_of_order::remove_marker(device, root, stem, self.span()),
            None => Ok(()),
        }
    }

    /// The time range of the file's packets and ledger rows.
    fn span(&self) -> Option<Span> {
        let (first, last) = self.stamps.unwrap_or((self.start, self.end));
        Some(Span { first: first.min(self.start), last: last.max(self.end), is_out_of_order: self.is_out_of_order })
    }

    /// The path to which this file, or its index, is renamed at publication.
    pub fn published(&self, ending: &str) -> PathBuf {
        self.directory.join(format!("{}.{ending}", names::stem(self.start, self.queue, self.copy)))
    }
}

/// The error of a file to which nothing was written, so that it cannot be published.
#[derive(Debug)]
pub(super) struct EmptyFile;

/// A sealed index that is being written in chunks.
struct IndexChunks {
    rest: Sealing,
    /// The next chunk to write; `at` is its offset in the index.
    piece: Vec<u8>,
    at: u64,
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
