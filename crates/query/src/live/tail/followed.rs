//! The recorder that a query follows: whether it still records, how often files are read for new packets, and the time
//! that a waiting cursor reports.

use crate::QueryContext;
use crate::cursor::CursorState;
use base::Timestamp;
use std::path::Path;
use std::time::{Duration, Instant};
use store::{Claim, Claimant};

/// The step in which a waiting cursor reports the progress of time.
const STEP: Duration = Duration::from_millis(10);

/// How often files are read when there is no ring reader, and the largest share of the time that reading may take: the
/// index of a long file is long, and each refresh reads all of it.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
const SCAN_PART: u32 = 20;

/// How often the tail checks that the recorder is alive.
const LIFE: Duration = Duration::from_millis(200);

/// The recorder that a query follows.
pub struct FollowedRecorder {
    claimant: Claimant,
    state: RecorderState,
    clock: MonotonicClock,
    file_checks: FileChecks,
}

/// The state of the recorder at the last check.
#[derive(Clone, Copy, Debug)]
enum RecorderState {
    /// It held the interface at this moment.
    Running { checked: Instant },
    /// It no longer holds the interface: the tail ends after the rest of the ring and of the files.
    Ended,
}

impl FollowedRecorder {
    /// Follows the holder of a claim from now on.
    pub fn new(claimant: Claimant) -> Self {
        let now = Instant::now();
        Self {
            claimant,
            state: RecorderState::Running { checked: now },
            clock: MonotonicClock::start(),
            file_checks: FileChecks { last: now, pause: Duration::ZERO },
        }
    }

    /// True if the recorder no longer held the interface at the last check.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, RecorderState::Ended)
    }

    /// Checks at most once per `LIFE` whether the recorder still holds the interface, and warns if it does not.
    pub fn check(&mut self, folder: &Path, context: &mut QueryContext) {
        let RecorderState::Running { checked } = self.state else { return };
        if checked.elapsed() < LIFE {
            return;
        }
        let checked = Instant::now();
        let whom = &self.claimant;
        let holds = Claim::holder(folder).is_some_and(|now| (now.pid, now.since) == (whom.pid, whom.since));
        self.state = if holds { RecorderState::Running { checked } } else { RecorderState::Ended };
        if self.has_ended() {
            self.report_end(folder, context);
        }
    }

    /// Warns that the recorder has ended.
    pub fn report_end(&self, folder: &Path, context: &mut QueryContext) {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let pid = self.claimant.pid;
        context.warning(format!("{name}: its recorder (process {pid}) has ended, so the query ends"));
    }

    /// True if the pause after the last check of files is not over.
    pub fn is_pausing(&self) -> bool {
        self.file_checks.is_pausing(Instant::now())
    }

    /// Registers a check of files that needed no reading.
    pub fn begin_check(&mut self) {
        self.file_checks.last = Instant::now();
    }

    /// Registers a check that began at this moment and read the index of the file.
    pub fn end_check(&mut self, begun: Instant) {
        self.file_checks = FileChecks::after(begun, begun.elapsed());
    }

    /// The state of a cursor without a packet: later packets have timestamps that are not much older than this moment.
    /// It is the end if the interval ends before that. `delay` is the longest time from a packet's timestamp to its
    /// publication, `latest` the latest timestamp so far, and `to` the end of the interval.
    pub fn wait(&mut self, delay: Duration, latest: Timestamp, to: Timestamp) -> CursorState {
        let from = self.clock.now().before(delay).floor_to(STEP);
        if from > to || latest > to { CursorState::End } else { CursorState::Waiting(from) }
    }
}

/// The times at which files are read for new packets.
#[derive(Clone, Copy, Debug)]
struct FileChecks {
    /// The begin of the last check.
    last: Instant,
    /// The pause after that moment.
    pause: Duration,
}

impl FileChecks {
    /// The checks after a check that took this long.
    fn after(begun: Instant, took: Duration) -> Self {
        Self { last: begun, pause: CHECK_INTERVAL.max(SCAN_PART * took) }
    }

    fn is_pausing(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last) < self.pause
    }
}

/// A clock that never steps back: the clock of this machine, replaced by the elapsed time when it is set back. Without
/// it, other queues would wait until a clock that was set back has caught up.
struct MonotonicClock {
    /// The latest time returned, and the moment of that call.
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
        assert_eq!(see(at(2).before(hour), 2), at(2), "the elapsed time counts after a step back");
        assert_eq!(see(at(5).before(hour), 5), at(5));
        assert_eq!(see(at(100), 6), at(100), "a step forward is accepted");
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
