//! The size and behaviour of a ring. `Config::rounded` moves each value to the nearest permitted value.

use crate::annotation::STREAM_POSITION_MAX;
use crate::desc::{BLOCK, FILE_HEADER};
use crate::layout::RingParameters;
use std::time::Duration;
use sys::memory;

/// Largest number of bytes stored of one packet: the largest value of the 16-bit `caplen`.
pub const CAPLEN_MAX: usize = 65_535;

/// Smallest size of the packet memory: several blocks, so that the unused bytes between two segments never fill the
/// memory.
const BYTES_MIN: u64 = 8 * BLOCK;

/// Smallest number of descriptors.
const DESCS_MIN: u64 = 64 * 1024;

/// How much of a ring's memory the kernel allocates when the ring is created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prefault {
    /// The kernel allocates all memory when the ring is created, before the first packet.
    #[default]
    Whole,
    /// The kernel allocates a first part of the memory when the ring is created. The rest is allocated during capture,
    /// by a thread that calls [`crate::RingMemory::prefault_more`].
    Behind,
    /// The kernel allocates each page of the memory at its first write. This is for sources that can wait, such as
    /// files.
    Lazy,
}

impl Prefault {
    /// Packet memory allocated at once under [`Prefault::Behind`]: 6 ms of traffic at 10 Gb/s. In those 6 ms the thread
    /// allocates more memory than the traffic fills.
    const BEGIN: usize = 8 << 20;

    /// Converts this setting to the setting of one of the two memories of the ring (packet bytes or descriptors). For
    /// [`Prefault::Behind`], the memory gets the part 1 / `share` of the bytes that are allocated at once.
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
    /// Name of the interface, file or simulation.
    pub name: String,
    /// Bytes of packet memory, rounded up to a power of two of at least 8 MiB.
    pub bytes: u64,
    /// Number of descriptors, rounded up to a power of two; 0 gives one descriptor per 128 bytes of packet memory.
    pub descs: u64,
    /// Link type, a pcap LINKTYPE_ number.
    pub link_type: u32,
    /// Largest number of bytes stored of one packet, at most [`CAPLEN_MAX`].
    pub snaplen: u32,
    /// Queue number.
    pub queue: u16,
    /// Largest number of bytes of one segment (one file); at least two blocks.
    pub segment_bytes: u64,
    /// A new segment begins at every multiple of this period (counted from 1970, at least one second), even without
    /// packets.
    pub rotate: Option<Duration>,
    /// The producer stops waiting for a lossless listener in another process after the ring was full for this long
    /// because of that listener.
    pub reader_timeout: Option<Duration>,
    /// How much of the memory the kernel allocates when the ring is created.
    pub prefault: Prefault,
    /// The stream position at which the ring begins, rounded up to a whole block, and at most the last block before
    /// [`STREAM_POSITION_MAX`]. Only tests use a value other than 0.
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
    /// The configuration with every value rounded to a permitted value.
    pub(crate) fn rounded(mut self) -> Self {
        self.bytes = self.bytes.max(BYTES_MIN).next_power_of_two();
        let descs = if self.descs == 0 { self.bytes / 128 } else { self.descs };
        self.descs = descs.max(DESCS_MIN).next_power_of_two();
        self.snaplen = self.snaplen.min(CAPLEN_MAX as u32);
        self.segment_bytes = self.segment_bytes.max(2 * BLOCK);
        self.rotate = self.rotate.map(|p| Duration::from_secs(p.as_secs().max(1)));
        self.start = self.start.min(STREAM_POSITION_MAX - BLOCK).next_multiple_of(BLOCK);
        self
    }

    /// The parameters that each attached listener receives.
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
