//! The operations of the recorder on a volume. Every disk operation that can fail is a function of the trait
//! [`Device`], so that tests can inject failures. [`DiskDevice`] uses the real volume; [`MemoryDevice`] stores files in
//! memory and fails as a test requests.

mod disk;
mod housekeeping;
mod memory;

pub use disk::DiskDevice;
pub use housekeeping::{Housekeeping, Space, Stat};
pub use memory::{Fault, MemoryDevice, Surviving};

use crate::bytes::{Bytes, Slice};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// True if a write failed for lack of space: the volume is full, or (`EDQUOT`) the user's quota is exhausted. In both
/// cases the removal of files frees space.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// A lock that is released when it is dropped.
pub type Lock = Box<dyn Send>;

/// The id of an open file of one device; never reused after the file is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileId(pub u32);

/// The kind of content of a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Packets, in large aligned writes that bypass the page cache.
    Packets,
    /// An index, in small writes of any length.
    Index,
}

/// An asynchronous operation of a device.
pub enum Op {
    /// Writes bytes at an offset. For packet files, offset, length and memory address are multiples of
    /// [`crate::bytes::PAGE`].
    Write {
        /// Byte offset in the file.
        offset: u64,
        /// The bytes to write.
        slice: Slice,
    },
    /// Allocates this many bytes for the file and sets its size to this number.
    Allocate(u64),
    /// Syncs the file: content and length (of a directory: the names in it) survive a power failure afterwards.
    Sync,
}

/// The end of an [`Op`].
#[derive(Debug)]
pub struct Completion {
    /// The token with which the operation was started.
    pub token: u64,
    /// Bytes written, possibly fewer than requested (0 for the other operations), or the error.
    pub result: io::Result<usize>,
}

/// A volume.
pub trait Device: Send {
    /// Describes in one line by which method this device writes.
    fn describe(&self) -> String;

    /// True if the device writes packet files with io_uring and past the page cache (`O_DIRECT`), its fastest method.
    fn is_best(&self) -> bool;

    /// Prepares the device for writes from this memory. Returns a warning if the preparation failed.
    fn adopt(&mut self, memory: &Arc<dyn Bytes>) -> Option<String>;

    /// Creates a directory with its parents, and syncs them so that they survive a power failure.
    ///
    /// # Errors
    /// Any error that the file system returns.
    fn create_directory(&mut self, path: &Path) -> io::Result<()>;

    /// Creates a new file, and locks it until it is closed or this process ends, even if it is renamed.
    ///
    /// # Errors
    /// `EEXIST` if the file exists, or another error of the file system.
    fn create(&mut self, path: &Path, content: Content) -> io::Result<FileId>;

    /// Opens a directory, to sync it.
    ///
    /// # Errors
    /// Any error that the file system returns.
    fn open_directory(&mut self, path: &Path) -> io::Result<FileId>;

    /// Opens a file for reading, without a lock.
    ///
    /// # Errors
    /// Any error that the file system returns.
    fn open(&mut self, path: &Path) -> io::Result<FileId>;

    /// Opens a file for reading and writing, and locks it until it is closed; `None` if a running process has the lock,
    /// or the lock cannot be tested.
    ///
    /// # Errors
    /// Any error that the file system returns.
    fn take(&mut self, path: &Path) -> io::Result<Option<FileId>>;

    /// The length of the file in bytes.
    ///
    /// # Errors
    /// Any error that the file system returns.
    fn len(&mut self, file: FileId) -> io::Result<u64>;

    /// Reads from `offset` into `buffer` and returns the number of bytes; it is smaller than the buffer only at the end
    /// of the file.
    ///
    /// # Errors
    /// Any error that the file system returns.
    fn read(&mut self, file: FileId, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Starts an operation. Its end is reported as a [`Completion`] with this token.
    ///
    /// # Errors
    /// `EBUSY` if too many operations are in progress; then the operation was not started.
    fn start(&mut self, file: FileId, op: Op, token: u64) -> io::Result<()>;

    /// Waits up to `wait` for a completion and appends all completions to `out`. With a wait of zero, the function
    /// returns immediately.
    ///
    /// # Errors
    /// An error of the wait itself. The error of an operation is in the [`Completion`] of the operation.
    fn reap(&mut self, wait: Duration, out: &mut Vec<Completion>) -> io::Result<()>;

    /// Writes all bytes and waits for the end of the write; for small writes.
    ///
    /// # Errors
    /// Any error that the file system returns; some of the bytes may have been written.
    fn put(&mut self, file: FileId, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Truncates the file to this length.
    ///
    /// # Errors
    /// Any error that the file system returns.
    fn truncate(&mut self, file: FileId, len: u64) -> io::Result<()>;

    /// Gives a file the permissions, owner and group of another file. If this process may not change the owner or the
    /// group, the file keeps its own, and its group gets no permissions.
    ///
    /// # Errors
    /// Any error that the file system returns.
    fn copy_permissions(&mut self, from: FileId, to: FileId) -> io::Result<()>;

    /// Closes the file; operations in progress still complete.
    fn close(&mut self, file: FileId);

    /// True if a file or directory of this name exists.
    fn exists(&mut self, path: &Path) -> bool;

    /// The entries of a directory: each name, and true if the entry is a directory. Names that are not UTF-8 are left
    /// out.
    ///
    /// # Errors
    /// Any error that the file system returns.
    fn list(&mut self, directory: &Path) -> io::Result<Vec<(String, bool)>>;

    /// True if a running process has locked this file, or the lock cannot be tested.
    fn is_held(&mut self, path: &Path) -> bool;

    /// Prevents retention from removing files in this directory until the returned lock is dropped, like
    /// [`Hold::reader`].
    ///
    /// [`Hold::reader`]: crate::Hold::reader
    ///
    /// # Errors
    /// `ENOENT` if the directory does not exist, or another error of the file system.
    fn hold(&mut self, directory: &Path) -> io::Result<Lock>;

    /// Removes a file that no running process has locked, and returns the number of bytes of space that the removal
    /// freed. If a process has the lock or the lock cannot be tested, the file is not removed and the result is `None`.
    ///
    /// # Errors
    /// Any error that the file system returns.
    fn remove_unheld(&mut self, path: &Path) -> io::Result<Option<u64>>;

    /// Renames a file; never replaces an existing file.
    ///
    /// # Errors
    /// `EEXIST` if a file `to` exists, or another error of the file system.
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// Any error that the file system returns.
    fn remove(&mut self, path: &Path) -> io::Result<()>;
}
