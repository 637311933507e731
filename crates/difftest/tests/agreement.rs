//! The interpreter of the intermediate form and the meaning of the terms come to the same, over everything that the
//! table of functions has.

use base::Prng;
use lang::table::names;
use lang::term::ActionTerm;
use netgrain_difftest::{InParts, Interpreted, Report, Trial, frames, write};

/// That enough was done that a fault would have shown.
fn is_worth_it(report: &Report) {
    eprintln!("{report:?}");
    let Report { cases, ran, packets, kinds, entries, .. } = report;
    if *cases < 300 {
        return;
    }
    assert!(*ran > cases * 9 / 10, "{ran} of {cases} programs ran");
    assert!(kinds.iter().all(|n| *n > packets / 100), "every fate is met: {kinds:?} of {packets} packets");
    assert!(*entries > ran / 4, "only {entries} entries");
    assert!(report.refused.is_empty(), "{:?}", report.refused);
    let least = cases / 250;
    let missing = Report::missing(&report.functions, least, &[]);
    assert!(missing.is_empty(), "in fewer than {least} of {cases} programs: {missing:?}");
}

#[test]
fn the_intermediate_form_means_what_the_terms_mean() {
    let seed = testkit::seed("the_intermediate_form_means_what_the_terms_mean");
    is_worth_it(&Trial::new(seed, 6000).run(&Interpreted));
}

#[test]
fn a_program_that_is_cut_between_two_stages_means_the_same() {
    let seed = testkit::seed("a_program_that_is_cut_between_two_stages_means_the_same");
    is_worth_it(&Trial::new(seed, 6000).run(&InParts));
}

#[test]
fn real_packets_mean_the_same() {
    let test = "real_packets_mean_the_same";
    let Some(traces) = testkit::traces(test) else { return };
    let report = Trial::new(testkit::seed(test), 6000).over(frames::real(&traces, 200)).run(&Interpreted);
    eprintln!("{report:?}");
    assert!(report.ran > report.cases / 2 && report.packets > 10 * report.ran, "too little was tried");
}

/// A term without the texts of its steps, and without steps of steps.
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
fn operators_old_names_and_bindings_stand_for_what_they_are_said_to() {
    let seed = testkit::seed("operators_old_names_and_bindings_stand_for_what_they_are_said_to");
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
fn every_name_of_the_table_is_written_old_ones_too() {
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
