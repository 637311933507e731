//! Loops over a store, by interval or live: records and seconds of several interfaces as one, under the numbers of
//! [`FlowLoop::interfaces`], and on request those that are journaled from then on (M3OMon's `getFlows` and `getMRTG`;
//! Moreno, PhD thesis, 2015, section 5.3).
//!
//! Live means: the store is looked at again and again, and what was not told yet is told. A look goes back by how late a
//! record may be behind its last packet, for a flow is told when it has ended. What was told within that time is remembered,
//! so that nothing is told twice; only after the clock was a minute or more ahead, for a while, some of it is. Whoever waits between two looks decides for how long: nothing here sleeps, and the time
//! arrives as an argument.

use crate::error::ColumnsError;
use crate::layout::Layout;
use crate::query::{Answer, Query};
use crate::shelf::Kind;
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
const SETTLED: u64 = 3;

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
    looks: Looks<Record>,
    late: Option<Duration>,
    /// Live: flow, part and last moment of what was told and may be met again.
    told: HashSet<(u64, u32, Timestamp)>,
}

/// One-second rows, one for each second, interface and direction, in the order of time; live, of each interface.
pub struct SeriesLoop {
    looks: Looks<Row>,
    live: bool,
    ready: VecDeque<Row>,
    /// Live: the last second that was told, by interface.
    told: HashMap<u16, u64>,
}

impl FlowLoop {
    /// What there is of an interval.
    pub fn new(query: Query) -> Self {
        Self { looks: Looks::new(query, Kind::Flows), late: None, told: HashSet::new() }
    }

    /// And then what is journaled, until the interval has passed. `late` is how long after its last packet a record may
    /// come, [`FLOW_LATE`] by default: more than the longest timeout of the meter, or records are missed.
    #[must_use]
    pub fn live(mut self, late: Duration) -> Self {
        self.late = Some(late);
        self.looks.back = late;
        self
    }

    /// Looks at the store, unless a look goes on: what is wrong with it is known before the first record is asked for.
    ///
    /// # Errors
    /// When the store cannot be looked at, or has no such interface.
    pub fn look(&mut self, now: Timestamp) -> Result<(), ColumnsError> {
        self.looks.begin(now)
    }

    /// The next record, at the moment `now`.
    ///
    /// # Errors
    /// When the store cannot be looked at, or has no such interface.
    pub fn next(&mut self, now: Timestamp) -> Result<Step<Record>, ColumnsError> {
        self.looks.begin(now)?;
        let again = self.late.map(|late| self.looks.at.before(late));
        while let Some((mut record, interface)) = self.looks.take() {
            record.interface = interface;
            let name = (record.id, record.part, record.last());
            match again {
                Some(_) if self.told.contains(&name) => continue,
                // The next look will meet it once more.
                Some(from) if record.last() >= from => _ = self.told.insert(name),
                _ => {}
            }
            return Ok(Step::One(record));
        }
        let (Some(from), Some(late)) = (again, self.late) else { return Ok(Step::End) };
        if self.looks.has_passed(late) {
            return Ok(Step::End);
        }
        self.told.retain(|(.., last)| *last >= from);
        self.looks.end();
        Ok(Step::Idle)
    }

    /// Names of the interfaces, by the numbers that records have.
    pub fn interfaces(&self) -> &[String] {
        &self.looks.names
    }

    /// How long to wait after [`Step::Idle`]: looking takes a fifth of the time at most, however much there is.
    pub fn pause(&self) -> Duration {
        self.looks.pause()
    }

    /// What people should know, so far: files that are damaged and were passed over.
    pub fn remarks(&self) -> Vec<String> {
        self.looks.remarks()
    }
}

impl SeriesLoop {
    /// What there is of an interval.
    pub fn new(query: Query) -> Self {
        let looks = Looks::new(query, Kind::Series);
        Self { looks, live: false, ready: VecDeque::new(), told: HashMap::new() }
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
    pub fn look(&mut self, now: Timestamp) -> Result<(), ColumnsError> {
        self.looks.begin(now)
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
            self.looks.begin(now)?;
            let settled = self.looks.at.secs().saturating_sub(SETTLED);
            match self.looks.peek().map(|row| row.second) {
                Some(second) if !self.live || second <= settled => self.gather(second),
                _ if !self.live || self.looks.has_passed(ROW_LATE) => return Ok(Step::End),
                _ => {
                    self.looks.end();
                    return Ok(Step::Idle);
                }
            }
        }
    }

    /// All of one second: what late packets opened again is added to it.
    fn gather(&mut self, second: u64) {
        let mut all = Vec::new();
        while self.looks.peek().is_some_and(|row| row.second == second) {
            let Some((mut row, interface)) = self.looks.take() else { break };
            row.interface = interface;
            // What was told of the future was told by a clock that was wrong.
            let told = self.told.get(&interface).filter(|told| **told <= self.looks.at.secs());
            if told.is_none_or(|told| second > *told) {
                all.push(row);
            }
        }
        if self.live {
            self.told.extend(all.iter().map(|row| (row.interface, second)));
        }
        // Rows of a second arrive by interface as they were journaled; the order that is promised is that of the numbers.
        all.sort_by_key(|row| (row.interface, row.direction));
        self.ready.extend(series::added(all));
    }

    /// Names of the interfaces, by the numbers that rows have.
    pub fn interfaces(&self) -> &[String] {
        &self.looks.names
    }

    /// How long to wait after [`Step::Idle`].
    pub fn pause(&self) -> Duration {
        self.looks.pause()
    }

    /// What people should know, so far: files that are damaged and were passed over.
    pub fn remarks(&self) -> Vec<String> {
        self.looks.remarks()
    }
}

/// One look after the other at each interface that is asked.
struct Looks<T: Layout> {
    query: Query,
    kind: Kind,
    names: Vec<String>,
    /// The look that is going on.
    shelves: Option<Vec<Shelf<T>>>,
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
struct Shelf<T: Layout> {
    interface: u16,
    answer: Answer<T>,
    next: Option<T>,
}

impl<T: Layout> Looks<T> {
    fn new(query: Query, kind: Kind) -> Self {
        let (names, remarks, from) = (Vec::new(), Vec::new(), query.from);
        Self {
            query,
            kind,
            names,
            shelves: None,
            from,
            at: Timestamp::ZERO,
            took: Duration::ZERO,
            back: ROW_LATE,
            remarks,
        }
    }

    /// Opens what there is, unless a look is going on.
    fn begin(&mut self, now: Timestamp) -> Result<(), ColumnsError> {
        if self.shelves.is_some() {
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
            let mut answer = Answer::begin(&query, self.kind)?;
            let next = answer.next();
            shelves.push(Shelf { interface: interface as u16, answer, next });
        }
        self.took = begun.elapsed();
        self.shelves = Some(shelves);
        Ok(())
    }

    /// Ends the look; the next one begins where things may be that this one could not know.
    fn end(&mut self) {
        self.remarks = self.remarks();
        self.shelves = None;
        self.query.from = self.from.max(self.at.before(self.back));
    }

    fn first(&mut self) -> Option<&mut Shelf<T>> {
        let shelves = self.shelves.as_mut()?.iter_mut().filter(|shelf| shelf.next.is_some());
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

    fn remarks(&self) -> Vec<String> {
        let mut all = self.remarks.clone();
        for remark in self.shelves.iter().flatten().flat_map(|shelf| shelf.answer.remarks()) {
            if !all.contains(&remark) {
                all.push(remark);
            }
        }
        all
    }
}
