//! The writing machine: moves blocks to the device with several writes under way, keeps each file's index beside it, and
//! publishes whole files.
//!
//! Invariants: jobs are finished in the order in which they came, whatever order the device answers in; nothing is given
//! back to the ring before its bytes are written and its index entry is; two writes of the same page are never under way
//! together; a file gets its real name only when content and index are synced, the index first. When the volume refuses,
//! the machine holds everything and tries again, until it is told to stop and has waited long enough: then it counts what
//! it could not write, and closes the file behind the last whole packet.
//!
//! It asks no clock: `now` arrives as an argument, counted from any moment.

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

/// What a recorder is told once.
#[derive(Clone, Debug)]
pub struct Config {
    /// The store.
    pub store: PathBuf,
    /// What is common to all files; position and start are filled in for each.
    pub header: Header,
    /// How many queues the interface has; with more than one, names carry the queue.
    pub queues: u16,
    /// Room given to each file ahead of need, in bytes: the size at which the producer rotates; 0 for none.
    pub allocate: u64,
    /// Writes under way at once.
    pub depth: usize,
    /// Once told to stop: how long a volume that refuses is tried.
    pub grace: Duration,
    /// What the packet files are.
    pub format: Format,
    /// The latest packet of the files that the queue has in the store and that are in order: what begins earlier is not.
    pub after: Timestamp,
    /// The clock of this machine, if it is what stamps are made with: it tells which files are from a time that has not come.
    pub wall: Option<fn() -> WallClock>,
    /// Where it is kept how much the files tell of, beside what the producer says that there was.
    pub offered_page: Option<Arc<OfferedPage>>,
}

/// What the packet files are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Nanosecond pcap, as it lies in the ring.
    Pcap,
    /// HPCAP's RAW, in files of this many bytes.
    Raw {
        /// Bytes of a full file.
        file_bytes: u64,
    },
}

impl Format {
    /// How the names of its files end.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Pcap => "pcap",
            Self::Raw { .. } => "raw",
        }
    }
}

impl Config {
    /// The usual: 8 writes, 10 s of grace, pcap.
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

/// The file that will be opened next, made ahead of need so that rotation does not wait for the file system.
enum Next {
    None,
    Allocating { file: FileId, path: PathBuf, token: u64 },
    Ready { file: FileId, path: PathBuf },
}

/// What has become of the packets so far.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// By second; packets that could not be written are lost to [`base::Cause::Disk`].
    pub ledger: Rows,
    /// Files published.
    pub published: u64,
    /// Files left under their hidden name, or removed by somebody before they could get a real one.
    pub hidden: u64,
    /// Packets that are earlier than one before them.
    pub late: OutOfOrderCounts,
    /// Bytes of packet files written; a page that was written again, because more came into it, counts once.
    pub bytes: u64,
}

/// The machine.
pub struct Writer<D> {
    device: D,
    config: Config,
    queue: VecDeque<Job>,
    flights: VecDeque<Flight>,
    files: Vec<OpenFile>,
    next: Next,
    next_number: u32,
    token: u64,
    /// Writing or opening is refused; sealing has a trouble for each file.
    trouble: Option<VolumeFailure>,
    /// Since when there is any trouble, as people were told.
    troubled_since: Option<Duration>,
    /// Something failed in this step.
    blocked: bool,
    /// Since when the device does not say what it has finished.
    reap_failing_since: Option<Duration>,
    /// It was said that folders cannot be synced.
    unsynced_reported: bool,
    events: Vec<Event>,
    released: Release,
    totals: Totals,
    /// The latest stamp of the files in order, those of the store and those of this run: all that have no note.
    reached: Timestamp,
    /// A first file was begun.
    opened: bool,
    /// Packets offered that the parts begun so far tell of.
    begun: u64,
    ended: bool,
    stopping: Option<Duration>,
    given_up: bool,
    /// Parts that will never be written, by second.
    lost: Rows,
    /// Packets in those.
    unwritten: u64,
}

impl<D: Device> Writer<D> {
    /// A machine over this device.
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

    /// Prepares the device for writes from this memory; what people should know when it could not.
    pub fn adopt(&mut self, memory: &Arc<dyn Bytes>) -> Option<String> {
        self.device.adopt(memory)
    }

    /// One line for people: how the device writes.
    pub fn describe(&self) -> String {
        self.device.describe()
    }

    /// Whether the device writes in the best way that there is.
    pub fn is_best(&self) -> bool {
        self.device.is_best()
    }

    /// Whether another job may be given now.
    pub fn has_room(&self) -> bool {
        self.queue.len() < self.config.depth
    }

    /// Takes a job. The caller asks [`Writer::has_room`] first; more are kept all the same.
    pub fn accept(&mut self, job: Job) {
        self.queue.push_back(job);
    }

    /// From now on a volume that refuses is tried only for the grace period. The end of the stream implies it.
    pub fn stop(&mut self, now: Duration) {
        self.stopping.get_or_insert(now);
    }

    /// Whether the stream has ended and every file is published or given up.
    pub fn is_done(&self) -> bool {
        self.ended && self.queue.is_empty() && self.flights.is_empty() && self.files.is_empty()
    }

    /// Whether operations are under way at the device, or the next step can go on by itself: no time to wait for jobs. Not
    /// while it does not say how they ended: that is asked again at [`Writer::retry_at`].
    pub fn is_waiting(&self) -> bool {
        self.reap_failing_since.is_none() && self.is_under_way()
    }

    fn is_under_way(&self) -> bool {
        matches!(self.next, Next::Allocating { .. })
            || self.flights.iter().any(Flight::is_flying)
            || self.files.iter().any(|f| f.token().is_some() || f.is_sealing() || f.checkpoint.is_under_way())
    }

    /// When, if the volume refuses, it will be tried again.
    pub fn retry_at(&self) -> Option<Duration> {
        self.failures().map(|t| t.retry_at).min()
    }

    fn failures(&self) -> impl Iterator<Item = &VolumeFailure> {
        self.trouble.iter().chain(self.files.iter().filter_map(|f| f.trouble.as_ref()))
    }

    /// What may be given back to the ring.
    pub fn released(&self) -> Release {
        self.released
    }

    /// What people should know, since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// What has become of the packets whose jobs are finished.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Takes what the device has finished, waiting up to `wait` for it, and goes as far as can be gone now.
    pub fn step(&mut self, now: Duration, wait: Duration) {
        let mut done = Vec::new();
        self.blocked = false;
        // Of a device that was given up because it does not answer, nothing is expected any more.
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
        // A volume that refuses writes is left alone for a while; what is sealed has pauses of its own, file by file.
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
                // A volume that cannot allocate ahead can still be written to; what it gave in part is given back.
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

    /// Starts again what failed or was too much for the device.
    fn restart_failed(&mut self) {
        for piece in self.flights.iter_mut().flat_map(|f| &mut f.pieces).filter(|p| p.state == State::Waiting) {
            self.token += 1;
            piece.start(&mut self.device, self.token);
        }
    }

    /// Finishes what is complete, in order.
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
                // Before anybody can find them: what has no note is looked for by its name alone.
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

    /// Begins jobs while the device has room.
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
            // Ahead of need: a failure is met again, and told, when the file is needed.
            let _ = self.prepare();
        }
    }

    /// Whether a page of this part is being written by a part before it.
    fn overlaps(&self, part: &Part) -> bool {
        let Some(file) = self.files.last().map(|f| f.data) else { return false };
        let pieces = self.flights.iter().filter(|f| f.file == Some(file)).flat_map(|f| &f.pieces);
        let pages = part.offset..(part.offset + part.bytes.len() as u64).next_multiple_of(PAGE);
        pieces
            .filter(|p| p.state != State::Done)
            .any(|p| p.offset < pages.end && pages.start < p.offset + p.slice.len() as u64)
    }

    /// Makes the next file under a name that says nothing yet.
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
                // As above: written to without.
                Err(_) => Next::Ready { file, path },
            }
        };
        Ok(())
    }

    /// Opens the file of a segment; false if it has to be tried again.
    fn open(&mut self, pos: u64, start: Timestamp, now: Duration) -> bool {
        let root = self.root();
        match self.prepare() {
            Ok(()) => {}
            // A name left by a recorder that died: the next number is tried at once.
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
            // Whether a trouble is over is seen only once the file has its place.
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
                    // Somebody removed the prepared file, or the hour: another one is made, and the hour again.
                    self.drop_next();
                }
                self.fail("create a file in", folder, error, now);
                false
            }
        }
    }

    /// What begins now begins before something in order ends. Where that is because the clock was ahead, what was recorded then
    /// gets its notes, so that what comes needs none. What cannot be done now is tried again at the next file.
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
        // Of those that have one the volume tells; of the others it may not know all that is on its way.
        let ours = self.files.iter().filter(|file| file.is_in_order() && !file.is_named()).map(|file| file.latest);
        self.reached = ours.fold(found.reached, Timestamp::max);
        self.events.extend(found.warning(&root, &wall).map(Event::Warning));
    }

    /// The folder of the interface.
    fn root(&self) -> PathBuf {
        root(&self.config)
    }

    fn end(&mut self, now: Duration) {
        self.ended = true;
        self.stop(now);
        self.drop_next();
    }

    /// Gives back the file that was made ahead.
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

    /// One message for one trouble: a volume that is full refuses many things for the same reason.
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

/// The folder of the interface.
fn root(config: &Config) -> PathBuf {
    names::interface_folder(&config.store, &config.header.interface)
}
