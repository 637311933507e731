//! From a journal to its file: by the writer when the journal is whole, and at the next start when a crash left it.
//!
//! Every step can be cut off and done again: the file is hidden until it is synced, it says which journal it was made of, and
//! the journal goes only after the file has its name.

use crate::batch::Damage;
use crate::error::ColumnsError;
use crate::file::Sealed;
use crate::journal::{ANOTHER_VERSION, Loaded, MOST_BYTES, NO_COLUMNS};
use crate::layout::Layout;
use crate::seal::{Plan, id_text, key, publish};
use crate::shelf::{self, Kind};
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
pub struct Recovered {
    /// Journals that nobody wrote any more.
    pub journals: u64,
    /// Things in them, which are in published files now.
    pub things: u64,
    /// Bytes of batches that were not written whole.
    pub torn: u64,
    /// Journals of which a part was damaged and the rest is sealed.
    pub aside: Vec<Aside>,
    /// What could not be sealed; a journal of which nothing can be read is kept under a name that ends in `.damaged`.
    pub troubles: Vec<ColumnsError>,
}

/// A damaged journal that is kept.
#[derive(Debug)]
pub struct Aside {
    /// Where.
    pub path: PathBuf,
    /// What of it is not sealed.
    pub damage: Damage,
}

/// What became of a journal.
pub(crate) struct FromJournal {
    pub things: u64,
    pub torn: u64,
    /// Where it is kept, if it is not gone.
    pub aside: Option<Aside>,
    /// The published file; none of a journal without anything in it.
    pub path: Option<PathBuf>,
}

/// Seals what a crash left of an interface's journals. Those of a living writer are left alone.
///
/// # Errors
/// When the interface's folder cannot be listed.
pub fn recover(store: &Path, interface: &str) -> Result<Recovered, ColumnsError> {
    recover_on(&mut DiskDevice::plain(), store, interface)
}

/// The same on any volume.
///
/// # Errors
/// The same.
pub fn recover_on(disk: &mut dyn Housekeeping, store: &Path, interface: &str) -> Result<Recovered, ColumnsError> {
    let root = names::interface_folder(store, interface);
    let mut recovered = Recovered::default();
    of_kind::<Record>(disk, &root, Kind::Flows, &mut recovered)?;
    of_kind::<Row>(disk, &root, Kind::Series, &mut recovered)?;
    Ok(recovered)
}

fn of_kind<T: Layout>(
    disk: &mut dyn Housekeeping,
    root: &Path,
    kind: Kind,
    recovered: &mut Recovered,
) -> Result<(), ColumnsError> {
    let listed = match disk.list(root) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(ColumnsError::io(root))?,
    };
    for path in
        shelf::journals_of(root, kind, listed.into_iter().map(|(name, _)| name)).into_iter().map(|(_, path)| path)
    {
        let file = match disk.take(&path) {
            Ok(Some(file)) => file,
            Ok(None) => continue,
            // Its writer was alive, and has sealed it since the folder was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => {
                recovered.troubles.push(ColumnsError::Io { path, error });
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
                recovered.things += sealed.things;
                recovered.torn += sealed.torn;
                recovered.aside.extend(sealed.aside);
            }
            Err(error) => {
                // One of another version keeps its name, for that version to find it.
                if matches!(&error, ColumnsError::Damaged { what, .. } if what != ANOTHER_VERSION) {
                    // It stays where it is otherwise, and is met again.
                    let _ = set_aside(disk, &path, kind);
                }
                recovered.troubles.push(error);
            }
        }
        disk.close(file);
    }
    Ok(())
}

/// Out of the way of every start that follows, under the first name that is free and says what it is.
fn set_aside(disk: &mut dyn Housekeeping, path: &Path, kind: Kind) -> Result<PathBuf, ColumnsError> {
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

/// Seals the journal, and removes it; one of which a part is damaged is kept aside instead. One that was left by a crash may
/// have been sealed before. It is read into `room`, which is for the next one again.
pub(crate) fn seal<T: Layout>(
    disk: &mut dyn Housekeeping,
    root: &Path,
    kind: Kind,
    path: &Path,
    was_left: bool,
    hands: usize,
    room: &mut Vec<u8>,
) -> Result<FromJournal, ColumnsError> {
    let damaged = |what| ColumnsError::damaged(path, what);
    let bytes = volume::read_into(disk, path, MOST_BYTES, std::mem::take(room)).map_err(ColumnsError::io(path))?;
    let journal = Loaded::<T>::of(bytes, kind).map_err(damaged)?;
    let (damage, torn) = (journal.damage, journal.torn);
    let mut sealed = FromJournal { things: journal.len() as u64, torn, aside: None, path: None };
    let ordered = journal.ordered(&T::columns()).ok_or_else(|| damaged(NO_COLUMNS))?;
    if let Some(first) = ordered.first {
        let start = T::moment(&first);
        let before = if was_left { sealed_from(disk, root, kind, journal.id, start)? } else { None };
        sealed.path = Some(match before {
            Some(path) => path,
            None => {
                let notes = vec![(key::ID, id_text(journal.id))];
                publish::<T>(disk, Plan { root, kind, start, notes }, |parquet| parquet.journal(ordered, hands))?
            }
        });
    }
    *room = journal.into_bytes();
    match damage {
        Some(damage) => sealed.aside = Some(Aside { path: set_aside(disk, path, kind)?, damage }),
        None => disk.remove(path).map_err(ColumnsError::io(path))?,
    }
    // Should this not be kept, the journal comes back after a failure of the power, and is known by its id.
    let _ = disk.sync(root);
    Ok(sealed)
}

/// The file that was made of a journal before, by a process that could not remove the journal any more, or the day's file that has
/// its rows since. What the journal has
/// lost since may be its earliest things, so the file may begin earlier, as far as a file reaches.
fn sealed_from(
    disk: &mut dyn Housekeeping,
    root: &Path,
    kind: Kind,
    journal: u64,
    start: Timestamp,
) -> Result<Option<PathBuf>, ColumnsError> {
    const HOUR: Duration = Duration::from_secs(3600);
    let earliest = start.before(kind.reach());
    let mut hour = earliest.floor_to(HOUR);
    while hour <= start {
        let folder = names::hour_folder(root, hour);
        let listed = match disk.list(&folder) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            other => other.map_err(ColumnsError::io(&folder))?,
        };
        for (name, _) in listed {
            let begins = shelf::start_of(&name, kind).map(|(begins, _)| begins);
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
