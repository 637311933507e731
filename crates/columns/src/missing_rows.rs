//! Finds missing rows of time series. The series row of each second states the number of packets that were stored in
//! this second. The indexes of the packet files state how many packets of this second the store contains. If the
//! numbers differ, or the row is absent, rows are missing.
//!
//! While a recorder runs, the newest rows may not be written yet, so only seconds up to the last row are compared. If
//! the rows of a second count fewer packets than the packet files contain, a row of that second is certainly missing,
//! unless one recording ended and a later one began in this second: a crash may have lost the last row of the earlier
//! recording. If a second has no row, its row is certainly missing if the same recording has complete rows before and
//! after the second, because a recording has a meter from its first packet to its last, or none. Any other second
//! without a row may have been recorded without a meter, its row may have been lost in a crash, or retention may have
//! removed it.
//!
//! If no second has a row, the rows may have been removed, or no series was recorded. If the store has flow records, a
//! meter ran, and the missing rows are reported as uncertain.

use crate::error::ColumnsError;
use crate::file_layout::{self, DataFileKind};
use crate::query::Query;
use crate::results::{FileScan, Warnings, series};
use base::units::plural;
use series::Direction;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use store::claim::Claim;

/// Describes the rows that are missing in an interface's directory, and returns each description with true if the rows
/// are certainly missing. `stored` has the number of stored packets of each second, in order; `recordings` has the
/// seconds with packets of each recording. Empty if the directory has neither rows nor flow records.
///
/// # Errors
/// If the store cannot be read.
pub fn missing_rows(
    root: &Path,
    stored: &[(u64, u64)],
    recordings: &[Vec<u64>],
) -> Result<Vec<(bool, String)>, ColumnsError> {
    let (Some(store), Some(name)) = (root.parent(), root.file_name().and_then(|name| name.to_str())) else {
        return Ok(Vec::new());
    };
    let (Some((first, _)), Some((last, _))) = (stored.first(), stored.last()) else { return Ok(Vec::new()) };
    let moment = |second: u64| base::Timestamp::from_secs_nanos(second, 0);
    let query = Query {
        interfaces: vec![name.to_owned()],
        from: moment(*first),
        to: moment(last.saturating_add(1)),
        fields: Some(vec!["stored".to_owned()]),
        ..Query::new(store)
    };
    let mut counted: BTreeMap<u64, u64> = BTreeMap::new();
    for row in series(&query)?.filter(|row| row.direction == Direction::In) {
        *counted.entry(row.second).or_default() += row.ledger.stored;
    }
    let Some(last_row) = counted.keys().next_back() else {
        let all = MissingSeconds {
            seconds: stored.len() as u64,
            count: stored.iter().map(|(_, count)| count).sum(),
            begin: Some(*first),
        };
        let text = all.without_rows(moment(*first));
        let text = format!("{text}; the store has flow records of this time, so a meter ran: its rows are missing, or");
        return Ok(match has_flow_records(root, &query) {
            true => vec![(false, format!("{text} it recorded no series"))],
            false => Vec::new(),
        });
    };
    let end = if Claim::holder(root).is_some() { last_row } else { last };
    let compared = stored.iter().filter(|(second, _)| second <= end);
    // A packet that is counted in the row of another second is not missing.
    let surplus: u64 = compared
        .clone()
        .map(|(s, count)| counted.get(s).map_or(0, |packets_in_row| packets_in_row.saturating_sub(*count)))
        .sum();
    let missing: u64 =
        compared.clone().map(|(s, count)| count.saturating_sub(counted.get(s).copied().unwrap_or(0))).sum();
    let within = if missing > surplus { within(stored, recordings, &counted) } else { BTreeSet::new() };
    let shared = shared_ends(recordings);
    let [mut fewer, mut ended, mut lost, mut unmetered] = std::array::from_fn(|_| MissingSeconds::default());
    for (second, count) in compared {
        match counted.get(second) {
            Some(packets_in_row) if packets_in_row < count => {
                let found = if shared.contains(second) { &mut ended } else { &mut fewer };
                found.add(*second, count - packets_in_row);
            }
            Some(_) => {}
            None if within.contains(second) => lost.add(*second, *count),
            None => unmetered.add(*second, *count),
        }
    }
    let mut found = Vec::new();
    if let Some(begin) = fewer.begin {
        found.push((true, format!("{}: rows are missing", fewer.with_too_few(moment(begin)))));
    }
    if let Some(begin) = ended.begin {
        let text = ended.with_too_few(moment(begin));
        found.push((false, format!("{text}: a recording ended there, and a crash may have lost its last row")));
    }
    if let Some(begin) = lost.begin {
        let text = lost.without_rows(moment(begin));
        found.push((true, format!("{text}, and the same recording has rows before and after them: rows are missing")));
    }
    if let Some(begin) = unmetered.begin {
        let text = unmetered.without_rows(moment(begin));
        let causes = "they were recorded without a meter, a crash lost the rows, retention removed them, or rows are \
                      missing";
        found.push((false, format!("{text}: {causes}")));
    }
    Ok(found)
}

/// True if the interface directory has a file or a journal that may have flow records of the interval of the query.
/// Only the names of files are read.
fn has_flow_records(root: &Path, query: &Query) -> bool {
    let has_journal = file_layout::journals(root, DataFileKind::Flows).is_ok_and(|journals| !journals.is_empty());
    has_journal || FileScan::new(root, DataFileKind::Flows, query, &Warnings::default()).peek().is_some()
}

/// The seconds in which one recording ended and a later one began. A crash loses at most the rows of the last second
/// before it, so the second before the end of a recording counts as its end too.
fn shared_ends(recordings: &[Vec<u64>]) -> BTreeSet<u64> {
    let range = |seconds: &Vec<u64>| Some((*seconds.iter().min()?, *seconds.iter().max()?));
    let ranges: Vec<(u64, u64)> = recordings.iter().filter_map(range).collect();
    let begins: BTreeSet<u64> = ranges.iter().map(|(begin, _)| *begin).collect();
    let shared = |(begin, end): &(u64, u64)| {
        let later = begins.range(end.saturating_sub(1).max(begin + 1)..=*end).next();
        later.map_or(0..0, |later| *later..end + 1)
    };
    ranges.iter().filter(|(begin, end)| begin < end).flat_map(shared).collect()
}

/// The seconds without a row between the first and the last complete second of the same recording.
fn within(stored: &[(u64, u64)], recordings: &[Vec<u64>], counted: &BTreeMap<u64, u64>) -> BTreeSet<u64> {
    let stored_in = |second: u64| stored.binary_search_by_key(&second, |(s, _)| *s).map_or(0, |at| stored[at].1);
    let is_complete =
        |second: &&u64| counted.get(second).is_some_and(|packets_in_row| *packets_in_row >= stored_in(**second));
    let mut found = BTreeSet::new();
    for seconds in recordings {
        let complete = || seconds.iter().filter(is_complete);
        let (Some(first), Some(last)) = (complete().min(), complete().max()) else { continue };
        found.extend(seconds.iter().filter(|s| (first..last).contains(s) && !counted.contains_key(s)));
    }
    found
}

/// Seconds in which rows or records are missing.
#[derive(Default)]
pub(crate) struct MissingSeconds {
    /// Number of these seconds.
    pub seconds: u64,
    /// Number of packets or flows that are missing in these seconds.
    pub count: u64,
    /// The first of these seconds.
    pub begin: Option<u64>,
}

impl MissingSeconds {
    pub fn add(&mut self, second: u64, count: u64) {
        (self.seconds, self.count) = (self.seconds + 1, self.count + count);
        self.begin.get_or_insert(second);
    }

    /// The number of seconds, with its noun.
    pub fn seconds(&self) -> String {
        plural(self.seconds, "second", "seconds")
    }

    fn with_too_few(&self, first: base::Timestamp) -> String {
        let (seconds, packets) = (self.seconds(), plural(self.count, "packet", "packets"));
        format!("the one-second rows of {seconds}, the first at {first}, count {packets} fewer than are stored")
    }

    fn without_rows(&self, first: base::Timestamp) -> String {
        let packets = plural(self.count, "packet", "packets");
        format!("{} with {packets} without a one-second row, the first at {first}", self.seconds())
    }
}

#[cfg(test)]
mod tests {
    use super::shared_ends;

    #[test]
    fn rows_are_uncertain_where_a_recording_ends_and_a_later_one_begins() {
        let killed: Vec<u64> = (10..=20).collect();
        assert!(shared_ends(std::slice::from_ref(&killed)).is_empty(), "no recording follows");
        let shared = |next: std::ops::RangeInclusive<u64>| {
            shared_ends(&[killed.clone(), next.collect()]).into_iter().collect::<Vec<u64>>()
        };
        assert_eq!(shared(21..=30), [0u64; 0], "the next recording begins in a later second");
        assert_eq!(shared(20..=30), [20]);
        assert_eq!(shared(19..=30), [19, 20]);
        assert_eq!(shared(10..=20), [0u64; 0], "two queues, or two replays of one capture");
        assert_eq!(shared(15..=30), [0u64; 0], "the recordings overlap by more than a crash explains");
    }
}
