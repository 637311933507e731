//! The ledger rows of one block while it fills, and what of them is news to the writing machine.

use base::{Row, Tally};
use ring::{Desc, flag};

/// Rows looked at for the second of a new one, so that hours of silence do not make each second dearer.
const NEAR: usize = 8;

const NANOS: u64 = 1_000_000_000;

/// See the module.
#[derive(Default)]
pub(super) struct Seconds {
    told: Vec<Row>,
    news: Vec<Row>,
    /// The row being filled, and the first nanosecond of its second: one compare per packet instead of a division.
    tally: Tally,
    second_at: u64,
    counting: bool,
}

impl Seconds {
    /// One packet stored.
    #[inline]
    pub fn packet(&mut self, d: &Desc, wire_len: u32) {
        if d.ts.wrapping_sub(self.second_at) >= NANOS || !self.counting {
            self.begin(d.timestamp().secs());
        }
        self.tally.offered += 1;
        self.tally.stored += 1;
        self.tally.stored_bytes += u64::from(wire_len);
        if d.flags != 0 {
            remark(&mut self.tally, d.flags);
        }
    }

    /// Anything else that happened in a second; a tally of zeros says that nothing did.
    pub fn count(&mut self, second: u64, tally: &Tally) {
        if !self.counting || self.second_at != second.saturating_mul(NANOS) {
            self.begin(second);
        }
        self.tally += tally;
    }

    /// Whether something happened that was not told; seconds of silence can wait.
    pub fn has_news(&mut self) -> bool {
        self.end();
        self.news.iter().any(|r| !r.tally.is_empty())
    }

    /// Whether there is any row at all, told or not.
    pub fn has_anything(&mut self) -> bool {
        self.end();
        !self.news.is_empty() || !self.told.is_empty()
    }

    /// What was not told yet; it is now.
    pub fn tell(&mut self) -> Vec<Row> {
        self.end();
        let news = std::mem::take(&mut self.news);
        news.iter().for_each(|row| add(&mut self.told, row));
        news
    }

    /// What was told of this block.
    pub fn told(&self) -> &[Row] {
        &self.told
    }

    /// The next block begins; what was not told will be told with it.
    pub fn next_block(&mut self) {
        self.told.clear();
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
            add(&mut self.news, &Row { second: self.second_at / NANOS, tally });
            self.counting = false;
        }
    }
}

/// The row of one stored packet.
pub(super) fn row_of(d: &Desc, wire_len: u32) -> Row {
    let mut tally = Tally { offered: 1, stored: 1, stored_bytes: u64::from(wire_len), ..Tally::default() };
    remark(&mut tally, d.flags);
    Row { second: d.timestamp().secs(), tally }
}

/// Adds a row to rows; almost always to the last one. Rows of one second may stay apart when that second is long past:
/// their sum is what counts.
fn add(rows: &mut Vec<Row>, row: &Row) {
    match rows.iter_mut().rev().take(NEAR).find(|r| r.second == row.second) {
        Some(found) => found.tally += &row.tally,
        None => rows.push(*row),
    }
}

#[cold]
fn remark(tally: &mut Tally, flags: u8) {
    for (bit, note) in flag::REMARKS {
        tally.notes[note as usize] += u64::from(flags & bit != 0);
    }
}
