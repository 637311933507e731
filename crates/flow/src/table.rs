//! The hash table of active flows: buckets of one cache line with twelve slots, and a tag of one byte for each slot.
//!
//! ```text
//! byte  0         12                60        62        64
//!       | 12 tags | 12 flow indices | spilled | unused  |      tag 0: the slot is free
//! ```
//! A flow is in the bucket of its hash, or, if that bucket is full, in one of the [`REACH`] - 1 buckets after it.
//! `spilled` counts the flows of a bucket that are in other buckets, so that nearly every search ends in its first
//! cache line and a removal needs no tombstone. A hash has 64 bits: the lower 32 select the bucket, the next 8 are the
//! tag, the upper 16 select the shard. The table compares tags only; the caller compares the keys.
//!
//! All tags of a bucket are compared at once, as the bytes of two words (Warren, Hacker's Delight, section 6-1).
//!
//! Address space is reserved for all buckets, but only as many buckets are in use as the flows need. So the buckets of
//! few flows stay in the caches and in few pages. If the flows need more buckets, the table is emptied and enlarged,
//! and its owner inserts all flows again.

use base::memory::{Hints, HintsExt};

/// Slots in a bucket.
pub(crate) const BUCKET_SLOTS: usize = 12;
/// Flows per bucket of a table that is filled to its capacity. With this number, one bucket in a hundred overflows.
/// With seven flows per bucket, one bucket in forty overflows, and in a flood every sixth search continues beyond its
/// first cache line.
const LOAD: usize = 6;
/// The largest number of buckets that a search visits.
pub(crate) const REACH: usize = 8;
/// Initial number of buckets, which take 64 KiB. In tests the number is so small that nearly every table grows.
const FIRST: usize = if cfg!(test) { 2 } else { 1 << 10 };
/// The number of buckets after growth, as a multiple of the buckets needed.
const AHEAD: usize = 4;

#[derive(Clone)]
#[repr(C, align(64))]
struct Bucket {
    tags: [u8; BUCKET_SLOTS],
    flows: [u32; BUCKET_SLOTS],
    spilled: u16,
}

const _: () = assert!(size_of::<Bucket>() == 64);

const EMPTY: Bucket = Bucket { tags: [0; BUCKET_SLOTS], flows: [0; BUCKET_SLOTS], spilled: 0 };

pub(crate) struct Table {
    /// The buckets in use.
    buckets: Vec<Bucket>,
    /// The largest number of buckets.
    most: usize,
}

/// All [`REACH`] buckets are full.
#[derive(Debug)]
pub(crate) struct BucketsFull;

impl Table {
    /// A table for `capacity` flows.
    pub fn new(capacity: usize, hints: impl Hints) -> Self {
        let most = capacity.div_ceil(LOAD).max(1);
        let mut buckets = hints.reserve(most);
        buckets.resize(most.min(FIRST), EMPTY);
        Self { buckets, most }
    }

    /// True if the table should grow before it holds this number of flows.
    #[inline(always)]
    pub fn is_small_for(&self, flows: usize) -> bool {
        flows > self.buckets.len() * LOAD && self.buckets.len() < self.most
    }

    /// Grows the table for at least this number of flows and empties it, because every flow gets another bucket.
    pub fn grow(&mut self, flows: usize) {
        let count = flows.div_ceil(LOAD).saturating_mul(AHEAD).min(self.most);
        self.buckets.clear();
        self.buckets.resize(count, EMPTY);
    }

    pub fn bytes(&self) -> usize {
        self.buckets.len() * size_of::<Bucket>()
    }

    /// Removes all flows.
    pub fn clear(&mut self) {
        self.buckets.fill(EMPTY);
    }

    /// The bucket and tag of a hash, for callers that use them several times.
    #[inline(always)]
    pub fn bucket_hint(&self, hash: u64) -> BucketHint {
        BucketHint { home: (((hash & 0xffff_ffff) * self.buckets.len() as u64) >> 32) as u32, tag: tag(hash) }
    }

    #[inline(always)]
    fn after(&self, home: usize, step: usize) -> usize {
        let at = home + step;
        if at < self.buckets.len() { at } else { at - self.buckets.len() }
    }

    fn reach(&self) -> usize {
        REACH.min(self.buckets.len())
    }

    /// Prefetches the cache line where a search begins.
    #[inline(always)]
    pub fn fetch(&self, spot: BucketHint, hints: impl Hints) {
        hints.fetch(&self.buckets[spot.home as usize]);
    }

    /// The first flow that a search would compare; `None` if no tag matches.
    #[inline(always)]
    pub fn guess(&self, spot: BucketHint) -> Option<u32> {
        let bucket = &self.buckets[spot.home as usize];
        bucket.slots(spot.tag).next().map(|place| bucket.flows[place])
    }

    /// The flow with this tag for which the function `same` returns true; `None` if no bucket of the search has such a
    /// flow.
    #[inline(always)]
    pub fn find(&self, BucketHint { home, tag }: BucketHint, same: impl Fn(u32) -> bool) -> Option<u32> {
        let home = home as usize;
        let bucket = &self.buckets[home];
        let found = bucket.find(tag, &same);
        if found.is_some() || bucket.spilled == 0 {
            return found;
        }
        (1..self.reach()).find_map(|step| self.buckets[self.after(home, step)].find(tag, &same))
    }

    /// Inserts a flow that is not in the table.
    #[inline(always)]
    pub fn insert(&mut self, spot: BucketHint, flow: u32) -> Result<(), BucketsFull> {
        if self.buckets[spot.home as usize].put(spot.tag, flow) { Ok(()) } else { self.spill(spot, flow) }
    }

    /// Like `insert`, but for a flow whose own bucket is full.
    #[cold]
    #[inline(never)]
    fn spill(&mut self, BucketHint { home, tag }: BucketHint, flow: u32) -> Result<(), BucketsFull> {
        let home = home as usize;
        for step in 1..self.reach() {
            let at = self.after(home, step);
            if self.buckets[at].put(tag, flow) {
                self.buckets[home].spilled += 1;
                return Ok(());
            }
        }
        Err(BucketsFull)
    }

    /// Removes a flow that is in the table.
    #[inline(always)]
    pub fn remove(&mut self, spot: BucketHint, flow: u32) {
        if !self.buckets[spot.home as usize].take(spot.tag, flow) {
            self.remove_spilled(spot, flow);
        }
    }

    /// Like `remove`, but for a flow that is not in its own bucket.
    #[cold]
    #[inline(never)]
    fn remove_spilled(&mut self, BucketHint { home, tag }: BucketHint, flow: u32) {
        let home = home as usize;
        for step in 1..self.reach() {
            let at = self.after(home, step);
            if self.buckets[at].take(tag, flow) {
                self.buckets[home].spilled -= 1;
                return;
            }
        }
        debug_assert!(false, "flow {flow} is in none of the {REACH} buckets");
    }

    /// The flows in this bucket.
    pub fn neighbours(&self, spot: BucketHint) -> impl Iterator<Item = u32> + '_ {
        let bucket = &self.buckets[spot.home as usize];
        (0..BUCKET_SLOTS).filter(|p| bucket.tags[*p] != 0).map(|p| bucket.flows[p])
    }
}

/// The bucket that a hash selects, and the tag of the hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BucketHint {
    home: u32,
    tag: u8,
}

/// The tag of a hash, never 0.
#[inline(always)]
const fn tag(hash: u64) -> u8 {
    let tag = (hash >> 32) as u8;
    if tag == 0 { 1 } else { tag }
}

/// A word with the highest bit of each byte that is 0 in `word`; all other bits are 0.
#[inline(always)]
const fn zero_bytes(word: u64) -> u64 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    !(((word & LOW) + LOW) | word | LOW)
}

/// A set of slots, as the highest bit of one byte per slot: the first eight slots, and the last four.
struct Hits(u64, u64);

impl Iterator for Hits {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.0 != 0 {
            let place = self.0.trailing_zeros() as usize / 8;
            self.0 &= self.0 - 1;
            return Some(place);
        }
        if self.1 != 0 {
            let place = 8 + self.1.trailing_zeros() as usize / 8;
            self.1 &= self.1 - 1;
            return Some(place);
        }
        None
    }
}

impl Bucket {
    /// The slots with this tag, in their order; tag 0 finds the free slots.
    #[inline(always)]
    fn slots(&self, tag: u8) -> Hits {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = self.tags;
        let all = u64::from(tag) * 0x0101_0101_0101_0101;
        let front = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let back = u64::from(u32::from_le_bytes([i, j, k, l]));
        Hits(zero_bytes(front ^ all), zero_bytes(back ^ all) & 0x8080_8080)
    }

    #[inline(always)]
    fn find(&self, tag: u8, same: &impl Fn(u32) -> bool) -> Option<u32> {
        for place in self.slots(tag) {
            if same(self.flows[place]) {
                return Some(self.flows[place]);
            }
        }
        None
    }

    #[inline(always)]
    fn put(&mut self, tag: u8, flow: u32) -> bool {
        let Some(place) = self.slots(0).next() else { return false };
        (self.tags[place], self.flows[place]) = (tag, flow);
        true
    }

    #[inline(always)]
    fn take(&mut self, tag: u8, flow: u32) -> bool {
        for place in self.slots(tag) {
            if self.flows[place] == flow {
                self.tags[place] = 0;
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NoHints;
    use base::Prng;
    use std::collections::HashMap;

    fn table(capacity: usize) -> Table {
        Table::new(capacity, NoHints)
    }

    #[test]
    fn zero_bytes_finds_every_zero_byte() {
        let mut prng = Prng::new(1);
        for _ in 0..10_000 {
            // The bytes have few different values, so that zeros and the values next to zero often occur in the same
            // word.
            let bytes: [u8; 8] = std::array::from_fn(|_| [0, 0, 1, 0x7f, 0x80, 0xff][prng.below(6) as usize]);
            let expected = bytes.map(|b| if b == 0 { 0x80 } else { 0 });
            assert_eq!(zero_bytes(u64::from_le_bytes(bytes)).to_le_bytes(), expected, "{bytes:?}");
        }
    }

    #[test]
    fn a_table_is_a_map_until_its_buckets_are_full() {
        let seed = testkit::seed("a_table_is_a_map_until_its_buckets_are_full");
        let mut prng = Prng::new(seed);
        for capacity in [1, 7, 60, 500] {
            let (mut table, mut map) = (table(capacity), HashMap::new());
            let mut crowded = 0;
            for flow in 0..20_000_u32 {
                // Hashes that sometimes collide in bucket and tag, and sometimes in all bits.
                let hash = (prng.below(40) << 32) | (prng.below(25) * 0x0a00_0000);
                let known = map.get(&hash).copied();
                let spot = table.bucket_hint(hash);
                assert_eq!(table.find(spot, |f| Some(f) == known), known, "seed {seed}");
                match known {
                    Some(known) if prng.below(2) == 0 => {
                        table.remove(spot, known);
                        map.remove(&hash);
                    }
                    Some(_) => (),
                    None => match table.insert(spot, flow) {
                        Ok(()) => assert_eq!(map.insert(hash, flow), None),
                        Err(BucketsFull) => {
                            crowded += 1;
                            let victim = table.neighbours(spot).next().expect("the bucket is full");
                            assert!(map.values().any(|f| *f == victim), "seed {seed}");
                        }
                    },
                }
                if prng.below(3000) == 0 {
                    table.clear();
                    map.clear();
                }
            }
            assert!(crowded > 0 || capacity > 60, "seed {seed}, capacity {capacity}");
            map.iter().for_each(|(hash, flow)| table.remove(table.bucket_hint(*hash), *flow));
            assert!(table.buckets.iter().all(|b| b.spilled == 0 && b.tags == [0; BUCKET_SLOTS]), "seed {seed}");
        }
    }
}
