//! A set that may say yes too often but never no wrongly: the split-block Bloom filter (Putze, Sanders and Singler,
//! JEA 2009; the form that Apache Parquet uses). One key touches one group of 32 bytes, in which it sets eight bits.
//! At ten bits per key about one answer in a hundred is a wrong yes.

/// Bytes of one group.
pub const GROUP: usize = 32;

/// Keys per group at ten bits per key.
const KEYS_PER_GROUP: usize = GROUP * 8 / 10;

const SALT: [u32; 8] =
    [0x47b6_137b, 0x4497_4d91, 0x8824_ad5b, 0xa2b7_289d, 0x7054_95c7, 0x2df1_424b, 0x9efc_4947, 0x5c6b_fb31];

/// What is known of the keys of one kind in one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Set {
    /// Nothing: there were more keys than the index has room for, so any key may be there.
    All,
    /// No key is in it but, perhaps, those that the filter admits. Empty: none at all.
    Filter(Vec<u8>),
}

impl Set {
    /// The filter of these distinct key hashes.
    pub fn of(keys: &[u64]) -> Self {
        let groups = Self::groups_for(keys.len());
        let mut bytes = vec![0; groups * GROUP];
        for key in keys {
            let group = &mut bytes[group_of(*key, groups) * GROUP..][..GROUP];
            for (lane, bit) in group.chunks_exact_mut(4).zip(bits(*key)) {
                lane[bit / 8] |= 1 << (bit % 8);
            }
        }
        Self::Filter(bytes)
    }

    /// Groups that this many keys want.
    pub const fn groups_for(keys: usize) -> usize {
        keys.div_ceil(KEYS_PER_GROUP)
    }

    /// Whether the key with this hash may be in the set.
    pub fn may_contain(&self, hash: u64) -> bool {
        match self {
            Self::All => true,
            Self::Filter(bytes) => filter_may_contain(bytes, hash),
        }
    }
}

/// The same question of a filter that lies in a file. A trailing part of a group is never looked at.
pub fn filter_may_contain(bytes: &[u8], hash: u64) -> bool {
    let groups = bytes.len() / GROUP;
    if groups == 0 {
        return false;
    }
    let group = &bytes[group_of(hash, groups) * GROUP..][..GROUP];
    group.chunks_exact(4).zip(bits(hash)).all(|(lane, bit)| lane[bit / 8] & (1 << (bit % 8)) != 0)
}

fn group_of(hash: u64, groups: usize) -> usize {
    (((hash >> 32) * groups as u64) >> 32) as usize
}

fn bits(hash: u64) -> impl Iterator<Item = usize> {
    SALT.iter().map(move |salt| ((hash as u32).wrapping_mul(*salt) >> 27) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    #[test]
    fn never_a_wrong_no_and_about_one_wrong_yes_in_a_hundred() {
        let mut prng = Prng::new(11);
        for n in [0usize, 1, 24, 25, 26, 1000, 7000] {
            let keys: Vec<u64> = (0..n).map(|_| prng.next_u64()).collect();
            let set = Set::of(&keys);
            assert!(keys.iter().all(|k| set.may_contain(*k)), "{n} keys");
            let wrong = (0..20_000).filter(|_| set.may_contain(prng.next_u64())).count();
            assert!(wrong < 800, "{n} keys: {wrong} of 20000");
            assert!(n > 0 || wrong == 0);
        }
        assert!(Set::All.may_contain(5));
    }
}
