//! Carries out the changes that findings offer. The steps can be shown to the user before they are made. For each step,
//! the old value is first written to the journal. Then the setting is changed, read back and compared with the new
//! value.

use crate::finding::{Finding, State};
use crate::netns::Netns;
use crate::setting::Change;
use crate::undo::{Entry, Journal, JournalError, boot};
use std::io;
use sys::sysfs::Tree;

/// One change that `apply` makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The setting and its new value.
    pub change: Change,
    /// The current value.
    pub was: String,
    /// The check whose finding offers the change.
    pub check: &'static str,
}

/// The result of `apply`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FixResult {
    /// Number of steps whose settings were changed.
    pub made: usize,
    /// Number of steps that the kernel refused; their settings do not have the new values.
    pub refused: usize,
}

/// Returns the steps that fix these findings; a setting has at most one step. A setting whose current value cannot be
/// read has no step, because an undo could not restore the value.
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

/// Makes the steps in order and calls `report` with the result of each. If the kernel refuses a step, the later steps
/// are still made.
///
/// # Errors
/// The journal cannot be written. The step whose entry could not be written is not made. The steps before it are made
/// and can be undone.
pub fn apply(
    steps: &[Step],
    journal: &mut Journal,
    tree: &Tree,
    mut report: impl FnMut(&Step, &io::Result<()>),
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
        report(step, &outcome);
        if outcome.is_ok() {
            done.made += 1;
            continue;
        }
        done.refused += 1;
        // The kernel may make only a part of a change, for example reserve fewer huge pages than requested. Such a
        // change is reverted. If the reversal fails, the entry of the change stays in the journal.
        let back = match step.change.setting.read(tree) {
            Ok(now) if now == step.was => Ok(()),
            _ => step.change.setting.write(tree, &step.was),
        };
        if back.is_ok() {
            journal.remove(journal.entries().len() - 1)?;
        }
    }
    Ok(done)
}
