//! The error type of the header views.

use std::fmt;

/// The header in which a [`ParseError`] occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant is named after a protocol")]
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

/// A truncated or malformed header, with its position. Offsets count from the first byte of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// The captured bytes end before the end of the header.
    TooShort {
        /// The header.
        layer: Layer,
        /// Offset of the first byte of the header.
        offset: usize,
        /// Length of the header in bytes.
        need: usize,
        /// Captured bytes from `offset` on.
        have: usize,
    },
    /// A field has an invalid value.
    Contradiction {
        /// The header.
        layer: Layer,
        /// Offset of the first byte of the header.
        offset: usize,
        /// The name of the field in its RFC.
        field: &'static str,
        /// The value of the field.
        value: u32,
        /// The smallest valid value of the field; for the version, the only valid value.
        least: u32,
    },
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort { layer, offset, need, have } => {
                write!(f, "{layer} header at byte {offset} needs {need} bytes, frame has {have}")
            }
            Self::Contradiction { layer, offset, field: "version", value, least } => {
                write!(f, "{layer} header at byte {offset}: version is {value}, must be {least}")
            }
            Self::Contradiction { layer, offset, field, value, least } => {
                write!(f, "{layer} header at byte {offset}: {field} is {value}, must be at least {least}")
            }
        }
    }
}

impl std::error::Error for ParseError {}

/// The first `N` bytes of the header at `offset`, and all bytes after them.
pub fn take<const N: usize>(frame: &[u8], offset: usize, layer: Layer) -> Result<(&[u8; N], &[u8]), ParseError> {
    let from = frame.get(offset..).unwrap_or_default();
    from.split_first_chunk().ok_or(ParseError::TooShort { layer, offset, need: N, have: from.len() })
}
