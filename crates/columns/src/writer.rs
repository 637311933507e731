//! Takes records and rows of one interface and sees to it that they are on disk within a second and in Parquet soon after.
//!
//! The caller only packs ([`crate::pack`]) and hands batches over; a thread of its own appends them to the journals and syncs
//! those twice a second; another one, behind all others at disk and processor, seals what is whole. Where a file ends is
//! decided by the caller's thread from the things and the time it is given, so the same run makes the same files. What waits
//! for the disk is bounded: beyond that a live writer drops and counts, a patient one waits.

use crate::error::ColumnsError;
use crate::journal::{BatchBytes, Journal, MOST_BYTES, Shaped};
use crate::pack::Pack;
use crate::recover::seal;
use crate::shelf::Kind;
use base::Timestamp;
use flow::{Record, Sink};
use series::Row;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use store::names;
use sys::priority::{Behind, step_behind};

/// How often what was appended is synced.
const SYNC_EVERY: Duration = Duration::from_millis(500);

/// How long a thing waits in memory at most, by the time that [`Writer::tick`] is given.
const HAND_OVER_EVERY: Duration = Duration::from_millis(250);

/// A batch is handed over when it is this long.
const BATCH: usize = 128 << 10;

/// How a writer works.
#[derive(Clone, Debug)]
pub struct Config {
    /// The store.
    pub store: PathBuf,
    /// The interface.
    pub interface: String,
    /// A file of flow records ends at each multiple of this.
    pub flows_every: Duration,
    /// And after so many records.
    pub flows_most: u32,
    /// Bytes that may wait for the disk.
    pub waiting_most: u64,
    /// Wait when that many do, instead of dropping what comes: for captures that are read from files.
    pub patient: bool,
}

impl Config {
    /// Files of five minutes or half a million records, 64 MiB of patience with the disk.
    pub fn new(store: impl Into<PathBuf>, interface: impl Into<String>) -> Self {
        Self {
            store: store.into(),
            interface: interface.into(),
            flows_every: Duration::from_secs(300),
            flows_most: 500_000,
            waiting_most: 64 << 20,
            patient: false,
        }
    }
}

/// What became of what was given. `given = journaled + dropped + refused`, once the writer has finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records and rows that were given.
    pub given: u64,
    /// Those that a journal took.
    pub journaled: u64,
    /// Those that came while too much waited for the disk.
    pub dropped: u64,
    /// Those that the volume refused.
    pub refused: u64,
    /// Those in published files.
    pub sealed: u64,
    /// Published files.
    pub files: u64,
}

/// What people should know.
#[derive(Debug)]
pub enum Event {
    /// A file was published.
    Sealed {
        /// Where.
        path: PathBuf,
        /// Things in it.
        things: u64,
    },
    /// Something could not be done. A journal that could not be sealed stays, is read by queries, and is sealed by the next
    /// recovery.
    Trouble(ColumnsError),
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<u64>,
    room: Condvar,
    journaled: AtomicU64,
    refused: AtomicU64,
    sealed: AtomicU64,
    files: AtomicU64,
    events: Mutex<Vec<Event>>,
}

impl Shared {
    fn tell(&self, event: Event) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }
}

enum Message {
    Batch { kind: Kind, start: Timestamp, bytes: Vec<u8>, count: u32 },
    Close(Kind),
}

/// One kind's part of a writer.
struct Lane {
    batch: BatchBytes,
    /// Of the file that grows, if one does.
    open: Option<Open>,
}

struct Open {
    /// The first moment of its first thing.
    start: Timestamp,
    /// First and last moment of all.
    span: (Timestamp, Timestamp),
    period: Timestamp,
    things: u32,
    bytes: u64,
}

/// See the module. One that is dropped loses nothing that was handed over, but waits for no sealing.
pub struct Writer {
    config: Config,
    shared: Arc<Shared>,
    to_journal: Option<Sender<Message>>,
    threads: Vec<JoinHandle<()>>,
    flows: Lane,
    series: Lane,
    now: Timestamp,
    handed_over: Timestamp,
    given: u64,
    dropped: u64,
}

impl Writer {
    /// Starts the two threads. Nothing is made on disk before there is something to keep.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn new(config: Config) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let root = names::interface_folder(&config.store, &config.interface);
        let (to_journal, jobs) = channel();
        let (to_seal, whole) = channel();
        let journal = Journaler { root: root.clone(), open: BTreeMap::new(), to_seal, shared: Arc::clone(&shared) };
        let sealer = Arc::clone(&shared);
        let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let threads = vec![
            named("columns-journal").spawn(move || journal.run(&jobs))?,
            named("columns-seal").spawn(move || seal_all(&root, &whole, &sealer))?,
        ];
        let lane = || Lane { batch: BatchBytes::default(), open: None };
        Ok(Self {
            config,
            shared,
            to_journal: Some(to_journal),
            threads,
            flows: lane(),
            series: lane(),
            now: Timestamp::ZERO,
            handed_over: Timestamp::ZERO,
            given: 0,
            dropped: 0,
        })
    }

    /// Keeps a record.
    pub fn record(&mut self, record: &Record) {
        let period = self.now.floor_to(self.config.flows_every);
        self.keep(Kind::Flows, record, period, self.config.flows_most);
    }

    /// Keeps a row.
    pub fn row(&mut self, row: &Row) {
        let period = row.span().0.floor_to(Duration::from_secs(3600));
        self.keep(Kind::Series, row, period, u32::MAX);
    }

    /// Time passes: that of the packets. Things are handed over, and a file of records ends with its period.
    pub fn tick(&mut self, now: Timestamp) {
        let stepped_back = now < self.now;
        self.now = now;
        let period = now.floor_to(self.config.flows_every);
        if self.flows.open.as_ref().is_some_and(|open| open.period != period) {
            self.close(Kind::Flows);
        }
        if stepped_back || now.since(self.handed_over) >= HAND_OVER_EVERY {
            self.handed_over = now;
            self.hand_over(Kind::Flows);
            self.hand_over(Kind::Series);
        }
    }

    /// What became of what was given so far.
    pub fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let shared = &self.shared;
        Counts {
            given: self.given,
            journaled: read(&shared.journaled),
            dropped: self.dropped,
            refused: read(&shared.refused),
            sealed: read(&shared.sealed),
            files: read(&shared.files),
        }
    }

    /// What happened since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut *self.shared.events.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Seals what there is, and waits for that.
    pub fn finish(mut self) -> (Counts, Vec<Event>) {
        self.close(Kind::Flows);
        self.close(Kind::Series);
        self.to_journal = None;
        for thread in self.threads.drain(..) {
            // A thread that panicked has left its journals, which are sealed at the next start.
            let _ = thread.join();
        }
        (self.counts(), self.take_events())
    }

    fn lane(&mut self, kind: Kind) -> &mut Lane {
        match kind {
            Kind::Flows => &mut self.flows,
            Kind::Series => &mut self.series,
        }
    }

    fn keep<T: Pack>(&mut self, kind: Kind, thing: &T, period: Timestamp, most: u32) {
        self.given += 1;
        let span = thing.span();
        if self.lane(kind).open.as_ref().is_some_and(|open| !open.has_room(kind, span, period, most)) {
            self.close(kind);
        }
        let lane = self.lane(kind);
        let open = lane.open.get_or_insert(Open { start: span.0, span, period, things: 0, bytes: 0 });
        open.span = (open.span.0.min(span.0), open.span.1.max(span.1));
        open.things += 1;
        let before = lane.batch.len();
        lane.batch.push(thing);
        open.bytes += (lane.batch.len() - before) as u64;
        if lane.batch.len() >= BATCH {
            self.hand_over(kind);
        }
    }

    fn hand_over(&mut self, kind: Kind) {
        let (most, patient) = (self.config.waiting_most, self.config.patient);
        let lane = self.lane(kind);
        let (count, len) = (lane.batch.count(), lane.batch.len() as u64);
        let Some(start) = lane.open.as_ref().map(|open| open.start).filter(|_| count > 0) else { return };
        let bytes = lane.batch.take();
        let mut waiting = self.shared.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        while patient && *waiting > 0 && *waiting + len > most {
            waiting = self.shared.room.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        if *waiting > 0 && *waiting + len > most {
            self.dropped += u64::from(count);
            return;
        }
        *waiting += len;
        drop(waiting);
        self.send(Message::Batch { kind, start, bytes, count });
    }

    fn close(&mut self, kind: Kind) {
        self.hand_over(kind);
        if self.lane(kind).open.take().is_some() {
            self.send(Message::Close(kind));
        }
    }

    fn send(&self, message: Message) {
        if let Some(sender) = &self.to_journal {
            // The thread ends only after this sender does.
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
        self.hand_over(Kind::Flows);
        self.hand_over(Kind::Series);
    }
}

impl Open {
    /// Whether something of this span may go into the same file. What begins or ends farther away than a file may reach
    /// would not be found by the moment in its name.
    fn has_room(&self, kind: Kind, span: (Timestamp, Timestamp), period: Timestamp, most: u32) -> bool {
        let (first, last) = (self.span.0.min(span.0), self.span.1.max(span.1));
        self.period == period
            && self.things < most
            && self.bytes < MOST_BYTES / 2
            && last.since(first) < kind.reach()
            && span.0.max(self.start).since(span.0.min(self.start)) < kind.reach()
    }
}

/// The thread that appends and syncs.
struct Journaler {
    root: PathBuf,
    open: BTreeMap<Kind, Journal>,
    to_seal: Sender<(Kind, Journal)>,
    shared: Arc<Shared>,
}

impl Journaler {
    fn run(mut self, jobs: &Receiver<Message>) {
        let mut synced = Instant::now();
        loop {
            match jobs.recv_timeout(SYNC_EVERY.saturating_sub(synced.elapsed())) {
                Ok(Message::Batch { kind, start, bytes, count }) => {
                    let outcome = self.append(kind, start, &bytes);
                    let counter = if outcome.is_ok() { &self.shared.journaled } else { &self.shared.refused };
                    counter.fetch_add(u64::from(count), Ordering::Relaxed);
                    self.trouble(outcome);
                    *self.shared.waiting.lock().unwrap_or_else(PoisonError::into_inner) -= bytes.len() as u64;
                    self.shared.room.notify_one();
                }
                Ok(Message::Close(kind)) => self.close(kind),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if synced.elapsed() >= SYNC_EVERY {
                synced = Instant::now();
                self.sync();
            }
        }
        // Whatever was not closed stays a journal, on disk.
        self.sync();
    }

    fn append(&mut self, kind: Kind, start: Timestamp, bytes: &[u8]) -> Result<(), ColumnsError> {
        if !self.open.contains_key(&kind) {
            fs::create_dir_all(&self.root).map_err(ColumnsError::io(&self.root))?;
            let journal = match kind {
                Kind::Flows => Journal::create::<Record>(&self.root, kind, start)?,
                Kind::Series => Journal::create::<Row>(&self.root, kind, start)?,
            };
            self.open.insert(kind, journal);
        }
        self.open.get_mut(&kind).map_or(Ok(()), |journal| journal.append(bytes))
    }

    fn sync(&mut self) {
        let outcomes: Vec<_> = self.open.values_mut().map(Journal::sync).collect();
        outcomes.into_iter().for_each(|outcome| self.trouble(outcome));
    }

    fn close(&mut self, kind: Kind) {
        if let Some(mut journal) = self.open.remove(&kind) {
            let outcome = journal.sync();
            self.trouble(outcome);
            // The sealing thread ends only after this one.
            let _ = self.to_seal.send((kind, journal));
        }
    }

    fn trouble(&self, outcome: Result<(), ColumnsError>) {
        if let Err(error) = outcome {
            self.shared.tell(Event::Trouble(error));
        }
    }
}

/// The thread that seals. A journal stays locked until it is gone.
fn seal_all(root: &std::path::Path, whole: &Receiver<(Kind, Journal)>, shared: &Shared) {
    // Sealing competes with recording as an equal where that is refused; nothing else changes.
    let _ = step_behind(Behind::Batch);
    for (kind, journal) in whole {
        let outcome = match kind {
            Kind::Flows => seal_one::<Record>(root, kind, &journal),
            Kind::Series => seal_one::<Row>(root, kind, &journal),
        };
        match outcome {
            Ok((things, path)) => {
                shared.sealed.fetch_add(things, Ordering::Relaxed);
                if let Some(path) = path {
                    shared.files.fetch_add(1, Ordering::Relaxed);
                    shared.tell(Event::Sealed { path, things });
                }
            }
            Err(error) => shared.tell(Event::Trouble(error)),
        }
    }
}

fn seal_one<T: crate::layout::Layout + Shaped>(
    root: &std::path::Path,
    kind: Kind,
    journal: &Journal,
) -> Result<(u64, Option<PathBuf>), ColumnsError> {
    let path = &journal.path;
    let file = fs::File::open(path).map_err(ColumnsError::io(path))?;
    let sealed = seal::<T>(root, kind, path, &file)?;
    Ok((sealed.things, sealed.path))
}
