//! Defines the tests of a filter that the word `anylink` modifies. They apply to the packet that [`wire::Headers`]
//! finds inside all VLAN tags, MPLS labels, pseudowires and PPPoE sessions, and to the transport protocol behind all
//! extension headers. If the header that a test reads is absent, the test is false; unlike tests without `anylink`, it
//! does not reject the whole frame.

use crate::tree::{AddressProtocol, Dir, Version};
use wire::{EtherType, Family, Headers, IpProtocol};

/// A test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AnyLinkTest {
    /// Tests the ethertype inside all VLAN tags, MPLS labels and PPPoE sessions.
    EtherType(u16),
    /// Tests for a VLAN tag with this ID; with any ID if `None`. The tag is in the outermost Ethernet header that has
    /// tags, or in the innermost Ethernet header.
    Vlan(Option<u16>),
    /// Tests for a complete IP header of this version.
    Version(Version),
    /// Tests the protocol of the IP packet, behind all extension headers.
    Protocol(Option<Version>, u8),
    /// Tests for an IPv4 address. With `within: None` the address may be in an IPv4, an ARP or a reverse ARP header.
    Address4 {
        /// The protocol whose header contains the address.
        within: Option<AddressProtocol>,
        /// The endpoint.
        dir: Dir,
        /// The address.
        address: u32,
        /// The mask.
        mask: u32,
    },
    /// Tests for an IPv6 address.
    Address6 {
        /// The endpoint.
        dir: Dir,
        /// The address.
        address: u128,
        /// The mask.
        mask: u128,
    },
    /// Tests for a port of this protocol; with `of: None`, of TCP, UDP or SCTP.
    Ports {
        /// The protocol.
        of: Option<u8>,
        /// The endpoint.
        dir: Dir,
        /// The lowest port.
        low: u16,
        /// The highest port.
        high: u16,
    },
}

impl AnyLinkTest {
    /// True if the test holds for a frame with these headers.
    pub fn holds(&self, frame: &[u8], headers: &Headers) -> bool {
        let l3 = usize::from(headers.l3());
        match *self {
            Self::EtherType(ethertype) => headers.ethertype().0 == ethertype,
            Self::Vlan(None) => headers.vlan().is_some(),
            Self::Vlan(Some(id)) => headers.vlans(frame).any(|tag| tag == id),
            Self::Version(version) => headers.family() == family(version),
            Self::Protocol(version, protocol) => {
                headers.protocol() == Some(IpProtocol(protocol))
                    && version.is_none_or(|version| headers.family() == family(version))
            }
            Self::Address4 { within, dir, address, mask } => {
                let of = |src: usize, dst: usize| {
                    let read = |at| chunk(frame, at).map(u32::from_be_bytes);
                    match (read(l3 + src), read(l3 + dst)) {
                        (Some(src), Some(dst)) => dir.holds(src, dst, |a| a & mask == address),
                        _ => false,
                    }
                };
                match headers.ethertype() {
                    _ if headers.family() == Family::V4 => {
                        matches!(within, None | Some(AddressProtocol::Ip)) && of(12, 16)
                    }
                    EtherType::ARP => l3 > 0 && matches!(within, None | Some(AddressProtocol::Arp)) && of(14, 24),
                    EtherType::RARP => l3 > 0 && matches!(within, None | Some(AddressProtocol::Rarp)) && of(14, 24),
                    _ => false,
                }
            }
            Self::Address6 { dir, address, mask } => {
                let read = |at| chunk(frame, at).map(u128::from_be_bytes);
                match (read(l3 + 8), read(l3 + 24)) {
                    (Some(src), Some(dst)) if headers.family() == Family::V6 => {
                        dir.holds(src, dst, |a| a & mask == address)
                    }
                    _ => false,
                }
            }
            Self::Ports { of, dir, low, high } => {
                let l4 = usize::from(headers.l4());
                let Some(protocol) = headers.protocol().filter(|_| l4 > 0) else { return false };
                let has = of.map_or(matches!(protocol.0, 6 | 17 | 132), |of| protocol.0 == of);
                let read = |at| chunk(frame, at).map(u16::from_be_bytes);
                match (read(l4), read(l4 + 2)) {
                    (Some(src), Some(dst)) if has => dir.holds(src, dst, |p| (low..=high).contains(&p)),
                    _ => false,
                }
            }
        }
    }
}

const fn family(version: Version) -> Family {
    match version {
        Version::V4 => Family::V4,
        Version::V6 => Family::V6,
    }
}

/// The `N` bytes at an offset of the frame; `None` if they were not captured.
#[inline]
pub fn chunk<const N: usize>(frame: &[u8], at: usize) -> Option<[u8; N]> {
    frame.get(at..)?.first_chunk().copied()
}
