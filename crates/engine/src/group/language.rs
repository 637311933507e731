//! Programs in the packet language, as machine code if the host permits it, otherwise interpreted with the same
//! results.
//!
//! A program with flow maps has one worker for all queues of its group ([`crate::group::shared`]): the NIC or the
//! kernel distributes packets over queues, not by the keys of the program, and all packets of a key must find the same
//! map entry. A program without maps has a worker for each queue. The workers share only the fragment tracking
//! ([`FragmentTracker`]), because the fragments of a datagram may arrive on different queues and interfaces. The next
//! program takes over the fragment tracking too.

use super::log_limiter::LogLimiter;
use super::map_capacity;
use super::shared;
use super::shared::SharedWorker;
use crate::state_transfer::{self, StateTransfer};
use group::{Compiled, Delivery, IngressInterface, MapUsage, Packet, Program, ProgramInfo, ServiceError, Verdict};
use ir::fragment_tracker::CAPACITY;
use ir::interp::Action;
use ir::log::LogSubject;
use ir::{self, COUNTERS, Effect, Log, Set, VerdictKind};
use ir::{Facts, FragmentTracker, Prefix};
use jit::{Executable, PacketAction, Worker};
use std::any::Any;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;
use sys::netlink::Netlink;

/// A program that passed all checks.
struct LoadedProgram {
    judge: Executable,
    text: String,
    /// The numbers of the program's counters, and their names.
    counters: Arc<[u8]>,
    names: Vec<String>,
    wants_kernel: bool,
    about: ProgramInfo,
    context: ProgramContext,
}

/// The name of the counter of log lines.
const LOGGED: &str = "logged";

/// The context in which a program runs.
#[derive(Clone, Debug)]
pub struct ProgramContext {
    /// The pcap link type of the frames.
    pub link_type: u16,
    /// The key of the flow hash, the same on all queues.
    pub hash_key: u64,
    /// The interfaces from which the frames come.
    pub from: Vec<IngressInterface>,
}

/// The properties that all packets of one queue's instance share.
#[derive(Clone, Debug)]
pub struct QueueContext {
    link_type: u16,
    port: u32,
    /// See [`ir::Meta::Ingress`].
    ingress: u16,
    counters: Arc<[u8]>,
    label: Arc<str>,
}

/// Reused memory of one queue's instance.
#[derive(Debug, Default)]
pub struct Scratch {
    verdicts: Vec<jit::Verdict>,
    log_limiter: LogLimiter,
}

/// The instance of one queue.
struct Run {
    queue_context: QueueContext,
    worker: Worker,
    /// The worker's counters at the state transfer: the group keeps the earlier counts itself.
    base: [u64; COUNTERS as usize],
    scratch: Scratch,
}

/// Compiles a program from its source.
///
/// # Errors
/// A text with the error, its position in the source and the correction.
pub fn compile(source: &str, ground: &ProgramContext) -> Result<Arc<dyn Compiled>, String> {
    let mut program = check_for(source, ground.link_type)?;
    let wants_kernel = program.effects().has(Effect::Kernel);
    let spread = spread(&program);
    let mut notes = Vec::new();
    if spread.len() > 1 {
        notes.push("no key serves all its maps: members that keep state by them need a group for each line".into());
    }
    if program.sets.contains(&Set::Host) {
        let names: Vec<&str> = ground.from.iter().map(|port| port.name.as_str()).collect();
        let addresses: Vec<IpAddr> = names.iter().flat_map(|name| addresses_of(name)).collect();
        let ports = names.join(" and ");
        notes.push(match addresses.as_slice() {
            [] => format!("{ports} has no addresses, so no packet is for this host; swap when it has"),
            some => format!(
                "this host is {}; swap the program again when the addresses of {ports} change",
                some.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", "),
            ),
        });
        let here = Set::of_prefixes(addresses.into_iter().filter_map(whole));
        program.sets.iter_mut().filter(|set| **set == Set::Host).for_each(|set| set.clone_from(&here));
    }
    let counters = counters_of(&program);
    let begun = Instant::now();
    let (judge, why) = match Executable::native(program.clone(), || begun.elapsed()) {
        Ok(judge) => (judge, None),
        Err(refusal) => (Executable::interpreted(program).map_err(|e| e.to_string())?, Some(refusal.to_string())),
    };
    let report = judge.report();
    let runs = if report.native { "native" } else { "interpreted" }.to_owned();
    let about = ProgramInfo {
        execution: runs,
        reason: why,
        compile_us: report.compile_time.as_micros() as u64,
        partition_by: spread,
        notes,
    };
    Ok(Arc::new(LoadedProgram {
        judge,
        text: source.to_owned(),
        names: counters.iter().map(u8::to_string).chain([LOGGED.to_owned()]).collect(),
        counters: counters.into(),
        wants_kernel,
        about,
        context: ground.clone(),
    }))
}

/// Checks that a group can run this program.
///
/// # Errors
/// As [`compile`].
pub fn check(source: &str) -> Result<ir::Program, String> {
    check_for(source, wire::link::ETHERNET)
}

/// [`check`] for frames of this link type.
fn check_for(source: &str, link_type: u16) -> Result<ir::Program, String> {
    let program = lang::compile_for(source, link_type).map_err(|e| explain(&e, source))?.program;
    if program.devices.len() > usize::from(u8::MAX) + 1 {
        return Err(format!("{} interfaces; a program forwards to at most 256", program.devices.len()));
    }
    Ok(program)
}

/// Returns the keys by which packets can be distributed so that members share no state: for each cluster of maps, the
/// largest key that all its maps determine.
fn spread(program: &ir::Program) -> Vec<String> {
    let name = |i: &usize| program.maps.get(*i).map(|m| m.name.as_str());
    let line = |(key, maps): (ir::Key, Vec<usize>)| {
        format!("{key} for {}", maps.iter().filter_map(name).collect::<Vec<_>>().join(", "))
    };
    lang::clusters(&[program]).into_iter().map(line).collect()
}

/// The counters that a program uses, in ascending order.
fn counters_of(program: &ir::Program) -> Vec<u8> {
    let used = program.blocks.iter().flat_map(|b| &b.code).filter_map(|inst| match inst {
        ir::Inst::Count { counter, .. } => Some(*counter),
        _ => None,
    });
    used.collect::<BTreeSet<u8>>().into_iter().collect()
}

/// Returns the current addresses of an interface; empty for a file.
fn addresses_of(port: &str) -> Vec<IpAddr> {
    let ask = || {
        let mut netlink = Netlink::route()?;
        let link = netlink.link(port)?.index;
        let all = netlink.addresses()?;
        Ok::<_, std::io::Error>(all.into_iter().filter(|a| a.link == link).map(|a| a.ip).collect())
    };
    ask().unwrap_or_default()
}

fn whole(address: IpAddr) -> Option<Prefix> {
    Prefix::new(address, if address.is_ipv4() { 32 } else { 128 })
}

/// True if the program reads the direction of packets, and so may forward packets that this host sent; see
/// [`Compiled::knows_direction`].
pub fn knows_direction(program: &ir::Program) -> bool {
    let asks = |inst: &ir::Inst| matches!(inst, ir::Inst::Meta { meta: ir::Meta::Outgoing, .. });
    program.blocks.iter().flat_map(|b| &b.code).any(asks)
}

/// Formats an error in one line: position, error and correction.
fn explain(e: &lang::Error, source: &str) -> String {
    let (line, column) = e.place(source);
    let help = e.help.as_ref().map(|help| format!("; {help}")).unwrap_or_default();
    format!("program, line {line}, column {column}: {}{help}", e.what)
}

impl LoadedProgram {
    fn remembers(&self) -> bool {
        !self.judge.program().maps.is_empty()
    }

    fn worker(&self, datagrams: &Arc<FragmentTracker>) -> Result<Worker, String> {
        self.judge.worker_among(self.context.hash_key, Arc::clone(datagrams)).map_err(|e| e.to_string())
    }
}

impl Compiled for LoadedProgram {
    fn instances(&self, queues: &[IngressInterface], group: &str) -> Result<Vec<Box<dyn Program>>, ServiceError> {
        let asking = |port: &IngressInterface| QueueContext {
            link_type: self.context.link_type,
            port: port.number.into(),
            ingress: self.judge.program().devices.iter().position(|d| *d == port.name).map_or(0, |i| i as u16 + 1),
            counters: Arc::clone(&self.counters),
            label: format!("group {group} at {}", port.name).into(),
        };
        let datagrams = Arc::new(FragmentTracker::new(self.context.hash_key));
        if self.remembers() && queues.len() > 1 {
            return Ok(SharedWorker::handles(queues.iter().map(asking).collect(), self.worker(&datagrams)?));
        }
        let run = |port| {
            let (asking, worker, base) = (asking(port), self.worker(&datagrams)?, [0; COUNTERS as usize]);
            Ok(Box::new(Run { queue_context: asking, worker, base, scratch: Scratch::default() }) as Box<dyn Program>)
        };
        queues.iter().map(run).collect()
    }

    fn text(&self) -> &str {
        &self.text
    }

    fn headline(&self) -> &str {
        lang::headline(&self.text)
    }

    fn ports(&self) -> &[String] {
        &self.judge.program().devices
    }

    fn counters(&self) -> &[String] {
        &self.names
    }

    fn knows_direction(&self) -> bool {
        knows_direction(self.judge.program())
    }

    fn memory(&self) -> u64 {
        self.judge.memory()
    }

    fn advice(&self, bytes: u64) -> String {
        map_capacity::advice(&self.judge.program().maps, bytes)
    }

    fn state_transfer(&self, before: &dyn Compiled) -> Option<String> {
        let before: &dyn Any = before;
        // A shorthand program has no state.
        let before: &Self = before.downcast_ref()?;
        let (was, now) = (&before.judge, &self.judge);
        let wall = |_, _| state_transfer::changes_form(was.report().native, now.report().native);
        let transfer = StateTransfer::between(&was.program().maps, &now.program().maps, wall);
        (!transfer.is_empty()).then(|| transfer.to_string())
    }

    fn wants_kernel(&self) -> bool {
        self.wants_kernel
    }

    fn about(&self, queues: usize) -> ProgramInfo {
        let mut about = self.about.clone();
        if self.remembers() && queues > 1 {
            about.notes.push(format!("it remembers, so {queues} queues share one worker and take turns"));
        }
        about
    }
}

impl Program for Run {
    fn evaluate(&mut self, batch: &[Packet<'_>], out: &mut [Verdict]) {
        self.queue_context.requests(&mut self.worker, &mut self.scratch, batch, out);
    }

    fn counters(&self) -> Vec<u64> {
        let counted = self.queue_context.counted(&self.worker, &self.base);
        counted.into_iter().chain([self.scratch.lines()]).collect()
    }

    fn maps(&self) -> Vec<MapUsage> {
        fillings(&self.worker)
    }

    fn datagrams(&self) -> Option<group::FragmentCounts> {
        Some(reported(self.worker.datagrams()))
    }

    fn transfer_state(&mut self, before: &mut dyn Program) {
        let before: &mut dyn Any = before;
        if let Some(before) = before.downcast_mut::<Self>() {
            self.worker.transfer_state(&mut before.worker);
            self.base = *self.worker.counters();
        } else if let Some(datagrams) = shared::datagrams_of(before) {
            self.worker.follow(datagrams);
        }
    }
}

/// Returns the fragment tracking of a program that has one worker for each queue.
pub fn datagrams_of(program: &dyn Any) -> Option<Arc<FragmentTracker>> {
    program.downcast_ref::<Run>().map(|run| Arc::clone(run.worker.datagrams()))
}

/// Converts the counters of the fragment tracking to those of groups.
pub fn reported(datagrams: &FragmentTracker) -> group::FragmentCounts {
    let counts = datagrams.counts();
    group::FragmentCounts {
        created: counts.datagrams,
        entries: counts.held(),
        capacity: CAPACITY as u64,
        evicted: counts.evicted,
        expired: counts.expired,
        replaced: counts.replaced,
        matched: counts.matched,
        orphaned: counts.orphaned,
    }
}

/// Returns the fill levels of a worker's maps.
pub fn fillings(worker: &Worker) -> Vec<MapUsage> {
    let one = |(map, used, refused): (&ir::Map, u64, u64)| MapUsage {
        map: map.name.clone(),
        used,
        capacity: map.capacity.into(),
        refused,
    };
    worker.maps().map(one).collect()
}

impl QueueContext {
    /// Evaluates a batch with a worker, and carries out its actions.
    pub fn requests(&self, worker: &mut Worker, desk: &mut Scratch, batch: &[Packet<'_>], out: &mut [Verdict]) {
        let mut packets: Vec<jit::Packet<'_>> = batch.iter().map(|p| self.packet(p)).collect();
        let Scratch { verdicts, log_limiter: limiter } = desk;
        verdicts.clear();
        verdicts.resize(batch.len(), jit::Verdict::default());
        worker.evaluate(&mut packets, verdicts);
        out.iter_mut().zip(&*verdicts).for_each(|(out, verdict)| decide(out, verdict));
        let mut traces = worker.traces().iter();
        for PacketAction { packet, action } in worker.actions() {
            let at = *packet as usize;
            match (action, out.get_mut(at), batch.get(at)) {
                (Action::Forward(device), Some(out), _) => {
                    // The verifier has limited the number of forwards to the space here.
                    let _ = out.forwards.push(*device as u8);
                }
                (Action::Log(log), _, Some(packet)) => {
                    let Packet { bytes, wire_len, .. } = *packet;
                    let so_far = if *log == Log::Trace { traces.next() } else { None };
                    let about = LogSubject { bytes, wire_len, link_type: self.link_type, so_far };
                    limiter.write(&self.label, packet.desc.ts, *log, worker.of().program(), &about);
                }
                _ => {}
            }
        }
    }

    /// Returns the worker's counters minus `base`.
    pub fn counted(&self, worker: &Worker, base: &[u64; COUNTERS as usize]) -> Vec<u64> {
        let now = worker.counters();
        self.counters.iter().map(|n| usize::from(*n)).map(|n| now[n].wrapping_sub(base[n])).collect()
    }

    /// Converts a packet with the facts of its descriptor. The NIC's hash is not available here; the hash of the ring
    /// stands in for it, because steering by it distributes flows as the NIC would.
    fn packet<'a>(&self, packet: &Packet<'a>) -> jit::Packet<'a> {
        let desc = packet.desc;
        let facts = Facts {
            time: desc.ts,
            wire_len: packet.wire_len,
            rss: desc.hash,
            mark: desc.mark,
            port: self.port,
            queue: desc.queue.into(),
            ingress: self.ingress,
            outgoing: u8::from(desc.flags & ring::flag::OUTGOING != 0),
            ..Facts::default()
        };
        jit::Packet::new(packet.bytes, self.link_type, facts)
    }
}

impl Scratch {
    /// Returns the number of log lines that the program requested.
    pub fn lines(&self) -> u64 {
        self.log_limiter.wanted
    }
}

#[inline]
fn decide(out: &mut Verdict, verdict: &jit::Verdict) {
    out.delivery = match verdict.kind() {
        VerdictKind::Drop => Delivery::Drop,
        VerdictKind::Copy => Delivery::Copy,
        VerdictKind::Steer => Delivery::Steer(verdict.hash),
        VerdictKind::DoubleSteer => Delivery::DoubleSteer(verdict.hash, verdict.hash2),
        VerdictKind::Pick => Delivery::Pick(verdict.hash),
    };
    (out.classes, out.mark, out.kernel) = (verdict.classes, verdict.mark, verdict.kernel());
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::Desc;
    use wire::{build::Frame, link};

    fn ground() -> ProgramContext {
        ProgramContext { link_type: link::ETHERNET, hash_key: 7, from: vec![source("nosuch0")] }
    }

    fn source(name: &str) -> IngressInterface {
        IngressInterface { name: name.into(), number: 3 }
    }

    /// `n` queues of one interface.
    fn queues(n: usize) -> Vec<IngressInterface> {
        vec![source("nosuch0"); n]
    }

    fn of(source: &str) -> Arc<dyn Compiled> {
        compile(source, &ground()).expect("sound")
    }

    fn instance(source: &str) -> Box<dyn Program> {
        of(source).instances(&queues(1), "g").expect("small").remove(0)
    }

    /// A TCP and a UDP packet.
    fn frames() -> [[u8; 60]; 2] {
        let (mut tcp, mut udp) = ([0; 60], [0; 60]);
        Frame::tcp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 443).fill(&mut tcp);
        Frame::udp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 53).fill(&mut udp);
        [tcp, udp]
    }

    fn judge(run: &mut Box<dyn Program>, frames: &[[u8; 60]]) -> Vec<Verdict> {
        let desc = Desc { mark: 5, hash: 77, queue: 2, ..Desc::default() };
        let batch: Vec<_> = frames.iter().map(|bytes| Packet { desc: &desc, bytes, wire_len: 60 }).collect();
        let mut out = vec![Verdict::default(); frames.len()];
        run.evaluate(&batch, &mut out);
        out
    }

    #[test]
    fn a_program_steers_marks_forwards_and_drops() {
        let source = "main = ip >-> when is_tcp (mark 42 >-> forward \"eth1\") >-> steer_flow";
        let out = judge(&mut instance(source), &frames());
        let [tcp, udp] = [out[0], out[1]];
        assert!(matches!((tcp.delivery, udp.delivery), (Delivery::Steer(a), Delivery::Steer(b)) if a != b));
        assert_eq!((tcp.mark, udp.mark), (42, 5));
        assert_eq!((tcp.forwards.as_slice(), udp.forwards.as_slice()), (&[0][..], &[][..]));
        assert_eq!(of(source).ports(), ["eth1"]);
        let mut run = instance("main = inc 3 >-> dec 4 >-> udp");
        let out = judge(&mut run, &frames());
        assert_eq!((out[0].delivery, out[1].delivery), (Delivery::Drop, Delivery::Copy));
        assert_eq!(run.counters(), [2, u64::MAX - 1, 0]);
    }

    #[test]
    fn what_the_source_knows_reaches_the_program() {
        let out = judge(&mut instance("main = steer_rss"), &frames()[..1]);
        assert_eq!(out[0].delivery, Delivery::Steer(77), "the ring's hash stands in for the card's");
        let out = judge(&mut instance("main = steer_rx_queue"), &frames()[..1]);
        assert_eq!(out[0].delivery, Delivery::Pick(2));
        let mut run = instance("main = steer_rrobin");
        judge(&mut run, &frames());
        let out = judge(&mut run, &frames());
        assert_eq!((out[0].delivery, out[1].delivery), (Delivery::Pick(2), Delivery::Pick(3)), "over batches too");
    }

    #[test]
    fn both_directions_of_a_flow_are_steered_alike() {
        let (mut there, mut back) = ([0; 60], [0; 60]);
        Frame::tcp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 443).fill(&mut there);
        Frame::tcp4([10, 0, 0, 2], 443, [10, 0, 0, 1], 1).fill(&mut back);
        let out = judge(&mut instance("main = steer_flow"), &[there, back]);
        assert_eq!(out[0].delivery, out[1].delivery);
        assert!(matches!(out[0].delivery, Delivery::Steer(_)));
    }

    /// Only the first three packets of a flow pass.
    const THREE: &str = "flows = flow_map 0 key_5tuple\nmain = incr_fstate flows >-> filter (get_fstate flows .<= 3)";

    fn passed(out: &[Verdict]) -> usize {
        out.iter().filter(|v| v.delivery != Delivery::Drop).count()
    }

    #[test]
    fn what_a_program_remembers_survives_its_swap_and_counters_are_told_once() {
        let with = |rest: &str| format!("{THREE} >-> inc 1{rest}");
        let (mut old, mut new) = (instance(&with("")), instance(&with(" >-> mark 9")));
        let [tcp, _] = frames();
        assert_eq!(passed(&judge(&mut old, &[tcp; 2])), 2);
        new.transfer_state(&mut *old);
        assert_eq!(new.counters(), [0, 0], "what the one before counted is with the group");
        assert_eq!(passed(&judge(&mut new, &[tcp; 2])), 1, "two were there before");
        assert_eq!((old.counters(), new.counters()), (vec![2, 0], vec![1, 0]));
        let mut other = instance("flows = flow_map 0 key_ip_src\nmain = incr_fstate flows");
        other.transfer_state(&mut *new);
        assert_eq!(passed(&judge(&mut other, &[tcp])), 1, "a map with another key begins anew");
    }

    #[test]
    fn queues_share_one_memory_and_a_swap_that_reaches_them_in_turn_forgets_nothing() {
        let compiled = of(THREE);
        assert!(compiled.about(2).notes.iter().any(|n| n.contains("share one worker")));
        assert!(compiled.about(1).notes.is_empty());
        let mut old = compiled.instances(&queues(2), "g").expect("small");
        let [tcp, _] = frames();
        assert_eq!(passed(&judge(&mut old[0], &[tcp])) + passed(&judge(&mut old[1], &[tcp])), 2);
        let mut new = of(THREE).instances(&queues(2), "g").expect("small");
        let (mut first, mut second) = (new.remove(0), new.remove(0));
        // The first queue swaps and evaluates at once, while the second queue still evaluates with the old program.
        first.transfer_state(&mut *old[0]);
        let waiting = std::thread::spawn(move || {
            let out = judge(&mut first, &[tcp; 2]);
            (first, passed(&out))
        });
        assert_eq!(passed(&judge(&mut old[1], &[tcp])), 1, "the third");
        second.transfer_state(&mut *old[1]);
        let (_, more) = waiting.join().expect("no panic");
        assert_eq!(more, 0, "it waited for what the other queue still wrote");
        assert_eq!(passed(&judge(&mut second, &[tcp])), 0);
    }

    /// The first queue may complete the state transfer between two steps of the second queue: leaving the old worker
    /// and naming it.
    #[test]
    fn a_queue_that_swaps_after_the_memory_has_gone_over_does_not_take_it_back() {
        let (mut old, mut new) = (
            of(THREE).instances(&queues(2), "g").expect("small"),
            of(THREE).instances(&queues(2), "g").expect("small"),
        );
        let [tcp, _] = frames();
        drop(old.remove(1));
        assert_eq!(passed(&judge(&mut old[0], &[tcp; 3])), 3);
        new[0].transfer_state(&mut *old[0]);
        assert_eq!(passed(&judge(&mut new[0], &[tcp])), 0, "it has gone over");
        new[1].transfer_state(&mut *old[0]);
        assert_eq!(passed(&judge(&mut new[1], &[tcp])), 0, "and stays");
    }

    #[test]
    fn how_full_a_map_is_is_told_by_each_queue_of_all_and_an_exchange_names_what_goes_on() {
        let with = |most: u32| format!("m = up_to {most} (flow_map 0 key_ip_dst)\nmain = incr_fstate m");
        let compiled = of(&with(1));
        let mut queues = compiled.instances(&queues(2), "g").expect("small");
        let mut other = frames()[0];
        Frame::udp4([10, 0, 0, 1], 1, [10, 0, 0, 3], 53).fill(&mut other);
        judge(&mut queues[0], &frames());
        judge(&mut queues[1], &[other]);
        let reported = MapUsage { map: "m".into(), used: 1, capacity: 1, refused: 1 };
        queues.iter().for_each(|queue| assert_eq!(queue.maps(), std::slice::from_ref(&reported)));
        let transfer = |new: &str, old: &str| of(new).state_transfer(&*of(old));
        assert_eq!(transfer(&with(1), &with(1)).as_deref(), Some("keeps m"));
        assert_eq!(transfer(&with(2), &with(1)).as_deref(), Some("m begins anew (up_to 2, not 1)"));
        assert_eq!(transfer("main = ip", "main = tcp"), None);
    }

    #[test]
    fn how_it_runs_and_what_it_can_be_spread_by_is_told() {
        let about =
            of("a = flow_map 0 key_5tuple\nb = flow_map 0 key_3tuple\nmain = incr_fstate a >-> incr_fstate b").about(1);
        assert_eq!(about.partition_by, ["ip_src, ip_dst, ip_proto for a, b"]);
        assert!(about.execution == "native" || about.reason.is_some(), "{about:?}");
        let about =
            of("a = flow_map 0 key_ip_src\nb = flow_map 0 key_vlan\nmain = incr_fstate a >-> incr_fstate b").about(1);
        assert_eq!((about.partition_by.len(), about.notes.len()), (2, 1), "{about:?}");
        let about = of("main = ip_host").about(1);
        assert!(about.notes[0].contains("nosuch0 has no addresses"), "{about:?}");
    }

    #[test]
    fn what_a_program_writes_is_counted_whether_it_was_written_or_not() {
        let mut run = instance("main = log_msg \"seen\" >-> log_packet >-> log_buff >-> trace");
        assert_eq!(passed(&judge(&mut run, &[frames()[0]; 5])), 5);
        assert_eq!(run.counters(), [20], "ten of them were written");
    }

    #[test]
    fn which_way_a_packet_goes_is_known_to_programs_that_ask() {
        let source = "main = when is_outgoing (mark 1) >-> when is_incoming (mark 2)";
        let mut run = instance(source);
        let mut mark = |flags| {
            let desc = Desc { flags, ..Desc::default() };
            let mut out = [Verdict::default()];
            run.evaluate(&[Packet { desc: &desc, bytes: &frames()[0], wire_len: 60 }], &mut out);
            out[0].mark
        };
        assert_eq!((mark(ring::flag::OUTGOING), mark(0)), (1, 2));
        assert!(of(source).knows_direction() && !of("main = forward \"eth1\"").knows_direction());
    }

    #[test]
    fn what_maps_may_come_to_is_known_before_there_is_one() {
        assert_eq!(of("main = ip").memory(), 0);
        let small = of("m = up_to 1000 (flow_map 0 key_5tuple)\nmain = incr_fstate m").memory();
        assert_eq!(small, 2048 * 64);
        let large = of("m = up_to 67108864 (flow_map 0 key_5tuple)\nmain = incr_fstate m").memory();
        assert_eq!(large, 8 << 30);
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line_with_its_place() {
        let why = compile("main = ip >-> forward eth1", &ground()).err().expect("not sound");
        assert!(why.starts_with("program, line 1, column 23: ") && why.lines().count() == 1, "{why}");
    }

    #[test]
    fn a_filter_of_tcpdump_is_for_the_link_of_the_frames() {
        let cooked = ProgramContext { link_type: link::LINUX_SLL, ..ground() };
        assert!(compile("main = bpf \"tcp port 80\"", &cooked).is_ok());
        let why = compile("main = bpf \"vlan 5\"", &cooked).err().expect("not sound");
        assert!(why.starts_with("program, line 1, column 8: ") && why.contains("VLAN tags are not supported"), "{why}");
    }

    #[test]
    fn a_program_that_hands_to_the_host_says_so() {
        assert!(of("main = kernel").wants_kernel());
        assert!(!of("main = ip").wants_kernel());
    }

    #[test]
    fn packets_for_this_host_are_those_to_the_ports_addresses() {
        // Every machine has either a loopback interface with this address or none.
        let ground = ProgramContext { from: vec![source("lo")], ..ground() };
        let program = compile("main = ip_host", &ground).expect("sound");
        if program.about(1).notes[0].contains("no addresses") {
            return testkit::skip("packets_for_this_host_are_those_to_the_ports_addresses", "lo is down here");
        }
        let mut here = [0; 60];
        Frame::udp4([10, 0, 0, 1], 1, [127, 0, 0, 1], 53).fill(&mut here);
        let out = judge(&mut program.instances(&queues(1), "g").expect("small")[0], &[here, frames()[1]]);
        assert_eq!((out[0].delivery, out[1].delivery), (Delivery::Copy, Delivery::Drop));
    }
}
