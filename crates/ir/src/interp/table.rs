//! The reference implementation of a flow map: a hash table with limited capacity and with expiry of entries.

use crate::{Expiry, Map};
use std::collections::HashMap;

/// A flow map; the documentation of [`crate`] defines when entries expire and are refused.
#[derive(Clone, Debug)]
pub struct Table {
    entries: HashMap<Vec<u64>, Entry>,
    capacity: usize,
    expiry: Expiry,
    refused: u64,
    /// The earliest time at which an entry can expire. Before this time, a full table is not searched for expired
    /// entries.
    soonest: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    number: u64,
    stamp: u64,
}

impl Expiry {
    /// The last time at which an entry with this timestamp has not expired.
    const fn last(self, stamp: u64) -> u64 {
        match self {
            Self::Never => u64::MAX,
            Self::Idle(ns) | Self::Lifetime(ns) => stamp.saturating_add(ns),
        }
    }

    /// True if an entry with this timestamp has expired at `now`. If `now` is earlier than the timestamp, the entry has
    /// not expired. This can occur because packets of different queues are not in exact order of time.
    pub const fn has_reached(self, stamp: u64, now: u64) -> bool {
        match self {
            Self::Never => false,
            Self::Idle(ns) | Self::Lifetime(ns) => now.saturating_sub(stamp) > ns,
        }
    }
}

impl Table {
    /// An empty table.
    pub fn new(map: &Map) -> Self {
        Self {
            entries: HashMap::new(),
            capacity: map.capacity as usize,
            expiry: map.expiry,
            refused: 0,
            soonest: u64::MAX,
        }
    }

    /// True if the table contains the key. The entry's timestamp is not renewed.
    pub fn has(&self, key: &[u64], now: u64) -> bool {
        self.entries.get(key).is_some_and(|e| !self.expiry.has_reached(e.stamp, now))
    }

    /// The value of the entry with this key; 0 if there is no such entry.
    pub fn get(&mut self, key: &[u64], now: u64) -> u64 {
        self.live(key, now).map_or(0, |e| e.number)
    }

    /// Stores `value` under the key.
    pub fn put(&mut self, key: &[u64], value: u64, now: u64) {
        match self.live(key, now) {
            Some(e) => e.number = value,
            None => self.insert(key, value, now),
        }
    }

    /// Adds `by` to the value of the entry with this key, and returns the sum.
    pub fn add(&mut self, key: &[u64], by: u64, now: u64) -> u64 {
        match self.live(key, now) {
            Some(e) => {
                e.number = e.number.wrapping_add(by);
                e.number
            }
            None => {
                self.insert(key, by, now);
                by
            }
        }
    }

    /// Removes the entry.
    pub fn delete(&mut self, key: &[u64]) {
        self.entries.remove(key);
    }

    /// The keys and values of the entries that have not expired at `now`, in order of the keys.
    pub fn entries(&self, now: u64) -> Vec<(Vec<u64>, u64)> {
        let live = self.entries.iter().filter(|(_, e)| !self.expiry.has_reached(e.stamp, now));
        let mut all: Vec<_> = live.map(|(k, e)| (k.clone(), e.number)).collect();
        all.sort_unstable();
        all
    }

    /// The number of new entries that were refused because the table was full.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// The number of entries, including entries that have expired but are not removed yet.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if the table contains no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entry with this key if it has not expired; renews its timestamp if the map has an idle timeout.
    fn live(&mut self, key: &[u64], now: u64) -> Option<&mut Entry> {
        let expiry = self.expiry;
        let e = self.entries.get_mut(key).filter(|e| !expiry.has_reached(e.stamp, now))?;
        if matches!(expiry, Expiry::Idle(_)) {
            e.stamp = e.stamp.max(now);
        }
        Some(e)
    }

    fn insert(&mut self, key: &[u64], number: u64, now: u64) {
        let is_full = |t: &Self| t.entries.len() >= t.capacity && !t.entries.contains_key(key);
        if is_full(self) && now > self.soonest {
            let expiry = self.expiry;
            self.entries.retain(|_, e| !expiry.has_reached(e.stamp, now));
            self.soonest = self.entries.values().map(|e| expiry.last(e.stamp)).min().unwrap_or(u64::MAX);
        }
        if is_full(self) {
            self.refused += 1;
            return;
        }
        self.soonest = self.soonest.min(self.expiry.last(now));
        self.entries.insert(key.to_vec(), Entry { number, stamp: now });
    }
}
