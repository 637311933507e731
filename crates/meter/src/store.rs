//! The sink that writes flow records and series rows into the store, in the directory of their interface, and the
//! retention of these files.

use crate::error::MeterError;
use crate::report::SinkReport;
use crate::sink::Sink;
use base::Timestamp;
use base::units::plural;
use columns::{
    Config, Counts, DamagedJournal, DataFileKind, Event, HeldSince, RecoveryReport, RetentionRules, Writer, compact,
    recover, retain, uncompacted_days,
};
use flow::Record;
use series::Row;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use sys::clock::realtime;
use sys::locks::holder_names;
use sys::priority::{Background, lower_priority};

/// The interval at which retention rules are applied. A time series file covers an hour, a flow record file five
/// minutes.
const PERIOD: Duration = Duration::from_secs(60);

/// The interval at which complete days are compacted, each into one file.
const COMPACTION: Duration = Duration::from_secs(3600);

/// A day is compacted this long after its end. By then the files with late packets of the day are sealed.
const SETTLE_TIME: Duration = Duration::from_secs(3600);

/// The time range of one flow record or time series file of a replay. It is the largest range for which a query finds a
/// file by its name.
const REPLAYED: Duration = Duration::from_secs(86_400);

/// The shortest time, on the system clock, between two ticks of a replay that pass series rows to the writer. It is
/// short enough that rows reach the volume within a second, for any speed of the replay.
const PASSED_ON_EVERY: Duration = Duration::from_millis(250);

/// The largest number of threads that seal one file of a replay together.
const SEALING_MOST: usize = 4;

/// The largest number of warnings retained until they are read.
const WARNINGS_MAX: usize = 32;

/// The beginning of the name of the sink that writes into a store; the path of the store follows.
pub const STORE_NAME: &str = "store ";

/// The sink that writes into the store's directory of one interface. The capture holds the claim on this directory, so
/// no other process records into it.
pub struct StoreSink {
    name: String,
    writer: Option<Writer>,
    counts: Counts,
    records: u64,
    rows: u64,
    error: Option<String>,
    warnings: Vec<String>,
}

impl StoreSink {
    /// Starts a writer. With `patient` the sink waits for a slow volume, as a replay can; otherwise it drops the
    /// records and series rows for which there is no space, and counts them.
    ///
    /// # Errors
    /// The system cannot create a thread.
    pub fn new(store: &Path, label: &str, patient: bool) -> Result<Self, MeterError> {
        let mut config = Config { wait_when_full: patient, ..Config::new(store, label) };
        if patient {
            // A replay of weeks has few records and series rows per hour, and each file costs one or two syncs, so each
            // file covers a day.
            (config.flows_every, config.series_every) = (REPLAYED, REPLAYED);
            // Each second of packet time causes a tick. If each tick passed a batch to the writer, a replay of a slow
            // capture would use tens of MiB for batches of a single series row.
            config.hand_over_pause = PASSED_ON_EVERY;
            // A replay ends only after its last files are sealed, so several threads seal them.
            config.sealing_threads = sys::cpu::allowed().len().clamp(1, SEALING_MOST);
        }
        let writer = Writer::new(config).map_err(MeterError::Thread)?;
        Ok(Self {
            name: format!("{STORE_NAME}{}", store.display()),
            writer: Some(writer),
            counts: Counts::default(),
            records: 0,
            rows: 0,
            error: None,
            warnings: Vec::new(),
        })
    }

    fn receive(&mut self, events: Vec<Event>) {
        for event in events {
            match event {
                Event::Sealed { .. } => self.error = None,
                Event::Trouble(e) => {
                    let text = e.to_string();
                    if self.error.as_ref() != Some(&text) && self.warnings.len() < WARNINGS_MAX {
                        self.warnings.push(text.clone());
                    }
                    self.error = Some(text);
                }
            }
        }
    }
}

impl Sink for StoreSink {
    fn kind(&self) -> &'static str {
        "store"
    }

    fn record(&mut self, record: &Record) {
        if let Some(writer) = &mut self.writer {
            writer.record(record);
            self.records += 1;
        }
    }

    fn row(&mut self, row: &Row) {
        if let Some(writer) = &mut self.writer {
            writer.row(row);
            self.rows += 1;
        }
    }

    fn tick(&mut self, now: Timestamp) {
        let Some(writer) = &mut self.writer else { return };
        writer.tick(now);
        self.counts = writer.counts();
        let events = writer.take_events();
        self.receive(events);
    }

    fn finish(&mut self) {
        let Some(writer) = self.writer.take() else { return };
        let (counts, events) = writer.finish();
        self.counts = counts;
        self.receive(events);
    }

    fn report(&self) -> SinkReport {
        SinkReport {
            name: self.name.clone(),
            records: self.records,
            rows: self.rows,
            lost: self.counts.dropped + self.counts.refused,
            error: self.error.clone(),
        }
    }

    fn warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }
}

/// The retention rules of flow records and series rows. Files without a rule are never removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowRetentionRules {
    /// Rules for flow records.
    pub flows: RetentionRules,
    /// Rules for time series.
    pub series: RetentionRules,
}

/// The retention worker of flow records and series rows, a low-priority thread. At its start it seals the files that a
/// crash left behind. Then it compacts each complete day into one file, and applies the retention rules, until it is
/// dropped.
pub struct RowRetention {
    stop: Arc<AtomicBool>,
    rules: Arc<Mutex<RowRetentionRules>>,
    thread: Option<JoinHandle<()>>,
}

impl RowRetention {
    /// Starts the retention thread, which passes its warnings to `report`.
    ///
    /// # Errors
    /// The system cannot create the thread.
    pub fn start(
        store: &Path,
        label: &str,
        rules: RowRetentionRules,
        report: impl FnMut(&str) + Send + 'static,
    ) -> Result<Self, MeterError> {
        let (stop, rules) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(rules)));
        let worker = RowRetentionWorker {
            store: store.to_owned(),
            label: label.to_owned(),
            rules: Arc::clone(&rules),
            stop: Arc::clone(&stop),
            report,
            waiting: [HeldSince::default(), HeldSince::default()],
            uncompacted: Vec::new(),
            began: Instant::now(),
        };
        let thread = std::thread::Builder::new()
            .name("row-retention".into())
            .spawn(move || worker.run())
            .map_err(MeterError::Thread)?;
        Ok(Self { stop, rules, thread: Some(thread) })
    }

    /// Sets new rules.
    pub fn set(&self, rules: RowRetentionRules) {
        *self.rules.lock().unwrap_or_else(PoisonError::into_inner) = rules;
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for RowRetention {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

struct RowRetentionWorker<F> {
    store: PathBuf,
    label: String,
    rules: Arc<Mutex<RowRetentionRules>>,
    stop: Arc<AtomicBool>,
    report: F,
    /// The times since which queries have prevented the removal of files: first for flow records, then for series rows.
    waiting: [HeldSince; 2],
    /// The days that were reported because they are not compacted into one file.
    uncompacted: Vec<String>,
    began: Instant,
}

impl<F: FnMut(&str)> RowRetentionWorker<F> {
    fn run(mut self) {
        // If the priority cannot be lowered, this thread competes with other threads of normal priority; capture
        // threads have a higher priority.
        let _ = lower_priority(Background::Batch);
        match recover(&self.store, &self.label) {
            Ok(recovered) => self.report_recovered(&recovered),
            Err(e) => (self.report)(&e.to_string()),
        }
        let mut compacted: Option<Instant> = None;
        // The retention rules are applied at least once, even in a short run.
        loop {
            if compacted.is_none_or(|last| last.elapsed() >= COMPACTION) {
                compacted = Some(Instant::now());
                let before = realtime().before(SETTLE_TIME);
                let compacted_files = compact(&self.store, &self.label, before);
                let uncompacted = compacted_files
                    .and_then(|_| uncompacted_days(&self.store, &self.label, before))
                    .unwrap_or_else(|e| {
                        vec![format!("{}: days cannot be compacted into one file each at the moment: {e}", self.label)]
                    });
                // Each day is reported once while it remains in several files.
                uncompacted.iter().filter(|line| !self.uncompacted.contains(line)).for_each(|line| (self.report)(line));
                self.uncompacted = uncompacted;
            }
            let rules = *self.rules.lock().unwrap_or_else(PoisonError::into_inner);
            for (kind, rules) in [(DataFileKind::Flows, rules.flows), (DataFileKind::Series, rules.series)] {
                if rules != RetentionRules::default() {
                    self.apply_rules(kind, &rules);
                }
            }
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            std::thread::park_timeout(PERIOD);
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    fn report_recovered(&mut self, recovered: &RecoveryReport) {
        if recovered.journals > 0 {
            let rows = plural(recovered.rows, "record or row", "records and rows");
            let journals = plural(recovered.journals, "journal", "journals");
            let (label, torn) = (&self.label, recovered.torn);
            (self.report)(&match recovered.rows {
                0 => format!(
                    "{label}: no record or row found in {journals} of a killed recorder, {torn} bytes incomplete"
                ),
                _ => format!(
                    "{label}: {rows} sealed from {journals} of a killed recorder, {torn} bytes incomplete; flows that \
                     were active then have no record of their last minutes; their packets are stored"
                ),
            });
        }
        if recovered.hidden > 0 {
            (self.report)(&format!(
                "{}: {} hidden files removed that a killed recorder had not finished; their records and rows are in \
                 journals and other files",
                self.label, recovered.hidden
            ));
        }
        for DamagedJournal { path, damage } in &recovered.damaged {
            (self.report)(&format!(
                "{}: damaged journal retained: {damage}; its undamaged rows are sealed",
                path.display()
            ));
        }
        recovered.warnings.iter().for_each(|e| (self.report)(&e.to_string()));
    }

    fn apply_rules(&mut self, kind: DataFileKind, rules: &RetentionRules) {
        let waiting = &mut self.waiting[usize::from(kind == DataFileKind::Series)];
        match retain(&self.store, &self.label, kind, rules, realtime(), (waiting, self.began.elapsed())) {
            Ok(applied) => {
                if applied.overruled > 0 {
                    let by = holder_names(&applied.by);
                    (self.report)(&format!(
                        "{}: {} files removed although {by} was still reading their hours: the time limit for \
                         readers is over, and no other files can be removed",
                        self.label, applied.overruled
                    ));
                }
                for (path, bytes) in applied.removed {
                    (self.report)(&format!("{}: file of {bytes} bytes removed by the retention rules", path.display()));
                }
            }
            Err(e) => (self.report)(&e.to_string()),
        }
    }
}
