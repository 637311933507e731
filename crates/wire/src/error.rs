//! Why a header view cannot be had.

use std::fmt;

/// The header that a [`ParseError`] speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the protocols")]
pub enum Layer {
    Ethernet,
    Vlan,
    Mpls,
    Arp,
    Ipv4,
    Ipv6,
    Tcp,
    Udp,
    Sctp,
    Icmp,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ethernet => "Ethernet",
            Self::Vlan => "VLAN",
            Self::Mpls => "MPLS",
            Self::Arp => "ARP",
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
            Self::Icmp => "ICMP",
        })
    }
}

/// What is wrong with a header, and where. Offsets count from the first byte of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// The captured bytes end before the header does.
    TooShort {
        /// Which header.
        layer: Layer,
        /// Where it begins.
        offset: usize,
        /// Bytes it needs.
        need: usize,
        /// Bytes there are from `offset` on.
        have: usize,
    },
    /// A field has a value that no such header can have.
    Contradiction {
        /// Which header.
        layer: Layer,
        /// Where it begins.
        offset: usize,
        /// The field, by the name its RFC gives.
        field: &'static str,
        /// What it says.
        value: u32,
        /// The smallest value it may have; for the version, the only one.
        least: u32,
    },
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort { layer, offset, need, have } => {
                write!(f, "{layer} header at byte {offset} needs {need} bytes, frame has {have}")
            }
            Self::Contradiction { layer, offset, field, value, least } => {
                write!(f, "{layer} header at byte {offset}: {field} is {value}, must be at least {least}")
            }
        }
    }
}

impl std::error::Error for ParseError {}

/// The first `N` bytes of the header at `offset`, and everything after them.
pub fn take<const N: usize>(frame: &[u8], offset: usize, layer: Layer) -> Result<(&[u8; N], &[u8]), ParseError> {
    let from = frame.get(offset..).unwrap_or_default();
    from.split_first_chunk().ok_or(ParseError::TooShort { layer, offset, need: N, have: from.len() })
}
