//! The part of a frame that is compared, and its hashes.
//!
//! The compared region begins at the innermost network header and ends with the IP packet, so link padding, tags,
//! labels and tunnel headers are outside. In a frame that is not IP, the region is the payload of the link layer; in an
//! ARP frame, the ARP message without padding. [`Head::key`] is a hash of all captured bytes of the region that are
//! equal in both copies for every enabled class; the other bytes (TTL, checksums, addresses) are among the stored bytes
//! and are compared by [`crate::rules`].

use crate::digest::Digest;
use crate::table::{Head, Kind};
use crate::{Class, Packet, Settings};
use wire::{Decoded, EtherType, Family, Fragment, Headers, IpProtocol, link, tcp_flags};

/// Offsets in an IPv4 header.
pub(crate) mod v4 {
    pub const TOS: usize = 1;
    pub const ID: usize = 4;
    pub const FLAGS: usize = 6;
    pub const TTL: usize = 8;
    pub const PROTOCOL: usize = 9;
    pub const CHECKSUM: usize = 10;
    pub const SRC: usize = 12;
    pub const DST: usize = 16;
    pub const END: usize = 20;
    /// "Don't fragment", in the byte at `FLAGS`.
    pub const DONT_FRAGMENT: u8 = 0x40;
}

/// Offsets in an IPv6 header.
pub(crate) mod v6 {
    pub const HOPS: usize = 7;
    pub const SRC: usize = 8;
    pub const DST: usize = 24;
    pub const END: usize = 40;
}

/// Offsets in a TCP header.
pub(crate) mod tcp {
    pub const SEQUENCE: usize = 4;
    pub const ACKNOWLEDGED: usize = 8;
    pub const OFFSET: usize = 12;
    pub const FLAGS: usize = 13;
    pub const CHECKSUM: usize = 16;
    pub const END: usize = 18;
}

/// Bytes of both ports.
pub(crate) const PORTS: usize = 4;
const UDP_CHECKSUM: usize = 6;
const ICMP_CHECKSUM: usize = 2;
const ARP_LEN: usize = 28;
const ETHERNET_LEN: usize = 14;
const MACS_LEN: usize = 12;
const TAG_LEN: usize = 4;

/// The compared part of a packet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Compared {
    /// The fixed part of the packet's record.
    pub head: Head,
    /// Offset of the region in the frame.
    pub start: u32,
    pub protocol: IpProtocol,
    /// Offset in the region of the transport header; 0 if there is none.
    pub l4: u16,
    /// True if the addresses, ports and checksums are compared by the rules, and are not part of the key.
    pub is_translatable: bool,
    /// True if the packet contains a value that its sender changes from packet to packet.
    pub is_identified: bool,
    /// True for a TCP segment with SYN, FIN or payload.
    pub occupies_sequence: bool,
    pub fragment: Fragment,
    pub has_payload: bool,
}

impl Compared {
    /// The captured bytes of the region.
    #[inline(always)]
    pub fn region<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        frame.get(self.start as usize..).and_then(|rest| rest.get(..self.head.len as usize)).unwrap_or_default()
    }
}

/// Finds the compared part of packets under the settings of a detector.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Selector {
    digest: Digest,
    translates: bool,
    proxies: bool,
    exact: bool,
    /// True if neither NAT nor proxying is enabled.
    is_simple: bool,
    /// Number of bytes of a region that the table stores.
    stored: usize,
}

impl Selector {
    pub fn new(settings: &Settings, stored: usize, key: u64) -> Self {
        let (translates, proxies) = (settings.classes.contains(Class::Nat), settings.classes.contains(Class::Proxying));
        Self {
            digest: Digest::new(key),
            translates,
            proxies,
            is_simple: !translates && !proxies,
            exact: settings.exact,
            stored,
        }
    }

    /// Finds the compared part of a packet. `decoded` is scratch space.
    #[inline(always)]
    pub fn select(&self, packet: &Packet<'_>, decoded: &mut Decoded, out: &mut Compared) {
        if !self.exact {
            decoded.read(packet.data, packet.wire_len, packet.link_type);
            if decoded.is_common_case && self.is_simple && self.common(packet, decoded, out) {
                return;
            }
        }
        self.general(packet, decoded, out);
    }

    /// The common case: TCP or UDP over IPv4 without options in untagged Ethernet, if addresses and ports are part of
    /// the key. Returns false for other packets. [`Selector::general`] gives the same result.
    #[inline(always)]
    fn common(&self, packet: &Packet<'_>, decoded: &Decoded, out: &mut Compared) -> bool {
        let is_plain = usize::from(decoded.l3) == ETHERNET_LEN && packet.link_type == link::ETHERNET;
        let Some((link, ip)) = packet.data.split_first_chunk::<ETHERNET_LEN>() else { return false };
        let len = ip.len().min(decoded.ip_len as usize);
        let Some((head, rest)) = ip[..len].split_first_chunk::<{ v4::END }>() else { return false };
        let Some(macs) = link.first_chunk::<MACS_LEN>().filter(|_| is_plain && !decoded.malformed) else {
            return false;
        };
        let is_tcp = decoded.protocol == IpProtocol::TCP;
        let flags = if is_tcp { rest.get(tcp::FLAGS).copied().unwrap_or(0) } else { 0 };
        let has_payload = decoded.payload_len > 0;
        *out = Compared {
            head: Head {
                key: v4_digest(self.digest, head, false).bytes(rest).finish(),
                ts: packet.ts,
                macs: *macs,
                wire: decoded.ip_len,
                len: len as u32,
                interface: packet.interface,
                kind: Kind::V4,
                has_macs: true,
                ..Head::default()
            },
            start: ETHERNET_LEN as u32,
            protocol: decoded.protocol,
            l4: v4::END as u16,
            is_translatable: false,
            is_identified: head[v4::ID] | head[v4::ID + 1] != 0,
            occupies_sequence: is_tcp && (has_payload || flags & (tcp_flags::SYN | tcp_flags::FIN) != 0),
            fragment: Fragment::Whole,
            has_payload,
        };
        true
    }

    #[inline(never)]
    fn general(&self, packet: &Packet<'_>, decoded: &Decoded, out: &mut Compared) {
        let head = Head { ts: packet.ts, interface: packet.interface, ..Head::default() };
        *out = Compared { head, protocol: decoded.protocol, fragment: decoded.fragment, ..Compared::default() };
        if self.exact {
            return self.whole(packet, out);
        }
        let (frame, l3) = (packet.data, usize::from(decoded.l3));
        link_of(packet, decoded, &self.digest, out);
        let header = match decoded.family {
            Family::V4 => v4::END,
            Family::V6 => v6::END,
            Family::Other => return self.other(packet, decoded, out),
        };
        let wire = decoded.ip_len as usize;
        let len = wire.min(frame.len() - l3);
        if decoded.malformed || len < header {
            return self.other(packet, decoded, out);
        }
        (out.start, out.head.len, out.head.wire) = (l3 as u32, len as u32, decoded.ip_len);
        if decoded.l4 > decoded.l3 {
            out.l4 = decoded.l4 - decoded.l3;
        }
        out.has_payload = decoded.payload_len > 0;
        let region = out.region(frame);
        let always = matches!(decoded.protocol, IpProtocol::ESP | IpProtocol::AH);
        if decoded.family == Family::V4 {
            out.head.kind = Kind::V4;
            out.is_identified = always || region[v4::ID..v4::FLAGS] != [0, 0];
        } else {
            out.head.kind = Kind::V6;
            out.is_identified = always || decoded.fragment != Fragment::Whole;
        }
        if decoded.protocol == IpProtocol::TCP && out.l4 > 0 {
            let flags = region.get(usize::from(out.l4) + tcp::FLAGS).copied().unwrap_or(0);
            out.occupies_sequence = out.has_payload || flags & (tcp_flags::SYN | tcp_flags::FIN) != 0;
        }
        out.is_translatable = self.translates && usize::from(out.l4) + tcp::END <= self.stored;
        out.head.key = self.key(out, region);
        if self.proxies && decoded.protocol == IpProtocol::TCP && out.l4 > 0 && decoded.payload > decoded.l4 {
            let at = usize::from(decoded.payload - decoded.l3);
            let ports = &region[usize::from(out.l4)..usize::from(out.l4) + PORTS];
            let digest = self.digest.words(u64::from(decoded.payload_len), 1);
            out.head.body = digest.bytes(ports).bytes(&region[at..]).finish() | 1;
        }
    }

    fn key(&self, out: &Compared, region: &[u8]) -> u64 {
        let digest = self.digest;
        let (digest, rest) = match out.head.kind {
            Kind::V4 => {
                let Some((head, rest)) = region.split_first_chunk::<{ v4::END }>() else { return 0 };
                (v4_digest(digest, head, out.is_translatable), rest)
            }
            Kind::V6 => {
                let Some((head, rest)) = region.split_first_chunk::<{ v6::END }>() else { return 0 };
                let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| head[at + i]));
                // Without the traffic class and the hop limit.
                let fixed = word(0) & !0xff00_0000_0000_f00f;
                let digest = digest.words(fixed, 6);
                if out.is_translatable {
                    (digest, rest)
                } else {
                    (digest.words(word(v6::SRC), word(16)).words(word(v6::DST), word(32)), rest)
                }
            }
            Kind::Other => (digest, region),
        };
        if !out.is_translatable {
            return digest.bytes(rest).finish();
        }
        without_translated(digest, out, region)
    }

    /// A frame that is not IP, or whose headers contradict their lengths. The rules cannot know the meaning of its
    /// bytes, so all of them must be equal.
    #[inline(never)]
    fn other(&self, packet: &Packet<'_>, decoded: &Decoded, out: &mut Compared) {
        let frame = packet.data;
        let start = if decoded.malformed { 0 } else { usize::from(decoded.l3).min(frame.len()) };
        let mut len = frame.len() - start;
        let mut wire = (packet.wire_len as usize).max(frame.len()) - start;
        if decoded.ethertype == EtherType::ARP && len >= ARP_LEN {
            (len, wire) = (ARP_LEN, ARP_LEN);
        }
        (out.start, out.head.len, out.head.wire) = (start as u32, len as u32, wire as u32);
        (out.head.kind, out.l4, out.is_identified, out.protocol) = (Kind::Other, 0, false, IpProtocol::default());
        out.fragment = Fragment::Whole;
        out.has_payload = true;
        let digest = self.digest.words(u64::from(decoded.ethertype.0), 2);
        out.head.key = digest.bytes(out.region(frame)).finish();
    }

    /// The whole frame, for the setting `exact`.
    fn whole(&self, packet: &Packet<'_>, out: &mut Compared) {
        out.head.key = self.digest.bytes(packet.data).finish();
        (out.head.wire, out.head.len) = (packet.wire_len, packet.data.len() as u32);
        (out.is_identified, out.has_payload, out.fragment) = (true, true, Fragment::Whole);
    }
}

/// The hash of an IPv4 header without the type of service, the TTL and the checksum.
#[inline(always)]
fn v4_digest(digest: Digest, head: &[u8; v4::END], is_translatable: bool) -> Digest {
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| head[at + i]));
    let fixed = word(0) & !(0xff << (8 * v4::TOS));
    let protocol = u64::from(head[v4::PROTOCOL]);
    let addresses = if is_translatable { 0 } else { word(v4::SRC) };
    digest.words(fixed, addresses ^ protocol.rotate_right(8))
}

/// The hash of a region without addresses, ports and transport checksum, which address translation changes. Ports and
/// checksum are among the stored bytes, so the rules compare them.
fn without_translated(digest: Digest, out: &Compared, region: &[u8]) -> u64 {
    let header = if out.head.kind == Kind::V4 { v4::END } else { v6::END };
    let Some((ports, checksum)) = translated_fields(out.protocol).filter(|_| out.l4 > 0) else {
        return digest.bytes(&region[header..]).finish();
    };
    let l4 = usize::from(out.l4);
    let at = |offset: usize| (l4 + offset).min(region.len());
    let (middle, last) = (&region[at(ports)..at(checksum)], &region[at(checksum + 2)..]);
    digest.bytes(&region[header.min(l4)..at(0)]).bytes(middle).bytes(last).finish()
}

/// The number of bytes of the ports, and the offset of the checksum, of a transport protocol that the class NAT knows.
pub(crate) fn translated_fields(protocol: IpProtocol) -> Option<(usize, usize)> {
    match protocol {
        IpProtocol::TCP => Some((PORTS, tcp::CHECKSUM)),
        IpProtocol::UDP => Some((PORTS, UDP_CHECKSUM)),
        IpProtocol::ICMP | IpProtocol::ICMPV6 => Some((0, ICMP_CHECKSUM)),
        _ => None,
    }
}

/// Sets the fields about the headers before the region.
fn link_of(packet: &Packet<'_>, decoded: &Decoded, digest: &Digest, out: &mut Compared) {
    let l2 = decoded.l2.unwrap_or(0);
    let is_framed = decoded.l2.is_some() || packet.link_type == link::ETHERNET;
    if is_framed && let Some(macs) = packet.data.get(l2.into()..).and_then(|rest| rest.first_chunk::<MACS_LEN>()) {
        (out.head.macs, out.head.has_macs) = (*macs, true);
    }
    let [a, b] = decoded.vlans.map(|id| id.map_or(0, |id| u32::from(id) | 0x8000));
    out.head.vlans = a << 16 | b;
    // Untagged Ethernet is the usual case. A tag moves the network header by 4 bytes.
    if usize::from(decoded.l3) != ETHERNET_LEN && decoded.depth + u8::from(decoded.mpls.is_some()) > 0 && l2 == 0 {
        encapsulation_of(packet, decoded, digest, out);
    }
}

/// Sets the fields about the labels and tunnels around a packet without an Ethernet header of its own.
fn encapsulation_of(packet: &Packet<'_>, decoded: &Decoded, digest: &Digest, out: &mut Compared) {
    let frame = packet.data;
    let end = usize::from(decoded.l3).min(frame.len());
    let mut at = 0;
    if packet.link_type == link::ETHERNET {
        at = MACS_LEN;
        let ethertype = |at: usize| frame.get(at..at + 2).map(|b| EtherType(u16::from_be_bytes([b[0], b[1]])));
        while ethertype(at).is_some_and(EtherType::is_vlan) && at + TAG_LEN <= end {
            at += TAG_LEN;
        }
    }
    let region = frame.get(at..end).unwrap_or_default();
    out.head.outer = digest.words(3, 3).bytes(region).finish() | 1;
    let byte = |at: usize| frame.get(at).copied().unwrap_or(0);
    if decoded.depth == 0 {
        // The fourth byte of the topmost label, after the ethertype.
        out.head.outer_ttl = byte(at + 2 + 3);
        return;
    }
    let headers = Headers::of(frame, packet.wire_len, packet.link_type);
    let l3 = usize::from(headers.l3());
    match headers.family() {
        Family::V4 => {
            out.head.outer_ttl = byte(l3 + v4::TTL);
        }
        Family::V6 => out.head.outer_ttl = byte(l3 + v6::HOPS),
        Family::Other => (),
    }
}

/// True if the datagram permits that routers divide it.
pub(crate) fn may_be_divided(region: &[u8]) -> bool {
    region.get(v4::FLAGS).is_some_and(|flags| flags & v4::DONT_FRAGMENT == 0)
}
