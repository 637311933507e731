//! The services that the engine provides to its groups, and the resources that are opened for groups.

use crate::host_interface::HostInterface;
use crate::{language, member_filter, shorthand, sink};
use group::{Compiled, EngineServices, IngressInterface, MemberFilter, PacketSink, ServiceError, SinkCounts};
use ring::Branch;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Creates the services of an engine without dedicated interfaces, for groups without a running engine.
pub fn standalone_services(hash_key: u64) -> Box<dyn EngineServices> {
    Box::new(Services::new(hash_key, Vec::new()))
}

/// See the module documentation.
pub struct Services {
    /// The flow hash key of all rings.
    hash_key: u64,
    /// Names of the interfaces whose packets the host does not receive.
    dedicated: Vec<String>,
    resources: Arc<Resources>,
}

/// Resources that were opened for groups, and must be closed at the end of the capture.
#[derive(Default)]
pub struct Resources {
    sinks: Mutex<Vec<JoinHandle<()>>>,
    /// The host interfaces, by captured interface.
    host_interfaces: Mutex<BTreeMap<String, HostInterface>>,
    warnings: sink::Warnings,
}

impl Resources {
    /// Adds a warning.
    pub fn warn(&self, text: String) {
        lock(&self.warnings).push(text);
    }

    /// Returns the warnings, in order.
    pub fn warnings(&self) -> Vec<String> {
        lock(&self.warnings).clone()
    }

    /// Waits until the sink threads end; their branches must have ended.
    pub fn join_sinks(&self) {
        for sink in std::mem::take(&mut *lock(&self.sinks)) {
            let _ = sink.join();
        }
    }

    /// Removes the host interfaces.
    pub fn remove_host_interfaces(&self) {
        lock(&self.host_interfaces).clear();
    }
}

impl Services {
    /// Creates the services. `dedicated` are the interfaces whose packets the host does not receive.
    pub fn new(hash_key: u64, dedicated: Vec<String>) -> Self {
        Self { hash_key, dedicated, resources: Arc::default() }
    }

    /// Returns the resources that were opened for groups. They exist longer than the services.
    pub fn resources(&self) -> Arc<Resources> {
        Arc::clone(&self.resources)
    }
}

impl EngineServices for Services {
    fn compile(
        &self,
        text: &str,
        link_type: u32,
        from: &[IngressInterface],
    ) -> Result<Arc<dyn Compiled>, ServiceError> {
        let link_type = link_type as u16;
        let context = language::ProgramContext { link_type, hash_key: self.hash_key, from: from.to_vec() };
        match shorthand::parse(text, link_type) {
            Ok(Some(program)) => Ok(program),
            Ok(None) => language::compile(text, &context).map_err(ServiceError::new),
            Err(e) => Err(ServiceError::new(e)),
        }
    }

    fn compile_filter(&self, text: &str, link_type: u32) -> Result<Arc<dyn MemberFilter>, ServiceError> {
        member_filter::compile(text, link_type as u16).map_err(|e| ServiceError::from(format!("filter: {e}")))
    }

    fn open(
        &self,
        to: &PacketSink,
        branches: &[(&IngressInterface, &Branch)],
        outgoing: bool,
    ) -> Result<Arc<SinkCounts>, ServiceError> {
        // Packets for the host interface are sent into the engine's end of the veth pair.
        let entrance = lock(&self.resources.host_interfaces).values().find_map(|host| host.entrance_of(to));
        let interfaces = branches.iter().map(|(source, _)| source.name.as_str()).collect();
        let own = sink::OwnTraffic { interfaces, outgoing };
        let branches: Vec<&Branch> = branches.iter().map(|(_, branch)| *branch).collect();
        let to = entrance.as_ref().unwrap_or(to);
        let opened = sink::open(to, &branches, &own, &self.resources.warnings);
        let (thread, counts) = opened.map_err(ServiceError::new)?;
        let mut sinks = lock(&self.resources.sinks);
        sinks.retain(|sink| !sink.is_finished());
        sinks.push(thread);
        Ok(counts)
    }

    fn is_dedicated(&self, interface: &IngressInterface) -> bool {
        self.dedicated.contains(&interface.name)
    }

    fn host(&self, interface: &IngressInterface) -> Result<Option<String>, ServiceError> {
        if !self.is_dedicated(interface) {
            return Ok(None);
        }
        let mut hosts = lock(&self.resources.host_interfaces);
        if !hosts.contains_key(&interface.name) {
            let host = HostInterface::open(&interface.name).map_err(ServiceError::new)?;
            hosts.insert(interface.name.clone(), host);
        }
        Ok(hosts.get(&interface.name).map(|host| host.name.clone()))
    }
}

/// Locks a mutex even after a panic of another thread. These mutexes protect lists, which a panic does not leave
/// inconsistent.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
