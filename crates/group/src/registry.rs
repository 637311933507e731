//! The registry of an engine's groups, with their names, owners, members and programs. The registry prepares each
//! change and sends it to the dispatchers as [`DispatcherCommand`]s. `join.rs` has the operations on members.
//!
//! Invariant: the registry sends a command only after all checks have succeeded. A program that does not compile, or
//! that needs an interface that cannot be opened, changes nothing, and the previous program continues to run.

use crate::counts::{ClosedSinkTotals, ReaderCounts};
use crate::dispatch::{DispatcherCommand, SwapResult};
use crate::engine_services::{EngineServices, PacketSink, RingHandle};
use crate::entry::{ClientIdentity, DispatcherAccounting, EgressPort, Entry, GroupView};
use crate::error::{PermissionError, RequestError};
use crate::group::{Group, GroupAccounting, Port, Swap};
use crate::ingress_interface::IngressInterface;
use crate::limits::{BRANCH_DESCS, GROUPS, Limits};
use crate::members::Membership;
use crate::request::{NAME_MAX, PROGRAM_MAX, Policy, Request, encoded_bytes};
use crate::unresponsive::UnresponsiveQueue;
use crate::verdict::{Compiled, ProgramInfo};
use ring::Branch;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time limit for a dispatcher to reply with its accounting. If it passes, the registry uses the last accounting
/// received from that dispatcher.
const ACCOUNTING_TIMEOUT: Duration = Duration::from_secs(2);

/// The nice value of a thread that compiles a program.
const NICE: i32 = 10;

/// The groups of an engine; see the module documentation.
pub struct Registry {
    pub(crate) rings: Vec<RingHandle>,
    pub(crate) services: Box<dyn EngineServices>,
    pub(crate) own_uid: u32,
    pub(crate) limits: Limits,
    state: Mutex<State>,
    /// The last accounting of each dispatcher.
    reported: Mutex<Vec<Vec<GroupAccounting>>>,
    /// Number of connections accepted so far, at all control sockets of the engine.
    connections: AtomicU64,
    /// Open connections by user.
    clients: Mutex<BTreeMap<u32, usize>>,
}

#[derive(Default)]
pub(crate) struct State {
    pub groups: BTreeMap<String, Entry>,
    last_id: u32,
}

/// A command that was sent to the dispatcher of a ring, with its reply channel.
pub(crate) type PendingCommand<'a, T> = (&'a RingHandle, Receiver<T>);

/// The result of loading a program.
#[derive(Clone, Debug)]
pub struct LoadResult {
    /// The generation of the running program.
    pub generation: u64,
    /// How the program runs; `None` if there is no program and every packet is copied.
    pub program_info: Option<ProgramInfo>,
    /// A text about the state that the new program takes over from the previous one.
    pub state_transfer: Option<String>,
    /// Time from the sending of the command until the last queue carried it out. The time of the compilation is not
    /// included.
    pub took: Duration,
    /// Queues that did not carry the command out (or, for a new group, did not join their ring) within the time limit
    /// (`Limits::timeout`). The program runs on all other queues of the group.
    pub unresponsive: Vec<UnresponsiveQueue>,
}

impl Registry {
    /// Makes a registry for these rings, with the limits of this machine and process.
    pub fn new(rings: Vec<RingHandle>, services: Box<dyn EngineServices>, own_uid: u32) -> Self {
        Self {
            rings,
            services,
            own_uid,
            limits: Limits::here(),
            state: Mutex::default(),
            reported: Mutex::default(),
            connections: AtomicU64::new(0),
            clients: Mutex::default(),
        }
    }

    /// Replaces the limits.
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Returns the identity of the engine itself, which owns the groups of the configuration.
    pub fn engine(&self) -> ClientIdentity {
        ClientIdentity { uid: self.own_uid, pid: std::process::id(), connection: 0 }
    }

    /// Returns the number of a new connection, unique over all control sockets of the engine.
    pub(crate) fn next_connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Adds one to the number of connections of a user, if `may` permits it. The arguments of `may` are the current
    /// number of connections of this user and that of all users.
    pub(crate) fn add_connection(&self, uid: u32, may: impl FnOnce(usize, usize) -> bool) -> bool {
        let mut connections = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let admitted = may(connections.get(&uid).copied().unwrap_or(0), connections.values().sum());
        if admitted {
            *connections.entry(uid).or_default() += 1;
        }
        admitted
    }

    /// Subtracts one from the number of connections of a user.
    pub(crate) fn remove_connection(&self, uid: u32) {
        let mut connections = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(n) = connections.get_mut(&uid) {
            *n -= 1;
            if *n == 0 {
                connections.remove(&uid);
            }
        }
    }

    /// Returns the ingress interfaces of all rings, each once.
    pub fn sources(&self) -> Vec<IngressInterface> {
        let mut sources: Vec<IngressInterface> = Vec::new();
        for ring in &self.rings {
            if !sources.contains(&ring.source) {
                sources.push(ring.source.clone());
            }
        }
        sources
    }

    /// Creates a group. When the function has returned, the group receives every further packet, except the packets of
    /// unresponsive queues, such as queues whose producer is blocked.
    ///
    /// # Errors
    /// The request is not valid, not permitted, or exceeds a limit.
    pub fn create(&self, client: ClientIdentity, request: &Request) -> Result<LoadResult, RequestError> {
        let (loaded, joined) = self.create_group(client, request)?;
        Ok(LoadResult { unresponsive: self.wait(joined).1, ..loaded })
    }

    /// Creates a group before the dispatchers run, so the function does not wait for them.
    ///
    /// # Errors
    /// The request is not valid, not permitted, or exceeds a limit.
    pub fn create_first(&self, client: ClientIdentity, request: &Request) -> Result<LoadResult, RequestError> {
        self.create_group(client, request).map(|(loaded, _)| loaded)
    }

    /// Creates a group. Also returns the pending commands; when they complete, the group receives packets.
    fn create_group(
        &self,
        client: ClientIdentity,
        request: &Request,
    ) -> Result<(LoadResult, Vec<PendingCommand<'_, ()>>), RequestError> {
        let Request::Create { group, program, policy, fold, ports, queues, ephemeral: brief } = request else {
            return Err(RequestError::Kind("a create"));
        };
        check_name(group)?;
        let sources = self.named(ports.as_deref())?;
        for queue in queues.iter().flatten() {
            let of = |ring: &&RingHandle| sources.contains(&ring.source);
            if !self.rings.iter().filter(of).any(|t| t.queue == *queue) {
                let known: BTreeSet<u16> = self.rings.iter().filter(of).map(|t| t.queue).collect();
                let known = known.into_iter().collect();
                let interfaces = sources.into_iter().map(|source| source.name).collect();
                return Err(RequestError::NoQueue { queue: *queue, interfaces, known });
            }
        }
        let compiled = program.as_deref().map(|text| self.compile_source(text, &sources)).transpose()?;
        let mut state = self.lock();
        if let Some(existing) = state.groups.get(group) {
            return Err(RequestError::GroupExists { group: group.clone(), interfaces: existing.sources.clone() });
        }
        if state.groups.len() >= GROUPS {
            return Err(RequestError::TooManyGroups);
        }
        let mut queues = queues.clone();
        if let Some(queues) = &mut queues {
            queues.sort_unstable();
            queues.dedup();
        }
        let steering = Request::steering(*fold);
        state.last_id += 1;
        let mut entry = Entry {
            id: state.last_id,
            policy: *policy,
            owner: client,
            ephemeral: *brief || *policy == Policy::Private,
            steering,
            sources: sources.into_iter().map(|s| s.name).collect(),
            queues,
            program: None,
            loader: client.uid,
            generation: 1,
            membership: Arc::new(Membership::new(steering)),
            slots: BTreeMap::new(),
            ports: BTreeMap::new(),
            departed: ReaderCounts::default(),
            closed: ClosedSinkTotals::default(),
        };
        self.may_load(&state, client, (group, &entry), compiled.as_ref())?;
        let swaps = self.swaps(&mut entry, group, compiled.as_ref())?;
        entry.program = compiled;
        let about = self.about(&entry);
        let commands = self.rings_of(&entry).zip(swaps).map(|(ring, swap)| {
            let (joined, result) = channel();
            let group = Box::new(Group::new(entry.id, Arc::clone(&entry.membership), swap));
            ring.commands.push(DispatcherCommand::Add { group, joined });
            (ring, result)
        });
        let commands = commands.collect();
        state.groups.insert(group.clone(), entry);
        Ok((
            LoadResult {
                generation: 1,
                program_info: about,
                state_transfer: None,
                took: Duration::ZERO,
                unresponsive: Vec::new(),
            },
            commands,
        ))
    }

    /// Deletes a group.
    ///
    /// # Errors
    /// There is no group of this name, or the client may not change it.
    pub fn delete(&self, client: ClientIdentity, group: &str) -> Result<(), RequestError> {
        let mut state = self.lock();
        self.permitted(state.find(group)?, client)?;
        if let Some(entry) = state.groups.remove(group) {
            self.end(&entry);
        }
        Ok(())
    }

    /// Returns the source and the generation of a group's program.
    ///
    /// # Errors
    /// There is no group of this name, or the client may not change it.
    pub fn program(&self, client: ClientIdentity, group: &str) -> Result<(Option<String>, u64), RequestError> {
        let mut state = self.lock();
        let entry = state.find(group)?;
        self.permitted(entry, client)?;
        Ok((entry.program.as_ref().map(|p| p.text().to_owned()), entry.generation))
    }

    /// Swaps a group's program; the new program runs from the next batch on. The swap remains valid if some queues are
    /// unresponsive. A queue that is late swaps the program before it evaluates further packets; a queue whose
    /// dispatcher has failed evaluates no packets.
    ///
    /// # Errors
    /// As [`Registry::create`]; the previous program continues to run.
    pub fn swap(&self, client: ClientIdentity, group: &str, source: Option<&str>) -> Result<LoadResult, RequestError> {
        let sources = self.sources_of(group)?;
        let compiled = source.map(|text| self.compile_source(text, &sources)).transpose()?;
        let mut state = self.lock();
        self.permitted(state.find(group)?, client)?;
        state.find(group)?.is_of(&sources)?;
        if let Some(entry) = state.groups.get(group) {
            self.may_load(&state, client, (group, entry), compiled.as_ref())?;
        }
        let entry = state.find(group)?;
        entry.generation += 1;
        let swaps = match self.swaps(entry, group, compiled.as_ref()) {
            Ok(swaps) => swaps,
            Err(e) => {
                entry.generation -= 1;
                return Err(e);
            }
        };
        let transfer = compiled.as_ref().zip(entry.program.as_ref()).and_then(|(new, old)| new.state_transfer(&**old));
        (entry.program, entry.loader) = (compiled, client.uid);
        let started = Instant::now();
        let commands = self.rings_of(entry).zip(swaps).map(|(ring, swap)| {
            let (done, result) = channel();
            ring.commands.push(DispatcherCommand::Swap { group: entry.id, swap, done });
            (ring, result)
        });
        let (done, unresponsive) = self.wait(commands.collect());
        // The previous programs are dropped here, off the packet path: their large tables take long to free.
        let took = done.into_iter().map(|SwapResult { at, .. }| at.saturating_duration_since(started)).max();
        let took = took.unwrap_or_default();
        let mut about = self.about(entry);
        if let Some(about) = &mut about {
            about.notes.extend(transfer.clone());
        }
        Ok(LoadResult {
            generation: entry.generation,
            program_info: about,
            state_transfer: transfer,
            took,
            unresponsive,
        })
    }

    /// Returns all groups, those of an interface, or one group, with their accounting. Any client may see the groups
    /// and their counters; the program and the members' filters are only for clients that may change the group.
    ///
    /// # Errors
    /// There is no group of this name.
    pub fn view(
        &self,
        client: ClientIdentity,
        only: Option<&str>,
        port: Option<&str>,
    ) -> Result<Vec<GroupView>, RequestError> {
        let mut state = self.lock();
        if let Some(group) = only {
            state.find(group)?;
        }
        let accountings = self.accountings();
        let wanted = state.groups.iter().filter(|(name, entry)| match (only, port) {
            (Some(only), _) => only == name.as_str(),
            (None, Some(port)) => entry.sources.iter().any(|source| source == port),
            (None, None) => true,
        });
        let view = |(name, entry): (&String, &Entry)| {
            let numbers = (0..).zip(&self.rings).filter(|(_, ring)| entry.has(ring)).map(|(number, _)| number);
            let accountings: Vec<&DispatcherAccounting> =
                numbers.filter_map(|number: usize| accountings.get(number)).collect();
            let mut view = entry.view(name, &accountings);
            if self.permitted(entry, client).is_err() {
                view.hide();
            }
            view
        };
        Ok(wanted.map(view).collect())
    }

    fn about(&self, entry: &Entry) -> Option<ProgramInfo> {
        entry.program.as_ref().map(|program| program.about(self.rings_of(entry).count()))
    }

    /// Requests the accounting of every dispatcher; for a dispatcher that does not reply, returns the last accounting
    /// received.
    fn accountings(&self) -> Vec<DispatcherAccounting> {
        let timeout = self.limits.timeout.min(ACCOUNTING_TIMEOUT);
        let deadline = Instant::now() + timeout;
        let ask = |ring: &RingHandle| {
            let (reply, answer) = channel();
            ring.commands.push(DispatcherCommand::Report(reply));
            answer
        };
        let requested: Vec<Receiver<Vec<GroupAccounting>>> = self.rings.iter().map(ask).collect();
        let mut result = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        result.resize(self.rings.len(), Vec::new());
        let accounting =
            |((ring, answer), result): ((&RingHandle, Receiver<Vec<GroupAccounting>>), &mut Vec<GroupAccounting>)| {
                let left = deadline.saturating_duration_since(Instant::now());
                let (accounting, ended, silence) = match answer.recv_timeout(left) {
                    Ok(accounting) => (accounting, false, None),
                    Err(_) => match ring.commands.last_accounting() {
                        Some(accounting) => {
                            (accounting, true, ring.commands.has_failed().then(|| UnresponsiveQueue::failed(ring)))
                        }
                        None => (std::mem::take(result), false, Some(UnresponsiveQueue::unanswered(ring, timeout))),
                    },
                };
                result.clone_from(&accounting);
                DispatcherAccounting { accounting, ended, silence }
            };
        self.rings.iter().zip(requested).zip(result.iter_mut()).map(accounting).collect()
    }

    /// Returns the interfaces with these names, or all interfaces.
    fn named(&self, names: Option<&[String]>) -> Result<Vec<IngressInterface>, RequestError> {
        let mut all = self.sources();
        let Some(names) = names else { return Ok(all) };
        if let Some(unknown) = names.iter().find(|name| !all.iter().any(|s| s.name == **name)) {
            let known = all.into_iter().map(|source| source.name).collect();
            return Err(RequestError::NoInterface { interface: unknown.clone(), known });
        }
        all.retain(|source| names.contains(&source.name));
        if all.is_empty() { Err(RequestError::NoInterfaces) } else { Ok(all) }
    }

    /// Returns the interfaces of a group.
    pub(crate) fn sources_of(&self, group: &str) -> Result<Vec<IngressInterface>, RequestError> {
        let names = self.lock().find(group)?.sources.clone();
        Ok(self.sources().into_iter().filter(|source| names.contains(&source.name)).collect())
    }

    /// Returns the link type of these interfaces, which must be the same for all.
    pub(crate) fn link_type(&self, sources: &[IngressInterface]) -> Result<u32, RequestError> {
        let mut of = self.rings.iter().filter(|t| sources.contains(&t.source)).map(|t| (t, t.offer.shape.link_type));
        let Some((first, link_type)) = of.next() else { return Ok(1) };
        match of.find(|(_, other)| *other != link_type) {
            None => Ok(link_type),
            Some((other, differs)) => {
                let of = [(first, link_type), (other, differs)];
                Err(RequestError::LinkTypes(of.map(|(ring, link_type)| (ring.source.name.clone(), link_type))))
            }
        }
    }

    fn compile_source(&self, text: &str, sources: &[IngressInterface]) -> Result<Arc<dyn Compiled>, RequestError> {
        let bytes = encoded_bytes(text);
        if bytes > PROGRAM_MAX {
            return Err(RequestError::ProgramLength(bytes));
        }
        let link_type = self.link_type(sources)?;
        // A compilation takes milliseconds of processor time, so it runs on a separate thread with a lower priority
        // than that of packet processing.
        let compile = || {
            // If the priority cannot be lowered, compile anyway.
            let _ = sys::cpu::set_nice(NICE);
            self.services.compile(text, link_type, sources)
        };
        let made = std::thread::scope(|scope| scope.spawn(compile).join());
        Ok(made.map_err(|_| RequestError::CompilerPanic)??)
    }

    /// Prepares the swap for each queue, and opens the new egress interfaces.
    fn swaps(&self, entry: &mut Entry, group: &str, to: Option<&Arc<dyn Compiled>>) -> Result<Vec<Swap>, RequestError> {
        let names = to.map(|c| c.ports().to_vec()).unwrap_or_default();
        let counters = to.map(|c| c.counters().to_vec()).unwrap_or_default();
        let rings: Vec<&RingHandle> = self.rings_of(entry).collect();
        let queues: Vec<IngressInterface> = rings.iter().map(|ring| ring.source.clone()).collect();
        // Each ingress interface has its own host interface.
        let wants_host = to.is_some_and(|c| c.passes_to_host());
        let host = |port: &IngressInterface| if wants_host { self.services.host(port) } else { Ok(None) };
        let hosts: Vec<Option<String>> = queues.iter().map(host).collect::<Result<_, _>>()?;
        let instances = to.map(|c| c.instances(&queues, group)).transpose()?;
        let mut programs = instances.into_iter().flatten();
        let mut swaps: Vec<Swap> = hosts
            .iter()
            .map(|host| Swap {
                program: programs.next(),
                generation: entry.generation,
                ports: Vec::new(),
                names: names.clone(),
                reads_direction: to.is_some_and(|c| c.reads_direction()),
                host: host.clone(),
                counters: counters.clone(),
            })
            .collect();
        let wants = |name: &String, ring: usize| names.contains(name) || hosts[ring].as_ref() == Some(name);
        let mut opened = Vec::new();
        for name in names.iter().chain(hosts.iter().flatten()).collect::<BTreeSet<_>>() {
            // If an egress interface is open for some of the queues only (for example because it is a host interface),
            // it is now opened for the other queues too.
            let open: BTreeSet<usize> =
                entry.ports.get(name).into_iter().flatten().flat_map(|o| &o.rings).copied().collect();
            let lacking: BTreeSet<usize> = (0..rings.len()).filter(|i| wants(name, *i) && !open.contains(i)).collect();
            if lacking.is_empty() {
                continue;
            }
            let mut branches = Vec::new();
            for i in &lacking {
                let (ring, swap) = (rings[*i], &mut swaps[*i]);
                let offer = &ring.offer;
                let label = format!("{}/{group}>{name}", offer.shape.name);
                let (writer, branch) = Branch::grow(&offer.memory, &offer.shape, &label, BRANCH_DESCS)
                    .map_err(|error| RequestError::EgressBranch { interface: name.clone(), error })?;
                swap.ports.push(Port { name: name.clone(), branch: Some(writer) });
                branches.push((&ring.source, branch));
            }
            let from: Vec<_> = branches.iter().map(|(source, branch)| (*source, branch)).collect();
            let counts = self.services.open(&PacketSink::Port(name.clone()), &from, true)?;
            opened.push((name.clone(), EgressPort { counts, rings: lacking }));
        }
        // Close the egress interfaces that the new program does not name. The thread of an egress interface ends when
        // its branch ends.
        for (name, list) in &mut entry.ports {
            list.iter_mut().for_each(|o| o.rings.retain(|ring| wants(name, *ring)));
            for closed in list.extract_if(.., |o| o.rings.is_empty()) {
                entry.closed.keep(closed.counts);
            }
        }
        for (name, port) in opened {
            entry.ports.entry(name).or_default().push(port);
        }
        entry.ports.retain(|_, list| !list.is_empty());
        Ok(swaps)
    }

    /// Sends the change of this member slot to the dispatchers, and waits until they have carried it out.
    pub(crate) fn change(&self, entry: &Entry, slot: u8) {
        let commands = self.rings_of(entry).map(|ring| {
            let (done, result) = channel();
            let membership = Arc::clone(&entry.membership);
            ring.commands.push(DispatcherCommand::Change { group: entry.id, membership, slot, branch: None, done });
            (ring, result)
        });
        self.wait(commands.collect());
    }

    /// Waits until all commands are carried out or the time limit passes. Returns the replies and the unresponsive
    /// queues. A dispatcher that has ended because its stream ended has no reply and is not unresponsive.
    pub(crate) fn wait<T>(&self, commands: Vec<PendingCommand<'_, T>>) -> (Vec<T>, Vec<UnresponsiveQueue>) {
        let timeout = self.limits.timeout;
        let deadline = Instant::now() + timeout;
        let (mut done, mut unresponsive) = (Vec::new(), Vec::new());
        for (ring, result) in commands {
            match result.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(given) => done.push(given),
                Err(RecvTimeoutError::Timeout) => unresponsive.push(UnresponsiveQueue::idle(ring, timeout)),
                Err(RecvTimeoutError::Disconnected) if ring.commands.has_ended_well() => {}
                // The dispatcher has panicked, or is about to end by a panic.
                Err(RecvTimeoutError::Disconnected) => unresponsive.push(UnresponsiveQueue::failed(ring)),
            }
        }
        (done, unresponsive)
    }

    pub(crate) fn end(&self, entry: &Entry) {
        for ring in self.rings_of(entry) {
            // The final accounting of a deleted group is not needed.
            ring.commands.push(DispatcherCommand::Remove(entry.id, channel().0));
        }
    }

    pub(crate) fn rings_of<'a>(&'a self, entry: &Entry) -> impl Iterator<Item = &'a RingHandle> {
        self.rings.iter().filter(|ring| entry.has(ring))
    }

    pub(crate) fn permitted(&self, entry: &Entry, client: ClientIdentity) -> Result<(), PermissionError> {
        let (owner, policy) = (entry.owner, entry.policy);
        let may = match policy {
            _ if !self.is_unprivileged(client.uid) => true,
            Policy::Private => owner.pid == client.pid && owner.uid == client.uid,
            Policy::Restricted => owner.uid == client.uid,
            Policy::Shared => true,
        };
        match (may, policy) {
            (true, _) => Ok(()),
            (_, Policy::Private) => Err(PermissionError::PrivateGroup(owner.pid)),
            _ => Err(PermissionError::RestrictedGroup(owner.uid)),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic cannot leave the plain data under this lock inconsistent, so a poisoned lock is used too.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        // After the registry is dropped, no client can reach the groups, so the dispatchers stop.
        self.rings.iter().for_each(|ring| ring.commands.push(DispatcherCommand::Stop));
    }
}

impl State {
    pub fn find(&mut self, group: &str) -> Result<&mut Entry, RequestError> {
        let known: Vec<String> = self.groups.keys().cloned().collect();
        self.groups.get_mut(group).ok_or_else(|| RequestError::NoGroup { group: group.to_owned(), known })
    }
}

fn check_name(name: &str) -> Result<(), RequestError> {
    let plain = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(plain) {
        return Err(RequestError::GroupName(name.to_owned()));
    }
    Ok(())
}
