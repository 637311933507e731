//! The claim of a recorder on an interface of a store: only one process at a time records or repairs an interface. Two
//! files in the directory of the interface implement the claim:
//!
//! * [`LOCK`] is the lock file. It is empty, and only its owner may open it (0600), so no other user can lock it and so
//!   block a recorder.
//! * [`CLAIM`] is the file with the description (0640) of the recorder and of its ring socket. Each recorder replaces
//!   the file of the previous recorder; it locks the new file before it renames the file to [`CLAIM`]. Readers test
//!   whether this file is locked. If a reader locks it, no recorder is blocked, because recorders lock [`LOCK`].
//!
//! The kernel releases the locks of the lock file and of the description when the process ends.

use base::Timestamp;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fmt, process};
use sys::locks::Holder;
use sys::nofollow::{self, OpenOptions};

/// Name of the description file.
pub const CLAIM: &str = ".recorder";

/// Name of the lock file.
pub const LOCK: &str = ".claim";

/// The largest number of bytes that are read of a [`CLAIM`] file.
const MAX: u64 = 16 << 10;

/// The description of a recorder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claimant {
    /// Its process id.
    pub pid: u32,
    /// Begin of its recording.
    pub since: Timestamp,
    /// Path of the ring socket; `None` if the recorder admits no listeners.
    pub socket: Option<PathBuf>,
    /// CPUs of the engine threads of the recorder, which other processes should not use; empty if the threads are not
    /// bound to CPUs.
    pub cpus: Vec<usize>,
}

/// The claim on an interface; dropping it releases the claim.
#[derive(Debug)]
pub struct Claim {
    /// The lock file. It and the file of the description (`_claim_file`) stay locked until they are closed.
    lock: File,
    _claim_file: File,
    directory: PathBuf,
}

/// Why an interface cannot be claimed.
#[derive(Debug)]
pub enum ClaimError {
    /// Another process records the interface.
    Taken {
        /// The directory of the interface.
        directory: PathBuf,
        /// The description that the other recorder wrote.
        by: Claimant,
        /// The running process that has the lock, if it is visible to this process.
        holder: Option<Holder>,
    },
    /// A file cannot be created.
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The error that the operating system returned.
        error: io::Error,
    },
}

impl fmt::Display for ClaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken { directory, by, holder } => write!(
                f,
                "{}: {}; only one process at a time can record or repair an interface of a store: stop that process, \
                 or name another --store",
                directory.display(),
                at_work(by, holder.as_ref())
            ),
            Self::Io { path, error } => {
                write!(
                    f,
                    "{}: {error}; the recorder needs write permission for the directory of the store",
                    path.display()
                )
            }
        }
    }
}

impl std::error::Error for ClaimError {}

/// The text of messages about the process that has the lock, with the begin of its recording if the description is from
/// the same process.
pub fn at_work(by: &Claimant, holder: Option<&Holder>) -> String {
    match holder {
        Some(holder) if holder.pid == by.pid => {
            format!("{holder} has been recording or repairing this interface since {}", by.since)
        }
        Some(holder) => format!("{holder} is recording or repairing this interface"),
        None => {
            "a process that cannot be seen from here (in another container?) is recording or repairing this interface"
                .to_owned()
        }
    }
}

impl Claim {
    /// Claims the directory of an interface, and creates it if it does not exist.
    ///
    /// # Errors
    /// [`ClaimError`].
    pub fn take(directory: &Path, claimant: &Claimant) -> Result<Self, ClaimError> {
        let path = directory.join(LOCK);
        let io = |error| ClaimError::Io { path: path.clone(), error };
        let lock = loop {
            nofollow::create_directories(directory).map_err(io)?;
            let lock = match crate::hold::make_private(&path) {
                // The previous recorder has removed the directory before the lock file was created.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                other => other.map_err(io)?,
            };
            if let Err(TryLockError::WouldBlock) = lock.try_lock() {
                let holder = sys::locks::holders(&lock).ok().and_then(|all| all.into_iter().next());
                let by = nofollow::open(&directory.join(CLAIM)).ok().and_then(|mut file| read(&mut file));
                return Err(ClaimError::Taken { directory: directory.to_owned(), by: by.unwrap_or_default(), holder });
            }
            // Between open and lock, the previous recorder may have removed the lock file. Then this lock would have no
            // effect, because the next recorder creates and locks a new file.
            let opened = lock.metadata().map_err(io)?;
            if nofollow::stat(&path).is_ok_and(|named| (named.dev(), named.ino()) == (opened.dev(), opened.ino())) {
                break lock;
            }
        };
        let reported =
            write_holder(directory, claimant).map_err(|error| ClaimError::Io { path: directory.join(CLAIM), error })?;
        Ok(Self { lock, _claim_file: reported, directory: directory.to_owned() })
    }

    /// The description of the recorder that has claimed this directory at this moment; `None` without a recorder.
    pub fn holder(directory: &Path) -> Option<Claimant> {
        let mut file = nofollow::open(&directory.join(CLAIM)).ok()?;
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => read(&mut file),
            Ok(()) | Err(TryLockError::Error(_)) => None,
        }
    }
}

/// Writes the description and replaces that of an earlier recorder, even if a process has locked the old file.
fn write_holder(directory: &Path, claimant: &Claimant) -> io::Result<File> {
    let hidden = directory.join(format!("{CLAIM}.new"));
    match nofollow::remove(&hidden) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    // With these permissions no other user can open and lock the file before this process has locked it.
    let mut file = nofollow::open_as(
        &hidden,
        OpenOptions { write: true, create: Some(0o600), new: true, ..OpenOptions::default() },
    )?;
    let _ = file.try_lock();
    match file.write_all(claimant.to_string().as_bytes()) {
        // The claim needs only the lock. On a full volume the description may be missing, because the retention of this
        // recorder may free space later.
        Err(error) if crate::device::is_full(&error) => {}
        other => other?,
    }
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o640))?;
    nofollow::rename(&hidden, &directory.join(CLAIM))?;
    Ok(file)
}

impl Drop for Claim {
    fn drop(&mut self) {
        // The description and the lock file are removed before the lock is released. An interface directory in which no
        // file was recorded is removed too.
        let _ = nofollow::remove(&self.directory.join(CLAIM));
        let _ = nofollow::remove(&self.directory.join(LOCK));
        let _ = crate::hold::remove_empty(&self.directory);
        let _ = self.lock.unlock();
    }
}

impl Claimant {
    /// The description of this process.
    pub fn this(now: Timestamp, socket: Option<PathBuf>, cpus: Vec<usize>) -> Self {
        Self { pid: process::id(), since: now, socket, cpus }
    }
}

/// The format of the description: one line per value, with a key and the value.
impl fmt::Display for Claimant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "pid {}\nsince {}", self.pid, self.since.nanos())?;
        if let Some(socket) = &self.socket {
            writeln!(f, "socket {}", socket.display())?;
        }
        let cpus: Vec<String> = self.cpus.iter().map(usize::to_string).collect();
        writeln!(f, "cpus {}", cpus.join(","))
    }
}

fn read(file: &mut File) -> Option<Claimant> {
    let mut text = String::new();
    file.take(MAX).read_to_string(&mut text).ok()?;
    let mut claimant = Claimant::default();
    for line in text.lines() {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("pid", n) => claimant.pid = n.parse().ok()?,
            ("since", n) => claimant.since = Timestamp::from_nanos(n.parse().ok()?),
            ("socket", path) => claimant.socket = Some(path.into()),
            ("cpus", list) => claimant.cpus = list.split(',').filter_map(|n| n.parse().ok()).collect(),
            _ => {}
        }
    }
    Some(claimant)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn one_process_claims_an_interface_until_it_releases_the_claim() {
        let store = testkit::TempDir::new("claim");
        let directory = store.path().join("eth1");
        assert_eq!(Claim::holder(&directory), None);
        let me = Claimant::this(Timestamp::from_nanos(7), Some("/run/netgrain/eth 1.sock".into()), vec![2, 3]);
        let claim = Claim::take(&directory, &me).expect("a free directory");
        assert_eq!(Claim::holder(&directory), Some(me.clone()));
        match Claim::take(&directory, &me) {
            Err(ClaimError::Taken { by, .. }) => assert_eq!(by, me),
            other => panic!("{other:?}"),
        }
        drop(claim);
        assert_eq!(Claim::holder(&directory), None);
        Claim::take(&directory, &me).expect("free again");
    }

    #[test]
    fn a_lock_on_a_stale_description_does_not_block_a_new_claim() {
        let store = testkit::TempDir::new("claim-asked");
        let directory = store.path().join("eth1");
        fs::create_dir_all(&directory).expect("a directory");
        fs::write(directory.join(CLAIM), "pid 7\nsince 7\n").expect("the description of a killed recorder");
        let unknown_client = File::open(directory.join(CLAIM)).expect("the file");
        unknown_client.try_lock().expect("an unlocked file");
        let claim = Claim::take(&directory, &Claimant::this(Timestamp::ZERO, None, Vec::new()))
            .expect("an unclaimed interface");
        assert_eq!(Claim::holder(&directory).map(|by| by.pid), Some(process::id()));
        let mode = |name: &str| fs::metadata(directory.join(name)).expect("the file").mode() & 0o777;
        assert_eq!((mode(LOCK), mode(CLAIM) & !0o040), (0o600, 0o600), "only the owner can open the lock file");
        drop(claim);
        assert!(!directory.exists());
    }

    #[test]
    fn the_error_names_the_lock_holder_not_the_process_in_the_file() {
        let store = testkit::TempDir::new("claim-named");
        let directory = store.path().join("eth1");
        let _claim =
            Claim::take(&directory, &Claimant::this(Timestamp::ZERO, None, Vec::new())).expect("a free directory");
        fs::write(directory.join(CLAIM), "pid 999999999\nsince 7\n").expect("a description of another process");
        let reported = Claim::take(&directory, &Claimant::default()).expect_err("the interface is claimed").to_string();
        assert!(
            reported.contains(&format!("process {} (", process::id())) && !reported.contains("999999999"),
            "{reported}"
        );
    }

    #[test]
    fn symbolic_links_under_the_names_of_claim_files_are_not_followed() {
        let store = testkit::TempDir::new("claim-link");
        let (directory, victim) = (store.path().join("eth1"), store.path().join("victim"));
        fs::create_dir_all(&directory).expect("a directory");
        fs::write(&victim, "untouched").expect("a file");
        for name in [CLAIM, ".recorder.new", LOCK] {
            std::os::unix::fs::symlink(&victim, directory.join(name)).expect("a link");
        }
        let reported =
            Claim::take(&directory, &Claimant::default()).expect_err("a symbolic link as the lock file").to_string();
        assert!(reported.contains("symbolic link"), "{reported}");
        fs::remove_file(directory.join(LOCK)).expect("the link");
        let claim = Claim::take(&directory, &Claimant::default()).expect("symbolic links are replaced");
        assert!(!directory.join(CLAIM).is_symlink());
        drop(claim);
        assert_eq!(fs::read_to_string(&victim).expect("the file"), "untouched");
        std::os::unix::fs::symlink(&directory, store.path().join("eth2")).expect("a link");
        fs::create_dir_all(&directory).expect("a directory");
        assert!(Claim::take(&store.path().join("eth2"), &Claimant::default()).is_err());
    }
}
