//! The values of all terms of the accounting equation over some period: `offered = stored + filtered + duplicate +
//! lost(by cause)`.

use crate::events::{Cause, Note};
use std::ops::AddAssign;

/// The terms of the accounting equation over some period, in packets. Bytes are counted as on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Packets that reached the point at which the source counts packets.
    pub offered: u64,
    /// Packets stored.
    pub stored: u64,
    /// Bytes on the wire of the stored packets.
    pub stored_bytes: u64,
    /// Packets that the capture filter refused, or that the program of the interface excluded from the ring.
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

    /// All counters of the tally, in the order of declaration.
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

    /// Adds packets to the offered counter and to the counter of this loss cause.
    pub fn add_lost(&mut self, cause: Cause, packets: u64) {
        self.offered += packets;
        self.lost[cause as usize] += packets;
    }

    /// True if all counters are zero.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns each loss cause with a non-zero number of packets, in the order of declaration.
    pub fn losses(&self) -> impl Iterator<Item = (Cause, u64)> + '_ {
        Cause::ALL.iter().map(|c| (*c, self.lost[*c as usize])).filter(|(_, n)| *n > 0)
    }

    /// Returns each note with a non-zero value, in the order of declaration.
    pub fn nonzero_notes(&self) -> impl Iterator<Item = (Note, u64)> + '_ {
        Note::ALL.iter().map(|c| (*c, self.notes[*c as usize])).filter(|(_, n)| *n > 0)
    }

    /// Returns `self - earlier` for each term: the increase of cumulative counters between two readings.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_counts_as_offered_and_as_lost() {
        let mut t = Tally::default();
        t.add_lost(Cause::RingFull, 3);
        assert_eq!((t.offered, t.lost_total(), t.residue()), (3, 3, 0));
        t.stored = 1;
        assert_eq!(t.residue(), -1);
    }
}
