//! Finds missing flow records. The series row of each second states how many flows began in this second. Each of these
//! flows has a first flow record, which has the same second.
//!
//! A flow without a first record may have another cause than a removed file. While a recorder runs, the flows in its
//! flow table have no record yet. A crash loses the flows in the flow table. Retention may remove flow records earlier
//! than series rows. The last two causes leave no trace, so a loss that they can explain is reported as uncertain.

use crate::error::ColumnsError;
use crate::file_layout::DataFileKind;
use crate::missing_rows::MissingSeconds;
use crate::query::Query;
use crate::results::{flows, series};
use base::Timestamp;
use base::units::plural;
use flow::EndReason;
use series::Direction;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use store::claim::Claim;

/// The numbers of flows in one second of an interface.
#[derive(Default)]
struct SecondOfFlows {
    /// Number of flows that began in the second, according to the series rows.
    begun: u64,
    /// Number of flows in the flow table at the end of the second, according to the series rows.
    active: u64,
    /// Number of flows whose first flow record begins in the second.
    recorded: u64,
}

/// Describes the flow records that are missing in an interface's directory, with true if a file of flow records is
/// certainly missing. `None` if no record is missing, or if the directory has no series rows. `recordings` has the
/// seconds with packets of each recording.
///
/// # Errors
/// If the store cannot be read.
pub fn missing_flow_records(root: &Path, recordings: &[Vec<u64>]) -> Result<Option<(bool, String)>, ColumnsError> {
    let (Some(store), Some(name)) = (root.parent(), root.file_name().and_then(|name| name.to_str())) else {
        return Ok(None);
    };
    let is_running = Claim::holder(root).is_some();
    let query = Query { interfaces: vec![name.to_owned()], ..Query::new(store) };
    let mut rows: BTreeMap<u64, SecondOfFlows> = BTreeMap::new();
    let of_rows = Some(["flows_new", "flows_active"].map(str::to_owned).to_vec());
    for row in series(&Query { fields: of_rows, ..query.clone() })?.filter(|row| row.direction == Direction::In) {
        let second = rows.entry(row.second).or_default();
        second.begun += row.flows_new;
        second.active += row.flows_active;
    }
    let Some((&last, SecondOfFlows { active, .. })) = rows.last_key_value() else { return Ok(None) };
    let in_table = if is_running { *active } else { 0 };
    // The rows are read before the records, so a flow that ends in the meantime is not counted as missing.
    let fields = Some(["first", "first_nanos", "age_ns", "record_index", "end_reason"].map(str::to_owned).to_vec());
    let (mut oldest, mut forced_ends) = (None, 0);
    for record in flows(&Query { fields, ..query })? {
        forced_ends += u64::from(record.end_reason == EndReason::ForcedEnd);
        if record.record_index > 0 {
            continue;
        }
        let begin = record.flow_start.secs();
        oldest.get_or_insert(begin);
        if let Some(second) = rows.get_mut(&begin) {
            second.recorded += 1;
        }
    }
    let retained_from = oldest.map_or(u64::MAX, |second| second.saturating_add(DataFileKind::Flows.reach().as_secs()));
    let (mut all, mut after_retention, mut surplus) = (MissingSeconds::default(), MissingSeconds::default(), 0);
    for (second, SecondOfFlows { begun, recorded, .. }) in &rows {
        // A flow whose first packet arrived late may count in the row of another second than that of its record.
        surplus += recorded.saturating_sub(*begun);
        if begun > recorded {
            all.add(*second, begun - recorded);
            if *second >= retained_from {
                after_retention.add(*second, begun - recorded);
            }
        }
    }
    if all.count <= surplus + in_table {
        return Ok(None);
    }
    let is_certain = after_retention.count > surplus + lost_in_crashes(&rows, last, recordings, forced_ends);
    let (missing, cause) = match is_certain {
        true => (after_retention, "flow records are missing"),
        false => (all, "a crash lost the flows, retention removed their records, or the records are missing"),
    };
    Ok(missing.without_flow_records().map(|text| (is_certain, format!("{text}: {cause}"))))
}

/// The largest number of flows that crashes may have lost. A flow that was in the flow table at the end of a recording
/// has a record with the reason `forced_end`, unless the recorder crashed.
fn lost_in_crashes(rows: &BTreeMap<u64, SecondOfFlows>, last: u64, recordings: &[Vec<u64>], forced_ends: u64) -> u64 {
    let ends = recordings.iter().filter_map(|seconds| seconds.iter().max());
    let ends: BTreeSet<u64> = ends.copied().chain([last]).collect();
    // The last row of a recording is that of its last second with packets, or of the second before or after it.
    let active = |end: &u64| rows.range(end.saturating_sub(1)..=end + 1).map(|(_, second)| second.active).max();
    ends.iter().filter_map(active).sum::<u64>().saturating_sub(forced_ends)
}

impl MissingSeconds {
    /// Describes the flows without a record; `None` if there are none.
    fn without_flow_records(&self) -> Option<String> {
        let first = Timestamp::from_secs_nanos(self.begin?, 0);
        let (seconds, flows) = (self.seconds(), plural(self.count, "flow", "flows"));
        Some(format!("the one-second rows of {seconds}, the first at {first}, count {flows} without a flow record"))
    }
}
