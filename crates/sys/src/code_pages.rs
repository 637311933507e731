//! Memory for machine code that is made at run time.
//!
//! The code is written through one mapping of a memory file. Then an executable, read-only mapping replaces it at the
//! same address, and the file is sealed against writing (memfd_create(2), fcntl(2) F_SEAL_WRITE). Invariant: no mapping
//! is ever both writable and executable, and no existing mapping becomes executable. A change by `mprotect` would
//! violate the second part of the invariant. Services with `MemoryDenyWriteExecute=yes` (systemd.exec(5)) or
//! `PR_SET_MDWE` (prctl(2)) require that part, because both refuse to make an existing mapping executable.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::{NonNull, null_mut};

const PAGE: usize = 4096;

/// Pages for machine code. No thread may run the code when the value is dropped.
#[derive(Debug)]
pub struct CodePages {
    base: NonNull<u8>,
    len: usize,
    used: usize,
    /// The memory file; `None` when the pages are no longer writable.
    file: Option<OwnedFd>,
}

// SAFETY: the mapping belongs to this value alone, and it does not matter which thread unmaps it.
unsafe impl Send for CodePages {}

impl CodePages {
    /// Pages for at least `bytes`, writable and not executable.
    ///
    /// # Errors
    /// The errors of the kernel: lack of memory or of file descriptors.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let len = bytes.max(1).next_multiple_of(PAGE);
        let file = memfd_create(c"netgrain-code", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, len as u64)?;
        // SAFETY: a mapping at an address of the kernel's choice affects no existing memory.
        let mapping = unsafe { mmap(null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0) }?;
        let base = NonNull::new(mapping.cast()).ok_or_else(|| io::Error::other("mapping at address zero"))?;
        Ok(Self { base, len, used: 0, file: Some(file) })
    }

    /// Returns the next `bytes` bytes, at a multiple of `align`. They may be written until [`CodePages::finish`]. The
    /// result is `None` if there is not enough space, or after `finish`.
    pub fn take(&mut self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        let begin = self.used.checked_next_multiple_of(align.max(1))?;
        let end = begin.checked_add(bytes).filter(|end| *end <= self.len && self.file.is_some() && align <= PAGE)?;
        self.used = end;
        // SAFETY: `begin` lies within the mapping, or directly after it if `bytes` is 0.
        Some(unsafe { self.base.add(begin) })
    }

    /// Address and length of all pages, for instructions that prepare a CPU for new code.
    pub fn range(&self) -> (*mut u8, usize) {
        (self.base.as_ptr(), self.len)
    }

    /// Makes the pages executable and never writable again. A second call has no effect.
    ///
    /// # Errors
    /// If the kernel refuses executable memory, the pages are unchanged. If the kernel only refuses to seal the file,
    /// the pages are executable and this process has no writable mapping of them, but no seal prevents a new writable
    /// mapping. The caller must then drop the value.
    pub fn finish(&mut self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let (prot, flags) = (ProtFlags::READ | ProtFlags::EXEC, MapFlags::PRIVATE | MapFlags::FIXED);
        // SAFETY: the range is our own mapping, and the mapping that replaces it has the same bytes.
        unsafe { mmap(self.base.as_ptr().cast(), self.len, prot, flags, file, 0) }?;
        let sealed = fcntl_add_seals(file, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL);
        // The descriptor of the memory file is closed even if the file could not be sealed. No other process has the
        // descriptor.
        self.file = None;
        Ok(sealed?)
    }
}

impl Drop for CodePages {
    fn drop(&mut self) {
        // SAFETY: the range is this value's own mapping, and no thread runs code in it any more.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The entry of this address in `/proc/self/maps`.
    fn mapped(at: *const u8) -> String {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let holds = |line: &&str| {
            let (from, to) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
            let [from, to] = [from, to].map(|n| usize::from_str_radix(n, 16).unwrap());
            (from..to).contains(&(at as usize))
        };
        maps.lines().find(holds).unwrap()[..].split(' ').nth(1).unwrap().to_owned()
    }

    #[test]
    fn pages_are_never_writable_and_executable_at_once() {
        let mut pages = CodePages::new(5000).unwrap();
        let (base, len) = pages.range();
        assert_eq!((len, mapped(base)), (8192, "rw-s".into()));
        let first = pages.take(3, 1).unwrap();
        let second = pages.take(100, 64).unwrap();
        assert_eq!((second.as_ptr() as usize - first.as_ptr() as usize, pages.take(9000, 1)), (64, None));
        // SAFETY: the bytes belong to this test and are writable.
        unsafe { second.write(0xc3) };
        pages.finish().unwrap();
        assert_eq!(mapped(base), "r-xp");
        // SAFETY: the byte is mapped.
        assert_eq!(unsafe { second.read() }, 0xc3);
        assert!(pages.take(1, 1).is_none(), "no bytes are available after finish");
        pages.finish().unwrap();
    }
}
