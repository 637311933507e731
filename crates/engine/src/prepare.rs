//! The start of captures. Everything is opened and allocated before the sources deliver the first frame.

use crate::capture::{Capture, Queue};
use crate::duplicates::InterfaceTables;
use crate::error::EngineError;
use crate::hash_key::hash_key;
use crate::plan::{Plan, SocketPlan, SourcePlan};
use crate::recording::{self, Recording};
use crate::recovery::RecoveryTask;
use crate::retention_report::RetentionHandle;
use crate::rings::{self, processors};
use crate::sizes::{self, Sizes};
use crate::supervisor::{ThreadGuard, supervise};
use crate::timestamp_choice;
use crate::volume::{self, SegmentSize};
use crate::worker::{Settings, Worker};
use crate::worker_links::WorkerLinks;
use capture::auto::SourceKind;
use capture::{AnySource, Source};
use filter::Filter;
use group::IngressInterface;
use group_services::{ControlSocketPlan, DispatcherSetup, GroupPlan, Groups, InterfaceSetup, groups_socket};
use interface_program::{Access, InterfaceProgram, ProgramContext, QueueInfo};
use meter::{Meter, QueueReader, Sink};
use ring::{AttachPolicy, OfferedRing, Producer, Server};
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::mpsc::channel;
use std::time::Instant;
use sys::clock::Clock;
use sys::cpu::Ticks;
use wire::link;

/// A capture that is prepared and does not receive frames yet.
pub struct PreparedCapture {
    // Fields are dropped in the order of their declaration. The threads are dropped before `capture`, because the drop
    // of `capture` waits until the producers in `threads` have ended the rings.
    threads: Vec<WorkerStart>,
    /// The setup for groups, if the capture can have groups.
    setup: Option<InterfaceSetup>,
    alive: Arc<AtomicUsize>,
    capture: Capture,
}

/// The parts from which an engine thread is started.
type WorkerStart = (AnySource, Producer, Clock, Settings, WorkerLinks);

impl Capture {
    /// Opens all parts of a capture and starts it.
    ///
    /// # Errors
    /// [`EngineError`]; everything opened before the error is closed again.
    pub fn start(plan: &Plan) -> Result<Self, EngineError> {
        Self::claimed(plan, &plan.store.as_ref().map(|store| store.dir.clone()), |_| Ok(Vec::new()))
    }

    /// Starts a capture with sinks for flow records and series rows. `store` is the store that contains the directory
    /// of this interface. The function first claims that directory, and then calls `sinks` with the interface's name to
    /// create the sinks.
    ///
    /// # Errors
    /// [`EngineError`]; everything opened before the error is closed again.
    pub fn claimed(
        plan: &Plan,
        store: &Option<PathBuf>,
        sinks: impl FnOnce(&str) -> Result<Vec<Box<dyn Sink>>, EngineError>,
    ) -> Result<Self, EngineError> {
        let mut started = Self::together(vec![Self::prepare(plan, store, sinks)?], &plan.groups)?;
        Ok(started.remove(0))
    }

    /// Opens all parts of a capture. [`Capture::together`] starts it.
    ///
    /// # Errors
    /// The same as those of [`Capture::claimed`].
    pub fn prepare(
        plan: &Plan,
        store: &Option<PathBuf>,
        sinks: impl FnOnce(&str) -> Result<Vec<Box<dyn Sink>>, EngineError>,
    ) -> Result<PreparedCapture, EngineError> {
        let filter = plan.filter.as_deref().map(Filter::parse).transpose().map_err(EngineError::Filter)?;
        let label = plan.source.label();
        let stop = Arc::new(AtomicBool::new(false));
        // The claim is taken before the interface is opened, because a second recorder must not disturb the first.
        let claim = store.as_ref().map(|dir| recording::claim(plan, dir, &label)).transpose()?;
        let source_plan = source_with_program(plan);
        let (sources, program) = open(plan, &source_plan, &label)?;
        let queues = sources.len() as u16;
        let SegmentSize { segment, warning } = volume::fit(plan, queues)?;
        let plan = &Plan { segment, ..plan.clone() };
        let sizes = Sizes::of(plan, queues)?;
        let mut capture = Capture {
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
            recovery: plan.store.as_ref().map(|store| RecoveryTask::start(&store.dir, &label)).unwrap_or_default(),
            meter: None,
            groups: None,
            program,
            segment,
            numa_cpus: sys::cpu::cpus_beside(&processors(plan, 0)),
        };
        capture.recovery.messages().add(warning);
        // All rings are prepared before the sources deliver frames: to touch and lock a ring takes longer than a busy
        // interface takes to fill a receive ring.
        let (more, options) = following_files(&plan.source);
        let (mut threads, mut readers, mut dispatchers) = (Vec::new(), Vec::new(), Vec::new());
        let mut returns = BTreeMap::new();
        let (gone, gone_queues) = channel();
        let tables = plan.duplicates.as_ref().map(|plan| InterfaceTables::new(plan, hash_key())).transpose()?;
        for (number, source) in sources.into_iter().enumerate() {
            let info = source.info().clone();
            let cpus = processors(plan, number);
            let mut producer = rings::producer(plan, &label, &info, &cpus, sizes)?;
            let clock = Clock::start();
            let recording = match &plan.store {
                Some(store) => Some(Recording::start(store, plan, &label, &info, &clock, queues, &mut producer)?),
                None => None,
            };
            if plan.meter.is_some() {
                readers.push(QueueReader::join(&mut producer, info.queue, info.link_type)?);
            }
            if plan.socket.is_some() || !plan.groups.is_empty() {
                let live = info.timestamp_source.is_live();
                dispatchers.push(DispatcherSetup::new(&mut producer, live, !plan.groups.is_empty())?);
            }
            let (status, ledger) = (Arc::default(), Arc::default());
            let (reopened, reopened_source) = channel();
            returns.insert(info.queue, reopened);
            let links = WorkerLinks {
                stop: Arc::clone(&stop),
                status: Arc::clone(&status),
                ledger: Arc::clone(&ledger),
                gone: gone.clone(),
                reopened_source,
                recorder: recording.as_ref().map(Recording::link),
            };
            let queue = QueueInfo {
                link_type: info.link_type,
                queue: info.queue,
                host_gets_all: access(&plan.source) == Access::Shared,
            };
            let program = capture.program.as_ref().map(|program| program.program_sequence(queue));
            let duplicates = tables.as_ref().map(InterfaceTables::queue);
            let settings = Settings {
                program: program.transpose()?,
                snaplen: plan.snaplen_in_force() as usize,
                filter: filter.clone(),
                duplicates: duplicates.transpose()?,
                hash_key: hash_key(),
                cpus,
                spin: plan.spin,
                timestamps: plan.timestamps,
                switch_timestamps: plan.switch_timestamps,
                packets: plan.packets,
                duration: plan.duration,
                more: more.clone(),
                options: options.clone(),
            };
            let (registry, offer) = (Arc::clone(producer.registry()), OfferedRing::of(&producer));
            capture.queues.push(Queue { info, registry, offer, status, ledger, worker: None, recording });
            threads.push((source, producer, clock, settings, links));
        }
        let live = capture.queues.iter().any(|q| q.info.timestamp_source.is_live());
        if let Some(meter) = &plan.meter {
            let sinks = sinks(&label)?;
            let mut meter = meter.clone();
            if let Some(flows) = &mut meter.flows {
                flows.capacity = sizes::flows_of(plan, flows.capacity);
            }
            capture.meter = Some(Meter::start(&meter, readers, sinks, live, plan.store.is_some())?);
        }
        // The reported duration of the capture begins only here, after the rings were prepared, because the preparation
        // of large rings takes long.
        (capture.started, capture.ticks) = (Instant::now(), Ticks::now());
        if let Some(socket) = &plan.socket {
            let rings: Vec<OfferedRing> = capture.queues.iter().map(|q| q.offer.clone()).collect();
            capture.server = Some(serve(socket, rings)?);
        }
        let setup = (!dispatchers.is_empty()).then(|| InterfaceSetup {
            source: IngressInterface {
                name: label.clone(),
                number: plan.meter.as_ref().map_or(0, |meter| meter.interface),
            },
            dedicated: access(&plan.source) == Access::Owned,
            live,
            socket: plan.socket.as_ref().map(control_socket),
            dispatchers,
        });
        let alive = Arc::new(AtomicUsize::new(threads.len()));
        if matches!(plan.source, SourcePlan::Interface(_)) {
            let (program, alive) = (capture.program.clone(), Arc::clone(&alive));
            capture.supervisor = Some(supervise(source_plan, program, stop, gone_queues, returns, alive)?);
        }
        Ok(PreparedCapture { capture, setup, threads, alive })
    }

    /// Starts all prepared captures, and creates the groups of the configuration. All captures are started in one call,
    /// because a group may read the packets of several interfaces.
    ///
    /// # Errors
    /// The same as those of [`Capture::claimed`].
    pub fn together(mut prepared: Vec<PreparedCapture>, groups: &[GroupPlan]) -> Result<Vec<Self>, EngineError> {
        let setups: Vec<InterfaceSetup> = prepared.iter_mut().filter_map(|one| one.setup.take()).collect();
        let groups = (!setups.is_empty()).then(|| Groups::start(setups, groups, hash_key())).transpose()?.map(Arc::new);
        prepared.into_iter().map(|prepared| prepared.begin(groups.clone())).collect()
    }
}

impl PreparedCapture {
    fn begin(self, groups: Option<Arc<Groups>>) -> Result<Capture, EngineError> {
        let Self { mut capture, threads, alive, .. } = self;
        capture.groups = groups;
        for ((source, producer, clock, settings, links), queue) in threads.into_iter().zip(&mut capture.queues) {
            source.begin()?;
            let guard = ThreadGuard(Arc::clone(&alive));
            let work = move || {
                let _guard = guard;
                Worker::new(source, producer, clock, settings, links).run()
            };
            let thread = std::thread::Builder::new().name(format!("engine-{}", queue.info.queue)).spawn(work);
            queue.worker = Some(thread.map_err(EngineError::Spawn)?);
        }
        if let Some(first) = capture.queues.first() {
            let (stop, status) = (Arc::clone(&capture.stop), Arc::clone(&first.status));
            rings::warm(capture.queues.iter().map(|q| &q.offer), capture.numa_cpus.clone(), stop, status)?;
        }
        (capture.started, capture.ticks) = (Instant::now(), Ticks::now());
        Ok(capture)
    }
}

/// Compiles the interface's program, opens the sources, and installs the program.
fn open(
    plan: &Plan,
    source_plan: &SourcePlan,
    label: &str,
) -> Result<(Vec<AnySource>, Option<Arc<InterfaceProgram>>), EngineError> {
    let compiled = |link_type| {
        let access = access(&plan.source);
        let context = ProgramContext { interface: label.to_owned(), access, link_type, hash_key: hash_key() };
        let compile = |program| InterfaceProgram::compile(program, context).map(Arc::new);
        plan.program.as_ref().map(compile).transpose()
    };
    // The program is compiled before the interface is opened, so that an error leaves the interface unchanged.
    let mut program = compiled(link::ETHERNET)?;
    let sources = source_plan.open()?;
    for source in &sources {
        timestamp_choice::batch_method(plan.timestamps, source.info())?;
    }
    // The link type is known only after the source is open; the program is compiled again for other links than
    // Ethernet.
    if let Some(other) = sources.iter().map(|s| s.info().link_type).find(|link| *link != link::ETHERNET) {
        program = compiled(other)?;
    }
    if let Some(program) = &program {
        program.install(&sources)?;
    }
    Ok((sources, program))
}

/// Returns the kind of the packets' origin: a dedicated interface, a shared interface, or a replay.
fn access(source: &SourcePlan) -> Access {
    match source {
        SourcePlan::Interface(interface) if interface.kind == SourceKind::AfXdp => Access::Owned,
        SourcePlan::Interface(_) => Access::Shared,
        _ => Access::Replayed,
    }
}

/// Returns the source plan with the options of the plan of the capture: the source requests the timestamps, and if a
/// program will run on the interface, the AF_XDP socket gets metadata space before each packet.
fn source_with_program(plan: &Plan) -> SourcePlan {
    let mut source = plan.source.clone();
    if let SourcePlan::Interface(interface) = &mut source {
        interface.afxdp.programmed = plan.program.is_some();
        interface.afxdp.timestamps = timestamp_choice::of_afxdp(plan.timestamps);
        interface.tpacket.timestamps = timestamp_choice::of_tpacket(plan.timestamps);
    }
    source
}

/// Returns the capture files of a replay after the first file, and the options for reading them.
fn following_files(source: &SourcePlan) -> (VecDeque<PathBuf>, capture::file::Options) {
    match source {
        SourcePlan::Files { paths, options, .. } => (paths.iter().skip(1).cloned().collect(), options.clone()),
        _ => (VecDeque::new(), capture::file::Options::default()),
    }
}

/// Returns the plan of the control socket, which is next to the listeners' socket.
fn control_socket(listeners: &SocketPlan) -> ControlSocketPlan {
    let SocketPlan { path, mode, uid, gid, forward, .. } = listeners.clone();
    ControlSocketPlan { path: groups_socket(&path), mode, uid, gid, forward }
}

fn serve(plan: &SocketPlan, rings: Vec<OfferedRing>) -> Result<Server, EngineError> {
    let fail = |e| EngineError::Socket(plan.path.clone(), e);
    if let Some(directory) = plan.path.parent() {
        std::fs::create_dir_all(directory).map_err(fail)?;
    }
    let socket = sys::unix::Listener::bind(&plan.path, plan.mode, plan.uid, plan.gid).map_err(fail)?;
    Server::start(socket, rings, AttachPolicy { uid: plan.uid, gid: plan.gid, allow_lossless: plan.allow_lossless })
        .map_err(fail)
}
