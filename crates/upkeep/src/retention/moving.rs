//! Archiving in the retention worker: this module chooses the next file, processes the result of its move, and reports
//! warnings. A [`MoveJob`] may be sent to another thread, which waits for the archive's volume while the worker
//! continues.
//!
//! At most one file is being archived ([`Transfer`]). The state changes from `None` to `Here` when a rule chooses a
//! file, from `Here` to `SentOut` when another thread gets the job, and from `SentOut` to `Here` when that thread
//! returns the job. It changes from `Here` to `None` when the file was moved to the archive, or when the move failed
//! and the file stays in the store.

use super::archive::{Failed, Move};
use super::catalogue::Key;
use super::removal::RemovedFile;
use super::scan::{SCAN_INTERVAL, ScanState};
use super::{ClockReading, Event, Progress, RETRY_EVERY, RemovalReason, RetentionWorker};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use store::device::Housekeeping;

/// The move of a file to the archive.
pub struct MoveJob {
    interface: usize,
    key: Key,
    why: RemovalReason,
    moving: Move,
    failed: Option<Failed>,
    cancelled: Arc<AtomicBool>,
}

impl MoveJob {
    /// Performs one step: copies up to one MiB, or syncs. All steps of a job must use the same device. Returns false if
    /// the job must be returned to the worker.
    pub fn step<D: Housekeeping>(&mut self, device: &mut D) -> bool {
        if self.is_cancelled() {
            self.give_up(device);
        }
        if self.failed.is_some() || self.moving.is_finished() || self.is_cancelled() {
            return false;
        }
        if let Err(failed) = self.moving.step(device) {
            self.moving.abandon(device);
            self.failed = Some(failed);
        }
        self.failed.is_none() && !self.moving.is_finished()
    }

    /// True if the worker has cancelled the job: the next step of the job removes the copies.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Removes the copies of an unsuccessful job.
    pub fn give_up<D: Housekeeping>(&mut self, device: &mut D) {
        self.moving.abandon(device);
        self.cancelled.store(true, Ordering::Relaxed);
    }
}

/// The data that the worker keeps about a job while the job is with another thread.
pub(super) struct PendingMove {
    interface: usize,
    key: Key,
    cancelled: Arc<AtomicBool>,
}

/// The state of archiving that the worker keeps from step to step.
#[derive(Default)]
pub(super) struct Archiving {
    /// Id of the volume on which the archive was at the start of the worker, or when the archive was first found.
    pub volume: Option<u64>,
    /// The time before which no file is archived, after a failure.
    pub retry_at: Duration,
    pub transfer: Transfer,
}

/// The move in progress.
#[derive(Default)]
pub(super) enum Transfer {
    /// No file.
    #[default]
    None,
    /// The worker has the job and continues it, until it sends the job to another thread.
    Here(Box<MoveJob>),
    /// Another thread has the job.
    SentOut(PendingMove),
}

impl Transfer {
    /// Returns the state after this call, and the job if its next step must access the archive's volume.
    fn send_out(self) -> (Self, Option<MoveJob>) {
        match self {
            Self::Here(job) if !job.moving.is_finished() => {
                let cancelled = Arc::clone(&job.cancelled);
                (Self::SentOut(PendingMove { interface: job.interface, key: job.key, cancelled }), Some(*job))
            }
            other => (other, None),
        }
    }

    /// The state after another thread has returned the job.
    fn returned(job: MoveJob) -> Self {
        if job.is_cancelled() { Self::None } else { Self::Here(Box::new(job)) }
    }

    /// Cancels the move: immediately if the worker has the job, otherwise as soon as the other thread checks the flag.
    fn abandon<D: Housekeeping>(self, device: &mut D) -> Self {
        match self {
            Self::Here(mut job) => {
                job.give_up(device);
                Self::None
            }
            Self::SentOut(pending) => {
                pending.cancelled.store(true, Ordering::Relaxed);
                Self::SentOut(pending)
            }
            Self::None => Self::None,
        }
    }
}

impl Archiving {
    /// True if a file is being archived.
    pub fn is_moving(&self) -> bool {
        !matches!(self.transfer, Transfer::None)
    }

    /// True if the job is with another thread.
    pub fn is_sent_out(&self) -> bool {
        matches!(self.transfer, Transfer::SentOut(_))
    }

    /// True if the job of this file is with another thread.
    pub fn has_sent_out(&self, interface: usize, key: Key) -> bool {
        matches!(&self.transfer, Transfer::SentOut(pending) if (pending.interface, pending.key) == (interface, key))
    }

    fn take_transfer(&mut self) -> Transfer {
        std::mem::take(&mut self.transfer)
    }

    /// Stores the id of the archive's volume that a job has found, if the id was unknown.
    fn set_volume(&mut self, job: &MoveJob) {
        self.volume = self.volume.or(job.moving.volume());
    }
}

impl<D: Housekeeping> RetentionWorker<D> {
    /// The job of the file being archived, if its next step must access the archive's volume. The worker archives no
    /// other file until the job is [returned](RetentionWorker::take_back).
    pub fn send_out(&mut self) -> Option<MoveJob> {
        let (transfer, job) = self.archive.take_transfer().send_out();
        self.archive.transfer = transfer;
        job
    }

    /// Takes the job back from another thread. The next [`RetentionWorker::step`] with `slack` completes the move.
    pub fn take_back(&mut self, job: MoveJob) {
        self.archive.set_volume(&job);
        self.archive.transfer = Transfer::returned(job);
    }

    pub(super) fn begin_move(&mut self, interface: usize, key: Key, why: RemovalReason, at: ClockReading) -> Progress {
        let Some(archive) = self.rules.archive.clone() else { return Progress::Idle };
        let files = &self.interfaces[interface].files;
        if files.is_being_published(&mut self.device, &key) {
            self.set_aside(interface, key, at.up + SCAN_INTERVAL);
            return Progress::More;
        }
        let inside =
            self.interfaces[interface].directory.strip_prefix(&self.scope.store).unwrap_or(Path::new("")).to_owned();
        let parts = self.interfaces[interface].files.parts(&key);
        let sweeps = !std::mem::replace(&mut self.interfaces[interface].swept, true);
        let moving = Move::new(&archive, archive.join(inside), self.archive.volume, key, parts).sweeping(sweeps);
        let job = MoveJob { interface, key, why, moving, failed: None, cancelled: Arc::default() };
        self.archive.transfer = Transfer::Here(Box::new(job));
        Progress::More
    }

    /// Continues the job that the worker has.
    pub(super) fn continue_move(&mut self, at: ClockReading) -> Progress {
        let (transfer, progress) = match self.archive.take_transfer() {
            Transfer::Here(job) => self.move_on(job, at),
            other => (other, Progress::Idle),
        };
        self.archive.transfer = transfer;
        progress
    }

    /// Performs one step of a job; returns the state after the step.
    fn move_on(&mut self, mut job: Box<MoveJob>, at: ClockReading) -> (Transfer, Progress) {
        if job.step(&mut self.device) {
            return (Transfer::Here(job), Progress::More);
        }
        self.archive.set_volume(&job);
        let (interface, key) = (job.interface, job.key);
        if let Some(failed) = job.failed {
            return (Transfer::None, self.move_failed(interface, key, at, failed));
        }
        match self.remove_from_store(interface, key, job.why, &mut job.moving, at) {
            Ok(true) => (Transfer::None, Progress::More),
            Ok(false) => {
                let waits = job.moving.is_finished() && self.held.count() > 0;
                (Transfer::Here(job), if waits { Progress::Idle } else { Progress::More })
            }
            Err(failed) => {
                job.moving.abandon(&mut self.device);
                (Transfer::None, self.move_failed(interface, key, at, failed))
            }
        }
    }

    /// Removes the file from the store after its copy is synced, verified and published, or renames it into the
    /// archive. Returns false while the worker waits for a query that holds the file.
    fn remove_from_store(
        &mut self,
        interface: usize,
        key: Key,
        why: RemovalReason,
        moving: &mut Move,
        at: ClockReading,
    ) -> Result<bool, Failed> {
        self.held.begin_search();
        let hour = self.interfaces[interface].files.directory_of(key.hour());
        let lock = match self.device.lock_for_removal(&hour) {
            Ok(Some(lock)) => Some(lock),
            Ok(None) => {
                if self.register_hold(interface, key.hour(), at) < self.rules.wait {
                    return Ok(false);
                }
                // If the hold is overruled, the query can still find the file in the archive, which is better than a
                // removal.
                self.overrule(interface, key.hour());
                None
            }
            Err(error) => return Err(Failed::Source { path: hour, error }),
        };
        let parts = self.interfaces[interface].files.parts(&key);
        let gone = if moving.rename(&mut self.device)? {
            self.forget(interface, &key);
            let allocated = parts.iter().map(|part| part.allocated).sum();
            parts.last().map(|part| RemovedFile { path: part.path.clone(), allocated })
        } else if moving.is_finished() {
            self.remove(interface, key, at)
        } else {
            // A rename is impossible, so the file must be copied.
            return Ok(false);
        };
        drop(lock);
        if let Some(RemovedFile { path, allocated: bytes }) = gone {
            self.reports.state.archived.add(bytes);
            self.reports.events.push(Event::Archived { path, to: moving.target().to_owned(), bytes, why });
        }
        Ok(true)
    }

    /// Cancels the move of a file, which then stays in the store or is removed without archiving.
    pub(super) fn abandon_move(&mut self) {
        self.archive.transfer = self.archive.take_transfer().abandon(&mut self.device);
    }

    fn move_failed(&mut self, interface: usize, key: Key, at: ClockReading, failed: Failed) -> Progress {
        match failed {
            Failed::Source { error, .. } if error.kind() == io::ErrorKind::NotFound => {
                // Another process has removed the packet file or its index; the next listing updates the catalogue.
                self.interfaces[interface].files.forget(&key);
                self.scans = ScanState::Due;
                Progress::More
            }
            Failed::Source { path, error } => {
                self.exclude_failed(
                    interface,
                    key,
                    at,
                    format!("{}: cannot be read for the archive: {error}", path.display()),
                );
                Progress::More
            }
            Failed::Archive { path, text } => self.no_archive(at, &path, &text),
        }
    }

    fn no_archive(&mut self, at: ClockReading, path: &Path, text: &str) -> Progress {
        self.archive.retry_at = at.up + RETRY_EVERY;
        self.reports.warn(format!(
            "{}: cannot archive: {text}; files stay in the store until its volume is nearly full; then retention \
             removes the oldest files without archiving them",
            path.display()
        ));
        Progress::Idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Timestamp;
    use store::device::MemoryDevice;

    fn job() -> MoveJob {
        let key = Key { start: Timestamp::ZERO, queue: None, copy: 0 };
        let moving = Move::new(Path::new("archive"), "archive/eth1".into(), None, key, Vec::new());
        MoveJob { interface: 0, key, why: RemovalReason::Age, moving, failed: None, cancelled: Arc::default() }
    }

    #[test]
    fn a_job_is_sent_out_once_until_it_is_returned() {
        let (out, job) = Transfer::Here(Box::new(job())).send_out();
        let job = job.expect("the job");
        let (out, second) = out.send_out();
        assert!(second.is_none() && matches!(out, Transfer::SentOut(_)));
        assert!(matches!(Transfer::returned(job), Transfer::Here(_)));
    }

    #[test]
    fn a_job_that_was_cancelled_while_sent_out_is_dropped() {
        let (out, job) = Transfer::Here(Box::new(job())).send_out();
        let out = out.abandon(&mut MemoryDevice::new(0));
        assert!(
            matches!(out, Transfer::SentOut(_)),
            "the file must stay reserved until the other thread returns the job"
        );
        let job = job.expect("the job");
        assert!(job.is_cancelled() && matches!(Transfer::returned(job), Transfer::None));
    }
}
