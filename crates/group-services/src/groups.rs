//! The groups of a running engine: a dispatcher for each ring, and the control sockets.

use crate::error::GroupsError;
use crate::host_interface;
use crate::reconcile::{self, GroupPlan, ReconcileMessage};
use crate::services::{Resources, Services, lock};
use group::{CommandQueue, ControlServer, Dispatcher, GroupView, IngressInterface, Limits, Registry, RingHandle};
use ring::{AttachPolicy, OfferedRing, Producer};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// The limit of open files that an engine with groups requests. With this limit, the largest permitted number of
/// members can attach.
const OPEN_FILES: u64 = 1 << 16;

/// Returns the path of the control socket for groups, in the directory of the ring socket `listeners`:
/// `/run/netgrain/NAME.groups`.
pub fn groups_socket(listeners: &Path) -> PathBuf {
    listeners.with_extension("groups")
}

/// See the module documentation.
pub struct Groups {
    registry: Arc<Registry>,
    /// The control sockets for groups, at most one for each interface.
    servers: Mutex<Vec<ControlServer>>,
    /// The dispatcher threads, each with the name of its interface.
    threads: Mutex<Vec<(String, JoinHandle<()>)>>,
    resources: Arc<Resources>,
    plans: Mutex<Vec<GroupPlan>>,
}

/// The socket at which clients make requests about groups.
#[derive(Clone, Debug)]
pub struct ControlSocketPlan {
    /// The path.
    pub path: PathBuf,
    /// Permission bits of the socket.
    pub mode: u32,
    /// The owner of the socket.
    pub uid: Option<u32>,
    /// The group of the socket.
    pub gid: Option<u32>,
    /// The interfaces through which groups of other users than root and the engine's user may send packets. Groups of
    /// root and of the engine's user may send packets through all interfaces.
    pub forward: Vec<String>,
}

/// An interface that was opened but has captured no packet yet.
pub struct InterfaceSetup {
    /// The interface.
    pub source: IngressInterface,
    /// True if the interface is dedicated to capture, so that the host does not receive its packets.
    pub dedicated: bool,
    /// True if the source cannot wait until the ring has space (an interface cannot, a capture file can).
    pub live: bool,
    /// The control socket.
    pub socket: Option<ControlSocketPlan>,
    /// The dispatchers of the rings of this interface.
    pub dispatchers: Vec<DispatcherSetup>,
}

/// The dispatcher of a ring whose producer has not started yet.
pub struct DispatcherSetup {
    dispatcher: Dispatcher,
    commands: Arc<CommandQueue>,
    offer: OfferedRing,
}

impl DispatcherSetup {
    /// Creates the dispatcher. `live` is true if the source cannot wait until the ring has space. `now` is true if
    /// there are groups that must get the first packet; otherwise the dispatcher joins the ring when the first group is
    /// created.
    ///
    /// # Errors
    /// The dispatcher cannot join the ring.
    pub fn new(producer: &mut Producer, live: bool, now: bool) -> Result<Self, GroupsError> {
        let (commands, offer) = (Arc::<CommandQueue>::default(), OfferedRing::of(producer));
        let mut dispatcher = Dispatcher::new(&offer, Arc::clone(&commands), live);
        if now {
            dispatcher.join_ring(producer).map_err(GroupsError::Join)?;
        }
        Ok(Self { dispatcher, commands, offer })
    }
}

impl Groups {
    /// Starts the dispatchers, creates the groups of the configuration, and opens the control sockets. `hash_key` is
    /// the flow hash key of the rings.
    ///
    /// # Errors
    /// A thread cannot be created, a socket cannot be opened, or a group of a run that reads a capture file cannot be
    /// created.
    pub fn start(setups: Vec<InterfaceSetup>, plans: &[GroupPlan], hash_key: u64) -> Result<Self, GroupsError> {
        let dedicated = setups.iter().filter(|s| s.dedicated).map(|s| s.source.name.clone()).collect();
        let services = Services::new(hash_key, dedicated);
        let resources = services.resources();
        // Each member uses file descriptors. The usual limit of 1024 is meant for programs that use select(2).
        sys::limits::raise_open_files(OPEN_FILES);
        let ports = setups.iter().filter_map(|s| s.socket.as_ref()).flat_map(|plan| plan.forward.clone()).collect();
        let limits = Limits { ports, ..Limits::here() };
        let live = setups.iter().any(|s| s.live);
        if live {
            host_interface::sweep().into_iter().for_each(|message| resources.warn(message));
        }
        let (mut rings, mut dispatchers, mut sockets) = (Vec::new(), Vec::new(), Vec::new());
        for InterfaceSetup { source, socket, dispatchers: of_rings, .. } in setups {
            for DispatcherSetup { dispatcher, commands, offer } in of_rings {
                dispatchers.push((source.name.clone(), offer.shape.queue, dispatcher));
                rings.push(RingHandle { source: source.clone(), queue: offer.shape.queue, commands, offer });
            }
            sockets.extend(socket.map(|socket| (source.name, socket)));
        }
        let registry = Registry::new(rings, Box::new(services), sys::cpu::effective_uid()).with_limits(limits);
        let registry = Arc::new(registry);
        // The groups are created before the dispatchers run, because a dispatcher without a group leaves the ring.
        let mut messages = Vec::new();
        let created = reconcile::create(&registry, plans, &mut messages);
        let mut threads = Vec::new();
        for (interface, queue, dispatcher) in dispatchers {
            let thread = std::thread::Builder::new().name(format!("groups-{queue}")).spawn(move || dispatcher.run());
            threads.push((interface, thread.map_err(GroupsError::Thread)?));
        }
        let active = reconcile::attach(&registry, created, &mut messages);
        for message in messages {
            match message {
                // Live packets cannot be captured again, so an error in a group must not end the capture.
                Err(e) if !live => return Err(GroupsError::Plan(e)),
                Err(e) => resources.warn(format!("{e}; the capture and other groups continue; SIGHUP tries again")),
                Ok(text) => resources.warn(text),
            }
        }
        let open = |(interface, plan): (String, ControlSocketPlan)| {
            let fail = |e| GroupsError::Socket(plan.path.clone(), e);
            let socket = sys::unix::Listener::bind(&plan.path, plan.mode, plan.uid, plan.gid).map_err(fail)?;
            let policy = AttachPolicy { uid: plan.uid, gid: plan.gid, allow_lossless: false };
            ControlServer::open(socket, Arc::clone(&registry), &interface, policy).map_err(fail)
        };
        let servers = Mutex::new(sockets.into_iter().map(open).collect::<Result<_, _>>()?);
        Ok(Self { registry, servers, threads: Mutex::new(threads), resources, plans: Mutex::new(active) })
    }

    /// Changes the groups of the configuration to these plans; unchanged programs continue to run. Returns messages
    /// about successful and failed changes.
    pub fn reconcile(&self, plans: &[GroupPlan]) -> Vec<ReconcileMessage> {
        let mut current = lock(&self.plans);
        let (messages, active) = reconcile::change(&self.registry, &current, plans);
        *current = active;
        messages
    }

    /// Returns the warnings of the sinks.
    pub fn warnings(&self) -> Vec<String> {
        self.resources.warnings()
    }

    /// True if this interface reports what concerns all groups together, such as the warnings of the sinks, because it
    /// is the first interface of the engine.
    pub fn are_reported_at(&self, interface: &str) -> bool {
        self.registry.sources().first().is_some_and(|first| first.name == interface)
    }

    /// Returns all groups with their accounting.
    pub fn views(&self) -> Vec<GroupView> {
        self.registry.view(self.registry.engine(), None, None).unwrap_or_default()
    }

    /// Returns the groups that this interface reports as JSON objects (`docs/reference/groups.md`).
    pub fn objects(&self, interface: &str) -> Vec<serde_json::Value> {
        self.views().iter().filter(|view| is_reported_at(view, interface)).map(GroupView::object).collect()
    }

    /// Waits until the dispatchers of an interface have reached the end of their rings. The call for the last interface
    /// also closes the control sockets. A second call for an interface does nothing.
    ///
    /// # Errors
    /// A dispatcher panicked.
    pub fn wait(&self, interface: &str) -> Result<(), GroupsError> {
        let mut outcome = Ok(());
        let ending: Vec<_> = lock(&self.threads).extract_if(.., |(of, _)| of == interface).collect();
        for (_, thread) in ending {
            // A dispatcher without a group sleeps long; it must see the end of the ring now.
            thread.thread().unpark();
            if thread.join().is_err() {
                outcome = Err(GroupsError::Panicked);
            }
        }
        if !lock(&self.threads).is_empty() {
            return outcome;
        }
        self.resources.join_sinks();
        lock(&self.servers).clear();
        self.resources.remove_host_interfaces();
        outcome
    }
}

/// True if this interface reports the group, because it is the first of the group's interfaces.
pub fn is_reported_at(view: &GroupView, interface: &str) -> bool {
    view.sources.first().is_some_and(|first| first == interface)
}
