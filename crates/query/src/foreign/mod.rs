//! Capture files of anyone, with an index beside them or without: pcap, pcapng and RAW, in the order of time also where a
//! file is not.

mod block;
mod capture;
mod context;
mod plan;
mod walk;

use crate::cursor::{Cursor, Rank, Supply};
use crate::{Book, QueryError};
use base::Timestamp;
use capture::Capture;
use plan::Plan;
use std::path::PathBuf;
use walk::Walk;

/// Bytes of packets that may be kept of files that had to be read whole, all together.
const ROOM: usize = 64 << 20;

/// These files as a supply of cursors, in the order in which they can begin. Those without an index are read here, because
/// nothing else tells when their first packet was.
///
/// # Errors
/// When one of them cannot be read at all.
pub fn supply(files: &[PathBuf], book: &mut Book) -> Result<Box<dyn Supply>, QueryError> {
    // Names first: a file that cannot be asked is told before the others have cost anything.
    for path in files {
        Capture::open(path)?;
    }
    let mut room = ROOM;
    let mut plans = Vec::new();
    for (number, path) in files.iter().enumerate() {
        if book.is_stopped() {
            break;
        }
        let (capture, file) = Capture::open(path)?;
        book.cost.files += 1;
        book.cost.bytes += capture.bytes;
        let plan = Plan::by_reading(capture, &file, &mut room, book)?;
        if plan.blocks.is_empty() {
            book.cost.files_skipped += 1;
        } else {
            plans.push((number as u32, plan));
        }
    }
    plans.sort_by_key(|(number, plan)| std::cmp::Reverse((plan.first(), *number)));
    Ok(Box::new(Files(plans)))
}

/// Plans, those that begin last first.
struct Files(Vec<(u32, Plan)>);

impl Supply for Files {
    fn begins(&mut self, _book: &mut Book) -> Result<Option<Timestamp>, QueryError> {
        Ok(self.0.last().and_then(|(_, plan)| plan.first()))
    }

    fn open(&mut self, _book: &mut Book) -> Result<Option<(Rank, Box<dyn Cursor>)>, QueryError> {
        let Some((number, plan)) = self.0.pop() else { return Ok(None) };
        Ok(Some(((number, 0), Box::new(Walk::new(plan)))))
    }
}
