//! Loops over a store, by interval or live: records and seconds of several interfaces as one, under the numbers of
//! [`FlowLoop::interfaces`], and on request those that are journaled from then on (M3OMon's `getFlows` and `getMRTG`;
//! Moreno, PhD thesis, 2015, section 5.3).
//!
//! Live means: the store is looked at again and again, and what was not told yet is told. A look goes back by how late a
//! record may be behind its last packet, for a flow is told when it has ended. What was told within that time is remembered,
//! so that nothing is told twice; only after the clock was a minute or more ahead, for a while, some of it is. Whoever waits between two looks decides for how long: nothing here sleeps, and the time
//! arrives as an argument.

use crate::error::ColumnsError;
use crate::file_layout::DataFileKind;
use crate::query::{Query, Results};
use crate::tables::Schema;
use base::Timestamp;
use flow::Record;
use series::Row;
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

/// How long after its last packet a record comes at most, if nobody says otherwise: thrice the usual idle timeout.
pub const FLOW_LATE: Duration = Duration::from_secs(90);

/// How long after its end a second is told at most.
const ROW_LATE: Duration = Duration::from_secs(30);

/// So many seconds after it began, all that is known of a second has been journaled.
const SETTLE_TIME: u64 = 3;

/// A clock that goes back by less sees nothing new until it is where it was; by more, it was wrong before and is believed.
const STEP_BACK: Duration = Duration::from_secs(60);

/// How often a store is looked at, if looking takes no time.
const PAUSE: Duration = Duration::from_millis(500);

/// What a loop gives.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "nearly all are things, and each is looked at and dropped")]
pub enum Step<T> {
    /// The next one. Its `interface` is a place in the loop's list of names.
    One(T),
    /// Live: nothing at the moment. Ask again after the loop's pause.
    Idle,
    /// Nothing will come any more.
    End,
}

/// Flow records. Those of one look come in the order in which they begin.
pub struct FlowLoop {
    polls: Polls<Record>,
    late: Option<Duration>,
    /// Live: flow, part and last moment of what was told and may be met again.
    reported: HashSet<(u64, u32, Timestamp)>,
}

/// One-second rows, one for each second, interface and direction, in the order of time; live, of each interface.
pub struct SeriesLoop {
    polls: Polls<Row>,
    live: bool,
    ready: VecDeque<Row>,
    /// Live: the last second that was told, by interface.
    reported: HashMap<u16, u64>,
}

impl FlowLoop {
    /// What there is of an interval.
    pub fn new(query: Query) -> Self {
        Self { polls: Polls::new(query, DataFileKind::Flows), late: None, reported: HashSet::new() }
    }

    /// And then what is journaled, until the interval has passed. `late` is how long after its last packet a record may
    /// come, [`FLOW_LATE`] by default: more than the longest timeout of the meter, or records are missed.
    #[must_use]
    pub fn live(mut self, late: Duration) -> Self {
        self.late = Some(late);
        self.polls.back = late;
        self
    }

    /// Looks at the store, unless a look goes on: what is wrong with it is known before the first record is asked for.
    ///
    /// # Errors
    /// When the store cannot be looked at, or has no such interface.
    pub fn poll(&mut self, now: Timestamp) -> Result<(), ColumnsError> {
        self.polls.begin(now)
    }

    /// The next record, at the moment `now`.
    ///
    /// # Errors
    /// When the store cannot be looked at, or has no such interface.
    pub fn next(&mut self, now: Timestamp) -> Result<Step<Record>, ColumnsError> {
        self.polls.begin(now)?;
        let again = self.late.map(|late| self.polls.at.before(late));
        while let Some((mut record, interface)) = self.polls.take() {
            record.interface = interface;
            let name = (record.id, record.record_index, record.last());
            match again {
                Some(_) if self.reported.contains(&name) => continue,
                // The next look will meet it once more.
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

    /// Names of the interfaces, by the numbers that records have.
    pub fn interfaces(&self) -> &[String] {
        &self.polls.names
    }

    /// How long to wait after [`Step::Idle`]: looking takes a fifth of the time at most, however much there is.
    pub fn pause(&self) -> Duration {
        self.polls.pause()
    }

    /// What people should know, so far: files that are damaged and were passed over.
    pub fn warnings(&self) -> Vec<String> {
        self.polls.warnings()
    }
}

impl SeriesLoop {
    /// What there is of an interval.
    pub fn new(query: Query) -> Self {
        let looks = Polls::new(query, DataFileKind::Series);
        Self { polls: looks, live: false, ready: VecDeque::new(), reported: HashMap::new() }
    }

    /// And then the seconds that pass, each some three seconds after it began, until the interval has passed.
    #[must_use]
    pub fn live(mut self) -> Self {
        self.live = true;
        self
    }

    /// Looks at the store, unless a look goes on: what is wrong with it is known before the first row is asked for.
    ///
    /// # Errors
    /// When the store cannot be looked at, or has no such interface.
    pub fn poll(&mut self, now: Timestamp) -> Result<(), ColumnsError> {
        self.polls.begin(now)
    }

    /// The next row, at the moment `now`.
    ///
    /// # Errors
    /// When the store cannot be looked at, or has no such interface.
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

    /// All of one second: what late packets opened again is added to it.
    fn gather(&mut self, second: u64) {
        let mut all = Vec::new();
        while self.polls.peek().is_some_and(|row| row.second == second) {
            let Some((mut row, interface)) = self.polls.take() else { break };
            row.interface = interface;
            // What was told of the future was told by a clock that was wrong.
            let result = self.reported.get(&interface).filter(|result| **result <= self.polls.at.secs());
            if result.is_none_or(|result| second > *result) {
                all.push(row);
            }
        }
        if self.live {
            self.reported.extend(all.iter().map(|row| (row.interface, second)));
        }
        // Rows of a second arrive by interface as they were journaled; the order that is promised is that of the numbers.
        all.sort_by_key(|row| (row.interface, row.direction));
        self.ready.extend(series::merge_rows(all));
    }

    /// Names of the interfaces, by the numbers that rows have.
    pub fn interfaces(&self) -> &[String] {
        &self.polls.names
    }

    /// How long to wait after [`Step::Idle`].
    pub fn pause(&self) -> Duration {
        self.polls.pause()
    }

    /// What people should know, so far: files that are damaged and were passed over.
    pub fn warnings(&self) -> Vec<String> {
        self.polls.warnings()
    }
}

/// One look after the other at each interface that is asked.
struct Polls<T: Schema> {
    query: Query,
    kind: DataFileKind,
    names: Vec<String>,
    /// The look that is going on.
    streams: Option<Vec<InterfaceStream<T>>>,
    /// The first moment that was asked for: looks begin there or later.
    from: Timestamp,
    /// When it began.
    at: Timestamp,
    took: Duration,
    /// How far a look goes back behind the one before.
    back: Duration,
    remarks: Vec<String>,
}

/// One interface, and its next thing.
struct InterfaceStream<T: Schema> {
    interface: u16,
    answer: Results<T>,
    next: Option<T>,
}

impl<T: Schema> Polls<T> {
    fn new(query: Query, kind: DataFileKind) -> Self {
        let (names, remarks, from) = (Vec::new(), Vec::new(), query.from);
        Self {
            query,
            kind,
            names,
            streams: None,
            from,
            at: Timestamp::ZERO,
            took: Duration::ZERO,
            back: ROW_LATE,
            remarks,
        }
    }

    /// Opens what there is, unless a look is going on.
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
        let mut shelves = Vec::new();
        for name in self.query.asked()? {
            let known = self.names.iter().position(|n| *n == name);
            let interface = known.unwrap_or_else(|| {
                self.names.push(name.clone());
                self.names.len() - 1
            });
            let query = Query { interfaces: vec![name], ..self.query.clone() };
            let mut answer = Results::begin(&query, self.kind)?;
            let next = answer.next();
            shelves.push(InterfaceStream { interface: interface as u16, answer, next });
        }
        self.took = begun.elapsed();
        self.streams = Some(shelves);
        Ok(())
    }

    /// Ends the look; the next one begins where things may be that this one could not know.
    fn end(&mut self) {
        self.remarks = self.warnings();
        self.streams = None;
        self.query.from = self.from.max(self.at.before(self.back));
    }

    fn first(&mut self) -> Option<&mut InterfaceStream<T>> {
        let shelves = self.streams.as_mut()?.iter_mut().filter(|shelf| shelf.next.is_some());
        shelves.min_by_key(|shelf| shelf.next.as_ref().map(|thing| (thing.order(), shelf.interface)))
    }

    fn peek(&mut self) -> Option<&T> {
        self.first()?.next.as_ref()
    }

    /// The next thing and its interface.
    fn take(&mut self) -> Option<(T, u16)> {
        let shelf = self.first()?;
        let next = shelf.answer.next();
        Some((std::mem::replace(&mut shelf.next, next)?, shelf.interface))
    }

    /// Whether this look was the last one: nothing of the interval comes later than so.
    fn has_passed(&self, late: Duration) -> bool {
        self.at > self.query.to.after(late)
    }

    fn pause(&self) -> Duration {
        PAUSE.max(self.took * 4)
    }

    fn warnings(&self) -> Vec<String> {
        let mut all = self.remarks.clone();
        for remark in self.streams.iter().flatten().flat_map(|shelf| shelf.answer.warnings()) {
            if !all.contains(&remark) {
                all.push(remark);
            }
        }
        all
    }
}
