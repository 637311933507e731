//! Implements the flow map of a program: a hash table whose keys have a few words, whose values are numbers, whose
//! capacity is limited, and whose entries expire. After any sequence of calls the table contains the same entries as
//! the reference implementation [`::ir::interp::Table`]; random tests compare the two.
//!
//! ```text
//! slot = tag · timestamp · number · key, padded to a power of two of 64-bit words
//! tag  = the hash of the key with the lowest bit set; 0 in an empty slot
//! ```
//! The table uses open addressing with linear probing, and at most three quarters of its slots are in use. It is one
//! allocation, whose memory pages are allocated on first use. A slot with a key of up to five words fits into one cache
//! line, which can be prefetched. Prefetching has three steps. First, the caller announces keys one by one. Second, the
//! home slots of all announced keys are prefetched. Third, for each key that is not in its home slot, the slot that
//! contains the key is prefetched. When an entry is removed, later entries of the probe sequence are moved back, so the
//! table needs no tombstones (marks of removed entries).
//!
//! Each worker has its own tables. Packets are spread over workers by a key ([`::ir::Key::common`]) such that all
//! packets that access an entry are processed by the same worker. So tables are not shared and need no locks.

use ::ir::{Expiry, MAX_KEY_WORDS, Map};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use sys::zeroed_pages::ZeroedPages;

/// Word offsets within a slot.
mod at {
    pub const TAG: usize = 0;
    pub const STAMP: usize = 1;
    pub const NUMBER: usize = 2;
    pub const KEY: usize = 3;
}

/// Words of a cache line.
const LINE: usize = 8;

/// A flow map. The constant parameter `W` of the methods is the number of words of a key and must be equal to the
/// number that the map declares. It is a constant, so that the compiler unrolls the loops over the words.
#[derive(Debug)]
pub struct Table {
    slots: ZeroedPages,
    /// Number of slots minus one.
    mask: usize,
    /// Binary logarithm of the number of words of a slot.
    stride_log2: u32,
    words: usize,
    secrets: [u64; MAX_KEY_WORDS + 2],
    len: usize,
    capacity: usize,
    expiry: Expiry,
    refused: u64,
    /// The tags of the keys that were announced and are not prefetched yet.
    announced: Vec<u64>,
    /// The tags of the keys whose home slots are prefetched; [`Table::follow`] empties the list.
    fetched: Vec<u64>,
    /// For each entry, a pair of a lower bound of its timestamp and its tag, ordered by time; [`Table::purge`] explains
    /// the use. Empty if entries do not expire.
    oldest: BinaryHeap<Reverse<(u64, u64)>>,
}

impl Table {
    /// Returns the number of slots, and the number of words of a slot.
    fn size(map: &Map) -> (usize, usize) {
        let capacity = map.capacity as usize;
        let words = usize::from(map.words).clamp(1, MAX_KEY_WORDS);
        ((capacity + capacity / 3 + 1).next_power_of_two(), (at::KEY + words).next_power_of_two())
    }

    /// Size in bytes of a full table for this map, including the heap of timestamps.
    pub fn bytes_of(map: &Map) -> u64 {
        let (slots, stride) = Self::size(map);
        let note = if map.expiry == Expiry::Never { 0 } else { size_of::<Reverse<(u64, u64)>>() };
        slots as u64 * stride as u64 * 8 + u64::from(map.capacity) * note as u64
    }

    /// Creates an empty table; its hash function depends on `secret`.
    ///
    /// # Errors
    /// The memory cannot be allocated.
    pub fn new(map: &Map, secret: u64) -> io::Result<Self> {
        let words = usize::from(map.words).clamp(1, MAX_KEY_WORDS);
        let capacity = map.capacity as usize;
        let (slots, stride) = Self::size(map);
        let mut prng = base::Prng::new(secret);
        Ok(Self {
            slots: ZeroedPages::zeroed(slots * stride)?,
            mask: slots - 1,
            stride_log2: stride.trailing_zeros(),
            words,
            secrets: std::array::from_fn(|_| prng.next_u64()),
            len: 0,
            announced: Vec::new(),
            fetched: Vec::new(),
            capacity,
            expiry: map.expiry,
            refused: 0,
            oldest: BinaryHeap::new(),
        })
    }

    /// True if the table contains the key. The entry's timestamp is not renewed.
    #[inline]
    pub fn has<const W: usize>(&self, key: &[u64; W], now: u64) -> bool {
        self.find(key, self.tag(key)).is_ok_and(|slot| !self.expiry.has_reached(self.slots[slot + at::STAMP], now))
    }

    /// The value of the entry with this key; 0 if there is no such entry.
    #[inline]
    pub fn get<const W: usize>(&mut self, key: &[u64; W], now: u64) -> u64 {
        match self.find(key, self.tag(key)) {
            Ok(slot) if self.touch(slot, now) => self.slots[slot + at::NUMBER],
            _ => 0,
        }
    }

    /// Stores `value` under the key.
    #[inline]
    pub fn put<const W: usize>(&mut self, key: &[u64; W], value: u64, now: u64) {
        let tag = self.tag(key);
        match self.find(key, tag) {
            Ok(slot) if self.touch(slot, now) => self.slots[slot + at::NUMBER] = value,
            found => self.insert(found, tag, key, value, now),
        }
    }

    /// Adds `by` to the value of the entry with this key, and returns the sum.
    #[inline]
    pub fn add<const W: usize>(&mut self, key: &[u64; W], by: u64, now: u64) -> u64 {
        let tag = self.tag(key);
        match self.find(key, tag) {
            Ok(slot) if self.touch(slot, now) => {
                let number = &mut self.slots[slot + at::NUMBER];
                *number = number.wrapping_add(by);
                *number
            }
            found => {
                self.insert(found, tag, key, by, now);
                by
            }
        }
    }

    /// Removes the entry.
    pub fn delete<const W: usize>(&mut self, key: &[u64; W]) {
        if let Ok(slot) = self.find(key, self.tag(key)) {
            self.remove(slot);
        }
    }

    /// Announces a key that will be looked up soon, so that [`Table::fetch`] can prefetch its slot.
    #[inline]
    pub fn announce<const W: usize>(&mut self, key: &[u64; W]) {
        let tag = self.tag(key);
        self.announced.push(tag);
    }

    /// Prefetches the home slots of all announced keys and does not wait for the memory. The prefetch instructions are
    /// issued together, because the processor has many memory requests in flight only if few other instructions are
    /// between them.
    pub fn fetch(&mut self) {
        for tag in &self.announced {
            let slot = self.home(*tag);
            prefetch(&self.slots[slot]);
            if at::KEY + self.words > LINE {
                prefetch(&self.slots[slot + LINE]);
            }
        }
        std::mem::swap(&mut self.announced, &mut self.fetched);
        self.announced.clear();
    }

    /// For each announced key that is not in its home slot, prefetches the slot that contains the key. In a half-full
    /// table, a quarter of the entries are not in their home slot, and without this prefetch the evaluation would wait
    /// for memory at each of them.
    pub fn follow(&mut self) {
        for tag in &self.fetched {
            let slot = self.home(*tag);
            // The code has no branch here, because the branch would be unpredictable: if the entry is in its home slot,
            // that slot is prefetched again.
            let step = usize::from(self.slots[slot + at::TAG] != *tag) << self.stride_log2;
            prefetch(&self.slots[(slot + step) & (self.slots.len() - 1)]);
            prefetch(&self.slots[(slot + 2 * step) & (self.slots.len() - 1)]);
        }
        self.fetched.clear();
    }

    /// The keys and values of the entries that have not expired at `now`, in order of the keys.
    pub fn entries(&self, now: u64) -> Vec<(Vec<u64>, u64)> {
        let live = |s: &&[u64]| s[at::TAG] != 0 && !self.expiry.has_reached(s[at::STAMP], now);
        let slots = self.slots.chunks_exact(1 << self.stride_log2).filter(live);
        let mut all: Vec<_> = slots.map(|s| (s[at::KEY..at::KEY + self.words].to_vec(), s[at::NUMBER])).collect();
        all.sort_unstable();
        all
    }

    /// The number of new entries that were refused because the table was full.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// The number of entries, including entries that have expired but are not removed yet.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True if the table has no entries.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The size in bytes of the slots of all entries, which is the cache space that they occupy.
    pub const fn footprint(&self) -> usize {
        (self.len * 8) << self.stride_log2
    }

    /// True if the entry has not expired; in that case renews its timestamp if the map has an idle timeout.
    #[inline]
    fn touch(&mut self, slot: usize, now: u64) -> bool {
        let stamp = &mut self.slots[slot + at::STAMP];
        if self.expiry.has_reached(*stamp, now) {
            return false;
        }
        if matches!(self.expiry, Expiry::Idle(_)) {
            *stamp = now.max(*stamp);
        }
        true
    }

    /// Returns the slot of a key as `Ok`. If the table does not contain the key, returns the empty slot at which the
    /// search ended as `Err`.
    #[inline]
    fn find<const W: usize>(&self, key: &[u64; W], tag: u64) -> Result<usize, usize> {
        debug_assert_eq!(W, self.words);
        let mut slot = self.home(tag);
        loop {
            let held: &[u64] = &self.slots[slot..slot + at::KEY + W];
            // The words are compared in a loop, because the compiler turns a comparison of slices into a function call.
            let differ = held[at::KEY..].iter().zip(key).fold(held[at::TAG] ^ tag, |sum, (a, b)| sum | (a ^ b));
            if differ == 0 {
                return Ok(slot);
            }
            if held[at::TAG] == 0 {
                return Err(slot);
            }
            slot = self.after(slot);
        }
    }

    #[cold]
    fn insert<const W: usize>(&mut self, found: Result<usize, usize>, tag: u64, key: &[u64; W], number: u64, now: u64) {
        let slot = match found {
            // The entry of this key has expired, and the new entry reuses its slot. The old pair in `oldest` remains a
            // valid lower bound of the timestamp.
            Ok(slot) => slot,
            Err(slot) => {
                let mut slot = slot;
                if self.len >= self.capacity {
                    self.purge(now);
                    if self.len >= self.capacity {
                        self.refused += 1;
                        return;
                    }
                    // The purge may have moved other entries, so the slot is searched again.
                    slot = self.find(key, tag).unwrap_or_else(|empty| empty);
                }
                self.len += 1;
                self.note(now, tag);
                slot
            }
        };
        self.slots[slot + at::TAG] = tag;
        self.slots[slot + at::STAMP] = now;
        self.slots[slot + at::NUMBER] = number;
        self.slots[slot + at::KEY..slot + at::KEY + W].copy_from_slice(key);
    }

    /// Adds a pair with a lower bound of an entry's timestamp to `oldest`. Entries that were removed and inserted again
    /// have several pairs; to bound the memory, `oldest` is rebuilt from the entries when it becomes too long.
    fn note(&mut self, stamp: u64, tag: u64) {
        if self.expiry == Expiry::Never {
            return;
        }
        if self.oldest.len() > 2 * self.capacity {
            let slots = self.slots.chunks_exact(1 << self.stride_log2).filter(|s| s[at::TAG] != 0);
            self.oldest = slots.map(|s| Reverse((s[at::STAMP], s[at::TAG]))).collect();
        }
        self.oldest.push(Reverse((stamp, tag)));
    }

    /// Removes all entries that have expired at `now`.
    ///
    /// If a full table receives packets of many new flows, this function is called for every packet, so a call must not
    /// visit every entry. For each entry, `oldest` contains a pair whose time is not later than the entry's timestamp.
    /// A call visits only the pairs whose time is expired. If the timestamp of an entry was renewed after its pair was
    /// added, a pair with the newer timestamp replaces the old pair. Hence each entry is visited at most once per
    /// timeout.
    fn purge(&mut self, now: u64) {
        while let Some(Reverse((stamp, tag))) = self.oldest.peek().copied() {
            if !self.expiry.has_reached(stamp, now) {
                return;
            }
            self.oldest.pop();
            let mut slot = self.home(tag);
            while self.slots[slot + at::TAG] != 0 {
                let stamp = self.slots[slot + at::STAMP];
                if self.slots[slot + at::TAG] != tag {
                    slot = self.after(slot);
                } else if self.expiry.has_reached(stamp, now) {
                    // The removal of an entry may move another entry into this slot, so the loop visits the slot again.
                    self.remove(slot);
                } else {
                    self.oldest.push(Reverse((stamp, tag)));
                    slot = self.after(slot);
                }
            }
        }
    }

    /// Removes the entry of a slot. Later entries of the probe sequence that are not in their home slot move back into
    /// the freed slot.
    fn remove(&mut self, slot: usize) {
        let mut hole = slot;
        let mut next = self.after(hole);
        while self.slots[next + at::TAG] != 0 {
            let home = self.home(self.slots[next + at::TAG]);
            // The entry moves into the empty slot if its distance from its home slot is at least its distance from the
            // empty slot. The distances are in words, modulo the size of the table.
            let len = self.slots.len();
            if next.wrapping_sub(home) & (len - 1) >= next.wrapping_sub(hole) & (len - 1) {
                self.slots.copy_within(next..next + (1 << self.stride_log2), hole);
                hole = next;
            }
            next = self.after(next);
        }
        self.slots[hole + at::TAG] = 0;
        self.len -= 1;
    }

    /// The slot at which the search for a tag begins (its home slot).
    #[inline]
    fn home(&self, tag: u64) -> usize {
        ((tag >> 24) as usize & self.mask) << self.stride_log2
    }

    #[inline]
    fn after(&self, slot: usize) -> usize {
        (slot + (1 << self.stride_log2)) & (self.slots.len() - 1)
    }

    /// Computes the hash of a key; it is never 0. Other back ends may use another hash function, because the hash is
    /// not visible outside of the table. The hash uses 128-bit products that are independent of each other; a chain of
    /// `mix64` over five words takes three times as long.
    #[inline]
    fn tag<const W: usize>(&self, key: &[u64; W]) -> u64 {
        let mut sum = 0;
        for (i, pair) in key.chunks(2).enumerate() {
            let second = pair.get(1).copied().unwrap_or(0);
            sum ^= folded(pair[0] ^ self.secrets[2 * i], second ^ self.secrets[2 * i + 1]);
        }
        folded(sum ^ self.secrets[MAX_KEY_WORDS], self.secrets[MAX_KEY_WORDS + 1] | 1) | 1
    }
}

/// The exclusive or of the two halves of a 128-bit product.
#[inline]
const fn folded(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    (product >> 64) as u64 ^ product as u64
}

#[inline]
fn prefetch(word: &u64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction is a hint about an address that comes from a reference; it has no effect that a program
    // can observe.
    unsafe {
        std::arch::x86_64::_mm_prefetch(std::ptr::from_ref(word).cast(), std::arch::x86_64::_MM_HINT_T0);
    }
    // On other architectures stable Rust has no prefetch function; large tables are then slower, but the results are
    // the same.
    #[cfg(not(target_arch = "x86_64"))]
    let _ = word;
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    fn map(words: u8, capacity: u32, expiry: Expiry) -> Map {
        Map { name: "m".into(), key: ::ir::Key::default(), words, capacity, expiry }
    }

    fn walk<const W: usize>(seed: u64, capacity: u32, expiry: Expiry, keys: u64) {
        let mut prng = Prng::new(seed ^ u64::from(capacity) << 8 ^ keys);
        let map = map(W as u8, capacity, expiry);
        let mut table = Table::new(&map, prng.next_u64()).expect("a small table");
        let mut model = ::ir::interp::Table::new(&map);
        let mut now: u64 = 1000;
        for step in 0..20_000 {
            // In the random test, the time mostly increases, sometimes by a large step, and sometimes decreases.
            now = match prng.below(20) {
                0 => now.saturating_sub(prng.below(30)),
                1 => now + prng.below(200),
                _ => now + prng.below(3),
            };
            let n = prng.below(keys);
            let key: [u64; W] = std::array::from_fn(|i| n.wrapping_mul(i as u64 + 1));
            let context = format!("seed {seed}, {W} words, capacity {capacity}, {expiry:?}, {keys} keys, step {step}");
            match prng.below(8) {
                0 => {
                    table.delete(&key);
                    model.delete(&key);
                }
                1 => assert_eq!(table.has(&key, now), model.has(&key, now), "{context}"),
                2 | 3 => assert_eq!(table.get(&key, now), model.get(&key, now), "{context}"),
                4 => {
                    table.put(&key, step, now);
                    model.put(&key, step, now);
                }
                _ => assert_eq!(table.add(&key, step, now), model.add(&key, step, now), "{context}"),
            }
            table.announce(&key);
            if step % 3 == 0 {
                table.fetch();
            }
            if step % 5 == 0 {
                table.follow();
            }
            assert_eq!(table.refused(), model.refused(), "{context}");
            if step % 64 == 0 {
                assert_eq!(table.entries(now), model.entries(now), "{context}");
            }
        }
        assert!(table.oldest.len() <= 2 * capacity as usize + 1, "the notes are bounded");
        assert!(capacity > 100 || table.refused() > 0, "the table was never full");
    }

    #[test]
    fn a_random_walk_agrees_with_the_reference() {
        let seed = testkit::seed("a_random_walk_agrees_with_the_reference");
        for expiry in [Expiry::Never, Expiry::Idle(50), Expiry::Lifetime(50), Expiry::Idle(0)] {
            walk::<1>(seed, 1, expiry, 4);
            walk::<1>(seed, 7, expiry, 40);
            walk::<2>(seed, 30, expiry, 200);
            walk::<5>(seed, 24, expiry, 60);
            walk::<8>(seed, 50, expiry, 400);
            walk::<3>(seed, 3000, expiry, 2000);
        }
    }

    #[test]
    fn a_full_table_visits_each_entry_once_per_timeout() {
        let capacity = 1000;
        let mut table = Table::new(&map(1, capacity, Expiry::Idle(1_000_000)), 1).expect("a small table");
        (0..u64::from(capacity)).for_each(|k| table.put(&[k], k, k));
        for k in 0..100_000 {
            table.put(&[1_000_000 + k], 0, 2000);
        }
        assert_eq!((table.len(), table.refused()), (1000, 100_000));
        assert_eq!(table.oldest.len(), 1000, "no timestamp in `oldest` had expired, so no entry was visited");
        table.put(&[7_000_000], 0, 1_000_500);
        assert_eq!(table.len(), 1001 - 500, "the entries of the first 500 ns have expired");
    }

    #[test]
    fn keys_with_the_same_home_slot_are_distinguished_and_move_back() {
        let mut table = Table::new(&map(1, 64, Expiry::Never), 3).expect("a small table");
        let home = table.home(table.tag(&[0]));
        let same: Vec<u64> = (0..100_000).filter(|k| table.home(table.tag(&[*k])) == home).take(20).collect();
        assert_eq!(same.len(), 20);
        same.iter().for_each(|k| table.put(&[*k], *k, 0));
        for (gone, k) in same.iter().enumerate() {
            table.delete(&[*k]);
            assert!(same[gone + 1..].iter().all(|k| table.get(&[*k], 0) == *k && table.has(&[*k], 0)));
        }
        assert!(table.is_empty());
    }
}
