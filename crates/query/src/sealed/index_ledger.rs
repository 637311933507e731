//! Adds the ledger in a file's index (the numbers of packets stored, filtered and lost in each second) to the result,
//! for the seconds of the interval.

use super::indexed::Indexed;
use crate::QueryContext;
use base::{Tally, Timestamp};
use index::{Block, Rows};

/// The ledger of the index of a file.
pub struct IndexLedger {
    origin: usize,
    /// Number of packets lost after the last scanned block.
    lost_after: u64,
    indexed: Indexed,
}

impl IndexLedger {
    /// Creates the ledger of an index; the ledger rows are read later.
    pub fn new(origin: usize, lost_after: u64, indexed: Indexed) -> Self {
        Self { origin, lost_after, indexed }
    }

    /// Adds the ledger of the index to the query context: the totals of the file if the interval contains the whole
    /// file, otherwise the ledger rows of the overlapping blocks, for the seconds inside the interval.
    pub fn enter(mut self, context: &mut QueryContext) {
        let (from, to) = (context.query.from, context.query.to);
        context.add_lost(self.origin, self.lost_after);
        if self.indexed.is_inside(from, to) {
            return context.count(self.origin, &self.indexed.reader.summary().tally);
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
                    Err(e) => context.warning(format!("a part of an index cannot be read ({e}); run netgrain verify")),
                }
            }
        }
        context.count(self.origin, &tally);
        context.cost.index_bytes_read += reader.bytes_read() - before;
    }
}

/// The time range that the ledger rows of a block may have: it begins at the last packet of the previous block, and
/// ends at the last packet of the block, or at the `end` of the file for the last block. For a block without packets,
/// the range is unknown.
pub fn ledger_of(block: &Block, since: Timestamp, end: Timestamp) -> (Timestamp, Timestamp) {
    match block.packets {
        0 => (Timestamp::ZERO, Timestamp::MAX),
        _ => (since.min(block.first), end.max(block.last)),
    }
}

/// Adds the ledger rows whose seconds overlap the interval to a tally.
fn add_inside(tally: &mut Tally, rows: &Rows, from: Timestamp, to: Timestamp) {
    for run in rows.runs().filter(|run| from.secs() <= run.second && run.second <= to.secs()) {
        *tally += &run.tally;
    }
}
