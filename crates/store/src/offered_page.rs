//! The offered counter page: shared memory with the number of packets offered to a recorder, which stays readable after
//! the recorder's process is killed. Recovery of the packet files adds the difference between offered and stored
//! packets to the ledger (the outcome counters of each second) as lost packets.
//!
//! Each queue has one page of shared memory in `/dev/shm`. The page still exists after the process was killed. A
//! stalled volume cannot block the thread that writes the count, whereas it could if the page were a mapped file on the
//! volume. A power failure erases the page; then the number of lost packets is unknown, and recovery reports this. The
//! page is locked (flock(2)) as long as the recorder runs.
//!
//! ```text
//! word  0 "NGOFFR1\0" | 1 packets offered | 2 second of the last packet | 3 number of the active slot
//! word  4 the recorder ended normally
//! slots: words 8 and 16: start time of the current file | its stream position | packets in the files before it
//! byte 512: length of the directory's path u64 | path
//! ```

use base::Timestamp;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use sys::memory::SharedMemory;

/// Directory of the pages: a file system in memory, whose files remain after the end of a process. The service manager
/// removes files in it when a unit with `RemoveIPC=yes` ends.
pub const DIRECTORY: &str = "/dev/shm";
/// Prefix of the pages' names.
const PREFIX: &str = "netgrain-offered-";
const MAGIC: u64 = u64::from_le_bytes(*b"NGOFFR1\0");
const PAGE: usize = 4096;
const PATH_AT: usize = 512;

mod at {
    pub const OFFERED: usize = 1;
    pub const SECOND: usize = 2;
    pub const WHICH: usize = 3;
    pub const ENDED: usize = 4;
    pub const SLOTS: [usize; 2] = [8, 16];
}

/// The page of a queue that is being recorded. [`OfferedPage::confirm`] removes the page; dropping this value does not.
#[derive(Debug)]
pub struct OfferedPage {
    memory: SharedMemory,
    path: PathBuf,
}

/// The content of a page whose recorder no longer runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrphanedCount {
    /// The queue.
    pub queue: u16,
    /// Packets offered since the start of the recorder, lost and filtered packets included.
    pub offered: u64,
    /// The second (since 1970) of the last offered packet; 0 if no packet was offered.
    pub second: u64,
    /// Start time and first stream position of the packet file that was being written; `None` if no file was begun.
    pub file: Option<(Timestamp, u64)>,
    /// Offered packets that the ledgers of the earlier files contain, as stored or lost.
    pub before: u64,
    /// True if the recorder ended normally, but without storing packets that its volume refused.
    pub ended: bool,
    path: PathBuf,
}

impl OfferedPage {
    /// Creates the page for a queue of the interface that is recorded into this directory. The caller must have the
    /// claim of the interface.
    ///
    /// # Errors
    /// `/dev/shm` is missing or full. Without the page, the number of packets that a kill of the recorder loses stays
    /// unknown.
    pub fn begin(directory: &Path, queue: u16) -> io::Result<Self> {
        let directory = fs::canonicalize(directory)?;
        let (dev, ino) = identity(&directory)?;
        let mut page = vec![0; PAGE];
        let path = directory.as_os_str().as_bytes();
        page[..8].copy_from_slice(&MAGIC.to_le_bytes());
        page[PATH_AT..PATH_AT + 8].copy_from_slice(&(path.len() as u64).to_le_bytes());
        page.get_mut(PATH_AT + 8..PATH_AT + 8 + path.len())
            .ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "the path of the interface directory is too long for the offered counter page",
                )
            })?
            .copy_from_slice(path);
        for number in 0u32.. {
            let path = Path::new(DIRECTORY).join(format!("{PREFIX}{dev:x}-{ino:x}-q{queue}-{number}"));
            let mut options = OpenOptions::new();
            let options = options.read(true).write(true).create_new(true).mode(0o600);
            let mut file = match options.open(&path) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                other => other?,
            };
            // The page is locked before it is filled, because [`orphaned_counts`] ignores an empty page.
            let locked = file.try_lock().map_err(io::Error::from);
            let made = locked.and_then(|()| file.write_all(&page));
            match made.and_then(|()| SharedMemory::of_own_file(file.into(), PAGE)) {
                Ok(memory) => return Ok(Self { memory, path }),
                Err(e) => {
                    let _ = fs::remove_file(&path);
                    return Err(e);
                }
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    fn word(&self, word: usize) -> &AtomicU64 {
        // SAFETY: the mapping has one aligned page, exists as long as `self`, and is only accessed as atomic words.
        unsafe { &*self.memory.base().cast::<AtomicU64>().add(word) }
    }

    /// Stores the number of packets offered since the start and the second of the last packet. Only one thread may call
    /// it.
    pub fn offered(&self, packets: u64, second: u64) {
        self.word(at::SECOND).store(second, Ordering::Relaxed);
        self.word(at::OFFERED).store(packets, Ordering::Release);
    }

    /// Stores start time and first stream position of a new packet file, and the number of offered packets that the
    /// ledgers of the earlier files contain. Only one thread may call it.
    pub fn file(&self, start: Timestamp, first_pos: u64, before: u64) {
        // The inactive slot is completely written before a later store makes it the active slot.
        let which = self.word(at::WHICH).load(Ordering::Relaxed) % 2;
        let next = 1 - which;
        let place = at::SLOTS[next as usize];
        self.word(place).store(start.nanos(), Ordering::Relaxed);
        self.word(place + 1).store(first_pos, Ordering::Relaxed);
        self.word(place + 2).store(before, Ordering::Relaxed);
        // In the word `WHICH`, the values 2 and 3 name the slots 0 and 1; smaller values mean that no file was begun.
        self.word(at::WHICH).store(2 + next, Ordering::Release);
    }

    /// Stores that the recorder ended normally although some packets are in no published file.
    pub fn end(&self) {
        self.word(at::ENDED).store(1, Ordering::Release);
    }

    /// The content of the page as recovery reads it. The recorder calls this function after it has ended the recording.
    pub fn tail(&self) -> Option<OrphanedCount> {
        OrphanedCount::parse(&fs::read(&self.path).ok()?, self.path.clone()).map(|(tail, _)| tail)
    }

    /// Removes the page. The caller has published files whose ledgers contain all offered packets.
    pub fn confirm(&self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl OrphanedCount {
    /// Creates a count without a page, for tests.
    pub fn of(queue: u16, offered: u64, second: u64, file: Option<(Timestamp, u64)>, before: u64) -> Self {
        Self { queue, offered, second, file, before, ended: false, path: PathBuf::new() }
    }

    /// Removes the page; the caller has added its count to the ledger.
    pub fn forget(&self) {
        if !self.path.as_os_str().is_empty() {
            let _ = fs::remove_file(&self.path);
        }
    }

    fn parse(page: &[u8], path: PathBuf) -> Option<(Self, PathBuf)> {
        let word = |at: usize| Some(u64::from_le_bytes(page.get(8 * at..8 * at + 8)?.try_into().ok()?));
        if word(0)? != MAGIC {
            return None;
        }
        let which = word(at::WHICH)?;
        let place = at::SLOTS[(which % 2) as usize];
        let (start, first_pos, before) = (word(place)?, word(place + 1)?, word(place + 2)?);
        let length = usize::try_from(word(PATH_AT / 8)?).ok()?;
        let directory = page.get(PATH_AT + 8..)?.get(..length)?;
        let name = path.file_name()?.to_str()?;
        let queue = name.rsplit_once("-q")?.1.split('-').next()?.parse().ok()?;
        let tail = Self {
            queue,
            offered: word(at::OFFERED)?,
            second: word(at::SECOND)?,
            file: (which >= 2).then_some((Timestamp::from_nanos(start), first_pos)),
            before: if which >= 2 { before } else { 0 },
            ended: word(at::ENDED)? != 0,
            path,
        };
        Some((tail, PathBuf::from(OsStr::from_bytes(directory))))
    }
}

/// Reads the pages of killed recorders of this interface directory. Pages of directories that no longer exist are
/// removed. If the directory belongs to another user, the pages of that user are read too, so that root can repair the
/// files of a recorder without root's rights.
pub fn orphaned_counts(directory: &Path) -> Vec<OrphanedCount> {
    let Ok((dev, ino)) = identity(directory) else { return Vec::new() };
    let own = sys::cpu::effective_uid();
    let Ok(owner) = fs::metadata(directory).map(|directory| directory.uid()) else { return Vec::new() };
    let ours = format!("{PREFIX}{dev:x}-{ino:x}-q");
    let Ok(list) = fs::read_dir(DIRECTORY) else { return Vec::new() };
    let names = list.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut found = Vec::new();
    for name in names.filter(|name| name.starts_with(PREFIX)) {
        let is_here = name.starts_with(&ours);
        let users = if is_here { [own, owner] } else { [own; 2] };
        let Some((tail, of)) = dead(&Path::new(DIRECTORY).join(&name), users) else { continue };
        if is_here {
            found.push(tail);
        } else if !of.exists() {
            tail.forget();
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// Reads a page that no process has locked and that belongs to one of these users. The owner is tested because any user
/// may create files in `/dev/shm`.
fn dead(path: &Path, users: [u32; 2]) -> Option<(OrphanedCount, PathBuf)> {
    let named = fs::symlink_metadata(path).ok().filter(|m| m.is_file() && users.contains(&m.uid()))?;
    let mut file = sys::nofollow::open(path).ok()?;
    let is_same = file.metadata().is_ok_and(|m| (m.dev(), m.ino()) == (named.dev(), named.ino()));
    if !is_same || file.try_lock_shared().is_err() {
        return None;
    }
    let mut page = Vec::with_capacity(PAGE);
    Read::by_ref(&mut file).take(PAGE as u64).read_to_end(&mut page).ok()?;
    OrphanedCount::parse(&page, path.to_owned())
}

fn identity(directory: &Path) -> io::Result<(u64, u64)> {
    let file = File::open(directory)?.metadata()?;
    Ok((file.dev(), file.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::TempDir;

    /// The pages of dead recorders, as soon as there are any. A lock may last longer than its holder: while another
    /// test starts a program, the child process has a copy of every descriptor until it executes the program.
    fn orphaned(store: &Path) -> Vec<OrphanedCount> {
        for _ in 0..3000 {
            let found = orphaned_counts(store);
            if !found.is_empty() {
                return found;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        Vec::new()
    }

    #[test]
    fn a_page_keeps_the_offered_count_and_the_file_of_a_dead_recorder() {
        let store = TempDir::new("offered-page");
        let (one, two) = (OfferedPage::begin(store.path(), 3), OfferedPage::begin(store.path(), 300));
        let (one, two) = (one.expect("a page"), two.expect("another"));
        one.offered(1000, 7);
        two.offered(1, 7);
        assert_eq!(orphaned_counts(store.path()), [], "the recorder still runs");
        drop(two);
        let none = orphaned(store.path());
        assert_eq!(none.iter().map(|t| (t.queue, t.offered, t.file)).collect::<Vec<_>>(), [(300, 1, None)]);
        none[0].forget();
        for (n, before) in [0, 400, 900].into_iter().enumerate() {
            one.file(Timestamp::from_nanos(n as u64), 100 * n as u64, before);
        }
        one.end();
        drop(one);
        let [tail] = &orphaned(store.path())[..] else { panic!("one page") };
        assert_eq!((tail.queue, tail.offered, tail.second, tail.before), (3, 1000, 7, 900));
        assert_eq!((tail.file, tail.ended), (Some((Timestamp::from_nanos(2), 200)), true));
        tail.forget();
        assert_eq!(orphaned_counts(store.path()), []);
    }

    #[test]
    fn root_reads_pages_of_the_directory_owner_but_of_no_other_user() {
        let test = "root_reads_pages_of_the_directory_owner_but_of_no_other_user";
        if !sys::cpu::is_root() {
            return testkit::skip(test, "requires root to change the owner of files");
        }
        let store = TempDir::new("offered-page-owner");
        let page = OfferedPage::begin(store.path(), 0).expect("a page");
        page.offered(5, 7);
        let path = page.path.clone();
        drop(page);
        let give = |file: &Path, uid| std::os::unix::fs::chown(file, Some(uid), None).expect("chown as root");
        give(store.path(), 65_532);
        give(&path, 65_533);
        assert_eq!(orphaned_counts(store.path()), [], "the page of another user is not read");
        give(&path, 65_532);
        let [tail] = &orphaned(store.path())[..] else { panic!("one page") };
        assert_eq!((tail.offered, tail.second), (5, 7));
        tail.forget();
        assert!(!path.exists());
    }

    #[test]
    fn confirmed_pages_and_pages_of_removed_directories_are_removed() {
        let store = TempDir::new("offered-page-gone");
        let directory = store.join("eth1");
        fs::create_dir(&directory).expect("a directory");
        let page = OfferedPage::begin(&directory, 0).expect("a page");
        page.confirm();
        drop(page);
        assert_eq!(orphaned_counts(&directory), []);
        let page = OfferedPage::begin(&directory, 0).expect("a page");
        let path = page.path.clone();
        drop(page);
        fs::remove_dir(&directory).expect("empty");
        orphaned_counts(store.path());
        assert!(!path.exists());
    }
}
