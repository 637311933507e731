//! Locks between readers and retention. A reader holds (locks) an hour directory, and retention removes files only from
//! directories without holds. A hold is a lock (flock(2)) on a small file in the hour directory, [`HOLD`]. The owner of
//! the store creates that file with the permissions of the packet files (0640). Members of its group, who may read
//! packets, can hold the directory. Other users cannot hold it, even if they may list the directory or read other
//! files. The kernel releases a hold when its process ends, and a reader needs only one file descriptor per hour
//! directory.
//!
//! A hold delays the removal of a file only by some seconds; after this time retention removes the file in spite of the
//! hold. If a reader has opened a file, it can still read the file after the removal.

use crate::names;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use sys::locks::Holder;
use sys::nofollow::{self, OpenOptions};

/// Name of the lock file in each hour directory and each interface directory.
pub const HOLD: &str = ".hold";

/// Name of the file that the retention worker of an interface locks: only the store's owner can open it.
pub const RETENTION_LOCK: &str = ".retention";

/// Default time for which retention waits for readers, and for which readers wait for a process with an exclusive lock.
pub const WAIT: Duration = Duration::from_secs(5);

/// The time for which no reader of this process waits for a lock after a timeout. So if a process locks a thousand hour
/// directories, a query waits only for the first of them.
const NO_WAIT_FOR: Duration = Duration::from_secs(60);

/// The time of the last timeout of a reader of this process.
static LAST_TIMEOUT: Mutex<Option<Instant>> = Mutex::new(None);

/// Permissions of the lock file.
const MODE: u32 = 0o640;

/// Number of attempts to get a lock. A process that only tests whether a file is locked has a lock itself for some
/// microseconds, or longer if it is preempted; a real holder has its lock during all attempts.
const TRIES: u32 = 20;
const BETWEEN_TRIES: Duration = Duration::from_millis(5);

/// A lock on a directory; dropping it releases the lock.
#[derive(Debug)]
pub struct Hold {
    #[expect(dead_code, reason = "the open file keeps the lock")]
    file: Option<File>,
    obstacle: Option<String>,
}

impl Hold {
    /// Takes a reader's hold of a directory. Until the hold is dropped, or until the time for which retention waits for
    /// readers has passed, no file in this directory is removed. While retention is removing files in the directory,
    /// this function waits. The wait is short, but it has a timeout, because every member of the store's group can lock
    /// the file. If a reader cannot get the lock (because its user is outside of the store's group, the file system has
    /// no locks, or the wait timed out), the result is a hold without a lock, and files may be removed while they are
    /// read.
    ///
    /// # Errors
    /// The directory does not exist (any more).
    pub fn reader(directory: &Path) -> io::Result<Self> {
        Self::reader_within(directory, WAIT, &LAST_TIMEOUT)
    }

    fn reader_within(directory: &Path, timeout: Duration, last_timeout: &Mutex<Option<Instant>>) -> io::Result<Self> {
        let begun = Instant::now();
        let last_timeout = || last_timeout.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let Some(file) = open(directory)? else { return Ok(Self::none()) };
            let mut locked = file.try_lock_shared();
            while matches!(locked, Err(TryLockError::WouldBlock)) {
                let has_timed_out = last_timeout().is_some_and(|at| at.elapsed() < NO_WAIT_FOR);
                if has_timed_out || begun.elapsed() >= timeout {
                    let mut last = last_timeout();
                    if last.is_none_or(|at| at.elapsed() >= NO_WAIT_FOR) {
                        *last = Some(Instant::now());
                    }
                    return Ok(Self { obstacle: Some(obstacle(directory)), ..Self::none() });
                }
                std::thread::sleep(BETWEEN_TRIES);
                locked = file.try_lock_shared();
            }
            if is_named(&file, directory) {
                return Ok(Self { file: Some(file), obstacle: None });
            }
        }
    }

    fn none() -> Self {
        Self { file: None, obstacle: None }
    }

    fn of(file: File) -> Self {
        Self { file: Some(file), obstacle: None }
    }

    /// The reason why the lock is missing although this user may open the lock file; the reader continues without a
    /// lock.
    pub fn obstacle(&self) -> Option<&str> {
        self.obstacle.as_deref()
    }

    /// Takes the exclusive lock with which retention removes files; `None` while a reader holds the directory.
    ///
    /// # Errors
    /// The directory does not exist.
    pub fn remover(directory: &Path) -> io::Result<Option<Self>> {
        loop {
            let Some(file) = open(directory)? else { return Ok(Some(Self::none())) };
            match file.try_lock() {
                Err(TryLockError::WouldBlock) => return Ok(None),
                Ok(()) | Err(TryLockError::Error(_)) if is_named(&file, directory) => return Ok(Some(Self::of(file))),
                Ok(()) | Err(TryLockError::Error(_)) => {}
            }
        }
    }

    /// Takes the lock of the only retention worker of this interface directory; `None` while another process has this
    /// lock. Only the store's owner can take the lock.
    ///
    /// # Errors
    /// The directory does not exist, or belongs to another user.
    pub fn retention_lock(directory: &Path) -> io::Result<Option<Self>> {
        let file = make_private(&directory.join(RETENTION_LOCK))?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => Ok(None),
            Ok(()) | Err(TryLockError::Error(_)) => Ok(Some(Self::of(file))),
        }
    }

    /// The running processes that hold a directory, as far as they are visible to this process.
    pub fn holders(directory: &Path) -> Vec<Holder> {
        nofollow::open(&directory.join(HOLD)).and_then(|file| sys::locks::holders(&file)).unwrap_or_default()
    }
}

/// The message for a reader that timed out; it names the processes that have the lock, as far as they are visible to
/// this process.
fn obstacle(directory: &Path) -> String {
    let holders: Vec<String> = Hold::holders(directory).iter().map(ToString::to_string).collect();
    let holder = if holders.is_empty() {
        "a process that cannot be seen from here (in another container?)".to_owned()
    } else {
        holders.join(", ")
    };
    format!(
        "{}: read without a hold, since {holder} has locked {HOLD}; retention may remove files meanwhile",
        directory.display()
    )
}

/// Creates the lock file of a directory, if it does not exist.
///
/// # Errors
/// Any error that the file system returns.
pub(crate) fn make(directory: &Path) -> io::Result<File> {
    nofollow::open_as(&directory.join(HOLD), OpenOptions { write: true, create: Some(MODE), ..OpenOptions::default() })
}

/// Creates a lock file that only the owner of its directory can lock. If root creates the file, its ownership is
/// changed to that owner, who otherwise could not open the file later.
///
/// # Errors
/// Any error that the file system returns.
pub(crate) fn make_private(path: &Path) -> io::Result<File> {
    let file = nofollow::open_as(path, OpenOptions { write: true, create: Some(0o600), ..OpenOptions::default() })?;
    let directory = nofollow::stat(path.parent().unwrap_or(path))?;
    if file.metadata()?.uid() != directory.uid() {
        // A process without the right to change the owner is not root, so it has created the file as its own user.
        let _ = std::os::unix::fs::fchown(&file, Some(directory.uid()), Some(directory.gid()));
    }
    Ok(file)
}

/// Opens the lock file of a directory. The owner of the directory creates the file if it is missing; `None` for users
/// who may not open it.
fn open(directory: &Path) -> io::Result<Option<File>> {
    match nofollow::open(&directory.join(HOLD)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        other => return other.map(Some),
    }
    // Only the owner of the directory creates the lock file: a file of another user could be locked by users outside of
    // the store's group.
    if nofollow::stat(directory)?.uid() != sys::cpu::effective_uid() {
        return Ok(None);
    }
    match make(directory) {
        Err(e) if e.kind() == io::ErrorKind::NotFound && !nofollow::is_directory(directory) => Err(e),
        // The lock file cannot be created on a full or read-only volume, or without write permission.
        other => Ok(other.ok()),
    }
}

/// True if the open file is still the lock file of the directory: an emptied directory is removed with its lock file,
/// and may be created again with a new lock file.
fn is_named(file: &File, directory: &Path) -> bool {
    let named = nofollow::stat(&directory.join(HOLD));
    match (file.metadata(), named) {
        (Ok(opened), Ok(named)) => (opened.dev(), opened.ino()) == (named.dev(), named.ino()),
        // The lookup of the lock file failed although the file may exist; if the directory was removed, the next
        // operation fails.
        (_, Err(e)) if e.kind() != io::ErrorKind::NotFound => true,
        (Err(_), _) => true,
        _ => false,
    }
}

/// Locks a file that no process holds; retries, because a process that only tests the lock also holds it for a short
/// time.
///
/// # Errors
/// `WouldBlock` if another process holds the lock, or an error of the file system.
pub(crate) fn lock(file: &File) -> Result<(), TryLockError> {
    let mut tries = 1;
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if tries < TRIES => {
                tries += 1;
                std::thread::sleep(BETWEEN_TRIES);
            }
            other => return other,
        }
    }
}

/// Removes a directory that is empty except for its lock files.
///
/// # Errors
/// `ENOTEMPTY` if the directory contains other files, or another error of the file system.
pub(crate) fn remove_empty(directory: &Path) -> io::Result<()> {
    let refused = match nofollow::remove_directory(directory) {
        Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => e,
        other => return other,
    };
    let left = nofollow::list(directory)?;
    if left.iter().any(|(name, _)| name != HOLD && name != RETENTION_LOCK) {
        return Err(refused);
    }
    left.iter().try_for_each(|(name, _)| nofollow::remove(&directory.join(name)))?;
    nofollow::remove_directory(directory).inspect_err(|_| {
        // The directory was not removed, because another process has created a file in it since it was listed. The lock
        // files are removed already, so an hour directory gets a new lock file.
        if names::is_hour(directory) {
            let _ = make(directory);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;

    /// Waits until the condition is true; returns false after 30 s. The wait is needed because a lock may last longer
    /// than its holder: while another test starts a program, the child process has a copy of every descriptor until it
    /// executes the program.
    fn becomes(condition: impl Fn() -> bool) -> bool {
        let started = Instant::now();
        while !condition() {
            if started.elapsed() > Duration::from_secs(30) {
                return false;
            }
            std::thread::sleep(BETWEEN_TRIES);
        }
        true
    }

    #[test]
    fn readers_share_a_hold_and_block_removal() {
        let directory = testkit::TempDir::new("hold");
        let one = Hold::reader(directory.path()).expect("a reader");
        let two = Hold::reader(directory.path()).expect("another");
        assert!(Hold::remover(directory.path()).expect("a result").is_none());
        drop(one);
        assert!(Hold::remover(directory.path()).expect("a result").is_none());
        drop(two);
        assert!(becomes(|| Hold::remover(directory.path()).expect("a result").is_some()));
    }

    #[test]
    fn a_permanent_lock_delays_one_reader_once_and_its_holder_is_named() {
        let directory = testkit::TempDir::new("hold-for-good");
        let locker = Hold::remover(directory.path()).expect("a result").expect("an unheld directory");
        let last_timeout = Mutex::new(None);
        let reader = Hold::reader_within(directory.path(), Duration::from_millis(20), &last_timeout).expect("a reader");
        let why = reader.obstacle().expect("the reason why the hold has no lock");
        assert!(why.contains("read without a hold") && why.contains(&std::process::id().to_string()), "{why}");
        // The second reader must not wait: with this timeout, the test would not end.
        let next = Hold::reader_within(directory.path(), Duration::MAX, &last_timeout).expect("a reader");
        assert!(next.obstacle().is_some());
        drop(locker);
        let reader = Hold::reader_within(directory.path(), Duration::ZERO, &last_timeout).expect("a reader");
        assert_eq!(reader.obstacle(), None);
        assert!(Hold::remover(directory.path()).expect("a result").is_none());
    }

    #[test]
    fn holders_are_listed_and_a_missing_directory_is_an_error() {
        let directory = testkit::TempDir::new("hold-named");
        assert_eq!(Hold::holders(directory.path()), []);
        let hold = Hold::reader(directory.path()).expect("a reader");
        let found = Hold::holders(directory.path());
        assert!(found.iter().any(|holder| holder.pid == std::process::id()), "{found:?}");
        drop(hold);
        assert!(becomes(|| Hold::holders(directory.path()).is_empty()));
        for outcome in
            [Hold::reader(&directory.join("gone")).map(drop), Hold::remover(&directory.join("gone")).map(drop)]
        {
            assert_eq!(outcome.expect_err("a missing directory").kind(), io::ErrorKind::NotFound);
        }
    }

    #[test]
    fn a_hold_on_a_removed_lock_file_has_no_effect() {
        let directory = testkit::TempDir::new("hold-removed");
        let _old = Hold::reader(directory.path()).expect("a reader");
        std::fs::remove_file(directory.join(HOLD)).expect("the file");
        assert!(Hold::remover(directory.path()).expect("a result").is_some());
    }

    #[test]
    fn one_retention_worker_locks_a_file_that_only_the_owner_can_open() {
        let directory = testkit::TempDir::new("hold-keeper");
        let _reader = Hold::reader(directory.path()).expect("a reader");
        let worker = Hold::retention_lock(directory.path()).expect("a result").expect("the only worker");
        assert!(Hold::retention_lock(directory.path()).expect("a result").is_none());
        drop(worker);
        assert!(becomes(|| Hold::retention_lock(directory.path()).expect("a result").is_some()));
        let meta = std::fs::metadata(directory.join(RETENTION_LOCK)).expect("the file");
        assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn only_the_owner_and_its_group_can_hold_a_directory() {
        const OTHER: u32 = 65_533;
        let test = "only_the_owner_and_its_group_can_hold_a_directory";
        let dir = std::env::temp_dir().join(format!("hold-other-user-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        drop(Hold::remover(&dir).expect("a result"));
        let path = dir.join(HOLD);
        if !sys::cpu::is_root() || std::os::unix::fs::chown(&path, None, Some(OTHER)).is_err() {
            return testkit::skip(test, "not root");
        }
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).expect("permissions");
        let takes = |group: u32, what: &std::path::Path| {
            let mut flock = std::process::Command::new("flock");
            flock.args(["-n", "-s"]).arg(what).arg("true").uid(65_532).gid(group);
            flock.stderr(std::process::Stdio::null()).status().is_ok_and(|status| status.success())
        };
        if !takes(1, &dir) {
            return testkit::skip(test, "no flock(1)");
        }
        assert!(!takes(1, &path) && takes(OTHER, &path));
        std::fs::remove_dir_all(&dir).expect("the directory");
    }
}
