//! Random programs: the intermediate form against the terms evaluated directly, and the laws that composition keeps.
//!
//! A program that fails is made smaller as long as it fails, and shown then.

mod common;

use base::Prng;
use common::Packet;
use common::direct::{Direct, Fate};
use netgrain_lang::interp::{Action, Interpreter, Memory};
use netgrain_lang::ir::{Cmp, Kind, Program};
use netgrain_lang::lower::lower;
use netgrain_lang::term::{Act, End, HeaderField, Look, Pred, Prop, Steer};
use netgrain_lang::{Facts, Prefix, compile};
use wire::build::Frame;
use wire::{EtherType, link};

fn below(prng: &mut Prng, n: u64) -> u64 {
    prng.below(n)
}

fn any<T: Clone>(prng: &mut Prng, of: &[T]) -> T {
    of[below(prng, of.len() as u64) as usize].clone()
}

fn act(prng: &mut Prng, depth: u32) -> Act {
    if depth == 0 || below(prng, 4) == 0 {
        return match below(prng, 12) {
            0 => Act::Unit,
            1 => Act::Drop,
            2 | 3 => Act::Filter(pred(prng, 2)),
            4 => Act::Broadcast,
            5 => Act::Classify(below(prng, 64) as u8),
            6 => Act::Steer(Steer::To(below(prng, 9) as u32)),
            7 => Act::Forward(any(prng, &["eth1", "eth2"]).to_owned()),
            8 => Act::Kernel,
            9 => Act::Mark(below(prng, 4) as u32),
            10 => Act::State(below(prng, 4) as u32),
            _ => Act::Count(below(prng, 4) as u8, below(prng, 9)),
        };
    }
    let inner = |prng: &mut Prng| act(prng, depth - 1);
    match below(prng, 6) {
        0 => Act::If(pred(prng, 2), inner(prng).into(), inner(prng).into()),
        1 => Act::Case(prop(prng), vec![(below(prng, 4), inner(prng)), (64, inner(prng))], inner(prng).into()),
        2 => Act::Inv(inner(prng).into()),
        3 => Act::Par(vec![inner(prng), inner(prng), inner(prng)]),
        4 => Act::Within(any(prng, &[Look::Src, Look::Dst]), inner(prng).into()),
        _ => {
            let steps = (0..2 + below(prng, 3)).map(|_| ("step".to_owned(), inner(prng)));
            Act::Seq(steps.collect())
        }
    }
}

fn prop(prng: &mut Prng) -> Prop {
    any(
        prng,
        &[
            Prop::Length,
            Prop::Mark,
            Prop::State,
            Prop::Header(HeaderField::IpTtl),
            Prop::Header(HeaderField::IpTos),
            Prop::Bytes(20, 2),
            Prop::Bytes(59, 8),
        ],
    )
}

fn pred(prng: &mut Prng, depth: u32) -> Pred {
    if depth > 0 && below(prng, 2) == 0 {
        let (p, q) = (Box::new(pred(prng, depth - 1)), Box::new(pred(prng, depth - 1)));
        return match below(prng, 4) {
            0 => Pred::Not(p),
            1 => Pred::And(p, q),
            2 => Pred::Or(p, q),
            _ => Pred::Xor(p, q),
        };
    }
    let end = any(prng, &[End::Any, End::Src, End::Dst]);
    let nets: Vec<Prefix> = ["10.0.0.0/9", "10.0.0.2/32", "::/1", "0.0.0.0/0", "::ffff:0:0/95"]
        .iter()
        .filter(|_| prng.below(2) == 0)
        .map(|n| Prefix::parse(n).unwrap())
        .collect();
    match below(prng, 8) {
        0 => Pred::Always(below(prng, 2) == 0),
        1 => Pred::Ip(any(prng, &[None, Some(4), Some(6)])),
        2 => Pred::Transport(None, any::<&'static [u8]>(prng, &[&[6], &[17], &[1, 58], &[6, 17]]), any(prng, &[8, 20])),
        3 => Pred::Port(end, 2, any(prng, &[2, 6000])),
        4 => Pred::Address(end, nets),
        5 => Pred::Fragment(below(prng, 2) == 0, below(prng, 2) == 0),
        6 => Pred::Vlan(any(prng, &[vec![], vec![5], vec![7, 9]])),
        _ => {
            let cmps = [Cmp::Eq, Cmp::Ne, Cmp::Lt, Cmp::Le, Cmp::Gt, Cmp::Ge, Cmp::AnyBit, Cmp::AllBits];
            Pred::Compare(prop(prng), any(prng, &cmps), below(prng, 70))
        }
    }
}

/// Frames of every shape, bent and cut.
fn packet(prng: &mut Prng) -> Packet {
    let (a, b) = (any(prng, &[[10, 0, 0, 1], [10, 200, 0, 1], [192, 0, 2, 1]]), [10, 0, 0, 2]);
    let (sport, dport) = (below(prng, 9000) as u16, any(prng, &[2, 53, 6000]));
    let mut frame = match below(prng, 4) {
        0 => Frame::udp4(a, sport, b, dport),
        1 => Frame::tcp4(b, dport, a, sport),
        2 => Frame::udp6([1; 8], sport, [2; 8], dport),
        _ => Frame::tcp6([0xfe80, 0, 0, 0, 0, 0, 0, 1], dport, [2; 8], sport),
    };
    if below(prng, 3) == 0 {
        frame = frame.tag(EtherType::VLAN, any(prng, &[5, 7, 8]));
    }
    let mut bytes = vec![0; frame.header_len() + below(prng, 20) as usize];
    frame.fill(&mut bytes);
    for _ in 0..below(prng, 4) {
        let at = 12 + below(prng, bytes.len() as u64 - 12) as usize;
        bytes[at] = prng.next_u64() as u8;
    }
    let wire_len = bytes.len() as u32;
    if below(prng, 4) == 0 {
        bytes.truncate(below(prng, wire_len.into()) as usize);
    }
    Packet { bytes, wire_len }
}

fn run(program: &Program, p: &Packet) -> Fate {
    let mut memory = Memory::of(program, 1);
    let facts = Facts::of(&p.bytes, p.wire_len, link::ETHERNET);
    let out = Interpreter::new(program).run(&p.bytes, &facts, &mut memory);
    let device = |a: &Action| match a {
        Action::Forward(d) => program.devices[usize::from(*d)].clone(),
        Action::Log(log) => unreachable!("{log:?} is not made"),
    };
    Fate {
        kind: out.kind,
        classes: out.classes,
        pick: out.hash,
        mark: out.mark,
        state: out.state,
        kernel: out.kernel,
        forwards: out.actions.iter().map(device).collect(),
        counters: memory.counters.iter().enumerate().filter(|c| *c.1 > 0).map(|(i, n)| (i as u8, *n)).collect(),
    }
}

fn directly(act: &Act, p: &Packet) -> Fate {
    let mut direct = Direct::new(&p.bytes, p.wire_len);
    if !direct.act(act) {
        direct.fate.kind = Kind::Drop;
    }
    let mut counters = [0_u64; 4];
    direct.fate.counters.iter().for_each(|(c, by)| counters[usize::from(*c)] += by);
    direct.fate.counters =
        (0..4).filter(|c| counters[usize::from(*c)] > 0).map(|c| (c, counters[usize::from(c)])).collect();
    direct.fate
}

/// The parts of an act that could stand in its place.
fn smaller(act: &Act) -> Vec<Act> {
    let rebuilt =
        |inner: &Act, f: &dyn Fn(Box<Act>) -> Act| smaller(inner).into_iter().map(|i| f(i.into())).collect::<Vec<_>>();
    match act {
        Act::If(p, a, b) => {
            let mut all = vec![(**a).clone(), (**b).clone(), Act::Filter(p.clone())];
            all.extend(rebuilt(a, &|i| Act::If(p.clone(), i, b.clone())));
            all.extend(rebuilt(b, &|i| Act::If(p.clone(), a.clone(), i)));
            all
        }
        Act::Case(_, arms, other) => arms.iter().map(|a| a.1.clone()).chain([(**other).clone()]).collect(),
        Act::Inv(inner) => [vec![(**inner).clone()], rebuilt(inner, &Act::Inv)].concat(),
        Act::Within(look, inner) => [vec![(**inner).clone()], rebuilt(inner, &|i| Act::Within(*look, i))].concat(),
        Act::Par(acts) => {
            let without = (0..acts.len()).filter(|_| acts.len() > 1);
            let fewer = without.map(|i| Act::Par([&acts[..i], &acts[i + 1..]].concat()));
            acts.iter().cloned().chain(fewer).collect()
        }
        Act::Seq(steps) => {
            let without = (0..steps.len()).filter(|_| steps.len() > 1);
            let fewer = without.map(|i| Act::Seq([&steps[..i], &steps[i + 1..]].concat()));
            steps.iter().map(|s| s.1.clone()).chain(fewer).collect()
        }
        _ => vec![],
    }
}

/// The smallest act found that still fails.
fn shrunk(mut failing: Act, fails: &dyn Fn(&Act) -> bool) -> Act {
    while let Some(next) = smaller(&failing).into_iter().find(fails) {
        failing = next;
    }
    failing
}

#[test]
fn the_intermediate_form_means_what_the_term_means() {
    let seed = testkit::seed("the_intermediate_form_means_what_the_term_means");
    let mut prng = Prng::new(seed);
    let mut fates = [0; 5];
    for round in 0..3000 {
        let term = act(&mut prng, 4);
        let packets: Vec<_> = (0..12).map(|_| packet(&mut prng)).collect();
        // More forwards on one way than there may be are refused, not run.
        let differs = |term: &Act| {
            let program = lower(term);
            match program.verify() {
                Err(e) => !e.to_string().contains("forwards"),
                Ok(()) => packets.iter().any(|p| run(&program, p) != directly(term, p)),
            }
        };
        if differs(&term) {
            let least = shrunk(term, &differs);
            let program = lower(&least);
            let p = packets.iter().find(|p| run(&program, p) != directly(&least, p));
            let both = p.map(|p| (run(&program, p), directly(&least, p), &p.bytes));
            panic!("seed {seed}, round {round}: {least:?}\n{program}{:?}\n{both:02x?}", program.verify());
        }
        packets.iter().for_each(|p| fates[directly(&term, p).kind as usize] += 1);
    }
    assert!([0, 1, 4].iter().all(|k| fates[*k] > 1000), "every fate is met: {fates:?}");
}

#[test]
fn composition_keeps_the_laws_of_a_monad() {
    let seed = testkit::seed("composition_keeps_the_laws_of_a_monad");
    let mut prng = Prng::new(seed);
    let then = |f: &Act, g: &Act| f.clone().then("f", g.clone(), "g");
    let nested = |f: &Act, g: &Act| Act::Seq(vec![(String::new(), f.clone()), (String::new(), g.clone())]);
    let mut held = std::collections::BTreeMap::<&str, usize>::new();
    for round in 0..1000 {
        let [f, g, h] = [(); 3].map(|()| act(&mut prng, 2));
        let p = pred(&mut prng, 2);
        let (p_box, q) = (Box::new(p.clone()), Box::new(pred(&mut prng, 2)));
        let neither = Pred::Not(Pred::Or(p_box.clone(), q.clone()).into());
        let de_morgan = Pred::And(Pred::Not(p_box).into(), Pred::Not(q).into());
        let laws = [
            ("left unit", then(&Act::Unit, &f), f.clone()),
            ("right unit", then(&f, &Act::Unit), f.clone()),
            ("associativity", nested(&nested(&f, &g), &h), nested(&f, &nested(&g, &h))),
            ("flattening", then(&then(&f, &g), &h), nested(&f, &nested(&g, &h))),
            (
                "when",
                Act::If(p.clone(), f.clone().into(), Act::Unit.into()),
                Act::If(Pred::Not(p.into()), Act::Unit.into(), f.clone().into()),
            ),
            ("zero", then(&Act::Drop, &f), Act::Drop),
            ("De Morgan", Act::Filter(neither), Act::Filter(de_morgan)),
        ];
        let packets: Vec<_> = (0..6).map(|_| packet(&mut prng)).collect();
        for (law, left, right) in laws {
            let (left, right) = (lower(&left), lower(&right));
            // Random programs may be too long for the form; those that are left must be many.
            if left.verify().is_err() || right.verify().is_err() {
                continue;
            }
            *held.entry(law).or_default() += 1;
            for p in &packets {
                assert_eq!(run(&left, p), run(&right, p), "{law}, seed {seed}, round {round}\n{left}\n{right}");
            }
        }
    }
    assert!(held.len() == 7 && held.values().all(|n| *n >= 900), "seed {seed}: {held:?}");
}

#[test]
fn malformed_sources_are_refused_and_never_panic() {
    const WORDS: [&str; 44] = [
        "main",
        "=",
        "=",
        ">->",
        "do",
        "if",
        "then",
        "else",
        "case",
        "of",
        "->",
        "ip",
        "is_tcp",
        "when",
        "forward",
        "\"eth1\"",
        "steer_flow",
        "(",
        ")",
        "[",
        "]",
        ",",
        ";",
        "{",
        "}",
        "\n",
        "\n  ",
        ".==",
        ".&&.",
        "ip_ttl",
        "9",
        "-1",
        "10.0.0.0/8",
        "$",
        "flow_map",
        "key_5tuple",
        "<>",
        "\\",
        "x",
        "par",
        "~>",
        "{-",
        "--",
        "::",
    ];
    let seed = testkit::seed("malformed_sources_are_refused_and_never_panic");
    let mut prng = Prng::new(seed);
    let mut programs = 0;
    for _ in 0..30_000 {
        let mut text = any(&mut prng, &["main = ", "main = ip >-> ", "f x = x >-> x\nmain = f ", ""]).to_owned();
        for _ in 0..below(&mut prng, 14) {
            text.push_str(any(&mut prng, &WORDS));
            text.push_str(any(&mut prng, &[" ", " ", " ", "", "é"]));
        }
        match compile(&text) {
            Ok(_) => programs += 1,
            Err(e) => assert!(e.show(&text, "x").starts_with("error: "), "{text}"),
        }
        let _ = netgrain_lang::syntax::format(&text);
    }
    assert!(programs > 40, "only {programs} were programs");
}

#[test]
fn programs_that_grow_without_end_are_refused_in_time() {
    let doubling: String = (0..60).map(|i| format!("f{} = f{i} >-> f{i}\n", i + 1)).collect();
    let deep = format!("main = {}unit{}", "inv (".repeat(5000), ")".repeat(5000));
    let chain = format!("main = {}unit", "inv $ ".repeat(5000));
    let long = format!("main = unit{}", " >-> unit".repeat(5000));
    let wraps: String = (0..99).map(|i| format!("w{} x = w{i} (inv x)\n", i + 1)).collect();
    let types: String = (1..40).map(|i| format!("x{} y = x{i} (x{i} y)\n", i + 1)).collect();
    let lists: String = (0..18).map(|i| format!("l{} x = l{i} (l{i} x)\n", i + 1)).collect();
    let values =
        format!("twice x = [x, x]\nignore x = ip\nmain = ignore ({}0{})", "(twice ".repeat(16), ")".repeat(16));
    let arms = format!("a x = [0 ~> x]\nmain = ip\nb = {}unit", "a $ ".repeat(300));
    let ports = format!("main = bpf \"port 1{}\"", " or 2".repeat(100_000));
    let sum = format!("main = bpf \"len{} > 3\"", " + len".repeat(100_000));
    let filters = format!("main = {}unit", "bpf \"port 1 or 2 or 3 or 4 or 5 or 6 or 7 or 8\" >-> ".repeat(900));
    for text in [
        format!("f0 = unit\n{doubling}main = f60"),
        deep,
        chain,
        format!("w0 x = x\n{wraps}main = w99 (w99 (w99 (w99 (w99 unit))))"),
        format!("pair x y f = f x y\nx1 y = pair y y\n{types}main = ip"),
        format!("l0 x = [x]\n{lists}main = ip"),
        values,
        arms,
        ports,
        sum,
        filters,
    ] {
        let error = compile(&text).expect_err(&text[..60.min(text.len())]);
        let bounded = ["grows", "inside", "grow too deep", "more than"].iter().any(|word| error.what.contains(word));
        assert!(bounded, "{error:?}");
    }
    assert_eq!(compile(&long).map(|c| c.program.stages.len()).map_err(|e| e.what), Ok(5001));
}

#[test]
fn what_is_given_to_itself_has_no_type() {
    for text in ["f x = x x\nmain = f unit", "f x = x x\nmain = ip", "main = (\\x -> x x) (\\x -> x x)"] {
        let error = compile(text).expect_err(text);
        assert!(error.what.contains("given to itself"), "{text}: {error:?}");
    }
}

/// Nearly all of them are ill-typed: bindings with parameters that are applied to one another, to lists and to themselves.
#[test]
fn random_functions_of_functions_are_judged_and_never_panic() {
    let seed = testkit::seed("random_functions_of_functions_are_judged_and_never_panic");
    let mut prng = Prng::new(seed);
    let mut programs = 0;
    for _ in 0..20_000 {
        let mut text = String::new();
        let bindings = 1 + below(&mut prng, 5);
        for i in 0..bindings {
            let params = below(&mut prng, 3);
            text.push_str(&format!("f{i}{} = ", &" x y"[..2 * params as usize]));
            applied(&mut prng, &mut text, i, params, 3);
            text.push('\n');
        }
        text.push_str("main = ");
        applied(&mut prng, &mut text, bindings, 0, 3);
        match compile(&text) {
            Ok(_) => programs += 1,
            Err(e) => assert!(e.show(&text, "x").starts_with("error: "), "{text}"),
        }
    }
    assert!(programs > 200, "only {programs} were programs");
}

/// Writes an expression of the first bindings and parameters.
fn applied(prng: &mut Prng, text: &mut String, bindings: u64, params: u64, level: u32) {
    const WORDS: [&str; 8] = ["unit", "ip", "is_tcp", "steer_flow", "1", "when", "inv", "ip_ttl"];
    match below(prng, if level == 0 { 3 } else { 8 }) {
        0 if params > 0 => text.push_str(["x", "y"][below(prng, params) as usize]),
        1 if bindings > 0 => text.push_str(&format!("f{}", below(prng, bindings))),
        0..=2 => text.push_str(any(prng, &WORDS)),
        kind => {
            let (open, between, close) = match kind {
                3 => ("[", ", ", "]"),
                4 => ("(", " >-> ", ")"),
                5 => ("(\\x -> ", " $ ", ")"),
                _ => ("(", " ", ")"),
            };
            text.push_str(open);
            let params = if kind == 5 { params.max(1) } else { params };
            applied(prng, text, bindings, params, level - 1);
            text.push_str(between);
            applied(prng, text, bindings, params, level - 1);
            text.push_str(close);
        }
    }
}
