//! The reference interpreter. It defines the semantics of programs: every other back end must give the same results.
//!
//! The interpreter also accepts programs that were not verified. The result of such a program may be wrong, but the
//! interpreter does not panic.

mod table;

pub use table::Table;

use crate::facts::Facts;
use crate::fragment_tracker::FragmentTracker;
use crate::{
    ANY_CLASS, COUNTERS, DEFAULT_CLASS, DuplicateDetectors, End, Inst, Log, Operand, Program, Reg, Var, VerdictKind,
};
use base::hash::mix64;
use std::sync::Arc;

/// An action of a program on a packet, in addition to the delivery to members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Sends a copy of the packet through this interface; the number is an index into [`Program::egress_interfaces`].
    Forward(u16),
    /// Write a log line.
    Log(Log),
}

/// The result of a program for one packet: the verdict record at the end, and the actions in the order of execution.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Execution {
    /// The kind of delivery.
    pub kind: VerdictKind,
    /// The class mask.
    pub classes: u64,
    /// The hash for steering.
    pub hash: u32,
    /// The hash that selects the recipient of the second copy ([`VerdictKind::DoubleSteer`]).
    pub hash2: u32,
    /// The packet's mark.
    pub mark: u32,
    /// The state of this evaluation.
    pub state: u32,
    /// True if a copy of the packet is passed to the network stack of the host.
    pub kernel: bool,
    /// Forwards and log lines.
    pub actions: Vec<Action>,
    /// For each [`Log::Trace`] among the actions, in order: the verdict record at the time of that instruction, without
    /// actions.
    pub traces: Vec<Self>,
}

impl Execution {
    /// The initial record.
    pub fn start(mark: u32) -> Self {
        Self { kind: VerdictKind::Copy, classes: DEFAULT_CLASS, mark, ..Self::default() }
    }

    /// The number of the class, if the class mask contains exactly one class.
    pub fn class(&self) -> Option<u8> {
        (self.classes.count_ones() == 1).then(|| self.classes.trailing_zeros() as u8)
    }

    /// True if the class mask contains all classes except `management`.
    pub const fn is_for_all(&self) -> bool {
        self.classes == ANY_CLASS
    }

    /// The value of a variable.
    pub fn get(&self, var: Var) -> u64 {
        match var {
            Var::Kind => self.kind as u64,
            Var::Classes => self.classes,
            Var::Hash => self.hash.into(),
            Var::Hash2 => self.hash2.into(),
            Var::Mark => self.mark.into(),
            Var::State => self.state.into(),
        }
    }

    fn set(&mut self, var: Var, value: u64) {
        match var {
            Var::Kind => self.kind = VerdictKind::from_number(value),
            Var::Classes => self.classes = value,
            Var::Hash => self.hash = value as u32,
            Var::Hash2 => self.hash2 = value as u32,
            Var::Mark => self.mark = value as u32,
            Var::State => self.state = value as u32,
        }
    }
}

/// The state that a program retains between packets.
#[derive(Clone, Debug)]
pub struct ProgramState {
    /// The flow maps: one table for each map of the program.
    pub tables: Vec<Table>,
    /// The group's counters.
    pub counters: [u64; COUNTERS as usize],
    /// The secret key of the flow hashes.
    pub hash_key: u64,
    /// The fragment tracker. Clones of this state share the same tracker.
    pub datagrams: Arc<FragmentTracker>,
    /// The detectors of duplicates. Clones of this state share the same detectors.
    pub detectors: Arc<DuplicateDetectors>,
}

impl ProgramState {
    /// The state before the first packet of a program: empty tables.
    pub fn of(program: &Program, hash_key: u64) -> Self {
        let tables = program.maps.iter().map(Table::new).collect();
        let datagrams = Arc::new(FragmentTracker::new(hash_key));
        let detectors = Arc::new(DuplicateDetectors::of(program, hash_key));
        Self { tables, counters: [0; COUNTERS as usize], hash_key, datagrams, detectors }
    }
}

/// Runs a program packet by packet; contains the registers of the program.
#[derive(Clone, Debug)]
pub struct Interpreter<'a> {
    program: &'a Program,
    registers: Vec<u64>,
}

impl<'a> Interpreter<'a> {
    /// An interpreter for this program.
    pub fn new(program: &'a Program) -> Self {
        Self { program, registers: vec![0; program.registers.into()] }
    }

    /// Runs the program on one packet.
    pub fn run(&mut self, frame: &[u8], facts: &Facts, memory: &mut ProgramState) -> Execution {
        self.run_from(Execution::start(facts.mark), frame, facts, memory)
    }

    /// Runs the program on one packet. `start` is the result of the earlier part of a split program, with which this
    /// part continues.
    pub fn run_from(&mut self, start: Execution, frame: &[u8], facts: &Facts, memory: &mut ProgramState) -> Execution {
        let mut run = Run { frame, facts, memory, registers: &mut self.registers, out: start };
        let mut at = 0;
        while let Some(block) = self.program.blocks.get(at) {
            block.code.iter().for_each(|inst| run.step(inst, self.program));
            let next = match block.end {
                End::Jump(to) => to,
                End::If { cmp, a, b, yes, no } => {
                    if cmp.holds(run.reg(a), run.operand(b)) {
                        yes
                    } else {
                        no
                    }
                }
                End::Fits { base, offset, len, yes, no } => {
                    if run.bytes(base, offset, len as usize).is_some() {
                        yes
                    } else {
                        no
                    }
                }
                End::Pass => break,
                End::Drop => {
                    run.out.kind = VerdictKind::Drop;
                    break;
                }
            };
            if next.0 as usize <= at {
                break;
            }
            at = next.0 as usize;
        }
        run.out
    }
}

struct Run<'a> {
    frame: &'a [u8],
    facts: &'a Facts,
    memory: &'a mut ProgramState,
    registers: &'a mut [u64],
    out: Execution,
}

impl Run<'_> {
    fn reg(&self, r: Reg) -> u64 {
        self.registers.get(usize::from(r.0)).copied().unwrap_or(0)
    }

    fn operand(&self, o: Operand) -> u64 {
        match o {
            Operand::Reg(r) => self.reg(r),
            Operand::Imm(n) => n,
        }
    }

    fn words(&self, key: &[Reg]) -> Vec<u64> {
        key.iter().map(|r| self.reg(*r)).collect()
    }

    fn bytes(&self, base: Option<Reg>, offset: u32, len: usize) -> Option<&[u8]> {
        let base = u32::try_from(base.map_or(0, |r| self.reg(r))).ok()?;
        let from = base as usize + offset as usize;
        self.frame.get(from..from + len)
    }

    fn step(&mut self, inst: &Inst, program: &Program) {
        let value = match inst {
            Inst::Const { value, .. } => *value,
            Inst::Copy { from, .. } => self.reg(*from),
            Inst::Op { op, a, b, .. } => op.apply(self.reg(*a), self.operand(*b)),
            Inst::Is { cmp, a, b, .. } => cmp.holds(self.reg(*a), self.operand(*b)).into(),
            Inst::Mix { from, .. } => mix64(self.reg(*from)),
            Inst::Fact { layer, fact, .. } => self.facts.layer(*layer).get(*fact),
            Inst::Meta { meta, .. } => self.facts.get(*meta, self.frame.len(), self.memory.hash_key),
            Inst::Load { base, offset, width, .. } => {
                let bytes = self.bytes(*base, *offset, usize::from(*width)).unwrap_or_default();
                bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b))
            }
            Inst::Get { var, .. } => self.out.get(*var),
            Inst::Member { set, hi, lo, .. } => {
                let address = u128::from(self.reg(*hi)) << 64 | u128::from(self.reg(*lo));
                program.sets.get(usize::from(*set)).is_some_and(|s| s.contains(address)).into()
            }
            Inst::Datagram { parts, form, value, .. } => {
                self.memory.datagrams.number(self.frame, self.facts, *parts, *form, self.operand(*value))
            }
            Inst::Duplicate { detector, .. } => self.memory.detectors.class(*detector, self.frame, self.facts),
            Inst::Has { map, key, .. } => {
                let (key, now) = (self.words(key), self.facts.time);
                self.memory.tables.get(usize::from(*map)).is_some_and(|t| t.has(&key, now)).into()
            }
            Inst::MapGet { map, key, .. } => {
                let (key, now) = (self.words(key), self.facts.time);
                self.memory.tables.get_mut(usize::from(*map)).map_or(0, |t| t.get(&key, now))
            }
            Inst::MapAdd { map, key, by, .. } => {
                let (key, by, now) = (self.words(key), self.operand(*by), self.facts.time);
                self.memory.tables.get_mut(usize::from(*map)).map_or(0, |t| t.add(&key, by, now))
            }
            Inst::MapPut { map, key, value } => {
                let (key, value, now) = (self.words(key), self.operand(*value), self.facts.time);
                if let Some(t) = self.memory.tables.get_mut(usize::from(*map)) {
                    t.put(&key, value, now);
                }
                return;
            }
            Inst::MapDelete { map, key } => {
                let key = self.words(key);
                if let Some(t) = self.memory.tables.get_mut(usize::from(*map)) {
                    t.delete(&key);
                }
                return;
            }
            Inst::Set { var, from } => return self.out.set(*var, self.operand(*from)),
            Inst::Count { counter, by } => {
                let by = self.operand(*by);
                if let Some(c) = self.memory.counters.get_mut(usize::from(*counter)) {
                    *c = c.wrapping_add(by);
                }
                return;
            }
            Inst::Forward { interface } => return self.out.actions.push(Action::Forward(*interface)),
            Inst::Kernel => return self.out.kernel = true,
            Inst::Log(log) => {
                if *log == Log::Trace {
                    let now = Execution { actions: vec![], traces: vec![], ..self.out };
                    self.out.traces.push(now);
                }
                return self.out.actions.push(Action::Log(*log));
            }
        };
        if let Some(r) = inst.target().and_then(|to| self.registers.get_mut(usize::from(to.0))) {
            *r = value;
        }
    }
}
