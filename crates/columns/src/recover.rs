//! Seals journals. The writer seals a journal when it is complete; after a crash, the next start seals the journals
//! that the crash left.
//!
//! Every step of sealing can be interrupted and repeated. The sealed file keeps a hidden name until it is synced, its
//! metadata states the id of its journal, and the journal is removed only after the file is published.

use crate::batch::Damage;
use crate::error::ColumnsError;
use crate::file::Sealed;
use crate::file_layout::{self, DataFileKind};
use crate::journal::{ANOTHER_VERSION, LoadedJournal, MAX_BYTES, NO_COLUMNS};
use crate::seal::{Hidden, Plan, id_text, key, name_all, write};
use crate::tables::Schema;
use crate::volume;
use base::Timestamp;
use flow::Record;
use series::Row;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::DiskDevice;
use store::catalogue::parse_stem;
use store::device::Housekeeping;
use store::names;

/// The result of a recovery.
#[derive(Debug, Default)]
pub struct RecoveryReport {
    /// Journals without a running writer.
    pub journals: u64,
    /// Number of rows that were in journals without a running writer; the rows are now in published files.
    pub rows: u64,
    /// Bytes of incompletely written batches.
    pub torn: u64,
    /// Partly damaged journals, whose undamaged rows are sealed.
    pub damaged: Vec<DamagedJournal>,
    /// Incomplete hidden files that were removed: their rows are in journals and published files.
    pub hidden: u64,
    /// Files that could not be sealed. A journal without readable rows is renamed to a name that ends in `.damaged`.
    pub warnings: Vec<ColumnsError>,
}

/// A damaged journal, which was renamed and not removed.
#[derive(Debug)]
pub struct DamagedJournal {
    /// Its path.
    pub path: PathBuf,
    /// The damaged range of the journal; its rows are not sealed.
    pub damage: Damage,
}

/// The result of sealing one journal.
pub(crate) struct FromJournal {
    pub rows: u64,
    pub torn: u64,
    /// The journal, if it was damaged and therefore renamed instead of removed.
    pub damaged: Option<DamagedJournal>,
    /// The published file; `None` if the journal had no rows.
    pub path: Option<PathBuf>,
}

/// Seals the journals of an interface that a crash left. Those of a running writer are not touched.
///
/// # Errors
/// If the interface's directory cannot be listed.
pub fn recover(store: &Path, interface: &str) -> Result<RecoveryReport, ColumnsError> {
    recover_on(&mut DiskDevice::plain(), store, interface)
}

/// As [`recover`], on any volume.
///
/// # Errors
/// As [`recover`].
pub fn recover_on(disk: &mut dyn Housekeeping, store: &Path, interface: &str) -> Result<RecoveryReport, ColumnsError> {
    let root = names::interface_directory(store, interface);
    let mut recovered = RecoveryReport::default();
    of_kind::<Record>(disk, &root, DataFileKind::Flows, &mut recovered)?;
    of_kind::<Row>(disk, &root, DataFileKind::Series, &mut recovered)?;
    // Journals are sealed before hidden files are removed, so that a crash in between loses no rows.
    for kind in [DataFileKind::Flows, DataFileKind::Series] {
        remove_hidden(disk, &root, kind, &mut recovered)?;
    }
    Ok(recovered)
}

fn of_kind<T: Schema>(
    disk: &mut dyn Housekeeping,
    root: &Path,
    kind: DataFileKind,
    recovered: &mut RecoveryReport,
) -> Result<(), ColumnsError> {
    let listed = match disk.list(root) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(ColumnsError::io(root))?,
    };
    for path in
        file_layout::journals_of(root, kind, listed.into_iter().map(|(name, _)| name)).into_iter().map(|(_, path)| path)
    {
        let file = match disk.take(&path) {
            Ok(Some(file)) => file,
            Ok(None) => continue,
            // The journal's writer was running, and has sealed the journal since the directory was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => {
                recovered.warnings.push(ColumnsError::Io { path, error });
                continue;
            }
        };
        // An empty journal: either its writer has created but not yet locked it, and will use another name, or a crash
        // interrupted its creation. If the empty journal cannot be removed, the next recovery tries again.
        if matches!(disk.len(file), Ok(0)) {
            let _ = disk.remove(&path);
            disk.close(file);
            continue;
        }
        recovered.journals += 1;
        match seal::<T>(disk, root, kind, &path, true, 1, &mut Vec::new()) {
            Ok(sealed) => {
                recovered.rows += sealed.rows;
                recovered.torn += sealed.torn;
                recovered.damaged.extend(sealed.damaged);
            }
            Err(error) => {
                // A journal of another format version keeps its name, so that a program of that version finds it.
                if matches!(&error, ColumnsError::Damaged { what, .. } if what != ANOTHER_VERSION) {
                    // If the journal cannot be renamed, the next recovery tries again.
                    let _ = set_aside(disk, &path, kind);
                }
                recovered.warnings.push(error);
            }
        }
        disk.close(file);
    }
    Ok(())
}

/// Removes the hidden files without a running writer. The sources of a file (its journal, or the files that it
/// replaces) are removed only after the file is published, so all rows of a hidden file are in its sources too.
fn remove_hidden(
    disk: &mut dyn Housekeeping,
    root: &Path,
    kind: DataFileKind,
    recovered: &mut RecoveryReport,
) -> Result<(), ColumnsError> {
    for path in file_layout::hidden_on(disk, root, kind).map_err(ColumnsError::io(root))? {
        // A running writer has locked the hidden file, or has just published it.
        let Ok(Some(file)) = disk.take(&path) else { continue };
        match disk.remove(&path) {
            Ok(()) => recovered.hidden += 1,
            Err(error) => recovered.warnings.push(ColumnsError::Io { path, error }),
        }
        disk.close(file);
    }
    Ok(())
}

/// Renames a journal to the first free name that marks it as damaged, so that later starts ignore it.
fn set_aside(disk: &mut dyn Housekeeping, path: &Path, kind: DataFileKind) -> Result<PathBuf, ColumnsError> {
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let ending = format!(".{}.{}", kind.name(), names::PARTIAL);
    let stem = name.strip_prefix('.').and_then(|n| n.strip_suffix(&ending)).and_then(parse_stem);
    let (start, _, mut copy) =
        stem.ok_or_else(|| ColumnsError::damaged(path, "does not have the name of a journal"))?;
    loop {
        let aside = path.with_file_name(format!("{}.{}.damaged", names::stem(start, None, copy), kind.name()));
        match disk.rename(path, &aside) {
            // A journal of another replay that began at the same timestamp has this name, so the next name is tried.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => copy += 1,
            Err(e) => return Err(ColumnsError::io(path)(e)),
            Ok(()) => return Ok(aside),
        }
    }
}

/// A journal whose rows are in a file that is not yet published.
pub(crate) struct Draft {
    journal: PathBuf,
    rows: u64,
    torn: u64,
    damage: Option<Damage>,
    file: Content,
}

/// Tells whether the rows of a journal are in a file, and in which.
enum Content {
    /// There are no rows.
    Nothing,
    /// The rows are in this file, into which the journal was sealed before.
    Published(PathBuf),
    Hidden(Hidden),
}

/// Seals the journal and removes it; a partly damaged journal is renamed instead of removed. With `was_left`, the
/// journal is that of a crashed process, which may have sealed it already. `room` is the read buffer, which the caller
/// can reuse.
pub(crate) fn seal<T: Schema>(
    disk: &mut dyn Housekeeping,
    root: &Path,
    kind: DataFileKind,
    path: &Path,
    was_left: bool,
    threads: usize,
    room: &mut Vec<u8>,
) -> Result<FromJournal, ColumnsError> {
    let draft = draft::<T>(disk, root, kind, path, was_left, threads, room)?;
    let nothing = || Err(ColumnsError::io(path)(io::ErrorKind::NotFound.into()));
    finish(disk, root, vec![(kind, draft)], &[]).0.pop().unwrap_or_else(nothing)
}

/// The first half of [`seal`]: writes the hidden file. Nothing is synced or published yet, and the journal is
/// unchanged.
pub(crate) fn draft<T: Schema>(
    disk: &mut dyn Housekeeping,
    root: &Path,
    kind: DataFileKind,
    path: &Path,
    was_left: bool,
    threads: usize,
    room: &mut Vec<u8>,
) -> Result<Draft, ColumnsError> {
    let damaged = |what| ColumnsError::damaged(path, what);
    let bytes = volume::read_into(disk, path, MAX_BYTES, std::mem::take(room)).map_err(ColumnsError::io(path))?;
    let journal = LoadedJournal::<T>::of(bytes, kind).map_err(damaged)?;
    let ordered = journal.ordered(&T::columns()).ok_or_else(|| damaged(NO_COLUMNS))?;
    let mut file = Content::Nothing;
    if let Some(first) = ordered.first {
        let start = T::moment(&first);
        let before = if was_left { sealed_from(disk, root, kind, journal.id, start)? } else { None };
        file = match before {
            Some(path) => Content::Published(path),
            None => {
                let notes = vec![(key::ID, id_text(journal.id))];
                let plan = Plan { root, kind, start, end: ordered.end, notes };
                Content::Hidden(write::<T>(disk, plan, |parquet| parquet.journal(ordered, threads))?)
            }
        };
    }
    let (rows, torn, damage) = (journal.len() as u64, journal.torn, journal.damage);
    *room = journal.into_bytes();
    Ok(Draft { journal: path.to_owned(), rows, torn, damage, file })
}

/// The second half of [`seal`], for several journals: publishes the files together, and then removes each journal whose
/// file is published and synced. Also syncs the unsynced `journals`, and returns the results of these syncs.
pub(crate) fn finish(
    disk: &mut dyn Housekeeping,
    root: &Path,
    drafts: Vec<(DataFileKind, Draft)>,
    journals: &[&Path],
) -> (Vec<Result<FromJournal, ColumnsError>>, Vec<io::Result<()>>) {
    let (mut hidden, mut rest) = (Vec::new(), Vec::new());
    for (kind, Draft { journal, rows, torn, damage, file }) in drafts {
        let path = match file {
            Content::Nothing => Some(None),
            Content::Published(path) => Some(Some(path)),
            Content::Hidden(file) => {
                hidden.push(file);
                None
            }
        };
        rest.push((kind, journal, damage, FromJournal { rows, torn, damaged: None, path: None }, path));
    }
    let (named, synced) = name_all(disk, hidden, journals);
    let mut named = named.into_iter();
    let done = rest.into_iter().map(|(kind, journal, damage, sealed, path)| {
        let path = match path {
            Some(path) => path,
            None => named.next().transpose()?,
        };
        let mut sealed = FromJournal { path, ..sealed };
        match damage {
            Some(damage) => sealed.damaged = Some(DamagedJournal { path: set_aside(disk, &journal, kind)?, damage }),
            None => disk.remove(&journal).map_err(ColumnsError::io(&journal))?,
        }
        Ok(sealed)
    });
    let done = done.collect();
    // If the removal does not survive a power failure, the journals reappear, and recovery recognises them by their
    // ids.
    let _ = disk.sync(root);
    (done, synced)
}

/// Finds the file that an earlier process made of this journal without removing the journal, or the day's file into
/// which that file was merged. Damage may have removed the earliest rows of the journal since, so the first timestamp
/// of the file may be earlier than that of the journal.
fn sealed_from(
    disk: &mut dyn Housekeeping,
    root: &Path,
    kind: DataFileKind,
    journal: u64,
    start: Timestamp,
) -> Result<Option<PathBuf>, ColumnsError> {
    const HOUR: Duration = Duration::from_secs(3600);
    let earliest = start.before(file_layout::FAR);
    let mut hour = earliest.floor_to(HOUR);
    while hour <= start {
        let directory = names::hour_directory(root, hour);
        let listed = match disk.list(&directory) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            other => other.map_err(ColumnsError::io(&directory))?,
        };
        for (name, _) in listed {
            let begins = file_layout::start_of(&name, kind).map(|(begins, ..)| begins);
            if !begins.is_some_and(|begins| (earliest..=start).contains(&begins)) {
                continue;
            }
            let path = directory.join(name);
            // Skips unreadable files, as queries do.
            if Sealed::origin_of(disk, &path, kind).is_ok_and(|origin| origin.has(journal)) {
                // The name of the found file may not have been synced before the crash, so the directory is synced.
                disk.sync(&directory).map_err(ColumnsError::io(&directory))?;
                return Ok(Some(path));
            }
        }
        hour = hour.after(HOUR);
    }
    Ok(None)
}
