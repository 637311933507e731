//! A running capture: sources, rings, engine threads, recorders and the listeners' socket, built from a [`Plan`].

use crate::error::EngineError;
use crate::hash_key::hash_key;
use crate::observer::{Observed, Observer};
use crate::plan::{Plan, SocketPlan, SourcePlan};
use crate::recording::{self, Recording};
use crate::recovery::RecoveryTask;
use crate::report::Report;
use crate::retention_report::RetentionHandle;
use crate::sizes::{self, Sizes};
use crate::volume::{self, SegmentSize};
use crate::worker::{Settings, Worker};
use crate::worker_links::{WorkerLinks, WorkerStatus};
use base::Ledger;
use base::units::show_bytes;
use capture::auto::SourceKind;
use capture::{AnySource, Source, SourceError, SourceInfo};
use filter::Filter;
use group_services::{
    ControlSocketPlan, DispatcherSetup, GroupPlan, Groups, InterfaceSetup, ReconcileMessage, groups_socket,
};
use interface_program::{Access, InterfaceProgram, ProgramContext, ProgramPlan, ProgramReport, QueueInfo};
use meter::{Meter, QueueReader, Sink};
use ring::{AttachPolicy, ListenerRegistry, OfferedRing, Producer, Server};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use store::Claim;
use sys::clock::Clock;
use sys::cpu::Ticks;
use wire::link;

/// Lower priority than capture and its readers: a thread that needs a page before this thread reaches it faults it in
/// itself.
const WARM_NICE: i32 = 5;

/// How often the supervisor looks for a missing interface.
const RETURN_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// A running capture; see the module documentation.
pub struct Capture {
    label: String,
    started: Instant,
    /// The machine's processor time at the start.
    ticks: Ticks,
    stop: Arc<AtomicBool>,
    queues: Vec<Queue>,
    server: Option<Server>,
    supervisor: Option<JoinHandle<()>>,
    /// The exclusive claim on this interface in the store, held until everything is written.
    claim: Option<Claim>,
    /// The directory of the store that holds the data of this interface.
    store: Option<PathBuf>,
    /// The recovery of files that a killed recorder left unpublished.
    recovering: RecoveryTask,
    /// Bytes of each packet file.
    segment: u64,
    meter: Option<Meter>,
    /// The groups of all interfaces that started together.
    groups: Option<Arc<Groups>>,
    program: Option<Arc<InterfaceProgram>>,
    retention: RetentionHandle,
    /// Processors on the NUMA node of the rings; empty for any.
    beside: Vec<usize>,
}

struct Queue {
    info: SourceInfo,
    registry: Arc<ListenerRegistry>,
    offer: OfferedRing,
    status: Arc<Mutex<WorkerStatus>>,
    ledger: Arc<Mutex<Ledger>>,
    worker: Option<JoinHandle<Result<(), SourceError>>>,
    recording: Option<Recording>,
}

impl Capture {
    /// Opens everything and starts.
    ///
    /// # Errors
    /// [`EngineError`]; everything opened before the error is closed again.
    pub fn start(plan: &Plan) -> Result<Self, EngineError> {
        Self::claimed(plan, &plan.store.as_ref().map(|store| store.dir.clone()), |_| Ok(Vec::new()))
    }

    /// As [`Capture::start`], with sinks for flow records and rows. `store` is the directory with the data of this
    /// interface; `sinks` makes the sinks from the interface's name, after the claim on that directory.
    ///
    /// # Errors
    /// [`EngineError`]; everything opened before the error is closed again.
    pub fn claimed(
        plan: &Plan,
        store: &Option<PathBuf>,
        sinks: impl FnOnce(&str) -> Result<Vec<Box<dyn Sink>>, EngineError>,
    ) -> Result<Self, EngineError> {
        let mut begun = Self::together(vec![Self::made(plan, store, sinks)?], &plan.groups)?;
        Ok(begun.remove(0))
    }

    /// Prepares everything that a capture needs; [`Capture::together`] starts the flow of packets.
    ///
    /// # Errors
    /// As [`Capture::claimed`].
    pub fn made(
        plan: &Plan,
        store: &Option<PathBuf>,
        sinks: impl FnOnce(&str) -> Result<Vec<Box<dyn Sink>>, EngineError>,
    ) -> Result<PreparedCapture, EngineError> {
        let filter = match &plan.filter {
            Some(text) => Some(Filter::parse(text).map_err(EngineError::Filter)?),
            None => None,
        };
        let label = plan.source.label();
        let stop = Arc::new(AtomicBool::new(false));
        // The claim comes before the interface is opened: a second recorder must not disturb the first.
        let claim = store.as_ref().map(|dir| recording::claim(plan, dir, &label)).transpose()?;
        let hash_key = hash_key();
        let mut program = checked_program(plan, &label, hash_key, link::ETHERNET)?;
        let source_plan = programmed(plan);
        let sources = source_plan.open()?;
        // The link type is known only after the source is open.
        if let Some(other) = sources.iter().map(|s| s.info().link_type).find(|link| *link != link::ETHERNET) {
            program = checked_program(plan, &label, hash_key, other)?;
        }
        if let Some(program) = &program {
            program.install(&sources)?;
        }
        let queues = sources.len() as u16;
        let SegmentSize { segment, warning: remark } = volume::fit(plan, queues)?;
        let fitted = Plan { segment, ..plan.clone() };
        let plan = &fitted;
        let sizes = Sizes::of(plan, queues)?;
        let (gone, gone_queues) = channel();
        let mut capture = Self {
            label: label.clone(),
            started: Instant::now(),
            ticks: Ticks::now(),
            stop: Arc::clone(&stop),
            queues: Vec::new(),
            server: None,
            supervisor: None,
            claim,
            store: store.clone(),
            retention: RetentionHandle::default(),
            recovering: plan.store.as_ref().map(|store| RecoveryTask::start(&store.dir, &label)).unwrap_or_default(),
            meter: None,
            groups: None,
            program,
            segment,
            beside: sys::cpu::cpus_beside(&processors(plan, 0)),
        };
        capture.recovering.reported().say(remark);
        // Everything is prepared before the first frame is let in: to touch and lock a ring takes longer than a busy
        // interface takes to fill a receive ring.
        let (more, options) = match &plan.source {
            SourcePlan::Files { paths, options, .. } => (paths.iter().skip(1).cloned().collect(), options.clone()),
            _ => (VecDeque::new(), capture::file::Options::default()),
        };
        let mut crew = Vec::new();
        let mut returns = BTreeMap::new();
        let (mut seats, mut group_seats) = (Vec::new(), Vec::new());
        let alive = Arc::new(AtomicUsize::new(sources.len()));
        for (number, source) in sources.into_iter().enumerate() {
            let info = source.info().clone();
            let cpus = processors(plan, number);
            let mut producer = producer(plan, &label, &info, &cpus, sizes)?;
            let clock = Clock::start();
            let offer = OfferedRing::of(&producer);
            let recording = match &plan.store {
                Some(store) => Some(Recording::start(store, plan, &label, &info, &clock, queues, &mut producer)?),
                None => None,
            };
            if plan.meter.is_some() {
                seats.push(QueueReader::join(&mut producer, info.queue, info.link_type)?);
            }
            if plan.socket.is_some() || !plan.groups.is_empty() {
                group_seats.push(DispatcherSetup::new(
                    &mut producer,
                    info.timestamp_source.is_live(),
                    !plan.groups.is_empty(),
                )?);
            }
            let (status, ledger) = (Arc::default(), Arc::default());
            let (send_again, again) = channel();
            returns.insert(info.queue, send_again);
            let wires = WorkerLinks {
                stop: Arc::clone(&stop),
                status: Arc::clone(&status),
                ledger: Arc::clone(&ledger),
                gone: gone.clone(),
                reopened_source: again,
                recorder: recording.as_ref().map(Recording::line),
            };
            let place = QueueInfo {
                link_type: info.link_type,
                queue: info.queue,
                host_has_it: access(&plan.source) == Access::Shared,
            };
            let judging = capture.program.as_ref().map(|program| program.program_sequence(place));
            let settings = Settings {
                program: judging.transpose()?,
                snaplen: plan.snaplen_in_force() as usize,
                filter: filter.clone(),
                hash_key,
                cpus,
                spin: plan.spin,
                packets: plan.packets,
                duration: plan.duration,
                more: more.clone(),
                options: options.clone(),
            };
            let hub = Arc::clone(producer.registry());
            capture.queues.push(Queue { info, registry: hub, offer, status, ledger, worker: None, recording });
            crew.push((source, producer, clock, settings, wires));
        }
        if let Some(meter) = &plan.meter {
            let live = capture.queues.iter().any(|q| q.info.timestamp_source.is_live());
            let sinks = sinks(&label)?;
            let mut meter = meter.clone();
            if let Some(flows) = &mut meter.flows {
                flows.capacity = sizes::flows_of(plan, flows.capacity);
            }
            capture.meter = Some(Meter::start(&meter, seats, sinks, live, plan.store.is_some())?);
        }
        // The preparation of large rings takes a moment that does not count as capture time.
        (capture.started, capture.ticks) = (Instant::now(), Ticks::now());
        if let Some(socket) = &plan.socket {
            let rings: Vec<OfferedRing> = capture.queues.iter().map(|q| q.offer.clone()).collect();
            capture.server = Some(serve(socket, rings)?);
        }
        let number = plan.meter.as_ref().map_or(0, |meter| meter.interface);
        let stand = (!group_seats.is_empty()).then(|| InterfaceSetup {
            source: group::IngressInterface { name: label.clone(), number },
            dedicated: matches!(&plan.source, SourcePlan::Interface(i) if i.kind == SourceKind::AfXdp),
            live: capture.queues.iter().any(|q| q.info.timestamp_source.is_live()),
            socket: plan.socket.as_ref().map(control_socket),
            dispatchers: group_seats,
        });
        if matches!(plan.source, SourcePlan::Interface(_)) {
            let present = Arc::clone(&alive);
            let program = capture.program.clone();
            capture.supervisor = Some(supervise(source_plan.clone(), program, stop, gone_queues, returns, present)?);
        }
        Ok(PreparedCapture { capture, setup: stand, threads: crew, alive })
    }

    /// Starts all these captures with these groups, whose packets may come from several interfaces.
    ///
    /// # Errors
    /// As [`Capture::claimed`].
    pub fn together(mut made: Vec<PreparedCapture>, groups: &[GroupPlan]) -> Result<Vec<Self>, EngineError> {
        let stands: Vec<InterfaceSetup> = made.iter_mut().filter_map(|made| made.setup.take()).collect();
        let groups = (!stands.is_empty()).then(|| Groups::start(stands, groups, hash_key())).transpose()?.map(Arc::new);
        made.into_iter().map(|made| made.begin(groups.clone())).collect()
    }
}

/// A capture that is prepared and does not receive frames yet.
pub struct PreparedCapture {
    // The first field, so that it is dropped first: to drop the capture waits for the end of its rings.
    threads: Vec<WorkerStart>,
    /// The setup for groups, if there are any.
    setup: Option<InterfaceSetup>,
    alive: Arc<AtomicUsize>,
    capture: Capture,
}

/// The parts of an engine thread.
type WorkerStart = (AnySource, Producer, Clock, Settings, WorkerLinks);

impl PreparedCapture {
    fn begin(self, groups: Option<Arc<Groups>>) -> Result<Capture, EngineError> {
        let Self { mut capture, threads: crew, alive, .. } = self;
        capture.groups = groups;
        for ((source, producer, clock, settings, wires), queue) in crew.into_iter().zip(&mut capture.queues) {
            source.begin()?;
            let present = ThreadGuard(Arc::clone(&alive));
            let work = move || {
                let _present = present;
                Worker::new(source, producer, clock, settings, wires).run()
            };
            let thread = std::thread::Builder::new().name(format!("engine-{}", queue.info.queue)).spawn(work);
            queue.worker = Some(thread.map_err(|e| EngineError::Thread(e.to_string()))?);
        }
        capture.warm()?;
        (capture.started, capture.ticks) = (Instant::now(), Ticks::now());
        Ok(capture)
    }
}

impl Capture {
    /// Touches and locks the rest of the rings' memory while packets already arrive: capture starts after a quarter of
    /// a second instead of two and a half.
    fn warm(&self) -> Result<(), EngineError> {
        let cold = |q: &&Queue| !q.offer.memory.bytes().is_lazy();
        let rings: Vec<_> = self.queues.iter().filter(cold).map(|q| Arc::downgrade(&q.offer.memory)).collect();
        let (Some(first), false) = (self.queues.first(), rings.is_empty()) else { return Ok(()) };
        let (stop, status, beside) = (Arc::clone(&self.stop), Arc::clone(&first.status), self.beside.clone());
        let work = move || {
            if !beside.is_empty() {
                // If this fails, the pages come from another NUMA node, which is slower but correct.
                let _ = sys::cpu::pin_to(&beside);
            }
            let _ = sys::cpu::set_nice(WARM_NICE);
            let mut more = true;
            while more && !stop.load(Ordering::Relaxed) {
                more = false;
                for ring in rings.iter().filter_map(Weak::upgrade) {
                    match ring.prefault_more() {
                        Ok(warmed) => more |= warmed,
                        Err(e) => {
                            let text =
                                format!("no memory for the rest of the ring: {e}; choose a smaller one with --ring");
                            status.lock().unwrap_or_else(PoisonError::into_inner).warnings.push(text);
                            return;
                        }
                    }
                }
            }
        };
        let thread = std::thread::Builder::new().name("ring-warm".into()).spawn(work);
        thread.map(drop).map_err(|e| EngineError::Thread(e.to_string()))
    }

    /// Returns a text about the memory chosen for each purpose.
    pub fn memory_warning(&self, plan: &Plan) -> String {
        let ring = self.queues.first().map_or(0, |q| q.offer.memory.byte_capacity());
        sizes::description(plan, ring, self.queues.len())
    }

    /// Requests all threads to stop; packets already taken are still stored.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// True if every engine thread has ended.
    pub fn finished(&self) -> bool {
        self.queues.iter().all(|q| q.worker.as_ref().is_none_or(JoinHandle::is_finished))
    }

    /// Returns the descriptions of the sources.
    pub fn sources(&self) -> impl Iterator<Item = &str> {
        self.queues.iter().map(|q| q.info.description.as_str())
    }

    /// Returns access to the counters of this capture (for the metrics endpoint).
    pub fn observer(&self) -> Observer {
        Observer {
            recovery: self.recovering.reported(),
            meter: self.meter.as_ref().map(Meter::gauge),
            program: self.program.clone(),
            groups: self.groups.clone(),
            retention: self.retention.clone(),
            segment: self.segment,
            store: self.store.clone(),
            label: self.label.clone(),
            started: self.started,
            ticks: self.ticks,
            queues: self
                .queues
                .iter()
                .map(|q| Observed {
                    info: q.info.clone(),
                    registry: Arc::clone(&q.registry),
                    ring: describe(&q.offer),
                    status: Arc::clone(&q.status),
                    recording: q.recording.as_ref().map(Recording::gauge),
                })
                .collect(),
        }
    }

    /// Swaps the interface's program without packet loss; `None` if the program is the same already.
    ///
    /// # Errors
    /// A text, possibly with the verifier log; the previous program continues. A capture that started without a program
    /// has none to swap.
    pub fn swap_program(&self, plan: &ProgramPlan) -> Result<Option<ProgramReport>, EngineError> {
        match &self.program {
            Some(program) => Ok(program.swap(plan)?),
            None => Err(EngineError::NoProgram),
        }
    }

    /// Replaces the sinks of this kind; sinks with the names in `stay` continue.
    pub fn replace_sinks(&self, kind: &'static str, stay: Vec<String>, sinks: Vec<Box<dyn Sink>>) {
        if let Some(meter) = &self.meter {
            meter.replace(kind, stay, sinks);
        }
    }

    /// Changes the groups of the configuration to these plans and returns messages about the changes. Of several
    /// interfaces that started together, the first does this for all.
    pub fn reconcile_groups(&self, plans: &[GroupPlan]) -> Vec<ReconcileMessage> {
        self.group_reports().map(|groups| groups.reconcile(plans)).unwrap_or_default()
    }

    /// Returns the accounting of the groups whose first interface this is, as objects (`docs/reference/groups.md`).
    pub fn group_accounting(&self) -> Vec<serde_json::Value> {
        self.groups.as_ref().map(|groups| groups.objects(&self.label)).unwrap_or_default()
    }

    /// Returns the groups if this is the interface that reports all of them.
    fn group_reports(&self) -> Option<&Groups> {
        self.groups.as_deref().filter(|groups| groups.are_reported_at(&self.label))
    }

    /// Returns the report.
    pub fn report(&self) -> Report {
        self.observer().report()
    }

    /// Waits for the end: of the engine threads first, then of the recorders, which write what is still in the rings.
    ///
    /// # Errors
    /// The first failure of a thread. The report is complete all the same; call [`Capture::report`] before dropping.
    pub fn wait(&mut self) -> Result<(), EngineError> {
        let mut outcome = Ok(());
        let mut keep = |r: Result<(), EngineError>| {
            if outcome.is_ok() {
                outcome = r;
            }
        };
        for queue in &mut self.queues {
            if let Some(worker) = queue.worker.take() {
                keep(match worker.join() {
                    Ok(r) => r.map_err(EngineError::Source),
                    Err(_) => Err(EngineError::Thread(format!("engine thread of queue {} panicked", queue.info.queue))),
                });
            }
            if let Some(recording) = &mut queue.recording {
                keep(recording.wait());
            }
        }
        if let Some(meter) = &mut self.meter {
            keep(meter.wait().map_err(EngineError::from));
        }
        if let Some(groups) = &self.groups {
            keep(groups.wait(&self.label).map_err(EngineError::from));
        }
        self.recovering.wait();
        self.stop.store(true, Ordering::Relaxed);
        self.server = None;
        if let Some(supervisor) = self.supervisor.take() {
            let _ = supervisor.join();
        }
        self.claim = None;
        outcome
    }

    /// Returns the ledger over all queues.
    pub fn ledger(&self) -> Ledger {
        let mut ledger = Ledger::new();
        for q in &self.queues {
            let engine = q.ledger.lock().unwrap_or_else(PoisonError::into_inner).clone();
            ledger.merge(&match &q.recording {
                Some(recording) => recording.gauge().correct(engine),
                None => engine,
            });
        }
        ledger
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.stop();
        let _ = self.wait();
    }
}

/// Compiles and checks the interface's program for frames of this link type, before the interface is opened.
fn checked_program(
    plan: &Plan,
    label: &str,
    hash_key: u64,
    link_type: u16,
) -> Result<Option<Arc<InterfaceProgram>>, EngineError> {
    let Some(program) = &plan.program else { return Ok(None) };
    let ground = ProgramContext { interface: label.to_owned(), access: access(&plan.source), link_type, hash_key };
    InterfaceProgram::compile(program, ground).map(|p| Some(Arc::new(p))).map_err(EngineError::from)
}

/// Returns how the packets of a source arrive.
fn access(source: &SourcePlan) -> Access {
    match source {
        SourcePlan::Interface(port) if port.kind == SourceKind::AfXdp => Access::Owned,
        SourcePlan::Interface(_) => Access::Shared,
        _ => Access::Replayed,
    }
}

/// Returns the source plan, with the information that a program will run on its interface.
fn programmed(plan: &Plan) -> SourcePlan {
    let mut source = plan.source.clone();
    if let SourcePlan::Interface(port) = &mut source {
        port.afxdp.programmed = plan.program.is_some();
    }
    source
}

/// Allocates the ring on the processors of its engine thread, so that its pages come from their NUMA node.
fn producer(
    plan: &Plan,
    label: &str,
    info: &SourceInfo,
    cpus: &[usize],
    Sizes { ring: bytes, prefault: warmth }: Sizes,
) -> Result<Producer, EngineError> {
    let config = ring::Config {
        name: label.to_owned(),
        bytes,
        link_type: info.link_type.into(),
        snaplen: plan.snaplen_in_force(),
        queue: info.queue,
        segment_bytes: plan.segment,
        rotate: plan.rotate,
        reader_timeout: plan.reader_timeout,
        prefault: warmth,
        ..ring::Config::default()
    };
    let make = move || {
        if !cpus.is_empty() {
            // If this fails, the engine thread reports the error; memory from another node is slower but correct.
            let _ = sys::cpu::pin_to(cpus);
        }
        Producer::new(config)
    };
    std::thread::scope(|scope| scope.spawn(make).join())
        .map_err(|_| EngineError::Thread("making the ring panicked".into()))?
        .map_err(|e| EngineError::Ring(bytes, e))
}

/// Describes a ring in a text.
fn describe(offer: &OfferedRing) -> String {
    let memory = offer.memory.bytes();
    let locked = match (memory.is_lazy(), memory.locked()) {
        (true, _) => "made as it is written",
        (false, true) if !memory.is_prefaulted() => "being touched and locked",
        (false, true) => "locked",
        (false, false) => "not locked (CAP_IPC_LOCK, or a larger memlock limit)",
    };
    format!("{} in {}, {locked}", show_bytes(memory.len() as u64), memory.pages().name())
}

/// Returns the plan of the control socket beside the listeners' socket.
fn control_socket(listeners: &SocketPlan) -> ControlSocketPlan {
    let SocketPlan { path, mode, uid, gid, forward, .. } = listeners.clone();
    ControlSocketPlan { path: groups_socket(&path), mode, uid, gid, forward }
}

fn serve(plan: &SocketPlan, rings: Vec<OfferedRing>) -> Result<Server, EngineError> {
    let fail = |e| EngineError::Socket(plan.path.clone(), e);
    if let Some(folder) = plan.path.parent() {
        std::fs::create_dir_all(folder).map_err(fail)?;
    }
    let socket = sys::unix::Listener::bind(&plan.path, plan.mode, plan.uid, plan.gid).map_err(fail)?;
    Server::start(socket, rings, AttachPolicy { uid: plan.uid, gid: plan.gid, allow_lossless: plan.allow_lossless })
        .map_err(fail)
}

/// Counts an engine thread as running until dropped.
struct ThreadGuard(Arc<AtomicUsize>);

impl Drop for ThreadGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Opens a removed interface again when it is back, and passes the new sources to the waiting threads. The channel of a
/// thread whose queue did not come back is closed.
fn supervise(
    plan: SourcePlan,
    program: Option<Arc<InterfaceProgram>>,
    stop: Arc<AtomicBool>,
    gone: Receiver<u16>,
    mut returns: BTreeMap<u16, Sender<AnySource>>,
    alive: Arc<AtomicUsize>,
) -> Result<JoinHandle<()>, EngineError> {
    let watch = move || {
        let mut waiting: BTreeSet<u16> = BTreeSet::new();
        while !stop.load(Ordering::Relaxed) {
            if let Ok(queue) = gone.recv_timeout(RETURN_CHECK_INTERVAL) {
                waiting.insert(queue);
            }
            if let Some(program) = &program {
                program.maintain();
            }
            // Sources share one program and one fanout group, so they can only be opened again together.
            if waiting.is_empty() || waiting.len() < alive.load(Ordering::Acquire) {
                continue;
            }
            let Ok(sources) = plan.open() else { continue };
            if program.as_ref().is_some_and(|program| program.install(&sources).is_err()) {
                continue;
            }
            for source in sources {
                let queue = source.info().queue;
                if let Some(thread) = returns.get(&queue)
                    && source.begin().is_ok()
                    && thread.send(source).is_ok()
                {
                    waiting.remove(&queue);
                }
            }
            returns.retain(|queue, _| !waiting.contains(queue));
            waiting.clear();
        }
    };
    std::thread::Builder::new().name("supervisor".into()).spawn(watch).map_err(|e| EngineError::Thread(e.to_string()))
}

/// Returns the processors for this engine thread: the configured processor, else those of the interface's NUMA node.
fn processors(plan: &Plan, number: usize) -> Vec<usize> {
    if !plan.cpus.is_empty() {
        return vec![plan.cpus[number % plan.cpus.len()]];
    }
    match &plan.source {
        SourcePlan::Interface(i) => {
            sys::cpu::node_of_interface(&i.name).map(sys::cpu::cpus_of_node).unwrap_or_default()
        }
        _ => Vec::new(),
    }
}
