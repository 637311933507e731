//! What the recorder asks of a volume. Everything that can fail on a disk goes through here, so that tests can make it
//! fail: [`DiskDevice`] is the real one, [`MemoryDevice`] one in memory with faults on demand.

mod disk;
mod housekeeping;
mod memory;

pub use disk::DiskDevice;
pub(crate) use housekeeping::remove_empty;
pub use housekeeping::{Housekeeping, Lock, Space, Stat};
pub use memory::{Fault, MemoryDevice, Surviving};

use crate::bytes::{Bytes, Slice};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Whether a volume refused because it has no room for more: it is full, or (`EDQUOT`) who writes has used up the share
/// that is theirs. Either way room comes from removing something.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// An open file of one device; never used again after it is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileId(pub u32);

/// What a file will hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Packets, in large aligned writes past the page cache.
    Packets,
    /// An index, in small writes of any length.
    Index,
}

/// What a device does in its own time.
pub enum Op {
    /// Writes bytes at an offset; both, and the length, are multiples of [`crate::bytes::PAGE`] for packet files.
    Write {
        /// Byte offset in the file.
        offset: u64,
        /// What to write.
        slice: Slice,
    },
    /// Gives the file this many bytes of room, and that size.
    Allocate(u64),
    /// Makes content and length (or, for a folder, its names) survive a power failure.
    Sync,
}

/// The end of an [`Op`].
#[derive(Debug)]
pub struct Completion {
    /// As given when it was started.
    pub token: u64,
    /// Bytes written, which may be fewer than asked (0 for the others), or why not.
    pub result: io::Result<usize>,
}

/// A volume.
pub trait Device: Send {
    /// One line for people: how this device writes.
    fn describe(&self) -> String;

    /// Whether there is no better way.
    fn is_best(&self) -> bool;

    /// Prepares for writes from this memory. Returns what people should know when it could not.
    fn adopt(&mut self, memory: &Arc<dyn Bytes>) -> Option<String>;

    /// Makes a folder with all above it, so that they survive a power failure.
    ///
    /// # Errors
    /// What the file system says.
    fn create_folder(&mut self, path: &Path) -> io::Result<()>;

    /// Creates a file that must not exist. It is held until it is closed or this process ends, whatever its name becomes.
    ///
    /// # Errors
    /// `EEXIST`, or what the file system says.
    fn create(&mut self, path: &Path, content: Content) -> io::Result<FileId>;

    /// Opens a folder, to sync it.
    ///
    /// # Errors
    /// What the file system says.
    fn open_folder(&mut self, path: &Path) -> io::Result<FileId>;

    /// Opens a file for reading; nobody is kept from anything.
    ///
    /// # Errors
    /// What the file system says.
    fn open(&mut self, path: &Path) -> io::Result<FileId>;

    /// Opens a file for reading and writing, and holds it until it is closed; `None` if a living process does, or that
    /// cannot be known.
    ///
    /// # Errors
    /// What the file system says.
    fn take(&mut self, path: &Path) -> io::Result<Option<FileId>>;

    /// How long the file is.
    ///
    /// # Errors
    /// What the file system says.
    fn len(&mut self, file: FileId) -> io::Result<u64>;

    /// Fills `buffer` from `offset` on and says how far; less than all of it only at the end of the file.
    ///
    /// # Errors
    /// What the file system says.
    fn read(&mut self, file: FileId, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Begins an operation that will end as a [`Completion`] with this token.
    ///
    /// # Errors
    /// `EBUSY` when too many are in flight; nothing was begun then.
    fn start(&mut self, file: FileId, op: Op, token: u64) -> io::Result<()>;

    /// Waits up to `wait` for an operation to end and appends all that have to `out`. Zero never sleeps.
    ///
    /// # Errors
    /// When the device itself fails, not an operation.
    fn reap(&mut self, wait: Duration, out: &mut Vec<Completion>) -> io::Result<()>;

    /// Writes a few bytes now, all of them.
    ///
    /// # Errors
    /// What the file system says; any part may have been written.
    fn put(&mut self, file: FileId, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Cuts the file to this length.
    ///
    /// # Errors
    /// What the file system says.
    fn truncate(&mut self, file: FileId, len: u64) -> io::Result<()>;

    /// Closes the file; operations in flight still end.
    fn close(&mut self, file: FileId);

    /// Whether something has this name.
    fn exists(&mut self, path: &Path) -> bool;

    /// What lies in a folder: each name, and whether it is a folder itself. Names that are not text are left out.
    ///
    /// # Errors
    /// What the file system says.
    fn list(&mut self, folder: &Path) -> io::Result<Vec<(String, bool)>>;

    /// Whether a living process holds this file; yes where that cannot be known.
    fn is_held(&mut self, path: &Path) -> bool;

    /// Keeps retention from removing anything in this folder for as long as the lock lives, as [`Hold::reader`] does.
    ///
    /// [`Hold::reader`]: crate::Hold::reader
    ///
    /// # Errors
    /// `ENOENT`, or what the file system says.
    fn hold(&mut self, folder: &Path) -> io::Result<Lock>;

    /// Removes a file that no living process holds, and tells how many bytes of room that gave back; `None`, and
    /// nothing is removed, if one does or that cannot be known.
    ///
    /// # Errors
    /// What the file system says.
    fn remove_unheld(&mut self, path: &Path) -> io::Result<Option<u64>>;

    /// Renames, never over an existing name.
    ///
    /// # Errors
    /// `EEXIST`, or what the file system says.
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// What the file system says.
    fn remove(&mut self, path: &Path) -> io::Result<()>;
}
