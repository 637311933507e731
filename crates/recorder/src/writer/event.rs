//! The events that the writing machine reports to users.

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
        /// Packets in it.
        packets: u64,
        /// Its length.
        bytes: u64,
    },
    /// The volume refuses an operation. Nothing is lost yet; the recorder retries.
    Trouble {
        /// The operation that failed.
        what: &'static str,
        /// The file or directory of the operation.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
        /// How the user can resolve the failure.
        advice: &'static str,
    },
    /// The volume takes writes again.
    Recovered {
        /// Time for which the volume refused.
        after: Duration,
    },
    /// A file keeps its hidden name.
    LeftHidden {
        /// The packet file.
        path: PathBuf,
        /// The operation that failed.
        what: &'static str,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The recorder was stopped while the volume refused, and the grace period has passed.
    GaveUp {
        /// Packets not written.
        packets: u64,
    },
    /// The recording begins at a time for which the store already has packets of the queue; reported once, at the
    /// beginning.
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
                    "cannot {what} {}: {error}; trying again, the ring holds the packets; {advice}",
                    path.display()
                )
            }
            Self::Recovered { after } => write!(f, "the volume takes writes again, after {:.1} s", after.as_secs_f64()),
            Self::LeftHidden { path, what, error } => write!(
                f,
                "{}: cannot {what}: {error}; left under this hidden name; the next recorder of this interface publishes \
                 what is whole in it, and so does netgrain repair",
                path.display()
            ),
            Self::GaveUp { packets } => {
                write!(f, "stopped while the volume refused writes: {packets} packets not written (lost: disk)")
            }
            Self::TimeOverlap { path, start } => write!(
                f,
                "{} has packets of {start} already, and those that come now are stored beside them: if it is the same capture \
                 again, each packet is there twice from now on; stop, remove what is new, or name another --store",
                path.display()
            ),
            Self::OutOfOrder(OutOfOrderCounts { packets, most }) => write!(
                f,
                "{packets} packets were earlier than one before them, by up to {} s: they came out of the order of time (captures \
                 given in another order, a clock that was set back); questions find them by their own stamps",
                most.as_secs_f64()
            ),
            Self::Warning(text) => f.write_str(text),
        }
    }
}
