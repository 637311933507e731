//! Rewrites the link header, VLAN tags, MPLS labels and network headers of a frame, up to the first unsupported
//! protocol.
//!
//! Invariant: in the bytes that are kept, every address field is mapped or blanked.

use super::options::{blank_v4, blank_v6};
use super::{AnonymisationCounts, Anonymiser, CryptoPan, Macs};
use std::net::{Ipv4Addr, Ipv6Addr};
use wire::{Arp, Checksum, EtherType, Ethernet, Headers, IpProtocol, Ipv4, Ipv6, VlanTag, link, mpls, update_checksum};

/// Greatest nesting of packets within packets.
pub(super) const DEPTH: u32 = 4;

/// Greatest number of VLAN tags in a frame.
const TAGS: usize = 8;

/// Greatest number of extension headers in a packet.
const EXTENSIONS: usize = 8;

/// Anonymises frames, one after the other.
pub struct Rewriter {
    addresses: CryptoPan,
    hardware: CryptoPan,
    macs: Macs,
    pub(super) keep_payload: bool,
}

/// The number of bytes of a part of a packet that are kept, and the reason why the bytes after them are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeptBytes {
    pub len: usize,
    pub is_supported: bool,
}

impl KeptBytes {
    /// All headers are kept; payload or padding follows.
    pub const fn to(len: usize) -> Self {
        Self { len, is_supported: true }
    }

    /// An unsupported or incomplete part follows, and is removed.
    pub const fn only(len: usize) -> Self {
        Self { len, is_supported: false }
    }

    /// Returns the kept bytes of a header of `header` bytes, all of which are kept, together with those of this part,
    /// which follows the header.
    pub const fn after_header(self, header: usize) -> Self {
        Self { len: header + self.len, ..self }
    }
}

/// The data of the IP header that the transport header needs for its checksum: the partial checksums of the addresses,
/// before and after the mapping.
#[derive(Clone, Copy)]
pub(super) struct PseudoHeader {
    pub before: Checksum,
    pub after: Checksum,
    pub depth: u32,
    /// True if the packet is quoted in an ICMP message, so that only its headers are kept.
    pub quoted: bool,
}

impl Rewriter {
    pub(super) fn new(settings: &Anonymiser) -> Self {
        Self {
            addresses: CryptoPan::new(&settings.key),
            hardware: CryptoPan::derived(&settings.key, b"MAC addresses  "),
            macs: settings.macs,
            keep_payload: settings.keep_payload,
        }
    }

    /// Anonymises a frame in place, and returns the number of bytes that may be kept. The bytes after them are not
    /// anonymised, and the caller must remove them.
    pub fn rewrite(&mut self, frame: &mut [u8], link_type: u16, counts: &mut AnonymisationCounts) -> usize {
        let kept = self.link(frame, link_type, counts);
        counts.packets += 1;
        if kept.len < frame.len() {
            let counter = if kept.is_supported { &mut counts.payload } else { &mut counts.unknown };
            *counter += 1;
        }
        kept.len
    }

    fn link(&mut self, frame: &mut [u8], link_type: u16, counts: &mut AnonymisationCounts) -> KeptBytes {
        match link_type {
            link::ETHERNET if frame.len() >= Ethernet::LEN => {
                self.mac(frame, 0);
                self.mac(frame, 6);
                self.tags(frame, Ethernet::LEN, be16(frame, 12), counts)
            }
            link::RAW_IP | link::RAW_IPV4 | link::RAW_IPV6 => self.packet(frame, 0, false, counts),
            // The link header of BSD loopback is the address family in the byte order of the capturing host. Packets of
            // other families than IP are removed.
            link::NULL | link::LOOP if frame.len() >= LOOP_LEN => {
                let family = Headers::of(frame, frame.len() as u32, link_type).ethertype();
                let kept = match family {
                    EtherType::IPV4 | EtherType::IPV6 => self.packet(&mut frame[LOOP_LEN..], 0, false, counts),
                    _ => KeptBytes::only(0),
                };
                kept.after_header(LOOP_LEN)
            }
            link::LINUX_SLL if frame.len() >= sll::LEN => {
                self.cooked_address(frame, sll::ADDRESS, usize::from(be16(frame, sll::ADDRESS_LEN)));
                self.tags(frame, sll::LEN, be16(frame, sll::PROTOCOL), counts)
            }
            link::LINUX_SLL2 if frame.len() >= sll2::LEN => {
                self.cooked_address(frame, sll2::ADDRESS, usize::from(frame[sll2::ADDRESS_LEN]));
                self.tags(frame, sll2::LEN, be16(frame, sll2::PROTOCOL), counts)
            }
            _ => KeptBytes::only(0),
        }
    }

    /// Skips the VLAN tags and rewrites the packet after them.
    fn tags(&mut self, frame: &mut [u8], mut at: usize, ethertype: u16, counts: &mut AnonymisationCounts) -> KeptBytes {
        let mut ethertype = EtherType(ethertype);
        for _ in 0..TAGS {
            if !ethertype.is_vlan() {
                break;
            }
            if frame.len() < at + VlanTag::LEN {
                return KeptBytes::only(at);
            }
            ethertype = EtherType(be16(frame, at + 2));
            at += VlanTag::LEN;
        }
        let kept = match ethertype {
            EtherType::IPV4 | EtherType::IPV6 => self.packet(&mut frame[at..], 0, false, counts),
            EtherType::ARP | RARP => self.arp(&mut frame[at..]),
            _ if ethertype.is_mpls() => self.labels(&mut frame[at..], counts),
            _ => KeptBytes::only(0),
        };
        kept.after_header(at)
    }

    fn labels(&mut self, stack: &mut [u8], counts: &mut AnonymisationCounts) -> KeptBytes {
        let labels = stack.chunks_exact(mpls::LABEL_LEN).take(mpls::MAX_LABELS);
        let Some(bottom) = labels.map(|label| label[2] & 1).position(|bottom| bottom == 1) else {
            return KeptBytes::only(0);
        };
        let under = (bottom + 1) * mpls::LABEL_LEN;
        // Behind the MPLS labels, only an IP packet is kept. The frame of a pseudowire, which begins with four bits of
        // 0, is removed.
        self.packet(&mut stack[under..], 0, false, counts).after_header(under)
    }

    /// Rewrites ARP and RARP messages for IPv4 and MAC addresses.
    fn arp(&mut self, message: &mut [u8]) -> KeptBytes {
        const PLAIN: [u8; 6] = [0, 1, 8, 0, 6, 4];
        if message.len() < Arp::LEN || message[..6] != PLAIN {
            return KeptBytes::only(0);
        }
        for at in [8, 18] {
            self.mac(message, at);
            self.v4(message, at + 6);
        }
        KeptBytes::to(Arp::LEN)
    }

    /// Rewrites an IP packet, as IPv4 or IPv6 according to its version field.
    pub(super) fn packet(
        &mut self,
        packet: &mut [u8],
        depth: u32,
        quoted: bool,
        counts: &mut AnonymisationCounts,
    ) -> KeptBytes {
        match packet.first() {
            Some(first) if first >> 4 == 4 => self.ipv4(packet, depth, quoted, counts),
            Some(first) if first >> 4 == 6 => self.ipv6(packet, depth, quoted, counts),
            _ => KeptBytes::only(0),
        }
    }

    fn ipv4(&mut self, packet: &mut [u8], depth: u32, quoted: bool, counts: &mut AnonymisationCounts) -> KeptBytes {
        const CHECKSUM: usize = 10;
        const ADDRESSES: std::ops::Range<usize> = 12..20;
        let header = usize::from(packet[0] & 15) * 4;
        if header < Ipv4::LEN || packet.len() < header {
            return KeptBytes::only(0);
        }
        let (head, rest) = packet.split_at_mut(header);
        let total = usize::from(be16(head, 2));
        let len = if total < header { rest.len() } else { rest.len().min(total - header) };
        let (all, before) = (Checksum::new().bytes(head), Checksum::new().bytes(&head[ADDRESSES]));
        self.v4(head, 12);
        self.v4(head, 16);
        counts.options += blank_v4(&mut head[Ipv4::LEN..]);
        correct(head, CHECKSUM, all, Checksum::new().bytes(head));
        // Fragments other than the first have no transport header.
        if be16(head, 6) & 0x1fff != 0 {
            return KeptBytes::to(header);
        }
        let above = PseudoHeader { before, after: Checksum::new().bytes(&head[ADDRESSES]), depth, quoted };
        self.transport(IpProtocol(head[9]), &mut rest[..len], above, counts).after_header(header)
    }

    fn ipv6(&mut self, packet: &mut [u8], depth: u32, quoted: bool, counts: &mut AnonymisationCounts) -> KeptBytes {
        const FRAGMENT: usize = 8;
        if packet.len() < Ipv6::LEN {
            return KeptBytes::only(0);
        }
        let len = match usize::from(be16(packet, 4)) {
            0 => packet.len(), // a jumbogram, or several segments that the NIC merged
            len => packet.len().min(Ipv6::LEN + len),
        };
        let packet = &mut packet[..len];
        let (source, mut target) = (address(packet, 8), address(packet, 24));
        self.v6(packet, 8);
        self.v6(packet, 24);
        let (source_after, mut target_after) = (address(packet, 8), address(packet, 24));
        let (mut next, mut at) = (IpProtocol(packet[6]), Ipv6::LEN);
        for _ in 0..EXTENSIONS {
            let rest = &mut packet[at..];
            let len = match next {
                IpProtocol::FRAGMENT => FRAGMENT,
                IpProtocol::HOP_BY_HOP | IpProtocol::DEST_OPTIONS | IpProtocol::ROUTING if rest.len() >= 2 => {
                    (usize::from(rest[1]) + 1) * 8
                }
                _ => break,
            };
            if rest.len() < len {
                return KeptBytes::only(at);
            }
            match next {
                IpProtocol::FRAGMENT if be16(rest, 2) & 0xfff8 != 0 => return KeptBytes::to(at + len),
                IpProtocol::FRAGMENT => {}
                // With a routing header, the transport checksum covers the address of the final destination.
                IpProtocol::ROUTING => {
                    if let Some((before, after)) = self.routing(&mut rest[..len], counts) {
                        (target, target_after) = (before, after);
                    }
                }
                _ => counts.options += blank_v6(&mut rest[2..len]),
            }
            next = IpProtocol(rest[0]);
            at += len;
        }
        let sum = |source: [u8; 16], target: [u8; 16]| Checksum::new().bytes(&source).bytes(&target);
        let (before, after) = (sum(source, target), sum(source_after, target_after));
        let above = PseudoHeader { before, after, depth, quoted };
        self.transport(next, &mut packet[at..], above, counts).after_header(at)
    }

    /// Rewrites a routing header. Types 0 (source route), 2 (mobile) and 4 (segment) have a list of addresses, which
    /// are mapped; other types are blanked. Returns the final destination before and after mapping; `None` if the
    /// destination address in the IP header is the final destination already.
    fn routing(&mut self, header: &mut [u8], counts: &mut AnonymisationCounts) -> Option<([u8; 16], [u8; 16])> {
        const LIST: usize = 8;
        const SEGMENTS: u8 = 4;
        let (kind, left) = (header[2], header[3]);
        let room = (header.len() - LIST) / 16;
        let many = match kind {
            0 | 2 => room,
            SEGMENTS => room.min(usize::from(header[4]) + 1),
            _ => 0,
        };
        let list = LIST..LIST + many * 16;
        // A segment list is in reverse order, so its first address is the final destination.
        let stop = if kind == SEGMENTS { list.start } else { list.end.saturating_sub(16) };
        let before = (many > 0 && left > 0).then(|| address(header, stop));
        for at in list.clone().step_by(16) {
            self.v6(header, at);
        }
        if list.end < header.len() {
            header[list.end..].fill(0);
            counts.options += 1;
        }
        before.map(|before| (before, address(header, stop)))
    }

    /// Maps the IPv4 address at `at`.
    pub(super) fn v4(&mut self, bytes: &mut [u8], at: usize) {
        let Some(field) = bytes[at..].first_chunk_mut::<4>() else { return };
        *field = self.addresses.v4(Ipv4Addr::from(*field)).octets();
    }

    /// Maps the IPv6 address at `at`.
    pub(super) fn v6(&mut self, bytes: &mut [u8], at: usize) {
        let Some(field) = bytes[at..].first_chunk_mut::<16>() else { return };
        *field = self.addresses.v6(Ipv6Addr::from(*field)).octets();
    }

    /// Maps the MAC address at `at`. The broadcast address, the zero address, and the group and local bits are not
    /// changed.
    pub(super) fn mac(&mut self, bytes: &mut [u8], at: usize) {
        const WIDTH: u32 = 48;
        const VENDOR: u32 = 24;
        const MEANING: u64 = 0x0300_0000_0000;
        let from = match self.macs {
            Macs::All => 0,
            Macs::Vendor => VENDOR,
            Macs::Keep => return,
        };
        let Some(field) = bytes[at..].first_chunk_mut::<6>() else { return };
        let mut wide = [0; 8];
        wide[2..].copy_from_slice(field);
        let mut mac = u64::from_be_bytes(wide);
        let special = |mac: u64| mac == 0 || mac == (1 << WIDTH) - 1;
        if special(mac) {
            return;
        }
        // If a mapped address is the broadcast or the zero address, it is mapped again, so that no two addresses have
        // the same result.
        loop {
            let flips = self.hardware.flips(u128::from(mac) << (128 - WIDTH), from, WIDTH) >> (128 - WIDTH);
            mac ^= flips as u64 & !MEANING;
            if !special(mac) {
                break;
            }
        }
        field.copy_from_slice(&mac.to_be_bytes()[2..]);
    }

    /// Rewrites the link address field of Linux cooked captures, which has eight bytes.
    fn cooked_address(&mut self, frame: &mut [u8], at: usize, len: usize) {
        if len == 6 {
            self.mac(frame, at);
            frame[at + 6..at + 8].fill(0);
        } else if self.macs != Macs::Keep {
            frame[at..at + 8].fill(0);
        }
    }
}

/// Length of the link header of BSD loopback (LINKTYPE_NULL, LINKTYPE_LOOP).
const LOOP_LEN: usize = 4;

/// Linux cooked capture (LINKTYPE_LINUX_SLL).
mod sll {
    pub const ADDRESS_LEN: usize = 4;
    pub const ADDRESS: usize = 6;
    pub const PROTOCOL: usize = 14;
    pub const LEN: usize = 16;
}

/// Linux cooked capture, version 2 (LINKTYPE_LINUX_SLL2).
mod sll2 {
    pub const PROTOCOL: usize = 0;
    pub const ADDRESS_LEN: usize = 11;
    pub const ADDRESS: usize = 12;
    pub const LEN: usize = 20;
}

/// Reverse ARP (RFC 903), which has the layout of ARP.
const RARP: EtherType = EtherType(0x8035);

/// Updates the checksum at `at` according to the changes of the bytes that it covers (RFC 1624). Does nothing if the
/// checksum field was not captured.
pub(super) fn correct(bytes: &mut [u8], at: usize, before: Checksum, after: Checksum) {
    let (before, after) = (!before.finish(), !after.finish());
    if bytes.len() < at + 2 || before == after {
        return;
    }
    let sum = update_checksum(be16(bytes, at), before, after);
    bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

pub(super) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn address(bytes: &[u8], at: usize) -> [u8; 16] {
    let mut out = [0; 16];
    out.copy_from_slice(&bytes[at..at + 16]);
    out
}
