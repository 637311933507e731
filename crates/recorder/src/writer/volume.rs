//! The failures of the volume, their retries and their reports.
//!
//! A failure to write or to open a file delays all writes ([`VolumeState`]). A failure to seal a file delays only this
//! file, and is stored in its [`super::file::OpenFile`]. The writer reports one event at the begin of a failure, and
//! one event when all failures are resolved.

use super::flight::State;
use super::{Event, Writer};
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use store::device::{Device, is_full};

/// Pause before the first retry of a refused operation; each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// The longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// A failure of the volume to write or open files, or to seal one file.
pub(super) struct VolumeFailure {
    /// The kind of the first error of this failure.
    pub kind: io::ErrorKind,
    /// Time of the first error.
    pub since: Duration,
    /// Time of the next retry.
    pub retry_at: Duration,
    pause: Duration,
}

impl VolumeFailure {
    pub fn new(kind: io::ErrorKind, now: Duration) -> Self {
        Self { kind, since: now, retry_at: now + FIRST_PAUSE, pause: FIRST_PAUSE }
    }

    /// Registers another error of this failure. Errors during a pause do not lengthen the pause.
    pub fn again(&mut self, now: Duration) {
        if now >= self.retry_at {
            self.pause = (2 * self.pause).min(MAX_PAUSE);
            self.retry_at = now + self.pause;
        }
    }

    /// True during the pause after the last error, in which failed operations are not retried.
    pub fn pauses(&self, now: Duration) -> bool {
        now < self.retry_at
    }
}

/// The failures of the volume that delay the writing and the opening of files.
#[derive(Default)]
pub(super) struct VolumeState {
    /// The failure to write or to open files; `None` while the volume accepts these operations.
    pub failure: Option<VolumeFailure>,
    /// Time at which the first unresolved failure began. The event that reports the recovery contains the duration
    /// since this time.
    pub troubled_since: Option<Duration>,
    pub completions: Completions,
    /// True if an operation failed or is still blocked in this step of the writer.
    pub is_blocked: bool,
    /// True if the warning that directories cannot be synced was reported.
    pub is_unsynced_reported: bool,
}

/// The state of the device's reports of completed operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Completions {
    /// The device reports completions.
    #[default]
    Reported,
    /// The last attempt to get completions from the device failed.
    Failing,
}

impl VolumeState {
    /// True during the pause after a failure, in which no write is started.
    pub fn pauses(&self, now: Duration) -> bool {
        self.failure.as_ref().is_some_and(|failure| failure.pauses(now))
    }

    /// True if the device fails to report completions.
    pub fn is_unresponsive(&self) -> bool {
        self.completions == Completions::Failing
    }
}

impl<D: Device> Writer<D> {
    pub(super) fn failures(&self) -> impl Iterator<Item = &VolumeFailure> {
        self.volume.failure.iter().chain(self.files.iter().filter_map(|f| f.trouble.as_ref()))
    }

    /// Registers a failure to write or to open a file.
    pub(super) fn fail(&mut self, what: &'static str, path: PathBuf, error: io::Error, now: Duration) {
        self.volume.is_blocked = true;
        if is_full(&error) {
            self.drop_next();
        }
        match &mut self.volume.failure {
            Some(failure) => failure.again(now),
            None => {
                let failure = VolumeFailure::new(error.kind(), now);
                self.report_failure(what, path, error, now);
                self.volume.failure = Some(failure);
            }
        }
    }

    /// Reports only one event per failure, because a full volume refuses many operations for the same reason.
    pub(super) fn report_failure(&mut self, what: &'static str, path: PathBuf, error: io::Error, now: Duration) {
        self.volume.troubled_since.get_or_insert(now);
        if !self.failures().any(|t| t.kind == error.kind()) {
            self.events.push(Event::Trouble { what, path, advice: sys::advice::to_write(&error), error });
        }
    }

    /// Marks the failure to write or to open files as resolved, if no operation failed in this step and no failed write
    /// is pending.
    pub(super) fn consider_recovered(&mut self) {
        let has_pending_retry =
            self.flights.iter().flat_map(|f| &f.pieces).any(|p| p.has_failed && p.state != State::Done);
        if !self.volume.is_blocked && !has_pending_retry {
            self.volume.failure = None;
        }
    }

    /// Reports that the volume accepts writes again, when all failures are resolved. After the grace period, nothing is
    /// reported: the last failures end because packets are no longer written, and not because the volume has space.
    pub(super) fn report_recovery(&mut self, now: Duration) {
        if self.failures().next().is_none()
            && let Some(since) = self.volume.troubled_since.take()
            && !self.run.has_given_up()
        {
            self.events.push(Event::Recovered { after: now.saturating_sub(since) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_maximum_and_errors_do_not_extend_them() {
        let mut failure = VolumeFailure::new(io::ErrorKind::Other, Duration::ZERO);
        failure.again(FIRST_PAUSE / 2);
        assert!(failure.pauses(FIRST_PAUSE / 2) && !failure.pauses(FIRST_PAUSE));
        let mut now = FIRST_PAUSE;
        for pause in [2, 4, 8, 16, 32, 64, 100, 100] {
            failure.again(now);
            assert_eq!(failure.retry_at, now + pause * FIRST_PAUSE);
            now = failure.retry_at;
        }
    }
}
