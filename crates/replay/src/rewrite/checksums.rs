//! Computes the checksums of IPv4, TCP, UDP and ICMP anew. A capture on the sending host contains packets before the
//! NIC computes their checksums (checksum offload), so these checksums are wrong.

use super::packet::{checksum_offset, has_segments_left, v4, v6};
use wire::{Checksum, Family, Fragment, Headers, IpProtocol, Ipv6};

/// Computes all checksums of the outermost IP packet. Returns false if the packet has a transport checksum that cannot
/// be computed, because the packet is a fragment, was not captured completely, or is source-routed. Frames without IP
/// have no checksums.
pub(super) fn fix(frame: &mut [u8], headers: &Headers) -> bool {
    let (l3, l4) = (usize::from(headers.l3()), usize::from(headers.l4()));
    let (header_len, addresses) = match headers.family() {
        Family::V4 => (usize::from(frame[l3] & 15) * 4, v4::ADDRESSES),
        Family::V6 => (Ipv6::LEN, v6::ADDRESSES),
        Family::Other => return true,
    };
    if headers.family() == Family::V4 {
        let Some(header) = frame.get_mut(l3..l3 + header_len).filter(|header| header.len() > v4::CHECKSUM) else {
            return false;
        };
        write(header, v4::CHECKSUM, Checksum::new());
    }
    let protocol = headers.protocol().unwrap_or_default();
    let is_icmp = headers.family() == Family::V4 && protocol == IpProtocol::ICMP;
    let offset = if is_icmp { Some(2) } else { checksum_offset(headers.family(), protocol) };
    // The checksum of UDP-Lite covers only a part of the packet, and that of DCCP may do so too. These checksums are
    // left unchanged.
    let computed = [IpProtocol::TCP, IpProtocol::UDP, IpProtocol::ICMP, IpProtocol::ICMPV6];
    let Some(at) = offset.filter(|_| computed.contains(&protocol)) else { return true };
    let packet_len = match headers.family() {
        Family::V4 => usize::from(be16(frame, l3 + v4::TOTAL_LEN)),
        _ => Ipv6::LEN + usize::from(be16(frame, l3 + v6::PAYLOAD_LEN)),
    };
    let end = l3 + packet_len;
    if l4 == 0 || headers.fragment() != Fragment::Whole || frame.len() < end || end < l4 + at + 2 {
        return false;
    }
    if headers.family() == Family::V6 && has_segments_left(&frame[l3..l4]) {
        return false;
    }
    // A UDP packet over IPv4 may have no checksum (RFC 768). Such a packet gets none.
    if protocol == IpProtocol::UDP && headers.family() == Family::V4 && be16(frame, l4 + at) == 0 {
        return true;
    }
    let pseudo = match is_icmp {
        true => Checksum::new(),
        false => {
            let len = ((end - l4) as u32).to_be_bytes();
            let addresses = &frame[l3..][addresses];
            Checksum::new().bytes(addresses).bytes(&len).word(protocol.0.into())
        }
    };
    let segment = &mut frame[l4..end];
    write(segment, at, pseudo);
    if protocol == IpProtocol::UDP && be16(segment, at) == 0 {
        segment[at..at + 2].fill(0xff);
    }
    true
}

/// Writes the checksum of `bytes`, whose checksum field is at `at`, and of a pseudo header.
fn write(bytes: &mut [u8], at: usize, pseudo: Checksum) {
    bytes[at..at + 2].fill(0);
    let sum = pseudo.bytes(bytes).finish();
    bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}
