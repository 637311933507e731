//! Verification checks the stored data: the chain of records, their order, the checksum of each block, counts and
//! timestamps against the index, key sets against the packets, the outcome counters of the ledger against the packets,
//! and gaps between files. Verification writes nothing.
//!
//! Verification reads growing files up to the end that their index describes, so it may run while a recorder runs. It
//! checks foreign captures as far as their format allows.

mod content;
mod directory;
mod finding;
mod row_files;
mod samples;

pub use finding::{Finding, FindingKind, Level};
pub(crate) use row_files::RowFile;

use crate::packet_file::{BLOCK, Layout, VerifiedIndex, Window, examine};
use crate::recovery::{self, FileNames, file_names};
use base::{Tally, Timestamp};
use pcap::Compression;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use store::device::{Device, FileId};

/// The largest number of foreign files that are reported by name.
const MAX_FOREIGN: usize = 10;

/// The totals of a verification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Packet files.
    pub files: u64,
    /// Number of packet files that are growing files of a recorder.
    pub open: u64,
    /// Number of packets: read from the files, or from the indexes if the content was not read.
    pub packets: u64,
    /// Bytes of packet files.
    pub bytes: u64,
    /// Number of files of flow records and series rows, including their journals.
    pub row_files: u64,
    /// The sum of the ledgers of all indexes.
    pub ledger: Tally,
    /// Findings of damage.
    pub damage: u64,
    /// Findings that are only notes.
    pub notes: u64,
    /// Files and directories that could not be read or have an unknown format.
    pub unreadable: u64,
    /// Packet files that a recorder did not publish, because it was killed or could not write. The losses in these
    /// files are in no ledger yet.
    pub unfinished: u64,
}

/// A verification: reports findings and counts totals.
pub struct Verify<D, F> {
    device: D,
    /// If true, only indexes, lengths and names are checked.
    quick: bool,
    on_finding: F,
    totals: Totals,
    /// True if the verified directory contains a file that a recorder wrote.
    is_own: bool,
    /// Number of foreign files below the path to verify.
    foreign: usize,
    check_journal: Option<Box<JournalCheck>>,
    read: Option<Box<Read>>,
    count: Option<Box<Count>>,
    /// By interface directory.
    stored: BTreeMap<PathBuf, Stored>,
}

/// Compares the packets stored on an interface with its series rows, second by second and in order. The arguments are
/// the interface directory, the seconds with their packet counts, and the seconds with packets of each recording. The
/// result lists the differences as text; for each, a flag is true if the difference is certain to be an error.
type Count = dyn FnMut(&Path, &[(u64, u64)], &[Vec<u64>]) -> io::Result<Vec<(bool, String)>>;

/// Which packets of an interface are stored, according to its indexes.
#[derive(Default)]
struct Stored {
    /// For each second, the number of packets that are stored with a timestamp in this second.
    seconds: Vec<(u64, u64)>,
    /// For each recording (files that follow each other in the stream of one recorder), its seconds with packets.
    recordings: Vec<Vec<u64>>,
    /// For each queue and each stream position at which a file ends: the indexes in `recordings` of the recordings
    /// whose next file would begin at this position.
    open: BTreeMap<(u16, u64), Vec<usize>>,
}

impl Stored {
    fn add(&mut self, file: &FileInterval, seconds: Vec<(u64, u64)>) {
        let goes_on = file.stream_range.and_then(|(begin, _)| self.open.get_mut(&(file.queue, begin))?.pop());
        let at = goes_on.unwrap_or(self.recordings.len());
        if at == self.recordings.len() {
            self.recordings.push(Vec::new());
        }
        if let Some((_, end)) = file.stream_range {
            self.open.entry((file.queue, end)).or_default().push(at);
        }
        self.recordings[at].extend(seconds.iter().map(|(second, _)| second));
        self.seconds.extend(seconds);
    }
}

/// Checks a sealed file of flow records or series rows; returns its defect as text, if it has one.
type Read = dyn FnMut(&Path) -> io::Result<Option<String>>;

/// Checks a journal of flow records or series rows; returns its defect as text, with its byte offset if known.
type JournalCheck = dyn FnMut(&Path) -> io::Result<Option<(Option<u64>, String)>>;

impl<D: Device, F: FnMut(&Finding, &Totals)> Verify<D, F> {
    /// A verification that reports each finding as soon as it is found. With `quick`, it does not read the packets.
    pub fn new(device: D, quick: bool, on_finding: F) -> Self {
        Self {
            device,
            quick,
            on_finding,
            totals: Totals::default(),
            is_own: false,
            foreign: 0,
            check_journal: None,
            read: None,
            count: None,
            stored: BTreeMap::new(),
        }
    }

    /// Checks journals of flow records and series rows with a function of the crate that writes them; without it, their
    /// content is not checked.
    #[must_use]
    pub fn checking_journals(
        self,
        check_journal: impl FnMut(&Path) -> io::Result<Option<(Option<u64>, String)>> + 'static,
    ) -> Self {
        Self { check_journal: Some(Box::new(check_journal)), ..self }
    }

    /// Reads sealed files of flow records and series rows, and compares them with their digests, with a function of the
    /// crate that writes them. A quick verification does not call it.
    #[must_use]
    pub fn reading(self, read: impl FnMut(&Path) -> io::Result<Option<String>> + 'static) -> Self {
        let read: Option<Box<Read>> = if self.quick { None } else { Some(Box::new(read)) };
        Self { read, ..self }
    }

    /// Compares the packets of each interface with its series rows, with a function of the crate that writes the rows.
    #[must_use]
    pub fn counting(
        self,
        count: impl FnMut(&Path, &[(u64, u64)], &[Vec<u64>]) -> io::Result<Vec<(bool, String)>> + 'static,
    ) -> Self {
        Self { count: Some(Box::new(count)), ..self }
    }

    /// The totals so far.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Verifies a store, any directory below it, or a capture file.
    pub fn path(&mut self, path: &Path) {
        if self.device.list(path).is_err() {
            return self.file(path);
        }
        let (files, unreadable) = (self.totals.files, self.totals.unreadable);
        (self.is_own, self.foreign) = (false, 0);
        self.stored.clear();
        self.directory(path);
        self.rows();
        if self.foreign > MAX_FOREIGN {
            let text = format!("{} more files do not belong to the store; ignored", self.foreign - MAX_FOREIGN);
            self.find(path, FindingKind::Foreign, None, text);
        }
        // Without this finding, the verification of a mistyped path would always succeed.
        if !self.is_own && (self.totals.files, self.totals.unreadable) == (files, unreadable) {
            self.find(path, FindingKind::NoCapture, None, "the directory contains no packet file");
        }
    }

    /// Compares the series rows with the packet counts of the indexes.
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
                Ok(differences) => {
                    for (is_certain, what) in differences {
                        let kind = if is_certain { FindingKind::Rows } else { FindingKind::NoRows };
                        self.find(&interface, kind, None, what);
                    }
                }
            }
        }
    }

    fn find(&mut self, path: &Path, kind: FindingKind, byte: Option<u64>, text: impl Into<String>) {
        self.find_with(path, kind, byte, text, "");
    }

    /// As [`Self::find`], with a remedy other than that of the kind; an empty `advice` stands for the remedy of the
    /// kind.
    fn find_with(&mut self, path: &Path, kind: FindingKind, byte: Option<u64>, text: impl Into<String>, advice: &str) {
        self.report(Finding { path: path.to_owned(), kind, byte, text: text.into(), advice: advice.to_owned() });
    }

    fn report(&mut self, finding: Finding) {
        match finding.kind.level() {
            Level::Damage => self.totals.damage += 1,
            Level::Note => self.totals.notes += 1,
            Level::Unreadable => self.totals.unreadable += 1,
        }
        (self.on_finding)(&finding, &self.totals);
    }

    /// Reports a foreign file in a store. Only the first foreign files get a finding with their name, because a
    /// directory that is no store may contain any number of files.
    fn foreign(&mut self, path: &Path, text: &str) {
        self.foreign += 1;
        if self.foreign <= MAX_FOREIGN {
            self.find(path, FindingKind::Foreign, None, text);
        }
    }

    fn unreadable(&mut self, path: &Path, error: &io::Error) {
        // If the error is not from a system call, its text already describes the problem.
        let advice = if error.raw_os_error().is_some() { sys::advice::to_read(error) } else { "" };
        self.report(Finding {
            path: path.to_owned(),
            kind: FindingKind::Unreadable,
            byte: None,
            text: sys::advice::cause(error),
            advice: advice.to_owned(),
        });
    }

    /// Verifies a single packet file with the index in the same directory.
    fn file(&mut self, path: &Path) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if let Some((data_type, holds)) = RowFile::named(&name)
            && self.device.exists(path)
            && let Ok(path) = std::path::absolute(path)
        {
            return self.row_file(&path, data_type, holds);
        }
        let index = match (FileNames::hidden(&name), FileNames::published(&name)) {
            (Some(called), _) => Some(called.hidden_index()),
            (_, Some(called)) => Some(called.index()),
            _ => None,
        };
        let open = FileNames::hidden(&name).is_some();
        self.check_place(path);
        let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // The file of the lock is created if it does not exist, so directories outside of a store are not held.
        let is_hour = std::path::absolute(directory).is_ok_and(|directory| store::names::is_hour(&directory));
        let _hold = is_hour.then(|| self.device.hold(directory));
        let beside = index.map(|index| path.with_file_name(index)).filter(|index| self.device.exists(index));
        let foreign = path.with_file_name(format!("{name}.{}", store::names::INDEX));
        let index = beside.or_else(|| self.device.exists(&foreign).then_some(foreign));
        if index.is_none() && !open && self.is_no_capture(path) {
            return;
        }
        self.check(path, index.as_deref(), open);
    }

    /// Reports a published packet file that is in another hour directory than its name says.
    fn check_place(&mut self, path: &Path) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if FileNames::published(&name)
            .and_then(|called| called.start())
            .is_some_and(|start| file_names::place_elsewhere(path, start).is_some())
            && self.device.exists(path)
        {
            let text = "the file is in another hour directory than its name says, so queries for an interval may not \
                        find its packets";
            self.find(path, FindingKind::Misplaced, None, text);
        }
    }

    /// If the file is no capture, reports a finding and returns true. If the file cannot be opened, returns false; the
    /// check of the file reports the error.
    fn is_no_capture(&mut self, path: &Path) -> bool {
        let Ok(file) = self.device.open(path) else { return false };
        let mut head = [0; 32];
        let read = self.device.read(file, 0, &mut head);
        self.device.close(file);
        let is_raw = path.extension().is_some_and(|e| e == "raw");
        if let Ok(n) = read
            && let Some(Compression { name, command }) = Compression::of(&head[..n])
        {
            self.report(Finding {
                path: path.to_owned(),
                kind: FindingKind::NoCapture,
                byte: None,
                text: format!("compressed with {name} ({command} decompresses it)"),
                advice: "verify the decompressed file, or record it into a store (netgrain record -r)".to_owned(),
            });
            return true;
        }
        let text = match read {
            Ok(0) => "the file is empty",
            Ok(n) if !is_raw && matches!(pcap::Reader::open(&head[..n]), Err(pcap::Error::NotACapture { .. })) => {
                "not a capture: its first bytes are neither those of pcap nor those of pcapng"
            }
            _ => return false,
        };
        self.find(path, FindingKind::NoCapture, None, text);
        true
    }

    /// Checks a packet file against its index; returns the time range and the range of stream positions of the file,
    /// for the comparison with other files.
    fn check(&mut self, path: &Path, index: Option<&Path>, open: bool) -> Option<FileInterval> {
        let verified = match index.map(|index| VerifiedIndex::read(&mut self.device, index)) {
            Some(Err(e)) => {
                self.unreadable(index?, &e);
                None
            }
            // The recorder has sealed the file after it was listed.
            Some(Ok(None)) if open => return None,
            Some(Ok(None)) => {
                self.find(
                    index?,
                    FindingKind::Index,
                    None,
                    "the index cannot be read: it is damaged, or of another version",
                );
                None
            }
            Some(Ok(Some(verified))) => {
                if verified.sealed && !verified.is_intact {
                    self.find(index?, FindingKind::Index, None, "a part of the index is damaged");
                }
                Some(verified)
            }
            None => None,
        };
        match self.compare(path, index, verified.as_ref(), open) {
            Ok(()) => {}
            // The file was published or removed after the directory was listed.
            Err(e) if e.kind() == io::ErrorKind::NotFound && index.is_some() => return None,
            Err(e) => self.unreadable(path, &e),
        }
        let verified = verified?;
        let placed = FileInterval::of(path, &verified, open);
        if self.count.is_some() && !open && !verified.is_foreign() {
            let interface = recovery::file_names::interface_of(path.parent().unwrap_or(Path::new(".")));
            let runs = verified.blocks.iter().flat_map(|p| p.rows.runs()).filter(|run| run.tally.stored > 0);
            let seconds = runs.map(|run| (run.second, run.tally.stored)).collect();
            self.stored.entry(interface).or_default().add(&placed, seconds);
        }
        let mut ledger = Tally::default();
        verified.blocks.iter().for_each(|p| ledger += &p.rows.total());
        self.totals.ledger += &ledger;
        if ledger.residue() != 0 {
            let text = format!("{} offered packets have no outcome in the ledger", ledger.residue());
            self.find(path, FindingKind::Ledger, None, text);
        }
        Some(placed)
    }

    fn compare(
        &mut self,
        path: &Path,
        index: Option<&Path>,
        verified: Option<&VerifiedIndex>,
        open: bool,
    ) -> io::Result<()> {
        let file = self.device.open(path)?;
        self.totals.files += 1;
        let len = self.device.len(file);
        let outcome = len.and_then(|len| {
            let indexed = verified.map(VerifiedIndex::file_bytes);
            let limit = match (indexed, verified) {
                (None, _) if open => 0,
                // A sealed index states the length of the file. Bytes after this length were never recorded.
                (Some(indexed), Some(verified)) if open || !verified.is_foreign() => indexed,
                _ => len,
            };
            if let Some(indexed) = indexed
                && verified.is_none_or(|v| !v.is_foreign() || self.quick)
                && (indexed > len || indexed < len && !open)
            {
                let text = format!("the file has {len} bytes, its index describes {indexed} bytes");
                match verified.filter(|verified| !verified.is_foreign()) {
                    Some(verified) => {
                        let advice = self.advice_on_blocks(path, file, verified);
                        self.find_with(path, FindingKind::Length, None, text, &advice);
                    }
                    None => self.find(path, FindingKind::Stale, None, text),
                }
            }
            self.totals.bytes += limit.min(len);
            if self.quick {
                let packets = verified.map_or(0, |v| v.blocks.iter().map(|p| p.rows.total().stored).sum());
                self.totals.packets += packets;
                return Ok(());
            }
            self.content(path, file, limit.min(len), index, verified, open)
        });
        self.device.close(file);
        outcome
    }
}

impl<D: Device, F: FnMut(&Finding, &Totals)> Verify<D, F> {
    /// The remedy for damaged blocks of a packet file of the store. Unless the verification is quick, it has the number
    /// of packets that a repair leaves out. Empty if the remedy is that of the kind of the finding.
    fn advice_on_blocks(&mut self, path: &Path, file: FileId, verified: &VerifiedIndex) -> String {
        let lost = match self.quick {
            true => Ok(None),
            false => self.left_out(path, file, verified).map(Some),
        };
        let packets = match lost {
            // Repair leaves out no packet, or reading the file failed, which another finding reports.
            Ok(Some(0)) | Err(_) => return String::new(),
            Ok(Some(packets)) => format!(" with {} packets", base::units::show_count(packets)),
            Ok(None) => String::new(),
        };
        format!(
            "netgrain repair leaves out the damaged blocks{packets}, and keeps their bytes in a file whose name ends \
             in .damaged; then netgrain repair of this .damaged file saves its complete packets; check the volume \
             (dmesg, smartctl)"
        )
    }

    /// Number of packets that a repair of the file counts as lost.
    fn left_out(&mut self, path: &Path, file: FileId, verified: &VerifiedIndex) -> io::Result<u64> {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        let Some(layout) = Layout::of(ending) else { return Ok(0) };
        let mut window = Window::new(&mut self.device, file, u64::MAX)?;
        // Repair restores a file header that the checksum of the first block confirms.
        if layout.file_header() > 0 && verified.head(&mut window)?.is_some() {
            return Ok(0);
        }
        Ok(examine(&mut window, layout, Some(verified))?.lost)
    }
}

/// A packet file with its time range and its range of stream positions, for the comparison with the other files of its
/// interface.
#[derive(Clone, Debug)]
struct FileInterval {
    path: std::path::PathBuf,
    queue: u16,
    start: Timestamp,
    /// The stream positions at which the file begins and ends, if they are known.
    stream_range: Option<(u64, u64)>,
    /// The timestamps of the earliest and of the latest packet of the file; `None` for a growing file.
    span: Option<(Timestamp, Timestamp)>,
    /// True if the blocks of the file are in order of time and no packet is earlier than the start time of the file.
    is_in_order: bool,
    /// First and last second in the ledger of the file.
    seconds: Option<(u64, u64)>,
    /// True if the ledger of the file counts packets lost in a crash.
    cut: bool,
}

impl FileInterval {
    fn of(path: &Path, verified: &VerifiedIndex, open: bool) -> Self {
        let runs = || verified.blocks.iter().flat_map(|p| p.rows.runs());
        let first = runs().map(|r| r.second).min();
        let last = runs().map(|r| r.second + r.seconds - 1).max();
        let ending = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
        let layout = if open { None } else { Layout::of(ending) };
        let begin = verified.header.first_pos;
        let crash = base::Cause::Crash as usize;
        Self {
            path: path.to_owned(),
            queue: verified.header.queue,
            start: verified.header.start,
            stream_range: (layout == Some(Layout::Pcap) && begin != index::UNKNOWN_POS)
                .then(|| Some((begin, begin.checked_add(verified.bytes())?.checked_next_multiple_of(BLOCK)?)))
                .flatten(),
            span: verified.stamps().filter(|_| !open),
            is_in_order: verified.is_in_order(),
            seconds: first.zip(last),
            cut: verified.blocks.iter().any(|p| p.rows.total().lost[crash] > 0),
        }
    }
}
