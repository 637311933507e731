//! The key set of one kind in one block: groups of 256 bits. A set may admit a key that the block does not have (false
//! positive), but never excludes a key of the block.
//!
//! Most kinds are split-block Bloom filters (Putze, Sanders and Singler, JEA 2009; the variant of Apache Parquet, with
//! four words of 64 bits instead of eight of 32): a key selects one group and sets one bit or two in each of its words.
//! There are 2^n groups, and a key's group is the top n bits of its hash. So a filter is halved by the OR of
//! neighbouring groups, and doubled by the repetition of each group: filters of any two sizes can be converted to one
//! size. The set of a kind with at most 256 values is one group that is an exact bitmap, with a bit for each value.

use crate::bytes::Cursor;

/// A group: 256 bits.
pub(crate) type Group = [u64; 4];

/// Bytes of one group.
pub const GROUP: usize = 32;

/// The largest number of groups that a builder creates and a reader accepts in one set.
pub(crate) const MAX_GROUPS: usize = 1 << 12;

/// The set of keys of one kind in one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Set {
    /// Any key may be in the block: there were more keys than the index has space for.
    All,
    /// Only keys that these groups admit can be in the block: 2^n groups, or none if the block has no key.
    Groups(Vec<Group>),
}

impl Set {
    /// The empty set.
    pub const NONE: Self = Self::Groups(Vec::new());

    /// The memory of the set's groups, in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::All => 0,
            Self::Groups(groups) => groups.len() * GROUP,
        }
    }

    /// Halves the number of groups. The set still admits all its keys, and admits more false positives.
    pub(crate) fn fold(&mut self) {
        if let Self::Groups(groups) = self
            && groups.len() > 1
        {
            let half = groups.len() / 2;
            for i in 0..half {
                let (a, b) = (groups[2 * i], groups[2 * i + 1]);
                groups[i] = std::array::from_fn(|w| a[w] | b[w]);
            }
            groups.truncate(half);
        }
    }

    /// The group that a key belongs to.
    #[inline]
    pub(crate) fn may_contain(&self, hash: u64) -> Group {
        match self {
            Self::All => [u64::MAX; 4],
            Self::Groups(groups) if groups.is_empty() => [0; 4],
            Self::Groups(groups) => groups[group_of(hash, groups.len())],
        }
    }

    /// The group of this set that contains the keys which a set of `of` groups has in group `i`. This set has at most
    /// `of` groups.
    pub(crate) fn group(&self, i: usize, of: usize) -> Group {
        match self {
            Self::All => [u64::MAX; 4],
            Self::Groups(groups) if groups.is_empty() => [0; 4],
            Self::Groups(groups) => groups[i / (of / groups.len()).max(1)],
        }
    }
}

/// The number of the group that a key belongs to, of `2^n` groups.
#[inline]
pub(crate) fn group_of(hash: u64, groups: usize) -> usize {
    debug_assert!(groups.is_power_of_two());
    // With one group, a single shift would be by 64 bits, which overflows. Two shifts avoid a shift by 64 bits.
    (hash >> 1 >> (63 - groups.trailing_zeros())) as usize
}

/// The eight bits of a key in its group: computed from the lower 48 bits of the hash, which do not select the group.
#[inline]
pub(crate) fn bits_of(hash: u64) -> Group {
    std::array::from_fn(|w| 1 << (hash >> (12 * w) & 63) | 1 << (hash >> (12 * w + 6) & 63))
}

/// The four bits that a key sets in its group, for the kinds `Flows` and `Ports`. If all hosts of a block are new, the
/// filters of these kinds have only seven bits of space per key. Then a key that sets four bits causes fewer false
/// positives than a key that sets eight bits.
#[inline]
pub(crate) fn four_of(hash: u64) -> Group {
    std::array::from_fn(|w| 1 << (hash >> (12 * w) & 63))
}

/// The two bits of a key in its group, for kinds with little space per key: the number of the word, and both bits in
/// this word. The number of the word and of both bits come from the upper half of the hash, because the hash of these
/// kinds may be a plain product, whose lower bits are badly mixed.
#[inline]
pub(crate) fn word_of(hash: u64) -> (usize, u64) {
    ((hash >> 46 & 3) as usize, 1 << (hash >> 40 & 63) | 1 << (hash >> 34 & 63))
}

/// True if all bits of `bits` are set in `group`.
#[inline]
pub(crate) fn has_all(group: &Group, bits: &Group) -> bool {
    (0..4).all(|w| group[w] & bits[w] == bits[w])
}

/// True if any bit of `bits` is set in `group`.
#[inline]
pub(crate) fn has_any(group: &Group, bits: &Group) -> bool {
    (0..4).any(|w| group[w] & bits[w] != 0)
}

pub(crate) fn encode_group(group: &Group) -> [u8; GROUP] {
    let mut out = [0; GROUP];
    out.chunks_exact_mut(8).zip(group).for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_le_bytes()));
    out
}

/// Decodes complete groups; ignores an incomplete group at the end.
pub(crate) fn decode_groups(bytes: &[u8]) -> impl Iterator<Item = Group> + '_ {
    bytes.chunks_exact(GROUP).map(|chunk| {
        let mut words = Cursor(chunk);
        std::array::from_fn(|_| words.u64().unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyKind;
    use crate::set_sizing::{self, Occupancy};
    use base::Prng;

    const FULL: usize = 256;

    fn filled(keys: &[u64]) -> Vec<Group> {
        let mut groups = vec![[0; 4]; FULL];
        for key in keys {
            let bits = bits_of(*key);
            (0..4).for_each(|w| groups[group_of(*key, FULL)][w] |= bits[w]);
        }
        groups
    }

    fn admits(set: &Set, of: usize, key: u64) -> bool {
        has_all(&set.group(group_of(key, of), of), &bits_of(key))
    }

    #[test]
    fn every_key_is_found_in_a_folded_set_read_at_any_size() {
        let seed = 11;
        let mut prng = Prng::new(seed);
        for n in [1, 24, 1000, 7000] {
            let keys: Vec<u64> = (0..n).map(|_| prng.next_u64()).collect();
            let mut set = Set::Groups(filled(&keys));
            loop {
                let Set::Groups(groups) = &set else { panic!("a folded set has groups") };
                let len = groups.len();
                for of in [len, FULL] {
                    assert!(
                        keys.iter().all(|k| admits(&set, of, *k)),
                        "seed {seed}: {n} keys in {len} groups, read as {of} groups"
                    );
                }
                if len == 1 {
                    break;
                }
                set.fold();
            }
        }
        assert!(!admits(&Set::NONE, 8, 5) && admits(&Set::All, 8, 5));
    }

    #[test]
    fn the_estimated_false_positive_rate_is_the_measured_rate() {
        let mut prng = Prng::new(12);
        for n in [100, 1000, 3000, 8000] {
            let keys: Vec<u64> = (0..n).map(|_| prng.next_u64()).collect();
            let full = filled(&keys);
            let mut fill = [Occupancy::of(KeyKind::Hosts, &full, n)];
            set_sizing::fit(&mut fill, 4096);
            let set = fill[0].set(&full, n);
            let Set::Groups(groups) = &set else { panic!("{n} keys are too many for 4 kB") };
            let wrong = (0..100_000).filter(|_| admits(&set, groups.len(), prng.next_u64())).count() as f64 / 1e5;
            let estimate = fill[0].wrong();
            assert!(
                groups.len() <= 128 && wrong < 1.4 * estimate + 1e-3 && estimate < 1.4 * wrong + 1e-3,
                "{n}: {wrong} {estimate}"
            );
        }
    }
}
