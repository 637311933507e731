//! Making room, kind by kind: the oldest sealed files of flow records or of series go, by age and by size. Free space is the
//! packets' concern: they are what fills a volume.
//!
//! Nothing goes in an hour that a reader holds, and nothing but sealed files of ours.

use crate::error::ColumnsError;
use crate::shelf::{Kind, files};
use base::Timestamp;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::DiskDevice;
use store::device::Housekeeping;

/// What is to be kept of one kind; a rule that is not set does not hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// No file begins longer ago.
    pub max_age: Option<Duration>,
    /// All together are no longer.
    pub max_size: Option<u64>,
}

/// What was done, and what is there now.
#[derive(Debug, Default)]
pub struct Kept {
    /// Files that went, with their bytes.
    pub removed: Vec<(PathBuf, u64)>,
    /// Files that should have gone but lie in an hour that somebody reads.
    pub held: u64,
    /// Files that are kept.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Removes what the rules do not keep. A file that begins more than an hour from now was named by a wrong clock: it has no
/// age, and goes first when there is too much.
///
/// # Errors
/// When the store cannot be listed, or a file cannot be removed.
pub fn retain(store: &Path, interface: &str, kind: Kind, rules: &Rules, now: Timestamp) -> Result<Kept, ColumnsError> {
    let mut disk = DiskDevice::plain();
    keep(store, interface, kind, rules, now, |path| remove(&mut disk, path))
}

/// What [`retain`] would do, if nobody reads anywhere.
///
/// # Errors
/// When the store cannot be listed.
pub fn would_retain(
    store: &Path,
    interface: &str,
    kind: Kind,
    rules: &Rules,
    now: Timestamp,
) -> Result<Kept, ColumnsError> {
    keep(store, interface, kind, rules, now, |_| Ok(true))
}

fn keep(
    store: &Path,
    interface: &str,
    kind: Kind,
    rules: &Rules,
    now: Timestamp,
    mut remove: impl FnMut(&Path) -> Result<bool, ColumnsError>,
) -> Result<Kept, ColumnsError> {
    let mut all = files(store, interface, kind).map_err(ColumnsError::io(store))?;
    let believed = now.after(Duration::from_secs(3600));
    all.sort_by_key(|file| (file.start <= believed, file.start, file.copy));
    let mut kept = Kept { bytes: all.iter().map(|f| f.bytes).sum(), ..Kept::default() };
    let oldest = rules.max_age.map_or(Timestamp::ZERO, |age| now.before(age));
    for file in all {
        let goes = file.start < oldest || rules.max_size.is_some_and(|most| kept.bytes > most);
        if !goes {
            kept.files += 1;
        } else if remove(&file.path)? {
            kept.bytes -= file.bytes;
            kept.removed.push((file.path, file.bytes));
        } else {
            (kept.held, kept.files) = (kept.held + 1, kept.files + 1);
        }
    }
    Ok(kept)
}

/// False if somebody reads there. The folders above go when they are empty.
pub(crate) fn remove(disk: &mut dyn Housekeeping, path: &Path) -> Result<bool, ColumnsError> {
    let folder = path.parent().unwrap_or(path);
    match disk.lock_out(folder) {
        Ok(None) => return Ok(false),
        Ok(Some(_lock)) => match disk.remove(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(ColumnsError::io(path)(e)),
            _ => {}
        },
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(ColumnsError::io(folder)(e)),
    }
    // Hour, day, month, year: the first that is not empty ends it.
    let _ = folder.ancestors().take(4).try_for_each(|folder| disk.remove_folder(folder));
    Ok(true)
}
