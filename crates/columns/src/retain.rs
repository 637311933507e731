//! Making room, kind by kind: the oldest sealed files of flow records or of series go, by age and by size. Free space is the
//! packets' concern: they are what fills a volume.
//!
//! What lies in an hour that a reader holds goes only once it was waited for and no later files can go for it; and nothing goes but
//! sealed files of ours.

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

/// What is to be kept of one kind; a rule that is not set does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionRules {
    /// No file begins longer ago.
    pub max_age: Option<Duration>,
    /// All together are no longer.
    pub max_size: Option<u64>,
    /// How long an hour that a reader holds is waited for.
    pub wait: Duration,
}

impl Default for RetentionRules {
    fn default() -> Self {
        Self { max_age: None, max_size: None, wait: store::hold::WAIT }
    }
}

/// Since when hours are waited for that readers hold: by the clock of whoever asks.
#[derive(Clone, Debug, Default)]
pub struct HeldSince(BTreeMap<PathBuf, Duration>);

/// What was done, and what is there now.
#[derive(Debug, Default)]
pub struct RetentionResult {
    /// Files that went, with their bytes.
    pub removed: Vec<(PathBuf, u64)>,
    /// Files that should have gone but lie in an hour that somebody reads.
    pub held: u64,
    /// The living processes that hold those hours, as far as they can be seen.
    pub by: Vec<Holder>,
    /// How many of the removed files somebody held who was waited for long enough.
    pub overruled: u64,
    /// Files that are kept.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Removes what the rules do not keep. A file that begins more than an hour from now was named by a wrong clock: it has no
/// age, and goes first when there is too much. `up` is the time on any clock that goes steadily from one call with `waiting` to the
/// next: it tells how long readers were waited for.
///
/// # Errors
/// When the store cannot be listed, or a file cannot be removed.
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
        let folder = path.parent().unwrap_or(path);
        if remove(&mut disk, path)? {
            return Ok(RemovalResult::Gone);
        }
        let since = *waiting.0.get(folder).unwrap_or(&up);
        met.0.insert(folder.to_owned(), since);
        if !may_wait {
            return remove_from(&mut disk, path).map(|()| RemovalResult::Gone);
        }
        by.extend(disk.holders(folder).into_iter().filter(|holder| !by.contains(holder)).collect::<Vec<_>>());
        Ok(if up.saturating_sub(since) < rules.wait { RemovalResult::Awaited } else { RemovalResult::Held })
    })?;
    *waiting = met;
    kept.by = by;
    Ok(kept)
}

/// What became of a file that should go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RemovalResult {
    Gone,
    /// Its reader is waited for.
    Awaited,
    /// Its reader was waited for long enough.
    Held,
}

/// What [`retain`] would do, if nobody reads anywhere.
///
/// # Errors
/// When the store cannot be listed.
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
        // While a reader is waited for, none goes in place of what it holds.
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
        // Nothing else can go, or it has to go itself.
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

/// False if somebody reads there. The folders above go when they are empty.
pub(crate) fn remove(disk: &mut dyn Housekeeping, path: &Path) -> Result<bool, ColumnsError> {
    let folder = path.parent().unwrap_or(path);
    match disk.lock_out(folder) {
        Ok(None) => return Ok(false),
        Ok(Some(_lock)) => return remove_from(disk, path).map(|()| true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(ColumnsError::io(folder)(e)),
    }
    tidy(disk, folder);
    Ok(true)
}

/// Whoever reads there.
fn remove_from(disk: &mut dyn Housekeeping, path: &Path) -> Result<(), ColumnsError> {
    match disk.remove(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(ColumnsError::io(path)(e)),
        _ => {}
    }
    tidy(disk, path.parent().unwrap_or(path));
    Ok(())
}

fn tidy(disk: &mut dyn Housekeeping, folder: &Path) {
    // Hour, day, month, year: the first that is not empty ends it.
    let _ = folder.ancestors().take(4).try_for_each(|folder| disk.remove_folder(folder));
}
