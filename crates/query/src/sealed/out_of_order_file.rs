//! A packet file whose packets are out of order: the cursor reads the blocks one by one in the order of their earliest
//! timestamps, and [`BlockMerge`] returns the packets in order of time. Memory is needed only for the matching packets
//! of blocks that overlap in time.

use super::file::{Blocks, FileMeta, SealedFile};
use super::index_ledger::IndexLedger;
use super::read_plan::BlockRead;
use crate::block::Block;
use crate::block_merge::{BlockMerge, BlockSource};
use crate::cursor::{Cursor, CursorState};
use crate::{QueryContext, QueryError};
use base::Timestamp;
use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;
use store::Hold;

/// Blocks read ahead.
const AHEAD: usize = 8;

/// A cursor over an out-of-order packet file.
pub struct OutOfOrderFile {
    about: FileMeta,
    file: Arc<File>,
    /// The blocks that must be read, each with its earliest timestamp and its position among blocks with equal
    /// timestamps, in descending order.
    wanted: Vec<(Timestamp, u32, BlockRead)>,
    /// The next blocks, with the reads that are in progress for them.
    ahead: VecDeque<(Timestamp, u32, SealedFile)>,
    /// The ledger of the index, until it is added to the context.
    index_ledger: Option<IndexLedger>,
    hold: Arc<Hold>,
}

impl OutOfOrderFile {
    /// A cursor over the blocks in `wanted`, each with its earliest timestamp.
    pub fn cursor(
        about: FileMeta,
        file: Arc<File>,
        wanted: impl Iterator<Item = (Timestamp, BlockRead)>,
        reported: IndexLedger,
        hold: &Arc<Hold>,
        context: &mut QueryContext,
    ) -> Box<dyn Cursor> {
        let mut wanted: Vec<_> = (0..).zip(wanted).map(|(number, (first, wanted))| (first, number, wanted)).collect();
        wanted.sort_by_key(|(first, number, _)| std::cmp::Reverse((*first, *number)));
        let reported = Some(reported);
        let mut mixed =
            Self { about, file, wanted, ahead: VecDeque::new(), index_ledger: reported, hold: Arc::clone(hold) };
        mixed.prepare(context);
        Box::new(BlockMerge::new(mixed))
    }

    fn prepare(&mut self, context: &mut QueryContext) {
        while self.ahead.len() < AHEAD
            && let Some((first, number, wanted)) = self.wanted.pop()
        {
            let blocks = Blocks::new(Arc::clone(&self.file), vec![wanted]);
            let mut file = SealedFile::new(self.about.clone(), blocks, None, &self.hold);
            file.prepare(context);
            self.ahead.push_back((first, number, file));
        }
    }
}

impl BlockSource for OutOfOrderFile {
    fn first(&self) -> Option<Timestamp> {
        self.ahead.front().map(|(first, ..)| *first)
    }

    fn load(&mut self, mut block: Box<Block>, context: &mut QueryContext) -> Result<Box<Block>, QueryError> {
        let Some((_, number, mut file)) = self.ahead.pop_front() else { return Ok(block) };
        self.prepare(context);
        block.begin(number);
        while let CursorState::Packet(_) = file.advance(context)? {
            block.push_found(&file.packet());
        }
        block.finish();
        Ok(block)
    }

    fn end(&mut self, context: &mut QueryContext) {
        if let Some(reported) = self.index_ledger.take() {
            reported.enter(context);
        }
    }
}
