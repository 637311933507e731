//! Writes the mapped addresses into IP packets, ARP messages, and the packets that ICMP errors quote, and updates the
//! checksums that cover the addresses (RFC 1624).

use super::Position;
use super::addresses::{AddressMapper, Width};
use wire::{Arp, Checksum, Family, Fragment, Headers, IpProtocol, Ipv4, Ipv6, Udp, update_checksum};

/// Fields of an IPv4 header (RFC 791).
pub(super) mod v4 {
    use std::ops::Range;

    pub const TOTAL_LEN: usize = 2;
    pub const FRAGMENT: usize = 6;
    pub const PROTOCOL: usize = 9;
    pub const CHECKSUM: usize = 10;
    pub const ADDRESSES: Range<usize> = 12..20;
    pub const OFFSET_MASK: u16 = 0x1fff;
}

/// Fields of an IPv6 header (RFC 8200).
pub(super) mod v6 {
    use std::ops::Range;

    pub const PAYLOAD_LEN: usize = 4;
    pub const NEXT: usize = 6;
    pub const ADDRESSES: Range<usize> = 8..40;
    /// Within a routing header: the number of segments left.
    pub const SEGMENTS_LEFT: usize = 3;
}

/// Fields of an ARP message for MAC and IPv4 addresses (RFC 826).
mod arp_at {
    pub const SENDER: usize = 14;
    pub const TARGET: usize = 24;
}

/// Length of an ICMP header.
const ICMP: usize = 8;

/// Offset of the checksum in the transport header, if the checksum covers the addresses of the IP header.
pub(super) fn checksum_offset(family: Family, protocol: IpProtocol) -> Option<usize> {
    match protocol {
        IpProtocol::TCP => Some(16),
        IpProtocol::UDP | IpProtocol::UDP_LITE | IpProtocol::DCCP => Some(6),
        IpProtocol::ICMPV6 if family == Family::V6 => Some(2),
        _ => None,
    }
}

/// Maps the addresses of an ARP message; false if it is no ARP message for MAC and IPv4 addresses.
pub(super) fn arp(frame: &mut [u8], headers: &Headers, mapper: &AddressMapper, position: Position) -> bool {
    const KIND: [u8; 6] = [0, 1, 8, 0, 6, 4];
    let message = &mut frame[usize::from(headers.l3())..];
    if headers.l3() == 0 || message.len() < Arp::LEN || message[..KIND.len()] != KIND {
        return false;
    }
    let pair = [number(&message[arp_at::SENDER..][..4]), number(&message[arp_at::TARGET..][..4])];
    let [sender, target] = mapper.coherent(Width::V4, pair, position);
    message[arp_at::SENDER..][..4].copy_from_slice(&sender.to_be_bytes()[12..]);
    message[arp_at::TARGET..][..4].copy_from_slice(&target.to_be_bytes()[12..]);
    true
}

/// Maps the addresses of an IP packet; false if the frame has no complete IP header.
pub(super) fn ip(frame: &mut [u8], headers: &Headers, mapper: &AddressMapper, position: Position) -> bool {
    let (l3, l4) = (usize::from(headers.l3()), usize::from(headers.l4()));
    let quoted_pair = quoted_pair(frame, headers);
    let map = |width, pair| mapper.packet(width, pair, quoted_pair.unwrap_or(pair), position);
    let Some(change) = Change::make(&mut frame[l3..], headers.family(), map) else { return false };
    if l4 == 0 {
        return true;
    }
    let protocol = headers.protocol().unwrap_or_default();
    let is_source_routed = headers.family() == Family::V6 && has_segments_left(&frame[l3..l4]);
    change.update_transport(&mut frame[l4..], protocol, is_source_routed);
    if is_icmp_error(frame, headers) {
        let map = |width, pair| mapper.coherent(width, pair, position);
        quoted(&mut frame[l4..], headers.family(), map);
    }
    true
}

/// True for ICMP messages that quote the packet that caused them (RFC 792, RFC 4443).
fn is_icmp_error(frame: &[u8], headers: &Headers) -> bool {
    let l4 = usize::from(headers.l4());
    let Some(kind) = frame.get(l4).filter(|_| l4 > 0 && headers.fragment() != Fragment::Later) else { return false };
    match (headers.family(), headers.protocol()) {
        (Family::V4, Some(IpProtocol::ICMP)) => matches!(kind, 3 | 4 | 5 | 11 | 12),
        (Family::V6, Some(IpProtocol::ICMPV6)) => matches!(kind, 1..=4),
        _ => false,
    }
}

/// The addresses of the packet that an ICMP error quotes; `None` if the frame is no ICMP error, or if the header of the
/// quoted packet was not captured.
fn quoted_pair(frame: &[u8], headers: &Headers) -> Option<[u128; 2]> {
    if !is_icmp_error(frame, headers) {
        return None;
    }
    let packet = frame.get(usize::from(headers.l4()) + ICMP..)?;
    let (range, len, version) = match headers.family() {
        Family::V4 => (v4::ADDRESSES, 4, 4),
        _ => (v6::ADDRESSES, 16, 6),
    };
    let addresses = packet.get(range).filter(|_| packet[0] >> 4 == version)?;
    Some([number(&addresses[..len]), number(&addresses[len..])])
}

/// Maps the addresses of the packet that an ICMP error quotes, and updates its checksums and that of the ICMP message.
fn quoted(message: &mut [u8], family: Family, map: impl Fn(Width, [u128; 2]) -> [u128; 2]) {
    /// Number of quoted bytes that can change: at most an IPv4 header of 60 bytes, which is longer than an IPv6 header,
    /// and a TCP header of 20 bytes.
    const CHANGED: usize = 80;
    let Some((head, packet)) = message.split_at_mut_checked(ICMP) else { return };
    let end = packet.len().min(CHANGED);
    let before = Checksum::new().bytes(&packet[..end]);
    let header = match family {
        Family::V4 if packet.first().is_some_and(|first| first >> 4 == 4) => usize::from(packet[0] & 15) * 4,
        Family::V6 if packet.first().is_some_and(|first| first >> 4 == 6) => Ipv6::LEN,
        _ => return,
    };
    if packet.len() < header {
        return;
    }
    let Some(change) = Change::make(packet, family, map) else { return };
    let (protocol, is_first) = match family {
        Family::V6 => (packet[v6::NEXT], true),
        _ => (packet[v4::PROTOCOL], number(&packet[v4::FRAGMENT..][..2]) as u16 & v4::OFFSET_MASK == 0),
    };
    if is_first {
        change.update_transport(&mut packet[header..], IpProtocol(protocol), false);
    }
    correct(head, 2, before, Checksum::new().bytes(&packet[..end]));
}

/// The change of the addresses of one IP header, as checksums of both addresses before and after the change.
struct Change {
    family: Family,
    before: Checksum,
    after: Checksum,
    /// The checksums of the source address alone, before and after the change.
    source: [Checksum; 2],
}

impl Change {
    /// Maps the addresses in an IP header and updates the header checksum of IPv4; `None` if the header is not
    /// complete.
    fn make(packet: &mut [u8], family: Family, map: impl Fn(Width, [u128; 2]) -> [u128; 2]) -> Option<Self> {
        let (width, range, len) = match family {
            Family::V4 if packet.len() >= Ipv4::LEN => (Width::V4, v4::ADDRESSES, 4),
            Family::V6 if packet.len() >= Ipv6::LEN => (Width::V6, v6::ADDRESSES, 16),
            _ => return None,
        };
        let sums = |addresses: &[u8]| (Checksum::new().bytes(addresses), Checksum::new().bytes(&addresses[..len]));
        let field = &mut packet[range];
        let (before, source_before) = sums(field);
        let new = map(width, [number(&field[..len]), number(&field[len..])]);
        for (place, address) in field.chunks_exact_mut(len).zip(new) {
            place.copy_from_slice(&address.to_be_bytes()[16 - len..]);
        }
        let (after, source_after) = sums(field);
        if family == Family::V4 {
            correct(packet, v4::CHECKSUM, before, after);
        }
        Some(Self { family, before, after, source: [source_before, source_after] })
    }

    /// Updates the checksum of a transport header. In a source-routed packet, the checksum covers the address of the
    /// final destination, which is not in the IP header and does not change.
    fn update_transport(&self, segment: &mut [u8], protocol: IpProtocol, is_source_routed: bool) {
        let Some(at) = checksum_offset(self.family, protocol) else { return };
        let has_none = protocol == IpProtocol::UDP && segment.get(at..at + 2) == Some(&[0, 0]);
        if has_none {
            return;
        }
        let [before, after] = if is_source_routed { self.source } else { [self.before, self.after] };
        correct(segment, at, before, after);
        // In UDP, a checksum field of 0 means that the packet has no checksum, so a computed checksum of 0 is written
        // as 0xffff.
        if protocol == IpProtocol::UDP && segment.len() >= Udp::LEN && segment[at..at + 2] == [0, 0] {
            segment[at..at + 2].fill(0xff);
        }
    }
}

/// True if a routing header (RFC 8200 §4.4) in these IPv6 headers has segments left.
pub(super) fn has_segments_left(headers: &[u8]) -> bool {
    let Some(mut next) = headers.get(v6::NEXT).copied().map(IpProtocol) else { return false };
    let mut rest = headers.get(Ipv6::LEN..).unwrap_or_default();
    while let [following, len, ..] = *rest {
        if next == IpProtocol::ROUTING {
            return rest.get(v6::SEGMENTS_LEFT).is_some_and(|left| *left > 0);
        }
        let len = match next {
            IpProtocol::FRAGMENT => 8,
            IpProtocol::AH => (usize::from(len) + 2) * 4,
            _ => (usize::from(len) + 1) * 8,
        };
        next = IpProtocol(following);
        rest = rest.get(len..).unwrap_or_default();
    }
    false
}

/// Updates the checksum at `at` for the change of the bytes that it covers; does nothing if the checksum was not
/// captured.
fn correct(bytes: &mut [u8], at: usize, before: Checksum, after: Checksum) {
    let Some(field) = bytes.get_mut(at..at + 2) else { return };
    let (before, after) = (!before.finish(), !after.finish());
    if before != after {
        let new = update_checksum(u16::from_be_bytes([field[0], field[1]]), before, after);
        field.copy_from_slice(&new.to_be_bytes());
    }
}

/// At most 16 bytes as a number.
fn number(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |number, byte| number << 8 | u128::from(*byte))
}
