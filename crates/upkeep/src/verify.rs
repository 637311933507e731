//! Whether what is stored is as it was written: the chain of records, their order, the checksum of each block, counts and
//! stamps against the index, key sets against the packets, the ledger against the content, and what lies between the
//! files. Nothing is ever written.
//!
//! Files that a recorder has open are looked at up to what their index vouches for, so this may run beside it. Captures of
//! others are read as far as their format says what is right.

mod content;
mod finding;
mod folder;
mod row_files;

pub use finding::{Finding, FindingKind, Level};
pub(crate) use row_files::RowFile;

use crate::packet_file::{BLOCK, Layout, VerifiedIndex};
use crate::recovery::{self, FileNames};
use base::{Tally, Timestamp};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use store::device::Device;

/// Files that are not of the store are told by name up to so many.
const MAX_FOREIGN: usize = 10;

/// What was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Packet files.
    pub files: u64,
    /// Of these, files that a recorder has open.
    pub open: u64,
    /// Packets read, or as the indexes say where content was not read.
    pub packets: u64,
    /// Bytes of packet files.
    pub bytes: u64,
    /// Files of flow records and one-second rows, and journals of them that grow.
    pub row_files: u64,
    /// What the ledgers of the indexes say together.
    pub ledger: Tally,
    /// Findings that say that something is wrong.
    pub damage: u64,
    /// Findings that are worth knowing.
    pub notes: u64,
    /// Files and folders that could not be read, or are nothing that can be judged.
    pub unreadable: u64,
}

/// See the module.
pub struct Verify<D, F> {
    device: D,
    /// Indexes, lengths and names only.
    quick: bool,
    tell: F,
    totals: Totals,
    /// There was something in this folder that a recorder made.
    is_own: bool,
    /// Files below what was named that are not of the store.
    foreign: usize,
    judge: Option<Box<JournalCheck>>,
    read: Option<Box<Read>>,
    count: Option<Box<Count>>,
    /// By the folder of an interface.
    stored: BTreeMap<PathBuf, Stored>,
}

/// What compares the packets that are stored on an interface, second by second and in order, with its one-second rows:
/// what is missing from the rows, in words, and whether that is certain. It is also told the seconds of each recording
/// that has packets.
type Count = dyn FnMut(&Path, &[(u64, u64)], &[Vec<u64>]) -> io::Result<Vec<(bool, String)>>;

/// The packets of an interface, as the indexes say.
#[derive(Default)]
struct Stored {
    /// Seconds, and packets that were stored in each.
    seconds: Vec<(u64, u64)>,
    /// The seconds of files that follow each other in the stream of one recorder.
    recordings: Vec<Vec<u64>>,
    /// By queue and position in the stream: the recordings that go on there.
    open: BTreeMap<(u16, u64), Vec<usize>>,
}

impl Stored {
    fn add(&mut self, file: &FileInterval, seconds: Vec<(u64, u64)>) {
        let goes_on = file.stretch.and_then(|(begin, _)| self.open.get_mut(&(file.queue, begin))?.pop());
        let at = goes_on.unwrap_or(self.recordings.len());
        if at == self.recordings.len() {
            self.recordings.push(Vec::new());
        }
        if let Some((_, end)) = file.stretch {
            self.open.entry((file.queue, end)).or_default().push(at);
        }
        self.recordings[at].extend(seconds.iter().map(|(second, _)| second));
        self.seconds.extend(seconds);
    }
}

/// What says of a sealed file of flow records or rows what is wrong with it, if anything is.
type Read = dyn FnMut(&Path) -> io::Result<Option<String>>;

/// What says of a journal of flow records or rows what is wrong with it, and at which byte if that is known.
type JournalCheck = dyn FnMut(&Path) -> io::Result<Option<(Option<u64>, String)>>;

impl<D: Device, F: FnMut(&Finding, &Totals)> Verify<D, F> {
    /// Tells each finding as it is made. `quick` leaves the packets unread.
    pub fn new(device: D, quick: bool, tell: F) -> Self {
        Self {
            device,
            quick,
            tell,
            totals: Totals::default(),
            is_own: false,
            foreign: 0,
            judge: None,
            read: None,
            count: None,
            stored: BTreeMap::new(),
        }
    }

    /// Has journals of flow records and rows judged by the room that writes them; nothing is said of their content otherwise.
    #[must_use]
    pub fn checking_journals(
        self,
        judge: impl FnMut(&Path) -> io::Result<Option<(Option<u64>, String)>> + 'static,
    ) -> Self {
        Self { judge: Some(Box::new(judge)), ..self }
    }

    /// Has sealed files of flow records and rows read and compared with their digests by the room that writes them,
    /// unless all of this is to be quick.
    #[must_use]
    pub fn reading(self, read: impl FnMut(&Path) -> io::Result<Option<String>> + 'static) -> Self {
        let read: Option<Box<Read>> = if self.quick { None } else { Some(Box::new(read)) };
        Self { read, ..self }
    }

    /// Has the packets of each interface compared with its one-second rows by the room that writes those.
    #[must_use]
    pub fn counting(
        self,
        count: impl FnMut(&Path, &[(u64, u64)], &[Vec<u64>]) -> io::Result<Vec<(bool, String)>> + 'static,
    ) -> Self {
        Self { count: Some(Box::new(count)), ..self }
    }

    /// What was looked at so far.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Looks at a store, any folder below it, or a capture file.
    pub fn path(&mut self, path: &Path) {
        if self.device.list(path).is_err() {
            return self.file(path);
        }
        let (files, unreadable) = (self.totals.files, self.totals.unreadable);
        (self.is_own, self.foreign) = (false, 0);
        self.stored.clear();
        self.folder(path);
        self.rows();
        if self.foreign > MAX_FOREIGN {
            let text = format!("{} more files are none of the store; left alone", self.foreign - MAX_FOREIGN);
            self.find(path, FindingKind::Foreign, None, text);
        }
        // A store that is named by mistake would be found in order, for ever.
        if !self.is_own && (self.totals.files, self.totals.unreadable) == (files, unreadable) {
            self.find(path, FindingKind::NoCapture, None, "no packet file lies in it");
        }
    }

    /// Whether the rows have the packets that the indexes have.
    fn rows(&mut self) {
        for (interface, Stored { mut seconds, recordings, .. }) in std::mem::take(&mut self.stored) {
            seconds.sort_unstable();
            seconds.dedup_by(|next, sum| {
                let is_same = next.0 == sum.0;
                sum.1 += if is_same { next.1 } else { 0 };
                is_same
            });
            match self.count.as_mut().map_or(Ok(Vec::new()), |count| count(&interface, &seconds, &recordings)) {
                Err(e) => self.unreadable(&interface, &e),
                Ok(lacking) => {
                    for (is_certain, what) in lacking {
                        let kind = if is_certain { FindingKind::Rows } else { FindingKind::NoRows };
                        self.find(&interface, kind, None, what);
                    }
                }
            }
        }
    }

    fn find(&mut self, path: &Path, kind: FindingKind, byte: Option<u64>, text: impl Into<String>) {
        self.report(Finding { path: path.to_owned(), kind, byte, text: text.into(), advice: "" });
    }

    fn report(&mut self, finding: Finding) {
        match finding.kind.level() {
            Level::Damage => self.totals.damage += 1,
            Level::Note => self.totals.notes += 1,
            Level::Unreadable => self.totals.unreadable += 1,
        }
        (self.tell)(&finding, &self.totals);
    }

    /// What lies in a store and is none of it. The first of them are told by name: a folder that is no store has any number.
    fn foreign(&mut self, path: &Path, text: &str) {
        self.foreign += 1;
        if self.foreign <= MAX_FOREIGN {
            self.find(path, FindingKind::Foreign, None, text);
        }
    }

    fn unreadable(&mut self, path: &Path, error: &io::Error) {
        // An error that is not the system's says itself what is wrong.
        let advice = if error.raw_os_error().is_some() { sys::advice::to_read(error) } else { "" };
        self.report(Finding {
            path: path.to_owned(),
            kind: FindingKind::Unreadable,
            byte: None,
            text: error.to_string(),
            advice,
        });
    }

    /// One packet file by itself, with the index beside it.
    fn file(&mut self, path: &Path) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if let Some((grain, holds)) = RowFile::named(&name)
            && self.device.exists(path)
            && let Ok(path) = std::path::absolute(path)
        {
            return self.row_file(&path, grain, holds);
        }
        let index = match (FileNames::hidden(&name), FileNames::published(&name)) {
            (Some(called), _) => Some(called.hidden_index()),
            (_, Some(called)) => Some(called.index()),
            _ => None,
        };
        let open = FileNames::hidden(&name).is_some();
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let _hold = self.device.hold(folder);
        let beside = index.map(|index| path.with_file_name(index)).filter(|index| self.device.exists(index));
        let foreign = path.with_file_name(format!("{name}.{}", store::names::INDEX));
        let index = beside.or_else(|| self.device.exists(&foreign).then_some(foreign));
        if index.is_none() && !open && self.is_no_capture(path) {
            return;
        }
        self.check(path, index.as_deref(), open);
    }

    /// Says so if a file that was named is not one at all. What cannot be opened is told of where it is checked.
    fn is_no_capture(&mut self, path: &Path) -> bool {
        let Ok(file) = self.device.open(path) else { return false };
        let mut head = [0; 32];
        let read = self.device.read(file, 0, &mut head);
        self.device.close(file);
        let is_raw = path.extension().is_some_and(|e| e == "raw");
        let text = match read {
            Ok(0) => "is empty",
            Ok(n) if !is_raw && matches!(pcap::Reader::open(&head[..n]), Err(pcap::Error::NotACapture { .. })) => {
                "not a capture: it begins as neither pcap nor pcapng does"
            }
            _ => return false,
        };
        self.find(path, FindingKind::NoCapture, None, text);
        true
    }

    /// Checks a packet file against its index; what the index says of the file as a whole.
    fn check(&mut self, path: &Path, index: Option<&Path>, open: bool) -> Option<FileInterval> {
        let vouched = match index.map(|index| VerifiedIndex::read(&mut self.device, index)) {
            Some(Err(e)) => {
                self.unreadable(index?, &e);
                None
            }
            // The recorder has sealed it meanwhile.
            Some(Ok(None)) if open => return None,
            Some(Ok(None)) => {
                self.find(index?, FindingKind::Index, None, "cannot be read: damaged, or no index of this version");
                None
            }
            Some(Ok(Some(vouched))) => {
                if vouched.sealed && !vouched.whole {
                    self.find(index?, FindingKind::Index, None, "a part of it is damaged");
                }
                Some(vouched)
            }
            None => None,
        };
        match self.compare(path, index, vouched.as_ref(), open) {
            Ok(()) => {}
            // Published or removed since its folder was listed.
            Err(e) if e.kind() == io::ErrorKind::NotFound && index.is_some() => return None,
            Err(e) => self.unreadable(path, &e),
        }
        let vouched = vouched?;
        let placed = FileInterval::of(path, &vouched, open);
        if self.count.is_some() && !open && !vouched.is_foreign() {
            let interface = recovery::file_names::interface_of(path.parent().unwrap_or(Path::new(".")));
            let runs = vouched.blocks.iter().flat_map(|p| p.rows.runs()).filter(|run| run.tally.stored > 0);
            let seconds = runs.map(|run| (run.second, run.tally.stored)).collect();
            self.stored.entry(interface).or_default().add(&placed, seconds);
        }
        let mut ledger = Tally::default();
        vouched.blocks.iter().for_each(|p| ledger += &p.rows.total());
        self.totals.ledger += &ledger;
        if ledger.residue() != 0 {
            let text = format!("{} offered packets have no fate in the ledger", ledger.residue());
            self.find(path, FindingKind::Ledger, None, text);
        }
        Some(placed)
    }

    fn compare(
        &mut self,
        path: &Path,
        index: Option<&Path>,
        vouched: Option<&VerifiedIndex>,
        open: bool,
    ) -> io::Result<()> {
        let file = self.device.open(path)?;
        self.totals.files += 1;
        let len = self.device.len(file);
        let outcome = len.and_then(|len| {
            let promised = vouched.map(VerifiedIndex::file_bytes);
            let limit = match (promised, vouched) {
                (None, _) if open => 0,
                // What lies behind the bytes of a sealed index was never recorded.
                (Some(promised), Some(vouched)) if open || !vouched.is_foreign() => promised,
                _ => len,
            };
            if let Some(promised) = promised
                && vouched.is_none_or(|v| !v.is_foreign() || self.quick)
                && (promised > len || promised < len && !open)
            {
                let text = format!("the file has {len} bytes, its index describes {promised}");
                let kind = if vouched.is_some_and(VerifiedIndex::is_foreign) {
                    FindingKind::Stale
                } else {
                    FindingKind::Length
                };
                self.find(path, kind, None, text);
            }
            self.totals.bytes += limit.min(len);
            if self.quick {
                let packets = vouched.map_or(0, |v| v.blocks.iter().map(|p| p.rows.total().stored).sum());
                self.totals.packets += packets;
                return Ok(());
            }
            self.content(path, file, limit.min(len), index, vouched, open)
        });
        self.device.close(file);
        outcome
    }
}

/// A packet file among the others of its interface.
#[derive(Clone, Debug)]
struct FileInterval {
    path: std::path::PathBuf,
    queue: u16,
    start: Timestamp,
    /// Stream positions, where the file is a stretch of the stream.
    stretch: Option<(u64, u64)>,
    /// The stamps of its earliest and latest packet, of a file that is whole.
    span: Option<(Timestamp, Timestamp)>,
    /// Whether its blocks follow each other in time, behind its beginning.
    straight: bool,
    /// First and last second that its ledger knows of.
    seconds: Option<(u64, u64)>,
    /// Packets that are known to be missing from it.
    cut: bool,
}

impl FileInterval {
    fn of(path: &Path, vouched: &VerifiedIndex, open: bool) -> Self {
        let runs = || vouched.blocks.iter().flat_map(|p| p.rows.runs());
        let first = runs().map(|r| r.second).min();
        let last = runs().map(|r| r.second + r.seconds - 1).max();
        let ending = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
        let layout = if open { None } else { Layout::of(ending) };
        let begin = vouched.header.first_pos;
        let crash = base::Cause::Crash as usize;
        Self {
            path: path.to_owned(),
            queue: vouched.header.queue,
            start: vouched.header.start,
            stretch: (layout == Some(Layout::Pcap) && begin != index::UNKNOWN_POS)
                .then(|| Some((begin, begin.checked_add(vouched.bytes())?.checked_next_multiple_of(BLOCK)?)))
                .flatten(),
            span: vouched.stamps().filter(|_| !open),
            straight: vouched.is_in_order(),
            seconds: first.zip(last),
            cut: vouched.blocks.iter().any(|p| p.rows.total().lost[crash] > 0),
        }
    }
}
