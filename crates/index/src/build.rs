//! Collecting the keys of one block while its packets pass.
//!
//! The cost per packet must stay near that of reading its addresses. Packets of one conversation follow each other, so a
//! small table of the exact tuples seen in this block, the same for both directions, answers most of them with one compare. A tuple that is not in it goes
//! straight into filters of full size, where a repeat does no harm; so the table can forget, but it can never hide a key.
//! At the end of the block each filter is folded to the size that its keys want.
//!
//! What is a key is said by [`wire::Headers`], with which the filter reads frames too: the two can only agree.

use crate::fit::{self, Fill};
use crate::key::{self, KINDS, Kind, Sets};
use crate::set::{GROUP, Group, Set, bits_of, group_of, word_of};
use wire::{EtherType, Family, Headers, link};

/// Tuples remembered per block.
const RECENT: usize = 512;

/// Groups of each filter while it is filled: more would not fit a block's room.
const GROUPS: usize = 256;
const NET_GROUPS: usize = 128;
const LINK_GROUPS: usize = 16;

/// Bytes that the sets of one block may take: with the rest of its entry it stays below 1 % of a MiB.
pub const SETS_BUDGET: usize = (10 << 10) + 5 * GROUP;

/// Bytes of the two exact maps, which are not traded for others.
const MAPS: usize = 2 * GROUP;

/// A marked tuple differs from an empty place.
const MARK: u64 = 1 << 63;

/// Whether ports are known.
const PORTS: u64 = 1 << 40;

/// The keys of one block.
pub struct Keys {
    /// Of IPv4: both addresses; mark, protocol, ports.
    recent_v4: Box<[[u64; 2]; RECENT]>,
    recent_v6: Box<[[u64; 5]; RECENT]>,
    /// One bit for each port: most are met again and again, and the filter is made of those met.
    seen_ports: Box<[u64; 1024]>,
    hosts: Box<[Group; GROUPS]>,
    flows: Box<[Group; GROUPS]>,
    nets: Box<[Group; NET_GROUPS]>,
    links: [Group; LINK_GROUPS],
    protocols: Group,
    first_bytes: Group,
    /// Ethertype and tag of the packet before.
    link: u64,
    /// How often a tuple was put into the filters, and a tag or ethertype.
    inserted: usize,
    linked: usize,
    /// Whether there were ports, and tuples of IPv6.
    ported: bool,
    any_v6: bool,
}

impl Default for Keys {
    fn default() -> Self {
        Self {
            recent_v4: Box::new([[0; 2]; RECENT]),
            recent_v6: Box::new([[0; 5]; RECENT]),
            seen_ports: Box::new([0; 1024]),
            hosts: Box::new([[0; 4]; GROUPS]),
            flows: Box::new([[0; 4]; GROUPS]),
            nets: Box::new([[0; 4]; NET_GROUPS]),
            links: [[0; 4]; LINK_GROUPS],
            protocols: [0; 4],
            first_bytes: [0; 4],
            link: 0,
            inserted: 0,
            linked: 0,
            ported: false,
            any_v6: false,
        }
    }
}

#[inline]
fn insert<const N: usize>(filter: &mut [Group; N], hash: u64) {
    let group = &mut filter[group_of(hash, N) % N];
    let bits = bits_of(hash);
    (0..4).for_each(|w| group[w] |= bits[w]);
}

#[inline]
fn insert_thin<const N: usize>(filter: &mut [Group; N], hash: u64) {
    let (word, bits) = word_of(hash);
    filter[group_of(hash, N) % N][word % 4] |= bits;
}

#[inline]
fn mark(map: &mut Group, value: u8) {
    map[usize::from(value / 64)] |= 1 << (value % 64);
}

impl Keys {
    /// Adds the keys of one packet, of which `frame` was captured and `wire_len` bytes were sent.
    #[inline]
    pub fn add(&mut self, frame: &[u8], wire_len: u32, link_type: u16) {
        let headers = Headers::of(frame, wire_len, link_type);
        let link = MARK
            | u64::from(headers.vlan().map_or(0, |id| 0x1_0000 | u32::from(id))) << 16
            | u64::from(headers.ethertype().0);
        // Within the same outer tag each packet may have others.
        if link != self.link || headers.vlan().is_some() && inner_tag(frame, tags_at(link_type)).is_some() {
            self.add_link(frame, &headers, link_type, link);
        }
        let l3 = usize::from(headers.l3());
        match headers.family() {
            Family::V4 => {
                let Some(addresses) = frame.get(l3 + 12..l3 + 20) else { return };
                let (addresses, rest) = (be64(addresses), rest(frame, &headers));
                let turned = addresses.rotate_left(32);
                // No branch, which would be a coin's.
                let tuple = if addresses <= turned { [addresses, rest] } else { [turned, reversed(rest)] };
                let slot = (tuple[0] ^ tuple[1].rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 55;
                let slot = &mut self.recent_v4[slot as usize % RECENT];
                if differs(slot, &tuple) {
                    *slot = tuple;
                    self.insert_v4(tuple);
                }
            }
            Family::V6 => {
                let Some(addresses) = frame.get(l3 + 8..l3 + 40) else { return };
                let word = |i: usize| be64(&addresses[8 * i..]);
                let (rest, turn) = (rest(frame, &headers), word(0) > word(2));
                let (a, b) = if turn { (2, 0) } else { (0, 2) };
                let rest = if turn { reversed(rest) } else { rest };
                let tuple = [word(a), word(a + 1), word(b), word(b + 1), rest];
                let slot = tuple.iter().fold(0, |n: u64, w| n.rotate_left(17) ^ w).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let slot = &mut self.recent_v6[(slot >> 55) as usize % RECENT];
                if differs(slot, &tuple) {
                    *slot = tuple;
                    self.insert_v6(&tuple);
                }
            }
            Family::Other if headers.ethertype() == EtherType::ARP => self.add_arp(frame, l3),
            Family::Other => {}
        }
    }

    #[inline(never)]
    fn insert_v4(&mut self, [addresses, rest]: [u64; 2]) {
        let (a, b) = ((addresses >> 32) as u32, addresses as u32);
        let (hash_a, hash_b) = (self.add_host_v4(a), self.add_host_v4(b));
        self.add_flow(hash_a, hash_b, rest);
    }

    #[inline(never)]
    fn insert_v6(&mut self, [a, a_low, b, b_low, rest]: &[u64; 5]) {
        self.any_v6 = true;
        let (hash_a, hash_b) = (self.add_host_v6(*a, *a_low), self.add_host_v6(*b, *b_low));
        self.add_flow(hash_a, hash_b, *rest);
    }

    #[inline(always)]
    fn add_host_v4(&mut self, address: u32) -> u64 {
        let hash = key::host_v4(address);
        insert(&mut self.hosts, hash);
        insert_thin(&mut self.nets, key::net(u64::from(address >> 8), 24));
        insert_thin(&mut self.nets, key::net(u64::from(address >> 16), 16));
        mark(&mut self.first_bytes, (address >> 24) as u8);
        hash
    }

    #[inline(always)]
    fn add_host_v6(&mut self, high: u64, low: u64) -> u64 {
        let hash = key::host_v6(u128::from(high) << 64 | u128::from(low));
        insert(&mut self.hosts, hash);
        insert_thin(&mut self.nets, key::net(high, 64));
        insert_thin(&mut self.nets, key::net(high >> 16, 48));
        insert_thin(&mut self.nets, key::net(high >> 32, 32));
        hash
    }

    #[inline(always)]
    fn add_flow(&mut self, a: u64, b: u64, rest: u64) {
        let (protocol, from, to) = ((rest >> 32) as u8, (rest >> 16) as u16, rest as u16);
        insert(&mut self.flows, key::flow(protocol, (a, from), (b, to)));
        mark(&mut self.protocols, protocol);
        if rest & PORTS != 0 {
            for port in [from, to] {
                self.seen_ports[usize::from(port / 64)] |= 1 << (port % 64);
            }
            self.ported = true;
        }
        self.inserted += 1;
    }

    /// Ethertype and tags. The filter asks for the id of any tag, so all are keys.
    #[inline(never)]
    fn add_link(&mut self, frame: &[u8], headers: &Headers, link_type: u16, link: u64) {
        self.linked += 1;
        insert(&mut self.links, key::ethertype(headers.ethertype().0));
        self.link = link;
        let Some(outer) = headers.vlan() else { return };
        self.linked += 2;
        insert(&mut self.links, key::vlan(None));
        insert(&mut self.links, key::vlan(Some(outer)));
        let mut at = tags_at(link_type);
        while let Some(id) = inner_tag(frame, at) {
            insert(&mut self.links, key::vlan(Some(id)));
            at += 4;
            self.linked += 1;
        }
    }

    /// ARP for IPv4 over Ethernet (RFC 826).
    #[cold]
    fn add_arp(&mut self, frame: &[u8], l3: usize) {
        let Some(arp) = frame.get(l3..l3 + 28) else { return };
        for address in [&arp[14..18], &arp[24..28]] {
            self.add_host_v4(be32(address));
            self.inserted += 1;
        }
    }

    /// The sets, within [`SETS_BUDGET`]; a kind that cannot be useful within it admits every key.
    pub fn sets(&self) -> Sets {
        let (ports, distinct_ports) = self.ports();
        let mut sets: [Set; KINDS] = [const { Set::NONE }; KINDS];
        sets[Kind::Hosts as usize] = fit::first_fold(&self.hosts[..], 2 * self.inserted);
        sets[Kind::Flows as usize] = fit::first_fold(&self.flows[..], self.inserted);
        sets[Kind::Ports as usize] = fit::first_fold(&ports[..], distinct_ports);
        sets[Kind::Nets as usize] = fit::first_fold(&self.nets[..], 4 * self.inserted);
        sets[Kind::Links as usize] = fit::first_fold(&self.links[..], self.linked);
        let mut fills: [Fill; 5] = std::array::from_fn(|i| Fill::of(Kind::ALL[i], &sets[i]));
        fit::fit(&mut fills, SETS_BUDGET - MAPS);
        fills.iter().zip(&mut sets).for_each(|(fill, set)| fill.apply(set));
        for (kind, map) in [(Kind::Protocols, self.protocols), (Kind::FirstBytes, self.first_bytes)] {
            if map != [0; 4] {
                sets[kind as usize] = Set::Groups(vec![map]);
            }
        }
        Sets(sets)
    }

    /// The filter of the ports that were seen, and how many those are.
    fn ports(&self) -> (Box<[Group; GROUPS]>, usize) {
        let mut filter = Box::new([[0; 4]; GROUPS]);
        let mut distinct = 0;
        if self.ported {
            for (i, word) in self.seen_ports.iter().enumerate().filter(|(_, word)| **word != 0) {
                let mut left = *word;
                while left != 0 {
                    insert(&mut filter, key::port((64 * i) as u16 + left.trailing_zeros() as u16));
                    left &= left - 1;
                    distinct += 1;
                }
            }
        }
        (filter, distinct)
    }

    /// Forgets everything, for the next block.
    pub fn clear(&mut self) {
        if self.inserted > 0 {
            self.recent_v4.fill([0; 2]);
            self.hosts.fill([0; 4]);
            self.flows.fill([0; 4]);
            self.nets.fill([0; 4]);
        }
        if self.ported {
            self.seen_ports.fill(0);
        }
        if self.any_v6 {
            self.recent_v6.fill([0; 5]);
        }
        self.links.fill([0; 4]);
        (self.protocols, self.first_bytes) = ([0; 4], [0; 4]);
        (self.link, self.inserted, self.linked, self.ported, self.any_v6) = (0, 0, 0, false, false);
    }
}

/// Where the control information of the outermost tag is, if there is one.
#[inline]
const fn tags_at(link_type: u16) -> usize {
    match link_type {
        link::LINUX_SLL => 16,
        link::LINUX_SLL2 => 20,
        _ => 14,
    }
}

/// The id of the tag within the tag whose control information is at `at`.
#[inline]
fn inner_tag(frame: &[u8], at: usize) -> Option<u16> {
    let [_, _, type_high, type_low, high, low] = *frame.get(at..at + 6)?.first_chunk()?;
    let is_tag = EtherType(u16::from_be_bytes([type_high, type_low])).is_vlan();
    is_tag.then_some(u16::from_be_bytes([high, low]) & 0x0fff)
}

/// `a != b`, word by word: the comparison of arrays is a call.
#[inline(always)]
fn differs<const N: usize>(a: &[u64; N], b: &[u64; N]) -> bool {
    (0..N).fold(0, |d, i| d | (a[i] ^ b[i])) != 0
}

fn be32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn be64(bytes: &[u8]) -> u64 {
    u64::from(be32(bytes)) << 32 | u64::from(be32(&bytes[4..]))
}

/// The same with the ports the other way round.
#[inline(always)]
const fn reversed(rest: u64) -> u64 {
    rest & !0xffff_ffff | (rest as u32).rotate_left(16) as u64
}

/// Mark, protocol, whether there are ports, ports.
#[inline]
fn rest(frame: &[u8], headers: &Headers) -> u64 {
    let protocol = headers.protocol().unwrap_or_default();
    let l4 = usize::from(headers.l4());
    let ports = if l4 > 0 && protocol.has_ports() { frame.get(l4..l4 + 4).map(be32) } else { None };
    MARK | u64::from(protocol.0) << 32 | ports.map_or(0, |p| PORTS | u64::from(p))
}
