//! The output of a detector: the begin, the peaks and the end of alarms.

use crate::sample::SampleCounts;
use std::fmt;

/// The sign of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The values are above the expected values.
    Increase,
    /// The values are below the expected values.
    Decrease,
}

impl Change {
    /// The name in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Increase => "increase",
            Self::Decrease => "decrease",
        }
    }

    /// 1 for an increase, -1 for a decrease.
    pub(crate) const fn sign(self) -> f64 {
        match self {
            Self::Increase => 1.0,
            Self::Decrease => -1.0,
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An observed value beside the value that was expected, in the unit of the series.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// The second of the value, since 1970.
    pub second: u64,
    /// The observed value.
    pub observed: f64,
    /// The expected value.
    pub expected: f64,
    /// The lower end of the band of normal values.
    pub low: f64,
    /// The upper end of the band of normal values.
    pub high: f64,
}

impl Reading {
    /// The distance of the observed value from the expected value in the sense of the change; negative on the other
    /// side of the expected value.
    pub(crate) fn deviation(&self, change: Change) -> f64 {
        (self.observed - self.expected) * change.sign()
    }
}

/// An alarm, as far as it is known at the time of an event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alarm {
    /// The sign of the change.
    pub change: Change,
    /// The estimated first second of the change, since 1970.
    pub onset: u64,
    /// The second in which the detector confirmed the change, since 1970.
    pub confirmed: u64,
    /// The reading with the largest deviation so far.
    pub peak: Reading,
    /// The seconds since the onset. Seconds that are missing or untrusted had no verdict.
    pub seconds: SampleCounts,
}

/// The reason for the end of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// The values returned to the band of normal values.
    Returned,
    /// The change lasted so long that the detector takes the new level as normal.
    Adopted,
    /// There was no trusted value for a long time.
    NoData,
}

impl EndReason {
    /// The name in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Returned => "returned",
            Self::Adopted => "adopted",
            Self::NoData => "no_data",
        }
    }
}

/// A report of a detector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// An alarm was confirmed.
    Begin(Alarm),
    /// The deviation of the alarm has a new peak, at least 1.25 times the reported peak.
    Update(Alarm),
    /// The alarm ended.
    End {
        /// The alarm with its final peak and counts.
        alarm: Alarm,
        /// The first second after the change, since 1970.
        second: u64,
        /// The reason for the end.
        reason: EndReason,
    },
}

impl Event {
    /// The alarm of the event.
    pub const fn alarm(&self) -> &Alarm {
        match self {
            Self::Begin(alarm) | Self::Update(alarm) | Self::End { alarm, .. } => alarm,
        }
    }
}

/// The state of a detector after a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The detector has too few values for a verdict.
    WarmUp,
    /// The second has no trusted value, or follows a long gap.
    Withheld,
    /// No alarm is active.
    Normal,
    /// An alarm is active.
    Alarm,
}
