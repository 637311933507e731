//! Defines two kinds of tables that a program declares: flow maps and sets of addresses.

/// A flow map: a table from keys to numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// The name of the map in the program. If a program is replaced, the new program takes over the entries of a map
    /// with the same name, key and capacity.
    pub name: String,
    /// The flow key of the map. The engine may spread packets over workers by a hash of this key.
    pub key: crate::key::Key,
    /// Number of 64-bit words of a key, 1 to [`super::MAX_KEY_WORDS`].
    pub words: u8,
    /// Maximum number of entries.
    pub capacity: u32,
    /// The expiry of entries.
    pub expiry: Expiry,
}

/// The rule by which entries of a map expire. Each rule needs only one timestamp per entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Expiry {
    /// Entries do not expire.
    #[default]
    Never,
    /// An entry expires if its timestamp was not renewed for more than this number of nanoseconds.
    Idle(u64),
    /// An entry expires this number of nanoseconds after its creation, even if it is in use; programs use this rule to
    /// count packets per interval.
    Lifetime(u64),
}

/// A set of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Set {
    /// Disjoint address ranges in ascending order; the ends belong to the range, and IPv4 addresses are stored as
    /// [`crate::mapped`].
    Ranges(Vec<(u128, u128)>),
    /// The addresses of the interface on which the packet arrived. When the engine loads the program, it replaces this
    /// variant by address ranges; until then the set is empty.
    Host,
}

impl Set {
    /// The set of all addresses in these prefixes; the prefixes may overlap.
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
