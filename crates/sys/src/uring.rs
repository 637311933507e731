//! Asynchronous file writes and reads through io_uring (`io_uring(7)`).
//!
//! [`Uring`] owns the memory that the kernel reads and writes: it owns file and buffer of each operation in flight
//! until the completion was read, and the drop of the ring waits for all operations. This invariant makes the interface
//! safe. Memory that was registered by [`Uring::register`] is pinned once at its registration, and other memory at
//! every write.

use io_uring::{IoUring, opcode, types};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

/// Maximum size of one registered buffer in the kernel.
const PIECE_MAX: usize = 1 << 30;

/// A range of this process's memory, given by address and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Address of the first byte.
    pub address: usize,
    /// Length in bytes.
    pub len: usize,
}

/// Bytes whose address and content do not change during the lifetime of the value, even if the value is moved.
///
/// # Safety
/// [`Stable::bytes`] must return the same address and length at every call, and the bytes must not change during the
/// lifetime of the value.
pub unsafe trait Stable: Send + 'static {
    /// The bytes.
    fn bytes(&self) -> &[u8];
}

/// Bytes into which the kernel can write what it reads, while a ring owns the value.
///
/// # Safety
/// [`StableMut::bytes_mut`] must return the bytes of [`Stable::bytes`], and the bytes must not be accessed while the
/// ring owns the value. During this time only the kernel may change the bytes; this is the only exception from the
/// contract of [`Stable`].
pub unsafe trait StableMut: Stable {
    /// The bytes.
    fn bytes_mut(&mut self) -> &mut [u8];
}

/// Page-aligned memory for direct reads.
#[derive(Debug)]
pub struct Aligned {
    base: NonNull<u8>,
    len: usize,
    /// The allocation that contains the aligned bytes.
    allocated: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory is owned by this value alone.
unsafe impl Send for Aligned {}
// SAFETY: shared access only reads.
unsafe impl Sync for Aligned {}

impl Aligned {
    /// Alignment of the memory, in bytes.
    pub const ALIGN: usize = 4096;

    /// Allocates `len` bytes, at least one, all zero.
    ///
    /// # Panics
    /// If the length exceeds the address space.
    pub fn new(len: usize) -> Self {
        let len = len.max(1);
        // PERF: the allocation is one page longer and requests no alignment. Then the allocator takes large sizes from
        // the kernel as zero pages that are not accessed yet, instead of zeroing them page by page (0.2 ms for a buffer
        // of 264 KiB of which 68 KiB are read into).
        let layout = len.checked_add(Self::ALIGN).and_then(|len| Layout::array::<u8>(len).ok());
        let layout = layout.expect("a length within the address space");
        // SAFETY: the layout has a size of at least one byte, as `alloc_zeroed` requires.
        let allocated = unsafe { alloc_zeroed(layout) };
        let allocated = NonNull::new(allocated).unwrap_or_else(|| handle_alloc_error(layout));
        // SAFETY: the distance to the next page is shorter than the page that was allocated in addition to `len`.
        let base = unsafe { allocated.add(allocated.align_offset(Self::ALIGN)) };
        Self { base, len, allocated, layout }
    }
}

impl Deref for Aligned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes from `base` are allocated and initialised, and the borrow is that of this value.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: `len` bytes from `base` are allocated and initialised, and the mutable borrow is that of this value.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and freed once.
        unsafe { dealloc(self.allocated.as_ptr(), self.layout) };
    }
}

// SAFETY: the memory does not move with the value, and only its owner can reach it.
unsafe impl Stable for Aligned {
    fn bytes(&self) -> &[u8] {
        self
    }
}

// SAFETY: as above.
unsafe impl StableMut for Aligned {
    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }
}

/// Opens a file for reads into [`Aligned`] memory, with direct I/O if the file system supports it. The second result is
/// true if direct I/O is used; then offsets and lengths must be multiples of [`Aligned::ALIGN`].
///
/// # Errors
/// The errors of `open(2)`.
pub fn open_aligned(path: &Path) -> io::Result<(File, bool)> {
    match File::options().read(true).custom_flags(libc::O_DIRECT).open(path) {
        Ok(file) => Ok((file, true)),
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok((File::open(path)?, false)),
        Err(e) => Err(e),
    }
}

/// A completed operation.
#[derive(Debug)]
pub struct UringCompletion<B> {
    /// The token given at submission.
    pub token: u64,
    /// Number of bytes written or read (0 for other operations), or the error.
    pub result: io::Result<usize>,
    /// The buffer of the operation, if it has one.
    pub buffer: Option<B>,
}

/// An operation in flight. The kernel may still access its buffer and its file.
struct InFlight<B> {
    token: u64,
    #[expect(dead_code, reason = "kept open until the kernel has completed the operation")]
    file: Arc<File>,
    buffer: Option<B>,
}

/// A submission and a completion queue, and the operations in flight.
pub struct Uring<B: Stable> {
    ring: IoUring,
    held: Vec<Option<InFlight<B>>>,
    free: Vec<usize>,
    pieces: Vec<Region>,
}

impl<B: Stable> Uring<B> {
    /// A ring for up to `entries` operations in flight.
    ///
    /// # Errors
    /// `ENOSYS` or `EPERM` if io_uring is missing or forbidden (containers, `kernel.io_uring_disabled`).
    pub fn new(entries: u32) -> io::Result<Self> {
        let ring =
            IoUring::builder().setup_coop_taskrun().build(entries).or_else(|_| IoUring::builder().build(entries))?;
        if !ring.params().is_feature_ext_arg() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "io_uring of this kernel has no timed waits; Linux 5.11 or later is required",
            ));
        }
        let entries = entries as usize;
        Ok(Self {
            ring,
            held: (0..entries).map(|_| None).collect(),
            free: (0..entries).rev().collect(),
            pieces: Vec::new(),
        })
    }

    /// Registers (pins) memory for writes, in pieces of at most 1 GiB. Writes from other memory remain possible.
    ///
    /// # Errors
    /// `ENOMEM` above RLIMIT_MEMLOCK, `EFAULT`/`EOPNOTSUPP` for unsuitable memory; then each write pins its pages.
    ///
    /// # Safety
    /// The memory must stay mapped during the lifetime of this ring.
    pub unsafe fn register(&mut self, regions: &[Region]) -> io::Result<()> {
        let pieces: Vec<Region> = regions
            .iter()
            .flat_map(|r| {
                (0..r.len)
                    .step_by(PIECE_MAX)
                    .map(|at| Region { address: r.address + at, len: PIECE_MAX.min(r.len - at) })
            })
            .collect();
        let vectors: Vec<libc::iovec> =
            pieces.iter().map(|p| libc::iovec { iov_base: p.address as *mut _, iov_len: p.len }).collect();
        // SAFETY: the caller promises that the memory outlives the ring; a wrong address is refused with EFAULT.
        unsafe { self.ring.submitter().register_buffers(&vectors)? };
        self.pieces = pieces;
        Ok(())
    }

    /// Operations in flight.
    pub fn in_flight(&self) -> usize {
        self.held.len() - self.free.len()
    }

    /// Queues a write of the whole buffer at `offset`. The write may be short.
    ///
    /// # Errors
    /// `EBUSY` if the maximum number of operations is in flight.
    pub fn write(&mut self, file: &Arc<File>, offset: u64, buffer: B, token: u64) -> io::Result<()> {
        let bytes = buffer.bytes();
        let (address, len) = (bytes.as_ptr(), bytes.len());
        let length = u32::try_from(len).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
        let fd = types::Fd(file.as_raw_fd());
        let inside = |p: &Region| p.address <= address as usize && address as usize + len <= p.address + p.len;
        let entry = match self.pieces.iter().position(inside) {
            Some(i) => opcode::WriteFixed::new(fd, address, length, i as u16).offset(offset).build(),
            None => opcode::Write::new(fd, address, length).offset(offset).build(),
        };
        self.push(entry, file, Some(buffer), token)
    }

    /// Queues a read at `offset` into a part of the buffer. The read may be short; its completion returns the buffer.
    ///
    /// # Errors
    /// `EBUSY`, as for [`Uring::write`]; `EINVAL` for a part outside the buffer. In both cases the buffer is dropped.
    pub fn read(
        &mut self,
        file: &Arc<File>,
        offset: u64,
        mut buffer: B,
        part: Range<usize>,
        token: u64,
    ) -> io::Result<()>
    where
        B: StableMut,
    {
        let into = buffer.bytes_mut().get_mut(part).ok_or(io::ErrorKind::InvalidInput)?;
        let length = u32::try_from(into.len()).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
        let entry = opcode::Read::new(types::Fd(file.as_raw_fd()), into.as_mut_ptr(), length).offset(offset).build();
        self.push(entry, file, Some(buffer), token)
    }

    /// Queues an `fdatasync`.
    ///
    /// # Errors
    /// `EBUSY`, as for [`Uring::write`].
    pub fn sync(&mut self, file: &Arc<File>, token: u64) -> io::Result<()> {
        let entry = opcode::Fsync::new(types::Fd(file.as_raw_fd())).flags(types::FsyncFlags::DATASYNC).build();
        self.push(entry, file, None, token)
    }

    /// Queues a `fallocate` of the first `len` bytes of the file. The file size becomes at least `len`.
    ///
    /// # Errors
    /// `EBUSY`, as for [`Uring::write`].
    pub fn allocate(&mut self, file: &Arc<File>, len: u64, token: u64) -> io::Result<()> {
        let entry = opcode::Fallocate::new(types::Fd(file.as_raw_fd()), len).build();
        self.push(entry, file, None, token)
    }

    fn push(
        &mut self,
        entry: io_uring::squeue::Entry,
        file: &Arc<File>,
        buffer: Option<B>,
        token: u64,
    ) -> io::Result<()> {
        let Some(slot) = self.free.pop() else { return Err(io::Error::from_raw_os_error(libc::EBUSY)) };
        self.held[slot] = Some(InFlight { token, file: Arc::clone(file), buffer });
        let entry = entry.user_data(slot as u64);
        // SAFETY: descriptor and buffer are in `held[slot]`, which is emptied only when the completion has arrived.
        if unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.held[slot] = None;
            self.free.push(slot);
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        Ok(())
    }

    /// Submits the queued operations, waits up to `wait` for at least one completion (zero does not wait), and appends
    /// all available completions to `out`.
    ///
    /// # Errors
    /// If the ring itself fails; a failed operation is a [`UringCompletion`].
    pub fn reap(&mut self, wait: Duration, out: &mut Vec<UringCompletion<B>>) -> io::Result<()> {
        let outcome = if wait.is_zero() || self.in_flight() == 0 || !self.ring.completion().is_empty() {
            self.ring.submit()
        } else {
            let span = types::Timespec::new().sec(wait.as_secs()).nsec(wait.subsec_nanos());
            self.ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&span))
        };
        match outcome {
            Ok(_) => {}
            // The wait timed out, a signal interrupted it, or the completion queue must be emptied first: none of these
            // is an error.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN)) => {}
            Err(e) => return Err(e),
        }
        for entry in self.ring.completion() {
            let slot = entry.user_data() as usize;
            if let Some(held) = self.held[slot].take() {
                self.free.push(slot);
                let result = match entry.result() {
                    n if n >= 0 => Ok(n as usize),
                    n => Err(io::Error::from_raw_os_error(-n)),
                };
                out.push(UringCompletion { token: held.token, result, buffer: held.buffer });
            }
        }
        Ok(())
    }
}

impl<B: Stable> Drop for Uring<B> {
    fn drop(&mut self) {
        let mut out = Vec::new();
        while self.in_flight() > 0 {
            if self.reap(Duration::from_secs(1), &mut out).is_err() {
                // The kernel may still access the buffers for an unknown time, so they are leaked.
                std::mem::forget(std::mem::take(&mut self.held));
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    #[derive(Debug)]
    struct Heap(Vec<u8>);
    // SAFETY: a vector's heap block does not move with the vector, and no code here changes it.
    unsafe impl Stable for Heap {
        fn bytes(&self) -> &[u8] {
            &self.0
        }
    }

    fn ring(test: &str) -> Option<Uring<Heap>> {
        match Uring::new(8) {
            Ok(ring) => Some(ring),
            Err(e) => {
                testkit::skip(test, &format!("io_uring refused: {e}"));
                None
            }
        }
    }

    #[test]
    fn failed_operations_return_the_error_of_the_kernel() {
        let Some(mut ring) = ring("failed_operations_return_the_error_of_the_kernel") else { return };
        let read_only = Arc::new(File::open("/dev/null").unwrap());
        ring.write(&read_only, 0, Heap(vec![1; 64]), 7).unwrap();
        let mut out = Vec::new();
        while out.is_empty() {
            ring.reap(Duration::from_millis(100), &mut out).unwrap();
        }
        assert_eq!(out[0].token, 7);
        assert_eq!(out[0].result.as_ref().unwrap_err().raw_os_error(), Some(libc::EBADF));
    }

    #[test]
    fn reads_return_their_buffer_and_are_short_at_the_end_of_the_file() {
        let test = "reads_return_their_buffer_and_are_short_at_the_end_of_the_file";
        let mut ring = match Uring::<Aligned>::new(4) {
            Ok(ring) => ring,
            Err(e) => return testkit::skip(test, &format!("io_uring refused: {e}")),
        };
        let path = std::env::temp_dir().join(format!("netgrain-uring-read-{}", std::process::id()));
        let mut content = vec![0u8; 10_000];
        Prng::new(4).fill(&mut content);
        std::fs::write(&path, &content).unwrap();
        let file = Arc::new(File::open(&path).unwrap());
        assert!(ring.read(&file, 0, Aligned::new(4096), 4000..4097, 0).is_err());
        ring.read(&file, 0, Aligned::new(8192), 4096..8192, 1).unwrap();
        ring.read(&file, 8192, Aligned::new(8192), 0..8192, 2).unwrap();
        let mut out = Vec::new();
        while out.len() < 2 {
            ring.reap(Duration::from_millis(100), &mut out).unwrap();
        }
        out.sort_by_key(|d| d.token);
        let [first, second] = &out[..] else { panic!("two reads") };
        let buffer = first.buffer.as_ref().unwrap();
        assert!(matches!(first.result, Ok(4096)) && buffer[4096..] == content[..4096] && buffer[..4096] == [0; 4096]);
        let buffer = second.buffer.as_ref().unwrap();
        assert!(matches!(second.result, Ok(1808)) && buffer[..1808] == content[8192..]);
        assert_eq!(buffer.as_ptr() as usize % Aligned::ALIGN, 0);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn written_bytes_are_in_the_file_and_a_full_ring_is_an_error() {
        let test = "written_bytes_are_in_the_file_and_a_full_ring_is_an_error";
        let Some(mut ring) = ring(test) else { return };
        let path = std::env::temp_dir().join(format!("netgrain-uring-{}", std::process::id()));
        let file = Arc::new(File::create(&path).unwrap());
        let mut model = vec![0u8; 8 * 5000];
        Prng::new(3).fill(&mut model);
        for (i, part) in model.chunks(5000).enumerate() {
            ring.write(&file, 5000 * i as u64, Heap(part.to_vec()), i as u64).unwrap();
        }
        assert_eq!(ring.write(&file, 0, Heap(vec![0]), 9).unwrap_err().raw_os_error(), Some(libc::EBUSY));
        let mut out = Vec::new();
        while out.len() < 8 {
            ring.reap(Duration::from_millis(100), &mut out).unwrap();
        }
        assert!(out.iter().all(|d| matches!(d.result, Ok(5000))), "{out:?}");
        ring.sync(&file, 10).unwrap();
        drop(ring);
        assert_eq!(std::fs::read(&path).unwrap(), model);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn writes_work_from_registered_and_from_other_memory() {
        let test = "writes_work_from_registered_and_from_other_memory";
        let Some(mut ring) = ring(test) else { return };
        let path = std::env::temp_dir().join(format!("netgrain-uring-fixed-{}", std::process::id()));
        let file = Arc::new(File::create(&path).unwrap());
        let inside = Heap(vec![7; 1 << 16]);
        let region = Region { address: inside.0.as_ptr() as usize, len: inside.0.len() };
        // SAFETY: the ring owns the buffer during the write, and drops it after it has read the completion; nothing is
        // written from the buffer afterwards.
        if let Err(e) = unsafe { ring.register(&[region]) } {
            return testkit::skip(test, &format!("registration refused: {e}"));
        }
        ring.write(&file, 0, inside, 1).unwrap();
        ring.write(&file, 1 << 16, Heap(vec![8; 100]), 2).unwrap();
        drop(ring);
        let mut expected = vec![7; 1 << 16];
        expected.extend([8; 100]);
        assert_eq!(std::fs::read(&path).unwrap(), expected);
        std::fs::remove_file(&path).unwrap();
    }
}
