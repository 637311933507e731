//! Counts of seconds for the totals of `netgrain alarms test`.

use detect::SampleCounts;

/// Seconds by their verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdicts {
    pub samples: SampleCounts,
    pub warm_up: u64,
    pub withheld: u64,
}
