//! The program of an interface, in the packet language: it evaluates every packet before the ring.
//!
//! ```text
//!        ┌ kernel (AF_XDP): first stages ┐   record before    ┌ engine thread: the rest ┐
//! port ─►│ drop · forward · host         ├──── the packet ───►│ drop · forward          ├─► filter, ring
//!        └───────────────────────────────┘                    └─────────────────────────┘
//! ```
//! On AF_XDP the first stages, as far as they can, run in the kernel ([`kernel_programs`]); the rest, and on other
//! sources the whole program, runs in the engine thread. A packet that the program drops, forwards or passes to the
//! host counts as *filtered* in the ledger. The descriptor of a packet that goes on to the ring has its mark and, if
//! the program steers, its hash. Classes have no effect here: they select members of groups, and there are none before
//! the ring.
//!
//! **A swap** ([`PortProgram::swap`]) first does everything that can fail: it checks the text, compiles the user part,
//! and lets the kernel verify the kernel part. Then it leaves the new user part in the mailbox of every queue, and
//! after that it replaces the kernel part. A program that is refused at any step replaces nothing.

mod accounting;
mod egress_monitor;
mod forward_queue;
mod user_part;

pub use accounting::MapUsage;
pub use user_part::UserOutcomes;
pub(crate) use user_part::{IncomingPacket, ProgramSequence, QueueInfo};

use crate::egress::Egress;
use crate::group::knows_direction;
use crate::plan::ProgramPlan;
use crate::state_transfer::{MapState, StateTransfer};
use crate::status::WorkerStatus;
use accounting::KernelAccounting;
use capture::AnySource;
use capture::afxdp::{XdpDispatcher, XdpMode};
use egress_monitor::EgressMonitor;
use ir::FragmentTracker;
use ir::{COUNTERS, Effect, Expiry, Inst, Program};
use jit::Executable;
use kernel_programs::{Clock, EmitOptions, MapValue, Metadata, Object, Role, ToUser};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use sys::netlink::netdev::{feature, xdp_features};
use user_part::{ProgramMailbox, UserPart};

/// Long enough to yield the processor.
const YIELD_TIME: Duration = Duration::from_micros(50);

/// The most entries of a kernel map that one sweep checks for expiry.
const SWEEP: usize = 8192;

/// The properties of a packet source that a program depends on.
#[derive(Clone, Debug)]
pub(crate) struct ProgramContext {
    /// The interface name.
    pub port: String,
    /// How the packets arrive.
    pub access: Access,
    /// The link type of the frames.
    pub link_type: u16,
    /// The key of the flow hash, the same on all queues.
    pub hash_key: u64,
}

/// How the packets of a source arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// From an interface that only this engine reads (AF_XDP).
    Owned,
    /// From an interface whose packets the host gets as well.
    Shared,
    /// From a file, or simulated.
    Replayed,
}

/// How a program runs, for JSON.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ProgramReport {
    /// The program's file, or other origin.
    pub name: String,
    /// The generation: one more with each swap.
    pub generation: u32,
    /// Number of stages.
    pub stages: usize,
    /// Number of stages that run in the kernel.
    pub in_kernel: usize,
    /// The reason if no stage runs in the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_refusal: Option<String>,
    /// Instructions that the kernel's verifier processed.
    pub verified_instructions: u32,
    /// The state taken over from the previous program.
    #[serde(skip_serializing_if = "StateTransfer::is_empty")]
    pub state_transfer: StateTransfer,
    /// True if the user part is machine code.
    pub native: bool,
    /// The reason if the user part is not machine code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub native_refusal: Option<String>,
    /// The flow maps that are in the kernel. Undecided packets use separate maps in user space. In JSON, `maps` lists
    /// the maps with their fill levels.
    #[serde(skip)]
    pub kernel_maps: Vec<String>,
    /// Milliseconds to compile the user part.
    pub compile_ms: f64,
    /// Milliseconds to make, load and verify the kernel part.
    pub load_ms: f64,
    /// Milliseconds of the swap itself.
    pub swap_ms: f64,
    /// Outcomes of the packets that the kernel part decided.
    pub kernel: KernelOutcomes,
    /// Outcomes of the packets that the user part decided, and the copies that it sent.
    pub user: UserOutcomes,
    /// Undecided packets, which the user part evaluates from the first stage.
    pub undecided: u64,
    /// Counters of this and earlier programs, by number.
    pub counters: BTreeMap<u8, u64>,
    /// The flow maps.
    pub maps: Vec<MapReport>,
}

/// Fill level of a program's map.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MapReport {
    /// The map's name.
    pub map: String,
    /// The map in the kernel, which all queues share, if a kernel stage uses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<MapUsage>,
    /// The maps in user space, one for each queue, summed.
    pub user: MapUsage,
}

/// Outcomes of the packets that the kernel part decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KernelOutcomes {
    /// Packets dropped.
    pub dropped: u64,
    /// Packets sent out of another interface.
    pub forwarded: u64,
    /// Packets passed to the host.
    pub to_host: u64,
    /// Packets for an egress interface that does not exist any more.
    pub unsent: u64,
}

impl ProgramReport {
    /// Adds the counters of one queue.
    pub(crate) fn add(&mut self, queue: &WorkerStatus) {
        let (kernel, user) = (&queue.kernel_outcomes, &queue.user_outcomes);
        self.kernel.dropped += kernel.dropped;
        self.kernel.forwarded += kernel.forwarded;
        self.kernel.to_host += kernel.to_host;
        self.kernel.unsent += kernel.unsent;
        self.user.account(user);
        self.undecided += queue.undecided;
        self.count(&queue.counted);
        for (map, here) in &queue.map_usage {
            // A queue may still run the previous program, with other maps.
            if let Some(report) = self.maps.iter_mut().find(|report| report.map == *map) {
                report.user += *here;
            }
        }
    }

    /// Adds counters by number, including counters that only an earlier program has incremented.
    fn count(&mut self, numbers: &[u64]) {
        for (counter, n) in (0..COUNTERS).zip(numbers).filter(|(_, n)| **n != 0) {
            let sum = self.counters.entry(counter).or_default();
            *sum = sum.wrapping_add(*n);
        }
    }
}

/// The programs of one interface, in succession.
pub(crate) struct PortProgram {
    context: ProgramContext,
    /// Fragment tracking for all queues and programs.
    datagrams: Arc<FragmentTracker>,
    state: Mutex<State>,
}

struct State {
    text: String,
    program: Program,
    devices: Arc<Vec<Egress>>,
    egress_monitor: EgressMonitor,
    judge: Executable,
    report: ProgramReport,
    /// True if packets may arrive from the kernel part without its generation.
    may_be_silent: bool,
    /// The XDP dispatcher, if there is a kernel part and the interface exists. The sources own it: an owned reference
    /// here would hold a removed interface.
    dispatchers: Option<Weak<XdpDispatcher>>,
    accounting: KernelAccounting,
    letters: BTreeMap<u16, Arc<ProgramMailbox>>,
    /// The interface index last set for each device of the kernel part; 0 for none.
    leads: Vec<u32>,
    /// The key after which the next sweep of each map continues.
    swept: BTreeMap<u16, Vec<u8>>,
}

impl PortProgram {
    /// Checks the program without any change to the interface.
    ///
    /// # Errors
    /// One line: the position, the error and the correction.
    pub fn check(plan: &ProgramPlan, ground: ProgramContext) -> Result<Self, String> {
        let program = compile(plan, &ground)?;
        let devices = Arc::new(open_devices(&program)?);
        let report = ProgramReport { name: plan.name.clone(), generation: 1, ..ProgramReport::default() };
        let (judge, report) = judge(&program, 0, report)?;
        let mut ways = EgressMonitor::default();
        ways.turn(&devices);
        let state = State {
            text: plan.text.clone(),
            program,
            devices,
            egress_monitor: ways,
            judge,
            report,
            may_be_silent: false,
            dispatchers: None,
            accounting: KernelAccounting::default(),
            letters: BTreeMap::new(),
            leads: vec![],
            swept: BTreeMap::new(),
        };
        let datagrams = Arc::new(FragmentTracker::new(ground.hash_key));
        Ok(Self { context: ground, datagrams, state: Mutex::new(state) })
    }

    /// Loads the kernel part on an interface that was just opened, before any frame is let in.
    ///
    /// # Errors
    /// A text, possibly with the verifier log.
    pub fn install(&self, sources: &[AnySource]) -> Result<(), String> {
        let Some(AnySource::AfXdp(first)) = sources.first() else { return Ok(()) };
        let steer = Arc::clone(first.open_dispatcher());
        if sources.len() < steer.queues() as usize {
            return Err(format!(
                "a program judges all {} queues of {}, and {} would be captured; leave --queues out",
                steer.queues(),
                self.context.port,
                sources.len()
            ));
        }
        let mut state = self.lock();
        let mut report = state.report.clone();
        let object = self.object(&state.program, &steer, &mut report);
        if object.stages > 0 {
            let (judge, with) = judge(&state.program, object.stages, report)?;
            (state.judge, report) = (judge, with);
        }
        self.load(&steer, &object, &state.devices, &mut report)?;
        (state.report, state.may_be_silent) = (report, object.is_evaluated_again);
        state.leads = state.devices.iter().map(Egress::index).collect();
        let State { accounting: books, program, .. } = &mut *state;
        books.turn(&steer, program.maps.len());
        let port = Arc::downgrade(&steer);
        state.letters.values().for_each(|letters| letters.comes_from(Some(Weak::clone(&port))));
        state.dispatchers = Some(port);
        Ok(())
    }

    /// Makes the user part for one queue.
    ///
    /// # Errors
    /// There is no memory for its maps.
    pub fn program_sequence(&self, place: QueueInfo) -> Result<ProgramSequence, String> {
        let mut state = self.lock();
        let letters = Arc::clone(state.letters.entry(place.queue).or_default());
        letters.comes_from(state.dispatchers.clone());
        let half = self.half(&state.program, &state.judge, &state.devices, &state.report, state.may_be_silent)?;
        Ok(ProgramSequence::new(half, letters, place))
    }

    /// Swaps the program under traffic; `None` if it is the same already.
    ///
    /// # Errors
    /// One line, or the verifier log; the previous program continues.
    pub fn swap(&self, plan: &ProgramPlan) -> Result<Option<ProgramReport>, String> {
        let mut state = self.lock();
        if plan.text == state.text {
            return Ok(None);
        }
        let program = compile(plan, &self.context)?;
        let devices = Arc::new(open_devices(&program)?);
        let generation = state.report.generation + 1;
        let mut report = ProgramReport { name: plan.name.clone(), generation, ..ProgramReport::default() };
        let steer = state.dispatchers.as_ref().map(Weak::upgrade);
        let steer = match steer {
            Some(None) => return Err(format!("{} is away; try again when it is back", self.context.port)),
            Some(here) => here,
            None => None,
        };
        let object = steer.as_deref().map(|steer| self.object(&program, steer, &mut report));
        let (judge, mut report) = judge(&program, report.in_kernel, report)?;
        let may_be_silent = object.as_ref().is_some_and(|object| object.is_evaluated_again);
        let halves: Vec<UserPart> = (0..state.letters.len())
            .map(|_| self.half(&program, &judge, &devices, &report, may_be_silent))
            .collect::<Result<_, _>>()?;
        let mut prepared = None;
        if let (Some(steer), Some(object)) = (&steer, &object) {
            prepared = Some(self.prepare(steer, object, &devices, &mut report)?);
        }
        // Sleep to avoid preemption between the mailboxes and the end of the swap: compilation and verification have
        // used up this thread's time slice, and a short sleep gives it a new slice.
        // PERF: of 1400 exchanges between two busy processors 1.30 → 0.17 ms at most (records/2026-11-22-xdp.md).
        std::thread::sleep(YIELD_TIME);
        let exchanged = sys::priority::with_raised_priority(|| {
            for (letters, half) in state.letters.values().zip(halves) {
                letters.post(half);
            }
            match (&steer, prepared) {
                (Some(steer), Some(prepared)) => steer.swap(prepared),
                _ => Ok(Duration::ZERO),
            }
        });
        match exchanged {
            Ok(taken) => report.swap_ms = millis(taken),
            Err(e) => {
                state.letters.values().for_each(|letters| letters.retract(generation));
                return Err(capture::afxdp::explain(&self.context.port, e).to_string());
            }
        }
        let (was, books, native) = (state.program.maps.clone(), state.accounting.clone(), state.report.native);
        if let Some(steer) = &steer {
            state.accounting.turn(steer, program.maps.len());
        }
        let place = |books: &KernelAccounting, map, native| MapState { in_kernel: books.has(map), native };
        report.state_transfer = StateTransfer::between(&was, &program.maps, |old, new| {
            place(&books, old, native).wall(place(&state.accounting, new, report.native))
        });
        state.program = program;
        state.text.clone_from(&plan.text);
        state.egress_monitor.turn(&devices);
        (state.devices, state.judge, state.may_be_silent) = (devices, judge, may_be_silent);
        state.report = report.clone();
        state.leads = state.devices.iter().map(Egress::index).collect();
        state.swept.clear();
        Ok(Some(report))
    }

    /// Periodic work: sets the kernel part's clock to the system time, removes expired entries from the kernel maps,
    /// which would otherwise occupy them until the next lookup, and uses egress interfaces again that came back. The
    /// kernel part sends nothing to an interface that is not ready, and counts these packets as unsent. The kernel
    /// reports no transmit completion, so a redirected frame counts as forwarded.
    pub fn maintain(&self) {
        let mut state = self.lock();
        let steer = state.dispatchers.as_ref().and_then(Weak::upgrade);
        let devices = Arc::clone(&state.devices);
        let anew: Vec<bool> = devices.iter().map(Egress::find_again).collect();
        state.egress_monitor.refresh(&devices, Instant::now());
        let Some(steer) = steer else { return };
        if let Some(map) = steer.map(Role::Devices) {
            let State { leads, .. } = &mut *state;
            for (slot, ((device, anew), lead)) in (0u32..).zip(devices.iter().zip(anew).zip(leads)) {
                let ready = device.is_ready() == Some(true)
                    && (steer.mode() != XdpMode::Native || takes_frames(device).is_ok());
                let index = if ready { device.index() } else { 0 };
                if index == *lead && !anew {
                    continue;
                }
                let key = slot.to_ne_bytes();
                let reported =
                    if index == 0 { map.remove(&key).map(drop) } else { map.set(&key, &index.to_ne_bytes()) };
                // If the update fails, the next call tries again.
                if reported.is_ok() {
                    *lead = index;
                }
            }
        }
        if let Some(clock) = steer.map(Role::Clock) {
            let offset = sys::clock::since_monotonic().as_nanos() as u64;
            // If the update fails, the next call tries again.
            let _ = clock.set(&0u32.to_ne_bytes(), &offset.to_ne_bytes());
        }
        let now = sys::clock::realtime().nanos();
        let State { program, swept, .. } = &mut *state;
        for (number, map) in program.maps.iter().enumerate().filter(|(_, m)| m.expiry != Expiry::Never) {
            let number = number as u16;
            let Some(table) = steer.map(Role::Flow(number)) else { continue };
            let from = swept.remove(&number);
            let Ok(keys) = table.keys_behind(from.as_deref(), SWEEP) else { continue };
            for key in &keys {
                let entry = table.get(key).ok().flatten();
                let expired = entry.as_deref().and_then(<[u8]>::first_chunk).map(MapValue::read);
                if expired.is_some_and(|entry| entry.expired(map.expiry, now)) {
                    let _ = table.remove(key);
                }
            }
            if let Some(last) = keys.into_iter().nth(SWEEP - 1) {
                swept.insert(number, last);
            }
        }
    }

    /// Returns the warnings about the program, in order.
    pub fn warnings(&self) -> Vec<String> {
        let mut state = self.lock();
        let State { egress_monitor: ways, devices, .. } = &mut *state;
        ways.refresh(devices, Instant::now());
        ways.warnings()
    }

    /// Returns the report. The queues add the counters of the user part.
    pub fn report(&self) -> ProgramReport {
        let state = self.lock();
        let (mut report, books) = (state.report.clone(), state.accounting.clone());
        let counters = used_counters(&state.program).map(|counter| (counter, 0));
        report.counters = counters.collect();
        let (maps, nothing) = (state.program.maps.iter(), MapUsage { used: Some(0), ..MapUsage::default() });
        let maps = maps.map(|map| MapReport { map: map.name.clone(), kernel: None, user: nothing });
        report.maps = maps.collect();
        // The count of map entries takes long, and a swap must not wait for the lock.
        drop(state);
        let numbers = books.numbers();
        report.count(&numbers);
        for (map, in_kernel) in books.tables(&numbers) {
            if let Some(report) = report.maps.get_mut(map) {
                report.kernel = Some(in_kernel);
            }
        }
        report
    }

    fn half(
        &self,
        program: &Program,
        judge: &Executable,
        devices: &Arc<Vec<Egress>>,
        report: &ProgramReport,
        may_be_silent: bool,
    ) -> Result<UserPart, String> {
        Ok(UserPart {
            generation: report.generation,
            may_be_silent,
            all_in_kernel: report.in_kernel == program.stages.len(),
            worker: judge
                .worker_among(self.context.hash_key, Arc::clone(&self.datagrams))
                .map_err(|e| e.to_string())?,
            ingress: ingress(program, &self.context.port),
            forwards_own: knows_direction(program),
            devices: Arc::clone(devices),
        })
    }

    /// Makes the kernel part. For a program without kernel stages it only marks packets with the generation.
    fn object(&self, program: &Program, steer: &XdpDispatcher, report: &mut ProgramReport) -> Object {
        let options = EmitOptions {
            link_type: self.context.link_type,
            hash_key: self.context.hash_key,
            generation: report.generation,
            port: 0,
            ingress: ingress(program, &self.context.port),
            queues: steer.queues(),
            clock: Clock::Running,
            to_user: ToUser::Sockets,
            metadata: Metadata::Compact,
        };
        match kernel_programs::emit(program, &options) {
            Ok(object) => {
                report.in_kernel = object.stages;
                let maps = object.flow_maps().filter_map(|number| program.maps.get(usize::from(number)));
                report.kernel_maps = maps.map(|map| map.name.clone()).collect();
                object
            }
            Err(why) => {
                report.kernel_refusal = Some(why.to_string());
                kernel_programs::announce(&options)
            }
        }
    }

    fn load(
        &self,
        steer: &XdpDispatcher,
        object: &Object,
        devices: &[Egress],
        report: &mut ProgramReport,
    ) -> Result<(), String> {
        let prepared = self.prepare(steer, object, devices, report)?;
        let taken = steer.swap(prepared).map_err(|e| capture::afxdp::explain(&self.context.port, e).to_string())?;
        report.swap_ms = millis(taken);
        Ok(())
    }

    fn prepare(
        &self,
        steer: &XdpDispatcher,
        object: &Object,
        devices: &[Egress],
        report: &mut ProgramReport,
    ) -> Result<capture::afxdp::PreparedProgram, String> {
        let begun = Instant::now();
        if object.maps.iter().any(|m| m.role == Role::Devices) && steer.mode() == XdpMode::Native {
            devices.iter().try_for_each(takes_frames)?;
        }
        let indices: Vec<u32> = devices.iter().map(Egress::index).collect();
        let prepared = steer
            .prepare(object, &indices, sys::clock::since_monotonic())
            .map_err(|e| capture::afxdp::explain(&self.context.port, e).to_string())?;
        if object.stages > 0 {
            report.verified_instructions = prepared.verified();
        }
        report.load_ms = millis(begun.elapsed());
        Ok(prepared)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Compiles the user part behind the kernel stages, to machine code if possible.
fn judge(program: &Program, stages: usize, mut report: ProgramReport) -> Result<(Executable, ProgramReport), String> {
    let begun = Instant::now();
    let (judge, why) = match Executable::native_behind(program.clone(), stages, || begun.elapsed()) {
        Ok(judge) => (judge, None),
        Err(why) => {
            let judge = Executable::interpreted_behind(program.clone(), stages).map_err(|e| e.to_string())?;
            (judge, Some(why.to_string()))
        }
    };
    report.native_refusal = why;
    (report.native, report.compile_ms) = (judge.report().native, millis(begun.elapsed()));
    report.stages = program.stages.len();
    Ok((judge, report))
}

fn compile(plan: &ProgramPlan, ground: &ProgramContext) -> Result<Program, String> {
    let ProgramPlan { name, text } = plan;
    let program = lang::compile_for(text, ground.link_type).map_err(|e| {
        let (line, column) = e.place(text);
        let help = e.help.as_ref().map(|help| format!("; {help}")).unwrap_or_default();
        format!("{name}, line {line}, column {column}: {}{help}", e.what)
    })?;
    let program = program.program;
    let effects = program.effects();
    let refuse = |what: &str, instead: &str| Err(format!("{name}: {what}; {instead}"));
    if effects.has(Effect::Log) {
        return refuse("an interface's program writes no logs", "count with `inc`, or log in a group's program");
    }
    match ground.access {
        Access::Replayed if effects.has(Effect::Forward) || effects.has(Effect::Kernel) => {
            return refuse("it forwards, or gives to the host, what is only replayed", "run it on an interface");
        }
        Access::Shared if program.devices.contains(&ground.port) => {
            let instead = "take the interface for capture alone (--dedicated), or forward to another";
            return refuse(&format!("it would capture again what it sends out of {}", ground.port), instead);
        }
        Access::Owned => {
            if let Some(stage) = ir::copies_to_stack(&program) {
                let text = &program.stages[stage].text;
                let what = format!(
                    "`{text}` copies packets to the host, and an interface that is taken for capture alone gives it no copies"
                );
                return refuse(
                    &what,
                    "give them to nobody else (`detour`), or write it into a group's program (docs/reference/groups.md)",
                );
            }
            let placed = ir::placement(&program);
            let mut here = (0..program.stages.len()).filter(|s| !placed[*s].is_kernel());
            if let Some(stage) = here.find(|s| program.effects_of(*s).has(Effect::Kernel)) {
                let text = &program.stages[stage].text;
                let what = format!("`{text}` would run in user space, and from there nothing gets to the host");
                return refuse(&what, "put it before the stages that the kernel cannot do (`netgrain lang explain`)");
            }
        }
        _ => {}
    }
    Ok(program)
}

fn open_devices(program: &Program) -> Result<Vec<Egress>, String> {
    program.devices.iter().map(|name| Egress::open(name)).collect()
}

/// Returns one plus the index of the interface among the program's devices, or 0.
fn ingress(program: &Program, port: &str) -> u16 {
    program.devices.iter().position(|d| d == port).map_or(0, |i| i as u16 + 1)
}

/// Checks whether the kernel can send XDP frames through the interface.
fn takes_frames(device: &Egress) -> Result<(), String> {
    match xdp_features(device.index()) {
        Ok(features) if features.bits & feature::NDO_XMIT == 0 => Err(format!(
            "interface {}: its driver takes no frames from the kernel's half of a program now; for veth, switch on GRO at its other end \
             (ethtool -K PEER gro on)",
            device.name()
        )),
        // An old kernel does not report this; then the counter of unsent frames shows it.
        _ => Ok(()),
    }
}

/// Returns the counters that a program uses.
fn used_counters(program: &Program) -> impl Iterator<Item = u8> {
    program.blocks.iter().flat_map(|b| &b.code).filter_map(|inst| match inst {
        Inst::Count { counter, .. } => Some(*counter),
        _ => None,
    })
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
