//! The table of groups by key: open addressing over contiguous rows.
//!
//! A slot contains the upper half of the key's hash and the row number plus one; 0 marks an empty slot. The index of a
//! slot is computed from the same half of the hash, so the table can grow without reading the keys. At most half of the
//! slots are occupied.

use super::MergeRule;

/// Initial number of slots.
const SLOTS_INITIAL: usize = 1 << 10;

/// The table of groups; see the module documentation.
pub struct Table {
    words: usize,
    merge_rules: Vec<MergeRule>,
    rows: Vec<u64>,
    slots: Vec<u64>,
    groups_max: usize,
}

impl Table {
    /// A table of at most `groups_max` groups, with keys of `words` words and an amount for each of `merge_rules`.
    pub fn new(words: usize, merge_rules: Vec<MergeRule>, groups_max: usize) -> Self {
        Self { words, merge_rules, rows: Vec::new(), slots: vec![0; SLOTS_INITIAL], groups_max }
    }

    /// Number of words of a row.
    pub fn stride(&self) -> usize {
        self.words + self.merge_rules.len()
    }

    /// Number of groups.
    pub fn len(&self) -> usize {
        self.rows.len().checked_div(self.stride()).unwrap_or(0)
    }

    /// All rows: key, amounts.
    pub fn rows(&self) -> impl Iterator<Item = &[u64]> {
        self.rows.chunks_exact(self.stride().max(1))
    }

    /// Reads the slot of a key, so that the cache misses of a batch overlap. The caller passes the result to
    /// `black_box`, because the compiler would otherwise remove the read.
    #[inline]
    pub fn prefetch(&self, hash: u64) -> u64 {
        let slot = self.slots[self.slot_index(hash >> 32)];
        match (slot as u32).checked_sub(1) {
            Some(row) => slot ^ self.rows[row as usize * self.stride()],
            None => 0,
        }
    }

    /// Merges a row into its group. Returns false if the group would be new and the limit of groups is reached.
    #[inline]
    pub fn merge_row(&mut self, hash: u64, row: &[u64]) -> bool {
        let (tag, stride) = (hash >> 32, self.stride());
        let key = &row[..self.words];
        let mut at = self.slot_index(tag);
        loop {
            let slot = self.slots[at];
            let Some(number) = (slot as u32).checked_sub(1) else { break };
            if slot >> 32 == tag {
                let begin = number as usize * stride;
                let existing = &mut self.rows[begin..begin + stride];
                if existing[..self.words] == *key {
                    let amounts = existing[self.words..].iter_mut().zip(&row[self.words..]).zip(&self.merge_rules);
                    amounts.for_each(|((a, b), rule)| *a = rule.of(*a, *b));
                    return true;
                }
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
        if self.len() >= self.groups_max {
            return false;
        }
        self.rows.extend_from_slice(row);
        self.slots[at] = tag << 32 | self.len() as u64;
        if self.len() * 2 > self.slots.len() {
            self.grow();
        }
        true
    }

    #[inline]
    fn slot_index(&self, tag: u64) -> usize {
        tag as usize & (self.slots.len() - 1)
    }

    fn grow(&mut self) {
        let old = std::mem::take(&mut self.slots);
        self.slots = vec![0; old.len() * 2];
        for slot in old.into_iter().filter(|s| *s != 0) {
            let mut at = self.slot_index(slot >> 32);
            while self.slots[at] != 0 {
                at = (at + 1) & (self.slots.len() - 1);
            }
            self.slots[at] = slot;
        }
    }
}
