//! The retention worker's part of archiving: choice of the next file, its outcome, and warnings. A [`MoveJob`] may be
//! sent to another thread, which waits for the archive's volume while the worker continues.
//!
//! At most one file is on its way to the archive ([`Transfer`]): `None` becomes `Here` when a rule chooses a file,
//! `Here` becomes `SentOut` and `SentOut` becomes `Here` again with the thread's job, and `Here` becomes `None` when
//! the file has left the store, or stays there.

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

/// A file on its way to the archive.
pub struct MoveJob {
    interface: usize,
    key: Key,
    why: RemovalReason,
    moving: Move,
    failed: Option<Failed>,
    called_off: Arc<AtomicBool>,
}

impl MoveJob {
    /// Performs one step, always with the same device: copies up to a MiB, or syncs. False when the job is to be given
    /// back.
    pub fn step<D: Housekeeping>(&mut self, device: &mut D) -> bool {
        if self.is_called_off() {
            self.give_up(device);
        }
        if self.failed.is_some() || self.moving.is_whole() || self.is_called_off() {
            return false;
        }
        if let Err(failed) = self.moving.step(device) {
            self.moving.abandon(device);
            self.failed = Some(failed);
        }
        self.failed.is_none() && !self.moving.is_whole()
    }

    /// True if the worker has cancelled the job: the next step removes the copies.
    pub fn is_called_off(&self) -> bool {
        self.called_off.load(Ordering::Relaxed)
    }

    /// Removes the copies of an unsuccessful job.
    pub fn give_up<D: Housekeeping>(&mut self, device: &mut D) {
        self.moving.abandon(device);
        self.called_off.store(true, Ordering::Relaxed);
    }
}

/// The worker's record of a job that was sent out.
pub(super) struct PendingMove {
    interface: usize,
    key: Key,
    called_off: Arc<AtomicBool>,
}

/// The archive, as the worker sees it.
#[derive(Default)]
pub(super) struct Archiving {
    /// The volume of the archive at the start, or when the archive was first found.
    pub volume: Option<u64>,
    /// The time before which no file is archived, after a failure.
    pub retry_at: Duration,
    pub transfer: Transfer,
}

/// The file on its way to the archive.
#[derive(Default)]
pub(super) enum Transfer {
    /// No file.
    #[default]
    None,
    /// The worker has the job: it continues the job itself, unless the job is sent out before.
    Here(Box<MoveJob>),
    /// Another thread has the job.
    SentOut(PendingMove),
}

impl Transfer {
    /// Hands out the job if the archive's volume must be accessed for it; returns the state after that, and the job.
    fn send_out(self) -> (Self, Option<MoveJob>) {
        match self {
            Self::Here(job) if !job.moving.is_whole() => {
                let called_off = Arc::clone(&job.called_off);
                (Self::SentOut(PendingMove { interface: job.interface, key: job.key, called_off }), Some(*job))
            }
            other => (other, None),
        }
    }

    /// The state after a job was given back.
    fn given_back(job: MoveJob) -> Self {
        if job.is_called_off() { Self::None } else { Self::Here(Box::new(job)) }
    }

    /// Cancels the move: at once if the job is here, otherwise when its thread checks the flag.
    fn abandon<D: Housekeeping>(self, device: &mut D) -> Self {
        match self {
            Self::Here(mut job) => {
                job.give_up(device);
                Self::None
            }
            Self::SentOut(pending) => {
                pending.called_off.store(true, Ordering::Relaxed);
                Self::SentOut(pending)
            }
            Self::None => Self::None,
        }
    }
}

impl Archiving {
    /// True if a file is on its way to the archive.
    pub fn is_moving(&self) -> bool {
        !matches!(self.transfer, Transfer::None)
    }

    /// True if another thread has the job.
    pub fn is_sent_out(&self) -> bool {
        matches!(self.transfer, Transfer::SentOut(_))
    }

    /// True if another thread has the job of this file.
    pub fn has_sent_out(&self, interface: usize, key: Key) -> bool {
        matches!(&self.transfer, Transfer::SentOut(pending) if (pending.interface, pending.key) == (interface, key))
    }

    fn take_transfer(&mut self) -> Transfer {
        std::mem::take(&mut self.transfer)
    }

    /// Learns the volume of the archive from a job.
    fn learn_volume(&mut self, job: &MoveJob) {
        self.volume = self.volume.or(job.moving.volume());
    }
}

impl<D: Housekeeping> RetentionWorker<D> {
    /// The file to archive, if the archive's volume must be accessed for it. The worker keeps the file and archives no
    /// other file until the job is [given back](RetentionWorker::take_back).
    pub fn send_out(&mut self) -> Option<MoveJob> {
        let (transfer, job) = self.archive.take_transfer().send_out();
        self.archive.transfer = transfer;
        job
    }

    /// Takes back a job after its last step. The worker's next step with slack completes the move.
    pub fn take_back(&mut self, job: MoveJob) {
        self.archive.learn_volume(&job);
        self.archive.transfer = Transfer::given_back(job);
    }

    pub(super) fn begin_move(&mut self, shelf: usize, key: Key, why: RemovalReason, at: ClockReading) -> Progress {
        let Some(archive) = self.rules.archive.clone() else { return Progress::Idle };
        let files = &self.interfaces[shelf].files;
        if files.is_being_published(&mut self.device, &key) {
            self.set_aside(shelf, key, at.up + SCAN_INTERVAL);
            return Progress::More;
        }
        let inside = self.interfaces[shelf].folder.strip_prefix(&self.scope.store).unwrap_or(Path::new("")).to_owned();
        let parts = self.interfaces[shelf].files.parts(&key);
        let sweeps = !std::mem::replace(&mut self.interfaces[shelf].swept, true);
        let moving = Move::new(&archive, archive.join(inside), self.archive.volume, key, parts).sweeping(sweeps);
        let job = MoveJob { interface: shelf, key, why, moving, failed: None, called_off: Arc::default() };
        self.archive.transfer = Transfer::Here(Box::new(job));
        Progress::More
    }

    /// Continues the job that the worker has.
    pub(super) fn go_on_moving(&mut self, at: ClockReading) -> Progress {
        let (transfer, progress) = match self.archive.take_transfer() {
            Transfer::Here(job) => self.move_on(job, at),
            other => (other, Progress::Idle),
        };
        self.archive.transfer = transfer;
        progress
    }

    /// Performs one step of a job; returns the state after it.
    fn move_on(&mut self, mut job: Box<MoveJob>, at: ClockReading) -> (Transfer, Progress) {
        if job.step(&mut self.device) {
            return (Transfer::Here(job), Progress::More);
        }
        self.archive.learn_volume(&job);
        let (shelf, key) = (job.interface, job.key);
        if let Some(failed) = job.failed {
            return (Transfer::None, self.move_failed(shelf, key, at, failed));
        }
        match self.take_away(shelf, key, job.why, &mut job.moving, at) {
            Ok(true) => (Transfer::None, Progress::More),
            Ok(false) => {
                let waits = job.moving.is_whole() && self.held.count() > 0;
                (Transfer::Here(job), if waits { Progress::Idle } else { Progress::More })
            }
            Err(failed) => {
                job.moving.abandon(&mut self.device);
                (Transfer::None, self.move_failed(shelf, key, at, failed))
            }
        }
    }

    /// Removes the file from the store after its copy is synced, verified and published, or renames it into the
    /// archive. False while the worker waits for a query that holds the file.
    fn take_away(
        &mut self,
        shelf: usize,
        key: Key,
        why: RemovalReason,
        moving: &mut Move,
        at: ClockReading,
    ) -> Result<bool, Failed> {
        self.held.begin_search();
        let hour = self.interfaces[shelf].files.folder_of(key.hour());
        let lock = match self.device.lock_for_removal(&hour) {
            Ok(Some(lock)) => Some(lock),
            Ok(None) => {
                if self.hold_back(shelf, key.hour(), at) < self.rules.wait {
                    return Ok(false);
                }
                // The file is or will be in the archive, so the query loses less than with a removal.
                self.overrule(shelf, key.hour());
                None
            }
            Err(error) => return Err(Failed::Source { path: hour, error }),
        };
        let parts = self.interfaces[shelf].files.parts(&key);
        let gone = if moving.rename(&mut self.device)? {
            self.forget(shelf, &key);
            let room = parts.iter().map(|part| part.room).sum();
            parts.last().map(|part| RemovedFile { path: part.path.clone(), room })
        } else if moving.is_whole() {
            self.remove(shelf, key, at)
        } else {
            // A rename is not possible, so the file must be copied.
            return Ok(false);
        };
        drop(lock);
        if let Some(RemovedFile { path, room: bytes }) = gone {
            self.reports.state.archived.add(bytes);
            self.reports.events.push(Event::Archived { path, to: moving.target().to_owned(), bytes, why });
        }
        Ok(true)
    }

    /// Cancels the move of a file that stays or is removed without archive.
    pub(super) fn abandon_move(&mut self) {
        self.archive.transfer = self.archive.take_transfer().abandon(&mut self.device);
    }

    fn move_failed(&mut self, shelf: usize, key: Key, at: ClockReading, failed: Failed) -> Progress {
        match failed {
            Failed::Source { error, .. } if error.kind() == io::ErrorKind::NotFound => {
                // Another process has removed the file; the next listing shows any rest.
                self.interfaces[shelf].files.forget(&key);
                self.scans = ScanState::Due;
                Progress::More
            }
            Failed::Source { path, error } => {
                self.get_stuck(shelf, key, at, format!("{}: cannot be read for the archive: {error}", path.display()));
                Progress::More
            }
            Failed::Archive { path, text } => self.no_archive(at, &path, &text),
        }
    }

    fn no_archive(&mut self, at: ClockReading, path: &Path, text: &str) -> Progress {
        self.archive.retry_at = at.up + RETRY_EVERY;
        self.reports.warn(format!(
            "{}: cannot archive: {text}; files stay in the store until its volume is nearly full, then the oldest go \
             unarchived",
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
        MoveJob { interface: 0, key, why: RemovalReason::Age, moving, failed: None, called_off: Arc::default() }
    }

    #[test]
    fn a_job_is_sent_out_once_and_is_here_again_when_it_was_given_back() {
        let (out, job) = Transfer::Here(Box::new(job())).send_out();
        let job = job.expect("the job");
        let (out, second) = out.send_out();
        assert!(second.is_none() && matches!(out, Transfer::SentOut(_)));
        assert!(matches!(Transfer::given_back(job), Transfer::Here(_)));
    }

    #[test]
    fn a_job_that_is_called_off_while_it_is_out_does_not_come_back() {
        let (out, job) = Transfer::Here(Box::new(job())).send_out();
        let out = out.abandon(&mut MemoryDevice::new(0));
        assert!(matches!(out, Transfer::SentOut(_)), "the file stays reserved until its thread gives the job back");
        let job = job.expect("the job");
        assert!(job.is_called_off() && matches!(Transfer::given_back(job), Transfer::None));
    }
}
