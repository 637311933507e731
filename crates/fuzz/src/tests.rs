//! Runs each target on its seeds and on mutations of them, and checks the memory that it uses.

use super::*;
use testkit::Counting;

#[global_allocator]
static COUNTING: Counting = Counting::new();

fn rounds(normal: u64) -> u64 {
    normal * std::env::var("NETGRAIN_FUZZ_ITERS").ok().and_then(|times| times.parse().ok()).unwrap_or(1)
}

fn check(name: &str) {
    let target = target(name).unwrap_or_else(|| panic!("there is no target {name}"));
    let seeds = (target.seeds)();
    assert!(!seeds.is_empty());
    // The first calls fill the static tables of the target; the memory of the tables is not counted for an input.
    seeds.iter().for_each(|seed| (target.run)(seed));
    let mut mutator = Mutator::new(testkit::seed(name), seeds);
    for round in 0..rounds(target.rounds) {
        let input = mutator.mutation();
        let begun = COUNTING.begin_thread();
        let outcome = std::panic::catch_unwind(|| (target.run)(&input));
        let memory = COUNTING.most_of_thread_since(begun);
        if let Err(panic) = outcome {
            eprintln!("{name}: round {round}, input {:?}", String::from_utf8_lossy(&input));
            eprintln!("{name}: {input:02x?}");
            std::panic::resume_unwind(panic);
        }
        assert!(
            memory <= target.memory,
            "{name}: round {round}: {memory} bytes of memory used for an input of {} bytes",
            input.len()
        );
    }
}

macro_rules! bounded_runs {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })*

        #[test]
        fn each_target_has_a_test() {
            let tested = [$(stringify!($name)),*];
            assert_eq!(TARGETS.iter().map(|target| target.name).collect::<Vec<_>>(), tested);
        }
    };
}

bounded_runs!(
    capture_file packet block_index filter flow_filter program configuration group_message ipfix journal parquet
    stamp_packet switch_timestamp train_payload duplicates words
);

#[test]
fn mutations_are_equal_for_equal_seeds_and_differ_otherwise() {
    let seeds = || vec![b"one seed of text".to_vec(), vec![7; 40]];
    let ten = |seed| {
        let mut mutator = Mutator::new(seed, seeds());
        (0..10).map(|_| mutator.mutation()).collect::<Vec<_>>()
    };
    assert_eq!(ten(1), ten(1));
    assert_ne!(ten(1), ten(2));
}
