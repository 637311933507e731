//! Sources of flow records: a store (sealed files and growing journals together), files, or the network. Records that
//! do not match the query are skipped here.

use super::files::{self, Opened};
use super::names::Names;
use super::network::NetworkRecords;
use super::query::{FlowQuery, RecordSource};
use crate::interval;
use crate::outcome::Failure;
use ::query::{SumColumns, SumError};
use aggregate::{Aggregation, Aggregator, Plan, ReportError, terms};
use base::Timestamp;
use columns::{FLOW_LATE, FlowLoop, Query};
use export::ipfix::Item;
use flow::Record;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use store::catalogue;

/// The longest sleep while no record arrives. It is short, so that an interrupt ends the query and buffered output is
/// flushed without a noticeable delay.
const IDLE_SLEEP: Duration = Duration::from_millis(100);

/// The result of one call of [`Records::next`].
#[allow(
    clippy::large_enum_variant,
    reason = "nearly all values are records, and a box would cost an allocation for each"
)]
pub enum Step {
    /// A record that matches the query.
    Record(Record),
    /// No record is available at the moment; more records may follow.
    Idle,
    /// No more records.
    End,
}

/// The flow records that match a query, from a store, from files or from the network.
pub struct Records<'a> {
    query: &'a FlowQuery,
    feed: Feed,
    names: Names,
    examined: u64,
    /// The query ends after this number of examined records.
    examined_max: u64,
    warnings: Vec<String>,
    stop: Arc<AtomicBool>,
}

enum Feed {
    Store(Box<FlowLoop>),
    Files(std::vec::IntoIter<PathBuf>, Option<Opened>),
    Network(Box<NetworkRecords>),
}

impl<'a> Records<'a> {
    /// Opens the source and reads its interface names, but no records yet.
    pub fn open(flow_query: &'a FlowQuery, stop: Arc<AtomicBool>) -> Result<Self, Failure> {
        let mut names = Names::default();
        let mut warnings = Vec::new();
        let feed = match &flow_query.source {
            RecordSource::Store(_) => {
                let flows = FlowLoop::new(query(flow_query, flow_query.from, &flow_query.interfaces));
                let mut flows = if flow_query.follow { flows.live(late(flow_query)) } else { flows };
                flows.poll(interval::now()).map_err(Failure::say)?;
                names.extend(flows.interfaces());
                Feed::Store(Box::new(flows))
            }
            RecordSource::Files(files) => {
                let (files, empty) = files::with_content(files)?;
                warnings = empty;
                Feed::Files(files.into_iter(), None)
            }
            RecordSource::Network(group, via) => Feed::Network(Box::new(NetworkRecords::on(*group, via.as_deref())?)),
        };
        Ok(Self { query: flow_query, feed, names, examined: 0, examined_max: u64::MAX, warnings, stop })
    }

    /// Ends the query after `examined_max` examined records, whether they match or not.
    pub fn within(mut self, examined_max: u64) -> Self {
        self.examined_max = examined_max;
        self
    }

    /// The next matching record. Records of a store come in the order of their start times, records of files in the
    /// order in which they are in the files.
    pub fn next(&mut self) -> Result<Step, Failure> {
        while !self.is_stopped() && self.examined < self.examined_max {
            let record = match self.step()? {
                Step::Record(record) => record,
                other => return Ok(other),
            };
            self.examined += 1;
            let in_time = record.first() <= self.query.to && record.last() >= self.query.from;
            if in_time
                && self.query.id.is_none_or(|id| id == record.id)
                && self.is_of_interfaces(&record)
                && self.query.of_flows.matches(&terms(&record))
            {
                return Ok(Step::Record(record));
            }
            if self.query.follow {
                // After a number of records that do not match, this function returns without a record, because the
                // caller may have to print a periodic ranking.
                return Ok(Step::Idle);
            }
        }
        Ok(Step::End)
    }

    /// The sums over all matching records. If the sums need only some columns, the other columns are not read.
    pub fn grouped(&mut self, plan: &Plan) -> Result<Aggregation, Failure> {
        let mut groups = Aggregator::new(plan.clone());
        if let Feed::Store(flows) = &self.feed
            && !self.query.follow
            && let Some(wanted) = SumColumns::of(plan, &self.query.of_flows)
        {
            for (number, name) in flows.interfaces().iter().enumerate() {
                let of_interface = query(self.query, self.query.from, std::slice::from_ref(name));
                let sum = wanted.add(&of_interface, number as u16, &self.query.of_flows, plan, &mut groups);
                let (examined, warnings) = sum.map_err(|e| match e {
                    SumError::Groups(e) => aggregation_failure(e),
                    SumError::Rows(e) => Failure::say(e),
                })?;
                self.examined += examined;
                self.warnings.extend(warnings);
            }
            return groups.finish().map_err(aggregation_failure);
        }
        loop {
            match self.next()? {
                Step::Record(record) => groups.add(&record).map_err(aggregation_failure)?,
                Step::Idle => {}
                Step::End => return groups.finish().map_err(aggregation_failure),
            }
        }
    }

    /// The interface names that were read from the source so far.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// The number of examined records.
    pub fn examined(&self) -> u64 {
        self.examined
    }

    /// Warnings about the result.
    pub fn warnings(&self) -> Vec<String> {
        let more = match &self.feed {
            Feed::Store(flows) => flows.warnings(),
            Feed::Files(..) => Vec::new(),
            Feed::Network(network) => network.warnings(),
        };
        // If two queries have opened the same file, the list contains the error of the file twice; it is reported once.
        let mut reported = Vec::new();
        for warning in self.warnings.iter().cloned().chain(more) {
            if !reported.contains(&warning) {
                reported.push(warning);
            }
        }
        reported
    }

    /// True if all records could be read. If not, [`Self::warnings`] contains the reason.
    pub fn is_complete(&self) -> bool {
        match &self.feed {
            Feed::Network(network) => network.is_complete(),
            _ => self.warnings().is_empty(),
        }
    }

    /// True if the stop flag is set.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// True if the interface of the record is selected. The query of a store selects interfaces itself; files and the
    /// network also give records of other interfaces.
    fn is_of_interfaces(&self, record: &Record) -> bool {
        let wanted = &self.query.interfaces;
        matches!(self.feed, Feed::Store(_))
            || wanted.is_empty()
            || wanted.contains(&self.names.interface(record.interface))
    }

    fn step(&mut self) -> Result<Step, Failure> {
        match &mut self.feed {
            Feed::Store(flows) => {
                let step = flows.next(interval::now()).map_err(Failure::say)?;
                self.names.extend(flows.interfaces());
                Ok(match step {
                    columns::Step::One(record) => Step::Record(record),
                    columns::Step::End => Step::End,
                    columns::Step::Idle => {
                        sleep_unless_stopped(flows.pause(), &self.stop);
                        Step::Idle
                    }
                })
            }
            Feed::Files(files, opened) => loop {
                match opened.as_mut().map(|open| open.next(&mut self.names)) {
                    Some(Ok(Some(record))) => return Ok(Step::Record(record)),
                    Some(Ok(None)) | None => {}
                    Some(Err(error)) => {
                        self.warnings.push(error.to_string());
                        if error.is_partial() {
                            continue;
                        }
                    }
                }
                let Some(path) = files.next() else {
                    *opened = None;
                    return Ok(Step::End);
                };
                *opened = Some(Opened::open(path, files, self.query.fields.clone())?);
            },
            Feed::Network(network) => match network.next(&mut self.names)? {
                Some(Item::Flow(record)) => Ok(Step::Record(record)),
                _ if has_passed(self.query.to, late(self.query)) => Ok(Step::End),
                _ => Ok(Step::Idle),
            },
        }
    }
}

/// The greatest lateness of a flow record (the time from its last packet to the moment at which the record is made):
/// the value of `--max-lateness` if given, otherwise the value that `netgrain run` has saved in the store.
fn late(flow_query: &FlowQuery) -> Duration {
    flow_query.late.unwrap_or_else(|| match flow_query.store() {
        Some(store) if flow_query.interfaces.is_empty() => {
            columns::kept_flow_lateness(store, &catalogue::interfaces(store).unwrap_or_default())
        }
        Some(store) => columns::kept_flow_lateness(store, &flow_query.interfaces),
        None => FLOW_LATE,
    })
}

/// Sleeps for the pause, or until the stop flag is set.
pub fn sleep_unless_stopped(mut pause: Duration, stop: &AtomicBool) {
    while !pause.is_zero() && !stop.load(Ordering::Relaxed) {
        let nap = pause.min(IDLE_SLEEP);
        std::thread::sleep(nap);
        pause -= nap;
    }
}

/// True if no record of an interval that ends at `to` can still arrive.
pub fn has_passed(to: Timestamp, late: Duration) -> bool {
    interval::now() > to.after(late)
}

/// A store query for these interfaces; an empty list means all.
pub fn query(flow_query: &FlowQuery, from: Timestamp, interfaces: &[String]) -> Query {
    let store = flow_query.store().map(PathBuf::from).unwrap_or_default();
    Query {
        interfaces: interfaces.to_vec(),
        from,
        to: flow_query.to,
        need: flow_query.of_flows.need(),
        id: flow_query.id,
        fields: flow_query.fields.clone(),
        ..Query::new(store)
    }
}

/// The failure of the verb if an aggregation cannot be computed.
pub fn aggregation_failure(e: ReportError) -> Failure {
    Failure::Said(format!("flows: {e}"))
}
