//! A map of the reference: keys to numbers, bounded, entries that go when they are idle.

use crate::ir::Map;
use std::collections::HashMap;

/// See the module and [`crate::ir`] for the rules.
#[derive(Clone, Debug)]
pub struct Table {
    entries: HashMap<Vec<u64>, Entry>,
    capacity: usize,
    idle: u64,
    refused: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    number: u64,
    touched: u64,
}

impl Table {
    /// An empty one.
    pub fn new(map: &Map) -> Self {
        Self { entries: HashMap::new(), capacity: map.capacity as usize, idle: map.idle, refused: 0 }
    }

    /// Whether there is an entry; does not touch it.
    pub fn has(&self, key: &[u64], now: u64) -> bool {
        self.entries.get(key).is_some_and(|e| !self.is_stale(e, now))
    }

    /// The entry's number, 0 if absent.
    pub fn get(&mut self, key: &[u64], now: u64) -> u64 {
        self.live(key, now).map_or(0, |e| e.number)
    }

    /// Makes the entry's number `value`.
    pub fn put(&mut self, key: &[u64], value: u64, now: u64) {
        match self.live(key, now) {
            Some(e) => e.number = value,
            None => self.insert(key, value, now),
        }
    }

    /// Raises the entry's number.
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

    /// Takes the entry out.
    pub fn delete(&mut self, key: &[u64]) {
        self.entries.remove(key);
    }

    /// The entries that are not idle at `now`, in order of their keys.
    pub fn entries(&self, now: u64) -> Vec<(Vec<u64>, u64)> {
        let live = self.entries.iter().filter(|(_, e)| !self.is_stale(e, now));
        let mut all: Vec<_> = live.map(|(k, e)| (k.clone(), e.number)).collect();
        all.sort_unstable();
        all
    }

    /// How many entries were refused because it was full.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// Time may go back a little between queues, which makes nothing idle.
    fn is_stale(&self, e: &Entry, now: u64) -> bool {
        self.idle != 0 && now.saturating_sub(e.touched) > self.idle
    }

    /// The entry, touched, unless it is absent or idle.
    fn live(&mut self, key: &[u64], now: u64) -> Option<&mut Entry> {
        let idle = self.idle;
        let e = self.entries.get_mut(key).filter(|e| idle == 0 || now.saturating_sub(e.touched) <= idle)?;
        e.touched = e.touched.max(now);
        Some(e)
    }

    fn insert(&mut self, key: &[u64], number: u64, now: u64) {
        if self.entries.len() >= self.capacity && !self.entries.contains_key(key) && self.idle != 0 {
            let idle = self.idle;
            self.entries.retain(|_, e| now.saturating_sub(e.touched) <= idle);
        }
        if self.entries.len() >= self.capacity && !self.entries.contains_key(key) {
            self.refused += 1;
            return;
        }
        self.entries.insert(key.to_vec(), Entry { number, touched: now });
    }
}
