//! Private memory in pages: zeroed, allocated at first access, in huge pages where the kernel allocates them on request
//! (mmap(2), madvise(2) `MADV_HUGEPAGE`). The memory is meant for tables that are accessed at random addresses. In
//! small pages, nearly every access to such a table costs a TLB miss.

use crate::memory::HUGE_PAGE;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut};

/// Page-aligned 64-bit words, initially 0.
#[derive(Debug)]
pub struct ZeroedPages {
    base: NonNull<u64>,
    len: usize,
}

// SAFETY: this value owns the memory, and all access goes through the value.
unsafe impl Send for ZeroedPages {}
// SAFETY: this value owns the memory, and a shared reference to it gives only `&[u64]`.
unsafe impl Sync for ZeroedPages {}

impl ZeroedPages {
    /// Maps `len` words; the kernel allocates the memory at the first write.
    ///
    /// # Errors
    /// `ENOMEM` if the address space, or a limit on it, is exhausted.
    pub fn zeroed(len: usize) -> io::Result<Self> {
        let too_long = || io::Error::from(io::ErrorKind::OutOfMemory);
        let bytes = len.max(1).checked_mul(8).filter(|b| isize::try_from(*b).is_ok()).ok_or_else(too_long)?;
        // SAFETY: a new mapping at an address of the kernel's choice affects no existing memory.
        let at = unsafe { mmap_anonymous(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) }?;
        if bytes >= HUGE_PAGE {
            // Advice only: without huge pages the mapping consists of small pages.
            // SAFETY: the range is the mapping made above.
            let _ = unsafe { madvise(at, bytes, Advice::LinuxHugepage) };
        }
        let base = NonNull::new(at.cast()).ok_or_else(too_long)?;
        Ok(Self { base, len })
    }
}

impl Deref for ZeroedPages {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        // SAFETY: the mapping has at least `len` words, begins at a page, was zeroed by the kernel, and exists as long
        // as this value.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl DerefMut for ZeroedPages {
    fn deref_mut(&mut self) -> &mut [u64] {
        // SAFETY: the mapping has at least `len` initialised words and exists as long as this value, and `&mut self`
        // excludes other references.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

impl Drop for ZeroedPages {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping of `zeroed`, to which no reference is left.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len.max(1) * 8) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_zero_at_first_and_keep_the_written_values() {
        let mut words = ZeroedPages::zeroed(HUGE_PAGE / 8 + 3).expect("2 MiB of memory");
        assert!(words.iter().all(|w| *w == 0));
        words[HUGE_PAGE / 8 + 2] = 7;
        assert_eq!((words.len(), words.iter().sum::<u64>()), (HUGE_PAGE / 8 + 3, 7));
        assert!(ZeroedPages::zeroed(0).expect("an empty mapping").is_empty());
    }

    #[test]
    fn a_size_above_the_address_space_is_an_error() {
        assert!(ZeroedPages::zeroed(usize::MAX / 8).is_err());
        assert!(ZeroedPages::zeroed(usize::MAX).is_err());
    }
}
