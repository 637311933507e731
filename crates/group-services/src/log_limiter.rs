//! The log limiter: a program may write at most [`MAX`] lines to standard error per second of packet time, because a
//! line for each packet would slow the dispatcher down. The counter of log lines includes the lines that the limit
//! suppresses.

use ir::log::LogSubject;
use ir::{Log, Program};

/// The largest number of log lines that one worker may write per second of packet time.
const MAX: u32 = 10;

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// The limiter of the log lines of one worker.
#[derive(Clone, Debug, Default)]
pub struct LogLimiter {
    second: u64,
    lines: u32,
    /// Number of log lines that programs requested.
    pub requested: u64,
}

impl LogLimiter {
    /// Writes a log line for a packet if the limit permits. `label` names the group and the interface, and `time` is
    /// the packet's time in nanoseconds since 1970.
    pub fn write(&mut self, label: &str, time: u64, log: Log, program: &Program, subject: &LogSubject<'_>) {
        if self.permits(time) {
            sys::say!("netgrain: {label}: {}", subject.line(log, program));
        }
    }

    /// Counts a log line; returns true if the limit permits it at this packet time.
    fn permits(&mut self, time: u64) -> bool {
        self.requested += 1;
        if time / SECOND != self.second {
            (self.second, self.lines) = (time / SECOND, 0);
        }
        self.lines += 1;
        self.lines <= MAX
    }
}
