//! Makes the interpreter of the IR a back end of differential tests. One back end runs the complete program. The other
//! splits the program between two of its stages and runs the two parts one after the other.

use crate::case::Packet;
use crate::semantics::{ObservedAction, PacketOutcome, Record};
use crate::trial::{BackEnd, CompiledCase, Execution, ExecutionResult, MapContents, StateSnapshot};
use ir::Facts;
use ir::interp::{self, Action, Interpreter, ProgramState};
use ir::{Program, VerdictKind};

/// Runs the whole program.
#[derive(Clone, Copy, Debug)]
pub struct Interpreted;

/// A back end that splits each program between two of its stages, and runs the first part and then the second part.
#[derive(Clone, Copy, Debug)]
pub struct InParts;

struct Running<'a> {
    compiled: &'a CompiledCase,
    parts: Vec<Program>,
    memory: ProgramState,
    number: u64,
}

impl BackEnd for Interpreted {
    fn name(&self) -> &'static str {
        "interpreted"
    }

    fn load<'a>(&'a self, compiled: &'a CompiledCase) -> Result<Box<dyn Execution + 'a>, String> {
        Ok(Box::new(Running::of(compiled, vec![compiled.program.clone()])))
    }
}

impl BackEnd for InParts {
    fn name(&self) -> &'static str {
        "interpreted in two parts"
    }

    fn load<'a>(&'a self, compiled: &'a CompiledCase) -> Result<Box<dyn Execution + 'a>, String> {
        let (head, rest) = compiled.program.split(compiled.program.stages.len() / 2);
        Ok(Box::new(Running::of(compiled, vec![head, rest])))
    }
}

impl<'a> Running<'a> {
    fn of(compiled: &'a CompiledCase, parts: Vec<Program>) -> Self {
        let memory = ProgramState::of(&compiled.program, compiled.world.hash_key);
        Self { compiled, parts, memory, number: 0 }
    }
}

impl Execution for Running<'_> {
    fn evaluate(&mut self, packets: &[Packet]) -> Vec<ExecutionResult> {
        let evaluate = |packet: &Packet| {
            let number = self.number;
            let facts = facts(packet, self.compiled.world.link_type, number);
            self.number += 1;
            let mut out = interp::Execution::start(facts.mark);
            for part in &self.parts {
                if out.kind != VerdictKind::Drop {
                    let start = interp::Execution { actions: vec![], kernel: false, ..out.clone() };
                    let more = Interpreter::new(part).run_from(start, &packet.bytes, &facts, &mut self.memory);
                    out = interp::Execution {
                        actions: [out.actions, more.actions.clone()].concat(),
                        kernel: out.kernel || more.kernel,
                        ..more
                    };
                }
            }
            ExecutionResult { outcome: PacketOutcome::of(&out, &self.compiled.program), first_half: false, number }
        };
        packets.iter().map(evaluate).collect()
    }

    fn state(&mut self, now: u64) -> Vec<StateSnapshot> {
        vec![StateSnapshot::of(&self.memory, now)]
    }
}

/// Computes the packet facts of a packet; `number` is the value of the fact `sequence`.
pub fn facts(packet: &Packet, link_type: u16, number: u64) -> Facts {
    let mut facts = Facts { sequence: number, ..packet.facts };
    facts.wire_len = facts.wire_len.max(packet.bytes.len() as u32);
    facts.look(&packet.bytes, link_type, true);
    facts
}

impl PacketOutcome {
    /// Converts the interpreter's outcome.
    pub fn of(out: &interp::Execution, program: &Program) -> Self {
        let interp::Execution { kind, classes, hash, hash2, mark, state, kernel, .. } = *out;
        let record = Some(Record { classes, hash, hash2, mark, state });
        Self { kind, record, kernel, done: out.actions.iter().map(|a| ObservedAction::of(*a, program)).collect() }
    }
}

impl ObservedAction {
    /// Converts an action of the interpreter to the type that the model uses for actions.
    pub fn of(action: Action, program: &Program) -> Self {
        match action {
            Action::Forward(interface) => Self::Forward(program.egress_interfaces[usize::from(interface)].clone()),
            Action::Log(ir::Log::Message(text)) => Self::Message(program.messages[usize::from(text)].clone()),
            Action::Log(log) => Self::Log(log),
        }
    }
}

impl StateSnapshot {
    /// The state of the interpreter at the packet time `now`: the counters, and the map entries that have not expired.
    pub fn of(memory: &ProgramState, now: u64) -> Self {
        let maps =
            memory.tables.iter().map(|t| MapContents { entries: t.entries(now), refused: t.refused() }).collect();
        Self { counters: memory.counters.to_vec(), maps }
    }
}
