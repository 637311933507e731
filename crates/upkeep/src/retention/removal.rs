//! Removal of one file: the choice of the oldest file that may go, the locks, and the deletion.

use super::catalogue::{self, Key, Part};
use super::held::HourOf;
use super::pressure::Removal;
use super::scan::SCAN_INTERVAL;
use super::{
    ClockReading, Event, InterfaceFolder, Mode, Progress, RETRY_EVERY, RemovalReason, RetentionWorker, SpaceNeeded,
};
use base::Timestamp;
use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use store::device::{Housekeeping, Lock};
use store::names;
use store::out_of_order::{self, OutOfOrderMarkers, Span};

/// A removed file.
pub(super) struct RemovedFile {
    pub path: PathBuf,
    /// Bytes of the volume that it took with its index.
    pub room: u64,
}

/// The files that the worker skips for a while, because an operation on them failed.
#[derive(Debug, Default)]
pub(super) struct SetAside {
    files: BTreeSet<(usize, Key)>,
    until: Duration,
}

impl SetAside {
    /// Ends the exclusion of all files when its time is over.
    pub fn expire(&mut self, up: Duration) {
        if up >= self.until {
            self.files.clear();
        }
    }

    fn add(&mut self, file: (usize, Key), until: Duration) {
        self.files.insert(file);
        self.until = self.until.max(until);
    }
}

/// The result of an attempt to lock the hour of a file.
enum HourLock {
    /// No reader holds the hour.
    Free(Lock),
    /// A reader holds it, but the file goes.
    Overruled,
    /// A reader holds it, and the worker waits.
    Waits,
    /// A reader holds it, and a file of another hour is to go.
    PassedOver,
    /// The hour, or the file, cannot be used now; the next file is to go.
    Unusable,
    /// No file can go.
    NoneLeft,
}

impl<D: Housekeeping> RetentionWorker<D> {
    /// Removes or archives the oldest file that may go.
    pub(super) fn relieve(&mut self, need: &SpaceNeeded, at: ClockReading, forced: bool) -> Progress {
        if need.why == RemovalReason::Space && !forced && self.gives_way(at) {
            return Progress::Idle;
        }
        let is_archiving =
            self.rules.archive.is_some() && !self.is_dry_run() && !(forced && need.why == RemovalReason::Space);
        if is_archiving && (forced || at.up < self.archive.retry_at) {
            return Progress::Idle;
        }
        let mut passed_over = BTreeSet::new();
        while let Some((shelf, key, overrules)) = self.choose(need, at.now, &passed_over) {
            if !self.keep(shelf) {
                self.set_aside(shelf, key, at.up + SCAN_INTERVAL);
                return Progress::Idle;
            }
            // After a wait for one reader, the worker waits for no other before the next files have gone.
            let may_wait = !forced && (overrules || passed_over.is_empty());
            let lock = match self.lock_hour(shelf, key, at, may_wait, overrules) {
                HourLock::Free(lock) => Some(lock),
                HourLock::Overruled => None,
                HourLock::Waits => return Progress::Idle,
                HourLock::NoneLeft => break,
                HourLock::Unusable => continue,
                HourLock::PassedOver => {
                    passed_over.insert((shelf, key.hour()));
                    continue;
                }
            };
            if is_archiving {
                // Copying takes longer than a reader should wait for the lock, and does not disturb the reader.
                drop(lock);
                return self.begin_move(shelf, key, need.why, at);
            }
            let removed = self.remove(shelf, key, at);
            drop(lock);
            if let Some(removed) = removed {
                self.report_removal(removed, need.why, at);
            }
            return Progress::More;
        }
        Progress::Idle
    }

    /// The next file to go, and true if it goes although a reader may hold it: if no other file can go, the files that
    /// readers hold go.
    fn choose(&self, need: &SpaceNeeded, now: Timestamp, passed_over: &BTreeSet<HourOf>) -> Option<(usize, Key, bool)> {
        match self.oldest(need, now, passed_over) {
            Some((shelf, key)) => Some((shelf, key, false)),
            None if passed_over.is_empty() => None,
            None => self.oldest(need, now, &BTreeSet::new()).map(|(shelf, key)| (shelf, key, true)),
        }
    }

    /// The oldest file that can meet this rule and that is neither held nor set aside.
    fn oldest(&self, need: &SpaceNeeded, now: Timestamp, but: &BTreeSet<HourOf>) -> Option<(usize, Key)> {
        let wanted = |i: &usize| need.interface.is_none_or(|shelf| shelf == *i);
        let first = |i: usize| {
            let free = |key: &Key| {
                let is_kept = self.aside.files.contains(&(i, *key)) || but.contains(&(i, key.hour()));
                key.start < need.before && !self.archive.has_sent_out(i, *key) && !is_kept
            };
            self.interfaces[i].files.removable(now).find(free).map(|key| (i, key))
        };
        // Files with names in the future first, then by begin.
        let order = |(_, key): &(usize, Key)| (!catalogue::is_future(key.start, now), *key);
        (0..self.interfaces.len()).filter(wanted).filter_map(first).min_by_key(order)
    }

    /// True if another worker of this store has older files and still has time to free space first.
    fn gives_way(&mut self, at: ClockReading) -> bool {
        if !self.scope.beside_others || !self.pressure.yields(at.up) {
            return false;
        }
        let ours = self.interfaces.iter().filter_map(|s| s.files.oldest()).min();
        let theirs = catalogue::oldest_hour(&mut self.device, &self.scope.store, &self.scope.interfaces);
        matches!((theirs, ours), (Some(theirs), Some(ours)) if theirs < ours.floor_to(Duration::from_secs(3600)))
    }

    /// Takes the lock of this interface; false if another worker holds it.
    fn keep(&mut self, shelf: usize) -> bool {
        if self.interfaces[shelf].keeping.is_some() {
            return true;
        }
        let folder = self.interfaces[shelf].folder.clone();
        match self.device.lock_for_removal(&folder) {
            Ok(Some(lock)) => {
                self.interfaces[shelf].keeping = Some(lock);
                true
            }
            Ok(None) => {
                self.reports.warn(format!("{}: somebody else is making room there", folder.display()));
                false
            }
            Err(e) => {
                self.reports.warn(format!("{}: cannot be locked: {e}", folder.display()));
                false
            }
        }
    }

    /// Locks the hour directory of a file.
    fn lock_hour(&mut self, shelf: usize, key: Key, at: ClockReading, may_wait: bool, overrules: bool) -> HourLock {
        let hour = self.interfaces[shelf].files.folder_of(key.hour());
        match self.device.lock_for_removal(&hour) {
            Ok(Some(lock)) => {
                self.held.release((shelf, key.hour()));
                HourLock::Free(lock)
            }
            Ok(None) => {
                let waited = self.hold_back(shelf, key.hour(), at);
                if may_wait && !self.is_dry_run() && waited < self.rules.wait {
                    HourLock::Waits
                } else if !overrules {
                    HourLock::PassedOver
                } else if self.is_dry_run() {
                    HourLock::NoneLeft
                } else {
                    self.overrule(shelf, key.hour());
                    HourLock::Overruled
                }
            }
            // Another process removed the whole hour directory.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.interfaces[shelf].files.forget(&key);
                HourLock::Unusable
            }
            Err(e) => {
                self.get_stuck(shelf, key, at, format!("{}: cannot be locked: {e}", hour.display()));
                HourLock::Unusable
            }
        }
    }

    /// Removes a file and its index, index first. `None` if another process has removed it, or if removal fails.
    pub(super) fn remove(&mut self, shelf: usize, key: Key, at: ClockReading) -> Option<RemovedFile> {
        let files = &self.interfaces[shelf].files;
        let parts = files.parts(&key);
        let path = parts.last().map(|part| part.path.clone())?;
        if files.is_being_published(&mut self.device, &key) {
            self.set_aside(shelf, key, at.up + SCAN_INTERVAL);
            return None;
        }
        if let Mode::DryRun { freed } = &mut self.mode {
            let room = parts.iter().map(|part| part.room).sum();
            *freed += room;
            self.interfaces[shelf].files.forget(&key);
            return Some(RemovedFile { path, room });
        }
        let mut room = None;
        for Part { path, room: freed, .. } in parts {
            match self.device.remove(&path) {
                Ok(()) => room = Some(room.unwrap_or(0) + freed),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => {
                    self.get_stuck(shelf, key, at, format!("{}: cannot be removed: {e}", path.display()));
                    return None;
                }
            }
        }
        self.forget(shelf, &key);
        Some(RemovedFile { path, room: room? })
    }

    /// Counts and reports a removed file.
    fn report_removal(&mut self, removed: RemovedFile, why: RemovalReason, at: ClockReading) {
        let RemovedFile { path, room } = removed;
        let unarchived = self.rules.archive.is_some() && !self.is_dry_run();
        self.reports.state.removed.add(room);
        if unarchived {
            self.reports.state.unarchived.add(room);
        }
        self.reports.events.push(Event::Removed { path, bytes: room, why, unarchived });
        if why == RemovalReason::Space && !self.is_dry_run() {
            self.check_effect(room, at);
        }
    }

    /// Slows down if removed files free no space.
    fn check_effect(&mut self, room: u64, at: ClockReading) {
        let before = self.reports.state.space.free;
        let Ok(space) = self.device.space(&self.scope.store) else { return };
        let removal = Removal {
            room,
            is_effective: space.free >= before + room / 2,
            is_pressing: self.rules.is_pressing(space),
            ahead: self.rules.ahead,
        };
        if self.pressure.removed(removal, at.up) {
            self.reports.warn(format!(
                "{}: the room of removed files does not come back: a process may have them open (lsof +L1), or others \
                 fill the volume as fast; going more slowly",
                self.scope.store.display()
            ));
        }
    }

    /// Forgets a removed file and removes its out-of-order marker: while a recorder runs, no other component removes
    /// the marker.
    pub(super) fn forget(&mut self, shelf: usize, key: &Key) {
        let InterfaceFolder { folder, files, noted, .. } = &mut self.interfaces[shelf];
        files.forget(key);
        let which = (key.start, key.queue.unwrap_or(0), key.copy);
        let listed = match noted.take() {
            Some(noted) => Ok(noted),
            None => OutOfOrderMarkers::list(&mut self.device, folder),
        };
        let outcome = listed.and_then(|listed| {
            let span = noted.insert(listed).get(which);
            span.map_or(Ok(()), |span| {
                let span = (span != Span::UNKNOWN).then_some(span);
                out_of_order::remove_marker(&mut self.device, folder, &key.stem(), span)
            })
        });
        if let Err(e) = outcome {
            // A marker that stays has no file: it has no effect, and the next start removes it.
            let folder = folder.join(names::OUT_OF_ORDER);
            self.reports.warn(format!("{}: notes of removed files stay there: {e}", folder.display()));
        }
    }

    /// Records that a reader holds this hour; returns how long the worker has waited for it.
    pub(super) fn hold_back(&mut self, shelf: usize, hour: Timestamp, at: ClockReading) -> Duration {
        let held = self.held.hold_back((shelf, hour), at.up);
        if held.is_new {
            let folder = self.interfaces[shelf].files.folder_of(hour);
            let by = self.device.holders(&folder);
            self.reports.events.push(Event::Held { folder, by });
        }
        held.waited
    }

    /// Reports that files of a held hour are removed: readers keep the files that they have open.
    pub(super) fn overrule(&mut self, shelf: usize, hour: Timestamp) {
        if self.held.overrule((shelf, hour)) {
            let folder = self.interfaces[shelf].files.folder_of(hour);
            let by = self.device.holders(&folder);
            self.reports.events.push(Event::Overruled { folder, by });
        }
    }

    /// Excludes a file until the next attempt after a failure.
    pub(super) fn get_stuck(&mut self, shelf: usize, key: Key, at: ClockReading, text: String) {
        self.set_aside(shelf, key, at.up + RETRY_EVERY);
        self.reports.warn(text);
    }

    /// Excludes a file for a while; the worker continues with the next file.
    pub(super) fn set_aside(&mut self, shelf: usize, key: Key, until: Duration) {
        self.aside.add((shelf, key), until);
    }
}
