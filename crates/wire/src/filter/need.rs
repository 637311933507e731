//! What a frame must have if a filter is to match it, as far as an index of keys can know: the filter without whatever no
//! index holds. It may ask for less than the filter, never for more.

use std::net::IpAddr;

/// Necessary conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// None: any frame may match.
    Anything,
    /// This address, as source or destination (of ARP too).
    Host(IpAddr),
    /// An address within this prefix.
    Net(IpAddr, u8),
    /// A port within these two, as source or destination.
    Ports(u16, u16),
    /// This IP protocol (the last one of IPv6's headers).
    Protocol(u8),
    /// A VLAN tag; with this id, if one is given.
    Vlan(Option<u16>),
    /// This conversation: protocol and both ends.
    Flow(u8, (IpAddr, u16), (IpAddr, u16)),
    /// Each of these.
    All(Vec<Need>),
    /// One of these; none can match if there is none.
    Any(Vec<Need>),
}
