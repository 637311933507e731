//! The way out of the meter: a bounded queue that is only ever tried, and a thread of its own that encodes and sends.
//!
//! Invariant: every record and second that was offered is counted once, as sent or as unsent by a named cause:
//! `offered = sent + unsent + waiting`, and nothing waits after [`Exporter::finish`]. Sent means handed to the kernel.
//!
//! A collector that is away is tried again after 0.1 s, 0.2 s, … 30 s. Meanwhile the queue is the buffer: a short outage
//! costs nothing, a long one costs what does not fit.

use crate::channel::{Channel, Trouble};
use crate::encode::{Config, Encode, Fit, Message};
use crate::target::{IPFIX_PORT, Kind, NETFLOW_PORT, Target};
use crate::{ipfix, netflow9};
use base::Timestamp;
use flow::Record;
use series::Row;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Records and seconds that may wait; about 1.2 kB each.
pub const QUEUE: usize = 16_384;

/// Which protocol is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// IPFIX (RFC 7011).
    #[default]
    Ipfix,
    /// NetFlow version 9 (RFC 3954), over UDP only.
    NetflowV9,
}

/// Where export times come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The system's.
    #[default]
    System,
    /// What is exported: the latest moment so far. A capture that is read again is then exported as it was the first time.
    Data,
}

/// How and where to export.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where to.
    pub target: Target,
    /// In which protocol.
    pub protocol: Protocol,
    /// Flow records?
    pub flows: bool,
    /// Seconds of the series? Collectors of flows may take them for flows; they always go into the loss statistics.
    pub series: bool,
    /// How records become messages.
    pub encode: Config,
    /// How many records may wait.
    pub queue: usize,
    /// How long an offer waits for room in the queue: not at all, unless the packets come from a file and can wait, too.
    pub patience: Duration,
    /// The longest that a record waits for its message to become full.
    pub linger: Duration,
    /// How long [`Exporter::finish`] tries to send what waits.
    pub grace: Duration,
    /// Where export times come from.
    pub clock: Clock,
    /// Numbers and names of the interfaces.
    pub interfaces: Vec<(u16, String)>,
}

impl Settings {
    /// The usual ones for a target: flows to one collector, both kinds to groups and files.
    pub fn new(target: Target) -> Self {
        let encode = if target.is_reliable() { Config::reliable() } else { Config::default() };
        Self {
            series: matches!(target, Target::Multicast { .. } | Target::File(_)),
            target,
            protocol: Protocol::Ipfix,
            flows: true,
            encode,
            queue: QUEUE,
            patience: Duration::ZERO,
            linger: Duration::from_millis(500),
            grace: Duration::from_secs(5),
            clock: Clock::System,
            interfaces: Vec::new(),
        }
    }
}

/// Why a record was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Unsent {
    /// The queue was full although the collector takes messages: it is slower than the meter.
    QueueFull = 0,
    /// The collector could not be reached, or broke off.
    Unreachable,
    /// It does not fit a message.
    TooLarge,
    /// It was offered after the end.
    Stopped,
}

impl Unsent {
    /// How many there are.
    pub const COUNT: usize = 4;
    /// All, in the order of their numbers.
    pub const ALL: [Self; Self::COUNT] = [Self::QueueFull, Self::Unreachable, Self::TooLarge, Self::Stopped];

    /// The name used in JSON, metrics and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::Unreachable => "unreachable",
            Self::TooLarge => "too_large",
            Self::Stopped => "stopped",
        }
    }

    /// What one count says.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::QueueFull => "the queue was full although the collector takes messages: it is slower than the meter",
            Self::Unreachable => "the collector could not be reached, or broke off before it had taken them",
            Self::TooLarge => "they do not fit a message",
            Self::Stopped => "they were offered after the exporter had ended",
        }
    }
}

/// What became of what was offered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records and seconds.
    pub offered: u64,
    /// Of these, handed to the kernel.
    pub sent: u64,
    /// Not sent, by [`Unsent`].
    pub unsent: [u64; Unsent::COUNT],
    /// Sent without payload or first packets, because they would not have fitted.
    pub trimmed: u64,
    /// Messages sent.
    pub messages: u64,
    /// Bytes of these.
    pub octets: u64,
    /// Ways to collectors that were opened.
    pub sessions: u64,
    /// What is wrong now, if anything.
    pub trouble: Option<String>,
}

impl Counts {
    /// Neither sent nor given up yet.
    pub fn waiting(&self) -> u64 {
        self.offered.saturating_sub(self.sent + self.unsent.iter().sum::<u64>())
    }
}

/// Why an exporter does not start.
#[derive(Debug)]
pub enum StartError {
    /// Nothing is to be exported.
    Nothing,
    /// NetFlow v9 has neither files nor streams.
    Netflow(Target),
    /// No thread.
    Thread(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("export: neither flows nor series are to be exported; choose one"),
            Self::Netflow(target) => write!(f, "{target}: NetFlow v9 goes by UDP only; export IPFIX there"),
            Self::Thread(error) => write!(f, "export: no thread: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

#[derive(Debug, Default)]
struct Shared {
    offered: AtomicU64,
    sent: AtomicU64,
    unsent: [AtomicU64; Unsent::COUNT],
    trimmed: AtomicU64,
    messages: AtomicU64,
    octets: AtomicU64,
    sessions: AtomicU64,
    trouble: Mutex<Option<String>>,
    down: AtomicBool,
    /// The end has been asked for; the thread sends what waits.
    ending: AtomicBool,
    /// Nothing more is taken.
    closed: AtomicBool,
    /// Offers under way: once closed, the thread waits for them before it counts what is left.
    offering: AtomicU64,
}

impl Shared {
    fn give_up(&self, cause: Unsent, items: u64) {
        self.unsent[cause as usize].fetch_add(items, SeqCst);
    }

    fn say(&self, trouble: Option<String>) {
        self.down.store(trouble.is_some(), SeqCst);
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    fn counts(&self) -> Counts {
        // What is subtracted is read first, so that nothing waits less than not at all.
        let get = |n: &AtomicU64| n.load(SeqCst);
        let (sent, unsent) = (get(&self.sent), self.unsent.each_ref().map(get));
        Counts {
            sent,
            unsent,
            offered: get(&self.offered),
            trimmed: get(&self.trimmed),
            messages: get(&self.messages),
            octets: get(&self.octets),
            sessions: get(&self.sessions),
            trouble: self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

enum Job {
    Flow(Box<Record>),
    Row(Box<Row>),
    /// A second that is not exported, for the loss statistics.
    Ledger(Box<Row>),
}

/// Offers records; one for each meter's thread.
#[derive(Clone)]
pub struct Handle {
    queue: SyncSender<Job>,
    shared: Arc<Shared>,
    patience: Duration,
    flows: bool,
    series: bool,
}

impl Handle {
    /// Offers a flow record. Never waits, unless patience was asked for. False if it will not be sent.
    pub fn flow(&self, record: &Record) -> bool {
        self.flows && self.offer(Job::Flow(Box::new(record.clone())))
    }

    /// Offers a second.
    pub fn row(&self, row: &Row) -> bool {
        if self.series {
            return self.offer(Job::Row(Box::new(*row)));
        }
        // Not a thing that was to be sent: it only improves the statistics, and is not counted.
        let _ = self.queue.try_send(Job::Ledger(Box::new(*row)));
        false
    }

    /// What became of what was offered so far, by all handles together.
    pub fn counts(&self) -> Counts {
        self.shared.counts()
    }

    fn offer(&self, job: Job) -> bool {
        self.shared.offering.fetch_add(1, SeqCst);
        self.shared.offered.fetch_add(1, SeqCst);
        let result = self.try_for(job);
        if let Err(cause) = result {
            self.shared.give_up(cause, 1);
        }
        self.shared.offering.fetch_sub(1, SeqCst);
        result.is_ok()
    }

    fn try_for(&self, mut job: Job) -> Result<(), Unsent> {
        let mut until = None;
        loop {
            if self.shared.closed.load(SeqCst) {
                return Err(Unsent::Stopped);
            }
            match self.queue.try_send(job) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Disconnected(_)) => return Err(Unsent::Stopped),
                Err(TrySendError::Full(back)) => job = back,
            }
            let now = || Instant::now();
            if self.patience.is_zero() || now() >= *until.get_or_insert_with(|| now() + self.patience) {
                return Err(if self.shared.down.load(SeqCst) { Unsent::Unreachable } else { Unsent::QueueFull });
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

impl flow::Sink for Handle {
    fn record(&mut self, record: &Record) {
        self.flow(record);
    }
}

/// See the module.
pub struct Exporter {
    handle: Handle,
    thread: JoinHandle<()>,
}

impl Exporter {
    /// Starts the thread. Whether the collector can be reached shows later, in [`Counts::trouble`].
    ///
    /// # Errors
    /// [`StartError`] names what cannot be.
    pub fn start(settings: Settings) -> Result<Self, StartError> {
        if !settings.flows && !settings.series {
            return Err(StartError::Nothing);
        }
        if settings.protocol == Protocol::NetflowV9 && settings.target.is_reliable() {
            return Err(StartError::Netflow(settings.target));
        }
        let shared = Arc::new(Shared::default());
        let (queue, jobs) = sync_channel(settings.queue.max(1));
        let handle = Handle {
            queue,
            shared: shared.clone(),
            patience: settings.patience,
            flows: settings.flows,
            series: settings.series,
        };
        let worker = Worker::new(settings, shared);
        let thread = std::thread::Builder::new().name("export".into()).spawn(|| worker.run(jobs));
        Ok(Self { handle, thread: thread.map_err(StartError::Thread)? })
    }

    /// For a meter's thread.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// What became of what was offered so far.
    pub fn counts(&self) -> Counts {
        self.handle.counts()
    }

    /// Sends what waits, for as long as the grace lasts, and ends. Then `offered = sent + unsent`.
    pub fn finish(self) -> Counts {
        self.handle.shared.ending.store(true, SeqCst);
        // A panic of the thread is its own report; what it had taken shows as waiting.
        let _ = self.thread.join();
        self.handle.counts()
    }
}

/// One session: an encoder and its way.
struct Line {
    to: (Kind, u16),
    encoder: Box<dyn Encode>,
    channel: Option<Channel>,
}

struct Worker {
    settings: Settings,
    shared: Arc<Shared>,
    /// By kind and interface where there is a group for each, else one.
    lines: BTreeMap<(Kind, u16), Line>,
    now: Timestamp,
    /// When something began to wait for its message to become full.
    waits_since: Option<Instant>,
    retry: Option<Instant>,
    backoff: Duration,
    until: Option<Instant>,
}

/// How long to wait before a collector is tried again: first, and at most.
const BACKOFF: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(30)];

/// The longest nap: so soon the end is noticed, and templates are repeated.
const NAP: Duration = Duration::from_millis(50);

impl Worker {
    fn new(settings: Settings, shared: Arc<Shared>) -> Self {
        Self {
            settings,
            shared,
            lines: BTreeMap::new(),
            now: Timestamp::ZERO,
            waits_since: None,
            retry: None,
            backoff: BACKOFF[0],
            until: None,
        }
    }

    fn run(mut self, jobs: Receiver<Job>) {
        if !matches!(self.settings.target, Target::Multicast { .. }) {
            self.add_line((Kind::Flows, 0));
        }
        loop {
            if self.shared.ending.load(SeqCst) && self.until.is_none() {
                self.until = Some(Instant::now() + self.settings.grace);
            }
            let late = self.until.is_some_and(|t| Instant::now() >= t);
            if late || !self.connect() {
                if late || (self.until.is_some() && self.shared.counts().waiting() == 0) {
                    break;
                }
                std::thread::sleep(NAP);
                continue;
            }
            let nap = if self.until.is_some() { Duration::ZERO } else { NAP };
            match jobs.recv_timeout(nap) {
                Ok(job) => self.take(job),
                Err(RecvTimeoutError::Timeout) if self.until.is_some() => break,
                Err(RecvTimeoutError::Timeout) => self.tick(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if self.waits_since.is_some_and(|t| t.elapsed() >= self.settings.linger) {
                self.flush();
            }
        }
        self.end(&jobs);
    }

    /// The last round: what can still be sent is, the rest is counted, and nothing more is taken.
    fn end(&mut self, jobs: &Receiver<Job>) {
        self.shared.closed.store(true, SeqCst);
        let mut left = 0;
        loop {
            // In this order: an offer that was under way before has put its job where the next line finds it.
            let none_under_way = self.shared.offering.load(SeqCst) == 0;
            while let Ok(job) = jobs.try_recv() {
                let reaches = self.lines.values().all(|l| l.channel.is_some());
                if reaches && self.until.is_none_or(|t| Instant::now() < t) {
                    self.take(job);
                } else if !matches!(job, Job::Ledger(_)) {
                    left += 1;
                }
            }
            if none_under_way {
                break;
            }
            std::thread::yield_now();
        }
        self.shared.give_up(Unsent::Unreachable, left);
        self.flush();
        for line in self.lines.values_mut() {
            self.shared.give_up(Unsent::Unreachable, line.encoder.restart().into());
        }
    }

    /// Opens what is not open; false while that does not succeed.
    fn connect(&mut self) -> bool {
        if self.lines.values().all(|l| l.channel.is_some()) {
            return true;
        }
        if self.retry.is_some_and(|t| Instant::now() < t) {
            return false;
        }
        let port = match self.settings.protocol {
            Protocol::Ipfix => IPFIX_PORT,
            Protocol::NetflowV9 => NETFLOW_PORT,
        };
        for line in self.lines.values_mut().filter(|l| l.channel.is_none()) {
            match Channel::open(&self.settings.target, port, line.to) {
                Ok(channel) => {
                    line.channel = Some(channel);
                    self.shared.sessions.fetch_add(1, SeqCst);
                }
                Err(error) => {
                    self.shared.say(Some(format!("{}: {error}", self.settings.target)));
                    self.retry = Some(Instant::now() + self.backoff);
                    self.backoff = (self.backoff * 2).min(BACKOFF[1]);
                    return false;
                }
            }
        }
        self.retry = None;
        self.shared.say(None);
        true
    }

    fn take(&mut self, job: Job) {
        let (kind, interface, at) = match &job {
            Job::Flow(record) => (Kind::Flows, record.interface, record.last()),
            Job::Row(row) | Job::Ledger(row) => {
                (Kind::Series, row.interface, Timestamp::from_secs_nanos(row.second.saturating_add(1), 0))
            }
        };
        self.now = match self.settings.clock {
            Clock::System => system_time(),
            Clock::Data => self.now.max(at),
        };
        let multicast = matches!(self.settings.target, Target::Multicast { .. });
        let to = match job {
            Job::Ledger(_) if multicast => (Kind::Flows, interface),
            _ if multicast => (kind, interface),
            _ => (Kind::Flows, 0),
        };
        if !self.lines.contains_key(&to) {
            self.add_line(to);
            self.connect();
        }
        let now = self.now;
        self.with(to, |encoder, out, shared| {
            let fit = match &job {
                Job::Flow(record) => encoder.record(record, now, out),
                Job::Row(row) => encoder.row(row, now, out).map(|()| Fit::Whole),
                Job::Ledger(row) => {
                    encoder.ledger(row);
                    return;
                }
            };
            match fit {
                Ok(Fit::Whole) => (),
                Ok(Fit::Trimmed) => drop(shared.trimmed.fetch_add(1, SeqCst)),
                Err(_) => {
                    shared.give_up(Unsent::TooLarge, 1);
                    encoder.not_sent(1);
                }
            }
        });
        self.waits_since.get_or_insert_with(Instant::now);
    }

    /// Time passes without anything to export.
    fn tick(&mut self) {
        if self.settings.clock == Clock::System {
            self.now = system_time();
        } else if self.now == Timestamp::ZERO {
            // Of a time that is only known from what is exported, nothing is known yet.
            return;
        }
        let now = self.now;
        for to in self.lines.keys().copied().collect::<Vec<_>>() {
            self.with(to, |encoder, out, _| encoder.tick(now, out));
        }
    }

    fn flush(&mut self) {
        self.waits_since = None;
        let now = self.now;
        for to in self.lines.keys().copied().collect::<Vec<_>>() {
            self.with(to, |encoder, out, _| encoder.flush(now, out));
        }
    }

    fn add_line(&mut self, to: (Kind, u16)) {
        let mut config = self.settings.encode.clone();
        let multicast = matches!(self.settings.target, Target::Multicast { .. });
        if multicast {
            // Who listens to several groups at one port tells them apart.
            config.domain = config.domain.wrapping_add(u32::from(to.1)).wrapping_add((to.0 as u32) << 16);
        }
        let mut encoder: Box<dyn Encode> = match self.settings.protocol {
            Protocol::Ipfix => Box::new(ipfix::Encoder::new(config)),
            Protocol::NetflowV9 => Box::new(netflow9::Encoder::new(config)),
        };
        for (number, name) in self.settings.interfaces.iter().filter(|(n, _)| !multicast || *n == to.1) {
            encoder.interface(*number, name);
        }
        self.lines.insert(to, Line { to, encoder, channel: None });
    }

    /// Runs an encoder and sends the messages that it makes.
    fn with(&mut self, to: (Kind, u16), work: impl FnOnce(&mut dyn Encode, &mut dyn FnMut(Message<'_>), &Shared)) {
        let (shared, target, backoff) = (&*self.shared, &self.settings.target, &mut self.backoff);
        let Some(Line { encoder, channel, .. }) = self.lines.get_mut(&to) else { return };
        let (mut lost, mut broken) = (0u64, None);
        work(
            encoder.as_mut(),
            &mut |message| {
                let sent = match channel {
                    Some(channel) if broken.is_none() => channel.send(message.bytes),
                    _ => Err(Trouble::Refused(io::ErrorKind::NotConnected.into())),
                };
                let items = u64::from(message.items);
                let cause = match sent {
                    Ok(()) => {
                        shared.sent.fetch_add(items, SeqCst);
                        shared.messages.fetch_add(1, SeqCst);
                        shared.octets.fetch_add(message.bytes.len() as u64, SeqCst);
                        *backoff = BACKOFF[0];
                        if shared.down.load(SeqCst) {
                            shared.say(None);
                        }
                        return;
                    }
                    Err(Trouble::TooLarge) => Unsent::TooLarge,
                    Err(Trouble::Refused(error)) => {
                        shared.say(Some(format!("{target}: {error}")));
                        Unsent::Unreachable
                    }
                    Err(Trouble::Broken(error)) => {
                        broken = Some(error);
                        Unsent::Unreachable
                    }
                };
                shared.give_up(cause, items);
                lost += items;
            },
            shared,
        );
        if let Some(error) = broken {
            *channel = None;
            // What the encoder holds was meant for a session that is gone; its templates, too.
            let held = u64::from(encoder.restart());
            shared.give_up(Unsent::Unreachable, held);
            lost += held;
            shared.say(Some(format!("{target}: {error}")));
            self.retry = Some(Instant::now() + *backoff);
            *backoff = (*backoff * 2).min(BACKOFF[1]);
        }
        if lost > 0
            && let Some(line) = self.lines.get_mut(&to)
        {
            line.encoder.not_sent(lost);
        }
    }
}

fn system_time() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_secs_nanos(since.as_secs(), since.subsec_nanos().into())
}
