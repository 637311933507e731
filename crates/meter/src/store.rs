//! The store as a sink of flow records and rows, in the directory of their interface, and the retention of the files
//! there.

use crate::error::MeterError;
use crate::report::SinkReport;
use crate::sink::Sink;
use base::Timestamp;
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

/// How often retention rules are applied: a time series file covers an hour, a flow record file five minutes.
const PERIOD: Duration = Duration::from_secs(60);

/// How often complete days are compacted into one file each.
const COMPACTION: Duration = Duration::from_secs(3600);

/// A day is compacted this long after its end, when the files with late packets of the day are sealed.
const SETTLE_TIME: Duration = Duration::from_secs(3600);

/// The time range of flow record and time series files of a replay: the largest with which a file can be found by its
/// name.
const REPLAYED: Duration = Duration::from_secs(86_400);

/// Least time by the clock between two ticks of a replay that pass rows on to the disk: rows are on disk within a second
/// whatever the speed of the replay.
const PASSED_ON_EVERY: Duration = Duration::from_millis(250);

/// The most threads that seal one file of a replay together.
const SEALING_MOST: usize = 4;

/// The most warnings kept until they are read.
const WARNINGS_MAX: usize = 32;

/// Writes into the directory of one interface, on which the capture holds the claim.
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
    /// Starts a writer. With `patient` it waits for a slow volume, as a replay can; otherwise it drops and counts.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn new(store: &Path, label: &str, patient: bool) -> Result<Self, MeterError> {
        let mut config = Config { wait_when_full: patient, ..Config::new(store, label) };
        if patient {
            // A replay of weeks has few records and rows per hour, and each file costs one or two syncs.
            (config.flows_every, config.series_every) = (REPLAYED, REPLAYED);
            // Each second of packet time is a tick. With a batch per tick, a replay of a slow capture held tens of MiB of
            // batches of a single row.
            config.hand_over_pause = PASSED_ON_EVERY;
            // A replay ends only after its last files are sealed, so several threads seal them.
            config.sealing_threads = sys::cpu::allowed().len().clamp(1, SEALING_MOST);
        }
        let writer = Writer::new(config).map_err(MeterError::Thread)?;
        Ok(Self {
            name: format!("store {}", store.display()),
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

/// The retention rules of flow records and rows; without a rule all files are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowRetentionRules {
    /// Rules for flow records.
    pub flows: RetentionRules,
    /// Rules for time series.
    pub series: RetentionRules,
}

/// The retention worker of flow records and rows, a low-priority thread. It seals once the files that a crash left,
/// compacts each complete day into one file, and applies the retention rules until it is dropped.
pub struct RowRetention {
    stop: Arc<AtomicBool>,
    rules: Arc<Mutex<RowRetentionRules>>,
    thread: Option<JoinHandle<()>>,
}

impl RowRetention {
    /// Starts the thread. It passes warnings to `report`.
    ///
    /// # Errors
    /// The system refuses the thread.
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
            apart: Vec::new(),
            began: Instant::now(),
        };
        let thread = std::thread::Builder::new()
            .name("columns-keep".into())
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
    /// How long queries have held files from retention, for flow records and for rows.
    waiting: [HeldSince; 2],
    /// The reported days that remain in several files.
    apart: Vec<String>,
    began: Instant,
}

impl<F: FnMut(&str)> RowRetentionWorker<F> {
    fn run(mut self) {
        // If the system refuses, this thread competes with other threads of normal priority; capture threads have a
        // higher one.
        let _ = lower_priority(Background::Batch);
        match recover(&self.store, &self.label) {
            Ok(recovered) => self.report_recovered(&recovered),
            Err(e) => (self.report)(&e.to_string()),
        }
        let mut compacted: Option<Instant> = None;
        // The rules are applied at least once, however short the run is.
        loop {
            if compacted.is_none_or(|last| last.elapsed() >= COMPACTION) {
                compacted = Some(Instant::now());
                let before = realtime().before(SETTLE_TIME);
                let made = compact(&self.store, &self.label, before);
                let apart = made
                    .and_then(|_| uncompacted_days(&self.store, &self.label, before))
                    .unwrap_or_else(|e| vec![format!("{}: days stay in several files for now: {e}", self.label)]);
                // Each day is reported once, as long as it remains in several files.
                apart.iter().filter(|line| !self.apart.contains(line)).for_each(|line| (self.report)(line));
                self.apart = apart;
            }
            let rules = *self.rules.lock().unwrap_or_else(PoisonError::into_inner);
            for (kind, rules) in [(DataFileKind::Flows, rules.flows), (DataFileKind::Series, rules.series)] {
                if rules != RetentionRules::default() {
                    self.keep(kind, &rules);
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
            let (journals, rows, torn) = (recovered.journals, recovered.rows, recovered.torn);
            (self.report)(&format!(
                "{}: {rows} records and rows of {journals} journals sealed that an earlier run left, {torn} bytes torn; flows \
                 that were active then have no record of their last minutes; their packets are stored",
                self.label
            ));
        }
        if recovered.hidden > 0 {
            (self.report)(&format!(
                "{}: {} hidden files removed that an earlier run had not finished; their records and rows are in journals and \
                 other files",
                self.label, recovered.hidden
            ));
        }
        for DamagedJournal { path, damage } in &recovered.damaged {
            (self.report)(&format!("{}: kept, for {damage}; the rest is sealed", path.display()));
        }
        recovered.warnings.iter().for_each(|e| (self.report)(&e.to_string()));
    }

    fn keep(&mut self, kind: DataFileKind, rules: &RetentionRules) {
        let waiting = &mut self.waiting[usize::from(kind == DataFileKind::Series)];
        match retain(&self.store, &self.label, kind, rules, realtime(), (waiting, self.began.elapsed())) {
            Ok(kept) => {
                if kept.overruled > 0 {
                    let by = holder_names(&kept.by);
                    (self.report)(&format!(
                        "{}: {} files removed although {by} holds their hours: the wait for it is over, and no other files can be removed",
                        self.label, kept.overruled
                    ));
                }
                for (path, bytes) in kept.removed {
                    (self.report)(&format!("{}: {bytes} bytes removed, by age or size", path.display()));
                }
            }
            Err(e) => (self.report)(&e.to_string()),
        }
    }
}
