//! The naive detector of duplicates, an oracle of the crate `duplicates`: it keeps all packets of the window and
//! compares a packet with each of them, newest first, with all captured bytes and without hashes. The rules are written
//! in another form than in the crate: a packet is a copy if the earlier packet becomes equal to it after the changes
//! that the class permits.

mod around;
mod parts;
mod translation;

use around::Around;
use base::Timestamp;
use duplicates::{Class, Settings};
use std::collections::{HashMap, VecDeque};
use std::time::Duration;
use translation::{Confirmations, Flow, confirm, is_proxied, is_translated};
use wire::{Decoded, EtherType, Family, IpProtocol, link, tcp_flags};

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
    around: Around,
    number: u64,
    /// The number and the time of the first packet of the chain of copies.
    chain: u64,
    first: u64,
    /// The earlier copies since the TTL last decreased.
    copies: u32,
    /// The classes NAT and proxying for which a copy of this packet was found.
    used_by: Vec<Class>,
}

/// See the module documentation.
pub struct Naive {
    settings: Settings,
    window: VecDeque<Seen>,
    number: u64,
    /// Equal packets that are not duplicates.
    pub repeats: u64,
    /// Copies above the limit.
    pub over_limit: u64,
    /// Packets that confirm a binding.
    pub unconfirmed: u64,
    /// The packets that confirm each binding: class, flow before, flow after.
    bindings: HashMap<(Class, Flow, Flow), Confirmations>,
}

/// The relation of an equal packet.
enum Finding {
    Copy { class: Class, is_lower: bool },
    Repeat,
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
        Self {
            owned: owned.clone(),
            around: Around::of(&owned.data, &decoded),
            decoded,
            is_other,
            region,
            wire,
            number,
            chain: number,
            first: owned.nanos,
            copies: 0,
            used_by: Vec::new(),
        }
    }

    fn macs(&self) -> Option<&[u8]> {
        let l2 = usize::from(self.decoded.l2.unwrap_or(0));
        self.owned.data.get(l2..l2 + 12)
    }

    fn is_v4(&self) -> bool {
        self.decoded.family == Family::V4
    }

    fn l4(&self) -> Option<usize> {
        (self.decoded.l4 > 0).then(|| usize::from(self.decoded.l4 - self.decoded.l3))
    }

    /// True if a captured field that is not 0 differs from packet to packet.
    fn is_identified(&self) -> bool {
        let is_set = |at: usize| self.region.len() >= at + 4 && range(&self.region, at, 4) != [0; 4];
        if self.is_other {
            return false;
        }
        if self.is_v4() {
            let above = match self.decoded.protocol {
                IpProtocol::ESP => self.l4().is_some_and(|l4| is_set(l4 + 4)),
                IpProtocol::AH => self.l4().is_some_and(|l4| is_set(l4 + 8)),
                _ => false,
            };
            return self.region[4..6] != [0, 0] || above;
        }
        // Hop-by-hop options, routing and destination options precede the header with the field.
        let (mut next, mut at) = (self.region[6], 40);
        let mut steps = 0;
        while [0, 43, 60].contains(&next) && steps < 8 && at + 1 < self.region.len() {
            next = self.region[at];
            at += 8 + 8 * usize::from(self.region[at + 1]);
            steps += 1;
        }
        let is_step_left = steps < 8;
        is_step_left && ([44, 50].contains(&next) && is_set(at + 4) || next == 51 && is_set(at + 8))
    }

    fn is_tcp(&self) -> bool {
        !self.is_other && self.decoded.protocol == IpProtocol::TCP
    }

    /// True for a captured TCP header of a segment with payload or FIN.
    fn awaits_acknowledgement(&self) -> bool {
        let Some(l4) = self.l4().filter(|l4| self.is_tcp() && self.region.len() >= l4 + 18) else { return false };
        let flags = self.region[l4 + 13];
        let is_fin = flags & tcp_flags::FIN != 0 && flags & (tcp_flags::SYN | tcp_flags::RST) == 0;
        self.decoded.payload_len > 1 || is_fin
    }

    fn is_unicast(&self) -> bool {
        match self.macs() {
            Some(macs) => macs[0] % 2 == 0,
            None if self.is_other => false,
            None if self.is_v4() => self.region[16] < 224,
            None => self.region[24] < 255,
        }
    }

    /// The VLANs, without priority tags.
    fn vlans(&self) -> Vec<u16> {
        self.decoded.vlans.into_iter().flatten().filter(|id| *id > 0).collect()
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

    fn shape(&self) -> (bool, Family, usize, usize, Option<EtherType>) {
        let ethertype = self.is_other.then_some(self.decoded.ethertype);
        let family = if self.is_other { Family::Other } else { self.decoded.family };
        (self.is_other, family, self.wire, self.region.len(), ethertype)
    }

    /// True if both packets are equal, perhaps except for identification, type of service, TTL and IPv4 checksum.
    fn is_twin(&self, other: &Self) -> bool {
        if self.shape() != other.shape() {
            return false;
        }
        if self.is_other || self.region == other.region {
            return self.region == other.region;
        }
        let mut region = self.as_routed(other);
        let mut unchanged = self.region.clone();
        if self.is_v4() {
            region[4..6].copy_from_slice(&other.region[4..6]);
            unchanged[10..12].copy_from_slice(&other.region[10..12]);
        }
        // The checksum does not change alone.
        region == other.region && unchanged != other.region
    }

    fn has_other_id(&self, other: &Self) -> bool {
        !self.is_other && self.is_v4() && self.region[4..6] != other.region[4..6]
    }

    /// True if both packets are equal, with the same MAC addresses and tunnels.
    fn is_same_frame(&self, other: &Self) -> bool {
        self.shape() == other.shape()
            && self.region == other.region
            && self.macs() == other.macs()
            && self.around.is_same(&other.around)
    }
}

/// True if both addresses differ; the destination may be the same multicast address.
fn is_other_link(old: &[u8], new: &[u8]) -> bool {
    old[6..] != new[6..] && (old[..6] != new[..6] || new[0] & 1 != 0)
}

impl Naive {
    /// The naive detector before the first packet. It does not support the setting `exact`.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            window: VecDeque::new(),
            number: 0,
            repeats: 0,
            over_limit: 0,
            unconfirmed: 0,
            bindings: HashMap::new(),
        }
    }

    /// Compares a packet with the packets before it.
    pub fn inspect(&mut self, owned: &OwnedPacket) -> Option<Class> {
        let mut new = Seen::of(owned, self.number);
        self.number += 1;
        let limit = self.settings.window_packets.min(self.settings.records as u64);
        let window: Vec<&Seen> = self.window.iter().rev().filter(|old| new.number - old.number <= limit).collect();
        let near: Vec<&Seen> = window.iter().copied().filter(|old| time(old, &new) <= self.settings.window).collect();
        let is_identified = new.is_identified() && !is_repeating(&near, &new);
        let (mut found, mut is_repeat) = (None, false);
        for old in &window {
            let since_first = Duration::from_nanos(old.first.abs_diff(new.owned.nanos));
            let is_late = since_first > self.settings.window || new.number - old.chain > self.settings.window_packets;
            if is_late || found.is_some() {
                continue;
            }
            match self.finding(old, &new, is_identified, &window) {
                Some(Finding::Copy { class, is_lower }) if self.settings.classes.contains(class) => {
                    (new.chain, new.copies) = (old.chain, if is_lower { 0 } else { old.copies + 1 });
                    // The table stores the time since the first packet in units of 256 ns.
                    let since = (new.owned.nanos as i64 - old.first as i64) / 256 * 256;
                    new.first = (new.owned.nanos as i64 - since) as u64;
                    found = Some(class);
                }
                Some(Finding::Repeat) if self.settings.classes.contains(Class::Switching) => is_repeat = true,
                _ => (),
            }
        }
        let mut used = None;
        for (class, rule) in [(Class::Nat, is_translated as fn(&Seen, &Seen) -> bool), (Class::Proxying, is_proxied)] {
            if found.is_some() || used.is_some() || !self.settings.classes.contains(class) {
                continue;
            }
            let is_original = |old: &&&Seen| !old.used_by.contains(&class) && rule(old, &new);
            if let Some(old) = near.iter().find(is_original)
                && let Some(is_confirmed) = confirm(&mut self.bindings, class, old, &new)
            {
                used = Some((old.number, class));
                self.unconfirmed += u64::from(!is_confirmed);
                found = is_confirmed.then_some(class);
            }
        }
        if found.is_none() && self.settings.classes.contains(Class::Fragment) {
            found = near.iter().any(|old| parts::is_part(old, &new)).then_some(Class::Fragment);
        }
        if let Some((number, class)) = used {
            let original = self.window.iter_mut().find(|old| old.number == number);
            original.into_iter().for_each(|old| old.used_by.push(class));
        }
        let is_over = new.copies > u32::from(self.settings.copies_max);
        self.over_limit += u64::from(is_over);
        self.repeats += u64::from(is_repeat && found.is_none());
        self.window.push_back(new);
        if self.window.len() > self.settings.records {
            self.window.pop_front();
        }
        found.filter(|_| !is_over)
    }

    fn finding(&self, old: &Seen, new: &Seen, is_identified: bool, window: &[&Seen]) -> Option<Finding> {
        if !old.is_twin(new) || old.has_other_id(new) {
            return None;
        }
        let copy = |class, is_lower| Some(Finding::Copy { class, is_lower });
        let is_here = |seen: &Seen| {
            seen.vlans() == new.vlans()
                && (seen.owned.interface == new.owned.interface || !self.settings.mirrored_interfaces)
        };
        // A chain whose first packet left the window can have had a packet here.
        let is_known = window.iter().any(|seen| seen.number == old.chain);
        let is_occupied =
            !is_known || window.iter().any(|seen| seen.chain == old.chain && seen.is_same_frame(new) && is_here(seen));
        let since = Duration::from_nanos(old.first.abs_diff(new.owned.nanos));
        if old.is_same_frame(new) {
            let is_other_place = !is_occupied && new.is_unicast() && new.region.len() == new.wire;
            let is_repeat_near = since <= self.settings.repeat_window && self.settings.repeat_window > Duration::ZERO;
            if is_identified || is_other_place || self.is_before_acknowledgement(old, new, since) || is_repeat_near {
                return copy(Class::Switching, false);
            }
            return Some(Finding::Repeat);
        }
        // All other copies were on another link.
        let is_other_link = old.macs().zip(new.macs()).is_some_and(|(a, b)| is_other_link(a, b));
        if !is_other_link {
            return None;
        }
        if old.region == new.region {
            let is_lower = old.around.is_lower(&new.around);
            let is_forwarded = is_identified && old.around.may_become(&new.around);
            return if is_forwarded { copy(Class::Routing, is_lower) } else { None };
        }
        if new.ttl() < old.ttl() {
            let is_near = since <= Duration::from_millis(1) && !is_occupied;
            return if is_identified || is_near { copy(Class::Routing, true) } else { None };
        }
        let is_reversed =
            new.ttl() > old.ttl() && self.settings.unordered_interfaces && old.owned.interface != new.owned.interface;
        if is_reversed && is_identified { copy(Class::Routing, true) } else { None }
    }

    fn is_before_acknowledgement(&self, old: &Seen, new: &Seen, since: Duration) -> bool {
        let (then, now) = (old.owned.nanos, new.owned.nanos);
        let is_clock_usable = then > 0 && then <= now && old.first <= now && (then < now || now % 1_000_000 > 0);
        new.awaits_acknowledgement()
            && is_clock_usable
            && new.number - old.number <= 4
            && since <= self.settings.retransmission_window
    }
}

/// True if the sender of the packet sent the same with another identification. `near` is the window, newest first.
fn is_repeating(near: &[&Seen], new: &Seen) -> bool {
    let mut twins = near.iter().filter(|old| old.is_twin(new));
    if new.is_tcp() {
        return twins.next().is_some_and(|newest| newest.has_other_id(new));
    }
    twins.any(|old| old.has_other_id(new))
}

fn time(old: &Seen, new: &Seen) -> Duration {
    Duration::from_nanos(old.owned.nanos.abs_diff(new.owned.nanos))
}
