//! An [`Executable`] is a program that is ready to evaluate packets; all workers share it. Each core has its own
//! [`Worker`], which contains the state (counters and flow maps) of the program on that core.

use crate::code::{Code, uses_tables};
use crate::host::Context;
use crate::packet::{Packet, PacketAction, ParseDepth, Verdict};
use crate::refusal::Refusal;
use crate::specialisations::Specialisations;
use crate::table::Table;
use crate::task::Task;
use ::ir::interp::{Execution, Interpreter, ProgramState};
use ::ir::{COUNTERS, Map, Program, Start};
use ::ir::{DuplicateDetectors, FragmentTracker};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Number of packets whose map entries are prefetched together: enough to hide the memory latency, and so few that the
/// entries of the first packet are still in the L1 cache when it is evaluated.
const CHUNK: usize = 16;

/// Entries of flow maps are not prefetched if the tables together are smaller than this number of bytes: such tables
/// remain in a cache of the core, so prefetching would cost more time than it saves.
const NEAR: usize = 512 << 10;

/// A verified program, as machine code or for the interpreter.
#[derive(Clone, Debug)]
pub struct Executable {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    program: Program,
    /// The last stages of the program. Workers run only these stages for packets whose first stages ran outside of this
    /// executable, for example in the kernel.
    rest: Option<Program>,
    parse_depth: ParseDepth,
    native: Option<Native>,
    /// The detectors of duplicates that the workers share, after the first of these workers was created.
    detectors: OnceLock<Arc<DuplicateDetectors>>,
}

#[derive(Debug)]
#[expect(clippy::vec_box, reason = "the code contains the addresses of the boxed values")]
struct Native {
    /// The machine code. The field precedes `forms` and is thus dropped first, because the code contains the memory
    /// addresses of the address sets in `forms`.
    code: Code,
    /// The specialisations from which the code was compiled. They are boxed, because the code contains the memory
    /// addresses of their address sets.
    forms: Vec<Box<Specialisations>>,
    compile_time: Duration,
}

impl Native {
    /// Evaluates packets in chunks; the prefetch function runs two chunks ahead of the evaluation. So the memory
    /// accesses for the map entries of the next chunk overlap with the evaluation of the current chunk. Entries of the
    /// next chunk that are not in their home slot are prefetched in a second step.
    ///
    /// # Safety
    /// The conditions of [`Code::evaluate`] apply; `tables` must be the tables to which the context points.
    unsafe fn evaluate_far(
        &self,
        context: &mut Context,
        tables: &[*mut Table],
        packets: &mut [Packet<'_>],
        verdicts: &mut [Verdict],
    ) {
        let count = packets.len();
        // SAFETY: the caller guarantees the conditions; no code that uses the tables runs at this time.
        let all = |what: fn(&mut Table)| tables.iter().for_each(|t| what(unsafe { &mut **t }));
        let prefetch_chunk = |context: &mut Context, packets: &mut [Packet<'_>], from: usize| {
            let chunk = from.min(count)..(from + CHUNK).min(count);
            // SAFETY: the caller of `evaluate_far` guarantees the conditions.
            unsafe { self.code.prefetch(context, &mut packets[chunk], from) };
            all(Table::fetch);
        };
        prefetch_chunk(context, packets, 0);
        all(Table::follow);
        prefetch_chunk(context, packets, CHUNK);
        for from in (0..count).step_by(CHUNK) {
            all(Table::follow);
            prefetch_chunk(context, packets, from + 2 * CHUNK);
            let chunk = from..(from + CHUNK).min(count);
            let (packets, verdicts) = (&mut packets[chunk.clone()], &mut verdicts[chunk]);
            // SAFETY: the caller of `evaluate_far` guarantees the conditions.
            unsafe { self.code.evaluate(Task::Evaluate, context, packets, verdicts, from) };
        }
    }
}

/// How a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutionInfo {
    /// True if the program runs as machine code, false if the interpreter runs it.
    pub native: bool,
    /// Compile time.
    pub compile_time: Duration,
    /// Size of the machine code in bytes.
    pub code_bytes: usize,
    /// The parse depth.
    pub parse_depth: ParseDepth,
}

impl Executable {
    /// Compiles the program to machine code. `clock` returns the time since an arbitrary fixed start; it serves to
    /// measure the compile time.
    ///
    /// # Errors
    /// The reason why the program cannot run as machine code, as a text with advice for the user. A valid program can
    /// still run in the interpreter ([`interpreted`](Self::interpreted)).
    pub fn native(program: Program, clock: impl Fn() -> Duration) -> Result<Self, Refusal> {
        Self::compiled(program, None, clock)
    }

    /// Compiles the program like [`Executable::native`]. In addition, workers can evaluate packets for which the first
    /// `stages` stages ran outside of the executable, for example in the kernel ([`Worker::resume`]).
    ///
    /// # Errors
    /// As for [`Executable::native`].
    pub fn native_behind(program: Program, stages: usize, clock: impl Fn() -> Duration) -> Result<Self, Refusal> {
        Self::compiled(program, Some(stages), clock)
    }

    fn compiled(program: Program, stages: Option<usize>, clock: impl Fn() -> Duration) -> Result<Self, Refusal> {
        let begun = clock();
        program.verify()?;
        let rest = rest(&program, stages)?;
        let mut forms = vec![Box::new(Specialisations::of(&program, Start::Fresh))];
        forms.extend(rest.iter().map(|rest| Box::new(Specialisations::of(rest, Start::Resumed))));
        let mut tasks = vec![(Task::Evaluate, &*forms[0])];
        tasks.extend(forms.get(1).map(|rest| (Task::Resume, &**rest)));
        if uses_tables(&forms[0].whole) {
            tasks.push((Task::Prefetch, &forms[0]));
        }
        let code = Code::of(&tasks)?;
        let native = Native { code, forms, compile_time: clock().saturating_sub(begun) };
        Ok(Self::new(program, rest, Some(native)))
    }

    /// Creates an executable that runs the program in the reference interpreter. The interpreter is slower by an order
    /// of magnitude, but available on every host.
    ///
    /// # Errors
    /// The program fails verification.
    pub fn interpreted(program: Program) -> Result<Self, Refusal> {
        program.verify()?;
        Ok(Self::new(program, None, None))
    }

    /// Creates an executable like [`Executable::native_behind`], but one that runs the program in the reference
    /// interpreter.
    ///
    /// # Errors
    /// The program fails verification.
    pub fn interpreted_behind(program: Program, stages: usize) -> Result<Self, Refusal> {
        program.verify()?;
        let rest = rest(&program, Some(stages))?;
        Ok(Self::new(program, rest, None))
    }

    fn new(program: Program, rest: Option<Program>, native: Option<Native>) -> Self {
        // The specialisations may need less header parsing than the original program, so their parse depth is used.
        let depth = match &native {
            Some(native) => native.forms.iter().map(|form| form.parse_depth).max(),
            None => std::iter::once(&program).chain(&rest).map(ParseDepth::of).max(),
        };
        let parse_depth = depth.unwrap_or_default();
        Self { shared: Arc::new(Shared { program, rest, parse_depth, native, detectors: OnceLock::new() }) }
    }

    /// The program in the IR.
    pub fn program(&self) -> &Program {
        &self.shared.program
    }

    /// Size in bytes of the flow maps of one worker when they are full, and of the detectors of duplicates. Memory
    /// pages of a map are allocated on first use, but traffic may use every page.
    pub fn memory(&self) -> u64 {
        let program = &self.shared.program;
        let detectors = program.detectors.iter().map(|detector| detector.settings().memory());
        program.maps.iter().map(Table::bytes_of).chain(detectors).fold(0, u64::saturating_add)
    }

    /// How the program runs.
    pub fn report(&self) -> ExecutionInfo {
        let native = self.shared.native.as_ref();
        ExecutionInfo {
            native: native.is_some(),
            compile_time: native.map_or(Duration::ZERO, |n| n.compile_time),
            code_bytes: native.map_or(0, |n| n.code.bytes()),
            parse_depth: self.shared.parse_depth,
        }
    }

    /// Creates a worker with empty maps. `hash_key` is the secret key of the flow hashes; all workers of an engine must
    /// have the same key.
    ///
    /// # Errors
    /// The memory for a flow map cannot be allocated.
    pub fn worker(&self, hash_key: u64) -> Result<Worker, Refusal> {
        let detectors = Arc::new(DuplicateDetectors::of(&self.shared.program, hash_key));
        self.worker_with(hash_key, Arc::new(FragmentTracker::new(hash_key)), detectors)
    }

    /// Creates a worker that shares the fragment tracker `datagrams` with other workers, and the detectors of
    /// duplicates with the other workers of this executable that this function created. Sharing is necessary if
    /// different workers may process the fragments of one datagram, or the copies of one packet. A program that
    /// replaces this program has new detectors.
    ///
    /// # Errors
    /// As for [`Executable::worker`].
    pub fn worker_among(&self, hash_key: u64, datagrams: Arc<FragmentTracker>) -> Result<Worker, Refusal> {
        let new = || Arc::new(DuplicateDetectors::of(&self.shared.program, hash_key));
        self.worker_with(hash_key, datagrams, Arc::clone(self.shared.detectors.get_or_init(new)))
    }

    fn worker_with(
        &self,
        hash_key: u64,
        datagrams: Arc<FragmentTracker>,
        detectors: Arc<DuplicateDetectors>,
    ) -> Result<Worker, Refusal> {
        let program = &self.shared.program;
        let state = if self.shared.native.is_some() {
            let table = |map: &Map| {
                let refuse = |error| Refusal::Map { name: map.name.clone(), capacity: map.capacity, error };
                Table::new(map, hash_key).map(Box::new).map_err(refuse)
            };
            let tables = program.maps.iter().map(table).collect::<Result<_, _>>()?;
            State::Native { tables, counters: Box::new([0; COUNTERS as usize]), hash_key }
        } else {
            State::Interpreted(Box::new(ProgramState {
                datagrams: Arc::clone(&datagrams),
                detectors: Arc::clone(&detectors),
                ..ProgramState::of(program, hash_key)
            }))
        };
        let (acts, traces) = (Vec::new(), Vec::new());
        Ok(Worker { executable: self.clone(), state, datagrams, detectors, acts, traces, sequence: 0 })
    }
}

/// The last part of the program, without its first `stages` stages, which run outside of this executable; `None` if all
/// stages run in it.
fn rest(program: &Program, stages: Option<usize>) -> Result<Option<Program>, Refusal> {
    let Some(stages) = stages else { return Ok(None) };
    let (_, rest) = program.split(stages);
    rest.verify()?;
    Ok(Some(rest))
}

/// The worker of one core: it evaluates batches of packets and stores the state of the program.
#[derive(Debug)]
pub struct Worker {
    executable: Executable,
    state: State,
    /// The fragment tracking. The state of an interpreted worker refers to the same fragment tracking.
    datagrams: Arc<FragmentTracker>,
    detectors: Arc<DuplicateDetectors>,
    acts: Vec<PacketAction>,
    traces: Vec<Execution>,
    sequence: u64,
}

#[derive(Debug)]
enum State {
    Native {
        #[expect(
            clippy::vec_box,
            reason = "the code contains the addresses of the tables, and a swap moves the boxes between lists"
        )]
        tables: Vec<Box<Table>>,
        counters: Box<[u64; COUNTERS as usize]>,
        hash_key: u64,
    },
    Interpreted(Box<ProgramState>),
}

impl Worker {
    // PERF: `ip >-> steer_flow` with packets in memory: 20 → 9.7 ns/packet, including descriptor and header parser;
    // the interpreter takes 154 ns/packet (docs/design/machine-code.md).
    /// Evaluates packets and overwrites `verdicts`. [`Worker::actions`] returns their actions until the next call.
    ///
    /// # Panics
    /// `packets` and `verdicts` have different lengths.
    pub fn evaluate(&mut self, packets: &mut [Packet<'_>], verdicts: &mut [Verdict]) {
        self.run(Task::Evaluate, packets, verdicts);
    }

    /// Evaluates packets for which the first stages of the program ran outside of this executable. Before the call,
    /// `verdicts` contains the verdicts after these first stages; the call replaces them by the final verdicts. The
    /// call uses the same flow maps and counters as [`Worker::evaluate`].
    ///
    /// # Panics
    /// `packets` and `verdicts` have different lengths, or the executable was not created by
    /// [`Executable::native_behind`].
    pub fn resume(&mut self, packets: &mut [Packet<'_>], verdicts: &mut [Verdict]) {
        assert!(self.executable.shared.rest.is_some(), "the executable was not compiled for `resume`");
        self.run(Task::Resume, packets, verdicts);
    }

    fn run(&mut self, task: Task, packets: &mut [Packet<'_>], verdicts: &mut [Verdict]) {
        assert_eq!(packets.len(), verdicts.len(), "there must be one verdict for each packet");
        self.acts.clear();
        self.traces.clear();
        let shared = &*self.executable.shared;
        let sequence = self.sequence;
        self.sequence += packets.len() as u64;
        match (&mut self.state, &shared.native) {
            (State::Native { tables, counters, hash_key }, Some(native)) => {
                let far = tables.iter().map(|t| t.footprint()).sum::<usize>() > NEAR;
                let tables: Vec<*mut Table> = tables.iter_mut().map(|t| std::ptr::from_mut(&mut **t)).collect();
                let mut context = Context {
                    hash_key: *hash_key,
                    counters: counters.as_mut_ptr(),
                    tables: tables.as_ptr(),
                    acts: &mut self.acts,
                    traces: &mut self.traces,
                    datagrams: &*self.datagrams,
                    detectors: &*self.detectors,
                    sequence,
                };
                if packets.len() > 1 {
                    // Packets are prefetched explicitly, because the hardware prefetcher does not cross page
                    // boundaries. PERF: `ip >-> steer_flow` with packets in memory, seven runs of each version in
                    // alternation: 9.5 → 10.3 times the packet rate of the interpreter.
                    packets.iter().for_each(|packet| sys::memory::prefetch(packet.bytes().as_ptr()));
                }
                // SAFETY: the tables were created for this program's maps, in the order of the maps. Tables, counters,
                // actions and traces belong to this worker. The worker owns a reference to the fragment tracking, which
                // several workers may use at the same time.
                unsafe {
                    if far && task == Task::Evaluate && native.code.has_prefetch() {
                        native.evaluate_far(&mut context, &tables, packets, verdicts);
                    } else {
                        native.code.evaluate(task, &mut context, packets, verdicts, 0);
                    }
                }
            }
            (State::Interpreted(memory), _) => {
                let rest = shared.rest.as_ref().filter(|_| task == Task::Resume);
                let mut interpreter = Interpreter::new(rest.unwrap_or(&shared.program));
                for (i, (packet, verdict)) in packets.iter_mut().zip(verdicts).enumerate() {
                    packet.look(shared.parse_depth);
                    packet.facts.sequence = sequence + i as u64;
                    let start = rest.map_or_else(|| Execution::start(packet.facts.mark), |_| verdict.outcome());
                    let outcome = interpreter.run_from(start, packet.bytes(), &packet.facts, memory);
                    *verdict = Verdict::of(&outcome);
                    self.acts.extend(outcome.actions.iter().map(|a| PacketAction { packet: i as u32, action: *a }));
                    self.traces.extend(outcome.traces);
                }
            }
            (State::Native { .. }, None) => unreachable!("the worker has the kind of state that its executable needs"),
        }
    }

    /// The actions that the last call of `evaluate` or `resume` requested, in order.
    pub fn actions(&self) -> &[PacketAction] {
        &self.acts
    }

    /// For each [`::ir::Log::Trace`] among the actions, in order: the verdict record at the time of that instruction.
    pub fn traces(&self) -> &[Execution] {
        &self.traces
    }

    /// The counters of the program.
    pub fn counters(&self) -> &[u64; COUNTERS as usize] {
        match &self.state {
            State::Native { counters, .. } => counters,
            State::Interpreted(memory) => &memory.counters,
        }
    }

    /// The entries of a map that have not expired at `now` (nanoseconds since 1970), in order of their keys; `None` if
    /// the program has no such map.
    pub fn entries(&self, map: usize, now: u64) -> Option<Vec<(Vec<u64>, u64)>> {
        match &self.state {
            State::Native { tables, .. } => tables.get(map).map(|t| t.entries(now)),
            State::Interpreted(memory) => memory.tables.get(map).map(|t| t.entries(now)),
        }
    }

    /// For each map, the number of new entries that were refused because the map was full.
    pub fn refused(&self) -> Vec<u64> {
        match &self.state {
            State::Native { tables, .. } => tables.iter().map(|t| t.refused()).collect(),
            State::Interpreted(memory) => memory.tables.iter().map(|t| t.refused()).collect(),
        }
    }

    /// For each map: the number of its entries, including expired entries that are not removed yet, and the number of
    /// new entries that were refused because the map was full.
    pub fn maps(&self) -> impl Iterator<Item = (&Map, u64, u64)> {
        let used: Vec<usize> = match &self.state {
            State::Native { tables, .. } => tables.iter().map(|t| t.len()).collect(),
            State::Interpreted(memory) => memory.tables.iter().map(|t| t.len()).collect(),
        };
        let maps = self.executable.shared.program.maps.iter();
        maps.zip(used).zip(self.refused()).map(|((map, used), refused)| (map, used as u64, refused))
    }

    /// The fragment tracker of this worker; other workers may use the same tracker.
    pub const fn datagrams(&self) -> &Arc<FragmentTracker> {
        &self.datagrams
    }

    /// Replaces the fragment tracking of this worker by one that it shares with other workers.
    pub fn follow(&mut self, datagrams: Arc<FragmentTracker>) {
        if let State::Interpreted(memory) = &mut self.state {
            memory.datagrams = Arc::clone(&datagrams);
        }
        self.datagrams = datagrams;
    }

    /// The executable of this worker.
    pub const fn of(&self) -> &Executable {
        &self.executable
    }

    /// Transfers state from `before`, the worker of the previous program, to this worker: the counters, the packet
    /// sequence number, the fragment tracking, and the entries of each map that both programs have with equal name,
    /// key, capacity and expiry. Both workers then share the fragment tracker, because other workers may still run the
    /// previous program. No map entries are transferred between a native and an interpreted worker. State that is not
    /// transferred remains in `before`, so that a thread that does not process packets can free its memory.
    pub fn transfer_state(&mut self, before: &mut Self) {
        self.sequence = before.sequence;
        self.follow(Arc::clone(&before.datagrams));
        let (ours, theirs) = (&self.executable.shared.program.maps, &before.executable.shared.program.maps);
        let same = |a: &Map, b: &Map| {
            (&a.name, a.key, a.words, a.capacity, a.expiry) == (&b.name, b.key, b.words, b.capacity, b.expiry)
        };
        let from = |i: usize| theirs.iter().position(|theirs| same(&ours[i], theirs));
        match (&mut self.state, &mut before.state) {
            (
                State::Native { tables, counters, hash_key },
                State::Native { tables: old, counters: was, hash_key: key },
            ) => {
                **counters = **was;
                // The positions of entries in a table depend on the secret hash key, so tables are transferred only
                // between workers with the same key.
                for (i, table) in tables.iter_mut().enumerate().filter(|_| hash_key == key) {
                    if let Some(at) = from(i) {
                        std::mem::swap(table, &mut old[at]);
                    }
                }
            }
            (State::Interpreted(memory), State::Interpreted(old)) => {
                memory.counters = old.counters;
                for (i, table) in memory.tables.iter_mut().enumerate() {
                    if let Some(at) = from(i) {
                        std::mem::swap(table, &mut old.tables[at]);
                    }
                }
            }
            (State::Native { counters, .. }, State::Interpreted(old)) => **counters = old.counters,
            (State::Interpreted(memory), State::Native { counters, .. }) => memory.counters = **counters,
        }
    }
}
