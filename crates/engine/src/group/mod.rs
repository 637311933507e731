//! Groups beside a capture: a dispatcher for each ring, the door through which others come, and the ports they forward to.
//!
//! Everything that decides is in the room `group`; here are its threads and what it borrows from the engine: programs
//! ([`language`], [`words`]), ports ([`port`]), and the answer whether the host can have a packet.

mod language;
mod port;
mod words;

use crate::error::EngineError;
use crate::plan::SocketPlan;
use group::{Compiled, Dispatcher, Door, Orders, Outside, PortCounts, Registry, Track};
use ring::{Branch, Offer, Policy};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Where the groups of an engine are asked for: beside the socket of its listeners, `/run/netgrain/NAME.groups`.
pub fn groups_socket(listeners: &Path) -> PathBuf {
    listeners.with_extension("groups")
}

/// The groups of a capture that runs.
pub(crate) struct Groups {
    door: Option<Door>,
    threads: Vec<JoinHandle<()>>,
    ports: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

/// How packets come to the rings, as far as groups have to know.
#[derive(Clone, Debug)]
pub(crate) struct Ground {
    /// The port's name.
    pub label: String,
    /// Whether there is room or not.
    pub live: bool,
    /// The host does not get what arrives: the port is taken for capture alone.
    pub dedicated: bool,
    /// The key of the flow hash.
    pub hash_key: u64,
}

impl Groups {
    /// Begins, with nobody in it.
    pub fn start(plan: &SocketPlan, rings: &[Offer], ground: Ground) -> Result<Self, EngineError> {
        let path = groups_socket(&plan.path);
        let fail = |e| EngineError::Socket(path.clone(), e);
        let (mut threads, mut tracks) = (Vec::new(), Vec::new());
        for offer in rings {
            let orders = Arc::<Orders>::default();
            let (memory, link_type) = (&offer.memory, offer.shape.link_type as u16);
            let dispatcher = Dispatcher::new(memory, &offer.hub, Arc::clone(&orders), link_type, ground.live);
            let thread = std::thread::Builder::new()
                .name(format!("groups-{}", offer.shape.queue))
                .spawn(move || dispatcher.run())
                .map_err(|e| EngineError::Thread(e.to_string()))?;
            threads.push(thread);
            tracks.push(Track { queue: offer.shape.queue, orders, offer: offer.clone() });
        }
        let ports = Arc::default();
        let lender = Lender { ground, ports: Arc::clone(&ports) };
        let registry = Arc::new(Registry::new(tracks, Box::new(lender), sys::cpu::effective_uid()));
        let socket = sys::unix::Listener::bind(&path, plan.mode, plan.uid, plan.gid).map_err(fail)?;
        let policy = Policy { uid: plan.uid, gid: plan.gid, gates: false };
        let door = Door::open(socket, registry, policy).map_err(fail)?;
        Ok(Self { door: Some(door), threads, ports })
    }

    /// Waits until the dispatchers have seen the end of their rings, then closes the door.
    pub fn wait(&mut self) -> Result<(), EngineError> {
        let mut outcome = Ok(());
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                outcome = Err(EngineError::Thread("a dispatcher of groups panicked".into()));
            }
        }
        // Ports end with their branches, which ended with the dispatchers.
        let ports = std::mem::take(&mut *self.ports.lock().unwrap_or_else(PoisonError::into_inner));
        for port in ports {
            let _ = port.join();
        }
        self.door = None;
        outcome
    }
}

struct Lender {
    ground: Ground,
    ports: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Outside for Lender {
    fn compile(&self, source: &str, link_type: u32) -> Result<Arc<dyn Compiled>, String> {
        let link_type = link_type as u16;
        if let Some(program) = words::parse(source, link_type)? {
            return Ok(program);
        }
        let (hash_key, port) = (self.ground.hash_key, self.ground.label.clone());
        language::compile(source, &language::Ground { link_type, hash_key, port })
    }

    fn open_port(&self, name: &str, branches: &[Branch]) -> Result<Arc<PortCounts>, String> {
        let (thread, counts) = port::open(name, branches)?;
        let mut ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        ports.retain(|p| !p.is_finished());
        ports.push(thread);
        Ok(counts)
    }

    fn kernel(&self) -> Result<(), String> {
        if self.ground.dedicated {
            return Err("this port is taken for capture alone, and nothing brings its packets back to the host; \
                        capture without --dedicated (--source-kind tpacket), then the host has them anyway"
                .into());
        }
        Ok(())
    }
}
