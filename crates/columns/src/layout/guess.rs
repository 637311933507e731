//! What the rest of a record says about a number before it is looked at.

use base::Timestamp;
use flow::{Moments, Record};

/// Of one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guess {
    pub first: Timestamp,
    pub last: Timestamp,
    pub gaps: u64,
    pub gap: Moments,
    pub length: Moments,
}

/// Asks nothing of a record but began, part, early, end and first and last of the whole, and the packets and bytes of its
/// sides.
pub fn guess(record: &Record, first: Timestamp, last: Timestamp) -> [Guess; 2] {
    let mut sides = [Guess::default(); 2];
    let seen = [false, true].map(|reverse| record.early.iter().filter(|e| e.reverse == reverse).count() as u64);
    for (i, guess) in sides.iter_mut().enumerate() {
        let side = &record.sides[i];
        if side.packets == 0 {
            continue;
        }
        (guess.first, guess.last) = (first, last);
        if record.part > 0 {
            // The gap to the record before belongs to this one.
            guess.gaps = side.packets;
            continue;
        }
        let mut early = record.early.iter().filter(|e| e.reverse == (i == 1)).peekable();
        let at = |after: u64| Timestamp::from_nanos(record.began.nanos().wrapping_add(after));
        if let Some(one) = early.peek() {
            guess.first = at(one.after);
        }
        guess.gaps = side.packets - 1;
        if seen[i] == side.packets {
            // Every packet is among the first ones: they say everything.
            let mut before: Option<u64> = None;
            let mut gap = Moments { min: u64::MAX, ..Moments::default() };
            let mut length = Moments { min: u64::MAX, ..Moments::default() };
            for one in early {
                add(&mut length, u64::from(one.length));
                if let Some(before) = before {
                    add(&mut gap, one.after.saturating_sub(before));
                }
                before = Some(one.after);
            }
            guess.last = at(before.unwrap_or_default());
            gap.min = if side.packets > 1 { gap.min } else { 0 };
            (guess.gap, guess.length) = (gap, length);
        } else {
            guess.gap.sum = last.nanos().saturating_sub(guess.first.nanos());
        }
    }
    sides
}

fn add(moments: &mut Moments, value: u64) {
    moments.min = moments.min.min(value);
    moments.max = moments.max.max(value);
    moments.sum = moments.sum.wrapping_add(value);
    moments.squares = moments.squares.wrapping_add(u128::from(value) * u128::from(value));
}
