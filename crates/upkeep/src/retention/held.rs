//! Registers the hour directories that readers hold, and how long retention has waited for each of them.

use base::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// An hour directory: the number of its interface, and the begin of the hour.
pub(super) type HourOf = (usize, Timestamp);

/// The hour directories that readers hold (lock) or have held.
#[derive(Debug, Default)]
pub(super) struct HeldHours {
    /// The hour directories that a reader holds, as a test in the present step of the retention worker showed.
    now: BTreeSet<HourOf>,
    known: BTreeMap<HourOf, HeldHour>,
}

/// An hour directory that was reported as held.
#[derive(Debug, Default)]
struct HeldHour {
    wait: Wait,
    /// True if files of the directory were removed although a reader holds it; this is reported once.
    is_overruled: bool,
}

/// Whether, and since when, the worker waits for the readers of an hour directory.
#[derive(Debug, Default)]
enum Wait {
    /// No reader holds the hour directory any longer.
    #[default]
    Over,
    Since(Duration),
}

/// The result of [`HeldHours::register_hold`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeldSince {
    /// Time for which the retention worker has waited for the readers of the hour directory.
    pub waited: Duration,
    /// True if the hour directory was not reported as held before.
    pub is_new: bool,
}

impl HeldHours {
    /// Begins a search for files to remove. Afterwards, no hour directory counts as held until it is tested.
    pub fn begin_search(&mut self) {
        self.now.clear();
    }

    /// The number of hour directories that a reader held in this step of the retention worker.
    pub fn count(&self) -> usize {
        self.now.len()
    }

    /// Registers that a reader holds this hour directory.
    pub fn register_hold(&mut self, hour: HourOf, up: Duration) -> HeldSince {
        self.now.insert(hour);
        let is_new = !self.known.contains_key(&hour);
        let wait = &mut self.known.entry(hour).or_default().wait;
        if let Wait::Over = wait {
            *wait = Wait::Since(up);
        }
        let waited = if let Wait::Since(since) = *wait { up.saturating_sub(since) } else { Duration::ZERO };
        HeldSince { waited, is_new }
    }

    /// Registers that no reader holds this hour directory.
    pub fn release(&mut self, hour: HourOf) {
        if let Some(held) = self.known.get_mut(&hour) {
            held.wait = Wait::Over;
        }
    }

    /// Registers that files of a held hour directory are removed; returns true at the first call for the directory.
    pub fn overrule(&mut self, hour: HourOf) -> bool {
        !std::mem::replace(&mut self.known.entry(hour).or_default().is_overruled, true)
    }

    /// Forgets the hour directories that no longer exist.
    pub fn retain(&mut self, is_there: impl Fn(&HourOf) -> bool) {
        self.known.retain(|hour, _| is_there(hour));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: HourOf = (0, Timestamp::ZERO);

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn a_wait_restarts_after_the_hour_was_free_but_is_reported_once() {
        let mut held = HeldHours::default();
        assert_eq!(held.register_hold(HOUR, secs(5)), HeldSince { waited: secs(0), is_new: true });
        assert_eq!(held.register_hold(HOUR, secs(9)), HeldSince { waited: secs(4), is_new: false });
        held.release(HOUR);
        assert_eq!(held.register_hold(HOUR, secs(20)), HeldSince { waited: secs(0), is_new: false });
        assert!(held.overrule(HOUR) && !held.overrule(HOUR));
        held.retain(|_| false);
        assert_eq!(held.register_hold(HOUR, secs(30)), HeldSince { waited: secs(0), is_new: true });
    }

    #[test]
    fn the_count_covers_one_search_only() {
        let mut held = HeldHours::default();
        held.register_hold(HOUR, secs(1));
        held.register_hold((1, Timestamp::ZERO), secs(1));
        assert_eq!(held.count(), 2);
        held.begin_search();
        held.register_hold(HOUR, secs(2));
        assert_eq!(held.count(), 1);
    }
}
