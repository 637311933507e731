//! Who records an interface into this store: one process at a time. The claim is a small file with a lock on it, in the
//! folder of the interface; it says who, and where its ring can be listened to. The lock ends with the process.

use base::Timestamp;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fmt, process};

/// Name of the file.
pub const CLAIM: &str = ".recorder";

/// Most bytes of such a file that are believed.
const MOST: u64 = 16 << 10;

/// What a recorder says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claimant {
    /// Its process.
    pub pid: u32,
    /// Since when it records.
    pub since: Timestamp,
    /// Where listeners attach; none if they cannot.
    pub socket: Option<PathBuf>,
    /// Processors that its engine threads run on, which others had better leave alone; empty where none were chosen.
    pub cpus: Vec<usize>,
}

/// Held while recording; ends when it is dropped.
#[derive(Debug)]
pub struct Claim {
    /// Locked for as long as it is open.
    file: File,
    path: PathBuf,
}

/// Why an interface cannot be claimed.
#[derive(Debug)]
pub enum ClaimError {
    /// Somebody records it.
    Taken {
        /// The folder of the interface.
        folder: PathBuf,
        /// Who.
        by: Claimant,
    },
    /// The file cannot be made.
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl fmt::Display for ClaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken { folder, by } => write!(
                f,
                "{}: process {} has recorded or repaired here since {}: one at a time per interface and store; stop that one, or name \
                 another --store",
                folder.display(),
                by.pid,
                by.since
            ),
            Self::Io { path, error } => {
                write!(f, "{}: {error}; the store's folder must be writable for the recorder", path.display())
            }
        }
    }
}

impl std::error::Error for ClaimError {}

impl Claim {
    /// Claims the folder of an interface, which is made if it is not there.
    ///
    /// # Errors
    /// [`ClaimError`].
    pub fn take(folder: &Path, claimant: &Claimant) -> Result<Self, ClaimError> {
        let path = folder.join(CLAIM);
        let io = |error| ClaimError::Io { path: path.clone(), error };
        let mut file = loop {
            fs::create_dir_all(folder).map_err(io)?;
            let mut options = File::options();
            let mut file = match options.read(true).write(true).create(true).truncate(false).open(&path) {
                // The one before has gone, and its folder with it.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                other => other.map_err(io)?,
            };
            if let Err(TryLockError::WouldBlock) = crate::hold::lock(&file) {
                return Err(ClaimError::Taken { folder: folder.to_owned(), by: read(&mut file).unwrap_or_default() });
            }
            // Between opening and locking, the one before may have removed it: whoever comes later would lock another file.
            let opened = file.metadata().map_err(io)?;
            if fs::metadata(&path).is_ok_and(|named| (named.dev(), named.ino()) == (opened.dev(), opened.ino())) {
                break file;
            }
        };
        match file.set_len(0).and_then(|()| file.write_all(claimant.to_string().as_bytes())) {
            // The lock is the claim; a full volume, on which the recorder is to make room, only keeps it from saying more.
            Err(error) if crate::device::is_full(&error) => {}
            other => other.map_err(io)?,
        }
        Ok(Self { file, path })
    }

    /// Who records into this folder at this moment, if anybody does.
    pub fn holder(folder: &Path) -> Option<Claimant> {
        let mut file = File::open(folder.join(CLAIM)).ok()?;
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => read(&mut file),
            Ok(()) | Err(TryLockError::Error(_)) => None,
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Before the lock goes with the descriptor. A folder in which nothing was recorded goes, too.
        let _ = fs::remove_file(&self.path);
        let _ = self.path.parent().map(fs::remove_dir);
        let _ = self.file.unlock();
    }
}

impl Claimant {
    /// This process, from now on.
    pub fn this(now: Timestamp, socket: Option<PathBuf>, cpus: Vec<usize>) -> Self {
        Self { pid: process::id(), since: now, socket, cpus }
    }
}

/// As lines of a word and a value.
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
    file.take(MOST).read_to_string(&mut text).ok()?;
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

    #[test]
    fn one_at_a_time_by_name_and_the_next_when_it_has_gone() {
        let store = testkit::TempDir::new("claim");
        let folder = store.path().join("eth1");
        assert_eq!(Claim::holder(&folder), None);
        let me = Claimant::this(Timestamp::from_nanos(7), Some("/run/netgrain/eth 1.sock".into()), vec![2, 3]);
        let claim = Claim::take(&folder, &me).expect("a free folder");
        assert_eq!(Claim::holder(&folder), Some(me.clone()));
        match Claim::take(&folder, &me) {
            Err(ClaimError::Taken { by, .. }) => assert_eq!(by, me),
            other => panic!("{other:?}"),
        }
        drop(claim);
        assert_eq!(Claim::holder(&folder), None);
        Claim::take(&folder, &me).expect("free again");
    }

    #[test]
    fn who_asks_whether_a_dead_recorder_records_does_not_keep_the_next_one_out() {
        let store = testkit::TempDir::new("claim-asked");
        let folder = store.path().join("eth1");
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join(CLAIM), "pid 7\nsince 7\n").expect("what a killed recorder leaves");
        let asks = File::open(folder.join(CLAIM)).expect("the file");
        asks.try_lock_shared().expect("nobody has it");
        let answered = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            drop(asks);
        });
        Claim::take(&folder, &Claimant::default()).expect("nobody records here");
        answered.join().expect("a thread");
    }
}
