//! Retention of flow records and of series: removes the oldest sealed files if they are too old or if all of them
//! together are too large. This module does not maintain free space on the volume: packet retention does, because
//! packets take most of the space.
//!
//! If a reader holds an hour directory, a file in it is removed only after a wait, and only if the removal of later
//! files that no reader holds does not suffice. Only sealed files of netgrain are removed.

use crate::error::ColumnsError;
use crate::file_layout::{DataFileKind, files};
use base::Timestamp;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::DiskDevice;
use store::device::Housekeeping;
use sys::locks::Holder;

/// Retention rules for the files of one table (flow records or series rows); `None` disables a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionRules {
    /// Files whose first row began more than this duration ago are removed.
    pub max_age: Option<Duration>,
    /// The greatest total size of the files in bytes; the oldest files above it are removed.
    pub max_size: Option<u64>,
    /// How long retention waits for a reader that holds an hour directory, before it removes files in that directory.
    pub wait: Duration,
}

impl Default for RetentionRules {
    fn default() -> Self {
        Self { max_age: None, max_size: None, wait: store::hold::WAIT }
    }
}

/// For each held hour directory, the time at which retention began to wait for it, by the caller's monotonic clock.
#[derive(Clone, Debug, Default)]
pub struct HeldSince(BTreeMap<PathBuf, Duration>);

/// The result of applying the retention rules.
#[derive(Debug, Default)]
pub struct RetentionResult {
    /// The removed files, with the number of bytes of each.
    pub removed: Vec<(PathBuf, u64)>,
    /// Files that should have been removed but are held by a reader.
    pub held: u64,
    /// The running processes that hold the hour directories of files that should have been removed, as far as they can
    /// be determined.
    pub by: Vec<Holder>,
    /// Number of files that were removed after the wait although a reader still held their hour directory.
    pub overruled: u64,
    /// Number of remaining files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Applies the rules. A file that begins more than an hour in the future was named by a wrong clock: it has no age, and
/// is removed first when the total is too large. `up` is the time on a monotonic clock shared by all calls with the
/// same `waiting`; it measures how long retention has waited for readers.
///
/// # Errors
/// If the store cannot be listed, or a file cannot be removed.
pub fn retain(
    store: &Path,
    interface: &str,
    kind: DataFileKind,
    rules: &RetentionRules,
    now: Timestamp,
    (waiting, up): (&mut HeldSince, Duration),
) -> Result<RetentionResult, ColumnsError> {
    let mut disk = DiskDevice::plain();
    let mut by: Vec<Holder> = Vec::new();
    let mut met = HeldSince::default();
    let mut kept = keep(store, interface, kind, rules, now, |path, may_wait| {
        let directory = path.parent().unwrap_or(path);
        if remove(&mut disk, path)? {
            return Ok(RemovalResult::Gone);
        }
        let since = *waiting.0.get(directory).unwrap_or(&up);
        met.0.insert(directory.to_owned(), since);
        if !may_wait {
            return remove_from(&mut disk, path).map(|()| RemovalResult::Gone);
        }
        by.extend(disk.holders(directory).into_iter().filter(|holder| !by.contains(holder)).collect::<Vec<_>>());
        Ok(if up.saturating_sub(since) < rules.wait { RemovalResult::Awaited } else { RemovalResult::Held })
    })?;
    *waiting = met;
    kept.by = by;
    Ok(kept)
}

/// The result of an attempt to remove a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RemovalResult {
    Gone,
    /// A reader holds the hour directory of the file, and retention still waits for the reader.
    Awaited,
    /// A reader holds the hour directory of the file, and retention has waited long enough.
    Held,
}

/// The result that [`retain`] would have if no reader held a file.
///
/// # Errors
/// If the store cannot be listed.
pub fn would_retain(
    store: &Path,
    interface: &str,
    kind: DataFileKind,
    rules: &RetentionRules,
    now: Timestamp,
) -> Result<RetentionResult, ColumnsError> {
    keep(store, interface, kind, rules, now, |_, _| Ok(RemovalResult::Gone))
}

fn keep(
    store: &Path,
    interface: &str,
    kind: DataFileKind,
    rules: &RetentionRules,
    now: Timestamp,
    mut remove: impl FnMut(&Path, bool) -> Result<RemovalResult, ColumnsError>,
) -> Result<RetentionResult, ColumnsError> {
    let mut all = files(store, interface, kind).map_err(ColumnsError::io(store))?;
    let believed = now.after(Duration::from_secs(3600));
    all.sort_by_key(|file| (file.start <= believed, file.start, file.copy));
    let mut kept = RetentionResult { bytes: all.iter().map(|f| f.bytes).sum(), ..RetentionResult::default() };
    let oldest = rules.max_age.map_or(Timestamp::ZERO, |age| now.before(age));
    let is_too_much = |bytes: u64| rules.max_size.is_some_and(|most| bytes > most);
    let (mut held, mut awaits) = (Vec::new(), false);
    for file in all {
        // While retention waits for the reader of a held file, it removes no later file to reduce the total size.
        if !(file.start < oldest || !awaits && is_too_much(kept.bytes)) {
            kept.files += 1;
            continue;
        }
        match remove(&file.path, true)? {
            RemovalResult::Gone => kept.count(file.path, file.bytes),
            RemovalResult::Awaited => {
                awaits = true;
                (kept.held, kept.files) = (kept.held + 1, kept.files + 1);
            }
            RemovalResult::Held => held.push(file),
        }
    }
    for file in held {
        // A held file is removed after the wait if it exceeds the greatest age, or if the total size is still too large
        // after the removal of all files without a reader.
        if (file.start < oldest || is_too_much(kept.bytes)) && remove(&file.path, false)? == RemovalResult::Gone {
            kept.overruled += 1;
            kept.count(file.path, file.bytes);
        } else {
            (kept.held, kept.files) = (kept.held + 1, kept.files + 1);
        }
    }
    Ok(kept)
}

impl RetentionResult {
    fn count(&mut self, path: PathBuf, bytes: u64) {
        self.bytes -= bytes;
        self.removed.push((path, bytes));
    }
}

/// Removes a file; returns false if a reader holds its hour directory. Empty parent directories are removed too.
pub(crate) fn remove(disk: &mut dyn Housekeeping, path: &Path) -> Result<bool, ColumnsError> {
    let directory = path.parent().unwrap_or(path);
    match disk.lock_for_removal(directory) {
        Ok(None) => return Ok(false),
        Ok(Some(_lock)) => return remove_from(disk, path).map(|()| true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(ColumnsError::io(directory)(e)),
    }
    tidy(disk, directory);
    Ok(true)
}

/// Removes a file even if a reader holds its hour directory.
fn remove_from(disk: &mut dyn Housekeeping, path: &Path) -> Result<(), ColumnsError> {
    match disk.remove(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(ColumnsError::io(path)(e)),
        _ => {}
    }
    tidy(disk, path.parent().unwrap_or(path));
    Ok(())
}

fn tidy(disk: &mut dyn Housekeeping, directory: &Path) {
    // Removes the directories of hour, day, month and year, up to the first that is not empty.
    let _ = directory.ancestors().take(4).try_for_each(|directory| disk.remove_directory(directory));
}
