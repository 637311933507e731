//! Fragment tracking. Later fragments lack the transport header, so they get the steering hash or the ports of the
//! first fragment of their datagram.
//!
//! Source, destination, identification and protocol identify a datagram (RFC 791 §3.2, RFC 8200 §4.5). The tracker
//! stores one number for each datagram and *form*. A form is one steering function with its parameters, or a query for
//! ports; the *number* of a packet is its steering hash or its pair of ports. The fragment of a datagram that arrives
//! first, normally the first fragment, determines the number; the tracker returns this number for all other fragments
//! of the datagram. Hence all fragments of a datagram are treated alike in any order of arrival. The tracker neither
//! delays nor reassembles fragments.
//!
//! Hosts reuse identifications. Hence a first fragment begins a new datagram if its steering hash or its ports differ
//! from those of the stored first fragment with the same identification, and entries expire after [`TIMEOUT`] of
//! *packet* time. Memory is fixed: if the four entries of a bucket are in use, a new datagram evicts the oldest of them
//! ([`Counts::evicted`]). Each stored datagram is either still in the tracker, or was removed for one of three reasons,
//! each of which has a counter. So [`Counts::held`] is exactly the number of stored datagrams minus these three
//! counters.
//!
//! Several threads may use the tracker at once, because fragments of a datagram may arrive on different queues and
//! interfaces. A lock is acquired only for packets that are fragments, and each lock protects only one sixteenth of the
//! entries.

use crate::FragmentScope;
use crate::facts::Facts;
use base::hash;
use std::fmt;
use std::ops::AddAssign;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The time for which a datagram is stored: 30 s, the reassembly timeout of hosts.
pub const TIMEOUT: u64 = 30_000_000_000;

/// Capacity of the tracker in datagrams: 16 384. The tracker allocates its 1 MiB of memory when the first fragment
/// arrives.
pub const CAPACITY: usize = 1 << 14;

/// Stands in place of the steering hash of a first fragment whose datagram is not steered. Later fragments of the
/// datagram are then not steered either (they get 0), although their own headers alone would yield a hash. (A pair of
/// hashes whose 64 bits are all set would be mistaken for this constant; the probability is 2⁻⁶⁴.)
pub const NONE: u64 = u64::MAX;

/// Entries of a bucket.
const BUCKET_ENTRIES: usize = 4;

/// Number of shards; each shard has its own lock.
const SHARDS: usize = 16;

/// The key of a datagram: the two addresses (two words each, IPv4 as mapped IPv6), then one word with identification,
/// protocol and form (see the module documentation).
type Key = [u64; 5];

#[derive(Clone, Copy, Default)]
struct Entry {
    key: Key,
    /// The hash or pair of ports that all fragments of the datagram get; 0 if the entry is free.
    number: u64,
    /// The hash or pair of ports that follows from the headers of the first fragment; 0 until that fragment arrives.
    first: u64,
    /// The packet time at which the entry was created or last renewed.
    since: u64,
}

// An entry occupies exactly one cache line.
const _: () = assert!(size_of::<Entry>() == 64);

/// Counters of datagrams and fragments in the tracker. Each form (a steering function or a query for ports) is tracked
/// separately, so a datagram that is tracked under two forms is counted twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of datagrams that were stored in the tracker.
    pub datagrams: u64,
    /// Number of later fragments that got the hash or the ports of their first fragment.
    pub matched: u64,
    /// Number of later fragments whose first fragment had not arrived or was not steered.
    pub orphaned: u64,
    /// Number of datagrams that were evicted from a full bucket before their timeout.
    pub evicted: u64,
    /// Number of datagrams that had expired when another datagram was stored in their entry.
    pub expired: u64,
    /// Number of datagrams that were removed because another datagram with the same identification arrived.
    pub replaced: u64,
}

impl Counts {
    /// The number of datagrams that are stored now. Expired datagrams count until another datagram takes their entry.
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
    /// The entries of the shard. The list is empty until the first fragment arrives.
    buckets: Box<[[Entry; BUCKET_ENTRIES]]>,
    counts: Counts,
}

/// The fragment tracker.
#[derive(Default)]
pub struct FragmentTracker {
    shards: [Mutex<Shard>; SHARDS],
    /// The key of the hash that selects the bucket of a datagram. The key is secret, so that remote senders cannot
    /// choose datagrams that are all stored in one bucket.
    secret: u64,
}

impl FragmentTracker {
    /// An empty tracker.
    pub fn new(secret: u64) -> Self {
        Self { secret, ..Self::default() }
    }

    /// Returns the steering hash or the pair of ports for a packet; `form` says which of the two. The argument `number`
    /// is the hash or the pair of ports from the packet's own headers. For an unfragmented packet, the function returns
    /// `number`. For a fragment, it returns what is stored for the datagram; if nothing is stored, it stores and
    /// returns `number`. 0 means that the packet has no hash and no ports, and is not stored. If `number` is [`NONE`]
    /// for a first fragment, [`NONE`] is stored and the function returns 0.
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
        // The innermost packet comes first, because its hash or ports apply to the enclosing datagram too.
        for (l3, fragment) in of.into_iter().flatten().filter(|part| part.1 != 0) {
            if let Some(key) = key(frame, usize::from(l3), form) {
                number = self.insert(&key, fragment == FIRST, number, facts.time);
                settled = true;
            }
        }
        if settled && number == NONE { 0 } else { number }
    }

    /// The counters of all shards together.
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

/// The value of [`crate::Fact::Fragment`] for a first fragment.
const FIRST: u8 = 1;

/// Locks a shard. A poisoned lock is used too, because a panic under the lock leaves the entries in a valid state.
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
                // A first fragment with the same hash or ports as the stored first fragment may belong to a newer
                // datagram. The time of the entry is renewed, so that the entry does not expire before the later
                // fragments of that datagram arrive.
                if entry.first != 0 {
                    entry.since = now;
                }
                entry.first = number;
                return entry.number;
            }
            // If the hash or the ports of this first fragment differ from those of the stored first fragment, this
            // fragment belongs to another datagram with the same identification.
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

    /// Stores the entry, unless it has no hash and no ports.
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
    /// True if the entry is in use and not expired at `now`. Packet time may step back, even by years. So an entry
    /// whose time is far later than `now` also counts as expired.
    const fn holds(&self, now: u64) -> bool {
        self.number != 0 && now.abs_diff(self.since) <= TIMEOUT
    }
}

/// The key of the IP packet whose header is at offset `l3`. RFC 791 identifies a datagram by its protocol too, RFC 8200
/// does not; so the key contains the protocol only for IPv4.
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
    fn stored_datagrams_are_held_or_counted_as_removed() {
        let mut prng = Prng::new(7);
        let datagrams = FragmentTracker::new(1);
        let mut now = 0;
        for step in 0..200_000_u32 {
            // The test inserts more datagrams than the tracker can store, and repeats some of them.
            let id = if prng.below(2) == 0 { prng.below(100) } else { prng.below(1 << 20) };
            let number = [0, 1, 2, NONE][prng.below(4) as usize];
            datagrams.insert(&[id, 1, 2, 3, 4], prng.below(2) == 0, number, now);
            now += prng.below(if step % 50_000 == 0 { 2 * TIMEOUT } else { 1_000_000 });
        }
        let counts = datagrams.counts();
        let held = |shard: &Mutex<Shard>| lock(shard).buckets.as_flattened().iter().filter(|e| e.number != 0).count();
        assert_eq!(counts.held(), datagrams.shards.iter().map(held).sum::<usize>() as u64, "{counts:?}");
        let Counts { datagrams: all, matched, orphaned, evicted, expired, replaced } = counts;
        assert!([all, matched, orphaned, evicted, expired, replaced].iter().all(|n| *n > 1000), "{counts:?}");
    }
}
