//! The interruptions of a spinning thread on the present machine, for comparison with the noise of the model.

use serde::Serialize;
use std::fmt;
use std::time::{Duration, Instant};

/// Shorter gaps between two readings of the clock are not counted as interruptions.
const SHORTEST: Duration = Duration::from_nanos(500);

/// The interruptions of a spinning thread.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct MeasuredInterruptions {
    /// Time of the measurement in seconds.
    seconds: f64,
    /// Interruptions of more than 500 ns per second.
    per_second: f64,
    /// Mean length in microseconds.
    mean_us: f64,
    /// The longest interruption in microseconds.
    longest_us: f64,
    /// Share of the time for which the thread was interrupted.
    share: f64,
}

/// Reads the clock without pause for this time.
pub fn interruptions(time: Duration) -> MeasuredInterruptions {
    let started = Instant::now();
    let (mut last, mut count, mut sum, mut longest) = (started, 0u64, Duration::ZERO, Duration::ZERO);
    while last.duration_since(started) < time {
        let now = Instant::now();
        let gap = now.duration_since(last);
        if gap >= SHORTEST {
            (count, sum, longest) = (count + 1, sum + gap, longest.max(gap));
        }
        last = now;
    }
    let seconds = last.duration_since(started).as_secs_f64();
    MeasuredInterruptions {
        seconds,
        per_second: count as f64 / seconds,
        mean_us: sum.as_secs_f64() * 1e6 / count.max(1) as f64,
        longest_us: longest.as_secs_f64() * 1e6,
        share: sum.as_secs_f64() / seconds,
    }
}

impl fmt::Display for MeasuredInterruptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "interruptions of this machine in {:.1} s: {:.0} per second, mean {:.1} µs, longest {:.0} µs, {:.2} % of \
             the time",
            self.seconds,
            self.per_second,
            self.mean_us,
            self.longest_us,
            100.0 * self.share
        )
    }
}
