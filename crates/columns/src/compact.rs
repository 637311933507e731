//! A day of rows in one file: series are kept for years, and a year should be some hundred files, not nine thousand.
//!
//! The day's file says which files it takes the place of, so that from its publication on no reader counts them; they go
//! as soon as nobody reads in their hours, at once or the next time.

use crate::error::ColumnsError;
use crate::file::{Sealed, Things};
use crate::retain::remove;
use crate::seal::{Plan, key, publish};
use crate::shelf::{self, Kind};
use crate::thing::Thing;
use base::Timestamp;
use series::Row;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::DiskDevice;
use store::device::Housekeeping;
use store::names;

/// Makes one file of each whole day before this moment that has more than one; returns the files made. A day of which a
/// file cannot be read is left as it is.
///
/// # Errors
/// When the store cannot be listed, or a file cannot be written or removed.
pub fn compact(store: &Path, interface: &str, before: Timestamp) -> Result<Vec<PathBuf>, ColumnsError> {
    compact_on(&mut DiskDevice::plain(), store, interface, before)
}

/// The same on any volume.
///
/// # Errors
/// The same.
pub fn compact_on(
    disk: &mut dyn Housekeeping,
    store: &Path,
    interface: &str,
    before: Timestamp,
) -> Result<Vec<PathBuf>, ColumnsError> {
    const DAY: Duration = Duration::from_secs(86_400);
    let root = names::interface_folder(store, interface);
    let mut days: BTreeMap<Timestamp, Vec<PathBuf>> = BTreeMap::new();
    for (start, path) in shelf::files_on(disk, &root, Kind::Series).map_err(ColumnsError::io(&root))? {
        let day = start.floor_to(DAY);
        if day.after(DAY) <= before {
            days.entry(day).or_default().push(path);
        }
    }
    let mut made = Vec::new();
    for files in days.into_values().filter(|files| files.len() > 1) {
        let opened = files.iter().map(|path| Sealed::read(disk, path, Kind::Series));
        let Ok(opened) = opened.collect::<Result<Vec<_>, _>>() else { continue };
        let replaced: BTreeSet<String> = opened.iter().flat_map(|sealed| sealed.replaces.clone()).collect();
        let (old, sources): (Vec<_>, Vec<_>) =
            files.into_iter().zip(opened).partition(|(path, _)| replaced.contains(&name(path)));
        for (path, _) in old {
            remove(disk, &path)?;
        }
        if sources.len() > 1 {
            made.extend(merge(disk, &root, sources)?);
        }
    }
    Ok(made)
}

fn name(path: &Path) -> String {
    path.file_name().and_then(|n| n.to_str()).unwrap_or_default().to_owned()
}

/// A day of rows is small (two a second for each interface), so it is put in order in memory.
fn merge(
    disk: &mut dyn Housekeeping,
    root: &Path,
    sources: Vec<(PathBuf, Sealed)>,
) -> Result<Option<PathBuf>, ColumnsError> {
    let (mut rows, mut old, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for (path, sealed) in sources {
        let groups = sealed.all();
        let mut things = Things::<Row>::new(sealed, groups);
        loop {
            match things.next() {
                Ok(more) if more.is_empty() => break,
                Ok(more) => rows.extend(more),
                Err(_) => return Ok(None),
            }
        }
        names.push(name(&path));
        old.push(path);
    }
    rows.sort_by_key(Thing::order);
    let Some(start) = rows.first().map(|row| row.span().0) else { return Ok(None) };
    let notes = vec![(key::REPLACES, names.join(" "))];
    let plan = Plan { root, kind: Kind::Series, start, notes };
    let path = publish::<Row>(disk, plan, |parquet| parquet.things(&mut rows.into_iter()))?;
    for file in old {
        remove(disk, &file)?;
    }
    Ok(Some(path))
}
