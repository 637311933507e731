//! The groups of a capture: a dispatcher for each ring, the control sockets, and the engine's services to groups.
//!
//! The crate `group` makes all decisions. This module has the threads and implements the services: programs
//! ([`language`], [`shorthand`]), filters ([`compile_filter`]), interfaces and files as sinks, and the interface to the
//! host.

mod host_interface;
mod language;
mod log_limiter;
mod map_capacity;
mod member_filter;
mod reconcile;
mod shared;
mod shorthand;
mod sink;

pub(crate) use language::knows_direction;
pub use reconcile::{GroupPlan, MemberPlan, ReconcileMessages};

use crate::error::EngineError;
use crate::plan::SocketPlan;
use group::{
    CommandQueue, Compiled, ControlServer, Dispatcher, EngineServices, GroupView, IngressInterface, Limits,
    MemberFilter, PacketSink, Registry, RingHandle, ServiceError, SinkCounts,
};
use host_interface::HostInterface;
use ring::{AttachPolicy, Branch, OfferedRing, Producer};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Limit of open files that an engine with groups requests: enough for the largest number of members.
const OPEN_FILES: u64 = 1 << 16;

/// Returns the path of the groups' control socket beside the listeners' socket: `/run/netgrain/NAME.groups`.
pub fn groups_socket(listeners: &Path) -> PathBuf {
    listeners.with_extension("groups")
}

/// Returns the engine's services to groups, for measurements of groups without an engine.
pub fn lent_to_groups(hash_key: u64) -> Box<dyn EngineServices> {
    Box::new(Lender { hash_key, dedicated: Vec::new(), lent: Arc::default() })
}

/// Checks whether a group can run this program.
///
/// # Errors
/// One line: the position, the error and the correction.
pub fn check_group_program(source: &str) -> Result<(), String> {
    match shorthand::parse(source, wire::link::ETHERNET)? {
        Some(_) => Ok(()),
        None => language::check(source).map(drop),
    }
}

/// The groups of a running engine.
pub(crate) struct Groups {
    registry: Arc<Registry>,
    /// One control socket for each interface that has one.
    doors: Mutex<Vec<ControlServer>>,
    /// The dispatcher threads, each with the name of its interface.
    threads: Mutex<Vec<(String, JoinHandle<()>)>>,
    lent: Arc<LentResources>,
    plans: Mutex<Vec<GroupPlan>>,
}

/// An interface before its first packet.
pub(crate) struct PortSetup {
    /// The interface.
    pub source: IngressInterface,
    /// True if the interface is dedicated to capture, so that the host does not receive its packets.
    pub dedicated: bool,
    /// True if the source cannot wait for the ring.
    pub live: bool,
    /// The socket for clients.
    pub socket: Option<SocketPlan>,
    /// The dispatchers of its rings.
    pub dispatchers: Vec<DispatcherSetup>,
}

/// A ring's dispatcher before the producer starts.
pub(crate) struct DispatcherSetup {
    dispatcher: Dispatcher,
    orders: Arc<CommandQueue>,
    offer: OfferedRing,
}

impl DispatcherSetup {
    /// `live` means that the source cannot wait for the ring. `now` means that groups exist before the first packet and
    /// must get it; otherwise the dispatcher joins the ring with its first group.
    pub fn take(producer: &mut Producer, live: bool, now: bool) -> Result<Self, EngineError> {
        let (orders, offer) = (Arc::<CommandQueue>::default(), OfferedRing::of(producer));
        let mut dispatcher = Dispatcher::new(&offer, Arc::clone(&orders), live);
        if now {
            dispatcher.join_ring(producer).map_err(|e| EngineError::Group(format!("no gate for groups: {e}")))?;
        }
        Ok(Self { dispatcher, orders, offer })
    }
}

impl Groups {
    /// Starts with the groups of the configuration, and opens the control sockets. `hash_key` is that of the rings.
    pub fn start(stands: Vec<PortSetup>, plans: &[GroupPlan], hash_key: u64) -> Result<Self, EngineError> {
        let lent = Arc::<LentResources>::default();
        let dedicated = stands.iter().filter(|s| s.dedicated).map(|s| s.source.name.clone()).collect();
        let lender = Lender { hash_key, dedicated, lent: Arc::clone(&lent) };
        // Members cost file descriptors; the usual limit of 1024 is meant for programs that use select(2).
        sys::limits::raise_open_files(OPEN_FILES);
        let ports = stands.iter().filter_map(|s| s.socket.as_ref()).flat_map(|plan| plan.forward.clone()).collect();
        let limits = Limits { ports, ..Limits::here() };
        let live = stands.iter().any(|s| s.live);
        if live {
            host_interface::sweep().into_iter().for_each(|said| lent.remark(said));
        }
        let (mut tracks, mut dispatchers, mut sockets) = (Vec::new(), Vec::new(), Vec::new());
        for PortSetup { source, socket, dispatchers: seats, .. } in stands {
            for DispatcherSetup { dispatcher, orders, offer } in seats {
                dispatchers.push((source.name.clone(), offer.shape.queue, dispatcher));
                tracks.push(RingHandle { source: source.clone(), queue: offer.shape.queue, commands: orders, offer });
            }
            sockets.extend(socket.map(|socket| (source.name, socket)));
        }
        let registry = Registry::new(tracks, Box::new(lender), sys::cpu::effective_uid()).with_limits(limits);
        let registry = Arc::new(registry);
        // Before the dispatchers run: a dispatcher without a group leaves the ring.
        let mut said = Vec::new();
        let there = reconcile::create(&registry, plans, &mut said);
        let mut threads = Vec::new();
        for (port, queue, dispatcher) in dispatchers {
            let thread = std::thread::Builder::new().name(format!("groups-{queue}")).spawn(move || dispatcher.run());
            threads.push((port, thread.map_err(|e| EngineError::Thread(e.to_string()))?));
        }
        let there = reconcile::attach(&registry, there, &mut said);
        for what in said {
            match what {
                // Live packets cannot be captured again, so an error in a group must not stop the recording.
                Err(why) if !live => return Err(EngineError::Group(why)),
                Err(why) => lent.remark(format!("{why}; everything else runs, and SIGHUP tries this again")),
                Ok(text) => lent.remark(text),
            }
        }
        let open = |(port, plan): (String, SocketPlan)| {
            let path = groups_socket(&plan.path);
            let fail = |e| EngineError::Socket(path.clone(), e);
            let socket = sys::unix::Listener::bind(&path, plan.mode, plan.uid, plan.gid).map_err(fail)?;
            let policy = AttachPolicy { uid: plan.uid, gid: plan.gid, allow_lossless: false };
            ControlServer::open(socket, Arc::clone(&registry), &port, policy).map_err(fail)
        };
        let doors = Mutex::new(sockets.into_iter().map(open).collect::<Result<_, _>>()?);
        Ok(Self { registry, doors, threads: Mutex::new(threads), lent, plans: Mutex::new(there) })
    }

    /// Changes the groups of the configuration to these plans; unchanged programs continue. Returns messages about
    /// successes and failures.
    pub fn reconcile(&self, plans: &[GroupPlan]) -> Vec<ReconcileMessages> {
        let mut now = held(&self.plans);
        let (said, in_force) = reconcile::change(&self.registry, &now, plans);
        *now = in_force;
        said
    }

    /// Returns the warnings of the sinks.
    pub fn warnings(&self) -> Vec<String> {
        held(&self.lent.remarks).clone()
    }

    /// True if this interface reports all groups.
    pub fn serve_groups(&self, port: &str) -> bool {
        self.registry.sources().first().is_some_and(|first| first.name == port)
    }

    /// Returns all groups with their accounting.
    pub fn views(&self) -> Vec<GroupView> {
        self.registry.view(self.registry.engine(), None, None).unwrap_or_default()
    }

    /// Returns the groups whose first interface this is, as objects (`docs/reference/groups.md`).
    pub fn books(&self, port: &str) -> Vec<serde_json::Value> {
        self.views().iter().filter(|view| is_served_at(view, port)).map(GroupView::object).collect()
    }

    /// Waits until the dispatchers of an interface have reached the end of their rings; after the last interface it
    /// closes the control sockets. A second call does nothing.
    pub fn wait(&self, port: &str) -> Result<(), EngineError> {
        let mut outcome = Ok(());
        let ending: Vec<_> = held(&self.threads).extract_if(.., |(of, _)| of == port).collect();
        for (_, thread) in ending {
            if thread.join().is_err() {
                outcome = Err(EngineError::Thread("a dispatcher of groups panicked".into()));
            }
        }
        if !held(&self.threads).is_empty() {
            return outcome;
        }
        // The branches of the sinks ended with the dispatchers, so the sinks end too.
        for egress in std::mem::take(&mut *held(&self.lent.sinks)) {
            let _ = egress.join();
        }
        held(&self.doors).clear();
        held(&self.lent.hosts).clear();
        outcome
    }
}

/// True if this interface reports the group: the first of the group's interfaces.
pub(crate) fn is_served_at(view: &GroupView, port: &str) -> bool {
    view.sources.first().is_some_and(|first| first == port)
}

/// Locks; these mutexes protect lists that a panic does not leave inconsistent.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Resources opened for groups, which must be closed at the end.
#[derive(Default)]
struct LentResources {
    sinks: Mutex<Vec<JoinHandle<()>>>,
    /// The host interfaces, by captured interface.
    hosts: Mutex<BTreeMap<String, HostInterface>>,
    remarks: sink::Warnings,
}

impl LentResources {
    fn remark(&self, text: String) {
        held(&self.remarks).push(text);
    }
}

struct Lender {
    /// The flow hash key of all rings.
    hash_key: u64,
    /// Interfaces whose packets the host does not receive.
    dedicated: Vec<String>,
    lent: Arc<LentResources>,
}

impl EngineServices for Lender {
    fn compile(
        &self,
        text: &str,
        link_type: u32,
        from: &[IngressInterface],
    ) -> Result<Arc<dyn Compiled>, ServiceError> {
        let link_type = link_type as u16;
        if let Some(program) = shorthand::parse(text, link_type)? {
            return Ok(program);
        }
        let context = language::ProgramContext { link_type, hash_key: self.hash_key, from: from.to_vec() };
        Ok(language::compile(text, &context)?)
    }

    fn compile_filter(&self, text: &str, link_type: u32) -> Result<Arc<dyn MemberFilter>, ServiceError> {
        Ok(member_filter::of(text, link_type as u16)?)
    }

    fn open(
        &self,
        to: &PacketSink,
        branches: &[(&IngressInterface, &Branch)],
        outgoing: bool,
    ) -> Result<Arc<SinkCounts>, ServiceError> {
        // Packets for the host interface are sent into the other end of its veth pair.
        let entrance = held(&self.lent.hosts).values().find_map(|host| host.entrance_of(to));
        let own =
            sink::OwnTraffic { ports: branches.iter().map(|(source, _)| source.name.as_str()).collect(), outgoing };
        let branches: Vec<&Branch> = branches.iter().map(|(_, branch)| *branch).collect();
        let (thread, counts) = sink::open(entrance.as_ref().unwrap_or(to), &branches, &own, &self.lent.remarks)?;
        let mut sinks = held(&self.lent.sinks);
        sinks.retain(|o| !o.is_finished());
        sinks.push(thread);
        Ok(counts)
    }

    fn shuts_host_out(&self, port: &IngressInterface) -> bool {
        self.dedicated.contains(&port.name)
    }

    fn host(&self, port: &IngressInterface) -> Result<Option<String>, ServiceError> {
        if !self.shuts_host_out(port) {
            return Ok(None);
        }
        let mut hosts = held(&self.lent.hosts);
        if !hosts.contains_key(&port.name) {
            hosts.insert(port.name.clone(), HostInterface::open(&port.name)?);
        }
        Ok(hosts.get(&port.name).map(|host| host.name.clone()))
    }
}
