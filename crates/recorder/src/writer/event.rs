//! The events that the writer reports to users.

use crate::cutter::OutOfOrderCounts;
use base::Timestamp;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// An event for users. Its text is one line.
#[derive(Debug)]
pub enum Event {
    /// A file is complete, synced, and published.
    Published {
        /// The packet file.
        path: PathBuf,
        /// Number of packets in the file.
        packets: u64,
        /// Its length.
        bytes: u64,
    },
    /// The volume refuses an operation. No packet is lost yet; the recorder retries.
    Trouble {
        /// The operation that failed.
        what: &'static str,
        /// The file or directory to which the operation applied.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
        /// How the user can resolve the failure.
        advice: &'static str,
    },
    /// The volume accepts writes again.
    Recovered {
        /// Time for which the volume refused operations.
        after: Duration,
    },
    /// A file cannot be published and keeps its hidden name.
    LeftHidden {
        /// The packet file.
        path: PathBuf,
        /// The operation that failed.
        what: &'static str,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The recorder was stopped while the volume refused writes, and the grace period has passed.
    GaveUp {
        /// Number of packets that were not written.
        packets: u64,
    },
    /// The recording begins at a time for which the store already contains packets of the queue; reported once, at the
    /// begin.
    TimeOverlap {
        /// A file with these packets.
        path: PathBuf,
        /// Begin of the recording.
        start: Timestamp,
    },
    /// Packets were out of order; reported once, at the end.
    OutOfOrder(OutOfOrderCounts),
    /// A condition that does not stop the recording.
    Warning(String),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Published { path, packets, bytes } => {
                write!(f, "{}: published, {packets} packets, {bytes} bytes", path.display())
            }
            Self::Trouble { what, path, error, advice } => {
                write!(
                    f,
                    "cannot {what} {}: {error}; the recorder retries, and the ring keeps the packets meanwhile; \
                     {advice}",
                    path.display()
                )
            }
            Self::Recovered { after } => {
                write!(f, "the volume accepts writes again, after {:.1} s", after.as_secs_f64())
            }
            Self::LeftHidden { path, what, error } => write!(
                f,
                "{}: cannot {what} this file: {error}; the file keeps this hidden name; the next recorder of this \
                 interface or netgrain repair publishes its complete packets",
                path.display()
            ),
            Self::GaveUp { packets } => {
                write!(f, "stopped while the volume refused writes: {packets} packets not written (lost: disk)")
            }
            Self::TimeOverlap { path, start } => write!(
                f,
                "{} already has packets of {start}, and this recording is stored in addition: if it is the same \
                 capture, the store will have each packet twice; stop and remove the new files, or name another \
                 --store",
                path.display()
            ),
            Self::OutOfOrder(OutOfOrderCounts { packets, most }) => write!(
                f,
                "{packets} packets were out of order, up to {} s earlier than a packet before them (captures replayed \
                 in another order, or a clock that was set back); queries find them by their timestamps",
                most.as_secs_f64()
            ),
            Self::Warning(text) => f.write_str(text),
        }
    }
}
