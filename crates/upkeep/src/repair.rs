//! Repair: recovers the files of killed recorders when a user requests it. In contrast to the recovery at the start of
//! a recorder, repair examines every directory of a store, and also repairs damaged published files and foreign
//! captures.
//!
//! Repair removes only data that it can rebuild from the remaining data: a damaged original is retained under a name
//! that ends in `.damaged`. Repair refuses files that a running process has locked, and interfaces that another process
//! records or repairs, because it could not distinguish the unpublished files of that process from leftovers.

mod misplaced;
mod salvage;
mod salvage_file;

use crate::packet_file::{VerifiedIndex, Window};
use crate::recovery::file_names::{interface_of, prepared};
use crate::recovery::{DAMAGED, Event, FileNames, Outcome, Recovery, repair_published};
use crate::verify::{Finding, FindingKind, Verify};
use base::units::{plural, show_count};
use base::{Tally, Timestamp};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use store::claim::{CLAIM, Claim, ClaimError, Claimant, at_work};
use store::device::{Device, FileId};
use store::names::{INDEX, PACKETS};
use store::offered_page;
use store::out_of_order;

/// An action or a refusal of a repair; in a dry run, an action that a repair would take.
#[derive(Debug)]
pub enum RepairEvent {
    /// An event of recovery.
    Recovered(Event),
    /// A file of the store was repaired.
    Repaired {
        /// The file.
        path: PathBuf,
        /// The outcome.
        outcome: Outcome,
    },
    /// The complete records of a damaged capture were written to a new file.
    Salvaged {
        /// The new file.
        path: PathBuf,
        /// The original.
        original: PathBuf,
        /// Number of salvaged packets.
        packets: u64,
        /// Number of omitted bytes.
        bytes: u64,
    },
    /// The flow records and series rows that a dead recorder left in journals were sealed.
    Sealed {
        /// The interface directory.
        root: PathBuf,
        /// Number of rows.
        rows: u64,
        /// Bytes of an incomplete batch that follows the sealed rows in a journal.
        torn: u64,
    },
    /// Hidden files of flow records and series rows that a dead recorder left incomplete were removed.
    Unhidden {
        /// The interface directory.
        root: PathBuf,
        /// Number of files.
        files: u64,
    },
    /// A partly damaged journal of flow records or series rows: its valid part was sealed, and the journal is kept.
    JournalSetAside {
        /// The kept journal.
        path: PathBuf,
        /// The damage.
        what: String,
    },
    /// A file that is out of order received its out-of-order marker, by which queries find its packets.
    Marked(PathBuf),
    /// A file was moved into the hour directory that its name says.
    Moved {
        /// The path before.
        path: PathBuf,
        /// The path now.
        to: PathBuf,
    },
    /// With `--dry-run`: a finding that a repair would resolve.
    WouldRepair(Finding),
    /// The file has no damage.
    Undamaged(PathBuf),
    /// An unreadable file of flow records or series rows was renamed, so that queries do not read it.
    FileSetAside {
        /// The file.
        path: PathBuf,
        /// The new name.
        aside: PathBuf,
        /// The damage.
        why: String,
    },
    /// The file could not be read, or has an unknown format.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The file could not be repaired.
    Refused {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
}

impl RepairEvent {
    /// True if the event is a failed repair.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Refused { .. }
                | Self::Unreadable { .. }
                | Self::Recovered(
                    Event::Trouble { .. } | Event::Recovered { outcome: Outcome::Held | Outcome::Unknown, .. }
                )
                | Self::Repaired { outcome: Outcome::Held | Outcome::Unknown, .. }
        )
    }
}

impl fmt::Display for RepairEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Recovered(Event::Recovered { path, outcome: Outcome::Unknown })
            | Self::Repaired { path, outcome: Outcome::Unknown } => write!(
                f,
                "{}: its content does not match its name, and no index describes it; not changed: give the file the \
                 name that it should have, or remove it",
                path.display()
            ),
            Self::Recovered(event) => event.fmt(f),
            Self::Repaired { path, outcome: Outcome::Published { path: now, tally, lost, aside } } => {
                write!(f, "{}: repaired", path.display())?;
                if now != path {
                    write!(f, " as {}", now.display())?;
                }
                write!(f, ", {} packets", show_count(tally.stored))?;
                if *lost > 0 {
                    write!(f, ", {} lost (in the ledger as crash)", show_count(*lost))?;
                }
                match aside {
                    Some(aside) => write!(
                        f,
                        "; the damaged bytes are kept as {0}: netgrain repair {0} saves their complete packets",
                        aside.display()
                    ),
                    None => Ok(()),
                }
            }
            Self::Repaired { path, outcome: Outcome::Held } => {
                write!(f, "{}: not repaired, because a running process has locked it", path.display())
            }
            Self::Repaired { path, outcome: Outcome::Removed } => {
                write!(f, "{}: contained no packets, removed", path.display())
            }
            Self::Salvaged { path, original, packets, bytes } => write!(
                f,
                "{}: {} packets saved, {} bytes left out; the original is {}",
                path.display(),
                show_count(*packets),
                show_count(*bytes),
                original.display()
            ),
            Self::Moved { path, to } => write!(f, "{}: moved to {}", path.display(), to.display()),
            Self::Sealed { root, rows, torn } => {
                let rows = plural(*rows, "flow record or row", "flow records and rows");
                write!(f, "{}: {rows} sealed", root.display())?;
                match torn {
                    0 => Ok(()),
                    torn => write!(f, ", {} bytes after them are an incomplete batch", show_count(*torn)),
                }
            }
            Self::Unhidden { root, files } => write!(
                f,
                "{}: {} hidden files removed that were incomplete; their records and rows are in journals and other \
                 files",
                root.display(),
                show_count(*files)
            ),
            Self::JournalSetAside { path, what } => {
                write!(f, "{}: {what}; this file is the damaged journal, and its valid part is sealed", path.display())
            }
            Self::Marked(path) => {
                write!(f, "{}: out-of-order marker written, so that queries find its packets", path.display())
            }
            Self::WouldRepair(finding) => write!(f, "would repair {finding}"),
            Self::FileSetAside { path, aside, why } => write!(
                f,
                "{}: {why}; renamed to {}; if its packets still exist, netgrain run -r writes the records and rows \
                 again, into another store",
                path.display(),
                aside.display()
            ),
            Self::Undamaged(path) => write!(f, "{}: nothing to repair", path.display()),
            Self::Refused { path, why } | Self::Unreadable { path, why } => write!(f, "{}: {why}", path.display()),
        }
    }
}

/// A repair of paths that a user names.
pub struct Repair<D, M, F> {
    device: D,
    /// Creates a further [`Device`] for file operations on the same volume.
    another: M,
    report: F,
    /// If set, repair claims interfaces; the value is the start time of the process, which is written into the claim.
    since: Option<Timestamp>,
    /// For each interface checked so far: the claim of this process, or `None` if another process has the claim.
    claims: BTreeMap<PathBuf, Option<Claim>>,
    seal: Option<Box<Seal>>,
}

/// The function that seals the journals in an interface directory.
type Seal = dyn FnMut(&Path) -> Vec<RepairEvent>;

/// The damaged packet files. The value is true if the records of the file are damaged, and false if only its index is
/// damaged.
type DamagedFiles = BTreeMap<PathBuf, bool>;

/// Sealed files of flow records or series rows with findings; for each, true if its begin or end is invalid. For a file
/// in the wrong hour directory it is false.
fn is_unreadable_row_file(finding: &Finding) -> bool {
    finding.kind == FindingKind::Frame
}

impl<D: Device, M: Fn() -> D, F: FnMut(RepairEvent)> Repair<D, M, F> {
    /// A repair that calls `report` for each event as soon as it occurs.
    pub fn new(another: M, report: F) -> Self {
        Self { device: another(), another, report, since: None, claims: BTreeMap::new(), seal: None }
    }

    /// Seals the journals of dead recorders with a function of the crate that writes them. Repair calls `seal` for each
    /// interface, after the packet files of the interface are repaired and while repair has the claim, and reports the
    /// returned events.
    #[must_use]
    pub fn sealing(self, seal: impl FnMut(&Path) -> Vec<RepairEvent> + 'static) -> Self {
        Self { seal: Some(Box::new(seal)), ..self }
    }

    /// Makes repair claim each interface before it changes the interface, like a recorder, so that it refuses an
    /// interface that another process has claimed. Needed if other processes may use the store.
    #[must_use]
    pub fn claiming(self, now: Timestamp) -> Self {
        Self { since: Some(now), ..self }
    }

    /// Reports what a repair would do or refuse, and changes nothing.
    pub fn dry_run(&mut self, path: &Path) {
        let alone = self.device.list(path).is_err();
        let findings = self.findings(path);
        let wrong = self.wrong(&findings);
        for finding in findings {
            let kind = finding.kind;
            let packets = self.packets_of(&finding.path);
            let has_head = kind == FindingKind::Version
                && self.head_of(&finding.path, |_, _, _| Ok(())).is_ok_and(|found| found.is_some());
            if has_head || is_unreadable_row_file(&finding) {
                (self.report)(RepairEvent::WouldRepair(finding));
            } else if matches!(kind, FindingKind::Unreadable | FindingKind::Version | FindingKind::NoCapture)
                || kind == FindingKind::Foreign && alone
            {
                (self.report)(RepairEvent::Unreadable { path: finding.path, why: finding.text });
            } else if can_repair(kind) && !wrong.contains_key(&packets) {
                // The function emits no further event, because the finding about the version of this file is already
                // reported.
            } else if matches!(kind, FindingKind::Leftover | FindingKind::Unmarked | FindingKind::Misplaced) {
                (self.report)(RepairEvent::WouldRepair(finding));
            } else if can_repair(kind) {
                let event = match RepairMethod::of(&packets, wrong.get(&packets) == Some(&true)) {
                    RepairMethod::Store => RepairEvent::WouldRepair(finding),
                    RepairMethod::Salvage => match self.can_salvage(&packets) {
                        Ok(()) => RepairEvent::WouldRepair(finding),
                        Err(e) => RepairEvent::Refused { path: packets, why: e.to_string() },
                    },
                    RepairMethod::Index => stale_index(&packets),
                };
                (self.report)(event);
            }
        }
    }

    /// Repairs a store, any directory below it, or a capture file.
    pub fn path(&mut self, path: &Path) {
        match self.device.list(path) {
            Ok(_) => self.directory(path),
            Err(_) => self.file(path),
        }
        self.claims.clear();
    }

    fn directory(&mut self, path: &Path) {
        for (root, directory) in self.interfaces(path) {
            if !self.claimed(&root) {
                continue;
            }
            let mut recovery = Recovery::new((self.another)(), &root)
                .thorough()
                .with_orphaned_counts(offered_page::orphaned_counts(&root));
            if directory == root {
                recovery.prepare();
            } else {
                recovery = recovery.below(&directory);
            }
            while recovery.step() {}
            recovery.take_events().into_iter().for_each(|event| (self.report)(RepairEvent::Recovered(event)));
            if let Some(seal) = self.seal.as_mut().filter(|_| directory == root) {
                seal(&root).into_iter().for_each(&mut self.report);
            }
        }
        let findings = self.findings(path);
        for finding in findings
            .iter()
            .filter(|f| matches!(f.kind, FindingKind::Unreadable | FindingKind::Version | FindingKind::NoCapture))
        {
            self.unreadable(finding);
        }
        for (path, broken) in self.wrong(&findings) {
            self.damaged(&path, broken);
        }
        findings.iter().filter(|finding| is_unreadable_row_file(finding)).for_each(|finding| self.set_aside(finding));
        for finding in findings.iter().filter(|f| f.kind == FindingKind::Unmarked) {
            let root = interface_of(finding.path.parent().unwrap_or(path));
            if self.claimed(&root) {
                let did = match self.write_marker(&root, &finding.path) {
                    Ok(()) => RepairEvent::Marked(finding.path.clone()),
                    Err(e) => RepairEvent::Refused { path: finding.path.clone(), why: e.to_string() },
                };
                (self.report)(did);
            }
        }
        findings
            .iter()
            .filter(|f| f.kind == FindingKind::Misplaced)
            .for_each(|finding| self.put_in_place(&finding.path));
    }

    /// Creates the out-of-order marker of a file from the time range in the index of the file, which verification has
    /// read before.
    fn write_marker(&mut self, root: &Path, path: &Path) -> io::Result<()> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let beside = [path.with_extension(INDEX), path.with_file_name(format!("{name}.{INDEX}"))];
        let index = beside.into_iter().find(|index| self.device.exists(index));
        let verified = index.map(|index| VerifiedIndex::read(&mut self.device, &index)).transpose()?.flatten();
        let Some(span) = verified.and_then(|verified| verified.marker_range()) else {
            let text =
                "no marker written: no index has the time range of the packets; run netgrain verify, then repair again";
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        };
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        out_of_order::write_marker(&mut self.device, root, &stem, Some(span))
    }

    fn findings(&mut self, path: &Path) -> Vec<Finding> {
        let mut findings = Vec::new();
        Verify::new((self.another)(), false, |finding: &Finding, _| findings.push(finding.clone())).path(path);
        findings
    }

    fn wrong(&mut self, findings: &[Finding]) -> DamagedFiles {
        let mut wrong = DamagedFiles::new();
        for finding in findings.iter().filter(|f| can_repair(f.kind)) {
            *wrong.entry(self.packets_of(&finding.path)).or_default() |= finding.kind == FindingKind::Chain;
        }
        // A file of an unknown version is neither salvaged nor indexed.
        for finding in findings.iter().filter(|f| f.kind == FindingKind::Version) {
            wrong.remove(&finding.path);
        }
        wrong
    }

    /// Handles an unreadable file. If only the file header of a capture is damaged, according to its index, repair
    /// restores the header.
    fn unreadable(&mut self, finding: &Finding) {
        let path = &finding.path;
        let repaired = match finding.kind {
            FindingKind::Version => self.head_of(path, |device, file, head| {
                device.put(file, 0, head)?;
                crate::recovery::sync(device, file)
            }),
            _ => Ok(None),
        };
        (self.report)(match repaired {
            Ok(None) => RepairEvent::Unreadable { path: path.clone(), why: finding.text.clone() },
            Ok(Some(tally)) => {
                let (path, tally) = (path.clone(), Box::new(tally));
                let outcome = Outcome::Published { path: path.clone(), tally, lost: 0, aside: None };
                RepairEvent::Repaired { path, outcome }
            }
            Err(e) => RepairEvent::Refused { path: path.clone(), why: e.to_string() },
        });
    }

    /// If the file header of a capture is damaged and its index confirms another header, calls a function with that
    /// header, and returns the ledger of the index.
    fn head_of(
        &mut self,
        path: &Path,
        work: impl FnOnce(&mut D, FileId, &[u8]) -> io::Result<()>,
    ) -> io::Result<Option<Tally>> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let beside = [path.with_extension(INDEX), path.with_file_name(format!("{name}.{INDEX}"))];
        let Some(index) = beside.into_iter().find(|index| self.device.exists(index)) else { return Ok(None) };
        let Some(verified) = VerifiedIndex::read(&mut self.device, &index)?.filter(|v| v.is_intact) else {
            return Ok(None);
        };
        let Some(file) = self.device.take(path)? else {
            return Err(io::Error::other("a running process has locked the file: wait until that process has ended"));
        };
        let head = Window::new(&mut self.device, file, u64::MAX).and_then(|mut window| verified.head(&mut window));
        let done = match head {
            Ok(Some(head)) => work(&mut self.device, file, &head).map(|()| true),
            other => other.map(|_| false),
        };
        self.device.close(file);
        let mut tally = Tally::default();
        verified.blocks.iter().for_each(|p| tally += &p.rows.total());
        Ok(done?.then_some(tally))
    }

    /// The packet file of a finding, which may concern its index: `STEM.pcap` or `STEM.raw` for `STEM.ngi`; for a
    /// foreign capture `NAME` for `NAME.ngi`.
    fn packets_of(&mut self, path: &Path) -> PathBuf {
        if path.extension().is_none_or(|e| e != INDEX) {
            return path.to_owned();
        }
        let mut candidates = ["", PACKETS[0], PACKETS[1]].map(|ending| path.with_extension(ending)).into_iter();
        candidates.find(|packets| self.device.exists(packets)).unwrap_or_else(|| path.to_owned())
    }

    /// Claims this interface until the repair ends. Returns true if no other process records or repairs the interface.
    /// If another process does, reports that process and returns false.
    fn claimed(&mut self, root: &Path) -> bool {
        let Some(since) = self.since else { return true };
        if let Some(claim) = self.claims.get(root) {
            return claim.is_some();
        }
        // An interface that never had a recorder needs no claim, and a claim file of this process would not belong to
        // the store's owner.
        if !self.device.exists(&root.join(CLAIM)) {
            return true;
        }
        let claim = Claim::take(root, &Claimant::this(since, None, Vec::new())).map_err(|refusal| {
            let why = match refusal {
                ClaimError::Taken { by, holder, .. } => {
                    let holder = at_work(&by, holder.as_ref());
                    format!("{holder}: stop that process, or wait until it has ended")
                }
                ClaimError::Io { error, .. } => {
                    format!("{CLAIM}: {error}; repair needs write permission in this directory")
                }
            };
            (self.report)(RepairEvent::Refused { path: root.to_owned(), why });
        });
        self.claims.entry(root.to_owned()).or_insert(claim.ok()).is_some()
    }

    /// The interface directories that contain the directory `path`, are equal to it, or are in it; for each of them,
    /// the directory to repair.
    fn interfaces(&mut self, path: &Path) -> Vec<(PathBuf, PathBuf)> {
        let root = interface_of(path);
        if root != path {
            return vec![(root, path.to_owned())];
        }
        let list = self.device.list(path).unwrap_or_default();
        let is_year = |name: &str| name.len() == 4 && name.bytes().all(|b| b.is_ascii_digit());
        let is_ours = |name: &str| name == CLAIM || FileNames::hidden(name).is_some() || prepared(name).is_some();
        let is_interface =
            list.iter().any(|(name, is_directory)| if *is_directory { is_year(name) } else { is_ours(name) });
        if is_interface || !list.iter().any(|(_, is_directory)| *is_directory) {
            return vec![(root, path.to_owned())];
        }
        let inner = list.into_iter().filter(|(_, is_directory)| *is_directory);
        let mut inner: Vec<PathBuf> = inner.map(|(name, _)| path.join(name)).collect();
        inner.sort_unstable();
        inner.iter().flat_map(|directory| self.interfaces(directory)).collect()
    }

    /// Repairs a single file: a packet file, an index, a foreign capture, or a file of flow records or series rows.
    fn file(&mut self, path: &Path) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if FileNames::hidden(&name).is_some() || name.ends_with(&format!(".{DAMAGED}")) {
            return self.damaged(path, true);
        }
        let findings = self.findings(path);
        let mut kinds = findings.iter().filter(|f| {
            matches!(
                f.kind,
                FindingKind::Unreadable | FindingKind::Version | FindingKind::NoCapture | FindingKind::Foreign
            )
        });
        if let Some(finding) = kinds.next_back() {
            return self.unreadable(finding);
        }
        if let Some(finding) = findings.iter().find(|finding| is_unreadable_row_file(finding)) {
            return self.set_aside(finding);
        }
        // Verification accepts a file without an index, but a file of the store needs an index.
        let called = FileNames::published(&name).filter(|called| called.start().is_some());
        let bare = called.is_some_and(|called| !self.device.exists(&path.with_file_name(called.index())));
        let is_sound = self.wrong(&findings).is_empty() && !bare;
        let is_misplaced = findings.iter().any(|finding| finding.kind == FindingKind::Misplaced);
        if !is_sound {
            self.damaged(path, findings.iter().any(|f| f.kind == FindingKind::Chain));
        }
        match is_misplaced {
            true => self.put_in_place(path),
            false if is_sound => (self.report)(RepairEvent::Undamaged(path.to_owned())),
            false => {}
        }
    }

    /// Renames an unreadable file of flow records or series rows so that queries skip it. Its content cannot be
    /// salvaged, because the damaged footer contains the offsets of the content.
    fn set_aside(&mut self, finding: &Finding) {
        let path = &finding.path;
        if !self.claimed(&interface_of(path.parent().unwrap_or(path))) {
            return;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let aside = path.with_file_name(format!("{name}.{DAMAGED}"));
        let did = match self.device.rename(path, &aside) {
            Ok(()) => RepairEvent::FileSetAside { path: path.clone(), aside, why: finding.text.clone() },
            Err(e) => RepairEvent::Refused { path: path.clone(), why: format!("{}; {e}", finding.text) },
        };
        (self.report)(did);
    }

    /// Repairs a packet file with damaged records (`records` is true), or with only a wrong index.
    fn damaged(&mut self, path: &Path, broken: bool) {
        match RepairMethod::of(path, broken) {
            RepairMethod::Store => {
                if self.claimed(&interface_of(path.parent().unwrap_or(path))) {
                    let outcome = repair_published((self.another)(), path);
                    self.reported(path, outcome);
                }
            }
            RepairMethod::Salvage => {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                let did = self.salvage(path, &name);
                (self.report)(
                    did.unwrap_or_else(|e| RepairEvent::Refused { path: path.to_owned(), why: e.to_string() }),
                );
            }
            RepairMethod::Index => (self.report)(stale_index(path)),
        }
    }

    fn reported(&mut self, path: &Path, outcome: io::Result<Outcome>) {
        (self.report)(match outcome {
            Ok(Outcome::Held) => RepairEvent::Refused {
                path: path.to_owned(),
                why: "a running process has locked the file: stop the recorder, or wait until it publishes the file"
                    .into(),
            },
            Ok(outcome) => RepairEvent::Repaired { path: path.to_owned(), outcome },
            Err(e) => RepairEvent::Refused { path: path.to_owned(), why: e.to_string() },
        });
    }
}

/// True if repair can resolve findings of this kind.
fn can_repair(kind: FindingKind) -> bool {
    matches!(
        kind,
        FindingKind::Chain
            | FindingKind::Checksum
            | FindingKind::Length
            | FindingKind::Index
            | FindingKind::Stale
            | FindingKind::Keys
            | FindingKind::Ledger
            | FindingKind::NoIndex
    )
}

/// The method of repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RepairMethod {
    /// For a packet file of the store, recovers the records that its index verifies.
    Store,
    /// Copies the complete records.
    Salvage,
    /// The records are complete, but the index belongs to another file or to an earlier version of this file.
    Index,
}

impl RepairMethod {
    fn of(path: &Path, broken: bool) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let published = FileNames::published(&name).filter(|called| called.start().is_some());
        if published.or_else(|| FileNames::hidden(&name)).is_some() {
            return Self::Store;
        }
        if broken { Self::Salvage } else { Self::Index }
    }
}

/// A wrong index beside a foreign capture does not require a repair of the capture.
fn stale_index(path: &Path) -> RepairEvent {
    let why = format!(
        "its records are complete, but its index describes other contents; netgrain index {} rebuilds the index",
        path.display()
    );
    RepairEvent::Refused { path: path.to_owned(), why }
}
