//! The memory of a UMEM, which contains the frames: anonymous, in huge pages if available, prefaulted.

use crate::memory::HUGE_PAGE;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mlock, mmap_anonymous, munmap};
use std::io;
use std::ptr::{NonNull, null_mut};

/// The pages of an [`Umem`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Reserved huge pages (`vm.nr_hugepages`).
    Huge,
    /// Ordinary pages for which the kernel was advised to use huge pages.
    Transparent,
    /// Ordinary pages.
    Small,
}

/// Anonymous, page-aligned, prefaulted memory. Only the sockets of this module access it.
#[derive(Debug)]
pub struct Umem {
    base: NonNull<u8>,
    bytes: usize,
    pages: Pages,
    locked: bool,
}

// SAFETY: a Umem is only an address range; each chunk of it is accessed only by the socket that owns the chunk.
unsafe impl Send for Umem {}
// SAFETY: a Umem is only an address range; no method reads or writes the memory.
unsafe impl Sync for Umem {}

impl Umem {
    /// Maps at least `bytes` bytes of memory; the length is rounded up to 2 MiB.
    ///
    /// # Errors
    /// `ENOMEM` if the machine lacks the memory.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let bytes = bytes.max(1).next_multiple_of(HUGE_PAGE);
        let (base, mut pages) = match map(bytes, MapFlags::HUGETLB) {
            Ok(base) => (base, Pages::Huge),
            Err(_) => (map(bytes, MapFlags::empty())?, Pages::Small),
        };
        let mut umem = Self { base, bytes, pages, locked: false };
        if pages == Pages::Small && umem.advise(Advice::LinuxHugepage).is_ok() {
            pages = Pages::Transparent;
        }
        umem.pages = pages;
        // The memory is prefaulted here, so that the first burst of packets causes no page fault. The call fails if the
        // huge pages that were reserved for the mapping are no longer available.
        umem.advise(Advice::LinuxPopulateWrite)?;
        // SAFETY: the range is ours; locking it changes no content.
        umem.locked = unsafe { mlock(umem.base.as_ptr().cast(), bytes) }.is_ok();
        Ok(umem)
    }

    /// Length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// The kind of pages.
    pub fn pages(&self) -> Pages {
        self.pages
    }

    /// True if the memory is also locked (the kernel pins registered memory in any case).
    pub fn is_locked(&self) -> bool {
        self.locked
    }

    pub(super) fn address(&self) -> usize {
        self.base.as_ptr() as usize
    }

    /// The bytes `at..at + len`.
    ///
    /// # Safety
    /// The range must lie in the UMEM, and nothing may write to it during the lifetime of the result.
    pub(super) unsafe fn bytes(&self, at: usize, len: usize) -> &[u8] {
        // SAFETY: guaranteed by the caller.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(at), len) }
    }

    /// The bytes `at..at + len`, writable.
    ///
    /// # Safety
    /// The range must lie in the UMEM, and no other code may access it during the lifetime of the result.
    #[allow(clippy::mut_from_ref, reason = "each chunk is owned by one of the sockets")]
    pub(super) unsafe fn bytes_mut(&self, at: usize, len: usize) -> &mut [u8] {
        // SAFETY: guaranteed by the caller.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(at), len) }
    }

    fn advise(&self, advice: Advice) -> io::Result<()> {
        // SAFETY: the range is ours, and neither of the two advices used changes its contents.
        Ok(unsafe { madvise(self.base.as_ptr().cast(), self.bytes, advice) }?)
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: no other value uses the mapping: every socket that uses it holds a reference to this value.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

fn map(bytes: usize, flags: MapFlags) -> io::Result<NonNull<u8>> {
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice affects no existing memory.
    let base = unsafe { mmap_anonymous(null_mut(), bytes, prot, flags | MapFlags::PRIVATE) }?;
    NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapping at address zero"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_above_the_memory_is_an_error() {
        assert!(Umem::new(1 << 46).is_err());
    }

    #[test]
    fn the_area_is_zeroed_and_writable_to_its_end() {
        let umem = Umem::new(5000).unwrap();
        assert_eq!(umem.len(), HUGE_PAGE);
        // SAFETY: there is no other reference to the memory.
        let bytes = unsafe { umem.bytes_mut(0, umem.len()) };
        assert!(bytes.iter().all(|&b| b == 0));
        bytes[HUGE_PAGE - 1] = 7;
        // SAFETY: the mutable borrow above has ended.
        assert_eq!(unsafe { umem.bytes(HUGE_PAGE - 1, 1) }, [7]);
    }
}
