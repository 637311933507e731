//! The programs that run at one interface, one after the other: check, installation, swap, periodic work and report.

use crate::accounting::KernelAccounting;
use crate::check::{ProgramContext, ProgramPlan, compile};
use crate::egress_monitor::EgressMonitor;
use crate::error::ProgramError;
use crate::mailbox::{ProgramMailbox, UserPart};
use crate::report::{MapReport, MapUsage, ProgramReport};
use crate::user_part::{ProgramSequence, QueueInfo};
use capture::AnySource;
use capture::afxdp::{DispatcherError, PreparedProgram, XdpDispatcher, XdpMode};
use capture::egress::Egress;
use ir::{Expiry, FragmentTracker, Program};
use jit::Executable;
use jit::state_transfer::{MapState, StateTransfer};
use kernel_programs::{Clock, EmitOptions, MapValue, Metadata, Object, Role, ToUser};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use sys::netlink::netdev::{feature, xdp_features};

/// A sleep that is long enough to yield the processor.
const YIELD_TIME: Duration = Duration::from_micros(50);

/// The largest number of entries of a kernel map that one sweep checks for expiry.
const SWEEP_MAX: usize = 8192;

/// The programs that run at one interface, one after the other.
pub struct InterfaceProgram {
    context: ProgramContext,
    /// Fragment tracking, shared by all queues and by successive programs.
    fragments: Arc<FragmentTracker>,
    state: Mutex<State>,
}

struct State {
    text: String,
    program: Program,
    egresses: Arc<Vec<Egress>>,
    egress_monitor: EgressMonitor,
    executable: Executable,
    report: ProgramReport,
    /// True if packets that the kernel part has evaluated may arrive without the generation of the program.
    may_lack_generation: bool,
    /// The XDP dispatcher, if there is a kernel part and the interface exists. The sources own the dispatcher: a strong
    /// reference here would retain the dispatcher of a removed interface.
    dispatcher: Option<Weak<XdpDispatcher>>,
    kernel: KernelAccounting,
    mailboxes: BTreeMap<u16, Arc<ProgramMailbox>>,
    /// The interface index that was last set for each egress interface of the kernel part; 0 if the interface was not
    /// ready.
    egress_indices: Vec<u32>,
    /// For each kernel map, the key after which the next removal of expired entries continues.
    swept: BTreeMap<u16, Vec<u8>>,
}

impl InterfaceProgram {
    /// Compiles the program and changes nothing at the interface.
    ///
    /// # Errors
    /// The text is not a valid program, or the interface cannot run it.
    pub fn compile(plan: &ProgramPlan, context: ProgramContext) -> Result<Self, ProgramError> {
        let program = compile(plan, &context)?;
        let egresses = Arc::new(open_egresses(&program)?);
        let report = ProgramReport { name: plan.name.clone(), generation: 1, ..ProgramReport::default() };
        let (executable, report) = executable(&program, 0, report)?;
        let mut egress_monitor = EgressMonitor::default();
        egress_monitor.replace(&egresses);
        let state = State {
            text: plan.text.clone(),
            program,
            egresses,
            egress_monitor,
            executable,
            report,
            may_lack_generation: false,
            dispatcher: None,
            kernel: KernelAccounting::default(),
            mailboxes: BTreeMap::new(),
            egress_indices: Vec::new(),
            swept: BTreeMap::new(),
        };
        let fragments = Arc::new(FragmentTracker::new(context.hash_key));
        Ok(Self { context, fragments, state: Mutex::new(state) })
    }

    /// Loads the kernel part on an interface that was just opened, before the interface delivers frames.
    ///
    /// # Errors
    /// The kernel rejects the kernel part, or not all queues are captured.
    pub fn install(&self, sources: &[AnySource]) -> Result<(), ProgramError> {
        let Some(AnySource::AfXdp(first)) = sources.first() else { return Ok(()) };
        let dispatcher = Arc::clone(first.open_dispatcher());
        if sources.len() < dispatcher.queues() as usize {
            return Err(ProgramError::Queues {
                interface: self.context.interface.clone(),
                queues: dispatcher.queues(),
                captured: sources.len(),
            });
        }
        let mut state = self.lock();
        let mut report = state.report.clone();
        let object = self.object(&state.program, &dispatcher, &mut report);
        if object.stages > 0 {
            (state.executable, report) = executable(&state.program, object.stages, report)?;
        }
        let prepared = self.prepare(&dispatcher, &object, &state.egresses, &mut report)?;
        report.swap_ms = millis(dispatcher.swap(prepared).map_err(|e| self.kernel_refusal(e))?);
        (state.report, state.may_lack_generation) = (report, object.is_evaluated_again);
        state.egress_indices = state.egresses.iter().map(Egress::index).collect();
        let State { kernel, program, .. } = &mut *state;
        kernel.begin(&dispatcher, program.maps.len());
        let dispatcher = Arc::downgrade(&dispatcher);
        state.mailboxes.values().for_each(|mailbox| mailbox.set_dispatcher(Some(Weak::clone(&dispatcher))));
        state.dispatcher = Some(dispatcher);
        Ok(())
    }

    /// Creates the user part for one queue.
    ///
    /// # Errors
    /// There is not enough memory for the maps of the program.
    pub fn program_sequence(&self, queue: QueueInfo) -> Result<ProgramSequence, ProgramError> {
        let mut state = self.lock();
        let mailbox = Arc::clone(state.mailboxes.entry(queue.queue).or_default());
        mailbox.set_dispatcher(state.dispatcher.clone());
        let user_part = self.user_part(
            &state.program,
            &state.executable,
            &state.egresses,
            &state.report,
            state.may_lack_generation,
        )?;
        Ok(ProgramSequence::new(user_part, mailbox, queue))
    }

    /// Replaces the running program while packets arrive. Returns `None` if the running program has the same text.
    ///
    /// # Errors
    /// The interface cannot run the program, or the kernel rejects it; the previous program continues.
    pub fn swap(&self, plan: &ProgramPlan) -> Result<Option<ProgramReport>, ProgramError> {
        let mut state = self.lock();
        if plan.text == state.text {
            return Ok(None);
        }
        let program = compile(plan, &self.context)?;
        let egresses = Arc::new(open_egresses(&program)?);
        let generation = state.report.generation + 1;
        let mut report = ProgramReport { name: plan.name.clone(), generation, ..ProgramReport::default() };
        let dispatcher = match state.dispatcher.as_ref().map(Weak::upgrade) {
            Some(None) => return Err(ProgramError::Away(self.context.interface.clone())),
            Some(dispatcher) => dispatcher,
            None => None,
        };
        let object = dispatcher.as_deref().map(|dispatcher| self.object(&program, dispatcher, &mut report));
        let (executable, mut report) = executable(&program, report.in_kernel, report)?;
        let may_lack_generation = object.as_ref().is_some_and(|object| object.is_evaluated_again);
        let user_parts: Vec<UserPart> = (0..state.mailboxes.len())
            .map(|_| self.user_part(&program, &executable, &egresses, &report, may_lack_generation))
            .collect::<Result<_, _>>()?;
        let mut prepared = None;
        if let (Some(dispatcher), Some(object)) = (&dispatcher, &object) {
            prepared = Some(self.prepare(dispatcher, object, &egresses, &mut report)?);
        }
        // The sleep avoids preemption between the change of the mailboxes and the end of the swap: compilation and
        // verification have used up this thread's time slice, and the thread gets a new time slice after a short sleep.
        // PERF: the raised priority reduced the longest of 1400 swaps between two busy processors from 1.30 to 0.17 ms
        // (records/2026-11-22-xdp.md).
        std::thread::sleep(YIELD_TIME);
        let swapped = sys::priority::with_raised_priority(|| {
            for (mailbox, user_part) in state.mailboxes.values().zip(user_parts) {
                mailbox.post(user_part);
            }
            match (&dispatcher, prepared) {
                (Some(dispatcher), Some(prepared)) => dispatcher.swap(prepared),
                _ => Ok(Duration::ZERO),
            }
        });
        match swapped {
            Ok(time) => report.swap_ms = millis(time),
            Err(e) => {
                state.mailboxes.values().for_each(|mailbox| mailbox.retract(generation));
                return Err(self.kernel_refusal(e));
            }
        }
        let (was, kernel, native) = (state.program.maps.clone(), state.kernel.clone(), state.report.native);
        if let Some(dispatcher) = &dispatcher {
            state.kernel.begin(dispatcher, program.maps.len());
        }
        let map_state = |kernel: &KernelAccounting, map, native| MapState { in_kernel: kernel.has(map), native };
        report.state_transfer = StateTransfer::between(&was, &program.maps, |old, new| {
            map_state(&kernel, old, native).wall(map_state(&state.kernel, new, report.native))
        });
        state.program = program;
        state.text.clone_from(&plan.text);
        state.egress_monitor.replace(&egresses);
        (state.egresses, state.executable, state.may_lack_generation) = (egresses, executable, may_lack_generation);
        state.report = report.clone();
        state.egress_indices = state.egresses.iter().map(Egress::index).collect();
        state.swept.clear();
        Ok(Some(report))
    }

    /// Periodic work: sets the kernel part's clock to the system time, removes expired entries from the kernel maps,
    /// which would otherwise occupy space until the next lookup, and finds egress interfaces that were removed and
    /// created again. The kernel part sends nothing to an interface that is not ready, and counts packets for it as
    /// unsent. The kernel reports no transmit completion, so a redirected frame counts as forwarded.
    pub fn maintain(&self) {
        let mut state = self.lock();
        let dispatcher = state.dispatcher.as_ref().and_then(Weak::upgrade);
        let rebound: Vec<bool> = state.egresses.iter().map(Egress::find_again).collect();
        let State { egress_monitor, egresses, egress_indices, program, swept, .. } = &mut *state;
        egress_monitor.refresh(egresses, Instant::now());
        let Some(dispatcher) = dispatcher else { return };
        set_egresses(&dispatcher, egresses, &rebound, egress_indices);
        if let Some(clock) = dispatcher.map(Role::Clock) {
            let offset = sys::clock::since_monotonic().as_nanos() as u64;
            // If the clock cannot be set, the next call of this function tries again.
            let _ = clock.set(&0u32.to_ne_bytes(), &offset.to_ne_bytes());
        }
        sweep(&dispatcher, program, swept);
    }

    /// Returns the warnings about the program, in order.
    pub fn warnings(&self) -> Vec<String> {
        let mut state = self.lock();
        let State { egress_monitor, egresses, .. } = &mut *state;
        egress_monitor.refresh(egresses, Instant::now());
        egress_monitor.warnings()
    }

    /// Returns the report without the counters of the user part. The caller adds those of each queue
    /// ([`ProgramReport::add`]).
    pub fn report(&self) -> ProgramReport {
        let state = self.lock();
        let (mut report, kernel) = (state.report.clone(), state.kernel.clone());
        report.counters = state.program.counters().into_iter().map(|counter| (counter, 0)).collect();
        let user = MapUsage { used: Some(0), ..MapUsage::default() };
        let maps = state.program.maps.iter();
        report.maps = maps.map(|map| MapReport { map: map.name.clone(), kernel: None, user }).collect();
        // The lock is released before the map entries are counted. Counting takes long, and a swap must not wait for
        // the lock during this time.
        drop(state);
        let numbers = kernel.numbers();
        report.count(&numbers);
        for (map, usage) in kernel.maps(&numbers) {
            if let Some(report) = report.maps.get_mut(map) {
                report.kernel = Some(usage);
            }
        }
        report
    }

    fn user_part(
        &self,
        program: &Program,
        executable: &Executable,
        egresses: &Arc<Vec<Egress>>,
        report: &ProgramReport,
        may_lack_generation: bool,
    ) -> Result<UserPart, ProgramError> {
        Ok(UserPart {
            generation: report.generation,
            may_lack_generation,
            all_in_kernel: report.in_kernel == program.stages.len(),
            worker: executable.worker_among(self.context.hash_key, Arc::clone(&self.fragments))?,
            ingress: ingress(program, &self.context.interface),
            forwards_own: program.reads_direction(),
            egresses: Arc::clone(egresses),
        })
    }

    /// Creates the kernel part. If no stage can run in the kernel, the kernel part only marks packets with the
    /// generation.
    fn object(&self, program: &Program, dispatcher: &XdpDispatcher, report: &mut ProgramReport) -> Object {
        let options = EmitOptions {
            link_type: self.context.link_type,
            hash_key: self.context.hash_key,
            generation: report.generation,
            port: 0,
            ingress: ingress(program, &self.context.interface),
            queues: dispatcher.queues(),
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
            Err(refusal) => {
                report.kernel_refusal = Some(refusal.to_string());
                kernel_programs::announce(&options)
            }
        }
    }

    /// Loads the kernel part, which the kernel verifies.
    fn prepare(
        &self,
        dispatcher: &XdpDispatcher,
        object: &Object,
        egresses: &[Egress],
        report: &mut ProgramReport,
    ) -> Result<PreparedProgram, ProgramError> {
        let begun = Instant::now();
        if object.maps.iter().any(|m| m.role == Role::EgressInterfaces)
            && dispatcher.mode() == XdpMode::Native
            && let Some(egress) = egresses.iter().find(|egress| !accepts_frames(egress))
        {
            return Err(ProgramError::EgressDriver(egress.name().to_owned()));
        }
        let indices: Vec<u32> = egresses.iter().map(Egress::index).collect();
        let prepared =
            dispatcher.prepare(object, &indices, sys::clock::since_monotonic()).map_err(|e| self.kernel_refusal(e))?;
        if object.stages > 0 {
            report.verified_instructions = prepared.verified();
        }
        report.load_ms = millis(begun.elapsed());
        Ok(prepared)
    }

    fn kernel_refusal(&self, e: DispatcherError) -> ProgramError {
        ProgramError::KernelPart(capture::afxdp::explain(&self.context.interface, e))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Compiles the stages that follow the kernel stages, to machine code if possible.
fn executable(
    program: &Program,
    stages: usize,
    mut report: ProgramReport,
) -> Result<(Executable, ProgramReport), ProgramError> {
    let begun = Instant::now();
    let (executable, refusal) = match Executable::native_behind(program.clone(), stages, || begun.elapsed()) {
        Ok(executable) => (executable, None),
        Err(refusal) => (Executable::interpreted_behind(program.clone(), stages)?, Some(refusal.to_string())),
    };
    report.native_refusal = refusal;
    (report.native, report.compile_ms) = (executable.report().native, millis(begun.elapsed()));
    report.stages = program.stages.len();
    Ok((executable, report))
}

fn open_egresses(program: &Program) -> Result<Vec<Egress>, ProgramError> {
    program.egress_interfaces.iter().map(|name| Ok(Egress::open(name)?)).collect()
}

/// Returns one plus the index of the interface among the program's egress interfaces; 0 if it is not one of them.
fn ingress(program: &Program, interface: &str) -> u16 {
    program.egress_interfaces.iter().position(|name| name == interface).map_or(0, |i| i as u16 + 1)
}

/// True if the kernel can send XDP frames through the interface. An old kernel does not report this; then the result is
/// true, and a failure is visible in the counter of unsent frames.
fn accepts_frames(egress: &Egress) -> bool {
    xdp_features(egress.index()).map_or(true, |features| features.bits & feature::NDO_XMIT != 0)
}

/// Writes the interface indices of the egress interfaces into the interface map of the kernel part, and removes those
/// of egress interfaces that are not ready. `rebound` is true for each egress interface that was removed and created
/// again; `indices` are the interface indices in the map, 0 for none.
fn set_egresses(dispatcher: &XdpDispatcher, egresses: &[Egress], rebound: &[bool], indices: &mut [u32]) {
    let Some(map) = dispatcher.map(Role::EgressInterfaces) else { return };
    for (slot, ((egress, rebound), set)) in (0u32..).zip(egresses.iter().zip(rebound).zip(indices)) {
        let is_ready =
            egress.is_ready() == Some(true) && (dispatcher.mode() != XdpMode::Native || accepts_frames(egress));
        let index = if is_ready { egress.index() } else { 0 };
        if index == *set && !rebound {
            continue;
        }
        let key = slot.to_ne_bytes();
        let result = if index == 0 { map.remove(&key).map(drop) } else { map.set(&key, &index.to_ne_bytes()) };
        // If the index cannot be set, the next call of this function tries again.
        if result.is_ok() {
            *set = index;
        }
    }
}

/// Removes expired entries from the maps of the kernel part. Each call checks a part of each map.
fn sweep(dispatcher: &XdpDispatcher, program: &Program, swept: &mut BTreeMap<u16, Vec<u8>>) {
    let now = sys::clock::realtime().nanos();
    for (number, map) in program.maps.iter().enumerate().filter(|(_, map)| map.expiry != Expiry::Never) {
        let number = number as u16;
        let Some(table) = dispatcher.map(Role::Flow(number)) else { continue };
        let from = swept.remove(&number);
        let Ok(keys) = table.keys_behind(from.as_deref(), SWEEP_MAX) else { continue };
        for key in &keys {
            let entry = table.get(key).ok().flatten();
            let entry = entry.as_deref().and_then(<[u8]>::first_chunk).map(MapValue::read);
            if entry.is_some_and(|entry| entry.expired(map.expiry, now)) {
                let _ = table.remove(key);
            }
        }
        if let Some(last) = keys.into_iter().nth(SWEEP_MAX - 1) {
            swept.insert(number, last);
        }
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
