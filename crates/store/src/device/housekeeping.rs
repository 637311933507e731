//! What making room asks of a volume beyond what recording and reading do: how much is free, what a file takes, who
//! holds a folder (statvfs(3), stat(2), flock(2), rmdir(2)). All by path: a keeper looks at thousands of files and has
//! none of them open.

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

/// Syncs that one caller has under way at once.
const SYNCS: usize = 8;

/// Bytes of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// What an ordinary user may still write.
    pub free: u64,
    /// All there are.
    pub total: u64,
}

/// What is known of a file or folder without opening it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Its length.
    pub bytes: u64,
    /// Bytes of the volume that it takes; more than its length where room was allocated ahead.
    pub allocated: u64,
    /// When it was changed last; a folder, when a name in it came or went.
    pub modified: Timestamp,
    /// The volume that it lies on; the same number is the same volume.
    pub volume: u64,
}

/// A volume on which room can be made.
pub trait Housekeeping: Device {
    /// How much the volume of this path has.
    ///
    /// # Errors
    /// What the file system says.
    fn space(&mut self, path: &Path) -> io::Result<Space>;

    /// What is known of a file or folder. A symbolic link is told of itself.
    ///
    /// # Errors
    /// `ENOENT`, or what the file system says.
    fn stat(&mut self, path: &Path) -> io::Result<Stat>;

    /// Keeps readers out of this folder for as long as the lock lives, as [`Hold::remover`] does; `None` while one
    /// holds it.
    ///
    /// # Errors
    /// `ENOENT`, or what the file system says.
    fn lock_out(&mut self, folder: &Path) -> io::Result<Option<Lock>>;

    /// The living processes that hold this folder, as far as they can be seen from here.
    fn holders(&mut self, folder: &Path) -> Vec<Holder>;

    /// Makes the content of a file, or the names in a folder, survive a power failure, now.
    ///
    /// # Errors
    /// What the file system says.
    fn sync(&mut self, path: &Path) -> io::Result<()>;

    /// The same of several files or of several folders, in any order; what became of each. A volume that answers them
    /// side by side writes its own journal once for many of them.
    fn sync_all(&mut self, paths: &[&Path]) -> Vec<io::Result<()>> {
        paths.iter().map(|path| self.sync(path)).collect()
    }

    /// Makes several folders with all above them, so that they survive a power failure.
    ///
    /// # Errors
    /// What the file system says; some of them may have been made then, and not all of those be safe.
    fn create_folders(&mut self, paths: &[&Path]) -> io::Result<()> {
        paths.iter().try_for_each(|path| self.create_folder(path))
    }

    /// Removes a folder in which nothing is.
    ///
    /// # Errors
    /// `ENOTEMPTY`, or what the file system says.
    fn remove_folder(&mut self, path: &Path) -> io::Result<()>;
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

    fn lock_out(&mut self, folder: &Path) -> io::Result<Option<Lock>> {
        // Readers hold hours; of the folder of an interface there is only one keeper.
        let hold = if names::is_hour(folder) { Hold::remover(folder)? } else { Hold::retention_lock(folder)? };
        Ok(hold.map(|hold| Box::new(hold) as Lock))
    }

    fn holders(&mut self, folder: &Path) -> Vec<Holder> {
        Hold::holders(folder)
    }

    fn sync(&mut self, path: &Path) -> io::Result<()> {
        sync(path)
    }

    fn sync_all(&mut self, paths: &[&Path]) -> Vec<io::Result<()>> {
        side_by_side(paths)
    }

    fn create_folders(&mut self, paths: &[&Path]) -> io::Result<()> {
        let mut parents = BTreeSet::new();
        let missing: BTreeSet<PathBuf> = paths.iter().flat_map(|path| nofollow::missing(path)).collect();
        // In the order of paths what lies above comes first.
        for folder in &missing {
            match nofollow::create_folder(folder) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
            parents.insert(folder.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")));
        }
        let parents: Vec<&Path> = parents.into_iter().collect();
        side_by_side(&parents).into_iter().collect::<io::Result<()>>()?;
        // What else belongs to a new folder is made there.
        paths.iter().try_for_each(|path| self.create_folder(path))
    }

    fn remove_folder(&mut self, path: &Path) -> io::Result<()> {
        hold::remove_empty(path)
    }
}

fn sync(path: &Path) -> io::Result<()> {
    match nofollow::open(path)?.sync_all() {
        // A file system that knows no sync of folders.
        Err(e) if e.kind() == io::ErrorKind::InvalidInput && nofollow::is_folder(path) => Ok(()),
        other => other,
    }
}

/// Syncs these by some threads. Most of a sync is waiting for the disk.
fn side_by_side(paths: &[&Path]) -> Vec<io::Result<()>> {
    let next = AtomicUsize::new(0);
    let some = || {
        let mine = std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed)).filter(|at| *at < paths.len()));
        mine.map(|at| (at, sync(paths[at]))).collect::<Vec<_>>()
    };
    let mut done = std::thread::scope(|scope| {
        let spawn = |_| std::thread::Builder::new().name("sync".into()).spawn_scoped(scope, some).ok();
        // Where no thread can be had, this one does it all.
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
    fn a_volume_tells_its_room_and_a_file_what_it_takes() {
        let dir = testkit::TempDir::new("housekeeping");
        let mut device = DiskDevice::plain();
        assert_eq!(device.space(&dir.join("nowhere")).unwrap_err().kind(), io::ErrorKind::NotFound);
        let space = device.space(dir.path()).expect("a volume");
        assert!(space.total > 0 && space.free <= space.total, "{space:?}");
        let path = dir.join("f");
        fs::write(&path, [7; 5000]).expect("a file");
        let stat = device.stat(&path).expect("the file");
        assert_eq!((stat.bytes, stat.volume), (5000, device.stat(dir.path()).expect("the folder").volume));
        device.sync(&path).expect("the content");
        device.sync(dir.path()).expect("the name");
    }

    #[test]
    fn several_are_synced_together_and_what_became_of_each_is_told_in_its_place() {
        let dir = testkit::TempDir::new("housekeeping");
        let mut device = DiskDevice::plain();
        let hours: Vec<PathBuf> =
            (0..30).map(|hour| dir.join(format!("eth1/2026/11/{:02}/{hour:02}", 1 + hour / 7))).collect();
        let all: Vec<&Path> = hours.iter().map(|hour| &**hour).collect();
        device.create_folders(&all).expect("folders");
        assert!(hours.iter().all(|hour| hour.join(HOLD).is_file()), "hours that can be held");
        device.create_folders(&all).expect("folders that are there");
        let files: Vec<PathBuf> = hours.iter().map(|hour| hour.join("f")).collect();
        // Every third is not there.
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
        // A file is in the way.
        fs::write(dir.join("eth2"), b"").expect("a file");
        assert!(device.create_folders(&[&dir.join("eth2/2026")]).is_err());
    }

    #[test]
    fn a_folder_goes_when_it_is_empty_and_a_reader_keeps_the_remover_out() {
        let dir = testkit::TempDir::new("housekeeping");
        let mut device = DiskDevice::plain();
        let hour = dir.join("2026/11/24/10");
        fs::create_dir_all(&hour).expect("a folder");
        let reader = Hold::reader(&hour).expect("a reader");
        assert!(device.lock_out(&hour).expect("a look").is_none());
        drop(reader);
        assert!(device.lock_out(&hour).expect("a look").is_some());
        fs::write(hour.join("foreign"), b"").expect("a file");
        assert_eq!(device.remove_folder(&hour).unwrap_err().kind(), io::ErrorKind::DirectoryNotEmpty);
        fs::remove_file(hour.join("foreign")).expect("the file");
        device.remove_folder(&hour).expect("an empty folder");
        assert_eq!(device.stat(&hour).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
