//! The interpreter and the machine code come to the same, on programs nobody wrote and packets nobody sends.

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

/// Both over the same packets, in batches; everything that can be seen is compared. How many were dropped.
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
        let (mut acts, mut traces) = (Vec::new(), Vec::new());
        let mut dropped = 0;
        for (i, (bytes, source)) in batch.iter().enumerate() {
            let wire_len = source.wire_len.max(bytes.len() as u32);
            let seen = Facts::of(bytes, wire_len, link_type);
            let facts = random::seen_from(&seen, self.sequence, source);
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
            acts.extend(out.actions.iter().map(|action| PacketAction { packet: i as u32, action: *action }));
            traces.extend(out.traces);
            dropped += usize::from(out.kind == ir::VerdictKind::Drop);
        }
        assert_eq!(self.worker.traces(), traces, "{context}\n{}", self.program);
        assert_eq!(self.worker.actions(), acts, "{context}\n{}", self.program);
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
    let (mut dropped, mut entries, mut branches, mut acts, mut followed) = (0, 0, 0, 0, 0);
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
            acts += both.worker.actions().len();
        }
        followed += both.memory.datagrams.counts().matched;
        entries += both.memory.tables.iter().map(|t| t.entries(time).len()).sum::<usize>();
    }
    eprintln!(
        "{rounds} programs, {branches} blocks, {dropped} drops, {entries} entries, {acts} acts, {followed} followed"
    );
    let all = dropped > 1000 && entries > 300 && acts > 1000 && followed > 300;
    assert!(rounds < 100 || all, "the programs do nothing");
}

#[test]
fn random_programs_over_real_packets() {
    let Some(traces) = testkit::traces("random_programs_over_real_packets") else { return };
    let seed = testkit::seed("random_programs_over_real_packets");
    let mut prng = Prng::new(seed);
    let mut files = Vec::new();
    let mut folders = vec![traces];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).expect("a folder").flatten().map(|e| e.path()) {
            match path.extension().and_then(|e| e.to_str()) {
                _ if path.is_dir() => folders.push(path),
                Some("pcap" | "pcapng" | "cap" | "trace") => files.push(path),
                _ => (),
            }
        }
    }
    files.sort();
    let mut judged = 0;
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
                judged += packets.len();
            }
        }
    }
    eprintln!("{judged} packets of {} files", files.len());
    assert!(judged > 1000, "only {judged} packets were judged");
}

/// Leaves all that the headers say in its record.
fn teller(layers: [Layer; 2]) -> Program {
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
    // Asked again as branches: what is known beforehand must lead the same way.
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
fn what_is_known_of_plain_packets_beforehand_is_what_would_be_found_in_them() {
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
            // A later end of the frame than of the packet, and cuts.
            bytes.extend([0; 2]);
            frames.extend((12..=bytes.len()).map(|len| bytes[..len].to_vec()));
            for at in 12..frame.header_len() {
                for value in 0..=255 {
                    let mut bent = bytes.clone();
                    bent[at] = value;
                    frames.push(bent);
                }
            }
        }
    }
    // Ports behind which a tunnel may be, with and without one.
    let mut inside = [0; 100];
    let inside = Frame::tcp4([1; 4], 1, [2; 4], 2).fill(&mut inside);
    for port in wire::TUNNEL_PORTS.into_iter().flat_map(|p| [p - 1, p, p + 1]) {
        for (src, dst) in [(port, 9), (9, port)] {
            for payload in [&[][..], &inside[14..], &[&[8, 0, 0, 0, 0, 0, 7, 0], inside].concat()] {
                let mut bytes = vec![0; 300];
                let udp4 = Frame::udp4([10, 0, 0, 1], src, [10, 0, 0, 2], dst).payload(payload);
                frames.push(udp4.write(&mut bytes).expect("room").to_vec());
                frames.push(Frame::udp6(v6, src, w6, dst).payload(payload).write(&mut bytes).expect("room").to_vec());
            }
        }
    }
    for layers in [[Layer::Outer; 2], [Layer::Outer, Layer::Inner], [Layer::Inner; 2]] {
        let program = teller(layers);
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
fn what_somebody_said_of_a_packet_counts_more_than_its_bytes() {
    let program = teller([Layer::Outer, Layer::Inner]);
    let mut bytes = [0; 60];
    let frame = Frame::udp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 2).fill(&mut bytes);
    let mut said = Facts { vlan: 7, depth: 3, ..Facts::default() };
    (said.outer.l3, said.outer.protocol, said.inner.l4) = (18, 132, 90);
    let tell = |judge: Executable| {
        let mut verdict = [Verdict::default()];
        judge.worker(0).expect("no maps").evaluate(&mut [Packet::seen(frame, said)], &mut verdict);
        verdict
    };
    let reported = tell(native(&program));
    assert_eq!(reported, tell(Executable::interpreted(program).expect("fit")));
    assert_eq!((reported[0].hash, reported[0].hash2), (18 << 16, 90));
}

#[test]
fn tables_that_outgrow_the_caches_hold_what_the_interpreter_holds() {
    let seed = testkit::seed("tables_that_outgrow_the_caches_hold_what_the_interpreter_holds");
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
    // The scout takes the count to be 0, so that it announces other keys than are asked for here, and misses the rest.
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
    assert!(most * 64 > 1 << 20, "{most} entries are in the caches");
    assert!(both.worker.refused().iter().any(|n| *n > 0), "no table was ever full");
}

#[test]
fn a_matcher_says_what_the_judge_says_of_every_filter() {
    use netgrain_jit::Matcher;
    let seed = testkit::seed("a_matcher_says_what_the_judge_says_of_every_filter");
    let mut prng = Prng::new(seed);
    let mut frames: Vec<_> = (0..2000).map(|_| random::frame(&mut prng)).collect();
    frames.extend((0..200).map(|n| tunnel(&mut prng, n)));
    let asked: Vec<_> = frames.iter().map(|f| netgrain_jit::Frame::new(f, 0)).collect();
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
        matcher.matches(&asked, &mut matched);
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
        let some = matched.iter().filter(|m| **m == 1).count();
        assert!(text.is_empty() || (some > 0 && some < frames.len()), "{text:?} matches {some}");
    }
}

/// A random frame in a tunnel of Geneve, with every other version of IP around it.
fn tunnel(prng: &mut Prng, n: u32) -> Vec<u8> {
    use wire::build::tunnel::geneve;
    let options = vec![0; 4 * prng.below(3) as usize];
    let body = [n as u8; 8];
    let web = Frame::tcp4([10, 0, 0, 1], 80 + (n % 2) as u16, [10, 0, 0, 2], 4000).payload(&body);
    let (mut inner, mut outer) = ([0; 100], [0; 250]);
    let inner = web.write(&mut inner).expect("room");
    let payload = [&geneve(wire::EtherType(0x6558), 5 + n % 3, &options)[..], inner].concat();
    let around = match n % 2 {
        0 => Frame::udp4([1; 4], 1, [2; 4], 6081),
        _ => Frame::udp6([1; 8], 1, [2; 8], 6081),
    };
    around.payload(&payload).write(&mut outer).expect("room").to_vec()
}

#[test]
fn what_is_more_than_a_filter_is_refused_by_name() {
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

/// Runs this test again, alone, in a process to which `law` was done before (a line of Python, which exits with 77
/// where it cannot), and answers what that process says; nothing where there can be none. `None` in that process
/// itself.
fn again_under(law: &str, name: &str) -> Option<String> {
    const INSIDE: &str = "NETGRAIN_UNDER_A_LAW";
    if std::env::var_os(INSIDE).is_some() {
        return None;
    }
    let script = format!("import ctypes, os, resource, sys\n{law}\nos.execv(sys.argv[1], sys.argv[1:])");
    let this = std::env::current_exe().expect("this test");
    let Some(mut python) = testkit::tool(name, "python3") else { return Some(String::new()) };
    let test = testkit::test_name(module_path!(), name);
    let run = python.args(["-c", &script]).arg(this).args(["--exact", &test, "--nocapture"]).env(INSIDE, "1").output();
    let run = run.expect("python runs");
    if run.status.code() == Some(77) {
        testkit::skip(name, "this kernel has no such law");
        return Some(String::new());
    }
    assert!(run.status.success() && String::from_utf8_lossy(&run.stdout).contains("1 passed"), "{run:?}");
    Some(String::from_utf8_lossy(&run.stdout).into_owned())
}

/// As in a service with `MemoryDenyWriteExecute=yes`: no memory is ever made executable that was not mapped so.
#[test]
fn a_hardened_host_runs_machine_code() {
    let name = "a_hardened_host_runs_machine_code";
    // prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN), for this process and all that come of it.
    let law = "if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0): sys.exit(77)";
    if let Some(said) = again_under(law, name) {
        return assert!(said.is_empty() || said.contains("natively: 42"), "{said}");
    }
    let judge = native(&lang::compile("main = ip >-> mark 42").expect("a program").program);
    let (mut bytes, mut verdict) = ([0; 60], [Verdict::default()]);
    let frame = Frame::udp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 2).fill(&mut bytes);
    judge.worker(0).expect("small").evaluate(&mut [Packet::new(frame, link::ETHERNET, Facts::default())], &mut verdict);
    println!("natively: {}", verdict[0].mark);
}

#[test]
fn a_host_that_gives_no_memory_for_code_refuses_and_interprets() {
    let name = "a_host_that_gives_no_memory_for_code_refuses_and_interprets";
    let law = "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))";
    if let Some(said) = again_under(law, name) {
        return assert!(
            said.is_empty() || said.contains("refused: no executable memory (Too many open files"),
            "{said}"
        );
    }
    let open: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).take(1000).collect();
    let program = lang::compile("main = ip >-> steer_flow").expect("a program").program;
    let refused = Executable::native(program.clone(), Duration::default);
    drop(open);
    let refused = refused.err().filter(|e| matches!(e, netgrain_jit::Refusal::Memory(_)));
    assert!(Executable::interpreted(program).is_ok());
    println!("refused: {}", refused.expect("there was no file descriptor left"));
}

#[test]
fn a_worker_takes_over_what_is_the_same() {
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
        assert_eq!(keys(0), [0, 1, 2, 3], "b keeps its entries, and the numbering goes on");
        assert_eq!(keys(1), [3], "a has another capacity");
        assert_eq!(after.entries(2, 0), None);
    }
}

#[test]
fn what_is_unfit_is_refused_by_both() {
    use ir::{Block, End, Reg};
    use netgrain_jit::Refusal;
    let code = vec![Inst::Load { to: Reg(0), base: None, offset: 0, width: 4 }];
    let program = Program { blocks: vec![Block { code, end: End::Pass }], registers: 1, ..Program::default() };
    let native = Executable::native(program.clone(), Duration::default);
    assert!(matches!(native, Err(Refusal::Unfit(_))), "{native:?}");
    assert!(matches!(Executable::interpreted(program), Err(Refusal::Unfit(_))));
}
