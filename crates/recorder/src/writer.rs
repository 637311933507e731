//! The writing machine: keeps several writes under way at the device, writes the index of each file beside it, and
//! publishes complete files.
//!
//! Invariants: jobs finish in the order in which they came, whatever the order of the device's completions; memory of
//! the ring is released only after its bytes and their index entry are written; two writes of the same page are never
//! under way at the same time; a file gets its final name only when content and index are synced, the index first. When
//! the volume refuses an operation, the machine keeps all jobs and retries until it has been stopped and the grace
//! period has passed: then it counts the unwritten packets as lost and closes the file behind the last complete packet.
//!
//! The machine reads no clock: `now` arrives as an argument, counted from an arbitrary origin.

mod checkpoint;
mod event;
mod file;
mod flight;
mod give_up;
mod seal;

pub use event::Event;

use crate::chain;
use crate::cutter::{Job, OutOfOrderCounts, Part, Release};
use crate::future_files::{self, WallClock};
use base::Timestamp;
use event::VolumeFailure;
use file::OpenFile;
use flight::{Flight, State};
use index::{Header, Rows};
use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use store::bytes::{Bytes, PAGE};
use store::device::{Completion, Content, Device, FileId, Op, is_full};
use store::names;
use store::offered_page::OfferedPage;

/// The settings of a recorder.
#[derive(Clone, Debug)]
pub struct Config {
    /// The root directory of the store.
    pub store: PathBuf,
    /// The index header fields common to all files; position and start are filled in for each file.
    pub header: Header,
    /// Number of queues of the interface; with more than one, file names carry the queue.
    pub queues: u16,
    /// Bytes preallocated for each file: the size at which the producer rotates; 0 for none.
    pub allocate: u64,
    /// Most writes under way at once.
    pub depth: usize,
    /// Time for which a refusing volume is retried after the recorder is stopped.
    pub grace: Duration,
    /// The format of the packet files.
    pub format: Format,
    /// The latest timestamp of the queue's in-order files in the store: a file that begins earlier is out of order.
    pub after: Timestamp,
    /// The clock of this machine, if the timestamps come from it: it shows which files lie in the future.
    pub wall: Option<fn() -> WallClock>,
    /// The offered counter page, which also keeps the number of packets that the files account for.
    pub offered_page: Option<Arc<OfferedPage>>,
}

/// The format of packet files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Nanosecond pcap, copied from the ring unchanged.
    Pcap,
    /// HPCAP's RAW, in files of a fixed size.
    Raw {
        /// Bytes of a full file.
        file_bytes: u64,
    },
}

impl Format {
    /// The ending of the names of packet files in this format.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Pcap => "pcap",
            Self::Raw { .. } => "raw",
        }
    }
}

impl Config {
    /// The default settings: 8 writes, 10 s of grace, pcap.
    pub fn new(store: PathBuf, header: Header) -> Self {
        Self {
            store,
            header,
            queues: 1,
            allocate: 0,
            depth: 8,
            grace: Duration::from_secs(10),
            format: Format::Pcap,
            after: Timestamp::ZERO,
            wall: None,
            offered_page: None,
        }
    }
}

/// The file that will be opened next, created in advance so that rotation does not wait for the file system.
enum Next {
    None,
    Allocating { file: FileId, path: PathBuf, token: u64 },
    Ready { file: FileId, path: PathBuf },
}

/// The outcome counters of all packets so far.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// The outcome counters of each second; packets that could not be written are lost to [`base::Cause::Disk`].
    pub ledger: Rows,
    /// Files published.
    pub published: u64,
    /// Files left under their hidden name, or removed by another process before they were published.
    pub hidden: u64,
    /// Packets with an earlier timestamp than a packet before them.
    pub late: OutOfOrderCounts,
    /// Bytes of packet files written; a page that was rewritten with more content counts once.
    pub bytes: u64,
}

/// The writing machine.
pub struct Writer<D> {
    device: D,
    config: Config,
    queue: VecDeque<Job>,
    flights: VecDeque<Flight>,
    files: Vec<OpenFile>,
    next: Next,
    next_number: u32,
    token: u64,
    /// The failure of writing or opening, if the volume refuses; a failure of sealing is kept in its file.
    trouble: Option<VolumeFailure>,
    /// Begin of the first unresolved failure, for the event that reports its end.
    troubled_since: Option<Duration>,
    /// An operation failed in this step.
    blocked: bool,
    /// Time since which the device fails to report completions.
    reap_failing_since: Option<Duration>,
    /// The warning that directories cannot be synced was reported.
    unsynced_reported: bool,
    events: Vec<Event>,
    released: Release,
    totals: Totals,
    /// The latest timestamp of the in-order files (files without a marker), in the store and of this run.
    reached: Timestamp,
    /// The first file was begun.
    opened: bool,
    /// Offered packets for which the parts begun so far account.
    begun: u64,
    ended: bool,
    stopping: Option<Duration>,
    given_up: bool,
    /// The ledger rows of parts that will never be written.
    lost: Rows,
    /// Packets in `lost`.
    unwritten: u64,
}

impl<D: Device> Writer<D> {
    /// A writer over this device.
    pub fn new(device: D, config: Config) -> Self {
        Self {
            reached: config.after,
            device,
            config,
            queue: VecDeque::new(),
            flights: VecDeque::new(),
            files: Vec::new(),
            next: Next::None,
            next_number: 0,
            token: 0,
            trouble: None,
            troubled_since: None,
            blocked: false,
            reap_failing_since: None,
            unsynced_reported: false,
            events: Vec::new(),
            released: Release::default(),
            totals: Totals::default(),
            opened: false,
            begun: 0,
            ended: false,
            stopping: None,
            given_up: false,
            lost: Rows::new(),
            unwritten: 0,
        }
    }

    /// Prepares the device for writes from this memory; returns a warning if the preparation failed.
    pub fn adopt(&mut self, memory: &Arc<dyn Bytes>) -> Option<String> {
        self.device.adopt(memory)
    }

    /// Describes in one line how the device writes.
    pub fn describe(&self) -> String {
        self.device.describe()
    }

    /// True if the device uses the fastest method that it has.
    pub fn is_best(&self) -> bool {
        self.device.is_best()
    }

    /// True if the queue takes another job now.
    pub fn has_room(&self) -> bool {
        self.queue.len() < self.config.depth
    }

    /// Takes a job. The caller asks [`Writer::has_room`] first; a job beyond that limit is kept too.
    pub fn accept(&mut self, job: Job) {
        self.queue.push_back(job);
    }

    /// From now on a refusing volume is retried only for the grace period. The end of the stream has the same effect.
    pub fn stop(&mut self, now: Duration) {
        self.stopping.get_or_insert(now);
    }

    /// True if the stream has ended and every file is published or given up.
    pub fn is_done(&self) -> bool {
        self.ended && self.queue.is_empty() && self.flights.is_empty() && self.files.is_empty()
    }

    /// True if operations are under way at the device or the next step can proceed by itself, so the caller must not
    /// wait for jobs. False while the device fails to report completions: the caller retries at [`Writer::retry_at`].
    pub fn is_waiting(&self) -> bool {
        self.reap_failing_since.is_none() && self.is_under_way()
    }

    fn is_under_way(&self) -> bool {
        matches!(self.next, Next::Allocating { .. })
            || self.flights.iter().any(Flight::is_flying)
            || self.files.iter().any(|f| f.token().is_some() || f.is_sealing() || f.checkpoint.is_under_way())
    }

    /// Time of the next retry, if the volume refuses.
    pub fn retry_at(&self) -> Option<Duration> {
        self.failures().map(|t| t.retry_at).min()
    }

    fn failures(&self) -> impl Iterator<Item = &VolumeFailure> {
        self.trouble.iter().chain(self.files.iter().filter_map(|f| f.trouble.as_ref()))
    }

    /// The stream position and descriptors that the ring may overwrite.
    pub fn released(&self) -> Release {
        self.released
    }

    /// The events since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// The outcome counters of the packets whose jobs are finished.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Processes the device's completions, waits up to `wait` for them, and starts every operation that can start now.
    pub fn step(&mut self, now: Duration, wait: Duration) {
        let mut done = Vec::new();
        self.blocked = false;
        // A device that was given up because it reports no completions is not polled again.
        if !(self.given_up && self.reap_failing_since.is_some()) {
            match self.device.reap(wait, &mut done) {
                Ok(()) => self.reap_failing_since = None,
                Err(error) => {
                    self.reap_failing_since.get_or_insert(now);
                    self.fail("wait for the volume", self.config.store.clone(), error, now);
                }
            }
        }
        for completion in done {
            self.complete(completion, now);
        }
        self.consider_giving_up(now);
        // A volume that refuses writes gets no new operation during the pause; each file that is being sealed has its
        // own pause.
        let pausing = |this: &Self| this.trouble.as_ref().is_some_and(|t| t.pauses(now));
        if !pausing(self) {
            self.restart_failed();
            self.retire(now);
        }
        self.seal_files(now);
        if !pausing(self) {
            self.begin(now);
            self.retire(now);
            self.checkpoint(now);
            self.finish_if_given_up();
            self.consider_recovered();
        }
        self.report_recovery(now);
    }

    fn new_token(&mut self) -> u64 {
        self.token += 1;
        self.token
    }

    fn complete(&mut self, mut done: Completion, now: Duration) {
        if self.checkpointed(done.token, &mut done.result) {
            return;
        }
        if let Next::Allocating { file, path, token } = &self.next
            && *token == done.token
        {
            let (file, path) = (*file, path.clone());
            if done.result.is_err() {
                // A volume that cannot preallocate still accepts writes; the truncation frees a partial preallocation.
                let _ = self.device.truncate(file, 0);
            }
            self.next = Next::Ready { file, path };
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
            let path = self.files.iter().find(|f| Some(f.data) == flight).map(|f| f.hidden_data.clone());
            self.fail("write", path.unwrap_or_default(), error, now);
        }
    }

    /// Starts again the writes that failed or that the busy device did not accept.
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
            let mut written = None;
            if let (Some(part), Some(file)) = (&front.part, front.file) {
                let Some(at) = self.files.iter().position(|f| f.data == file) else { return };
                if self.files[at].checkpoint.guards(part.entry.block) {
                    return;
                }
                // The marker precedes the index entry that makes the packets visible: queries find a file without a
                // marker only by its name.
                if part.is_out_of_order(self.files[at].start)
                    && let Err(error) = self.files[at].mix(&mut self.device, &root(&self.config))
                {
                    let path = self.files[at].hidden_data.clone();
                    return self.fail("note the order of", path, error, now);
                }
                let open = &self.files[at];
                let words = open.growing.write_entry(&part.entry, &part.new_rows, part.last);
                if let Err(error) = self.device.put(open.index, words.at, &words.bytes) {
                    let path = open.hidden_index.clone();
                    return self.fail("write", path, error, now);
                }
                self.totals.ledger.merge(&part.new_rows);
                self.totals.late.add(part.out_of_order);
                written = Some((at, words));
            }
            let Some(mut front) = self.flights.pop_front() else { return };
            if let (Some(part), Some((at, words))) = (front.part.take(), written) {
                let open = &mut self.files[at];
                self.totals.bytes += open.grow(part.offset + part.bytes.len() as u64);
                open.accept(*part, words);
                open.checkpoint.touch();
            }
            if let (Some((len, end)), Some(file)) = (front.close, front.file)
                && let Some(open) = self.files.iter_mut().find(|f| f.data == file)
            {
                open.begin_seal(len, end);
            }
            self.release(front.release);
        }
    }

    fn release(&mut self, r: Release) {
        self.released.pos = self.released.pos.max(r.pos);
        self.released.descriptors = self.released.descriptors.max(r.descriptors);
    }

    /// Begins jobs while the device accepts operations.
    fn begin(&mut self, now: Duration) {
        while let Some(job) = self.queue.front() {
            if self.given_up {
                if let Some(job) = self.queue.pop_front() {
                    self.discard(job, now);
                }
                continue;
            }
            let flying = self.flights.iter().filter(|f| !f.is_complete()).count();
            match job {
                Job::Write(part) if flying >= self.config.depth || self.overlaps(part) => return,
                Job::Open { pos, start, .. } => {
                    let (pos, start) = (*pos, *start);
                    if !self.open(pos, start, now) {
                        return;
                    }
                }
                _ => {}
            }
            let current = self.files.last().map(|f| f.data);
            match self.queue.pop_front() {
                Some(Job::Write(part)) => {
                    let Some(open) = self.files.last_mut() else { continue };
                    open.expect(&part);
                    self.begun += part.new_rows.total().offered;
                    let file = open.data;
                    let mut flight = Flight::write(file, part);
                    for piece in &mut flight.pieces {
                        self.token += 1;
                        piece.start(&mut self.device, self.token);
                    }
                    self.flights.push_back(flight);
                }
                Some(Job::Open { release, .. } | Job::Release(release)) => {
                    self.flights.push_back(Flight::release(release));
                }
                Some(Job::Close { len, end, release }) => {
                    if let Some(open) = self.files.last().filter(|open| open.is_in_order()) {
                        self.reached = self.reached.max(open.latest);
                    }
                    self.flights.push_back(Flight::close(current, len, end, release));
                }
                Some(Job::End) => self.end(now),
                None => return,
            }
        }
        if !self.given_up && !self.ended && self.files.last().is_some_and(OpenFile::is_open) {
            // In advance: if this fails, the same error occurs and is reported when the file is needed.
            let _ = self.prepare();
        }
    }

    /// True if an earlier part is still writing a page of this part.
    fn overlaps(&self, part: &Part) -> bool {
        let Some(file) = self.files.last().map(|f| f.data) else { return false };
        let pieces = self.flights.iter().filter(|f| f.file == Some(file)).flat_map(|f| &f.pieces);
        let pages = part.offset..(part.offset + part.bytes.len() as u64).next_multiple_of(PAGE);
        pieces
            .filter(|p| p.state != State::Done)
            .any(|p| p.offset < pages.end && pages.start < p.offset + p.slice.len() as u64)
    }

    /// Creates the next file under a temporary name without a time.
    fn prepare(&mut self) -> io::Result<()> {
        if !matches!(self.next, Next::None) {
            return Ok(());
        }
        let root = self.root();
        self.device.create_folder(&root)?;
        let name = names::prepared(self.config.header.queue, self.next_number, self.config.format.suffix());
        let path = root.join(name);
        self.next_number += 1;
        let file = self.device.create(&path, Content::Packets)?;
        self.next = if self.config.allocate == 0 {
            Next::Ready { file, path }
        } else {
            let token = self.new_token();
            match self.device.start(file, Op::Allocate(self.config.allocate), token) {
                Ok(()) => Next::Allocating { file, path, token },
                // As above: the file is written without preallocation.
                Err(_) => Next::Ready { file, path },
            }
        };
        Ok(())
    }

    /// Opens the file of a segment; false if the caller must retry.
    fn open(&mut self, pos: u64, start: Timestamp, now: Duration) -> bool {
        let root = self.root();
        match self.prepare() {
            Ok(()) => {}
            // A killed recorder left a file of this name: the next copy number is tried at once.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return self.open(pos, start, now),
            Err(e) => {
                self.fail("create a file in", root, e, now);
                return false;
            }
        }
        if start < self.reached && matches!(self.next, Next::Ready { .. }) {
            self.prepare_next();
        }
        let Next::Ready { file, path } = &self.next else {
            // The failure ends only when the file is in its hour directory.
            self.blocked = true;
            return false;
        };
        let header = Header { first_pos: pos, start, ..self.config.header.clone() };
        let queue = (self.config.queues > 1).then_some(header.queue);
        let folder = names::hour_folder(&root, start);
        let note = (start < self.reached).then_some(&*root);
        let suffix = self.config.format.suffix();
        match OpenFile::place(&mut self.device, (*file, path), &folder, &header, queue, suffix, note) {
            Ok(open) => {
                if !std::mem::replace(&mut self.opened, true)
                    && let Some(path) = chain::covering(&self.config, start)
                {
                    self.events.push(Event::TimeOverlap { path, start });
                }
                self.files.push(open);
                self.next = Next::None;
                if let Some(heartbeat) = &self.config.offered_page {
                    heartbeat.file(start, pos, self.begun);
                }
                true
            }
            Err(error) => {
                if error.kind() == io::ErrorKind::NotFound {
                    // Another process removed the prepared file or the hour directory: the retry creates both again.
                    self.drop_next();
                }
                self.fail("create a file in", folder, error, now);
                false
            }
        }
    }

    /// Runs when the next file begins before the end of an in-order file. If the clock was ahead when those files were
    /// recorded, they get markers instead, so that later files need none. What fails now is retried at the next file.
    fn prepare_next(&mut self) {
        let Some(wall) = self.config.wall.map(|ask| ask()) else { return };
        let root = self.root();
        if self.reached <= wall.is_trusted() || !future_files::is_right(&root, &wall) {
            return;
        }
        let is_ahead = |file: &&mut OpenFile| file.is_in_order() && file.latest > wall.is_trusted() && !file.is_named();
        let mut unnamed = self.files.iter_mut().filter(is_ahead);
        let (device, config) = (&mut self.device, &self.config);
        let noted = unnamed
            .try_for_each(|file| file.write_marker(device, &root))
            .and_then(|()| future_files::note(device, config, &wall));
        let Ok(found) = noted else { return };
        // The store has the state of published files; for files not yet published it may miss packets under way, so
        // this run's own state counts.
        let ours = self.files.iter().filter(|file| file.is_in_order() && !file.is_named()).map(|file| file.latest);
        self.reached = ours.fold(found.reached, Timestamp::max);
        self.events.extend(found.warning(&root, &wall).map(Event::Warning));
    }

    /// The directory of the interface.
    fn root(&self) -> PathBuf {
        root(&self.config)
    }

    fn end(&mut self, now: Duration) {
        self.ended = true;
        self.stop(now);
        self.drop_next();
    }

    /// Removes the file that was created in advance.
    fn drop_next(&mut self) {
        if let Next::Ready { file, path } | Next::Allocating { file, path, .. } =
            std::mem::replace(&mut self.next, Next::None)
        {
            self.device.close(file);
            let _ = self.device.remove(&path);
        }
    }

    fn fail(&mut self, what: &'static str, path: PathBuf, error: io::Error, now: Duration) {
        self.blocked = true;
        if is_full(&error) {
            self.drop_next();
        }
        match &mut self.trouble {
            Some(trouble) => trouble.again(now),
            None => {
                let trouble = VolumeFailure::new(error.kind(), now);
                self.report_failure(what, path, error, now);
                self.trouble = Some(trouble);
            }
        }
    }

    /// Reports one event per failure: a full volume refuses many operations for the same reason.
    fn report_failure(&mut self, what: &'static str, path: PathBuf, error: io::Error, now: Duration) {
        self.troubled_since.get_or_insert(now);
        if !self.failures().any(|t| t.kind == error.kind()) {
            self.events.push(Event::Trouble { what, path, advice: sys::advice::to_write(&error), error });
        }
    }

    fn consider_recovered(&mut self) {
        let retried = self.flights.iter().flat_map(|f| &f.pieces).any(|p| p.tried && p.state != State::Done);
        if !self.blocked && !retried {
            self.trouble = None;
        }
    }

    fn report_recovery(&mut self, now: Duration) {
        if self.failures().next().is_none()
            && let Some(since) = self.troubled_since.take()
        {
            self.events.push(Event::Recovered { after: now.saturating_sub(since) });
        }
    }
}

/// The directory of the interface.
fn root(config: &Config) -> PathBuf {
    names::interface_folder(&config.store, &config.header.interface)
}
