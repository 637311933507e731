//! The part of a frame that is compared, and its hashes.
//!
//! The compared region begins at the innermost network header and ends with the IP packet, so link padding, tags,
//! labels and tunnel headers are outside. In a frame that is not IP, the region is the payload of the link layer; in an
//! ARP frame, the ARP message without padding. [`Head::key`] is a hash of all captured bytes of the region that
//! switches and routers do not change, without the IPv4 identification: packets of a sender that differ in their
//! identification alone have one key. The other bytes (identification, TTL, checksum) are among the stored bytes and
//! are compared by [`crate::rules`].

use crate::digest::Digest;
use crate::fields::{Kind, PORTS, QUERY_ID, is_query, tcp, translated_fields, v4, v6};
use crate::table::Head;
use crate::{Class, Packet, Settings, encapsulation, identification};
use wire::{Decoded, EtherType, Family, Fragment, IpProtocol, link, tcp_flags};

const ARP_LEN: usize = 28;
const ETHERNET_LEN: usize = 14;
const MACS_LEN: usize = 12;
/// The fewest bytes of payload of a TCP segment that is not a keep-alive.
const PAYLOAD_MIN: u32 = 2;

/// The compared part of a packet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Compared {
    /// The fixed part of the packet's record.
    pub head: Head,
    /// Offset of the region in the frame.
    pub start: u32,
    /// The length of the region on the wire in bytes.
    pub wire: u32,
    pub protocol: IpProtocol,
    /// Offset in the region of the transport header; 0 if there is none.
    pub l4: u16,
    /// True if the packet contains a value that its sender changes from packet to packet.
    pub is_identified: bool,
    /// True for an ICMP message with the identifier of a query.
    pub is_query: bool,
    pub fragment: Fragment,
    /// Bytes on the wire above the transport header.
    pub payload_len: u32,
    /// The hash for the class NAT, and the hash for the class proxying; 0 if there is none.
    pub translated: u64,
    pub body: u64,
}

impl Compared {
    /// The captured bytes of the region.
    #[inline(always)]
    pub fn region<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        frame.get(self.start as usize..).and_then(|rest| rest.get(..self.head.len as usize)).unwrap_or_default()
    }

    /// True if all bytes of the region were captured.
    pub fn is_complete(&self) -> bool {
        self.head.len == self.wire
    }

    /// True if the packet has one receiver, by its MAC address, or in links without MAC addresses by its IP address.
    pub fn is_unicast(&self, region: &[u8]) -> bool {
        match self.head.kind {
            _ if self.head.has_macs => self.head.macs[0] & 1 == 0,
            Kind::V4 => region[v4::DST] < 224,
            Kind::V6 => region[v6::DST] != 0xff,
            Kind::Other => false,
        }
    }

    /// The flags of a TCP segment whose header was captured.
    pub fn tcp_flags(&self, region: &[u8]) -> Option<u8> {
        let is_tcp = self.protocol == IpProtocol::TCP && self.l4 > 0;
        let l4 = usize::from(self.l4);
        region.get(l4 + tcp::FLAGS).copied().filter(|_| is_tcp && region.len() >= l4 + tcp::END)
    }

    /// True if the packet can show that a device sent another packet again with other addresses. Hosts answer scans
    /// with equal segments: resets, and segments without payload that begin a connection.
    pub fn shows_binding(&self, region: &[u8]) -> bool {
        if self.protocol != IpProtocol::TCP {
            return self.is_identified;
        }
        let Some(flags) = self.tcp_flags(region) else { return false };
        let l4 = usize::from(self.l4);
        let is_reset = flags & tcp_flags::RST != 0;
        let is_begin = flags & tcp_flags::SYN != 0 && self.payload_len == 0;
        !is_reset && !is_begin && region[l4 + tcp::SEQUENCE..l4 + tcp::ACKNOWLEDGED] != [0; 4]
    }

    /// True for a TCP segment that its sender repeats only after a round trip: with payload, or with FIN.
    pub fn awaits_acknowledgement(&self, region: &[u8]) -> bool {
        let is_fin = |flags: u8| flags & (tcp_flags::FIN | tcp_flags::SYN | tcp_flags::RST) == tcp_flags::FIN;
        self.tcp_flags(region).is_some_and(|flags| self.payload_len >= PAYLOAD_MIN || is_fin(flags))
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
    /// The largest number of bytes that the table stores of each region.
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
        *out = Compared {
            head: Head {
                key: v4_digest(self.digest, head, decoded.ip_len, false).bytes(rest).finish(),
                ts: packet.ts,
                macs: *macs,
                len: len as u32,
                interface: packet.interface,
                kind: Kind::V4,
                has_macs: true,
                ..Head::default()
            },
            start: ETHERNET_LEN as u32,
            wire: decoded.ip_len,
            protocol: decoded.protocol,
            l4: v4::END as u16,
            is_identified: head[v4::ID] | head[v4::ID + 1] != 0,
            fragment: Fragment::Whole,
            payload_len: decoded.payload_len,
            ..Compared::default()
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
        (out.start, out.head.len, out.wire) = (l3 as u32, len as u32, decoded.ip_len);
        if decoded.l4 > decoded.l3 {
            out.l4 = decoded.l4 - decoded.l3;
        }
        out.payload_len = decoded.payload_len;
        out.head.kind = if decoded.family == Family::V4 { Kind::V4 } else { Kind::V6 };
        let region = out.region(frame);
        let l4 = usize::from(out.l4);
        out.is_identified = identification::is_identified(out.head.kind, region, decoded.protocol, l4);
        out.is_query = l4 > 0 && region.get(l4).is_some_and(|kind| is_query(decoded.protocol, *kind));
        out.head.key = self.key(out, region);
        if self.translates && l4 + tcp::END <= self.stored {
            out.translated = self.translated_key(out, region) | 1;
            out.head.translated = out.translated as u32;
        }
        if self.proxies && decoded.protocol == IpProtocol::TCP && l4 > 0 && decoded.payload > decoded.l4 {
            let at = usize::from(decoded.payload - decoded.l3);
            let ports = &region[l4..l4 + PORTS];
            let digest = self.digest.words(u64::from(decoded.payload_len), 1);
            out.body = digest.bytes(ports).bytes(&region[at..]).finish() | 1;
            out.head.body = out.body as u32;
        }
    }

    fn key(&self, out: &Compared, region: &[u8]) -> u64 {
        let digest = self.digest;
        let (digest, rest) = match out.head.kind {
            Kind::V4 => {
                let Some((head, rest)) = region.split_first_chunk::<{ v4::END }>() else { return 0 };
                (v4_digest(digest, head, out.wire, false), rest)
            }
            Kind::V6 => {
                let Some((head, rest)) = region.split_first_chunk::<{ v6::END }>() else { return 0 };
                let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| head[at + i]));
                let digest = digest.words(v6_fixed(head), u64::from(out.wire) << 8 | 6);
                (digest.words(word(v6::SRC), word(16)).words(word(v6::DST), word(32)), rest)
            }
            Kind::Other => (digest, region),
        };
        digest.bytes(rest).finish()
    }

    /// The hash of a region without addresses, ports and transport checksum, which address translation changes. Ports
    /// and checksum are among the stored bytes, so the rules compare them.
    #[inline(never)]
    fn translated_key(&self, out: &Compared, region: &[u8]) -> u64 {
        let digest = self.digest.words(5, 5);
        let (digest, header) = match out.head.kind {
            Kind::V4 => {
                let Some(head) = region.first_chunk() else { return 0 };
                let id = u64::from(region[v4::ID]) << 8 | u64::from(region[v4::ID + 1]);
                (v4_digest(digest, head, out.wire, true).words(id, 0), v4::END)
            }
            _ => {
                let Some(head) = region.first_chunk() else { return 0 };
                (digest.words(v6_fixed(head), u64::from(out.wire) << 8 | 6), v6::END)
            }
        };
        let Some((ports, checksum)) = translated_fields(out.protocol).filter(|_| out.l4 > 0) else {
            return digest.bytes(&region[header..]).finish();
        };
        let l4 = usize::from(out.l4);
        let at = |offset: usize| (l4 + offset).min(region.len());
        let end = if out.is_query { QUERY_ID.end } else { checksum + 2 };
        let (middle, last) = (&region[at(ports)..at(checksum)], &region[at(end)..]);
        digest.bytes(&region[header.min(l4)..at(0)]).bytes(middle).bytes(last).finish()
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
        (out.start, out.head.len, out.wire) = (start as u32, len as u32, wire as u32);
        (out.head.kind, out.l4, out.is_identified, out.protocol) = (Kind::Other, 0, false, IpProtocol::default());
        (out.fragment, out.payload_len) = (Fragment::Whole, out.wire);
        let digest = self.digest.words(u64::from(decoded.ethertype.0) << 32 | u64::from(out.wire), 2);
        out.head.key = digest.bytes(out.region(frame)).finish();
    }

    /// The whole frame, for the setting `exact`.
    fn whole(&self, packet: &Packet<'_>, out: &mut Compared) {
        out.head.key = self.digest.words(u64::from(packet.wire_len), 7).bytes(packet.data).finish();
        (out.wire, out.head.len) = (packet.wire_len, packet.data.len() as u32);
        (out.payload_len, out.fragment) = (packet.wire_len, Fragment::Whole);
    }
}

/// The hash of an IPv4 header without the type of service, the identification, the TTL and the checksum, and of the
/// length on the wire, which the header does not contain if the kernel or the NIC merged segments.
#[inline(always)]
fn v4_digest(digest: Digest, head: &[u8; v4::END], wire: u32, is_translated: bool) -> Digest {
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| head[at + i]));
    let fixed = word(0) & !(0xff << (8 * v4::TOS) | 0xffff << (8 * v4::ID));
    let protocol = u64::from(head[v4::PROTOCOL]);
    let addresses = if is_translated { 0 } else { word(v4::SRC) };
    digest.words(fixed ^ u64::from(wire) << (8 * v4::ID), addresses ^ protocol.rotate_right(8))
}

/// The first word of an IPv6 header without the traffic class and the hop limit.
fn v6_fixed(head: &[u8; v6::END]) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| head[i])) & !0xff00_0000_0000_f00f
}

/// Sets the fields about the headers before the region.
fn link_of(packet: &Packet<'_>, decoded: &Decoded, digest: &Digest, out: &mut Compared) {
    let l2 = decoded.l2.unwrap_or(0);
    let is_framed = decoded.l2.is_some() || packet.link_type == link::ETHERNET;
    if is_framed && let Some(macs) = packet.data.get(l2.into()..).and_then(|rest| rest.first_chunk::<MACS_LEN>()) {
        (out.head.macs, out.head.has_macs) = (*macs, true);
    }
    // A priority tag (VLAN ID 0, IEEE 802.1Q) belongs to no VLAN.
    let [a, b] = decoded.vlans.map(|id| id.filter(|id| *id != 0).map_or(0, |id| u32::from(id) | 0x8000));
    out.head.vlans = if a == 0 { b << 16 } else { a << 16 | b };
    if decoded.depth + u8::from(decoded.mpls.is_some()) > 0 {
        encapsulation::read(packet, decoded, digest, &mut out.head);
    }
}

/// True if the datagram permits that routers divide it.
pub(crate) fn may_be_divided(region: &[u8]) -> bool {
    region.get(v4::FLAGS).is_some_and(|flags| flags & v4::DONT_FRAGMENT == 0)
}
