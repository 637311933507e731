//! The retention worker's part of archiving: choice of the next file, its outcome, and warnings. A [`MoveJob`] may be
//! sent to another thread, which waits for the archive's volume while the worker continues.

use super::archive::{Failed, Move};
use super::catalogue::Key;
use super::{ClockReading, Event, Progress, RETRY_EVERY, RemovalReason, RetentionWorker, SCAN_INTERVAL};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
    pub interface: usize,
    pub key: Key,
    called_off: Arc<AtomicBool>,
}

impl<D: Housekeeping> RetentionWorker<D> {
    /// The file to archive, if the archive's volume must be accessed for it. The worker keeps the file and archives no
    /// other file until the job is [given back](RetentionWorker::take_back).
    pub fn send_out(&mut self) -> Option<MoveJob> {
        let job = self.moving.take_if(|job| !job.moving.is_whole())?;
        self.pending_move =
            Some(PendingMove { interface: job.interface, key: job.key, called_off: Arc::clone(&job.called_off) });
        Some(job)
    }

    /// Takes back a job after its last step. The worker's next step with slack completes the move.
    pub fn take_back(&mut self, job: MoveJob) {
        self.pending_move = None;
        self.archive_volume = self.archive_volume.or(job.moving.volume());
        self.moving = (!job.is_called_off()).then_some(job);
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
        let moving = Move::new(&archive, archive.join(inside), self.archive_volume, key, parts).sweeping(sweeps);
        self.moving = Some(MoveJob { interface: shelf, key, why, moving, failed: None, called_off: Arc::default() });
        Progress::More
    }

    pub(super) fn go_on_moving(&mut self, at: ClockReading) -> Progress {
        let Some(mut job) = self.moving.take() else { return Progress::Idle };
        if job.step(&mut self.device) {
            self.moving = Some(job);
            return Progress::More;
        }
        self.archive_volume = self.archive_volume.or(job.moving.volume());
        let (shelf, key) = (job.interface, job.key);
        if let Some(failed) = job.failed {
            return self.move_failed(shelf, key, at, failed);
        }
        match self.take_away(shelf, key, job.why, &mut job.moving, at) {
            Ok(true) => Progress::More,
            Ok(false) => {
                let waits = job.moving.is_whole() && !self.held.is_empty();
                self.moving = Some(job);
                if waits { Progress::Idle } else { Progress::More }
            }
            Err(failed) => {
                job.moving.abandon(&mut self.device);
                self.move_failed(shelf, key, at, failed)
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
        self.held.clear();
        let hour = self.interfaces[shelf].files.folder_of(key.hour());
        let lock = match self.device.lock_out(&hour) {
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
            parts.last().map(|part| (part.path.clone(), parts.iter().map(|part| part.room).sum()))
        } else if moving.is_whole() {
            self.remove(shelf, key, at)
        } else {
            // A rename is not possible, so the file must be copied.
            return Ok(false);
        };
        drop(lock);
        if let Some((path, bytes)) = gone {
            self.state.archived.add(bytes);
            self.events.push(Event::Archived { path, to: moving.target().to_owned(), bytes, why });
        }
        Ok(true)
    }

    /// Cancels the move of a file that stays or is removed without archive: at once if the job is here, otherwise when
    /// its thread checks the flag.
    pub(super) fn abandon_move(&mut self) {
        if let Some(mut job) = self.moving.take() {
            job.give_up(&mut self.device);
        }
        if let Some(away) = &self.pending_move {
            away.called_off.store(true, Ordering::Relaxed);
        }
    }

    fn move_failed(&mut self, shelf: usize, key: Key, at: ClockReading, failed: Failed) -> Progress {
        match failed {
            Failed::Source { error, .. } if error.kind() == io::ErrorKind::NotFound => {
                // Another process has removed the file; the next listing shows any rest.
                self.interfaces[shelf].files.forget(&key);
                self.last_scan = None;
                Progress::More
            }
            Failed::Source { path, error } => {
                self.get_stuck(shelf, key, at, &format!("{}: cannot be read for the archive: {error}", path.display()));
                Progress::More
            }
            Failed::Archive { path, text } => self.no_archive(at, &path, &text),
        }
    }

    fn no_archive(&mut self, at: ClockReading, path: &Path, text: &str) -> Progress {
        self.archive_again = at.up + RETRY_EVERY;
        self.say(format!(
            "{}: cannot archive: {text}; files stay in the store until its volume is nearly full, then the oldest go \
             unarchived",
            path.display()
        ));
        Progress::Idle
    }
}
