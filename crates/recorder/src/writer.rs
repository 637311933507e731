//! The writer: has several writes in progress at the device, writes the index of each packet file, and publishes
//! complete files.
//!
//! Invariants: Jobs finish in the order in which they arrived, in whatever order the device completes their writes.
//! Memory of the ring is released only after its bytes and their index entry are written. Two writes of the same page
//! are never in progress at the same time. A file is renamed to its final name only after its content and its index are
//! synced, and the index is renamed first. If the volume refuses an operation, the writer retains all jobs and retries
//! until the recorder has been stopped and the grace period has passed. Then the writer counts the unwritten packets as
//! lost and ends the file after the last complete packet.
//!
//! The writer has these states; each state is in the module that contains its transitions:
//!
//! - the run (`run_state`): recording; stopping, within the grace period; given up; with the stream open or ended;
//! - the volume (`volume`): accepts writes, or refuses them until a retry succeeds;
//! - the next file (`next_file`): none, being preallocated, or ready;
//! - each write (`flight`): waiting, in progress, or done;
//! - each file (`seal`): open, then the steps of its publication; and its checkpoints (`checkpoint`).
//!
//! The writer reads no clock: `now` is passed as an argument, counted from an arbitrary origin.

mod checkpoint;
mod config;
mod event;
mod file;
mod flight;
mod give_up;
mod next_file;
mod run_state;
mod seal;
mod volume;

pub use config::{Config, Format};
pub use event::Event;

use crate::cutter::{Job, OutOfOrderCounts, Part, Release};
use base::Timestamp;
use file::OpenFile;
use flight::{Flight, State};
use index::{IndexWrite, Rows};
use next_file::NextFile;
use run_state::RunState;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use store::bytes::{Bytes, PAGE};
use store::device::{Completion, Device};
use volume::{Completions, VolumeState};

/// The outcome counters of all packets so far.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// The outcome counters of each second; packets that could not be written are counted as lost with the cause
    /// [`base::Cause::Disk`].
    pub ledger: Rows,
    /// Number of files that were published.
    pub published: u64,
    /// Number of files that were left under their hidden names, or that another process removed before they were
    /// published.
    pub hidden: u64,
    /// The number of packets with an earlier timestamp than a preceding packet, and the largest difference of the two
    /// timestamps.
    pub late: OutOfOrderCounts,
    /// Number of bytes of packet files that were written; a page that was written twice, with more content the second
    /// time, counts once.
    pub bytes: u64,
}

/// The writer of packet files: a state machine over a device.
pub struct Writer<D> {
    device: D,
    config: Config,
    queue: VecDeque<Job>,
    flights: VecDeque<Flight>,
    files: Vec<OpenFile>,
    next: NextFile,
    /// The token of the operation that was started last.
    token: u64,
    run: RunState,
    volume: VolumeState,
    begun: BegunParts,
    released: Release,
    totals: Totals,
    events: Vec<Event>,
}

/// The latest timestamp and the number of offered packets of all parts of blocks whose writes have begun.
struct BegunParts {
    /// The latest timestamp in the in-order files (files without a marker) of the store and of this run.
    latest: Timestamp,
    /// Number of offered packets in the ledger rows of all parts of blocks whose writes have begun.
    offered: u64,
    /// True if the first file was begun.
    has_file: bool,
}

/// The error of a job whose index entry cannot be written now. A later step retries.
struct Unwritten;

impl<D: Device> Writer<D> {
    /// A writer over this device.
    pub fn new(device: D, config: Config) -> Self {
        Self {
            begun: BegunParts { latest: config.after, offered: 0, has_file: false },
            device,
            config,
            queue: VecDeque::new(),
            flights: VecDeque::new(),
            files: Vec::new(),
            next: NextFile::default(),
            token: 0,
            run: RunState::default(),
            volume: VolumeState::default(),
            released: Release::default(),
            totals: Totals::default(),
            events: Vec::new(),
        }
    }

    /// Prepares the device for writes from this memory; returns a warning if the preparation failed.
    pub fn adopt(&mut self, memory: &Arc<dyn Bytes>) -> Option<String> {
        self.device.adopt(memory)
    }

    /// Describes in one line by which method the device writes.
    pub fn describe(&self) -> String {
        self.device.describe()
    }

    /// True if the device writes packet files with io_uring and past the page cache (`O_DIRECT`), its fastest method.
    pub fn is_best(&self) -> bool {
        self.device.is_best()
    }

    /// True if the job queue has space for another job.
    pub fn has_room(&self) -> bool {
        self.queue.len() < self.config.depth
    }

    /// Appends a job to the queue. The caller tests [`Writer::has_room`] first, but the queue also accepts a job beyond
    /// its limit.
    pub fn accept(&mut self, job: Job) {
        self.queue.push_back(job);
    }

    /// After this call, writes to a volume that rejects them are retried only until the grace period ends. The grace
    /// period begins at the stop, or at the first error if that is later. The end of the stream has the same effect as
    /// this call.
    pub fn stop(&mut self, now: Duration) {
        self.run = std::mem::take(&mut self.run).stop(now);
    }

    /// True if the stream has ended, all jobs are done, and no file is still to be published.
    pub fn is_done(&self) -> bool {
        self.run.has_ended() && self.queue.is_empty() && self.flights.is_empty() && self.files.is_empty()
    }

    /// True if operations are in progress at the device, or the next step can proceed without a new job; then the
    /// caller calls [`Writer::step`] again instead of waiting for a job. False while the device fails to report
    /// completions: then the caller waits until [`Writer::retry_at`].
    pub fn is_waiting(&self) -> bool {
        !self.volume.is_unresponsive() && self.is_in_progress()
    }

    fn is_in_progress(&self) -> bool {
        self.next.is_allocating()
            || self.flights.iter().any(Flight::is_flying)
            || self.files.iter().any(|f| f.token().is_some() || f.is_sealing() || f.checkpoint.is_in_progress())
    }

    /// Time of the next retry; `None` if the volume refuses no operation.
    pub fn retry_at(&self) -> Option<Duration> {
        self.failures().map(|t| t.retry_at).min()
    }

    /// The stream position and the number of descriptors up to which the ring may be overwritten.
    pub fn released(&self) -> Release {
        self.released
    }

    /// The events since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// The outcome counters of the packets in the write jobs that are finished.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Processes the device's completions, waits up to `wait` for them, and starts every operation that can start now.
    pub fn step(&mut self, now: Duration, wait: Duration) {
        self.volume.is_blocked = false;
        for completion in self.reap(now, wait) {
            self.complete(completion, now);
        }
        self.consider_giving_up(now);
        // A volume that refuses writes gets no new operation during the pause; each file that is being sealed has a
        // separate pause.
        if !self.volume.pauses(now) {
            self.restart_failed();
            self.retire(now);
        }
        self.seal_files(now);
        if !self.volume.pauses(now) {
            self.begin(now);
            self.retire(now);
            self.checkpoint(now);
            self.finish_if_given_up();
            self.consider_recovered();
        }
        self.report_recovery(now);
    }

    /// The completions of the device. If the recording was ended because the device reports no completions, the device
    /// is not polled again.
    fn reap(&mut self, now: Duration, wait: Duration) -> Vec<Completion> {
        let mut done = Vec::new();
        if self.run.has_given_up() && self.volume.is_unresponsive() {
            return done;
        }
        match self.device.reap(wait, &mut done) {
            Ok(()) => self.volume.completions = Completions::Reported,
            Err(error) => {
                self.volume.completions = Completions::Failing;
                self.fail("wait for the volume", self.config.store.clone(), error, now);
            }
        }
        done
    }

    fn new_token(&mut self) -> u64 {
        self.token += 1;
        self.token
    }

    fn complete(&mut self, done: Completion, now: Duration) {
        if let Some(file) = self.files.iter_mut().find(|f| f.checkpoint.token() == Some(done.token)) {
            return file.complete_checkpoint(&mut self.device, done.result);
        }
        if self.allocated(done.token, done.result.is_ok()) {
            return;
        }
        if let Some(i) = self.files.iter().position(|f| f.token() == Some(done.token)) {
            self.sealed_step(i, done.result.map(|_| ()), now);
            return;
        }
        let Some((flight, piece)) = self.flights.iter_mut().find_map(|f| {
            let at = f.pieces.iter().position(|p| p.state == State::Flying(done.token))?;
            Some((f.file, &mut f.pieces[at]))
        }) else {
            return;
        };
        if let Err(error) = piece.complete(done.result) {
            let path = self.files.iter().find(|f| Some(f.data) == flight).map(|f| f.path.clone());
            self.fail("write", path.unwrap_or_default(), error, now);
        }
    }

    /// Starts the syncs of checkpoints that are due.
    fn checkpoint(&mut self, now: Duration) {
        for file in &mut self.files {
            if file.start_checkpoint(&mut self.device, self.token + 1, now) {
                self.token += 1;
            }
        }
    }

    /// Repeats the writes that failed or that the busy device did not accept.
    fn restart_failed(&mut self) {
        for piece in self.flights.iter_mut().flat_map(|f| &mut f.pieces).filter(|p| p.state == State::Waiting) {
            self.token += 1;
            piece.start(&mut self.device, self.token);
        }
    }

    /// Finishes completed jobs in order.
    fn retire(&mut self, now: Duration) {
        while let Some(front) = self.flights.front() {
            if !front.is_complete() {
                return;
            }
            let Ok(written) = self.write_entry(now) else { return };
            let Some(mut front) = self.flights.pop_front() else { return };
            if let (Some(part), Some((at, words))) = (front.part.take(), written) {
                let open = &mut self.files[at];
                self.totals.bytes += open.extent.grow(part.offset + part.bytes.len() as u64);
                open.accept(*part, words);
            }
            if let (Some((len, end)), Some(file)) = (front.close, front.file)
                && let Some(open) = self.files.iter_mut().find(|f| f.data == file)
            {
                open.begin_seal(len, end);
            }
            self.release(front.release);
        }
    }

    /// Writes the index entry of the oldest job, if the job writes a part of a block. Returns the position of the
    /// packet file in `files`, and the index entry.
    fn write_entry(&mut self, now: Duration) -> Result<Option<(usize, IndexWrite)>, Unwritten> {
        let Some(front) = self.flights.front() else { return Err(Unwritten) };
        let (Some(part), Some(file)) = (&front.part, front.file) else { return Ok(None) };
        let Some(at) = self.files.iter().position(|f| f.data == file) else { return Err(Unwritten) };
        if self.files[at].checkpoint.guards(part.entry.block) {
            return Err(Unwritten);
        }
        // The marker is written before the index entry, because the entry makes the packets visible, and queries find a
        // file without a marker only by the time in its name.
        if part.is_out_of_order(self.files[at].name.start)
            && let Err(error) = self.files[at].mark_out_of_order(&mut self.device, &self.config.directory())
        {
            let path = self.files[at].path.clone();
            self.fail("write the out-of-order marker of", path, error, now);
            return Err(Unwritten);
        }
        let open = &self.files[at];
        let words = open.index.positions.write_entry(&part.entry, &part.new_rows, part.last);
        if let Err(error) = self.device.put(open.index.file, words.at, &words.bytes) {
            let path = open.index.path.clone();
            self.fail("write", path, error, now);
            return Err(Unwritten);
        }
        self.totals.ledger.merge(&part.new_rows);
        self.totals.late.add(part.out_of_order);
        Ok(Some((at, words)))
    }

    fn release(&mut self, r: Release) {
        self.released.pos = self.released.pos.max(r.pos);
        self.released.descriptors = self.released.descriptors.max(r.descriptors);
    }

    /// Begins jobs while the device accepts operations.
    fn begin(&mut self, now: Duration) {
        while !self.queue.is_empty() {
            if self.run.has_given_up() {
                if let Some(job) = self.queue.pop_front() {
                    self.discard(job, now);
                }
                continue;
            }
            if !self.is_ready(now) {
                return;
            }
            if let Some(job) = self.queue.pop_front() {
                self.begin_job(job, now);
            }
        }
        if !self.run.has_given_up() && !self.run.has_ended() && self.files.last().is_some_and(OpenFile::is_open) {
            // Creates the next file in advance. A failure is ignored here: the same error occurs and is reported when
            // the file is needed.
            let _ = self.prepare();
        }
    }

    /// True if the next job can begin now. If the job begins a segment, opens the file of the segment.
    fn is_ready(&mut self, now: Duration) -> bool {
        match self.queue.front() {
            Some(Job::Write(part)) => {
                let flying = self.flights.iter().filter(|f| !f.is_complete()).count();
                flying < self.config.depth && !self.overlaps(part)
            }
            Some(Job::Open { pos, start, .. }) => {
                let (pos, start) = (*pos, *start);
                self.open(pos, start, now)
            }
            _ => true,
        }
    }

    fn begin_job(&mut self, job: Job, now: Duration) {
        match job {
            Job::Write(part) => self.begin_write(part),
            Job::Open { release, .. } | Job::Release(release) => self.flights.push_back(Flight::release(release)),
            Job::Close { len, end, release } => {
                if let Some(open) = self.files.last().filter(|open| open.order.is_in_order()) {
                    self.begun.latest = self.begun.latest.max(open.order.latest);
                }
                let current = self.files.last().map(|f| f.data);
                self.flights.push_back(Flight::close(current, len, end, release));
            }
            Job::End => self.end(now),
        }
    }

    fn begin_write(&mut self, part: Box<Part>) {
        let Some(open) = self.files.last_mut() else { return };
        open.expect(&part);
        self.begun.offered += part.new_rows.total().offered;
        let mut flight = Flight::write(open.data, part);
        for piece in &mut flight.pieces {
            self.token += 1;
            piece.start(&mut self.device, self.token);
        }
        self.flights.push_back(flight);
    }

    /// True if a write of an earlier part is in progress for a page of this part.
    fn overlaps(&self, part: &Part) -> bool {
        let Some(file) = self.files.last().map(|f| f.data) else { return false };
        let pieces = self.flights.iter().filter(|f| f.file == Some(file)).flat_map(|f| &f.pieces);
        let pages = part.offset..(part.offset + part.bytes.len() as u64).next_multiple_of(PAGE);
        pieces
            .filter(|p| p.state != State::Done)
            .any(|p| p.offset < pages.end && pages.start < p.offset + p.slice.len() as u64)
    }

    fn end(&mut self, now: Duration) {
        self.run = std::mem::take(&mut self.run).end(now);
        self.drop_next();
    }
}
