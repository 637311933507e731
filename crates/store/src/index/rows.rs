//! Ledger rows as bytes: seconds as steps, a mask of the terms that are not zero, then those. An hour of silence, which
//! is a fact worth storing, costs two bytes per second.

use base::{Cause, Note, Row, Tally};

const TERMS: usize = 5 + Cause::COUNT + Note::COUNT;

fn terms(t: &Tally) -> [u64; TERMS] {
    let mut out = [0; TERMS];
    out[..5].copy_from_slice(&[t.offered, t.stored, t.stored_bytes, t.filtered, t.duplicate]);
    out[5..5 + Cause::COUNT].copy_from_slice(&t.lost);
    out[5 + Cause::COUNT..].copy_from_slice(&t.notes);
    out
}

fn tally(terms: &[u64; TERMS]) -> Tally {
    let mut t = Tally {
        offered: terms[0],
        stored: terms[1],
        stored_bytes: terms[2],
        filtered: terms[3],
        duplicate: terms[4],
        ..Tally::default()
    };
    t.lost.copy_from_slice(&terms[5..5 + Cause::COUNT]);
    t.notes.copy_from_slice(&terms[5 + Cause::COUNT..]);
    t
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

/// Rows as bytes; steps between seconds may go back (by wrapping).
pub fn encode(rows: &[Row], out: &mut Vec<u8>) {
    let mut last = 0;
    for row in rows {
        put(out, row.second.wrapping_sub(last));
        last = row.second;
        let terms = terms(&row.tally);
        let mask = terms.iter().enumerate().fold(0, |m, (i, t)| m | u64::from(*t != 0) << i);
        put(out, mask);
        terms.iter().filter(|t| **t != 0).for_each(|t| put(out, *t));
    }
}

/// The inverse of [`encode`]; `None` for bytes that it does not write.
pub fn decode(mut bytes: &[u8]) -> Option<Vec<Row>> {
    let mut rows = Vec::new();
    let mut last = 0u64;
    while !bytes.is_empty() {
        last = last.wrapping_add(take(&mut bytes)?);
        let mask = take(&mut bytes)?;
        if mask >> TERMS != 0 {
            return None;
        }
        let mut terms = [0; TERMS];
        for (i, term) in terms.iter_mut().enumerate() {
            if mask >> i & 1 != 0 {
                *term = take(&mut bytes)?;
            }
        }
        rows.push(Row { second: last, tally: tally(&terms) });
    }
    Some(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    #[test]
    fn rows_survive_the_trip_and_silence_is_small() {
        let mut prng = Prng::new(5);
        let rows: Vec<Row> = (0..500)
            .map(|_| {
                let mut terms = [0; TERMS];
                terms.iter_mut().for_each(|t| *t = prng.next_u64() >> prng.below(64) >> prng.below(2));
                Row { second: prng.next_u64() >> prng.below(64), tally: tally(&terms) }
            })
            .collect();
        let mut bytes = Vec::new();
        encode(&rows, &mut bytes);
        assert_eq!(decode(&bytes), Some(rows));
        let silence: Vec<Row> = (0..3600).map(|s| Row { second: 1_795_290_000 + s, tally: Tally::default() }).collect();
        bytes.clear();
        encode(&silence, &mut bytes);
        assert!(bytes.len() < 7210, "{}", bytes.len());
    }

    #[test]
    fn foreign_bytes_are_refused_or_read_but_never_harm() {
        assert_eq!(decode(&[0x80]), None);
        assert_eq!(decode(&[0, 0xff, 0xff, 0xff, 0x7f]), None);
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
}
