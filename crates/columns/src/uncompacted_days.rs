//! Reports the days whose rows remain in several files, and for each day the file that prevents the compaction:
//! [`compact`](crate::compact()) skips a day if one of its files cannot be read or has no id.

use crate::error::ColumnsError;
use crate::file::{Sealed, judge_sealed};
use crate::file_layout::{self, DataFileKind};
use base::Timestamp;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::{DiskDevice, names};

/// Returns a line for each complete day before `before` that has several files of which at least one cannot be merged
/// with the others. Files that remain only because a reader holds their hour directory are not reported.
///
/// # Errors
/// If the store cannot be listed.
pub fn uncompacted_days(store: &Path, interface: &str, before: Timestamp) -> Result<Vec<String>, ColumnsError> {
    const DAY: Duration = Duration::from_secs(86_400);
    let root = names::interface_directory(store, interface);
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
                "{}: {why}; this file and {others} other files of the same day were not merged; run netgrain verify",
                path.display()
            ))
        })
        .collect())
}

/// Returns the reason why this file cannot be merged with others; `None` if it can be merged or was removed meanwhile.
fn obstacle(path: &Path) -> Option<String> {
    match judge_sealed(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
        Err(e) => Some(e.to_string()),
        Ok(Some(what)) => Some(what),
        Ok(None) => match Sealed::open(path, DataFileKind::Series) {
            Ok(sealed) if sealed.origin.id.is_none() => Some("has no file id".to_owned()),
            _ => None,
        },
    }
}
