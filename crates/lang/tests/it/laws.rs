//! Tests algebraic laws of the composition of actions, on random actions. Also tests that invalid source texts do not
//! crash the compiler.
//!
//! The tests of crate `difftest` compare the results of random programs with those of an independent model of the
//! language.

use base::Prng;
use difftest::semantics::ProgramContext;
use difftest::{BackEnd, CompiledCase, Interpreted, Packet, PacketOutcome, action, frames};
use netgrain_lang::compile;
use netgrain_lang::lower::lower;
use netgrain_lang::term::{ActionTerm, Pred};
use std::collections::BTreeMap;

fn below(prng: &mut Prng, n: u64) -> u64 {
    prng.below(n)
}

fn any<T: Clone>(prng: &mut Prng, of: &[T]) -> T {
    of[below(prng, of.len() as u64) as usize].clone()
}

/// A random action as a term, with its own flow maps. Actions with `steer_common` are excluded, because their meaning
/// depends on the other flow maps of the program.
fn act(prng: &mut Prng, name: &str) -> ActionTerm {
    loop {
        let text = action(prng, name).text();
        let compiled = compile(&text);
        if let Ok(compiled) = compiled
            && !text.contains("steer_common")
        {
            return compiled.term;
        }
    }
}

/// A random predicate as a term.
fn predicate(prng: &mut Prng, name: &str) -> Pred {
    loop {
        if let ActionTerm::Seq(steps) = act(prng, name)
            && let [(_, ActionTerm::If(p, ..) | ActionTerm::Filter(p))] = &steps[..]
        {
            return p.clone();
        }
    }
}

/// The results that the two sides of a law must have in common: outcomes of packets, counters, and the entries of every
/// non-empty map.
type Observed = (Vec<PacketOutcome>, Vec<u64>, BTreeMap<String, Vec<(Vec<u64>, u64)>>);

/// Runs an action on packets; `None` if its program exceeds the limits of the IR.
fn observed(act: &ActionTerm, packets: &[Packet]) -> Option<Observed> {
    let program = lower(act);
    program.verify().ok()?;
    let names: Vec<String> = program.maps.iter().map(|m| m.name.clone()).collect();
    let world = ProgramContext {
        hash_key: 7,
        link_type: wire::link::ETHERNET,
        host: vec![],
        egress_interfaces: vec![],
        common: None,
    };
    let compiled = CompiledCase { program, term: act.clone(), world };
    let mut execution = Interpreted.load(&compiled).expect("the interpreter runs every program");
    let outcomes = execution.evaluate(packets).into_iter().map(|seen| seen.outcome).collect();
    let memory = execution.state(packets.last().map_or(0, |p| p.facts.time)).remove(0);
    let maps = names.into_iter().zip(memory.maps).map(|(name, held)| (name, held.entries));
    Some((outcomes, memory.counters, maps.filter(|m| !m.1.is_empty()).collect()))
}

#[test]
fn composition_keeps_the_laws_of_a_monad() {
    let seed = testkit::seed("composition_keeps_the_laws_of_a_monad");
    let mut prng = Prng::new(seed);
    let then = |f: &ActionTerm, g: &ActionTerm| f.clone().then("f", g.clone(), "g");
    let nested =
        |f: &ActionTerm, g: &ActionTerm| ActionTerm::Seq(vec![(String::new(), f.clone()), (String::new(), g.clone())]);
    let mut held = BTreeMap::<&str, usize>::new();
    for round in 0..1000 {
        let [f, g, h] = ["f", "g", "h"].map(|name| act(&mut prng, name));
        let [p, q] = ["p", "q"].map(|name| predicate(&mut prng, name));
        let p_box = Box::new(p.clone());
        let neither = Pred::Not(Pred::Or(p_box.clone(), Box::new(q.clone())).into());
        let de_morgan = Pred::And(Pred::Not(p_box).into(), Pred::Not(q.into()).into());
        let laws = [
            ("left unit", then(&ActionTerm::Unit, &f), f.clone()),
            ("right unit", then(&f, &ActionTerm::Unit), f.clone()),
            ("associativity", nested(&nested(&f, &g), &h), nested(&f, &nested(&g, &h))),
            ("flattening", then(&then(&f, &g), &h), nested(&f, &nested(&g, &h))),
            (
                "when",
                ActionTerm::If(p.clone(), f.clone().into(), ActionTerm::Unit.into()),
                ActionTerm::If(Pred::Not(p.into()), ActionTerm::Unit.into(), f.clone().into()),
            ),
            ("zero", then(&ActionTerm::Drop, &f), ActionTerm::Drop),
            ("De Morgan", ActionTerm::Filter(neither), ActionTerm::Filter(de_morgan)),
        ];
        let packets = frames::packets(&mut prng, wire::link::ETHERNET, 8, false);
        for (law, left, right) in laws {
            // Programs that exceed the limits of the IR are skipped. The last assertion requires that few programs are
            // skipped.
            let (Some(a), Some(b)) = (observed(&left, &packets), observed(&right, &packets)) else { continue };
            *held.entry(law).or_default() += 1;
            assert_eq!(a, b, "{law}, seed {seed}, round {round}\n{left:?}\n{right:?}");
        }
    }
    assert!(held.len() == 7 && held.values().all(|n| *n >= 900), "seed {seed}: {held:?}");
}

#[test]
fn malformed_sources_are_rejected_without_panic() {
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
    let seed = testkit::seed("malformed_sources_are_rejected_without_panic");
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
    assert!(programs > 40, "only {programs} texts were valid programs");
}

#[test]
fn programs_that_grow_exponentially_are_rejected_in_bounded_time() {
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
        let bounded = ["becomes too large", "nested", "more than"].iter().any(|word| error.what.contains(word));
        assert!(bounded, "{error:?}");
    }
    assert_eq!(compile(&long).map(|c| c.program.stages.len()).map_err(|e| e.what), Ok(5001));
}

#[test]
fn a_function_applied_to_itself_has_no_type() {
    for text in ["f x = x x\nmain = f unit", "f x = x x\nmain = ip", "main = (\\x -> x x) (\\x -> x x)"] {
        let error = compile(text).expect_err(text);
        assert!(error.what.contains("applied to itself"), "{text}: {error:?}");
    }
}

/// Random bindings with parameters, which are applied to one another, to lists and to themselves. Nearly all of them
/// are ill-typed.
#[test]
fn random_higher_order_programs_never_panic_the_compiler() {
    let seed = testkit::seed("random_higher_order_programs_never_panic_the_compiler");
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
    assert!(programs > 200, "only {programs} texts were valid programs");
}

/// Appends a random expression that uses the first `bindings` bindings and the first `params` parameters.
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
