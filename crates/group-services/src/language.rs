//! Programs in the packet language. They run as machine code if the host permits executable memory. If the host does
//! not permit it, they are interpreted, with the same results.
//!
//! A program with flow maps has one worker for all queues of its group ([`crate::shared_worker`]). The NIC or the
//! kernel distributes packets over the queues without regard to the keys of the program's maps, and all packets with a
//! key must find the same map entry. A program without maps has a worker for each queue. These workers share only the
//! fragment tracking ([`FragmentTracker`]), because the fragments of a datagram may arrive on different queues and
//! interfaces. At a swap, the fragment tracking is transferred to the next program.

use crate::error::GroupProgramError;
use crate::instance::Instance;
use crate::map_capacity;
use crate::queue_context::QueueContext;
use crate::shared_worker::WorkerHandle;
use group::{Compiled, IngressInterface, Program, ProgramInfo, ServiceError};
use ir::{Effect, FragmentTracker, Prefix, Set};
use jit::state_transfer::{self, StateTransfer};
use jit::{Executable, Refusal, Worker};
use std::any::Any;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;
use sys::netlink::Netlink;

/// A program that passed all checks.
struct CompiledProgram {
    executable: Executable,
    text: String,
    /// The numbers by which the program's instructions refer to its counters.
    counters: Arc<[u8]>,
    /// The names of the program's counters, followed by the name of the counter of log lines.
    counter_names: Vec<String>,
    passes_to_host: bool,
    info: ProgramInfo,
    context: ProgramContext,
}

/// The name of the counter of log lines.
const LOGGED: &str = "logged";

/// The context in which a program runs.
#[derive(Clone, Debug)]
pub struct ProgramContext {
    /// The pcap link type of the frames.
    pub link_type: u16,
    /// The key of the flow hash, equal on all queues.
    pub hash_key: u64,
    /// The interfaces on which the frames were captured.
    pub from: Vec<IngressInterface>,
}

/// Compiles a program from its source.
///
/// # Errors
/// The source is not a valid program, or the program cannot run.
pub fn compile(source: &str, context: &ProgramContext) -> Result<Arc<dyn Compiled>, GroupProgramError> {
    let mut program = check_for(source, context.link_type)?;
    let passes_to_host = program.effects().has(Effect::Kernel);
    let partition_by = partition_keys(&program);
    let mut notes = Vec::new();
    if partition_by.len() > 1 {
        notes.push(
            "no single key fits all maps of the program; if members keep state by these keys, use a separate group for \
             each line of `partition_by`"
                .into(),
        );
    }
    if program.sets.contains(&Set::Host) {
        notes.push(set_host_addresses(&mut program, &context.from));
    }
    let counters = Vec::from_iter(program.counters());
    let begun = Instant::now();
    let (executable, reason) = match Executable::native(program.clone(), || begun.elapsed()) {
        Ok(executable) => (executable, None),
        Err(refusal) => {
            let executable = Executable::interpreted(program).map_err(GroupProgramError::Refused)?;
            (executable, Some(refusal.to_string()))
        }
    };
    let report = executable.report();
    let info = ProgramInfo {
        execution: if report.native { "native" } else { "interpreted" }.to_owned(),
        reason,
        compile_us: report.compile_time.as_micros() as u64,
        partition_by,
        notes,
    };
    Ok(Arc::new(CompiledProgram {
        executable,
        text: source.to_owned(),
        counter_names: counters.iter().map(u8::to_string).chain([LOGGED.to_owned()]).collect(),
        counters: counters.into(),
        passes_to_host,
        info,
        context: context.clone(),
    }))
}

/// Checks that a group can run this program.
///
/// # Errors
/// The same as those of [`compile`].
pub fn check(source: &str) -> Result<(), GroupProgramError> {
    check_for(source, wire::link::ETHERNET).map(drop)
}

/// Checks that a group can run this program on frames of this link type.
fn check_for(source: &str, link_type: u16) -> Result<ir::Program, GroupProgramError> {
    let program = lang::compile_for(source, link_type).map_err(|error| {
        let (line, column) = error.place(source);
        GroupProgramError::Language { error, line, column }
    })?;
    match program.program.egress_interfaces.len() {
        n if n > usize::from(u8::MAX) + 1 => Err(GroupProgramError::Interfaces(n)),
        _ => Ok(program.program),
    }
}

/// Returns the keys by which packets can be distributed over members so that no two members use the same map entry
/// ([`lang::clusters`]). Each key is followed by the names of the maps for which it is sufficient.
fn partition_keys(program: &ir::Program) -> Vec<String> {
    let name = |i: &usize| program.maps.get(*i).map(|m| m.name.as_str());
    let line = |(key, maps): (ir::Key, Vec<usize>)| {
        format!("{key} for {}", maps.iter().filter_map(name).collect::<Vec<_>>().join(", "))
    };
    lang::clusters(&[program]).into_iter().map(line).collect()
}

/// Replaces the set of this host's addresses by the current addresses of these interfaces. Returns a note that lists
/// them.
fn set_host_addresses(program: &mut ir::Program, from: &[IngressInterface]) -> String {
    let names: Vec<&str> = from.iter().map(|interface| interface.name.as_str()).collect();
    let addresses: Vec<IpAddr> = names.iter().flat_map(|name| addresses_of(name)).collect();
    let names = names.join(" and ");
    let note = match addresses.as_slice() {
        [] => format!(
            "{names} has no addresses, so no packet matches as a packet to this host; swap the program again when \
             addresses are assigned"
        ),
        some => format!(
            "the addresses of this host are {}; swap the program again when the addresses of {names} change",
            some.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", "),
        ),
    };
    let here = Set::of_prefixes(addresses.into_iter().filter_map(host_prefix));
    program.sets.iter_mut().filter(|set| **set == Set::Host).for_each(|set| set.clone_from(&here));
    note
}

/// Returns the current addresses of an interface; empty for a file.
fn addresses_of(interface: &str) -> Vec<IpAddr> {
    let addresses = || {
        let mut netlink = Netlink::route()?;
        let link = netlink.link(interface)?.index;
        let all = netlink.addresses()?;
        Ok::<_, std::io::Error>(all.into_iter().filter(|a| a.link == link).map(|a| a.ip).collect())
    };
    addresses().unwrap_or_default()
}

fn host_prefix(address: IpAddr) -> Option<Prefix> {
    Prefix::new(address, if address.is_ipv4() { 32 } else { 128 })
}

impl CompiledProgram {
    fn has_maps(&self) -> bool {
        !self.executable.program().maps.is_empty()
    }

    fn worker(&self, fragments: &Arc<FragmentTracker>) -> Result<Worker, Refusal> {
        self.executable.worker_among(self.context.hash_key, Arc::clone(fragments))
    }

    fn instances(&self, queues: &[IngressInterface], group: &str) -> Result<Vec<Box<dyn Program>>, Refusal> {
        let context = |interface: &IngressInterface| QueueContext {
            link_type: self.context.link_type,
            interface: interface.number,
            ingress: ingress(self.executable.program(), &interface.name),
            counters: Arc::clone(&self.counters),
            label: format!("group {group} at {}", interface.name).into(),
        };
        let fragments = Arc::new(FragmentTracker::new(self.context.hash_key));
        if self.has_maps() && queues.len() > 1 {
            let handles = WorkerHandle::of(queues.len(), self.worker(&fragments)?);
            let instances = queues.iter().zip(handles).map(|(queue, handle)| Instance::sharing(context(queue), handle));
            return Ok(instances.map(|instance| Box::new(instance) as Box<dyn Program>).collect());
        }
        let instance =
            |queue| Ok(Box::new(Instance::new(context(queue), self.worker(&fragments)?)) as Box<dyn Program>);
        queues.iter().map(instance).collect()
    }
}

/// Returns one plus the index of the interface among the program's egress interfaces; 0 if it is not among them.
fn ingress(program: &ir::Program, interface: &str) -> u16 {
    program.egress_interfaces.iter().position(|name| name == interface).map_or(0, |i| i as u16 + 1)
}

impl Compiled for CompiledProgram {
    fn instances(&self, queues: &[IngressInterface], group: &str) -> Result<Vec<Box<dyn Program>>, ServiceError> {
        self.instances(queues, group).map_err(ServiceError::new)
    }

    fn text(&self) -> &str {
        &self.text
    }

    fn headline(&self) -> &str {
        lang::headline(&self.text)
    }

    fn ports(&self) -> &[String] {
        &self.executable.program().egress_interfaces
    }

    fn counters(&self) -> &[String] {
        &self.counter_names
    }

    fn reads_direction(&self) -> bool {
        self.executable.program().reads_direction()
    }

    fn memory(&self) -> u64 {
        self.executable.memory()
    }

    fn advice(&self, bytes: u64) -> String {
        map_capacity::advice(&self.executable.program().maps, bytes)
    }

    fn state_transfer(&self, before: &dyn Compiled) -> Option<String> {
        let before: &dyn Any = before;
        // Only a program in the packet language has state to transfer; a shorthand program (`copy`, `steer`, `drop`)
        // has none.
        let before: &Self = before.downcast_ref()?;
        let (was, now) = (&before.executable, &self.executable);
        let wall = |_, _| state_transfer::changes_form(was.report().native, now.report().native);
        let transfer = StateTransfer::between(&was.program().maps, &now.program().maps, wall);
        (!transfer.is_empty()).then(|| transfer.to_string())
    }

    fn passes_to_host(&self) -> bool {
        self.passes_to_host
    }

    fn about(&self, queues: usize) -> ProgramInfo {
        let mut info = self.info.clone();
        if self.has_maps() && queues > 1 {
            info.notes.push(format!("the program has maps, so {queues} queues share one worker and use it in turn"));
        }
        info
    }
}
