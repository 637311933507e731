//! The encoding of ledger rows. Each run is encoded as the number of seconds since the previous run, a mask of the
//! counters that are not zero, and the values of these counters. In a silent run (seconds without events), the length
//! of the run minus one follows the mask instead of values. A silent week takes six bytes. All numbers are encoded as
//! LEB128.

use super::Rows;
use base::{Ledger, Tally};

const TERMS: usize = Tally::TERMS;

/// Sums of all ledger rows read from one index. The reader rejects rows with which a sum exceeds its limit, so that no
/// later sum of accepted rows overflows.
#[derive(Clone)]
pub(crate) struct ReadLimits([u64; TERMS]);

impl ReadLimits {
    const MAX: u64 = 1 << 60;

    pub fn new() -> Self {
        Self([0; TERMS])
    }

    /// Adds the counters of these ledger rows to the sums of the counters; returns false if a sum exceeds its limit.
    #[must_use]
    pub fn add(&mut self, rows: &Rows) -> bool {
        rows.runs().all(|run| self.add_terms(&run.tally.terms()))
    }

    fn add_terms(&mut self, terms: &[u64; TERMS]) -> bool {
        self.0.iter_mut().zip(terms).all(|(sum, term)| {
            *sum = sum.saturating_add(*term);
            *sum <= Self::MAX
        })
    }
}

/// Appends one LEB128 number.
fn put(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut n = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let part = u64::from(byte & 0x7f);
        if shift == 63 && part > 1 {
            return None;
        }
        n |= part << shift;
        if byte & 0x80 == 0 {
            return Some(n);
        }
    }
    None
}

/// Appends rows.
pub fn encode(rows: &Rows, out: &mut Vec<u8>) {
    let mut end = 0;
    for run in rows.runs() {
        put(out, run.second - end);
        end = run.second + run.seconds;
        let terms = run.tally.terms();
        let mask = terms.iter().enumerate().fold(0, |m, (i, t)| m | u64::from(*t != 0) << i);
        put(out, mask);
        if mask == 0 {
            put(out, run.seconds - 1);
        }
        terms.iter().filter(|t| **t != 0).for_each(|t| put(out, *t));
    }
}

/// The inverse of [`encode`]; `None` for bytes that [`encode`] cannot produce.
pub fn decode(mut bytes: &[u8]) -> Option<Rows> {
    let mut rows = Rows::new();
    let (mut end, mut silence, mut sums) = (0u64, 0u64, ReadLimits::new());
    while !bytes.is_empty() {
        let second = end.checked_add(take(&mut bytes)?)?;
        let mask = take(&mut bytes)?;
        if mask >> TERMS != 0 || rows.runs.len() >= Ledger::MAX_ROWS {
            return None;
        }
        let mut terms = [0; TERMS];
        for (i, term) in terms.iter_mut().enumerate() {
            if mask >> i & 1 != 0 {
                *term = take(&mut bytes)?;
            }
        }
        if !sums.add_terms(&terms) {
            return None;
        }
        let seconds = if mask == 0 { take(&mut bytes)?.checked_add(1)? } else { 1 };
        end = second.checked_add(seconds)?;
        let tally = Tally::from_terms(&terms);
        if tally.is_empty() {
            silence = silence.checked_add(seconds).filter(|s| *s <= Rows::MAX_SILENCE)?;
            rows.add_silence(second, seconds);
        } else {
            rows.add(second, &tally);
        }
    }
    Some(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    #[test]
    fn arbitrary_bytes_are_rejected_or_decoded_without_a_panic() {
        assert_eq!(decode(&[0x80]), None);
        assert_eq!(decode(&[0, 0xff, 0xff, 0xff, 0x7f]), None);
        // The rows have more seconds without events than [`Rows::MAX_SILENCE`].
        assert_eq!(decode(&[0, 0, 0xff, 0xff, 0xff, 0xff, 0x7f]), None);
        let mut prng = Prng::new(6);
        for _ in 0..20_000 {
            let mut bytes = vec![0; prng.below(40) as usize];
            prng.fill(&mut bytes);
            if let Some(rows) = decode(&bytes) {
                let mut again = Vec::new();
                encode(&rows, &mut again);
                assert_eq!(decode(&again), Some(rows));
            }
        }
    }

    #[test]
    fn rows_are_decoded_as_encoded_and_a_silent_week_takes_few_bytes() {
        let mut prng = Prng::new(5);
        let mut rows = Rows::new();
        for _ in 0..500 {
            let mut terms = [0; TERMS];
            terms.iter_mut().for_each(|t| *t = prng.next_u64() >> 16 >> prng.below(48) >> prng.below(2));
            rows.add(prng.next_u64() >> 1 >> prng.below(63), &Tally::from_terms(&terms));
            rows.add_silence(prng.next_u64() >> 1 >> prng.below(63), 1 + prng.below(1000));
        }
        let mut bytes = Vec::new();
        encode(&rows, &mut bytes);
        assert_eq!(decode(&bytes), Some(rows));
        let mut silence = Rows::new();
        silence.add_silence(1_795_290_000, 7 * 86_400);
        bytes.clear();
        encode(&silence, &mut bytes);
        assert!(bytes.len() <= 9, "{}", bytes.len());
        assert_eq!(decode(&bytes), Some(silence));
    }
}
