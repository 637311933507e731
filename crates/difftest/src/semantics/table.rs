//! A map: entries by key, each with a number and a stamp; nothing is taken out but to make room.

use lang::ir::Expiry;
use lang::term::FlowMap;
use std::collections::BTreeMap;

/// See the module.
#[derive(Clone, Debug)]
pub struct Table {
    entries: BTreeMap<Vec<u64>, (u64, u64)>,
    capacity: usize,
    expiry: Expiry,
    /// How many entries were refused because it was full.
    pub refused: u64,
}

impl Table {
    /// Empty.
    pub fn new(map: &FlowMap) -> Self {
        Self { entries: BTreeMap::new(), capacity: map.capacity as usize, expiry: map.expiry, refused: 0 }
    }

    /// The entries that are there at `now`.
    pub fn entries(&self, now: u64) -> Vec<(Vec<u64>, u64)> {
        self.entries.iter().filter(|e| !self.gone(e.1.1, now)).map(|e| (e.0.clone(), e.1.0)).collect()
    }

    fn gone(&self, stamp: u64, now: u64) -> bool {
        match self.expiry {
            Expiry::Never => false,
            Expiry::Idle(ns) | Expiry::Lifetime(ns) => now > stamp && now - stamp > ns,
        }
    }

    /// Whether there is an entry. To ask does not keep it.
    pub fn has(&self, key: &[u64], now: u64) -> bool {
        self.entries.get(key).is_some_and(|e| !self.gone(e.1, now))
    }

    /// Its number, 0 where there is none.
    pub fn get(&mut self, key: &[u64], now: u64) -> u64 {
        self.touched(key, now).map_or(0, |number| *number)
    }

    /// Makes it this.
    pub fn put(&mut self, key: Vec<u64>, value: u64, now: u64) {
        match self.touched(&key, now) {
            Some(number) => *number = value,
            None => self.enter(key, value, now),
        }
    }

    /// Raises it.
    pub fn add(&mut self, key: Vec<u64>, by: u64, now: u64) {
        match self.touched(&key, now) {
            Some(number) => *number = number.wrapping_add(by),
            None => self.enter(key, by, now),
        }
    }

    /// Takes it out.
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
