//! A flow map of the model. For each key, the entry has a number, which programs read and change, and a timestamp.
//! Programs do not find an expired entry, but the entry is removed from memory only when the map is full.

use ir::Expiry;
use lang::term::FlowMap;
use std::collections::BTreeMap;

/// A flow map.
#[derive(Clone, Debug)]
pub struct Table {
    entries: BTreeMap<Vec<u64>, (u64, u64)>,
    capacity: usize,
    expiry: Expiry,
    /// The number of new entries that were refused because the map was full.
    pub refused: u64,
}

impl Table {
    /// An empty map.
    pub fn new(map: &FlowMap) -> Self {
        Self { entries: BTreeMap::new(), capacity: map.capacity as usize, expiry: map.expiry, refused: 0 }
    }

    /// The keys and numbers of the entries that have not expired at the packet time `now`.
    pub fn entries(&self, now: u64) -> Vec<(Vec<u64>, u64)> {
        self.entries.iter().filter(|e| !self.gone(e.1.1, now)).map(|e| (e.0.clone(), e.1.0)).collect()
    }

    fn gone(&self, stamp: u64, now: u64) -> bool {
        match self.expiry {
            Expiry::Never => false,
            Expiry::Idle(ns) | Expiry::Lifetime(ns) => now > stamp && now - stamp > ns,
        }
    }

    /// True if the map contains the key. The entry's timestamp is not renewed.
    pub fn has(&self, key: &[u64], now: u64) -> bool {
        self.entries.get(key).is_some_and(|e| !self.gone(e.1, now))
    }

    /// The number that is stored under the key; 0 if there is no entry.
    pub fn get(&mut self, key: &[u64], now: u64) -> u64 {
        self.touched(key, now).map_or(0, |number| *number)
    }

    /// Stores a number under the key.
    pub fn put(&mut self, key: Vec<u64>, value: u64, now: u64) {
        match self.touched(&key, now) {
            Some(number) => *number = value,
            None => self.enter(key, value, now),
        }
    }

    /// Adds `by` to the number that is stored under the key. If there is no entry, enters the key with the number `by`.
    pub fn add(&mut self, key: Vec<u64>, by: u64, now: u64) {
        match self.touched(&key, now) {
            Some(number) => *number = number.wrapping_add(by),
            None => self.enter(key, by, now),
        }
    }

    /// Removes the entry.
    pub fn forget(&mut self, key: &[u64]) {
        self.entries.remove(key);
    }

    fn touched(&mut self, key: &[u64], now: u64) -> Option<&mut u64> {
        if !self.has(key, now) {
            return None;
        }
        let entry = self.entries.get_mut(key)?;
        if matches!(self.expiry, Expiry::Idle(_)) {
            entry.1 = entry.1.max(now);
        }
        Some(&mut entry.0)
    }

    fn enter(&mut self, key: Vec<u64>, number: u64, now: u64) {
        let there = self.entries.values().filter(|e| !self.gone(e.1, now)).count();
        if there < self.capacity {
            self.entries.insert(key, (number, now));
        } else {
            self.refused += 1;
        }
    }
}
