//! Who may remove files: readers hold an hour, retention takes it. A hold is a lock (flock(2)) on a small file in the folder of
//! the hour, [`HOLD`]. The owner of the store makes that file, with the permissions of the packets (0640): who may read packets as
//! a member of the group may hold them, and nobody else can, whoever may list or read the rest. A hold ends with its process however
//! that ends, and one descriptor holds a whole hour.
//!
//! A hold is a request and not a right: retention waits for it for a bounded time ([`Hold`] keeps a file from going for some
//! seconds, not for ever). A reader keeps what it has open.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use sys::locks::Holder;
use sys::nofollow::{self, OpenOptions};

/// Name of the file that is locked, in the folder of each hour and of each interface.
pub const HOLD: &str = ".hold";

/// Name of the file that a keeper of an interface locks: nobody but the store's owner can open it.
pub const RETENTION_LOCK: &str = ".keeper";

/// How long retention waits for readers of what should go, unless something else is said, and readers for whoever keeps
/// them out.
pub const WAIT: Duration = Duration::from_secs(5);

/// For how long after a reader waited in vain no reader of this process waits again: whoever locks a thousand hours
/// would cost a question as many waits.
const VAIN_FOR: Duration = Duration::from_secs(60);

/// When a reader of this process waited in vain.
static VAIN: Mutex<Option<Instant>> = Mutex::new(None);

/// Its permissions.
const MODE: u32 = 0o640;

/// How often a lock is tried for, and what passes between: whoever only looks whether a file is held has one himself for
/// some microseconds, or for as long as he has no processor. A holder keeps his.
const TRIES: u32 = 20;
const BETWEEN_TRIES: Duration = Duration::from_millis(5);

/// Ends when it is dropped.
#[derive(Debug)]
pub struct Hold {
    #[expect(dead_code, reason = "held open for its lock")]
    file: Option<File>,
    obstacle: Option<String>,
}

impl Hold {
    /// A reader's: while it lasts, nothing in this folder is removed within the time that retention waits for readers.
    /// Waits while files are being removed, which is short, and not for ever: every member of the store's group can
    /// lock the file. Who may not hold (a user outside of the store's group, a file system without locks) or waited for
    /// too long reads without, and meets removed files.
    ///
    /// # Errors
    /// When the folder is not there; it may have been removed.
    pub fn reader(folder: &Path) -> io::Result<Self> {
        Self::reader_within(folder, WAIT, &VAIN)
    }

    fn reader_within(folder: &Path, patience: Duration, vain: &Mutex<Option<Instant>>) -> io::Result<Self> {
        let begun = Instant::now();
        let vain = || vain.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let Some(file) = open(folder)? else { return Ok(Self::none()) };
            let mut locked = file.try_lock_shared();
            while matches!(locked, Err(TryLockError::WouldBlock)) {
                let is_vain = vain().is_some_and(|at| at.elapsed() < VAIN_FOR);
                if is_vain || begun.elapsed() >= patience {
                    let mut last = vain();
                    if last.is_none_or(|at| at.elapsed() >= VAIN_FOR) {
                        *last = Some(Instant::now());
                    }
                    return Ok(Self { obstacle: Some(obstacle(folder)), ..Self::none() });
                }
                std::thread::sleep(BETWEEN_TRIES);
                locked = file.try_lock_shared();
            }
            if is_named(&file, folder) {
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

    /// What kept a reader from holding the folder although it may, in words: it is read without a hold.
    pub fn obstacle(&self) -> Option<&str> {
        self.obstacle.as_deref()
    }

    /// Retention's: `None` while a reader holds the folder.
    ///
    /// # Errors
    /// When the folder is not there.
    pub fn remover(folder: &Path) -> io::Result<Option<Self>> {
        loop {
            let Some(file) = open(folder)? else { return Ok(Some(Self::none())) };
            match file.try_lock() {
                Err(TryLockError::WouldBlock) => return Ok(None),
                Ok(()) | Err(TryLockError::Error(_)) if is_named(&file, folder) => return Ok(Some(Self::of(file))),
                Ok(()) | Err(TryLockError::Error(_)) => {}
            }
        }
    }

    /// The only keeper of this folder: `None` while another process is. Users other than the store's owner cannot take it.
    ///
    /// # Errors
    /// When the folder is not there, or belongs to another user.
    pub fn retention_lock(folder: &Path) -> io::Result<Option<Self>> {
        let file = make_private(&folder.join(RETENTION_LOCK))?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => Ok(None),
            Ok(()) | Err(TryLockError::Error(_)) => Ok(Some(Self::of(file))),
        }
    }

    /// The living processes that hold a folder, as far as they can be seen from here.
    pub fn holders(folder: &Path) -> Vec<Holder> {
        nofollow::open(&folder.join(HOLD)).and_then(|file| sys::locks::holders(&file)).unwrap_or_default()
    }
}

/// Who keeps readers out, as far as it can be seen from here.
fn obstacle(folder: &Path) -> String {
    let holders: Vec<String> = Hold::holders(folder).iter().map(ToString::to_string).collect();
    let who =
        if holders.is_empty() { "a process that cannot be seen from here".to_owned() } else { holders.join(", ") };
    format!(
        "{}: read without a hold, since {who} has locked {HOLD}; retention may remove files meanwhile",
        folder.display()
    )
}

/// Makes the file of a folder's holds, if it is not there.
///
/// # Errors
/// What the file system says.
pub(crate) fn make(folder: &Path) -> io::Result<File> {
    nofollow::open_as(&folder.join(HOLD), OpenOptions { write: true, create: Some(MODE), ..OpenOptions::default() })
}

/// A file for a lock that only the owner of its folder can take. What root makes belongs to the owner as well, who could not open it
/// later otherwise.
///
/// # Errors
/// What the file system says.
pub(crate) fn make_private(path: &Path) -> io::Result<File> {
    let file = nofollow::open_as(path, OpenOptions { write: true, create: Some(0o600), ..OpenOptions::default() })?;
    let folder = nofollow::stat(path.parent().unwrap_or(path))?;
    if file.metadata()?.uid() != folder.uid() {
        // Without the right to it there is nobody to whom it would have to be given.
        let _ = std::os::unix::fs::fchown(&file, Some(folder.uid()), Some(folder.gid()));
    }
    Ok(file)
}

/// The file of a folder's holds, made by the folder's owner where it is missing; `None` for those who may not have it.
fn open(folder: &Path) -> io::Result<Option<File>> {
    match nofollow::open(&folder.join(HOLD)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        other => return other.map(Some),
    }
    // One of another owner could be locked by others than the store's group.
    if nofollow::stat(folder)?.uid() != sys::cpu::effective_uid() {
        return Ok(None);
    }
    match make(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound && !nofollow::is_folder(folder) => Err(e),
        // A volume that is full or mounted for reading, or a process that may write nothing.
        other => Ok(other.ok()),
    }
}

/// Whether this is still the file of that name: what was emptied is removed with its lock, and may be made again.
fn is_named(file: &File, folder: &Path) -> bool {
    let named = nofollow::stat(&folder.join(HOLD));
    match (file.metadata(), named) {
        (Ok(opened), Ok(named)) => (opened.dev(), opened.ino()) == (named.dev(), named.ino()),
        // Nothing can be said; the next step fails if the folder has gone.
        (_, Err(e)) if e.kind() != io::ErrorKind::NotFound => true,
        (Err(_), _) => true,
        _ => false,
    }
}

/// Locks a file that nobody has, and is not mistaken about those who only look.
///
/// # Errors
/// `WouldBlock` if somebody has it, or what the file system says.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;

    /// True as soon as the condition holds, false after 30 s. A lock outlives its holder while another test starts a
    /// program: the child has a copy of every descriptor until it executes.
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
    fn readers_share_and_keep_the_remover_out() {
        let folder = testkit::TempDir::new("hold");
        let one = Hold::reader(folder.path()).expect("a reader");
        let two = Hold::reader(folder.path()).expect("another");
        assert!(Hold::remover(folder.path()).expect("a look").is_none());
        drop(one);
        assert!(Hold::remover(folder.path()).expect("a look").is_none());
        drop(two);
        assert!(becomes(|| Hold::remover(folder.path()).expect("a look").is_some()));
    }

    #[test]
    fn who_locks_a_folder_for_good_keeps_no_reader_waiting_and_is_named() {
        let folder = testkit::TempDir::new("hold-for-good");
        let rude = Hold::remover(folder.path()).expect("a look").expect("nobody reads");
        let vain = Mutex::new(None);
        let reader = Hold::reader_within(folder.path(), Duration::from_millis(20), &vain).expect("it reads");
        let why = reader.obstacle().expect("without a hold");
        assert!(why.contains("read without a hold") && why.contains(&std::process::id().to_string()), "{why}");
        // The next hour is not waited for: with such patience this would never end.
        let next = Hold::reader_within(folder.path(), Duration::MAX, &vain).expect("it reads");
        assert!(next.obstacle().is_some());
        drop(rude);
        let reader = Hold::reader_within(folder.path(), Duration::ZERO, &vain).expect("it reads");
        assert_eq!(reader.obstacle(), None);
        assert!(Hold::remover(folder.path()).expect("a look").is_none());
    }

    #[test]
    fn the_holder_is_named_and_a_folder_that_is_not_there_is_an_error() {
        let folder = testkit::TempDir::new("hold-named");
        assert_eq!(Hold::holders(folder.path()), []);
        let hold = Hold::reader(folder.path()).expect("a reader");
        let found = Hold::holders(folder.path());
        assert!(found.iter().any(|holder| holder.pid == std::process::id()), "{found:?}");
        drop(hold);
        assert!(becomes(|| Hold::holders(folder.path()).is_empty()));
        for outcome in [Hold::reader(&folder.join("gone")).map(drop), Hold::remover(&folder.join("gone")).map(drop)] {
            assert_eq!(outcome.expect_err("no folder").kind(), io::ErrorKind::NotFound);
        }
    }

    #[test]
    fn a_hold_on_a_file_that_was_removed_keeps_nobody_out() {
        let folder = testkit::TempDir::new("hold-removed");
        let _old = Hold::reader(folder.path()).expect("a reader");
        std::fs::remove_file(folder.join(HOLD)).expect("the file");
        assert!(Hold::remover(folder.path()).expect("a look").is_some());
    }

    #[test]
    fn there_is_one_keeper_whoever_reads_and_nobody_else_can_open_its_file() {
        let folder = testkit::TempDir::new("hold-keeper");
        let _reader = Hold::reader(folder.path()).expect("a reader");
        let keeper = Hold::retention_lock(folder.path()).expect("a look").expect("no other");
        assert!(Hold::retention_lock(folder.path()).expect("a look").is_none());
        drop(keeper);
        assert!(becomes(|| Hold::retention_lock(folder.path()).expect("a look").is_some()));
        let meta = std::fs::metadata(folder.join(RETENTION_LOCK)).expect("the file");
        assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_stranger_who_may_list_and_read_cannot_hold_and_a_member_of_the_group_can() {
        const OTHER: u32 = 65_533;
        let test = "a_stranger_who_may_list_and_read_cannot_hold_and_a_member_of_the_group_can";
        let dir = std::env::temp_dir().join(format!("hold-stranger-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a folder");
        drop(Hold::remover(&dir).expect("a look"));
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
        std::fs::remove_dir_all(&dir).expect("the folder");
    }
}
