//! Where a slice ends in a frame: behind the link, network or transport header, as [`wire::Headers`] finds them.

use crate::Slice;
use wire::{Arp, EtherType, Family, Headers, Icmp, IpProtocol, Ipv6, Sctp, Tcp, Udp};

/// How many bytes of a frame are kept. A frame whose headers are not understood keeps what was.
pub fn kept(slice: Slice, frame: &[u8], headers: &Headers) -> usize {
    let l3 = usize::from(headers.l3());
    // A frame of raw IP has its network header at 0; any other with 0 there has none that is known.
    let behind_link = if l3 > 0 || headers.family() != Family::Other { l3 } else { frame.len() };
    let end = match slice {
        Slice::L2 => behind_link,
        Slice::L3 => network_end(frame, l3, headers).unwrap_or(behind_link),
        Slice::L4 => {
            let network = network_end(frame, l3, headers);
            transport_end(frame, headers).or(network).unwrap_or(behind_link)
        }
    };
    end.min(frame.len())
}

/// The end of the network header with options and extensions; `None` where it is none that is known.
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
                // A later fragment, mostly with the fragment header as its only extension; or a chain that breaks off.
                None if ip.next_header() == IpProtocol::FRAGMENT => FRAGMENT_HEADER,
                None => 0,
            };
            Some(l3 + Ipv6::LEN + extensions)
        }
        Family::Other if headers.ethertype() == EtherType::ARP => Some(l3 + Arp::LEN),
        Family::Other => None,
    }
}

/// Where TCP says, in the upper half-byte, how many words its header has.
const TCP_OFFSET: usize = 12;

/// Bytes of the fragment header of IPv6 (RFC 8200 §4.5).
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
