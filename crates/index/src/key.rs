//! The kinds of keys, and the 64-bit hash that represents a key in the set of its kind. The hash uses no secret, so
//! that an index written on one machine can be queried on another.

use crate::set::{Group, Set};
use base::hash::mix64;

/// The kind of the keys in a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyKind {
    /// Addresses, including those in ARP.
    Hosts,
    /// Flows: both addresses and ports, and the protocol.
    Flows,
    /// Ports of TCP, UDP, SCTP, DCCP and UDP-Lite.
    Ports,
    /// The first 16 and 24 bits of IPv4 addresses, and the first 32, 48 and 64 bits of IPv6 addresses.
    Networks,
    /// Ethertypes after all VLAN tags, and VLAN ids.
    LinkLayer,
    /// Addresses, with the sub-blocks in which they occur: see `host_sub_blocks.rs`.
    HostSubBlocks,
    /// The numbers of protocols above IP, in an exact bitmap.
    Protocols,
    /// The first bytes of IPv4 addresses, in an exact bitmap.
    FirstBytes,
}

/// Number of key kinds; the last two are exact bitmaps of one group each.
pub(crate) const KINDS: usize = 8;

impl KeyKind {
    pub(crate) const ALL: [Self; KINDS] = [
        Self::Hosts,
        Self::Flows,
        Self::Ports,
        Self::Networks,
        Self::LinkLayer,
        Self::HostSubBlocks,
        Self::Protocols,
        Self::FirstBytes,
    ];

    /// The number of bits that a key sets in its group. A key sets more bits if its kind has more space per key. Most
    /// queries are for hosts, which have 14 bits of space per key in a block where all keys are new. Flows and ports
    /// have 7 bits of space per key; with so little space, four bits give fewer false positives than eight, and cost
    /// less. Prefixes set only two bits, in one word, because each host adds two or three prefixes, and because a query
    /// for a prefix usually matches many blocks.
    pub(crate) const fn bits(self) -> i32 {
        match self {
            Self::Networks | Self::HostSubBlocks => 2,
            Self::Flows | Self::Ports => 4,
            Self::Hosts | Self::LinkLayer | Self::Protocols | Self::FirstBytes => 8,
        }
    }
}

/// The key sets of one block, by kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sets(pub(crate) [Set; KINDS]);

impl Sets {
    /// The sets of a block whose keys are unknown: no query skips the block.
    pub const ALL: Self = Self([const { Set::All }; KINDS]);

    /// The sets of a block without packets.
    pub const NONE: Self = Self([const { Set::NONE }; KINDS]);

    /// The set of one kind.
    pub fn of(&self, kind: KeyKind) -> &Set {
        &self.0[kind as usize]
    }

    /// The memory of all sets together, in bytes.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(Set::bytes).sum()
    }
}

// Arbitrary odd constants that differ from each other.
const V4: u64 = 0x9c3f_5a1d_7b62_e40b;
const V6: u64 = 0x6b8d_12f7_e935_ca61;
const FLOW: u64 = 0xd1b5_4a32_d192_ed03;
const ENDPOINT: u64 = 0xaef1_7502_108e_f2d9;
const PORT: u64 = 0x27d4_eb2f_1656_67c5;
const SUB_BLOCK_HOST: u64 = 0x3c79_ac49_2ba7_b653;
const LINK: u64 = 0x8592_3fd4_6dd3_1b67;

#[inline]
pub(crate) fn host_v4(address: u32) -> u64 {
    mix64(u64::from(address) ^ V4)
}

#[inline]
pub(crate) fn host_v6(address: u128) -> u64 {
    mix64(mix64((address >> 64) as u64 ^ V6).wrapping_add(address as u64))
}

/// The hash of an address prefix: `bits` holds the first `length` bits of the address and nothing else. Callers use
/// only the upper half of the hash, to which all input bits contribute. One multiplication mixes up to 32 bits of
/// input; longer prefixes need two multiplications.
#[inline]
pub(crate) fn net(bits: u64, length: u8) -> u64 {
    let folded = if length > 32 { (bits.wrapping_mul(V6) >> 32) ^ bits } else { bits };
    (folded ^ u64::from(length) << 32).wrapping_mul(ENDPOINT)
}

/// The hash of a host for the lookup of its sub-blocks. It is a product of which callers use only the upper half.
#[inline(always)]
pub(crate) fn place_v4(address: u32) -> u64 {
    (u64::from(address) ^ SUB_BLOCK_HOST).wrapping_mul(ENDPOINT)
}

#[inline(always)]
pub(crate) fn place_v6(high: u64, low: u64) -> u64 {
    let folded = high.wrapping_mul(V6).rotate_left(32) ^ low.wrapping_mul(FLOW);
    (folded ^ folded >> 32).wrapping_mul(ENDPOINT)
}

#[inline]
pub(crate) fn port(number: u16) -> u64 {
    let product = (u64::from(number) + 1).wrapping_mul(PORT);
    product ^ product >> 32
}

/// The hash of a flow, computed from the hashes of both hosts; it is equal for both directions.
#[inline]
pub(crate) fn flow(protocol: u8, a: (u64, u16), b: (u64, u16)) -> u64 {
    // Each endpoint is hashed separately and the hashes are added: a comparison that orders the endpoints would be an
    // unpredictable branch.
    let endpoint = |(host, port): (u64, u16)| host ^ u64::from(port).wrapping_mul(PORT);
    mix64(endpoint(a).wrapping_add(endpoint(b)) ^ u64::from(protocol).wrapping_mul(FLOW))
}

pub(crate) fn ethertype(number: u16) -> u64 {
    mix64(u64::from(number) ^ LINK)
}

/// The hash of a VLAN tag with this id; `None` gives the hash that stands for any VLAN tag.
pub(crate) fn vlan(id: Option<u16>) -> u64 {
    mix64((1 << 40 | u64::from(id.unwrap_or(0xffff)) << 16) ^ LINK)
}

/// The exact bitmap that contains these values.
pub(crate) fn map(values: impl IntoIterator<Item = u8>) -> Group {
    values.into_iter().fold([0; 4], |mut group, v| {
        group[usize::from(v / 64)] |= 1 << (v % 64);
        group
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_hash_uses_all_fields_and_ignores_the_direction() {
        let (a, b) = ((host_v4(0x0a00_0001), 80), (host_v6(1 << 100), 4000));
        assert_eq!(flow(6, a, b), flow(6, b, a));
        assert_ne!(flow(6, a, b), flow(17, a, b));
        assert_ne!(
            flow(6, a, b),
            flow(6, (a.0, b.1), (b.0, a.1)),
            "the hash depends on which port belongs to which address"
        );
        assert_ne!(flow(6, a, a), flow(6, b, b));
        assert_ne!(net(10, 16), net(10, 24));
        assert_ne!(vlan(None), vlan(Some(0)));
    }
}
