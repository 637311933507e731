//! Collects the keys of one block while its packets arrive.
//!
//! The cost per packet must stay near the cost of reading its addresses. Consecutive packets often belong to one flow,
//! so most tuples (addresses, protocol, ports) are found with one compare in a small table of the exact tuples of this
//! block; both directions of a flow have the same tuple. New tuples are collected and processed in batches
//! (`set_builder.rs`). If a tuple was overwritten in the table and occurs again, it is added to the filters again, so
//! no key is left out. At the end of the block, each filter is folded to the size that fits its keys.
//!
//! The worst case is a packet with two new hosts and two new ports: it has nine keys. Two of the keys set eight bits in
//! 32 bytes, three set four bits, and four set two bits in eight bytes. That is 9 hashes and 9 read-modify-writes in
//! 20 kB of filters, which stay in the L1 or L2 cache. With registers of 32 bytes, the three kinds of keys cost about
//! 15, 10 and 7 instructions per key, after 140 instructions that parse the headers and look up the tuple: together 16
//! to 20 ns on the machine of the measurement records. The budget is 24 ns, which is 3 % of a core at 10 Gb/s of 1000 B
//! packets.
//!
// PERF: docs/design/block-index.md has the cost per packet, and the cost before the optimisations.
//! [`wire::Headers`] defines the keys. A pcap filter, in contrast, reads fixed offsets. So if headers are truncated or
//! contradictory, the values at the offsets that a pcap filter reads are keys too.

use crate::host_sub_blocks;
use crate::key::{self, KINDS, KeyKind, Sets};
use crate::set::{GROUP, Group, Set, bits_of, group_of};
use crate::set_builder::{BATCH, Recent, SetBuilder, SmallValueSet, SparseSetBuilder, with_bit, without_repeats};
use crate::set_sizing::{self, Occupancy};
use fearless_simd::{Level, Simd, dispatch};
use std::borrow::Cow;
use wire::link::{RAW_IPV4, RAW_IPV6};
use wire::{EtherType, Family, Fragment, Headers, IpProtocol};

/// Numbers of groups of a Bloom filter while its block is being filled, by the kind of its keys. With more groups, the
/// filters of a block could exceed [`SETS_BUDGET`]; for keys that set four bits, more groups would not reduce the false
/// positives.
const GROUPS: usize = 256;
const FEW_GROUPS: usize = 128;
const NET_GROUPS: usize = 128;
const LINK_GROUPS: usize = 16;

/// The largest number of bytes for the key sets of one block, so that its index entry stays below 1 % of a MiB.
pub const SETS_BUDGET: usize = (10 << 10) + GROUP;

/// Length in bytes of the two exact bitmaps of a block, which are never folded.
const MAPS: usize = 2 * GROUP;

/// This bit of a tuple is set if the ports are known.
const PORTS: u64 = 1 << 40;

/// The lowest bit of the generation in a tuple. The generation identifies the block in which the tuple was added;
/// it is never 0.
const GENERATION: u64 = 1 << 48;

/// This bit is set in every `link` value, so that no value equals 0, which means that there is no previous packet.
const MARK: u64 = 1 << 63;

/// The keys of one block.
pub struct BlockKeys {
    /// Recent IPv4 tuples of two words: both addresses; then generation, protocol and ports.
    v4: Recent<2>,
    v6: Recent<5>,
    /// The generation of this block, shifted to the position of its bits in a tuple.
    generation: u64,
    ends: Box<EndpointBatch>,
    kept: Box<[u64; BATCH]>,
    hosts: SetBuilder<GROUPS, 2>,
    flows: SetBuilder<FEW_GROUPS, 1>,
    ports: SetBuilder<FEW_GROUPS, 1>,
    nets: SparseSetBuilder<NET_GROUPS>,
    host_sub_blocks: host_sub_blocks::HostMapBuilder,
    links: [Group; LINK_GROUPS],
    protocols: SmallValueSet,
    first_bytes: SmallValueSet,
    /// Ethertype and outer VLAN tag of the previous packet, and [`MARK`]; 0 if there is no previous packet.
    link: u64,
    /// Number of VLAN tags and ethertypes inserted into the filter.
    link_keys: usize,
}

impl Default for BlockKeys {
    fn default() -> Self {
        Self {
            v4: Recent::new(),
            v6: Recent::new(),
            generation: GENERATION,
            ends: Box::new(EndpointBatch { highs: [[0; BATCH]; 2], hosts: [[0; BATCH]; 2], rest: [0; BATCH], len: 0 }),
            kept: Box::new([0; BATCH]),
            hosts: SetBuilder::new(),
            flows: SetBuilder::new(),
            ports: SetBuilder::new(),
            nets: SparseSetBuilder::new(),
            host_sub_blocks: host_sub_blocks::HostMapBuilder::new(),
            links: [[0; 4]; LINK_GROUPS],
            protocols: SmallValueSet::new(),
            first_bytes: SmallValueSet::new(),
            link: 0,
            link_keys: 0,
        }
    }
}

fn insert<const N: usize>(filter: &mut [Group; N], hash: u64) {
    let group = &mut filter[group_of(hash, N) % N];
    let bits = bits_of(hash);
    (0..4).for_each(|w| group[w] |= bits[w]);
}

impl BlockKeys {
    /// Sets the sub-block in which the following packets begin. Without a call, packets belong to the first sub-block.
    pub fn enter(&mut self, part: usize) {
        self.host_sub_blocks.enter(part);
    }

    /// Adds the keys of one packet: `frame` is its captured bytes, `wire_len` its length on the wire.
    #[inline]
    pub fn add(&mut self, frame: &[u8], wire_len: u32, link_type: u16) {
        let headers = Headers::of(frame, wire_len, link_type);
        let link = MARK
            | u64::from(headers.vlan().map_or(0, |id| 0x1_0000 | u32::from(id))) << 16
            | u64::from(headers.ethertype().0);
        // Packets with the same outer VLAN tag may have different inner tags, so the keys of a packet with an inner tag
        // are added even if its `link` value equals that of the previous packet.
        if link != self.link || headers.vlan().is_some() && headers.vlans(frame).nth(1).is_some() {
            self.add_link(frame, &headers, link);
        }
        let l3 = usize::from(headers.l3());
        if link_type == RAW_IPV4 && headers.family() != Family::V4
            || link_type == RAW_IPV6 && headers.family() != Family::V6
        {
            self.add_raw(frame, link_type);
        }
        match headers.family() {
            Family::V4 => {
                let Some(addresses) = frame.get(l3 + 12..l3 + 20) else { return };
                if self.is_without_ports(frame, &headers) {
                    self.add_plain_v4(frame, l3);
                }
                let (addresses, rest) = (be64(addresses), self.rest(frame, &headers));
                self.host_sub_blocks.mark(key::place_v4((addresses >> 32) as u32));
                self.host_sub_blocks.mark(key::place_v4(addresses as u32));
                let swapped_addresses = addresses.rotate_left(32);
                // The order of the endpoints is computed without a branch, because the outcome of a branch would be
                // random.
                let tuple = if addresses <= swapped_addresses {
                    [addresses, rest]
                } else {
                    [swapped_addresses, swap_ports(rest)]
                };
                if self.v4.insert(tuple) {
                    self.add_new_tuples();
                }
            }
            Family::V6 => {
                let Some(addresses) = frame.get(l3 + 8..l3 + 40) else { return };
                if frame.get(l3 + 6) == Some(&IpProtocol::FRAGMENT.0) || self.is_without_ports(frame, &headers) {
                    self.add_plain_v6(frame, l3);
                }
                let word = |i: usize| be64(&addresses[8 * i..]);
                self.host_sub_blocks.mark(key::place_v6(word(0), word(1)));
                self.host_sub_blocks.mark(key::place_v6(word(2), word(3)));
                let (rest, is_swapped) = (self.rest(frame, &headers), word(0) > word(2));
                let (a, b) = if is_swapped { (2, 0) } else { (0, 2) };
                let rest = if is_swapped { swap_ports(rest) } else { rest };
                let tuple = [word(a), word(a + 1), word(b), word(b + 1), rest];
                if self.v6.insert(tuple) {
                    self.add_new_tuples();
                }
            }
            Family::Other => self.add_other(frame, &headers, l3),
        }
    }

    /// True if the ports are missing in a first fragment or unfragmented packet of a protocol with ports.
    #[inline(always)]
    fn is_without_ports(&self, frame: &[u8], headers: &Headers) -> bool {
        headers.protocol().is_some_and(IpProtocol::has_ports)
            && headers.fragment() != Fragment::Later
            && (headers.l4() == 0 || frame.len() < usize::from(headers.l4()) + 4)
    }

    /// Adds the keys of packets that are not IP, are truncated, or are malformed.
    #[cold]
    fn add_other(&mut self, frame: &[u8], headers: &Headers, l3: usize) {
        match headers.ethertype() {
            EtherType::ARP | EtherType::RARP if l3 > 0 => self.add_arp(frame, l3),
            EtherType::IPV4 => self.add_plain_v4(frame, l3),
            EtherType::IPV6 => self.add_plain_v6(frame, l3),
            tag if tag.is_vlan() && l3 == 0 => {
                // The tag is truncated.
                let at = 14 + 4 * headers.vlans(frame).count();
                insert(&mut self.links, key::vlan(None));
                self.link_keys += 1;
                if let Some(id) = frame.get(at..at + 2) {
                    insert(&mut self.links, key::vlan(Some(u16::from_be_bytes([id[0], id[1]]) & 0xfff)));
                    self.link_keys += 1;
                }
            }
            _ => {}
        }
    }

    /// Adds the keys of a frame whose link type permits only one IP version, if the header parser found no packet of
    /// this version.
    #[cold]
    fn add_raw(&mut self, frame: &[u8], link_type: u16) {
        let is_v4 = link_type == RAW_IPV4;
        let ethertype = if is_v4 { EtherType::IPV4 } else { EtherType::IPV6 };
        insert(&mut self.links, key::ethertype(ethertype.0));
        self.link_keys += 1;
        if is_v4 { self.add_plain_v4(frame, 0) } else { self.add_plain_v6(frame, 0) }
    }

    /// Adds the values at the offsets of addresses, protocol and ports in an IPv4 header as keys; missing bytes count
    /// as zeros.
    #[cold]
    fn add_plain_v4(&mut self, frame: &[u8], l3: usize) {
        let head = padded(frame, l3);
        let l4 = usize::from(head[0] & 15) * 4;
        let ports = if be32(&head[4..]) & 0x1fff == 0 { PORTS | u64::from(be32(&head[l4..])) } else { 0 };
        let rest = self.generation | u64::from(head[9]) << 32 | ports;
        let addresses = be64(&head[12..]);
        self.host_sub_blocks.mark(key::place_v4((addresses >> 32) as u32));
        self.host_sub_blocks.mark(key::place_v4(addresses as u32));
        let swapped_addresses = addresses.rotate_left(32);
        if self.v4.insert(if addresses <= swapped_addresses {
            [addresses, rest]
        } else {
            [swapped_addresses, swap_ports(rest)]
        }) {
            self.add_new_tuples();
        }
    }

    /// Does for IPv6 what [`Self::add_plain_v4`] does for IPv4. In a fragment, the protocol is that of the fragment
    /// header.
    #[cold]
    fn add_plain_v6(&mut self, frame: &[u8], l3: usize) {
        let head = padded(frame, l3);
        let word = |i: usize| be64(&head[8 + 8 * i..]);
        let (protocol, ports) = match head[6] {
            next if next == IpProtocol::FRAGMENT.0 => (head[40], 0),
            next => (next, PORTS | u64::from(be32(&head[40..]))),
        };
        let rest = self.generation | u64::from(protocol) << 32 | ports;
        self.host_sub_blocks.mark(key::place_v6(word(0), word(1)));
        self.host_sub_blocks.mark(key::place_v6(word(2), word(3)));
        let is_swapped = word(0) > word(2);
        let (a, b) = if is_swapped { (2, 0) } else { (0, 2) };
        let rest = if is_swapped { swap_ports(rest) } else { rest };
        if self.v6.insert([word(a), word(a + 1), word(b), word(b + 1), rest]) {
            self.add_new_tuples();
        }
    }

    /// The last word of a packet's tuple: generation, protocol, `PORTS` bit and ports.
    #[inline(always)]
    fn rest(&self, frame: &[u8], headers: &Headers) -> u64 {
        let protocol = headers.protocol().unwrap_or_default();
        let l4 = usize::from(headers.l4());
        let ports = if l4 > 0 && protocol.has_ports() { frame.get(l4..l4 + 4).map(be32) } else { None };
        self.generation | u64::from(protocol.0) << 32 | ports.map_or(0, |p| PORTS | u64::from(p))
    }

    /// Adds the keys of the new tuples to the filters.
    #[inline(never)]
    fn add_new_tuples(&mut self) {
        dispatch!(Level::new(), simd => self.add_new_tuples_with(simd));
    }

    #[inline(always)]
    fn add_new_tuples_with<S: Simd>(&mut self, simd: S) {
        let Self { v4, ends, kept, hosts, nets, first_bytes, .. } = self;
        let tuples = v4.take();
        if !tuples.is_empty() {
            ends.len = tuples.len();
            for (i, [both, rest]) in tuples.iter().enumerate() {
                (ends.highs[0][i], ends.highs[1][i], ends.rest[i]) = (both >> 32, both & 0xffff_ffff, *rest);
            }
            for (addresses, hashes) in ends.highs.iter().zip(&mut ends.hosts) {
                let addresses = &addresses[..tuples.len()];
                hashes.iter_mut().zip(addresses).for_each(|(hash, address)| *hash = key::host_v4(*address as u32));
                let new = without_repeats(addresses, kept);
                hosts.extend(simd, new.iter().map(|address| key::host_v4(*address as u32)));
                nets.extend(new.iter().map(|address| key::net(address >> 8, 24)));
                nets.extend(new.iter().map(|address| key::net(address >> 16, 16)));
                first_bytes.extend(new.iter().map(|address| (address >> 24) as u8));
            }
            self.add_pairs(simd);
        }
        let Self { v6, ends, kept, hosts, nets, .. } = self;
        let tuples = v6.take();
        if !tuples.is_empty() {
            ends.len = tuples.len();
            for (i, [a, a_low, b, b_low, rest]) in tuples.iter().enumerate() {
                (ends.highs[0][i], ends.highs[1][i], ends.rest[i]) = (*a, *b, *rest);
                ends.hosts[0][i] = key::host_v6(u128::from(*a) << 64 | u128::from(*a_low));
                ends.hosts[1][i] = key::host_v6(u128::from(*b) << 64 | u128::from(*b_low));
            }
            for (highs, hashes) in ends.highs.iter().zip(&ends.hosts) {
                hosts.extend(simd, without_repeats(&hashes[..tuples.len()], kept).iter().copied());
                let new = without_repeats(&highs[..tuples.len()], kept);
                nets.extend(new.iter().map(|high| key::net(*high, 64)));
                nets.extend(new.iter().map(|high| key::net(high >> 16, 48)));
                nets.extend(new.iter().map(|high| key::net(high >> 32, 32)));
            }
            self.add_pairs(simd);
        }
    }

    /// Adds the keys that combine both endpoints: flows, protocols and ports.
    #[inline(always)]
    fn add_pairs<S: Simd>(&mut self, simd: S) {
        let Self { ends, kept, flows, ports, .. } = self;
        let (a, b, rest) = (&ends.hosts[0][..ends.len], &ends.hosts[1][..ends.len], &ends.rest[..ends.len]);
        let parts = |rest: u64| ((rest >> 32) as u8, (rest >> 16) as u16, rest as u16);
        flows.extend(
            simd,
            a.iter().zip(b).zip(rest).map(|((a, b), rest)| {
                let (protocol, from, to) = parts(*rest);
                key::flow(protocol, (*a, from), (*b, to))
            }),
        );
        self.protocols.extend(rest.iter().map(|rest| parts(*rest).0));
        let [with_ports, ends] = &mut ends.highs;
        let with_ports = with_bit(PORTS, rest, with_ports);
        for by in [16, 0] {
            let ends = &mut ends[..with_ports.len()];
            ends.iter_mut().zip(with_ports).for_each(|(end, rest)| *end = rest >> by & 0xffff);
            let new = without_repeats(ends, kept);
            ports.extend(simd, new.iter().map(|port| key::port(*port as u16)));
        }
    }

    /// Adds the ethertype and the VLAN ids. A `vlan` filter may name the id of any VLAN tag, so the ids of all tags are
    /// keys.
    #[inline(never)]
    fn add_link(&mut self, frame: &[u8], headers: &Headers, link: u64) {
        self.link_keys += 1;
        insert(&mut self.links, key::ethertype(headers.ethertype().0));
        self.link = link;
        if headers.vlan().is_some() {
            self.link_keys += 1;
            insert(&mut self.links, key::vlan(None));
        }
        for id in headers.vlans(frame) {
            self.link_keys += 1;
            insert(&mut self.links, key::vlan(Some(id)));
        }
    }

    /// Adds the addresses of ARP for IPv4 over Ethernet (RFC 826), and of reverse ARP (RFC 903).
    #[cold]
    fn add_arp(&mut self, frame: &[u8], l3: usize) {
        let arp = padded(frame, l3);
        for address in [&arp[14..18], &arp[24..28]].map(be32) {
            self.host_sub_blocks.mark(key::place_v4(address));
            let key = std::iter::once(key::host_v4(address));
            dispatch!(Level::new(), simd => self.hosts.extend(simd, key));
            self.nets
                .extend([(8, 24), (16, 16)].into_iter().map(|(by, length)| key::net(u64::from(address >> by), length)));
            self.first_bytes.extend(std::iter::once((address >> 24) as u8));
        }
    }

    /// The key sets, which take at most [`SETS_BUDGET`] bytes together. A key kind whose filter would be useless at
    /// that size gets a key set that admits every key.
    pub fn sets(&mut self) -> Sets {
        dispatch!(Level::new(), simd => self.sets_by(simd))
    }

    #[inline(always)]
    fn sets_by<S: Simd>(&mut self, simd: S) -> Sets {
        self.add_new_tuples_with(simd);
        let links = (Cow::Borrowed(&self.links[..]), self.link_keys);
        let (places, pairs) = self.host_sub_blocks.filled();
        let filters = [
            self.hosts.filled(simd),
            self.flows.filled(simd),
            self.ports.filled(simd),
            self.nets.filled(),
            links,
            (Cow::Borrowed(places), pairs),
        ];
        let mut fills: [Occupancy; KINDS - 2] =
            std::array::from_fn(|i| Occupancy::of(KeyKind::ALL[i], &filters[i].0, filters[i].1));
        set_sizing::fit(&mut fills, SETS_BUDGET - MAPS);
        let mut sets: [Set; KINDS] = [const { Set::NONE }; KINDS];
        for ((fill, (filter, keys)), set) in fills.iter().zip(&filters).zip(&mut sets) {
            *set = fill.set(filter, *keys);
        }
        for (kind, map) in [(KeyKind::Protocols, self.protocols.map()), (KeyKind::FirstBytes, self.first_bytes.map())] {
            if map != [0; 4] {
                sets[kind as usize] = Set::Groups(vec![map]);
            }
        }
        Sets(sets)
    }

    /// Removes all keys, for the next block.
    pub fn clear(&mut self) {
        self.v4.take();
        self.v6.take();
        self.generation = self.generation.wrapping_add(GENERATION);
        if self.generation == 0 {
            self.v4.clear();
            self.v6.clear();
            self.generation = GENERATION;
        }
        self.hosts.clear();
        self.flows.clear();
        self.ports.clear();
        self.nets.clear();
        self.host_sub_blocks.clear();
        self.links.fill([0; 4]);
        self.protocols.clear();
        self.first_bytes.clear();
        (self.link, self.link_keys) = (0, 0);
    }
}

/// The endpoints of the new tuples, in columns. The memory of a batch is reused, because zeroing it for each batch
/// would add a tenth to the other costs of the batch.
struct EndpointBatch {
    /// The values from which prefixes are computed: IPv4 addresses, or the upper halves of IPv6 addresses.
    highs: [[u64; BATCH]; 2],
    /// The hashes of the hosts.
    hosts: [[u64; BATCH]; 2],
    /// The last word of each tuple: generation of the block, protocol, ports.
    rest: [u64; BATCH],
    len: usize,
}

/// The captured bytes from `at` on, padded with zeros.
fn padded(frame: &[u8], at: usize) -> [u8; 64] {
    let mut head = [0; 64];
    if let Some(bytes) = frame.get(at..) {
        let len = bytes.len().min(head.len());
        head[..len].copy_from_slice(&bytes[..len]);
    }
    head
}

fn be32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn be64(bytes: &[u8]) -> u64 {
    u64::from(be32(bytes)) << 32 | u64::from(be32(&bytes[4..]))
}

/// The last word of a tuple with the ports exchanged.
#[inline(always)]
const fn swap_ports(rest: u64) -> u64 {
    rest & !0xffff_ffff | (rest as u32).rotate_left(16) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use filter::KeyCondition;
    use wire::build::Frame;
    use wire::link;

    fn add(keys: &mut BlockKeys, ends: (u32, u16, u32, u16)) {
        let mut frame = [0; 60];
        Frame::udp4(ends.0.to_be_bytes(), ends.1, ends.2.to_be_bytes(), ends.3).fill(&mut frame);
        keys.add(&frame, 60, link::ETHERNET);
    }

    fn has(keys: &mut BlockKeys, host: u32) -> bool {
        keys.sets().admit(&KeyCondition::Host(std::net::Ipv4Addr::from(host).into()))
    }

    #[test]
    fn a_tuple_is_added_again_after_the_generation_wraps_around() {
        let mut keys = BlockKeys::default();
        add(&mut keys, (1, 2, 3, 4));
        assert!(has(&mut keys, 1) && has(&mut keys, 3) && !has(&mut keys, 2));
        for _ in 0..u16::MAX {
            keys.clear();
        }
        assert!(!has(&mut keys, 1));
        add(&mut keys, (1, 2, 3, 4));
        assert!(has(&mut keys, 1) && has(&mut keys, 3));
    }

    #[test]
    fn reading_the_sets_of_a_growing_block_removes_no_keys() {
        let mut keys = BlockKeys::default();
        for n in 0..3000 {
            add(&mut keys, (0x0a00_0000 + n, 1000, 0x0b00_0000 + n % 7, 53));
            if n % 500 == 13 {
                assert!(has(&mut keys, 0x0a00_0000 + n), "the host of packet {n} is missing");
                assert!(
                    (0..n).step_by(11).all(|before| has(&mut keys, 0x0a00_0000 + before)),
                    "the host of a packet before packet {n} is missing"
                );
            }
        }
        keys.clear();
        assert_eq!(keys.sets(), Sets::NONE);
    }
}
