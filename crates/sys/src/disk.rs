//! File operations that the standard library lacks: opening with direct I/O, the alignment that direct I/O needs
//! (`statx(2)`, STATX_DIOALIGN), and preallocation (`fallocate(2)`).

use crate::nofollow;
use rustix::fs::{AtFlags, FallocateFlags, StatxFlags, fallocate, statx};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The mode of new files: only owner and group may read them, because packets contain private data.
const MODE: u32 = 0o640;

/// The alignment in bytes that direct I/O to a file requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectAlign {
    /// Alignment of the address in memory.
    pub memory: usize,
    /// Alignment of the offset in the file and of the length.
    pub offset: usize,
}

/// Opens a file for reading. With `direct`, reads bypass the page cache (O_DIRECT).
///
/// # Errors
/// `EINVAL` if the file system has no direct reads; the errors of `open(2)`.
pub fn open(path: &Path, direct: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    if direct {
        options.custom_flags(libc::O_DIRECT);
    }
    options.open(path)
}

/// Creates a file for writing; the file must not exist. With `direct`, writes bypass the page cache (O_DIRECT).
///
/// # Errors
/// `EEXIST`; `EINVAL` if the file system has no direct writes (then no file is left behind); the errors of `open(2)`.
pub fn create_new(path: &Path, direct: bool) -> io::Result<File> {
    let outcome = nofollow::open_as(path, nofollow::OpenOptions { write: true, direct, create: Some(MODE), new: true });
    if let Err(e) = &outcome
        && direct
        && e.raw_os_error() == Some(libc::EINVAL)
    {
        // Some kernels create the file before the file system refuses O_DIRECT.
        let _ = nofollow::remove(path);
    }
    outcome
}

/// The alignment of direct writes to this file; `None` if the file system does not support them or does not report it.
///
/// # Errors
/// The errors of `statx(2)`.
pub fn direct_align(file: &File) -> io::Result<Option<DirectAlign>> {
    let answer = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)?;
    let reported = answer.stx_mask & StatxFlags::DIOALIGN.bits() != 0 && answer.stx_dio_offset_align != 0;
    Ok(reported.then_some(DirectAlign {
        memory: answer.stx_dio_mem_align as usize,
        offset: answer.stx_dio_offset_align as usize,
    }))
}

/// Allocates `len` bytes for the file and sets its size, so that direct writes within this size neither serialise nor
/// fail for lack of space.
///
/// # Errors
/// `ENOSPC`; `EOPNOTSUPP` if the file system does not support preallocation.
pub fn allocate(file: &File, len: u64) -> io::Result<()> {
    if i64::try_from(len).is_err() {
        return Err(Errno::FBIG.into());
    }
    Ok(fallocate(file, FallocateFlags::empty(), 0, len)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(name: &str) -> std::path::PathBuf {
        let dir = std::env::temp_dir().join(format!("netgrain-disk-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn rename_new_never_replaces_a_file() {
        let dir = directory("rename");
        let (a, b) = (dir.join("a"), dir.join("b"));
        std::fs::write(&a, "new").unwrap();
        std::fs::write(&b, "old").unwrap();
        assert_eq!(nofollow::rename_new(&a, &b).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&b).unwrap(), b"old");
        std::fs::remove_file(&b).unwrap();
        nofollow::rename_new(&a, &b).unwrap();
        assert_eq!(std::fs::read(&b).unwrap(), b"new");
        assert!(!a.exists());
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn allocation_sets_the_size() {
        let dir = directory("allocate");
        let file = create_new(&dir.join("f"), false).unwrap();
        match allocate(&file, 3 << 20) {
            Ok(()) => assert_eq!(file.metadata().unwrap().len(), 3 << 20),
            Err(e) => assert_eq!(e.raw_os_error(), Some(libc::EOPNOTSUPP)),
        }
        assert_eq!(allocate(&file, u64::MAX).unwrap_err().raw_os_error(), Some(libc::EFBIG));
        assert_eq!(create_new(&dir.join("f"), false).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_reported_alignment_is_a_power_of_two() {
        let dir = directory("align");
        match create_new(&dir.join("f"), true) {
            Ok(file) => {
                if let Some(a) = direct_align(&file).unwrap() {
                    assert!(a.memory.is_power_of_two() && a.offset.is_power_of_two(), "{a:?}");
                }
            }
            Err(e) => {
                assert_eq!(e.raw_os_error(), Some(libc::EINVAL));
                assert!(!dir.join("f").exists());
            }
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
