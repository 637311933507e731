//! The time series of a filter. The series rows of a store do not contain addresses, so the series for a filter is
//! computed from the stored packets that match, with the same counter as in the meter; these packets must be read. The
//! filter applies to the outermost packet, as in `netgrain packets`; the counter counts the innermost packet, as the
//! meter does.
//!
//! The series rows of the store determine which seconds were recorded, from the oldest packet file on. If a second has
//! a stored row but no matching packet, its row has zeros. A second without a stored row is a gap, and so is the time
//! before the oldest stored packet. Each row contains the ledger of all packets of the second (stored, filtered and
//! lost), so that losses are visible in each series. If packets were recorded without rows, seconds between two packets
//! get rows of zeros, as in the meter.
//!
//! Packet files do not contain the direction of packets, so all rows have the direction `in`.

use crate::error::QueryError;
use crate::found_packet::FoundPacket;
use crate::inventory::InterfaceInventory;
use crate::query::{Query, QuerySource};
use crate::results::{self, Results};
use base::Timestamp;
use columns::{ColumnsError, SeriesLoop, Step};
use filter::Filter;
use series::{Quantity, Row, SeriesMeter, count_packet, quantities};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use store::catalogue;
use store::meter_key::{MeterKey, MeterKeyError};
use store::names::interface_directory;
use wire::Decoded;

/// The duration of a row.
const SECOND: Duration = Duration::from_secs(1);

/// The rows computed from packets; see the module documentation.
pub struct SeriesOfPackets {
    packets: Results,
    made: ComputedRows,
    /// The iterator over the series rows in the store, and the next row that it has returned.
    known: SeriesLoop,
    next_known: Option<Row>,
    ready: VecDeque<Row>,
    ended: bool,
}

/// The rows computed so far.
struct ComputedRows {
    store: PathBuf,
    /// For each interface directory, the timestamp of the oldest stored packet in whole seconds.
    oldest: HashMap<PathBuf, u64>,
    names: Vec<String>,
    all_series: Vec<InterfaceSeries>,
    /// For each origin of the result, the index of its series in `all_series`. An interface has one origin per queue,
    /// but only one series.
    of_origin: HashMap<usize, usize>,
    /// The timestamp of the current packet in whole seconds.
    second: Option<u64>,
    rows: BTreeMap<(u64, u16), Row>,
}

/// The series of one interface.
struct InterfaceSeries {
    counter: SeriesMeter,
    /// The secret key with which the meter of the interface hashes addresses.
    key: u64,
    /// True if the store has series rows of this interface in the interval.
    is_known: bool,
    /// The timestamp of the oldest stored packet of the interface in whole seconds.
    since: u64,
}

impl SeriesOfPackets {
    /// Starts the query.
    ///
    /// # Errors
    /// The store cannot be read, or does not have one of the interfaces.
    pub fn open(
        store: &Path,
        filter: &Filter,
        interfaces: &[String],
        (from, to): (Timestamp, Timestamp),
        stop: Arc<AtomicBool>,
    ) -> Result<Self, SeriesError> {
        // The interval is extended to whole seconds, because a row covers a whole second.
        let query = Query {
            from: from.floor_to(SECOND),
            to: to.floor_to(SECOND).after(SECOND - Duration::from_nanos(1)),
            filter: filter.clone(),
            interfaces: interfaces.to_vec(),
            stop: Some(stop),
            ..Query::default()
        };
        let packets = results::run(&QuerySource::Store(store.to_owned()), query)?;
        let mut known = SeriesLoop::new(rows_of(store, interfaces, from, to));
        let next_known = next_row(&mut known)?;
        let recorded =
            catalogue::interfaces(store).map_err(|error| QueryError::Io { path: store.to_owned(), error })?;
        let oldest = |name: &String| {
            Some((interface_directory(store, name), InterfaceInventory::of(store, name).oldest()?.secs()))
        };
        let mut made = ComputedRows {
            oldest: recorded.iter().filter_map(oldest).collect(),
            store: store.to_owned(),
            names: Vec::new(),
            all_series: Vec::new(),
            of_origin: HashMap::new(),
            second: None,
            rows: BTreeMap::new(),
        };
        for name in known.interfaces() {
            let mut rows = SeriesLoop::new(rows_of(store, std::slice::from_ref(name), from, to));
            made.add(name, next_row(&mut rows)?.is_some())?;
        }
        Ok(Self { packets, made, known, next_known, ready: VecDeque::new(), ended: false })
    }

    /// True if no packet has matched the filter.
    pub fn is_empty(&self) -> bool {
        self.made.second.is_none()
    }

    /// Names of the interfaces by their numbers in rows.
    pub fn interfaces(&self) -> &[String] {
        &self.made.names
    }

    /// Warnings about files that could not be read.
    pub fn warnings(&self) -> Vec<String> {
        let mut all = self.packets.warnings();
        for warning in self.known.warnings() {
            if !all.contains(&warning) {
                all.push(warning);
            }
        }
        all
    }

    /// Counts packets until the first packet of another second; returns that second, or `None` at the end.
    fn take(&mut self) -> Result<Option<u64>, SeriesError> {
        loop {
            let Some(found) = self.packets.next()? else {
                self.ended = true;
                self.made.pass(None);
                return Ok(None);
            };
            let second = found.ts.secs();
            let passed = self.made.second.replace(second).is_some_and(|before| before != second);
            if passed {
                self.made.pass(Some(second));
            }
            match self.made.of_origin.get(&found.origin) {
                Some(series_meter) => self.made.all_series[*series_meter].count(&found),
                None => {
                    // [`Results`] cannot return a packet and the list of origins at the same time, so the first packet
                    // of each origin is copied.
                    let (data, found) = (found.data.to_vec(), FoundPacket { data: &[], ..found });
                    let interface = &self.packets.origins()[found.origin].interface;
                    let series_meter = self.made.series_of(found.origin, interface)?;
                    series_meter.count(&FoundPacket { data: &data, ..found });
                }
            }
            if passed {
                return Ok(Some(second));
            }
        }
    }

    /// Outputs all rows before this second; `None` outputs all.
    fn add_row(&mut self, before: Option<u64>) -> Result<(), SeriesError> {
        let is_due = |second: u64| before.is_none_or(|before| second < before);
        while let Some(known) = self.next_known.take_if(|row| is_due(row.second)) {
            self.next_known = next_row(&mut self.known)?;
            let since = self.made.all_series[usize::from(known.interface)].since;
            if known.direction == series::Direction::In && known.second >= since {
                let (second, interface) = (known.second, known.interface);
                let silent = Row { second, interface, ..Row::default() };
                let row = self.made.rows.entry((second, interface)).or_insert(silent);
                (row.ledger, row.timestamps) = (known.ledger, known.timestamps);
            }
        }
        while let Some(entry) = self.made.rows.first_entry().filter(|entry| is_due(entry.key().0)) {
            self.ready.push_back(entry.remove());
        }
        Ok(())
    }
}

impl Iterator for SeriesOfPackets {
    type Item = Result<Row, SeriesError>;

    /// The next series row, in order of time.
    fn next(&mut self) -> Option<Self::Item> {
        while self.ready.is_empty() && !self.ended {
            if let Err(e) = self.take().and_then(|passed| self.add_row(passed)) {
                return Some(Err(e));
            }
        }
        self.ready.pop_front().map(Ok)
    }
}

impl ComputedRows {
    /// Returns the series to which the packets of a new origin are added.
    fn series_of(&mut self, origin: usize, interface: &str) -> Result<&mut InterfaceSeries, SeriesError> {
        let directory = |name: &str| interface_directory(&self.store, name);
        let at = match self.names.iter().position(|name| directory(name) == directory(interface)) {
            Some(at) => at,
            None => self.add(interface, false)?,
        };
        self.of_origin.insert(origin, at);
        Ok(&mut self.all_series[at])
    }

    fn add(&mut self, interface: &str, is_known: bool) -> Result<usize, SeriesError> {
        let number = self.all_series.len();
        let MeterKey(key) = MeterKey::of_interface(&self.store, interface)?;
        let since = self.oldest.get(&interface_directory(&self.store, interface)).copied().unwrap_or(u64::MAX);
        self.names.push(interface.to_owned());
        self.all_series.push(InterfaceSeries { counter: SeriesMeter::of_capture(number as u16), key, is_known, since });
        Ok(number)
    }

    /// Completes all rows before this second; `None` completes all.
    fn pass(&mut self, second: Option<u64>) {
        for (number, series_meter) in self.all_series.iter_mut().enumerate() {
            let rows = match second {
                Some(second) => series_meter.counter.tick(Timestamp::from_secs_nanos(second, 0)),
                None => series_meter.counter.finish(),
            };
            // If the store has series rows of this interface, [`SeriesOfPackets::add_row`] adds a row of zeros for each
            // stored row without a matching packet. So the rows of zeros of the series meter are omitted here.
            let reported = rows.into_iter().filter(|row| row.total.packets > 0 || !series_meter.is_known);
            self.rows.extend(reported.map(|row| ((row.second, number as u16), row)));
        }
    }
}

impl InterfaceSeries {
    #[inline]
    fn count(&mut self, found: &FoundPacket<'_>) {
        let decoded = Decoded::of(found.data, found.wire_len, found.link_type);
        count_packet(&mut self.counter, found.ts, false, found.data, found.wire_len, &decoded, self.key);
    }
}

/// A query for the ledgers in the rows of these interfaces; an empty list means all interfaces.
fn rows_of(store: &Path, interfaces: &[String], from: Timestamp, to: Timestamp) -> columns::Query {
    let fields = Some(ledger_columns());
    columns::Query { interfaces: interfaces.to_vec(), from, to, fields, ..columns::Query::new(store) }
}

/// The names of the columns of the ledger and of the quality of timestamps.
fn ledger_columns() -> Vec<String> {
    let is_of_ledger = |quantity: &&Quantity| {
        let mut row = Row::default();
        *quantity.of_mut(&mut row) = 1;
        (row.ledger, row.timestamps) != (Row::default().ledger, Row::default().timestamps)
    };
    quantities().iter().filter(is_of_ledger).map(|quantity| quantity.name.to_string()).collect()
}

fn next_row(rows: &mut SeriesLoop) -> Result<Option<Row>, SeriesError> {
    // Only a query that follows uses the time argument of `next`, so any value is correct here.
    match rows.next(Timestamp::ZERO)? {
        Step::One(row) => Ok(Some(row)),
        Step::Idle | Step::End => Ok(None),
    }
}

/// An error that ends the query of a time series from packets.
#[derive(Debug)]
pub enum SeriesError {
    /// The packets cannot be read.
    Packets(QueryError),
    /// The rows of the store cannot be read.
    Rows(ColumnsError),
    /// The secret key of an interface cannot be read.
    Key(MeterKeyError),
}

impl fmt::Display for SeriesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packets(e) => e.fmt(f),
            Self::Rows(e) => e.fmt(f),
            Self::Key(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for SeriesError {}

impl From<QueryError> for SeriesError {
    fn from(e: QueryError) -> Self {
        Self::Packets(e)
    }
}

impl From<ColumnsError> for SeriesError {
    fn from(e: ColumnsError) -> Self {
        Self::Rows(e)
    }
}

impl From<MeterKeyError> for SeriesError {
    fn from(e: MeterKeyError) -> Self {
        Self::Key(e)
    }
}
