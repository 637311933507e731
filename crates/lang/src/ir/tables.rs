//! Tables of a program: maps from keys to numbers, and sets of addresses.

use std::net::{Ipv4Addr, Ipv6Addr};

/// A table from keys to numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// As the program calls it. Over a swap, a map of the same name, key and capacity keeps its entries.
    pub name: String,
    /// What the key is made of, which is what a splitter may go by.
    pub key: crate::key::Key,
    /// Words of a key, 1 to [`super::MAX_KEY_WORDS`].
    pub words: u8,
    /// Most entries.
    pub capacity: u32,
    /// When an entry goes by itself.
    pub expiry: Expiry,
}

/// When an entry of a map goes by itself. One stamp per entry is enough for either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Expiry {
    /// Never.
    #[default]
    Never,
    /// When it was not touched for more than so many nanoseconds.
    Idle(u64),
    /// When it is older than so many nanoseconds, touched or not: what counts per interval.
    Lifetime(u64),
}

/// A set of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Set {
    /// Disjoint ranges, both ends included, in ascending order; IPv4 as [`mapped`].
    Ranges(Vec<(u128, u128)>),
    /// The addresses of the port that the packet came from. The engine puts ranges in its place when it loads the program; as long as
    /// it does not, the set is empty.
    Host,
}

impl Set {
    /// From prefixes, which may overlap.
    pub fn of_prefixes(prefixes: impl IntoIterator<Item = crate::Prefix>) -> Self {
        let mut ranges: Vec<_> = prefixes.into_iter().map(|p| p.range()).collect();
        ranges.sort_unstable();
        let mut merged: Vec<(u128, u128)> = Vec::with_capacity(ranges.len());
        for (low, high) in ranges {
            match merged.last_mut() {
                Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
                _ => merged.push((low, high)),
            }
        }
        Self::Ranges(merged)
    }

    /// Whether an address is in it.
    pub fn contains(&self, address: u128) -> bool {
        let Self::Ranges(ranges) = self else { return false };
        let after = ranges.partition_point(|r| r.0 <= address);
        after > 0 && address <= ranges[after - 1].1
    }
}

/// An IPv4 address among those of IPv6 (RFC 4291 §2.5.5.2), which is how sets and keys hold it.
pub const fn mapped(address: Ipv4Addr) -> u128 {
    0xffff_0000_0000 | address.to_bits() as u128
}

/// An IPv6 address as sets and keys hold it.
pub const fn wide(address: Ipv6Addr) -> u128 {
    address.to_bits()
}
