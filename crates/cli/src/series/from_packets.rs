//! The curve of a filter. A row knows no hosts, so it is made anew, of the stored packets that match, by the counter that the
//! meter has, at the cost of reading them. It is that of all packets that match, each looked at in the tunnel that it may be in, as
//! the meter does; whether one matches is decided by what is outside, as with `netgrain packets`.
//!
//! Which seconds are known is what the store's own rows say, from its oldest packet file on: a second that has one and no packet
//! that matches is a zero, a second without one is a gap, and so is what came before packets that are still kept. The ledger is that of all packets of the second, so that a loss is seen beside every curve.
//! Where packets were recorded without rows, silence between two packets is taken for zeros, as the meter does it.
//!
//! Packet files do not keep which way a packet went: all of them are told as `in`.

use super::source;
use crate::interval;
use crate::outcome::Failure;
use crate::packets::inventory;
use crate::run::address_key;
use base::Timestamp;
use columns::{SeriesLoop, Step};
use filter::Filter;
use query::{FoundPacket, Query, QuerySource, Results};
use series::{Row, SeriesMeter};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use store::names::interface_folder;
use wire::Decoded;

/// What a row spans.
const SECOND: Duration = Duration::from_secs(1);

/// See the module.
pub struct SeriesFromPackets {
    answer: Results,
    made: MadeRows,
    /// The store's own rows, and the next of them.
    known: SeriesLoop,
    next_known: Option<Row>,
    ready: VecDeque<Row>,
    ended: bool,
}

/// What is made of packets so far.
struct MadeRows {
    store: PathBuf,
    /// The second of the oldest packet, by the folder of the interface.
    oldest: HashMap<PathBuf, u64>,
    names: Vec<String>,
    curves: Vec<InterfaceSeries>,
    /// Curves by the answer's origins: an interface has one for each queue.
    of_origin: HashMap<usize, usize>,
    /// The second that packets are in now.
    second: Option<u64>,
    rows: BTreeMap<(u64, u16), Row>,
}

/// One interface.
struct InterfaceSeries {
    counter: SeriesMeter,
    /// Under which its meter hashes addresses.
    key: u64,
    /// Whether the store has rows of it in this interval.
    is_known: bool,
    /// The second of the oldest packet that is kept.
    since: u64,
}

impl SeriesFromPackets {
    /// Begins an answer.
    pub fn open(
        store: &Path,
        filter: &Filter,
        interfaces: &[String],
        (from, to): (Timestamp, Timestamp),
        stop: Arc<AtomicBool>,
    ) -> Result<Self, Failure> {
        // A row is a whole second, also where the interval begins or ends within it.
        let question = Query {
            from: from.floor_to(SECOND),
            to: to.floor_to(SECOND).after(SECOND - Duration::from_nanos(1)),
            filter: filter.clone(),
            interfaces: interfaces.to_vec(),
            stop: Some(stop),
            ..Query::default()
        };
        let answer = query::run(&QuerySource::Store(store.to_owned()), question).map_err(Failure::say)?;
        let mut known = SeriesLoop::new(source::query(store, interfaces, from, to));
        let next_known = next(&mut known)?;
        let oldest = |shelf: inventory::InterfaceInventory| {
            Some((interface_folder(store, &shelf.interface), shelf.oldest()?.secs()))
        };
        let mut made = MadeRows {
            oldest: inventory::inventories(store)?.into_iter().filter_map(oldest).collect(),
            store: store.to_owned(),
            names: Vec::new(),
            curves: Vec::new(),
            of_origin: HashMap::new(),
            second: None,
            rows: BTreeMap::new(),
        };
        for name in known.interfaces() {
            let mut rows = SeriesLoop::new(source::query(store, std::slice::from_ref(name), from, to));
            made.add(name, next(&mut rows)?.is_some())?;
        }
        Ok(Self { answer, made, known, next_known, ready: VecDeque::new(), ended: false })
    }

    /// The next row.
    pub fn next(&mut self) -> Result<Option<Row>, Failure> {
        while self.ready.is_empty() && !self.ended {
            let passed = self.take()?;
            self.add_row(passed)?;
        }
        Ok(self.ready.pop_front())
    }

    /// Whether no packet has matched.
    pub fn is_empty(&self) -> bool {
        self.made.second.is_none()
    }

    /// Names of the interfaces, by the numbers that rows have.
    pub fn interfaces(&self) -> &[String] {
        &self.made.names
    }

    /// What people should know: files that could not be read.
    pub fn remarks(&self) -> Vec<String> {
        let mut all = self.answer.warnings();
        for remark in self.known.warnings() {
            if !all.contains(&remark) {
                all.push(remark);
            }
        }
        all
    }

    /// Counts packets until one begins another second, which is returned, or to the end: `None`.
    fn take(&mut self) -> Result<Option<u64>, Failure> {
        loop {
            let Some(found) = self.answer.next().map_err(Failure::say)? else {
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
                Some(series_meter) => self.made.curves[*series_meter].count(&found),
                None => {
                    // The answer lends either a packet or the list of origins: the first packet of each is copied.
                    let (data, found) = (found.data.to_vec(), FoundPacket { data: &[], ..found });
                    let interface = &self.answer.origins()[found.origin].interface;
                    let series_meter = self.made.meet(found.origin, interface)?;
                    series_meter.count(&FoundPacket { data: &data, ..found });
                }
            }
            if passed {
                return Ok(Some(second));
            }
        }
    }

    /// Tells everything before this second; without one, everything.
    fn add_row(&mut self, before: Option<u64>) -> Result<(), Failure> {
        let is_due = |second: u64| before.is_none_or(|before| second < before);
        while let Some(known) = self.next_known.take_if(|row| is_due(row.second)) {
            self.next_known = next(&mut self.known)?;
            let since = self.made.curves[usize::from(known.interface)].since;
            if known.direction == series::Direction::In && known.second >= since {
                let (second, interface) = (known.second, known.interface);
                let silent = Row { second, interface, ..Row::default() };
                self.made.rows.entry((second, interface)).or_insert(silent).ledger = known.ledger;
            }
        }
        while let Some(entry) = self.made.rows.first_entry().filter(|entry| is_due(entry.key().0)) {
            self.ready.push_back(entry.remove());
        }
        Ok(())
    }
}

impl MadeRows {
    /// The curve of an origin that has not been met before.
    fn meet(&mut self, origin: usize, interface: &str) -> Result<&mut InterfaceSeries, Failure> {
        let folder = |name: &str| interface_folder(&self.store, name);
        let at = match self.names.iter().position(|name| folder(name) == folder(interface)) {
            Some(at) => at,
            None => self.add(interface, false)?,
        };
        self.of_origin.insert(origin, at);
        Ok(&mut self.curves[at])
    }

    fn add(&mut self, interface: &str, is_known: bool) -> Result<usize, Failure> {
        let number = self.curves.len();
        let key = address_key::of_interface(&self.store, interface)?;
        let since = self.oldest.get(&interface_folder(&self.store, interface)).copied().unwrap_or(u64::MAX);
        self.names.push(interface.to_owned());
        self.curves.push(InterfaceSeries { counter: SeriesMeter::of_capture(number as u16), key, is_known, since });
        Ok(number)
    }

    /// Everything before this second has been counted; without one, everything.
    fn pass(&mut self, second: Option<u64>) {
        for (number, series_meter) in self.curves.iter_mut().enumerate() {
            let rows = match second {
                Some(second) => series_meter.counter.tick(Timestamp::from_secs_nanos(second, 0)),
                None => series_meter.counter.finish(),
            };
            // Which seconds are silent the store's own rows say, if there are any.
            let reported = rows.into_iter().filter(|row| row.total.packets > 0 || !series_meter.is_known);
            self.rows.extend(reported.map(|row| ((row.second, number as u16), row)));
        }
    }
}

impl InterfaceSeries {
    #[inline]
    fn count(&mut self, found: &FoundPacket<'_>) {
        let decoded = Decoded::of(found.data, found.wire_len, found.link_type);
        engine::count_packet(&mut self.counter, found.ts, false, found.data, found.wire_len, &decoded, self.key);
    }
}

fn next(rows: &mut SeriesLoop) -> Result<Option<Row>, Failure> {
    match rows.next(interval::now()).map_err(Failure::say)? {
        Step::One(row) => Ok(Some(row)),
        Step::Idle | Step::End => Ok(None),
    }
}
