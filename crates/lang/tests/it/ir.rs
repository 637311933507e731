//! Tests of the intermediate representation: errors of the verifier, and results of the interpreter.

use base::{DuplicateClass, Prng};
use ir::interp::{Action, Interpreter, ProgramState};
use ir::{
    Block, BlockId, Builder, Cmp, Detection, End, Expiry, Fact, Inst, Layer, Log, Map, Meta, Op, Operand, Placement,
    Program, Reg, Set, Stage, Var, VerdictKind, VerifyError, placement,
};
use ir::{Facts, Key, Prefix};
use wire::build::Frame;
use wire::link;

fn one_block(registers: u16, code: Vec<Inst>, end: End) -> Program {
    Program { blocks: vec![Block { code, end }], registers, ..Program::default() }
}

fn udp() -> (Vec<u8>, Facts) {
    let mut bytes = vec![0; 60];
    Frame::udp4([10, 0, 0, 1], 5353, [10, 0, 0, 2], 53).fill(&mut bytes);
    let facts = Facts::of(&bytes, 60, link::ETHERNET);
    (bytes, facts)
}

#[test]
fn a_register_that_is_undefined_on_some_path_is_rejected() {
    let read = Inst::Copy { to: Reg(1), from: Reg(0) };
    let never = one_block(2, vec![read], End::Pass);
    assert_eq!(never.verify(), Err(VerifyError::Undefined { block: 0, reg: Reg(0) }));

    let mut b = Builder::default();
    let (one, both, r) = (b.label(), b.label(), b.reg());
    let len = b.meta(Meta::WireLen);
    b.branch(len, Cmp::Gt, 100, one, both);
    b.place(one);
    b.push(Inst::Const { to: r, value: 1 });
    b.place(both);
    b.set(Var::Mark, r);
    assert_eq!(b.finish().verify(), Err(VerifyError::Undefined { block: 2, reg: r }));
}

#[test]
fn a_load_requires_a_bounds_test_of_its_own_base() {
    let load = |base, offset| Inst::Load { to: Reg(0), base, offset, width: 4 };
    let bare = one_block(1, vec![load(None, 0)], End::Pass);
    assert_eq!(bare.verify(), Err(VerifyError::Unguarded { block: 0, base: None, need: 4, have: 0 }));

    let verified = |base: bool, at: bool, offset| {
        let mut b = Builder::default();
        let (l3, no) = (b.fact(Layer::Outer, Fact::L3), b.label());
        b.fits(base.then_some(l3), 12, 8, no);
        b.load(at.then_some(l3), offset, 4);
        b.place(no);
        b.finish().verify()
    };
    assert_eq!(verified(false, false, 16), Ok(()));
    assert_eq!(verified(true, true, 16), Ok(()));
    assert!(matches!(verified(false, false, 17), Err(VerifyError::Unguarded { need: 21, have: 20, .. })));
    assert!(matches!(verified(false, true, 0), Err(VerifyError::Unguarded { .. })));
}

#[test]
fn writing_the_base_invalidates_its_bounds_test() {
    let mut b = Builder::default();
    let (l3, no) = (b.fact(Layer::Outer, Fact::L3), b.label());
    b.fits(Some(l3), 0, 20, no);
    b.push(Inst::Op { to: l3, op: Op::Add, a: l3, b: Operand::Imm(20) });
    b.load(Some(l3), 0, 1);
    b.place(no);
    assert!(matches!(b.finish().verify(), Err(VerifyError::Unguarded { have: 0, .. })));
}

#[test]
fn jumps_that_are_not_forward_are_rejected() {
    for to in [0, 1, 7] {
        let p = one_block(0, vec![], End::Jump(BlockId(to)));
        assert_eq!(p.verify(), Err(VerifyError::Jump { block: 0, to }));
    }
    assert_eq!(Program::default().verify(), Err(VerifyError::Empty));
}

#[test]
fn invalid_table_references_and_exceeded_limits_are_rejected() {
    let zero = Inst::Const { to: Reg(0), value: 0 };
    let missing = |inst| one_block(2, vec![zero.clone(), inst], End::Pass).verify();
    assert!(matches!(
        missing(Inst::Forward { interface: 0 }),
        Err(VerifyError::Missing { table: "egress interfaces", .. })
    ));
    assert!(matches!(missing(Inst::Log(Log::Message(3))), Err(VerifyError::Missing { index: 3, .. })));
    let get = Inst::MapGet { to: Reg(1), map: 0, key: vec![Reg(0)] };
    assert!(matches!(missing(get.clone()), Err(VerifyError::Missing { table: "maps", .. })));
    let count = Inst::Count { counter: 64, by: Operand::Imm(1) };
    assert!(matches!(missing(count), Err(VerifyError::Missing { table: "counters", .. })));
    let mut p = one_block(2, vec![zero.clone(), get], End::Pass);
    p.maps.push(map(2, 10, Expiry::Never));
    assert_eq!(p.verify(), Err(VerifyError::KeyWords { block: 0, map: 0, have: 1, need: 2 }));
    p.maps[0].capacity = 0;
    assert!(matches!(p.verify(), Err(VerifyError::Map { map: 0, .. })));
    let mut p = one_block(0, vec![Inst::Forward { interface: 0 }; 17], End::Pass);
    p.egress_interfaces.push("eth1".into());
    assert!(matches!(p.verify(), Err(VerifyError::TooMany { have: 17, .. })));
    let mut p = one_block(0, vec![], End::Pass);
    p.sets.push(Set::Ranges(vec![(5, 9), (9, 12)]));
    assert_eq!(p.verify(), Err(VerifyError::Set { set: 0 }));
}

#[test]
fn registers_do_not_cross_stages_and_stages_are_entered_at_their_start() {
    let mut b = Builder::default();
    b.stage("one");
    let r = b.constant(1);
    b.stage("two");
    b.set(Var::Mark, r);
    assert_eq!(b.finish().verify(), Err(VerifyError::Undefined { block: 1, reg: r }));

    let blocks = vec![
        Block { code: vec![], end: End::Jump(BlockId(2)) },
        Block { code: vec![], end: End::Jump(BlockId(2)) },
        Block { code: vec![], end: End::Pass },
    ];
    let stage = |first| Stage { text: String::new(), first: BlockId(first) };
    let p = Program { blocks, stages: vec![stage(0), stage(1)], ..Program::default() };
    assert_eq!(p.verify(), Err(VerifyError::Crossing { block: 0, to: 2 }));
}

#[test]
fn effects_before_a_drop_happen_and_pass_selects_the_default_class() {
    let (bytes, facts) = udp();
    let mut p = one_block(0, vec![Inst::Forward { interface: 0 }, Inst::Kernel], End::Drop);
    p.egress_interfaces.push("eth1".into());
    let mut memory = ProgramState::of(&p, 0);
    let out = Interpreter::new(&p).run(&bytes, &facts, &mut memory);
    assert_eq!((out.kind, out.kernel, out.actions), (VerdictKind::Drop, true, vec![Action::Forward(0)]));
    let out = Interpreter::new(&one_block(0, vec![], End::Pass)).run(&bytes, &facts, &mut memory);
    assert_eq!((out.kind, out.class()), (VerdictKind::Copy, Some(0)));
}

#[test]
fn arithmetic_edge_cases_do_not_trap() {
    for (op, a, b, is) in [
        (Op::Div, 7, 0, 0),
        (Op::Rem, 7, 0, 7),
        (Op::Sub, 0, 1, u64::MAX),
        (Op::Shl, 1, 64, 1),
        (Op::Shr, 8, 65, 4),
        (Op::Mul, u64::MAX, 2, u64::MAX - 1),
    ] {
        assert_eq!(op.apply(a, b), is, "{a} {op} {b}");
    }
}

#[test]
fn sets_contain_addresses_of_both_families() {
    let prefixes = ["10.0.0.0/8", "10.1.0.0/16", "11.0.0.0/8", "2001:db8::/32"].map(|p| Prefix::parse(p).unwrap());
    let set = Set::of_prefixes(prefixes);
    assert_eq!(set, Set::of_prefixes([prefixes[3], prefixes[2], prefixes[1], prefixes[0]]));
    assert!(matches!(&set, Set::Ranges(r) if r.len() == 2), "adjacent prefixes are one range: {set:?}");
    let v4 = |a: [u8; 4]| ir::mapped(a.into());
    assert!(set.contains(v4([10, 255, 255, 255])) && set.contains(v4([11, 0, 0, 0])));
    assert!(!set.contains(v4([9, 255, 255, 255])) && !set.contains(v4([12, 0, 0, 0])));
    assert!(set.contains(ir::wide("2001:db8::1".parse().unwrap())));
    assert!(!Set::Host.contains(v4([10, 0, 0, 1])));
}

#[test]
fn a_split_program_has_the_results_of_the_whole_program() {
    let seed = testkit::seed("a_split_program_has_the_results_of_the_whole_program");
    let mut prng = Prng::new(seed);
    let (bytes, mut facts) = udp();
    for round in 0..500 {
        let p = random(&mut prng);
        assert_eq!(p.verify(), Ok(()), "seed {seed}, round {round}\n{p}");
        let mut whole = ProgramState::of(&p, 1);
        let mut parts = whole.clone();
        let cut = prng.below(p.stages.len() as u64 + 1) as usize;
        let (head, tail) = p.split(cut);
        assert_eq!((head.verify(), tail.verify()), (Ok(()), Ok(())), "seed {seed}, round {round}\n{head}\n{tail}");
        for packet in 0..8 {
            facts.sequence = packet;
            let expected = Interpreter::new(&p).run(&bytes, &facts, &mut whole);
            let mut out = Interpreter::new(&head).run(&bytes, &facts, &mut parts);
            if out.kind != VerdictKind::Drop {
                out = Interpreter::new(&tail).run_from(out, &bytes, &facts, &mut parts);
            }
            assert_eq!(out, expected, "seed {seed}, round {round}, cut at {cut}\n{p}");
        }
        assert_eq!(whole.counters, parts.counters);
        assert_eq!(whole.tables[0].entries(0), parts.tables[0].entries(0));
    }
}

/// Generates a program with one to four stages. Each stage computes with the packet's sequence number and has an effect
/// or a drop.
fn random(prng: &mut Prng) -> Program {
    let mut b = Builder::default();
    b.tables().maps.push(map(1, 4, Expiry::Never));
    let interface = b.egress_interface("eth1");
    for _ in 0..1 + prng.below(4) {
        b.stage("stage");
        let (n, after) = (b.meta(Meta::Sequence), b.label());
        let r = b.op(Op::And, n, prng.below(8));
        b.require(r, Cmp::Gt, prng.below(4), after);
        match prng.below(5) {
            0 => b.push(Inst::Forward { interface }),
            1 => b.push(Inst::MapPut { map: 0, key: vec![r], value: n.into() }),
            2 => b.push(Inst::Count { counter: 1, by: n.into() }),
            3 => b.set(Var::Mark, r),
            _ => b.discard(),
        }
        b.place(after);
    }
    b.finish()
}

#[test]
fn a_forward_that_copies_the_packet_runs_in_user_space() {
    let stages = |last: End| {
        let mut b = Builder::default();
        let interface = b.egress_interface("eth1");
        b.stage("mark");
        b.set(Var::Mark, 1);
        b.stage("forward");
        b.push(Inst::Forward { interface });
        if last == End::Drop {
            b.discard();
        }
        placement(&b.finish())
    };
    assert!(stages(End::Drop).iter().all(Placement::is_kernel));
    let copied = stages(End::Pass);
    assert!(
        matches!(&copied[..], [Placement::Kernel { .. }, Placement::User(why)] if why.to_string().contains("copies")),
        "{copied:?}"
    );
}

#[test]
fn a_table_is_bounded_and_its_idle_entries_expire() {
    let mut table = ir::interp::Table::new(&map(1, 2, Expiry::Idle(10)));
    table.put(&[1], 7, 100);
    assert_eq!(table.add(&[2], 1, 105), 1);
    assert_eq!(table.add(&[3], 1, 106), 1);
    assert_eq!((table.refused(), table.has(&[3], 106)), (1, false));
    assert_eq!(table.get(&[1], 110), 7, "the read touches the entry");
    assert_eq!(table.get(&[2], 116), 0, "11 ns after the last touch");
    table.put(&[3], 1, 116);
    assert_eq!(table.entries(116), [(vec![1], 7), (vec![3], 1)]);
    let mut window = ir::interp::Table::new(&map(1, 2, Expiry::Lifetime(10)));
    assert_eq!(
        [100, 105, 110, 111].map(|now| window.add(&[1], 1, now)),
        [1, 2, 3, 1],
        "a touch does not extend a lifetime"
    );
}

fn map(words: u8, capacity: u32, expiry: Expiry) -> Map {
    Map { name: "m".into(), key: Key::default(), words, capacity, expiry }
}

#[test]
fn a_detector_has_a_number_and_a_valid_window() {
    let with = |windows: &[u64], detector| {
        let detectors = windows.iter().map(|window| Detection { window: *window }).collect();
        Program { detectors, ..one_block(1, vec![Inst::Duplicate { to: Reg(0), detector }], End::Pass) }.verify()
    };
    assert_eq!(with(&[1], 0), Ok(()));
    assert_eq!(with(&[1], 1), Err(VerifyError::Missing { block: 0, table: "detectors", index: 1 }));
    assert_eq!(with(&[5, 0], 0), Err(VerifyError::Window { detector: 1 }));
    assert_eq!(with(&[60_000_000_001], 0), Err(VerifyError::Window { detector: 0 }));
    assert!(matches!(with(&[1; 9], 0), Err(VerifyError::TooMany { what: "detectors", have: 9, most: 8 })));
}

/// The packets that `program` passes, of packets with these identifications at these times in nanoseconds.
fn passed(program: &str, packets: &[(u16, u64)]) -> Vec<bool> {
    let program = netgrain_lang::compile(program).unwrap_or_else(|e| panic!("{}", e.show(program, "test"))).program;
    let mut memory = ProgramState::of(&program, 7);
    let mut interpreter = Interpreter::new(&program);
    let pass = |(id, time): &(u16, u64)| {
        let mut bytes = [0; 60];
        // Packets that differ in the identification alone would show a sender that repeats itself.
        Frame::udp4([10, 0, 0, 1], 5353 + *id, [10, 0, 0, 2], 53).fragment(*id, 0, false).fill(&mut bytes);
        let facts = Facts { time: *time, ..Facts::of(&bytes, 60, link::ETHERNET) };
        interpreter.run(&bytes, &facts, &mut memory).kind != VerdictKind::Drop
    };
    packets.iter().map(pass).collect()
}

#[test]
fn unique_drops_the_copies_within_its_window_only() {
    const MS: u64 = 1_000_000;
    let packets = [(1, 0), (2, 1), (1, MS), (1, 2 * MS + 1), (0, 3 * MS), (0, 3 * MS)];
    // Packets with the identification 0 can be repeats of the sender.
    assert_eq!(passed("main = unique 1", &packets), [true, true, false, true, true, true]);
    // Each call has a table of its own: the packet is no copy of itself.
    assert_eq!(passed("main = unique 1 >-> unique 1", &packets), [true, true, false, true, true, true]);
    assert_eq!(passed("main = inv (unique 1)", &packets), [false, false, true, false, false, false]);
}

#[test]
fn is_duplicate_tests_the_class_with_which_the_engine_marked_the_packet() {
    let (bytes, facts) = udp();
    let holds = |class: &str, marked: u8| {
        let program =
            netgrain_lang::compile(&format!("main = filter (is_duplicate \"{class}\")")).expect("a program").program;
        let mut memory = ProgramState::of(&program, 7);
        let facts = Facts { duplicate: marked, ..facts };
        Interpreter::new(&program).run(&bytes, &facts, &mut memory).kind != VerdictKind::Drop
    };
    for class in DuplicateClass::ALL {
        for marked in 0..=DuplicateClass::COUNT as u8 {
            assert_eq!(holds(class.name(), marked), marked == class as u8);
            assert_eq!(holds("any", marked), marked != 0);
        }
    }
    for (program, text) in [
        ("main = filter (is_duplicate \"natt\")", "write any, switching, routing, nat, proxying, fragment"),
        ("main = unique 0", "0 milliseconds"),
        ("main = unique 60001", "the range is 0 to 60000"),
    ] {
        let error = netgrain_lang::compile(program).expect_err("an error").show(program, "test");
        assert!(error.contains(text), "{error}");
    }
}

#[test]
fn the_detection_of_duplicates_runs_in_user_space() {
    for stage in ["unique 100", "filter (is_duplicate \"any\")"] {
        let program = netgrain_lang::compile(&format!("main = ip >-> {stage} >-> tcp")).expect("a program").program;
        let placed = placement(&program);
        assert!(
            matches!(&placed[..], [Placement::Kernel { .. }, Placement::User(_), Placement::User(_)]),
            "{stage}: {placed:?}"
        );
    }
}
