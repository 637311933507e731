//! The recorder that the engine owns: a feed on one side, a device on the other, two threads between.

use crate::chain;
use crate::cutter::{BrokenStream, Cutter, Job, OutOfOrderCounts, RawCutter, Release};
use crate::feed::{Feed, Wait};
use crate::writer::{Config, Event, Format, Totals, Writer};
use base::Ledger;
use ring::Desc;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SendError, Sender, SyncSender, channel, sync_channel};
use std::sync::mpsc::{TryRecvError, TrySendError};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use store::bytes::Bytes;
use store::device::Device;

/// How long the index thread waits for packets before it looks at what the writing thread has finished.
const FEED_WAIT: Duration = Duration::from_millis(20);

/// The same while parts are being written, so that the ring gets its memory back soon.
const BUSY_WAIT: Duration = Duration::from_millis(2);

/// How long the writing thread waits for the device while more work could come.
const DEVICE_WAIT: Duration = Duration::from_millis(2);

/// How long it waits for work when it has none.
const IDLE_WAIT: Duration = Duration::from_millis(100);

/// What other threads may ask and tell a running recorder.
#[derive(Clone, Debug, Default)]
pub struct Handle(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    device: OnceLock<String>,
    refusing: AtomicBool,
    bytes: AtomicU64,
    published: AtomicU64,
    hidden: AtomicU64,
    index_nanos: AtomicU64,
    write_nanos: AtomicU64,
    index_waits: AtomicBool,
    write_waits: AtomicBool,
}

/// Which threads stand still for a reason that is not theirs: a disk that takes its time. Whoever watches over them must
/// not take that for a thread that hangs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadWaits {
    /// The index thread has work for the writing thread, which has enough already.
    pub index: bool,
    /// The writing thread is in a call to the device, or operations of it are under way there.
    pub writer: bool,
}

impl Handle {
    /// The producer stops, or has: a volume that refuses is tried only for the grace period from now on.
    pub fn stop(&self) {
        self.0.stop.store(true, Relaxed);
    }

    /// Whether the volume refuses at this moment.
    pub fn is_refused(&self) -> bool {
        self.0.refusing.load(Relaxed)
    }

    /// How the device writes; empty before the first block is written.
    pub fn device(&self) -> String {
        self.0.device.get().cloned().unwrap_or_default()
    }

    /// Bytes of packet files written so far.
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Relaxed)
    }

    /// Files published so far.
    pub fn published(&self) -> u64 {
        self.0.published.load(Relaxed)
    }

    /// Files left so far under their hidden name; see [`Summary::hidden`].
    pub fn hidden(&self) -> u64 {
        self.0.hidden.load(Relaxed)
    }

    /// Processor time used so far by the index thread and by the writing thread.
    pub fn processor_time(&self) -> (Duration, Duration) {
        let of = |n: &AtomicU64| Duration::from_nanos(n.load(Relaxed));
        (of(&self.0.index_nanos), of(&self.0.write_nanos))
    }

    /// Who waits for the disk at this moment.
    pub fn waiting(&self) -> ThreadWaits {
        ThreadWaits { index: self.0.index_waits.load(Relaxed), writer: self.0.write_waits.load(Relaxed) }
    }
}

/// What has become of the packets.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// By second.
    pub ledger: Ledger,
    /// Files published, and files left under their hidden name.
    pub published: u64,
    /// See `published`.
    pub hidden: u64,
    /// Packets that are earlier than one before them: they came out of the order of time.
    pub late: OutOfOrderCounts,
    /// Bytes of packet files written.
    pub bytes: u64,
    /// The stream was not what its producer promised.
    pub broken: Option<BrokenStream>,
    /// Processor time of the index thread.
    pub index_time: Duration,
    /// Processor time of the writing thread.
    pub write_time: Duration,
}

/// A recorder, before it runs.
pub struct Recorder<D> {
    device: D,
    config: Config,
    handle: Handle,
}

impl<D: Device> Recorder<D> {
    /// A recorder that writes to this device.
    pub fn new(config: Config, device: D) -> Self {
        Self { device, config, handle: Handle::default() }
    }

    /// For other threads.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Records until the stream ends. The calling thread builds the index; a second one, ended before this returns,
    /// writes. `tell` is called from that one.
    ///
    /// # Errors
    /// When the system refuses the thread; nothing was taken from the feed then. A volume that refuses is not an error
    /// but an [`Event`], and what it cost is in the summary.
    pub fn run<F: Feed>(self, feed: &mut F, mut tell: impl FnMut(Event) + Send) -> io::Result<Summary> {
        let Self { mut device, mut config, handle } = self;
        config.after = config.after.max(chain::end(&config));
        let (depth, heartbeat) = (config.depth, config.offered_page.clone());
        let memory = feed.memory();
        let cold = (!memory.is_warm()).then(|| Arc::clone(&memory));
        if cold.is_none()
            && let Some(remark) = device.adopt(&memory)
        {
            tell(Event::Warning(remark));
        }
        let machine = Machine::new(config.format, memory);
        let (jobs, to_do) = sync_channel(depth);
        let (done, released) = channel();
        let writer = Writer::new(device, config);
        let shared = &handle.0;
        let (broken, totals) = std::thread::scope(|scope| -> io::Result<_> {
            let thread = std::thread::Builder::new().name("netgrain-write".into());
            let writing = thread.spawn_scoped(scope, move || write(writer, cold, &to_do, &done, shared, tell))?;
            let broken = cut(feed, machine, &jobs, &released, shared);
            drop(jobs);
            let totals = writing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            while let Ok(r) = released.try_recv() {
                feed.release(r.pos, r.descriptors);
            }
            Ok((broken, totals))
        })?;
        let (index_time, write_time) = handle.processor_time();
        let Totals { ledger, published, hidden, late, bytes } = totals;
        if let Some(heartbeat) = heartbeat {
            // What files with a hidden name do not tell, the next recovery enters.
            heartbeat.end();
            if hidden == 0 {
                heartbeat.confirm();
            }
        }
        Ok(Summary { ledger: ledger.to_ledger(), published, hidden, late, bytes, broken, index_time, write_time })
    }
}

/// The index machine for the format that is written.
enum Machine {
    Pcap(Box<Cutter>),
    Raw(Box<RawCutter>),
}

impl Machine {
    fn new(format: Format, memory: Arc<dyn Bytes>) -> Self {
        match format {
            Format::Pcap => Self::Pcap(Box::new(Cutter::new(memory))),
            Format::Raw { file_bytes } => Self::Raw(Box::new(RawCutter::new(memory, file_bytes))),
        }
    }

    fn read_descriptors(&mut self, descriptors: &[Desc], jobs: &mut Vec<Job>) -> Result<bool, BrokenStream> {
        match self {
            Self::Pcap(cutter) => cutter.read_descriptors(descriptors, jobs),
            Self::Raw(cutter) => cutter.read_descriptors(descriptors, jobs),
        }
    }

    fn finish(&mut self, jobs: &mut Vec<Job>) {
        match self {
            Self::Pcap(cutter) => cutter.finish(jobs),
            Self::Raw(cutter) => cutter.finish(jobs),
        }
    }
}

/// The index thread.
fn cut<F: Feed>(
    feed: &mut F,
    mut cutter: Machine,
    jobs: &SyncSender<Job>,
    released: &Receiver<Release>,
    shared: &Shared,
) -> Option<BrokenStream> {
    let mut made = Vec::new();
    let mut outstanding = false;
    let mut ended = false;
    let mut broken = None;
    // The thread is the caller's, and may have worked before.
    let before = processor_time();
    while !ended {
        let waited = feed.wait(if outstanding { BUSY_WAIT } else { FEED_WAIT });
        let descriptors = feed.descriptors();
        let exhausted = descriptors.is_empty() && waited == Wait::Gone;
        match cutter.read_descriptors(descriptors, &mut made) {
            Ok(end) => ended = end,
            Err(error) => broken = Some(error),
        }
        if broken.is_some() || exhausted {
            ended = true;
            cutter.finish(&mut made);
        }
        for job in made.drain(..) {
            outstanding = true;
            // The receiver lives until it has had the end of the stream.
            if hand_over(jobs, job, shared).is_err() {
                return broken;
            }
        }
        while let Ok(r) = released.try_recv() {
            feed.release(r.pos, r.descriptors);
            outstanding = false;
        }
        shared.index_nanos.store(processor_time().saturating_sub(before), Relaxed);
    }
    broken
}

/// Gives the writing thread a job, and says so while it has no room for it.
fn hand_over(jobs: &SyncSender<Job>, job: Job, shared: &Shared) -> Result<(), SendError<Job>> {
    match jobs.try_send(job) {
        Ok(()) => Ok(()),
        Err(TrySendError::Disconnected(job)) => Err(SendError(job)),
        Err(TrySendError::Full(job)) => {
            shared.index_waits.store(true, Relaxed);
            let sent = jobs.send(job);
            shared.index_waits.store(false, Relaxed);
            sent
        }
    }
}

/// The writing thread. It adopts memory that is still `cold` once that has been touched.
fn write<D: Device>(
    mut writer: Writer<D>,
    mut cold: Option<Arc<dyn Bytes>>,
    to_do: &Receiver<Job>,
    done: &Sender<Release>,
    shared: &Shared,
    mut tell: impl FnMut(Event),
) -> Totals {
    let began = Instant::now();
    let mut told = Release::default();
    while !writer.is_done() {
        if let Some(warm) = cold.take_if(|memory| memory.is_warm())
            && let Some(remark) = writer.adopt(&warm)
        {
            tell(Event::Warning(remark));
        }
        let mut fresh = false;
        while writer.has_room() {
            match to_do.try_recv() {
                Ok(job) => {
                    writer.accept(job);
                    fresh = true;
                }
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
        }
        if shared.stop.load(Relaxed) {
            writer.stop(began.elapsed());
        }
        let waiting = writer.is_waiting() && !fresh;
        // Any call to the device may last as long as the disk likes, also one that only begins something.
        shared.write_waits.store(true, Relaxed);
        writer.step(began.elapsed(), if waiting { DEVICE_WAIT } else { Duration::ZERO });
        shared.write_waits.store(writer.is_waiting(), Relaxed);
        writer.take_events().into_iter().for_each(&mut tell);
        if shared.device.get().is_none() && writer.totals().bytes > 0 {
            // Only now is it known how the file system takes writes.
            let device = shared.device.get_or_init(|| writer.describe());
            if !writer.is_best() {
                tell(Event::Warning(format!("recording by {device}")));
            }
        }
        if writer.released() != told {
            told = writer.released();
            // The index thread may have ended already; it reads what is left afterwards.
            let _ = done.send(told);
        }
        shared.refusing.store(writer.retry_at().is_some(), Relaxed);
        shared.bytes.store(writer.totals().bytes, Relaxed);
        shared.published.store(writer.totals().published, Relaxed);
        shared.hidden.store(writer.totals().hidden, Relaxed);
        shared.write_nanos.store(processor_time(), Relaxed);
        rest(&mut writer, to_do, began, fresh);
    }
    writer.take_events().into_iter().for_each(&mut tell);
    let totals = writer.totals().clone();
    if totals.late.packets > 0 {
        tell(Event::OutOfOrder(totals.late));
    }
    totals
}

/// Sleeps when there is nothing to do: until a job comes, or until the volume is to be tried again.
fn rest<D: Device>(writer: &mut Writer<D>, to_do: &Receiver<Job>, began: Instant, fresh: bool) {
    if fresh || writer.is_waiting() || writer.is_done() {
        return;
    }
    let pause = writer.retry_at().map_or(IDLE_WAIT, |at| at.saturating_sub(began.elapsed()).min(IDLE_WAIT));
    if !writer.has_room() {
        return std::thread::sleep(pause);
    }
    match to_do.recv_timeout(pause) {
        Ok(job) => writer.accept(job),
        Err(RecvTimeoutError::Timeout) => {}
        Err(RecvTimeoutError::Disconnected) => std::thread::sleep(pause.min(DEVICE_WAIT)),
    }
}

/// Of this thread, in nanoseconds.
fn processor_time() -> u64 {
    sys::cpu::thread_time().as_nanos() as u64
}
