//! The recorder that a query follows. This module tests whether the recorder still runs, determines how often its files
//! are read for new packets, and computes the time that a waiting cursor reports.

use crate::QueryContext;
use crate::cursor::CursorState;
use base::Timestamp;
use std::path::Path;
use std::time::{Duration, Instant};
use store::{Claim, Claimant};

/// A waiting cursor reports the progress of time in steps of this length.
const STEP: Duration = Duration::from_millis(10);

/// Without a ring reader: the interval at which files are read for new packets, and the largest share of the time that
/// these reads may take. The share is limited because each refresh reads the complete index, which is large for a large
/// file.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
const SCAN_PART: u32 = 20;

/// The interval at which the tail tests whether the recorder is running.
const LIFE: Duration = Duration::from_millis(200);

/// The recorder that a query follows.
pub struct FollowedRecorder {
    claimant: Claimant,
    state: RecorderState,
    clock: MonotonicClock,
    file_checks: FileChecks,
}

/// The state of the recorder when its claim was last tested.
#[derive(Clone, Copy, Debug)]
enum RecorderState {
    /// At the time `checked`, the recorder had the claim of the interface.
    Running { checked: Instant },
    /// The recorder no longer has the claim: the tail ends after the remaining packets of the ring and of the files.
    Ended,
}

impl FollowedRecorder {
    /// Begins to follow the recorder that has the claim of an interface.
    pub fn new(claimant: Claimant) -> Self {
        let now = Instant::now();
        Self {
            claimant,
            state: RecorderState::Running { checked: now },
            clock: MonotonicClock::start(),
            file_checks: FileChecks { last: now, pause: Duration::ZERO },
        }
    }

    /// True if the recorder no longer had the claim of the interface at the last test.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, RecorderState::Ended)
    }

    /// Tests at most once per `LIFE` whether the recorder still has the claim of the interface, and warns if it does
    /// not.
    pub fn check(&mut self, directory: &Path, context: &mut QueryContext) {
        let RecorderState::Running { checked } = self.state else { return };
        if checked.elapsed() < LIFE {
            return;
        }
        let checked = Instant::now();
        let whom = &self.claimant;
        let holds = Claim::holder(directory).is_some_and(|now| (now.pid, now.since) == (whom.pid, whom.since));
        self.state = if holds { RecorderState::Running { checked } } else { RecorderState::Ended };
        if self.has_ended() {
            self.report_end(directory, context);
        }
    }

    /// Warns that the recorder has ended.
    pub fn report_end(&self, directory: &Path, context: &mut QueryContext) {
        let name = directory.file_name().unwrap_or_default().to_string_lossy();
        let pid = self.claimant.pid;
        context.warning(format!("{name}: its recorder (process {pid}) has ended, so the query ends"));
    }

    /// True if the pause after the last search of the files for new packets is not over.
    pub fn is_pausing(&self) -> bool {
        self.file_checks.is_pausing(Instant::now())
    }

    /// Registers that a search for the next file begins now. This search reads no index.
    pub fn begin_check(&mut self) {
        self.file_checks.last = Instant::now();
    }

    /// Registers that the index of the file was read again. `begun` is the time at which this read began.
    pub fn end_check(&mut self, begun: Instant) {
        self.file_checks = FileChecks::after(begun, begun.elapsed());
    }

    /// Returns the state of a cursor that has no packet now: [`CursorState::Waiting`] with a timestamp before which no
    /// further packet is expected, or [`CursorState::End`] if the interval ends before this timestamp or before
    /// `latest`. `delay` is the longest time from a packet's timestamp to its publication, `latest` the latest
    /// timestamp so far, and `to` the end of the interval.
    pub fn wait(&mut self, delay: Duration, latest: Timestamp, to: Timestamp) -> CursorState {
        let from = self.clock.now().before(delay).floor_to(STEP);
        if from > to || latest > to { CursorState::End } else { CursorState::Waiting(from) }
    }
}

/// The times at which files are read for new packets.
#[derive(Clone, Copy, Debug)]
struct FileChecks {
    /// The begin of the last search of the files for new packets.
    last: Instant,
    /// The pause after `last`, before the next search.
    pause: Duration,
}

impl FileChecks {
    /// The schedule after a search of the files that began at `begun` and took this time.
    fn after(begun: Instant, took: Duration) -> Self {
        Self { last: begun, pause: CHECK_INTERVAL.max(SCAN_PART * took) }
    }

    fn is_pausing(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last) < self.pause
    }
}

/// A clock that never steps back. It shows the system time; after the system clock was set back, it continues with the
/// elapsed time. Without it, packets of other queues would be delayed until the system clock shows the former time
/// again.
struct MonotonicClock {
    /// The time that the clock returned last, and the monotonic time at that moment.
    reported: (Timestamp, Instant),
}

impl MonotonicClock {
    fn start() -> Self {
        Self { reported: (sys::clock::realtime(), Instant::now()) }
    }

    fn now(&mut self) -> Timestamp {
        self.at(sys::clock::realtime(), Instant::now())
    }

    fn at(&mut self, clock: Timestamp, now: Instant) -> Timestamp {
        let (result, then) = self.reported;
        self.reported = (clock.max(result.after(now.saturating_duration_since(then))), now);
        self.reported.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_back_delays_no_other_queue() {
        let (begin, hour) = (Instant::now(), Duration::from_secs(3600));
        let at = |secs: u64| Timestamp::from_secs_nanos(1_795_290_000 + secs, 0);
        let mut clock = MonotonicClock { reported: (at(0), begin) };
        let mut see = |shown: Timestamp, after: u64| clock.at(shown, begin + Duration::from_secs(after));
        assert_eq!(see(at(1), 1), at(1));
        assert_eq!(see(at(2).before(hour), 2), at(2), "after a step back, the clock continues with the elapsed time");
        assert_eq!(see(at(5).before(hour), 5), at(5));
        assert_eq!(see(at(100), 6), at(100), "the clock follows a step forward");
        assert_eq!(see(at(7), 7), at(101));
    }

    #[test]
    fn reading_files_takes_at_most_a_twentieth_of_the_time() {
        let begun = Instant::now();
        let ms = Duration::from_millis;
        for (took, pause) in [(0, 20), (1, 20), (5, 100)] {
            let checks = FileChecks::after(begun, ms(took));
            assert!(checks.is_pausing(begun + ms(pause - 1)), "{took} ms");
            assert!(!checks.is_pausing(begun + ms(pause)), "{took} ms");
        }
    }
}
