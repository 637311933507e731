//! Groups beside a capture: a dispatcher for each ring, the door through which others come, and what the engine does itself
//! with a group's packets.
//!
//! Everything that decides is in the room `group`; here are its threads and what it borrows from the engine: programs
//! ([`language`], [`words`]), filters ([`sieve`]), ports and files ([`outlet`]), and the way back to the host ([`host`]).

mod diary;
mod host;
mod language;
mod outlet;
mod settle;
mod shared;
mod sieve;
mod words;

pub(crate) use language::knows_direction;
pub(crate) use outlet::Remarks;
pub use settle::{GroupPlan, MemberPlan, Settled};

use crate::error::EngineError;
use crate::plan::SocketPlan;
use group::{Compiled, Dispatcher, Door, Limits, Orders, Outlet, Outside, PortCounts, Registry, Sieve, Syntax, Track};
use host::Host;
use ring::{Branch, Offer, Policy, Producer};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Files that an engine with groups may have open, if it is let: enough for as many members as there can be.
const OPEN_FILES: u64 = 1 << 16;

/// Where the groups of an engine are asked for: beside the socket of its listeners, `/run/netgrain/NAME.groups`.
pub fn groups_socket(listeners: &Path) -> PathBuf {
    listeners.with_extension("groups")
}

/// What an engine lends to the groups of a port, for those who measure groups without an engine.
pub fn lent_to_groups(port: &str, hash_key: u64) -> Box<dyn Outside> {
    let ground = Ground { label: port.to_owned(), number: 0, dedicated: false, hash_key };
    Box::new(Lender { ground, lent: Arc::default() })
}

/// Whether a group could run this program.
///
/// # Errors
/// In one line: where, what, and what to write instead.
pub fn check_group_program(source: &str) -> Result<(), String> {
    match words::parse(source, wire::link::ETHERNET)? {
        Some(_) => Ok(()),
        None => language::check(source).map(drop),
    }
}

/// The groups of a capture that runs.
pub(crate) struct Groups {
    registry: Arc<Registry>,
    door: Option<Door>,
    threads: Vec<JoinHandle<()>>,
    lent: Arc<Lent>,
    plans: Mutex<Vec<GroupPlan>>,
}

/// How packets come to the rings, as far as groups have to know.
#[derive(Clone, Debug)]
pub(crate) struct Ground {
    /// The port's name.
    pub label: String,
    /// And its number, in records and rows.
    pub number: u16,
    /// The host does not get what arrives: the port is taken for capture alone.
    pub dedicated: bool,
    /// The key of the flow hash.
    pub hash_key: u64,
}

/// A ring's dispatcher, before its writer begins.
pub(crate) struct Seat {
    dispatcher: Dispatcher,
    track: Track,
}

impl Seat {
    /// `live`: packets come whether there is room or not. `now`: there will be groups before the first packet, and they are
    /// to get it; else the dispatcher joins the ring with its first group.
    pub fn take(producer: &mut Producer, live: bool, now: bool) -> Result<Self, EngineError> {
        let (orders, offer) = (Arc::<Orders>::default(), Offer::of(producer));
        let mut dispatcher = Dispatcher::new(&offer, Arc::clone(&orders), live);
        if now {
            dispatcher.seat(producer).map_err(|e| EngineError::Group(format!("no gate for groups: {e}")))?;
        }
        Ok(Self { dispatcher, track: Track { queue: offer.shape.queue, orders, offer } })
    }
}

impl Groups {
    /// Begins with the groups that are planned; with a socket, others may come.
    pub fn start(
        socket: Option<&SocketPlan>,
        plans: &[GroupPlan],
        seats: Vec<Seat>,
        ground: Ground,
    ) -> Result<Self, EngineError> {
        let (dispatchers, tracks): (Vec<_>, Vec<_>) = seats.into_iter().map(|s| (s.dispatcher, s.track)).unzip();
        let queues: Vec<u16> = tracks.iter().map(|t| t.queue).collect();
        let lent = Arc::<Lent>::default();
        let lender = Lender { ground, lent: Arc::clone(&lent) };
        // Members cost descriptors, and the usual limit is meant for programs that use select(2).
        sys::limits::raise_open_files(OPEN_FILES);
        let ports = socket.map(|plan| plan.forward.clone()).unwrap_or_default();
        let limits = Limits { ports, ..Limits::here() };
        let registry = Registry::new(tracks, Box::new(lender), sys::cpu::effective_uid()).with_limits(limits);
        let registry = Arc::new(registry);
        // Before the dispatchers work: one that finds no group gives its place at the ring up.
        settle::create(&registry, plans)?;
        let mut threads = Vec::new();
        for (dispatcher, queue) in dispatchers.into_iter().zip(queues) {
            let thread = std::thread::Builder::new().name(format!("groups-{queue}")).spawn(move || dispatcher.run());
            threads.push(thread.map_err(|e| EngineError::Thread(e.to_string()))?);
        }
        settle::attach(&registry, plans)?;
        let open = |plan: &SocketPlan| {
            let path = groups_socket(&plan.path);
            let fail = |e| EngineError::Socket(path.clone(), e);
            let socket = sys::unix::Listener::bind(&path, plan.mode, plan.uid, plan.gid).map_err(fail)?;
            let policy = Policy { uid: plan.uid, gid: plan.gid, gates: false };
            Door::open(socket, Arc::clone(&registry), policy).map_err(fail)
        };
        let door = socket.map(open).transpose()?;
        Ok(Self { registry, door, threads, lent, plans: Mutex::new(plans.to_vec()) })
    }

    /// Makes the planned groups what they are planned to be now; programs that did not change run on. Says what it did and could not do.
    pub fn settle(&self, plans: &[GroupPlan]) -> Vec<Settled> {
        let mut now = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let (said, in_force) = settle::change(&self.registry, &now, plans);
        *now = in_force;
        said
    }

    /// What a person should know of what the engine does with a group's packets.
    pub fn remarks(&self) -> Remarks {
        Arc::clone(&self.lent.remarks)
    }

    /// What became of all packets, as objects (`docs/GROUPS.md`).
    pub fn books(&self) -> Vec<serde_json::Value> {
        let views = self.registry.view(self.registry.engine(), None).unwrap_or_default();
        views.iter().map(group::GroupView::object).collect()
    }

    /// Waits until the dispatchers have seen the end of their rings, then closes the door.
    pub fn wait(&mut self) -> Result<(), EngineError> {
        let mut outcome = Ok(());
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                outcome = Err(EngineError::Thread("a dispatcher of groups panicked".into()));
            }
        }
        // Outlets end with their branches, which ended with the dispatchers.
        for outlet in std::mem::take(&mut *self.lent.outlets()) {
            let _ = outlet.join();
        }
        self.door = None;
        *self.lent.host() = None;
        outcome
    }
}

/// What has been lent and must be taken back.
#[derive(Default)]
struct Lent {
    outlets: Mutex<Vec<JoinHandle<()>>>,
    host: Mutex<Option<Host>>,
    remarks: outlet::Remarks,
}

impl Lent {
    fn outlets(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.outlets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn host(&self) -> MutexGuard<'_, Option<Host>> {
        self.host.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Lender {
    ground: Ground,
    lent: Arc<Lent>,
}

impl Outside for Lender {
    fn compile(&self, source: &str, link_type: u32) -> Result<Arc<dyn Compiled>, String> {
        let link_type = link_type as u16;
        if let Some(program) = words::parse(source, link_type)? {
            return Ok(program);
        }
        let Ground { hash_key, number, .. } = self.ground;
        let port = self.ground.label.clone();
        language::compile(source, &language::Ground { link_type, hash_key, port, number })
    }

    fn sieve(&self, text: &str, syntax: Syntax, link_type: u32) -> Result<Arc<dyn Sieve>, String> {
        sieve::of(text, syntax, link_type as u16)
    }

    fn open(&self, to: &Outlet, branches: &[Branch], outgoing: bool) -> Result<Arc<PortCounts>, String> {
        // What is for the host's device is sent into its other end.
        let entrance = self.lent.host().as_ref().and_then(|host| host.entrance_of(to));
        let own = outlet::Own { port: &self.ground.label, outgoing };
        let (thread, counts) = outlet::open(entrance.as_ref().unwrap_or(to), branches, &own, &self.lent.remarks)?;
        let mut outlets = self.lent.outlets();
        outlets.retain(|o| !o.is_finished());
        outlets.push(thread);
        Ok(counts)
    }

    fn shuts_host_out(&self) -> bool {
        self.ground.dedicated
    }

    fn host(&self) -> Result<Option<String>, String> {
        if !self.ground.dedicated {
            return Ok(None);
        }
        let mut host = self.lent.host();
        if host.is_none() {
            *host = Some(Host::open(&self.ground.label)?);
        }
        Ok(host.as_ref().map(|host| host.name.clone()))
    }
}
