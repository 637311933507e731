//! Where flow records and rows go.

use super::report::OutletReport;
use base::Timestamp;
use flow::{EndReason, Record};
use series::Row;
use std::collections::BTreeMap;

/// Takes what a meter makes. Nothing here may hold the meter up for longer than a disk takes: whoever depends on others
/// keeps a queue and a thread of its own, and counts what did not fit.
pub trait Outlet: Send {
    /// What sort of place it is: those of one sort are replaced together.
    fn kind(&self) -> &'static str;

    /// A flow record, in the meter's order.
    fn record(&mut self, record: &Record);

    /// A second, in the meter's order.
    fn row(&mut self, row: &Row);

    /// The time of the packets has come to another second.
    fn tick(&mut self, now: Timestamp);

    /// Nothing more comes; whatever can still be brought home is, before this returns.
    fn finish(&mut self);

    /// How it stands.
    fn report(&self) -> OutletReport;

    /// Things a person should know, since the last call.
    fn remarks(&mut self) -> Vec<String> {
        Vec::new()
    }
}

/// All of them, and what they were given.
#[derive(Default)]
pub(super) struct Outlets {
    pub all: Vec<Box<dyn Outlet>>,
    /// Records given out, by the reason why.
    ends: [u64; REASONS.len()],
    /// Packets in the records given out.
    pub in_records: u64,
    /// Packets in the rows given out.
    pub in_rows: u64,
    pub rows: u64,
}

/// Why records are made, in the order of their numbers.
const REASONS: [(EndReason, &str); 5] = [
    (EndReason::Idle, "idle"),
    (EndReason::Active, "active"),
    (EndReason::Ended, "ended"),
    (EndReason::Forced, "forced"),
    (EndReason::Lack, "lack"),
];

impl Outlets {
    /// Going to these.
    pub fn new(all: Vec<Box<dyn Outlet>>) -> Self {
        Self { all, ..Self::default() }
    }

    /// Records so far, by the reason why; reasons that did not occur are left out.
    pub fn records(&self) -> BTreeMap<&'static str, u64> {
        REASONS.iter().zip(self.ends).map(|((_, name), n)| (*name, n)).filter(|(_, n)| *n > 0).collect()
    }

    /// Those of this name say farewell, and these come.
    pub fn replace(&mut self, name: &str, outlets: Vec<Box<dyn Outlet>>) {
        let (mut old, kept): (Vec<_>, Vec<_>) = self.all.drain(..).partition(|outlet| outlet.kind() == name);
        old.iter_mut().for_each(|outlet| outlet.finish());
        self.all = kept;
        self.all.extend(outlets);
    }

    /// What they have to say.
    pub fn remarks(&mut self) -> Vec<String> {
        self.all.iter_mut().flat_map(|outlet| outlet.remarks()).collect()
    }

    pub fn row(&mut self, row: &Row) {
        self.in_rows += row.total.packets;
        self.rows += 1;
        self.all.iter_mut().for_each(|outlet| outlet.row(row));
    }
}

impl flow::Sink for Outlets {
    fn record(&mut self, record: &Record) {
        self.ends[record.end as usize - 1] += 1;
        self.in_records += record.packets();
        self.all.iter_mut().for_each(|outlet| outlet.record(record));
    }
}
