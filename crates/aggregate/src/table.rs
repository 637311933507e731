//! Groups by their key: open addressing over rows that lie one behind the other.
//!
//! A slot is the upper half of the key's hash and the row's number plus one; 0 is empty. The place of a slot comes from
//! that half too, so growing needs no key. At most half of the slots are taken.

use super::MergeRule;

/// Slots at the beginning.
const FEWEST: usize = 1 << 10;

/// See the module.
pub struct Table {
    words: usize,
    joins: Vec<MergeRule>,
    rows: Vec<u64>,
    slots: Vec<u64>,
    most: usize,
}

impl Table {
    /// Of keys of `words` words, an amount for each of `joins`, and at most so many groups.
    pub fn new(words: usize, joins: Vec<MergeRule>, most: usize) -> Self {
        Self { words, joins, rows: Vec::new(), slots: vec![0; FEWEST], most }
    }

    /// Words of a row.
    pub fn stride(&self) -> usize {
        self.words + self.joins.len()
    }

    /// How many groups there are.
    pub fn len(&self) -> usize {
        self.rows.len().checked_div(self.stride()).unwrap_or(0)
    }

    /// All rows: key, amounts.
    pub fn rows(&self) -> impl Iterator<Item = &[u64]> {
        self.rows.chunks_exact(self.stride().max(1))
    }

    /// Reads the slot where a key would be, so that a batch waits for memory once instead of once for each. The value
    /// matters to nobody.
    #[inline]
    pub fn touch(&self, hash: u64) -> u64 {
        let slot = self.slots[self.place(hash >> 32)];
        match (slot as u32).checked_sub(1) {
            Some(row) => slot ^ self.rows[row as usize * self.stride()],
            None => 0,
        }
    }

    /// Joins a row to its group. Says whether there was room for it.
    #[inline]
    pub fn join(&mut self, hash: u64, row: &[u64]) -> bool {
        let (tag, stride) = (hash >> 32, self.stride());
        let key = &row[..self.words];
        let mut at = self.place(tag);
        loop {
            let slot = self.slots[at];
            let Some(number) = (slot as u32).checked_sub(1) else { break };
            if slot >> 32 == tag {
                let begin = number as usize * stride;
                let there = &mut self.rows[begin..begin + stride];
                if there[..self.words] == *key {
                    let amounts = there[self.words..].iter_mut().zip(&row[self.words..]).zip(&self.joins);
                    amounts.for_each(|((a, b), join)| *a = join.of(*a, *b));
                    return true;
                }
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
        if self.len() >= self.most {
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
    fn place(&self, tag: u64) -> usize {
        tag as usize & (self.slots.len() - 1)
    }

    fn grow(&mut self) {
        let old = std::mem::take(&mut self.slots);
        self.slots = vec![0; old.len() * 2];
        for slot in old.into_iter().filter(|s| *s != 0) {
            let mut at = self.place(slot >> 32);
            while self.slots[at] != 0 {
                at = (at + 1) & (self.slots.len() - 1);
            }
            self.slots[at] = slot;
        }
    }
}
