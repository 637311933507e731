//! Records as a Parquet file, with the columns of those in a store and every value that is known; and groups as one, with the
//! columns of their `--json`.

use super::asked::{self, Place};
use super::source::{Records, Step};
use super::{names::Names, ranking};
use crate::outcome::Failure;
use crate::parquet::{self, Asked};
use flow::Record;
use report::Report;
use std::cell::RefCell;
use std::path::Path;

fn harmless(asked: &asked::Asked) -> Asked<'_> {
    let files = match &asked.place {
        Place::Files(files) => &files[..],
        _ => &[],
    };
    Asked { store: asked.store(), files }
}

/// Writes the records; says how many.
pub fn records(path: &Path, asked: &asked::Asked, records: &mut Records<'_>) -> Result<u64, Failure> {
    parquet::write(path, harmless(asked), "records", |out| {
        let (mut failed, mut found) = (None, 0);
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
        // Asked when all records have come: those of files bring names along.
        let names = || records.borrow().names().all().to_vec();
        let written = match &asked.place {
            // A file may have them in any order; Parquet has them in that in which they begin.
            Place::Files(_) => {
                let mut all: Vec<Record> = std::iter::from_fn(&mut next).collect();
                all.sort_by_key(|r| (r.first(), r.id, r.part));
                columns::write_flows(out, &mut all.into_iter(), &names)
            }
            _ => columns::write_flows(out, &mut std::iter::from_fn(&mut next), &names),
        };
        (failed.map_or(Ok(found), Err), written)
    })
}

/// Writes groups, greatest first.
pub fn groups(path: &Path, asked: &asked::Asked, report: &Report, names: &Names) -> Result<(), Failure> {
    let columns = ranking::columns(report, names);
    let write = |out| (Ok(report.lines.len() as u64), columns::write_table(out, &columns));
    parquet::write(path, harmless(asked), "groups", write).map(|_| ())
}
