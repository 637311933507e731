//! The flow record: what one conversation did on one interface in one period, per direction. It is M3OMon's record
//! (Moreno, PhD thesis, 2015, section 5.2) and RFC 5103's biflow, and what every export format and the store are made from.

use base::Timestamp;
use std::net::IpAddr;
use wire::{FlowKey, IpProtocol, MacAddr, Port, TunnelKind};

/// Who talks to whom: source is whoever sent the first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Who began.
    pub src: IpAddr,
    /// With whom; of the same family.
    pub dst: IpAddr,
    /// From which port; 0 where the protocol has none. ICMP: 0.
    pub src_port: u16,
    /// To which port. ICMP and ICMPv6: type × 256 + code of the first packet, as NetFlow has it.
    pub dst_port: u16,
    /// The protocol above IP.
    pub protocol: IpProtocol,
}

impl Key {
    /// The key of the first packet, as [`wire::community_id`] wants it: with type and code of ICMP in a port each.
    pub fn of_packet(&self) -> FlowKey {
        let (src_port, dst_port) = match self.protocol {
            IpProtocol::ICMP | IpProtocol::ICMPV6 => (self.dst_port >> 8, self.dst_port & 0xff),
            _ => (self.src_port, self.dst_port),
        };
        let (src_port, dst_port) = (Port(src_port), Port(dst_port));
        FlowKey { src: self.src, dst: self.dst, src_port, dst_port, protocol: self.protocol }
    }
}

/// What was around the packets: those of the first one, where they differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Encapsulation {
    /// Ids of the VLAN tags, outer first.
    pub vlans: [Option<u16>; 2],
    /// The topmost MPLS label.
    pub mpls: Option<u32>,
    /// What tunnel, and its number.
    pub tunnel: Option<(TunnelKind, u32)>,
}

/// Why a record was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum EndReason {
    /// No packet for the idle timeout. The numbers are those of flowEndReason (IPFIX element 136).
    IdleTimeout = 1,
    /// The active timeout; the flow goes on, and its next record continues where this one ends.
    ActiveTimeout = 2,
    /// TCP's FIN in both directions, or a RST, and the linger after it.
    EndOfFlow = 3,
    /// The meter was stopped, or the capture ended.
    ForcedEnd = 4,
    /// The table was full.
    LackOfResources = 5,
}

impl EndReason {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::IdleTimeout, Self::ActiveTimeout, Self::EndOfFlow, Self::ForcedEnd, Self::LackOfResources];

    /// In a word, as text and columns have it.
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

/// A kind of tunnel in a word, as text and columns have it.
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

/// How far a TCP conversation got, by what was seen of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum TcpState {
    /// Not TCP.
    #[default]
    None = 0,
    /// Packets without a beginning.
    Midstream,
    /// SYN without an answer.
    SynSent,
    /// SYN and SYN+ACK.
    SynReceived,
    /// The handshake was seen.
    Established,
    /// FIN of one side.
    HalfClosed,
    /// FIN of both sides.
    Closed,
    /// RST.
    Reset,
}

impl TcpState {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 8] = {
        use TcpState::*;
        [None, Midstream, SynSent, SynReceived, Established, HalfClosed, Closed, Reset]
    };

    /// The state with this number.
    #[inline(always)]
    pub(crate) const fn of(number: u8) -> Self {
        Self::ALL[number as usize & 7]
    }

    /// In a word, as text and columns have it; none of what is not TCP.
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

/// Least, greatest, sum and sum of squares; the number of values is known beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// The least; 0 if there is none.
    pub min: u64,
    /// The greatest.
    pub max: u64,
    /// All together.
    pub sum: u64,
    /// Their squares together: mean and deviation of any union of records follow exactly.
    pub squares: u128,
}

impl Stats {
    /// The mean of `n` values; 0 of none.
    pub fn mean(&self, n: u64) -> f64 {
        if n == 0 { 0.0 } else { self.sum as f64 / n as f64 }
    }

    /// The sample deviation (n - 1) of `n` values, as M3OMon has it; 0 of fewer than two.
    pub fn deviation(&self, n: u64) -> f64 {
        if n < 2 {
            return 0.0;
        }
        // In whole numbers, as the difference of two large ones may be small. What is too large for that is no small difference.
        let (count, sum) = (u128::from(n), u128::from(self.sum));
        let spread = match (self.squares.checked_mul(count), sum.checked_mul(sum)) {
            (Some(squares), Some(sum)) => squares.saturating_sub(sum) as f64,
            _ => (self.squares as f64 * n as f64 - (self.sum as f64).powi(2)).max(0.0),
        };
        (spread / n as f64 / (n - 1) as f64).sqrt()
    }
}

/// One direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionStats {
    /// When its first packet in this record came; zero if there is none.
    pub first: Timestamp,
    /// And its last.
    pub last: Timestamp,
    /// Packets.
    pub packets: u64,
    /// Bytes of the frames on the wire.
    pub bytes: u64,
    /// Bytes of the (inner) IP packets on the wire: what NetFlow counts.
    pub ip_bytes: u64,
    /// Bytes carried by the transport protocol.
    pub payload_bytes: u64,
    /// Packets that carried any.
    pub payload_packets: u64,
    /// Lengths of the IP packets; `sum` is [`DirectionStats::ip_bytes`].
    pub length: Stats,
    /// Nanoseconds between packets of this direction (`packets - 1` values in all records of a flow together; the gap
    /// to the record before belongs to the later one). Steps back in time count as 0.
    pub iat: Stats,
    /// How many gaps these are.
    pub iat_count: u64,
    /// Packets with FIN, SYN, RST, PSH, ACK, URG, ECE, CWR: in the order of their bits.
    pub flags: [u64; 8],
    /// Packets that advertised a window of zero (without RST).
    pub zero_window: u64,
    /// Packets whose bytes were all sent before.
    pub retransmitted: u64,
    /// Their payload.
    pub retransmitted_bytes: u64,
    /// Packets that came behind bytes that follow them, and were not sent before.
    pub out_of_order: u64,
    /// Least and greatest TTL or hop limit.
    pub ttl: (u8, u8),
    /// Least and greatest DSCP.
    pub dscp: (u8, u8),
    /// Who sent its first frame, if there was an Ethernet header.
    pub mac: Option<MacAddr>,
    /// Sequence numbers of the first and the last of its packets that had one, where the tunnel around them counts. It counts
    /// the packets of all flows in it: what lies between the two is not this flow's.
    pub tunnel_sequence: Option<(u32, u32)>,
}

/// One of the first packets of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InitialPacket {
    /// Nanoseconds after the first packet of the flow: exact within 2^38 of them (274 s), then in steps of 16; saturating at
    /// `u32::MAX` microseconds.
    pub offset_ns: u64,
    /// Bytes of the IP packet on the wire.
    pub length: u16,
    /// TCP's flags; 0 of others.
    pub flags: u8,
    /// Sent by whom the first packet was not.
    pub reverse: bool,
}

impl InitialPacket {
    /// Its length as lists have it: that of the other direction is negative, and one of zero, which no packet has, the least
    /// number of 32 bits.
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

/// Where packets lie in the store: `netgrain packets --flow` goes there without searching.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketLocation {
    /// The queue whose files they are in.
    pub queue: u16,
    /// Position of the first packet's record in the queue's stream; in a capture file, its offset.
    pub first: u64,
    /// Position of the last packet's record.
    pub last: u64,
}

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The same for all records of one flow: a hash of interface, key, surroundings and first moment of the flow. Two flows between
    /// the same ends that begin in the same nanosecond have one, since nothing of the packets tells them apart.
    pub id: u64,
    /// Who with whom.
    pub key: Key,
    /// In what.
    pub encapsulation: Encapsulation,
    /// Number of the interface, as the meter was given it.
    pub interface: u16,
    /// When the first packet of the flow came: before `first` of the sides in the records after an active timeout.
    pub flow_start: Timestamp,
    /// Records of this flow before this one.
    pub record_index: u32,
    /// From source to destination, and back (all zero in unidirectional metering).
    pub directions: [DirectionStats; 2],
    /// Why now.
    pub end_reason: EndReason,
    /// How far TCP got.
    pub tcp_state: TcpState,
    /// Nanoseconds from SYN to SYN+ACK.
    pub syn_rtt: Option<u64>,
    /// And from SYN+ACK to the ACK.
    pub ack_rtt: Option<u64>,
    /// The first packets, in the first record of the flow.
    pub initial_packets: Vec<InitialPacket>,
    /// The first bytes carried, by direction, in the first record, where the meter was asked to keep them.
    pub payload: [Vec<u8>; 2],
    /// Where the packets are.
    pub location: Option<PacketLocation>,
    /// Packets that the interface lost in the seconds of this record, and whether that is all that is known to be lost.
    pub lost: u64,
}

impl Record {
    /// When its first packet came.
    pub fn first(&self) -> Timestamp {
        match self.directions {
            [a, b] if b.packets == 0 => a.first,
            [a, b] if a.packets == 0 => b.first,
            [a, b] => a.first.min(b.first),
        }
    }

    /// When its last packet came.
    pub fn last(&self) -> Timestamp {
        self.directions[0].last.max(self.directions[1].last)
    }

    /// What decides, among records that are made in the same second of packet time, which comes first.
    pub(crate) fn order(&self) -> (Timestamp, u64, u64) {
        (self.last(), self.id, self.location.map_or(u64::MAX, |l| l.first))
    }

    /// Packets of both directions. A record of the network may claim any number, so the sum ends at the largest.
    pub fn packets(&self) -> u64 {
        self.directions[0].packets.saturating_add(self.directions[1].packets)
    }

    /// Bytes of the frames of both directions, at most the largest number.
    pub fn bytes(&self) -> u64 {
        self.directions[0].bytes.saturating_add(self.directions[1].bytes)
    }
}

/// Who takes records. The table lends each one; it is overwritten afterwards.
pub trait Sink {
    /// One record.
    fn record(&mut self, record: &Record);

    /// The records that follow, until the next call, were due when this second of packet time came. Only who puts the
    /// records of several meters together needs to know ([`crate::ShardMerger`]).
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
        // Beyond 128 bits: a year between packets, twice.
        let year = 31_536_000_000_000_000;
        let wide = deviation(&[0, year, 0, year]);
        assert!((wide / (year as f64 / 3_f64.sqrt()) - 1.0).abs() < 1e-9, "{wide}");
    }

    #[test]
    fn sums_of_what_a_record_claims_end_at_the_largest_number() {
        let mut record = crate::sample::any_record(&mut base::Prng::new(1));
        for side in &mut record.directions {
            (side.packets, side.bytes) = (1 << 63, u64::MAX);
        }
        assert_eq!((record.packets(), record.bytes()), (u64::MAX, u64::MAX));
    }
}
