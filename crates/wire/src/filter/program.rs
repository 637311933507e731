//! The filter as a flat list of tests, each with the place to go on for yes and for no.

use super::syntax::Expr;
use super::test::{Subject, Test};

/// Beyond every step: the frame matches.
const ACCEPT: u16 = u16::MAX;
/// Beyond every step: it does not.
const REJECT: u16 = u16::MAX - 1;

const _: () = assert!(super::MAX_TESTS < REJECT as usize);

#[derive(Clone, Debug, PartialEq)]
struct Step {
    test: Test,
    yes: u16,
    no: u16,
}

/// Steps whose jumps all go forward.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    steps: Box<[Step]>,
}

impl Program {
    pub fn of(expr: Option<&Expr>) -> Self {
        let mut steps = Vec::new();
        if let Some(expr) = expr {
            emit(expr, ACCEPT, REJECT, &mut steps);
        }
        // They were emitted from the last to the first, since a step can only name places that exist.
        steps.reverse();
        let count = steps.len() as u16;
        for step in &mut steps {
            for to in [&mut step.yes, &mut step.no] {
                if *to < REJECT {
                    *to = count - 1 - *to;
                }
            }
        }
        Self { steps: steps.into() }
    }

    #[inline]
    pub fn run(&self, subject: &Subject<'_>) -> bool {
        self.walk(|test| test.holds(subject))
    }

    /// The verdict, where `holds` answers the tests.
    #[inline]
    pub fn walk(&self, holds: impl Fn(&Test) -> bool) -> bool {
        let mut at = if self.steps.is_empty() { ACCEPT } else { 0 };
        while let Some(step) = self.steps.get(usize::from(at)) {
            at = if holds(&step.test) { step.yes } else { step.no };
        }
        at == ACCEPT
    }

    /// All tests there are.
    pub fn tests(&self) -> impl Iterator<Item = &Test> {
        self.steps.iter().map(|step| &step.test)
    }
}

/// Emits `expr` so that it goes on at `yes` or `no`, and returns where it begins.
fn emit(expr: &Expr, yes: u16, no: u16, steps: &mut Vec<Step>) -> u16 {
    match expr {
        Expr::Test(test) => {
            steps.push(Step { test: *test, yes, no });
            steps.len() as u16 - 1
        }
        Expr::Not(inner) => emit(inner, no, yes, steps),
        Expr::And(left, right) => {
            let then = emit(right, yes, no, steps);
            emit(left, then, no, steps)
        }
        Expr::Or(left, right) => {
            let otherwise = emit(right, yes, no, steps);
            emit(left, yes, otherwise, steps)
        }
    }
}
