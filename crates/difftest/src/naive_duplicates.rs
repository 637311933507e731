//! The naive detector of duplicates, an oracle of the crate `duplicates`: it keeps all packets of the window and
//! compares a packet with each of them, newest first, with all captured bytes and without hashes. The rules are written
//! in another form than in the crate: a packet is a copy if the earlier packet becomes equal to it after the changes
//! that the class permits.

use base::Timestamp;
use duplicates::{Class, Settings};
use std::collections::VecDeque;
use std::time::Duration;
use wire::{Decoded, EtherType, Family, Fragment, IpProtocol, link, tcp_flags};

/// A packet with its own bytes.
#[derive(Clone, Debug)]
pub struct OwnedPacket {
    /// Time in nanoseconds since 1970.
    pub nanos: u64,
    /// The captured bytes.
    pub data: Vec<u8>,
    /// Length on the wire in bytes.
    pub wire_len: u32,
    /// The number of the interface.
    pub interface: u16,
}

impl OwnedPacket {
    /// The packet for the detector, with the link type Ethernet.
    pub fn packet(&self) -> duplicates::Packet<'_> {
        duplicates::Packet {
            ts: Timestamp::from_nanos(self.nanos),
            data: &self.data,
            wire_len: self.wire_len,
            link_type: link::ETHERNET,
            interface: self.interface,
        }
    }
}

/// A packet of the window.
struct Seen {
    owned: OwnedPacket,
    decoded: Decoded,
    is_other: bool,
    region: Vec<u8>,
    wire: usize,
    copies: u32,
    number: u64,
}

/// See the module documentation.
pub struct Naive {
    settings: Settings,
    window: VecDeque<Seen>,
    number: u64,
    /// Equal packets that are not duplicates.
    pub repeats: u64,
}

fn range(region: &[u8], at: usize, len: usize) -> Vec<u8> {
    region.iter().skip(at).take(len).copied().collect()
}

impl Seen {
    fn of(owned: &OwnedPacket, number: u64) -> Self {
        let decoded = Decoded::of(&owned.data, owned.wire_len, link::ETHERNET);
        let is_other = decoded.family == Family::Other || decoded.malformed;
        let (region, wire) = if is_other {
            let from = if decoded.malformed { 0 } else { usize::from(decoded.l3) };
            let region = &owned.data[from..];
            let wire = (owned.wire_len as usize).max(owned.data.len()) - from;
            match decoded.ethertype == EtherType::ARP && region.len() >= 28 {
                true => (region[..28].to_vec(), 28),
                false => (region.to_vec(), wire),
            }
        } else {
            (range(&owned.data, decoded.l3.into(), decoded.ip_len as usize), decoded.ip_len as usize)
        };
        Self { owned: owned.clone(), decoded, is_other, region, wire, copies: 0, number }
    }

    fn macs(&self) -> Option<&[u8]> {
        let l2 = usize::from(self.decoded.l2.unwrap_or(0));
        self.owned.data.get(l2..l2 + 12)
    }

    /// The headers around an IP packet in a tunnel or below labels that has no Ethernet header of its own, without the
    /// MAC addresses and VLAN tags of the frame.
    fn outer(&self) -> Option<Vec<u8>> {
        let is_inside = self.decoded.depth > 0 || self.decoded.mpls.is_some();
        if !is_inside || self.decoded.l2.unwrap_or(0) > 0 {
            return None;
        }
        let data = &self.owned.data;
        let mut at = 12;
        while data.get(at..at + 2).is_some_and(|b| EtherType(u16::from_be_bytes([b[0], b[1]])).is_vlan()) {
            at += 4;
        }
        Some(data.get(at..self.decoded.l3.into()).unwrap_or_default().to_vec())
    }

    fn outer_ttl(&self) -> u8 {
        let outer = self.outer().unwrap_or_default();
        let mut at = 2;
        if self.decoded.depth == 0 {
            return outer[at + 3];
        }
        if EtherType(u16::from_be_bytes([outer[0], outer[1]])).is_mpls() {
            while outer[at + 2] & 1 == 0 {
                at += 4;
            }
            at += 4;
        }
        outer[at + if outer[at] >> 4 == 4 { 8 } else { 7 }]
    }

    fn is_v4(&self) -> bool {
        self.decoded.family == Family::V4
    }

    fn l4(&self) -> Option<usize> {
        (self.decoded.l4 > 0).then(|| usize::from(self.decoded.l4 - self.decoded.l3))
    }

    fn is_identified(&self) -> bool {
        if self.is_other {
            return false;
        }
        let is_ipsec = [IpProtocol::ESP, IpProtocol::AH].contains(&self.decoded.protocol);
        is_ipsec || if self.is_v4() { self.region[4..6] != [0, 0] } else { self.decoded.fragment != Fragment::Whole }
    }

    fn occupies_sequence(&self) -> bool {
        let flags = self.l4().and_then(|l4| self.region.get(l4 + 13)).copied().unwrap_or(0);
        !self.is_other
            && self.decoded.protocol == IpProtocol::TCP
            && self.l4().is_some()
            && (self.decoded.payload_len > 0 || flags & (tcp_flags::SYN | tcp_flags::FIN) != 0)
    }

    fn ttl(&self) -> u8 {
        self.region[if self.is_v4() { 8 } else { 7 }]
    }

    fn addresses(&self) -> (Vec<u8>, Vec<u8>) {
        let (at, len) = if self.is_v4() { (12, 4) } else { (8, 16) };
        (range(&self.region, at, len), range(&self.region, at + len, len))
    }

    /// The region with the fields of `other` that routers change.
    fn as_routed(&self, other: &Self) -> Vec<u8> {
        let (mut region, new) = (self.region.clone(), &other.region);
        if self.is_v4() {
            for at in [1, 8, 10, 11] {
                region[at] = new[at];
            }
        } else {
            region[0] = region[0] & 0xf0 | new[0] & 0x0f;
            region[1] = region[1] & 0x0f | new[1] & 0xf0;
            region[7] = new[7];
        }
        region
    }

    /// The region with the fields of `other` that a router changes that translates one side.
    fn as_translated(&self, other: &Self, is_source: bool) -> Vec<u8> {
        let mut region = self.as_routed(other);
        let (at, len) = if self.is_v4() { (12, 4) } else { (8, 16) };
        let from = if is_source { at } else { at + len };
        region[from..from + len].copy_from_slice(&other.region[from..from + len]);
        let fields = match self.decoded.protocol {
            IpProtocol::TCP => Some((true, 16)),
            IpProtocol::UDP => Some((true, 6)),
            IpProtocol::ICMP | IpProtocol::ICMPV6 => Some((false, 2)),
            _ => None,
        };
        if let (Some(l4), Some((has_ports, sum))) = (self.l4(), fields) {
            let port = if is_source { l4 } else { l4 + 2 };
            let ports = if has_ports { port..port + 2 } else { 0..0 };
            for at in ports.chain(l4 + sum..l4 + sum + 2) {
                if at < region.len() {
                    region[at] = other.region[at];
                }
            }
        }
        region
    }
}

/// True if both addresses differ; the destination may be the same multicast address.
fn is_other_link(old: &[u8], new: &[u8]) -> bool {
    old[6..] != new[6..] && (old[..6] != new[..6] || new[0] & 1 != 0)
}

impl Naive {
    /// The naive detector before the first packet. It does not support the setting `exact`.
    pub fn new(settings: Settings) -> Self {
        Self { settings, window: VecDeque::new(), number: 0, repeats: 0 }
    }

    /// Compares a packet with the packets before it.
    pub fn inspect(&mut self, owned: &OwnedPacket) -> Option<Class> {
        let mut new = Seen::of(owned, self.number);
        self.number += 1;
        let limit = self.settings.window_packets.min(self.settings.records as u64);
        let window: Vec<&Seen> = self.window.iter().rev().filter(|old| new.number - old.number <= limit).collect();
        let near = |old: &&&Seen| time(old, &new) <= self.settings.window;
        let (mut found, mut is_repeat) = (None, false);
        for old in window.iter().filter(near) {
            match self.verdict(old, &new) {
                Some(Ok(class)) if self.settings.classes.contains(class) => {
                    found = Some((class, old.copies));
                    break;
                }
                Some(Err(())) if self.settings.classes.contains(Class::Switching) => is_repeat = true,
                _ => (),
            }
        }
        for (class, rule) in [(Class::Proxying, is_proxied as fn(&Seen, &Seen) -> bool), (Class::Fragment, is_part)] {
            if found.is_none() && self.settings.classes.contains(class) {
                let old = window.iter().filter(near).find(|old| rule(old, &new));
                found = old.map(|old| (class, if class == Class::Fragment { 0 } else { old.copies }));
            }
        }
        new.copies = found.map_or(0, |(_, copies)| copies + 1);
        let is_over = new.copies > u32::from(self.settings.copies_max);
        self.repeats += u64::from(is_over || is_repeat && found.is_none());
        let oldest = self.window.len() + 1;
        self.window.push_back(new);
        if oldest as u64 > self.settings.records as u64 {
            self.window.pop_front();
        }
        found.filter(|_| !is_over).map(|(class, _)| class)
    }

    /// The class of a copy, or an error for a repeat.
    fn verdict(&self, old: &Seen, new: &Seen) -> Option<Result<Class, ()>> {
        let shape = |seen: &Seen| (seen.is_other, seen.decoded.family, seen.wire, seen.region.len());
        if shape(old) != shape(new) || new.is_other && old.decoded.ethertype != new.decoded.ethertype {
            return None;
        }
        let macs = old.macs().zip(new.macs());
        if old.region == new.region {
            if macs.is_none_or(|(a, b)| a == b)
                && old.macs().is_some() == new.macs().is_some()
                && old.outer() == new.outer()
            {
                return Some(if self.is_copy(old, new) { Ok(Class::Switching) } else { Err(()) });
            }
            let is_forwarded = match (old.outer(), new.outer()) {
                (None, None) => false,
                (Some(_), Some(_)) => new.outer_ttl() < old.outer_ttl(),
                _ => true,
            };
            let is_routed = new.is_identified() && is_forwarded && macs.is_none_or(|(a, b)| is_other_link(a, b));
            return is_routed.then_some(Ok(Class::Routing));
        }
        let is_reversed = self.settings.unordered_interfaces
            && !new.is_other
            && new.is_identified()
            && old.owned.interface != new.owned.interface
            && new.ttl() > old.ttl()
            && old.as_routed(new) == new.region;
        let is_later = new.is_other || new.ttl() >= old.ttl();
        if is_later && !is_reversed || !macs.map_or(new.is_identified(), |(a, b)| is_other_link(a, b)) {
            return None;
        }
        if old.as_routed(new) == new.region {
            return Some(Ok(Class::Routing));
        }
        let (source, destination) = (old.addresses().0 != new.addresses().0, old.addresses().1 != new.addresses().1);
        let is_nat = source != destination
            && (new.is_identified() || new.decoded.protocol == IpProtocol::TCP)
            && old.as_translated(new, source) == new.region;
        is_nat.then_some(Ok(Class::Nat))
    }

    fn is_copy(&self, old: &Seen, new: &Seen) -> bool {
        let within = |window: Duration| window > Duration::ZERO && time(old, new) <= window;
        new.is_identified()
            || old.decoded.vlans != new.decoded.vlans
            || self.settings.mirrored_interfaces && old.owned.interface != new.owned.interface
            || new.occupies_sequence() && time(old, new) <= self.settings.retransmission_window
            || within(self.settings.repeat_window)
    }
}

fn time(old: &Seen, new: &Seen) -> Duration {
    Duration::from_nanos(old.owned.nanos.abs_diff(new.owned.nanos))
}

fn is_proxied(old: &Seen, new: &Seen) -> bool {
    let is_tcp = |seen: &Seen| {
        let header = if seen.is_v4() { 20 } else { 40 };
        !seen.is_other
            && seen.decoded.protocol == IpProtocol::TCP
            && seen.decoded.fragment == Fragment::Whole
            && seen.l4() == Some(header)
            && seen.decoded.payload > seen.decoded.l4
    };
    if !is_tcp(old) || !is_tcp(new) || old.decoded.family != new.decoded.family {
        return false;
    }
    let l4 = new.l4().unwrap_or_default();
    let word = |seen: &Seen, at: usize| range(&seen.region, l4 + at, 4);
    let payload = |seen: &Seen| range(&seen.region, usize::from(seen.decoded.payload - seen.decoded.l3), usize::MAX);
    let (a, b) = (old.addresses(), new.addresses());
    let is_numbered = word(old, 4) == word(new, 4) || word(new, 8) != [0, 0, 0, 0] && word(old, 8) == word(new, 8);
    old.macs().zip(new.macs()).is_none_or(|(a, b)| is_other_link(a, b))
        && (a.0 == b.0) != (a.1 == b.1)
        && word(old, 0) == word(new, 0)
        && is_numbered
        && old.decoded.payload_len == new.decoded.payload_len
        && payload(old) == payload(new)
}

fn is_part(old: &Seen, new: &Seen) -> bool {
    let is_usable = |seen: &Seen| !seen.is_other && seen.is_v4() && seen.region[4..6] != [0, 0];
    if !is_usable(old) || !is_usable(new) || new.decoded.fragment == Fragment::Whole || old.region[6] & 0x40 != 0 {
        return false;
    }
    let span = |seen: &Seen| {
        let header = usize::from(seen.region[0] & 15) * 4;
        let field = u16::from_be_bytes([seen.region[6], seen.region[7]]);
        let from = usize::from(field & 0x1fff) * 8;
        (from, from + seen.wire - header, field & 0x2000 != 0, header)
    };
    let ((a, b, a_more, a_header), (c, d, c_more, c_header)) = (span(old), span(new));
    if b - a <= 512 || c < a || d > b || d - c >= b - a || c_more != (a_more || d < b) || new.region.len() <= c_header {
        return false;
    }
    let changed = (old.addresses().0 != new.addresses().0, old.addresses().1 != new.addresses().1);
    let is_linked = old.macs().zip(new.macs()).is_none_or(|(a, b)| a[..6] != b[..6] && a[6..] != b[6..]);
    let (mut payload, part) = (range(&old.region, a_header + c - a, d - c), range(&new.region, c_header, d - c));
    payload.truncate(part.len());
    if payload.len() < part.len() || changed == (true, true) || !is_linked || new.ttl() >= old.ttl() {
        return false;
    }
    if old.decoded.protocol != new.decoded.protocol || old.region[4..6] != new.region[4..6] {
        return false;
    }
    if changed != (false, false) && c == 0 {
        let sum = match new.decoded.protocol {
            IpProtocol::TCP => 16,
            IpProtocol::UDP => 6,
            IpProtocol::ICMP | IpProtocol::ICMPV6 => 2,
            _ => return payload == part,
        };
        let port = if changed.0 { 0..2 } else { 2..4 };
        let has_ports = [IpProtocol::TCP, IpProtocol::UDP].contains(&new.decoded.protocol);
        if part.len() < 18 {
            return false;
        }
        for at in port.filter(|_| has_ports).chain(sum..sum + 2) {
            payload[at] = part[at];
        }
    }
    payload == part
}
