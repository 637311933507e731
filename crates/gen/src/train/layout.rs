//! The layout of the frames of a train: Ethernet, IPv4 or IPv6, UDP, payload, filling.

use super::payload::PAYLOAD_LEN;
use std::net::SocketAddr;

/// Byte offsets of headers and fields.
pub mod at {
    use std::ops::Range;
    pub const DST_MAC: Range<usize> = 0..6;
    pub const SRC_MAC: Range<usize> = 6..12;
    pub const ETHERTYPE: Range<usize> = 12..14;
    /// The IP header.
    pub const IP: usize = 14;

    pub mod v4 {
        use std::ops::Range;
        pub const HEADER: Range<usize> = 14..34;
        pub const LEN: Range<usize> = 16..18;
        pub const FLAGS: usize = 20;
        pub const TTL: usize = 22;
        pub const PROTOCOL: usize = 23;
        pub const CHECKSUM: Range<usize> = 24..26;
        pub const ADDRESSES: Range<usize> = 26..34;
    }

    pub mod v6 {
        use std::ops::Range;
        pub const HEADER: Range<usize> = 14..54;
        pub const LEN: Range<usize> = 18..20;
        pub const NEXT_HEADER: usize = 20;
        pub const HOP_LIMIT: usize = 21;
        pub const ADDRESSES: Range<usize> = 22..54;
    }

    /// Fields of the UDP header, from its start.
    pub mod udp {
        use std::ops::Range;
        pub const SRC: Range<usize> = 0..2;
        pub const DST: Range<usize> = 2..4;
        pub const LEN: Range<usize> = 4..6;
        pub const CHECKSUM: Range<usize> = 6..8;
        pub const END: usize = 8;
    }
}

/// The offset of the UDP header of frames between addresses of this family.
pub(super) fn udp_offset(address: &SocketAddr) -> usize {
    if address.is_ipv4() { at::v4::HEADER.end } else { at::v6::HEADER.end }
}

/// The length of the shortest frame between addresses of this family.
pub(super) fn min_len(address: &SocketAddr) -> usize {
    udp_offset(address) + at::udp::END + PAYLOAD_LEN
}
