//! The values of one packet that the counters need, read from the headers once.

use crate::config::Packet;
use std::hint::select_unpredictable;
use wire::{Family, Fragment, IpProtocol, MacAddr, tcp_flags};

/// The values that a packet adds to its flow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PacketFields {
    /// Timestamp in nanoseconds; raised to that of the flow's previous packet if it is earlier.
    pub at: u64,
    /// The direction: 0 forward, 1 reverse.
    pub side: usize,
    /// Bytes of the frame.
    pub wire: u32,
    /// Bytes of the IP packet.
    pub length: u32,
    /// Bytes of transport payload.
    pub payload: u32,
    /// True if there is a TCP header; without one, the TCP fields are 0.
    pub tcp: bool,
    pub flags: u8,
    pub seq: u32,
    /// True if the packet is TCP without RST and advertises a window of zero.
    pub zero_window: bool,
    pub ttl: u8,
    pub dscp: u8,
}

/// Offsets in the headers.
mod at {
    pub const V4_TOS: usize = 1;
    pub const V4_TTL: usize = 8;
    pub const V6_HOPS: usize = 7;
    pub const SEQ: usize = 4;
    pub const FLAGS: usize = 13;
    pub const WINDOW: usize = 14;
}

/// Number of bytes that are read of a TCP header.
pub(crate) const TCP: usize = 16;

impl PacketFields {
    /// All values 0.
    pub const EMPTY: Self = Self {
        at: 0,
        side: 0,
        wire: 0,
        length: 0,
        payload: 0,
        tcp: false,
        flags: 0,
        seq: 0,
        zero_window: false,
        ttl: 0,
        dscp: 0,
    };

    /// The values of a packet that has a flow key. The meter later sets the direction, and may raise the timestamp.
    #[inline(always)]
    pub fn of(packet: &Packet) -> Self {
        let decoded = packet.decoded;
        let l3 = packet.data.get(usize::from(decoded.l3)..).and_then(|d| d.first_chunk::<20>()).unwrap_or(&[0; 20]);
        let (ttl, class) = match decoded.family {
            Family::V6 => (l3[at::V6_HOPS], l3[0] << 4 | l3[1] >> 4),
            _ => (l3[at::V4_TTL], l3[at::V4_TOS]),
        };
        let head = packet.data.get(usize::from(decoded.l4)..).and_then(|d| d.first_chunk());
        let is_there = (decoded.l4 != 0) & (decoded.fragment != Fragment::Later) & head.is_some();
        let is_tcp = (decoded.protocol == IpProtocol::TCP) & is_there;
        Self::with(packet, (ttl, class), is_tcp, head.unwrap_or(&[0; TCP]))
    }

    /// Like [`PacketFields::of`], but TTL, traffic class and TCP header are arguments. If the packet is not TCP, `head`
    /// may be any bytes: they are read and discarded, because a branch would be mispredicted at every third packet.
    #[inline(always)]
    pub fn with(packet: &Packet, (ttl, class): (u8, u8), tcp: bool, head: &[u8; TCP]) -> Self {
        let decoded = packet.decoded;
        let flags = select_unpredictable(tcp, head[at::FLAGS], 0);
        let seq = u32::from_be_bytes([head[at::SEQ], head[at::SEQ + 1], head[at::SEQ + 2], head[at::SEQ + 3]]);
        let window = u16::from_be_bytes([head[at::WINDOW], head[at::WINDOW + 1]]);
        Self {
            at: packet.ts.nanos(),
            side: 0,
            wire: packet.wire_len,
            length: decoded.ip_len,
            payload: decoded.payload_len,
            tcp,
            flags,
            seq: select_unpredictable(tcp, seq, 0),
            zero_window: tcp & (window == 0) & (flags & tcp_flags::RST == 0),
            ttl,
            dscp: class >> 2,
        }
    }

    /// The number of sequence numbers that the segment takes: one for each payload byte, SYN and FIN. A RST takes none,
    /// and its payload is not part of the stream.
    #[inline(always)]
    pub fn space(&self) -> u32 {
        let ends = (self.flags & (tcp_flags::SYN | tcp_flags::FIN)).count_ones();
        let counts = self.tcp & (self.flags & tcp_flags::RST == 0);
        self.payload.wrapping_add(ends) & u32::from(counts).wrapping_neg()
    }
}

/// The range, widened to include a value; for the first value, a new range.
#[inline(always)]
pub(crate) fn widened(range: (u8, u8), value: u8, first: bool) -> (u8, u8) {
    // The code has no branch, because the CPU cannot predict which packet is the first of its direction at the start of
    // flows.
    let (least, most) = (range.0.min(value), range.1.max(value));
    (select_unpredictable(first, value, least), select_unpredictable(first, value, most))
}

/// The source MAC address, if the packet has an Ethernet header.
pub(crate) fn mac(packet: &Packet) -> Option<MacAddr> {
    let at = usize::from(packet.decoded.l2?);
    let bytes = packet.data.get(at + 6..)?.first_chunk()?;
    Some(MacAddr(*bytes))
}
