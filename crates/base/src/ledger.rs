//! The loss ledger: for every second, `offered = stored + filtered + duplicate + lost(by cause)`.
//!
//! A [`Tally`] is one set of those terms; a [`Row`] is the tally of one second; a [`Ledger`] is the rows of one
//! capture in time order. A [`Tally::residue`] other than zero is a bug in netgrain; every test that moves packets
//! asserts that the residue is zero.

use crate::events::{Cause, Note};
use crate::second_map::SecondMap;
use std::ops::AddAssign;

/// The terms of the accounting equation over some period, in packets. Bytes are counted as on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Packets that reached the counting point.
    pub offered: u64,
    /// Packets stored.
    pub stored: u64,
    /// Wire bytes of the packets stored.
    pub stored_bytes: u64,
    /// Packets rejected by the capture filter.
    pub filtered: u64,
    /// Packets removed as duplicates.
    pub duplicate: u64,
    /// Packets lost, by [`Cause`].
    pub lost: [u64; Cause::COUNT],
    /// Informational counters, by [`Note`]; they are not terms of the equation.
    pub notes: [u64; Note::COUNT],
}

impl Tally {
    /// Number of counters.
    pub const TERMS: usize = 5 + Cause::COUNT + Note::COUNT;

    /// The counters in the order of declaration.
    pub fn terms(&self) -> [u64; Self::TERMS] {
        let mut out = [0; Self::TERMS];
        out[..5].copy_from_slice(&[self.offered, self.stored, self.stored_bytes, self.filtered, self.duplicate]);
        out[5..5 + Cause::COUNT].copy_from_slice(&self.lost);
        out[5 + Cause::COUNT..].copy_from_slice(&self.notes);
        out
    }

    /// The inverse of [`Tally::terms`].
    pub fn from_terms(terms: &[u64; Self::TERMS]) -> Self {
        let [offered, stored, stored_bytes, filtered, duplicate, ..] = *terms;
        let mut out = Self { offered, stored, stored_bytes, filtered, duplicate, ..Self::default() };
        out.lost.copy_from_slice(&terms[5..5 + Cause::COUNT]);
        out.notes.copy_from_slice(&terms[5 + Cause::COUNT..]);
        out
    }

    /// The sum of the losses of all causes.
    pub fn lost_total(&self) -> u64 {
        self.lost.iter().sum()
    }

    /// `offered - stored - filtered - duplicate - lost`; a value other than zero is a bug.
    pub fn residue(&self) -> i64 {
        let accounted = self.stored + self.filtered + self.duplicate + self.lost_total();
        self.offered.wrapping_sub(accounted) as i64
    }

    /// Counts packets as offered and as lost by this cause.
    pub fn add_lost(&mut self, cause: Cause, packets: u64) {
        self.offered += packets;
        self.lost[cause as usize] += packets;
    }

    /// True if all counters are zero.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The losses that are not zero, in the order of declaration.
    pub fn losses(&self) -> impl Iterator<Item = (Cause, u64)> + '_ {
        Cause::ALL.iter().map(|c| (*c, self.lost[*c as usize])).filter(|(_, n)| *n > 0)
    }

    /// The notes that are not zero, in the order of declaration.
    pub fn nonzero_notes(&self) -> impl Iterator<Item = (Note, u64)> + '_ {
        Note::ALL.iter().map(|c| (*c, self.notes[*c as usize])).filter(|(_, n)| *n > 0)
    }

    /// `self - earlier`, term by term: the increase of cumulative counters between two readings.
    #[must_use]
    pub fn minus(&self, earlier: &Self) -> Self {
        let mut out = *self;
        out.offered -= earlier.offered;
        out.stored -= earlier.stored;
        out.stored_bytes -= earlier.stored_bytes;
        out.filtered -= earlier.filtered;
        out.duplicate -= earlier.duplicate;
        for (a, b) in out.lost.iter_mut().zip(earlier.lost) {
            *a -= b;
        }
        for (a, b) in out.notes.iter_mut().zip(earlier.notes) {
            *a -= b;
        }
        out
    }
}

impl AddAssign<&Tally> for Tally {
    fn add_assign(&mut self, other: &Tally) {
        self.offered += other.offered;
        self.stored += other.stored;
        self.stored_bytes += other.stored_bytes;
        self.filtered += other.filtered;
        self.duplicate += other.duplicate;
        for (a, b) in self.lost.iter_mut().zip(other.lost) {
            *a += b;
        }
        for (a, b) in self.notes.iter_mut().zip(other.notes) {
            *a += b;
        }
    }
}

/// One second of a [`Ledger`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Seconds since 1970 (UTC).
    pub second: u64,
    /// The counters of this second.
    pub tally: Tally,
}

/// Rows by second, merged from any number of queues or files. A ledger holds at most [`Ledger::MAX_ROWS`] rows. Older
/// seconds are added to the oldest row that remains, so that the total stays exact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    rows: SecondMap,
}

impl Ledger {
    /// The seconds of one day.
    pub const MAX_ROWS: usize = 86_400;
    /// Rows that a full ledger adds to the oldest remaining row at a time: the oldest rows are encoded, and a full
    /// ledger would otherwise decode them for each new second.
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

    /// True if the ledger has no row.
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

    #[test]
    fn a_loss_counts_as_offered_and_as_lost() {
        let mut t = Tally::default();
        t.add_lost(Cause::RingFull, 3);
        assert_eq!((t.offered, t.lost_total(), t.residue()), (3, 3, 0));
        t.stored = 1;
        assert_eq!(t.residue(), -1);
    }
}
