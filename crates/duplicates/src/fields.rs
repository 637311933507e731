//! The headers of a compared region: their kind, and the offsets of the fields that copies may change.

use wire::IpProtocol;

/// What the region contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An IPv4 packet.
    V4,
    /// An IPv6 packet.
    V6,
    /// The payload of another protocol, or of a malformed packet.
    #[default]
    Other,
}

/// Offsets in an IPv4 header.
pub(crate) mod v4 {
    pub const TOS: usize = 1;
    pub const ID: usize = 4;
    pub const FLAGS: usize = 6;
    pub const TTL: usize = 8;
    pub const PROTOCOL: usize = 9;
    pub const CHECKSUM: usize = 10;
    pub const SRC: usize = 12;
    pub const DST: usize = 16;
    pub const END: usize = 20;
    /// "Don't fragment", in the byte at `FLAGS`.
    pub const DONT_FRAGMENT: u8 = 0x40;
}

/// Offsets in an IPv6 header.
pub(crate) mod v6 {
    pub const NEXT: usize = 6;
    pub const HOPS: usize = 7;
    pub const SRC: usize = 8;
    pub const DST: usize = 24;
    pub const END: usize = 40;
}

/// Offsets in a TCP header.
pub(crate) mod tcp {
    pub const SEQUENCE: usize = 4;
    pub const ACKNOWLEDGED: usize = 8;
    pub const OFFSET: usize = 12;
    pub const FLAGS: usize = 13;
    pub const CHECKSUM: usize = 16;
    pub const END: usize = 18;
}

/// Bytes of both ports.
pub(crate) const PORTS: usize = 4;
const UDP_CHECKSUM: usize = 6;
const ICMP_CHECKSUM: usize = 2;
/// The identifier of a query, in an ICMP header.
pub(crate) const QUERY_ID: std::ops::Range<usize> = 4..6;

/// True for the types of ICMP whose header contains the identifier of a query: echo and its reply.
pub(crate) fn is_query(protocol: IpProtocol, icmp_type: u8) -> bool {
    match protocol {
        IpProtocol::ICMP => matches!(icmp_type, 0 | 8),
        IpProtocol::ICMPV6 => matches!(icmp_type, 128 | 129),
        _ => false,
    }
}

/// The number of bytes of the ports, and the offset of the checksum, of a transport protocol that the class NAT knows.
pub(crate) fn translated_fields(protocol: IpProtocol) -> Option<(usize, usize)> {
    match protocol {
        IpProtocol::TCP => Some((PORTS, tcp::CHECKSUM)),
        IpProtocol::UDP => Some((PORTS, UDP_CHECKSUM)),
        IpProtocol::ICMP | IpProtocol::ICMPV6 => Some((0, ICMP_CHECKSUM)),
        _ => None,
    }
}
