//! A packet to be written to the ring, and the error if the ring is full.

use crate::annotation::Annotations;
use base::Timestamp;
use std::fmt;

/// A packet to be written to the ring.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The captured bytes, at most [`CAPLEN_MAX`](crate::CAPLEN_MAX) (4 fewer with `vlan`).
    pub bytes: &'a [u8],
    /// Length on the wire, without the tag in `vlan`.
    pub wire_len: u32,
    /// Time of arrival.
    pub ts: Timestamp,
    /// Flow hash.
    pub hash: u32,
    /// Reserved for programs.
    pub mark: u32,
    /// Bits of [`flag`](crate::flag).
    pub flags: u8,
    /// The method of the timestamp, and the duplicate class.
    pub annotations: Annotations,
    /// Offset of the network header in the packet as it will be stored, tag included.
    pub l3: u8,
    /// Offset of the transport header in the packet as it will be stored, tag included.
    pub l4: u8,
    /// A VLAN tag to insert after the two MAC addresses: TPID and TCI, big-endian.
    pub vlan: Option<[u8; 4]>,
}

/// The packet was not written: the ring is full because the lossless reader in this slot has not released its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingFull {
    /// Slot of the lossless reader that limits the producer.
    pub reader: u8,
}

impl fmt::Display for RingFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the ring is full: the lossless reader in slot {} has not released its packets", self.reader)
    }
}

impl std::error::Error for RingFull {}

impl<'a> Packet<'a> {
    /// A packet that was not truncated and of which only the bytes and the timestamp are known: no hash, no header
    /// offsets, no annotations.
    ///
    /// # Panics
    /// If the packet is longer than 4 GiB.
    pub fn whole(bytes: &'a [u8], ts: Timestamp) -> Self {
        let wire_len = u32::try_from(bytes.len()).expect("a packet of at most 4 GiB");
        let annotations = Annotations::default();
        Self { bytes, wire_len, ts, hash: 0, mark: 0, flags: 0, annotations, l3: 0, l4: 0, vlan: None }
    }

    /// Length of the VLAN tag to insert.
    #[inline]
    pub(crate) const fn tag_len(&self) -> usize {
        if self.vlan.is_some() { 4 } else { 0 }
    }

    /// Copies the bytes and inserts the VLAN tag after the MAC addresses.
    ///
    /// # Safety
    /// `to` is writable for the bytes of the packet and its tag.
    #[inline]
    pub(crate) unsafe fn copy_to(&self, to: *mut u8) {
        match self.vlan {
            // SAFETY: the caller guarantees that `to` is writable for the packet.
            None => unsafe { std::ptr::copy_nonoverlapping(self.bytes.as_ptr(), to, self.bytes.len()) },
            Some(tag) => {
                let (head, tail) = self.bytes.split_at(self.bytes.len().min(ADDRESSES));
                // SAFETY: the caller guarantees that `to` is writable for packet and tag; the three copies are
                // adjacent.
                unsafe {
                    std::ptr::copy_nonoverlapping(head.as_ptr(), to, head.len());
                    std::ptr::copy_nonoverlapping(tag.as_ptr(), to.add(head.len()), 4);
                    std::ptr::copy_nonoverlapping(tail.as_ptr(), to.add(head.len() + 4), tail.len());
                }
            }
        }
    }
}

/// Length of the two MAC addresses in bytes.
const ADDRESSES: usize = 12;
