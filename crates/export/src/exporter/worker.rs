//! The exporter's thread: takes records from the queue, encodes and sends them, and reconnects to unreachable
//! collectors.

use super::counts::{Shared, Unsent};
use super::handle::QueueItem;
use super::settings::{Clock, Protocol, Settings};
use crate::channel::{CallTimeout, Channel, SendError};
use crate::encode::{Encode, EncodeResult, Message};
use crate::target::{ExportKind, IPFIX_PORT, NETFLOW_PORT, Target};
use crate::{ipfix, netflow9};
use base::Timestamp;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A session with a collector: an encoder and its connection.
struct Session {
    to: (ExportKind, u16),
    encoder: Box<dyn Encode>,
    channel: Option<Channel>,
    /// Number of records in the last datagram, which may still be refused by an ICMP error.
    unconfirmed: Option<u64>,
}

/// The state of the exporter's thread.
pub(super) struct Worker {
    settings: Settings,
    shared: Arc<Shared>,
    /// The sessions. If flow records and rows of each interface go to separate multicast groups, each group has a
    /// session; otherwise there is one session.
    sessions: BTreeMap<(ExportKind, u16), Session>,
    now: Timestamp,
    /// The time at which the oldest record began to wait until its message is full; `None` if no record waits.
    waits_since: Option<Instant>,
    retry: Option<Instant>,
    backoff: Duration,
    /// When the next datagram is due, and the time between two datagrams.
    due: Instant,
    gap: Duration,
}

/// The time over which a burst of records is spread when it is sent in datagrams. The flows that end in the same second
/// arrive together, and the receive buffer of a collector holds only 200 KiB by default.
const SPREAD: Duration = Duration::from_millis(500);

/// The greatest time between two records of a burst, and the shortest time for which the thread sleeps between two
/// datagrams.
const PACE: [Duration; 2] = [Duration::from_micros(200), Duration::from_millis(1)];

/// The first and the greatest delay before the exporter tries to connect to the collector again.
const BACKOFF: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(30)];

/// Longest sleep; it bounds the delay until the end is noticed and templates are repeated.
const IDLE_SLEEP: Duration = Duration::from_millis(50);

impl Worker {
    pub fn new(settings: Settings, shared: Arc<Shared>) -> Self {
        Self {
            settings,
            shared,
            sessions: BTreeMap::new(),
            now: Timestamp::ZERO,
            waits_since: None,
            retry: None,
            backoff: BACKOFF[0],
            due: Instant::now(),
            gap: PACE[0],
        }
    }

    pub fn run(mut self, jobs: Receiver<QueueItem>) {
        if !matches!(self.settings.target, Target::Multicast { .. }) {
            self.add_session((ExportKind::Flows, 0));
        }
        loop {
            let ending = self.shared.ending.load(SeqCst);
            let late = self.is_late();
            if late || !self.connect() {
                if late || (ending && self.shared.counts().waiting() == 0) {
                    break;
                }
                std::thread::sleep(IDLE_SLEEP);
                continue;
            }
            let sleep = if ending { Duration::ZERO } else { IDLE_SLEEP };
            match jobs.recv_timeout(sleep) {
                Ok(job) => {
                    self.shared.taken.fetch_add(1, SeqCst);
                    self.take(job);
                    self.pace();
                }
                Err(RecvTimeoutError::Timeout) if ending => break,
                Err(RecvTimeoutError::Timeout) => self.tick(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if self.waits_since.is_some_and(|t| t.elapsed() >= self.settings.batch_delay) {
                self.flush();
            }
        }
        self.end(&jobs);
    }

    /// True if the deadline for the end of the exporter has passed.
    fn is_late(&self) -> bool {
        self.shared.until.get().is_some_and(|t| Instant::now() >= *t)
    }

    /// Ends the exporter: sends what can still be sent, counts the remaining records as unsent, and closes the queue.
    fn end(&mut self, jobs: &Receiver<QueueItem>) {
        self.shared.closed.store(true, SeqCst);
        let mut left = 0;
        loop {
            // The number of offers in progress must be read before the queue. If it is 0, every offer has put its
            // record into the queue, and the following loop takes all these records.
            let no_offer_in_progress = self.shared.offering.load(SeqCst) == 0;
            while let Ok(job) = jobs.try_recv() {
                let is_connected = self.sessions.values().all(|l| l.channel.is_some());
                if is_connected && !self.is_late() {
                    self.take(job);
                } else if !matches!(job, QueueItem::Ledger(_)) {
                    left += 1;
                }
            }
            if no_offer_in_progress {
                break;
            }
            std::thread::yield_now();
        }
        self.shared.count_unsent(Unsent::Unreachable, left);
        self.flush();
        for session in self.sessions.values_mut() {
            self.shared.count_unsent(Unsent::Unreachable, session.encoder.restart().into());
            // The ICMP error for the last datagram is awaited here, because no further datagram will report it.
            if session.unconfirmed.is_some()
                && let Some(error) = session.channel.as_ref().and_then(Channel::refused)
            {
                self.shared.take_back(&mut session.unconfirmed);
                self.shared.set_error(Some(error.to_string()));
            }
        }
    }

    /// Limits the rate of datagrams, because a receiver may read more slowly than a burst arrives: waiting records are
    /// spread evenly over [`SPREAD`]. If the queue is about to overflow and offers may not wait, the rate is not
    /// limited.
    fn pace(&mut self) {
        if self.settings.target.is_reliable() {
            return;
        }
        let waiting = self.shared.queued.load(SeqCst).saturating_sub(self.shared.taken.load(SeqCst));
        if self.settings.offer_timeout.is_zero() && waiting > self.settings.queue as u64 * 3 / 4 {
            return;
        }
        if self.is_late() {
            return;
        }
        let now = Instant::now();
        let gap = SPREAD / u32::try_from(waiting.max(1)).unwrap_or(u32::MAX);
        // The interval between datagrams becomes shorter with a longer queue, and longer again only when the queue is
        // empty.
        self.gap = if waiting <= 1 { PACE[0] } else { self.gap.min(gap) };
        self.due = self.due.max(now) + self.gap;
        if self.due - now >= PACE[1] {
            std::thread::sleep(self.due - now);
        }
    }

    /// Opens the connections that are not open; returns false if one of them cannot be opened.
    fn connect(&mut self) -> bool {
        if self.sessions.values().all(|l| l.channel.is_some()) {
            return true;
        }
        if self.retry.is_some_and(|t| Instant::now() < t) {
            return false;
        }
        let port = match self.settings.protocol {
            Protocol::Ipfix => IPFIX_PORT,
            Protocol::NetflowV9 => NETFLOW_PORT,
        };
        let until = || self.shared.until.get().copied();
        let bound = CallTimeout { io_timeout: self.settings.io_timeout, until: &until };
        for session in self.sessions.values_mut().filter(|l| l.channel.is_none()) {
            match Channel::open(&self.settings.target, port, session.to, bound) {
                Ok(channel) => {
                    session.channel = Some(channel);
                    self.shared.sessions.fetch_add(1, SeqCst);
                }
                Err(error) => {
                    self.shared.set_error(Some(error.to_string()));
                    self.retry = Some(Instant::now() + self.backoff);
                    self.backoff = (self.backoff * 2).min(BACKOFF[1]);
                    return false;
                }
            }
        }
        self.retry = None;
        self.shared.set_error(None);
        true
    }

    fn take(&mut self, job: QueueItem) {
        let (kind, interface, at) = match &job {
            QueueItem::Flow(record) => (ExportKind::Flows, record.interface, record.last()),
            QueueItem::Row(row) | QueueItem::Ledger(row) => {
                (ExportKind::Series, row.interface, Timestamp::from_secs_nanos(row.second.saturating_add(1), 0))
            }
        };
        self.now = match self.settings.clock {
            Clock::System => system_time(),
            Clock::Data => self.now.max(at),
        };
        let multicast = matches!(self.settings.target, Target::Multicast { .. });
        let to = match job {
            QueueItem::Ledger(_) if multicast => (ExportKind::Flows, interface),
            _ if multicast => (kind, interface),
            _ => (ExportKind::Flows, 0),
        };
        if !self.sessions.contains_key(&to) {
            self.add_session(to);
            self.connect();
        }
        let now = self.now;
        self.with(to, |encoder, out, shared| {
            let fit = match &job {
                QueueItem::Flow(record) => encoder.record(record, now, out),
                QueueItem::Row(row) => encoder.row(row, now, out).map(|()| EncodeResult::Whole),
                QueueItem::Ledger(row) => {
                    encoder.ledger(row);
                    return;
                }
            };
            match fit {
                Ok(EncodeResult::Whole) => (),
                Ok(EncodeResult::Trimmed) => drop(shared.trimmed.fetch_add(1, SeqCst)),
                Err(_) => {
                    shared.count_unsent(Unsent::TooLarge, 1);
                    encoder.not_sent(1);
                }
            }
        });
        self.waits_since.get_or_insert_with(Instant::now);
    }

    /// Passes the time to the encoders while there is nothing to export, so that they repeat templates.
    fn tick(&mut self) {
        if self.settings.clock == Clock::System {
            self.now = system_time();
        } else if self.now == Timestamp::ZERO {
            // With [`Clock::Data`] the time is unknown before the first record.
            return;
        }
        let now = self.now;
        for to in self.sessions.keys().copied().collect::<Vec<_>>() {
            self.with(to, |encoder, out, _| encoder.tick(now, out));
        }
    }

    fn flush(&mut self) {
        self.waits_since = None;
        let now = self.now;
        for to in self.sessions.keys().copied().collect::<Vec<_>>() {
            self.with(to, |encoder, out, _| encoder.flush(now, out));
        }
    }

    fn add_session(&mut self, to: (ExportKind, u16)) {
        let mut config = self.settings.encode.clone();
        let multicast = matches!(self.settings.target, Target::Multicast { .. });
        if multicast {
            // A receiver of several multicast groups at one UDP port distinguishes the groups by their observation
            // domains.
            config.domain = config.domain.wrapping_add(u32::from(to.1)).wrapping_add((to.0 as u32) << 16);
        }
        let mut encoder: Box<dyn Encode> = match self.settings.protocol {
            Protocol::Ipfix => Box::new(ipfix::Encoder::new(config)),
            Protocol::NetflowV9 => Box::new(netflow9::Encoder::new(config)),
        };
        for (number, name) in self.settings.interfaces.iter().filter(|(n, _)| !multicast || *n == to.1) {
            encoder.interface(*number, name);
        }
        self.sessions.insert(to, Session { to, encoder, channel: None, unconfirmed: None });
    }

    /// Runs an encoder and sends the messages that it makes.
    fn with(
        &mut self,
        to: (ExportKind, u16),
        work: impl FnOnce(&mut dyn Encode, &mut dyn FnMut(Message<'_>), &Shared),
    ) {
        let (shared, backoff) = (&*self.shared, &mut self.backoff);
        let datagrams = !self.settings.target.is_reliable();
        let until = || shared.until.get().copied();
        let bound = CallTimeout { io_timeout: self.settings.io_timeout, until: &until };
        let Some(Session { encoder, channel, unconfirmed, .. }) = self.sessions.get_mut(&to) else { return };
        let (mut lost, mut broken) = (0u64, None);
        work(
            encoder.as_mut(),
            &mut |message| {
                let items = u64::from(message.items);
                let open = channel.as_mut().filter(|_| broken.is_none() && !shared.abandoned.load(SeqCst));
                let cause = match open.map(|channel| channel.send(message.bytes, bound)) {
                    // The error that closed the connection has already been reported.
                    None => Unsent::Unreachable,
                    Some(Ok(())) => {
                        shared.sent.fetch_add(items, SeqCst);
                        shared.messages.fetch_add(1, SeqCst);
                        shared.octets.fetch_add(message.bytes.len() as u64, SeqCst);
                        *backoff = BACKOFF[0];
                        // The kernel reports that a datagram was refused when the next datagram is sent, if at all.
                        let is_reachable = !datagrams || unconfirmed.replace(items).is_some();
                        if is_reachable && shared.down.load(SeqCst) {
                            shared.set_error(None);
                        }
                        return;
                    }
                    Some(Err(SendError::TooLarge)) => Unsent::TooLarge,
                    Some(Err(SendError::Refused(error))) => {
                        shared.set_error(Some(error.to_string()));
                        if error.kind() == io::ErrorKind::ConnectionRefused {
                            lost += shared.take_back(unconfirmed);
                        }
                        Unsent::Unreachable
                    }
                    Some(Err(SendError::Broken(error))) => {
                        broken = Some(error);
                        Unsent::Unreachable
                    }
                };
                shared.count_unsent(cause, items);
                lost += items;
            },
            shared,
        );
        if let Some(error) = broken {
            *channel = None;
            // The collector loses the incomplete message and the templates when the session ends, so the encoder begins
            // again.
            let held = u64::from(encoder.restart());
            shared.count_unsent(Unsent::Unreachable, held);
            lost += held;
            shared.set_error(Some(error.to_string()));
            self.retry = Some(Instant::now() + *backoff);
            *backoff = (*backoff * 2).min(BACKOFF[1]);
        }
        if lost > 0
            && let Some(session) = self.sessions.get_mut(&to)
        {
            session.encoder.not_sent(lost);
        }
    }
}

fn system_time() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_secs_nanos(since.as_secs(), since.subsec_nanos().into())
}
