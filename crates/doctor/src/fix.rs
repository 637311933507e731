//! Changing what findings offer to change: each step shown before, written down with its old value, made, and looked at.

use crate::finding::{Finding, State};
use crate::netns::Netns;
use crate::setting::Change;
use crate::undo::{Entry, Journal, JournalError, boot};
use std::io;
use sys::sysfs::Tree;

/// One thing that would be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What.
    pub change: Change,
    /// The value now.
    pub was: String,
    /// The check that asks for it.
    pub check: &'static str,
}

/// How it went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FixResult {
    /// Steps made.
    pub made: usize,
    /// Steps that the kernel refused; nothing of them is in force.
    pub refused: usize,
}

/// The steps that mend these findings, each setting once. A setting that cannot be read now is left out: what cannot be
/// read could not be put back.
pub fn steps(findings: &[Finding], tree: &Tree) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for finding in findings.iter().filter(|f| matches!(f.state, State::Bad | State::Warning)) {
        for change in &finding.changes {
            if steps.iter().any(|s| s.change.setting == change.setting) {
                continue;
            }
            if let Ok(was) = change.setting.read(tree)
                && was != change.value
            {
                steps.push(Step { change: change.clone(), was, check: finding.check.name });
            }
        }
    }
    steps
}

/// Makes the steps in order; `tell` hears how each went. One that is refused does not keep the others from being made.
///
/// # Errors
/// When the journal cannot be written; the step at hand is not made then, those before it are and can be undone.
pub fn apply(
    steps: &[Step],
    journal: &mut Journal,
    tree: &Tree,
    mut tell: impl FnMut(&Step, &io::Result<()>),
) -> Result<FixResult, JournalError> {
    let boot = boot(tree);
    let mut done = FixResult::default();
    for step in steps {
        journal.add(Entry {
            setting: step.change.setting.clone(),
            was: step.was.clone(),
            value: step.change.value.clone(),
            boot: boot.clone(),
            namespace: Netns::of(&step.change.setting, tree),
        })?;
        let outcome = step.change.setting.write(tree, &step.change.value);
        tell(step, &outcome);
        if outcome.is_ok() {
            done.made += 1;
            continue;
        }
        done.refused += 1;
        // A setting that went half the way (huge pages that were not all to be had) goes back, or stays in the journal.
        let back = match step.change.setting.read(tree) {
            Ok(now) if now == step.was => Ok(()),
            _ => step.change.setting.write(tree, &step.was),
        };
        if back.is_ok() {
            journal.forget(journal.entries().len() - 1)?;
        }
    }
    Ok(done)
}
