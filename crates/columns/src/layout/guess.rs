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
    let listed = if record.part == 0 { listed(record) } else { [Listed::default(); 2] };
    let at = |after: u64| Timestamp::from_nanos(record.began.nanos().wrapping_add(after));
    for ((guess, side), listed) in sides.iter_mut().zip(&record.sides).zip(&listed) {
        if side.packets == 0 {
            continue;
        }
        (guess.first, guess.last) = (first, last);
        if record.part > 0 {
            // The gap to the record before belongs to this one.
            guess.gaps = side.packets;
            continue;
        }
        if listed.packets > 0 {
            guess.first = at(listed.first);
        }
        guess.gaps = side.packets - 1;
        if listed.packets == side.packets {
            // Every packet is among the first ones: they say everything.
            guess.last = at(listed.last);
            (guess.gap, guess.length) = (listed.gap, listed.length);
        } else {
            guess.gap.sum = last.nanos().saturating_sub(guess.first.nanos());
        }
    }
    sides
}

/// What the list of first packets says of one side.
#[derive(Clone, Copy, Default)]
struct Listed {
    packets: u64,
    first: u64,
    last: u64,
    gap: Moments,
    length: Moments,
}

fn listed(record: &Record) -> [Listed; 2] {
    let mut sides = [Listed::default(); 2];
    for one in &record.early {
        let side = &mut sides[usize::from(one.reverse)];
        if side.packets == 0 {
            side.first = one.after;
        }
        side.packets += 1;
    }
    for (reverse, (listed, side)) in [false, true].into_iter().zip(sides.iter_mut().zip(&record.sides)) {
        // Of a side that has more, nothing else is asked.
        if listed.packets > 0 && listed.packets == side.packets {
            whole(record, reverse, listed);
        }
    }
    sides
}

/// A side of which every packet is listed.
fn whole(record: &Record, reverse: bool, side: &mut Listed) {
    side.last = side.first;
    side.length.min = u64::MAX;
    side.gap.min = if side.packets > 1 { u64::MAX } else { 0 };
    let mut is_first = true;
    for one in record.early.iter().filter(|one| one.reverse == reverse) {
        if !std::mem::take(&mut is_first) {
            add(&mut side.gap, one.after.saturating_sub(side.last));
        }
        add(&mut side.length, u64::from(one.length));
        side.last = one.after;
    }
}

fn add(moments: &mut Moments, value: u64) {
    moments.min = moments.min.min(value);
    moments.max = moments.max.max(value);
    moments.sum = moments.sum.wrapping_add(value);
    moments.squares = moments.squares.wrapping_add(u128::from(value) * u128::from(value));
}
