//! What the rest of a record says about a number before it is looked at.

use base::Timestamp;
use flow::{Early, Moments, Record, Side};

/// Of one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guess {
    pub first: Timestamp,
    pub last: Timestamp,
    pub gaps: u64,
    pub gap: Moments,
    pub length: Moments,
}

impl Guess {
    /// Whether the side is as guessed; the sum of its lengths is not asked.
    #[inline]
    pub fn is(&self, side: &Side) -> bool {
        let Side { first, last, gaps, gap, length, .. } = *side;
        let lengths = |m: &Moments| (m.min, m.max, m.squares);
        (first, last, gaps, gap) == (self.first, self.last, self.gaps, self.gap)
            && lengths(&length) == lengths(&self.length)
    }
}

/// Asks nothing of a record but began, part, early, end and first and last of the whole, and the packets and bytes of its
/// sides.
pub fn guess(record: &Record, first: Timestamp, last: Timestamp) -> [Guess; 2] {
    let mut listed = [Listed::NONE; 2];
    record.early.iter().for_each(|one| listed[usize::from(one.reverse)].add(one));
    guess_from(record, first, last, &listed)
}

/// The same, for who has gone through the list.
#[inline]
pub fn guess_from(record: &Record, first: Timestamp, last: Timestamp, listed: &[Listed; 2]) -> [Guess; 2] {
    let mut sides = [Guess::default(); 2];
    if record.part > 0 {
        for (guess, side) in sides.iter_mut().zip(&record.sides).filter(|(_, side)| side.packets > 0) {
            // The gap to the record before belongs to this one.
            (guess.first, guess.last, guess.gaps) = (first, last, side.packets);
        }
        return sides;
    }
    let at = |after: u64| Timestamp::from_nanos(record.began.nanos().wrapping_add(after));
    for ((guess, side), listed) in sides.iter_mut().zip(&record.sides).zip(listed) {
        if side.packets == 0 {
            continue;
        }
        guess.first = if listed.packets > 0 { at(listed.first) } else { first };
        guess.last = last;
        guess.gaps = side.packets - 1;
        if listed.packets == side.packets {
            // Every packet is among the first ones: they say everything.
            guess.last = at(listed.last);
            (guess.gap, guess.length) = (listed.gap(), listed.length);
        } else {
            guess.gap.sum = last.nanos().saturating_sub(guess.first.nanos());
        }
    }
    sides
}

/// What the list of first packets says of one side.
#[derive(Clone, Copy)]
pub struct Listed {
    packets: u64,
    first: u64,
    last: u64,
    gap: Moments,
    length: Moments,
}

impl Listed {
    /// Nothing yet.
    pub const NONE: Self = {
        let none = Moments { min: u64::MAX, max: 0, sum: 0, squares: 0 };
        Self { packets: 0, first: 0, last: 0, gap: none, length: none }
    };

    /// The next one of this side. PERF: nothing depends on which side it is, or on whether it is the first one, but what is taken.
    #[inline(always)]
    pub fn add(&mut self, one: &Early) {
        let is_first = self.packets == 0;
        self.first = if is_first { one.after } else { self.first };
        let gap = if is_first { 0 } else { one.after.saturating_sub(self.last) };
        self.gap.min = self.gap.min.min(if is_first { u64::MAX } else { gap });
        self.gap.max = self.gap.max.max(gap);
        self.gap.sum = self.gap.sum.wrapping_add(gap);
        self.gap.squares = self.gap.squares.wrapping_add(u128::from(gap) * u128::from(gap));
        let length = u64::from(one.length);
        self.length.min = self.length.min.min(length);
        self.length.max = self.length.max.max(length);
        self.length.sum = self.length.sum.wrapping_add(length);
        self.length.squares = self.length.squares.wrapping_add(u128::from(length * length));
        self.last = one.after;
        self.packets += 1;
    }

    /// Those of the gaps; the least of none is 0.
    fn gap(&self) -> Moments {
        Moments { min: if self.packets > 1 { self.gap.min } else { 0 }, ..self.gap }
    }
}
