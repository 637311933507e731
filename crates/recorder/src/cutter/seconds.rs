//! The ledger rows (outcome counters of one second each) of one block while the block is being filled. A part contains
//! only the ledger rows that were added since the previous part, and the writer adds them up. If each part repeated the
//! rows of earlier parts, memory would grow with the square of the number of seconds during which a block of a slow
//! interface is filled.

use base::{Note, Row, Tally};
use index::Rows;
use ring::{Desc, flag};

const NANOS: u64 = 1_000_000_000;

/// The ledger rows of the current block that were not sent to the writer yet.
#[derive(Default)]
pub(super) struct Seconds {
    /// True if ledger rows of this block were sent to the writer.
    reported: bool,
    new_rows: Rows,
    /// The tally of the current second, and the first nanosecond of this second. A comparison with this nanosecond
    /// shows whether a packet is in the second; computing the second of each packet would need a division.
    tally: Tally,
    second_at: u64,
    counting: bool,
}

impl Seconds {
    /// Adds a stored packet.
    #[inline]
    pub fn packet(&mut self, d: &Desc, wire_len: u32) {
        if d.ts.wrapping_sub(self.second_at) >= NANOS || !self.counting {
            self.begin(d.timestamp().secs());
        }
        self.tally.offered += 1;
        self.tally.stored += 1;
        self.tally.stored_bytes += u64::from(wire_len);
        if d.flags != 0 {
            add_notes(&mut self.tally, d.flags);
        }
    }

    /// Adds the counts of lost or filtered packets, or the zeros of a tick, to the ledger row of a second; zeros create
    /// a row of zeros if the second has no row.
    pub fn count(&mut self, second: u64, tally: &Tally) {
        if !self.counting || self.second_at != second.saturating_mul(NANOS) {
            self.begin(second);
        }
        self.tally += tally;
    }

    /// True if a row with counts was not sent yet. Rows of zeros are sent with the next part.
    pub fn has_unreported(&mut self) -> bool {
        self.end();
        !self.new_rows.is_silent()
    }

    /// True if the block has a ledger row, whether it was sent or not.
    pub fn has_content(&mut self) -> bool {
        self.end();
        !self.new_rows.is_empty() || self.reported
    }

    /// Returns the rows that were not sent yet; they count as sent afterwards.
    pub fn report(&mut self) -> Rows {
        self.end();
        self.reported |= !self.new_rows.is_empty();
        std::mem::take(&mut self.new_rows)
    }

    /// Begins the next block; rows that were not sent become rows of the next block.
    pub fn next_block(&mut self) {
        self.reported = false;
    }

    #[inline(never)]
    fn begin(&mut self, second: u64) {
        self.end();
        self.second_at = second.saturating_mul(NANOS);
        self.counting = true;
    }

    fn end(&mut self) {
        if self.counting {
            let tally = std::mem::take(&mut self.tally);
            self.new_rows.add(self.second_at / NANOS, &tally);
            self.counting = false;
        }
    }
}

/// The ledger row for one stored packet.
pub(super) fn row_of(d: &Desc, wire_len: u32) -> Row {
    let mut tally = Tally { offered: 1, stored: 1, stored_bytes: u64::from(wire_len), ..Tally::default() };
    add_notes(&mut tally, d.flags);
    Row { second: d.timestamp().secs(), tally }
}

/// The counts of these clock steps.
pub(super) fn steps_tally(steps: u32) -> Tally {
    let mut tally = Tally::default();
    tally.notes[Note::ClockStep as usize] = steps.into();
    tally
}

#[cold]
fn add_notes(tally: &mut Tally, flags: u8) {
    for (bit, note) in flag::NOTE_FLAGS {
        tally.notes[note as usize] += u64::from(flags & bit != 0);
    }
}
