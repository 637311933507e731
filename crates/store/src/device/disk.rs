//! Operations on files of the operating system. Writes use io_uring with pinned memory, or plain system calls if the
//! kernel refuses io_uring. Writes of packet files bypass the page cache (`O_DIRECT`), except on file systems without
//! direct writes (tmpfs, some network file systems).

use super::{Completion, Content, Device, FileId, Lock, Op};
use crate::Hold;
use crate::bytes::{Bytes, PAGE, Slice};
use crate::claim::LOCK;
use crate::hold::{self, HOLD, RETENTION_LOCK, lock};
use crate::names;
use std::collections::BTreeMap;
use std::fs::{File, Metadata, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, fchown};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use sys::disk;
use sys::nofollow::{self, OpenOptions};
use sys::uring::Uring;

/// A [`Device`] over the file system.
pub struct DiskDevice {
    files: BTreeMap<FileId, Arc<File>>,
    next: u32,
    engine: Engine,
    direct: Direct,
    // This field is dropped after `engine`, because the io_uring must end before the memory that it pinned is unmapped.
    adopted: Vec<Arc<dyn Bytes>>,
    stop: Option<Arc<AtomicBool>>,
}

enum Engine {
    Uring(Box<Uring<Slice>>),
    Plain { why: String, done: Vec<Completion> },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direct {
    Untried,
    Yes,
    No,
}

impl DiskDevice {
    /// A device that keeps up to `in_flight` operations in progress with io_uring. If the kernel refuses io_uring, each
    /// operation completes within [`Device::start`].
    pub fn new(in_flight: u32) -> Self {
        match Uring::new(in_flight.next_power_of_two()) {
            Ok(ring) => Self::with(Engine::Uring(Box::new(ring))),
            Err(e) => Self::with(Engine::Plain { why: format!("io_uring refused: {e}"), done: Vec::new() }),
        }
    }

    /// A device that never uses io_uring.
    pub fn plain() -> Self {
        Self::with(Engine::Plain { why: "io_uring is switched off".to_owned(), done: Vec::new() })
    }

    /// Returns the device with a stop flag: as soon as `stop` is true, every read fails, so that a long operation ends
    /// between two blocks.
    #[must_use]
    pub fn until(self, stop: Arc<AtomicBool>) -> Self {
        Self { stop: Some(stop), ..self }
    }

    fn with(engine: Engine) -> Self {
        Self { files: BTreeMap::new(), next: 0, engine, direct: Direct::Untried, adopted: Vec::new(), stop: None }
    }

    fn keep(&mut self, file: File) -> FileId {
        let id = FileId(self.next);
        self.next += 1;
        self.files.insert(id, Arc::new(file));
        id
    }

    fn file(&self, id: FileId) -> io::Result<&Arc<File>> {
        self.files.get(&id).ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the file is closed"))
    }

    /// Opens the file for direct writes if the file system supports them and requires no larger alignment than a page;
    /// the result applies to all later files.
    fn create_packets(&mut self, path: &Path) -> io::Result<File> {
        if self.direct != Direct::No {
            match disk::create_new(path, true) {
                Ok(file) => {
                    let fits = match disk::direct_align(&file)? {
                        Some(a) => a.offset as u64 <= PAGE && a.memory as u64 <= PAGE,
                        // Kernels before 6.1 do not report which alignment direct writes need; on local disks, the
                        // alignment to a page has always been sufficient.
                        None => true,
                    };
                    if fits {
                        self.direct = Direct::Yes;
                        return Ok(file);
                    }
                    nofollow::remove(path)?;
                }
                Err(e) if e.kind() == io::ErrorKind::InvalidInput => {}
                Err(e) => return Err(e),
            }
            self.direct = Direct::No;
        }
        disk::create_new(path, false)
    }
}

impl Device for DiskDevice {
    fn describe(&self) -> String {
        let engine = match &self.engine {
            Engine::Uring(_) => "io_uring".to_owned(),
            Engine::Plain { why, .. } => format!("plain writes ({why})"),
        };
        let cache = match self.direct {
            Direct::No => "through the page cache (the file system has no direct writes)",
            Direct::Yes | Direct::Untried => "past the page cache",
        };
        format!("{engine}, {cache}")
    }

    fn is_best(&self) -> bool {
        matches!(self.engine, Engine::Uring(_)) && self.direct != Direct::No
    }

    fn adopt(&mut self, memory: &Arc<dyn Bytes>) -> Option<String> {
        let Engine::Uring(ring) = &mut self.engine else { return None };
        self.adopted.push(Arc::clone(memory));
        // SAFETY: `adopted` owns the mapping of the memory and is dropped after the ring.
        unsafe { ring.register(&memory.regions()) }.err().map(|e| {
            format!(
                "the memory of the ring cannot be pinned ({e}): each write pins its own range, which costs CPU time; \
                 raise RLIMIT_MEMLOCK"
            )
        })
    }

    fn create_directory(&mut self, path: &Path) -> io::Result<()> {
        for directory in nofollow::missing(path).iter().rev() {
            match nofollow::create_directory(directory) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
            let parent = directory.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            match nofollow::open(parent)?.sync_all() {
                // The file system does not support the sync of directories.
                Err(e) if e.kind() == io::ErrorKind::InvalidInput => {}
                other => other?,
            }
        }
        if names::is_hour(path) && !nofollow::exists(&path.join(HOLD)) {
            // Without the lock file no reader can hold the hour directory. The error is ignored: on a full volume, the
            // creation of the next file fails too and is reported.
            let _ = hold::make(path);
        }
        Ok(())
    }

    fn create(&mut self, path: &Path, content: Content) -> io::Result<FileId> {
        let file = match content {
            Content::Packets => self.create_packets(path)?,
            Content::Index => disk::create_new(path, false)?,
        };
        let file = held(file)?;
        Ok(self.keep(file))
    }

    fn open_directory(&mut self, path: &Path) -> io::Result<FileId> {
        let directory = nofollow::open(path)?;
        Ok(self.keep(directory))
    }

    fn open(&mut self, path: &Path) -> io::Result<FileId> {
        let file = nofollow::open(path)?;
        Ok(self.keep(file))
    }

    fn take(&mut self, path: &Path) -> io::Result<Option<FileId>> {
        let file = nofollow::open_as(path, OpenOptions { write: true, ..OpenOptions::default() })?;
        Ok(if is_free(&file, path)? { Some(self.keep(file)) } else { None })
    }

    fn len(&mut self, file: FileId) -> io::Result<u64> {
        Ok(self.file(file)?.metadata()?.len())
    }

    fn read(&mut self, file: FileId, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            return Err(io::Error::other("stopped on request"));
        }
        let file = self.file(file)?;
        let mut done = 0;
        while done < buffer.len() {
            match file.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    fn start(&mut self, file: FileId, op: Op, token: u64) -> io::Result<()> {
        let file = Arc::clone(self.file(file)?);
        match &mut self.engine {
            Engine::Uring(ring) => match op {
                Op::Write { offset, slice } => ring.write(&file, offset, slice, token),
                Op::Allocate(len) => ring.allocate(&file, len, token),
                Op::Sync => ring.sync(&file, token),
            },
            Engine::Plain { done, .. } => {
                let result = match op {
                    Op::Write { offset, slice } => file.write_at(slice.bytes(), offset),
                    Op::Allocate(len) => disk::allocate(&file, len).map(|()| 0),
                    Op::Sync => file.sync_data().map(|()| 0),
                };
                done.push(Completion { token, result });
                Ok(())
            }
        }
    }

    fn reap(&mut self, wait: Duration, out: &mut Vec<Completion>) -> io::Result<()> {
        match &mut self.engine {
            Engine::Uring(ring) => {
                let mut done = Vec::new();
                ring.reap(wait, &mut done)?;
                out.extend(done.into_iter().map(|d| Completion { token: d.token, result: d.result }));
            }
            Engine::Plain { done, .. } => out.append(done),
        }
        Ok(())
    }

    fn put(&mut self, file: FileId, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file(file)?.write_all_at(bytes, offset)
    }

    fn truncate(&mut self, file: FileId, len: u64) -> io::Result<()> {
        self.file(file)?.set_len(len)
    }

    fn copy_permissions(&mut self, from: FileId, to: FileId) -> io::Result<()> {
        const OF_GROUP: u32 = 0o070;
        let original = self.file(from)?.metadata()?;
        let to = self.file(to)?;
        let copy = to.metadata()?;
        let owners = |meta: &Metadata| (meta.uid(), meta.gid());
        let mut mode = original.mode() & 0o777;
        if owners(&original) != owners(&copy) {
            match fchown(to.as_ref(), Some(original.uid()), Some(original.gid())) {
                // The permissions of the original's group are not given to another group.
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => mode &= !OF_GROUP,
                other => other?,
            }
        }
        to.set_permissions(Permissions::from_mode(mode))
    }

    fn close(&mut self, file: FileId) {
        self.files.remove(&file);
    }

    fn exists(&mut self, path: &Path) -> bool {
        nofollow::exists(path)
    }

    fn list(&mut self, directory: &Path) -> io::Result<Vec<(String, bool)>> {
        let entries = nofollow::list(directory)?.into_iter();
        let named =
            entries.filter_map(|(name, kind)| Some((name.into_string().ok()?, kind == nofollow::FileKind::Directory)));
        // Lock files are internal to this device; the trait does not expose them.
        Ok(named.filter(|(name, _)| ![HOLD, RETENTION_LOCK, LOCK].contains(&name.as_str())).collect())
    }

    fn is_held(&mut self, path: &Path) -> bool {
        // The test uses a shared lock, so that two processes that test the file at the same time do not block each
        // other.
        match nofollow::open(path).map(|file| file.try_lock_shared()) {
            Ok(Ok(())) => false,
            Ok(Err(_)) => true,
            Err(e) => e.kind() != io::ErrorKind::NotFound,
        }
    }

    fn hold(&mut self, directory: &Path) -> io::Result<Lock> {
        Ok(Box::new(Hold::reader(directory)?))
    }

    fn remove_unheld(&mut self, path: &Path) -> io::Result<Option<u64>> {
        let file = nofollow::open_as(path, OpenOptions { write: true, ..OpenOptions::default() })?;
        if !is_free(&file, path)? {
            return Ok(None);
        }
        nofollow::remove(path)?;
        Ok(Some(512 * file.metadata()?.blocks()))
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        nofollow::rename_new(from, to)
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        nofollow::remove(path)
    }
}

/// Locks a file that was just opened. Returns false if another process has the lock, or if the path no longer leads to
/// this file.
fn is_free(file: &File, path: &Path) -> io::Result<bool> {
    if lock(file).is_err() {
        return Ok(false);
    }
    // Between open and lock, the process that held the lock may have renamed the file, and another process may have
    // created a file of the same name.
    let (opened, named) = (file.metadata()?, nofollow::stat(path)?);
    Ok((opened.dev(), opened.ino()) == (named.dev(), named.ino()))
}

/// Locks a file that was just created. Between creation and lock, another process may have removed the file as a
/// leftover of a killed recorder; then its link count is 0. If another process only tests the lock, it releases the
/// lock soon, and [`lock`] retries.
fn held(file: File) -> io::Result<File> {
    match lock(&file) {
        // The file system has no locks. No process removes leftover files on such a file system.
        Err(TryLockError::Error(_)) => Ok(file),
        Ok(()) if file.metadata()?.nlink() > 0 => Ok(file),
        Ok(()) | Err(TryLockError::WouldBlock) => Err(io::ErrorKind::AlreadyExists.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_process_that_tests_a_lock_is_not_taken_for_its_holder() {
        let dir = testkit::TempDir::new("a_process_that_tests_a_lock_is_not_taken_for_its_holder");
        let path = dir.join("dead");
        fs::write(&path, b"left").expect("a file");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    // The result is not asserted: while the other thread tests the lock, the file may appear held.
                    DiskDevice::plain().is_held(&path);
                }
            });
            let mut device = DiskDevice::plain();
            let mut take = |_: &u32| match device.take(&path).expect("the file is there") {
                Some(id) => {
                    device.close(id);
                    true
                }
                None => false,
            };
            let free = (0..200).filter(&mut take).count();
            done.store(true, Ordering::Relaxed);
            assert_eq!(free, 200);
        });
        // The creation of a file succeeds although another process tests its lock.
        let created = disk::create_new(&dir.join("created"), false).expect("a new file");
        let tester = File::open(dir.join("created")).expect("the file");
        tester.try_lock_shared().expect("an unlocked file");
        let tested = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            drop(tester);
        });
        held(created).expect("the lock");
        tested.join().expect("a thread");
        let holder = File::open(&path).expect("the file is there");
        holder.try_lock_shared().expect("an unlocked file");
        assert!(
            DiskDevice::plain().take(&path).expect("the file is there").is_none(),
            "a file that another process has locked is not opened by `take`"
        );
    }

    #[test]
    fn symbolic_links_in_a_store_are_not_followed() {
        let dir = testkit::TempDir::new("symbolic_links_in_a_store_are_not_followed");
        let (store, outside) = (dir.join("store/eth1"), dir.join("outside"));
        fs::create_dir_all(outside.join("11")).expect("a directory");
        fs::write(outside.join("11/victim"), "untouched").expect("a file");
        fs::create_dir_all(&store).expect("a directory");
        std::os::unix::fs::symlink(&outside, store.join("2026")).expect("a link");
        let (hour, victim) = (store.join("2026/11"), store.join("2026/11/victim"));
        let mut device = DiskDevice::plain();
        assert!(
            device.create_directory(&hour.join("24/10")).is_err()
                && device.create(&hour.join("f"), Content::Index).is_err()
        );
        assert!(device.create(&hour.join("f"), Content::Packets).is_err() && device.open(&victim).is_err());
        assert!(device.take(&victim).is_err() && device.remove(&victim).is_err() && device.list(&hour).is_err());
        assert!(device.remove_unheld(&victim).is_err() && device.rename(&victim, &store.join("mine")).is_err());
        assert!(device.hold(&hour).is_err() && device.open_directory(&hour).is_err() && !device.exists(&victim));
        assert_eq!(fs::read_to_string(outside.join("11/victim")).expect("the file"), "untouched");
        assert_eq!(fs::read_dir(outside.join("11")).expect("the directory").count(), 1);
    }
}
