//! Differential tests of programs that are split between kernel and user space: random programs that use all functions
//! of the packet language run on generated and captured packets. The kernel part runs in the kernel or in a strict eBPF
//! interpreter ([`Vm`]), and the results are compared with the model of crate `difftest`.

use crate::kernel;
use crate::vm;

use difftest::{
    BackEnd, CompiledCase, Execution, ExecutionResult, MapContents, ObservedAction, Packet, PacketOutcome, Report,
    StateSnapshot, Trial, facts, frames,
};
use ir::Facts;
use ir::interp::{self, Interpreter, ProgramState};
use ir::{Expiry, Program, VerdictKind};
use kernel::{Kernel, Machine, OPTIONS, RunResult, USER};
use kernel_programs::{EmitOptions, KernelVerdict, Metadata, Object, PacketOutcome as End, Refusal, emit};
use vm::Vm;

/// A back end with two parts: a [`Machine`] (the kernel or the eBPF interpreter) runs the kernel part of a program, and
/// the IR interpreter runs the user part.
struct SplitBackEnd<M> {
    name: &'static str,
    metadata: Metadata,
    load: fn(Object) -> Option<M>,
    /// True if the simulated driver leaves no space for metadata.
    silent: bool,
}

/// Names the type of a refusal. Panics at a type that is not listed: such a refusal is a bug, because the program was
/// verified.
fn refused(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Nothing { .. } => "no stage for the kernel",
        Refusal::LinkType(_) => "not Ethernet",
        Refusal::Stack { .. } => "stack too small",
        Refusal::TooLong { .. } => "too long",
        Refusal::NoMetadata => "no space for metadata",
        other => panic!("{other}"),
    }
    .to_owned()
}

impl<M: Machine> BackEnd for SplitBackEnd<M> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn accepts(&self, packet: &Packet) -> bool {
        // `BPF_PROG_TEST_RUN` requires an Ethernet header and a frame that fits into a memory page.
        (14..3000).contains(&packet.bytes.len())
    }

    fn source(&self, packet: &Packet) -> Facts {
        let wire_len = packet.bytes.len() as u32;
        Facts {
            time: packet.facts.time,
            wire_len,
            port: OPTIONS.port as u16,
            ingress: OPTIONS.ingress,
            ..Facts::default()
        }
    }

    fn load<'a>(&'a self, compiled: &'a CompiledCase) -> Result<Box<dyn Execution + 'a>, String> {
        let (hash_key, link_type) = (compiled.world.hash_key, compiled.world.link_type);
        let request = EmitOptions { hash_key, link_type, metadata: self.metadata, ..OPTIONS };
        let object = emit(&compiled.program, &request).map_err(|e| refused(&e))?;
        let (_, rest) = compiled.program.split(object.stages);
        // For some programs, the metadata of packets that pass would contain only the program generation. For half of
        // these programs, the test records that user space has received a packet of the generation; the following
        // packets then carry no metadata.
        let seen = object.is_evaluated_again && hash_key.is_multiple_of(2);
        let mut machine = (self.load)(object).expect("`can_load` has loaded a program");
        if seen {
            machine.see(OPTIONS.generation);
        }
        let silent = self.silent || seen;
        let memory = ProgramState::of(&compiled.program, hash_key);
        // If a timestamp is earlier than the previous timestamp, an entry that was removed from the kernel map as
        // expired would be valid again in the model. So the test removes expired entries only in cases with small maps,
        // in which timestamps do not go back.
        let sweeps = compiled.program.maps.iter().any(|m| m.expiry != Expiry::Never && m.capacity < 100);
        Ok(Box::new(Running { compiled, machine, rest, memory, sweeps, silent, number: 0 }))
    }
}

struct Running<'a, M> {
    compiled: &'a CompiledCase,
    machine: M,
    rest: Program,
    memory: ProgramState,
    sweeps: bool,
    /// True if packets may arrive in user space without metadata.
    silent: bool,
    number: u64,
}

impl<M: Machine> Running<'_, M> {
    fn one(&mut self, packet: &Packet) -> ExecutionResult {
        let time = packet.facts.time;
        if self.sweeps {
            (0..self.compiled.program.maps.len())
                .for_each(|m| drop(self.machine.entries(&self.compiled.program, m, time)));
        }
        let RunResult { verdict, outcome, metadata } = self.machine.run(&packet.bytes, time);
        let (end, number) = (outcome.expect("an outcome"), self.number);
        let gone = |kernel, done| PacketOutcome { kind: VerdictKind::Drop, record: None, kernel, done };
        let outcome = match end {
            End::Dropped => gone(false, vec![]),
            End::Kernel => gone(true, vec![]),
            End::Forwarded => {
                let name = |index: u32| self.compiled.program.egress_interfaces[index as usize].clone();
                let interface = self.machine.egress_interface().map_or(ObservedAction::SOME.to_owned(), name);
                gone(false, vec![ObservedAction::Forward(interface)])
            }
            End::User | End::Undecided => {
                assert_eq!(verdict, USER, "{end:?}");
                // A packet without metadata is evaluated in user space from the first stage on.
                assert!(metadata.is_some() || self.silent, "{end:?} without metadata");
                let metadata = metadata.unwrap_or(KernelVerdict {
                    generation: OPTIONS.generation,
                    stages: 0,
                    record: interp::Execution::start(0),
                });
                assert_eq!(metadata.generation, OPTIONS.generation);
                assert!(end == End::User || metadata.stages == 0, "undecided after {} stages", metadata.stages);
                let facts = facts(packet, self.compiled.world.link_type, number);
                let (program, start) = match metadata.stages {
                    0 => (&self.compiled.program, interp::Execution::start(0)),
                    _ => (&self.rest, metadata.record),
                };
                let out = Interpreter::new(program).run_from(start, &packet.bytes, &facts, &mut self.memory);
                self.number += 1;
                let outcome = PacketOutcome::of(&out, &self.compiled.program);
                return ExecutionResult { outcome, first_half: metadata.stages > 0, number };
            }
            End::Unclaimed | End::Unsent => panic!("{end:?}"),
        };
        ExecutionResult { outcome, first_half: true, number }
    }
}

impl<M: Machine> Execution for Running<'_, M> {
    fn evaluate(&mut self, packets: &[Packet]) -> Vec<ExecutionResult> {
        packets.iter().map(|p| self.one(p)).collect()
    }

    fn state(&mut self, now: u64) -> Vec<StateSnapshot> {
        let (counters, refused) = self.machine.counters();
        let program = &self.compiled.program;
        let held = |m: usize| MapContents { entries: self.machine.entries(program, m, now), refused: refused[m] };
        let maps = (0..program.maps.len()).map(held).collect();
        vec![StateSnapshot { counters, maps }, StateSnapshot::of(&self.memory, now)]
    }

    fn first_stages(&self) -> usize {
        self.machine.object().stages
    }
}

/// Functions that cannot run in the kernel, because they read values of the worker or write a log.
const USER_SPACE: [&str; 10] = [
    "log_msg",
    "log_buff",
    "log_packet",
    "trace",
    "steer_rrobin",
    "steer_rss",
    "ip_host",
    "incoming_host",
    "is_ip_host",
    "is_incoming_host",
];

/// Each function must have been used in the kernel by one of this number of programs. A run of fewer programs must have
/// used the part of the functions that corresponds to its number of programs.
const PROGRAMS_PER_USE: usize = 750;

fn assert_coverage(test: &str, report: &Report) {
    eprintln!("{report:?}");
    let Report { cases, ran, packets, first_half, .. } = report;
    if *cases < 300 {
        testkit::skip(&format!("{test}: coverage"), &format!("{cases} programs are too few to compare coverage with"));
        return;
    }
    assert!(*ran > cases / 2, "{ran} of {cases} programs ran, refused: {:?}", report.refused);
    assert!(*first_half > packets / 4, "{first_half} of {packets} packets were decided in the kernel");
    let least = (cases / PROGRAMS_PER_USE).max(1);
    let missing = Report::missing(&report.functions_first, least, &USER_SPACE);
    let functions = Report::missing(&report.functions_first, usize::MAX, &USER_SPACE).len();
    let permitted = functions * PROGRAMS_PER_USE.saturating_sub(*cases) / PROGRAMS_PER_USE;
    eprintln!("{} of {functions} functions did not run in the kernel: {missing:?}", missing.len());
    assert!(
        missing.len() <= permitted,
        "in the kernel in fewer than {least} of {cases} programs (permitted: {permitted} functions): {missing:?}"
    );
}

const METADATA: [Metadata; 2] = [Metadata::Full, Metadata::Compact];

fn run_with_both_metadata<M: Machine>(test: &str, name: &'static str, trial: &Trial, load: fn(Object) -> Option<M>) {
    for metadata in METADATA {
        assert_coverage(test, &trial.run(&SplitBackEnd { name, metadata, load, silent: false }));
    }
}

/// True if this process can load eBPF programs; otherwise reports that `test` is skipped.
fn can_load(test: &str) -> bool {
    let filter = lang::compile("main = ip").expect("a program").program;
    Kernel::load(test, emit(&filter, &OPTIONS).expect("all stages run in the kernel")).is_some()
}

fn load_vm(object: Object) -> Option<Vm> {
    Some(Vm::load(object))
}

fn load_kernel(object: Object) -> Option<Kernel> {
    Kernel::load("random programs of the language", object)
}

#[test]
fn the_ebpf_interpreter_agrees_with_the_model() {
    let test = "the_ebpf_interpreter_agrees_with_the_model";
    run_with_both_metadata(test, "the eBPF interpreter", &Trial::new(testkit::seed(test), 1500), load_vm);
}

/// Simulates a driver that leaves no space before a frame. One part of the programs is compiled without metadata; the
/// other programs detect for each packet that the space is missing.
#[test]
fn without_space_for_metadata_the_results_agree_with_the_model() {
    fn load(object: Object) -> Option<Vm> {
        let mut vm = Vm::load(object);
        vm.has_metadata_space = false;
        Some(vm)
    }
    let seed = testkit::seed("without_space_for_metadata_the_results_agree_with_the_model");
    let trial = Trial::new(seed, 600);
    for metadata in [Metadata::None, Metadata::Full, Metadata::Compact] {
        let report = trial.run(&SplitBackEnd { name: "a driver without metadata space", metadata, load, silent: true });
        eprintln!("{metadata:?}: {report:?}");
        let Report { cases, ran, packets, first_half, .. } = report;
        // With `Metadata::Full`, packets must carry the complete verdict record. The driver has no space for it, so the
        // kernel must leave every packet undecided.
        let enough = if metadata == Metadata::Full { first_half == 0 } else { first_half > packets / 10 };
        assert!(ran > cases / 4 && enough, "{ran} of {cases} ran, {first_half} of {packets} packets decided");
    }
}

#[test]
fn the_kernel_agrees_with_the_model() {
    let test = "the_kernel_agrees_with_the_model";
    if can_load(test) {
        run_with_both_metadata(test, "the kernel", &Trial::new(testkit::seed(test), 400), load_kernel);
    }
}

#[test]
fn the_kernel_agrees_with_the_model_on_captured_packets() {
    let test = "the_kernel_agrees_with_the_model_on_captured_packets";
    let Some(traces) = testkit::traces(test) else { return };
    if can_load(test) {
        let trial = Trial::new(testkit::seed(test), 400).over(frames::real(&traces, 200));
        let back_end = SplitBackEnd { name: "the kernel", metadata: Metadata::Full, load: load_kernel, silent: false };
        let report = trial.run(&back_end);
        eprintln!("{report:?}");
        assert!(
            report.first_half > report.packets / 5 && report.ran > report.cases / 4,
            "too few packets were decided in the kernel"
        );
    }
}

/// Regression test for a bug that random programs found: a UDP packet whose header follows long IPv6 options counts as
/// a possible tunnel, because the kernel part does not test the ports of such a packet.
#[test]
fn a_possible_tunnel_behind_long_options_is_undecided() {
    let options = [(wire::IpProtocol::DEST_OPTIONS, &[0; 126][..]); 2];
    let frame = wire::build::Frame::udp6([0x20; 16], 5, [0x21; 16], 4789).extensions(&options);
    let mut room = [0; 400];
    let outcome = |text: &str, frame: &[u8]| {
        let program = lang::compile(text).expect("a program").program;
        Vm::load(emit(&program, &OPTIONS).expect("all stages run in the kernel")).run(frame, 0).outcome
    };
    let far = frame.write(&mut room).expect("room").to_vec();
    assert_eq!(outcome("main = steer_flow", &far), Some(End::Undecided));
    assert_eq!(outcome("main = ip >-> mark 1", &far), Some(End::User), "this program does not inspect tunnels");
}
