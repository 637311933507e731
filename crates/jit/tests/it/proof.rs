//! Machine code does what the programs of the language mean: random ones, of everything that the table of functions
//! has, over made and over real packets.

use difftest::{
    BackEnd, CompiledCase, Execution, ExecutionResult, MapContents, ObservedAction, Packet, PacketOutcome, Record,
    Report, StateSnapshot, Trial, facts, frames,
};
use ir::interp::{self, Interpreter, ProgramState};
use ir::{Program, VerdictKind};
use netgrain_jit::{Executable, Packet as Judged, Refusal, Verdict, Worker};
use std::time::Duration;

/// All of a program as machine code, over one batch.
struct Native;

/// The first half of the stages interpreted, the rest as machine code that goes on; some packets are left to the latter
/// whole, as the kernel leaves them.
struct Behind;

/// The type of a refusal. That a program is unfit or has found a bug is not for a back end to say of what was verified.
fn refused(refusal: Refusal) -> String {
    match refusal {
        Refusal::TooLarge => "too large".to_owned(),
        Refusal::Map { .. } => "no memory for a map".to_owned(),
        other => panic!("{other}"),
    }
}

fn fate(worker: &Worker, packet: usize, v: &Verdict, program: &Program) -> PacketOutcome {
    let record = Record { classes: v.classes, hash: v.hash, hash2: v.hash2, mark: v.mark, state: v.state };
    let acts = worker.actions().iter().filter(|act| act.packet as usize == packet);
    let done = acts.map(|act| ObservedAction::of(act.action, program)).collect();
    PacketOutcome { kind: v.kind(), record: Some(record), kernel: v.kernel(), done }
}

fn remembered(worker: &Worker, now: u64) -> StateSnapshot {
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

    fn load<'a>(&'a self, ready: &'a CompiledCase) -> Result<Box<dyn Execution + 'a>, String> {
        let judge = Executable::native(ready.program.clone(), || Duration::ZERO).map_err(refused)?;
        let worker = judge.worker(ready.world.hash_key).map_err(refused)?;
        Ok(Box::new(Whole { ready, worker }))
    }
}

struct Whole<'a> {
    ready: &'a CompiledCase,
    worker: Worker,
}

impl Execution for Whole<'_> {
    fn judge(&mut self, packets: &[Packet]) -> Vec<ExecutionResult> {
        let link_type = self.ready.world.link_type;
        let mut judged: Vec<_> = packets.iter().map(|p| Judged::new(&p.bytes, link_type, p.facts)).collect();
        let mut verdicts = vec![Verdict::default(); judged.len()];
        self.worker.evaluate(&mut judged, &mut verdicts);
        let seen = verdicts.iter().enumerate().map(|(i, verdict)| ExecutionResult {
            outcome: fate(&self.worker, i, verdict, &self.ready.program),
            first_half: false,
            number: i as u64,
        });
        seen.collect()
    }

    fn remembered(&mut self, now: u64) -> Vec<StateSnapshot> {
        vec![remembered(&self.worker, now)]
    }
}

impl BackEnd for Behind {
    fn name(&self) -> &'static str {
        "machine code behind other stages"
    }

    fn load<'a>(&'a self, ready: &'a CompiledCase) -> Result<Box<dyn Execution + 'a>, String> {
        let stages = ready.program.stages.len() / 2;
        let judge = Executable::native_behind(ready.program.clone(), stages, || Duration::ZERO).map_err(refused)?;
        let worker = judge.worker(ready.world.hash_key).map_err(refused)?;
        let (head, _) = ready.program.split(stages);
        let memory = ProgramState::of(&head, ready.world.hash_key);
        Ok(Box::new(GoingOn { ready, worker, head, memory, stages, number: 0 }))
    }
}

struct GoingOn<'a> {
    ready: &'a CompiledCase,
    worker: Worker,
    head: Program,
    memory: ProgramState,
    stages: usize,
    /// Packets that came to the worker so far.
    number: u64,
}

impl GoingOn<'_> {
    fn one(&mut self, packet: &Packet) -> ExecutionResult {
        let (link_type, program) = (self.ready.world.link_type, &self.ready.program);
        let mut judged = [Judged::new(&packet.bytes, link_type, packet.facts)];
        let number = self.number;
        if packet.bytes.len().is_multiple_of(3) {
            let mut verdict = [Verdict::default()];
            self.worker.evaluate(&mut judged, &mut verdict);
            self.number += 1;
            return ExecutionResult { outcome: fate(&self.worker, 0, &verdict[0], program), first_half: false, number };
        }
        let facts = facts(packet, link_type, number);
        let out = Interpreter::new(&self.head).run(&packet.bytes, &facts, &mut self.memory);
        let first = PacketOutcome::of(&out, program);
        if out.kind == VerdictKind::Drop {
            return ExecutionResult { outcome: first, first_half: true, number };
        }
        let interp::Execution { kind, classes, hash, hash2, mark, state, .. } = out;
        let mut verdict = [Verdict::resumed(kind, classes, [hash, hash2], mark, state)];
        self.worker.resume(&mut judged, &mut verdict);
        self.number += 1;
        let rest = fate(&self.worker, 0, &verdict[0], program);
        // What was done elsewhere is not done again.
        let done = [first.done, rest.done].concat();
        ExecutionResult {
            outcome: PacketOutcome { done, kernel: first.kernel || rest.kernel, ..rest },
            first_half: true,
            number,
        }
    }
}

impl Execution for GoingOn<'_> {
    fn judge(&mut self, packets: &[Packet]) -> Vec<ExecutionResult> {
        packets.iter().map(|p| self.one(p)).collect()
    }

    fn remembered(&mut self, now: u64) -> Vec<StateSnapshot> {
        vec![StateSnapshot::of(&self.memory, now), remembered(&self.worker, now)]
    }

    fn first_stages(&self) -> usize {
        self.stages
    }
}

/// That nearly everything ran, and every function of the table was in it.
fn is_worth_it(report: &Report) {
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
fn machine_code_does_what_programs_mean() {
    let test = "machine_code_does_what_programs_mean";
    is_worth_it(&Trial::new(testkit::seed(test), 700).run(&Native));
}

#[test]
fn machine_code_behind_other_stages_does_what_programs_mean() {
    let test = "machine_code_behind_other_stages_does_what_programs_mean";
    is_worth_it(&Trial::new(testkit::seed(test), 400).run(&Behind));
}

#[test]
fn machine_code_does_what_programs_mean_over_real_packets() {
    let test = "machine_code_does_what_programs_mean_over_real_packets";
    let Some(traces) = testkit::traces(test) else { return };
    is_worth_it(&Trial::new(testkit::seed(test), 400).over(frames::real(&traces, 200)).run(&Native));
}
