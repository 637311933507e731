//! Flow records for others: the store's columns, with every value that is known.
//!
//! The store leaves out what follows from the rest ([`super::guess`]). Whoever asks for a mean in SQL would then get that of
//! the long flows, and nothing would say so; so a file that is written to be given away has all of it. It reads back as one of
//! the store: what is there is never guessed.

use super::guess::{Guess, guess};
use crate::sheet::Cells;
use flow::{Record, Side};

/// Records, and what the store would take for granted of them.
pub struct Whole {
    records: Vec<Record>,
    guesses: Vec<[Guess; 2]>,
}

impl Whole {
    /// These.
    pub fn of(records: Vec<Record>) -> Self {
        let guesses = records.iter().map(|record| guess(record, record.first(), record.last())).collect();
        Self { records, guesses }
    }

    /// All of them.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Puts all values of the column of this path in the place of those that the store writes, if it leaves any out.
    pub fn fill(&self, path: &str, cells: &mut Cells) {
        let (side, name) = match path.split_once('_') {
            Some(("fwd", name)) => (0, name),
            Some(("rev", name)) => (1, name),
            _ if path == "began" => {
                return numbers(self.records.iter().map(|record| Some(record.began.nanos())), cells);
            }
            _ if path == "early.list.element.gap" => return self.gaps(cells),
            _ => return,
        };
        let always = |_: &Side| true;
        let seen = |side: &Side| side.packets > 0;
        let timed = |side: &Side| side.gaps > 0;
        match name {
            "first" => self.long(side, seen, |s| s.first.nanos(), |g| g.first.nanos(), cells),
            "last" => self.long(side, seen, |s| s.last.nanos(), |g| g.last.nanos(), cells),
            "length_min" => self.long(side, seen, |s| s.length.min, |g| g.length.min, cells),
            "length_max" => self.long(side, seen, |s| s.length.max, |g| g.length.max, cells),
            "length_sum" => self.long(side, always, |s| s.length.sum, |_| 0, cells),
            "length_squares" => self.wide(side, seen, |s| s.length.squares, |g| g.length.squares, cells),
            "gaps" => self.long(side, always, |s| s.gaps, |_| 0, cells),
            "gap_min" => self.long(side, timed, |s| s.gap.min, |g| g.gap.min, cells),
            "gap_max" => self.long(side, timed, |s| s.gap.max, |g| g.gap.max, cells),
            "gap_sum" => self.long(side, timed, |s| s.gap.sum, |g| g.gap.sum, cells),
            "gap_squares" => self.wide(side, timed, |s| s.gap.squares, |g| g.gap.squares, cells),
            _ => {}
        }
    }

    /// Of each record, what one side has, if it is known; and if it is not, only what would read back as something else.
    fn one<'a, N: PartialEq + 'a>(
        &'a self,
        side: usize,
        known: impl Fn(&Side) -> bool + 'a,
        value: impl Fn(&Side) -> N + 'a,
        taken: impl Fn(&Guess) -> N + 'a,
    ) -> impl Iterator<Item = Option<N>> + 'a {
        self.records.iter().zip(&self.guesses).map(move |(record, guesses)| {
            let (of, guess) = (&record.sides[side], &guesses[side]);
            let value = value(of);
            (known(of) || value != taken(guess)).then_some(value)
        })
    }

    fn long(
        &self,
        side: usize,
        known: impl Fn(&Side) -> bool,
        value: impl Fn(&Side) -> u64,
        taken: impl Fn(&Guess) -> u64,
        cells: &mut Cells,
    ) {
        numbers(self.one(side, known, value, taken), cells);
    }

    fn wide(
        &self,
        side: usize,
        known: impl Fn(&Side) -> bool,
        value: impl Fn(&Side) -> u128,
        taken: impl Fn(&Guess) -> u128,
        cells: &mut Cells,
    ) {
        cells.clear();
        for value in self.one(side, known, value, taken) {
            cells.there.push(u8::from(value.is_some()));
            cells.wide.extend(value);
        }
    }

    /// The gap before each of the first packets; before the very first there is none, which is 0.
    fn gaps(&self, cells: &mut Cells) {
        let counts = std::mem::take(&mut cells.counts);
        cells.clear();
        cells.counts = counts;
        for record in &self.records {
            let mut before = 0;
            for packet in &record.early {
                cells.there.push(1);
                cells.longs.push(packet.after.wrapping_sub(before) as i64);
                before = packet.after;
            }
        }
    }
}

fn numbers(values: impl Iterator<Item = Option<u64>>, cells: &mut Cells) {
    cells.clear();
    for value in values {
        cells.there.push(u8::from(value.is_some()));
        cells.longs.extend(value.map(|n| n as i64));
    }
}
