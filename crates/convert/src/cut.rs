//! Where to truncate a frame: after the link, network or transport header, as [`wire::Headers`] finds them.

use crate::Slice;
use wire::{Arp, EtherType, Family, Headers, Icmp, IpProtocol, Ipv6, Sctp, Tcp, Udp};

/// Number of bytes of a frame to keep. A frame without known headers is not truncated.
pub fn kept(slice: Slice, frame: &[u8], headers: &Headers) -> usize {
    let l3 = usize::from(headers.l3());
    // In a raw IP packet, the network header has offset 0. In any other frame, the offset 0 means that the network
    // header is unknown.
    let link_end = if l3 > 0 || headers.family() != Family::Other { l3 } else { frame.len() };
    let end = match slice {
        Slice::L2 => link_end,
        Slice::L3 => network_end(frame, l3, headers).unwrap_or(link_end),
        Slice::L4 => {
            let network = network_end(frame, l3, headers);
            transport_end(frame, headers).or(network).unwrap_or(link_end)
        }
    };
    end.min(frame.len())
}

/// The end of the network header with options and extension headers; `None` if its protocol is unknown.
fn network_end(frame: &[u8], l3: usize, headers: &Headers) -> Option<usize> {
    if headers.l4() > 0 {
        return Some(usize::from(headers.l4()));
    }
    match headers.family() {
        Family::V4 => Some(l3 + usize::from(frame.get(l3)? & 15).max(5) * 4),
        Family::V6 => {
            let ip = Ipv6::parse(frame, l3).ok()?;
            let extensions = match ip.upper().payload {
                Some(payload) => ip.payload().len() - payload.len(),
                // In this branch, the packet is a fragment other than the first, or its extension headers are
                // incomplete. The fragment header is taken for the only extension header of a fragment, because this is
                // so in most fragments.
                None if ip.next_header() == IpProtocol::FRAGMENT => FRAGMENT_HEADER,
                None => 0,
            };
            Some(l3 + Ipv6::LEN + extensions)
        }
        Family::Other if headers.ethertype() == EtherType::ARP => Some(l3 + Arp::LEN),
        Family::Other => None,
    }
}

/// Offset of the byte whose upper four bits are the header length of TCP in 32-bit words.
const TCP_OFFSET: usize = 12;

/// Length in bytes of the fragment header of IPv6 (RFC 8200 §4.5).
const FRAGMENT_HEADER: usize = 8;

fn transport_end(frame: &[u8], headers: &Headers) -> Option<usize> {
    let l4 = usize::from(headers.l4());
    if l4 == 0 {
        return None;
    }
    let len = match headers.protocol()? {
        IpProtocol::TCP => frame.get(l4 + TCP_OFFSET).map_or(0, |b| usize::from(b >> 4) * 4).max(Tcp::LEN),
        IpProtocol::UDP | IpProtocol::UDP_LITE => Udp::LEN,
        IpProtocol::ICMP | IpProtocol::ICMPV6 => Icmp::LEN,
        IpProtocol::SCTP => Sctp::LEN,
        _ => return None,
    };
    Some(l4 + len)
}
