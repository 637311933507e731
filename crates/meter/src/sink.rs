//! The sinks of flow records and series rows.

use crate::report::SinkReport;
use base::Timestamp;
use flow::{EndReason, Record};
use series::Row;
use std::collections::BTreeMap;

/// A receiver of the meter's records and series rows. A sink must not block the meter for longer than a disk write
/// takes. A sink that depends on other hosts therefore has its own queue and thread, and counts the records and rows
/// for which the queue has no space.
pub trait Sink: Send {
    /// The kind of the sink. A reload replaces all sinks of one kind together.
    fn kind(&self) -> &'static str;

    /// Receives a flow record. The meter passes records in the order in which it makes them.
    fn record(&mut self, record: &Record);

    /// Receives the series row of a second. The meter passes rows in the order in which it makes them.
    fn row(&mut self, row: &Row);

    /// Called when packet time reaches another second.
    fn tick(&mut self, now: Timestamp);

    /// Starts to end the sink, without waiting. The meter passes no more records and series rows, and the thread of the
    /// sink delivers those in its queue. The meter calls [`Sink::finish`] when [`Sink::has_left`] returns true.
    fn leave(&mut self) {}

    /// True if [`Sink::finish`] would return at once.
    fn has_left(&mut self) -> bool {
        true
    }

    /// Ends the sink: delivers the remaining records and series rows as far as possible, then returns.
    fn finish(&mut self);

    /// Returns the report.
    fn report(&self) -> SinkReport;

    /// Returns the warnings that arose since the last call.
    fn warnings(&mut self) -> Vec<String> {
        Vec::new()
    }
}

/// All sinks of a meter, and the counts of their records and series rows.
#[derive(Default)]
pub struct Sinks {
    pub all: Vec<Box<dyn Sink>>,
    /// Replaced sinks that still deliver the records and series rows in their queues.
    leaving: Vec<Box<dyn Sink>>,
    /// The summed counts of replaced sinks that have ended.
    left: SinkReport,
    /// Number of records by flow end reason.
    ends: [u64; REASONS.len()],
    /// Number of packets in all flow records together.
    pub in_records: u64,
    /// Number of packets in all series rows together.
    pub in_rows: u64,
    /// Number of marked copies in all series rows together.
    pub duplicates_in_rows: u64,
    pub rows: u64,
}

/// The flow end reasons in the order of their numbers, with their names.
const REASONS: [(EndReason, &str); 5] = [
    (EndReason::IdleTimeout, "idle_timeout"),
    (EndReason::ActiveTimeout, "active_timeout"),
    (EndReason::EndOfFlow, "end_of_flow"),
    (EndReason::ForcedEnd, "forced_end"),
    (EndReason::LackOfResources, "lack_of_resources"),
];

impl Sinks {
    /// Creates the sinks of a new meter.
    pub fn new(all: Vec<Box<dyn Sink>>) -> Self {
        Self { all, ..Self::default() }
    }

    /// Returns the number of records by flow end reason, without reasons that did not occur.
    pub fn records(&self) -> BTreeMap<&'static str, u64> {
        REASONS.iter().zip(self.ends).map(|((_, name), n)| (*name, n)).filter(|(_, n)| *n > 0).collect()
    }

    /// Removes the sinks of this kind except those with the names in `retained`, and adds the new sinks. Does not wait
    /// for a removed sink: an unreachable collector would block the meter, and with it the ring.
    pub fn replace(&mut self, kind: &str, retained: &[String], sinks: Vec<Box<dyn Sink>>) {
        let is_replaced = |sink: &dyn Sink| sink.kind() == kind && !retained.contains(&sink.report().name);
        let (mut old, others): (Vec<_>, Vec<_>) = self.all.drain(..).partition(|sink| is_replaced(&**sink));
        old.iter_mut().for_each(|sink| sink.leave());
        self.leaving.extend(old);
        self.all = others;
        self.all.extend(sinks);
    }

    /// Removes those replaced sinks that have ended, and adds their counts to `left`. With `wait`, waits until all
    /// replaced sinks have ended.
    fn finish_replaced(&mut self, wait: bool) {
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
        // All sinks start to end at the same time, so that the timeouts of several unreachable collectors overlap.
        self.all.iter_mut().for_each(|sink| sink.leave());
        self.all.iter_mut().for_each(|sink| sink.finish());
        self.finish_replaced(true);
    }

    /// Returns the reports of all sinks. The counts of all replaced sinks are in one report.
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
        self.finish_replaced(false);
        self.all.iter_mut().flat_map(|sink| sink.warnings()).collect()
    }

    pub fn row(&mut self, row: &Row) {
        self.in_rows += row.total.packets;
        self.duplicates_in_rows += row.duplicate.packets;
        self.rows += 1;
        self.all.iter_mut().for_each(|sink| sink.row(row));
    }
}

/// The name of the report with the counts of all replaced sinks.
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

    /// A sink whose queue counts as delivered only after `free` is set. The test fails if `finish` is called earlier.
    struct Held {
        name: &'static str,
        free: Arc<AtomicBool>,
        rows: u64,
        is_leaving: bool,
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
            self.is_leaving = true;
        }

        fn has_left(&mut self) -> bool {
            self.is_leaving && self.free.load(SeqCst)
        }

        fn finish(&mut self) {
            assert!(self.free.load(SeqCst), "{}: the meter would have waited for this sink", self.name);
        }

        fn report(&self) -> SinkReport {
            // The collector accepts no series rows, so all rows are lost.
            SinkReport { name: self.name.into(), rows: self.rows, lost: self.rows, ..SinkReport::default() }
        }
    }

    #[test]
    fn a_replaced_sink_is_not_waited_for_and_its_counts_remain_in_the_report() {
        let free = Arc::<AtomicBool>::default();
        let held = |name| Box::new(Held { name, free: Arc::clone(&free), rows: 0, is_leaving: false }) as Box<dyn Sink>;
        let mut sinks = Sinks::new(vec![held("retained"), held("removed")]);
        let row = Row::default();
        sinks.row(&row);
        sinks.replace("other", &[], Vec::new());
        sinks.replace("held", &["retained".into()], vec![held("added")]);
        sinks.row(&row);
        let reported = |sinks: &Sinks| -> Vec<(String, u64, u64)> {
            sinks.reports().into_iter().map(|r| (r.name, r.rows, r.lost)).collect()
        };
        let expected: Vec<_> =
            [("retained", 2), ("added", 1), (REPLACED, 1)].map(|(name, rows)| (name.to_owned(), rows, rows)).into();
        assert_eq!(reported(&sinks), expected);
        sinks.warnings();
        assert_eq!(
            (reported(&sinks), sinks.leaving.len()),
            (expected.clone(), 1),
            "the removed sink still delivers its rows"
        );
        free.store(true, SeqCst);
        sinks.warnings();
        assert_eq!((reported(&sinks), sinks.leaving.len()), (expected.clone(), 0));
        sinks.finish();
        assert_eq!(reported(&sinks), expected);
    }

    /// A sink whose report contains the number of sinks that had started to end when its `finish` was called.
    struct SlowSink {
        leaving: Arc<AtomicUsize>,
        leaving_at_finish: u64,
    }

    impl Sink for SlowSink {
        fn kind(&self) -> &'static str {
            "slow"
        }

        fn record(&mut self, _: &Record) {}

        fn row(&mut self, _: &Row) {}

        fn tick(&mut self, _: Timestamp) {}

        fn leave(&mut self) {
            self.leaving.fetch_add(1, SeqCst);
        }

        fn finish(&mut self) {
            self.leaving_at_finish = self.leaving.load(SeqCst) as u64;
        }

        fn report(&self) -> SinkReport {
            SinkReport { lost: self.leaving_at_finish, ..SinkReport::default() }
        }
    }

    #[test]
    fn all_sinks_start_to_end_before_the_meter_waits_for_the_first() {
        let leaving = Arc::<AtomicUsize>::default();
        let slow = || Box::new(SlowSink { leaving: Arc::clone(&leaving), leaving_at_finish: 0 }) as Box<dyn Sink>;
        let mut sinks = Sinks::new(vec![slow(), slow(), slow()]);
        sinks.finish();
        assert_eq!(sinks.reports().iter().map(|r| r.lost).collect::<Vec<_>>(), [3, 3, 3]);
    }
}
