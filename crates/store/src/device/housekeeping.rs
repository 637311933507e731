//! Operations on a volume that retention needs and recording does not need: the free space of the volume, the space
//! that a file occupies, the processes that lock a directory, and the removal of directories (statvfs(3), stat(2),
//! flock(2), rmdir(2)). Their arguments are paths, because a retention worker inspects thousands of files without
//! opening them.

use super::{Device, DiskDevice, Lock};
use crate::hold;
use crate::{Hold, names};
use base::Timestamp;
use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, UNIX_EPOCH};
use sys::locks::Holder;
use sys::nofollow;

/// The largest number of syncs that one call executes concurrently.
const SYNCS: usize = 8;

/// Capacity of a volume in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Free bytes that a process without root's rights may use.
    pub free: u64,
    /// Bytes in total.
    pub total: u64,
}

/// Metadata of a file or directory, from stat(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Length in bytes.
    pub bytes: u64,
    /// Bytes of the volume that the file occupies; more than its length if space was preallocated.
    pub allocated: u64,
    /// Time of the last change: of a file, the last write; of a directory, the last time a name was added or removed.
    pub modified: Timestamp,
    /// Id of the volume, equal for all files of one volume.
    pub volume: u64,
}

/// A volume from which retention can remove files.
pub trait Housekeeping: Device {
    /// The capacity of the volume that contains this path.
    ///
    /// # Errors
    /// Any error that the file system returns.
    fn space(&mut self, path: &Path) -> io::Result<Space>;

    /// Metadata of a file or directory. A symbolic link is not followed.
    ///
    /// # Errors
    /// `ENOENT` if the path does not exist, or another error of the file system.
    fn stat(&mut self, path: &Path) -> io::Result<Stat>;

    /// Prevents new holds of this directory until the lock is dropped, as [`Hold::remover`] does; `None` while a reader
    /// holds the directory.
    ///
    /// # Errors
    /// `ENOENT` if the directory does not exist, or another error of the file system.
    fn lock_for_removal(&mut self, directory: &Path) -> io::Result<Option<Lock>>;

    /// The running processes that hold this directory, as far as they are visible to this process.
    fn holders(&mut self, directory: &Path) -> Vec<Holder>;

    /// Makes the content of a file, or the names in a directory, survive a power failure; returns when they are on
    /// disk.
    ///
    /// # Errors
    /// Any error that the file system returns.
    fn sync(&mut self, path: &Path) -> io::Result<()>;

    /// Like [`Self::sync`] for several files or directories, in any order; one result per path. If the syncs run
    /// concurrently, the file system writes its journal once for many of them.
    fn sync_all(&mut self, paths: &[&Path]) -> Vec<io::Result<()>> {
        paths.iter().map(|path| self.sync(path)).collect()
    }

    /// Creates several directories with their parents, and makes them survive a power failure.
    ///
    /// # Errors
    /// Any error that the file system returns. After an error, some of the directories may exist, and a power failure
    /// may remove them.
    fn create_directories(&mut self, paths: &[&Path]) -> io::Result<()> {
        paths.iter().try_for_each(|path| self.create_directory(path))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ENOTEMPTY` if the directory is not empty, or another error of the file system.
    fn remove_directory(&mut self, path: &Path) -> io::Result<()>;
}

impl Housekeeping for DiskDevice {
    fn space(&mut self, path: &Path) -> io::Result<Space> {
        let room = sys::timex::fs_space(path)?;
        Ok(Space { free: room.free, total: room.total })
    }

    fn stat(&mut self, path: &Path) -> io::Result<Stat> {
        let m = nofollow::stat(path)?;
        let since = m.modified()?.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let modified = Timestamp::ZERO.after(since);
        Ok(Stat { bytes: m.len(), allocated: 512 * m.blocks(), modified, volume: m.dev() })
    }

    fn lock_for_removal(&mut self, directory: &Path) -> io::Result<Option<Lock>> {
        // The lock file in an hour directory is for readers; in the directory of an interface, it is the lock of the
        // only retention worker.
        let hold = if names::is_hour(directory) { Hold::remover(directory)? } else { Hold::retention_lock(directory)? };
        Ok(hold.map(|hold| Box::new(hold) as Lock))
    }

    fn holders(&mut self, directory: &Path) -> Vec<Holder> {
        Hold::holders(directory)
    }

    fn sync(&mut self, path: &Path) -> io::Result<()> {
        sync(path)
    }

    fn sync_all(&mut self, paths: &[&Path]) -> Vec<io::Result<()>> {
        sync_concurrently(paths)
    }

    fn create_directories(&mut self, paths: &[&Path]) -> io::Result<()> {
        let mut parents = BTreeSet::new();
        let missing: BTreeSet<PathBuf> = paths.iter().flat_map(|path| nofollow::missing(path)).collect();
        // In sorted order of paths, parents precede their children.
        for directory in &missing {
            match nofollow::create_directory(directory) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
            parents.insert(directory.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")));
        }
        let parents: Vec<&Path> = parents.into_iter().collect();
        sync_concurrently(&parents).into_iter().collect::<io::Result<()>>()?;
        // The loop uses `create_directory`, because it adds the lock file to each new hour directory.
        paths.iter().try_for_each(|path| self.create_directory(path))
    }

    fn remove_directory(&mut self, path: &Path) -> io::Result<()> {
        hold::remove_empty(path)
    }
}

fn sync(path: &Path) -> io::Result<()> {
    match nofollow::open(path)?.sync_all() {
        // The file system does not support the sync of directories.
        Err(e) if e.kind() == io::ErrorKind::InvalidInput && nofollow::is_directory(path) => Ok(()),
        other => other,
    }
}

/// Syncs these paths with several threads, because a sync mostly waits for the disk.
fn sync_concurrently(paths: &[&Path]) -> Vec<io::Result<()>> {
    let next = AtomicUsize::new(0);
    let some = || {
        let mine = std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed)).filter(|at| *at < paths.len()));
        mine.map(|at| (at, sync(paths[at]))).collect::<Vec<_>>()
    };
    let mut done = std::thread::scope(|scope| {
        let spawn = |_| std::thread::Builder::new().name("sync".into()).spawn_scoped(scope, some).ok();
        // If no thread can be started, the calling thread syncs all paths.
        let others: Vec<_> = (1..paths.len().min(SYNCS)).map_while(spawn).collect();
        let mine = some();
        others
            .into_iter()
            .flat_map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .chain(mine)
            .collect::<Vec<_>>()
    });
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, outcome)| outcome).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hold::HOLD;
    use std::fs;

    #[test]
    fn space_of_a_volume_and_metadata_of_a_file_are_returned() {
        let dir = testkit::TempDir::new("housekeeping");
        let mut device = DiskDevice::plain();
        assert_eq!(device.space(&dir.join("nowhere")).unwrap_err().kind(), io::ErrorKind::NotFound);
        let space = device.space(dir.path()).expect("a volume");
        assert!(space.total > 0 && space.free <= space.total, "{space:?}");
        let path = dir.join("f");
        fs::write(&path, [7; 5000]).expect("a file");
        let stat = device.stat(&path).expect("the file");
        assert_eq!((stat.bytes, stat.volume), (5000, device.stat(dir.path()).expect("the directory").volume));
        device.sync(&path).expect("the content");
        device.sync(dir.path()).expect("the name");
    }

    #[test]
    fn sync_all_returns_results_in_the_order_of_the_paths() {
        let dir = testkit::TempDir::new("housekeeping");
        let mut device = DiskDevice::plain();
        let hours: Vec<PathBuf> =
            (0..30).map(|hour| dir.join(format!("eth1/2026/11/{:02}/{hour:02}", 1 + hour / 7))).collect();
        let all: Vec<&Path> = hours.iter().map(|hour| &**hour).collect();
        device.create_directories(&all).expect("directories");
        assert!(hours.iter().all(|hour| hour.join(HOLD).is_file()), "each hour directory has a lock file for readers");
        device.create_directories(&all).expect("directories that are there");
        let files: Vec<PathBuf> = hours.iter().map(|hour| hour.join("f")).collect();
        // Every third file is missing.
        files
            .iter()
            .enumerate()
            .filter(|(i, _)| i % 3 > 0)
            .for_each(|(_, path)| fs::write(path, [7; 5000]).expect("a file"));
        let outcomes = device.sync_all(&files.iter().map(|path| &**path).collect::<Vec<_>>());
        let kinds = outcomes.into_iter().map(|outcome| outcome.map_err(|e| e.kind()));
        let wanted = (0..30).map(|i| if i % 3 > 0 { Ok(()) } else { Err(io::ErrorKind::NotFound) });
        assert!(kinds.eq(wanted));
        assert!(device.sync_all(&[]).is_empty());
        // `eth2` is a file, so no directory can be created below it.
        fs::write(dir.join("eth2"), b"").expect("a file");
        assert!(device.create_directories(&[&dir.join("eth2/2026")]).is_err());
    }

    #[test]
    fn only_empty_directories_without_readers_are_removed() {
        let dir = testkit::TempDir::new("housekeeping");
        let mut device = DiskDevice::plain();
        let hour = dir.join("2026/11/24/10");
        fs::create_dir_all(&hour).expect("a directory");
        let reader = Hold::reader(&hour).expect("a reader");
        assert!(device.lock_for_removal(&hour).expect("a look").is_none());
        drop(reader);
        assert!(device.lock_for_removal(&hour).expect("a look").is_some());
        fs::write(hour.join("foreign"), b"").expect("a file");
        assert_eq!(device.remove_directory(&hour).unwrap_err().kind(), io::ErrorKind::DirectoryNotEmpty);
        fs::remove_file(hour.join("foreign")).expect("the file");
        device.remove_directory(&hour).expect("an empty directory");
        assert_eq!(device.stat(&hour).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
