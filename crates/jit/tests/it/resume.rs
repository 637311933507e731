//! Tests `Worker::resume`, which runs the last stages of a program for packets whose first stages ran outside of the
//! worker, for example in the kernel.

use crate::random;

use base::Prng;
use ir::Facts;
use ir::VerdictKind;
use ir::interp::{Execution, Interpreter, ProgramState};
use netgrain_jit::{Executable, Packet, Verdict};
use std::time::Duration;
use wire::link;

/// The fields of a verdict.
fn fields(v: &Verdict) -> (VerdictKind, u64, [u32; 2], u32, u32, bool) {
    (v.kind(), v.classes, [v.hash, v.hash2], v.mark, v.state, v.kernel())
}

#[test]
fn resumed_programs_continue_from_any_record() {
    let seed = testkit::seed("resumed_programs_continue_from_any_record");
    let (mut resumed, mut changed) = (0, 0);
    for round in 0..400 {
        let mut prng = Prng::new(seed.wrapping_add(round));
        let program = random::program(&mut prng, 5);
        let stages = prng.below(program.stages.len() as u64 + 1) as usize;
        let (head, rest) = program.split(stages);
        let key = prng.next_u64();
        let (mut elsewhere, mut memory) = (ProgramState::of(&head, key), ProgramState::of(&rest, key));
        let native =
            Executable::native_behind(program.clone(), stages, || Duration::ZERO).expect("the program is valid");
        let interpreted = Executable::interpreted_behind(program.clone(), stages).expect("the program is valid");
        let mut workers = [native.worker(key).expect("small maps"), interpreted.worker(key).expect("small maps")];
        for number in 0..40 {
            let frame = random::frame(&mut prng);
            let source = random::facts(&mut prng, 1_000);
            let wire_len = source.wire_len.max(frame.len() as u32);
            let facts = random::combined(&Facts::of(&frame, wire_len, link::ETHERNET), resumed, &source);
            let first = Interpreter::new(&head).run(&frame, &facts, &mut elsewhere);
            if first.kind == VerdictKind::Drop {
                continue;
            }
            // The actions of the first stages were carried out elsewhere and are not part of the verdict.
            let start = Execution { kernel: false, actions: vec![], ..first };
            let record =
                Verdict::resumed(start.kind, start.classes, [start.hash, start.hash2], start.mark, start.state);
            let expected_outcome = Interpreter::new(&rest).run_from(start.clone(), &frame, &facts, &mut memory);
            for worker in &mut workers {
                let mut verdict = [record];
                let source = Facts { sequence: 0, ..source };
                worker.resume(&mut [Packet::new(&frame, link::ETHERNET, source)], &mut verdict);
                let expected = (
                    expected_outcome.kind,
                    expected_outcome.classes,
                    [expected_outcome.hash, expected_outcome.hash2],
                    expected_outcome.mark,
                    expected_outcome.state,
                );
                let (kind, classes, hashes, mark, state, kernel) = fields(&verdict[0]);
                let context = format!("seed {seed}, round {round}, packet {number}, after {stages} stages\n{program}");
                assert_eq!((kind, classes, hashes, mark, state), expected, "{context}");
                assert_eq!(kernel, expected_outcome.kernel, "{context}");
                let actions: Vec<_> = worker.actions().iter().map(|action| action.action).collect();
                assert_eq!(actions, expected_outcome.actions, "{context}");
            }
            resumed += 1;
            changed += u64::from(expected_outcome.mark != start.mark || expected_outcome.kind != start.kind);
        }
        for worker in &workers {
            assert_eq!(worker.counters(), &memory.counters, "seed {seed}, round {round}");
        }
        resumed = 0;
    }
    assert!(changed > 500, "only {changed} packets were changed by the second part");
}
