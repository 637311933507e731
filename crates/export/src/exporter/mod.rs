//! The exporting process: a bounded queue whose sender does not block by default, and a thread that encodes and sends.
//!
//! Invariant: every flow record and series row that was offered is counted once, as sent or as unsent with a cause:
//! `offered = sent + unsent + waiting`, and `waiting` is 0 after [`Exporter::finish`]. Sent means passed to the kernel.
//!
//! An unreachable collector is retried after 0.1 s, 0.2 s, … 30 s. Until the collector is reachable again, the records
//! remain in the queue. If the queue becomes full in this time, the records that do not fit into it are lost.
//!
//! The exporter ends at most [`Settings::grace`] and a little more after the call of [`Exporter::leave`], even if the
//! collector, name resolution or the disk is slow. This grace period limits the duration of the thread's blocking
//! calls. If the thread is in a call whose duration the system does not limit, the exporter ends without waiting for
//! the thread (`Shared::abandoned`).

mod counts;
mod handle;
mod settings;
mod worker;

pub use counts::{Counts, Unsent};
pub use handle::Handle;
pub use settings::{Clock, Protocol, QUEUE, Settings};

use crate::target::Target;
use counts::Shared;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use worker::Worker;

/// [`Exporter::finish`] waits this much longer than [`Settings::grace`] for the thread to end. If the thread is still
/// blocked in a call after this time, the exporter ends without waiting for the thread.
const MARGIN: Duration = Duration::from_millis(200);

/// The reason why an exporter does not start.
#[derive(Debug)]
pub enum StartError {
    /// The settings export neither flow records nor series rows.
    Nothing,
    /// NetFlow v9 supports neither files nor streams.
    Netflow(Target),
    /// The exporter's thread could not be started.
    Thread(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("export: neither flows nor series are to be exported; choose one"),
            Self::Netflow(target) => {
                write!(f, "{target}: NetFlow v9 is exported over UDP only; export IPFIX to this target")
            }
            Self::Thread(error) => write!(f, "export: the thread cannot be started: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

/// A running exporter; see the module.
pub struct Exporter {
    handle: Handle,
    grace: Duration,
    /// A channel without messages; it is disconnected when the exporter's thread ends.
    ended: Receiver<()>,
    thread: JoinHandle<()>,
}

impl Exporter {
    /// Starts the exporter's thread. An unreachable collector is reported later, in [`Counts::error`].
    ///
    /// # Errors
    /// [`StartError`] has the reason.
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
            stop_waiting: settings.stop_waiting.clone(),
            flows: settings.flows,
            series: settings.series,
        };
        let grace = settings.grace;
        let worker = Worker::new(settings, shared);
        let (alive, ended) = sync_channel(0);
        let work = move || {
            // The sender `_alive` is dropped when the thread ends, also by a panic. The drop disconnects the receiver
            // `ended`.
            let _alive = alive;
            worker.run(jobs);
        };
        let thread = std::thread::Builder::new().name("export".into()).spawn(work);
        Ok(Self { handle, grace, ended, thread: thread.map_err(StartError::Thread)? })
    }

    /// Returns a handle with which one meter thread offers records.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Counters of the records offered so far.
    pub fn counts(&self) -> Counts {
        self.handle.counts()
    }

    /// Requests the end of the exporter without waiting for it: the records in the queue are still sent until the grace
    /// period is over.
    pub fn leave(&self) {
        let shared = &self.handle.shared;
        shared.until.get_or_init(|| Instant::now() + self.grace);
        shared.ending.store(true, SeqCst);
    }

    /// True if [`Exporter::finish`] would return at once: the end that [`Exporter::leave`] requested is complete, or
    /// the grace period is over.
    pub fn has_left(&self) -> bool {
        self.thread.is_finished() || self.handle.shared.until.get().is_some_and(|t| Instant::now() >= *t + MARGIN)
    }

    /// Sends the waiting records until [`Settings::grace`] is over, and ends the exporter. Afterwards `offered = sent +
    /// unsent`. If the thread is blocked in a call whose duration the system does not limit, the exporter ends without
    /// waiting for the thread; the waiting records count as unreachable.
    pub fn finish(self) -> Counts {
        self.leave();
        let shared = &self.handle.shared;
        let left =
            shared.until.get().map_or(Duration::ZERO, |t| (*t + MARGIN).saturating_duration_since(Instant::now()));
        match self.ended.recv_timeout(left) {
            // If the thread panicked, the panic message has been printed already. The records that the thread had taken
            // from the queue remain counted as waiting.
            Ok(()) | Err(RecvTimeoutError::Disconnected) => drop(self.thread.join()),
            Err(RecvTimeoutError::Timeout) => {
                shared.closed.store(true, SeqCst);
                shared.abandoned.store(true, SeqCst);
            }
        }
        self.handle.counts()
    }
}
