//! Retention: removes the oldest files of a store, or moves them to an archive, by free space, size and age.
//!
//! A [`RetentionWorker`] applies the rules to interface directories of one store. [`RetentionWorker::step`] does one
//! bounded piece of work (listing changes, removing one file, copying one MiB) and reads no clock. The worker keeps no
//! state on disk; after a restart it derives everything from file names. Invariants: it removes only published files of
//! netgrain, each in the directory that its name implies. It removes the index before the packets, so that a crash
//! between the two leaves a packet file that every tool can read and that is still the oldest. It removes files of an
//! hour that a reader holds ([`store::Hold`]) only after a wait ([`Rules::wait`]; no wait if very little space is free)
//! and if no other file can be removed. With an archive, a file leaves the store only after its copy is synced and
//! verified, unless the volume is almost full.

mod archive;
mod catalogue;
mod clock;
mod event;
mod moving;
mod rules;

pub use clock::ClockReading;
pub use event::{Count, Event, RetentionState};
pub use moving::MoveJob;
pub use rules::{Free, ParseFreeError, RemovalReason, Rules};

use base::Timestamp;
use catalogue::{Catalogue, Key, Part};
use clock::ClockMonitor;
use moving::PendingMove;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use store::device::{Housekeeping, Lock, Space};
use store::names;
use store::out_of_order::{self, OutOfOrderMarkers, Span};

/// How often a worker lists the directories that recorders write to.
const SCAN_INTERVAL: Duration = Duration::from_millis(500);

/// How often a worker lists all directories.
const FULL_SCAN_INTERVAL: Duration = Duration::from_secs(10);

/// The pause before the next attempt after a failure.
const RETRY_EVERY: Duration = Duration::from_secs(10);

/// How long the worker of one interface waits for workers of other interfaces with older files to free space.
const YIELD: Duration = Duration::from_secs(1);

/// After this many removals in succession that freed no space, the worker waits [`SETTLE_TIME`] after each removal. If
/// very little space is free, it removes without waiting as many bytes as the recorder may need meanwhile, because the
/// recorder itself may be what takes the space.
const UNSETTLED: u32 = 3;

/// See [`UNSETTLED`].
const SETTLE_TIME: Duration = Duration::from_secs(1);

/// The state after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There is more work, and it can continue at once.
    More,
    /// There is more work, but not while the writer is busy.
    Waiting,
    /// There is no work now.
    Idle,
}

/// The interfaces that one retention worker is responsible for.
#[derive(Clone, Debug)]
pub struct RetentionScope {
    /// The store.
    pub store: PathBuf,
    /// The interfaces of the store that this worker is responsible for.
    pub interfaces: Vec<String>,
    /// True if other workers may run for other interfaces at the same time: for free space, the worker with the oldest
    /// files then goes first.
    pub beside_others: bool,
    /// How long a directory must be empty before the worker removes it: a recorder may be about to use it.
    pub folders_after: Duration,
}

/// The retention worker.
pub struct RetentionWorker<D: Housekeeping> {
    device: D,
    scope: RetentionScope,
    rules: Rules,
    interfaces: Vec<InterfaceFolder>,
    steady: ClockMonitor,
    /// The begin of the newest file when the clock began to run in step; kept until the age rule trusts the clock.
    doubted: Option<Timestamp>,
    synchronised: bool,
    last_scan: Option<Duration>,
    last_full_scan: Option<Duration>,
    /// The volume of the archive at the start, or when the archive was first found.
    archive_volume: Option<u64>,
    archive_again: Duration,
    /// The next file to archive, or the file that is being archived elsewhere.
    moving: Option<MoveJob>,
    pending_move: Option<PendingMove>,
    /// Since when there is too little free space.
    pressed: Option<Duration>,
    unsettled: u32,
    /// Bytes removed since then, or since the last wait.
    unsettled_bytes: u64,
    not_before: Duration,
    stuck: BTreeSet<(usize, Key)>,
    stuck_until: Duration,
    /// Hours that readers hold in this step, and held hours already reported.
    held: BTreeSet<(usize, Timestamp)>,
    held_reported: BTreeSet<(usize, Timestamp)>,
    /// Since when the worker waits for held hours, and hours for which the wait has ended.
    held_since: BTreeMap<(usize, Timestamp), Duration>,
    overruled: BTreeSet<(usize, Timestamp)>,
    reported: BTreeSet<String>,
    /// The time of the last warning.
    said: Duration,
    up: Duration,
    events: Vec<Event>,
    state: RetentionState,
    /// Bytes that would have been removed; `None` unless this is a dry run.
    pretended: Option<u64>,
}

/// One interface.
struct InterfaceFolder {
    folder: PathBuf,
    files: Catalogue,
    /// The lock that excludes other workers while this worker runs.
    keeping: Option<Lock>,
    /// True if incomplete files of earlier workers have been removed from the archive.
    swept: bool,
    /// The out-of-order markers, read when the first removal needs them and dropped at the next scan. A marker exists
    /// before its file is published, so the list is complete for all files in the catalogue.
    noted: Option<OutOfOrderMarkers>,
}

/// A rule that is not met.
struct SpaceNeeded {
    why: RemovalReason,
    /// The interface; `None` for all interfaces.
    interface: Option<usize>,
    /// Only files that begin before this moment.
    before: Timestamp,
}

impl<D: Housekeeping> RetentionWorker<D> {
    /// A worker that has listed nothing yet, but knows the volume of the archive if the archive exists.
    pub fn new(mut device: D, charge: RetentionScope, rules: Rules) -> Self {
        let archive_volume = rules.archive.as_ref().and_then(|archive| Some(device.stat(archive).ok()?.volume));
        let shelf = |name: &String| {
            let folder = names::interface_folder(&charge.store, name);
            InterfaceFolder { files: Catalogue::new(&folder), folder, keeping: None, swept: false, noted: None }
        };
        Self {
            interfaces: charge.interfaces.iter().map(shelf).collect(),
            device,
            scope: charge,
            rules,
            steady: ClockMonitor::default(),
            doubted: None,
            synchronised: false,
            last_scan: None,
            last_full_scan: None,
            archive_volume,
            archive_again: Duration::ZERO,
            moving: None,
            pending_move: None,
            pressed: None,
            unsettled: 0,
            unsettled_bytes: 0,
            not_before: Duration::ZERO,
            stuck: BTreeSet::new(),
            stuck_until: Duration::ZERO,
            held: BTreeSet::new(),
            held_reported: BTreeSet::new(),
            held_since: BTreeMap::new(),
            overruled: BTreeSet::new(),
            reported: BTreeSet::new(),
            said: Duration::ZERO,
            up: Duration::ZERO,
            events: Vec::new(),
            state: RetentionState::default(),
            pretended: None,
        }
    }

    /// Trusts the clock of this machine from the start, because a person started the worker.
    #[must_use]
    pub fn trusting_the_clock(mut self) -> Self {
        self.steady.trust();
        self
    }

    /// Sets whether the clock of this machine is synchronised: then the age rule trusts the clock even if all files are
    /// too old.
    pub fn set_synchronised(&mut self, synchronised: bool) {
        self.synchronised = synchronised;
    }

    /// Only reports what would be removed, and changes nothing. Files that would be archived are reported as removed.
    #[must_use]
    pub fn dry_run(mut self) -> Self {
        self.pretended = Some(0);
        self
    }

    /// True if all rules are met, as of the last step.
    pub fn is_content(&self, at: ClockReading) -> bool {
        !self.is_moving() && self.needs(at, self.rules.short_of(self.state.space)).is_empty()
    }

    /// True if a file is on its way to the archive: [`RetentionWorker::step`] then copies it, if `slack` is set, unless
    /// the file was [sent out](RetentionWorker::send_out).
    pub fn is_moving(&self) -> bool {
        self.moving.is_some() || self.pending_move.is_some()
    }

    /// Sets the number of bytes that the recorder's next files will take within a second.
    pub fn set_ahead(&mut self, ahead: u64) {
        self.rules.ahead = ahead;
    }

    /// Makes the next step list the store again.
    pub fn rescan(&mut self) {
        self.last_scan = None;
    }

    /// The events since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// The status of the worker.
    pub fn state(&self) -> &RetentionState {
        &self.state
    }

    /// Does one piece of work. With `slack`, the writer has time, so that copying does not delay it.
    pub fn step(&mut self, at: ClockReading, slack: bool) -> Progress {
        let progress = self.work(at, slack);
        if progress == Progress::Idle && !self.is_moving() {
            self.interfaces.iter_mut().for_each(|shelf| shelf.keeping = None);
        }
        self.describe();
        progress
    }

    fn work(&mut self, at: ClockReading, slack: bool) -> Progress {
        let anew = self.steady.see(at);
        self.up = at.up;
        // In a dry run, a second scan would find again the files that were only reported.
        if self.last_scan.is_none_or(|looked| self.pretended.is_none() && at.up >= looked + SCAN_INTERVAL) {
            let all =
                self.last_scan.is_none() || self.last_full_scan.is_none_or(|then| at.up >= then + FULL_SCAN_INTERVAL);
            self.last_scan = Some(at.up);
            if all {
                self.last_full_scan = Some(at.up);
            }
            self.scan(at.now, all);
        }
        if anew {
            self.doubted = self.interfaces.iter().filter_map(|s| s.files.newest(at.now)).max();
        }
        self.doubt(at);
        if at.up >= self.stuck_until {
            self.stuck.clear();
        }
        let space = match self.device.space(&self.scope.store) {
            Ok(Space { free, total }) => Space { free: free + self.pretended.unwrap_or(0), total },
            Err(e) => {
                self.say(format!("{}: cannot tell the free space: {e}", self.scope.store.display()));
                return Progress::Idle;
            }
        };
        self.state.space = space;
        let short = self.rules.short_of(space);
        let forced = self.rules.is_pressing(space);
        self.pressed = if short { self.pressed.or(Some(at.up)) } else { None };
        if !short {
            self.unsettled = 0;
        }
        if self.is_moving() {
            if !forced {
                return if slack && self.pending_move.is_none() { self.go_on_moving(at) } else { Progress::Waiting };
            }
            self.abandon_move();
        }
        self.held.clear();
        for need in self.needs(at, short) {
            // A rule that cannot be met now must not keep the other rules from being applied.
            let progress = self.relieve(&need, at, forced);
            if progress != Progress::Idle {
                return progress;
            }
        }
        Progress::Idle
    }

    /// Warns if the clock may be wrong although it runs in step: if all files from before the start are too old by a
    /// clock that is not synchronised, the age rule does not apply.
    fn doubt(&mut self, at: ClockReading) {
        let Some(age) = self.rules.max_age else { return };
        let Some(newest) = self.doubted.filter(|_| self.steady.is_steady(at)) else { return };
        if self.synchronised || self.steady.is_trusted() || newest >= at.now.before(age) {
            self.doubted = None;
        } else {
            self.say(format!(
                "{}: by this machine's clock, which nobody keeps synchronised, every file from before the start is too old; \
                 nothing goes by age: set the clock, or run netgrain retain",
                self.scope.store.display()
            ));
        }
    }

    /// Updates the catalogue.
    fn scan(&mut self, now: Timestamp, all: bool) {
        let patience = if self.pretended.is_some() { Duration::MAX } else { self.scope.folders_after };
        for i in 0..self.interfaces.len() {
            let shelf = &mut self.interfaces[i];
            shelf.noted = None;
            let bad = shelf.files.refresh(&mut self.device, now, patience, all);
            if let Some((path, e)) = bad.first() {
                let more =
                    if bad.len() > 1 { format!(" (and {} other folders)", bad.len() - 1) } else { String::new() };
                let text = format!("{}{more}: cannot be looked at: {e}; what lies there stays", path.display());
                self.say(text);
            }
        }
        let is_there = |(shelf, hour): &(usize, Timestamp)| self.interfaces[*shelf].files.has(*hour);
        self.held_reported.retain(is_there);
        self.overruled.retain(is_there);
        self.held_since.retain(|at, _| is_there(at));
        if self.up > self.said + 2 * RETRY_EVERY {
            self.state.trouble = None;
            self.reported.clear();
        }
    }

    /// The rules that are not met.
    fn needs(&self, at: ClockReading, short: bool) -> Vec<SpaceNeeded> {
        let mut needs = Vec::new();
        let any = Timestamp::MAX;
        if short && at.up >= self.not_before {
            needs.push(SpaceNeeded { why: RemovalReason::Space, interface: None, before: any });
        }
        if let Some(age) = self.rules.max_age
            && self.steady.is_steady(at)
            && self.doubted.is_none_or(|newest| newest >= at.now.before(age) || self.steady.is_trusted())
        {
            let before = at.now.before(age);
            if self.interfaces.iter().any(|s| s.files.oldest().is_some_and(|start| start < before)) {
                needs.push(SpaceNeeded { why: RemovalReason::Age, interface: None, before });
            }
        }
        if let Some(most) = self.rules.max_size {
            let large = (0..self.interfaces.len()).filter(|i| self.interfaces[*i].files.allocated_bytes() > most);
            needs.extend(large.map(|i| SpaceNeeded { why: RemovalReason::Size, interface: Some(i), before: any }));
        }
        needs
    }

    /// Removes or archives the oldest file that may go.
    fn relieve(&mut self, need: &SpaceNeeded, at: ClockReading, forced: bool) -> Progress {
        if need.why == RemovalReason::Space && !forced && self.gives_way(at) {
            return Progress::Idle;
        }
        let archiving =
            self.rules.archive.is_some() && self.pretended.is_none() && !(forced && need.why == RemovalReason::Space);
        if archiving && (forced || at.up < self.archive_again) {
            return Progress::Idle;
        }
        let mut passed_over = BTreeSet::new();
        loop {
            // If no other file can go, the files that readers hold go.
            let overrules = match self.oldest(need, at.now, &passed_over) {
                Some(_) => false,
                None if !passed_over.is_empty() => true,
                None => break,
            };
            let none = BTreeSet::new();
            let next = self.oldest(need, at.now, if overrules { &none } else { &passed_over });
            let Some((shelf, key)) = next else { break };
            if !self.keep(shelf) {
                self.set_aside(shelf, key, at.up + SCAN_INTERVAL);
                return Progress::Idle;
            }
            let hour = self.interfaces[shelf].files.folder_of(key.hour());
            let lock = match self.device.lock_out(&hour) {
                Ok(Some(lock)) => {
                    self.held_since.remove(&(shelf, key.hour()));
                    Some(lock)
                }
                Ok(None) => {
                    let waited = self.hold_back(shelf, key.hour(), at);
                    let waits = self.pretended.is_none() && !forced && waited < self.rules.wait;
                    // After a wait for one reader, the worker waits for no other before the next files have gone.
                    if waits && (overrules || passed_over.is_empty()) {
                        return Progress::Idle;
                    }
                    if !overrules {
                        passed_over.insert((shelf, key.hour()));
                        continue;
                    }
                    if self.pretended.is_some() {
                        break;
                    }
                    self.overrule(shelf, key.hour());
                    None
                }
                // Another process removed the whole hour directory.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    self.interfaces[shelf].files.forget(&key);
                    continue;
                }
                Err(e) => {
                    self.get_stuck(shelf, key, at, &format!("{}: cannot be locked: {e}", hour.display()));
                    continue;
                }
            };
            if archiving {
                // Copying takes longer than a reader should wait for the lock, and does not disturb the reader.
                drop(lock);
                return self.begin_move(shelf, key, need.why, at);
            }
            let removed = self.remove(shelf, key, at);
            drop(lock);
            if let Some((path, room)) = removed {
                let unarchived = self.rules.archive.is_some() && self.pretended.is_none();
                self.state.removed.add(room);
                if unarchived {
                    self.state.unarchived.add(room);
                }
                self.events.push(Event::Removed { path, bytes: room, why: need.why, unarchived });
                if need.why == RemovalReason::Space && self.pretended.is_none() {
                    self.wait_for_listing(room, at);
                }
            }
            return Progress::More;
        }
        Progress::Idle
    }

    /// The oldest file that can meet this rule and that is neither held nor set aside.
    fn oldest(&self, need: &SpaceNeeded, now: Timestamp, but: &BTreeSet<(usize, Timestamp)>) -> Option<(usize, Key)> {
        let wanted = |i: &usize| need.interface.is_none_or(|shelf| shelf == *i);
        let first = |i: usize| {
            let free = |key: &Key| {
                let is_out = self.pending_move.as_ref().is_some_and(|away| (away.interface, away.key) == (i, *key));
                let is_kept = self.stuck.contains(&(i, *key)) || but.contains(&(i, key.hour()));
                key.start < need.before && !is_out && !is_kept
            };
            self.interfaces[i].files.removable(now).find(free).map(|key| (i, key))
        };
        // Files with names in the future first, then by begin.
        let order = |(_, key): &(usize, Key)| (!catalogue::is_future(key.start, now), *key);
        (0..self.interfaces.len()).filter(wanted).filter_map(first).min_by_key(order)
    }

    /// True if another worker of this store has older files and still has time to free space first.
    fn gives_way(&mut self, at: ClockReading) -> bool {
        if !self.scope.beside_others || self.pressed.is_none_or(|since| at.up >= since + YIELD) {
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
        match self.device.lock_out(&folder) {
            Ok(Some(lock)) => {
                self.interfaces[shelf].keeping = Some(lock);
                true
            }
            Ok(None) => {
                self.say(format!("{}: somebody else is making room there", folder.display()));
                false
            }
            Err(e) => {
                self.say(format!("{}: cannot be locked: {e}", folder.display()));
                false
            }
        }
    }

    /// Removes a file and its index, index first. `None` if another process has removed it, or if removal fails.
    fn remove(&mut self, shelf: usize, key: Key, at: ClockReading) -> Option<(PathBuf, u64)> {
        let files = &self.interfaces[shelf].files;
        let parts = files.parts(&key);
        let path = parts.last().map(|part| part.path.clone())?;
        if files.is_being_published(&mut self.device, &key) {
            self.set_aside(shelf, key, at.up + SCAN_INTERVAL);
            return None;
        }
        if let Some(pretended) = &mut self.pretended {
            let room = parts.iter().map(|part| part.room).sum();
            *pretended += room;
            self.interfaces[shelf].files.forget(&key);
            return Some((path, room));
        }
        let mut room = None;
        for Part { path, room: freed, .. } in parts {
            match self.device.remove(&path) {
                Ok(()) => room = Some(room.unwrap_or(0) + freed),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => {
                    self.get_stuck(shelf, key, at, &format!("{}: cannot be removed: {e}", path.display()));
                    return None;
                }
            }
        }
        self.forget(shelf, &key);
        Some((path, room?))
    }

    /// Forgets a removed file and removes its out-of-order marker: while a recorder runs, no other component removes
    /// the marker.
    fn forget(&mut self, shelf: usize, key: &Key) {
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
                out_of_order::take_back(&mut self.device, folder, &key.stem(), span)
            })
        });
        if let Err(e) = outcome {
            // A marker that stays has no file: it has no effect, and the next start removes it.
            let folder = folder.join(names::OUT_OF_ORDER);
            self.say(format!("{}: notes of removed files stay there: {e}", folder.display()));
        }
    }

    /// Slows down if removed files free no space, because a process has them open: removing on at full speed would
    /// empty the store without effect.
    fn wait_for_listing(&mut self, room: u64, at: ClockReading) {
        let before = self.state.space.free;
        let Ok(space) = self.device.space(&self.scope.store) else { return };
        if space.free >= before + room / 2 {
            (self.unsettled, self.unsettled_bytes) = (0, 0);
            return;
        }
        self.unsettled += 1;
        if self.unsettled < UNSETTLED {
            return;
        }
        self.say(format!(
            "{}: the room of removed files does not come back: a process may have them open (lsof +L1), or others fill \
             the volume as fast; going more slowly",
            self.scope.store.display()
        ));
        self.unsettled_bytes += room;
        if !self.rules.is_pressing(space) || self.unsettled_bytes >= self.rules.ahead {
            self.not_before = at.up + SETTLE_TIME;
            self.unsettled_bytes = 0;
        }
    }

    /// Records that a reader holds this hour; returns how long the worker has waited for it.
    fn hold_back(&mut self, shelf: usize, hour: Timestamp, at: ClockReading) -> Duration {
        if self.held_reported.insert((shelf, hour)) {
            let folder = self.interfaces[shelf].files.folder_of(hour);
            let by = self.device.holders(&folder);
            self.events.push(Event::Held { folder, by });
        }
        self.held.insert((shelf, hour));
        at.up.saturating_sub(*self.held_since.entry((shelf, hour)).or_insert(at.up))
    }

    /// Reports that files of a held hour are removed: readers keep the files that they have open.
    fn overrule(&mut self, shelf: usize, hour: Timestamp) {
        if self.overruled.insert((shelf, hour)) {
            let folder = self.interfaces[shelf].files.folder_of(hour);
            let by = self.device.holders(&folder);
            self.events.push(Event::Overruled { folder, by });
        }
    }

    fn get_stuck(&mut self, shelf: usize, key: Key, at: ClockReading, text: &str) {
        self.set_aside(shelf, key, at.up + RETRY_EVERY);
        self.say(text.to_owned());
    }

    /// Excludes a file for a while; the worker continues with the next file.
    fn set_aside(&mut self, shelf: usize, key: Key, until: Duration) {
        self.stuck.insert((shelf, key));
        self.stuck_until = self.stuck_until.max(until);
    }

    /// Warns once, until the failure is resolved.
    fn say(&mut self, text: String) {
        self.said = self.up;
        self.state.trouble = Some(text.clone());
        if self.reported.insert(text.clone()) {
            self.events.push(Event::Warning(text));
        }
    }

    fn describe(&mut self) {
        let files = || self.interfaces.iter().map(|s| &s.files);
        self.state.files = files().map(Catalogue::files).sum();
        self.state.bytes = files().map(Catalogue::allocated_bytes).sum();
        self.state.oldest = files().filter_map(Catalogue::oldest).min();
        self.state.held = self.held.len() as u64;
    }
}

/// Leaves no incomplete file in the archive.
impl<D: Housekeeping> Drop for RetentionWorker<D> {
    fn drop(&mut self) {
        self.abandon_move();
    }
}
