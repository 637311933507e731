//! The sinks of flow records and rows.

use crate::report::SinkReport;
use base::Timestamp;
use flow::{EndReason, Record};
use series::Row;
use std::collections::BTreeMap;

/// A receiver of the meter's records and rows. A sink must not block the meter for longer than a disk write takes: a
/// sink that depends on other hosts has a queue and a thread of its own, and counts what the queue could not take.
pub trait Sink: Send {
    /// The kind of the sink: a reload replaces the sinks of one kind together.
    fn kind(&self) -> &'static str;

    /// Takes a flow record, in the meter's order.
    fn record(&mut self, record: &Record);

    /// Takes the row of a second, in the meter's order.
    fn row(&mut self, row: &Row);

    /// The time of the packets has reached another second.
    fn tick(&mut self, now: Timestamp);

    /// Begins the end of the sink without waiting: no record or row follows, and the sink's own thread delivers what it
    /// still holds. [`Sink::finish`] follows once [`Sink::has_left`].
    fn leave(&mut self) {}

    /// True if [`Sink::finish`] would return at once.
    fn has_left(&mut self) -> bool {
        true
    }

    /// Ends the sink: delivers all that can still be delivered, then returns.
    fn finish(&mut self);

    /// Returns the report.
    fn report(&self) -> SinkReport;

    /// Returns the warnings since the last call.
    fn warnings(&mut self) -> Vec<String> {
        Vec::new()
    }
}

/// All sinks of a meter, and the counts of their records and rows.
#[derive(Default)]
pub struct Sinks {
    pub all: Vec<Box<dyn Sink>>,
    /// Replaced sinks that still deliver what they hold.
    leaving: Vec<Box<dyn Sink>>,
    /// The counts of replaced sinks that have ended.
    left: SinkReport,
    /// Records, by end reason.
    ends: [u64; REASONS.len()],
    /// Packets in these records.
    pub in_records: u64,
    /// Packets in the rows.
    pub in_rows: u64,
    pub rows: u64,
}

/// The end reasons of records, in the order of their numbers.
const REASONS: [(EndReason, &str); 5] = [
    (EndReason::IdleTimeout, "idle_timeout"),
    (EndReason::ActiveTimeout, "active_timeout"),
    (EndReason::EndOfFlow, "end_of_flow"),
    (EndReason::ForcedEnd, "forced_end"),
    (EndReason::LackOfResources, "lack_of_resources"),
];

impl Sinks {
    /// The sinks of a new meter.
    pub fn new(all: Vec<Box<dyn Sink>>) -> Self {
        Self { all, ..Self::default() }
    }

    /// Returns the number of records by end reason, without reasons that did not occur.
    pub fn records(&self) -> BTreeMap<&'static str, u64> {
        REASONS.iter().zip(self.ends).map(|((_, name), n)| (*name, n)).filter(|(_, n)| *n > 0).collect()
    }

    /// Removes the sinks of this kind except those with the names in `stay`, and adds the new sinks. Does not wait for
    /// a removed sink: an unreachable collector would block the meter, and with it the ring.
    pub fn replace(&mut self, kind: &str, stay: &[String], sinks: Vec<Box<dyn Sink>>) {
        let goes = |sink: &dyn Sink| sink.kind() == kind && !stay.contains(&sink.report().name);
        let (mut old, kept): (Vec<_>, Vec<_>) = self.all.drain(..).partition(|sink| goes(&**sink));
        old.iter_mut().for_each(|sink| sink.leave());
        self.leaving.extend(old);
        self.all = kept;
        self.all.extend(sinks);
    }

    /// Adds up the counts of replaced sinks that have ended; with `wait`, of all replaced sinks.
    fn let_go(&mut self, wait: bool) {
        let left = &mut self.left;
        self.leaving.retain_mut(|sink| {
            if !wait && !sink.has_left() {
                return true;
            }
            sink.finish();
            add(left, &sink.report());
            false
        });
    }

    /// Ends all sinks.
    pub fn finish(&mut self) {
        // All sinks begin to end at once, so that the timeouts of several unreachable collectors overlap.
        self.all.iter_mut().for_each(|sink| sink.leave());
        self.all.iter_mut().for_each(|sink| sink.finish());
        self.let_go(true);
    }

    /// Returns the reports; all replaced sinks have one report together.
    pub fn reports(&self) -> Vec<SinkReport> {
        let mut all: Vec<_> = self.all.iter().map(|sink| sink.report()).collect();
        let mut gone = self.left.clone();
        self.leaving.iter().for_each(|sink| add(&mut gone, &sink.report()));
        if gone != SinkReport::default() {
            all.push(SinkReport { name: REPLACED.into(), ..gone });
        }
        all
    }

    /// Returns the warnings of all sinks.
    pub fn warnings(&mut self) -> Vec<String> {
        self.let_go(false);
        self.all.iter_mut().flat_map(|sink| sink.warnings()).collect()
    }

    pub fn row(&mut self, row: &Row) {
        self.in_rows += row.total.packets;
        self.rows += 1;
        self.all.iter_mut().for_each(|sink| sink.row(row));
    }
}

/// The name of the common report of replaced sinks.
const REPLACED: &str = "replaced";

fn add(sum: &mut SinkReport, one: &SinkReport) {
    sum.records += one.records;
    sum.rows += one.rows;
    sum.lost += one.lost;
}

impl flow::Sink for Sinks {
    fn record(&mut self, record: &Record) {
        self.ends[record.end_reason as usize - 1] += 1;
        self.in_records += record.packets();
        self.all.iter_mut().for_each(|sink| sink.record(record));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

    /// A collector sink that ends only when `free` is set; a test that waited for it before would not end.
    struct Held {
        name: &'static str,
        free: Arc<AtomicBool>,
        rows: u64,
        gone: bool,
    }

    impl Sink for Held {
        fn kind(&self) -> &'static str {
            "held"
        }

        fn record(&mut self, _: &Record) {}

        fn row(&mut self, _: &Row) {
            self.rows += 1;
        }

        fn tick(&mut self, _: Timestamp) {}

        fn leave(&mut self) {
            self.gone = true;
        }

        fn has_left(&mut self) -> bool {
            self.gone && self.free.load(SeqCst)
        }

        fn finish(&mut self) {
            assert!(self.free.load(SeqCst), "{} would have been waited for", self.name);
        }

        fn report(&self) -> SinkReport {
            // The collector takes none of the rows.
            SinkReport { name: self.name.into(), rows: self.rows, lost: self.rows, ..SinkReport::default() }
        }
    }

    #[test]
    fn who_is_replaced_is_not_waited_for_and_what_it_lost_stays_known() {
        let free = Arc::<AtomicBool>::default();
        let held = |name| Box::new(Held { name, free: Arc::clone(&free), rows: 0, gone: false }) as Box<dyn Sink>;
        let mut sinks = Sinks::new(vec![held("stays"), held("goes")]);
        let row = Row::default();
        sinks.row(&row);
        sinks.replace("other", &[], Vec::new());
        sinks.replace("held", &["stays".into()], vec![held("comes")]);
        sinks.row(&row);
        let reported = |sinks: &Sinks| -> Vec<(String, u64, u64)> {
            sinks.reports().into_iter().map(|r| (r.name, r.rows, r.lost)).collect()
        };
        let expected: Vec<_> =
            [("stays", 2), ("comes", 1), (REPLACED, 1)].map(|(name, rows)| (name.to_owned(), rows, rows)).into();
        assert_eq!(reported(&sinks), expected);
        sinks.warnings();
        assert_eq!((reported(&sinks), sinks.leaving.len()), (expected.clone(), 1), "it still brings home what it has");
        free.store(true, SeqCst);
        sinks.warnings();
        assert_eq!((reported(&sinks), sinks.leaving.len()), (expected.clone(), 0));
        sinks.finish();
        assert_eq!(reported(&sinks), expected);
    }

    /// A sink that records at its `finish` how many sinks have begun to end.
    struct Dead {
        reported: Arc<AtomicUsize>,
        waited_for: u64,
    }

    impl Sink for Dead {
        fn kind(&self) -> &'static str {
            "dead"
        }

        fn record(&mut self, _: &Record) {}

        fn row(&mut self, _: &Row) {}

        fn tick(&mut self, _: Timestamp) {}

        fn leave(&mut self) {
            self.reported.fetch_add(1, SeqCst);
        }

        fn finish(&mut self) {
            self.waited_for = self.reported.load(SeqCst) as u64;
        }

        fn report(&self) -> SinkReport {
            SinkReport { lost: self.waited_for, ..SinkReport::default() }
        }
    }

    #[test]
    fn collectors_that_are_away_are_all_told_to_go_before_the_first_is_waited_for() {
        let reported = Arc::<AtomicUsize>::default();
        let dead = || Box::new(Dead { reported: Arc::clone(&reported), waited_for: 0 }) as Box<dyn Sink>;
        let mut sinks = Sinks::new(vec![dead(), dead(), dead()]);
        sinks.finish();
        assert_eq!(sinks.reports().iter().map(|r| r.lost).collect::<Vec<_>>(), [3, 3, 3]);
    }
}
