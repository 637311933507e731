//! Collecting the keys of one block while its packets pass.
//!
//! The cost per packet must stay near that of reading its addresses: packets of one conversation follow each other, so
//! a small table of the exact tuples seen in this block answers most of them with one compare. A tuple that is not in
//! it is hashed and put into the sets, where a repeat does no harm; so the table can forget, but it can never hide a key.

use super::key::{flow, host, port, v4_words};
use super::set::{GROUP, Set};
use super::{SETS_BUDGET, Sets};

/// Tuples remembered per block.
const RECENT: usize = 512;

/// More distinct keys of one kind than this never fit the budget.
const MOST_KEYS: usize = SETS_BUDGET / GROUP * 26;

/// Both addresses and, in `rest`, version, protocol and ports. IPv4 uses the first address word only. The version makes
/// every tuple differ from the empty one.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Tuple {
    addresses: [u64; 4],
    rest: u64,
}

/// The keys of one block.
pub struct Keys {
    recent: Vec<Tuple>,
    /// One bit for each port.
    seen_ports: Vec<u64>,
    hosts: Distinct,
    ports: Distinct,
    flows: Distinct,
}

impl Default for Keys {
    fn default() -> Self {
        Self {
            recent: vec![Tuple::default(); RECENT],
            seen_ports: vec![0; 1024],
            hosts: Distinct::default(),
            ports: Distinct::default(),
            flows: Distinct::default(),
        }
    }
}

impl Keys {
    /// Adds the keys of one packet: of the network header that its descriptor points at, or of ARP.
    #[inline]
    pub fn add(&mut self, l3: u8, packet: &[u8]) {
        let l3 = usize::from(l3);
        let Some(network) = packet.get(l3..).filter(|n| l3 > 0 && n.len() >= 20) else {
            return self.add_arp(packet, l3);
        };
        let tuple = match network[0] >> 4 {
            4 => tuple_v4(network),
            6 if network.len() >= 40 => tuple_v6(network),
            _ => return self.add_arp(packet, l3),
        };
        let slot =
            (tuple.addresses[0] ^ tuple.addresses[1].rotate_left(17) ^ tuple.addresses[3] ^ tuple.rest.rotate_left(29))
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                >> 55;
        let slot = &mut self.recent[slot as usize % RECENT];
        if *slot != tuple {
            *slot = tuple;
            self.insert(&tuple);
        }
    }

    #[inline(never)]
    fn insert(&mut self, t: &Tuple) {
        let (a, b) = if t.rest >> 56 == 4 {
            (v4_words((t.addresses[0] >> 32) as u32), v4_words(t.addresses[0] as u32))
        } else {
            ([t.addresses[0], t.addresses[1]], [t.addresses[2], t.addresses[3]])
        };
        let (protocol, from, to) = ((t.rest >> 32) as u8, (t.rest >> 16) as u16, t.rest as u16);
        if has_ports(protocol) && t.rest >> 40 & 1 != 0 {
            self.add_port(from);
            self.add_port(to);
        }
        // What does not fit any more need not be hashed: under a flood of new flows that is most of the work.
        if self.hosts.full && self.flows.full {
            return;
        }
        let (a, b) = (host(a), host(b));
        self.hosts.insert(a);
        self.hosts.insert(b);
        if !self.flows.full {
            self.flows.insert(flow(protocol, (a, from), (b, to)));
        }
    }

    fn add_port(&mut self, number: u16) {
        let (word, bit) = (&mut self.seen_ports[usize::from(number) / 64], 1 << (number % 64));
        if *word & bit == 0 {
            *word |= bit;
            self.ports.insert(port(number));
        }
    }

    /// ARP for IPv4 over Ethernet (RFC 826), after any tags.
    #[cold]
    fn add_arp(&mut self, packet: &[u8], l3: usize) {
        let at = if l3 > 0 { l3 } else { 14 };
        let Some(arp) = packet.get(at..at + 28) else { return };
        if packet[..at].ends_with(&[0x08, 0x06]) && arp[2..6] == [0x08, 0x00, 6, 4] {
            for address in [&arp[14..18], &arp[24..28]] {
                self.hosts.insert(host(v4_words(be32(address))));
            }
        }
    }

    /// The sets, within the budget: hosts first, then ports, then flows; a kind that does not fit admits every key.
    pub fn sets(&self) -> Sets {
        let mut groups = SETS_BUDGET / GROUP;
        let mut set = |distinct: &Distinct| match distinct.keys() {
            Some(keys) if Set::groups_for(keys.len()) <= groups => {
                groups -= Set::groups_for(keys.len());
                Set::of(keys)
            }
            _ => Set::All,
        };
        Sets { hosts: set(&self.hosts), ports: set(&self.ports), flows: set(&self.flows) }
    }

    /// Forgets everything, for the next block.
    pub fn clear(&mut self) {
        self.recent.fill(Tuple::default());
        self.seen_ports.fill(0);
        self.hosts.clear();
        self.ports.clear();
        self.flows.clear();
    }
}

const fn has_ports(protocol: u8) -> bool {
    matches!(protocol, 6 | 17 | 33 | 132 | 136)
}

fn be32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn be64(bytes: &[u8]) -> u64 {
    u64::from(be32(bytes)) << 32 | u64::from(be32(&bytes[4..]))
}

/// Version, whether ports are known (bit 40), protocol, ports.
fn rest(version: u64, protocol: u8, ports: Option<u32>) -> u64 {
    version << 56 | u64::from(ports.is_some()) << 40 | u64::from(protocol) << 32 | u64::from(ports.unwrap_or(0))
}

#[inline]
fn tuple_v4(network: &[u8]) -> Tuple {
    let protocol = network[9];
    let first_fragment = u16::from_be_bytes([network[6], network[7]]) & 0x1fff == 0;
    let header = usize::from(network[0] & 0x0f) * 4;
    let ports = if first_fragment && has_ports(protocol) { network.get(header..header + 4).map(be32) } else { None };
    Tuple { addresses: [be64(&network[12..20]), 0, 0, 0], rest: rest(4, protocol, ports) }
}

fn tuple_v6(network: &[u8]) -> Tuple {
    let word = |i: usize| be64(&network[8 + 8 * i..]);
    let (mut protocol, mut at, mut first_fragment) = (network[6], 40, true);
    // Extension headers, RFC 8200 section 4; what is cut off ends the walk.
    while let Some(header) = network.get(at..at + 4) {
        match protocol {
            0 | 43 | 60 => at += 8 + 8 * usize::from(header[1]),
            51 => at += 8 + 4 * usize::from(header[1]),
            44 => {
                first_fragment = u16::from_be_bytes([header[2], header[3]]) & 0xfff8 == 0;
                at += 8;
            }
            _ => break,
        }
        protocol = header[0];
        if !first_fragment {
            break;
        }
    }
    let ports = if first_fragment && has_ports(protocol) { network.get(at..at + 4).map(be32) } else { None };
    Tuple { addresses: [word(0), word(1), word(2), word(3)], rest: rest(6, protocol, ports) }
}

/// A growing set of distinct hashes, up to [`MOST_KEYS`]; beyond, it only knows that there were more. 0 marks a free
/// place, so that hash is in the list alone.
#[derive(Default)]
struct Distinct {
    table: Vec<u64>,
    list: Vec<u64>,
    zero: bool,
    full: bool,
}

/// Places of the smallest table.
const SMALLEST: usize = 64;

impl Distinct {
    fn insert(&mut self, hash: u64) {
        if self.full {
            return;
        }
        if self.table.len() < 2 * (self.list.len() + 1) {
            self.grow();
        }
        let new = if hash == 0 { !std::mem::replace(&mut self.zero, true) } else { place(&mut self.table, hash) };
        if new {
            self.list.push(hash);
            self.full = self.list.len() > MOST_KEYS;
        }
    }

    fn grow(&mut self) {
        let len = (2 * self.table.len()).max(SMALLEST);
        self.table.clear();
        self.table.resize(len, 0);
        for hash in self.list.iter().filter(|h| **h != 0) {
            place(&mut self.table, *hash);
        }
    }

    fn keys(&self) -> Option<&[u64]> {
        (!self.full).then_some(&self.list)
    }

    fn clear(&mut self) {
        // The next block is likely to have as many keys; a table that was much too large for this one is halved, so that
        // one block of many does not make all later ones dear to clear.
        if self.table.len() > SMALLEST && self.table.len() > 16 * self.list.len() {
            self.table.truncate(self.table.len() / 2);
        }
        self.table.fill(0);
        self.list.clear();
        (self.zero, self.full) = (false, false);
    }
}

/// Puts a hash into its place; false if it was there.
fn place(table: &mut [u64], hash: u64) -> bool {
    let mask = table.len() - 1;
    let mut at = hash as usize & mask;
    while table[at] != 0 {
        if table[at] == hash {
            return false;
        }
        at = (at + 1) & mask;
    }
    table[at] = hash;
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FlowKey, Key};
    use base::Prng;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    fn udp(a: IpAddr, b: IpAddr, from: u16, to: u16) -> Vec<u8> {
        let mut p = vec![0u8; 14];
        match (a, b) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                p.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
                p.extend(a.octets());
                p.extend(b.octets());
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                // A hop-by-hop header of 8 bytes before UDP.
                p.extend([0x60, 0, 0, 0, 0, 16, 0, 64]);
                p.extend(a.octets());
                p.extend(b.octets());
                p.extend([17, 0, 0, 0, 0, 0, 0, 0]);
            }
            _ => unreachable!("two addresses of one family"),
        }
        p.extend(from.to_be_bytes());
        p.extend(to.to_be_bytes());
        p.extend([0, 8, 0, 0]);
        p
    }

    #[test]
    fn nothing_is_hidden_however_many_flows_pass() {
        let seed = 21;
        let mut prng = Prng::new(seed);
        for count in [1u64, 40, 600, 1500, 30_000] {
            let mut keys = Keys::default();
            let mut asked = Vec::new();
            for _ in 0..count {
                let six = prng.below(4) == 0;
                let mut address = || -> IpAddr {
                    let n = prng.below(count * 2) as u32;
                    if six {
                        Ipv6Addr::from(u128::from(n) << 64 | 7).into()
                    } else {
                        Ipv4Addr::from(n | 10 << 24).into()
                    }
                };
                let (a, b) = (address(), address());
                let (from, to) = (prng.below(65_536) as u16, 53);
                keys.add(14, &udp(a, b, from, to));
                asked.push([Key::Host(a), Key::Host(b), Key::Port(from), Key::Port(to), {
                    Key::Flow(FlowKey::new(17, (b, to), (a, from)))
                }]);
            }
            let sets = keys.sets();
            for key in asked.iter().flatten() {
                let set = match key {
                    Key::Host(_) => &sets.hosts,
                    Key::Port(_) => &sets.ports,
                    Key::Flow(_) => &sets.flows,
                };
                assert!(set.may_contain(key.hash()), "seed {seed}, {count} packets: {key:?}");
            }
            let size =
                [&sets.hosts, &sets.ports, &sets.flows].map(|s| if let Set::Filter(f) = s { f.len() } else { 0 });
            assert!(size.iter().sum::<usize>() <= SETS_BUDGET, "{size:?}");
            assert_eq!(sets.flows == Set::All, count > 1500, "{count}");
        }
    }

    #[test]
    fn a_cleared_collector_knows_nothing() {
        let mut keys = Keys::default();
        let packet = udp("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap(), 1, 2);
        keys.add(14, &packet);
        keys.clear();
        assert_eq!(keys.sets().hosts, Set::Filter(Vec::new()));
        keys.add(14, &packet);
        assert!(keys.sets().hosts.may_contain(Key::Host("10.0.0.1".parse().unwrap()).hash()));
    }

    #[test]
    fn arp_has_hosts_and_fragments_have_no_ports() {
        let mut keys = Keys::default();
        let mut arp = vec![0u8; 12];
        arp.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 7, 0, 0, 0, 0, 0, 0, 10, 0, 0, 9]);
        keys.add(0, &arp);
        let mut fragment = udp("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap(), 1, 2);
        fragment[14 + 7] = 5;
        keys.add(14, &fragment);
        let sets = keys.sets();
        for host in ["10.0.0.7", "10.0.0.9", "10.0.0.1"] {
            assert!(sets.hosts.may_contain(Key::Host(host.parse().unwrap()).hash()), "{host}");
        }
        assert_eq!(sets.ports, Set::Filter(Vec::new()));
    }

    #[test]
    fn cut_off_and_random_packets_do_no_harm() {
        let mut prng = Prng::new(8);
        let mut keys = Keys::default();
        for _ in 0..50_000 {
            let mut packet = vec![0; prng.below(120) as usize];
            prng.fill(&mut packet);
            keys.add(prng.next_u64() as u8 & 63, &packet);
        }
        assert_eq!(keys.sets().flows, Set::All);
    }
}
