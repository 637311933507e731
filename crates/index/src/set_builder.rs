//! Builders of the Bloom filters of a block, and tables of recently added tuples.
//!
//! Keys arrive one by one and are inserted into their filter in batches. Batches have two advantages: a processor
//! executes several iterations of a plain loop over hashes at the same time, and a block with few keys needs no filter
//! of full size.
//!
//! The tables contain complete tuples (addresses, protocol and ports). There are no tables of single hosts or ports,
//! because the lookup of a key costs as much as a second insertion. A table may lose a tuple, but it never reports a
//! new tuple as already added. So a key may be inserted twice, but no key is left out.

use crate::set::{Group, group_of, word_of};
use crate::set_sizing;
use fearless_simd::{Simd, SimdBase, SimdFrom, u64x4};
use std::borrow::Cow;

/// Tuples that are processed together.
pub(crate) const BATCH: usize = 128;

/// Number of tuples in the table. The generation in a tuple distinguishes it from an equal tuple of another block.
const RECENT: usize = 512;

/// Capacity for hashes that wait for insertion into one filter: two batches, so that a batch fits after hashes that
/// already wait.
const WAITING: usize = 2 * BATCH;

/// A table of recently added tuples of `N` words, and the batch of new tuples that are not yet in the filters.
pub(crate) struct Recent<const N: usize> {
    slots: Box<[[u64; N]; RECENT]>,
    new: Box<[[u64; N]; BATCH]>,
    waiting: usize,
}

impl<const N: usize> Recent<N> {
    pub fn new() -> Self {
        Self { slots: Box::new([[0; N]; RECENT]), new: Box::new([[0; N]; BATCH]), waiting: 0 }
    }

    /// Adds a tuple, which must not be all zeros. Returns true if the batch of new tuples is full; then the caller must
    /// call [`Self::take`].
    // PERF: no branch depends on whether the tuple is new, because the CPU could not predict such a branch in mixed
    // traffic.
    #[inline(always)]
    pub fn insert(&mut self, tuple: [u64; N]) -> bool {
        let mixed = tuple.iter().fold(0, |n: u64, w| n.rotate_left(29) ^ w).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let slot = &mut self.slots[(mixed >> 55) as usize % RECENT];
        let differs = (0..N).fold(0, |d, i| d | (slot[i] ^ tuple[i])) != 0;
        *slot = tuple;
        self.new[self.waiting % BATCH] = tuple;
        self.waiting += usize::from(differs);
        self.waiting == BATCH
    }

    /// Takes the new tuples.
    #[inline(always)]
    pub fn take(&mut self) -> &[[u64; N]] {
        &self.new[..std::mem::take(&mut self.waiting).min(BATCH)]
    }

    /// Removes all tuples from the table; needed only when the generation number wraps around.
    pub fn clear(&mut self) {
        self.slots.fill([0; N]);
    }
}

/// Removes values that are equal to their predecessor. All packets of a server have one endpoint in common. Repeated
/// insertion of the same key would cost more than insertion of different keys, because each insertion waits for the
/// memory write of the previous insertion.
// PERF: if all values differ, which a vectorised loop tests, no value is moved. Otherwise the loop that moves the
// values has no branch, because the CPU could not predict such a branch in mixed traffic.
#[inline(always)]
pub(crate) fn without_repeats<'a>(values: &'a [u64], kept: &'a mut [u64; BATCH]) -> &'a [u64] {
    let Some((first, rest)) = values.split_first() else { return values };
    if values.iter().zip(rest).fold(0, |same, (a, b)| same + u64::from(a == b)) == 0 {
        return values;
    }
    kept[0] = *first;
    let mut len = 1;
    for (before, value) in values.iter().zip(rest) {
        kept[len % BATCH] = *value;
        len += usize::from(value != before);
    }
    &kept[..len.min(BATCH)]
}

/// Returns the values in which this bit is set.
// PERF: if the bit is set in all values, no value is moved. Otherwise the loop that moves the values has no branch,
// because the CPU could not predict such a branch in mixed traffic.
#[inline(always)]
pub(crate) fn with_bit<'a>(bit: u64, values: &'a [u64], kept: &'a mut [u64; BATCH]) -> &'a [u64] {
    if values.iter().fold(bit, |all, value| all & value) == bit {
        return values;
    }
    let mut len = 0;
    for value in values {
        kept[len % BATCH] = *value;
        len += usize::from(value & bit != 0);
    }
    &kept[..len.min(BATCH)]
}

/// A set of values below 256, with one byte per value. An insertion writes a byte without reading it, so it does not
/// wait for the previous insertion.
pub(crate) struct SmallValueSet(Box<[u8; 256]>);

impl SmallValueSet {
    pub fn new() -> Self {
        Self(Box::new([0; 256]))
    }

    #[inline(always)]
    pub fn extend(&mut self, values: impl Iterator<Item = u8>) {
        values.for_each(|value| self.0[usize::from(value)] = 1);
    }

    /// The set as an exact bitmap of 256 bits.
    pub fn map(&self) -> Group {
        let bit = |(i, added): (usize, &u8)| u64::from(*added) << i;
        std::array::from_fn(|w| self.0[64 * w..][..64].iter().enumerate().fold(0, |word, added| word | bit(added)))
    }

    pub fn clear(&mut self) {
        self.0.fill(0);
    }
}

/// Builder of the Bloom filter of one key kind; each key sets `BITS` bits (1 or 2) in each word.
pub(crate) struct SetBuilder<const GROUPS: usize, const BITS: usize> {
    waiting: Box<[u64; WAITING]>,
    len: usize,
    /// Number of keys inserted into the filter.
    keys: usize,
    filter: Box<[Group; GROUPS]>,
}

impl<const GROUPS: usize, const BITS: usize> SetBuilder<GROUPS, BITS> {
    pub fn new() -> Self {
        Self { waiting: Box::new([0; WAITING]), len: 0, keys: 0, filter: Box::new([[0; 4]; GROUPS]) }
    }

    /// Adds keys to the filter, at most one per tuple of a batch.
    #[inline(always)]
    pub fn extend(&mut self, simd: impl Simd, keys: impl ExactSizeIterator<Item = u64>) {
        if self.len > WAITING - BATCH {
            self.insert_waiting(simd);
        }
        let count = keys.len();
        if let Some(room) = self.waiting.get_mut(self.len..self.len + count) {
            room.iter_mut().zip(keys).for_each(|(room, hash)| *room = hash);
            self.len += count;
        }
    }

    #[inline(always)]
    fn insert_waiting(&mut self, simd: impl Simd) {
        insert::<_, BITS>(simd, &mut self.filter[..], &self.waiting[..self.len.min(WAITING)]);
        self.keys += self.len;
        self.len = 0;
    }

    /// The filter, which may be larger than its keys need, and the number of keys. If the block has few keys, this
    /// function inserts them into a small filter; otherwise they are already in the filter of full size.
    #[inline(always)]
    pub fn filled(&mut self, simd: impl Simd) -> (Cow<'_, [Group]>, usize) {
        if self.keys > 0 {
            self.insert_waiting(simd);
            return (Cow::Borrowed(&self.filter[..]), self.keys);
        }
        let mut filter = vec![[0; 4]; set_sizing::ample(self.len, GROUPS).max(1)];
        insert::<_, BITS>(simd, &mut filter, &self.waiting[..self.len.min(WAITING)]);
        (Cow::Owned(filter), self.len)
    }

    pub fn clear(&mut self) {
        if self.keys > 0 {
            self.filter.fill([0; 4]);
        }
        (self.keys, self.len) = (0, 0);
    }
}

/// Inserts keys into a filter of 2^n groups: sets the bits of [`crate::set::bits_of`] or of [`crate::set::four_of`], in
/// four words with one instruction.
#[inline(always)]
pub(crate) fn insert<S: Simd, const BITS: usize>(simd: S, filter: &mut [Group], hashes: &[u64]) {
    let of = filter.len();
    let lanes = |lanes: Group| u64x4::simd_from(simd, lanes);
    let (first, second) = (lanes([0, 12, 24, 36]), lanes([6, 18, 30, 42]));
    let (one, below_64) = (u64x4::splat(simd, 1), u64x4::splat(simd, 63));
    for hash in hashes {
        let group = &mut filter[group_of(*hash, of) & (of - 1)];
        let hash = u64x4::splat(simd, *hash);
        let mut bits = one << ((hash >> first) & below_64);
        if BITS == 2 {
            bits |= one << ((hash >> second) & below_64);
        }
        *group = (lanes(*group) | bits).into();
    }
}

/// Builder of the Bloom filter of one key kind; each key sets two bits in one word.
pub(crate) struct SparseSetBuilder<const GROUPS: usize> {
    filter: Box<[Group; GROUPS]>,
    keys: usize,
    /// For each key of the current insertion: the number of its word in the filter, and its bits in this word.
    places: Box<[(usize, u64); BATCH]>,
}

impl<const GROUPS: usize> SparseSetBuilder<GROUPS> {
    pub fn new() -> Self {
        Self { filter: Box::new([[0; 4]; GROUPS]), keys: 0, places: Box::new([(0, 0); BATCH]) }
    }

    /// Adds keys to the filter, at most one per tuple of a batch.
    #[inline(always)]
    pub fn extend(&mut self, keys: impl ExactSizeIterator<Item = u64>) {
        let count = keys.len().min(BATCH);
        for (place, hash) in self.places.iter_mut().zip(keys) {
            let (word, bits) = word_of(hash);
            *place = (4 * group_of(hash, GROUPS) + word, bits);
        }
        let words = self.filter.as_flattened_mut();
        self.places[..count].iter().for_each(|(place, bits)| words[place % (4 * GROUPS)] |= bits);
        self.keys += count;
    }

    /// The filter, and the number of keys inserted into it.
    pub fn filled(&self) -> (Cow<'_, [Group]>, usize) {
        (Cow::Borrowed(&self.filter[..]), self.keys)
    }

    pub fn clear(&mut self) {
        if std::mem::take(&mut self.keys) > 0 {
            self.filter.fill([0; 4]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::set::{bits_of, four_of};
    use base::Prng;
    use fearless_simd::{Level, dispatch};

    #[test]
    fn every_simd_level_sets_the_same_bits() {
        let seed = testkit::seed("every_simd_level_sets_the_same_bits");
        let mut prng = Prng::new(seed);
        for groups in [1, 2, 64, 256] {
            let hashes: Vec<u64> = (0..300).map(|_| prng.next_u64()).collect();
            let plain = |bits: fn(u64) -> Group| {
                let mut plain = vec![[0; 4]; groups];
                for hash in &hashes {
                    let group = &mut plain[group_of(*hash, groups)];
                    (0..4).for_each(|w| group[w] |= bits(*hash)[w]);
                }
                plain
            };
            for level in [Level::new(), Level::baseline()] {
                let mut filters = [(); 2].map(|()| vec![[0; 4]; groups]);
                dispatch!(level, simd => insert::<_, 1>(simd, &mut filters[0], &hashes));
                dispatch!(level, simd => insert::<_, 2>(simd, &mut filters[1], &hashes));
                assert_eq!(filters, [plain(four_of), plain(bits_of)], "seed {seed}: {groups} groups, {level:?}");
            }
        }
    }

    #[test]
    fn batched_insertion_gives_the_same_filter_as_plain_insertion() {
        let seed = testkit::seed("batched_insertion_gives_the_same_filter_as_plain_insertion");
        let mut prng = Prng::new(seed);
        let (mut builder, simd) = (SetBuilder::<256, 2>::new(), Level::new());
        for round in 0..200 {
            let mut keys: Vec<u64> = Vec::new();
            for _ in 0..prng.below(9) {
                let some: Vec<u64> = (0..prng.below(BATCH as u64 + 1)).map(|_| prng.next_u64()).collect();
                dispatch!(simd, simd => builder.extend(simd, some.iter().copied()));
                keys.extend(some);
                if prng.below(3) == 0 {
                    // The recorder requests the sets of a block several times while the block is being filled.
                    dispatch!(simd, simd => drop(builder.filled(simd)));
                }
            }
            let (filter, count) = dispatch!(simd, simd => builder.filled(simd));
            assert_eq!(count, keys.len(), "seed {seed} round {round}");
            let mut plain = vec![[0; 4]; filter.len()];
            dispatch!(simd, simd => insert::<_, 2>(simd, &mut plain, &keys));
            assert_eq!(*filter, *plain, "seed {seed} round {round}: filter of {} keys", keys.len());
            drop(filter);
            builder.clear();
        }
    }

    #[test]
    fn the_tuple_table_reports_every_tuple_at_least_once() {
        let seed = testkit::seed("the_tuple_table_reports_every_tuple_at_least_once");
        let mut prng = Prng::new(seed);
        let mut recent = Recent::<2>::new();
        for generation in 1..60 {
            let (mut added, mut reported) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
            let (of, insertions) = (1 + prng.below(3000), prng.below(5000));
            for _ in 0..insertions {
                let tuple = [prng.below(of), generation << 48];
                added.insert(tuple);
                if recent.insert(tuple) {
                    reported.extend(recent.take().iter().copied());
                }
            }
            reported.extend(recent.take().iter().copied());
            assert_eq!(added, reported, "seed {seed} generation {generation}");
        }
    }

    #[test]
    fn only_repeated_neighbours_are_removed() {
        let mut kept = Box::new([0; BATCH]);
        assert_eq!(without_repeats(&[0, 0, 1, 1, 0, 7], &mut kept), [0, 1, 0, 7]);
        assert_eq!(without_repeats(&[u64::MAX, 0], &mut kept), [u64::MAX, 0]);
        assert_eq!(without_repeats(&[], &mut kept), [0u64; 0]);
        let all: Vec<u64> = (0..BATCH as u64).collect();
        assert_eq!(without_repeats(&all, &mut kept), all);
        assert_eq!(without_repeats(&[5; BATCH], &mut kept), [5]);
        assert_eq!(with_bit(2, &all[..7], &mut kept), [2, 3, 6]);
        assert_eq!(
            (with_bit(2, &[6, 2, 7], &mut kept), with_bit(2, &[], &mut Box::new([0; BATCH]))),
            (&[6, 2, 7][..], &[][..])
        );
    }

    #[test]
    fn the_map_contains_exactly_the_inserted_values() {
        let mut added = SmallValueSet::new();
        added.extend([0, 63, 64, 200, 255, 63].into_iter());
        assert_eq!(added.map(), crate::key::map([0, 63, 64, 200, 255]));
        added.clear();
        assert_eq!(added.map(), [0; 4]);
    }
}
