//! Rows that are missing from a store: a row says how many packets were stored in its second, and the indexes of packet files
//! say the same of the packets that are there.
//!
//! Only seconds between the first row and the last are asked, for retention takes rows from one end, and what a crash took or is not
//! written yet lies at the other. A row that says of fewer packets than there are is certain: a second one of the same second is
//! missing. A second without a row is not: it may have been recorded without a meter.

use crate::error::ColumnsError;
use crate::query::{Query, series};
use series::Direction;
use std::collections::BTreeMap;
use std::path::Path;

/// What the rows of an interface's folder lack of these packets (seconds in order, and the packets stored in each), in words, and
/// whether that is certain. Nothing if there are no rows.
///
/// # Errors
/// When the store cannot be looked at.
pub fn missing_rows(root: &Path, stored: &[(u64, u64)]) -> Result<Vec<(bool, String)>, ColumnsError> {
    let (Some(store), Some(name)) = (root.parent(), root.file_name().and_then(|name| name.to_str())) else {
        return Ok(Vec::new());
    };
    let (Some((first, _)), Some((last, _))) = (stored.first(), stored.last()) else { return Ok(Vec::new()) };
    let moment = |second: u64| base::Timestamp::from_secs_nanos(second, 0);
    let query = Query {
        interfaces: vec![name.to_owned()],
        from: moment(*first),
        to: moment(last.saturating_add(1)),
        ..Query::new(store)
    };
    let mut told: BTreeMap<u64, u64> = BTreeMap::new();
    for row in series(&query)?.filter(|row| row.direction == Direction::In) {
        *told.entry(row.second).or_default() += row.ledger.stored;
    }
    let (Some(first), Some(last)) = (told.keys().next(), told.keys().next_back()) else { return Ok(Vec::new()) };
    let (mut fewer, mut without) = (Lack::default(), Lack::default());
    for (second, count) in stored.iter().filter(|(second, _)| (first..=last).contains(&second)) {
        match told.get(second) {
            Some(said) if said < count => fewer.add(*second, count - said),
            Some(_) => {}
            None => without.add(*second, *count),
        }
    }
    let Lack { seconds, packets, begin } = fewer;
    let fewer = begin.map(|begin| {
        let at = moment(begin);
        let text = format!("one-second rows say of {packets} packets fewer than are stored in {seconds} of their seconds, first at {at}");
        (true, format!("{text}: rows are missing"))
    });
    let Lack { seconds, packets, begin } = without;
    let without = begin.map(|begin| {
        let at = moment(begin);
        let text = format!("{seconds} seconds of {packets} packets have no one-second row, first at {at}");
        (false, format!("{text}: they were recorded without a meter, or rows are missing"))
    });
    Ok(fewer.into_iter().chain(without).collect())
}

/// What is missing, and from when on.
#[derive(Default)]
struct Lack {
    seconds: u64,
    packets: u64,
    begin: Option<u64>,
}

impl Lack {
    fn add(&mut self, second: u64, packets: u64) {
        (self.seconds, self.packets) = (self.seconds + 1, self.packets + packets);
        self.begin.get_or_insert(second);
    }
}
