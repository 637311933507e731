//! Tables of a program: flow maps, and sets of addresses.

/// A flow map: a table from keys to numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// The name in the program. When a program is replaced, a map with the same name, key and capacity keeps its
    /// entries.
    pub name: String,
    /// The flow key. Packets may be spread over workers by this key.
    pub key: crate::key::Key,
    /// Number of words of a key, 1 to [`super::MAX_KEY_WORDS`].
    pub words: u8,
    /// Maximum number of entries.
    pub capacity: u32,
    /// The expiry of entries.
    pub expiry: Expiry,
}

/// The rule by which entries of a map expire. One timestamp per entry is sufficient for each rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Expiry {
    /// Entries do not expire.
    #[default]
    Never,
    /// An entry expires when it was not touched for more than this number of nanoseconds.
    Idle(u64),
    /// An entry expires this number of nanoseconds after its creation, touched or not; used for counts per interval.
    Lifetime(u64),
}

/// A set of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Set {
    /// Disjoint ranges, both ends included, in ascending order; IPv4 addresses as [`crate::mapped`].
    Ranges(Vec<(u128, u128)>),
    /// The addresses of the interface on which the packet arrived. The engine replaces this variant by ranges when it
    /// loads the program; until then the set is empty.
    Host,
}

impl Set {
    /// The set of these prefixes, which may overlap.
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

    /// True if the set contains the address.
    pub fn contains(&self, address: u128) -> bool {
        let Self::Ranges(ranges) = self else { return false };
        let after = ranges.partition_point(|r| r.0 <= address);
        after > 0 && address <= ranges[after - 1].1
    }
}
