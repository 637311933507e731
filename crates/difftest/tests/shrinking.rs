//! A fault that was put there is found, and shown as small as it is.

use ir::{Cmp, End, Inst};
use netgrain_difftest::{
    BackEnd, Case, CompiledCase, Execution, ExecutionResult, Interpreted, Packet, StateSnapshot, Trial,
};

/// An interpreter that runs another program than it was given.
struct Faulty(fn(&mut CompiledCase));

struct Running {
    ready: CompiledCase,
    remembered: Vec<StateSnapshot>,
}

impl BackEnd for Faulty {
    fn name(&self) -> &'static str {
        "an interpreter with a fault"
    }

    fn load<'a>(&'a self, ready: &'a CompiledCase) -> Result<Box<dyn Execution + 'a>, String> {
        let mut ready = ready.clone();
        (self.0)(&mut ready);
        Ok(Box::new(Running { ready, remembered: vec![] }))
    }
}

impl Execution for Running {
    fn judge(&mut self, packets: &[Packet]) -> Vec<ExecutionResult> {
        let mut execution = Interpreted.load(&self.ready).expect("the interpreter runs everything");
        let seen = execution.judge(packets);
        self.remembered = execution.remembered(packets.last().map_or(0, |p| p.facts.time));
        seen
    }

    fn remembered(&mut self, _now: u64) -> Vec<StateSnapshot> {
        self.remembered.clone()
    }
}

/// The case that a fault was made smaller to, and what is said of it.
fn found(fault: fn(&mut CompiledCase)) -> (String, Case) {
    let seed = testkit::seed("shrinking");
    let failure = Trial::new(seed, 5000).find(&Faulty(fault)).expect_err("the fault is found");
    (failure.said, failure.least)
}

#[test]
fn a_comparison_that_forgets_equality_is_shown_as_one_line_and_one_packet() {
    let (said, least) = found(|ready| {
        for block in &mut ready.program.blocks {
            if let End::If { cmp, .. } = &mut block.end {
                *cmp = if *cmp == Cmp::Le { Cmp::Lt } else { *cmp };
            }
        }
    });
    let text = least.source.to_string();
    assert_eq!((text.lines().count(), least.packets.len()), (1, 1), "{said}");
    assert!(least.source.size().0 <= 5, "{said}");
    assert!(["<=", ">=.", "less", "port_range"].iter().any(|way| text.contains(way)), "{said}");
    // All that is needed to see it again.
    let hex: String = least.packets[0].bytes.iter().map(|b| format!("{b:02x}")).collect();
    assert!(said.contains("seed ") && said.contains(&text) && said.contains(&hex), "{said}");
}

#[test]
fn a_map_that_forgets_is_shown_with_the_packets_that_it_takes() {
    let (said, least) = found(|ready| {
        for block in &mut ready.program.blocks {
            block.code.retain(|inst| !matches!(inst, Inst::MapDelete { .. }));
        }
    });
    let text = least.source.to_string();
    assert!(text.contains("clear_fstate") && text.contains("flow_map"), "{said}");
    assert!(least.source.size().0 <= 14 && least.packets.len() <= 2, "{said}");
}

#[test]
fn an_execution_that_panics_is_a_failure_like_any_other() {
    let (said, least) = found(|ready| {
        let counts = |inst: &Inst| matches!(inst, Inst::Kernel);
        assert!(!ready.program.blocks.iter().flat_map(|b| &b.code).any(counts), "no copies for the stack today");
    });
    assert!(said.contains("it panics: no copies for the stack today"), "{said}");
    assert_eq!(least.packets, [], "it needs none");
    assert!(
        ["kernel", "detour"].iter().any(|word| least.source.to_string().contains(word)) && least.source.size().0 == 1,
        "{said}"
    );
}
