//! Sources of rows: a store, the packets of a store, files, or the network. Rows come in order of time, one for each
//! second, interface and direction.

use super::files::SeriesFromFiles;
use super::{DirectionArg, RowSource, SeriesArgs};
use crate::flow_records::names::Names;
use crate::flow_records::network::NetworkRecords;
use crate::flow_records::source::{has_passed, sleep_unless_stopped};
use crate::interval;
use crate::outcome::Failure;
use base::Timestamp;
use columns::{Query, SeriesLoop, Step};
use export::ipfix::Item;
use query::SeriesOfPackets;
use series::{Direction, Row};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The longest delay after the end of a second in which another machine may send its row.
const LATENESS_MAX: Duration = Duration::from_secs(30);

/// The selected rows of a source; see the module.
pub struct Rows {
    feed: Feed,
    interfaces: Vec<String>,
    direction: Option<Direction>,
    from: Timestamp,
    to: Timestamp,
    stop: Arc<AtomicBool>,
    names: Names,
}

enum Feed {
    Store(Box<SeriesLoop>),
    Packets(Box<SeriesOfPackets>),
    Files(SeriesFromFiles),
    Network(Box<NetworkRecords>),
}

impl Rows {
    /// Opens the source. `fields` has the names of the columns that are read; `None` stands for all.
    pub fn open(
        args: &SeriesArgs,
        source: &RowSource,
        (from, to): (Timestamp, Timestamp),
        fields: Option<Vec<String>>,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, Failure> {
        let feed = match source {
            RowSource::Store(store) => {
                let rows = SeriesLoop::new(Query { fields, ..query(store, &args.interface, from, to) });
                let mut rows = if args.live { rows.live() } else { rows };
                rows.poll(interval::now()).map_err(Failure::say)?;
                Feed::Store(Box::new(rows))
            }
            RowSource::Packets(store, filter) => {
                let rows = SeriesOfPackets::open(store, filter, &args.interface, (from, to), Arc::clone(&stop));
                Feed::Packets(Box::new(rows.map_err(Failure::say)?))
            }
            RowSource::Files(files, filter) => Feed::Files(SeriesFromFiles::read(files.clone(), filter, fields)?),
            RowSource::Network(group, via) => Feed::Network(Box::new(NetworkRecords::on(*group, via.as_deref())?)),
        };
        let interfaces = args.interface.clone();
        let direction = args.direction.map(DirectionArg::direction);
        let names = if let Feed::Files(files) = &feed { files.names.clone() } else { Names::default() };
        Ok(Self { feed, interfaces, direction, from, to, stop, names })
    }

    /// The next row; `None` at the end or after the stop flag is set.
    pub fn next(&mut self) -> Result<Option<Row>, Failure> {
        loop {
            match self.next_of_any_direction()? {
                Some(row) if self.direction.is_some_and(|wanted| wanted != row.direction) => {}
                other => return Ok(other),
            }
        }
    }

    /// The next row, of any direction.
    fn next_of_any_direction(&mut self) -> Result<Option<Row>, Failure> {
        while !self.is_stopped() {
            match &mut self.feed {
                Feed::Store(rows) => {
                    let step = rows.next(interval::now()).map_err(Failure::say)?;
                    self.names.extend(rows.interfaces());
                    match step {
                        Step::One(row) => return Ok(Some(row)),
                        Step::End => return Ok(None),
                        Step::Idle => sleep_unless_stopped(rows.pause(), &self.stop),
                    }
                }
                Feed::Packets(rows) => {
                    let row = rows.next().transpose().map_err(Failure::say);
                    self.names.extend(rows.interfaces());
                    return row;
                }
                Feed::Files(files) => match files.next() {
                    Some(row) if self.is_wanted(&row) => return Ok(Some(row)),
                    Some(_) => {}
                    None => return Ok(None),
                },
                Feed::Network(network) => match network.next(&mut self.names)? {
                    Some(Item::Row(row)) if self.is_wanted(&row) => return Ok(Some(row)),
                    Some(Item::Row(_)) => {}
                    _ if has_passed(self.to, LATENESS_MAX) => return Ok(None),
                    _ => {}
                },
            }
        }
        Ok(None)
    }

    /// True if the interface and the time of the row are selected. A store returns only selected rows, but files and
    /// the network also contain others.
    fn is_wanted(&self, row: &Row) -> bool {
        let wanted = |name: String| self.interfaces.is_empty() || self.interfaces.contains(&name);
        (self.from.secs()..=self.to.secs()).contains(&row.second) && wanted(self.names.interface(row.interface))
    }

    /// The interface names that were read from the source so far.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Warnings about the result.
    pub fn warnings(&self) -> Vec<String> {
        match &self.feed {
            Feed::Store(rows) => rows.warnings(),
            Feed::Packets(rows) => rows.warnings(),
            Feed::Files(files) => files.warnings.clone(),
            Feed::Network(network) => network.warnings(),
        }
    }

    /// True if all rows could be read and no message was lost.
    pub fn is_complete(&self) -> bool {
        match &self.feed {
            Feed::Network(network) => network.is_complete(),
            _ => self.warnings().is_empty(),
        }
    }

    /// True if packets were read and none of them matched the filter.
    pub fn is_empty_series(&self) -> bool {
        matches!(&self.feed, Feed::Packets(rows) if rows.is_empty()) && !self.is_stopped()
    }

    /// True if the stop flag is set.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// A store query for these interfaces; an empty list means all.
pub fn query(store: &Path, interfaces: &[String], from: Timestamp, to: Timestamp) -> Query {
    Query { interfaces: interfaces.to_vec(), from, to, ..Query::new(store) }
}
