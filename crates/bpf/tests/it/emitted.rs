//! Tests that compiled kernel programs either give the results of the reference interpreter or leave the packet
//! undecided. The programs run in the kernel and in a strict eBPF interpreter ([`Vm`]).

use crate::frames;
use crate::kernel;
use crate::random;
use crate::vm;

use base::Prng;
use ir::Facts;
use ir::interp::{Action, Execution, Interpreter, ProgramState};
use ir::{Builder, Cmp, Effect, Expiry, Inst, Map, Operand, Program as Ir, Set, Var, VerdictKind};
use kernel::{Kernel, Machine, OPTIONS, RunResult, USER};
use kernel_programs::{
    EmitOptions, KernelVerdict, Metadata, Object, PacketOutcome, QueueGenerations, Refusal, announce, emit,
};
use vm::Vm;

const DROP: u32 = 1;
const PASS: u32 = 2;
const REDIRECT: u32 = 4;

/// The kernel part of a program, loaded into a [`Machine`] (the kernel or the eBPF interpreter), and the same stages in
/// the reference interpreter, for comparison.
struct Both<M> {
    head: Ir,
    kernel: M,
    memory: ProgramState,
    last: u64,
    /// True if the test removes expired entries before each packet, as user space does periodically.
    sweeps: bool,
}

impl<M: Machine> Both<M> {
    /// `None` if `load` returns `None`.
    fn new(ir: &Ir, metadata: Metadata, load: impl Fn(Object) -> Option<M>) -> Result<Option<Self>, Refusal> {
        let object = emit(ir, &EmitOptions { metadata, ..OPTIONS })?;
        let head = ir.split(object.stages).0;
        // If packets do not carry the full verdict record, user space evaluates them again from the first stage on, so
        // the kernel must not change a counter or a map.
        let has_effects = head.effects().has(Effect::Count) || head.effects().has(Effect::MapWrite);
        assert!(object.metadata == Metadata::Full || !has_effects, "{head}");
        let memory = ProgramState::of(&head, OPTIONS.hash_key);
        Ok(load(object).map(|kernel| Self { head, kernel, memory, last: 0, sweeps: true }))
    }

    /// Runs the program on one packet in the [`Machine`] and in the reference interpreter, and compares the results;
    /// returns true if the kernel decided about the packet.
    fn run(&mut self, frame: &[u8], time: u64, context: &dyn Fn() -> String) -> bool {
        if self.sweeps && self.head.maps.iter().any(|m| m.expiry != Expiry::Never) {
            (0..self.head.maps.len()).for_each(|m| drop(self.kernel.entries(&self.head, m, time)));
        }
        let mut result = self.kernel.run(frame, time);
        // Packets of a program whose metadata would contain only the generation carry no metadata after user space has
        // received the first packet of this generation.
        let needs_no_metadata =
            self.kernel.object().is_evaluated_again && self.kernel.seen().by_user == OPTIONS.generation;
        if needs_no_metadata && result.verdict == USER {
            let implied = KernelVerdict { generation: OPTIONS.generation, stages: 0, record: Execution::start(0) };
            assert_eq!(result.metadata.replace(implied), None, "{}", context());
        }
        let (head, code) = (&self.head, &self.kernel.object().code);
        let describe = || format!("{}\n{frame:02x?}\n{result:?}\n{head}\n{code:?}", context());
        self.last = time;
        if result.outcome == Some(PacketOutcome::Undecided) {
            assert_eq!(result.verdict, USER, "{}", describe());
            assert_eq!(
                result.metadata.as_ref().map(|h| (h.generation, h.stages)),
                Some((OPTIONS.generation, 0)),
                "{}",
                describe()
            );
            return false;
        }
        let facts = Facts {
            time,
            port: OPTIONS.port as u16,
            ingress: OPTIONS.ingress,
            ..Facts::of(frame, 0, OPTIONS.link_type)
        };
        let out = Interpreter::new(&self.head).run(frame, &facts, &mut self.memory);
        let RunResult { verdict, outcome, metadata } = &result;
        let expected = match (&out.actions[..], out.kernel, metadata) {
            ([], false, Some(metadata)) => {
                let object = self.kernel.object();
                let mut sets = head.blocks.iter().flat_map(|b| &b.code).filter_map(|inst| match inst {
                    Inst::Set { var, .. } => Some(*var),
                    _ => None,
                });
                if object.metadata == Metadata::Compact && metadata.stages == 0 {
                    // With compact metadata and 0 completed stages, user space computes the verdict record; the
                    // metadata state only that the packet passes.
                    let kind_is_set = sets.clone().any(|var| var == Var::Kind);
                    assert!(sets.next().is_some() && (kind_is_set || out.kind != VerdictKind::Drop), "{}", describe());
                } else {
                    assert_eq!((&metadata.record, metadata.stages), (&out, object.stages as u8), "{}", describe());
                }
                assert_eq!(metadata.generation, OPTIONS.generation, "{}", describe());
                (USER, PacketOutcome::User)
            }
            ([], false, None) => (DROP, PacketOutcome::Dropped),
            ([Action::Forward(interface)], false, None) => {
                let out_of = self.kernel.egress_interface();
                assert!(
                    out_of.is_none_or(|n| n == u32::from(*interface)),
                    "through interface {out_of:?}, {}",
                    describe()
                );
                (REDIRECT, PacketOutcome::Forwarded)
            }
            ([], true, None) => (PASS, PacketOutcome::Kernel),
            _ => panic!("the kernel cannot produce {out:?}: {}", describe()),
        };
        assert_eq!((*verdict, *outcome), (expected.0, Some(expected.1)), "{out:?} {}", describe());
        if *verdict != USER {
            assert_eq!(out.kind, VerdictKind::Drop, "{}", describe());
        }
        true
    }

    fn compare_memory(&mut self, context: &str) {
        let (counters, refused) = self.kernel.counters();
        let listing = format!("{context}\n{}\n{:?}", self.head, self.kernel.object().code);
        let describe = || &listing;
        assert_eq!(counters, self.memory.counters, "{}", describe());
        for (map, table) in self.memory.tables.iter().enumerate() {
            let ours = self.kernel.entries(&self.head, map, self.last);
            assert_eq!(ours, table.entries(self.last), "map {map}, {}", describe());
            assert_eq!(refused[map], table.refused(), "map {map}, {}", describe());
        }
    }
}

/// The kinds of metadata with which each test runs.
const METADATA: [Metadata; 2] = [Metadata::Full, Metadata::Compact];

/// Runs random programs on random packets. If `load` returns `None`, because programs cannot be loaded, the function
/// returns at once.
fn random_walk<M: Machine>(test: &str, rounds: u64, load: impl Fn(Object) -> Option<M>) {
    let seed = testkit::seed(test);
    let rounds = std::env::var("NETGRAIN_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(rounds);
    let (mut placed, mut decided, mut packets, mut entries, mut dropped) = (0, 0, 0, 0, 0);
    for round in 0..rounds {
        let mut prng = Prng::new(seed.wrapping_add(round));
        let mut ir = random::program(&mut prng, 4);
        // If a timestamp is earlier than the previous timestamp, an entry that was removed from the kernel map as
        // expired would be valid again in the interpreter. So in each round, either timestamps may go back or expired
        // entries are removed, not both.
        let back = round % 2 == 0;
        if back {
            ir.maps.iter_mut().for_each(|m| m.capacity = 4096);
        }
        let metadata = METADATA[(round / 2 % 2) as usize];
        let mut both = match Both::new(&ir, metadata, &load) {
            Ok(Some(both)) => both,
            Ok(None) => return,
            Err(Refusal::Nothing { .. }) => continue,
            Err(other) => panic!("seed {seed}, round {round}: {other}\n{ir}"),
        };
        placed += 1;
        both.sweeps = !back;
        both.kernel.see(OPTIONS.generation - prng.below(2) as u32);
        let mut time = 1000;
        for packet in 0..40 {
            let frame = match packet % 3 {
                0 => random::frame(&mut prng),
                n => frames::frame(&mut prng, n == 1),
            };
            if frame.len() < 14 {
                continue;
            }
            time += prng.below(300);
            let back = if back && prng.below(10) == 0 { prng.below(500) } else { 0 };
            packets += 1;
            let context = || format!("seed {seed}, round {round}, packet {packet}");
            decided += u64::from(both.run(&frame, time - back.min(time), &context));
        }
        both.compare_memory(&format!("seed {seed}, round {round}"));
        entries += both.memory.tables.iter().map(|t| t.entries(time).len()).sum::<usize>();
        dropped += both.kernel.outcomes()[PacketOutcome::Dropped as usize];
    }
    eprintln!(
        "{placed} of {rounds} programs, {decided} of {packets} packets decided, {dropped} dropped, {entries} entries"
    );
    let enough = placed > rounds / 8 && decided > packets / 4 && entries > 20 && dropped > 50;
    assert!(rounds < 100 || enough, "the programs have too few effects");
}

#[test]
fn random_programs_in_the_kernel() {
    let test = "random_programs_in_the_kernel";
    random_walk(test, 1000, |object| Kernel::load(test, object));
}

#[test]
fn random_programs_in_the_ebpf_interpreter() {
    random_walk("random_programs_in_the_ebpf_interpreter", 3000, |object| Some(Vm::load(object)));
}

fn compiled(text: &str) -> Ir {
    lang::compile(text).unwrap_or_else(|e| panic!("{}", e.show(text, "program"))).program
}

/// Source texts of typical programs, each with the number of its stages that run in the kernel.
const PROGRAMS: [(&str, usize); 17] = [
    ("main = ip >-> steer_flow", 2),
    ("main = when is_tcp (mark 42) >-> steer_p2p", 2),
    ("main = ip >-> when is_tcp (forward \"eth1\") >-> steer_flow", 3),
    ("main = unless is_tcp (bridge \"eth1\") >-> inc 1 >-> steer_ip", 3),
    ("main = when is_udp detour >-> broadcast", 2),
    ("main = when is_tcp steer_rss", 1),
    ("flows = flow_map 0 key_5tuple\nmain = incr_fstate flows >-> steer_flow", 2),
    (
        "hosts = for_ms 1 (up_to 8 (flow_map 0 key_ip_src))\nmain = do\n  add_fstate hosts 1\n  filter (get_fstate \
         hosts .<= 2)\n",
        2,
    ),
    ("main = bpf \"tcp port 80 or udp port 53 or ip6\" >-> steer_link", 2),
    ("main = bpf \"ip[6:2] & 0x1fff = 0 and tcp[13] & 2 != 0\" >-> mark 7", 2),
    ("main = unless (matches \"geneve and tcp[tcp[12] >> 2] = 0\") (inc 3) >-> steer_link", 2),
    ("main = filter (has_addr 10.0.0.0/30) >-> inc 3 >-> steer_vlan", 3),
    ("main = steer_local_net 10.0.0.0 24 32", 1),
    ("main = filter (ip_ttl .> 3) >-> classify 5 >-> double_steer_ip", 3),
    ("main = when has_vlan (inc 2) >-> steer_field 14 4", 2),
    (
        "a = [10.0.0.0/30, 10.0.1.0/24, 10.0.3.0/24, 10.0.5.0/24, 10.0.7.0/24, 10.0.9.0/24, 10.0.11.0/24]\n\
         b = [10.0.0.2, 10.0.0.4/31, 10.2.0.0/16, 10.4.0.0/16, 10.6.0.0/16, 10.8.0.0/16, 10.10.0.0/16]\n\
         main = when (has_addr_in a) (inc 1) >-> src (when (has_addr_in b) (inc 2)) \
         >-> unless (has_addr_in b) (mark 3)",
        3,
    ),
    ("main = icmp >-> when (icmp_type .== 8) drop >-> kernel >-> drop", 4),
];

/// Runs the typical programs on generated frames, with all kinds of headers.
fn typical<M: Machine>(test: &str, load: impl Fn(Object) -> Option<M>) {
    let seed = testkit::seed(test);
    let mut prng = Prng::new(seed);
    for ((text, stages), metadata) in PROGRAMS.into_iter().flat_map(|p| METADATA.map(|m| (p, m))) {
        let ir = compiled(text);
        let Some(mut both) = Both::new(&ir, metadata, &load).unwrap_or_else(|e| panic!("{text}: {e}")) else { return };
        assert_eq!(both.kernel.object().stages, stages, "{text}\n{ir}");
        let mut decided = 0;
        for packet in 0..1500 {
            let frame = frames::frame(&mut prng, packet % 4 == 0);
            let context = || format!("seed {seed}, {text}, {metadata:?}, packet {packet}");
            decided += usize::from(both.run(&frame, packet * 1000, &context));
        }
        both.compare_memory(text);
        assert!(decided > 300, "{text}: only {decided} packets were decided");
    }
}

/// The program of this test has more address sets than a kernel program may have maps.
#[test]
fn seventy_stages_with_address_sets_run_in_the_kernel() {
    let test = "seventy_stages_with_address_sets_run_in_the_kernel";
    let nets = |i| (1..9).map(|k| format!("10.{i}.{}.0/28", 2 * k)).collect::<Vec<_>>().join(", ");
    let stage = |i| format!("when (has_addr_in [10.0.0.{}, {}]) (inc {})", i % 9, nets(i), i % 64);
    let stages: Vec<_> = (0..70).map(stage).collect();
    let ir = compiled(&format!("main = {}", stages.join(" >-> ")));
    let Some(mut both) =
        Both::new(&ir, Metadata::Full, |object| Kernel::load(test, object)).expect("the stages run in the kernel")
    else {
        return;
    };
    assert_eq!(both.kernel.object().stages, 70);
    let mut prng = Prng::new(testkit::seed(test));
    for packet in 0..500 {
        both.run(&frames::frame(&mut prng, false), packet, &|| format!("packet {packet}"));
    }
    both.compare_memory(test);
    assert!(both.memory.counters.iter().filter(|n| **n > 0).count() > 10, "{:?}", both.memory.counters);
}

#[test]
fn typical_programs_in_the_kernel() {
    let test = "typical_programs_in_the_kernel";
    typical(test, |object| Kernel::load(test, object));
}

#[test]
fn typical_programs_in_the_ebpf_interpreter() {
    typical("typical_programs_in_the_ebpf_interpreter", |object| Some(Vm::load(object)));
}

#[test]
fn captured_packets_in_the_kernel() {
    let test = "captured_packets_in_the_kernel";
    let Some(traces) = testkit::traces(test) else { return };
    let mut prng = Prng::new(testkit::seed(test));
    let mut files = Vec::new();
    let mut directories = vec![traces];
    while let Some(directory) = directories.pop() {
        for path in std::fs::read_dir(directory).expect("a directory").flatten().map(|e| e.path()) {
            match path.extension().and_then(|e| e.to_str()) {
                _ if path.is_dir() => directories.push(path),
                Some("pcap" | "pcapng" | "cap" | "trace") => files.push(path),
                _ => (),
            }
        }
    }
    files.sort();
    let (mut packets, mut decided) = (0_u64, 0_u64);
    for (n, path) in files.iter().filter(|p| p.metadata().is_ok_and(|m| m.len() < 4 << 20)).enumerate() {
        let Ok(file) = std::fs::File::open(path) else { continue };
        let Ok(mut reader) = pcap::Reader::open(std::io::BufReader::new(file)) else { continue };
        let mut frames = Vec::new();
        while frames.len() < 200
            && let Ok(Some(packet)) = reader.next()
        {
            if packet.link_type == OPTIONS.link_type && (14..3000).contains(&packet.data.len()) {
                frames.push((packet.data.to_vec(), packet.ts.map_or(0, base::Timestamp::nanos)));
            }
        }
        let typical = compiled(PROGRAMS[n % PROGRAMS.len()].0);
        for mut ir in [typical, random::program(&mut prng, 3)] {
            ir.maps.iter_mut().for_each(|m| m.capacity = 4096);
            let metadata = METADATA[n / PROGRAMS.len() % 2];
            let mut both = match Both::new(&ir, metadata, |object| Kernel::load(test, object)) {
                Ok(Some(both)) => both,
                Ok(None) => return,
                Err(Refusal::Nothing { .. }) => continue,
                Err(other) => panic!("{}: {other}\n{ir}", path.display()),
            };
            // In some capture files timestamps go back, so expired entries are not removed here.
            both.sweeps = false;
            for (at, (frame, time)) in frames.iter().enumerate() {
                packets += 1;
                decided += u64::from(both.run(frame, *time, &|| format!("{}, packet {at}", path.display())));
            }
        }
    }
    eprintln!("{decided} of {packets} packets of {} files decided", files.len());
    assert!(packets > 1000 && decided > packets / 4, "only {decided} of {packets} packets were decided");
}

/// A program with one map. The first byte of a frame selects the operation on the map, and the second byte is the key.
fn one_map(expiry: Expiry) -> Ir {
    let mut b = Builder::default();
    let map = Map { name: "m".into(), key: ir::Key::default(), words: 1, capacity: 64, expiry };
    b.tables().maps.push(map);
    b.stage("one map");
    let end = b.label();
    b.fits(None, 0, 2, end);
    let (what, key) = (b.load(None, 0, 1), b.load(None, 1, 1));
    let (to, by, map) = (b.reg(), Operand::Reg(what), 0);
    for (n, inst) in [
        Inst::Has { to, map, key: vec![key] },
        Inst::MapGet { to, map, key: vec![key] },
        Inst::MapAdd { to, map, key: vec![key], by },
        Inst::MapPut { map, key: vec![key], value: by },
        Inst::MapDelete { map, key: vec![key] },
    ]
    .into_iter()
    .enumerate()
    {
        let next = b.label();
        let writes = inst.target().is_some();
        b.require(what, Cmp::Eq, n as u64, next);
        b.push(inst);
        if writes {
            b.set(Var::State, to);
        }
        b.jump(end);
        b.place(next);
    }
    b.place(end);
    b.finish()
}

/// Tests the expiry of map entries. There are few keys, and timeouts are short, so that the timestamp of some packets
/// is exactly the time at which an entry expires.
fn check_expiry<M: Machine>(test: &str, load: impl Fn(Object) -> Option<M>) {
    let seed = testkit::seed(test);
    let mut prng = Prng::new(seed);
    for expiry in [Expiry::Never, Expiry::Idle(3), Expiry::Lifetime(3), Expiry::Idle(0), Expiry::Lifetime(1 << 40)] {
        let Some(mut both) =
            Both::new(&one_map(expiry), Metadata::Compact, &load).expect("all stages run in the kernel")
        else {
            return;
        };
        both.sweeps = false;
        let mut time: u64 = 1 << 41;
        for packet in 0..2000 {
            time = match (expiry, prng.below(12)) {
                (_, 0) => time - prng.below(5),
                (Expiry::Lifetime(long), 1) => time + long - 3 + prng.below(6),
                _ => time + prng.below(5),
            };
            let mut frame = [0; 20];
            (frame[0], frame[1]) = (prng.below(6) as u8, prng.below(3) as u8);
            let context = || format!("seed {seed}, {expiry:?}, packet {packet}");
            assert!(both.run(&frame, time, &context), "{}", context());
        }
        both.compare_memory(&format!("seed {seed}, {expiry:?}"));
    }
}

#[test]
fn entries_expire_at_the_same_time_as_in_the_interpreter() {
    let test = "entries_expire_at_the_same_time_as_in_the_interpreter";
    check_expiry(test, |object| Some(Vm::load(object)));
    check_expiry(test, |object| Kernel::load(test, object));
}

/// Tests, for each range of an address set, the first address, the last address and their neighbours.
fn check_sets<M: Machine>(load: impl Fn(Object) -> Option<M>) {
    let few = vec![(0, 3), (5 << 64, (9 << 64) - 1), (10 << 64 | 7, 10 << 64 | 7), (12 << 64 | 1, 12 << 64 | 9)];
    let many: Vec<(u128, u128)> = (0..30).map(|n| (n << 120 | 5, n << 120 | 1 << 70 | 1)).collect();
    let last = vec![(u128::MAX - 6, u128::MAX)];
    for ranges in [few, many, last, vec![], vec![(0, u128::MAX)], vec![(3 << 63, 5 << 64)]] {
        let mut b = Builder::default();
        b.stage("a set");
        let set = b.set_table(&Set::Ranges(ranges.clone()));
        let end = b.label();
        b.fits(None, 0, 16, end);
        let (hi, lo, to) = (b.load(None, 0, 8), b.load(None, 8, 8), b.reg());
        b.push(Inst::Member { to, set, hi, lo });
        b.set(Var::State, to);
        b.place(end);
        let Some(mut both) = Both::new(&b.finish(), Metadata::Full, &load).expect("all stages run in the kernel")
        else {
            return;
        };
        for address in ranges.iter().flat_map(|r| [r.0, r.1]).chain([0, 1 << 64, u128::MAX]) {
            for beside in [address.wrapping_sub(1), address, address.wrapping_add(1)] {
                let mut frame = [0; 20];
                frame[..16].copy_from_slice(&beside.to_be_bytes());
                assert!(both.run(&frame, 0, &|| format!("{beside:#x} in {ranges:x?}")));
            }
        }
    }
}

#[test]
fn sets_contain_the_same_addresses_as_in_the_interpreter() {
    check_sets(|object| Some(Vm::load(object)));
    check_sets(|object| Kernel::load("sets_contain_the_same_addresses_as_in_the_interpreter", object));
}

#[test]
fn without_space_for_metadata_packets_are_undecided() {
    let ir = compiled("flows = flow_map 0 key_5tuple\nmain = inc 1 >-> incr_fstate flows >-> drop");
    let mut vm = Vm::load(emit(&ir, &OPTIONS).expect("all stages run in the kernel"));
    vm.has_metadata_space = false;
    let mut bytes = [0; 60];
    let frame = wire::build::Frame::udp4([10, 0, 0, 1], 5353, [10, 0, 0, 2], 53).fill(&mut bytes);
    assert_eq!(vm.run(frame, 0), RunResult { verdict: USER, outcome: Some(PacketOutcome::Undecided), metadata: None });
    assert_eq!((vm.counters().0[1], vm.entries(&ir, 0, 0)), (0, vec![]));
    assert_eq!(
        vm.seen(),
        QueueGenerations { by_user: 0, last_untagged: OPTIONS.generation },
        "the queue's generations record the missing metadata"
    );
    vm.has_metadata_space = true;
    assert_eq!(vm.run(frame, 0), RunResult { verdict: DROP, outcome: Some(PacketOutcome::Dropped), metadata: None });
    assert_eq!((vm.counters().0[1], vm.entries(&ir, 0, 0).len()), (1, 1));
}

#[test]
fn a_seen_generation_is_not_sent_again() {
    let test = "a_seen_generation_is_not_sent_again";
    let compact = EmitOptions { metadata: Metadata::Compact, ..OPTIONS };
    let flow = emit(&compiled("main = ip >-> steer_flow"), &compact).expect("all stages run in the kernel");
    let full_verdict = emit(&compiled("main = ip"), &compact).expect("all stages run in the kernel");
    check_until_seen(
        &mut Vm::load(flow.clone()),
        &mut Vm::load(full_verdict.clone()),
        &mut Vm::load(announce(&compact)),
    );
    let [flow, full_verdict, nothing] =
        [flow, full_verdict, announce(&compact)].map(|object| Kernel::load(test, object));
    if let (Some(mut flow), Some(mut full_verdict), Some(mut nothing)) = (flow, full_verdict, nothing) {
        check_until_seen(&mut flow, &mut full_verdict, &mut nothing);
    }
}

fn check_until_seen<M: Machine>(flow: &mut M, full_verdict: &mut M, nothing: &mut M) {
    let mut bytes = [0; 60];
    let udp = wire::build::Frame::udp4([10, 0, 0, 1], 5353, [10, 0, 0, 2], 53).fill(&mut bytes).to_vec();
    // The kernel must leave a packet with a malformed IPv4 header undecided.
    let mut malformed = udp.clone();
    malformed[14] = 0x41;
    for (seen, silent) in [(0, false), (OPTIONS.generation - 1, false), (OPTIONS.generation, true), (0, false)] {
        let announces = [(&mut *flow, &udp, PacketOutcome::User), (&mut *nothing, &malformed, PacketOutcome::User)];
        for (machine, frame, outcome) in announces {
            machine.see(seen);
            let result = machine.run(frame, 0);
            assert_eq!((result.verdict, result.outcome), (USER, Some(outcome)));
            let generation = result.metadata.map(|h| (h.generation, h.stages));
            assert_eq!(generation, (!silent).then_some((OPTIONS.generation, 0)), "{seen}");
        }
        flow.see(seen);
        let result = flow.run(&malformed, 0);
        assert_eq!(
            (result.verdict, result.outcome, result.metadata.is_none()),
            (USER, Some(PacketOutcome::Undecided), silent)
        );
        // Packets of this program carry the number of stages that ran, so every packet carries metadata.
        full_verdict.see(seen);
        let metadata = full_verdict.run(&udp, 0).metadata.expect("metadata");
        assert_eq!((metadata.generation, metadata.stages), (OPTIONS.generation, 1));
    }
}

/// Limits the number of instructions that programs execute for common packets. This number is a measure of cost that
/// does not depend on a clock.
#[test]
fn common_packets_take_few_instructions() {
    use wire::build::Frame;
    let udp = Frame::udp4([10, 0, 0, 1], 5353, [10, 0, 0, 2], 53);
    let tcp = Frame::tcp4([10, 0, 0, 1], 5353, [10, 0, 0, 2], 80);
    let (flow, pair) = ("main = ip >-> steer_flow", "main = when is_tcp (mark 42) >-> steer_p2p");
    for (text, metadata, frame, most) in [
        (flow, Metadata::Full, udp, 145),
        (flow, Metadata::Compact, udp, 66),
        (pair, Metadata::Full, tcp, 145),
        (pair, Metadata::Compact, tcp, 50),
        ("flows = flow_map 0 key_5tuple\nmain = incr_fstate flows", Metadata::Compact, udp, 130),
    ] {
        let mut bytes = [0; 60];
        let frame = frame.fill(&mut bytes);
        let options = EmitOptions { metadata, ..OPTIONS };
        let mut vm = Vm::load(emit(&compiled(text), &options).unwrap_or_else(|e| panic!("{text}: {e}")));
        let result = vm.run(frame, 0);
        assert_eq!(result.outcome, Some(PacketOutcome::User), "{text}");
        vm.see(OPTIONS.generation);
        assert_eq!(vm.run(frame, 0).outcome, Some(PacketOutcome::User), "{text}");
        assert!(vm.steps <= most, "{text}, {metadata:?}: {} instructions\n{:?}", vm.steps, vm.object.code);
    }
}
