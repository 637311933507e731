//! The volume below: what is written goes through [`store::Device`], so that tests can make it fail at any step.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use store::DiskDevice;
use store::device::{FileId, Housekeeping};
use sys::memory::prefer_huge_pages;

/// A volume, by one who writes there.
pub type Disk = Box<dyn Housekeeping>;

/// Makes volumes: each thread has its own.
pub type Disks = Arc<dyn Fn() -> Disk + Send + Sync>;

/// That of the operating system.
pub fn real() -> Disk {
    Box::new(DiskDevice::plain())
}

/// All of a file, up to so many bytes.
///
/// # Errors
/// What the file system says.
pub fn read(disk: &mut dyn Housekeeping, path: &Path, most: u64) -> io::Result<Vec<u8>> {
    read_into(disk, path, most, Vec::new())
}

/// The same, in the memory of what was read before, if there is enough.
/// PERF: new memory is cleared by the kernel, 90 to 190 ns per record of a journal that is sealed
/// (records/2026-11-23-columns.md).
///
/// # Errors
/// The same.
pub fn read_into(disk: &mut dyn Housekeeping, path: &Path, most: u64, mut bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    let file = disk.open(path)?;
    let outcome = disk.len(file).and_then(|len| {
        let len = usize::try_from(len.min(most)).unwrap_or(usize::MAX);
        if bytes.capacity() < len {
            // The next journal may be a little longer. The kernel gives no memory for what is not read into.
            bytes = vec![0; len + len / 8];
            // A journal is read column by column, which touches each of its pages a hundred times.
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

/// A file that is written from its beginning to its end.
pub struct Output<'a> {
    /// The volume.
    pub disk: &'a mut dyn Housekeeping,
    /// The file.
    pub file: FileId,
    /// Bytes so far.
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
