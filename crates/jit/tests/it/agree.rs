//! Compares the interpreter with machine code: both must give equal results for random programs on random and captured
//! packets.

use crate::random;

use base::Prng;
use ir::Facts;
use ir::interp::{Interpreter, ProgramState};
use ir::{Builder, Cmp, Expiry, Fact, Inst, Layer, Map, Meta, Op, Operand, Program, Var};
use netgrain_jit::{Executable, Packet, PacketAction, Verdict, Worker};
use std::time::{Duration, Instant};
use wire::build::Frame;
use wire::link;

fn native(program: &Program) -> Executable {
    let begun = Instant::now();
    Executable::native(program.clone(), || begun.elapsed()).unwrap_or_else(|e| panic!("{e}\n{program}"))
}

/// Runs the same program as machine code and in the interpreter. `run` compares all results for a batch of packets and
/// returns the number of dropped packets.
struct Both<'a> {
    program: &'a Program,
    worker: Worker,
    memory: ProgramState,
    sequence: u64,
    last: u64,
}

impl<'a> Both<'a> {
    fn new(program: &'a Program, hash_key: u64) -> Self {
        let worker = native(program).worker(hash_key).expect("small maps");
        Self { program, worker, memory: ProgramState::of(program, hash_key), sequence: 0, last: 0 }
    }

    fn run(&mut self, batch: &[(&[u8], Facts)], link_type: u16, context: &str) -> usize {
        let mut packets: Vec<_> = batch.iter().map(|(bytes, facts)| Packet::new(bytes, link_type, *facts)).collect();
        let mut verdicts = vec![Verdict::default(); packets.len()];
        self.worker.evaluate(&mut packets, &mut verdicts);
        let mut interpreter = Interpreter::new(self.program);
        let (mut actions, mut traces) = (Vec::new(), Vec::new());
        let mut dropped = 0;
        for (i, (bytes, source)) in batch.iter().enumerate() {
            let wire_len = source.wire_len.max(bytes.len() as u32);
            let seen = Facts::of(bytes, wire_len, link_type);
            let facts = random::combined(&seen, self.sequence, source);
            let out = interpreter.run(bytes, &facts, &mut self.memory);
            self.sequence += 1;
            self.last = facts.time;
            let v = &verdicts[i];
            assert_eq!(
                (v.kind(), v.classes, v.hash, v.hash2, v.mark, v.state, v.kernel()),
                (out.kind, out.classes, out.hash, out.hash2, out.mark, out.state, out.kernel),
                "{context}, packet {i} {facts:?}\n{bytes:02x?}\n{}",
                self.program
            );
            actions.extend(out.actions.iter().map(|action| PacketAction { packet: i as u32, action: *action }));
            traces.extend(out.traces);
            dropped += usize::from(out.kind == ir::VerdictKind::Drop);
        }
        assert_eq!(self.worker.traces(), traces, "{context}\n{}", self.program);
        assert_eq!(self.worker.actions(), actions, "{context}\n{}", self.program);
        assert_eq!(self.worker.datagrams().counts(), self.memory.datagrams.counts(), "{context}\n{}", self.program);
        assert_eq!(self.worker.counters(), &self.memory.counters, "{context}\n{}", self.program);
        for (map, table) in self.memory.tables.iter().enumerate() {
            let ours = self.worker.entries(map, self.last).expect("as many maps");
            assert_eq!(ours, table.entries(self.last), "{context}, map {map}\n{}", self.program);
            assert_eq!(self.worker.refused()[map], table.refused(), "{context}, map {map}");
        }
        dropped
    }
}

#[test]
fn random_programs_over_random_packets() {
    let seed = testkit::seed("random_programs_over_random_packets");
    let rounds = std::env::var("NETGRAIN_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1500);
    let (mut dropped, mut entries, mut branches, mut actions, mut matched_fragments) = (0, 0, 0, 0, 0);
    for round in 0..rounds {
        let mut prng = Prng::new(seed.wrapping_add(round));
        let program = random::program(&mut prng, 5);
        assert_eq!(program.verify(), Ok(()), "seed {seed}, round {round}\n{program}");
        branches += program.blocks.len();
        let mut both = Both::new(&program, prng.next_u64());
        let mut time = 1_000;
        for batch in 0..4 {
            let frames: Vec<_> = (0..prng.below(40)).map(|_| random::frame(&mut prng)).collect();
            let packets: Vec<_> = frames
                .iter()
                .map(|f| {
                    let facts = random::facts(&mut prng, time);
                    time = time.max(facts.time);
                    (f.as_slice(), facts)
                })
                .collect();
            dropped += both.run(&packets, link::ETHERNET, &format!("seed {seed}, round {round}, batch {batch}"));
            actions += both.worker.actions().len();
        }
        matched_fragments += both.memory.datagrams.counts().matched;
        entries += both.memory.tables.iter().map(|t| t.entries(time).len()).sum::<usize>();
    }
    eprintln!(
        "{rounds} programs, {branches} blocks, {dropped} drops, {entries} entries, {actions} actions, \
         {matched_fragments} matched fragments"
    );
    let all = dropped > 1000 && entries > 300 && actions > 1000 && matched_fragments > 300;
    assert!(rounds < 100 || all, "the programs have too few effects");
}

#[test]
fn random_programs_over_real_packets() {
    let Some(traces) = testkit::traces("random_programs_over_real_packets") else { return };
    let seed = testkit::seed("random_programs_over_real_packets");
    let mut prng = Prng::new(seed);
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
    let mut evaluated = 0;
    for path in files.iter().filter(|p| p.metadata().is_ok_and(|m| m.len() < 4 << 20)) {
        let Ok(file) = std::fs::File::open(path) else { continue };
        let Ok(mut reader) = pcap::Reader::open(std::io::BufReader::new(file)) else { continue };
        let mut frames = Vec::new();
        let mut link_type = 0;
        while frames.len() < 300
            && let Ok(Some(packet)) = reader.next()
        {
            link_type = packet.link_type;
            frames.push((packet.data.to_vec(), packet.wire_len, packet.ts.map_or(0, base::Timestamp::nanos)));
        }
        for round in 0..2 {
            let program = random::program(&mut prng, 5);
            let mut both = Both::new(&program, 1);
            for batch in frames.chunks(64) {
                let facts = |wire_len, time| Facts { wire_len, time, ..Facts::default() };
                let packets: Vec<_> = batch.iter().map(|(b, w, t)| (b.as_slice(), facts(*w, *t))).collect();
                both.run(&packets, link_type, &format!("seed {seed}, {}, round {round}", path.display()));
                evaluated += packets.len();
            }
        }
    }
    eprintln!("{evaluated} packets of {} files", files.len());
    assert!(evaluated > 1000, "only {evaluated} packets were evaluated");
}

/// A program that stores all packet facts of these layers in its verdict record.
fn facts_in_record(layers: [Layer; 2]) -> Program {
    let mut b = Builder::default();
    let mut words = layers.map(|layer| {
        let l4 = b.fact(layer, Fact::L4);
        let l3 = b.fact(layer, Fact::L3);
        let high = b.op(Op::Shl, l3, 16);
        let offsets = b.op(Op::Or, high, l4);
        let mut rest = b.fact(layer, Fact::Ethertype);
        for (fact, bits) in [(Fact::Protocol, 8), (Fact::Family, 4), (Fact::Fragment, 4)] {
            let (more, up) = (b.fact(layer, fact), b.op(Op::Shl, rest, bits));
            rest = b.op(Op::Or, up, more);
        }
        [offsets, rest]
    });
    let mut link = b.meta(Meta::Vlan);
    for meta in [Meta::Ethernet].into_iter().chain(layers.contains(&Layer::Inner).then_some(Meta::Depth)) {
        let (more, up) = (b.meta(meta), b.op(Op::Shl, link, 8));
        link = b.op(Op::Or, up, more);
    }
    let [[hash, mark], [hash2, state]] = &mut words;
    for (var, from) in
        [(Var::Hash, hash), (Var::Mark, mark), (Var::Hash2, hash2), (Var::State, state), (Var::Classes, &mut link)]
    {
        b.set(var, *from);
    }
    // A program that branches on the packet facts. Its specialisations, in which the facts are constants, must take the
    // same branches.
    for (fact, values) in [(Fact::Protocol, [6, 17]), (Fact::Family, [4, 6])] {
        for value in values {
            let (is, end) = (b.fact(layers[0], fact), b.label());
            b.require(is, Cmp::Eq, value, end);
            b.push(Inst::Count { counter: value as u8, by: Operand::Imm(1) });
            b.place(end);
        }
    }
    b.pass();
    b.finish()
}

#[test]
fn common_case_facts_equal_parsed_facts() {
    let (v6, w6) = ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], [9; 8]);
    let mut frames = Vec::new();
    for frame in [
        Frame::udp4([10, 0, 0, 1], 5000, [10, 0, 0, 2], 53),
        Frame::tcp4([10, 0, 0, 1], 5000, [10, 0, 0, 2], 80),
        Frame::udp6(v6, 5000, w6, 53),
        Frame::tcp6(v6, 5000, w6, 80),
    ] {
        for payload in [0, 7, 60] {
            let mut bytes = vec![0; frame.header_len() + payload];
            frame.fill(&mut bytes);
            // Packets with padding after the IP packet, and truncated frames.
            bytes.extend([0; 2]);
            frames.extend((12..=bytes.len()).map(|len| bytes[..len].to_vec()));
            for at in 12..frame.header_len() {
                for value in 0..=255 {
                    let mut modified = bytes.clone();
                    modified[at] = value;
                    frames.push(modified);
                }
            }
        }
    }
    // UDP packets with tunnel ports and with adjacent port numbers, with and without a tunnel inside.
    let mut inner = [0; 100];
    let inner = Frame::tcp4([1; 4], 1, [2; 4], 2).fill(&mut inner);
    for port in wire::TUNNEL_PORTS.into_iter().flat_map(|p| [p - 1, p, p + 1]) {
        for (src, dst) in [(port, 9), (9, port)] {
            for payload in [&[][..], &inner[14..], &[&[8, 0, 0, 0, 0, 0, 7, 0], inner].concat()] {
                let mut bytes = vec![0; 300];
                let udp4 = Frame::udp4([10, 0, 0, 1], src, [10, 0, 0, 2], dst).payload(payload);
                frames.push(udp4.write(&mut bytes).expect("room").to_vec());
                frames.push(Frame::udp6(v6, src, w6, dst).payload(payload).write(&mut bytes).expect("room").to_vec());
            }
        }
    }
    for layers in [[Layer::Outer; 2], [Layer::Outer, Layer::Inner], [Layer::Inner; 2]] {
        let program = facts_in_record(layers);
        let mut both = Both::new(&program, 1);
        for more in [0, 4] {
            for link_type in [link::ETHERNET, link::RAW_IP] {
                let facts = |f: &[u8]| Facts { wire_len: f.len() as u32 + more, ..Facts::default() };
                let packets: Vec<_> = frames.iter().map(|f| (f.as_slice(), facts(f))).collect();
                both.run(&packets, link_type, &format!("{layers:?}, {more} bytes cut, link type {link_type}"));
            }
        }
        assert!([4, 6, 17].iter().all(|n| both.memory.counters[*n] > 10_000), "{:?}", both.memory.counters);
    }
}

#[test]
fn given_facts_take_precedence_over_packet_bytes() {
    let program = facts_in_record([Layer::Outer, Layer::Inner]);
    let mut bytes = [0; 60];
    let frame = Frame::udp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 2).fill(&mut bytes);
    let mut given = Facts { vlan: 7, depth: 3, ..Facts::default() };
    (given.outer.l3, given.outer.protocol, given.inner.l4) = (18, 132, 90);
    let evaluate = |executable: Executable| {
        let mut verdict = [Verdict::default()];
        executable.worker(0).expect("no maps").evaluate(&mut [Packet::with_facts(frame, given)], &mut verdict);
        verdict
    };
    let verdict = evaluate(native(&program));
    assert_eq!(verdict, evaluate(Executable::interpreted(program).expect("the program is valid")));
    assert_eq!((verdict[0].hash, verdict[0].hash2), (18 << 16, 90));
}

#[test]
fn tables_larger_than_the_caches_agree_with_the_interpreter() {
    let seed = testkit::seed("tables_larger_than_the_caches_agree_with_the_interpreter");
    let mut prng = Prng::new(seed);
    let mut b = Builder::default();
    for (name, expiry) in [("a", Expiry::Idle(30_000)), ("b", Expiry::Never)] {
        let (key, words, capacity) = (ir::Key::default(), 2, 12_000);
        b.tables().maps.push(Map { name: name.into(), key, words, capacity, expiry });
    }
    let (none, few) = (b.label(), b.label());
    b.fits(None, 26, 12, none);
    let (ends, ports) = (b.load(None, 26, 8), b.load(None, 34, 4));
    let (count, from) = (b.reg(), b.reg());
    b.push(Inst::MapAdd { to: count, map: 0, key: vec![ends, ports], by: Operand::Imm(1) });
    // The prefetch function takes 0 as the result of every map access, so it takes another path through this program
    // than the evaluation: with `count` 0 it skips the following code and does not announce the keys of map 1.
    b.require(count, Cmp::Ge, 2, none);
    b.push(Inst::MapGet { to: from, map: 1, key: vec![count, ends] });
    b.push(Inst::MapPut { map: 1, key: vec![count, ends], value: ports.into() });
    b.require(count, Cmp::Ge, 4, few);
    b.push(Inst::MapDelete { map: 0, key: vec![ends, ports] });
    b.place(few);
    b.set(Var::State, from);
    b.place(none);
    b.pass();
    let program = b.finish();
    let mut both = Both::new(&program, prng.next_u64());
    let (mut time, mut most) = (0, 0);
    for batch in 0..100 {
        let frames: Vec<_> = (0..prng.below(700))
            .map(|_| {
                let mut bytes = [0; 60];
                let n = prng.below(14_000) as u16;
                Frame::udp4([10, 0, 0, 1], n, [10, 0, (n >> 8) as u8, n as u8], 2).fill(&mut bytes);
                bytes
            })
            .collect();
        time += prng.below(1000);
        let packets: Vec<_> = frames.iter().map(|f| (&f[..], Facts { time, ..Facts::default() })).collect();
        both.run(&packets, link::ETHERNET, &format!("seed {seed}, batch {batch}"));
        most = most.max(both.memory.tables.iter().map(ir::interp::Table::len).sum::<usize>());
    }
    assert!(most * 64 > 1 << 20, "{most} entries fit into the caches");
    assert!(both.worker.refused().iter().any(|n| *n > 0), "no table was full at any time");
}

#[test]
fn a_matcher_agrees_with_the_interpreter_for_every_filter() {
    use netgrain_jit::Matcher;
    let seed = testkit::seed("a_matcher_agrees_with_the_interpreter_for_every_filter");
    let mut prng = Prng::new(seed);
    let mut frames: Vec<_> = (0..2000).map(|_| random::frame(&mut prng)).collect();
    frames.extend((0..200).map(|n| tunnel(&mut prng, n)));
    let inputs: Vec<_> = frames.iter().map(|f| netgrain_jit::Frame::new(f, 0)).collect();
    for text in [
        "",
        "tcp",
        "udp port 53",
        "vlan and ip",
        "ip6 and not tcp",
        "host 10.0.0.1 or net 192.168.1.0/31",
        "tcp[tcpflags] & (tcp-syn|tcp-ack) == 0",
        "len > 80 or ip[8:4] & 0xffff > ip[0]",
        "udp[4:2] / (ip[3] - 40) > 0",
        "ip and not geneve",
        "geneve and tcp port 80",
        "geneve 5 and tcp[tcp[12] >> 2] & 1 = 0",
    ] {
        let program =
            lang::packet_filter::program(&filter::LinkFilter::parse(text, 1).unwrap_or_else(|e| panic!("{text}: {e}")))
                .expect(text);
        let matcher = Matcher::of(&program).unwrap_or_else(|e| panic!("{text}: {e}"));
        let mut matched = vec![2; frames.len()];
        matcher.matches(&inputs, &mut matched);
        let mut interpreter = Interpreter::new(&program);
        for (frame, matched) in frames.iter().zip(&matched) {
            let facts = Facts::of(frame, 0, link::ETHERNET);
            let out = interpreter.run(frame, &facts, &mut ProgramState::of(&program, 0));
            assert_eq!(
                *matched == 1,
                out.kind != ir::VerdictKind::Drop,
                "seed {seed}, {text:?}\n{frame:02x?}\n{program}"
            );
        }
        let count = matched.iter().filter(|m| **m == 1).count();
        assert!(text.is_empty() || (count > 0 && count < frames.len()), "{text:?} matches {count} frames");
    }
}

/// A TCP frame in a Geneve tunnel: over IPv4 if `n` is even, over IPv6 if `n` is odd.
fn tunnel(prng: &mut Prng, n: u32) -> Vec<u8> {
    use wire::build::tunnel::geneve;
    let options = vec![0; 4 * prng.below(3) as usize];
    let body = [n as u8; 8];
    let web = Frame::tcp4([10, 0, 0, 1], 80 + (n % 2) as u16, [10, 0, 0, 2], 4000).payload(&body);
    let (mut inner, mut outer) = ([0; 100], [0; 250]);
    let inner = web.write(&mut inner).expect("room");
    let payload = [&geneve(wire::EtherType(0x6558), 5 + n % 3, &options)[..], inner].concat();
    let outer_frame = match n % 2 {
        0 => Frame::udp4([1; 4], 1, [2; 4], 6081),
        _ => Frame::udp6([1; 8], 1, [2; 8], 6081),
    };
    outer_frame.payload(&payload).write(&mut outer).expect("room").to_vec()
}

#[test]
fn programs_that_are_more_than_filters_are_refused_with_the_reason() {
    use netgrain_jit::{Matcher, Refusal};
    for (source, what) in [
        ("main = ip", "reads results of the header parser"),
        ("main = kernel", "has effects"),
        ("m = flow_map 0 key_vlan\nmain = incr_fstate m", "reads results of the header parser"),
        ("main = steer_rss", "reads facts from the capture source"),
    ] {
        let program = lang::compile(source).unwrap_or_else(|e| panic!("{source}: {e:?}")).program;
        let refused = Matcher::of(&program);
        assert!(matches!(refused, Err(Refusal::NoFilter(why)) if why == what), "{source}: {refused:?}");
    }
}

/// Runs the calling test again, in a new process with a restriction. `restriction` is a line of Python that this
/// process executes first; it exits with 77 if the kernel does not support the restriction. Returns the output of the
/// new process, or an empty text if the process cannot run the test. In the new process itself, returns `None`.
fn again_under(restriction: &str, name: &str) -> Option<String> {
    const INSIDE: &str = "NETGRAIN_RESTRICTED_TEST";
    if std::env::var_os(INSIDE).is_some() {
        return None;
    }
    let script = format!("import ctypes, os, resource, sys\n{restriction}\nos.execv(sys.argv[1], sys.argv[1:])");
    let this = std::env::current_exe().expect("this test");
    let Some(mut python) = testkit::tool(name, "python3") else { return Some(String::new()) };
    let test = testkit::test_name(module_path!(), name);
    let run = python.args(["-c", &script]).arg(this).args(["--exact", &test, "--nocapture"]).env(INSIDE, "1").output();
    let run = run.expect("python runs");
    if run.status.code() == Some(77) {
        testkit::skip(name, "this kernel does not support the restriction");
        return Some(String::new());
    }
    assert!(run.status.success() && String::from_utf8_lossy(&run.stdout).contains("1 passed"), "{run:?}");
    Some(String::from_utf8_lossy(&run.stdout).into_owned())
}

/// The restriction is that of a service with `MemoryDenyWriteExecute=yes`: no existing mapping can become executable.
#[test]
fn a_hardened_host_runs_machine_code() {
    let name = "a_hardened_host_runs_machine_code";
    // The Python line calls prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN), which applies to the calling process and its
    // children.
    let restriction = "if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0): sys.exit(77)";
    if let Some(output) = again_under(restriction, name) {
        return assert!(output.is_empty() || output.contains("natively: 42"), "{output}");
    }
    let executable = native(&lang::compile("main = ip >-> mark 42").expect("a program").program);
    let (mut bytes, mut verdict) = ([0; 60], [Verdict::default()]);
    let frame = Frame::udp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 2).fill(&mut bytes);
    let mut packets = [Packet::new(frame, link::ETHERNET, Facts::default())];
    executable.worker(0).expect("no maps").evaluate(&mut packets, &mut verdict);
    println!("natively: {}", verdict[0].mark);
}

#[test]
fn without_executable_memory_native_is_refused_and_interpreted_works() {
    let name = "without_executable_memory_native_is_refused_and_interpreted_works";
    let restriction = "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))";
    if let Some(output) = again_under(restriction, name) {
        return assert!(
            output.is_empty() || output.contains("refused: no executable memory (Too many open files"),
            "{output}"
        );
    }
    let open: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).take(1000).collect();
    let program = lang::compile("main = ip >-> steer_flow").expect("a program").program;
    let refused = Executable::native(program.clone(), Duration::default);
    drop(open);
    let refused = refused.err().filter(|e| matches!(e, netgrain_jit::Refusal::Memory(_)));
    assert!(Executable::interpreted(program).is_ok());
    println!("refused: {}", refused.expect("all file descriptors are in use"));
}

#[test]
fn transfer_state_takes_over_equal_maps_and_counters() {
    let program = |names: [(&str, u32); 2]| {
        let mut b = Builder::default();
        for (name, capacity) in names {
            let (key, expiry) = (ir::Key::default(), Expiry::Never);
            b.tables().maps.push(Map { name: name.into(), key, words: 1, capacity, expiry });
        }
        let n = b.meta(Meta::Sequence);
        for map in 0..2 {
            let to = b.reg();
            b.push(Inst::MapAdd { to, map, key: vec![n], by: Operand::Imm(1) });
        }
        b.push(Inst::Count { counter: 3, by: Operand::Imm(1) });
        b.finish()
    };
    let bytes = [0; 60];
    let mut packets = [Packet::new(&bytes, link::ETHERNET, Facts::default()); 3];
    let (old, new) = (program([("a", 9), ("b", 9)]), program([("b", 9), ("a", 8)]));
    for interpreted in [false, true] {
        let make = |p: &Program| if interpreted { Executable::interpreted(p.clone()).expect("fit") } else { native(p) };
        let mut before = make(&old).worker(1).expect("small");
        before.evaluate(&mut packets, &mut [Verdict::default(); 3]);
        let mut after = make(&new).worker(1).expect("small");
        after.transfer_state(&mut before);
        after.evaluate(&mut packets[..1], &mut [Verdict::default()]);
        assert_eq!(after.counters()[3], 4);
        let keys = |map| after.entries(map, 0).expect("a map").into_iter().map(|e| e.0[0]).collect::<Vec<_>>();
        assert_eq!(keys(0), [0, 1, 2, 3], "map b keeps its entries, and the sequence numbers continue");
        assert_eq!(keys(1), [3], "map a has another capacity");
        assert_eq!(after.entries(2, 0), None);
    }
}

#[test]
fn invalid_programs_are_refused_by_both_back_ends() {
    use ir::{Block, End, Reg};
    use netgrain_jit::Refusal;
    let code = vec![Inst::Load { to: Reg(0), base: None, offset: 0, width: 4 }];
    let program = Program { blocks: vec![Block { code, end: End::Pass }], registers: 1, ..Program::default() };
    let native = Executable::native(program.clone(), Duration::default);
    assert!(matches!(native, Err(Refusal::Unfit(_))), "{native:?}");
    assert!(matches!(Executable::interpreted(program), Err(Refusal::Unfit(_))));
}
