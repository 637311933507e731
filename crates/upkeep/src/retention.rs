//! Retention removes the oldest files of a store, or moves them to an archive. Its rules concern the free space of the
//! volume, the size of the stored files, and the age of the files.
//!
//! A [`RetentionWorker`] applies the rules to interface directories of one store. [`RetentionWorker::step`] does one
//! bounded piece of work (lists changed directories, removes one file, or copies one MiB) and reads no clock. The
//! worker stores no state on disk; after a restart it derives its state from file names. Invariants: the worker removes
//! only published files of netgrain, each in the directory that its name implies. It removes the index before the
//! packet file, so that a crash between both removals leaves a packet file that every tool can read and that is still
//! the oldest. It removes files of an hour that a reader holds ([`store::Hold`]) only after a wait ([`Rules::wait`]; no
//! wait if very little space is free), and only if no other file can be removed. With an archive, a file leaves the
//! store only after its copy is synced and verified, unless the volume is almost full.
//!
//! The worker consists of small state machines, each in one module:
//!
//! - `scan`: all directories must be listed, or they were listed at known times;
//! - `clock`: the age rule waits until the clock has run in step with the monotonic clock, or it is suspended, or it
//!   applies;
//! - `pressure`: either enough space is free, or too little space is free since a stored time, with the number of
//!   removals that freed no space;
//! - `held`: each hour directory is free, or is locked by a reader since a stored time, or is locked by a reader whose
//!   lock retention now ignores;
//! - `moving`: no file is being archived, or the worker has the job that archives a file, or another thread has this
//!   job.
//!
//! Each step of the worker lists the store if a listing is due. Then the step continues the move of a file to the
//! archive. If no file is being moved, or if the move is abandoned because very little space is free, the step
//! applies the first rule that is not met and can be met now.

mod archive;
mod catalogue;
mod clock;
mod event;
mod held;
mod moving;
mod pressure;
mod removal;
mod reports;
mod rules;
mod scan;

pub use clock::ClockReading;
pub use event::{Count, Event, RetentionState};
pub use moving::MoveJob;
pub use rules::{Free, ParseFreeError, RemovalReason, Rules};

use base::Timestamp;
use catalogue::Catalogue;
use clock::{AgeClock, ClockFinding};
use held::{HeldHours, HourOf};
use moving::Archiving;
use pressure::SpacePressure;
use removal::SetAside;
use reports::Reports;
use scan::{ScanExtent, ScanState};
use std::path::PathBuf;
use std::time::Duration;
use store::device::{Housekeeping, Lock, Space};
use store::names;
use store::out_of_order::OutOfOrderMarkers;

/// The pause before the next attempt after a failure.
const RETRY_EVERY: Duration = Duration::from_secs(10);

/// The state after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There is more work, and the next step can follow immediately.
    More,
    /// There is more work, but it must wait until the recorder's writer is not busy.
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
    /// True if other workers may run for other interfaces of the store at the same time. Then, if too little space is
    /// free, the worker with the oldest files removes first.
    pub beside_others: bool,
    /// How long a directory must be empty before the worker removes it, because a recorder may be about to use it.
    pub directories_after: Duration,
}

/// The retention worker.
pub struct RetentionWorker<D: Housekeeping> {
    device: D,
    scope: RetentionScope,
    rules: Rules,
    interfaces: Vec<InterfaceDirectory>,
    mode: Mode,
    scans: ScanState,
    clock: AgeClock,
    pressure: SpacePressure,
    held: HeldHours,
    aside: SetAside,
    archive: Archiving,
    reports: Reports,
}

/// What the worker may change in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// It removes and moves files.
    Apply,
    /// The worker changes nothing and only reports. `freed` is the number of bytes that it would have removed so far.
    DryRun { freed: u64 },
}

/// One interface.
struct InterfaceDirectory {
    directory: PathBuf,
    files: Catalogue,
    /// The lock that excludes other workers while this worker runs.
    lock: Option<Lock>,
    /// True if incomplete files of earlier workers have been removed from the archive.
    swept: bool,
    /// The out-of-order markers, read when the first removal needs them and dropped at the next scan. A marker is
    /// created before its file is published, so the list contains the markers of all files in the catalogue.
    markers: Option<OutOfOrderMarkers>,
}

/// A rule of retention that is not met, so that files must be removed.
struct SpaceNeeded {
    why: RemovalReason,
    /// The interface whose files must be removed; `None` for all interfaces.
    interface: Option<usize>,
    /// Only files that begin before this time are removed.
    before: Timestamp,
}

impl<D: Housekeeping> RetentionWorker<D> {
    /// A worker that has not listed the store yet. If the archive exists, this function determines on which volume it
    /// is.
    pub fn new(mut device: D, scope: RetentionScope, rules: Rules) -> Self {
        let volume = rules.archive.as_ref().and_then(|archive| Some(device.stat(archive).ok()?.volume));
        let interface = |name: &String| {
            let directory = names::interface_directory(&scope.store, name);
            InterfaceDirectory { files: Catalogue::new(&directory), directory, lock: None, swept: false, markers: None }
        };
        Self {
            interfaces: scope.interfaces.iter().map(interface).collect(),
            device,
            scope,
            rules,
            mode: Mode::Apply,
            scans: ScanState::Due,
            clock: AgeClock::default(),
            pressure: SpacePressure::default(),
            held: HeldHours::default(),
            aside: SetAside::default(),
            archive: Archiving { volume, ..Archiving::default() },
            reports: Reports::default(),
        }
    }

    /// Makes the age rule trust the system clock from the start, because a user started the worker.
    #[must_use]
    pub fn trusting_the_clock(mut self) -> Self {
        self.clock.trust();
        self
    }

    /// Sets whether the system clock is synchronised; the age rule trusts a synchronised clock even if all files are
    /// too old.
    pub fn set_synchronised(&mut self, synchronised: bool) {
        self.clock.is_synchronised = synchronised;
    }

    /// Turns on the dry run: the worker reports the files that it would remove, and changes nothing. Files that would
    /// be archived are reported as removed.
    #[must_use]
    pub fn dry_run(mut self) -> Self {
        self.mode = Mode::DryRun { freed: 0 };
        self
    }

    /// True if all rules were met at the last step.
    pub fn is_content(&self, at: ClockReading) -> bool {
        !self.is_moving() && self.needs(at, self.rules.short_of(self.reports.state.space)).is_empty()
    }

    /// True if a file is being archived. If the job was not [sent out](RetentionWorker::send_out),
    /// [`RetentionWorker::step`] with `slack` continues the copy.
    pub fn is_moving(&self) -> bool {
        self.archive.is_moving()
    }

    /// Sets the number of bytes that the recorder may allocate within a second for its next files.
    pub fn set_ahead(&mut self, ahead: u64) {
        self.rules.ahead = ahead;
    }

    /// Makes the next step list the store again.
    pub fn rescan(&mut self) {
        self.scans = ScanState::Due;
    }

    /// Returns the events since the last call of this function.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.reports.events)
    }

    /// The status of the worker.
    pub fn state(&self) -> &RetentionState {
        &self.reports.state
    }

    /// Does one piece of work. `slack` is true if the recorder's writer is not busy, so that copying does not delay it.
    pub fn step(&mut self, at: ClockReading, slack: bool) -> Progress {
        let progress = self.work(at, slack);
        if progress == Progress::Idle && !self.is_moving() {
            self.interfaces.iter_mut().for_each(|interface| interface.lock = None);
        }
        self.describe();
        progress
    }

    fn work(&mut self, at: ClockReading, slack: bool) -> Progress {
        self.reports.begin_step(at.up);
        // In a dry run, the store is listed only once, because a second listing would return the files again that were
        // only reported as removed.
        if let Some((extent, next)) = self.scans.next(at.up, self.is_dry_run()) {
            self.scans = next;
            self.scan(at.now, extent);
        }
        let interfaces = &self.interfaces;
        self.clock.update(at, || interfaces.iter().filter_map(|s| s.files.newest(at.now)).max());
        self.check_clock(at);
        self.aside.expire(at.up);
        let Some(space) = self.read_space() else { return Progress::Idle };
        let is_short = self.rules.short_of(space);
        let forced = self.rules.is_pressing(space);
        self.pressure.update(is_short, at.up);
        if self.is_moving() {
            if !forced {
                let goes_on = slack && !self.archive.is_sent_out();
                return if goes_on { self.continue_move(at) } else { Progress::Waiting };
            }
            self.abandon_move();
        }
        self.held.begin_search();
        for need in self.needs(at, is_short) {
            // If a rule cannot be met now, the loop continues with the other rules.
            let progress = self.apply_rule(&need, at, forced);
            if progress != Progress::Idle {
                return progress;
            }
        }
        Progress::Idle
    }

    fn is_dry_run(&self) -> bool {
        matches!(self.mode, Mode::DryRun { .. })
    }

    /// The capacity and free space of the volume; if they cannot be determined, reports a warning and returns `None`.
    fn read_space(&mut self) -> Option<Space> {
        let pretended = if let Mode::DryRun { freed } = self.mode { freed } else { 0 };
        match self.device.space(&self.scope.store) {
            Ok(Space { free, total }) => {
                self.reports.state.space = Space { free: free + pretended, total };
                Some(self.reports.state.space)
            }
            Err(e) => {
                self.reports.warn(format!("{}: cannot determine the free space: {e}", self.scope.store.display()));
                None
            }
        }
    }

    /// Warns if the age rule does not apply because the system clock may be wrong: the clock is not synchronised, and
    /// by this clock all files from before the start of the worker are too old.
    fn check_clock(&mut self, at: ClockReading) {
        let Some(age) = self.rules.max_age else { return };
        if self.clock.check(at, age) == ClockFinding::AllTooOld {
            self.reports.warn(format!(
                "{}: the clock of this machine is not synchronised, and by this clock every file from before the start \
                 is too old; no file is removed by age: synchronise the clock, or run netgrain retain",
                self.scope.store.display()
            ));
        }
    }

    /// Updates the catalogue.
    fn scan(&mut self, now: Timestamp, extent: ScanExtent) {
        let empty_for = if self.is_dry_run() { Duration::MAX } else { self.scope.directories_after };
        for interface in &mut self.interfaces {
            interface.markers = None;
            let bad = interface.files.refresh(&mut self.device, now, empty_for, extent == ScanExtent::All);
            if let Some((path, e)) = bad.first() {
                let more =
                    if bad.len() > 1 { format!(" (and {} other directories)", bad.len() - 1) } else { String::new() };
                let text = format!("{}{more}: cannot be listed: {e}; retention removes no files there", path.display());
                self.reports.warn(text);
            }
        }
        let interfaces = &self.interfaces;
        self.held.retain(|(interface, hour): &HourOf| interfaces[*interface].files.has(*hour));
        self.reports.resolve();
    }

    /// The retention rules that are not met.
    fn needs(&self, at: ClockReading, short: bool) -> Vec<SpaceNeeded> {
        let mut needs = Vec::new();
        let any = Timestamp::MAX;
        if short && self.pressure.allows(at.up) {
            needs.push(SpaceNeeded { why: RemovalReason::Space, interface: None, before: any });
        }
        if let Some(age) = self.rules.max_age
            && self.clock.allows(at, age)
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

    fn describe(&mut self) {
        let state = &mut self.reports.state;
        let files = || self.interfaces.iter().map(|s| &s.files);
        state.files = files().map(Catalogue::files).sum();
        state.bytes = files().map(Catalogue::allocated_bytes).sum();
        state.unpublished_bytes = files().map(Catalogue::unpublished_bytes).sum();
        state.oldest = files().filter_map(Catalogue::oldest).min();
        state.held = self.held.count() as u64;
    }
}

/// Removes an incomplete copy from the archive.
impl<D: Housekeeping> Drop for RetentionWorker<D> {
    fn drop(&mut self) {
        self.abandon_move();
    }
}
