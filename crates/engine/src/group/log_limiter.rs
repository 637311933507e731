//! What programs write: a line each on standard error, at most [`MAX`] for each second of packets, because a program that
//! writes a line for each packet must not hold them up. All of them are counted, written or not.

use lang::ir::{Log, Program};
use lang::log::LogSubject;

/// Lines for each second of packets and worker.
const MAX: u32 = 10;

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// See the module's text.
#[derive(Clone, Debug, Default)]
pub struct LogLimiter {
    second: u64,
    lines: u32,
    /// Lines that programs wanted.
    pub wanted: u64,
}

impl LogLimiter {
    /// One line more, of a packet of this group and port (`whose`) and time (nanoseconds since 1970).
    pub fn write(&mut self, whose: &str, time: u64, log: Log, program: &Program, about: &LogSubject<'_>) {
        if self.may(time) {
            sys::say!("netgrain: {whose}: {}", about.line(log, program));
        }
    }

    /// Whether there is room for a line at this time.
    fn may(&mut self, time: u64) -> bool {
        self.wanted += 1;
        if time / SECOND != self.second {
            (self.second, self.lines) = (time / SECOND, 0);
        }
        self.lines += 1;
        self.lines <= MAX
    }
}
