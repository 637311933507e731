//! What every format says of a packet.

use base::Timestamp;
use std::ops::Range;

/// One packet, borrowed from its [`Reader`](crate::Reader) until the next is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// When it was captured; `None` where the format does not say (pcapng's simple packet block).
    pub ts: Option<Timestamp>,
    /// Bytes it had on the wire; never less than `data` has.
    pub wire_len: u32,
    /// The file says fewer bytes on the wire than it has of the packet; `wire_len` is raised to what it has.
    pub wire_raised: bool,
    /// The bytes captured, at most [`MAX_PACKET`](crate::MAX_PACKET).
    pub data: &'a [u8],
    /// Number of its interface within its section of the file; 0 where there are none.
    pub interface: u32,
    /// How to read its first bytes, as pcap numbers link types (1 is Ethernet).
    pub link_type: u16,
    /// Which way it went.
    pub direction: Direction,
    /// Packets that the capturing program lost between this one and the one before, as far as it said so.
    pub drops: u64,
    /// How many of the last bytes on the wire are the frame check sequence; mostly 0.
    pub fcs: u8,
    /// Where its record begins in the file.
    pub offset: u64,
}

/// What people are told of so many packets with [`Packet::wire_raised`].
pub fn wire_raised(packets: u64) -> String {
    let (packets, say, their) = match packets {
        1 => ("1 packet".to_owned(), "says", "its"),
        n => (format!("{} packets", base::units::show_count(n)), "say", "their"),
    };
    format!(
        "{packets} {say} fewer bytes on the wire than were captured; {their} length on the wire was raised to what was captured"
    )
}

/// Which way a packet went, seen from the capturing host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// The file does not say.
    #[default]
    Unknown,
    /// Received.
    Inbound,
    /// Sent.
    Outbound,
}

/// A packet found in the window: all of it but the loan of the bytes.
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
