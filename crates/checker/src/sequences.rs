//! The set of sequence numbers that have arrived, with one bit per number, in chunks of numbers. A chunk exists only if
//! one of its numbers has arrived. Its bits are freed when all of its numbers have arrived.

use std::collections::HashMap;
use std::ops::Range;

/// Maximum memory of the set of sequence numbers, in bytes.
pub const MEMORY_LIMIT: usize = 64 << 20;

const CHUNK: u64 = 65_536;
const WORDS: usize = CHUNK as usize / 64;

/// Bytes that a chunk takes without its bits: its entry in the map, and a share of the map's spare capacity.
const FULL_COST: usize = 64;
const OPEN_COST: usize = FULL_COST + WORDS * 8;

/// The set of sequence numbers that have arrived.
pub(crate) struct Sequences {
    chunks: HashMap<u64, Chunk>,
    /// The chunk of the number that was added last, stored outside of the map, because the next number is nearly always
    /// in this chunk.
    current: u64,
    bits: Chunk,
    memory: usize,
}

enum Chunk {
    Open { bits: Box<[u64; WORDS]>, left: u32 },
    Full,
}

impl Chunk {
    fn new() -> Self {
        Self::Open { bits: Box::new([0; WORDS]), left: CHUNK as u32 }
    }
}

/// The sequence numbers have so many gaps that their set would exceed [`MEMORY_LIMIT`].
#[derive(Debug)]
pub(crate) struct SequenceGapTooLarge;

impl Sequences {
    pub(crate) fn new() -> Self {
        Self { chunks: HashMap::new(), current: 0, bits: Chunk::new(), memory: OPEN_COST }
    }

    /// Adds a sequence number; returns true if it has not arrived before.
    #[inline]
    pub(crate) fn insert(&mut self, sequence: u64) -> Result<bool, SequenceGapTooLarge> {
        if sequence / CHUNK != self.current {
            self.turn_to(sequence / CHUNK)?;
        }
        let Chunk::Open { bits, left } = &mut self.bits else { return Ok(false) };
        let word = &mut bits[(sequence % CHUNK / 64) as usize];
        let bit = 1 << (sequence % 64);
        if *word & bit != 0 {
            return Ok(false);
        }
        *word |= bit;
        *left -= 1;
        if *left == 0 {
            self.bits = Chunk::Full;
            self.memory -= OPEN_COST - FULL_COST;
        }
        Ok(true)
    }

    fn turn_to(&mut self, chunk: u64) -> Result<(), SequenceGapTooLarge> {
        let next = match self.chunks.remove(&chunk) {
            Some(next) => next,
            None if self.memory + OPEN_COST > MEMORY_LIMIT => return Err(SequenceGapTooLarge),
            None => {
                self.memory += OPEN_COST;
                Chunk::new()
            }
        };
        let before = std::mem::replace(&mut self.bits, next);
        self.chunks.insert(self.current, before);
        self.current = chunk;
        Ok(())
    }

    /// Calls `each` for every maximal range of missing numbers within `range`, in order.
    pub(crate) fn gaps(&self, range: Range<u64>, mut each: impl FnMut(Range<u64>)) {
        let mut expected = range.start;
        let mut present = |run: Range<u64>| {
            let run = run.start.max(range.start)..run.end.min(range.end);
            if run.start < run.end {
                if expected < run.start {
                    each(expected..run.start);
                }
                expected = run.end;
            }
        };
        let mut chunks: Vec<(u64, &Chunk)> = self.chunks.iter().map(|(index, chunk)| (*index, chunk)).collect();
        chunks.push((self.current, &self.bits));
        chunks.sort_unstable_by_key(|(index, _)| *index);
        for (index, chunk) in chunks {
            let base = index * CHUNK;
            match chunk {
                Chunk::Full => present(base..base + CHUNK),
                Chunk::Open { bits, .. } => {
                    for (word, at) in bits.iter().zip((base..).step_by(64)) {
                        runs(*word, |run| present(at + run.start..at + run.end));
                    }
                }
            }
        }
        if expected < range.end {
            each(expected..range.end);
        }
    }
}

/// Calls `each` for every range of consecutive bits of a word that are 1, in order from the lowest bit.
fn runs(word: u64, mut each: impl FnMut(Range<u64>)) {
    let mut at = 0;
    while at < 64 && word >> at != 0 {
        let start = at + (word >> at).trailing_zeros();
        let end = start + (word >> start).trailing_ones();
        each(u64::from(start)..u64::from(end));
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// SplitMix64, implemented here so that the crate does not depend on `base`.
    fn random(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    #[test]
    fn numbers_with_too_many_gaps_are_refused_at_the_memory_limit() {
        let mut set = Sequences::new();
        let refused = (0..).position(|i| set.insert(i * CHUNK).is_err()).unwrap();
        assert_eq!(refused, MEMORY_LIMIT / OPEN_COST);
        assert!(refused as u64 * CHUNK > 500_000_000, "the memory limit must suffice for 500 million frames");
    }

    #[test]
    fn complete_chunks_need_little_memory() {
        let mut set = Sequences::new();
        for sequence in 0..200 * CHUNK {
            assert!(set.insert(sequence).unwrap());
        }
        assert_eq!(set.memory, 200 * FULL_COST);
        assert!(!set.insert(5).unwrap() && !set.insert(200 * CHUNK - 1).unwrap());
        set.gaps(0..200 * CHUNK, |gap| panic!("{gap:?}"));
    }

    #[test]
    fn the_set_agrees_with_a_standard_set_on_a_random_walk() {
        for seed in 1..=20 {
            let mut state = seed;
            let (mut set, mut model) = (Sequences::new(), BTreeSet::new());
            let (span, mut at) = (3 * CHUNK, (1 << 47) - CHUNK);
            let base = at;
            for _ in 0..60_000 {
                // The next number is usually the successor, sometimes a smaller number, sometimes a much greater
                // number.
                at = match random(&mut state) % 100 {
                    0 => base + random(&mut state) % span,
                    1..4 => at.saturating_sub(random(&mut state) % 70).max(base),
                    _ => at + 1,
                };
                assert_eq!(set.insert(at).unwrap(), model.insert(at), "{at}, seed {seed}");
            }
            let range = base + random(&mut state) % span..base + span + random(&mut state) % span;
            let (mut expected, mut cursor) = (Vec::new(), range.start);
            for present in model.range(range.clone()) {
                if cursor < *present {
                    expected.push(cursor..*present);
                }
                cursor = present + 1;
            }
            if cursor < range.end {
                expected.push(cursor..range.end);
            }
            let mut gaps = Vec::new();
            set.gaps(range, |gap| gaps.push(gap));
            assert_eq!(gaps, expected, "seed {seed}");
        }
    }
}
