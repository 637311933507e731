//! Sorts flows into the order of time in which their records are made.
//!
//! Packet time advances in whole seconds, and tens of thousands of flows may be due in one second. When a meter ends,
//! all its flows are due. A counting sort distributes many flows over slots by the upper bits of their timestamps
//! (Seward, 1954; Knuth, The Art of Computer Programming, section 5.2.5). Each slot is small enough to stay in the
//! cache, and its flows are distributed again by the next bits.
//!
//! PERF: the counting sort takes 110 instructions per record, a sort by comparison takes 220 (`valgrind
//! --tool=callgrind`, 200 000 records). Words in place of pairs of timestamp and flow index: 102 → 73 instructions.

use base::memory::{Hints, HintsExt};
use std::ops::Range;

/// Flows that are due, one word each: the timestamp of the last packet in the upper half, so that later timestamps are
/// larger, and the flow's index in the lower half. The timestamp is stored relative to `end` and in units of several
/// nanoseconds; flows with equal stored timestamps are compared by their full timestamps.
#[derive(Debug, Default)]
pub(crate) struct Due {
    words: Vec<u64>,
    /// No flow has had a packet after this timestamp.
    end: u64,
    /// The longest time from the last packet of a flow in the list to the timestamp `end`, which no packet exceeds.
    longest: u64,
}

/// log2 of the number of nanoseconds in one unit of the stored times. With units of 16 ns, 32 bits can store times up
/// to 68 seconds before `end`, which is longer than most timeouts.
const UNIT: u32 = 4;

/// The number of bits by which flows are distributed over slots: in the first pass, and in the second.
const BITS: [u32; 2] = [11, 8];
const SLOTS: [usize; 2] = [1 << BITS[0], 1 << BITS[1]];
/// Fewer flows than this are sorted by comparison.
const FEW: usize = 4 * SLOTS[0];
/// The flows of a slot are distributed again if their number is in this range. Fewer flows are not worth the cost. If
/// there are more flows, most of them may have the same timestamp, for which an insertion sort would be slow.
const FEW_AGAIN: Range<usize> = SLOTS[1] / 2..8 * SLOTS[1];

impl Due {
    /// An empty list with memory for `count` flows, none of which has had a packet after `end`.
    pub fn begin(mut self, count: usize, end: u64, hints: impl Hints) -> Self {
        self.words.clear();
        if self.words.capacity() < count {
            self.words = hints.reserve(count);
        }
        Self { end, longest: 0, ..self }
    }

    /// Adds a flow whose last packet had this timestamp.
    #[inline(always)]
    pub fn push(&mut self, last: u64, flow: u32) {
        let before = self.end.saturating_sub(last);
        self.longest = self.longest.max(before);
        self.words.push(word(before, UNIT, flow));
    }

    /// The flows, earliest first after `sort`.
    #[inline(always)]
    pub fn flows(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.words.iter().map(|word| *word as u32)
    }

    #[inline(always)]
    pub fn get(&self, at: usize) -> Option<u32> {
        self.words.get(at).map(|word| *word as u32)
    }

    pub fn len(&self) -> usize {
        self.words.len()
    }

    pub fn bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }

    /// Sorts by the timestamp from `last`, and flows with equal timestamps by `rank`. For many flows, the sort
    /// allocates a second buffer of the same size.
    pub fn sort<R: Ord>(&mut self, hints: impl Hints, last: impl Fn(u32) -> u64, rank: impl Fn(u32) -> R) {
        let bits = u64::BITS - self.longest.leading_zeros();
        if bits > u32::BITS + UNIT {
            for each in &mut self.words {
                let flow = *each as u32;
                *each = word(self.end.saturating_sub(last(flow)), bits - u32::BITS, flow);
            }
        }
        by_number(&mut self.words, hints);
        let mut at = 0;
        while let Some(same) = self.words[at..].windows(2).position(|w| stored_time(w[0]) == stored_time(w[1])) {
            let from = at + same;
            let run = self.words[from..]
                .iter()
                .take_while(|word| stored_time(**word) == stored_time(self.words[from]))
                .count();
            at = from + run;
            self.words[from..at].sort_by_cached_key(|word| (last(*word as u32), rank(*word as u32)));
        }
    }
}

#[inline(always)]
fn word(before: u64, unit: u32, flow: u32) -> u64 {
    (!(before >> unit) << 32) | u64::from(flow)
}

#[inline(always)]
fn stored_time(word: u64) -> u32 {
    (word >> 32) as u32
}

/// Sorts words; the order of words with the same timestamp is arbitrary.
fn by_number(due: &mut [u64], hints: impl Hints) {
    if due.len() < FEW {
        return due.sort_unstable();
    }
    let (least, most) = due.iter().fold((u64::MAX, 0), |(least, most), d| (least.min(*d), most.max(*d)));
    let shift = (u64::BITS - (most - least).leading_zeros()).saturating_sub(BITS[0]);
    let mut other = hints.reserve(due.len());
    other.resize(due.len(), 0);
    let ends: [_; SLOTS[0]] = distribute(due, &mut other, |d| (d - least) >> shift);
    let mut begin = 0;
    for end in ends {
        let (from, to) = (&mut other[begin..end], &mut due[begin..end]);
        if !FEW_AGAIN.contains(&from.len()) {
            from.sort_unstable();
            to.copy_from_slice(from);
        } else {
            // The remaining lower bits are sorted by insertion, which moves few words, and each over a short distance.
            let shift = shift.saturating_sub(BITS[1]);
            let _: [_; SLOTS[1]] = distribute(from, to, |d| (d - least) >> shift);
            place_in_order(to);
        }
        begin = end;
    }
}

/// Sorts nearly sorted words by insertion.
#[inline(always)]
fn place_in_order(words: &mut [u64]) {
    for at in 1..words.len() {
        let word = words[at];
        let mut to = at;
        // Only the timestamps are compared: thousands of words with equal timestamps may be in descending order of the
        // flow index, and moving each of them would take too long.
        while to > 0 && stored_time(words[to - 1]) > stored_time(word) {
            words[to] = words[to - 1];
            to -= 1;
        }
        words[to] = word;
    }
}

/// Distributes the words over `N` slots: the lower bits of the result of `slot` select the slot of a word. Returns, for
/// each slot, the index in `to` after its last word.
#[inline(always)]
fn distribute<const N: usize>(from: &[u64], to: &mut [u64], slot: impl Fn(u64) -> u64) -> [usize; N] {
    let mut places = [0; N];
    for d in from {
        places[slot(*d) as usize % N] += 1;
    }
    let mut sum = 0;
    for place in &mut places {
        sum += std::mem::replace(place, sum);
    }
    for d in from {
        let place = &mut places[slot(*d) as usize % N];
        to[*place] = *d;
        *place += 1;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NoHints;
    use base::Prng;

    #[test]
    fn many_and_few_flows_are_sorted_by_time() {
        let seed = testkit::seed("many_and_few_flows_are_sorted_by_time");
        let mut prng = Prng::new(seed);
        for spread in [1, 2, 1000, 1 << 14, 1 << 22, 1 << 35, 1 << 36, 1 << 37, 1 << 50, u64::MAX] {
            for count in [0, 1, FEW - 1, FEW, 3 * FEW, 40 * FEW] {
                let from = prng.next_u64() % (u64::MAX - spread + 1);
                // The timestamps are either spread evenly, or most of them are near the beginning of the range.
                let crowd = [0, 30][prng.below(2) as usize];
                let lasts: Vec<u64> =
                    (0..count).map(|_| from + (prng.below(spread) >> prng.below(crowd + 1))).collect();
                // Some timestamps are later than `end`, which `Due::begin` excludes: the sort takes longer then, but
                // its result is the same.
                let end = from + spread / 4 * 3 + prng.below(spread / 4 + 1);
                let mut due = Due::default().begin(count, end, NoHints);
                lasts.iter().enumerate().for_each(|(flow, last)| due.push(*last, flow as u32));
                let rank = |flow: u32| flow.reverse_bits();
                due.sort(NoHints, |flow| lasts[flow as usize], rank);
                let mut expected: Vec<u32> = (0..count as u32).collect();
                expected.sort_by_key(|flow| (lasts[*flow as usize], rank(*flow)));
                assert!(due.flows().eq(expected), "seed {seed}: {count} flows within {spread} ns");
            }
        }
    }
}
