//! The interpreter of the intermediate form as an execution: a whole program, and one that is cut between two stages.

use crate::meaning::{Done, Fate, Record};
use crate::trial::{BackEnd, Execution, Held, Packet, Ready, Remembered, Seen};
use lang::Facts;
use lang::interp::{Action, Interpreter, Memory, Outcome};
use lang::ir::{Kind, Program};

/// A whole program.
#[derive(Clone, Copy, Debug)]
pub struct Interpreted;

/// A program of which the first half of the stages is one program, and the rest another that goes on.
#[derive(Clone, Copy, Debug)]
pub struct InParts;

struct Running<'a> {
    ready: &'a Ready,
    parts: Vec<Program>,
    memory: Memory,
    number: u64,
}

impl BackEnd for Interpreted {
    fn name(&self) -> &'static str {
        "interpreted"
    }

    fn load<'a>(&'a self, ready: &'a Ready) -> Result<Box<dyn Execution + 'a>, String> {
        Ok(Box::new(Running::of(ready, vec![ready.program.clone()])))
    }
}

impl BackEnd for InParts {
    fn name(&self) -> &'static str {
        "interpreted in two parts"
    }

    fn load<'a>(&'a self, ready: &'a Ready) -> Result<Box<dyn Execution + 'a>, String> {
        let (head, rest) = ready.program.split(ready.program.stages.len() / 2);
        Ok(Box::new(Running::of(ready, vec![head, rest])))
    }
}

impl<'a> Running<'a> {
    fn of(ready: &'a Ready, parts: Vec<Program>) -> Self {
        let memory = Memory::of(&ready.program, ready.world.hash_key);
        Self { ready, parts, memory, number: 0 }
    }
}

impl Execution for Running<'_> {
    fn judge(&mut self, packets: &[Packet]) -> Vec<Seen> {
        let judge = |packet: &Packet| {
            let number = self.number;
            let facts = facts(packet, self.ready.world.link_type, number);
            self.number += 1;
            let mut out = Outcome::start(facts.mark);
            for part in &self.parts {
                if out.kind != Kind::Drop {
                    let start = Outcome { actions: vec![], kernel: false, ..out.clone() };
                    let more = Interpreter::new(part).run_from(start, &packet.bytes, &facts, &mut self.memory);
                    out = Outcome {
                        actions: [out.actions, more.actions.clone()].concat(),
                        kernel: out.kernel || more.kernel,
                        ..more
                    };
                }
            }
            Seen { fate: Fate::of(&out, &self.ready.program), first_half: false, number }
        };
        packets.iter().map(judge).collect()
    }

    fn remembered(&mut self, now: u64) -> Vec<Remembered> {
        vec![Remembered::of(&self.memory, now)]
    }
}

/// All that a program may know of a packet, which is the `number`th of its worker.
pub fn facts(packet: &Packet, link_type: u16, number: u64) -> Facts {
    let mut facts = Facts { sequence: number, ..packet.facts };
    facts.wire_len = facts.wire_len.max(packet.bytes.len() as u32);
    facts.look(&packet.bytes, link_type, true);
    facts
}

impl Fate {
    /// Of a program's outcome.
    pub fn of(out: &Outcome, program: &Program) -> Self {
        let Outcome { kind, classes, hash, hash2, mark, state, kernel, .. } = *out;
        let record = Some(Record { classes, hash, hash2, mark, state });
        Self { kind, record, kernel, done: out.actions.iter().map(|a| Done::of(*a, program)).collect() }
    }
}

impl Done {
    /// Of what a program did.
    pub fn of(action: Action, program: &Program) -> Self {
        match action {
            Action::Forward(device) => Self::Forward(program.devices[usize::from(device)].clone()),
            Action::Log(lang::ir::Log::Message(text)) => Self::Message(program.messages[usize::from(text)].clone()),
            Action::Log(log) => Self::Log(log),
        }
    }
}

impl Remembered {
    /// What an interpreter's memory holds at `now`.
    pub fn of(memory: &Memory, now: u64) -> Self {
        let maps = memory.tables.iter().map(|t| Held { entries: t.entries(now), refused: t.refused() }).collect();
        Self { counters: memory.counters.to_vec(), maps }
    }
}
