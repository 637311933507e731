//! A packet file whose packets are not in order: its blocks are read in the order of their earliest stamps, each by itself, and
//! come out in that of time ([`Ordered`]). Memory is that of what answers in the blocks that overlap in time.

use super::file::{About, Blocks, SealedFile};
use super::told::Told;
use super::wanted::Wanted;
use crate::block::Block;
use crate::cursor::{Cursor, Stand};
use crate::ordered::{Ordered, Shelf};
use crate::{Book, QueryError};
use base::Timestamp;
use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;
use store::Hold;

/// Blocks that are asked of the disk ahead of their turn.
const AHEAD: usize = 8;

/// See the module.
pub struct Mixed {
    about: About,
    file: Arc<File>,
    /// What is to be read, no earlier than when, and which of equal stamps comes first; what begins first is last.
    wanted: Vec<(Timestamp, u32, Wanted)>,
    /// The next ones, being read.
    ahead: VecDeque<(Timestamp, u32, SealedFile)>,
    /// Until it was entered in the book.
    told: Option<Told>,
    hold: Arc<Hold>,
}

impl Mixed {
    /// A cursor over what is `wanted` of the file, each with the earliest stamp of its block.
    pub fn cursor(
        about: About,
        file: Arc<File>,
        wanted: impl Iterator<Item = (Timestamp, Wanted)>,
        told: Told,
        hold: &Arc<Hold>,
        book: &mut Book,
    ) -> Box<dyn Cursor> {
        let mut wanted: Vec<_> = (0..).zip(wanted).map(|(number, (first, wanted))| (first, number, wanted)).collect();
        wanted.sort_by_key(|(first, number, _)| std::cmp::Reverse((*first, *number)));
        let told = Some(told);
        let mut mixed = Self { about, file, wanted, ahead: VecDeque::new(), told, hold: Arc::clone(hold) };
        mixed.prepare(book);
        Box::new(Ordered::new(mixed))
    }

    fn prepare(&mut self, book: &mut Book) {
        while self.ahead.len() < AHEAD
            && let Some((first, number, wanted)) = self.wanted.pop()
        {
            let blocks = Blocks::new(Arc::clone(&self.file), vec![wanted]);
            let mut file = SealedFile::new(self.about.clone(), blocks, None, &self.hold);
            file.prepare(book);
            self.ahead.push_back((first, number, file));
        }
    }
}

impl Shelf for Mixed {
    fn first(&self) -> Option<Timestamp> {
        self.ahead.front().map(|(first, ..)| *first)
    }

    fn load(&mut self, mut block: Box<Block>, book: &mut Book) -> Result<Box<Block>, QueryError> {
        let Some((_, number, mut file)) = self.ahead.pop_front() else { return Ok(block) };
        self.prepare(book);
        block.begin(number);
        while let Stand::Packet(_) = file.advance(book)? {
            block.push_found(&file.packet());
        }
        block.finish();
        Ok(block)
    }

    fn end(&mut self, book: &mut Book) {
        if let Some(told) = self.told.take() {
            told.enter(book);
        }
    }
}
