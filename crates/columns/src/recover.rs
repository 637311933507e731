//! From a journal to its file: by the writer when the journal is whole, and at the next start when a crash left it.
//!
//! Every step can be cut off and done again: the file is hidden until it is synced, it says which journal it was made of, and
//! the journal goes only after the file has its name.

use crate::error::ColumnsError;
use crate::file::Sealed;
use crate::journal::{Loaded, MOST_BYTES, NO_COLUMNS};
use crate::layout::Layout;
use crate::seal::{Plan, key, publish};
use crate::shelf::{self, Kind};
use crate::volume;
use flow::Record;
use series::Row;
use std::io;
use std::path::{Path, PathBuf};
use store::DiskDevice;
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
    /// What could not be sealed; a journal of which nothing can be read is kept under a name that ends in `.damaged`.
    pub troubles: Vec<ColumnsError>,
}

/// What became of a journal.
pub(crate) struct FromJournal {
    pub things: u64,
    pub torn: u64,
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
            Err(error) => {
                recovered.troubles.push(ColumnsError::Io { path, error });
                continue;
            }
        };
        recovered.journals += 1;
        match seal::<T>(disk, root, kind, &path) {
            Ok(sealed) => {
                recovered.things += sealed.things;
                recovered.torn += sealed.torn;
            }
            Err(error) => {
                if matches!(error, ColumnsError::Damaged { .. }) {
                    set_aside(disk, &path, kind);
                }
                recovered.troubles.push(error);
            }
        }
        disk.close(file);
    }
    Ok(())
}

/// Out of the way of every start that follows, under a name that says what it is.
fn set_aside(disk: &mut dyn Housekeeping, path: &Path, kind: Kind) {
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let ending = format!(".{}.{}", kind.name(), names::PARTIAL);
    if let Some(stem) = name.strip_prefix('.').and_then(|n| n.strip_suffix(&ending)) {
        // It stays where it is otherwise, and is met again.
        let _ = disk.rename(path, &path.with_file_name(format!("{stem}.{}.damaged", kind.name())));
    }
}

/// Seals the journal, and removes it.
pub(crate) fn seal<T: Layout>(
    disk: &mut dyn Housekeeping,
    root: &Path,
    kind: Kind,
    path: &Path,
) -> Result<FromJournal, ColumnsError> {
    let damaged = |what| ColumnsError::damaged(path, what);
    let bytes = volume::read(disk, path, MOST_BYTES).map_err(ColumnsError::io(path))?;
    let journal = Loaded::<T>::of(bytes, kind).map_err(damaged)?;
    let mut sealed = FromJournal { things: journal.len() as u64, torn: journal.torn, path: None };
    let ordered = journal.ordered(&T::columns()).ok_or_else(|| damaged(NO_COLUMNS))?;
    if let Some(first) = ordered.first {
        let start = T::moment(&first);
        let folder = names::hour_folder(root, start);
        let listed = match disk.list(&folder) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            other => other.map_err(ColumnsError::io(&folder))?,
        };
        // A crash may have come between the file's name and the journal's end.
        let mut same = None;
        for name in listed.iter().filter(|(name, _)| shelf::start_of(name, kind).is_some_and(|(at, _)| at == start)) {
            let path = folder.join(&name.0);
            if Sealed::read(disk, &path, kind).is_ok_and(|s| s.journal == Some(journal.id)) {
                same = Some(path);
            }
        }
        if same.is_some() {
            // Its name may not have been synced.
            disk.sync(&folder).map_err(ColumnsError::io(&folder))?;
        }
        sealed.path = Some(match same {
            Some(path) => path,
            None => {
                let notes = vec![(key::JOURNAL, format!("{:016x}", journal.id))];
                publish::<T>(disk, Plan { root, kind, start, notes }, |parquet| parquet.journal(ordered))?
            }
        });
    }
    disk.remove(path).map_err(ColumnsError::io(path))?;
    Ok(sealed)
}
