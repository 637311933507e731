//! Removes one file: chooses the oldest removable file, takes the locks, and deletes the file.

use super::catalogue::{self, Key, Part};
use super::held::HourOf;
use super::pressure::Removal;
use super::scan::SCAN_INTERVAL;
use super::{
    ClockReading, Event, InterfaceDirectory, Mode, Progress, RETRY_EVERY, RemovalReason, RetentionWorker, SpaceNeeded,
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
    /// Bytes of the volume that the file and its index occupied.
    pub allocated: u64,
}

/// The files that the worker skips for a while, because an operation on them failed.
#[derive(Debug, Default)]
pub(super) struct SetAside {
    files: BTreeSet<(usize, Key)>,
    until: Duration,
}

impl SetAside {
    /// Permits the removal of all excluded files again, when the time of the exclusion is over.
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

/// The result of an attempt to lock the hour directory of a file.
enum HourLock {
    /// No reader holds the hour directory.
    Free(Lock),
    /// A reader holds the hour directory, but the file is removed all the same.
    Overruled,
    /// A reader holds the hour directory, and the worker waits for the reader.
    Waits,
    /// A reader holds the hour directory; a file of another hour is removed instead.
    Skipped,
    /// The hour directory cannot be locked, or the file cannot be removed now; the next file is removed instead.
    Unusable,
    /// No file can be removed.
    NoneLeft,
}

impl<D: Housekeeping> RetentionWorker<D> {
    /// Removes or archives the oldest removable file.
    pub(super) fn apply_rule(&mut self, need: &SpaceNeeded, at: ClockReading, forced: bool) -> Progress {
        if need.why == RemovalReason::Space && !forced && self.waits_for_others(at) {
            return Progress::Idle;
        }
        let is_archiving =
            self.rules.archive.is_some() && !self.is_dry_run() && !(forced && need.why == RemovalReason::Space);
        if is_archiving && (forced || at.up < self.archive.retry_at) {
            return Progress::Idle;
        }
        let mut skipped = BTreeSet::new();
        while let Some((interface, key, overrules)) = self.choose(need, at.now, &skipped) {
            if !self.lock_interface(interface) {
                self.set_aside(interface, key, at.up + SCAN_INTERVAL);
                return Progress::Idle;
            }
            // The worker waits for only one reader; then it removes the next files without waiting for further readers.
            let may_wait = !forced && (overrules || skipped.is_empty());
            let lock = match self.lock_hour(interface, key, at, may_wait, overrules) {
                HourLock::Free(lock) => Some(lock),
                HourLock::Overruled => None,
                HourLock::Waits => return Progress::Idle,
                HourLock::NoneLeft => break,
                HourLock::Unusable => continue,
                HourLock::Skipped => {
                    skipped.insert((interface, key.hour()));
                    continue;
                }
            };
            if is_archiving {
                // The lock on the hour directory is released during a copy, because copying takes longer than a reader
                // should wait, and does not disturb a reader.
                drop(lock);
                return self.begin_move(interface, key, need.why, at);
            }
            let removed = self.remove(interface, key, at);
            drop(lock);
            if let Some(removed) = removed {
                self.report_removal(removed, need.why, at);
            }
            return Progress::More;
        }
        Progress::Idle
    }

    /// The next file to remove, and true if it is removed although a reader may hold it. If no other file can be
    /// removed, the files that readers hold are removed.
    fn choose(&self, need: &SpaceNeeded, now: Timestamp, skipped: &BTreeSet<HourOf>) -> Option<(usize, Key, bool)> {
        match self.oldest(need, now, skipped) {
            Some((interface, key)) => Some((interface, key, false)),
            None if skipped.is_empty() => None,
            None => self.oldest(need, now, &BTreeSet::new()).map(|(interface, key)| (interface, key, true)),
        }
    }

    /// The oldest file whose removal can help to meet this rule, that no reader holds, and that is not in `except`.
    fn oldest(&self, need: &SpaceNeeded, now: Timestamp, except: &BTreeSet<HourOf>) -> Option<(usize, Key)> {
        let wanted = |i: &usize| need.interface.is_none_or(|interface| interface == *i);
        let first = |i: usize| {
            let free = |key: &Key| {
                let is_kept = self.aside.files.contains(&(i, *key)) || except.contains(&(i, key.hour()));
                key.start < need.before && !self.archive.has_sent_out(i, *key) && !is_kept
            };
            self.interfaces[i].files.removable(now).find(free).map(|key| (i, key))
        };
        // Files whose names give a start time in the future come first; the others follow in the order of their start
        // times.
        let order = |(_, key): &(usize, Key)| (!catalogue::is_future(key.start, now), *key);
        (0..self.interfaces.len()).filter(wanted).filter_map(first).min_by_key(order)
    }

    /// True if another interface of this store has older files, and the time for which this worker waits for the worker
    /// of that interface is not over.
    fn waits_for_others(&mut self, at: ClockReading) -> bool {
        if !self.scope.beside_others || !self.pressure.waits_for_others(at.up) {
            return false;
        }
        let ours = self.interfaces.iter().filter_map(|s| s.files.oldest()).min();
        let theirs = catalogue::oldest_hour(&mut self.device, &self.scope.store, &self.scope.interfaces);
        matches!((theirs, ours), (Some(theirs), Some(ours)) if theirs < ours.floor_to(Duration::from_secs(3600)))
    }

    /// Takes the lock of this interface; returns false if another worker has it or an error occurs.
    fn lock_interface(&mut self, interface: usize) -> bool {
        if self.interfaces[interface].lock.is_some() {
            return true;
        }
        let directory = self.interfaces[interface].directory.clone();
        match self.device.lock_for_removal(&directory) {
            Ok(Some(lock)) => {
                self.interfaces[interface].lock = Some(lock);
                true
            }
            Ok(None) => {
                self.reports
                    .warn(format!("{}: another process applies retention to this interface", directory.display()));
                false
            }
            Err(e) => {
                self.reports.warn(format!("{}: cannot be locked: {e}", directory.display()));
                false
            }
        }
    }

    /// Locks the hour directory of a file.
    fn lock_hour(&mut self, interface: usize, key: Key, at: ClockReading, may_wait: bool, overrules: bool) -> HourLock {
        let hour = self.interfaces[interface].files.directory_of(key.hour());
        match self.device.lock_for_removal(&hour) {
            Ok(Some(lock)) => {
                self.held.release((interface, key.hour()));
                HourLock::Free(lock)
            }
            Ok(None) => {
                let waited = self.register_hold(interface, key.hour(), at);
                if may_wait && !self.is_dry_run() && waited < self.rules.wait {
                    HourLock::Waits
                } else if !overrules {
                    HourLock::Skipped
                } else if self.is_dry_run() {
                    HourLock::NoneLeft
                } else {
                    self.overrule(interface, key.hour());
                    HourLock::Overruled
                }
            }
            // Another process removed the whole hour directory.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.interfaces[interface].files.forget(&key);
                HourLock::Unusable
            }
            Err(e) => {
                self.exclude_failed(interface, key, at, format!("{}: cannot be locked: {e}", hour.display()));
                HourLock::Unusable
            }
        }
    }

    /// Removes a file and its index, index first. `None` if another process has removed the file, or if removal fails.
    pub(super) fn remove(&mut self, interface: usize, key: Key, at: ClockReading) -> Option<RemovedFile> {
        let files = &self.interfaces[interface].files;
        let parts = files.parts(&key);
        let path = parts.last().map(|part| part.path.clone())?;
        if files.is_being_published(&mut self.device, &key) {
            self.set_aside(interface, key, at.up + SCAN_INTERVAL);
            return None;
        }
        if let Mode::DryRun { freed } = &mut self.mode {
            let allocated = parts.iter().map(|part| part.allocated).sum();
            *freed += allocated;
            self.interfaces[interface].files.forget(&key);
            return Some(RemovedFile { path, allocated });
        }
        let mut allocated = None;
        for Part { path, allocated: freed, .. } in parts {
            match self.device.remove(&path) {
                Ok(()) => allocated = Some(allocated.unwrap_or(0) + freed),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => {
                    self.exclude_failed(interface, key, at, format!("{}: cannot be removed: {e}", path.display()));
                    return None;
                }
            }
        }
        self.forget(interface, &key);
        Some(RemovedFile { path, allocated: allocated? })
    }

    /// Counts and reports a removed file.
    fn report_removal(&mut self, removed: RemovedFile, why: RemovalReason, at: ClockReading) {
        let RemovedFile { path, allocated } = removed;
        let unarchived = self.rules.archive.is_some() && !self.is_dry_run();
        self.reports.state.removed.add(allocated);
        if unarchived {
            self.reports.state.unarchived.add(allocated);
        }
        self.reports.events.push(Event::Removed { path, bytes: allocated, why, unarchived });
        if why == RemovalReason::Space && !self.is_dry_run() {
            self.check_effect(allocated, at);
        }
    }

    /// Reduces the pace of removals if removed files free no space.
    fn check_effect(&mut self, allocated: u64, at: ClockReading) {
        let before = self.reports.state.space.free;
        let Ok(space) = self.device.space(&self.scope.store) else { return };
        let removal = Removal {
            bytes: allocated,
            is_effective: space.free >= before + allocated / 2,
            is_pressing: self.rules.is_pressing(space),
            ahead: self.rules.ahead,
        };
        if self.pressure.removed(removal, at.up) {
            self.reports.warn(format!(
                "{}: removed files free no space: a process may have them open (lsof +L1), or other processes fill the \
                 volume as fast; retention continues more slowly",
                self.scope.store.display()
            ));
        }
    }

    /// Drops a removed file from the catalogue and removes its out-of-order marker, because no other component removes
    /// markers while a recorder runs.
    pub(super) fn forget(&mut self, interface: usize, key: &Key) {
        let InterfaceDirectory { directory, files, markers, .. } = &mut self.interfaces[interface];
        files.forget(key);
        let which = (key.start, key.queue.unwrap_or(0), key.copy);
        let listed = match markers.take() {
            Some(markers) => Ok(markers),
            None => OutOfOrderMarkers::list(&mut self.device, directory),
        };
        let outcome = listed.and_then(|listed| {
            let span = markers.insert(listed).get(which);
            span.map_or(Ok(()), |span| {
                let span = (span != Span::UNKNOWN).then_some(span);
                out_of_order::remove_marker(&mut self.device, directory, &key.stem(), span)
            })
        });
        if let Err(e) = outcome {
            // If the removal of the marker fails, the marker has no file and so no effect, and the next recovery
            // removes it.
            let directory = directory.join(names::OUT_OF_ORDER);
            self.reports.warn(format!("{}: markers of removed files cannot be removed: {e}", directory.display()));
        }
    }

    /// Registers that a reader holds this hour; returns the time for which the worker has waited for the reader.
    pub(super) fn register_hold(&mut self, interface: usize, hour: Timestamp, at: ClockReading) -> Duration {
        let held = self.held.register_hold((interface, hour), at.up);
        if held.is_new {
            let directory = self.interfaces[interface].files.directory_of(hour);
            let by = self.device.holders(&directory);
            self.reports.events.push(Event::Held { directory, by });
        }
        held.waited
    }

    /// Reports that files of an hour directory are removed although a reader holds it. A reader can still read the
    /// files that it has open.
    pub(super) fn overrule(&mut self, interface: usize, hour: Timestamp) {
        if self.held.overrule((interface, hour)) {
            let directory = self.interfaces[interface].files.directory_of(hour);
            let by = self.device.holders(&directory);
            self.reports.events.push(Event::Overruled { directory, by });
        }
    }

    /// Excludes a file until the next attempt after a failure.
    pub(super) fn exclude_failed(&mut self, interface: usize, key: Key, at: ClockReading, text: String) {
        self.set_aside(interface, key, at.up + RETRY_EVERY);
        self.reports.warn(text);
    }

    /// Excludes a file from removal until the time `until`; the worker continues with the next file.
    pub(super) fn set_aside(&mut self, interface: usize, key: Key, until: Duration) {
        self.aside.add((interface, key), until);
    }
}
