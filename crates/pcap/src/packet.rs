//! The packet type that the readers of all formats return.

use base::Timestamp;
use std::ops::Range;

/// One packet, borrowed from its [`Reader`](crate::Reader) until the next packet is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Time of capture; `None` if the format has none (pcapng's simple packet block).
    pub ts: Option<Timestamp>,
    /// Length on the wire in bytes; never less than the length of `data`.
    pub wire_len: u32,
    /// True if the file states a wire length below the captured length; `wire_len` is then raised to the captured
    /// length.
    pub wire_raised: bool,
    /// The bytes captured, at most [`MAX_PACKET`](crate::MAX_PACKET).
    pub data: &'a [u8],
    /// Number of the packet's interface within its section of the file; 0 in formats without interfaces.
    pub interface: u32,
    /// Link type in the numbering of pcap (1 is Ethernet).
    pub link_type: u16,
    /// Direction seen from the capturing host.
    pub direction: Direction,
    /// Number of packets that the capturing program reported as lost between the previous packet and this packet.
    pub drops: u64,
    /// Length of the frame check sequence at the end of the packet on the wire, in bytes; mostly 0.
    pub fcs: u8,
    /// Offset of the packet's record in the file.
    pub offset: u64,
}

/// The warning for packets with [`Packet::wire_raised`].
pub fn wire_raised(packets: u64) -> String {
    let packets = match packets {
        1 => "1 packet has".to_owned(),
        n => format!("{} packets have", base::units::show_count(n)),
    };
    format!("{packets} a wire length below the captured length; the wire length was raised to the captured length")
}

/// Direction of a packet, seen from the capturing host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// The file does not state the direction of the packet.
    #[default]
    Unknown,
    /// Received.
    Inbound,
    /// Sent.
    Outbound,
}

/// The fields of a [`Packet`], with the range of its bytes in the read buffer in place of the bytes.
#[derive(Clone, Debug)]
pub(crate) struct PacketBounds {
    pub ts: Option<Timestamp>,
    pub wire_len: u32,
    pub wire_raised: bool,
    pub data: Range<usize>,
    pub interface: u32,
    pub link_type: u16,
    pub direction: Direction,
    pub drops: u64,
    pub fcs: u8,
    pub offset: u64,
}

impl PacketBounds {
    #[inline]
    pub fn lend<'a>(&self, buffer: &'a [u8]) -> Packet<'a> {
        Packet {
            ts: self.ts,
            wire_len: self.wire_len,
            wire_raised: self.wire_raised,
            data: &buffer[self.data.clone()],
            interface: self.interface,
            link_type: self.link_type,
            direction: self.direction,
            drops: self.drops,
            fcs: self.fcs,
            offset: self.offset,
        }
    }
}
