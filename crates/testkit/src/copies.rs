//! Makes copies of a frame as switches, routers and proxies make them, and inserts labelled copies into traffic. The
//! copies are the truth of tests that detect duplicates.

use crate::fragments;
use base::Prng;
use wire::{Family, Fragment, Headers, IpProtocol, link, update_checksum};

const MACS: usize = 12;
const TAG: usize = 4;
const VLAN: [u8; 2] = [0x81, 0];

/// How a copy was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Copied {
    /// The same bytes.
    Exact,
    /// Another VLAN tag.
    Tagged,
    /// Other MAC addresses and a lower TTL.
    Routed,
    /// As routed, with another source address and source port.
    Translated,
    /// A new connection to the same ports, with the same payload and sequence number.
    Proxied,
    /// A fragment of a routed datagram.
    Divided,
}

impl Copied {
    /// All ways.
    pub const ALL: [Self; 6] =
        [Self::Exact, Self::Tagged, Self::Routed, Self::Translated, Self::Proxied, Self::Divided];

    /// The copies of an Ethernet frame that are made in this way; none if the frame cannot be copied in this way.
    pub fn of(self, frame: &[u8], prng: &mut Prng) -> Vec<Vec<u8>> {
        let hops = 1 + prng.below(3) as u8;
        let one = match self {
            Self::Exact => Some(frame.to_vec()),
            Self::Tagged => tagged(frame, 1 + prng.below(4000) as u16),
            Self::Routed => routed(frame, hops),
            // A device translates all packets in the same way.
            Self::Translated => translated(frame, hops, 0x2355),
            Self::Proxied => proxied(frame, prng.next_u64() as u32),
            Self::Divided => return divided(frame, hops, 64 + 8 * prng.below(40) as usize),
        };
        one.into_iter().collect()
    }
}

/// A frame of traffic with copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planted {
    /// Time in nanoseconds.
    pub nanos: u64,
    /// The captured bytes.
    pub bytes: Vec<u8>,
    /// Length on the wire in bytes.
    pub wire_len: u32,
    /// The way in which the frame was copied; `None` for a frame of the original traffic.
    pub copied: Option<Copied>,
}

/// Inserts copies of about one in `every` frames, made in one of these ways, at most `latest` nanoseconds after the
/// original. The frames have the times `step`, `2 * step` and so on. The result is in order of time. A frame whose
/// capture was truncated gets only exact copies.
pub fn plant(
    frames: impl IntoIterator<Item = (Vec<u8>, u32)>,
    ways: &[Copied],
    (step, every, latest): (u64, u64, u64),
    prng: &mut Prng,
) -> Vec<Planted> {
    let mut planted = Vec::new();
    for (i, (bytes, wire_len)) in frames.into_iter().enumerate() {
        let nanos = (i as u64 + 1) * step;
        if prng.below(every) == 0 {
            let mut way = ways[prng.below(ways.len() as u64) as usize];
            if bytes.len() != wire_len as usize {
                way = Copied::Exact;
            }
            let first = nanos + 1 + prng.below(latest);
            for (nanos, copy) in (first..).zip(way.of(&bytes, prng)) {
                let wire_len = if way == Copied::Exact { wire_len } else { copy.len() as u32 };
                planted.push(Planted { nanos, bytes: copy, wire_len, copied: Some(way) });
            }
        }
        planted.push(Planted { nanos, bytes, wire_len, copied: None });
    }
    planted.sort_by_key(|frame| (frame.nanos, frame.copied));
    planted
}

/// The frame with this VLAN ID, in a new tag if the frame has none. `None` for frames that are too short.
pub fn tagged(frame: &[u8], vlan: u16) -> Option<Vec<u8>> {
    let mut copy = frame.to_vec();
    let at = MACS + VLAN.len();
    let known = frame.get(MACS..at + TAG)?;
    if known.starts_with(&VLAN) {
        let old = u16::from_be_bytes([known[2], known[3]]);
        let new = if old & 0xfff == vlan { vlan ^ 1 } else { vlan };
        copy[at..at + 2].copy_from_slice(&(old & 0xf000 | new).to_be_bytes());
    } else {
        let tag = [VLAN, vlan.to_be_bytes()].concat();
        copy.splice(MACS..MACS, tag);
    }
    Some(copy)
}

/// The frame after this number of routers: other MAC addresses, a lower TTL, a correct IPv4 checksum. `None` if the
/// frame is not IP or its TTL is too low.
pub fn routed(frame: &[u8], hops: u8) -> Option<Vec<u8>> {
    let mut copy = frame.to_vec();
    let headers = headers(frame)?;
    let l3 = usize::from(headers.l3());
    for (i, byte) in copy[..MACS].iter_mut().enumerate() {
        // The bits of multicast addresses remain.
        *byte ^= if i % 6 == 0 { 0x10 } else { 0x55 };
    }
    let ttl = l3 + if headers.family() == Family::V4 { 8 } else { 7 };
    let low = copy[ttl].checked_sub(hops).filter(|ttl| *ttl > 0)?;
    let old = [copy[ttl], copy[ttl + 1]];
    copy[ttl] = low;
    if headers.family() == Family::V4 {
        let new = [copy[ttl], copy[ttl + 1]];
        fix(&mut copy, l3 + 10, &old, &new);
    }
    Some(copy)
}

/// The frame after a router that translates the source address and the source port. `None` if the frame is not TCP or
/// UDP, or a fragment.
pub fn translated(frame: &[u8], hops: u8, bits: u16) -> Option<Vec<u8>> {
    let headers = headers(frame)?;
    let mut copy = routed(frame, hops)?;
    let (l3, l4) = (usize::from(headers.l3()), usize::from(headers.l4()));
    let sum = l4
        + match headers.protocol()? {
            IpProtocol::TCP => 16,
            IpProtocol::UDP => 6,
            _ => return None,
        };
    if l4 == 0 || headers.fragment() != Fragment::Whole || sum + 2 > copy.len() {
        return None;
    }
    let source = l3 + if headers.family() == Family::V4 { 14 } else { 22 };
    for at in [source, l4] {
        let old = [copy[at], copy[at + 1]];
        let new = (u16::from_be_bytes(old) ^ bits).to_be_bytes();
        copy[at..at + 2].copy_from_slice(&new);
        // A UDP checksum of 0 means that there is none.
        if copy[sum..sum + 2] != [0, 0] {
            fix(&mut copy, sum, &old, &new);
        }
        if at == source && headers.family() == Family::V4 {
            fix(&mut copy, l3 + 10, &old, &new);
        }
    }
    Some(copy)
}

/// The segment as a proxy sends it: other MAC addresses, another destination, identification, acknowledgement number
/// and window; the checksums are not updated. `None` if the frame is not a TCP segment with payload and without IP
/// options.
pub fn proxied(frame: &[u8], acknowledged: u32) -> Option<Vec<u8>> {
    let headers = headers(frame)?;
    let (l3, l4) = (usize::from(headers.l3()), usize::from(headers.l4()));
    let (size, destination) = if headers.family() == Family::V4 { (20, 18) } else { (40, 38) };
    let is_tcp = headers.protocol() == Some(IpProtocol::TCP) && headers.fragment() == Fragment::Whole;
    let data = l4 + usize::from(frame.get(l4 + 12)? >> 4) * 4;
    let total = match headers.family() {
        Family::V4 => l3 + usize::from(u16::from_be_bytes([frame[l3 + 2], frame[l3 + 3]])),
        _ => l3 + 40 + usize::from(u16::from_be_bytes([frame[l3 + 4], frame[l3 + 5]])),
    };
    if !is_tcp || l4 != l3 + size || data >= total || data >= frame.len() || frame[l4 + 4..l4 + 8] == [0; 4] {
        return None;
    }
    let mut copy = routed(frame, 1)?;
    copy[l3 + destination] ^= 0x5a;
    if headers.family() == Family::V4 {
        copy[l3 + 4] ^= 0x77;
    }
    copy[l4 + 8..l4 + 12].copy_from_slice(&acknowledged.to_be_bytes());
    copy[l4 + 14] ^= 0x11;
    Some(copy)
}

/// The fragments of an untagged IPv4 datagram after this number of routers, with `size` bytes each. None if the
/// datagram has options, forbids fragments, has no identification or at most 512 bytes of payload.
pub fn divided(frame: &[u8], hops: u8, size: usize) -> Vec<Vec<u8>> {
    let Some(headers) = headers(frame) else { return Vec::new() };
    let is_usual = headers.l3() == 14 && headers.family() == Family::V4 && frame[14] == 0x45;
    let total = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    if !is_usual || frame[20..22] != [0, 0] || frame[18..20] == [0, 0] || total <= 512 + 20 || frame.len() < 14 + total
    {
        return Vec::new();
    }
    let Some(routed) = routed(&frame[..14 + total], hops) else { return Vec::new() };
    fragments(&routed, u16::from_be_bytes([frame[18], frame[19]]).into(), size)
}

/// The headers of an IP packet whose network header is complete, outside of tunnels and not below labels.
fn headers(frame: &[u8]) -> Option<Headers> {
    let headers = Headers::of(frame, frame.len() as u32, link::ETHERNET);
    let tags = headers.vlans(frame).count();
    let is_plain = usize::from(headers.l3()) == MACS + 2 + tags * TAG;
    (headers.family() != Family::Other && is_plain && !headers.malformed()).then_some(headers)
}

/// Updates the checksum at `at` for a changed word.
fn fix(frame: &mut [u8], at: usize, old: &[u8; 2], new: &[u8; 2]) {
    let sum = u16::from_be_bytes([frame[at], frame[at + 1]]);
    let sum = update_checksum(sum, u16::from_be_bytes(*old), u16::from_be_bytes(*new));
    frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::build::Frame;
    use wire::{Ipv4, checksum};

    #[test]
    fn copies_have_correct_checksums_and_the_stated_changes() {
        let payload = [7; 700];
        let mut bytes = [0; 800];
        let frame = Frame::udp4([10, 0, 0, 1], 4000, [10, 0, 0, 2], 53).fragment(9, 0, false).payload(&payload);
        let frame = frame.write(&mut bytes).unwrap();
        let mut prng = Prng::new(1);
        for way in Copied::ALL {
            let copies = way.of(frame, &mut prng);
            assert_eq!(copies.is_empty(), way == Copied::Proxied, "{way:?}");
            for copy in copies {
                let l3 = if way == Copied::Tagged { 18 } else { 14 };
                let ip = Ipv4::parse(&copy, l3).unwrap();
                assert_eq!(checksum(&copy[l3..l3 + 20]), 0, "{way:?}");
                assert_eq!(ip.ttl() < 64, !matches!(way, Copied::Exact | Copied::Tagged), "{way:?}");
            }
        }
        let mut bytes = [0; 800];
        let segment = Frame::tcp4([10, 0, 0, 1], 4000, [10, 0, 0, 2], 80).tcp(16, 5, 6).payload(b"get");
        assert_eq!(Copied::Proxied.of(segment.write(&mut bytes).unwrap(), &mut prng).len(), 1);
    }
}
