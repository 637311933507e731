//! The loss ledger: for every second, `offered = stored + filtered + duplicate + lost(by cause)`.
//!
//! A [`Tally`] contains the values of all terms of this equation. A [`Row`] is the tally of one second. A [`Ledger`]
//! contains the rows of one capture in time order. A [`Tally::residue`] other than zero is a bug in netgrain; every
//! test that moves packets asserts that the residue is zero.

use crate::second_map::SecondMap;
use crate::tally::Tally;

/// One second of a [`Ledger`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Seconds since 1970 (UTC).
    pub second: u64,
    /// The counters of this second.
    pub tally: Tally,
}

/// The tallies of a capture by second, merged from any number of queues or files. A ledger holds at most
/// [`Ledger::MAX_ROWS`] rows. The tallies of older seconds are added to the oldest remaining row, so that the total
/// stays exact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    rows: SecondMap,
}

impl Ledger {
    /// The seconds of one day.
    pub const MAX_ROWS: usize = 86_400;
    /// The number of rows that a full ledger adds to its oldest remaining row in one step. The oldest rows are stored
    /// in encoded form. If each step added one row, a full ledger would decode a chunk of rows for each new second.
    pub const FOLDED_ROWS: usize = 256;

    /// An empty ledger.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `tally` to the row of `second`.
    pub fn add(&mut self, second: u64, tally: &Tally) {
        match self.rows.get_mut(second) {
            Some((_, row)) => *row += tally,
            None => self.rows.insert(second, 1, *tally),
        }
        if self.rows.len() > Self::MAX_ROWS {
            self.fold();
        }
    }

    fn fold(&mut self) {
        let mut folded = Tally::default();
        while self.rows.len() > Self::MAX_ROWS - Self::FOLDED_ROWS
            && let Some((_, (_, oldest))) = self.rows.pop_first()
        {
            folded += &oldest;
        }
        if let Some((second, _)) = self.rows.first()
            && let Some((_, oldest)) = self.rows.get_mut(second)
        {
            *oldest += &folded;
        }
    }

    /// Adds every row of another ledger.
    pub fn merge(&mut self, other: &Self) {
        for row in other.rows() {
            self.add(row.second, &row.tally);
        }
    }

    /// The rows in time order.
    pub fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        self.rows.iter().map(|(second, (_, tally))| Row { second, tally })
    }

    /// True if the ledger has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The sum of all rows.
    pub fn total(&self) -> Tally {
        let mut total = Tally::default();
        self.rows().for_each(|row| total += &row.tally);
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_unchanged_when_old_rows_are_folded() {
        let mut ledger = Ledger::new();
        for second in 0..Ledger::MAX_ROWS as u64 + 100 {
            ledger.add(second, &Tally { offered: 2, stored: 1, filtered: 1, ..Tally::default() });
        }
        let rows = Ledger::MAX_ROWS - Ledger::FOLDED_ROWS..=Ledger::MAX_ROWS;
        assert!(rows.contains(&ledger.rows().count()));
        assert_eq!(ledger.total().offered, 2 * (Ledger::MAX_ROWS as u64 + 100));
        assert_eq!(ledger.total().residue(), 0);
    }
}
