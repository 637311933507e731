//! What the writing machine tells people, and how it waits when the volume refuses.

use crate::cutter::OutOfOrderCounts;
use base::Timestamp;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// First pause before a refused operation is tried again; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// Longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Something people should know. Its text is one line.
#[derive(Debug)]
pub enum Event {
    /// A file is whole, synced, and has its name.
    Published {
        /// The packet file.
        path: PathBuf,
        /// Packets in it.
        packets: u64,
        /// Its length.
        bytes: u64,
    },
    /// The volume refuses. Nothing is lost yet; it is tried again.
    Trouble {
        /// What was being done.
        what: &'static str,
        /// To what.
        path: PathBuf,
        /// Why not.
        error: io::Error,
        /// What to do.
        advice: &'static str,
    },
    /// The volume takes writes again.
    Recovered {
        /// How long it did not.
        after: Duration,
    },
    /// A file keeps its hidden name.
    LeftHidden {
        /// Which.
        path: PathBuf,
        /// What failed.
        what: &'static str,
        /// Why.
        error: io::Error,
    },
    /// The recorder was told to stop while the volume refused, and waited long enough.
    GaveUp {
        /// Packets not written.
        packets: u64,
    },
    /// What is recorded begins at a moment of which the queue has packets in the store already; said once, at the beginning.
    TimeOverlap {
        /// A file that has them.
        path: PathBuf,
        /// When it begins.
        start: Timestamp,
    },
    /// Packets came out of the order of time; said once, at the end.
    OutOfOrder(OutOfOrderCounts),
    /// Something works, but not in the best way.
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

/// The volume refuses: to write and open, or to take one file a step further.
pub(super) struct VolumeFailure {
    /// Why it did first.
    pub kind: io::ErrorKind,
    /// Since when.
    pub since: Duration,
    /// When it is tried again.
    pub retry_at: Duration,
    pause: Duration,
}

impl VolumeFailure {
    pub fn new(kind: io::ErrorKind, now: Duration) -> Self {
        Self { kind, since: now, retry_at: now + FIRST_PAUSE, pause: FIRST_PAUSE }
    }

    /// One more refusal. Those that come while the pause already runs are part of the one that began it.
    pub fn again(&mut self, now: Duration) {
        if now >= self.retry_at {
            self.pause = (2 * self.pause).min(MAX_PAUSE);
            self.retry_at = now + self.pause;
        }
    }

    /// Whether what failed is left alone at this moment.
    pub fn pauses(&self, now: Duration) -> bool {
        now < self.retry_at
    }
}
