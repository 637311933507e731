//! One recorder of one queue: its gate, its threads, and what it says of itself. Before the first of them, the interface's
//! folder of the store is claimed: two processes that wrote there would mix their files.

use crate::error::EngineError;
use crate::plan::{Format, Plan, StorePlan};
use crate::republish::Republisher;
use crate::sizes;
use crate::status::RecorderReport;
use crate::worker::is_live;
use base::{Cause, Ledger, Row, Tally, Timestamp};
use capture::{SourceInfo, TimestampSource};
use index::Header;
use recorder::{Config, Event, Handle, Recorder, RingFeed, Summary, WallClock};
use ring::{LosslessReader, Producer};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use store::offered_page::OfferedPage;
use store::{Claim, Claimant, Device, DiskDevice, names};
use sys::clock::Clock;
use sys::nofollow::{self, OpenOptions};

/// What the recorder's gate is called in tables and in the names of losses.
const READER_NAME: &str = "recorder";

/// Remarks kept for the summary: the latest, because the last word matters most.
const WARNINGS_MAX: usize = 32;

/// See the module's text.
pub struct Recording {
    thread: Option<JoinHandle<std::io::Result<Summary>>>,
    gauge: Gauge,
    line: RecorderLink,
}

/// Between the engine thread and its recorder.
#[derive(Clone)]
pub struct RecorderLink {
    handle: Handle,
    ended: Arc<AtomicBool>,
    heartbeat: Option<Arc<OfferedPage>>,
}

impl RecorderLink {
    /// No more packets will come: only then may the recorder give up a volume that refuses.
    pub fn closing(&self) {
        self.handle.stop();
    }

    /// So many packets were offered so far, the last of them in this second: where it survives this process.
    pub fn offered(&self, packets: u64, second: u64) {
        if let Some(heartbeat) = &self.heartbeat {
            heartbeat.offered(packets, second);
        }
    }

    /// Whether the recorder has ended, for whatever reason; nothing reaches the disk then.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

/// Says that the recorder has ended, also when it panicked.
struct EndNotice(Arc<AtomicBool>);

impl Drop for EndNotice {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The numbers of a recorder, for other threads.
#[derive(Clone)]
pub struct Gauge {
    handle: Handle,
    messages: Arc<Mutex<WriterMessages>>,
    republisher: Republisher,
}

#[derive(Default)]
struct WriterMessages {
    device: String,
    trouble: Option<String>,
    refused: Option<String>,
    remarks: VecDeque<String>,
    summary: Option<Summary>,
}

impl Recording {
    /// Joins the ring before its first packet and begins to record.
    pub fn start(
        plan: &StorePlan,
        whole: &Plan,
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
            snaplen: whole.snaplen_in_force(),
            timestamp_source: match info.timestamp_source {
                TimestampSource::Engine => clock.method().to_owned(),
                other => other.name().to_owned(),
            },
            // Of the kernel's, the card's and a file's stamps we know no error.
            timestamp_error: match info.timestamp_source {
                TimestampSource::Engine => clock.error().as_nanos() as u32,
                _ => 0,
            },
            filter: whole.filter.clone().unwrap_or_default(),
            first_pos: 0,
            start: Timestamp::ZERO,
            content: index::Content::Recorded,
        };
        // Without one, what a sudden death takes is not known.
        let heartbeat = OfferedPage::begin(&names::interface_folder(&plan.dir, label), info.queue).ok().map(Arc::new);
        let config = Config {
            offered_page: heartbeat.clone(),
            queues,
            allocate: match plan.format {
                Format::Pcap => sizes::of_file(whole),
                Format::Raw => whole.segment,
            },
            depth: plan.depth as usize,
            format: match plan.format {
                Format::Pcap => recorder::writer::Format::Pcap,
                Format::Raw => recorder::writer::Format::Raw { file_bytes: whole.segment },
            },
            // What is replayed has its own time.
            wall: is_live(info.timestamp_source).then_some(wall),
            ..Config::new(plan.dir.clone(), header)
        };
        let device = DiskDevice::new(4 * plan.depth);
        let news = WriterMessages { device: device.describe(), ..WriterMessages::default() };
        let recorder = Recorder::new(config, device);
        let mending = Republisher::new(names::interface_folder(&plan.dir, label), info.queue);
        let gauge =
            Gauge { handle: recorder.handle(), messages: Arc::new(Mutex::new(news)), republisher: mending.clone() };
        let (memory, hub) = (Arc::clone(producer.memory()), Arc::clone(producer.registry()));
        let news = Arc::clone(&gauge.messages);
        let (joined, answer) = channel();
        let line = RecorderLink { handle: gauge.handle.clone(), ended: Arc::default(), heartbeat };
        let farewell = EndNotice(Arc::clone(&line.ended));
        let work = move || {
            let _farewell = farewell;
            let gate = match LosslessReader::join(&memory, &hub, READER_NAME) {
                Ok(gate) => gate,
                Err(e) => {
                    let _ = joined.send(Err(e));
                    return Ok(Summary::default());
                }
            };
            let _ = joined.send(Ok(()));
            let mut feed = RingFeed::new(gate);
            let told = Arc::clone(&news);
            let hearing = move |event: Event| {
                match &event {
                    Event::LeftHidden { path, .. } => mending.left(path),
                    Event::Published { .. } => mending.volume_works(),
                    _ => {}
                }
                receive(&mut lock(&told), event);
            };
            let summary = recorder.run(&mut feed, hearing)?;
            lock(&news).summary = Some(summary.clone());
            Ok(summary)
        };
        let thread = std::thread::Builder::new()
            .name(format!("index-{}", info.queue))
            .spawn(work)
            .map_err(|e| EngineError::Thread(e.to_string()))?;
        // The producer is still ours: serve the gate's request to join, as the engine thread will later.
        loop {
            producer.service();
            match answer.recv_timeout(Duration::from_millis(1)) {
                Ok(Ok(())) => return Ok(Self { thread: Some(thread), gauge, line }),
                Ok(Err(e)) => return Err(EngineError::Store(format!("the recorder cannot join the ring: {e}"))),
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                Err(e) => return Err(EngineError::Thread(e.to_string())),
            }
        }
    }

    /// For the engine thread.
    pub fn line(&self) -> RecorderLink {
        self.line.clone()
    }

    /// The numbers.
    pub fn gauge(&self) -> Gauge {
        self.gauge.clone()
    }

    /// Waits until everything is written and published.
    pub fn wait(&mut self) -> Result<(), EngineError> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let ended = thread.join();
        self.gauge.republisher.finish(self.line.heartbeat.as_ref().and_then(|heartbeat| heartbeat.tail()));
        match ended {
            Ok(Ok(summary)) => match summary.broken {
                Some(e) => Err(EngineError::Store(e.to_string())),
                None => Ok(()),
            },
            Ok(Err(e)) => Err(EngineError::Thread(e.to_string())),
            Err(_) => Err(EngineError::Thread("the recorder panicked".into())),
        }
    }
}

impl Gauge {
    /// How the recorder stands.
    pub fn report(&self) -> RecorderReport {
        let news = lock(&self.messages);
        let (index, write) = self.handle.processor_time();
        RecorderReport {
            packets: news.summary.as_ref().map(|s| s.ledger.total().stored),
            bytes: self.handle.bytes(),
            files: self.handle.published() + self.republisher.has_recovered(),
            hidden: self.handle.hidden().saturating_sub(self.republisher.has_recovered()),
            writer_cpu_seconds: write.as_secs_f64(),
            index_cpu_seconds: index.as_secs_f64(),
            device: news.device.clone(),
            error: news.trouble.clone(),
            refused: news.refused.clone(),
            waiting: self.handle.waiting(),
        }
    }

    /// What the files on disk say of the packets, once the recorder has ended.
    pub fn on_disk(&self) -> Option<Tally> {
        lock(&self.messages).summary.as_ref().map(|s| s.ledger.total())
    }

    /// Corrects the engine's seconds by what never reached the volume.
    pub fn correct(&self, ledger: Ledger) -> Ledger {
        match &lock(&self.messages).summary {
            Some(summary) => corrected(ledger, &summary.ledger),
            None => ledger,
        }
    }

    /// Things a person should know.
    pub fn warnings(&self) -> Vec<String> {
        let mut news = lock(&self.messages);
        self.republisher.take_messages().into_iter().for_each(|text| news.remark(text));
        news.remarks.iter().cloned().collect()
    }
}

/// The time of day, and whether the kernel thinks that somebody keeps it.
fn wall() -> WallClock {
    WallClock {
        now: sys::clock::realtime(),
        synchronised: sys::timex::clock_status().is_ok_and(|clock| clock.synchronised),
    }
}

/// In the ring but never on the volume is not stored.
fn corrected(engine: Ledger, disk: &Ledger) -> Ledger {
    let given_up = |row: &Row| row.tally.lost[Cause::Disk as usize];
    let losses: BTreeMap<u64, Row> = disk.rows().filter(|r| given_up(r) > 0).map(|r| (r.second, r)).collect();
    if losses.is_empty() {
        return engine;
    }
    let mut out = Ledger::new();
    for mut row in engine.rows() {
        if let Some(on_disk) = losses.get(&row.second) {
            row.tally.stored = row.tally.stored.saturating_sub(given_up(on_disk));
            row.tally.stored_bytes = on_disk.tally.stored_bytes;
            row.tally.lost[Cause::Disk as usize] += given_up(on_disk);
        }
        out.add(row.second, &row.tally);
    }
    out
}

fn lock(news: &Mutex<WriterMessages>) -> MutexGuard<'_, WriterMessages> {
    news.lock().unwrap_or_else(PoisonError::into_inner)
}

fn receive(news: &mut WriterMessages, event: Event) {
    let text = event.to_string();
    match event {
        Event::Published { .. } => return,
        Event::Trouble { error, advice, .. } => {
            news.trouble = Some(text.clone());
            news.refused = Some(format!("{error}; {advice}"));
        }
        Event::Recovered { .. } => news.trouble = None,
        Event::LeftHidden { .. }
        | Event::GaveUp { .. }
        | Event::TimeOverlap { .. }
        | Event::OutOfOrder(_)
        | Event::Warning(_) => {}
    }
    news.remark(text);
}

impl WriterMessages {
    fn remark(&mut self, text: String) {
        if self.remarks.back() != Some(&text) {
            self.remarks.push_back(text);
        }
        if self.remarks.len() > WARNINGS_MAX {
            self.remarks.pop_front();
        }
    }
}

/// Claims the interface's folder of the store for this process, before anything is written into it.
///
/// # Errors
/// A store that cannot be written, or the recorder that is there already, by name.
pub fn claim(plan: &Plan, store: &Path, label: &str) -> Result<Claim, EngineError> {
    check(store)?;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let socket = plan.socket.as_ref().map(|s| std::path::absolute(&s.path).unwrap_or_else(|_| s.path.clone()));
    let claimant = Claimant::this(Timestamp::ZERO.after(since), socket, plan.cpus.clone());
    let folder = names::interface_folder(store, label);
    Ok(Claim::take(&folder, &claimant)?)
}

/// Refuses a store that cannot be written before anything is captured.
fn check(dir: &Path) -> Result<(), EngineError> {
    let fail = |e: std::io::Error| {
        EngineError::Store(format!(
            "{}: cannot record there: {e}; name a folder on a writable volume with --store",
            dir.display()
        ))
    };
    nofollow::create_folders(dir).map_err(fail)?;
    let probe = dir.join(format!(".netgrain-{}", std::process::id()));
    let how = OpenOptions { write: true, create: Some(0o600), ..OpenOptions::default() };
    nofollow::open_as(&probe, how).map_err(fail)?;
    nofollow::remove(&probe).map_err(fail)
}
