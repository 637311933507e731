//! From a journal to its file: by the writer when the journal is whole, and at the next start when a crash left it.
//!
//! Every step can be cut off and done again: the file is hidden until it is synced, it says which journal it was made of, and
//! the journal goes only after the file has its name.

use crate::error::ColumnsError;
use crate::file::Sealed;
use crate::journal::{Loaded, Shaped};
use crate::layout::Layout;
use crate::seal::{key, publish};
use crate::shelf::{self, Kind};
use flow::Record;
use series::Row;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use store::catalogue::Hour;
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
    let root = names::interface_folder(store, interface);
    let mut recovered = Recovered::default();
    of_kind::<Record>(&root, Kind::Flows, &mut recovered)?;
    of_kind::<Row>(&root, Kind::Series, &mut recovered)?;
    Ok(recovered)
}

fn of_kind<T: Layout + Shaped>(root: &Path, kind: Kind, recovered: &mut Recovered) -> Result<(), ColumnsError> {
    for (_, path) in shelf::journals(root, kind).map_err(ColumnsError::io(root))? {
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) => {
                recovered.troubles.push(ColumnsError::Io { path, error });
                continue;
            }
        };
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            continue;
        }
        recovered.journals += 1;
        match seal::<T>(root, kind, &path, &file) {
            Ok(sealed) => {
                recovered.things += sealed.things;
                recovered.torn += sealed.torn;
            }
            Err(error) => {
                if matches!(error, ColumnsError::Damaged { .. }) {
                    set_aside(&path, kind);
                }
                recovered.troubles.push(error);
            }
        }
    }
    Ok(())
}

/// Out of the way of every start that follows, under a name that says what it is.
fn set_aside(path: &Path, kind: Kind) {
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let ending = format!(".{}.{}", kind.name(), names::PARTIAL);
    if let Some(stem) = name.strip_prefix('.').and_then(|n| n.strip_suffix(&ending)) {
        // It stays where it is otherwise, and is met again.
        let _ = sys::disk::rename_new(path, &path.with_file_name(format!("{stem}.{}.damaged", kind.name())));
    }
}

/// Seals the journal, and removes it.
pub(crate) fn seal<T: Layout + Shaped>(
    root: &Path,
    kind: Kind,
    path: &Path,
    file: &File,
) -> Result<FromJournal, ColumnsError> {
    let journal = Loaded::<T>::read(path, file, kind)?;
    let mut sealed = FromJournal { things: journal.len() as u64, torn: journal.torn, path: None };
    let damaged = |what| ColumnsError::damaged(path, what);
    if let Some(first) = journal.get(0).transpose().map_err(damaged)? {
        let start = T::moment(&first.order());
        let hour = Hour { start, folder: names::hour_folder(root, start) };
        let listed = shelf::in_hour(&hour, kind).map_err(ColumnsError::io(&hour.folder))?;
        let made_of_it = |path: &PathBuf| Sealed::open(path, kind).is_ok_and(|s| s.journal == Some(journal.id));
        // A crash may have come between the file's name and the journal's end.
        let same = listed.into_iter().filter(|file| file.start == start).map(|file| file.path).find(made_of_it);
        sealed.path = Some(match same {
            Some(path) => path,
            None => {
                let mut things = (0..).map_while(|i| journal.get(i)).map(|thing| thing.map_err(damaged));
                publish(root, kind, start, &mut things, vec![(key::JOURNAL, format!("{:016x}", journal.id))])?
            }
        });
    }
    fs::remove_file(path).map_err(ColumnsError::io(path))?;
    Ok(sealed)
}
