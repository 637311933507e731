//! The loss ledger: for every second, `offered = stored + filtered + duplicate + lost(by cause)`.
//!
//! A [`Tally`] is one set of those terms; a [`Row`] is the tally of one second; a [`Ledger`] is the rows of one
//! capture in time order. Any [`Tally::residue`] is a bug, and every test that moves packets asserts that it is zero.

use crate::events::{Cause, Note};
use std::collections::BTreeMap;
use std::ops::AddAssign;

/// The terms of the accounting equation over some period, in packets; bytes are those on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Packets that reached the counting point.
    pub offered: u64,
    /// Packets stored.
    pub stored: u64,
    /// Wire bytes of the packets stored.
    pub stored_bytes: u64,
    /// Packets the capture filter refused.
    pub filtered: u64,
    /// Packets removed as duplicates.
    pub duplicate: u64,
    /// Packets lost, by [`Cause`].
    pub lost: [u64; Cause::COUNT],
    /// Remarks, by [`Note`]; not terms of the equation.
    pub notes: [u64; Note::COUNT],
}

impl Tally {
    /// All losses together.
    pub fn lost_total(&self) -> u64 {
        self.lost.iter().sum()
    }

    /// `offered - stored - filtered - duplicate - lost`; zero, or there is a bug.
    pub fn residue(&self) -> i64 {
        let accounted = self.stored + self.filtered + self.duplicate + self.lost_total();
        self.offered.wrapping_sub(accounted) as i64
    }

    /// Counts packets that were offered and lost.
    pub fn add_lost(&mut self, cause: Cause, packets: u64) {
        self.offered += packets;
        self.lost[cause as usize] += packets;
    }

    /// Whether nothing at all was counted.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The losses that are not zero, in the order of declaration.
    pub fn losses(&self) -> impl Iterator<Item = (Cause, u64)> + '_ {
        Cause::ALL.iter().map(|c| (*c, self.lost[*c as usize])).filter(|(_, n)| *n > 0)
    }

    /// The remarks that are not zero, in the order of declaration.
    pub fn nonzero_notes(&self) -> impl Iterator<Item = (Note, u64)> + '_ {
        Note::ALL.iter().map(|c| (*c, self.notes[*c as usize])).filter(|(_, n)| *n > 0)
    }

    /// Term by term `self - earlier`, for cumulative counters read twice.
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
    /// What happened in it.
    pub tally: Tally,
}

/// Rows by second, merged from any number of queues or files. Holds at most [`Ledger::MAX_ROWS`]; older seconds are
/// then folded into the oldest row kept, so that the total stays exact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    rows: BTreeMap<u64, Tally>,
}

impl Ledger {
    /// A day of seconds.
    pub const MAX_ROWS: usize = 86_400;

    /// An empty ledger.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds to the row of `second`.
    pub fn add(&mut self, second: u64, tally: &Tally) {
        *self.rows.entry(second).or_default() += tally;
        if self.rows.len() > Self::MAX_ROWS
            && let Some((_, oldest)) = self.rows.pop_first()
            && let Some(mut next) = self.rows.first_entry()
        {
            *next.get_mut() += &oldest;
        }
    }

    /// Adds every row of another ledger.
    pub fn merge(&mut self, other: &Self) {
        for (second, tally) in &other.rows {
            self.add(*second, tally);
        }
    }

    /// The rows in time order.
    pub fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        self.rows.iter().map(|(second, tally)| Row { second: *second, tally: *tally })
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The sum of all rows.
    pub fn total(&self) -> Tally {
        let mut total = Tally::default();
        for tally in self.rows.values() {
            total += tally;
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_survives_folding_old_rows() {
        let mut ledger = Ledger::new();
        for second in 0..Ledger::MAX_ROWS as u64 + 100 {
            ledger.add(second, &Tally { offered: 2, stored: 1, filtered: 1, ..Tally::default() });
        }
        assert_eq!(ledger.rows().count(), Ledger::MAX_ROWS);
        assert_eq!(ledger.total().offered, 2 * (Ledger::MAX_ROWS as u64 + 100));
        assert_eq!(ledger.total().residue(), 0);
    }

    #[test]
    fn a_loss_is_offered_and_lost() {
        let mut t = Tally::default();
        t.add_lost(Cause::RingFull, 3);
        assert_eq!((t.offered, t.lost_total(), t.residue()), (3, 3, 0));
        t.stored = 1;
        assert_eq!(t.residue(), -1);
    }
}
