//! The kernel's half of a program and the half in user space together do what the program means: random programs, of
//! everything that the table of functions has, over made and over real packets, in the kernel and in a machine of our
//! own.

use crate::kernel;
use crate::vm;

use difftest::{
    BackEnd, CompiledCase, Execution, ExecutionResult, MapContents, ObservedAction, Packet, PacketOutcome, Report,
    StateSnapshot, Trial, facts, frames,
};
use ir::Facts;
use ir::interp::{self, Interpreter, ProgramState};
use ir::{Expiry, Program, VerdictKind};
use kernel::{Answer, Kernel, Machine, OPTIONS, USER};
use kernel_programs::{EmitOptions, KernelVerdict, Metadata, Object, PacketOutcome as End, Refusal, emit};
use vm::Vm;

/// A kernel, and an interpreter behind it.
struct Halves<M> {
    name: &'static str,
    metadata: Metadata,
    load: fn(Object) -> Option<M>,
    /// Whether nothing can go along with a packet, as the driver has it.
    silent: bool,
}

/// The type of a refusal. That a program is unfit is not for a back end to say of what was verified.
fn refused(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Nothing { .. } => "nothing to do in the kernel",
        Refusal::LinkType(_) => "not Ethernet",
        Refusal::Stack { .. } => "too much at once for the stack",
        Refusal::TooLong { .. } => "too long",
        Refusal::NoMetadata => "no record can go along",
        other => panic!("{other}"),
    }
    .to_owned()
}

impl<M: Machine> BackEnd for Halves<M> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn takes(&self, packet: &Packet) -> bool {
        // What a test run in the kernel takes: an Ethernet header, and not more than a page.
        (14..3000).contains(&packet.bytes.len())
    }

    fn source(&self, packet: &Packet) -> Facts {
        let wire_len = packet.bytes.len() as u32;
        Facts { time: packet.facts.time, wire_len, port: OPTIONS.port, ingress: OPTIONS.ingress, ..Facts::default() }
    }

    fn load<'a>(&'a self, ready: &'a CompiledCase) -> Result<Box<dyn Execution + 'a>, String> {
        let (hash_key, link_type) = (ready.world.hash_key, ready.world.link_type);
        let request = EmitOptions { hash_key, link_type, metadata: self.metadata, ..OPTIONS };
        let object = emit(&ready.program, &request).map_err(|e| refused(&e))?;
        let (_, rest) = ready.program.split(object.stages);
        // Half of those that would say no more than which program they are need not say that either.
        let seen = object.is_evaluated_again && hash_key.is_multiple_of(2);
        let mut machine = (self.load)(object).expect("it was loaded before");
        if seen {
            machine.see(OPTIONS.generation);
        }
        let silent = self.silent || seen;
        let memory = ProgramState::of(&ready.program, hash_key);
        // What is taken out of a map does not come back when time does: only maps that refuse are swept.
        let sweeps = ready.program.maps.iter().any(|m| m.expiry != Expiry::Never && m.capacity < 100);
        Ok(Box::new(Running { ready, machine, rest, memory, sweeps, silent, number: 0 }))
    }
}

struct Running<'a, M> {
    ready: &'a CompiledCase,
    machine: M,
    rest: Program,
    memory: ProgramState,
    sweeps: bool,
    /// Whether nothing need or can go along with a packet.
    silent: bool,
    number: u64,
}

impl<M: Machine> Running<'_, M> {
    fn one(&mut self, packet: &Packet) -> ExecutionResult {
        let time = packet.facts.time;
        if self.sweeps {
            (0..self.ready.program.maps.len()).for_each(|m| drop(self.machine.entries(&self.ready.program, m, time)));
        }
        let Answer { verdict, fate, handed } = self.machine.run(&packet.bytes, time);
        let (end, number) = (fate.expect("a fate"), self.number);
        let gone = |kernel, done| PacketOutcome { kind: VerdictKind::Drop, record: None, kernel, done };
        let fate = match end {
            End::Dropped => gone(false, vec![]),
            End::Kernel => gone(true, vec![]),
            End::Forwarded => {
                let name = |index: u32| self.ready.program.devices[index as usize].clone();
                gone(
                    false,
                    vec![ObservedAction::Forward(self.machine.device().map_or(ObservedAction::SOME.to_owned(), name))],
                )
            }
            End::User | End::Undecided => {
                assert_eq!(verdict, USER, "{end:?}");
                // Where the kernel can say nothing of a packet, it is undecided.
                assert!(handed.is_some() || self.silent, "{end:?} without a word");
                let handed = handed.unwrap_or(KernelVerdict {
                    generation: OPTIONS.generation,
                    stages: 0,
                    record: interp::Execution::start(0),
                });
                assert_eq!(handed.generation, OPTIONS.generation);
                assert!(end == End::User || handed.stages == 0, "undecided after {} stages", handed.stages);
                let facts = facts(packet, self.ready.world.link_type, number);
                let (program, start) = match handed.stages {
                    0 => (&self.ready.program, interp::Execution::start(0)),
                    _ => (&self.rest, handed.record),
                };
                let out = Interpreter::new(program).run_from(start, &packet.bytes, &facts, &mut self.memory);
                self.number += 1;
                let fate = PacketOutcome::of(&out, &self.ready.program);
                return ExecutionResult { outcome: fate, first_half: handed.stages > 0, number };
            }
            End::Unclaimed | End::Unsent => panic!("{end:?}"),
        };
        ExecutionResult { outcome: fate, first_half: true, number }
    }
}

impl<M: Machine> Execution for Running<'_, M> {
    fn judge(&mut self, packets: &[Packet]) -> Vec<ExecutionResult> {
        packets.iter().map(|p| self.one(p)).collect()
    }

    fn remembered(&mut self, now: u64) -> Vec<StateSnapshot> {
        let (counters, refused) = self.machine.counters();
        let program = &self.ready.program;
        let held = |m: usize| MapContents { entries: self.machine.entries(program, m, now), refused: refused[m] };
        let maps = (0..program.maps.len()).map(held).collect();
        vec![StateSnapshot { counters, maps }, StateSnapshot::of(&self.memory, now)]
    }

    fn first_stages(&self) -> usize {
        self.machine.object().stages
    }
}

/// What has no place in the kernel: it asks for what only a worker knows, or writes a log.
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

fn is_worth_it(report: &Report) {
    eprintln!("{report:?}");
    let Report { cases, ran, packets, first_half, .. } = report;
    if *cases < 300 {
        return;
    }
    assert!(*ran > cases / 2, "{ran} of {cases} programs ran, refused: {:?}", report.refused);
    assert!(*first_half > packets / 4, "{first_half} of {packets} packets were decided in the kernel");
    // Few programs are enough for what is the same in both machines; which functions there are is held where there are
    // more.
    let least = cases / 750;
    let missing = Report::missing(&report.functions_first, least, &USER_SPACE);
    assert!(missing.is_empty(), "in the kernel in fewer than {least} of {cases} programs: {missing:?}");
}

const METADATA: [Metadata; 2] = [Metadata::Full, Metadata::Compact];

fn both_ways<M: Machine>(name: &'static str, trial: &Trial, load: fn(Object) -> Option<M>) {
    for metadata in METADATA {
        is_worth_it(&trial.run(&Halves { name, metadata, load, silent: false }));
    }
}

/// Whether programs can be loaded at all; says so if not.
fn can_load(test: &str) -> bool {
    let filter = lang::compile("main = ip").expect("a program").program;
    Kernel::load(test, emit(&filter, &OPTIONS).expect("all of it is for the kernel")).is_some()
}

fn load_vm(object: Object) -> Option<Vm> {
    Some(Vm::load(object))
}

fn load_kernel(object: Object) -> Option<Kernel> {
    Kernel::load("random programs of the language", object)
}

#[test]
fn a_machine_that_forgives_nothing_does_what_programs_mean() {
    let seed = testkit::seed("a_machine_that_forgives_nothing_does_what_programs_mean");
    both_ways("a machine of our own", &Trial::new(seed, 1500), load_vm);
}

/// A driver that does not let a program write before a frame: what was made for it, and what was not and finds out
/// packet by packet.
#[test]
fn a_driver_without_room_before_frames_makes_no_difference() {
    fn load(object: Object) -> Option<Vm> {
        let mut vm = Vm::load(object);
        vm.has_room = false;
        Some(vm)
    }
    let seed = testkit::seed("a_driver_without_room_before_frames_makes_no_difference");
    let trial = Trial::new(seed, 600);
    for metadata in [Metadata::None, Metadata::Full, Metadata::Compact] {
        let report = trial.run(&Halves { name: "a driver without room", metadata, load, silent: true });
        eprintln!("{metadata:?}: {report:?}");
        let Report { cases, ran, packets, first_half, .. } = report;
        // Where the record was to go along, nothing is done for a packet of which nothing can be told.
        let enough = if metadata == Metadata::Full { first_half == 0 } else { first_half > packets / 10 };
        assert!(ran > cases / 4 && enough, "{ran} of {cases} ran, {first_half} of {packets} packets decided");
    }
}

#[test]
fn the_kernel_does_what_programs_mean() {
    let test = "the_kernel_does_what_programs_mean";
    if can_load(test) {
        both_ways("the kernel", &Trial::new(testkit::seed(test), 400), load_kernel);
    }
}

#[test]
fn real_packets_come_to_the_same_in_the_kernel() {
    let test = "real_packets_come_to_the_same_in_the_kernel";
    let Some(traces) = testkit::traces(test) else { return };
    if can_load(test) {
        let trial = Trial::new(testkit::seed(test), 400).over(frames::real(&traces, 200));
        let halves = Halves { name: "the kernel", metadata: Metadata::Full, load: load_kernel, silent: false };
        let report = trial.run(&halves);
        eprintln!("{report:?}");
        assert!(
            report.first_half > report.packets / 5 && report.ran > report.cases / 4,
            "hardly anything was decided in the kernel"
        );
    }
}

/// UDP behind long options of IPv6: where its ports are not looked at, a tunnel may be behind them. Found by the
/// programs above.
#[test]
fn what_may_be_a_tunnel_far_inside_is_left_to_user_space() {
    let options = [(wire::IpProtocol::DEST_OPTIONS, &[0; 126][..]); 2];
    let frame = wire::build::Frame::udp6([0x20; 16], 5, [0x21; 16], 4789).extensions(&options);
    let mut room = [0; 400];
    let fate = |text: &str, frame: &[u8]| {
        let program = lang::compile(text).expect("a program").program;
        Vm::load(emit(&program, &OPTIONS).expect("all of it is for the kernel")).run(frame, 0).fate
    };
    let far = frame.write(&mut room).expect("room").to_vec();
    assert_eq!(fate("main = steer_flow", &far), Some(End::Undecided));
    assert_eq!(fate("main = ip >-> mark 1", &far), Some(End::User), "who does not look into tunnels need not care");
}
