//! The receive ring of version 3 (`include/uapi/linux/if_packet.h`, `net/packet/af_packet.c`): blocks in memory shared
//! with the kernel; the kernel fills a block with frames and then passes the complete block to this process.
//!
//! ```text
//! block  0        4       8       12      16      20     24         32        40       48
//!        +--------+-------+-------+-------+-------+------+----------+---------+--------+-------------
//!        | version| priv  |status | count | first |length| sequence | ts first| ts last| records ...
//!        +--------+-------+-------+-------+-------+------+----------+---------+--------+-------------
//! record 0      4     8     12      16    20      24    26    28    32    36   38     48          58
//!        +------+-----+-----+-------+-----+-------+-----+-----+-----+-----+----+------+-----------+----+
//!        | next | sec | nsec|snaplen| len |status | mac | net | hash| tci |tpid| pad  | sockaddr_ll ... |
//!        +------+-----+-----+-------+-----+-------+-----+-----+-----+-----+----+------+-----------+----+
//! ```
//! The invariant: while a block's status has the bit `USER` only this process accesses it, otherwise only the kernel. A
//! [`Block`] borrows the ring shared, [`Ring::release`] borrows it exclusively, so no frame outlives its block.

use super::PacketSocket;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// `TP_STATUS_*` bits of a record.
pub mod status {
    /// The kernel removed a VLAN tag from the frame.
    pub const VLAN: u32 = 1 << 4;
    /// The record also contains the protocol identifier of the tag.
    pub const VLAN_TPID: u32 = 1 << 6;
    /// The frame contains several merged TCP segments.
    pub const GSO_TCP: u32 = 1 << 8;
    /// The timestamp is that of the NIC, unconverted (`TP_STATUS_TS_RAW_HARDWARE`). Without this bit, the kernel made
    /// the timestamp.
    pub const HARDWARE_STAMP: u32 = 1 << 31;
}

/// The block belongs to user space.
const USER: u32 = 1;
/// The block belongs to the kernel.
const KERNEL: u32 = 0;
const TPACKET_V3: i32 = 2;
/// The frame size in the request for a ring. Version 3 does not store frames in slots of a fixed size, so the kernel
/// uses this size only to validate the request.
const NOMINAL_FRAME_BYTES: u32 = 2048;

mod at {
    pub const BLOCK_STATUS: usize = 8;
    pub const BLOCK_COUNT: usize = 12;
    pub const BLOCK_FIRST: usize = 16;
    pub const NEXT: usize = 0;
    pub const SECONDS: usize = 4;
    pub const NANOS: usize = 8;
    pub const SNAPLEN: usize = 12;
    pub const LENGTH: usize = 16;
    pub const STATUS: usize = 20;
    pub const MAC: usize = 24;
    pub const VLAN_TCI: usize = 32;
    pub const VLAN_TPID: usize = 36;
    /// Offset of the field `sll_pkttype` in a record: the structure `sockaddr_ll` follows the record header of 48
    /// bytes.
    pub const PACKET_TYPE: usize = 58;
}

/// Sizes and timeout of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of one block: a multiple of the page size.
    pub block_bytes: u32,
    /// Number of blocks.
    pub blocks: u32,
    /// The retire time: the time in whole milliseconds after which the kernel hands over a block that is not full.
    pub retire: Duration,
}

impl PacketSocket {
    /// Adds a receive ring to the socket and maps it. The kernel populates all pages at once, so that capture causes no
    /// page fault.
    ///
    /// # Errors
    /// `EINVAL` for sizes that the kernel refuses, `ENOMEM` if the memory is not available.
    pub fn receive_ring(&self, layout: Layout) -> io::Result<Ring> {
        self.set(libc::SOL_PACKET, libc::PACKET_VERSION, &TPACKET_V3)?;
        let frames = u64::from(layout.block_bytes / NOMINAL_FRAME_BYTES) * u64::from(layout.blocks);
        let request = libc::tpacket_req3 {
            tp_block_size: layout.block_bytes,
            tp_block_nr: layout.blocks,
            tp_frame_size: NOMINAL_FRAME_BYTES,
            tp_frame_nr: u32::try_from(frames).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?,
            tp_retire_blk_tov: layout.retire.as_millis() as u32,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        self.set(libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;

        let bytes = layout.block_bytes as usize * layout.blocks as usize;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice affects no existing memory.
        let map = unsafe { mmap(null_mut(), bytes, prot, MapFlags::SHARED, &self.0, 0) }?;
        let map = NonNull::new(map.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(Ring { map, layout })
    }
}

/// A mapped receive ring; unmapped when dropped.
#[derive(Debug)]
pub struct Ring {
    map: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the mapping belongs to the process, and the ring is not bound to the thread that created it.
unsafe impl Send for Ring {}

impl Ring {
    /// Number of blocks.
    pub fn blocks(&self) -> u32 {
        self.layout.blocks
    }

    /// Block `index`, if the kernel has handed it over.
    ///
    /// # Panics
    /// If there is no such block.
    #[inline]
    pub fn block(&self, index: u32) -> Option<Block<'_>> {
        // Acquire: makes visible what the kernel wrote before it set the status.
        if self.status(index).load(Ordering::Acquire) & USER == 0 {
            return None;
        }
        // SAFETY: `status` checked the index, so the block lies in the mapping. While the status has the bit `USER`,
        // the kernel does not access the block until `release`, which needs the ring exclusively and so cannot happen
        // during this borrow.
        let bytes = unsafe { std::slice::from_raw_parts(self.start(index), self.layout.block_bytes as usize) };
        Some(Block { bytes })
    }

    /// Returns block `index` to the kernel.
    ///
    /// # Panics
    /// If there is no such block.
    #[inline]
    pub fn release(&mut self, index: u32) {
        // Release: our reads of the block are complete before the kernel may write to it.
        self.status(index).store(KERNEL, Ordering::Release);
    }

    fn status(&self, index: u32) -> &AtomicU32 {
        assert!(index < self.layout.blocks, "block {index} of {}", self.layout.blocks);
        // SAFETY: the index was checked, so the word lies in the mapping; blocks are page-aligned, so it is aligned;
        // no side accesses the word with other than atomic operations while the other side may access it.
        unsafe { AtomicU32::from_ptr(self.start(index).add(at::BLOCK_STATUS).cast()) }
    }

    /// First byte of a block whose index is below `blocks`.
    fn start(&self, index: u32) -> *mut u8 {
        self.map.as_ptr().wrapping_add(index as usize * self.layout.block_bytes as usize)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let bytes = self.layout.block_bytes as usize * self.layout.blocks as usize;
        // SAFETY: the mapping is complete and belongs to this value, and no borrow of it outlives the ring.
        let _ = unsafe { munmap(self.map.as_ptr().cast(), bytes) };
    }
}

/// A block that the kernel handed over.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    bytes: &'a [u8],
}

impl<'a> Block<'a> {
    /// Number of records in the block; zero is possible after the ring was full.
    #[inline]
    pub fn count(&self) -> u32 {
        number(self.bytes, at::BLOCK_COUNT).unwrap_or(0)
    }

    /// Offset of the first record.
    #[inline]
    pub fn first(&self) -> u32 {
        number(self.bytes, at::BLOCK_FIRST).unwrap_or(0)
    }

    /// The record at `offset`; `None` if it does not lie in the block.
    #[inline]
    pub fn record(&self, offset: u32) -> Option<Record<'a>> {
        Record::parse(self.bytes, offset as usize)
    }
}

/// One frame with its metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The captured bytes, beginning with the link header.
    pub bytes: &'a [u8],
    /// Wire length in bytes, without the VLAN tag that the kernel removed.
    pub length: u32,
    /// Seconds since 1970, of the clock that made the timestamp.
    pub seconds: u32,
    /// Nanoseconds of the second.
    pub nanos: u32,
    /// [`status`] bits.
    pub status: u32,
    /// Protocol identifier of the tag, valid if `status` has [`status::VLAN_TPID`].
    pub vlan_tpid: u16,
    /// Tag control information, valid if `status` has [`status::VLAN`].
    pub vlan_tci: u16,
    /// `PACKET_HOST`, `PACKET_OUTGOING`, ….
    pub packet_type: u8,
    /// Offset of the next record relative to this one.
    pub next: u32,
}

impl<'a> Record<'a> {
    /// Reads the record at `offset` of a block.
    #[inline]
    pub fn parse(block: &'a [u8], offset: usize) -> Option<Self> {
        let record = block.get(offset..)?;
        // One bounds check covers all fields, so that the compiler omits the bounds check of each field.
        let fixed = record.get(..at::PACKET_TYPE + 1)?;
        let mac = usize::from(u16::from_ne_bytes([fixed[at::MAC], fixed[at::MAC + 1]]));
        let snaplen = number(fixed, at::SNAPLEN)? as usize;
        Some(Self {
            bytes: record.get(mac..mac.checked_add(snaplen)?)?,
            length: number(fixed, at::LENGTH)?,
            seconds: number(fixed, at::SECONDS)?,
            nanos: number(fixed, at::NANOS)?,
            status: number(fixed, at::STATUS)?,
            vlan_tpid: u16::from_ne_bytes([fixed[at::VLAN_TPID], fixed[at::VLAN_TPID + 1]]),
            // The kernel stores the 16 bits of the tag in a 32-bit word.
            vlan_tci: number(fixed, at::VLAN_TCI)? as u16,
            packet_type: fixed[at::PACKET_TYPE],
            next: number(fixed, at::NEXT)?,
        })
    }

    /// True if this host sent the frame.
    #[inline]
    pub fn is_outgoing(&self) -> bool {
        self.packet_type == libc::PACKET_OUTGOING
    }
}

#[inline]
fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    #[test]
    fn a_record_outside_of_its_block_is_rejected_without_a_panic() {
        let mut prng = Prng::new(0x7ac3);
        let mut block = vec![0; 512];
        let mut accepted = 0;
        for _ in 0..50_000 {
            prng.fill(&mut block);
            let offset = prng.below(600) as usize;
            if offset + 64 < block.len() && prng.below(2) == 0 {
                block[offset + at::MAC..][..2].copy_from_slice(&(prng.below(200) as u16).to_ne_bytes());
                block[offset + at::SNAPLEN..][..4].copy_from_slice(&(prng.below(300) as u32).to_ne_bytes());
            }
            if let Some(record) = Record::parse(&block, offset) {
                accepted += 1;
                let inside = block.as_ptr_range();
                assert!(inside.contains(&record.bytes.as_ptr()) || record.bytes.is_empty());
                assert!(record.bytes.as_ptr_range().end <= inside.end);
            }
        }
        assert!(accepted > 1000, "the random blocks must include valid records; accepted records: {accepted}");
    }

    #[test]
    fn the_fields_of_a_record_are_at_the_offsets_of_the_kernel() {
        let mut block = vec![0u8; 256];
        let at = 48;
        for (offset, value) in [(0, 112u32), (4, 1_700_000_000), (8, 999_999_999), (12, 3), (16, 1500), (20, 1 << 4)] {
            block[at + offset..][..4].copy_from_slice(&value.to_ne_bytes());
        }
        block[at + 24..][..2].copy_from_slice(&82u16.to_ne_bytes());
        block[at + 32..][..4].copy_from_slice(&0x2064u32.to_ne_bytes());
        block[at + 36..][..2].copy_from_slice(&0x88a8u16.to_ne_bytes());
        block[at + 58] = 4;
        block[at + 82..][..3].copy_from_slice(&[7, 8, 9]);
        let record = Record::parse(&block, at).expect("a record");
        assert_eq!((record.bytes, record.length, record.next), (&[7u8, 8, 9][..], 1500, 112));
        assert_eq!((record.seconds, record.nanos, record.status), (1_700_000_000, 999_999_999, status::VLAN));
        assert_eq!((record.vlan_tci, record.vlan_tpid, record.is_outgoing()), (0x2064, 0x88a8, true));
    }
}
