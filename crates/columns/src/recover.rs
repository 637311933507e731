//! From a journal to its file: by the writer when the journal is whole, and at the next start when a crash left it.
//!
//! Every step can be cut off and done again: the file is hidden until it is synced, it says which journal it was made of, and
//! the journal goes only after the file has its name.

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

/// What a recovery did.
#[derive(Debug, Default)]
pub struct RecoveryReport {
    /// Journals that nobody wrote any more.
    pub journals: u64,
    /// Things in them, which are in published files now.
    pub rows: u64,
    /// Bytes of batches that were not written whole.
    pub torn: u64,
    /// Journals of which a part was damaged and the rest is sealed.
    pub damaged: Vec<DamagedJournal>,
    /// Hidden files that were not whole when their writer died, and are removed: what is in them is in journals and files.
    pub hidden: u64,
    /// What could not be sealed; a journal of which nothing can be read is kept under a name that ends in `.damaged`.
    pub warnings: Vec<ColumnsError>,
}

/// A damaged journal that is kept.
#[derive(Debug)]
pub struct DamagedJournal {
    /// Where.
    pub path: PathBuf,
    /// What of it is not sealed.
    pub damage: Damage,
}

/// What became of a journal.
pub(crate) struct FromJournal {
    pub rows: u64,
    pub torn: u64,
    /// Where it is kept, if it is not gone.
    pub damaged: Option<DamagedJournal>,
    /// The published file; none of a journal without anything in it.
    pub path: Option<PathBuf>,
}

/// Seals what a crash left of an interface's journals. Those of a living writer are left alone.
///
/// # Errors
/// When the interface's folder cannot be listed.
pub fn recover(store: &Path, interface: &str) -> Result<RecoveryReport, ColumnsError> {
    recover_on(&mut DiskDevice::plain(), store, interface)
}

/// The same on any volume.
///
/// # Errors
/// The same.
pub fn recover_on(disk: &mut dyn Housekeeping, store: &Path, interface: &str) -> Result<RecoveryReport, ColumnsError> {
    let root = names::interface_folder(store, interface);
    let mut recovered = RecoveryReport::default();
    of_kind::<Record>(disk, &root, DataFileKind::Flows, &mut recovered)?;
    of_kind::<Row>(disk, &root, DataFileKind::Series, &mut recovered)?;
    // Journals are sealed before, so that a crash here leaves nothing that would be missed.
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
            // Its writer was alive, and has sealed it since the folder was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => {
                recovered.warnings.push(ColumnsError::Io { path, error });
                continue;
            }
        };
        // Nobody has put anything into it: it was met between its making and its lock, and its writer goes to another name; or
        // a crash came there. Should it stay, it is met again.
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
                // One of another version keeps its name, for that version to find it.
                if matches!(&error, ColumnsError::Damaged { what, .. } if what != ANOTHER_VERSION) {
                    // It stays where it is otherwise, and is met again.
                    let _ = set_aside(disk, &path, kind);
                }
                recovered.warnings.push(error);
            }
        }
        disk.close(file);
    }
    Ok(())
}

/// Removes the hidden files that nobody writes any more. A file is published by its last step, and what it was made of goes
/// only afterwards, so none of them has anything that is nowhere else.
fn remove_hidden(
    disk: &mut dyn Housekeeping,
    root: &Path,
    kind: DataFileKind,
    recovered: &mut RecoveryReport,
) -> Result<(), ColumnsError> {
    for path in file_layout::hidden_on(disk, root, kind).map_err(ColumnsError::io(root))? {
        // A living writer holds it, or has just published it.
        let Ok(Some(file)) = disk.take(&path) else { continue };
        match disk.remove(&path) {
            Ok(()) => recovered.hidden += 1,
            Err(error) => recovered.warnings.push(ColumnsError::Io { path, error }),
        }
        disk.close(file);
    }
    Ok(())
}

/// Out of the way of every start that follows, under the first name that is free and says what it is.
fn set_aside(disk: &mut dyn Housekeeping, path: &Path, kind: DataFileKind) -> Result<PathBuf, ColumnsError> {
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let ending = format!(".{}.{}", kind.name(), names::PARTIAL);
    let stem = name.strip_prefix('.').and_then(|n| n.strip_suffix(&ending)).and_then(parse_stem);
    let (start, _, mut copy) = stem.ok_or_else(|| ColumnsError::damaged(path, "has no name of a journal"))?;
    loop {
        let aside = path.with_file_name(format!("{}.{}.damaged", names::stem(start, None, copy), kind.name()));
        match disk.rename(path, &aside) {
            // What a replay left, whose journals begin at the same moments.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => copy += 1,
            Err(e) => return Err(ColumnsError::io(path)(e)),
            Ok(()) => return Ok(aside),
        }
    }
}

/// A journal whose content is in a file that has yet to be published.
pub(crate) struct Draft {
    journal: PathBuf,
    rows: u64,
    torn: u64,
    damage: Option<Damage>,
    file: Content,
}

/// Where the things of a journal are.
enum Content {
    /// There are none.
    Nothing,
    /// It was sealed before, into this file.
    Published(PathBuf),
    Hidden(Hidden),
}

/// Seals the journal, and removes it; one of which a part is damaged is kept aside instead. One that was left by a crash may
/// have been sealed before. It is read into `room`, which is for the next one again.
pub(crate) fn seal<T: Schema>(
    disk: &mut dyn Housekeeping,
    root: &Path,
    kind: DataFileKind,
    path: &Path,
    was_left: bool,
    hands: usize,
    room: &mut Vec<u8>,
) -> Result<FromJournal, ColumnsError> {
    let draft = draft::<T>(disk, root, kind, path, was_left, hands, room)?;
    let nothing = || Err(ColumnsError::io(path)(io::ErrorKind::NotFound.into()));
    finish(disk, root, vec![(kind, draft)], &[]).0.pop().unwrap_or_else(nothing)
}

/// The first half of [`seal`]: nothing is synced, nothing has a name, and the journal is as it was.
pub(crate) fn draft<T: Schema>(
    disk: &mut dyn Housekeeping,
    root: &Path,
    kind: DataFileKind,
    path: &Path,
    was_left: bool,
    hands: usize,
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
                Content::Hidden(write::<T>(disk, plan, |parquet| parquet.journal(ordered, hands))?)
            }
        };
    }
    let (things, torn, damage) = (journal.len() as u64, journal.torn, journal.damage);
    *room = journal.into_bytes();
    Ok(Draft { journal: path.to_owned(), rows: things, torn, damage, file })
}

/// The second half, of several: publishes the files together, and then lets each journal go whose file is safe. What became of
/// the sync of those `journals` that no sync has vouched for is said beside it.
pub(crate) fn finish(
    disk: &mut dyn Housekeeping,
    root: &Path,
    drafts: Vec<(DataFileKind, Draft)>,
    journals: &[&Path],
) -> (Vec<Result<FromJournal, ColumnsError>>, Vec<io::Result<()>>) {
    let (mut hidden, mut rest) = (Vec::new(), Vec::new());
    for (kind, Draft { journal, rows: things, torn, damage, file }) in drafts {
        let path = match file {
            Content::Nothing => Some(None),
            Content::Published(path) => Some(Some(path)),
            Content::Hidden(file) => {
                hidden.push(file);
                None
            }
        };
        rest.push((kind, journal, damage, FromJournal { rows: things, torn, damaged: None, path: None }, path));
    }
    let (named, vouched) = name_all(disk, hidden, journals);
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
    // Should this not be kept, the journals come back after a failure of the power, and are known by their ids.
    let _ = disk.sync(root);
    (done, vouched)
}

/// The file that was made of a journal before, by a process that could not remove the journal any more, or the day's file that has
/// its rows since. What the journal has
/// lost since may be its earliest things, so the file may begin earlier, as far as a file reaches.
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
        let folder = names::hour_folder(root, hour);
        let listed = match disk.list(&folder) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            other => other.map_err(ColumnsError::io(&folder))?,
        };
        for (name, _) in listed {
            let begins = file_layout::start_of(&name, kind).map(|(begins, ..)| begins);
            if !begins.is_some_and(|begins| (earliest..=start).contains(&begins)) {
                continue;
            }
            let path = folder.join(name);
            // One that cannot be read is none that anybody counts.
            if Sealed::origin_of(disk, &path, kind).is_ok_and(|origin| origin.has(journal)) {
                // Its name may not have been synced.
                disk.sync(&folder).map_err(ColumnsError::io(&folder))?;
                return Ok(Some(path));
            }
        }
        hour = hour.after(HOUR);
    }
    Ok(None)
}
