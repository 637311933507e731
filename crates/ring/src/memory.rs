//! The two memories of a ring, and all code that reads or writes them.

use crate::atomic::{AtomicU64, Ordering};
use crate::config::Prefault;
use crate::desc::{DESC_BYTES, Desc};
use crate::layout::{ControlPage, RingParameters};
use std::sync::Arc;
use sys::memory::SharedMemory;

/// Bit offset of the flags in the last word of a descriptor.
const FLAGS_AT: u32 = 40;

/// Packet bytes, descriptors and control page of a ring or of a branch, mapped in this process.
#[derive(Debug)]
pub struct RingMemory {
    bytes: Arc<SharedMemory>,
    /// The control page of the writer of the bytes: this ring's own page, or for a branch the control page of its ring.
    stream_base: Arc<ControlPage>,
    descs: SharedMemory,
    /// The control page.
    pub control: Arc<ControlPage>,
    byte_mask: u64,
    desc_mask: u64,
}

impl RingMemory {
    /// New sealed memories with these parameters: only this mapping can write them.
    pub fn create(shape: &RingParameters, prefault: Prefault) -> std::io::Result<Self> {
        let bytes = SharedMemory::create_prefaulted("netgrain-bytes", shape.bytes as usize, true, prefault.of(1))?;
        let descs = shape.descs as usize * DESC_BYTES;
        let descs = SharedMemory::create_prefaulted("netgrain-descriptors", descs, true, prefault.of(4))?;
        let control = ControlPage::create(shape)?;
        for memory in [&bytes, &descs, control.memory()] {
            memory.seal()?;
        }
        Ok(Self::attached(bytes, descs, control, None, shape))
    }

    /// Allocates some more MiB of both memories, and locks them where permitted: see [`SharedMemory::prefault_more`].
    /// False if all memory is allocated or `Config::prefault` requests none.
    ///
    /// # Errors
    /// `ENOMEM` if the machine has not enough memory.
    pub fn prefault_more(&self) -> std::io::Result<bool> {
        const STEP: usize = 8 << 20;
        // The memory of the descriptors has a quarter of the size of the packet memory, and its step is a quarter too.
        // So both memories are completely allocated after the same number of calls.
        let more = self.bytes.prefault_more(STEP)?;
        Ok(self.descs.prefault_more(STEP / 4)? || more)
    }

    /// As [`RingMemory::create`], for a branch: separate descriptors and control page over the bytes of this ring.
    pub fn branch(&self, shape: &RingParameters) -> std::io::Result<Self> {
        let descs = SharedMemory::create("netgrain-branch", shape.descs as usize * DESC_BYTES, true)?;
        let control = ControlPage::create(shape)?;
        for memory in [&descs, control.memory()] {
            memory.seal()?;
        }
        Ok(Self::new(Arc::clone(&self.bytes), descs, Arc::new(control), Arc::clone(&self.stream_base), shape))
    }

    /// Creates the ring or branch from shared memories that another process created. The caller must have checked their
    /// sizes against `shape`. For a branch, `stream_base` is the control page of the ring to which the packet bytes
    /// belong.
    pub fn attached(
        bytes: SharedMemory,
        descs: SharedMemory,
        control: ControlPage,
        stream_base: Option<ControlPage>,
        shape: &RingParameters,
    ) -> Self {
        let control = Arc::new(control);
        let stream_base = stream_base.map_or_else(|| Arc::clone(&control), Arc::new);
        Self::new(Arc::new(bytes), descs, control, stream_base, shape)
    }

    fn new(
        bytes: Arc<SharedMemory>,
        descs: SharedMemory,
        control: Arc<ControlPage>,
        stream_base: Arc<ControlPage>,
        shape: &RingParameters,
    ) -> Self {
        // The safety of all accesses relies on these assertions: the masks reduce every index to the mapped memory.
        assert_eq!(bytes.len() as u64, shape.bytes);
        assert_eq!(descs.len() as u64, shape.descs * DESC_BYTES as u64);
        assert!(shape.bytes.is_power_of_two() && shape.descs.is_power_of_two());
        Self { bytes, stream_base, descs, control, byte_mask: shape.bytes - 1, desc_mask: shape.descs - 1 }
    }

    /// Size of the packet memory in bytes.
    #[inline]
    pub fn byte_capacity(&self) -> u64 {
        self.byte_mask + 1
    }

    /// Number of descriptors.
    #[inline]
    pub fn desc_capacity(&self) -> u64 {
        self.desc_mask + 1
    }

    /// The control page of the writer of the bytes.
    pub fn stream_base(&self) -> &ControlPage {
        &self.stream_base
    }

    /// True for a branch: the packet bytes belong to the ring of another producer.
    pub fn is_branch(&self) -> bool {
        !Arc::ptr_eq(&self.stream_base, &self.control)
    }

    /// The packet memory.
    pub fn bytes(&self) -> &SharedMemory {
        &self.bytes
    }

    /// The descriptor memory.
    pub fn descs(&self) -> &SharedMemory {
        &self.descs
    }

    /// Address of stream position `pos`. At least [`RingMemory::byte_capacity`] mapped bytes follow it, because the
    /// memory is mapped twice.
    #[inline]
    pub fn at(&self, pos: u64) -> *mut u8 {
        // SAFETY: the masked offset is inside the first half of the mapping.
        unsafe { self.bytes.base().add((pos & self.byte_mask) as usize) }
    }

    /// The slot of descriptor `index`.
    #[inline]
    pub fn slot(&self, index: u64) -> &[AtomicU64; 4] {
        const { assert!(cfg!(loom) || size_of::<[AtomicU64; 4]>() == DESC_BYTES) };
        // SAFETY: the masked offset is inside the mapping, aligned to 32 bytes, and all sides use atomics.
        unsafe { &*self.descs.base().add((index & self.desc_mask) as usize * DESC_BYTES).cast::<[AtomicU64; 4]>() }
    }

    /// Appends copies of the descriptors `[from, to)`, which the producer may be overwriting: a copy is valid only if
    /// the range that the producer has claimed for overwriting, loaded after the copy, does not include it. Returns the
    /// number of copied descriptors with the control flag.
    #[inline]
    pub fn copy_descs(&self, from: u64, to: u64, out: &mut Vec<Desc>) -> u64 {
        let count = to.saturating_sub(from).min(self.desc_capacity()) as usize;
        out.reserve(count);
        let begin = out.len();
        let mut controls = 0;
        // The second mapping makes the descriptor slots contiguous, also across the end of the ring.
        let slots = std::ptr::from_ref(self.slot(from));
        for i in 0..count {
            // SAFETY: `count` is at most the capacity, so the range ends inside the second mapping; all sides use
            // atomics.
            let slot = unsafe { &*slots.add(i) };
            let words: [u64; 4] = std::array::from_fn(|w| slot[w].load(Ordering::Relaxed));
            controls += words[3] >> FLAGS_AT & u64::from(crate::desc::flag::CONTROL);
            // SAFETY: `reserve` has allocated space for `count` more descriptors; the words have `Desc`'s layout on a
            // little-endian machine, which `lib.rs` requires, and every bit pattern is a valid `Desc`.
            unsafe { out.as_mut_ptr().add(begin + i).cast::<[u64; 4]>().write(words) };
        }
        // SAFETY: the loop has written all `count` descriptors.
        unsafe { out.set_len(begin + count) };
        controls
    }

    /// Descriptors `[from, to)` in place.
    ///
    /// # Safety
    /// The descriptors are published, and the producer waits for the caller before it overwrites them.
    pub unsafe fn held_descs(&self, from: u64, to: u64) -> &[Desc] {
        let len = to.wrapping_sub(from).min(self.desc_capacity()) as usize;
        // SAFETY: the second mapping makes the range contiguous; the caller guarantees that nothing overwrites it; the
        // producer's words have `Desc`'s layout on a little-endian machine, which `lib.rs` requires.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self.slot(from)).cast::<Desc>(), len) }
    }

    /// Bytes `[pos, pos + len)` of the stream in place.
    ///
    /// # Safety
    /// The bytes are published, the producer waits for the caller before it overwrites them, and `len` is at most the
    /// capacity.
    pub unsafe fn held_bytes(&self, pos: u64, len: usize) -> &[u8] {
        assert!(len as u64 <= self.byte_capacity());
        // SAFETY: as in `held_descs`.
        unsafe { std::slice::from_raw_parts(self.at(pos), len) }
    }

    /// Copies bytes that the producer may be overwriting: a copy is valid only if the range that the producer has
    /// claimed for overwriting, loaded after the copy, does not include it.
    pub fn copy_racy(&self, pos: u64, out: &mut [u8]) {
        assert!(out.len() as u64 <= self.byte_capacity());
        let from = self.at(pos);
        let mut i = 0;
        // Copies single bytes up to the first aligned word, then words, then the remaining bytes. All copies are
        // atomic, so that the race with the producer is defined behaviour.
        let head = from.align_offset(8).min(out.len());
        while i < head {
            out[i] = self.byte(from, i);
            i += 1;
        }
        while i + 8 <= out.len() {
            // SAFETY: `from + i` is aligned and inside the mapping (see `at`).
            let word = unsafe { &*from.add(i).cast::<std::sync::atomic::AtomicU64>() };
            out[i..i + 8].copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
            i += 8;
        }
        while i < out.len() {
            out[i] = self.byte(from, i);
            i += 1;
        }
    }

    fn byte(&self, from: *mut u8, i: usize) -> u8 {
        // SAFETY: `from + i` is inside the mapping (see `at`); the producer's plain writes are outside of Rust's memory
        // model, and the caller discards a copy that raced with them.
        unsafe { (*from.add(i).cast::<std::sync::atomic::AtomicU8>()).load(Ordering::Relaxed) }
    }
}
