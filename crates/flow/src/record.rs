//! The flow record: the measured properties of one flow on one interface over one period, per direction. Its fields are
//! those of M3OMon (Moreno, PhD thesis, 2015, section 5.2) and of the biflow of RFC 5103. The store and all export
//! formats are made from it.

use base::Timestamp;
use std::net::IpAddr;
use wire::{FlowKey, IpProtocol, MacAddr, Port, TunnelKind};

/// The flow key. The source is the sender of the first packet of the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Source address.
    pub src: IpAddr,
    /// Destination address, of the same family as `src`.
    pub dst: IpAddr,
    /// Source port; 0 for ICMP and for protocols without ports.
    pub src_port: u16,
    /// Destination port. ICMP and ICMPv6: type × 256 + code of the first packet, as in NetFlow.
    pub dst_port: u16,
    /// The protocol above IP.
    pub protocol: IpProtocol,
}

impl Key {
    /// The key of the first packet as [`wire::community_id`] expects it: the ICMP type as source port, the code as
    /// destination port.
    pub fn of_packet(&self) -> FlowKey {
        let (src_port, dst_port) = match self.protocol {
            IpProtocol::ICMP | IpProtocol::ICMPV6 => (self.dst_port >> 8, self.dst_port & 0xff),
            _ => (self.src_port, self.dst_port),
        };
        let (src_port, dst_port) = (Port(src_port), Port(dst_port));
        FlowKey { src: self.src, dst: self.dst, src_port, dst_port, protocol: self.protocol }
    }
}

/// The encapsulation (VLANs, MPLS, tunnel) of the first packet of the flow. The encapsulation of later packets may
/// differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Encapsulation {
    /// Ids of the VLAN tags, outer first.
    pub vlans: [Option<u16>; 2],
    /// The topmost MPLS label.
    pub mpls: Option<u32>,
    /// Kind and id of the innermost tunnel.
    pub tunnel: Option<(TunnelKind, u32)>,
}

/// The flow end reason: why the meter made the record. The numbers are those of flowEndReason (IPFIX element 136).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum EndReason {
    /// The flow had no packet for the idle timeout.
    IdleTimeout = 1,
    /// The flow reached the active timeout and continues; its next record begins at the end of this record.
    ActiveTimeout = 2,
    /// In TCP, both directions have sent FIN or one direction has sent RST, and the close timeout expired.
    EndOfFlow = 3,
    /// The meter stopped or the capture ended.
    ForcedEnd = 4,
    /// The flow table was full.
    LackOfResources = 5,
}

impl EndReason {
    /// All flow end reasons.
    pub const ALL: [Self; 5] =
        [Self::IdleTimeout, Self::ActiveTimeout, Self::EndOfFlow, Self::ForcedEnd, Self::LackOfResources];

    /// The name of the flow end reason in text output and columns.
    pub const fn name(self) -> &'static str {
        match self {
            Self::IdleTimeout => "idle_timeout",
            Self::ActiveTimeout => "active_timeout",
            Self::EndOfFlow => "end_of_flow",
            Self::ForcedEnd => "forced_end",
            Self::LackOfResources => "lack_of_resources",
        }
    }
}

/// The name of a tunnel kind in text output and columns.
pub const fn tunnel_name(kind: TunnelKind) -> &'static str {
    match kind {
        TunnelKind::Gre => "gre",
        TunnelKind::Nvgre => "nvgre",
        TunnelKind::Erspan1 => "erspan1",
        TunnelKind::Erspan2 => "erspan2",
        TunnelKind::Erspan3 => "erspan3",
        TunnelKind::Vxlan => "vxlan",
        TunnelKind::Geneve => "geneve",
        TunnelKind::GtpU => "gtpu",
        TunnelKind::IpInIp => "ipip",
        TunnelKind::Teredo => "teredo",
    }
}

/// The progress of a TCP connection (RFC 9293 §3.3.2), according to the captured packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum TcpState {
    /// Not TCP.
    #[default]
    None = 0,
    /// The capture has no SYN of the connection.
    Midstream,
    /// SYN without SYN+ACK.
    SynSent,
    /// SYN and SYN+ACK.
    SynReceived,
    /// The handshake was seen.
    Established,
    /// FIN in one direction.
    HalfClosed,
    /// FIN in both directions.
    Closed,
    /// RST.
    Reset,
}

impl TcpState {
    /// All TCP states, in the order of their numbers.
    pub const ALL: [Self; 8] = {
        use TcpState::*;
        [None, Midstream, SynSent, SynReceived, Established, HalfClosed, Closed, Reset]
    };

    /// The state with this number.
    #[inline(always)]
    pub(crate) const fn of(number: u8) -> Self {
        Self::ALL[number as usize & 7]
    }

    /// The name of the TCP state in text output and columns; `None` if the flow is not TCP.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::None => return None,
            Self::Midstream => "midstream",
            Self::SynSent => "syn_sent",
            Self::SynReceived => "syn_received",
            Self::Established => "established",
            Self::HalfClosed => "half_closed",
            Self::Closed => "closed",
            Self::Reset => "reset",
        })
    }
}

/// Minimum, maximum, sum and sum of squares of a quantity. The number of values is stored in another field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// The minimum of the values; 0 if there are no values.
    pub min: u64,
    /// The maximum of the values; 0 if there are no values.
    pub max: u64,
    /// The sum of the values.
    pub sum: u64,
    /// The sum of the squares of the values, so that mean and standard deviation of merged records are exact.
    pub squares: u128,
}

impl Stats {
    /// The mean of `n` values; 0 if `n` is 0.
    pub fn mean(&self, n: u64) -> f64 {
        if n == 0 { 0.0 } else { self.sum as f64 / n as f64 }
    }

    /// The sample standard deviation (divisor n - 1) of `n` values, as in M3OMon; 0 for fewer than two values.
    pub fn deviation(&self, n: u64) -> f64 {
        if n < 2 {
            return 0.0;
        }
        // The difference of two large numbers is computed with integers, because floating-point numbers would round a
        // small difference away. If the integers overflow, the difference is large, and floating-point numbers are
        // exact enough.
        let (count, sum) = (u128::from(n), u128::from(self.sum));
        let spread = match (self.squares.checked_mul(count), sum.checked_mul(sum)) {
            (Some(squares), Some(sum)) => squares.saturating_sub(sum) as f64,
            _ => (self.squares as f64 * n as f64 - (self.sum as f64).powi(2)).max(0.0),
        };
        (spread / n as f64 / (n - 1) as f64).sqrt()
    }
}

/// The counters of one direction of a flow record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionStats {
    /// Timestamp of the first packet of this direction in the record; zero if there is none.
    pub first: Timestamp,
    /// Timestamp of the last packet of this direction in the record.
    pub last: Timestamp,
    /// Packets.
    pub packets: u64,
    /// Bytes of the frames on the wire.
    pub bytes: u64,
    /// Bytes of the (inner) IP packets on the wire, as NetFlow counts them.
    pub ip_bytes: u64,
    /// Bytes carried by the transport protocol.
    pub payload_bytes: u64,
    /// Packets with transport payload.
    pub payload_packets: u64,
    /// Lengths of the IP packets; `sum` is [`DirectionStats::ip_bytes`].
    pub length: Stats,
    /// Inter-arrival times of this direction in nanoseconds. All records of a flow together have `packets - 1` values;
    /// the time between the packets of two successive records belongs to the later record. A negative time counts as 0.
    pub iat: Stats,
    /// The number of inter-arrival times.
    pub iat_count: u64,
    /// For each TCP flag, the number of packets with this flag: FIN, SYN, RST, PSH, ACK, URG, ECE, CWR, in the order of
    /// the flag bits.
    pub flags: [u64; 8],
    /// Packets without RST that advertised a TCP window of zero.
    pub zero_window: u64,
    /// Packets whose payload was sent completely in earlier packets.
    pub retransmitted: u64,
    /// Payload bytes of the retransmitted packets.
    pub retransmitted_bytes: u64,
    /// Packets, not retransmitted, that arrived after packets with higher sequence numbers.
    pub out_of_order: u64,
    /// Minimum and maximum of TTL or hop limit.
    pub ttl: (u8, u8),
    /// Minimum and maximum of DSCP.
    pub dscp: (u8, u8),
    /// Source MAC address of the first frame, if the frame had an Ethernet header.
    pub mac: Option<MacAddr>,
    /// Tunnel sequence numbers of the first and of the last packet of this direction that have one. The tunnel numbers
    /// the packets of all its flows, so the difference is not the packet count of this flow.
    pub tunnel_sequence: Option<(u32, u32)>,
}

/// Length, TCP flags and time of one of the initial packets of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InitialPacket {
    /// Nanoseconds after the first packet of the flow: exact below 2^38 ns (274 s), then in steps of 16 ns, and at most
    /// 4295 s (`u32::MAX` microseconds).
    pub offset_ns: u64,
    /// Bytes of the IP packet on the wire.
    pub length: u16,
    /// The TCP flags; 0 for other protocols.
    pub flags: u8,
    /// True for a packet of the reverse direction.
    pub reverse: bool,
}

impl InitialPacket {
    /// The length with a sign, as in exported lists: a length of the reverse direction is negative. A reverse length of
    /// 0, which no packet has, becomes `i32::MIN`.
    #[inline(always)]
    pub const fn signed_length(&self) -> i64 {
        let length = self.length as i64;
        match (self.reverse, length) {
            (false, _) => length,
            (true, 0) => i32::MIN as i64,
            (true, _) => -length,
        }
    }
}

/// The location of packets in the store, with which `netgrain packets --flow` reads them without a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketLocation {
    /// The queue whose packet files contain the packets.
    pub queue: u16,
    /// Stream position of the first packet; for a capture file, the file offset.
    pub first: u64,
    /// Stream position (or file offset) of the last packet.
    pub last: u64,
}

/// A flow record.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The flow ID, equal in all records of a flow: a hash of interface, key, encapsulation and start time of the flow.
    /// Two flows with the same key that start in the same nanosecond have the same ID, because nothing in their packets
    /// distinguishes them.
    pub id: u64,
    /// The flow key.
    pub key: Key,
    /// VLAN ids, MPLS label and tunnel of the first packet of the flow.
    pub encapsulation: Encapsulation,
    /// Number of the interface, from the constructor of the meter.
    pub interface: u16,
    /// Timestamp of the first packet of the flow. After an active timeout it is earlier than `first` of the directions.
    pub flow_start: Timestamp,
    /// The number of earlier records of this flow.
    pub record_index: u32,
    /// Forward and reverse direction; the reverse direction is all zero in uniflows.
    pub directions: [DirectionStats; 2],
    /// The flow end reason.
    pub end_reason: EndReason,
    /// The TCP state at the end of the record.
    pub tcp_state: TcpState,
    /// Nanoseconds from SYN to SYN+ACK.
    pub syn_rtt: Option<u64>,
    /// Nanoseconds from SYN+ACK to the ACK of the handshake.
    pub ack_rtt: Option<u64>,
    /// The initial packets; empty except in the first record of the flow.
    pub initial_packets: Vec<InitialPacket>,
    /// The first payload bytes of each direction, in the first record of the flow, if the configuration requests them.
    pub payload: [Vec<u8>; 2],
    /// The location of the packets in the store.
    pub location: Option<PacketLocation>,
    /// Packets lost on the interface in the seconds from the first to the last packet of this record, as far as the
    /// losses were reported to the meter.
    pub lost: u64,
}

impl Record {
    /// Timestamp of the first packet of the record.
    pub fn first(&self) -> Timestamp {
        match self.directions {
            [a, b] if b.packets == 0 => a.first,
            [a, b] if a.packets == 0 => b.first,
            [a, b] => a.first.min(b.first),
        }
    }

    /// Timestamp of the last packet of the record.
    pub fn last(&self) -> Timestamp {
        self.directions[0].last.max(self.directions[1].last)
    }

    /// The sort key of records that are made in the same second of packet time.
    pub(crate) fn order(&self) -> (Timestamp, u64, u64) {
        (self.last(), self.id, self.location.map_or(u64::MAX, |l| l.first))
    }

    /// Packets of both directions. The sum saturates, because a record from the network may have any number.
    pub fn packets(&self) -> u64 {
        self.directions[0].packets.saturating_add(self.directions[1].packets)
    }

    /// Bytes of the frames of both directions; the sum saturates.
    pub fn bytes(&self) -> u64 {
        self.directions[0].bytes.saturating_add(self.directions[1].bytes)
    }
}

/// A receiver of flow records. A record is borrowed for the call; the meter overwrites it afterwards.
pub trait Sink {
    /// Receives one record.
    fn record(&mut self, record: &Record);

    /// Announces that the records until the next call of `second` were due at this second of packet time. Only
    /// [`crate::ShardMerger`], which merges the records of several meters, needs this call.
    fn second(&mut self, _second: u64) {}
}

impl Sink for Vec<Record> {
    fn record(&mut self, record: &Record) {
        self.push(record.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::Stats;

    #[test]
    fn deviations_of_large_numbers_that_hardly_differ_are_exact() {
        let deviation = |values: &[u64]| {
            let sum = values.iter().sum();
            let squares = values.iter().map(|v| u128::from(*v).pow(2)).sum();
            Stats { sum, squares, ..Stats::default() }.deviation(values.len() as u64)
        };
        let beacon = 25_000_000_000;
        assert_eq!(deviation(&[beacon, beacon + 1]), 0.5_f64.sqrt());
        assert_eq!(deviation(&[beacon; 9]), 0.0);
        assert_eq!(deviation(&[1, 2, 3, 4]), (5.0_f64 / 3.0).sqrt());
        assert_eq!((deviation(&[7]), deviation(&[])), (0.0, 0.0));
        // Two inter-arrival times of a year each: the calculation exceeds 128 bits.
        let year = 31_536_000_000_000_000;
        let wide = deviation(&[0, year, 0, year]);
        assert!((wide / (year as f64 / 3_f64.sqrt()) - 1.0).abs() < 1e-9, "{wide}");
    }

    #[test]
    fn sums_over_both_directions_saturate() {
        let mut record = crate::sample::any_record(&mut base::Prng::new(1));
        for side in &mut record.directions {
            (side.packets, side.bytes) = (1 << 63, u64::MAX);
        }
        assert_eq!((record.packets(), record.bytes()), (u64::MAX, u64::MAX));
    }
}
