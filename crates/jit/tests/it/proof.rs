//! Differential tests of machine code: random programs that use all functions of the packet language run on generated
//! packets and on packets of capture files, and their results are compared with the model of crate `difftest`.

use difftest::{
    BackEnd, CompiledCase, Execution, ExecutionResult, MapContents, ObservedAction, Packet, PacketOutcome, Record,
    Report, StateSnapshot, Trial, facts, frames,
};
use ir::interp::{self, Interpreter, ProgramState};
use ir::{Program, VerdictKind};
use netgrain_jit::{Executable, Packet as JitPacket, Refusal, Verdict, Worker};
use std::time::Duration;

/// A back end that runs the complete program as machine code on one batch.
struct Native;

/// A back end for split programs: the interpreter runs the first half of the stages, and machine code runs the other
/// stages. Every third packet is left undecided, as the kernel may do, and machine code runs the complete program for
/// it.
struct Split;

/// Returns a name for the type of a refusal. Refusals of types that have no name here are bugs, because the program was
/// verified.
fn refused(refusal: Refusal) -> String {
    match refusal {
        Refusal::TooLarge => "too large".to_owned(),
        Refusal::Map { .. } => "no memory for a map".to_owned(),
        other => panic!("{other}"),
    }
}

fn outcome(worker: &Worker, packet: usize, v: &Verdict, program: &Program) -> PacketOutcome {
    let record = Record { classes: v.classes, hash: v.hash, hash2: v.hash2, mark: v.mark, state: v.state };
    let actions = worker.actions().iter().filter(|action| action.packet as usize == packet);
    let done = actions.map(|action| ObservedAction::of(action.action, program)).collect();
    PacketOutcome { kind: v.kind(), record: Some(record), kernel: v.kernel(), done }
}

fn state(worker: &Worker, now: u64) -> StateSnapshot {
    let refused = worker.refused();
    let entries = |map| worker.entries(map, now).expect("as many maps");
    let maps = refused
        .iter()
        .enumerate()
        .map(|(map, refused)| MapContents { entries: entries(map), refused: *refused })
        .collect();
    StateSnapshot { counters: worker.counters().to_vec(), maps }
}

impl BackEnd for Native {
    fn name(&self) -> &'static str {
        "machine code"
    }

    fn load<'a>(&'a self, compiled: &'a CompiledCase) -> Result<Box<dyn Execution + 'a>, String> {
        let executable = Executable::native(compiled.program.clone(), || Duration::ZERO).map_err(refused)?;
        let worker = executable.worker(compiled.world.hash_key).map_err(refused)?;
        Ok(Box::new(Whole { compiled, worker }))
    }
}

struct Whole<'a> {
    compiled: &'a CompiledCase,
    worker: Worker,
}

impl Execution for Whole<'_> {
    fn evaluate(&mut self, packets: &[Packet]) -> Vec<ExecutionResult> {
        let link_type = self.compiled.world.link_type;
        let mut jit_packets: Vec<_> = packets.iter().map(|p| JitPacket::new(&p.bytes, link_type, p.facts)).collect();
        let mut verdicts = vec![Verdict::default(); jit_packets.len()];
        self.worker.evaluate(&mut jit_packets, &mut verdicts);
        let seen = verdicts.iter().enumerate().map(|(i, verdict)| ExecutionResult {
            outcome: outcome(&self.worker, i, verdict, &self.compiled.program),
            first_half: false,
            number: i as u64,
        });
        seen.collect()
    }

    fn state(&mut self, now: u64) -> Vec<StateSnapshot> {
        vec![state(&self.worker, now)]
    }
}

impl BackEnd for Split {
    fn name(&self) -> &'static str {
        "machine code that resumes after interpreted stages"
    }

    fn load<'a>(&'a self, compiled: &'a CompiledCase) -> Result<Box<dyn Execution + 'a>, String> {
        let stages = compiled.program.stages.len() / 2;
        let executable =
            Executable::native_behind(compiled.program.clone(), stages, || Duration::ZERO).map_err(refused)?;
        let worker = executable.worker(compiled.world.hash_key).map_err(refused)?;
        let (head, _) = compiled.program.split(stages);
        let memory = ProgramState::of(&head, compiled.world.hash_key);
        Ok(Box::new(SplitRun { compiled, worker, head, memory, stages, number: 0 }))
    }
}

struct SplitRun<'a> {
    compiled: &'a CompiledCase,
    worker: Worker,
    head: Program,
    memory: ProgramState,
    stages: usize,
    /// The number of packets that the worker has evaluated so far.
    number: u64,
}

impl SplitRun<'_> {
    fn one(&mut self, packet: &Packet) -> ExecutionResult {
        let (link_type, program) = (self.compiled.world.link_type, &self.compiled.program);
        let mut jit_packets = [JitPacket::new(&packet.bytes, link_type, packet.facts)];
        let number = self.number;
        if packet.bytes.len().is_multiple_of(3) {
            let mut verdict = [Verdict::default()];
            self.worker.evaluate(&mut jit_packets, &mut verdict);
            self.number += 1;
            return ExecutionResult {
                outcome: outcome(&self.worker, 0, &verdict[0], program),
                first_half: false,
                number,
            };
        }
        let facts = facts(packet, link_type, number);
        let out = Interpreter::new(&self.head).run(&packet.bytes, &facts, &mut self.memory);
        let first = PacketOutcome::of(&out, program);
        if out.kind == VerdictKind::Drop {
            return ExecutionResult { outcome: first, first_half: true, number };
        }
        let interp::Execution { kind, classes, hash, hash2, mark, state, .. } = out;
        let mut verdict = [Verdict::resumed(kind, classes, [hash, hash2], mark, state)];
        self.worker.resume(&mut jit_packets, &mut verdict);
        self.number += 1;
        let rest = outcome(&self.worker, 0, &verdict[0], program);
        // The actions of the first part of the program come before those of the second part.
        let done = [first.done, rest.done].concat();
        ExecutionResult {
            outcome: PacketOutcome { done, kernel: first.kernel || rest.kernel, ..rest },
            first_half: true,
            number,
        }
    }
}

impl Execution for SplitRun<'_> {
    fn evaluate(&mut self, packets: &[Packet]) -> Vec<ExecutionResult> {
        packets.iter().map(|p| self.one(p)).collect()
    }

    fn state(&mut self, now: u64) -> Vec<StateSnapshot> {
        vec![StateSnapshot::of(&self.memory, now), state(&self.worker, now)]
    }

    fn first_stages(&self) -> usize {
        self.stages
    }
}

/// Asserts that nearly all programs ran, and that together they used every function of the packet language.
fn assert_coverage(report: &Report) {
    eprintln!("{report:?}");
    let Report { cases, ran, packets, .. } = report;
    if *cases < 300 {
        return;
    }
    assert!(
        *ran > cases * 9 / 10 && *packets > 10 * ran,
        "{ran} of {cases} programs ran, refused: {:?}",
        report.refused
    );
    let least = cases / 250;
    let missing = Report::missing(&report.functions, least, &[]);
    assert!(missing.is_empty(), "in fewer than {least} of {cases} programs: {missing:?}");
}

#[test]
fn machine_code_agrees_with_the_model() {
    let test = "machine_code_agrees_with_the_model";
    assert_coverage(&Trial::new(testkit::seed(test), 700).run(&Native));
}

#[test]
fn resumed_machine_code_agrees_with_the_model() {
    let test = "resumed_machine_code_agrees_with_the_model";
    assert_coverage(&Trial::new(testkit::seed(test), 400).run(&Split));
}

#[test]
fn machine_code_agrees_with_the_model_on_captured_packets() {
    let test = "machine_code_agrees_with_the_model_on_captured_packets";
    let Some(traces) = testkit::traces(test) else { return };
    assert_coverage(&Trial::new(testkit::seed(test), 400).over(frames::real(&traces, 200)).run(&Native));
}
