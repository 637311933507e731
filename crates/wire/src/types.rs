//! Types for the numbers in protocol headers, so that the compiler distinguishes ports from protocols; and the type of
//! the fragmentation state.
//!
//! The values are those of IANA "Protocol Numbers" and of the IEEE 802 ethertypes. A value without a name is valid and
//! prints as its number.

use std::fmt;
use std::str::FromStr;

/// An ethertype; below 1536 it is the length of an IEEE 802.3 frame instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EtherType(pub u16);

#[allow(missing_docs, reason = "each constant is named after a protocol")]
impl EtherType {
    pub const IPV4: Self = Self(0x0800);
    pub const ARP: Self = Self(0x0806);
    pub const RARP: Self = Self(0x8035);
    pub const VLAN: Self = Self(0x8100);
    pub const IPV6: Self = Self(0x86dd);
    pub const MPLS: Self = Self(0x8847);
    pub const MPLS_MULTICAST: Self = Self(0x8848);
    /// Service tag of IEEE 802.1ad.
    pub const QINQ: Self = Self(0x88a8);
    /// Outer tag of bridges older than IEEE 802.1ad.
    pub const QINQ_OLD: Self = Self(0x9100);
    /// A PPPoE session (RFC 2516).
    pub const PPPOE: Self = Self(0x8864);
    /// Ethernet in GRE or GENEVE ("transparent Ethernet bridging", RFC 1701).
    pub const BRIDGED: Self = Self(0x6558);
    /// PPP in GRE (RFC 2637).
    pub const PPP: Self = Self(0x880b);
    /// ERSPAN types I and II in GRE.
    pub const ERSPAN: Self = Self(0x88be);
    /// ERSPAN type III in GRE.
    pub const ERSPAN3: Self = Self(0x22eb);
    /// IEEE 802 "local experimental 1": [`crate::build`] writes it into frames that are too short for their headers.
    pub const EXPERIMENTAL: Self = Self(0x88b5);

    /// True if a VLAN tag follows a header with this ethertype.
    #[inline]
    pub const fn is_vlan(self) -> bool {
        matches!(self, Self::VLAN | Self::QINQ | Self::QINQ_OLD)
    }

    /// True for the length of an IEEE 802.3 frame, after which an IEEE 802.2 header follows; also for the number 4 that
    /// Linux "cooked" captures give such frames.
    #[inline]
    pub const fn is_length(self) -> bool {
        self.0 >= 3 && self.0 < 1536
    }

    /// True if an MPLS label follows a header with this ethertype.
    #[inline]
    pub const fn is_mpls(self) -> bool {
        matches!(self, Self::MPLS | Self::MPLS_MULTICAST)
    }
}

impl fmt::Display for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::IPV4 => f.write_str("ip"),
            Self::ARP => f.write_str("arp"),
            Self::IPV6 => f.write_str("ip6"),
            Self(n) => write!(f, "{n:#06x}"),
        }
    }
}

/// The protocol above IP, or the next header of IPv6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpProtocol(pub u8);

#[allow(missing_docs, reason = "each constant is named after a protocol")]
impl IpProtocol {
    pub const HOP_BY_HOP: Self = Self(0);
    pub const ICMP: Self = Self(1);
    pub const IGMP: Self = Self(2);
    /// IPv4 in IP (RFC 2003).
    pub const IPV4: Self = Self(4);
    pub const TCP: Self = Self(6);
    pub const UDP: Self = Self(17);
    pub const DCCP: Self = Self(33);
    /// IPv6 in IP (RFC 2473, 4213).
    pub const IPV6: Self = Self(41);
    pub const ROUTING: Self = Self(43);
    pub const FRAGMENT: Self = Self(44);
    pub const GRE: Self = Self(47);
    pub const ESP: Self = Self(50);
    pub const AH: Self = Self(51);
    pub const ICMPV6: Self = Self(58);
    /// IPv6: no next header.
    pub const NONE: Self = Self(59);
    pub const DEST_OPTIONS: Self = Self(60);
    pub const SCTP: Self = Self(132);
    /// IPv6 mobility (RFC 6275). IANA lists mobility, HIP and Shim6 as extension headers, although no header follows
    /// them.
    pub const MOBILITY: Self = Self(135);
    pub const UDP_LITE: Self = Self(136);
    pub const HIP: Self = Self(139);
    pub const SHIM6: Self = Self(140);

    const NAMES: [(&'static str, Self); 10] = [
        ("icmp", Self::ICMP),
        ("igmp", Self::IGMP),
        ("tcp", Self::TCP),
        ("udp", Self::UDP),
        ("gre", Self::GRE),
        ("esp", Self::ESP),
        ("ah", Self::AH),
        ("icmp6", Self::ICMPV6),
        ("sctp", Self::SCTP),
        ("udplite", Self::UDP_LITE),
    ];

    /// True if the header begins with a source and a destination port of 16 bits each.
    #[inline]
    pub const fn has_ports(self) -> bool {
        matches!(self, Self::TCP | Self::UDP | Self::SCTP | Self::DCCP | Self::UDP_LITE)
    }

    /// True if another IPv6 header may follow, so that the parser continues.
    #[inline]
    pub const fn is_extension(self) -> bool {
        matches!(self, Self::HOP_BY_HOP | Self::ROUTING | Self::FRAGMENT | Self::AH | Self::DEST_OPTIONS)
            || matches!(self, Self::MOBILITY | Self::HIP | Self::SHIM6)
    }

    /// The protocol with this name in the filter language.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(n, _)| *n == name).map(|(_, p)| *p)
    }
}

impl fmt::Display for IpProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Self::NAMES.iter().find(|(_, p)| p == self) {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

/// A port of TCP, UDP, SCTP, DCCP or UDP-Lite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port(pub u16);

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A 48-bit link address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// The broadcast address.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// True for group addresses, broadcast included.
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 == 1
    }
}

/// `00:1b:21:0a:0b:0c`.
impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// Six bytes of one or two hexadecimal digits, all separated by `:` or all by `-`.
impl FromStr for MacAddr {
    type Err = ParseMacError;

    fn from_str(text: &str) -> Result<Self, ParseMacError> {
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut bytes = [0; 6];
        let mut parts = text.split(separator);
        for byte in &mut bytes {
            let part = parts.next().filter(|p| matches!(p.len(), 1 | 2) && !p.starts_with('+')).ok_or(ParseMacError)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| ParseMacError)?;
        }
        if parts.next().is_none() { Ok(Self(bytes)) } else { Err(ParseMacError) }
    }
}

/// The error for a text that is not a MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseMacError;

impl fmt::Display for ParseMacError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a link address: write 00:1b:21:0a:0b:0c")
    }
}

impl std::error::Error for ParseMacError {}

/// The fragmentation state of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fragment {
    /// The packet is a whole datagram.
    #[default]
    Whole,
    /// The first fragment, which has the transport header.
    First,
    /// A later fragment, which has no transport header.
    Later,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_address_has_six_bytes_of_two_digits() {
        for bad in ["", "1:2:3:4:5", "1:2:3:4:5:6:7", "1:2:3:4:5:100", "1:2:3:4:5:g", "1:2-3:4:5:6", "+1:2:3:4:5:6"] {
            assert_eq!(bad.parse::<MacAddr>(), Err(ParseMacError), "{bad}");
        }
        let mac: MacAddr = "0-1b-21-A-0b-0c".parse().unwrap();
        assert_eq!(mac.to_string(), "00:1b:21:0a:0b:0c");
        assert_eq!(mac.to_string().parse(), Ok(mac));
        assert!(MacAddr::BROADCAST.is_multicast() && !mac.is_multicast());
    }

    #[test]
    fn numbers_without_a_name_print_as_numbers() {
        assert_eq!(IpProtocol(253).to_string(), "253");
        assert_eq!(EtherType(0x88cc).to_string(), "0x88cc");
        for (name, protocol) in IpProtocol::NAMES {
            assert_eq!(IpProtocol::from_name(name), Some(protocol));
            assert_eq!(protocol.to_string(), name);
        }
    }
}
