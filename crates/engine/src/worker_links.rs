//! The channels and shared values through which an engine thread communicates with the rest of the capture.

use crate::duplicate_report::DuplicateReport;
use crate::recording::RecorderLink;
use base::{Ledger, Tally, TimestampMethod};
use interface_program::QueueOutcomes;
use ring::Producer;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use timestamping::NicClockState;

/// The sleep between two checks whether a lossless reader has released descriptors.
pub const PAUSE: Duration = Duration::from_micros(200);

/// See the module documentation.
pub struct WorkerLinks {
    /// True to stop the capture. Other threads set it, and the engine thread sets it when its own limit is reached.
    pub stop: Arc<AtomicBool>,
    /// The status, which the engine thread publishes several times per second.
    pub status: Arc<Mutex<WorkerStatus>>,
    /// The ledger of past seconds. It has a separate lock, because copying the ledger takes longer than a receive ring
    /// takes to fill.
    pub ledger: Arc<Mutex<Ledger>>,
    /// When the interface was removed, the engine thread sends its queue number into this channel.
    pub gone: Sender<u16>,
    /// When the interface is open again, the engine thread receives its new source from this channel.
    pub reopened_source: Receiver<capture::AnySource>,
    /// The recorder, if there is one.
    pub recorder: Option<RecorderLink>,
}

/// The last status that one engine thread published.
#[derive(Clone, Debug, Default)]
pub struct WorkerStatus {
    /// The tally since the start.
    pub tally: Tally,
    /// Fill level of the ring in relation to its slowest lossless reader, from 0 to 1.
    pub fill: f64,
    /// Estimated error of this thread's timestamps.
    pub clock_error: Duration,
    /// Name of the method of timestamping.
    pub timestamp_method: &'static str,
    /// Estimated standard deviation of the timestamps of the last packets; 0 if it is not estimated.
    pub timestamp_deviation: Duration,
    /// Number of packets by the method of their timestamp, at the number of the method.
    pub timestamp_methods: [u64; TimestampMethod::COUNT],
    /// The relation of the NIC's clock to the system clock, if timestamps of the NIC are converted.
    pub nic_clock: Option<NicClockState>,
    /// CPU time of the thread.
    pub cpu: Duration,
    /// Number of frames read from the source since it was opened.
    pub frames: u64,
    /// The counters of the detection of duplicates, if it is on.
    pub duplicates: Option<DuplicateReport>,
    /// The counters of the interface's program.
    pub program: QueueOutcomes,
    /// The warnings of this thread, in order.
    pub warnings: Vec<String>,
    /// The warnings about steps of the system clock, which are equal in all threads.
    pub clock_steps: Vec<String>,
    /// The faults that this thread has found.
    pub faults: Vec<String>,
}

impl WorkerLinks {
    /// True if a stop request or the time limit ends the capture.
    pub fn time_is_up(&self, duration: Option<Duration>, started: Instant) -> bool {
        self.stop.load(Ordering::Relaxed) || duration.is_some_and(|d| started.elapsed() >= d)
    }

    /// Starts to close the stream. From now on, the producer waits for a lossless reader at most for the reader
    /// timeout, and the recorder may discard packets if the volume refuses writes.
    pub fn close(&self, producer: &mut Producer) {
        producer.closing();
        if let Some(recorder) = &self.recorder {
            recorder.closing();
        }
    }
}
