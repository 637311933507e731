//! Runs the recorder as part of the engine, with a [`Feed`] as input, a [`Device`] as output, and two threads.

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

/// Time for which the cutter thread waits for packets before it processes the releases of the writer.
const FEED_WAIT: Duration = Duration::from_millis(20);

/// Time for which the cutter thread waits for packets while writes are in progress; it is short, so that ring memory is
/// released soon after the writes.
const BUSY_WAIT: Duration = Duration::from_millis(2);

/// Time for which the writer thread waits for the device before it checks for new jobs.
const DEVICE_WAIT: Duration = Duration::from_millis(2);

/// Time for which the writer thread waits for jobs when no operation is in progress.
const IDLE_WAIT: Duration = Duration::from_millis(100);

/// Control and counters of a running recorder for other threads.
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

/// The threads that are blocked by a slow disk. A watchdog must not treat such a thread as hung.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadWaits {
    /// The cutter thread waits because the job queue of the writer thread is full.
    pub index: bool,
    /// The writer thread is in a call to the device, or waits for operations of the device.
    pub writer: bool,
}

impl Handle {
    /// The caller reports that the producer stops or has stopped: from now on the recorder retries a failing volume
    /// only for the grace period.
    pub fn stop(&self) {
        self.0.stop.store(true, Relaxed);
    }

    /// True if the volume refuses writes at this moment.
    pub fn is_refused(&self) -> bool {
        self.0.refusing.load(Relaxed)
    }

    /// Describes by which method the device writes; empty before the first block is written.
    pub fn device(&self) -> String {
        self.0.device.get().cloned().unwrap_or_default()
    }

    /// Number of bytes of packet files that were written so far.
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Relaxed)
    }

    /// Number of files that were published so far.
    pub fn published(&self) -> u64 {
        self.0.published.load(Relaxed)
    }

    /// Number of files that were left under their hidden names so far; see [`Summary::hidden`].
    pub fn hidden(&self) -> u64 {
        self.0.hidden.load(Relaxed)
    }

    /// Processor time used so far by the cutter thread and by the writer thread.
    pub fn processor_time(&self) -> (Duration, Duration) {
        let of = |n: &AtomicU64| Duration::from_nanos(n.load(Relaxed));
        (of(&self.0.index_nanos), of(&self.0.write_nanos))
    }

    /// The threads that wait for the disk at this moment.
    pub fn waiting(&self) -> ThreadWaits {
        ThreadWaits { index: self.0.index_waits.load(Relaxed), writer: self.0.write_waits.load(Relaxed) }
    }
}

/// The outcome counters of a recording.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// The outcome counters of each second.
    pub ledger: Ledger,
    /// Number of files that were published.
    pub published: u64,
    /// Number of files that could not be published and keep their hidden names.
    pub hidden: u64,
    /// The number of packets with an earlier timestamp than a preceding packet, and the largest difference of the two
    /// timestamps.
    pub late: OutOfOrderCounts,
    /// Number of bytes of packet files that were written.
    pub bytes: u64,
    /// The contradiction in the descriptor stream that ended the recording, if there was any.
    pub broken: Option<BrokenStream>,
    /// Processor time of the cutter thread.
    pub index_time: Duration,
    /// Processor time of the writer thread.
    pub write_time: Duration,
}

/// A recorder; [`Recorder::run`] starts it.
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

    /// A handle to this recorder for other threads.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Records until the stream ends. The calling thread builds the index; a second thread, which ends before this
    /// function returns, writes to the device and calls `report` for each event.
    ///
    /// # Errors
    /// If the second thread cannot be started; then no descriptor was read from the feed. A failing volume is no error:
    /// it is reported as an [`Event`], and the summary counts the packets that could not be written as lost.
    pub fn run<F: Feed>(self, feed: &mut F, mut report: impl FnMut(Event) + Send) -> io::Result<Summary> {
        let Self { mut device, mut config, handle } = self;
        config.after = config.after.max(chain::end(&config));
        let (depth, page) = (config.depth, config.offered_page.clone());
        let memory = feed.memory();
        let cold = (!memory.is_warm()).then(|| Arc::clone(&memory));
        if cold.is_none()
            && let Some(warning) = device.adopt(&memory)
        {
            report(Event::Warning(warning));
        }
        let cutter = AnyCutter::new(config.format, memory);
        let (jobs, to_do) = sync_channel(depth);
        let (done, released) = channel();
        let writer = Writer::new(device, config);
        let shared = &handle.0;
        let (broken, totals) = std::thread::scope(|scope| -> io::Result<_> {
            let thread = std::thread::Builder::new().name("netgrain-write".into());
            let writing = thread.spawn_scoped(scope, move || write(writer, cold, &to_do, &done, shared, report))?;
            let broken = cut(feed, cutter, &jobs, &released, shared);
            drop(jobs);
            let totals = writing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            while let Ok(r) = released.try_recv() {
                feed.release(r.pos, r.descriptors);
            }
            Ok((broken, totals))
        })?;
        let (index_time, write_time) = handle.processor_time();
        let Totals { ledger, published, hidden, late, bytes } = totals;
        if let Some(page) = page {
            // If files remain under hidden names, the offered counter page is kept. The next recovery then adds the
            // lost packets of these files to the ledger.
            page.end();
            if hidden == 0 {
                page.confirm();
            }
        }
        Ok(Summary { ledger: ledger.to_ledger(), published, hidden, late, bytes, broken, index_time, write_time })
    }
}

/// The cutter for the configured file format.
enum AnyCutter {
    Pcap(Box<Cutter>),
    Raw(Box<RawCutter>),
}

impl AnyCutter {
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

/// The loop of the cutter thread.
fn cut<F: Feed>(
    feed: &mut F,
    mut cutter: AnyCutter,
    jobs: &SyncSender<Job>,
    released: &Receiver<Release>,
    shared: &Shared,
) -> Option<BrokenStream> {
    let mut made = Vec::new();
    let mut outstanding = false;
    let mut ended = false;
    let mut broken = None;
    // The processor time that the calling thread used before is subtracted.
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
            // An error means that the writer thread has ended; it normally ends only after it has received the end of
            // the stream.
            if send_job(jobs, job, shared).is_err() {
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

/// Sends a job to the writer thread; sets `index_waits` while the job queue is full.
fn send_job(jobs: &SyncSender<Job>, job: Job, shared: &Shared) -> Result<(), SendError<Job>> {
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

/// The loop of the writer thread. The device is prepared for writes from the memory in `cold` as soon as the producer
/// has written to all pages of this memory.
fn write<D: Device>(
    mut writer: Writer<D>,
    mut cold: Option<Arc<dyn Bytes>>,
    to_do: &Receiver<Job>,
    done: &Sender<Release>,
    shared: &Shared,
    mut report: impl FnMut(Event),
) -> Totals {
    let began = Instant::now();
    let mut reported = Release::default();
    while !writer.is_done() {
        if let Some(warm) = cold.take_if(|memory| memory.is_warm())
            && let Some(warning) = writer.adopt(&warm)
        {
            report(Event::Warning(warning));
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
        // Any call to the device may block for as long as the disk takes, including a call that only submits an
        // operation.
        shared.write_waits.store(true, Relaxed);
        writer.step(began.elapsed(), if waiting { DEVICE_WAIT } else { Duration::ZERO });
        shared.write_waits.store(writer.is_waiting(), Relaxed);
        writer.take_events().into_iter().for_each(&mut report);
        if shared.device.get().is_none() && writer.totals().bytes > 0 {
            // Only the first write shows whether the file system accepts writes past the page cache (`O_DIRECT`).
            let device = shared.device.get_or_init(|| writer.describe());
            if !writer.is_best() {
                report(Event::Warning(format!("packet files are written with {device}")));
            }
        }
        if writer.released() != reported {
            reported = writer.released();
            // The cutter thread may have ended already; `run` processes the remaining releases afterwards.
            let _ = done.send(reported);
        }
        shared.refusing.store(writer.retry_at().is_some(), Relaxed);
        shared.bytes.store(writer.totals().bytes, Relaxed);
        shared.published.store(writer.totals().published, Relaxed);
        shared.hidden.store(writer.totals().hidden, Relaxed);
        shared.write_nanos.store(processor_time(), Relaxed);
        rest(&mut writer, to_do, began, fresh);
    }
    writer.take_events().into_iter().for_each(&mut report);
    let totals = writer.totals().clone();
    if totals.late.packets > 0 {
        report(Event::OutOfOrder(totals.late));
    }
    totals
}

/// If the writer has nothing to do, sleeps until a job arrives or until it is time to retry the volume.
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

/// Processor time of this thread, in nanoseconds.
fn processor_time() -> u64 {
    sys::cpu::thread_time().as_nanos() as u64
}
