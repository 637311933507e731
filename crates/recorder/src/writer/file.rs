//! A packet file and its index while they are written.
//!
//! Its growing index is on disk at any moment, for those who ask and for recovery. What the sealed one is made of is kept in
//! memory beside it: at most 1 % of the packet file.

use super::checkpoint::Checkpoint;
use super::event::VolumeFailure;
use super::seal::Step;
use crate::cutter::{Cut, Part};
use base::{Cause, Row, Tally, Timestamp};
use index::{self, Builder, Entry, Growing, Header, IndexWrite, Rows, Sealing, Sets, SubBlocks};
use std::io;
use std::path::{Path, PathBuf};
use store::device::{Content, Device, FileId};
use store::names;
use store::out_of_order::{self, Span};

/// See the module.
pub(super) struct OpenFile {
    pub data: FileId,
    pub index: FileId,
    pub hidden_data: PathBuf,
    /// The growing index.
    pub hidden_index: PathBuf,
    /// The sealed index once there is one, and its name, hidden at first.
    pub sealed: Option<FileId>,
    pub sealed_path: PathBuf,
    pub folder: PathBuf,
    pub start: Timestamp,
    pub queue: Option<u16>,
    pub suffix: &'static str,
    /// Number behind the name, where others had it.
    pub copy: u32,
    /// The latest stamp in it, of packets on their way included; its beginning before there are any.
    pub latest: Timestamp,
    /// A packet on its way is not in order.
    is_straying: bool,
    /// Earliest and latest stamp so far.
    stamps: Option<(Timestamp, Timestamp)>,
    /// Under what name it was noted that it is not in order.
    pub has_marker: Option<String>,
    /// Whether its packets are mixed.
    pub is_out_of_order: bool,
    /// Where the next entry of the index goes.
    pub growing: Growing,
    /// Where the bytes written so far end: so far the growing index vouches.
    written: u64,
    /// It has its true length, which the growing index does not know: only the sealed one vouches for its end.
    pub is_shortened: bool,
    /// True length, and the footer's other numbers.
    pub len: u64,
    pub end: Timestamp,
    pub ledger: Rows,
    /// The blocks before the one accepted last, until it is sealed.
    builder: Option<Builder>,
    sealing: Option<IndexChunks>,
    /// The part accepted last.
    last: Option<Accepted>,
    pub step: Step,
    pub checkpoint: Checkpoint,
    /// The step was refused, and is tried again.
    pub trouble: Option<VolumeFailure>,
}

struct Accepted {
    entry: Entry,
    /// Nothing more comes for its block.
    last: bool,
    cut: Cut,
}

impl OpenFile {
    /// Gives a prepared file its place in its hour, under a hidden name, and an index beside it; and a note in the folder of
    /// the interface that is given, of a file that begins before one before it ends.
    pub fn place<D: Device>(
        device: &mut D,
        (data, prepared): (FileId, &Path),
        folder: &Path,
        header: &Header,
        queue: Option<u16>,
        suffix: &'static str,
        note: Option<&Path>,
    ) -> io::Result<Self> {
        device.create_folder(folder)?;
        for copy in 0.. {
            let stem = names::stem(header.start, queue, copy);
            let hidden_data = folder.join(names::hidden(&stem, suffix));
            let hidden_index = folder.join(names::hidden(&stem, index::SUFFIX));
            if device.exists(&hidden_data) || device.exists(&folder.join(format!("{stem}.{suffix}"))) {
                continue;
            }
            let file = match device.create(&hidden_index, Content::Index) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                other => other?,
            };
            let mut bytes = header.encode();
            let growing = Growing::behind(&bytes);
            // With room for what will have to be said when the volume is full.
            bytes.resize(growing.begins() as usize, 0);
            let noted = note.map_or(Ok(()), |root| out_of_order::write_marker(device, root, &stem, None));
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
                sealed_path: folder.join(names::hidden(&stem, &format!("sealed.{}", index::SUFFIX))),
                folder: folder.to_owned(),
                start: header.start,
                queue,
                suffix,
                copy,
                latest: header.start,
                is_straying: false,
                stamps: None,
                has_marker: note.is_some().then_some(stem),
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

    /// A part is on its way to it.
    pub fn expect(&mut self, part: &Part) {
        self.is_straying |= part.is_out_of_order(self.start);
        if part.entry.first_record.is_some() {
            self.latest = self.latest.max(part.entry.last);
        }
    }

    /// Whether it has no note, and no packet on its way will make one necessary.
    pub fn is_in_order(&self) -> bool {
        self.has_marker.is_none() && !self.is_straying
    }

    /// Whether its packets have their name.
    pub fn is_named(&self) -> bool {
        matches!(self.step, Step::SyncFolder(_) | Step::Done)
    }

    /// Notes that it is not in order, while it is written.
    pub fn write_marker<D: Device>(&mut self, device: &mut D, root: &Path) -> io::Result<()> {
        if self.has_marker.is_none() {
            let stem = names::stem(self.start, self.queue, self.copy);
            out_of_order::write_marker(device, root, &stem, None)?;
            self.has_marker = Some(stem);
        }
        Ok(())
    }

    /// The same, and that its packets are mixed.
    pub fn mix<D: Device>(&mut self, device: &mut D, root: &Path) -> io::Result<()> {
        self.is_out_of_order = true;
        self.write_marker(device, root)
    }

    /// The block that is told of in part.
    pub fn filling(&self) -> Option<u32> {
        self.last.as_ref().filter(|a| !a.last).map(|a| a.entry.block)
    }

    /// Whether more may come.
    pub fn is_open(&self) -> bool {
        matches!(self.step, Step::Open)
    }

    /// Whether its index is being sealed and nothing keeps it from going on.
    pub fn is_sealing(&self) -> bool {
        matches!(self.step, Step::Seal) && self.trouble.is_none()
    }

    /// The operation under way for it, if there is one.
    pub fn token(&self) -> Option<u64> {
        self.step.token()
    }

    /// Bytes are written up to `end`; by how many the file is longer now.
    pub fn grow(&mut self, end: u64) -> u64 {
        let more = end.saturating_sub(self.written);
        self.written += more;
        more
    }

    /// A part and what the index says of it are written.
    pub fn accept(&mut self, part: Part, words: IndexWrite) {
        self.growing.entry_written(words);
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

    /// Nothing more comes: the file is to be published.
    pub fn begin_seal(&mut self, len: u64, end: Timestamp) {
        (self.len, self.end) = (len, end);
        self.step = Step::Truncate;
    }

    /// Says in the growing index what was lost behind the last part, so that it is in the ledger although no sealed index may ever
    /// be written. It goes where room was taken when the file was made; a volume that refuses even that is not waited for.
    pub fn say_lost<D: Device>(&mut self, device: &mut D, lost: &Rows) {
        let Some(Accepted { entry, last, .. }) = &self.last else { return };
        let words = if *last {
            let block = entry.block + 1;
            let (first, last) = (Timestamp::ZERO, Timestamp::ZERO);
            let (parts, rows, sets) = (SubBlocks::NONE, Rows::new(), Sets::NONE);
            let next =
                Entry { block, bytes: 0, first_record: None, crc: 0, sub_blocks: parts, first, last, rows, sets };
            self.growing.write_entry(&next, lost, false)
        } else {
            self.growing.write_entry(entry, lost, false)
        };
        if device.put(self.index, words.at, &words.bytes).is_ok() {
            self.growing.entry_written(words);
        }
    }

    /// Its length until a sealed index vouches for its end: what the growing index promises is still there if none can be
    /// written.
    pub fn indexed_len(&self) -> u64 {
        self.len.max(self.written)
    }

    /// Whether it is longer than the sealed index says.
    pub fn is_long(&self) -> bool {
        self.len < self.written && !self.is_shortened
    }

    /// Nothing more can be written: ends the file behind its last whole packet and tells in its last entry what was lost.
    /// The packet that is not whole, if there is one, is what comes back; `Err` if nothing was ever written to the file.
    pub fn cut_short(&mut self, lost: &Rows) -> Result<Option<Row>, EmptyFile> {
        let Accepted { entry, cut, .. } = self.last.as_mut().ok_or(EmptyFile)?;
        let straddler = cut.straddler;
        let mut rows = lost.clone();
        if let Some(row) = straddler {
            // Counted as stored when the block in which it begins was; what was stored of it is cut off.
            entry.rows.subtract(row.second, &row.tally);
            self.ledger.subtract(row.second, &row.tally);
            rows.add(row.second, &as_lost(&row.tally));
        }
        entry.rows.merge(&rows);
        (entry.bytes, entry.crc) = (cut.bytes, cut.crc);
        entry.sub_blocks.cut(cut.bytes);
        // Verification compares them with the file, and a query goes by them: a packet that is cut off gives no stamp.
        (entry.first, entry.last) = cut.stamps;
        let len = u64::from(entry.block) * ring::BLOCK + u64::from(entry.bytes);
        let end = self.end.max(entry.last);
        self.ledger.merge(&rows);
        self.begin_seal(len, end);
        Ok(straddler)
    }

    /// Writes a piece of the sealed index, under a hidden name; true when that was the last. One that failed is written
    /// again at the next call.
    pub fn seal<D: Device>(&mut self, device: &mut D) -> io::Result<bool> {
        self.keep_last();
        if let Some(builder) = self.builder.take() {
            self.sealing = Some(IndexChunks { rest: builder.seal(self.len, self.end, &[])?, piece: Vec::new(), at: 0 });
        }
        let file = match self.sealed {
            Some(file) => file,
            None => match device.create(&self.sealed_path, Content::Index) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                    // Of a recorder that died while it sealed a file of this name.
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

    /// Notes where its packets are in time, if they are not in order, under the name that it is about to get.
    pub fn note<D: Device>(&mut self, device: &mut D, root: &Path) -> io::Result<()> {
        let Some(before) = &self.has_marker else { return Ok(()) };
        let stem = names::stem(self.start, self.queue, self.copy);
        out_of_order::write_marker(device, root, &stem, self.span())?;
        if *before != stem {
            out_of_order::take_back(device, root, before, None)?;
        }
        self.has_marker = Some(stem);
        Ok(())
    }

    /// Takes that back: another file has the name.
    pub fn take_back<D: Device>(&mut self, device: &mut D, root: &Path) -> io::Result<()> {
        match &self.has_marker {
            Some(stem) => out_of_order::take_back(device, root, stem, self.span()),
            None => Ok(()),
        }
    }

    /// From when to when it has packets, or something to tell of what became of others.
    fn span(&self) -> Option<Span> {
        let (first, last) = self.stamps.unwrap_or((self.start, self.end));
        Some(Span { first: first.min(self.start), last: last.max(self.end), is_out_of_order: self.is_out_of_order })
    }

    /// Where a file of this one will be published.
    pub fn published(&self, ending: &str) -> PathBuf {
        self.folder.join(format!("{}.{ending}", names::stem(self.start, self.queue, self.copy)))
    }
}

/// A file that is empty of packets has nothing to tell.
#[derive(Debug)]
pub(super) struct EmptyFile;

/// A sealed index on its way to disk.
struct IndexChunks {
    rest: Sealing,
    /// The piece to be written, and where.
    piece: Vec<u8>,
    at: u64,
}

/// What was to be stored, as lost. Remarks are made of stored packets only.
pub(super) fn as_lost(tally: &Tally) -> Tally {
    let mut tally = *tally;
    tally.lost[Cause::Disk as usize] += std::mem::take(&mut tally.stored);
    tally.stored_bytes = 0;
    tally.notes = Default::default();
    tally
}
