//! Layout of the control page and of the cursor page; `include/netgrain_listen.h` defines the same layout in C.
//!
//! Control page (the producer writes it, others map it read-only), 8-byte little-endian words:
//! ```text
//!    0 magic   8 version  16 bytes_len  24 descs  32 link_type  40 snaplen  48 queue
//!   64 head   72 controls_before  80 ended  88 controls_after
//!  128 claimed_desc  136 claimed_pos
//!  192 offered  200 stored  208 stored_bytes  216 filtered  224 duplicate
//!  256 lost[32]  512 notes[32]  1024 name (64 bytes, UTF-8, zero-padded)
//! ```
//! Cursor page (one per listener; the listener writes it, and the producer does not trust it):
//! ```text
//!    0 released_desc   8 released_pos   16 seen   24 missed   64 expired (set by the producer, for information)
//! ```

use crate::atomic::AtomicU64;
use crate::desc::DescPosition;
use crate::desc::{BLOCK, DESC_BYTES};
use crate::protocol::{Positions, Released};
use base::Tally;
use std::sync::atomic::Ordering;
use sys::memory::SharedMemory;

/// "NGRING1\0" in little-endian order.
pub const MAGIC: u64 = u64::from_le_bytes(*b"NGRING1\0");
/// Version of this layout and of the attach protocol.
pub const VERSION: u64 = 2;
/// Bytes of a control or cursor page.
pub const PAGE: usize = 4096;
/// Length of a name in bytes.
pub const NAME: usize = 64;
/// Largest memory that a listener maps, in bytes.
const BYTES_MAX: u64 = 1 << 40;

mod at {
    pub const MAGIC: usize = 0;
    pub const VERSION: usize = 8;
    pub const BYTES_LEN: usize = 16;
    pub const DESCS: usize = 24;
    pub const LINK_TYPE: usize = 32;
    pub const SNAPLEN: usize = 40;
    pub const QUEUE: usize = 48;
    pub const HEAD: usize = 64;
    pub const CONTROLS_BEFORE: usize = 72;
    pub const ENDED: usize = 80;
    pub const CONTROLS_AFTER: usize = 88;
    pub const CLAIMED_DESC: usize = 128;
    pub const CLAIMED_POS: usize = 136;
    pub const OFFERED: usize = 192;
    pub const STORED: usize = 200;
    pub const STORED_BYTES: usize = 208;
    pub const FILTERED: usize = 216;
    pub const DUPLICATE: usize = 224;
    pub const LOST: usize = 256;
    pub const NOTES: usize = 512;
    pub const NAME: usize = 1024;
    pub const RELEASED_DESC: usize = 0;
    pub const RELEASED_POS: usize = 8;
    pub const SEEN: usize = 16;
    pub const MISSED: usize = 24;
    pub const EXPIRED: usize = 64;
}

/// The parameters of a ring that an attached listener receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingParameters {
    /// Bytes of packet memory; a power of two.
    pub bytes: u64,
    /// Number of descriptors; a power of two.
    pub descs: u64,
    /// Link type, a pcap LINKTYPE_ number.
    pub link_type: u32,
    /// Largest number of bytes stored of one packet.
    pub snaplen: u32,
    /// Queue number.
    pub queue: u16,
    /// Name of the interface, file or simulation.
    pub name: String,
}

/// The control page.
#[derive(Debug)]
pub struct ControlPage(SharedMemory);

impl ControlPage {
    /// Creates a control page, whose memory is not sealed yet.
    pub fn create(shape: &RingParameters) -> std::io::Result<Self> {
        let page = Self(SharedMemory::create("netgrain-control", PAGE, false)?);
        page.set(at::VERSION, VERSION);
        page.set(at::BYTES_LEN, shape.bytes);
        page.set(at::DESCS, shape.descs);
        page.set(at::LINK_TYPE, shape.link_type.into());
        page.set(at::SNAPLEN, shape.snaplen.into());
        page.set(at::QUEUE, shape.queue.into());
        let mut name = [0; NAME];
        let text = shape.name.as_bytes();
        let len = text.len().min(NAME);
        name[..len].copy_from_slice(&text[..len]);
        for (i, word) in name.chunks_exact(8).enumerate() {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(word);
            page.set(at::NAME + 8 * i, u64::from_le_bytes(bytes));
        }
        page.set(at::MAGIC, MAGIC);
        Ok(page)
    }

    /// Reads the parameters of a control page that the engine sent. Contradictory parameters are an error.
    pub fn attach(memory: SharedMemory) -> Result<(Self, RingParameters), &'static str> {
        let page = Self(memory);
        if page.get(at::MAGIC) != MAGIC {
            return Err("the memory is not a netgrain ring");
        }
        if page.get(at::VERSION) != VERSION {
            return Err("the ring is of another version of netgrain");
        }
        let mut name = Vec::with_capacity(NAME);
        for i in 0..NAME / 8 {
            name.extend_from_slice(&page.get(at::NAME + 8 * i).to_le_bytes());
        }
        name.truncate(name.iter().position(|b| *b == 0).unwrap_or(NAME));
        let shape = RingParameters {
            bytes: page.get(at::BYTES_LEN),
            descs: page.get(at::DESCS),
            link_type: page.get(at::LINK_TYPE) as u32,
            snaplen: page.get(at::SNAPLEN) as u32,
            queue: page.get(at::QUEUE) as u16,
            name: String::from_utf8_lossy(&name).into_owned(),
        };
        // The packet memory must hold the largest packet. Packet memory and descriptor memory may have at most
        // `BYTES_MAX` bytes each.
        let is_valid_size = |n: u64, least: u64| n.is_power_of_two() && (least..=BYTES_MAX).contains(&n);
        let descs = shape.descs.checked_mul(DESC_BYTES as u64);
        if is_valid_size(shape.bytes, BLOCK) && descs.is_some_and(|n| is_valid_size(n, PAGE as u64)) {
            Ok((page, shape))
        } else {
            Err("the size of the ring is out of range")
        }
    }

    #[cfg(not(loom))]
    fn word(&self, offset: usize) -> &AtomicU64 {
        word(&self.0, offset)
    }

    #[cfg(loom)]
    fn word(&self, _: usize) -> &AtomicU64 {
        unreachable!("the loom tests use loom's atomics and not this page")
    }

    fn get(&self, offset: usize) -> u64 {
        self.word(offset).load(Ordering::Relaxed)
    }

    fn set(&self, offset: usize, value: u64) {
        self.word(offset).store(value, Ordering::Relaxed);
    }

    /// The words of this page that the lock-free protocol between producer and readers uses.
    #[inline]
    pub fn positions(&self) -> Positions<'_> {
        Positions {
            head: self.word(at::HEAD),
            controls_before: self.word(at::CONTROLS_BEFORE),
            controls_after: self.word(at::CONTROLS_AFTER),
            claimed_desc: self.word(at::CLAIMED_DESC),
            claimed_pos: self.word(at::CLAIMED_POS),
        }
    }

    /// The counters as last published by the producer.
    pub fn tally(&self) -> Tally {
        let mut t = Tally {
            offered: self.get(at::OFFERED),
            stored: self.get(at::STORED),
            stored_bytes: self.get(at::STORED_BYTES),
            filtered: self.get(at::FILTERED),
            duplicate: self.get(at::DUPLICATE),
            ..Tally::default()
        };
        for (i, n) in t.lost.iter_mut().enumerate() {
            *n = self.get(at::LOST + 8 * i);
        }
        for (i, n) in t.notes.iter_mut().enumerate() {
            *n = self.get(at::NOTES + 8 * i);
        }
        t
    }

    /// Publishes the counters that change with every batch.
    #[inline]
    pub fn set_flow(&self, t: &Tally) {
        self.set(at::OFFERED, t.offered);
        self.set(at::STORED, t.stored);
        self.set(at::STORED_BYTES, t.stored_bytes);
        self.set(at::FILTERED, t.filtered);
        self.set(at::DUPLICATE, t.duplicate);
    }

    /// Publishes losses and notes.
    pub fn set_losses(&self, t: &Tally) {
        for (i, n) in t.lost.iter().enumerate() {
            self.set(at::LOST + 8 * i, *n);
        }
        for (i, n) in t.notes.iter().enumerate() {
            self.set(at::NOTES + 8 * i, *n);
        }
    }

    /// True if the producer has finished. After that it publishes nothing.
    pub fn ended(&self) -> bool {
        self.word(at::ENDED).load(Ordering::Acquire) != 0
    }

    /// Called by the producer: marks the end of the stream.
    pub fn set_ended(&self) {
        self.word(at::ENDED).store(1, Ordering::Release);
    }

    /// The page's memory, for sealing and for sending to listeners.
    pub fn memory(&self) -> &SharedMemory {
        &self.0
    }
}

/// A listener's cursor page.
#[derive(Debug)]
pub struct CursorPage(SharedMemory);

impl CursorPage {
    /// A new cursor page with this released position. The size is sealed: a listener may write any value, but cannot
    /// shrink the page while the producer has it mapped.
    pub fn create(desc: u64, pos: u64) -> std::io::Result<Self> {
        let page = Self(SharedMemory::create("netgrain-cursor", PAGE, false)?);
        page.positions().set(DescPosition { desc, pos });
        page.0.seal_size()?;
        Ok(page)
    }

    /// Takes an attached page.
    pub fn attach(memory: SharedMemory) -> Self {
        Self(memory)
    }

    #[cfg(not(loom))]
    fn word(&self, offset: usize) -> &AtomicU64 {
        word(&self.0, offset)
    }

    #[cfg(loom)]
    fn word(&self, _: usize) -> &AtomicU64 {
        unreachable!("the loom tests use loom's atomics and not this page")
    }

    /// The words of the page in which the listener stores its released position.
    pub fn positions(&self) -> Released<'_> {
        Released { desc: self.word(at::RELEASED_DESC), pos: self.word(at::RELEASED_POS) }
    }

    /// The released position that the listener stored: (descriptor index, stream position). Any value is possible.
    pub fn released(&self) -> (u64, u64) {
        let DescPosition { desc, pos } = self.positions().get();
        (desc, pos)
    }

    /// Called by the listener: releases all descriptors and bytes below this position.
    pub fn release(&self, desc: u64, pos: u64) {
        self.positions().set(DescPosition { desc, pos });
    }

    /// The counters that the listener reports, for display only: the number of packets received, and the number of
    /// packets that were overwritten before the listener had copied them.
    pub fn reported(&self) -> (u64, u64) {
        (self.word(at::SEEN).load(Ordering::Relaxed), self.word(at::MISSED).load(Ordering::Relaxed))
    }

    /// Called by the listener: reports its counters, for display by the engine.
    pub fn report(&self, seen: u64, missed: u64) {
        self.word(at::SEEN).store(seen, Ordering::Relaxed);
        self.word(at::MISSED).store(missed, Ordering::Relaxed);
    }

    /// True if the reader timeout has expired.
    pub fn expired(&self) -> bool {
        self.word(at::EXPIRED).load(Ordering::Acquire) != 0
    }

    /// Called by the producer: marks that the producer no longer waits for this lossless listener.
    pub fn set_expired(&self) {
        self.word(at::EXPIRED).store(1, Ordering::Release);
    }

    /// The page's memory, for sending to the listener.
    pub fn memory(&self) -> &SharedMemory {
        &self.0
    }
}

#[cfg(not(loom))]
fn word(memory: &SharedMemory, offset: usize) -> &AtomicU64 {
    assert!(offset.is_multiple_of(8) && offset + 8 <= memory.len());
    // SAFETY: the offset is aligned and inside the mapping, which lives as long as `memory`; all processes access the
    // word atomically.
    unsafe { &*memory.base().add(offset).cast::<AtomicU64>() }
}

const _: () = assert!(at::LOST + 8 * base::Cause::COUNT <= at::NOTES && at::NOTES + 8 * base::Note::COUNT <= at::NAME);
