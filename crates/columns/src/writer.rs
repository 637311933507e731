//! Stores the flow records and series rows of one interface. They are in a journal on disk within a second, and in
//! Parquet files soon after.
//!
//! The caller's thread only encodes rows into columns ([`crate::block`]) and passes on batches. A second thread appends
//! the batches to the journals and syncs the journals twice a second; a third, with lowered CPU and I/O priority, seals
//! complete journals ([`crate::sealer`]). The caller's thread decides where a file ends, only from the rows and from
//! the packet time, so the same run makes the same files (except for journals of more than 512 MiB, whose length
//! depends on the batches). The memory for batches that wait for the disk is bounded: beyond the bound a live writer
//! drops rows and counts them, and a replay writer ([`Config::wait_when_full`]) blocks.
//!
//! A live writer has one growing file of each table. A replay writer has one growing file for each of the last few
//! periods. So a capture whose timestamps alternate between periods makes one file per period, and not one file at each
//! change of the period.

use crate::batch::BatchBytes;
use crate::error::ColumnsError;
use crate::file_layout::{DataFileKind, FAR};
use crate::journal::{Journal, MAX_BYTES};
use crate::sealer::{BATCH_BYTES, CompleteJournal, Sealer};
use crate::shared::{Event, Shared};
use crate::table_row::TableRow;
use crate::tables::Schema;
use crate::volume::{Disks, real};
use base::Timestamp;
use flow::{Record, Sink};
use series::Row;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use store::names;

/// Interval between syncs of the journals.
const SYNC_EVERY: Duration = Duration::from_millis(500);

/// Longest time that a row waits in memory, measured in the packet time that [`Writer::tick`] gets.
const HAND_OVER_EVERY: Duration = Duration::from_millis(250);

/// A batch of this number of bytes is passed to the journaling thread.
const BATCH: usize = 128 << 10;

/// Greatest number of growing files of one table that a replay writer has at the same time. Each of them has an open
/// journal.
const OPEN_MOST: usize = 32;

/// A replay writer completes a file when the packet time exceeds the period of the file by this duration. After the
/// packet time has gone back by more than this duration, the writer no longer completes files for this reason.
const SETTLED: Duration = Duration::from_secs(3600);

/// Configuration of a writer.
#[derive(Clone, Debug)]
pub struct Config {
    /// The store.
    pub store: PathBuf,
    /// The interface.
    pub interface: String,
    /// A file of flow records ends at each multiple of this duration, which is at most a day. A replay writer assigns a
    /// record to a file by the begin of the record, a live writer by its arrival.
    pub flows_every: Duration,
    /// Greatest number of records in a file.
    pub flows_most: u32,
    /// A file of series rows ends at each multiple of this duration, which is at most a day.
    pub series_every: Duration,
    /// Greatest number of bytes in batches that wait to be written to a journal.
    pub waiting_most: u64,
    /// True if the writer blocks at the limit `waiting_most` and does not drop rows: for captures that are read from
    /// files (a replay writer).
    pub wait_when_full: bool,
    /// The shortest time, by the monotonic clock, between two ticks that pass batches to the journaling thread; zero
    /// for no limit. The packet time of a replay advances faster than the clock. Without this limit, many batches would
    /// contain a single row, which takes several times the memory and disk space of a row in a large batch.
    pub hand_over_pause: Duration,
    /// Number of threads that seal a journal together. During a live capture it is 1, so that the capture can use the
    /// other processors.
    pub sealing_threads: usize,
}

impl Config {
    /// Defaults: flow files of five minutes or half a million records, series files of an hour, and at most 64 MiB of
    /// batches that wait for the disk.
    pub fn new(store: impl Into<PathBuf>, interface: impl Into<String>) -> Self {
        Self {
            store: store.into(),
            interface: interface.into(),
            flows_every: Duration::from_secs(300),
            flows_most: 500_000,
            series_every: Duration::from_secs(3600),
            waiting_most: 64 << 20,
            wait_when_full: false,
            hand_over_pause: Duration::ZERO,
            sealing_threads: 1,
        }
    }
}

/// Counters of submitted flow records or series rows. `submitted = journaled + dropped + refused`, once the writer has
/// finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Flow records and series rows that were submitted to the writer.
    pub submitted: u64,
    /// Flow records and series rows that were appended to a journal.
    pub journaled: u64,
    /// Flow records and series rows that were dropped because too many bytes waited for the disk.
    pub dropped: u64,
    /// Flow records and series rows that could not be written to the volume.
    pub refused: u64,
    /// Flow records and series rows in published files.
    pub sealed: u64,
    /// Published files.
    pub files: u64,
}

/// Identifies a growing file by its table and the begin of its period. A writer has at most one growing file of each
/// table and period.
type Which = (DataFileKind, Timestamp);

enum Message {
    Batch {
        which: Which,
        start: Timestamp,
        bytes: Vec<u8>,
        count: u32,
    },
    /// The file is complete. The timestamp is the first timestamp of its rows.
    Close(Which, Timestamp),
}

/// The growing files of one table (flow records or series rows).
struct GrowingFiles<T: Schema> {
    kind: DataFileKind,
    every: Duration,
    /// Greatest number of growing files.
    open_most: usize,
    /// The growing files; the most recently used file is the last.
    open: Vec<GrowingFile<T>>,
}

struct GrowingFile<T: Schema> {
    batch: BatchBytes<T>,
    /// First timestamp of the first row of the growing file.
    start: Timestamp,
    /// First and last timestamp of all rows of the growing file.
    span: (Timestamp, Timestamp),
    period: Timestamp,
    rows: u32,
    bytes: u64,
}

/// Stores flow records and series rows; see the module. If a writer is dropped, its batches are still written to the
/// journals, but the drop does not wait until the files are sealed.
pub struct Writer {
    flows_most: u32,
    flows: GrowingFiles<Record>,
    series: GrowingFiles<Row>,
    to_disk: ToDisk,
    threads: Vec<JoinHandle<()>>,
    now: Timestamp,
    /// True after the packet time has gone back by more than [`SETTLED`].
    goes_back: bool,
    /// The packet time of the last tick that passed batches to the journaling thread; `None` if the packet time has
    /// gone back since that tick.
    handed_over: Option<Timestamp>,
    /// The time, by the monotonic clock, of the last tick that passed batches to the journaling thread.
    handed_over_at: Instant,
    hand_over_pause: Duration,
    submitted: u64,
}

/// The queue through which batches get to the journaling thread.
struct ToDisk {
    shared: Arc<Shared>,
    sender: Option<Sender<Message>>,
    waiting_most: u64,
    wait_when_full: bool,
    dropped: u64,
}

impl Writer {
    /// Starts the journaling thread and the sealing thread. No file is created before there is a row.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn new(config: Config) -> std::io::Result<Self> {
        Self::on(config, Arc::new(real))
    }

    /// As [`Self::new`], but writes to the volume through `disks`. A call of `disks` returns one access to the volume;
    /// the writer calls it once for the sealing thread and once for each journal.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn on(config: Config, disks: Disks) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let root = names::interface_directory(&config.store, &config.interface);
        let (sender, jobs) = channel();
        let (to_seal, whole) = channel();
        let Config { flows_every, flows_most, series_every, waiting_most, wait_when_full, sealing_threads, .. } =
            config;
        let hand_over_pause = config.hand_over_pause;
        let sealer = Sealer::new(root.clone(), disks(), wait_when_full, sealing_threads, Arc::clone(&shared));
        let open = BTreeMap::new();
        let journal = Journaler { root, disks, open, to_seal, wait_when_full, shared: Arc::clone(&shared) };
        let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let threads = vec![
            named("columns-journal").spawn(move || journal.run(&jobs))?,
            named("columns-seal").spawn(move || sealer.run(&whole))?,
        ];
        let open_most = if wait_when_full { OPEN_MOST } else { 1 };
        Ok(Self {
            flows_most,
            flows: GrowingFiles { kind: DataFileKind::Flows, every: flows_every, open_most, open: Vec::new() },
            series: GrowingFiles { kind: DataFileKind::Series, every: series_every, open_most, open: Vec::new() },
            to_disk: ToDisk { shared, sender: Some(sender), waiting_most, wait_when_full, dropped: 0 },
            threads,
            now: Timestamp::ZERO,
            goes_back: false,
            handed_over: Some(Timestamp::ZERO),
            handed_over_at: Instant::now(),
            hand_over_pause,
            submitted: 0,
        })
    }

    /// Stores a record.
    pub fn record(&mut self, record: &Record) {
        self.submitted += 1;
        let moment = if self.to_disk.wait_when_full { record.first() } else { self.now };
        let period = moment.floor_to(self.flows.every);
        self.flows.keep(record, period, self.flows_most, &mut self.to_disk);
    }

    /// Stores a row.
    pub fn row(&mut self, row: &Row) {
        self.submitted += 1;
        let period = row.span().0.floor_to(self.series.every);
        self.series.keep(row, period, u32::MAX, &mut self.to_disk);
    }

    /// Advances the packet time. Passes batches to the journaling thread, and completes a file of flow records at the
    /// end of its period.
    pub fn tick(&mut self, now: Timestamp) {
        let stepped_back = now < self.now;
        self.goes_back |= stepped_back && self.now.since(now) > SETTLED;
        self.now = now;
        if !self.to_disk.wait_when_full {
            let period = now.floor_to(self.flows.every);
            self.flows.close_some(|open| open.period != period, &mut self.to_disk);
        } else if !self.goes_back {
            let whole = now.before(SETTLED);
            self.flows.close_before(whole, &mut self.to_disk);
            self.series.close_before(whole, &mut self.to_disk);
        }
        if stepped_back {
            self.handed_over = None;
        }
        let is_due = self.handed_over.is_none_or(|last| now.since(last) >= HAND_OVER_EVERY);
        if is_due && self.handed_over_at.elapsed() >= self.hand_over_pause {
            (self.handed_over, self.handed_over_at) = (Some(now), Instant::now());
            self.flows.hand_over(&mut self.to_disk);
            self.series.hand_over(&mut self.to_disk);
        }
    }

    /// Counters so far.
    pub fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let shared = &self.to_disk.shared;
        Counts {
            submitted: self.submitted,
            journaled: read(&shared.journaled),
            dropped: self.to_disk.dropped,
            refused: read(&shared.refused),
            sealed: read(&shared.sealed),
            files: read(&shared.files),
        }
    }

    /// Returns the events since the last call, and removes them.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut *self.to_disk.shared.events.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Completes and seals all files, and returns when they are sealed.
    pub fn finish(mut self) -> (Counts, Vec<Event>) {
        self.flows.close_some(|_| true, &mut self.to_disk);
        self.series.close_some(|_| true, &mut self.to_disk);
        self.to_disk.sender = None;
        for thread in self.threads.drain(..) {
            // The journals of a thread that panicked remain, and are sealed at the next start.
            let _ = thread.join();
        }
        (self.counts(), self.take_events())
    }
}

impl<T: Schema> GrowingFiles<T> {
    fn keep(&mut self, row: &T, period: Timestamp, most: u32, to_disk: &mut ToDisk) {
        let span = row.span();
        let reach = if self.every > self.kind.reach() { FAR } else { self.kind.reach() };
        let is_open =
            self.open.last().is_some_and(|open| open.period == period && open.has_capacity(span, reach, most));
        if !is_open {
            self.find(span, period, reach, most, to_disk);
        }
        let Some(open) = self.open.last_mut() else { return };
        open.span = (open.span.0.min(span.0), open.span.1.max(span.1));
        open.rows += 1;
        open.batch.push(row);
        if open.batch.len() >= BATCH {
            open.hand_over(self.kind, to_disk);
        }
    }

    /// Finds the growing file for a row with this time span and moves the file to the end of the list. If there is no
    /// such file, adds a new file at the end of the list.
    #[cold]
    fn find(
        &mut self,
        span: (Timestamp, Timestamp),
        period: Timestamp,
        reach: Duration,
        most: u32,
        to_disk: &mut ToDisk,
    ) {
        let at = self.open.iter().position(|open| open.period == period);
        // There is at most one growing file of each table and period.
        let whole = match at {
            Some(at) if self.open[at].has_capacity(span, reach, most) => return self.open[at..].rotate_left(1),
            Some(at) => Some(at),
            None => (self.open.len() >= self.open_most).then_some(0),
        };
        if let Some(at) = whole {
            self.open.remove(at).close(self.kind, to_disk);
        }
        let (batch, start) = (BatchBytes::default(), span.0);
        self.open.push(GrowingFile { batch, start, span, period, rows: 0, bytes: 0 });
    }

    fn hand_over(&mut self, to_disk: &mut ToDisk) {
        self.open.iter_mut().for_each(|open| open.hand_over(self.kind, to_disk));
    }

    /// Completes the growing files whose period has ended at `moment`.
    fn close_before(&mut self, moment: Timestamp, to_disk: &mut ToDisk) {
        let every = self.every;
        self.close_some(|open| open.period.after(every) <= moment, to_disk);
    }

    fn close_some(&mut self, is_whole: impl Fn(&GrowingFile<T>) -> bool, to_disk: &mut ToDisk) {
        let kind = self.kind;
        self.open.extract_if(.., |open| is_whole(open)).for_each(|open| open.close(kind, to_disk));
    }
}

impl<T: Schema> GrowingFile<T> {
    fn hand_over(&mut self, kind: DataFileKind, to_disk: &mut ToDisk) {
        let count = self.batch.count();
        if count > 0 {
            let bytes = self.batch.take(to_disk.spare());
            self.bytes += bytes.len() as u64;
            to_disk.batch((kind, self.period), self.start, bytes, count);
        }
    }

    fn close(mut self, kind: DataFileKind, to_disk: &mut ToDisk) {
        self.hand_over(kind, to_disk);
        to_disk.send(Message::Close((kind, self.period), self.span.0));
    }

    /// True if a row of this span may be added to the file. The limit `reach` exists because queries select a file by
    /// the timestamp in its name, and would not find a row that is further from this timestamp.
    fn has_capacity(&self, span: (Timestamp, Timestamp), reach: Duration, most: u32) -> bool {
        let (first, last) = (self.span.0.min(span.0), self.span.1.max(span.1));
        self.rows < most
            && self.bytes < MAX_BYTES / 2
            && last.since(first) < reach
            && span.0.max(self.start).since(span.0.min(self.start)) < reach
    }
}

impl ToDisk {
    /// A buffer for a batch.
    fn spare(&self) -> Vec<u8> {
        self.shared.spare.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    fn batch(&mut self, which: Which, start: Timestamp, bytes: Vec<u8>, count: u32) {
        let len = bytes.len() as u64;
        let mut waiting = self.shared.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        while self.wait_when_full && *waiting > 0 && *waiting + len > self.waiting_most {
            waiting = self.shared.buffers.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        if *waiting > 0 && *waiting + len > self.waiting_most {
            self.dropped += u64::from(count);
            return;
        }
        *waiting += len;
        drop(waiting);
        self.send(Message::Batch { which, start, bytes, count });
    }

    fn send(&self, message: Message) {
        if let Some(sender) = &self.sender {
            // The journaling thread ends only after this sender is dropped.
            let _ = sender.send(message);
        }
    }
}

impl Sink for Writer {
    fn record(&mut self, record: &Record) {
        Self::record(self, record);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.flows.hand_over(&mut self.to_disk);
        self.series.hand_over(&mut self.to_disk);
    }
}

/// The thread that appends to and syncs the journals.
struct Journaler {
    root: PathBuf,
    disks: Disks,
    open: BTreeMap<Which, Journal>,
    to_seal: Sender<CompleteJournal>,
    wait_when_full: bool,
    shared: Arc<Shared>,
}

impl Journaler {
    fn run(mut self, jobs: &Receiver<Message>) {
        let mut synced = Instant::now();
        loop {
            match jobs.recv_timeout(SYNC_EVERY.saturating_sub(synced.elapsed())) {
                Ok(Message::Batch { which, start, bytes, count }) => {
                    let len = bytes.len() as u64;
                    let outcome = self.append(which, start, bytes);
                    let counter = if outcome.is_ok() { &self.shared.journaled } else { &self.shared.refused };
                    counter.fetch_add(u64::from(count), Ordering::Relaxed);
                    self.trouble(outcome);
                    *self.shared.waiting.lock().unwrap_or_else(PoisonError::into_inner) -= len;
                    self.shared.buffers.notify_one();
                }
                Ok(Message::Close(which, first)) => self.close(which, first),
                // The buffers are freed, because the next batch may not arrive for a long time.
                Err(RecvTimeoutError::Timeout) if self.open.is_empty() => self.shared.forget(),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if synced.elapsed() >= SYNC_EVERY || self.open.values().any(Journal::is_overdue) {
                synced = Instant::now();
                self.sync();
            }
        }
        // Files that were not completed remain on disk as journals.
        self.sync();
    }

    fn append(&mut self, which: Which, start: Timestamp, bytes: Vec<u8>) -> Result<(), ColumnsError> {
        if !self.open.contains_key(&which) {
            let disk = (self.disks)();
            let journal = match which.0 {
                DataFileKind::Flows => Journal::create::<Record>(disk, &self.root, DataFileKind::Flows, start)?,
                DataFileKind::Series => Journal::create::<Row>(disk, &self.root, DataFileKind::Series, start)?,
            };
            self.open.insert(which, journal);
        }
        self.open.get_mut(&which).map_or(Ok(()), |journal| journal.append(bytes))
    }

    fn sync(&mut self) {
        let outcomes: Vec<_> =
            self.open.values_mut().map(|journal| journal.sync().map(|batches| self.shared.keep(batches))).collect();
        outcomes.into_iter().for_each(|outcome| self.trouble(outcome));
    }

    fn close(&mut self, which: Which, first: Timestamp) {
        let Some(mut journal) = self.open.remove(&which) else { return };
        // A small journal of a replay writer is not synced here. The sealing thread will sync it together with its
        // sealed file, within the same time limit.
        let closed = self.shared.closed.fetch_add(journal.bytes(), Ordering::Relaxed) + journal.bytes();
        if !self.wait_when_full || closed > BATCH_BYTES || journal.is_doubtful() {
            let outcome = journal.sync().map(|batches| self.shared.keep(batches));
            self.trouble(outcome);
        }
        // The sealing thread ends only after the journaling thread.
        let _ = self.to_seal.send(CompleteJournal { kind: which.0, first, journal });
    }

    fn trouble(&self, outcome: Result<(), ColumnsError>) {
        if let Err(error) = outcome {
            self.shared.report(Event::Trouble(error));
        }
    }
}
