//! A row of a time series: the counters of one second of one direction of one interface.

use crate::TimestampCounters;
use base::Tally;

/// The direction of packets relative to the host. On a mirror port all packets are [`Direction::In`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Direction {
    /// Received.
    #[default]
    In = 0,
    /// Sent by this host.
    Out = 1,
}

impl Direction {
    /// Both directions.
    pub const ALL: [Self; 2] = [Self::In, Self::Out];

    /// `in` or `out`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
        }
    }
}

/// A number of packets, and the sum of their bytes on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// Number of packets.
    pub packets: u64,
    /// Number of bytes on the wire.
    pub bytes: u64,
}

/// The traffic class in which a packet is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum TrafficClass {
    /// TCP.
    Tcp = 0,
    /// UDP.
    Udp,
    /// ICMP and ICMPv6.
    Icmp,
    /// SCTP.
    Sctp,
    /// Any other protocol above IP.
    OtherIp,
    /// ARP.
    Arp,
    /// Any packet that is neither IP nor ARP.
    Other,
}

impl TrafficClass {
    /// Number of classes.
    pub const COUNT: usize = 7;
    /// All traffic classes, in the order of their numbers.
    pub const ALL: [Self; Self::COUNT] =
        [Self::Tcp, Self::Udp, Self::Icmp, Self::Sctp, Self::OtherIp, Self::Arp, Self::Other];

    /// The name of the class: the prefix of the names of its quantities.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Icmp => "icmp",
            Self::Sctp => "sctp",
            Self::OtherIp => "other_ip",
            Self::Arp => "arp",
            Self::Other => "other",
        }
    }

    /// A description for people.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Tcp => "TCP packets",
            Self::Udp => "UDP packets",
            Self::Icmp => "ICMP and ICMPv6 packets",
            Self::Sctp => "SCTP packets",
            Self::OtherIp => "IP packets of protocols other than TCP, UDP, SCTP, ICMP and ICMPv6",
            Self::Arp => "ARP packets",
            Self::Other => "all other packets",
        }
    }
}

/// Upper bounds (inclusive, bytes of the frame without FCS) of the size classes; the last class has no upper
/// bound. The bounds are those of the etherStats group of RFC 2819, less the 4 bytes of the FCS.
pub const SIZE_BOUNDS: [u32; 6] = [60, 123, 251, 507, 1019, 1514];

/// Number of size classes.
pub const SIZES: usize = SIZE_BOUNDS.len() + 1;

/// The largest volume within any bin of 1 ms (or 10 ms). The first bin begins with the second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// The largest number of bytes in a bin.
    pub bytes: u64,
    /// The largest number of packets in a bin, which may be another bin than that of `bytes`.
    pub packets: u64,
}

/// The counters of one second, direction and interface. A second without packets is a row of zeros; a second that was
/// not observed has no row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Seconds since 1970 (UTC).
    pub second: u64,
    /// The number of the interface, as passed to the meter.
    pub interface: u16,
    /// The direction of the counted packets.
    pub direction: Direction,
    /// All packets.
    pub total: Volume,
    /// Volume by traffic class.
    pub classes: [Volume; TrafficClass::COUNT],
    /// Number of packets in each size class.
    pub sizes: [u64; SIZES],
    /// Volume of IPv6.
    pub ipv6: Volume,
    /// Number of TCP packets with SYN and without ACK.
    pub syn: u64,
    /// Number of TCP packets with SYN and ACK.
    pub syn_ack: u64,
    /// Number of TCP packets with FIN.
    pub fin: u64,
    /// Number of TCP packets with RST.
    pub rst: u64,
    /// Number of flows in the flow table at the end of the second. The row of [`Direction::In`] has the number for both
    /// directions.
    pub flows_active: u64,
    /// Number of flows that began in the second. The row of [`Direction::In`] has the number for both directions.
    pub flows_new: u64,
    /// Number of flows that ended in the second. The row of [`Direction::In`] has the number for both directions.
    pub flows_ended: u64,
    /// Estimated number of distinct source addresses.
    pub sources: u64,
    /// Estimated number of distinct destination addresses.
    pub destinations: u64,
    /// The largest volume within 1 ms of the second.
    pub peak_1ms: Peak,
    /// The largest volume within 10 ms of the second.
    pub peak_10ms: Peak,
    /// Number of sequence numbers of tunnels (ERSPAN, GRE, GTP-U) that arrived in the second. The row of
    /// [`Direction::In`] has the number for both directions.
    pub tunnel_numbered: u64,
    /// Number of sequence numbers of tunnels that were skipped in the second. The row of [`Direction::In`] has the
    /// number for both directions.
    pub tunnel_missing: u64,
    /// Number of sequence numbers of tunnels that arrived in the second after higher numbers. The row of
    /// [`Direction::In`] has the number for both directions.
    pub tunnel_late: u64,
    /// Stored packets that the engine marked as copies of earlier packets. No other volume of the row contains them.
    pub duplicate: Volume,
    /// The number of packets that the source offered, by outcome. The row of [`Direction::In`] has the numbers for both
    /// directions.
    pub ledger: Tally,
    /// The quality of the timestamps. The row of [`Direction::In`] has the numbers for both directions.
    pub timestamps: TimestampCounters,
}
