//! File access through [`store::Device`], so that tests can make any step fail.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use store::DiskDevice;
use store::device::{FileId, Housekeeping};
use sys::memory::prefer_huge_pages;

/// Access to a volume, for one thread.
pub type Disk = Box<dyn Housekeeping>;

/// Opens an access to the volume; each thread has its own access.
pub type Disks = Arc<dyn Fn() -> Disk + Send + Sync>;

/// Access through the operating system.
pub fn real() -> Disk {
    Box::new(DiskDevice::plain())
}

/// Reads a whole file of at most `most` bytes.
///
/// # Errors
/// Errors of the file system.
pub fn read(disk: &mut dyn Housekeeping, path: &Path, most: u64) -> io::Result<Vec<u8>> {
    read_into(disk, path, most, Vec::new())
}

/// As [`read`], and reuses the buffer `bytes` if it is large enough.
///
/// PERF: the kernel clears new memory, which takes 90 to 190 ns per record of a journal that is sealed
/// (records/2026-11-23-columns.md).
///
/// # Errors
/// As [`read`].
pub fn read_into(disk: &mut dyn Housekeeping, path: &Path, most: u64, mut bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    let file = disk.open(path)?;
    let outcome = disk.len(file).and_then(|len| {
        let len = usize::try_from(len.min(most)).unwrap_or(usize::MAX);
        if bytes.capacity() < len {
            // The next journal may be a little longer. The kernel allocates no pages for the part that is not written.
            bytes = vec![0; len + len / 8];
            // Huge pages, because the columns of all blocks are read one after the other, so that each page of the
            // journal is accessed a hundred times.
            prefer_huge_pages(bytes.as_ptr_range());
        }
        bytes.resize(len, 0);
        let done = disk.read(file, 0, &mut bytes)?;
        bytes.truncate(done);
        Ok(bytes)
    });
    disk.close(file);
    outcome
}

/// A file that is written once, from beginning to end.
pub struct Output<'a> {
    /// The volume.
    pub disk: &'a mut dyn Housekeeping,
    /// The file.
    pub file: FileId,
    /// Bytes written so far.
    pub len: u64,
}

impl Write for Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.disk.put(self.file, self.len, bytes)?;
        self.len += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
