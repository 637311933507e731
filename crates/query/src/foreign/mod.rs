//! Queries of foreign captures, with or without an index: pcap, pcapng and RAW. The result is in order of time even if
//! the packets of a file are out of order.

mod capture;
mod context;
pub mod indexes;
mod plan;

use crate::block::Block;
use crate::block_merge::{BlockMerge, BlockSource};
use crate::cursor::{Cursor, CursorSource, Rank};
use crate::{QueryContext, QueryError};
use base::Timestamp;
use capture::Capture;
use plan::Plan;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The largest number of bytes of packets, for all files together, that the query may store in memory from files that
/// it had to read completely.
const SPARE_BYTES: usize = 64 << 20;

/// Creates a cursor source of these files, in the order of their first timestamps. Files without an index are read in
/// this function, because their first timestamp is known only after a complete read.
///
/// # Errors
/// If one of the files cannot be read, or all of them are empty. An empty file among others is no error, but is
/// reported as damage.
pub fn cursor_source(files: &[PathBuf], query_context: &mut QueryContext) -> Result<Box<dyn CursorSource>, QueryError> {
    // All files are opened before the first is read, so that an unreadable file is reported immediately.
    let (mut captures, mut empty) = (Vec::new(), Vec::new());
    for path in files {
        let named = indexes::named(path)?;
        match Capture::open(named.as_deref().unwrap_or(path)) {
            Ok(_) => captures.push((named.unwrap_or_else(|| path.clone()), path)),
            // An empty file is accepted if another file is not empty, because a capture program that was killed before
            // its first write leaves an empty file.
            Err(e) if is_empty(path) => empty.push(e),
            Err(e) => return Err(e),
        }
    }
    match (captures.is_empty(), empty.is_empty()) {
        (true, false) => return Err(empty.remove(0)),
        _ => empty.iter().for_each(|e| query_context.damage(e.to_string())),
    }
    let mut room = SPARE_BYTES;
    let mut plans = Vec::new();
    for (number, (path, asked)) in captures.iter().enumerate() {
        if query_context.is_stopped() {
            break;
        }
        let (capture, file) = Capture::open(path)?;
        query_context.cost.files += 1;
        query_context.cost.bytes += capture.bytes;
        let by_index = match indexes::find(&capture, asked) {
            Ok(found) => {
                found.and_then(|(index, index_file)| Plan::by_index(&capture, &file, index, &index_file, query_context))
            }
            Err(unused) => {
                query_context.warning(unused.to_string());
                None
            }
        };
        let plan = match by_index {
            Some(plan) => plan,
            None => Plan::by_reading(capture, &file, &mut room, query_context)?,
        };
        if plan.blocks.is_empty() {
            query_context.cost.files_skipped += 1;
        } else {
            plans.push((number as u32, plan));
        }
    }
    plans.sort_by_key(|(number, plan)| std::cmp::Reverse((plan.first(), *number)));
    Ok(Box::new(Files(plans)))
}

/// True for a regular file of 0 bytes.
fn is_empty(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|about| about.is_file() && about.len() == 0)
}

/// The read plans of the files in descending order of time, so that `pop` returns the plan of the earliest file.
struct Files(Vec<(u32, Plan)>);

impl CursorSource for Files {
    fn begins(&mut self, _context: &mut QueryContext) -> Result<Option<Timestamp>, QueryError> {
        Ok(self.0.last().and_then(|(_, plan)| plan.first()))
    }

    fn open(&mut self, _context: &mut QueryContext) -> Result<Option<(Rank, Box<dyn Cursor>)>, QueryError> {
        let Some((number, plan)) = self.0.pop() else { return Ok(None) };
        Ok(Some(((number, 0), Box::new(BlockMerge::new(Blocks { plan, file: None })))))
    }
}

/// The source of the blocks of a foreign capture, for a [`BlockMerge`].
struct Blocks {
    plan: Plan,
    file: Option<File>,
}

impl BlockSource for Blocks {
    fn first(&self) -> Option<Timestamp> {
        self.plan.first()
    }

    fn load(&mut self, spare: Box<Block>, query_context: &mut QueryContext) -> Result<Box<Block>, QueryError> {
        Ok(match self.plan.blocks.pop() {
            Some(planned) => self.plan.load(planned, &mut self.file, spare, query_context),
            None => spare,
        })
    }
}
