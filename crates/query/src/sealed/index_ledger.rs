//! What the index of a file tells of the interval besides packets: what was stored, filtered and lost.

use super::plan::Indexed;
use crate::QueryContext;
use base::{Tally, Timestamp};
use index::{Block, Rows};

/// An index whose file is done with, or will be.
pub struct IndexLedger {
    origin: usize,
    /// Lost behind the last block that is walked.
    lost_after: u64,
    indexed: Indexed,
}

impl IndexLedger {
    /// Nothing is read yet.
    pub fn new(origin: usize, lost_after: u64, indexed: Indexed) -> Self {
        Self { origin, lost_after, indexed }
    }

    /// Enters it in the book: of a file that the interval has all of, its sums; else the rows of the blocks that overlap,
    /// as far as their seconds do.
    pub fn enter(mut self, book: &mut QueryContext) {
        let (from, to) = (book.query.from, book.query.to);
        book.add_lost(self.origin, self.lost_after);
        if self.indexed.is_inside(from, to) {
            return book.count(self.origin, &self.indexed.reader.summary().tally);
        }
        let Indexed { reader, file } = &mut self.indexed;
        let before = reader.bytes_read();
        let mut tally = Tally::default();
        let (mut since, end) = (reader.header().start, reader.summary().end);
        for i in 0..reader.blocks().len() {
            let block = reader.blocks()[i];
            let is_last = i + 1 == reader.blocks().len();
            let (first, last) = ledger_of(&block, since, if is_last { end } else { block.last });
            since = block.last;
            if first.secs() <= to.secs() && from.secs() <= last.secs() {
                match reader.rows(file, i) {
                    Ok(rows) => add_inside(&mut tally, &rows, from, to),
                    Err(e) => book.warning(format!("a part of an index cannot be read ({e}); netgrain verify")),
                }
            }
        }
        book.count(self.origin, &tally);
        book.cost.index_bytes_read += reader.bytes_read() - before;
    }
}

/// From when to when the rows of a block can be: it tells of all that happened since the packets of the one before, and the
/// last one to the `end` of the file too. Of a block without packets, nothing is known.
pub fn ledger_of(block: &Block, since: Timestamp, end: Timestamp) -> (Timestamp, Timestamp) {
    match block.packets {
        0 => (Timestamp::ZERO, Timestamp::MAX),
        _ => (since.min(block.first), end.max(block.last)),
    }
}

/// Adds the rows of the seconds that the interval touches.
fn add_inside(tally: &mut Tally, rows: &Rows, from: Timestamp, to: Timestamp) {
    for run in rows.runs().filter(|run| from.secs() <= run.second && run.second <= to.secs()) {
        *tally += &run.tally;
    }
}
