//! Writes rows as a Parquet file, with the columns of a store.

use super::source::Rows;
use crate::outcome::Failure;
use crate::output::target::ProtectedPaths;
use crate::parquet;
use series::Row;
use std::cell::RefCell;
use std::path::Path;

/// Writes `first` and all following rows; returns their number.
pub fn write(path: &Path, protected: ProtectedPaths<'_>, first: Option<Row>, rows: &mut Rows) -> Result<u64, Failure> {
    parquet::write(path, protected, "rows", |out| {
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
        let written = columns::write_series(out, &mut std::iter::from_fn(&mut next), &names);
        (failed.map_or(Ok(found), Err), written)
    })
}
