//! Days of rows that stay in several files, and which file of each is in the way: [`compact`](crate::compact()) leaves
//! a day alone of which it cannot read a file or cannot name it by a number.

use crate::error::ColumnsError;
use crate::file::{Sealed, judge_sealed};
use crate::file_layout::{self, DataFileKind};
use base::Timestamp;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::{DiskDevice, names};

/// A line for each whole day before this moment that has several files of which one cannot be put together with the
/// others. Files that stay because somebody reads them are not meant.
///
/// # Errors
/// When the store cannot be listed.
pub fn left_apart(store: &Path, interface: &str, before: Timestamp) -> Result<Vec<String>, ColumnsError> {
    const DAY: Duration = Duration::from_secs(86_400);
    let root = names::interface_folder(store, interface);
    let mut days: BTreeMap<Timestamp, Vec<PathBuf>> = BTreeMap::new();
    let files = file_layout::files_on(&mut DiskDevice::plain(), &root, DataFileKind::Series)
        .map_err(ColumnsError::io(&root))?;
    for (start, path) in files {
        let day = start.floor_to(DAY);
        if day.after(DAY) <= before {
            days.entry(day).or_default().push(path);
        }
    }
    let several = days.into_values().filter(|files| files.len() > 1);
    Ok(several
        .filter_map(|files| {
            let (path, why) = files.iter().find_map(|path| Some((path, obstacle(path)?)))?;
            let others = files.len() - 1;
            Some(format!(
                "{}: {why}; it and {others} other files of its day are not put together: netgrain verify",
                path.display()
            ))
        })
        .collect())
}

/// Why this file cannot be put together with others. One that is gone meanwhile is in nobody's way.
fn obstacle(path: &Path) -> Option<String> {
    match judge_sealed(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
        Err(e) => Some(e.to_string()),
        Ok(Some(what)) => Some(what),
        Ok(None) => match Sealed::open(path, DataFileKind::Series) {
            Ok(sealed) if sealed.origin.id.is_none() => Some("has no number of its own".to_owned()),
            _ => None,
        },
    }
}
