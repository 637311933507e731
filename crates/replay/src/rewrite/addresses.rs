//! Maps the two IP addresses of a packet to other addresses.
//!
//! Invariant: the mapping of a pair of addresses is symmetric. If it maps source A and destination B to A' and B', it
//! maps source B and destination A to B' and A'. So both directions of a flow remain one flow. Random addresses are the
//! exception.
//!
//! The masks of flows are those of the option `--rand-flow` of pfq-gen: both addresses are combined by exclusive or
//! with a mask that depends on the pair of addresses. The mask of a copy is the number of the copy, as a number of 24
//! bits in reverse order. So the first copies differ in the highest of the 24 bits, which are mostly equal in the
//! addresses of a capture, and no two copies have the same mask. Masks do not change multicast addresses, broadcast
//! addresses and the address that is all zeros, because these addresses have special meanings.

use super::random::{RandomAddress, low_bits};
use super::{Position, Rewrite};
use base::hash::mix64;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Number of low address bits that the masks of copies change.
const COPY_BITS: u32 = 24;

const _: () = assert!(super::MAX_COPIES <= 1 << COPY_BITS);

/// A prefix of IP addresses and the prefix that replaces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixMap {
    old: IpAddr,
    new: IpAddr,
    length: u8,
}

/// The error for a text that is no pair of prefixes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParsePrefixMapError {
    /// The text is no pair of prefixes of one length.
    Pair(String),
    /// An address has bits after the prefix. They would have no effect.
    HostBits {
        /// The address and the length as written.
        prefix: String,
        /// The address without the bits after the prefix.
        network: IpAddr,
    },
}

impl fmt::Display for ParsePrefixMapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pair(text) => write!(
                f,
                "{text:?} is no pair of prefixes of one length: write 10.1.0.0/16=192.168.0.0/16, 10.1.2.3=10.9.9.9 \
                 or 2001:db8::/32=fd00::/32"
            ),
            Self::HostBits { prefix, network } => {
                let length = prefix.rsplit('/').next().unwrap_or_default();
                write!(f, "{prefix} has address bits after its prefix: write {network}/{length}, or a longer prefix")
            }
        }
    }
}

impl std::error::Error for ParsePrefixMapError {}

/// Parses `OLD/LENGTH=NEW/LENGTH`, or `OLD=NEW` for single addresses.
impl FromStr for PrefixMap {
    type Err = ParsePrefixMapError;

    fn from_str(text: &str) -> Result<Self, ParsePrefixMapError> {
        let prefix = |text: &str| {
            let (address, length) = text.split_once('/').map_or((text, None), |(a, length)| (a, Some(length)));
            let address: IpAddr = address.parse().ok()?;
            let width = if address.is_ipv4() { 32 } else { 128 };
            let length = length.map_or(Some(width), |text| text.parse().ok())?;
            (length <= width).then_some((address, length))
        };
        let pair = text.split_once('=').and_then(|(old, new)| Some((prefix(old)?, prefix(new)?)));
        match pair {
            Some(((old, length), (new, other))) if length == other && old.is_ipv4() == new.is_ipv4() => {
                for address in [old, new] {
                    let network = network(address, length);
                    if network != address {
                        let prefix = format!("{address}/{length}");
                        return Err(ParsePrefixMapError::HostBits { prefix, network });
                    }
                }
                Ok(Self { old, new, length })
            }
            _ => Err(ParsePrefixMapError::Pair(text.to_owned())),
        }
    }
}

/// The address with zeros after the first `length` bits.
fn network(address: IpAddr, length: u8) -> IpAddr {
    let length = u32::from(length);
    match address {
        IpAddr::V4(v4) => IpAddr::V4((v4.to_bits() & !u32::MAX.checked_shr(length).unwrap_or(0)).into()),
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() & !u128::MAX.checked_shr(length).unwrap_or(0)).into()),
    }
}

/// A prefix map with addresses as numbers. IPv4 addresses are the low 32 bits.
#[derive(Clone, Copy, Debug)]
struct NumericMap {
    old: u128,
    new: u128,
    host_bits: u128,
}

impl NumericMap {
    fn new(map: &PrefixMap) -> Self {
        let number = |address| match address {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        };
        let width: u32 = if map.old.is_ipv4() { 32 } else { 128 };
        let host_bits = 1u128.checked_shl(width - u32::from(map.length)).map_or(u128::MAX, |bit| bit - 1);
        Self { old: number(map.old) & !host_bits, new: number(map.new) & !host_bits, host_bits }
    }

    fn apply(&self, address: u128) -> Option<u128> {
        (address & !self.host_bits == self.old).then_some(self.new | (address & self.host_bits))
    }
}

/// The address families.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    V4,
    V6,
}

/// Maps the source and destination address of each packet to new addresses.
#[derive(Clone, Debug)]
pub(super) struct AddressMapper {
    v4: Vec<NumericMap>,
    v6: Vec<NumericMap>,
    flow_depth: Option<u8>,
    random: [Option<RandomAddress>; 2],
    seed: u64,
}

impl AddressMapper {
    pub fn new(rewrite: &Rewrite) -> Self {
        let maps = |is_v4: bool| {
            let wanted = rewrite.prefixes.iter().filter(|map| map.old.is_ipv4() == is_v4);
            wanted.map(NumericMap::new).collect()
        };
        Self {
            v4: maps(true),
            v6: maps(false),
            flow_depth: rewrite.flow_depth,
            random: [rewrite.random_source, rewrite.random_destination],
            seed: rewrite.seed,
        }
    }

    /// The new source and destination address of a packet. `flow` is the pair of addresses of the flow that the packet
    /// is about: the addresses of the packet, or for an ICMP error the addresses of the packet that the error quotes,
    /// so that the error is about the same flow after the change.
    pub fn packet(&self, width: Width, pair: [u128; 2], flow: [u128; 2], position: Position) -> [u128; 2] {
        let [source, destination] = self.masked(width, pair, flow, position);
        let random = |end: usize, address: u128| match self.random[end] {
            Some(rule) => {
                let bits = rule.bits(self.seed.wrapping_add(end as u64), position.number);
                (address & !u128::from(low_bits(rule.depth))) | u128::from(bits)
            }
            None => address,
        };
        [random(0, source), random(1, destination)]
    }

    /// The new addresses of a pair, without random addresses. This mapping applies to ARP messages and to packets that
    /// ICMP errors quote.
    pub fn coherent(&self, width: Width, pair: [u128; 2], position: Position) -> [u128; 2] {
        self.masked(width, pair, pair, position)
    }

    fn masked(&self, width: Width, pair: [u128; 2], flow: [u128; 2], position: Position) -> [u128; 2] {
        let maps = if width == Width::V4 { &self.v4 } else { &self.v6 };
        let mapped = |address| maps.iter().find_map(|map| map.apply(address)).unwrap_or(address);
        let mask = self.flow_mask(flow.map(mapped), position.pass) ^ copy_mask(position.copy);
        pair.map(mapped).map(|address| if is_special(width, address) { address } else { address ^ u128::from(mask) })
    }

    /// The mask for all flows between two addresses in this pass over the capture.
    fn flow_mask(&self, [a, b]: [u128; 2], pass: u64) -> u32 {
        let Some(depth) = self.flow_depth else { return 0 };
        let half = |address: u128| mix64(address as u64 ^ mix64((address >> 64) as u64 ^ self.seed));
        // The sum does not depend on the order of the two addresses.
        mix64(half(a).wrapping_add(half(b)).wrapping_add(mix64(pass))) as u32 & low_bits(depth)
    }
}

fn copy_mask(copy: u32) -> u32 {
    copy.reverse_bits() >> (u32::BITS - COPY_BITS)
}

/// True for multicast and broadcast addresses and the address that is all zeros.
fn is_special(width: Width, address: u128) -> bool {
    match width {
        Width::V4 => address == 0 || address >> 28 == 0xe || address == u128::from(u32::MAX),
        Width::V6 => address == 0 || address >> 120 == 0xff,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;
    use std::collections::HashSet;

    fn v4(text: &str) -> u128 {
        u128::from(text.parse::<std::net::Ipv4Addr>().unwrap().to_bits())
    }

    fn v6(text: &str) -> u128 {
        text.parse::<std::net::Ipv6Addr>().unwrap().to_bits()
    }

    /// The new addresses of a packet that is about the flow of its own addresses.
    fn mapped(mapper: &AddressMapper, width: Width, pair: [u128; 2], position: Position) -> [u128; 2] {
        mapper.packet(width, pair, pair, position)
    }

    #[test]
    fn texts_that_are_no_pair_of_prefixes_are_refused() {
        for (bad, advice) in [
            ("10.0.0.0/8=11.22.0.0/8", "11.22.0.0/8 has address bits after its prefix: write 11.0.0.0/8"),
            ("10.9.0.0/8=11.0.0.0/8", "write 10.0.0.0/8"),
            ("2001:db8::1/32=fd00::/32", "write 2001:db8::/32"),
            ("::1/0=::/0", "write ::/0"),
        ] {
            assert!(bad.parse::<PrefixMap>().expect_err(bad).to_string().contains(advice), "{bad}");
        }
        for bad in ["", "10.0.0.0/8", "10.0.0.0/8=10.0.0.0/9", "10.0.0.0/33=10.0.0.0/33", "10.0.0.1=fd00::1", "a=b"] {
            assert!(bad.parse::<PrefixMap>().expect_err(bad).to_string().contains("pair of prefixes"), "{bad}");
        }
    }

    #[test]
    fn the_first_prefix_that_contains_an_address_replaces_its_network() {
        let texts = ["10.1.2.3=192.0.2.1", "10.1.0.0/16=172.20.0.0/16", "2001:db8::/32=fd00:1::/32", "::/0=::/0"];
        let prefixes = texts.map(|text| text.parse().unwrap()).to_vec();
        let mapper = AddressMapper::new(&Rewrite { prefixes, ..Rewrite::default() });
        let map = |a, b| mapped(&mapper, Width::V4, [v4(a), v4(b)], Position::default());
        assert_eq!(map("10.1.2.3", "10.1.2.4"), [v4("192.0.2.1"), v4("172.20.2.4")]);
        assert_eq!(map("10.2.2.3", "10.1.255.255"), [v4("10.2.2.3"), v4("172.20.255.255")]);
        let pair = [v6("2001:db8:5::7"), v6("2001:db9::7")];
        let expected = [v6("fd00:1:5::7"), v6("2001:db9::7")];
        assert_eq!(mapped(&mapper, Width::V6, pair, Position::default()), expected);
    }

    #[test]
    fn both_directions_of_a_flow_are_changed_alike_and_each_pass_differs() {
        let seed = testkit::seed("both_directions_of_a_flow_are_changed_alike_and_each_pass_differs");
        let mut prng = Prng::new(seed);
        let rewrite = Rewrite { flow_depth: Some(16), copies: 9, seed, ..Rewrite::default() };
        let mapper = AddressMapper::new(&rewrite);
        for round in 0..2000 {
            let width = if round % 2 == 0 { Width::V4 } else { Width::V6 };
            let random = |prng: &mut Prng| match width {
                Width::V4 => u128::from(prng.next_u64() as u32),
                Width::V6 => u128::from(prng.next_u64()) << 64 | u128::from(prng.next_u64()),
            };
            let [a, b] = [random(&mut prng), random(&mut prng)];
            let position = Position { pass: prng.below(5), copy: prng.below(9) as u32, ..Position::default() };
            let [a2, b2] = mapped(&mapper, width, [a, b], position);
            assert_eq!(mapped(&mapper, width, [b, a], position), [b2, a2], "seed {seed}, round {round}");
            assert_eq!((a ^ a2) >> COPY_BITS, 0, "seed {seed}, round {round}: high bits changed");
            if !is_special(width, a) && !is_special(width, b) {
                assert_eq!(a ^ a2, b ^ b2, "seed {seed}, round {round}: both ends have the same mask");
            }
        }
        let pair = [v4("10.0.0.1"), v4("10.0.0.2")];
        let at = |pass| mapped(&mapper, Width::V4, pair, Position { pass, ..Position::default() });
        assert!(
            (1..50).filter(|pass| at(*pass) == at(0)).count() <= 1,
            "several passes have the mask of pass 0, seed {seed}"
        );
    }

    #[test]
    fn copies_of_the_flows_of_one_network_never_coincide() {
        let mapper = AddressMapper::new(&Rewrite { copies: 200, ..Rewrite::default() });
        let mut flows = HashSet::new();
        for host in 1..100 {
            let pair = [v4("10.20.30.0") + host, v4("10.20.31.7")];
            for copy in 0..200 {
                let position = Position { copy, ..Position::default() };
                assert!(flows.insert(mapped(&mapper, Width::V4, pair, position)), "host {host}, copy {copy}");
            }
            assert!(flows.contains(&pair), "copy 0 is the packet of the capture");
        }
    }

    #[test]
    fn multicast_broadcast_and_zero_addresses_are_kept() {
        let mapper = AddressMapper::new(&Rewrite { flow_depth: Some(32), copies: 2, ..Rewrite::default() });
        let position = Position { pass: 3, copy: 1, ..Position::default() };
        for kept in ["0.0.0.0", "224.0.0.251", "239.255.255.250", "255.255.255.255"] {
            let [source, destination] = mapped(&mapper, Width::V4, [v4("10.0.0.1"), v4(kept)], position);
            assert!(destination == v4(kept) && source != v4("10.0.0.1"), "{kept}");
        }
        for kept in ["::", "ff02::1"] {
            assert_eq!(mapped(&mapper, Width::V6, [v6("fd00::1"), v6(kept)], position)[1], v6(kept));
        }
    }

    #[test]
    fn random_addresses_change_only_the_low_bits_of_their_end() {
        let rewrite = Rewrite { random_source: Some("8,16".parse().unwrap()), ..Rewrite::default() };
        let mapper = AddressMapper::new(&rewrite);
        let pair = [v4("10.0.0.1"), v4("10.0.0.2")];
        let at = |number| mapped(&mapper, Width::V4, pair, Position { number, ..Position::default() });
        let all: Vec<[u128; 2]> = (0..32).map(at).collect();
        assert_eq!(all[..16], all[16..]);
        assert!(all.iter().all(|[source, destination]| source >> 8 == pair[0] >> 8 && *destination == pair[1]));
        assert!(all.iter().collect::<HashSet<_>>().len() > 10);
    }
}
