//! Which way the parts of datagrams go: what a first fragment was steered by, or its ports, serves the later ones, which lack the headers.
//!
//! A datagram is known by source, destination, identification and protocol (RFC 791 §3.2, RFC 8200 §4.5). What is remembered is a
//! number per datagram and *form* of steering or of asking for ports, each form with its own. A first fragment says what the number is; a later one asks,
//! and where it comes before the first, it says so itself, and the first and all others follow it: the parts of a datagram stay
//! together in any order. Nothing is held back or reassembled.
//!
//! Identifications come round again. So a first fragment that says something else than the first one did begins a new
//! datagram, and whatever is older than [`TIMEOUT`] of *packet* time is forgotten. Memory is fixed: where a new datagram finds its
//! four places taken, the oldest of them goes ([`Counts::displaced`]). What was remembered is held, or was forgotten for one of these
//! reasons: [`Counts::held`] is the difference, and never wrong.
//!
//! Several threads may ask at once: fragments of a datagram may come over different queues and ports. Only they wait for each
//! other, and only for those of one sixteenth of the memory.

use crate::facts::Facts;
use crate::ir::FragmentScope;
use base::hash;
use std::fmt;
use std::ops::AddAssign;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How long a datagram is remembered: 30 s, as hosts do for reassembly.
pub const TIMEOUT: u64 = 30_000_000_000;

/// Datagrams that are remembered: 16 384, in a MiB, which is there once there are fragments.
pub const CAPACITY: usize = 1 << 14;

/// As a number: no way, for the later fragments either, although they would have one by themselves. (Two hashes of all ones look the
/// same: one pair in 2⁶⁴.)
pub const NONE: u64 = u64::MAX;

/// Places that a datagram may have.
const BUCKET_ENTRIES: usize = 4;

/// Parts with a lock of their own.
const SHARDS: usize = 16;

/// What ties fragments together: addresses as two words each, IPv4 among IPv6; identification, protocol and form.
type Key = [u64; 5];

#[derive(Clone, Copy, Default)]
struct Entry {
    key: Key,
    /// What all parts get; 0 where the place is free.
    number: u64,
    /// What the first fragment said; 0 as long as it did not come.
    first: u64,
    /// When it began.
    since: u64,
}

// One cache line each.
const _: () = assert!(size_of::<Entry>() == 64);

/// What became of the fragments so far. Each form asks for itself: a datagram that is asked about in two is counted in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Datagrams that were remembered.
    pub datagrams: u64,
    /// Later fragments that found theirs.
    pub matched: u64,
    /// Later fragments of which the first was not known, or not steered.
    pub orphaned: u64,
    /// Datagrams that had to make place before their time.
    pub evicted: u64,
    /// Datagrams whose time was over, and whose place another one took.
    pub expired: u64,
    /// Datagrams whose identification came again, on another one.
    pub replaced: u64,
}

impl Counts {
    /// Datagrams that are held now; those whose time is over keep their place until it is needed.
    pub const fn held(&self) -> u64 {
        self.datagrams - self.evicted - self.expired - self.replaced
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, o: Self) {
        self.datagrams += o.datagrams;
        self.matched += o.matched;
        self.orphaned += o.orphaned;
        self.evicted += o.evicted;
        self.expired += o.expired;
        self.replaced += o.replaced;
    }
}

#[derive(Clone, Default)]
struct Shard {
    /// None before the first fragment.
    buckets: Box<[[Entry; BUCKET_ENTRIES]]>,
    counts: Counts,
}

/// See the module.
#[derive(Default)]
pub struct FragmentTracker {
    shards: [Mutex<Shard>; SHARDS],
    /// Keeps strangers from aiming at one bucket.
    secret: u64,
}

impl FragmentTracker {
    /// Nothing is remembered yet.
    pub fn new(secret: u64) -> Self {
        Self { secret, ..Self::default() }
    }

    /// What a packet is steered or known by: `number`, unless it is part of a datagram of which another number is remembered. 0 stands
    /// for none, and nothing is remembered of it; [`NONE`] of a first fragment is, and comes back as 0.
    pub fn number(&self, frame: &[u8], facts: &Facts, parts: FragmentScope, form: u32, mut number: u64) -> u64 {
        let inner = (facts.inner.l3, facts.inner.fragment);
        let of = match parts {
            FragmentScope::Outer => [None, Some((facts.outer.l3, facts.outer.fragment))],
            FragmentScope::Inner => [Some(inner), None],
            FragmentScope::Enclosing => {
                [(inner.0 != facts.part_l3).then_some(inner), Some((facts.part_l3, facts.part))]
            }
        };
        let mut settled = false;
        // From the inside outwards: what an inner one knows serves the one around it.
        for (l3, fragment) in of.into_iter().flatten().filter(|part| part.1 != 0) {
            if let Some(key) = key(frame, usize::from(l3), form) {
                number = self.insert(&key, fragment == FIRST, number, facts.time);
                settled = true;
            }
        }
        if settled && number == NONE { 0 } else { number }
    }

    /// What became of the fragments so far.
    pub fn counts(&self) -> Counts {
        let mut all = Counts::default();
        self.shards.iter().for_each(|shard| all += lock(shard).counts);
        all
    }

    fn insert(&self, key: &Key, is_first: bool, number: u64, now: u64) -> u64 {
        let state = key.iter().fold(self.secret, |state, word| hash::combine(state, *word)) as usize;
        let mut shard = lock(&self.shards[state % SHARDS]);
        let bucket = state / SHARDS % (CAPACITY / BUCKET_ENTRIES / SHARDS);
        if is_first { shard.first(bucket, key, number, now) } else { shard.later(bucket, key, number, now) }
    }
}

/// What [`crate::ir::Fact::Fragment`] says of a first fragment.
const FIRST: u8 = 1;

/// A panic under the lock leaves entries behind that are as good as after any fragment.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shard {
    fn first(&mut self, bucket: usize, key: &Key, number: u64, now: u64) -> u64 {
        match self.find(bucket, key, now) {
            Some(entry) if number == 0 => {
                *entry = Entry::default();
                self.counts.replaced += 1;
            }
            Some(entry) if entry.first == 0 || entry.first == number => {
                // One that says the same may be the first of another datagram, which is not to be forgotten half-way.
                if entry.first != 0 {
                    entry.since = now;
                }
                entry.first = number;
                return entry.number;
            }
            // Another datagram of the same number.
            Some(entry) => {
                *entry = Entry { number, first: number, since: now, ..*entry };
                self.counts.replaced += 1;
                self.counts.datagrams += 1;
            }
            None => self.insert(bucket, Entry { key: *key, number, first: number, since: now }),
        }
        number
    }

    fn later(&mut self, bucket: usize, key: &Key, number: u64, now: u64) -> u64 {
        if let Some(entry) = self.find(bucket, key, now) {
            let found = (entry.number, entry.first != 0);
            *(if found.1 { &mut self.counts.matched } else { &mut self.counts.orphaned }) += 1;
            return found.0;
        }
        self.counts.orphaned += 1;
        let number = if number == NONE { 0 } else { number };
        self.insert(bucket, Entry { key: *key, number, first: 0, since: now });
        number
    }

    fn find(&mut self, bucket: usize, key: &Key, now: u64) -> Option<&mut Entry> {
        let places = self.buckets.get_mut(bucket)?;
        places.iter_mut().find(|entry| entry.key == *key && entry.holds(now))
    }

    /// Nothing, if there is nothing to be remembered.
    fn insert(&mut self, bucket: usize, new: Entry) {
        if new.number == 0 {
            return;
        }
        if self.buckets.is_empty() {
            self.buckets = vec![[Entry::default(); BUCKET_ENTRIES]; CAPACITY / BUCKET_ENTRIES / SHARDS].into();
        }
        let places = &mut self.buckets[bucket];
        let free = places.iter().position(|entry| !entry.holds(new.since));
        let at = free.unwrap_or_else(|| (0..BUCKET_ENTRIES).min_by_key(|way| places[*way].since).unwrap_or(0));
        match free {
            None => self.counts.evicted += 1,
            Some(_) => self.counts.expired += u64::from(places[at].number != 0),
        }
        places[at] = new;
        self.counts.datagrams += 1;
    }
}

impl Entry {
    /// Packet time may step back, also by years: what lies too far ahead is as good as forgotten.
    const fn holds(&self, now: u64) -> bool {
        self.number != 0 && now.abs_diff(self.since) <= TIMEOUT
    }
}

/// Of the IP packet at `l3`. The protocol is part of it for IPv4 alone, as the RFCs have it.
fn key(frame: &[u8], l3: usize, form: u32) -> Option<Key> {
    let id = u64::from(wire::fragments::identification(frame, l3)?);
    let word = |at: usize, len: usize| {
        let bytes = frame.get(l3 + at..l3 + at + len)?;
        Some(bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b)))
    };
    let form = u64::from(form) << 40;
    if word(0, 1)? >> 4 == 4 {
        const MAPPED: u64 = 0xffff_0000_0000;
        return Some([0, MAPPED | word(12, 4)?, 0, MAPPED | word(16, 4)?, form | word(9, 1)? << 32 | id]);
    }
    Some([word(8, 8)?, word(16, 8)?, word(24, 8)?, word(32, 8)?, form | id])
}

impl Clone for FragmentTracker {
    fn clone(&self) -> Self {
        Self { shards: std::array::from_fn(|i| Mutex::new(lock(&self.shards[i]).clone())), secret: self.secret }
    }
}

impl fmt::Debug for FragmentTracker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.counts().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    #[test]
    fn what_was_remembered_is_held_or_was_forgotten_for_a_reason_that_is_counted() {
        let mut prng = Prng::new(7);
        let datagrams = FragmentTracker::new(1);
        let mut now = 0;
        for step in 0..200_000_u32 {
            // More of them than there is room for, some of which come again.
            let id = if prng.below(2) == 0 { prng.below(100) } else { prng.below(1 << 20) };
            let number = [0, 1, 2, NONE][prng.below(4) as usize];
            datagrams.insert(&[id, 1, 2, 3, 4], prng.below(2) == 0, number, now);
            now += prng.below(if step % 50_000 == 0 { 2 * TIMEOUT } else { 1_000_000 });
        }
        let counts = datagrams.counts();
        let held = |shard: &Mutex<Shard>| lock(shard).buckets.as_flattened().iter().filter(|e| e.number != 0).count();
        assert_eq!(counts.held(), datagrams.shards.iter().map(held).sum::<usize>() as u64, "{counts:?}");
        let Counts { datagrams: all, matched: followed, orphaned, evicted: displaced, expired, replaced } = counts;
        assert!([all, followed, orphaned, displaced, expired, replaced].iter().all(|n| *n > 1000), "{counts:?}");
    }
}
