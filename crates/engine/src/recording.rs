//! The recorder of one queue: its lossless reader, its threads, its report. The interface's directory of the store is
//! claimed before the first recorder starts, because the files of two processes in the same directory would be mixed.

use crate::error::EngineError;
use crate::plan::{Format, Plan, StorePlan};
use crate::republish::Republisher;
use crate::sizes;
use base::{Cause, Ledger, Row, Tally, Timestamp};
use capture::{SourceInfo, TimestampSource};
use index::Header;
use recorder::{Config, Event, Handle, Recorder, RingFeed, Summary, ThreadWaits, WallClock};
use ring::{LosslessReader, Producer};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use store::offered_page::OfferedPage;
use store::{Claim, Claimant, Device, DiskDevice, catalogue, names};
use sys::clock::Clock;
use sys::nofollow::{self, OpenOptions};

/// Name of the recorder's reader in lists of readers and in loss causes.
const READER_NAME: &str = "recorder";

/// The largest number of retained warnings. The oldest are removed, because the latest ones include the reason for the
/// end.
const WARNINGS_MAX: usize = 32;

/// A running recorder; see the module documentation.
pub struct Recording {
    thread: Option<JoinHandle<std::io::Result<Summary>>>,
    gauge: Gauge,
    link: RecorderLink,
}

/// The handle through which an engine thread accesses its recorder.
#[derive(Clone)]
pub struct RecorderLink {
    handle: Handle,
    ended: Arc<AtomicBool>,
    offered_page: Option<Arc<OfferedPage>>,
}

/// The report of one recorder, for JSON.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RecorderReport {
    /// Number of packets in the files, counted independently by the recorder; known after its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
    /// Bytes written to packet files.
    pub bytes: u64,
    /// Number of published files.
    pub files: u64,
    /// Number of files that still have a hidden name because an operation on them failed.
    pub hidden: u64,
    /// CPU seconds of the writer thread.
    pub writer_cpu_seconds: f64,
    /// CPU seconds of the thread that computes checksums and indexes.
    pub index_cpu_seconds: f64,
    /// A text that describes the method by which packet files are written.
    pub device: String,
    /// The error of the current failure, if an operation fails at the moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The error of the last write that the volume refused, with advice. The field remains set when later writes
    /// succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Which threads of the recorder wait for the volume at the moment. A watchdog reads this; the value changes a
    /// thousand times per second.
    #[serde(skip)]
    pub waiting: ThreadWaits,
}

impl RecorderLink {
    /// Informs the recorder that no more packets will arrive. After this call the recorder may discard packets if the
    /// volume refuses writes; before, it retains them.
    pub fn closing(&self) {
        self.handle.stop();
    }

    /// Stores the number of packets offered so far and the second of the last packet in a file mapping that survives a
    /// crash of this process.
    pub fn offered(&self, packets: u64, second: u64) {
        if let Some(offered_page) = &self.offered_page {
            offered_page.offered(packets, second);
        }
    }

    /// True if the recorder has ended for any reason. Then packets are no longer written to the volume.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

/// Sets the end flag when it is dropped, hence also after a panic.
struct EndNotice(Arc<AtomicBool>);

impl Drop for EndNotice {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The counters of a recorder, readable from other threads.
#[derive(Clone)]
pub struct Gauge {
    handle: Handle,
    messages: Arc<Mutex<WriterMessages>>,
    republisher: Republisher,
}

#[derive(Default)]
struct WriterMessages {
    device: String,
    error: Option<String>,
    refused: Option<String>,
    warnings: VecDeque<String>,
    summary: Option<Summary>,
}

impl Recording {
    /// Joins the ring before its first packet and starts the recorder's threads.
    pub fn start(
        plan: &StorePlan,
        capture_plan: &Plan,
        label: &str,
        info: &SourceInfo,
        clock: &Clock,
        queues: u16,
        producer: &mut Producer,
    ) -> Result<Self, EngineError> {
        let header = Header {
            interface: label.to_owned(),
            queue: info.queue,
            link_type: info.link_type.into(),
            snaplen: capture_plan.snaplen_in_force(),
            timestamp_source: match info.timestamp_source {
                TimestampSource::Engine => clock.method().to_owned(),
                other => other.name().to_owned(),
            },
            // The estimated error is known only for timestamps that the engine makes. For timestamps from the kernel,
            // the NIC or a file it is not known.
            timestamp_error: match info.timestamp_source {
                TimestampSource::Engine => clock.error().as_nanos() as u32,
                _ => 0,
            },
            filter: capture_plan.filter.clone().unwrap_or_default(),
            first_pos: 0,
            start: Timestamp::ZERO,
            content: index::Content::Recorded,
        };
        // If the offered counter page cannot be created, the number of packets that a crash loses will be unknown.
        let offered_page =
            OfferedPage::begin(&names::interface_directory(&plan.dir, label), info.queue).ok().map(Arc::new);
        let config = Config {
            offered_page: offered_page.clone(),
            queues,
            allocate: match plan.format {
                Format::Pcap => sizes::of_file(capture_plan),
                Format::Raw => capture_plan.segment,
            },
            depth: plan.depth as usize,
            format: match plan.format {
                Format::Pcap => recorder::writer::Format::Pcap,
                Format::Raw => recorder::writer::Format::Raw { file_bytes: capture_plan.segment },
            },
            // In a replay, the timestamps of the packets are those of the file and not related to the system time.
            wall: info.timestamp_source.is_live().then_some(wall),
            ..Config::new(plan.dir.clone(), header)
        };
        let device = DiskDevice::new(4 * plan.depth);
        let messages = WriterMessages { device: device.describe(), ..WriterMessages::default() };
        let recorder = Recorder::new(config, device);
        let republisher = Republisher::new(names::interface_directory(&plan.dir, label), info.queue);
        let gauge = Gauge {
            handle: recorder.handle(),
            messages: Arc::new(Mutex::new(messages)),
            republisher: republisher.clone(),
        };
        let (memory, registry) = (Arc::clone(producer.memory()), Arc::clone(producer.registry()));
        let messages = Arc::clone(&gauge.messages);
        let (joined, join_result) = channel();
        let link = RecorderLink { handle: gauge.handle.clone(), ended: Arc::default(), offered_page };
        let end_notice = EndNotice(Arc::clone(&link.ended));
        let work = move || {
            let _end_notice = end_notice;
            let reader = match LosslessReader::join(&memory, &registry, READER_NAME) {
                Ok(reader) => reader,
                Err(e) => {
                    let _ = joined.send(Err(e));
                    return Ok(Summary::default());
                }
            };
            let _ = joined.send(Ok(()));
            let mut feed = RingFeed::new(reader);
            let reported = Arc::clone(&messages);
            let on_event = move |event: Event| {
                match &event {
                    Event::LeftHidden { path, .. } => republisher.left(path),
                    Event::Published { .. } => republisher.volume_works(),
                    _ => {}
                }
                receive(&mut lock(&reported), event);
            };
            let summary = recorder.run(&mut feed, on_event)?;
            lock(&messages).summary = Some(summary.clone());
            Ok(summary)
        };
        let thread = std::thread::Builder::new()
            .name(format!("index-{}", info.queue))
            .spawn(work)
            .map_err(EngineError::Spawn)?;
        // The engine thread does not run yet, so this loop processes the join request of the recorder's reader.
        loop {
            producer.service();
            match join_result.recv_timeout(Duration::from_millis(1)) {
                Ok(Ok(())) => return Ok(Self { thread: Some(thread), gauge, link }),
                Ok(Err(e)) => return Err(EngineError::RecorderJoin(e)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(_) => return Err(EngineError::Panicked("the recorder".into())),
            }
        }
    }

    /// Returns the handle through which the engine thread accesses this recorder.
    pub fn link(&self) -> RecorderLink {
        self.link.clone()
    }

    /// Returns the counters.
    pub fn gauge(&self) -> Gauge {
        self.gauge.clone()
    }

    /// Waits until all packets are written and all files are published.
    pub fn wait(&mut self) -> Result<(), EngineError> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let ended = thread.join();
        self.gauge.republisher.finish(self.link.offered_page.as_ref().and_then(|offered_page| offered_page.tail()));
        match ended {
            Ok(Ok(summary)) => match summary.broken {
                Some(e) => Err(EngineError::BrokenStream(e)),
                None => Ok(()),
            },
            Ok(Err(e)) => Err(EngineError::Spawn(e)),
            Err(_) => Err(EngineError::Panicked("the recorder".into())),
        }
    }
}

impl Gauge {
    /// Returns the report of the recorder.
    pub fn report(&self) -> RecorderReport {
        let messages = lock(&self.messages);
        let (index, write) = self.handle.processor_time();
        RecorderReport {
            packets: messages.summary.as_ref().map(|s| s.ledger.total().stored),
            bytes: self.handle.bytes(),
            files: self.handle.published() + self.republisher.recovered_files(),
            hidden: self.handle.hidden().saturating_sub(self.republisher.recovered_files()),
            writer_cpu_seconds: write.as_secs_f64(),
            index_cpu_seconds: index.as_secs_f64(),
            device: messages.device.clone(),
            error: messages.error.clone(),
            refused: messages.refused.clone(),
            waiting: self.handle.waiting(),
        }
    }

    /// Returns the tally of the written packets, once the recorder has ended.
    pub fn on_disk(&self) -> Option<Tally> {
        lock(&self.messages).summary.as_ref().map(|s| s.ledger.total())
    }

    /// Returns the engine's ledger of losses. Packets that were stored in the ring but not written to the volume are
    /// counted as lost in it.
    pub fn correct(&self, ledger: Ledger) -> Ledger {
        match &lock(&self.messages).summary {
            Some(summary) => corrected(ledger, &summary.ledger),
            None => ledger,
        }
    }

    /// Returns the warnings.
    pub fn warnings(&self) -> Vec<String> {
        let mut messages = lock(&self.messages);
        self.republisher.take_messages().into_iter().for_each(|text| messages.warn(text));
        messages.warnings.iter().cloned().collect()
    }
}

/// Returns the system time, and whether the kernel reports that the clock is synchronised.
fn wall() -> WallClock {
    WallClock {
        now: sys::clock::realtime(),
        synchronised: sys::timex::clock_status().is_ok_and(|clock| clock.synchronised),
    }
}

/// Counts packets that were in the ring but were not written to the volume as lost, not as stored.
fn corrected(engine: Ledger, disk: &Ledger) -> Ledger {
    let unwritten = |row: &Row| row.tally.lost[Cause::Disk as usize];
    let losses: BTreeMap<u64, Row> = disk.rows().filter(|r| unwritten(r) > 0).map(|r| (r.second, r)).collect();
    if losses.is_empty() {
        return engine;
    }
    let mut out = Ledger::new();
    for mut row in engine.rows() {
        if let Some(on_disk) = losses.get(&row.second) {
            row.tally.stored = row.tally.stored.saturating_sub(unwritten(on_disk));
            row.tally.stored_bytes = on_disk.tally.stored_bytes;
            row.tally.lost[Cause::Disk as usize] += unwritten(on_disk);
        }
        out.add(row.second, &row.tally);
    }
    out
}

fn lock(messages: &Mutex<WriterMessages>) -> MutexGuard<'_, WriterMessages> {
    messages.lock().unwrap_or_else(PoisonError::into_inner)
}

fn receive(messages: &mut WriterMessages, event: Event) {
    let text = event.to_string();
    match event {
        Event::Published { .. } => return,
        Event::Trouble { error, advice, .. } => {
            messages.error = Some(text.clone());
            messages.refused = Some(format!("{error}; {advice}"));
        }
        Event::Recovered { .. } => messages.error = None,
        Event::LeftHidden { .. }
        | Event::GaveUp { .. }
        | Event::TimeOverlap { .. }
        | Event::OutOfOrder(_)
        | Event::Warning(_) => {}
    }
    messages.warn(text);
}

impl WriterMessages {
    fn warn(&mut self, text: String) {
        if self.warnings.back() != Some(&text) {
            self.warnings.push_back(text);
        }
        if self.warnings.len() > WARNINGS_MAX {
            self.warnings.pop_front();
        }
    }
}

/// Claims the interface's directory of the store for this process, before any file is written.
///
/// # Errors
/// The store is not writable, a file or a symbolic link has the name of one of its directories, or another recorder has
/// claimed the directory of the interface; the error names that recorder.
pub fn claim(plan: &Plan, store: &Path, label: &str) -> Result<Claim, EngineError> {
    check(store)?;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let socket = plan.socket.as_ref().map(|s| std::path::absolute(&s.path).unwrap_or_else(|_| s.path.clone()));
    let claimant = Claimant::this(Timestamp::ZERO.after(since), socket, plan.cpus.clone());
    let directory = names::interface_directory(store, label);
    let claim = Claim::take(&directory, &claimant)?;
    match catalogue::not_a_directory(&directory).map_err(|e| EngineError::Store(directory, e))? {
        Some(path) => Err(EngineError::NotDirectory(path)),
        None => Ok(claim),
    }
}

/// Checks that the store is writable, before packets are captured.
fn check(dir: &Path) -> Result<(), EngineError> {
    let fail = |e| EngineError::Store(dir.to_owned(), e);
    nofollow::create_directories(dir).map_err(fail)?;
    let probe = dir.join(format!(".netgrain-{}", std::process::id()));
    let options = OpenOptions { write: true, create: Some(0o600), ..OpenOptions::default() };
    nofollow::open_as(&probe, options).map_err(fail)?;
    nofollow::remove(&probe).map_err(fail)
}
