//! An active alarm: its onset, its peak, and the conditions of its end. All detectors use it.

use crate::event::{Alarm, Change, EndReason, Event, Reading};
use crate::sample::{Sample, SampleCounts};
use crate::state::{Codec, Field};

/// A new peak is reported if its deviation is at least this multiple of the reported deviation, so that an alarm has
/// few updates.
const UPDATE_RATIO: f64 = 1.25;

/// The durations after which an alarm ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct EndRule {
    /// Seconds in the normal range after which the alarm ends.
    pub return_seconds: u64,
    /// Seconds since the confirmation after which the new level is normal.
    pub adopt_seconds: u64,
    /// Seconds in succession without a trusted value after which the alarm ends.
    pub no_data_seconds: u64,
}

/// An active alarm.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Episode {
    alarm: Alarm,
    /// The deviation of the last event.
    reported_deviation: f64,
    /// Seconds in the normal range minus other seconds, not below 0.
    quiet: u64,
    /// The first second of the present run of quiet seconds.
    quiet_since: u64,
    /// Seconds in succession without a trusted value.
    without_value: u64,
}

impl Default for Episode {
    fn default() -> Self {
        let alarm = Alarm {
            change: Change::Increase,
            onset: 0,
            confirmed: 0,
            peak: Reading::default(),
            seconds: SampleCounts::default(),
        };
        Self { alarm, reported_deviation: 0.0, quiet: 0, quiet_since: 0, without_value: 0 }
    }
}

impl Episode {
    /// Begins an alarm, and returns its first event.
    pub fn begin(change: Change, onset: u64, seconds: SampleCounts, reading: Reading) -> (Self, Event) {
        let alarm = Alarm { change, onset, confirmed: reading.second, peak: reading, seconds };
        let reported_deviation = reading.deviation(change);
        let episode = Self { alarm, reported_deviation, ..Self::default() };
        (episode, Event::Begin(alarm))
    }

    /// The sign of the change.
    pub const fn change(&self) -> Change {
        self.alarm.change
    }

    /// Continues with a value. `is_normal` is true if the value is in the normal range.
    pub fn value(&mut self, reading: Reading, is_normal: bool, rule: &EndRule) -> Option<Event> {
        self.alarm.seconds.observed += 1;
        self.without_value = 0;
        let deviation = reading.deviation(self.alarm.change);
        if deviation > self.alarm.peak.deviation(self.alarm.change) {
            self.alarm.peak = reading;
        }
        if is_normal {
            if self.quiet == 0 {
                self.quiet_since = reading.second;
            }
            self.quiet += 1;
        } else {
            self.quiet = self.quiet.saturating_sub(1);
        }
        if self.quiet >= rule.return_seconds {
            return Some(self.end(self.quiet_since, EndReason::Returned));
        }
        if reading.second.saturating_sub(self.alarm.confirmed) >= rule.adopt_seconds {
            return Some(self.end(reading.second, EndReason::Adopted));
        }
        if deviation > self.reported_deviation * UPDATE_RATIO {
            self.reported_deviation = deviation;
            return Some(Event::Update(self.alarm));
        }
        None
    }

    /// Continues with `count` seconds without a trusted value, of which the first is `second`.
    pub fn no_value(&mut self, sample: Sample, second: u64, count: u64, rule: &EndRule) -> Option<Event> {
        let left = rule.no_data_seconds.saturating_sub(self.without_value);
        let counted = count.min(left);
        match sample {
            Sample::Untrusted => self.alarm.seconds.untrusted += counted,
            Sample::Missing | Sample::Value(_) => self.alarm.seconds.missing += counted,
        }
        self.without_value += counted;
        (self.without_value >= rule.no_data_seconds).then(|| self.end(second + counted, EndReason::NoData))
    }

    const fn end(&self, second: u64, reason: EndReason) -> Event {
        Event::End { alarm: self.alarm, second, reason }
    }
}

impl Field for Episode {
    fn visit(&mut self, codec: &mut dyn Codec) {
        let mut is_decrease = self.alarm.change == Change::Decrease;
        codec.bool(&mut is_decrease);
        self.alarm.change = if is_decrease { Change::Decrease } else { Change::Increase };
        codec.u64(&mut self.alarm.onset);
        codec.u64(&mut self.alarm.confirmed);
        codec.u64(&mut self.alarm.peak.second);
        codec.f64(&mut self.alarm.peak.observed);
        codec.f64(&mut self.alarm.peak.expected);
        codec.f64(&mut self.alarm.peak.low);
        codec.f64(&mut self.alarm.peak.high);
        self.alarm.seconds.visit(codec);
        codec.f64(&mut self.reported_deviation);
        codec.u64(&mut self.quiet);
        codec.u64(&mut self.quiet_since);
        codec.u64(&mut self.without_value);
    }
}
