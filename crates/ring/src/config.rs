//! The size and behaviour of a ring, with every limit rounded to what it can be.

use crate::desc::{BLOCK, FILE_HEADER};
use crate::layout::RingParameters;
use std::time::Duration;
use sys::memory;

/// Most bytes stored of one packet: what 16 bits can say.
pub const CAPLEN_MAX: usize = 65_535;

/// Least packet memory: a few blocks, so that a segment's gap never fills it.
const BYTES_MIN: u64 = 8 * BLOCK;

/// Fewest descriptors.
const DESCS_MIN: u64 = 64 * 1024;

/// How much of a ring's memory is touched when it is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prefault {
    /// All of it, before the first packet.
    #[default]
    Whole,
    /// The beginning; the rest while packets come already, by a thread that calls [`crate::RingMemory::prefault_more`].
    Behind,
    /// Nothing: each page when it is first written. For packets that can wait.
    Lazy,
}

impl Prefault {
    /// Packet memory that is touched at once under [`Prefault::Behind`]: 6 ms of 10 Gb/s, in which the thread has touched more.
    const BEGIN: usize = 8 << 20;

    /// For one of the ring's memories, which has a share of the whole.
    pub(crate) const fn of(self, share: usize) -> memory::Prefault {
        match self {
            Self::Whole => memory::Prefault::Whole,
            Self::Behind => memory::Prefault::Begin(Self::BEGIN / share),
            Self::Lazy => memory::Prefault::Lazy,
        }
    }
}

/// The size and behaviour of a ring.
#[derive(Clone, Debug)]
pub struct Config {
    /// Interface, file or simulation.
    pub name: String,
    /// Bytes of packet memory, rounded up to a power of two of at least 8 MiB.
    pub bytes: u64,
    /// Descriptors, rounded up to a power of two; 0 gives one per 128 bytes of packet memory.
    pub descs: u64,
    /// Link type as in pcap.
    pub link_type: u32,
    /// Most bytes stored of one packet, at most [`CAPLEN_MAX`].
    pub snaplen: u32,
    /// Queue number.
    pub queue: u16,
    /// Most bytes of one segment (one file); at least two blocks.
    pub segment_bytes: u64,
    /// A new segment at every multiple of this (counted from the epoch, at least one second), silence included.
    pub rotate: Option<Duration>,
    /// How long the ring may be full because of a gate in another process before it is no longer waited for.
    pub reader_timeout: Option<Duration>,
    /// How much of the memory is touched when the ring is made.
    pub prefault: Prefault,
    /// First stream position, rounded up to a block. Anything but 0 serves tests of the counters' width.
    pub start: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: String::new(),
            bytes: 1 << 30,
            descs: 0,
            link_type: 1,
            snaplen: CAPLEN_MAX as u32,
            queue: 0,
            segment_bytes: 2 << 30,
            rotate: None,
            reader_timeout: None,
            prefault: Prefault::Whole,
            start: 0,
        }
    }
}

impl Config {
    /// What will be in force.
    pub(crate) fn rounded(mut self) -> Self {
        self.bytes = self.bytes.max(BYTES_MIN).next_power_of_two();
        let descs = if self.descs == 0 { self.bytes / 128 } else { self.descs };
        self.descs = descs.max(DESCS_MIN).next_power_of_two();
        self.snaplen = self.snaplen.min(CAPLEN_MAX as u32);
        self.segment_bytes = self.segment_bytes.max(2 * BLOCK);
        self.rotate = self.rotate.map(|p| Duration::from_secs(p.as_secs().max(1)));
        self.start = self.start.next_multiple_of(BLOCK);
        self
    }

    /// What those who attach are told.
    pub(crate) fn shape(&self) -> RingParameters {
        RingParameters {
            bytes: self.bytes,
            descs: self.descs,
            link_type: self.link_type,
            snaplen: self.snaplen,
            queue: self.queue,
            name: self.name.clone(),
        }
    }
}

/// The header of a nanosecond pcap file, little-endian (draft-ietf-opsawg-pcap).
pub fn file_header(snaplen: u32, link_type: u32) -> [u8; FILE_HEADER] {
    let mut h = [0; FILE_HEADER];
    h[0..4].copy_from_slice(&0xa1b2_3c4d_u32.to_le_bytes());
    h[4..6].copy_from_slice(&2u16.to_le_bytes());
    h[6..8].copy_from_slice(&4u16.to_le_bytes());
    h[16..20].copy_from_slice(&snaplen.to_le_bytes());
    h[20..24].copy_from_slice(&link_type.to_le_bytes());
    h
}
