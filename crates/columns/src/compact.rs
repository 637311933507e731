//! Compaction merges the series files of each day into one file. Series are kept for years. Without compaction, a year
//! has some nine thousand series files of an hour each; with compaction, it has some hundred files.
//!
//! The day's file lists the ids ([`key::ID`]) of the files that it replaces, and readers ignore those files as soon as
//! the day's file is published. A replaced file is removed when no reader holds its hour directory, immediately or in a
//! later compaction. File names could not identify the replaced files, because the name of a removed file may be given
//! to a later file with the same first timestamp.

use crate::error::ColumnsError;
use crate::file::{Sealed, TableRows};
use crate::file_layout::{self, DataFileKind};
use crate::retain::remove;
use crate::seal::{Hidden, Plan, id_text, key, name_all, new_id, write};
use crate::table_row::TableRow;
use base::Timestamp;
use series::Row;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::DiskDevice;
use store::device::Housekeeping;
use store::names;

/// Number of days whose files are synced and published together.
const TOGETHER: usize = 32;

/// Makes one file of each complete day before `before` that has several files; returns the files made. A day with an
/// unreadable file is left unchanged.
///
/// # Errors
/// If the store cannot be listed, or a file cannot be written or removed.
pub fn compact(store: &Path, interface: &str, before: Timestamp) -> Result<Vec<PathBuf>, ColumnsError> {
    compact_on(&mut DiskDevice::plain(), store, interface, before)
}

/// As [`compact`], on any volume.
///
/// # Errors
/// As [`compact`].
pub fn compact_on(
    disk: &mut dyn Housekeeping,
    store: &Path,
    interface: &str,
    before: Timestamp,
) -> Result<Vec<PathBuf>, ColumnsError> {
    const DAY: Duration = Duration::from_secs(86_400);
    let root = names::interface_directory(store, interface);
    let mut days: BTreeMap<Timestamp, Vec<PathBuf>> = BTreeMap::new();
    for (start, path) in file_layout::files_on(disk, &root, DataFileKind::Series).map_err(ColumnsError::io(&root))? {
        let day = start.floor_to(DAY);
        if day.after(DAY) <= before {
            days.entry(day).or_default().push(path);
        }
    }
    let mut made = Vec::new();
    let mut days = days.into_values().filter(|files| files.len() > 1).peekable();
    while days.peek().is_some() {
        // If the files of a day cannot be merged, the merged files of the days before it are still published.
        let mut merged = Vec::new();
        let outcome = days.by_ref().take(TOGETHER).try_for_each(|files| {
            merged.extend(day(disk, &root, &files)?);
            Ok(())
        });
        let (hidden, old): (Vec<_>, Vec<_>) = merged.into_iter().unzip();
        let published = name_all(disk, hidden, &[]).0.into_iter().zip(old).map(|(path, old)| {
            made.push(path?);
            old.into_iter().try_for_each(|(file, id)| remove_file(disk, &file, Some(id)))
        });
        let published: Vec<Result<(), ColumnsError>> = published.collect();
        published.into_iter().chain([outcome]).collect::<Result<(), ColumnsError>>()?;
    }
    Ok(made)
}

/// A day's file under a hidden name, and the files to remove after its publication, with their ids.
type Merged = (Hidden, Vec<(PathBuf, u64)>);

/// Makes the file of a day from these files, unless one of them already has all rows.
fn day(disk: &mut dyn Housekeeping, root: &Path, files: &[PathBuf]) -> Result<Option<Merged>, ColumnsError> {
    let opened = files.iter().map(|path| Sealed::read(disk, path, DataFileKind::Series));
    let Ok(opened) = opened.collect::<Result<Vec<_>, _>>() else { return Ok(None) };
    let replaced: BTreeSet<u64> = opened.iter().flat_map(|sealed| sealed.origin.replaces.clone()).collect();
    let is_old = |sealed: &Sealed| sealed.origin.id.is_some_and(|id| replaced.contains(&id));
    let (old, sources): (Vec<_>, Vec<_>) = opened.into_iter().partition(is_old);
    for Sealed { path, origin, .. } in old {
        remove_file(disk, &path, origin.id)?;
    }
    if sources.len() > 1 { merge(disk, root, sources) } else { Ok(None) }
}

/// Removes a file whose rows are in another file, unless a reader holds its hour directory or the name now belongs to
/// another file.
fn remove_file(disk: &mut dyn Housekeeping, path: &Path, id: Option<u64>) -> Result<(), ColumnsError> {
    match Sealed::origin_of(disk, path, DataFileKind::Series) {
        Ok(origin) if id.is_some() && origin.id == id => remove(disk, path).map(drop),
        Ok(_) => Ok(()),
        Err(ColumnsError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// The rows of a day are few (two per second and interface), so they are sorted in memory.
fn merge(disk: &mut dyn Housekeeping, root: &Path, sources: Vec<Sealed>) -> Result<Option<Merged>, ColumnsError> {
    let (mut rows, mut old) = (Vec::new(), Vec::new());
    // The list of replaced files also contains the files that a source file has replaced: they may still exist, because
    // a reader held their hour directories.
    let mut replaces = BTreeSet::new();
    for sealed in sources {
        // A file without an id cannot be listed as replaced, so the files of this day are not merged.
        let Some(id) = sealed.origin.id else { return Ok(None) };
        replaces.insert(id);
        replaces.extend(&sealed.origin.replaces);
        old.push((sealed.path.clone(), id));
        let groups = sealed.all();
        let mut table_rows = TableRows::<Row>::new(sealed, groups);
        loop {
            match table_rows.next() {
                Ok(more) if more.is_empty() => break,
                Ok(more) => rows.extend(more),
                Err(_) => return Ok(None),
            }
        }
    }
    rows.sort_by_key(TableRow::order);
    let Some(start) = rows.first().map(|row| row.span().0) else { return Ok(None) };
    let replaces: Vec<String> = replaces.into_iter().map(id_text).collect();
    let notes = vec![(key::ID, id_text(new_id(root))), (key::REPLACES, replaces.join(" "))];
    let end = rows.last().map_or(start, |row| row.span().1);
    let plan = Plan { root, kind: DataFileKind::Series, start, end, notes };
    let hidden = write::<Row>(disk, plan, |parquet| parquet.rows(&mut rows.into_iter()))?;
    Ok(Some((hidden, old)))
}
