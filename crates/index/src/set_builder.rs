//! Filters that are being filled, and memories of what went into them.
//!
//! Keys come one by one and are put into their filter many at a time: loops over hashes that do nothing else are what a
//! processor can do several of at once, and a block that has only a few keys never touches a filter of full size.
//!
//! What is remembered are whole tuples, and hosts or ports not apart from them: to look whether one is known costs as
//! much as to put it in once more. The memory forgets, but never says that it knows what it has not met: so it can cost
//! a key that is put in twice, and never one that is left out.

use crate::set::{Group, group_of, word_of};
use crate::set_sizing;
use fearless_simd::{Simd, SimdBase, SimdFrom, u64x4};
use std::borrow::Cow;

/// Tuples that wait together.
pub(crate) const BATCH: usize = 128;

/// Tuples remembered per block. The words of one of another block differ in their generation.
const RECENT: usize = 512;

/// Hashes that wait for one filter: those of a batch, and as many before they must go.
const WAITING: usize = 2 * BATCH;

/// Tuples of `N` words met lately, and those of them that are new.
pub(crate) struct Recent<const N: usize> {
    slots: Box<[[u64; N]; RECENT]>,
    new: Box<[[u64; N]; BATCH]>,
    waiting: usize,
}

impl<const N: usize> Recent<N> {
    pub fn new() -> Self {
        Self { slots: Box::new([[0; N]; RECENT]), new: Box::new([[0; N]; BATCH]), waiting: 0 }
    }

    /// Whether so many are new by now that they must be taken. No tuple is all zeros.
    // PERF: without a branch on whether it is new, which in a mix is a coin's.
    #[inline(always)]
    pub fn meet(&mut self, tuple: [u64; N]) -> bool {
        let mixed = tuple.iter().fold(0, |n: u64, w| n.rotate_left(29) ^ w).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let slot = &mut self.slots[(mixed >> 55) as usize % RECENT];
        let differs = (0..N).fold(0, |d, i| d | (slot[i] ^ tuple[i])) != 0;
        *slot = tuple;
        self.new[self.waiting % BATCH] = tuple;
        self.waiting += usize::from(differs);
        self.waiting == BATCH
    }

    /// Those that are new; none afterwards.
    #[inline(always)]
    pub fn take(&mut self) -> &[[u64; N]] {
        &self.new[..std::mem::take(&mut self.waiting).min(BATCH)]
    }

    /// Forgets all: only for the first of many generations.
    pub fn clear(&mut self) {
        self.slots.fill([0; N]);
    }
}

/// Keeps what differs from the one before it. Of a server's packets one end is always the same; put in again and again,
/// it would cost more than others do, since each time waits for the one before to be written.
// PERF: where all differ, which many are looked through for at once, none is moved. Else without a branch, which in a
// mix is a coin's.
#[inline(always)]
pub(crate) fn changing<'a>(values: &'a [u64], kept: &'a mut [u64; BATCH]) -> &'a [u64] {
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

/// Keeps those that have this bit.
// PERF: as above.
#[inline(always)]
pub(crate) fn having<'a>(bit: u64, values: &'a [u64], kept: &'a mut [u64; BATCH]) -> &'a [u64] {
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

/// Values below 256 that were met, each in a byte of its own: a byte is written without a look at what was there, so no
/// value waits for the one before it.
pub(crate) struct SmallValueSet(Box<[u8; 256]>);

impl SmallValueSet {
    pub fn new() -> Self {
        Self(Box::new([0; 256]))
    }

    #[inline(always)]
    pub fn extend(&mut self, values: impl Iterator<Item = u8>) {
        values.for_each(|value| self.0[usize::from(value)] = 1);
    }

    /// An exact map of them.
    pub fn map(&self) -> Group {
        let bit = |(i, met): (usize, &u8)| u64::from(*met) << i;
        std::array::from_fn(|w| self.0[64 * w..][..64].iter().enumerate().fold(0, |word, met| word | bit(met)))
    }

    pub fn clear(&mut self) {
        self.0.fill(0);
    }
}

/// A filter of one kind while its block passes; a key sets so many bits in each word, one or two.
pub(crate) struct SetBuilder<const GROUPS: usize, const BITS: usize> {
    waiting: Box<[u64; WAITING]>,
    len: usize,
    /// Keys that are in the filter already.
    keys: usize,
    filter: Box<[Group; GROUPS]>,
}

impl<const GROUPS: usize, const BITS: usize> SetBuilder<GROUPS, BITS> {
    pub fn new() -> Self {
        Self { waiting: Box::new([0; WAITING]), len: 0, keys: 0, filter: Box::new([[0; 4]; GROUPS]) }
    }

    /// More keys, at most one of each tuple of a batch.
    #[inline(always)]
    pub fn extend(&mut self, simd: impl Simd, keys: impl ExactSizeIterator<Item = u64>) {
        if self.len > WAITING - BATCH {
            self.pour(simd);
        }
        let count = keys.len();
        if let Some(room) = self.waiting.get_mut(self.len..self.len + count) {
            room.iter_mut().zip(keys).for_each(|(room, hash)| *room = hash);
            self.len += count;
        }
    }

    #[inline(always)]
    fn pour(&mut self, simd: impl Simd) {
        insert::<_, BITS>(simd, &mut self.filter[..], &self.waiting[..self.len.min(WAITING)]);
        self.keys += self.len;
        self.len = 0;
    }

    /// The filter, perhaps larger than its keys want, and how many those are. Those of a block that has few are put in
    /// only now.
    #[inline(always)]
    pub fn filled(&mut self, simd: impl Simd) -> (Cow<'_, [Group]>, usize) {
        if self.keys > 0 {
            self.pour(simd);
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

/// Puts keys into a filter of 2^n groups: the bits of [`crate::set::bits_of`], or of [`crate::set::four_of`], four
/// words at once.
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

/// A filter of a kind of which each key sets two bits.
pub(crate) struct SparseSetBuilder<const GROUPS: usize> {
    filter: Box<[Group; GROUPS]>,
    keys: usize,
    /// Of the keys that are put in: in which word, and its bits.
    places: Box<[(usize, u64); BATCH]>,
}

impl<const GROUPS: usize> SparseSetBuilder<GROUPS> {
    pub fn new() -> Self {
        Self { filter: Box::new([[0; 4]; GROUPS]), keys: 0, places: Box::new([(0, 0); BATCH]) }
    }

    /// More keys, at most one of each tuple of a batch.
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

    /// The filter, and how many keys are in it.
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
    fn with_any_registers_a_key_sets_the_bits_that_are_asked_for() {
        let seed = testkit::seed("with_any_registers_a_key_sets_the_bits_that_are_asked_for");
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
    fn few_keys_and_many_give_the_filter_that_a_plain_one_is() {
        let seed = testkit::seed("few_keys_and_many_give_the_filter_that_a_plain_one_is");
        let mut prng = Prng::new(seed);
        let (mut filling, simd) = (SetBuilder::<256, 2>::new(), Level::new());
        for round in 0..200 {
            let mut keys: Vec<u64> = Vec::new();
            for _ in 0..prng.below(9) {
                let some: Vec<u64> = (0..prng.below(BATCH as u64 + 1)).map(|_| prng.next_u64()).collect();
                dispatch!(simd, simd => filling.extend(simd, some.iter().copied()));
                keys.extend(some);
                if prng.below(3) == 0 {
                    // A block that fills is told of again and again.
                    dispatch!(simd, simd => drop(filling.filled(simd)));
                }
            }
            let (filter, count) = dispatch!(simd, simd => filling.filled(simd));
            assert_eq!(count, keys.len(), "seed {seed} round {round}");
            let mut plain = vec![[0; 4]; filter.len()];
            dispatch!(simd, simd => insert::<_, 2>(simd, &mut plain, &keys));
            assert_eq!(*filter, *plain, "seed {seed} round {round}: {} keys", keys.len());
            drop(filter);
            filling.clear();
        }
    }

    #[test]
    fn a_memory_may_tell_of_a_tuple_twice_and_never_not_at_all() {
        let seed = testkit::seed("a_memory_may_tell_of_a_tuple_twice_and_never_not_at_all");
        let mut prng = Prng::new(seed);
        let mut recent = Recent::<2>::new();
        for generation in 1..60 {
            let (mut met, mut reported) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
            let (of, meetings) = (1 + prng.below(3000), prng.below(5000));
            for _ in 0..meetings {
                let tuple = [prng.below(of), generation << 48];
                met.insert(tuple);
                if recent.meet(tuple) {
                    reported.extend(recent.take().iter().copied());
                }
            }
            reported.extend(recent.take().iter().copied());
            assert_eq!(met, reported, "seed {seed} generation {generation}");
        }
    }

    #[test]
    fn only_what_is_as_the_one_before_is_left_out() {
        let mut kept = Box::new([0; BATCH]);
        assert_eq!(changing(&[0, 0, 1, 1, 0, 7], &mut kept), [0, 1, 0, 7]);
        assert_eq!(changing(&[u64::MAX, 0], &mut kept), [u64::MAX, 0]);
        assert_eq!(changing(&[], &mut kept), [0u64; 0]);
        let all: Vec<u64> = (0..BATCH as u64).collect();
        assert_eq!(changing(&all, &mut kept), all);
        assert_eq!(changing(&[5; BATCH], &mut kept), [5]);
        assert_eq!(having(2, &all[..7], &mut kept), [2, 3, 6]);
        assert_eq!(
            (having(2, &[6, 2, 7], &mut kept), having(2, &[], &mut Box::new([0; BATCH]))),
            (&[6, 2, 7][..], &[][..])
        );
    }

    #[test]
    fn every_value_that_was_met_is_in_the_map_and_no_other() {
        let mut met = SmallValueSet::new();
        met.extend([0, 63, 64, 200, 255, 63].into_iter());
        assert_eq!(met.map(), crate::key::map([0, 63, 64, 200, 255]));
        met.clear();
        assert_eq!(met.map(), [0; 4]);
    }
}
