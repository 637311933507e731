//! What is known of the keys of one kind in one block: groups of 256 bits. A set may say yes too often, never no wrongly.
//!
//! Most kinds are split-block Bloom filters (Putze, Sanders and Singler, JEA 2009; the form that Apache Parquet uses, with
//! four words of 64 bits instead of eight of 32): a key touches one group and sets two bits in each of its words. There are
//! 2^n groups and a key's group is the top n bits of its hash, so that half as many groups are the pairs of neighbours
//! ORed together, and twice as many are each one twice: filters of any two sizes can be brought to one. Kinds of few
//! values are one group that is an exact map, a bit for each value.

use crate::bytes::Cursor;

/// 256 bits.
pub(crate) type Group = [u64; 4];

/// Bytes of one group.
pub const GROUP: usize = 32;

/// More groups than this are never believed of a file, nor made.
pub(crate) const MOST_GROUPS: usize = 1 << 12;

/// Keys of one kind in one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Set {
    /// Nothing is known: there were more keys than the index has room for, so any key may be there.
    All,
    /// No key is in it but, perhaps, those that these groups admit: 2^n of them, or none where there is no key at all.
    Groups(Vec<Group>),
}

impl Set {
    /// No keys.
    pub const NONE: Self = Self::Groups(Vec::new());

    /// Bytes it takes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::All => 0,
            Self::Groups(groups) => groups.len() * GROUP,
        }
    }

    /// Half as large: a key is admitted still, and so are some others.
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

    /// The group that answers for group `i` of `of`, which are at least as many as the set has.
    pub(crate) fn group(&self, i: usize, of: usize) -> Group {
        match self {
            Self::All => [u64::MAX; 4],
            Self::Groups(groups) if groups.is_empty() => [0; 4],
            Self::Groups(groups) => groups[i / (of / groups.len()).max(1)],
        }
    }
}

/// Which of `2^n` groups a key is in.
#[inline]
pub(crate) fn group_of(hash: u64, groups: usize) -> usize {
    debug_assert!(groups.is_power_of_two());
    // With one group the shift would be by 64; half a shift twice is not.
    (hash >> 1 >> (63 - groups.trailing_zeros())) as usize
}

/// The eight bits of a key in its group: 48 bits of the hash, none of them those that choose the group.
#[inline]
pub(crate) fn bits_of(hash: u64) -> Group {
    std::array::from_fn(|w| 1 << (hash >> (12 * w) & 63) | 1 << (hash >> (12 * w + 6) & 63))
}

/// The two bits of a key of a thin kind: in one word, which the hash chooses too. All are taken from its upper half, since
/// such a hash may be a mere product.
#[inline]
pub(crate) fn word_of(hash: u64) -> (usize, u64) {
    ((hash >> 46 & 3) as usize, 1 << (hash >> 40 & 63) | 1 << (hash >> 34 & 63))
}

/// Whether all of these bits are set.
#[inline]
pub(crate) fn has_all(group: &Group, bits: &Group) -> bool {
    (0..4).all(|w| group[w] & bits[w] == bits[w])
}

/// Whether any of these bits is.
#[inline]
pub(crate) fn has_any(group: &Group, bits: &Group) -> bool {
    (0..4).any(|w| group[w] & bits[w] != 0)
}

pub(crate) fn encode_group(group: &Group) -> [u8; GROUP] {
    let mut out = [0; GROUP];
    out.chunks_exact_mut(8).zip(group).for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_le_bytes()));
    out
}

/// Reads whole groups; a trailing part of one is left out.
pub(crate) fn decode_groups(bytes: &[u8]) -> impl Iterator<Item = Group> + '_ {
    bytes.chunks_exact(GROUP).map(|chunk| {
        let mut words = Cursor(chunk);
        std::array::from_fn(|_| words.u64().unwrap_or_default())
    })
}
