//! A day of rows in one file: series are kept for years, and a year should be some hundred files, not nine thousand.
//!
//! The day's file says which files it takes the place of, so that from its publication on no reader counts them; they go
//! as soon as nobody reads in their hours, at once or the next time.

use crate::error::ColumnsError;
use crate::file::{Sealed, Things};
use crate::pack::Pack;
use crate::retain::remove;
use crate::seal::{key, publish};
use crate::shelf::{Kind, Shelved, files};
use base::Timestamp;
use series::Row;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::names;
use wire::filter::Need;

/// Makes one file of each whole day before this moment that has more than one; returns the files made. A day of which a
/// file cannot be read is left as it is.
///
/// # Errors
/// When the store cannot be listed, or a file cannot be written or removed.
pub fn compact(store: &Path, interface: &str, before: Timestamp) -> Result<Vec<PathBuf>, ColumnsError> {
    const DAY: Duration = Duration::from_secs(86_400);
    let root = names::interface_folder(store, interface);
    let mut days: BTreeMap<Timestamp, Vec<Shelved>> = BTreeMap::new();
    for file in files(store, interface, Kind::Series).map_err(ColumnsError::io(store))? {
        let day = file.start.floor_to(DAY);
        if day.after(DAY) <= before {
            days.entry(day).or_default().push(file);
        }
    }
    let mut made = Vec::new();
    for files in days.into_values().filter(|files| files.len() > 1) {
        let Ok(opened) = files.iter().map(|f| Sealed::open(&f.path, Kind::Series)).collect::<Result<Vec<_>, _>>()
        else {
            continue;
        };
        let replaced: BTreeSet<String> = opened.iter().flat_map(|sealed| sealed.replaces.clone()).collect();
        let (old, sources): (Vec<_>, Vec<_>) =
            files.into_iter().zip(opened).partition(|(file, _)| replaced.contains(&name(&file.path)));
        for (file, _) in old {
            remove(&file)?;
        }
        if sources.len() > 1 {
            made.extend(merge(&root, sources)?);
        }
    }
    Ok(made)
}

fn name(path: &Path) -> String {
    path.file_name().and_then(|n| n.to_str()).unwrap_or_default().to_owned()
}

/// A day of rows is small (two a second for each interface), so it is put in order in memory.
fn merge(root: &Path, sources: Vec<(Shelved, Sealed)>) -> Result<Option<PathBuf>, ColumnsError> {
    let (mut rows, mut old, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for (file, sealed) in sources {
        let groups = sealed.groups(Timestamp::ZERO, Timestamp::MAX, &Need::Anything, None);
        let mut things = Things::<Row>::new(sealed, groups);
        loop {
            match things.next() {
                Ok(more) if more.is_empty() => break,
                Ok(more) => rows.extend(more),
                Err(_) => return Ok(None),
            }
        }
        names.push(name(&file.path));
        old.push(file);
    }
    rows.sort_by_key(Row::order);
    let Some(start) = rows.first().map(|row| row.span().0) else { return Ok(None) };
    let notes = vec![(key::REPLACES, names.join(" "))];
    let path = publish(root, Kind::Series, start, &mut rows.into_iter().map(Ok), notes)?;
    for file in old {
        remove(&file)?;
    }
    Ok(Some(path))
}
