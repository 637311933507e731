//! The way out of the meter: a bounded queue that is only ever tried, and a thread of its own that encodes and sends.
//!
//! Invariant: every record and second that was offered is counted once, as sent or as unsent by a named cause:
//! `offered = sent + unsent + waiting`, and nothing waits after [`Exporter::finish`]. Sent means handed to the kernel.
//!
//! A collector that is away is tried again after 0.1 s, 0.2 s, … 30 s. Meanwhile the queue is the buffer: a short outage
//! costs nothing, a long one costs what does not fit.

mod counts;
mod handle;
mod worker;

pub use counts::{Counts, Unsent};
pub use handle::Handle;

use crate::encode::Config;
use crate::target::Target;
use counts::Shared;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Duration;
use worker::Worker;

/// Records and seconds that may wait; about 1.2 kB each.
pub const QUEUE: usize = 16_384;

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
    pub patience: Duration,
    /// Once true, nobody waits: whoever asked for the end of a replay is not to wait for a collector.
    pub hurry: Arc<AtomicBool>,
    /// The longest that a record waits for its message to become full.
    pub linger: Duration,
    /// How long [`Exporter::finish`] tries to send what waits.
    pub grace: Duration,
    /// Where export times come from.
    pub clock: Clock,
    /// Numbers and names of the interfaces.
    pub interfaces: Vec<(u16, String)>,
}

impl Settings {
    /// The usual ones for a target: flows to one collector, both kinds to groups and files.
    pub fn new(target: Target) -> Self {
        let encode = if target.is_reliable() { Config::reliable() } else { Config::default() };
        Self {
            series: matches!(target, Target::Multicast { .. } | Target::File(_)),
            target,
            protocol: Protocol::Ipfix,
            flows: true,
            encode,
            queue: QUEUE,
            patience: Duration::ZERO,
            hurry: Arc::default(),
            linger: Duration::from_millis(500),
            grace: Duration::from_secs(5),
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
    thread: JoinHandle<()>,
}

impl Exporter {
    /// Starts the thread. Whether the collector can be reached shows later, in [`Counts::trouble`].
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
            patience: settings.patience,
            hurry: settings.hurry.clone(),
            flows: settings.flows,
            series: settings.series,
        };
        let worker = Worker::new(settings, shared);
        let thread = std::thread::Builder::new().name("export".into()).spawn(|| worker.run(jobs));
        Ok(Self { handle, thread: thread.map_err(StartError::Thread)? })
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
        self.handle.shared.ending.store(true, SeqCst);
    }

    /// Whether the end that [`Exporter::leave`] asked for has come.
    pub fn has_left(&self) -> bool {
        self.thread.is_finished()
    }

    /// Sends what waits, for as long as the grace lasts, and ends. Then `offered = sent + unsent`.
    pub fn finish(self) -> Counts {
        self.leave();
        // A panic of the thread is its own report; what it had taken shows as waiting.
        let _ = self.thread.join();
        self.handle.counts()
    }
}
