//! A map from seconds to tallies (numbers of packets by outcome) that takes little memory. An unencoded tally takes 184
//! bytes, most of them zeros, and a long capture has tens of thousands of seconds with packets. Therefore only the
//! seconds of one chunk are stored in decoded form; all other seconds are encoded, at about ten bytes each.
//!
//! Invariants: the keys of `packed` and `from` divide the seconds into chunks, each of which ends before the next
//! begins; exactly one chunk is decoded, in `open`, and has the seconds `from..=to`. No encoded chunk is empty.

use crate::tally::Tally;
use std::collections::BTreeMap;

/// The number of runs in an encoded chunk, if the seconds were added in the order of time. The decoded chunk has at
/// most twice as many runs.
const CHUNK: usize = 32;

/// The runs of seconds with the same tally, sorted by the first second of each run.
#[derive(Clone, Debug)]
pub struct SecondMap {
    packed: BTreeMap<u64, Box<[u8]>>,
    open: BTreeMap<u64, (u64, Tally)>,
    from: u64,
    to: u64,
    len: usize,
}

/// A run of seconds with equal tallies: its first second, its number of seconds, and the tally of each second.
type Entry = (u64, (u64, Tally));

impl SecondMap {
    /// No runs.
    pub const fn new() -> Self {
        Self { packed: BTreeMap::new(), open: BTreeMap::new(), from: 0, to: u64::MAX, len: 0 }
    }

    /// Number of runs.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True if the map contains no run of seconds.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of seconds and the tally of the run that begins with this second, if there is such a run.
    pub fn get_mut(&mut self, second: u64) -> Option<&mut (u64, Tally)> {
        self.decode_chunk_of(second);
        self.open.get_mut(&second)
    }

    /// Sets the number of seconds and the tally of the run that begins with this second, or inserts this run.
    pub fn insert(&mut self, second: u64, seconds: u64, tally: Tally) {
        self.decode_chunk_of(second);
        self.len += usize::from(self.open.insert(second, (seconds, tally)).is_none());
        if self.open.len() > 2 * CHUNK
            && let Some(middle) = self.open.keys().nth(CHUNK).copied()
        {
            let upper = self.open.split_off(&middle);
            self.packed.insert(self.from, encode(&self.open));
            (self.open, self.from) = (upper, middle);
        }
    }

    /// Removes the run of seconds that begins with this second.
    pub fn remove(&mut self, second: u64) -> Option<(u64, Tally)> {
        self.decode_chunk_of(second);
        let removed = self.open.remove(&second);
        self.len -= usize::from(removed.is_some());
        removed
    }

    /// The last run of seconds that begins at or before this second.
    pub fn at_or_before(&mut self, second: u64) -> Option<Entry> {
        self.decode_chunk_of(second);
        let found = self.open.range(..=second).next_back().map(|(second, run)| (*second, *run));
        found.or_else(|| decode(self.packed.range(..self.from).next_back()?.1).pop())
    }

    /// The first second at or after this second with which a run begins.
    pub fn begins_at_or_after(&mut self, second: u64) -> Option<u64> {
        self.decode_chunk_of(second);
        let found = self.open.range(second..).next().map(|(second, _)| *second);
        found.or_else(|| decode(self.packed.range(self.from..).next()?.1).first().map(|(second, _)| *second))
    }

    /// The first run.
    pub fn first(&self) -> Option<Entry> {
        self.iter().next()
    }

    /// Removes the first run.
    pub fn pop_first(&mut self) -> Option<Entry> {
        let (second, _) = self.first()?;
        self.remove(second).map(|run| (second, run))
    }

    /// The runs, in the order of their seconds.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Entry> + '_ {
        let earlier = self.packed.range(..self.from).flat_map(|(_, bytes)| decode(bytes));
        let open = self.open.iter().map(|(second, run)| (*second, *run));
        earlier.chain(open).chain(self.packed.range(self.from..).flat_map(|(_, bytes)| decode(bytes)))
    }

    /// Decodes the chunk that contains `second`, after encoding the chunk that was decoded before.
    fn decode_chunk_of(&mut self, second: u64) {
        if (self.from..=self.to).contains(&second) {
            return;
        }
        if !self.open.is_empty() {
            self.packed.insert(self.from, encode(&self.open));
        }
        let chunk = self.packed.range(..=second).next_back().map_or(0, |(first, _)| *first);
        // The first chunk also covers the seconds before its own key, up to the key of the second chunk.
        self.open = self.packed.remove(&chunk).map(|bytes| decode(&bytes).into_iter().collect()).unwrap_or_default();
        self.from = chunk;
        self.to = self.packed.range(chunk..).next().map_or(u64::MAX, |(next, _)| next - 1);
    }
}

impl Default for SecondMap {
    fn default() -> Self {
        Self::new()
    }
}

impl PartialEq for SecondMap {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl Eq for SecondMap {}

/// Encodes each run as four parts: the number of seconds since the begin of the previous run, the length of the run
/// minus one, a bit mask of the non-zero terms of its tally, and the values of these terms. All numbers are in LEB128.
fn encode(runs: &BTreeMap<u64, (u64, Tally)>) -> Box<[u8]> {
    let mut out = Vec::with_capacity(16 * runs.len());
    let mut before = 0;
    for (second, (seconds, tally)) in runs {
        let terms = tally.terms();
        let mask = terms.iter().enumerate().fold(0, |mask, (i, term)| mask | u64::from(*term != 0) << i);
        [second - before, seconds - 1, mask].into_iter().for_each(|n| put(&mut out, n));
        terms.into_iter().filter(|term| *term != 0).for_each(|term| put(&mut out, term));
        before = *second;
    }
    out.into_boxed_slice()
}

/// The inverse of [`encode`].
fn decode(mut bytes: &[u8]) -> Vec<Entry> {
    let (mut out, mut second) = (Vec::with_capacity(2 * CHUNK), 0);
    while !bytes.is_empty() {
        second += take(&mut bytes);
        let seconds = take(&mut bytes) + 1;
        let (mut mask, mut terms) = (take(&mut bytes), [0; Tally::TERMS]);
        while mask != 0 {
            terms[mask.trailing_zeros() as usize] = take(&mut bytes);
            mask &= mask - 1;
        }
        out.push((second, (seconds, Tally::from_terms(&terms))));
    }
    out
}

fn put(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn take(bytes: &mut &[u8]) -> u64 {
    let (mut n, mut shift) = (0, 0);
    while let Some((byte, rest)) = bytes.split_first() {
        *bytes = rest;
        n |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
        shift += 7;
    }
    n
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prng;

    #[test]
    fn the_map_agrees_with_a_btree_map_on_a_random_walk() {
        let mut prng = Prng::new(47);
        for round in 0..60 {
            let (mut map, mut model) = (SecondMap::new(), BTreeMap::new());
            let (base, span) = (prng.next_u64() >> prng.below(64), 1 + prng.below(3000));
            for step in 0..1500 {
                let second = base.saturating_add(prng.below(span));
                match prng.below(8) {
                    0 | 1 => assert_eq!(map.remove(second), model.remove(&second)),
                    2 => assert_eq!(map.pop_first(), model.pop_first()),
                    3 => {
                        let before = model.range(..=second).next_back().map(|(s, run)| (*s, *run));
                        assert_eq!(map.at_or_before(second), before, "round {round} step {step}");
                        let after = model.range(second..).next().map(|(s, _)| *s);
                        assert_eq!(map.begins_at_or_after(second), after, "round {round} step {step}");
                    }
                    _ => {
                        let mut terms = [0; Tally::TERMS];
                        terms.iter_mut().for_each(|t| *t = prng.next_u64() >> prng.below(64) >> prng.below(64));
                        let run = (1 + prng.next_u64() / 2, Tally::from_terms(&terms));
                        map.insert(second, run.0, run.1);
                        model.insert(second, run);
                    }
                }
                assert_eq!((map.len(), map.first()), (model.len(), model.iter().next().map(|(s, run)| (*s, *run))));
            }
            let plain: Vec<Entry> = model.into_iter().collect();
            assert_eq!(map.iter().collect::<Vec<_>>(), plain, "round {round}");
            assert!(map.iter().rev().eq(plain.into_iter().rev()), "round {round}");
        }
    }

    #[test]
    fn a_day_of_seconds_with_packets_takes_less_than_two_megabytes() {
        let mut map = SecondMap::new();
        for second in 0..86_400 {
            let tally = Tally { offered: 40, stored: 40, stored_bytes: 20_000, ..Tally::default() };
            map.insert(1_790_000_000 + 2 * second, 1, tally);
        }
        let bytes: usize = map.packed.values().map(|bytes| bytes.len()).sum();
        // An encoded chunk takes its encoded bytes, an entry of the tree and a header of the allocator. The entry and
        // the header take at most 128 bytes.
        assert!(bytes + 128 * map.packed.len() < 2_000_000, "{bytes} bytes in {} chunks", map.packed.len());
        assert!(map.open.len() <= 2 * CHUNK);
    }
}
