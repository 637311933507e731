//! Kinds of keys, and the 64 bits that stand for a key in the set of its kind. Keys are hashed without a secret, so that a
//! file written on one machine can be asked on another.

use crate::set::{Group, Set};
use base::hash::mix64;

/// What a set is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyKind {
    /// Addresses, those of ARP too.
    Hosts,
    /// Both ends and the protocol of a conversation.
    Flows,
    /// Ports of TCP, UDP, SCTP, DCCP and UDP-Lite.
    Ports,
    /// The first 16 and 24 bits of IPv4 addresses, 32, 48 and 64 of IPv6 ones.
    Networks,
    /// Ethertypes under all tags, and VLAN ids.
    Macs,
    /// Addresses again, with the parts of the block that they are in: see `places.rs`.
    HostSubBlocks,
    /// The protocol above IP: an exact map.
    Protocols,
    /// The first byte of IPv4 addresses: an exact map.
    FirstBytes,
}

/// How many kinds there are; the last two are exact maps of one group each.
pub(crate) const KINDS: usize = 8;

impl KeyKind {
    pub(crate) const ALL: [Self; KINDS] = [
        Self::Hosts,
        Self::Flows,
        Self::Ports,
        Self::Networks,
        Self::Macs,
        Self::HostSubBlocks,
        Self::Protocols,
        Self::FirstBytes,
    ];

    /// How many bits of a group a key sets: the more room a kind gets, the more. Hosts are asked for most, and get fourteen bits
    /// for each key where all are new; flows and ports get seven, in which four do better than eight, and cost less. Of each
    /// host there are two or three prefixes, and who asks for a prefix expects much: two bits, in one word.
    pub(crate) const fn bits(self) -> i32 {
        match self {
            Self::Networks | Self::HostSubBlocks => 2,
            Self::Flows | Self::Ports => 4,
            Self::Hosts | Self::Macs | Self::Protocols | Self::FirstBytes => 8,
        }
    }
}

/// The key sets of one block, by kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sets(pub(crate) [Set; KINDS]);

impl Sets {
    /// Of a block of which nothing is known: it is never skipped.
    pub const ALL: Self = Self([const { Set::All }; KINDS]);

    /// Of a block without packets.
    pub const NONE: Self = Self([const { Set::NONE }; KINDS]);

    /// What is known of the keys of a kind.
    pub fn of(&self, kind: KeyKind) -> &Set {
        &self.0[kind as usize]
    }

    /// Bytes they take.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(Set::bytes).sum()
    }
}

// Odd numbers with no pattern; they only have to differ.
const V4: u64 = 0x9c3f_5a1d_7b62_e40b;
const V6: u64 = 0x6b8d_12f7_e935_ca61;
const FLOW: u64 = 0xd1b5_4a32_d192_ed03;
const END: u64 = 0xaef1_7502_108e_f2d9;
const PORT: u64 = 0x27d4_eb2f_1656_67c5;
const PLACE: u64 = 0x3c79_ac49_2ba7_b653;
const LINK: u64 = 0x8592_3fd4_6dd3_1b67;

#[inline]
pub(crate) fn host_v4(address: u32) -> u64 {
    mix64(u64::from(address) ^ V4)
}

#[inline]
pub(crate) fn host_v6(address: u128) -> u64 {
    mix64(mix64((address >> 64) as u64 ^ V6).wrapping_add(address as u64))
}

/// The first `length` bits of an address, which are all that `bits` has. Of the product only the upper half is used, to which
/// all of its input has contributed; and 32 bits of input at most are spread by one multiplication, more by two.
#[inline]
pub(crate) fn net(bits: u64, length: u8) -> u64 {
    let folded = if length > 32 { (bits.wrapping_mul(V6) >> 32) ^ bits } else { bits };
    (folded ^ u64::from(length) << 32).wrapping_mul(END)
}

/// A host where only its place is asked for: a product, of which the upper half is used.
#[inline(always)]
pub(crate) fn place_v4(address: u32) -> u64 {
    (u64::from(address) ^ PLACE).wrapping_mul(END)
}

#[inline(always)]
pub(crate) fn place_v6(high: u64, low: u64) -> u64 {
    let folded = high.wrapping_mul(V6).rotate_left(32) ^ low.wrapping_mul(FLOW);
    (folded ^ folded >> 32).wrapping_mul(END)
}

#[inline]
pub(crate) fn port(number: u16) -> u64 {
    let product = (u64::from(number) + 1).wrapping_mul(PORT);
    product ^ product >> 32
}

/// From the hashes of both hosts; the same in both directions.
#[inline]
pub(crate) fn flow(protocol: u8, a: (u64, u16), b: (u64, u16)) -> u64 {
    // Each end by itself, and the two added: no comparison, which would be a branch that nobody can guess.
    let end = |(host, port): (u64, u16)| host ^ u64::from(port).wrapping_mul(PORT);
    mix64(end(a).wrapping_add(end(b)) ^ u64::from(protocol).wrapping_mul(FLOW))
}

pub(crate) fn ethertype(number: u16) -> u64 {
    mix64(u64::from(number) ^ LINK)
}

/// Some tag with this id; or any tag.
pub(crate) fn vlan(id: Option<u16>) -> u64 {
    mix64((1 << 40 | u64::from(id.unwrap_or(0xffff)) << 16) ^ LINK)
}

/// The map with these values.
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
    fn both_directions_are_one_flow_and_its_parts_all_count() {
        let (a, b) = ((host_v4(0x0a00_0001), 80), (host_v6(1 << 100), 4000));
        assert_eq!(flow(6, a, b), flow(6, b, a));
        assert_ne!(flow(6, a, b), flow(17, a, b));
        assert_ne!(flow(6, a, b), flow(6, (a.0, b.1), (b.0, a.1)), "ports belong to their ends");
        assert_ne!(flow(6, a, a), flow(6, b, b));
        assert_ne!(net(10, 16), net(10, 24));
        assert_ne!(vlan(None), vlan(Some(0)));
    }
}
