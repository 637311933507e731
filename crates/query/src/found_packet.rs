//! The packets of a result, and their origins.

use base::Timestamp;

/// The origin of packets: one queue of an interface of the store, or one interface of a capture file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The name of the interface; for a foreign capture, the interface name in the file, if the file contains one.
    pub interface: String,
    /// The hardware queue.
    pub queue: u16,
    /// The link type, with the number that pcap uses.
    pub link_type: u16,
    /// The largest number of captured bytes per packet.
    pub snaplen: u32,
    /// The capture filter of the recorder; empty without a capture filter.
    pub filter: String,
    /// The timestamp source of the packets.
    pub timestamp_source: String,
}

/// One packet; its bytes are valid until the next call of a function of [`Results`](crate::Results).
#[derive(Clone, Copy, Debug)]
pub struct FoundPacket<'a> {
    /// The timestamp of the packet.
    pub ts: Timestamp,
    /// The wire length in bytes.
    pub wire_len: u32,
    /// The captured bytes.
    pub data: &'a [u8],
    /// The link type, with the number that pcap uses: the format of the packet's first header.
    pub link_type: u16,
    /// Index into [`Results::origins`](crate::Results::origins).
    pub origin: usize,
    /// Number of packets of this origin that were lost between the previous packet of the result and this packet. The
    /// precision is that of the index: one block.
    pub lost: u64,
    /// The stream position of the record, as in [`SeekHint`](crate::SeekHint); `None` where the position is not known.
    pub position: Option<u64>,
}

/// Consecutive packets as pcap records; the bytes are valid until the next call of a function of
/// [`Results`](crate::Results).
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// Complete records of little-endian nanosecond pcap, headers included.
    pub records: &'a [u8],
    /// Number of packets in `records`; at least one.
    pub packets: u64,
    /// The timestamp of the first packet of the batch.
    pub first: Timestamp,
    /// The link type, which is the same for all packets of the batch.
    pub link_type: u16,
    /// Index into [`Results::origins`](crate::Results::origins).
    pub origin: usize,
    /// Like [`FoundPacket::lost`], for the first packet of the batch; according to the index, no packet was lost
    /// between the other packets.
    pub lost: u64,
}
