//! A keeper's side of the archive: what is moved next, what becomes of it, and what is said when it cannot be.

use super::archive::{Failed, Move};
use super::catalogue::Key;
use super::{Event, Keeper, LOOK_EVERY, Moment, Progress, RETRY_EVERY, Why};
use std::io;
use std::path::Path;
use store::device::Housekeeping;

impl<D: Housekeeping> Keeper<D> {
    pub(super) fn begin_move(&mut self, shelf: usize, key: Key, why: Why, at: Moment) -> Progress {
        let Some(archive) = self.rules.archive.clone() else { return Progress::Idle };
        let files = &self.shelves[shelf].files;
        if files.is_being_published(&mut self.device, &key) {
            self.set_aside(shelf, key, at.up + LOOK_EVERY);
            return Progress::More;
        }
        let volume = match self.device.stat(&archive) {
            Ok(stat) => stat.volume,
            Err(e) => return self.no_archive(at, &archive, &format!("{e}; mount it, or make the folder")),
        };
        if *self.archive_volume.get_or_insert(volume) != volume {
            return self.no_archive(at, &archive, "it is on another volume than at the start; mount it again");
        }
        let inside = self.shelves[shelf].folder.strip_prefix(&self.charge.store).unwrap_or(Path::new("")).to_owned();
        match Move::begin(&mut self.device, &archive.join(inside), key, self.shelves[shelf].files.parts(&key)) {
            Ok(moving) => {
                self.moving = Some((shelf, key, why, moving));
                Progress::More
            }
            Err(failed) => self.move_failed(shelf, key, at, failed),
        }
    }

    pub(super) fn go_on_moving(&mut self, at: Moment) -> Progress {
        let Some((shelf, key, why, mut moving)) = self.moving.take() else { return Progress::Idle };
        let outcome = if moving.is_whole() {
            self.take_away(shelf, key, why, &mut moving, at)
        } else {
            moving.step(&mut self.device)
        };
        match outcome {
            Ok(true) => Progress::More,
            Ok(false) => {
                let waits = moving.is_whole() && !self.held.is_empty();
                self.moving = Some((shelf, key, why, moving));
                if waits { Progress::Idle } else { Progress::More }
            }
            Err(failed) => {
                moving.abandon(&mut self.device);
                self.move_failed(shelf, key, at, failed)
            }
        }
    }

    /// The copy is whole, read back, synced and has its name, or is to be made by renaming: the store gives its own away.
    /// False while a reader holds it.
    fn take_away(&mut self, shelf: usize, key: Key, why: Why, moving: &mut Move, at: Moment) -> Result<bool, Failed> {
        self.held.clear();
        let hour = self.shelves[shelf].files.folder_of(key.hour());
        let lock = match self.device.lock_out(&hour) {
            Ok(Some(lock)) => lock,
            Ok(None) => {
                self.hold_back(shelf, key.hour());
                return Ok(false);
            }
            Err(error) => return Err(Failed::Source { path: hour, error }),
        };
        let parts = self.shelves[shelf].files.parts(&key);
        let gone = if moving.rename(&mut self.device)? {
            self.shelves[shelf].files.forget(&key);
            parts.last().map(|part| (part.path.clone(), parts.iter().map(|part| part.room).sum()))
        } else if moving.is_whole() {
            self.remove(shelf, key, at)
        } else {
            // It turned out that it has to be copied.
            return Ok(false);
        };
        drop(lock);
        if let Some((path, bytes)) = gone {
            self.state.archived.add(bytes);
            self.events.push(Event::Archived { path, to: moving.target().to_owned(), bytes, why });
        }
        Ok(true)
    }

    pub(super) fn abandon_move(&mut self) {
        if let Some((.., mut moving)) = self.moving.take() {
            moving.abandon(&mut self.device);
        }
    }

    fn move_failed(&mut self, shelf: usize, key: Key, at: Moment, failed: Failed) -> Progress {
        match failed {
            Failed::Source { error, .. } if error.kind() == io::ErrorKind::NotFound => {
                // Somebody was faster; what is left of it is seen at the next look.
                self.shelves[shelf].files.forget(&key);
                self.looked = None;
                Progress::More
            }
            Failed::Source { path, error } => {
                self.get_stuck(shelf, key, at, &format!("{}: cannot be read for the archive: {error}", path.display()));
                Progress::More
            }
            Failed::Archive { path, text } => self.no_archive(at, &path, &text),
        }
    }

    fn no_archive(&mut self, at: Moment, path: &Path, text: &str) -> Progress {
        self.archive_again = at.up + RETRY_EVERY;
        self.say(format!(
            "{}: cannot archive: {text}; files stay in the store until its volume is nearly full, then the oldest go \
             unarchived",
            path.display()
        ));
        Progress::Idle
    }
}
