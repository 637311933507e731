//! Tests that the interpreter of the IR and the model of crate `difftest` give the same results, on random programs
//! that use all functions of the packet language.

use base::Prng;
use lang::table::names;
use lang::term::ActionTerm;
use netgrain_difftest::{InParts, Interpreted, Report, Trial, frames, write};

/// Asserts that the trial covered enough programs, verdicts and functions to detect errors.
fn assert_coverage(report: &Report) {
    eprintln!("{report:?}");
    let Report { cases, ran, packets, kinds, entries, .. } = report;
    if *cases < 300 {
        return;
    }
    assert!(*ran > cases * 9 / 10, "{ran} of {cases} programs ran");
    assert!(
        kinds.iter().all(|n| *n > packets / 100),
        "too few packets of some verdict kind: {kinds:?} of {packets} packets"
    );
    assert!(*entries > ran / 4, "only {entries} entries");
    assert!(report.refused.is_empty(), "{:?}", report.refused);
    let least = cases / 250;
    let missing = Report::missing(&report.functions, least, &[]);
    assert!(missing.is_empty(), "in fewer than {least} of {cases} programs: {missing:?}");
}

#[test]
fn the_interpreter_agrees_with_the_model() {
    let seed = testkit::seed("the_interpreter_agrees_with_the_model");
    assert_coverage(&Trial::new(seed, 6000).run(&Interpreted));
}

#[test]
fn a_split_program_agrees_with_the_model() {
    let seed = testkit::seed("a_split_program_agrees_with_the_model");
    assert_coverage(&Trial::new(seed, 6000).run(&InParts));
}

#[test]
fn the_interpreter_agrees_with_the_model_on_captured_packets() {
    let test = "the_interpreter_agrees_with_the_model_on_captured_packets";
    let Some(traces) = testkit::traces(test) else { return };
    let report = Trial::new(testkit::seed(test), 6000).over(frames::real(&traces, 200)).run(&Interpreted);
    eprintln!("{report:?}");
    assert!(report.ran > report.cases / 2 && report.packets > 10 * report.ran, "too few programs or packets ran");
}

/// The term without the source texts of its steps, and with nested sequences flattened.
fn flat(act: &ActionTerm) -> ActionTerm {
    let boxed = |act: &ActionTerm| Box::new(flat(act));
    match act {
        ActionTerm::Seq(steps) => {
            let mut all = Vec::new();
            for (_, step) in steps {
                match flat(step) {
                    ActionTerm::Seq(inner) => all.extend(inner),
                    other => all.push((String::new(), other)),
                }
            }
            match <[_; 1]>::try_from(all) {
                Ok([(_, one)]) => one,
                Err(all) => ActionTerm::Seq(all),
            }
        }
        ActionTerm::If(p, a, b) => ActionTerm::If(p.clone(), boxed(a), boxed(b)),
        ActionTerm::Case(of, arms, other) => {
            ActionTerm::Case(of.clone(), arms.iter().map(|(n, act)| (*n, flat(act))).collect(), boxed(other))
        }
        ActionTerm::Par(acts) => ActionTerm::Par(acts.iter().map(flat).collect()),
        ActionTerm::Inv(inner) => ActionTerm::Inv(boxed(inner)),
        ActionTerm::Within(look, inner) => ActionTerm::Within(*look, boxed(inner)),
        other => other.clone(),
    }
}

#[test]
fn syntactic_sugar_yields_the_term_of_the_plain_form() {
    let seed = testkit::seed("syntactic_sugar_yields_the_term_of_the_plain_form");
    let (mut compared, mut sugared) = (0, 0);
    for round in 0..4000 {
        let source = write(&mut Prng::new(seed.wrapping_add(round)), 5, round, true);
        let (written, plain) = (source.text(), source.plain());
        sugared += usize::from(written != plain);
        match (lang::compile(&written), lang::compile(&plain)) {
            (Ok(a), Ok(b)) => {
                compared += 1;
                assert_eq!(flat(&a.term), flat(&b.term), "seed {seed}, round {round}\n{written}\n{plain}");
            }
            (Err(a), Err(b)) => assert_eq!(a.what, b.what, "{written}\n{plain}"),
            (a, b) => panic!("seed {seed}, round {round}\n{written}{:?}\n\n{plain}{:?}", a.err(), b.err()),
        }
    }
    assert!(compared > 3500 && sugared > 3000, "{compared} compared, {sugared} with sugar");
}

#[test]
fn random_programs_use_every_name_of_the_table() {
    let mut left: Vec<&str> = names().collect();
    let mut prng = Prng::new(1);
    for number in 0..4000 {
        let text = write(&mut prng, 6, number, true).text();
        let word = |c: char| !(c.is_alphanumeric() || c == '_' || c == '\'');
        let words: std::collections::BTreeSet<&str> = text.split(word).collect();
        left.retain(|name| !words.contains(name));
    }
    assert!(left.is_empty(), "{left:?}");
}
