//! Tests that the differential test finds a deliberate error in a back end, and reduces the failing case to a small
//! one.

use ir::{Cmp, End, Inst};
use netgrain_difftest::{
    BackEnd, Case, CompiledCase, Execution, ExecutionResult, Interpreted, Packet, StateSnapshot, Trial,
};

/// A back end with an error: it modifies each program and runs it in the interpreter.
struct Faulty(fn(&mut CompiledCase));

struct Running {
    compiled: CompiledCase,
    state: Vec<StateSnapshot>,
}

impl BackEnd for Faulty {
    fn name(&self) -> &'static str {
        "a faulty interpreter"
    }

    fn load<'a>(&'a self, compiled: &'a CompiledCase) -> Result<Box<dyn Execution + 'a>, String> {
        let mut compiled = compiled.clone();
        (self.0)(&mut compiled);
        Ok(Box::new(Running { compiled, state: vec![] }))
    }
}

impl Execution for Running {
    fn evaluate(&mut self, packets: &[Packet]) -> Vec<ExecutionResult> {
        let mut execution = Interpreted.load(&self.compiled).expect("the interpreter runs every program");
        let seen = execution.evaluate(packets);
        self.state = execution.state(packets.last().map_or(0, |p| p.facts.time));
        seen
    }

    fn state(&mut self, _now: u64) -> Vec<StateSnapshot> {
        self.state.clone()
    }
}

/// Runs a trial with a deliberate error, and returns the report and the reduced case.
fn find(fault: fn(&mut CompiledCase)) -> (String, Case) {
    let seed = testkit::seed("shrinking");
    let failure = Trial::new(seed, 5000).find(&Faulty(fault)).expect_err("the error is detected");
    (failure.report, failure.smallest)
}

#[test]
fn a_wrong_comparison_is_reduced_to_one_line_and_one_packet() {
    let (report, smallest) = find(|compiled| {
        for block in &mut compiled.program.blocks {
            if let End::If { cmp, .. } = &mut block.end {
                *cmp = if *cmp == Cmp::Le { Cmp::Lt } else { *cmp };
            }
        }
    });
    let text = smallest.source.to_string();
    assert_eq!((text.lines().count(), smallest.packets.len()), (1, 1), "{report}");
    assert!(smallest.source.size().0 <= 5, "{report}");
    assert!(["<=", ">=.", "less", "port_range", "steer_voip"].iter().any(|way| text.contains(way)), "{report}");
    // The report must contain everything that is needed to reproduce the failure.
    let hex: String = smallest.packets[0].bytes.iter().map(|b| format!("{b:02x}")).collect();
    assert!(report.contains("seed ") && report.contains(&text) && report.contains(&hex), "{report}");
}

#[test]
fn a_missing_map_removal_is_reduced_to_at_most_two_packets() {
    let (report, smallest) = find(|compiled| {
        for block in &mut compiled.program.blocks {
            block.code.retain(|inst| !matches!(inst, Inst::MapDelete { .. }));
        }
    });
    let text = smallest.source.to_string();
    assert!(text.contains("clear_fstate") && text.contains("flow_map"), "{report}");
    assert!(smallest.source.size().0 <= 14 && smallest.packets.len() <= 2, "{report}");
}

#[test]
fn a_panic_of_the_back_end_is_reported_and_reduced() {
    let (report, smallest) = find(|compiled| {
        let counts = |inst: &Inst| matches!(inst, Inst::Kernel);
        assert!(
            !compiled.program.blocks.iter().flat_map(|b| &b.code).any(counts),
            "copies for the stack are not implemented"
        );
    });
    assert!(report.contains("the execution panicked: copies for the stack are not implemented"), "{report}");
    assert_eq!(smallest.packets, [], "the failure needs no packet");
    assert!(
        ["kernel", "detour"].iter().any(|word| smallest.source.to_string().contains(word))
            && smallest.source.size().0 == 1,
        "{report}"
    );
}
