//! The links of an engine thread to the rest of the capture.

use crate::recording::RecorderLink;
use base::{Ledger, Tally};
use interface_program::QueueOutcomes;
use ring::Producer;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Sleep time between two checks whether a lossless reader has released descriptors.
pub const PAUSE: Duration = Duration::from_micros(200);

/// See the module documentation.
pub struct WorkerLinks {
    /// Set by other threads to stop this thread, and by this thread when its own limit is reached.
    pub stop: Arc<AtomicBool>,
    /// Published several times per second.
    pub status: Arc<Mutex<WorkerStatus>>,
    /// The ledger of past seconds. It has its own lock, because a copy takes longer than a receive ring lasts.
    pub ledger: Arc<Mutex<Ledger>>,
    /// Gets the queue number when the interface has disappeared.
    pub gone: Sender<u16>,
    /// Delivers the source when it is open again.
    pub reopened_source: Receiver<capture::AnySource>,
    /// The recorder, if there is one.
    pub recorder: Option<RecorderLink>,
}

/// The last status that one engine thread published.
#[derive(Clone, Debug, Default)]
pub struct WorkerStatus {
    /// The tally since the start.
    pub tally: Tally,
    /// Fill level of the ring, measured at its slowest lossless reader: 0 to 1.
    pub fill: f64,
    /// Estimated error of this thread's timestamps.
    pub clock_error: Duration,
    /// Processor time of the thread.
    pub cpu: Duration,
    /// Frames taken from the source since it was opened.
    pub frames: u64,
    /// The counters of the interface's program.
    pub program: QueueOutcomes,
    /// Warnings, in order.
    pub warnings: Vec<String>,
    /// Faults.
    pub faults: Vec<String>,
}

impl WorkerLinks {
    /// True if a stop request or the time limit ends the capture.
    pub fn time_is_up(&self, duration: Option<Duration>, started: Instant) -> bool {
        self.stop.load(Ordering::Relaxed) || duration.is_some_and(|d| started.elapsed() >= d)
    }

    /// Starts the reader timeout: from now on the producer waits for a lossless reader only for a limited time.
    pub fn close(&self, producer: &mut Producer) {
        producer.closing();
        if let Some(recorder) = &self.recorder {
            recorder.closing();
        }
    }
}
