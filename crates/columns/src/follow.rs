//! Iterates over the flow records or series rows of several interfaces of a store, in one sequence. The interface
//! numbers of the sequence are indexes into [`FlowLoop::interfaces`]. In live mode, the sequence continues with the
//! records or rows that are journaled afterwards (M3OMon's `getFlows` and `getMRTG`; Moreno, PhD thesis, 2015, section
//! 5.3).
//!
//! Live mode polls the store repeatedly and returns only data that it has not yet returned. A record appears in a
//! journal only after its flow has ended. Hence each poll reads from the time of the previous poll minus the greatest
//! lateness of a record. The loop remembers the records that it returned within that time, so that none is returned
//! twice. The exception is a clock that was a minute or more ahead for a while: after the clock steps back, some
//! records are returned again. The functions of this module do not sleep and read no clock: the caller waits between
//! two polls, and passes the time as an argument.

use crate::error::ColumnsError;
use crate::file_layout::DataFileKind;
use crate::query::Query;
use crate::results::Results;
use crate::tables::Schema;
use base::Timestamp;
use flow::Record;
use series::Row;
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

/// Default of the greatest lateness of a flow record (the time from its last packet to the moment at which the record
/// is made): three times the default idle timeout.
pub const FLOW_LATE: Duration = Duration::from_secs(90);

/// Live mode: greatest delay from the end of a second until any row of the second is journaled. Each poll reads from
/// the time of the previous poll minus this delay.
const ROW_LATE: Duration = Duration::from_secs(30);

/// Live mode: the rows of a second are returned this number of seconds after the second began. A row of the second that
/// is journaled later (because of late packets) is not returned.
const SETTLE_TIME: u64 = 3;

/// After a backward clock step of less than this, the loop returns nothing until the clock has reached the earlier time
/// again. After a longer step, the earlier time is regarded as wrong, and polling restarts at the new time.
const STEP_BACK: Duration = Duration::from_secs(60);

/// The shortest pause between two polls. The pause is longer if a poll takes long.
const PAUSE: Duration = Duration::from_millis(500);

/// The result of one call of `next` of a [`FlowLoop`] or [`SeriesLoop`].
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "nearly all values are `One`, and the caller drops each after use")]
pub enum Step<T> {
    /// The next record or row. Its `interface` is an index into the loop's list of names.
    One(T),
    /// Live mode: no new data at the moment. Call again after the loop's pause.
    Idle,
    /// The end of the interval; nothing will follow.
    End,
}

/// The flow records of an interval. The records that one poll finds are in order of their begin.
pub struct FlowLoop {
    polls: Polls<Record>,
    late: Option<Duration>,
    /// Live mode: flow id, record index and end time of those returned records that the next poll may find again.
    reported: HashSet<(u64, u32, Timestamp)>,
}

/// One-second rows, one for each second, interface and direction, in order of time; in live mode in order of time per
/// interface.
pub struct SeriesLoop {
    polls: Polls<Row>,
    live: bool,
    ready: VecDeque<Row>,
    /// Live mode: for each interface, the last second whose rows were returned.
    reported: HashMap<u16, u64>,
}

impl FlowLoop {
    /// Iterates over the stored flow records of an interval.
    pub fn new(query: Query) -> Self {
        Self { polls: Polls::new(query, DataFileKind::Flows), late: None, reported: HashSet::new() }
    }

    /// Continues with records as they are journaled, until the interval has passed. `late` is the greatest lateness of
    /// a record, [`FLOW_LATE`] by default; it must exceed the longest timeout of the meter, or records are missed.
    #[must_use]
    pub fn live(mut self, late: Duration) -> Self {
        self.late = Some(late);
        self.polls.back = late;
        self
    }

    /// Polls the store unless a poll is in progress, so that errors are known before the first record is requested.
    ///
    /// # Errors
    /// If the store cannot be read, or has no such interface.
    pub fn poll(&mut self, now: Timestamp) -> Result<(), ColumnsError> {
        self.polls.begin(now)
    }

    /// The next record; `now` is the current time.
    ///
    /// # Errors
    /// If the store cannot be read, or has no such interface.
    pub fn next(&mut self, now: Timestamp) -> Result<Step<Record>, ColumnsError> {
        self.polls.begin(now)?;
        let again = self.late.map(|late| self.polls.at.before(late));
        while let Some((mut record, interface)) = self.polls.take() {
            record.interface = interface;
            let name = (record.id, record.record_index, record.last());
            match again {
                Some(_) if self.reported.contains(&name) => continue,
                // The loop remembers the record, because the next poll will find it again.
                Some(from) if record.last() >= from => _ = self.reported.insert(name),
                _ => {}
            }
            return Ok(Step::One(record));
        }
        let (Some(from), Some(late)) = (again, self.late) else { return Ok(Step::End) };
        if self.polls.has_passed(late) {
            return Ok(Step::End);
        }
        self.reported.retain(|(.., last)| *last >= from);
        self.polls.end();
        Ok(Step::Idle)
    }

    /// Interface names, indexed by the interface numbers of the records.
    pub fn interfaces(&self) -> &[String] {
        &self.polls.names
    }

    /// How long to wait after [`Step::Idle`]: polling takes at most a fifth of the time, however much data there is.
    pub fn pause(&self) -> Duration {
        self.polls.pause()
    }

    /// Warnings so far: damaged files that were skipped.
    pub fn warnings(&self) -> Vec<String> {
        self.polls.warnings()
    }
}

impl SeriesLoop {
    /// Iterates over the stored series rows of an interval.
    pub fn new(query: Query) -> Self {
        let polls = Polls::new(query, DataFileKind::Series);
        Self { polls, live: false, ready: VecDeque::new(), reported: HashMap::new() }
    }

    /// Continues with the rows as they are journaled, each some three seconds after its second began, until the
    /// interval has passed.
    #[must_use]
    pub fn live(mut self) -> Self {
        self.live = true;
        self
    }

    /// Polls the store unless a poll is in progress, so that errors are known before the first row is requested.
    ///
    /// # Errors
    /// If the store cannot be read, or has no such interface.
    pub fn poll(&mut self, now: Timestamp) -> Result<(), ColumnsError> {
        self.polls.begin(now)
    }

    /// The next row; `now` is the current time.
    ///
    /// # Errors
    /// If the store cannot be read, or has no such interface.
    pub fn next(&mut self, now: Timestamp) -> Result<Step<Row>, ColumnsError> {
        loop {
            if let Some(row) = self.ready.pop_front() {
                return Ok(Step::One(row));
            }
            self.polls.begin(now)?;
            let settled = self.polls.at.secs().saturating_sub(SETTLE_TIME);
            match self.polls.peek().map(|row| row.second) {
                Some(second) if !self.live || second <= settled => self.gather(second),
                _ if !self.live || self.polls.has_passed(ROW_LATE) => return Ok(Step::End),
                _ => {
                    self.polls.end();
                    return Ok(Step::Idle);
                }
            }
        }
    }

    /// Collects all rows of one second. Late packets can cause several rows of the same second, interface and
    /// direction; the values of such rows are added up.
    fn gather(&mut self, second: u64) {
        let mut all = Vec::new();
        while self.polls.peek().is_some_and(|row| row.second == second) {
            let Some((mut row, interface)) = self.polls.take() else { break };
            row.interface = interface;
            // If the last returned second is later than the current time, the clock was wrong when it was returned; its
            // rows are returned again.
            let result = self.reported.get(&interface).filter(|result| **result <= self.polls.at.secs());
            if result.is_none_or(|result| second > *result) {
                all.push(row);
            }
        }
        if self.live {
            self.reported.extend(all.iter().map(|row| (row.interface, second)));
        }
        // The rows of a second arrive by interface in journal order; the result is ordered by interface number and
        // direction.
        all.sort_by_key(|row| (row.interface, row.direction));
        self.ready.extend(series::merge_rows(all));
    }

    /// Interface names, indexed by the interface numbers of the rows.
    pub fn interfaces(&self) -> &[String] {
        &self.polls.names
    }

    /// How long the caller should wait after [`Step::Idle`].
    pub fn pause(&self) -> Duration {
        self.polls.pause()
    }

    /// Warnings so far: damaged files that were skipped.
    pub fn warnings(&self) -> Vec<String> {
        self.polls.warnings()
    }
}

/// Repeated polls of the store for all queried interfaces.
struct Polls<T: Schema> {
    query: Query,
    kind: DataFileKind,
    names: Vec<String>,
    /// The results that the poll in progress reads, one stream for each interface.
    streams: Option<Vec<InterfaceStream<T>>>,
    /// The begin of the queried interval; no poll reads from an earlier time.
    from: Timestamp,
    /// The time at which the latest poll began.
    at: Timestamp,
    duration: Duration,
    /// Each poll reads from the time of the previous poll minus this duration.
    back: Duration,
    earlier_warnings: Vec<String>,
}

/// The results of one interface, and its next record or row.
struct InterfaceStream<T: Schema> {
    interface: u16,
    results: Results<T>,
    next: Option<T>,
}

impl<T: Schema> Polls<T> {
    fn new(query: Query, kind: DataFileKind) -> Self {
        let (names, earlier_warnings, from) = (Vec::new(), Vec::new(), query.from);
        Self {
            query,
            kind,
            names,
            streams: None,
            from,
            at: Timestamp::ZERO,
            duration: Duration::ZERO,
            back: ROW_LATE,
            earlier_warnings,
        }
    }

    /// Starts a poll unless one is in progress.
    fn begin(&mut self, now: Timestamp) -> Result<(), ColumnsError> {
        if self.streams.is_some() {
            return Ok(());
        }
        let begun = Instant::now();
        if now.after(STEP_BACK) < self.at {
            self.at = now;
            self.query.from = self.from.max(now.before(self.back));
        }
        self.at = self.at.max(now);
        let mut streams = Vec::new();
        for name in self.query.selected_interfaces()? {
            let known = self.names.iter().position(|n| *n == name);
            let interface = known.unwrap_or_else(|| {
                self.names.push(name.clone());
                self.names.len() - 1
            });
            let query = Query { interfaces: vec![name], ..self.query.clone() };
            let mut results = Results::begin(&query, self.kind)?;
            let next = results.next();
            streams.push(InterfaceStream { interface: interface as u16, results, next });
        }
        self.duration = begun.elapsed();
        self.streams = Some(streams);
        Ok(())
    }

    /// Ends the poll; the next poll reads from the earliest data that this poll may have missed.
    fn end(&mut self) {
        self.earlier_warnings = self.warnings();
        self.streams = None;
        self.query.from = self.from.max(self.at.before(self.back));
    }

    fn first(&mut self) -> Option<&mut InterfaceStream<T>> {
        let streams = self.streams.as_mut()?.iter_mut().filter(|stream| stream.next.is_some());
        streams.min_by_key(|stream| stream.next.as_ref().map(|row| (row.order(), stream.interface)))
    }

    fn peek(&mut self) -> Option<&T> {
        self.first()?.next.as_ref()
    }

    /// Returns the next record or row of all streams, and its interface.
    fn take(&mut self) -> Option<(T, u16)> {
        let stream = self.first()?;
        let next = stream.results.next();
        Some((std::mem::replace(&mut stream.next, next)?, stream.interface))
    }

    /// True if no further poll is needed: the latest poll began more than `late` after the end of the interval, and
    /// data of the interval arrives at most `late` after that end.
    fn has_passed(&self, late: Duration) -> bool {
        self.at > self.query.to.after(late)
    }

    fn pause(&self) -> Duration {
        PAUSE.max(self.duration * 4)
    }

    fn warnings(&self) -> Vec<String> {
        let mut all = self.earlier_warnings.clone();
        for warning in self.streams.iter().flatten().flat_map(|stream| stream.results.warnings()) {
            if !all.contains(&warning) {
                all.push(warning);
            }
        }
        all
    }
}
