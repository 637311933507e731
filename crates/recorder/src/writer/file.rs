//! A packet file and its index while they are written.

use super::event::Trouble;
use super::seal::Step;
use crate::cutter::{Cut, Part};
use base::{Cause, Row, Tally, Timestamp};
use index::{self, Entry, Footer, Header, Rows};
use std::io;
use std::path::{Path, PathBuf};
use store::device::{Content, Device, FileId};
use store::names;

/// See the module.
pub(super) struct OpenFile {
    pub data: FileId,
    pub index: FileId,
    pub hidden_data: PathBuf,
    pub hidden_index: PathBuf,
    pub folder: PathBuf,
    pub start: Timestamp,
    pub queue: Option<u16>,
    pub suffix: &'static str,
    /// Number behind the name, where others had it.
    pub copy: u32,
    /// Where the next entry of the index goes.
    pub index_at: u64,
    /// Where the bytes written so far end.
    written: u64,
    /// True length, and the footer's other numbers.
    pub len: u64,
    pub end: Timestamp,
    pub ledger: Rows,
    entries: u32,
    /// The part accepted last.
    last: Option<Accepted>,
    pub step: Step,
    /// The step was refused, and is tried again.
    pub trouble: Option<Trouble>,
}

struct Accepted {
    entry: Entry,
    /// Where it lies in the index.
    at: u64,
    cut: Cut,
}

impl OpenFile {
    /// Gives a prepared file its place in its hour, under a hidden name, and an index beside it.
    pub fn place<D: Device>(
        device: &mut D,
        (data, prepared): (FileId, &Path),
        folder: &Path,
        header: &Header,
        queue: Option<u16>,
        suffix: &'static str,
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
            let bytes = header.encode();
            let placed = device.put(file, 0, &bytes).and_then(|()| device.rename(prepared, &hidden_data));
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
                folder: folder.to_owned(),
                start: header.start,
                queue,
                suffix,
                copy,
                index_at: bytes.len() as u64,
                written: 0,
                len: 0,
                end: header.start,
                ledger: Rows::new(),
                entries: 0,
                last: None,
                step: Step::Open,
                trouble: None,
            });
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Whether more may come.
    pub fn is_open(&self) -> bool {
        matches!(self.step, Step::Open)
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

    /// A part and its entry (of `encoded` bytes) are written.
    pub fn accept(&mut self, part: &Part, encoded: u64) {
        self.ledger.merge(&part.news);
        self.last = Some(Accepted { entry: part.entry.clone(), at: self.index_at, cut: part.cut });
        if part.last {
            self.index_at += encoded;
            self.entries += 1;
        }
    }

    /// Nothing more comes: the file is to be published.
    pub fn begin_seal(&mut self, len: u64, end: Timestamp) {
        (self.len, self.end) = (len, end);
        self.step = Step::Footer;
    }

    /// Nothing more can be written: ends the file behind its last whole packet and tells in its last entry what was lost.
    /// `None` if nothing was ever written to it.
    pub fn cut_short(&mut self, lost: &Rows) -> Option<CutShort> {
        let Accepted { mut entry, at, cut } = self.last.take()?;
        let mut rows = lost.clone();
        if let Some(row) = cut.straddler {
            // Counted as stored when the block in which it begins was; what was stored of it is cut off.
            entry.rows.subtract(row.second, &row.tally);
            self.ledger.subtract(row.second, &row.tally);
            rows.add(row.second, &as_lost(&row.tally));
        }
        entry.rows.merge(&rows);
        (entry.bytes, entry.crc) = (cut.bytes, cut.crc);
        self.len = u64::from(entry.block) * ring::BLOCK + u64::from(entry.bytes);
        self.entries = entry.block + 1;
        self.index_at = at;
        self.ledger.merge(&rows);
        self.end = self.end.max(entry.last);
        self.step = Step::Footer;
        Some(CutShort { entry: entry.encode(), straddler: cut.straddler })
    }

    /// The footer.
    pub fn footer(&self) -> Vec<u8> {
        Footer { bytes: self.len, end: self.end, entries: self.entries, rows: self.ledger.clone() }.encode()
    }

    /// Where a file of this one will be published.
    pub fn published(&self, ending: &str) -> PathBuf {
        self.folder.join(format!("{}.{ending}", names::stem(self.start, self.queue, self.copy)))
    }
}

/// How a file was cut short.
pub(super) struct CutShort {
    /// The last entry, to be written again at [`OpenFile::index_at`].
    pub entry: Vec<u8>,
    /// The packet that is not whole.
    pub straddler: Option<Row>,
}

/// What was to be stored, as lost. Remarks are made of stored packets only.
pub(super) fn as_lost(tally: &Tally) -> Tally {
    let mut tally = *tally;
    tally.lost[Cause::Disk as usize] += std::mem::take(&mut tally.stored);
    tally.stored_bytes = 0;
    tally.notes = Default::default();
    tally
}
