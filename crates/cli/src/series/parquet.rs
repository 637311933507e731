//! Rows as a Parquet file, with the columns of those in a store.

use super::source::Rows;
use crate::outcome::Failure;
use crate::packets::target::Target;
use series::Row;
use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};

/// Writes them; says how many.
pub fn write(
    path: &Path,
    store: Option<&Path>,
    read: &[PathBuf],
    first: Option<Row>,
    rows: &mut Rows,
) -> Result<u64, Failure> {
    let (target, out) = Target::open(path, false, store, read)?;
    let (mut first, mut failed, mut found) = (first, None, 0);
    let rows = RefCell::new(rows);
    let mut next = || {
        let row = match first.take() {
            Some(row) => Some(row),
            None if found == 0 => None,
            None => rows.borrow_mut().next().unwrap_or_else(|e| {
                failed = Some(e);
                None
            }),
        };
        found += u64::from(row.is_some());
        row
    };
    let names = || rows.borrow().names().all().to_vec();
    let out = io::BufWriter::with_capacity(1 << 20, out);
    let written = columns::write_series(out, &mut std::iter::from_fn(&mut next), &names);
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
    sys::say!("netgrain: {} rows into {}", base::units::show_count(found), target.name());
    outcome
}
