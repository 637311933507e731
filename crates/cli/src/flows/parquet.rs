//! An answer as a Parquet file, with the columns of those in a store and every value that is known.

use super::asked::{Asked, Place};
use super::source::{Records, Step};
use crate::outcome::Failure;
use crate::packets::target::Target;
use flow::Record;
use std::cell::RefCell;
use std::io;
use std::path::Path;

/// Writes the records; says how many.
pub fn write(path: &Path, asked: &Asked, records: &mut Records<'_>) -> Result<u64, Failure> {
    let read = match &asked.place {
        Place::Files(files) => &files[..],
        _ => &[],
    };
    let (target, out) = Target::open(path, false, asked.store(), read)?;
    let mut failed = None;
    let mut found = 0;
    let records = RefCell::new(records);
    let mut next = || loop {
        if asked.limit.is_some_and(|limit| found >= limit) {
            return None;
        }
        match records.borrow_mut().next() {
            Ok(Step::Record(record)) => {
                found += 1;
                return Some(record);
            }
            Ok(Step::Idle) => {}
            Ok(Step::End) => return None,
            Err(e) => {
                failed = Some(e);
                return None;
            }
        }
    };
    let out = io::BufWriter::with_capacity(1 << 20, out);
    // Asked when all records have come: those of files bring names along.
    let names = || records.borrow().names().all().to_vec();
    let written = match &asked.place {
        // A file may have them in any order; Parquet has them in that in which they begin.
        Place::Files(_) => {
            let mut all: Vec<Record> = std::iter::from_fn(next).collect();
            all.sort_by_key(|r| (r.first(), r.id, r.part));
            columns::write_flows(out, &mut all.into_iter(), &names)
        }
        _ => columns::write_flows(out, &mut std::iter::from_fn(&mut next), &names),
    };
    let outcome = match (failed, written) {
        (Some(e), _) => Err(e),
        (None, Err(e)) if e.kind() == io::ErrorKind::BrokenPipe => Err(Failure::ClosedPipe),
        (None, Err(e)) => Err(Failure::Said(format!("{}: {e}", target.name()))),
        (None, Ok(())) => Ok(found),
    };
    if outcome.is_err() || found == 0 {
        target.remove();
        return outcome;
    }
    target.publish()?;
    sys::say!("netgrain: {} records into {}", base::units::show_count(found), target.name());
    outcome
}
