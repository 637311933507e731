//! The meter of one interface: its thread, and the counters that other threads read.

use crate::error::MeterError;
use crate::plan::MeterPlan;
use crate::queue_merge::{NextRun, QueueMerge, QueueReader};
use crate::report::MeterReport;
use crate::sink::{Sink, Sinks};
use crate::table::{NICE, Table};
use crate::work::Work;
use ring::IdleBackoff;
use series::SeriesMeter;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use sys::clock::realtime;

/// The interval at which the meter publishes its report and runs commands.
const REPORT: Duration = Duration::from_millis(100);

/// The largest number of retained warnings. Later warnings are dropped, because the first ones name the cause of a
/// problem.
const WARNINGS_MAX: usize = 64;

/// A command to the meter.
enum MeterCommand {
    /// Remove the sinks of this kind except those with these names, and add the new sinks.
    Replace(&'static str, Vec<String>, Vec<Box<dyn Sink>>),
}

/// A running meter.
pub struct Meter {
    plan: MeterPlan,
    report: Arc<Mutex<MeterReport>>,
    warnings: Arc<Mutex<Vec<String>>>,
    commands: Sender<MeterCommand>,
    thread: Option<JoinHandle<()>>,
}

/// The counters of a meter, readable from other threads.
#[derive(Clone)]
pub struct MeterGauge {
    plan: MeterPlan,
    report: Arc<Mutex<MeterReport>>,
    warnings: Arc<Mutex<Vec<String>>>,
}

impl Meter {
    /// Starts the meter. `live` is true if the source cannot wait for the ring; `located` is true if the packets are
    /// stored.
    pub fn start(
        plan: &MeterPlan,
        readers: Vec<QueueReader>,
        sinks: Vec<Box<dyn Sink>>,
        live: bool,
        located: bool,
    ) -> Result<Self, MeterError> {
        let table = |config| Table::new(config, plan.interface, plan.shards);
        let flows = plan.flows.as_ref().map(table).transpose().map_err(MeterError::Thread)?;
        let series = if live { SeriesMeter::new } else { SeriesMeter::of_capture };
        let series_meter = plan.series.then(|| series(plan.interface));
        let work = Work::new(flows, series_meter, Sinks::new(sinks), plan.key, located);
        let merge = QueueMerge::new(readers, live);
        let (commands, received) = channel();
        let (report, warnings) = (Arc::default(), Arc::default());
        let this =
            Worker { merge, work, commands: received, report: Arc::clone(&report), warnings: Arc::clone(&warnings) };
        let thread =
            std::thread::Builder::new().name("meter".into()).spawn(move || this.run()).map_err(MeterError::Thread)?;
        Ok(Self { plan: plan.clone(), report, warnings, commands, thread: Some(thread) })
    }

    /// Returns the counters.
    pub fn gauge(&self) -> MeterGauge {
        MeterGauge { plan: self.plan.clone(), report: Arc::clone(&self.report), warnings: Arc::clone(&self.warnings) }
    }

    /// Replaces the sinks of this kind; the sinks named in `retained` continue. The meter passes each record and each
    /// series row either to the old or to the new sinks, so none is lost.
    pub fn replace(&self, kind: &'static str, retained: Vec<String>, sinks: Vec<Box<dyn Sink>>) {
        // The send fails only if the meter has ended; then the new sinks are not needed.
        let _ = self.commands.send(MeterCommand::Replace(kind, retained, sinks));
    }

    /// Waits until all flow records and series rows have been written.
    pub fn wait(&mut self) -> Result<(), MeterError> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.join().map_err(|_| MeterError::Panicked("the meter"))
    }
}

impl MeterGauge {
    /// Returns the report.
    pub fn report(&self) -> MeterReport {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the warnings.
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the contradictions between the counters once the meter has ended. `stored` is the number of stored
    /// packets in the ledger of the producers.
    pub fn faults(&self, stored: u64) -> Vec<String> {
        self.report().contradictions(stored, self.plan.flows.is_some(), self.plan.series)
    }
}

/// The state of the meter's thread.
struct Worker {
    merge: QueueMerge,
    work: Work,
    commands: Receiver<MeterCommand>,
    report: Arc<Mutex<MeterReport>>,
    warnings: Arc<Mutex<Vec<String>>>,
}

impl Worker {
    fn run(mut self) {
        let _ = sys::cpu::set_nice(NICE);
        let mut due = Instant::now();
        // Each sleep of an idle meter is longer than the previous sleep, as in the recorder.
        let mut pause = IdleBackoff::of(self.merge.least_bytes());
        loop {
            match self.merge.turn(realtime) {
                NextRun::Run { reader, descs, skipped } => {
                    let (from, run) = self.merge.run(reader, descs);
                    self.work.take(from, run, skipped);
                    self.merge.done(reader, descs);
                    pause.reset();
                }
                NextRun::Idle => std::thread::sleep(pause.next_sleep()),
                NextRun::End => break,
            }
            if due <= Instant::now() {
                due = Instant::now() + REPORT;
                self.run_commands();
                self.publish(false);
            }
        }
        // The thread releases the ring before it waits for a volume, so that the producer does not wait for this
        // reader.
        self.merge = QueueMerge::new(Vec::new(), false);
        self.work.finish();
        self.publish(true);
    }

    fn run_commands(&mut self) {
        for command in self.commands.try_iter() {
            let MeterCommand::Replace(kind, retained, sinks) = command;
            self.work.out.replace(kind, &retained, sinks);
        }
    }

    fn publish(&mut self, ended: bool) {
        let new = self.work.out.warnings();
        if !new.is_empty() {
            let mut warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
            let available = WARNINGS_MAX.saturating_sub(warnings.len());
            warnings.extend(new.into_iter().take(available));
        }
        let cpu = sys::cpu::thread_time() + self.work.cpu();
        let report = MeterReport { cpu_millis: cpu.as_millis() as u64, ended, ..self.work.report() };
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }
}
