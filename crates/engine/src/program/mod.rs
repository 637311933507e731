//! The program of a port: of the packet language, it judges every packet before the ring.
//!
//! ```text
//!        ┌ kernel (AF_XDP): first stages ┐   record before    ┌ engine thread: the rest ┐
//! port ─►│ drop · forward · host         ├──── the packet ───►│ drop · forward          ├─► filter, ring
//!        └───────────────────────────────┘                    └─────────────────────────┘
//! ```
//! On AF_XDP the stages that the kernel can do run there ([`lang::ebpf`]); what they leave, and on other sources everything, runs in
//! the engine thread. A packet that the program drops, forwards or leaves to the host is *filtered* in the ledger; of one that
//! goes on to the ring, mark and (if the program steers) hash travel in its descriptor. Classes choose members of groups, which there are none of
//! before the ring.
//!
//! **A swap** ([`PortProgram::swap`]) does everything that can fail first: the text is checked, its user half compiled, its kernel half
//! verified. Then every queue finds the new half in its letter box, and only then does the kernel exchange the programs. A program
//! that is refused anywhere replaces nothing.

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
use jit::Executable;
use lang::FragmentTracker;
use lang::ebpf::{Clock, EmitOptions, MapValue, Metadata, Object, Role, ToUser};
use lang::ir::{COUNTERS, Effect, Expiry, Inst, Program};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use sys::netlink::netdev::{feature, xdp_features};
use user_part::{ProgramMailbox, UserPart};

/// Long enough to leave the processor.
const YIELD_TIME: Duration = Duration::from_micros(50);

/// So many entries of a map in the kernel are looked at in one go, for those that have expired.
const SWEEP: usize = 8192;

/// What packets come from, as far as a program has to know.
#[derive(Clone, Debug)]
pub(crate) struct ProgramContext {
    /// The port's name.
    pub port: String,
    /// How its packets come.
    pub access: Access,
    /// Of the frames.
    pub link_type: u16,
    /// Of the hashes, the same on all queues.
    pub hash_key: u64,
}

/// How packets come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// From a port that is ours alone (AF_XDP).
    Owned,
    /// From a port that the host uses too.
    Shared,
    /// From a file, or made up.
    Replayed,
}

/// How a program runs, for documents.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ProgramReport {
    /// The file, or where else it came from.
    pub name: String,
    /// Its number: one more with each swap.
    pub generation: u32,
    /// Stages of its pipeline.
    pub stages: usize,
    /// How many of them run in the kernel.
    pub in_kernel: usize,
    /// Why none does, if none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_refusal: Option<String>,
    /// Instructions that the kernel's verifier went through.
    pub verified_instructions: u32,
    /// What it took over from the program before.
    #[serde(skip_serializing_if = "StateTransfer::is_empty")]
    pub state_transfer: StateTransfer,
    /// Whether the user half is machine code.
    pub native: bool,
    /// Why it is not, if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub native_refusal: Option<String>,
    /// The flow maps that are kept in the kernel. What the kernel leaves undecided is remembered apart from them, in user space.
    /// In documents, `maps` has them, with how full they are.
    #[serde(skip)]
    pub kernel_maps: Vec<String>,
    /// Milliseconds that compiling the user half took.
    pub compile_ms: f64,
    /// Milliseconds that making, loading and verifying the kernel half took.
    pub load_ms: f64,
    /// Milliseconds that the exchange took.
    pub swap_ms: f64,
    /// Packets that the kernel half disposed of, by what became of them.
    pub kernel: KernelOutcomes,
    /// Packets that the user half disposed of, and copies that it sent.
    pub user: UserOutcomes,
    /// Packets that the kernel half left undecided, for the user half to judge from the start.
    pub undecided: u64,
    /// What the program counts and what those before it have counted, by counter.
    pub counters: BTreeMap<u8, u64>,
    /// What it remembers.
    pub maps: Vec<MapReport>,
}

/// How full a map of a program is.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MapReport {
    /// Its name.
    pub map: String,
    /// In the kernel, if a stage there uses it: all queues share it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<MapUsage>,
    /// In user space: one for each queue, all of them together.
    pub user: MapUsage,
}

/// Packets that the kernel half disposed of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KernelOutcomes {
    /// Dropped.
    pub dropped: u64,
    /// Sent out of another port.
    pub forwarded: u64,
    /// Given to the host.
    pub to_host: u64,
    /// To be sent out of a port that is not there any more.
    pub unsent: u64,
}

impl ProgramReport {
    /// Adds what one queue knows.
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
            // A queue may still be with the program before.
            if let Some(report) = self.maps.iter_mut().find(|report| report.map == *map) {
                report.user += *here;
            }
        }
    }

    /// Adds counters, by their number. Those that only a program before has raised are among them: their count goes on.
    fn count(&mut self, numbers: &[u64]) {
        for (counter, n) in (0..COUNTERS).zip(numbers).filter(|(_, n)| **n != 0) {
            let sum = self.counters.entry(counter).or_default();
            *sum = sum.wrapping_add(*n);
        }
    }
}

/// The programs of one port, one after the other.
pub(crate) struct PortProgram {
    context: ProgramContext,
    /// Which way the parts of datagrams go, for all queues and programs.
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
    /// Whether packets may come from the kernel half without its number.
    may_be_silent: bool,
    /// The port, where it has a kernel half and is there. The sources hold it: a port that is kept cannot come back.
    dispatchers: Option<Weak<XdpDispatcher>>,
    accounting: KernelAccounting,
    letters: BTreeMap<u16, Arc<ProgramMailbox>>,
    /// The port that each device of the kernel half leads to, as it was told last; 0 leads nowhere.
    leads: Vec<u32>,
    /// Where the sweep of each map goes on.
    swept: BTreeMap<u16, Vec<u8>>,
}

impl PortProgram {
    /// Checks the program; nothing of the port is touched.
    ///
    /// # Errors
    /// In one line: where, what is wrong, what to write instead.
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

    /// Puts the kernel half onto a port that has just been opened, before any frame is let in.
    ///
    /// # Errors
    /// In words, the verifier's log among them.
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

    /// The user half for one queue.
    ///
    /// # Errors
    /// When there is no memory for its maps.
    pub fn program_sequence(&self, place: QueueInfo) -> Result<ProgramSequence, String> {
        let mut state = self.lock();
        let letters = Arc::clone(state.letters.entry(place.queue).or_default());
        letters.comes_from(state.dispatchers.clone());
        let half = self.half(&state.program, &state.judge, &state.devices, &state.report, state.may_be_silent)?;
        Ok(ProgramSequence::new(half, letters, place))
    }

    /// Exchanges the program while packets come; `None` if it is the same already.
    ///
    /// # Errors
    /// In one line, or with the verifier's log; the program before then goes on.
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
        // The scheduler is not to step in between the letters and the end of the exchange. Compiling and verifying have used up this
        // thread's turn on its processor; a nap begins another, where nothing more can be had.
        // PERF: of 1400 exchanges between two busy processors 1.30 → 0.17 ms at most (records/2026-11-22-xdp.md).
        std::thread::sleep(YIELD_TIME);
        let exchanged = sys::priority::with_raised_priority(|| {
            for (letters, half) in state.letters.values().zip(halves) {
                letters.post(half);
            }
            match (&steer, prepared) {
                (Some(steer), Some(prepared)) => steer.exchange(prepared),
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

    /// What has to be done now and then: the kernel's idea of the time follows the system clock, and entries that have expired are
    /// taken out of its maps, which would otherwise hold their places until somebody asks for them. Ports to forward to that came
    /// back are used again; to those that take nothing the kernel half sends nothing, which it counts: of what it has given to a driver it does not learn
    /// whether it was sent.
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
                let told = if index == 0 { map.remove(&key).map(drop) } else { map.set(&key, &index.to_ne_bytes()) };
                // Where the kernel refuses, it is asked again the next time.
                if told.is_ok() {
                    *lead = index;
                }
            }
        }
        if let Some(clock) = steer.map(Role::Clock) {
            let offset = sys::clock::since_monotonic().as_nanos() as u64;
            // The next time does as well.
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

    /// What a person should know of how it runs, in order.
    pub fn warnings(&self) -> Vec<String> {
        let mut state = self.lock();
        let State { egress_monitor: ways, devices, .. } = &mut *state;
        ways.refresh(devices, Instant::now());
        ways.warnings()
    }

    /// How the program runs. What user space knows of it comes with the queues.
    pub fn report(&self) -> ProgramReport {
        let state = self.lock();
        let (mut report, books) = (state.report.clone(), state.accounting.clone());
        let counters = used_counters(&state.program).map(|counter| (counter, 0));
        report.counters = counters.collect();
        let (maps, nothing) = (state.program.maps.iter(), MapUsage { used: Some(0), ..MapUsage::default() });
        let maps = maps.map(|map| MapReport { map: map.name.clone(), kernel: None, user: nothing });
        report.maps = maps.collect();
        // Counting entries takes a while, for which no exchange has to wait.
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

    /// The kernel half. Of a program that is not for the kernel, it only says which packets are the program's.
    fn object(&self, program: &Program, steer: &XdpDispatcher, report: &mut ProgramReport) -> Object {
        let wish = EmitOptions {
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
        match lang::ebpf::emit(program, &wish) {
            Ok(object) => {
                report.in_kernel = object.stages;
                let maps = object.flow_maps().filter_map(|number| program.maps.get(usize::from(number)));
                report.kernel_maps = maps.map(|map| map.name.clone()).collect();
                object
            }
            Err(why) => {
                report.kernel_refusal = Some(why.to_string());
                lang::ebpf::announce(&wish)
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
        let taken = steer.exchange(prepared).map_err(|e| capture::afxdp::explain(&self.context.port, e).to_string())?;
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

/// The user half behind the stages in the kernel: machine code where there can be some.
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
            if let Some(stage) = lang::ir::copies_to_stack(&program) {
                let text = &program.stages[stage].text;
                let what = format!(
                    "`{text}` copies packets to the host, and an interface that is taken for capture alone gives it no copies"
                );
                return refuse(
                    &what,
                    "give them to nobody else (`detour`), or write it into a group's program (docs/GROUPS.md)",
                );
            }
            let placed = lang::ir::placement(&program);
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

/// One plus the index of the port among the program's devices, or 0.
fn ingress(program: &Program, port: &str) -> u16 {
    program.devices.iter().position(|d| d == port).map_or(0, |i| i as u16 + 1)
}

/// Whether the kernel can send frames of XDP out of the port.
fn takes_frames(device: &Egress) -> Result<(), String> {
    match xdp_features(device.index()) {
        Ok(features) if features.bits & feature::NDO_XMIT == 0 => Err(format!(
            "interface {}: its driver takes no frames from the kernel's half of a program now; for veth, switch on GRO at its other end \
             (ethtool -K PEER gro on)",
            device.name()
        )),
        // An old kernel cannot say; then the count of what was not sent tells.
        _ => Ok(()),
    }
}

/// The counters that a program uses.
fn used_counters(program: &Program) -> impl Iterator<Item = u8> {
    program.blocks.iter().flat_map(|b| &b.code).filter_map(|inst| match inst {
        Inst::Count { counter, .. } => Some(*counter),
        _ => None,
    })
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
