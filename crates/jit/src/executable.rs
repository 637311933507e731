//! A program ready to judge packets: [`Evaluate`] is shared by all workers, a [`Worker`] is one core's own, with what the program
//! remembers there.

use crate::code::{Code, uses_tables};
use crate::emit::Task;
use crate::host::Context;
use crate::packet::{Packet, PacketAction, ParseDepth, Verdict};
use crate::refusal::Refusal;
use crate::specialisations::Specialisations;
use crate::table::Table;
use lang::FragmentTracker;
use lang::interp::{Execution, Interpreter, ProgramState};
use lang::ir::{COUNTERS, Map, Program, Start};
use std::sync::Arc;
use std::time::Duration;

/// Packets that are looked at ahead together: enough that memory answers meanwhile, few enough that the first of them is still in
/// the nearest cache.
const CHUNK: usize = 16;

/// Tables that take less than this stay in a cache of the core, and looking ahead would cost more than it saves.
const NEAR: usize = 512 << 10;

/// A program that was found fit, in the form in which it runs.
#[derive(Clone, Debug)]
pub struct Executable {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    program: Program,
    /// The stages behind those that run elsewhere.
    rest: Option<Program>,
    parse_depth: ParseDepth,
    native: Option<Native>,
}

#[derive(Debug)]
#[expect(clippy::vec_box, reason = "the code has addresses of what is in them")]
struct Native {
    /// Before what it has addresses of.
    code: Code,
    /// What the code was made from; boxed, because the code knows where its sets are.
    forms: Vec<Box<Specialisations>>,
    compile_time: Duration,
}

impl Native {
    /// Judges packets two chunks behind the scout: while one is judged, memory brings the next, and of the one after it what
    /// lies behind its place is asked for.
    ///
    /// # Safety
    /// As for [`Code::judge`]; `tables` are the context's.
    unsafe fn evaluate_far(
        &self,
        context: &mut Context,
        tables: &[*mut Table],
        packets: &mut [Packet<'_>],
        verdicts: &mut [Verdict],
    ) {
        let count = packets.len();
        // SAFETY: the caller's promise, and the code has left them.
        let all = |what: fn(&mut Table)| tables.iter().for_each(|t| what(unsafe { &mut **t }));
        let scout = |context: &mut Context, packets: &mut [Packet<'_>], from: usize| {
            let chunk = from.min(count)..(from + CHUNK).min(count);
            // SAFETY: the caller's promise.
            unsafe { self.code.prefetch(context, &mut packets[chunk], from) };
            all(Table::fetch);
        };
        scout(context, packets, 0);
        all(Table::follow);
        scout(context, packets, CHUNK);
        for from in (0..count).step_by(CHUNK) {
            all(Table::follow);
            scout(context, packets, from + 2 * CHUNK);
            let chunk = from..(from + CHUNK).min(count);
            let (packets, verdicts) = (&mut packets[chunk.clone()], &mut verdicts[chunk]);
            // SAFETY: the caller's promise.
            unsafe { self.code.judge(Task::Evaluate, context, packets, verdicts, from) };
        }
    }
}

/// How a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutionInfo {
    /// Whether as machine code.
    pub native: bool,
    /// How long it took to make it.
    pub compile_time: Duration,
    /// Bytes of it.
    pub code_bytes: usize,
    /// How far it looks into packets.
    pub parse_depth: ParseDepth,
}

impl Executable {
    /// As machine code. `clock` says the time, from any beginning, so that the compile time can be told.
    ///
    /// # Errors
    /// Why it cannot be, in words that say what to do; unless the program is unfit, it can be [`interpreted`](Self::interpreted).
    pub fn native(program: Program, clock: impl Fn() -> Duration) -> Result<Self, Refusal> {
        Self::compiled(program, None, clock)
    }

    /// The same, and its workers can also go on ([`Worker::resume`]) where the first `stages` of the program ran elsewhere.
    ///
    /// # Errors
    /// As for [`Evaluate::native`].
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

    /// By the reference interpreter: slower by an order of magnitude, and everywhere.
    ///
    /// # Errors
    /// When the program is not fit to run.
    pub fn interpreted(program: Program) -> Result<Self, Refusal> {
        program.verify()?;
        Ok(Self::new(program, None, None))
    }

    /// As [`Evaluate::native_behind`], interpreted.
    ///
    /// # Errors
    /// When the program is not fit to run.
    pub fn interpreted_behind(program: Program, stages: usize) -> Result<Self, Refusal> {
        program.verify()?;
        let rest = rest(&program, Some(stages))?;
        Ok(Self::new(program, rest, None))
    }

    fn new(program: Program, rest: Option<Program>, native: Option<Native>) -> Self {
        // What the simpler form no longer asks need not be found.
        let sight = match &native {
            Some(native) => native.forms.iter().map(|form| form.parse_depth).max(),
            None => std::iter::once(&program).chain(&rest).map(ParseDepth::of).max(),
        };
        Self { shared: Arc::new(Shared { program, rest, parse_depth: sight.unwrap_or_default(), native }) }
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.shared.program
    }

    /// Bytes that one worker's maps come to when they are full. A map is made as it is touched, but any traffic may touch it
    /// everywhere.
    pub fn memory(&self) -> u64 {
        self.shared.program.maps.iter().map(Table::bytes_of).fold(0, u64::saturating_add)
    }

    /// How it runs.
    pub fn report(&self) -> ExecutionInfo {
        let native = self.shared.native.as_ref();
        ExecutionInfo {
            native: native.is_some(),
            compile_time: native.map_or(Duration::ZERO, |n| n.compile_time),
            code_bytes: native.map_or(0, |n| n.code.bytes()),
            parse_depth: self.shared.parse_depth,
        }
    }

    /// A worker with empty maps. `hash_key` is the secret of the hashes, the same on all workers of an engine.
    ///
    /// # Errors
    /// When there is no memory for a map.
    pub fn worker(&self, hash_key: u64) -> Result<Worker, Refusal> {
        self.worker_among(hash_key, Arc::new(FragmentTracker::new(hash_key)))
    }

    /// The same, one of several to which the fragments of a datagram may come: they have one memory of which way it goes.
    ///
    /// # Errors
    /// As for [`Evaluate::worker`].
    pub fn worker_among(&self, hash_key: u64, datagrams: Arc<FragmentTracker>) -> Result<Worker, Refusal> {
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
                ..ProgramState::of(program, hash_key)
            }))
        };
        Ok(Worker { judge: self.clone(), state, datagrams, acts: Vec::new(), traces: Vec::new(), sequence: 0 })
    }
}

/// What is behind the first stages, if some are to run elsewhere.
fn rest(program: &Program, stages: Option<usize>) -> Result<Option<Program>, Refusal> {
    let Some(stages) = stages else { return Ok(None) };
    let (_, rest) = program.split(stages);
    rest.verify()?;
    Ok(Some(rest))
}

/// One core's: judges batches, remembers.
#[derive(Debug)]
pub struct Worker {
    judge: Executable,
    state: State,
    /// An interpreted worker's memory has it too.
    datagrams: Arc<FragmentTracker>,
    acts: Vec<PacketAction>,
    traces: Vec<Execution>,
    sequence: u64,
}

#[derive(Debug)]
enum State {
    Native {
        #[expect(
            clippy::vec_box,
            reason = "the code is given their addresses, and a swap moves them from list to list"
        )]
        tables: Vec<Box<Table>>,
        counters: Box<[u64; COUNTERS as usize]>,
        hash_key: u64,
    },
    Interpreted(Box<ProgramState>),
}

impl Worker {
    // PERF: `ip >-> steer_flow` 20 → 9.7 ns from memory, descriptor and headers included; interpreted 154 ns (docs/NATIVE.md).
    /// Judges packets; `verdicts` is as long and is overwritten. What was done to them beside is in [`Worker::acts`] until the next
    /// call.
    ///
    /// # Panics
    /// When there are not as many verdicts as packets.
    pub fn evaluate(&mut self, packets: &mut [Packet<'_>], verdicts: &mut [Verdict]) {
        self.run(Task::Evaluate, packets, verdicts);
    }

    /// Goes on with packets on which the first stages ran elsewhere: `verdicts` holds the records that they left behind, and is
    /// overwritten. Maps and counters are those of [`Worker::judge`].
    ///
    /// # Panics
    /// When there are not as many verdicts as packets, or the judge was not made to go on.
    pub fn resume(&mut self, packets: &mut [Packet<'_>], verdicts: &mut [Verdict]) {
        assert!(self.judge.shared.rest.is_some(), "a judge that goes on");
        self.run(Task::Resume, packets, verdicts);
    }

    fn run(&mut self, task: Task, packets: &mut [Packet<'_>], verdicts: &mut [Verdict]) {
        assert_eq!(packets.len(), verdicts.len(), "one verdict for each packet");
        self.acts.clear();
        self.traces.clear();
        let shared = &*self.judge.shared;
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
                    sequence,
                };
                if packets.len() > 1 {
                    // The processor looks ahead by itself, but not from one page to the next.
                    // PERF: `ip >-> steer_flow` from memory, seven passes of each in turn: 9.5 → 10.3 times the interpreter's rate.
                    packets.iter().for_each(|packet| sys::memory::prefetch(packet.bytes().as_ptr()));
                }
                // SAFETY: the tables were made for this program's maps, in their order, and belong to this worker, as do
                // counters, acts and traces; it holds on to the memory of datagrams, which is for several to use.
                unsafe {
                    if far && task == Task::Evaluate && native.code.has_prefetch() {
                        native.evaluate_far(&mut context, &tables, packets, verdicts);
                    } else {
                        native.code.judge(task, &mut context, packets, verdicts, 0);
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
            (State::Native { .. }, None) => unreachable!("a worker's state is that of its judge"),
        }
    }

    /// What was done to the packets judged last beside their delivery, in order.
    pub fn actions(&self) -> &[PacketAction] {
        &self.acts
    }

    /// For each [`lang::ir::Log::Trace`] among the acts, in order, the record as it was then.
    pub fn traces(&self) -> &[Execution] {
        &self.traces
    }

    /// What the program counted.
    pub fn counters(&self) -> &[u64; COUNTERS as usize] {
        match &self.state {
            State::Native { counters, .. } => counters,
            State::Interpreted(memory) => &memory.counters,
        }
    }

    /// The entries of a map that are there at `now` (nanoseconds since 1970), in order of their keys. `None` if there is no such
    /// map.
    pub fn entries(&self, map: usize, now: u64) -> Option<Vec<(Vec<u64>, u64)>> {
        match &self.state {
            State::Native { tables, .. } => tables.get(map).map(|t| t.entries(now)),
            State::Interpreted(memory) => memory.tables.get(map).map(|t| t.entries(now)),
        }
    }

    /// How many entries each map refused because it was full.
    pub fn refused(&self) -> Vec<u64> {
        match &self.state {
            State::Native { tables, .. } => tables.iter().map(|t| t.refused()).collect(),
            State::Interpreted(memory) => memory.tables.iter().map(|t| t.refused()).collect(),
        }
    }

    /// The maps: how many entries each has, those that expired and were not yet taken out included, and how many it refused because it
    /// was full.
    pub fn maps(&self) -> impl Iterator<Item = (&Map, u64, u64)> {
        let used: Vec<usize> = match &self.state {
            State::Native { tables, .. } => tables.iter().map(|t| t.len()).collect(),
            State::Interpreted(memory) => memory.tables.iter().map(|t| t.len()).collect(),
        };
        let maps = self.judge.shared.program.maps.iter();
        maps.zip(used).zip(self.refused()).map(|((map, used), refused)| (map, used as u64, refused))
    }

    /// Which way fragments went; others may have it too.
    pub const fn datagrams(&self) -> &Arc<FragmentTracker> {
        &self.datagrams
    }

    /// Goes on with what others know of datagrams.
    pub fn follow(&mut self, datagrams: Arc<FragmentTracker>) {
        if let State::Interpreted(memory) = &mut self.state {
            memory.datagrams = Arc::clone(&datagrams);
        }
        self.datagrams = datagrams;
    }

    /// The judge it works for.
    pub const fn of(&self) -> &Executable {
        &self.judge
    }

    /// Takes over from the worker of the program before: counters, the number of packets, which way datagrams go (the two then share it:
    /// other workers may not have changed over yet), and the entries of each map that both programs have by name, key and capacity.
    /// Between a native and an interpreted worker no entries go over. What is not
    /// taken stays with the worker before, so that it can be thrown away where nobody waits.
    pub fn transfer_state(&mut self, before: &mut Self) {
        self.sequence = before.sequence;
        self.follow(Arc::clone(&before.datagrams));
        let (ours, theirs) = (&self.judge.shared.program.maps, &before.judge.shared.program.maps);
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
                // A table's hash depends on the secret.
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
