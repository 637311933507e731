//! Shared memory: a memfd in huge pages if they are reserved, mapped twice back to back so that accesses across the end
//! of a ring stay contiguous, prefaulted and locked before use, and sealed so that no other process can write to it
//! (memfd_create(2), fcntl(2) F_SEAL_*).

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mlock, mmap, mmap_anonymous, munmap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The part of a [`SharedMemory`] that is prefaulted at creation. Memory that is not prefaulted is not allocated, but
/// the first write to each of its pages causes a page fault (about 0.5 us, most of it for zeroing).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prefault {
    /// All memory; locked if permitted.
    #[default]
    Whole,
    /// The given number of bytes at the beginning of the memory. [`SharedMemory::prefault_more`] prefaults and locks
    /// the rest.
    Begin(usize),
    /// No part: each page is allocated at its first write, and no page is locked.
    Lazy,
}

/// The kind of pages of a [`SharedMemory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// 2 MiB pages from the reserved pool.
    Huge,
    /// Ordinary pages that the kernel was advised to merge into huge pages.
    Transparent,
    /// Ordinary pages: no huge pages are reserved, and the kernel does not use huge pages for shared memory
    /// (`/sys/kernel/mm/transparent_hugepage/shmem_enabled`).
    Small,
}

impl Pages {
    /// The name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Huge => "2 MiB huge pages",
            Self::Transparent => "transparent huge pages",
            Self::Small => "4 KiB pages",
        }
    }
}

/// Bytes of a huge page; lengths of mirrored memory are multiples of it.
pub const HUGE_PAGE: usize = 2 << 20;

/// Advises the kernel to use huge pages for a region of this process that was not accessed yet (`MADV_HUGEPAGE`,
/// madvise(2)). No effect if transparent huge pages are off, or if the region contains no whole huge page.
pub fn prefer_huge_pages(region: std::ops::Range<*const u8>) {
    let start = region.start.addr().next_multiple_of(HUGE_PAGE);
    let end = region.end.addr() / HUGE_PAGE * HUGE_PAGE;
    if let Some(len) = end.checked_sub(start).filter(|len| *len > 0) {
        let at = region.start.wrapping_add(start - region.start.addr()).cast_mut().cast();
        // SAFETY: the kernel only marks the mappings of this process in this range. The call changes no content, so it
        // does not matter which code owns the memory.
        let _ = unsafe { madvise(at, len, Advice::LinuxHugepage) };
    }
}

/// Prefetches the cache line of an address into the CPU caches. The address may be invalid, because a prefetch never
/// faults.
#[inline]
pub fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing that the program can see and never faults, at any address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// The access rights of the mapping of a [`SharedMemory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    ReadWrite,
    ReadOnly,
}

/// A memfd and its mapping in this process. With `mirrored`, offset `i` and offset `i + len` are the same byte.
#[derive(Debug)]
pub struct SharedMemory {
    fd: OwnedFd,
    base: NonNull<u8>,
    len: usize,
    mapped: usize,
    pages: Pages,
    prefault: Prefault,
    /// Bytes of address space that were prefaulted (and locked, if permitted) so far.
    prefaulted: AtomicUsize,
    /// True if every attempt to lock pages of this memory succeeded.
    locked: AtomicBool,
}

// SAFETY: the mapping is plain memory that stays mapped until drop; every access to it uses raw pointers, and the code
// that uses them ensures synchronisation.
unsafe impl Send for SharedMemory {}
// SAFETY: the memory stays mapped until drop; the methods of this type return pointers and never dereference them.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Creates `len` bytes (rounded up to whole huge pages if `mirrored`, else to 4 KiB), zeroed, prefaulted, and
    /// locked if permitted ([`Prefault::Whole`]).
    ///
    /// # Errors
    /// The error of the failed system call; `ENOMEM` if the machine lacks the memory.
    pub fn create(name: &str, len: usize, mirrored: bool) -> io::Result<Self> {
        Self::create_prefaulted(name, len, mirrored, Prefault::Whole)
    }

    /// Like [`SharedMemory::create`], but prefaults only a part.
    ///
    /// # Errors
    /// As [`SharedMemory::create`]. If a later page fault finds no memory, the kernel ends the process.
    pub fn create_prefaulted(name: &str, len: usize, mirrored: bool, prefault: Prefault) -> io::Result<Self> {
        if mirrored && let Ok(memory) = Self::with_pages(name, len, true, Pages::Huge, prefault) {
            return Ok(memory);
        }
        Self::with_pages(name, len, mirrored, Pages::Transparent, prefault)
    }

    fn with_pages(name: &str, len: usize, mirrored: bool, pages: Pages, prefault: Prefault) -> io::Result<Self> {
        let unit = if mirrored { HUGE_PAGE } else { 4096 };
        let len = len.max(1).next_multiple_of(unit);
        let mut flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        if pages == Pages::Huge {
            flags |= MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        }
        let fd = memfd_create(name, flags)?;
        ftruncate(&fd, len as u64)?;
        let mut memory = Self::map(fd, len, mirrored, Access::ReadWrite, pages)?;
        if pages == Pages::Transparent && !shared_memory_may_be_huge() {
            memory.pages = Pages::Small;
        }
        if pages == Pages::Transparent && len >= HUGE_PAGE {
            // Advice only: if transparent huge pages are off, the memory consists of small pages.
            // SAFETY: the range is this mapping.
            let _ = unsafe { madvise(memory.base.as_ptr().cast(), memory.mapped, Advice::LinuxHugepage) };
        }
        memory.prefault = prefault;
        match prefault {
            Prefault::Whole => while memory.prefault_more(usize::MAX)? {},
            Prefault::Begin(bytes) => _ = memory.prefault_more(bytes)?,
            Prefault::Lazy => {}
        }
        Ok(memory)
    }

    /// Prefaults up to `bytes` more bytes (at least one huge page), and locks them if permitted. Memory that is mapped
    /// twice is prefaulted in the order of addresses: first the first mapping, and then the same bytes in the second
    /// mapping. The content does not change. Only one thread at a time may call this function, but other threads may
    /// write to the memory. Returns false if nothing was left to prefault, and always with [`Prefault::Lazy`].
    ///
    /// # Errors
    /// `ENOMEM` if the machine lacks the memory.
    pub fn prefault_more(&self, bytes: usize) -> io::Result<bool> {
        let from = self.prefaulted.load(Ordering::Relaxed);
        if self.prefault == Prefault::Lazy || from == self.mapped {
            return Ok(false);
        }
        // In mirrored memory, the range ends at the end of its half at the latest, because each half is a separate
        // mapping.
        let end = if from < self.len { self.len } else { self.mapped };
        let to = from.saturating_add(bytes.max(1)).checked_next_multiple_of(HUGE_PAGE).unwrap_or(end).min(end);
        // SAFETY: the range lies inside one half of this mapping, which is writable.
        let at = unsafe { self.base.as_ptr().add(from) }.cast();
        // SAFETY: the range lies inside one half of this mapping; the call allocates pages and changes no content.
        unsafe { madvise(at, to - from, Advice::LinuxPopulateWrite) }?;
        // Without the privilege locking fails, and the field `locked` becomes false; the pages are prefaulted in any
        // case. SAFETY: the range lies inside one half of this mapping, and locking changes no content.
        if self.locked.load(Ordering::Relaxed) && unsafe { mlock(at, to - from) }.is_err() {
            self.locked.store(false, Ordering::Relaxed);
        }
        self.prefaulted.store(to, Ordering::Release);
        Ok(true)
    }

    /// Maps memory that another process created and sealed ([`SharedMemory::seal`]), read-only.
    ///
    /// # Errors
    /// If the descriptor holds fewer than `len` bytes, if its owner could still shrink it (an access to a removed page
    /// raises SIGBUS), or if the kernel refuses the mapping.
    pub fn attach_read_only(fd: OwnedFd, len: usize, mirrored: bool) -> io::Result<Self> {
        let seals = Self::seals(&fd)?;
        // Truncation and hole punching remove pages from a file; the seals against writing forbid hole punching.
        if !seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE) {
            return Err(Self::unsealed());
        }
        Self::check_len(&fd, len)?;
        Self::map(fd, len, mirrored, Access::ReadOnly, Pages::Transparent)
    }

    /// Maps memory of fixed size that another process created ([`SharedMemory::seal_size`]), for reading and writing (a
    /// listener's cursor page).
    ///
    /// # Errors
    /// As [`SharedMemory::attach_read_only`].
    pub fn attach_read_write(fd: OwnedFd, len: usize) -> io::Result<Self> {
        Self::seals(&fd)?;
        Self::check_len(&fd, len)?;
        Self::map(fd, len, false, Access::ReadWrite, Pages::Transparent)
    }

    /// Maps a file that this process created and that no other process may write, for reading and writing.
    ///
    /// # Errors
    /// If the file has fewer than `len` bytes, or the kernel refuses the mapping.
    pub fn of_own_file(file: OwnedFd, len: usize) -> io::Result<Self> {
        Self::check_len(&file, len)?;
        Self::map(file, len, false, Access::ReadWrite, Pages::Transparent)
    }

    /// Returns the seals of a memory file; an error if a process could still shrink the file.
    fn seals(fd: &OwnedFd) -> io::Result<SealFlags> {
        // For a file that does not support seals, the kernel returns an error.
        fcntl_get_seals(fd).ok().filter(|seals| seals.contains(SealFlags::SHRINK)).ok_or_else(Self::unsealed)
    }

    fn unsealed() -> io::Error {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "the shared memory is not sealed, so its owner could still shrink it",
        )
    }

    fn check_len(fd: &OwnedFd, len: usize) -> io::Result<()> {
        let real = fstat(fd)?.st_size as u64;
        if real < len as u64 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("the shared memory has {real} bytes, but {len} bytes were announced"),
            ));
        }
        let page = page_of(fd)?;
        if !len.is_multiple_of(page) {
            // For such a length, the kernel would map the last page completely, beyond the end of the reservation.
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "the length of the shared memory, {len} bytes, is not a multiple of its page size, {page} bytes"
                ),
            ));
        }
        Ok(())
    }

    fn map(fd: OwnedFd, len: usize, mirrored: bool, access: Access, pages: Pages) -> io::Result<Self> {
        let mapped = if mirrored { 2 * len } else { len };
        let prot = match access {
            Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
            Access::ReadOnly => ProtFlags::READ,
        };
        if pages == Pages::Huge {
            Self::probe(&fd, len, prot)?;
        }
        // The address range is reserved first, so that both halves are adjacent and begin at a huge-page boundary.
        let reserved = mapped + HUGE_PAGE;
        // SAFETY: a mapping at an address of the kernel's choice affects no existing memory.
        let reservation = unsafe {
            mmap_anonymous(null_mut(), reserved, ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE)
        }?;
        let before = reservation.addr().next_multiple_of(HUGE_PAGE) - reservation.addr();
        let behind = reserved - before - mapped;
        let start = reservation.wrapping_byte_add(before);
        // SAFETY: both ranges lie inside the reservation and outside of the part that is used later. A range that
        // remains mapped after an error is harmless.
        unsafe {
            if before > 0 {
                let _ = munmap(reservation, before);
            }
            if behind > 0 {
                let _ = munmap(start.wrapping_byte_add(mapped), behind);
            }
        }
        for half in 0..mapped / len {
            let at = start.wrapping_byte_add(half * len);
            // SAFETY: the fixed address lies inside our own reservation, which nothing else uses.
            if let Err(error) = unsafe { mmap(at, len, prot, MapFlags::SHARED | MapFlags::FIXED, &fd, 0) } {
                // After a failed fixed mapping, the address range may be unmapped and then contain a mapping of another
                // thread. So only the other half certainly belongs to this value.
                for half in (0..mapped / len).filter(|other| *other != half) {
                    // SAFETY: this half is mapped or reserved by us, and no pointer into it has been given out.
                    let _ = unsafe { munmap(start.wrapping_byte_add(half * len), len) };
                }
                return Err(error.into());
            }
        }
        let base = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapping at address zero"))?;
        let locked = AtomicBool::new(access == Access::ReadWrite);
        Ok(Self { fd, base, len, mapped, pages, prefault: Prefault::Lazy, prefaulted: AtomicUsize::new(0), locked })
    }

    /// Maps the file once, so that its huge pages are reserved or the call fails. The address is not used by any other
    /// mapping, so a failure destroys none. The file still contains the pages after it is unmapped.
    fn probe(fd: &OwnedFd, len: usize, prot: ProtFlags) -> io::Result<()> {
        // SAFETY: a mapping at an address of the kernel's choice affects no existing memory.
        let mapping = unsafe { mmap(null_mut(), len, prot, MapFlags::SHARED, fd, 0) }?;
        // SAFETY: the range is the mapping made above, and no pointer into it has been given out.
        Ok(unsafe { munmap(mapping, len) }?)
    }

    /// Seals the memory file: its size is fixed, and no process can map it writable any more. The existing mapping of
    /// this process stays writable.
    ///
    /// # Errors
    /// If the kernel refuses the seals.
    pub fn seal(&self) -> io::Result<()> {
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
        Ok(fcntl_add_seals(&self.fd, seals)?)
    }

    /// Fixes the size of the memory file. Any process that has the descriptor may still write to the memory. The size
    /// must be fixed if a process of another user has the descriptor: if that process truncated the file, the next
    /// access of this process would raise SIGBUS.
    ///
    /// # Errors
    /// If the kernel refuses the seals.
    pub fn seal_size(&self) -> io::Result<()> {
        Ok(fcntl_add_seals(&self.fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?)
    }

    /// Address of the first byte.
    #[inline]
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Length in bytes (not counting the mirror).
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes of address space: twice [`SharedMemory::len`] if mirrored.
    #[inline]
    pub fn mapped(&self) -> usize {
        self.mapped
    }

    /// The kind of pages.
    pub fn pages(&self) -> Pages {
        self.pages
    }

    /// True if all memory has been prefaulted, so that no write causes a page fault.
    pub fn is_prefaulted(&self) -> bool {
        self.prefaulted.load(Ordering::Acquire) == self.mapped
    }

    /// True if the kernel allocates each page of this memory at the first write to the page.
    pub fn is_lazy(&self) -> bool {
        self.prefault == Prefault::Lazy
    }

    /// True if the memory prefaulted by [`SharedMemory::prefault_more`] is locked.
    pub fn locked(&self) -> bool {
        self.prefaulted.load(Ordering::Relaxed) > 0 && self.locked.load(Ordering::Relaxed)
    }
}

/// Page size of a mapping of this file (hugetlbfs: that of its pool), at least 4 KiB.
fn page_of(fd: &OwnedFd) -> io::Result<usize> {
    let fs = fstatfs(fd)?;
    Ok(if fs.f_type == libc::HUGETLBFS_MAGIC {
        usize::try_from(fs.f_bsize).unwrap_or(HUGE_PAGE).max(4096)
    } else {
        4096
    })
}

/// True if the kernel uses huge pages for shared memory when it is advised to.
fn shared_memory_may_be_huge() -> bool {
    let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled").unwrap_or_default();
    ["[always]", "[within_size]", "[advise]", "[force]"].iter().any(|s| setting.contains(s))
}

impl AsFd for SharedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping; all code with pointers into it also holds a reference to this value.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;

    #[test]
    fn the_mirror_contains_the_same_bytes() {
        let m = SharedMemory::create("test", HUGE_PAGE, true).unwrap();
        assert_eq!(m.mapped(), 2 * m.len());
        // SAFETY: both offsets lie inside the mapping and no other thread uses it.
        unsafe {
            m.base().add(m.len() + 5).write(42);
            assert_eq!(m.base().add(5).read(), 42);
        }
    }

    #[test]
    fn prefaulting_in_steps_keeps_the_content_and_ends() {
        let m = SharedMemory::create_prefaulted("test", 5 * HUGE_PAGE, true, Prefault::Begin(1)).unwrap();
        assert!(!m.is_prefaulted() && !m.is_lazy());
        // SAFETY: the offsets lie inside the mapping and no other thread uses it.
        let write = |at: usize, byte: u8| unsafe { m.base().add(at).write(byte) };
        write(3 * HUGE_PAGE + 7, 9);
        write(9, 4);
        let steps = std::iter::from_fn(|| m.prefault_more(2 * HUGE_PAGE).unwrap().then_some(())).count();
        assert_eq!(
            steps,
            2 + 3,
            "2 steps for the other 4 huge pages of the first half, and 3 for the 5 of the second half"
        );
        assert!(m.is_prefaulted() && !m.prefault_more(1).unwrap());
        // SAFETY: as above.
        unsafe {
            assert_eq!(m.base().add(m.len() + 3 * HUGE_PAGE + 7).read(), 9);
            assert_eq!(m.base().add(9).read(), 4);
        }
        assert!(SharedMemory::create("test", 5 * HUGE_PAGE, true).unwrap().is_prefaulted());
    }

    #[test]
    fn lazy_memory_allocates_only_the_written_pages() {
        let m = SharedMemory::create_prefaulted("test", 64 * HUGE_PAGE, true, Prefault::Lazy).unwrap();
        if m.pages() != Pages::Small {
            return testkit::skip("lazy_memory_allocates_only_the_written_pages", "its pages are huge");
        }
        // SAFETY: the offset lies inside the mapping and no other thread uses it.
        unsafe { m.base().add(100).write(1) };
        assert!(m.is_lazy() && !m.is_prefaulted() && !m.locked() && !m.prefault_more(HUGE_PAGE).unwrap());
        let blocks = fstat(&m.fd).unwrap().st_blocks;
        assert!(blocks * 512 <= HUGE_PAGE as i64, "{blocks} blocks");
    }

    #[test]
    fn attaching_a_part_of_a_huge_page_is_rejected() {
        let Ok(m) = SharedMemory::with_pages("test", HUGE_PAGE, true, Pages::Huge, Prefault::Whole) else {
            return testkit::skip(
                "attaching_a_part_of_a_huge_page_is_rejected",
                "no huge pages are reserved (vm.nr_hugepages)",
            );
        };
        m.seal().unwrap();
        let fd = || m.as_fd().try_clone_to_owned().unwrap();
        assert!(SharedMemory::attach_read_only(fd(), 4096, false).is_err());
        assert!(SharedMemory::attach_read_only(fd(), HUGE_PAGE / 2, true).is_err());
        assert!(SharedMemory::attach_read_only(fd(), HUGE_PAGE, true).is_ok());
    }

    #[test]
    fn memories_created_by_several_threads_do_not_overlap() {
        let make = |byte: u8| {
            for round in 0..100 {
                // A small mapping fits into the address range from which a large one was just removed.
                let len = if round % 2 == 0 { HUGE_PAGE } else { 4 * HUGE_PAGE };
                let m = SharedMemory::create("test", len, true).unwrap();
                // SAFETY: the offsets lie inside the mapping, which is this thread's alone.
                unsafe {
                    m.base().write(byte);
                    assert_eq!(m.base().add(m.len()).read(), byte);
                }
            }
        };
        std::thread::scope(|scope| (1..=4).for_each(|byte| drop(scope.spawn(move || make(byte)))));
    }

    #[test]
    fn sealed_memory_is_writable_only_through_the_existing_mapping() {
        let m = SharedMemory::create("test", HUGE_PAGE, true).unwrap();
        m.seal().unwrap();
        let fd = m.as_fd().try_clone_to_owned().unwrap();
        let refused = SharedMemory::attach_read_write(fd.try_clone().unwrap(), m.len()).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
        let reader = SharedMemory::attach_read_only(fd, m.len(), true).unwrap();
        // SAFETY: both pointers lie inside their mappings and no other thread uses them.
        unsafe {
            m.base().add(9).write(7);
            assert_eq!(reader.base().add(m.len() + 9).read(), 7);
        }
        let path = format!("/proc/self/fd/{}", m.as_fd().as_raw_fd());
        let reopened = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
        assert!(SharedMemory::attach_read_write(reopened.into(), m.len()).is_err(), "reopening must not help");
    }

    #[test]
    fn hints_change_no_bytes_at_any_address() {
        let bytes = vec![7_u8; 3 * HUGE_PAGE];
        let at = bytes.as_ptr();
        prefer_huge_pages(at..at.wrapping_add(bytes.len()));
        prefer_huge_pages(at..at);
        prefer_huge_pages(at.wrapping_add(1)..at.wrapping_add(5));
        prefer_huge_pages(std::ptr::null()..std::ptr::null::<u8>().wrapping_add(4 * HUGE_PAGE));
        [at, std::ptr::null(), std::ptr::null::<u8>().wrapping_sub(1)].into_iter().for_each(prefetch);
        assert!(bytes.iter().all(|b| *b == 7));
    }

    #[test]
    fn attaching_memory_that_its_owner_can_shrink_is_rejected() {
        let m = SharedMemory::create("test", 4096, false).unwrap();
        let fd = || m.as_fd().try_clone_to_owned().unwrap();
        assert!(SharedMemory::attach_read_write(fd(), 4096).unwrap_err().to_string().contains("sealed"));
        m.seal_size().unwrap();
        SharedMemory::attach_read_write(fd(), 4096).unwrap();
        assert!(SharedMemory::attach_read_only(fd(), 4096, false).unwrap_err().to_string().contains("sealed"));
        let file = File::open("/proc/self/exe").unwrap();
        assert!(SharedMemory::attach_read_only(file.into(), 4096, false).unwrap_err().to_string().contains("sealed"));
    }

    #[test]
    fn attaching_more_bytes_than_the_memory_has_is_rejected() {
        let m = SharedMemory::create("test", 4096, false).unwrap();
        m.seal().unwrap();
        let e = SharedMemory::attach_read_only(m.as_fd().try_clone_to_owned().unwrap(), 1 << 30, false).unwrap_err();
        assert!(e.to_string().contains("4096"), "{e}");
    }
}
