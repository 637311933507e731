//! The events and the status of a retention worker.

use super::{Event, RETRY_EVERY, RetentionState};
use std::collections::BTreeSet;
use std::time::Duration;

/// The events since the last call, the status, and the warnings that were already reported.
#[derive(Debug, Default)]
pub(super) struct Reports {
    pub events: Vec<Event>,
    pub state: RetentionState,
    /// Warnings that were reported, until their failures are resolved.
    reported: BTreeSet<String>,
    /// The time of the last failure that was reported.
    last_failure: Duration,
    /// The time of this step.
    up: Duration,
}

impl Reports {
    /// Begins a step.
    pub fn begin_step(&mut self, up: Duration) {
        self.up = up;
    }

    /// Reports a warning, unless the same warning was reported and its failure is not resolved.
    pub fn warn(&mut self, text: String) {
        self.last_failure = self.up;
        self.state.trouble = Some(text.clone());
        if self.reported.insert(text.clone()) {
            self.events.push(Event::Warning(text));
        }
    }

    /// Treats failures that have not occurred for two retry intervals as resolved.
    pub fn resolve(&mut self) {
        if self.up > self.last_failure + 2 * RETRY_EVERY {
            self.state.trouble = None;
            self.reported.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_reported_once_until_two_retries_have_passed_without_it() {
        let mut reports = Reports::default();
        let mut warn = |up: Duration| {
            reports.begin_step(up);
            reports.resolve();
            reports.warn("no".to_owned());
            std::mem::take(&mut reports.events).len()
        };
        let lasting = 2 * RETRY_EVERY;
        assert_eq!([Duration::ZERO, lasting, 2 * lasting, 4 * lasting].map(&mut warn), [1, 0, 0, 1]);
        reports.begin_step(7 * lasting);
        reports.resolve();
        assert_eq!(reports.state.trouble, None);
    }
}
