//! Writes flow records to a Parquet file that has all fields of a record, in the columns that the flow record files of
//! a store have. Writes groups to a Parquet file that has one column for each key of the JSON object of a group.

use super::ranking;
use crate::flow_records::names::Names;
use crate::flow_records::query::{self, RecordSource};
use crate::flow_records::source::{Records, Step};
use crate::outcome::Failure;
use crate::output::target::ProtectedPaths;
use crate::parquet;
use aggregate::Aggregation;
use flow::Record;
use std::cell::RefCell;
use std::path::Path;

/// The paths that the output must not overwrite.
pub fn protected(flow_query: &query::FlowQuery, force: bool) -> ProtectedPaths<'_> {
    let files = match &flow_query.source {
        RecordSource::Files(files) => &files[..],
        _ => &[],
    };
    ProtectedPaths { store: flow_query.store(), files, force }
}

/// Writes the records; returns their number.
pub fn records(
    path: &Path,
    protected: ProtectedPaths<'_>,
    flow_query: &query::FlowQuery,
    records: &mut Records<'_>,
) -> Result<u64, Failure> {
    parquet::write(path, protected, "records", |out| {
        let (mut failed, mut found) = (None, 0);
        let records = RefCell::new(records);
        let mut next = || loop {
            if flow_query.limit.is_some_and(|limit| found >= limit) {
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
        // The names are collected after the last record, because files contain interface names between the records.
        let names = || records.borrow().names().all().to_vec();
        let written = match &flow_query.source {
            // The records of files may be in any order. The Parquet file is sorted by the start of the flows.
            RecordSource::Files(_) => {
                let mut all: Vec<Record> = std::iter::from_fn(&mut next).collect();
                all.sort_by_key(|r| (r.first(), r.id, r.record_index));
                columns::write_flows(out, &mut all.into_iter(), &names)
            }
            _ => columns::write_flows(out, &mut std::iter::from_fn(&mut next), &names),
        };
        (failed.map_or(Ok(found), Err), written)
    })
}

/// Writes the groups, greatest first.
pub fn groups(path: &Path, protected: ProtectedPaths<'_>, report: &Aggregation, names: &Names) -> Result<(), Failure> {
    let columns = ranking::columns(report, names);
    let write = |out| (Ok(report.lines.len() as u64), columns::write_table(out, &columns));
    parquet::write(path, protected, "groups", write).map(|_| ())
}
