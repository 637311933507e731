//! The way out of the meter: a bounded queue that is only ever tried, and a thread of its own that encodes and sends.
//!
//! Invariant: every record and second that was offered is counted once, as sent or as unsent by a named cause:
//! `offered = sent + unsent + waiting`, and nothing waits after [`Exporter::finish`]. Sent means handed to the kernel.
//!
//! A collector that is away is tried again after 0.1 s, 0.2 s, … 30 s. Meanwhile the queue is the buffer: a short outage
//! costs nothing, a long one costs what does not fit.
//!
//! The end takes hardly more than [`Settings::grace`] from [`Exporter::leave`] on, whatever the collector, a name server or a disk does:
//! calls that block are bounded by it, and a thread in a call that cannot be bounded is left behind (`Shared::abandoned`).

mod counts;
mod handle;
mod worker;

pub use counts::{Counts, Unsent};
pub use handle::Handle;

use crate::encode::{Config, Fields};
use crate::target::Target;
use counts::Shared;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use worker::Worker;

/// Records and seconds that may wait; about 1.2 kB each.
pub const QUEUE: usize = 16_384;

/// How long what waits is sent at the end. All exporters are asked to leave at the same time, so that it is also the time of all
/// together; with [`MARGIN`] it is less than 5 s.
pub const GRACE: Duration = Duration::from_millis(4500);

/// How much longer than the grace [`Exporter::finish`] waits for the thread to end. A thread that is then in a call which the
/// system does not bound is left behind.
const MARGIN: Duration = Duration::from_millis(200);

/// Which protocol is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// IPFIX (RFC 7011).
    #[default]
    Ipfix,
    /// NetFlow version 9 (RFC 3954), over UDP only.
    NetflowV9,
}

/// Where export times come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The system's.
    #[default]
    System,
    /// What is exported: the latest moment so far. A capture that is read again is then exported as it was the first time.
    Data,
}

/// How and where to export.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where to.
    pub target: Target,
    /// In which protocol.
    pub protocol: Protocol,
    /// Flow records?
    pub flows: bool,
    /// Seconds of the series? Collectors of flows may take them for flows; they always go into the loss statistics.
    pub series: bool,
    /// How records become messages.
    pub encode: Config,
    /// How many records may wait.
    pub queue: usize,
    /// How long offers wait for room in the queue while nothing is taken out of it: not at all, unless the packets come from
    /// a file and can wait, too. When it was in vain, nobody waits until the collector takes something again.
    pub offer_timeout: Duration,
    /// Once true, nobody waits: whoever asked for the end of a replay is not to wait for a collector.
    pub stop_waiting: Arc<AtomicBool>,
    /// The longest that a record waits for its message to become full.
    pub batch_delay: Duration,
    /// How long [`Exporter::finish`] tries to send what waits, from [`Exporter::leave`] on.
    pub grace: Duration,
    /// How long a connection by TCP may take to come about, and its peer not to read, before it is given up and tried again.
    pub io_timeout: Duration,
    /// Where export times come from.
    pub clock: Clock,
    /// Numbers and names of the interfaces.
    pub interfaces: Vec<(u16, String)>,
}

impl Settings {
    /// The usual ones for a target: flows with [`Fields::Standard`] to one collector, both kinds with [`Fields::Full`] to groups
    /// and files.
    pub fn new(target: Target) -> Self {
        let encode = if target.is_reliable() { Config::reliable() } else { Config::default() };
        // Groups and files are read by `netgrain flows` and `netgrain series`; collectors are other people's programs.
        let ours = matches!(target, Target::Multicast { .. } | Target::File(_));
        let fields = if ours { Fields::Full } else { Fields::Standard };
        let encode = Config { fields, ..encode };
        Self {
            series: ours,
            protocol: Protocol::Ipfix,
            flows: true,
            encode,
            target,
            queue: QUEUE,
            offer_timeout: Duration::ZERO,
            stop_waiting: Arc::default(),
            batch_delay: Duration::from_millis(500),
            grace: GRACE,
            io_timeout: Duration::from_secs(3),
            clock: Clock::System,
            interfaces: Vec::new(),
        }
    }
}

/// Why an exporter does not start.
#[derive(Debug)]
pub enum StartError {
    /// Nothing is to be exported.
    Nothing,
    /// NetFlow v9 has neither files nor streams.
    Netflow(Target),
    /// No thread.
    Thread(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("export: neither flows nor series are to be exported; choose one"),
            Self::Netflow(target) => write!(f, "{target}: NetFlow v9 goes by UDP only; export IPFIX there"),
            Self::Thread(error) => write!(f, "export: no thread: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

/// See the module.
pub struct Exporter {
    handle: Handle,
    grace: Duration,
    /// Says nothing; it is disconnected when the thread has ended.
    ended: Receiver<()>,
    thread: JoinHandle<()>,
}

impl Exporter {
    /// Starts the thread. Whether the collector can be reached shows later, in [`Counts::error`].
    ///
    /// # Errors
    /// [`StartError`] names what cannot be.
    pub fn start(settings: Settings) -> Result<Self, StartError> {
        if !settings.flows && !settings.series {
            return Err(StartError::Nothing);
        }
        if settings.protocol == Protocol::NetflowV9 && settings.target.is_reliable() {
            return Err(StartError::Netflow(settings.target));
        }
        let shared = Arc::new(Shared::default());
        let (queue, jobs) = sync_channel(settings.queue.max(1));
        let handle = Handle {
            queue,
            shared: shared.clone(),
            offer_timeout: settings.offer_timeout,
            hurry: settings.stop_waiting.clone(),
            flows: settings.flows,
            series: settings.series,
        };
        let grace = settings.grace;
        let worker = Worker::new(settings, shared);
        let (alive, ended) = sync_channel(0);
        let work = move || {
            // Dropped however the thread ends, which the other end notices.
            let _alive = alive;
            worker.run(jobs);
        };
        let thread = std::thread::Builder::new().name("export".into()).spawn(work);
        Ok(Self { handle, grace, ended, thread: thread.map_err(StartError::Thread)? })
    }

    /// For a meter's thread.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// What became of what was offered so far.
    pub fn counts(&self) -> Counts {
        self.handle.counts()
    }

    /// Asks for the end without waiting for it: what waits is still sent, for as long as the grace lasts.
    pub fn leave(&self) {
        let shared = &self.handle.shared;
        shared.until.get_or_init(|| Instant::now() + self.grace);
        shared.ending.store(true, SeqCst);
    }

    /// Whether [`Exporter::finish`] would return at once: the end that [`Exporter::leave`] asked for has come, or the grace is
    /// over.
    pub fn has_left(&self) -> bool {
        self.thread.is_finished() || self.handle.shared.until.get().is_some_and(|t| Instant::now() >= *t + MARGIN)
    }

    /// Sends what waits, for as long as the grace lasts, and ends. Then `offered = sent + unsent`. A thread that is in a call which
    /// the system does not bound is left behind; what waits for it is counted as unreachable.
    pub fn finish(self) -> Counts {
        self.leave();
        let shared = &self.handle.shared;
        let left =
            shared.until.get().map_or(Duration::ZERO, |t| (*t + MARGIN).saturating_duration_since(Instant::now()));
        match self.ended.recv_timeout(left) {
            // A panic of the thread is its own report; what it had taken shows as waiting.
            Ok(()) | Err(RecvTimeoutError::Disconnected) => drop(self.thread.join()),
            Err(RecvTimeoutError::Timeout) => {
                shared.closed.store(true, SeqCst);
                shared.abandoned.store(true, SeqCst);
            }
        }
        self.handle.counts()
    }
}
