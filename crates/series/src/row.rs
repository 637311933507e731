//! One second of one direction of one interface.

use base::Tally;

/// Which way packets went, as the host sees its port. A mirror port has everything coming in.
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
    /// Both.
    pub const ALL: [Self; 2] = [Self::In, Self::Out];

    /// `in` or `out`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
        }
    }
}

/// Packets and their bytes on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// Packets.
    pub packets: u64,
    /// Bytes on the wire.
    pub bytes: u64,
}

/// What a packet is counted as.
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
    /// Anything else.
    Other,
}

impl TrafficClass {
    /// How many there are.
    pub const COUNT: usize = 7;
    /// All, in the order of their numbers.
    pub const ALL: [Self; Self::COUNT] =
        [Self::Tcp, Self::Udp, Self::Icmp, Self::Sctp, Self::OtherIp, Self::Arp, Self::Other];

    /// Its name, which begins those of its quantities.
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

    /// What it is.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Icmp => "ICMP and ICMPv6",
            Self::Sctp => "SCTP",
            Self::OtherIp => "any other protocol above IP",
            Self::Arp => "ARP",
            Self::Other => "anything else",
        }
    }
}

/// Upper bounds (inclusive, bytes of the frame without FCS) of the size classes; the last class is everything above.
/// Those of RFC 2819's etherStats, less the 4 bytes of the FCS.
pub const SIZE_BOUNDS: [u32; 6] = [60, 123, 251, 507, 1019, 1514];

/// How many size classes there are.
pub const SIZES: usize = SIZE_BOUNDS.len() + 1;

/// The most that passed in any 1 ms (or 10 ms) of the second, bins counted from its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// Of bytes.
    pub bytes: u64,
    /// Of packets, possibly in another bin.
    pub packets: u64,
}

/// See the module. A second without a packet is a row of zeros; a second of which nothing is known has no row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Seconds since 1970 (UTC).
    pub second: u64,
    /// Number of the interface, as the meter was given it.
    pub interface: u16,
    /// Which way.
    pub direction: Direction,
    /// All packets.
    pub total: Volume,
    /// By what they are.
    pub classes: [Volume; TrafficClass::COUNT],
    /// Packets by size class.
    pub sizes: [u64; SIZES],
    /// IPv6 among them.
    pub ipv6: Volume,
    /// TCP packets with SYN (and no ACK), with SYN and ACK, FIN, RST.
    pub syn: u64,
    /// SYN and ACK.
    pub syn_ack: u64,
    /// FIN.
    pub fin: u64,
    /// RST.
    pub rst: u64,
    /// Flows that are in the table as the second ends; of both directions, told with [`Direction::In`].
    pub flows_active: u64,
    /// Flows that began in it; the same.
    pub flows_new: u64,
    /// Flows that ended in it; the same.
    pub flows_ended: u64,
    /// Distinct source addresses, estimated.
    pub sources: u64,
    /// Distinct destination addresses, estimated.
    pub destinations: u64,
    /// The busiest millisecond.
    pub peak_1ms: Peak,
    /// The busiest ten milliseconds.
    pub peak_10ms: Peak,
    /// Numbers that tunnels gave their packets (ERSPAN, GRE, GTP-U) and that were seen in it; the same.
    pub tunnel_numbered: u64,
    /// Numbers that were passed over in it; the same.
    pub tunnel_missing: u64,
    /// Numbers that came in it behind later ones; the same.
    pub tunnel_late: u64,
    /// What became of the packets that were offered; of both directions, told with [`Direction::In`].
    pub ledger: Tally,
}
