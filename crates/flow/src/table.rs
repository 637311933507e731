//! Where flows are found: buckets of one cache line with twelve places each, and a tag of one byte beside every place.
//!
//! ```text
//! byte  0         12                60        62        64
//!       | 12 tags | 12 flow numbers | spilled | nothing |      tag 0: the place is free
//! ```
//! A flow lies in the bucket that its hash names, or, when that is full, in one of the [`REACH`] - 1 after it; `spilled`
//! counts how many flows of a bucket lie elsewhere, so that nearly every search ends in its first line and
//! nothing is left behind by removal. A hash is 64 bits: the lower 32 name the bucket, the next 8 are the tag, the upper 16
//! the shard. The table compares tags only; whether a flow is the right one is for the caller to say.
//!
//! All tags of a bucket are compared at once, as bytes of two words (Warren, Hacker's Delight, section 6-1).
//!
//! Room is reserved for all buckets and only as many are in use as the flows need, so that those of few flows lie in the caches
//! near the processor and in few pages. With more flows the table grows, and its owner enters all of them again.

use crate::memory::{Hints, HintsExt};

/// Places in a bucket.
pub(crate) const BUCKET_SLOTS: usize = 12;
/// Flows per bucket when as many are there as were reserved: one bucket in a hundred is then over full. With seven it is one
/// in forty, and every sixth search of a flood goes on beyond its first line.
const LOAD: usize = 6;
/// Buckets that are searched at most.
pub(crate) const REACH: usize = 8;
/// Buckets in use at first: 64 KiB. In the tests so few that nearly every table grows.
const FIRST: usize = if cfg!(test) { 2 } else { 1 << 10 };
/// So many times the buckets that are needed are in use after the table has grown.
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
    /// Those in use.
    buckets: Vec<Bucket>,
    /// How many there may be.
    most: usize,
}

/// All [`REACH`] buckets are full.
#[derive(Debug)]
pub(crate) struct BucketsFull;

impl Table {
    /// A table in which `capacity` flows find room.
    pub fn new(capacity: usize, hints: impl Hints) -> Self {
        let most = capacity.div_ceil(LOAD).max(1);
        let mut buckets = hints.reserve(most);
        buckets.resize(most.min(FIRST), EMPTY);
        Self { buckets, most }
    }

    /// Whether it should grow before there are so many flows.
    #[inline(always)]
    pub fn is_small_for(&self, flows: usize) -> bool {
        flows > self.buckets.len() * LOAD && self.buckets.len() < self.most
    }

    /// Grows for so many flows and more, and forgets those that it has: each is at another spot now.
    pub fn grow(&mut self, flows: usize) {
        let count = flows.div_ceil(LOAD).saturating_mul(AHEAD).min(self.most);
        self.buckets.clear();
        self.buckets.resize(count, EMPTY);
    }

    pub fn bytes(&self) -> usize {
        self.buckets.len() * size_of::<Bucket>()
    }

    /// Forgets all flows.
    pub fn clear(&mut self) {
        self.buckets.fill(EMPTY);
    }

    /// Where a flow with this hash is looked for. Who goes there several times works it out once.
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

    /// Asks for the line where a search begins.
    #[inline(always)]
    pub fn fetch(&self, spot: BucketHint, hints: impl Hints) {
        hints.fetch(&self.buckets[spot.home as usize]);
    }

    /// The flow that a search would look at first, if there is one.
    #[inline(always)]
    pub fn guess(&self, spot: BucketHint) -> Option<u32> {
        let bucket = &self.buckets[spot.home as usize];
        bucket.slots(spot.tag).next().map(|place| bucket.flows[place])
    }

    /// The flow at this spot for which `same` holds.
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

    /// Enters a flow that is not there.
    #[inline(always)]
    pub fn insert(&mut self, spot: BucketHint, flow: u32) -> Result<(), BucketsFull> {
        if self.buckets[spot.home as usize].put(spot.tag, flow) { Ok(()) } else { self.spill(spot, flow) }
    }

    /// The same where its own bucket is full.
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

    /// Removes a flow that is there.
    #[inline(always)]
    pub fn remove(&mut self, spot: BucketHint, flow: u32) {
        if !self.buckets[spot.home as usize].take(spot.tag, flow) {
            self.remove_spilled(spot, flow);
        }
    }

    /// The same where it is not in its own bucket.
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
        debug_assert!(false, "flow {flow} is in no bucket within reach");
    }

    /// The flows in the bucket of this spot.
    pub fn neighbours(&self, spot: BucketHint) -> impl Iterator<Item = u32> + '_ {
        let bucket = &self.buckets[spot.home as usize];
        (0..BUCKET_SLOTS).filter(|p| bucket.tags[*p] != 0).map(|p| bucket.flows[p])
    }
}

/// What a table makes of a hash: the bucket that it names, and the tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BucketHint {
    home: u32,
    tag: u8,
}

/// What stands for a hash beside its flow: never 0.
#[inline(always)]
const fn tag(hash: u64) -> u8 {
    let tag = (hash >> 32) as u8;
    if tag == 0 { 1 } else { tag }
}

/// The highest bit of each byte of a word that is 0; of the others nothing.
#[inline(always)]
const fn zero_bytes(word: u64) -> u64 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    !(((word & LOW) + LOW) | word | LOW)
}

/// Places whose bits are set: the highest bit of a byte each, of the first eight and of the last four.
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
    /// The places with this tag, in their order; 0 finds those that are free.
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
    fn a_word_knows_its_zero_bytes() {
        let mut prng = Prng::new(1);
        for _ in 0..10_000 {
            // Few values, so that zeros and their neighbours in value meet.
            let bytes: [u8; 8] = std::array::from_fn(|_| [0, 0, 1, 0x7f, 0x80, 0xff][prng.below(6) as usize]);
            let expected = bytes.map(|b| if b == 0 { 0x80 } else { 0 });
            assert_eq!(zero_bytes(u64::from_le_bytes(bytes)).to_le_bytes(), expected, "{bytes:?}");
        }
    }

    #[test]
    fn a_table_is_a_map_until_it_says_that_it_is_crowded() {
        let seed = testkit::seed("a_table_is_a_map_until_it_says_that_it_is_crowded");
        let mut prng = Prng::new(seed);
        for capacity in [1, 7, 60, 500] {
            let (mut table, mut map) = (table(capacity), HashMap::new());
            let mut crowded = 0;
            for flow in 0..20_000_u32 {
                // Hashes that collide in their buckets and tags now and then, and in all their bits.
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
                            let victim = table.neighbours(spot).next().expect("it is full");
                            assert!(map.values().any(|f| *f == victim), "seed {seed}");
                        }
                    },
                }
                if prng.below(3000) == 0 {
                    table.clear();
                    map.clear();
                }
            }
            assert!(crowded > 0 || capacity > 60, "seed {seed}, room for {capacity}");
            map.iter().for_each(|(hash, flow)| table.remove(table.bucket_hint(*hash), *flow));
            assert!(table.buckets.iter().all(|b| b.spilled == 0 && b.tags == [0; BUCKET_SLOTS]), "seed {seed}");
        }
    }
}
