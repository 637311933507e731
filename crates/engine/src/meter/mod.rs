//! The metering process: a thread for each interface that reads its rings losslessly and makes flow records and series
//! rows.
//!
//! Invariant (accounting): the meter counts each stored packet as metered or unmetered. Each metered packet is in one
//! row and, if it is IP, in the records of one flow. A contradiction is reported as a bug.

mod address_key;
mod collector;
mod offline;
mod queue_merge;
mod report;
mod sink;
mod store;
mod table;
mod work;

pub use address_key::{choose_key, key_of_files};
pub use collector::{CollectorSink, Destination, Pace};
pub use offline::{Metered as MadeOffline, OfCapture, Read as ReadOffline};
pub use report::{MeterReport, SinkReport, TunnelReport};
pub use sink::Sink;
pub use store::{RowRetention, RowRetentionRules, StoreSink};
pub use table::MemoryHints;

use crate::error::EngineError;
use base::Timestamp;
use queue_merge::{NextRun, QueueMerge, QueueReader};
use ring::{IdleBackoff, LosslessReader, Producer};
use series::SeriesMeter;
use sink::Sinks;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use table::Table;
use work::Work;

/// Name of the meter's reader in tables and in loss causes.
const READER_NAME: &str = "meter";

/// How often the meter publishes its report and looks for commands.
const REPORT: Duration = Duration::from_millis(100);

/// The most warnings kept: the first, because they name the cause of a problem.
const WARNINGS_MAX: usize = 64;

/// Below capture and the recorder: the rings absorb the meter's delay.
const METER_NICE: i32 = 5;

/// The configuration of an interface's meter.
#[derive(Clone, Debug)]
pub struct MeterPlan {
    /// The interface number in records and rows.
    pub interface: u16,
    /// Make flow records.
    pub flows: Option<flow::Config>,
    /// Shards of the flow table, at least 1; each of several has a thread of its own. The records do not depend on the
    /// number.
    pub shards: usize,
    /// Make series rows.
    pub series: bool,
    /// The secret key of address and datagram hashes; the estimates of distinct addresses depend on it.
    pub key: u64,
}

impl MeterPlan {
    /// Makes a configuration with flow records and rows, and default options.
    pub fn new(interface: u16) -> Self {
        Self { interface, flows: Some(flow::Config::default()), shards: 1, series: true, key: 0 }
    }
}

/// A command to the meter.
enum MeterCommand {
    /// Remove the sinks of this kind except those with these names, and add the new sinks.
    Replace(&'static str, Vec<String>, Vec<Box<dyn Sink>>),
}

/// A running meter.
pub(crate) struct Metering {
    plan: MeterPlan,
    report: Arc<Mutex<MeterReport>>,
    remarks: Arc<Mutex<Vec<String>>>,
    orders: Sender<MeterCommand>,
    thread: Option<JoinHandle<()>>,
}

/// The counters of a meter, for other threads.
#[derive(Clone)]
pub(crate) struct MeterGauge {
    plan: MeterPlan,
    report: Arc<Mutex<MeterReport>>,
    remarks: Arc<Mutex<Vec<String>>>,
}

/// Joins a ring before its first packet.
pub(crate) fn prepare(producer: &mut Producer, queue: u16, link_type: u16) -> Result<MeterSetup, EngineError> {
    let (memory, hub) = (Arc::clone(producer.memory()), Arc::clone(producer.registry()));
    let joined = std::thread::scope(|scope| {
        let asking = scope.spawn(|| LosslessReader::join(&memory, &hub, READER_NAME));
        // The engine thread does not run yet, so this loop serves the join request in its place.
        while !asking.is_finished() {
            producer.service();
            std::thread::sleep(Duration::from_micros(100));
        }
        asking.join()
    });
    match joined {
        Ok(Ok(gate)) => Ok(MeterSetup(QueueReader::new(gate, queue, link_type))),
        Ok(Err(e)) => Err(EngineError::Store(format!("the meter cannot join the ring: {e}"))),
        Err(_) => Err(EngineError::Thread("the meter's gate panicked".into())),
    }
}

/// A reader of one ring that a meter will take over.
pub(crate) struct MeterSetup(QueueReader);

impl Metering {
    /// Starts the meter. `live` means that the source cannot wait for the ring, `located` that the packets are stored.
    pub fn start(
        plan: &MeterPlan,
        seats: Vec<MeterSetup>,
        sinks: Vec<Box<dyn Sink>>,
        live: bool,
        located: bool,
    ) -> Result<Self, EngineError> {
        let table = |config| Table::new(config, plan.interface, plan.shards);
        let flows = plan.flows.as_ref().map(table).transpose().map_err(|e| EngineError::Thread(e.to_string()))?;
        let series = if live { SeriesMeter::new } else { SeriesMeter::of_capture };
        let series_meter = plan.series.then(|| series(plan.interface));
        let work = Work::new(flows, series_meter, Sinks::new(sinks), plan.key, located);
        let lanes = QueueMerge::new(seats.into_iter().map(|seat| seat.0).collect(), live);
        let (orders, result) = channel();
        let (report, remarks) = (Arc::default(), Arc::default());
        let this = Worker { lanes, work, reported: result, report: Arc::clone(&report), remarks: Arc::clone(&remarks) };
        let thread = std::thread::Builder::new()
            .name("meter".into())
            .spawn(move || this.run())
            .map_err(|e| EngineError::Thread(e.to_string()))?;
        Ok(Self { plan: plan.clone(), report, remarks, orders, thread: Some(thread) })
    }

    /// Returns the counters.
    pub fn gauge(&self) -> MeterGauge {
        MeterGauge { plan: self.plan.clone(), report: Arc::clone(&self.report), remarks: Arc::clone(&self.remarks) }
    }

    /// Replaces the sinks of this kind without a missed packet in between; sinks with the names in `stay` continue.
    pub fn replace(&self, kind: &'static str, stay: Vec<String>, sinks: Vec<Box<dyn Sink>>) {
        // A meter that has ended needs no new sinks.
        let _ = self.orders.send(MeterCommand::Replace(kind, stay, sinks));
    }

    /// Waits until all records and rows are written.
    pub fn wait(&mut self) -> Result<(), EngineError> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.join().map_err(|_| EngineError::Thread("the meter panicked".into()))
    }
}

impl MeterGauge {
    /// Returns the report.
    pub fn report(&self) -> MeterReport {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the warnings.
    pub fn warnings(&self) -> Vec<String> {
        self.remarks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the contradictions in the counters after the end; `stored` is the count of the producers' ledger.
    pub fn faults(&self, stored: u64) -> Vec<String> {
        self.report().contradictions(stored, self.plan.flows.is_some(), self.plan.series)
    }
}

/// The state of the meter's thread.
struct Worker {
    lanes: QueueMerge,
    work: Work,
    reported: Receiver<MeterCommand>,
    report: Arc<Mutex<MeterReport>>,
    remarks: Arc<Mutex<Vec<String>>>,
}

impl Worker {
    fn run(mut self) {
        let _ = sys::cpu::set_nice(METER_NICE);
        let mut due = Instant::now();
        // The same back-off as in the recorder.
        let mut pause = IdleBackoff::of(self.lanes.least_bytes());
        loop {
            match self.lanes.turn(now) {
                NextRun::Run { lane, descs, skipped: shed } => {
                    let (from, run) = self.lanes.run(lane, descs);
                    self.work.take(from, run, shed);
                    self.lanes.done(lane, descs);
                    pause.reset();
                }
                NextRun::Idle => std::thread::sleep(pause.next_sleep()),
                NextRun::End => break,
            }
            if due <= Instant::now() {
                due = Instant::now() + REPORT;
                self.carry_out();
                self.show(false);
            }
        }
        // Release the ring before the thread waits for a disk.
        self.lanes = QueueMerge::new(Vec::new(), false);
        self.work.finish();
        self.show(true);
    }

    fn carry_out(&mut self) {
        for order in self.reported.try_iter() {
            let MeterCommand::Replace(kind, stay, sinks) = order;
            self.work.out.replace(kind, &stay, sinks);
        }
    }

    fn show(&mut self, ended: bool) {
        let said = self.work.out.warnings();
        if !said.is_empty() {
            let mut remarks = self.remarks.lock().unwrap_or_else(PoisonError::into_inner);
            let room = WARNINGS_MAX.saturating_sub(remarks.len());
            remarks.extend(said.into_iter().take(room));
        }
        let cpu = sys::cpu::thread_time() + self.work.cpu();
        let report = MeterReport { cpu_millis: cpu.as_millis() as u64, ended, ..self.work.report() };
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }
}

/// Returns the system time.
fn now() -> Timestamp {
    Timestamp::ZERO.after(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO))
}
