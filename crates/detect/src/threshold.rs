//! Fixed limits with hysteresis, as in the original DetectPro (Moreno, PhD thesis, 2015, §5.4.1).
//!
//! A value is above the limit from the upper limit on, and normal again below the clear level. An alarm begins after a
//! minimum duration beyond the limit and ends after a minimum time on the normal side of the clear level.

use crate::episode::{EndRule, Episode};
use crate::event::{Change, Event, Reading, Verdict};
use crate::sample::{Sample, SampleCounts};
use crate::state::{self, Codec, Field, Kind, StateError};
use std::fmt;

/// A limit and the level at which the value is normal again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// The limit, in the unit of the series.
    pub limit: f64,
    /// The clear level: at or below an upper limit, at or above a lower limit.
    pub clear: f64,
}

/// The parameters of a [`Threshold`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// A value at or above this limit is too high.
    pub upper: Option<Limit>,
    /// A value at or below this limit is too low.
    pub lower: Option<Limit>,
    /// Seconds with a value beyond the limit after which an alarm begins, at least 1.
    pub duration: u64,
    /// Seconds with a value on the normal side of the clear level after which an alarm ends, at least 1.
    pub return_seconds: u64,
    /// Seconds in succession without a trusted value after which an alarm ends.
    pub no_data_seconds: u64,
}

impl Default for Parameters {
    fn default() -> Self {
        Self { upper: None, lower: None, duration: 5, return_seconds: 30, no_data_seconds: 300 }
    }
}

/// The reason why parameters are not usable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ParameterError {
    /// There is neither an upper nor a lower limit.
    NoLimit,
    /// A limit or a clear level is not a finite number.
    NotFinite,
    /// The clear level is on the wrong side of its limit.
    Clear(Limit),
    /// The lower limit is not below the upper limit.
    Order {
        /// The lower limit.
        lower: f64,
        /// The upper limit.
        upper: f64,
    },
    /// The duration or the time of return is 0.
    Zero,
}

impl fmt::Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLimit => f.write_str("a threshold needs an upper or a lower limit"),
            Self::NotFinite => f.write_str("limits and clear levels must be finite numbers"),
            Self::Clear(limit) => write!(
                f,
                "the clear level {} is beyond the limit {}: an upper limit has a lower clear level, and a lower limit \
                 has a higher clear level",
                limit.clear, limit.limit
            ),
            Self::Order { lower, upper } => {
                write!(f, "the lower limit {lower} must be below the upper limit {upper}")
            }
            Self::Zero => f.write_str("the duration and the time of return must be at least one second"),
        }
    }
}

impl std::error::Error for ParameterError {}

/// The part of the state that is stored.
#[derive(Clone, Debug, Default, PartialEq)]
struct State {
    last_second: u64,
    /// 0: normal, 1: above the upper limit, 2: below the lower limit.
    beyond: u32,
    /// The first second beyond the limit.
    since: u64,
    /// Samples since then.
    seconds: SampleCounts,
    gap: u64,
    episode: Option<Box<Episode>>,
}

impl Field for State {
    fn visit(&mut self, codec: &mut dyn Codec) {
        codec.u64(&mut self.last_second);
        codec.u32(&mut self.beyond);
        codec.u64(&mut self.since);
        self.seconds.visit(codec);
        codec.u64(&mut self.gap);
        state::optional(&mut self.episode, codec);
    }
}

/// A detector with fixed limits.
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    parameters: Parameters,
    state: State,
}

impl Threshold {
    /// A detector without history.
    ///
    /// # Errors
    /// The parameters contradict each other.
    pub fn new(parameters: Parameters) -> Result<Self, ParameterError> {
        let limits = [parameters.upper, parameters.lower];
        if limits == [None, None] {
            return Err(ParameterError::NoLimit);
        }
        if limits.iter().flatten().any(|limit| !limit.limit.is_finite() || !limit.clear.is_finite()) {
            return Err(ParameterError::NotFinite);
        }
        if let Some(upper) = parameters.upper.filter(|upper| upper.clear > upper.limit) {
            return Err(ParameterError::Clear(upper));
        }
        if let Some(lower) = parameters.lower.filter(|lower| lower.clear < lower.limit) {
            return Err(ParameterError::Clear(lower));
        }
        if let (Some(upper), Some(lower)) = (parameters.upper, parameters.lower)
            && lower.limit >= upper.limit
        {
            return Err(ParameterError::Order { lower: lower.limit, upper: upper.limit });
        }
        if parameters.duration == 0 || parameters.return_seconds == 0 {
            return Err(ParameterError::Zero);
        }
        Ok(Self { parameters, state: State::default() })
    }

    /// Continues with the sample of a second, and appends the events of this second. Seconds between the last second
    /// and this second are missing. A second that is not after the last second is ignored.
    pub fn observe(&mut self, second: u64, sample: Sample, events: &mut Vec<Event>) -> Verdict {
        let last = self.state.last_second;
        if last > 0 && second <= last {
            return Verdict::Withheld;
        }
        if last > 0 && second > last + 1 {
            self.without_value(last + 1, second - last - 1, Sample::Missing, events);
        }
        self.state.last_second = second;
        match sample.trusted() {
            Some(value) => self.value(second, value, events),
            None => {
                self.without_value(second, 1, sample, events);
                Verdict::Withheld
            }
        }
    }

    fn rule(&self) -> EndRule {
        EndRule {
            return_seconds: self.parameters.return_seconds,
            adopt_seconds: u64::MAX,
            no_data_seconds: self.parameters.no_data_seconds,
        }
    }

    fn reading(&self, second: u64, observed: f64, change: Change) -> Reading {
        let (upper, lower) = (self.parameters.upper, self.parameters.lower);
        let high = upper.map_or(f64::INFINITY, |upper| upper.limit);
        let low = lower.map_or(f64::NEG_INFINITY, |lower| lower.limit);
        let expected = if change == Change::Increase { high } else { low };
        Reading { second, observed, expected, low, high }
    }

    fn value(&mut self, second: u64, value: f64, events: &mut Vec<Event>) -> Verdict {
        self.state.gap = 0;
        let rule = self.rule();
        if let Some(mut episode) = self.state.episode.take() {
            let change = episode.change();
            let is_normal = match change {
                Change::Increase => self.parameters.upper.is_none_or(|upper| value < upper.clear),
                Change::Decrease => self.parameters.lower.is_none_or(|lower| value > lower.clear),
            };
            let event = episode.value(self.reading(second, value, change), is_normal, &rule);
            events.extend(event);
            if matches!(event, Some(Event::End { .. })) {
                return Verdict::Normal;
            }
            self.state.episode = Some(episode);
            return Verdict::Alarm;
        }
        let is_above = self.parameters.upper.is_some_and(|upper| value >= upper.limit);
        let is_below = self.parameters.lower.is_some_and(|lower| value <= lower.limit);
        let beyond = if is_above { 1 } else { 2 * u32::from(is_below) };
        if beyond == 0 || beyond != self.state.beyond {
            self.state.since = second;
            self.state.seconds = SampleCounts::default();
        }
        self.state.beyond = beyond;
        self.state.seconds.observed += 1;
        if beyond == 0 || self.state.seconds.observed < self.parameters.duration {
            return Verdict::Normal;
        }
        let change = if is_above { Change::Increase } else { Change::Decrease };
        let reading = self.reading(second, value, change);
        let (episode, event) = Episode::begin(change, self.state.since, self.state.seconds, reading);
        self.state.beyond = 0;
        self.state.episode = Some(Box::new(episode));
        events.push(event);
        Verdict::Alarm
    }

    fn without_value(&mut self, second: u64, count: u64, sample: Sample, events: &mut Vec<Event>) {
        self.state.gap += count;
        match sample {
            Sample::Untrusted => self.state.seconds.untrusted += count,
            Sample::Missing | Sample::Value(_) => self.state.seconds.missing += count,
        }
        if self.state.gap >= self.parameters.no_data_seconds {
            self.state.beyond = 0;
        }
        let rule = self.rule();
        if let Some(episode) = &mut self.state.episode
            && let Some(end) = episode.no_value(sample, second, count, &rule)
        {
            events.push(end);
            self.state.episode = None;
        }
    }

    /// The stored form of the state, without the parameters.
    pub fn store(&self) -> Vec<u8> {
        state::store(Kind::Threshold, &self.state)
    }

    /// Replaces the state by a stored state.
    ///
    /// # Errors
    /// The bytes are no state of this detector; the detector is unchanged.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<(), StateError> {
        let mut state = State::default();
        state::restore(Kind::Threshold, bytes, &mut state)?;
        self.state = state;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EndReason;

    fn upper(limit: f64, clear: f64, duration: u64, return_seconds: u64) -> Threshold {
        let upper = Some(Limit { limit, clear });
        Threshold::new(Parameters { upper, duration, return_seconds, ..Parameters::default() }).expect("parameters")
    }

    fn run(detector: &mut Threshold, samples: &[Sample]) -> Vec<Event> {
        let mut events = Vec::new();
        for (second, sample) in samples.iter().enumerate() {
            detector.observe(100 + second as u64, *sample, &mut events);
        }
        events
    }

    fn values(values: &[f64]) -> Vec<Sample> {
        values.iter().map(|value| Sample::Value(*value)).collect()
    }

    #[test]
    fn contradictory_parameters_are_refused() {
        let limit = |limit, clear| Some(Limit { limit, clear });
        let new = |upper, lower| Threshold::new(Parameters { upper, lower, ..Parameters::default() }).map(|_| ());
        assert_eq!(new(None, None), Err(ParameterError::NoLimit));
        assert_eq!(new(limit(f64::NAN, 1.0), None), Err(ParameterError::NotFinite));
        assert!(matches!(new(limit(5.0, 6.0), None), Err(ParameterError::Clear(_))));
        assert!(matches!(new(None, limit(5.0, 4.0)), Err(ParameterError::Clear(_))));
        assert!(matches!(new(limit(5.0, 5.0), limit(5.0, 5.0)), Err(ParameterError::Order { .. })));
        let upper = limit(5.0, 5.0);
        let zero = Threshold::new(Parameters { upper, duration: 0, ..Parameters::default() });
        assert_eq!(zero.map(|_| ()), Err(ParameterError::Zero));
    }

    #[test]
    fn an_alarm_begins_after_the_duration_and_ends_after_the_return() {
        let mut detector = upper(10.0, 8.0, 3, 2);
        let events = run(&mut detector, &values(&[1.0, 11.0, 12.0, 9.0, 10.0, 11.0, 15.0, 9.0, 9.0, 9.0, 7.0, 7.0]));
        let [Event::Begin(begin), Event::End { alarm, second, reason }] = events[..] else { panic!("{events:?}") };
        assert_eq!((begin.onset, begin.confirmed, begin.peak.observed), (104, 106, 15.0));
        assert_eq!((alarm.peak.observed, alarm.peak.second, second), (15.0, 106, 110));
        assert_eq!(reason, EndReason::Returned);
        assert_eq!(alarm.seconds, SampleCounts { observed: 8, missing: 0, untrusted: 0 });
    }

    #[test]
    fn a_value_between_limit_and_clear_level_neither_begins_nor_ends_an_alarm() {
        let mut detector = upper(10.0, 5.0, 1, 1);
        assert!(run(&mut detector.clone(), &values(&[9.0; 50])).is_empty());
        let mut all = vec![10.0];
        all.extend([6.0; 50]);
        assert_eq!(run(&mut detector, &values(&all)).len(), 1);
    }

    #[test]
    fn a_lower_limit_and_a_new_peak_are_reported() {
        let lower = Some(Limit { limit: 10.0, clear: 12.0 });
        let parameters = Parameters { lower, duration: 2, return_seconds: 2, ..Parameters::default() };
        let mut detector = Threshold::new(parameters).expect("parameters");
        let events = run(&mut detector, &values(&[20.0, 9.0, 8.0, 2.0, 2.0, 13.0, 13.0]));
        let [Event::Begin(begin), Event::Update(update), end] = &events[..] else { panic!("{events:?}") };
        assert_eq!((begin.change, begin.peak.observed), (Change::Decrease, 8.0));
        assert_eq!(update.peak.observed, 2.0);
        assert!(matches!(end, Event::End { reason: EndReason::Returned, .. }));
    }

    #[test]
    fn seconds_without_a_trusted_value_have_no_verdict_and_are_counted() {
        let mut detector = upper(10.0, 10.0, 3, 2);
        let (high, low) = (Sample::Value(11.0), Sample::Value(1.0));
        let samples = [high, Sample::Untrusted, high, Sample::Value(f64::NAN), high, Sample::Missing, low, low];
        let events = run(&mut detector, &samples);
        let [Event::Begin(begin), Event::End { alarm, .. }] = events[..] else { panic!("{events:?}") };
        assert_eq!(begin.seconds, SampleCounts { observed: 3, missing: 1, untrusted: 1 });
        assert_eq!(alarm.seconds, SampleCounts { observed: 5, missing: 2, untrusted: 1 });
    }

    #[test]
    fn an_alarm_without_data_ends() {
        let mut detector = upper(10.0, 10.0, 1, 2);
        let mut events = Vec::new();
        detector.observe(1000, Sample::Value(11.0), &mut events);
        detector.observe(5000, Sample::Value(1.0), &mut events);
        let [_, Event::End { second, reason, .. }] = events[..] else { panic!("{events:?}") };
        assert_eq!((second, reason), (1301, EndReason::NoData));
    }

    #[test]
    fn a_second_that_is_not_after_the_last_second_is_ignored() {
        let mut detector = upper(10.0, 10.0, 1, 2);
        let mut events = Vec::new();
        detector.observe(1000, Sample::Value(1.0), &mut events);
        assert_eq!(detector.observe(1000, Sample::Value(11.0), &mut events), Verdict::Withheld);
        assert!(events.is_empty());
    }

    #[test]
    fn a_restored_state_continues_as_the_original() {
        let seed = testkit::seed("a_restored_state_continues_as_the_original");
        let mut prng = base::Prng::new(seed);
        let (mut original, mut restored) = (upper(10.0, 8.0, 3, 4), upper(10.0, 8.0, 3, 4));
        for second in 1..5000 {
            let sample = match prng.below(20) {
                0 => Sample::Missing,
                1 => Sample::Untrusted,
                _ => Sample::Value(prng.below(8) as f64 + if second / 20 % 2 == 0 { 6.0 } else { 2.0 }),
            };
            let (mut left, mut right) = (Vec::new(), Vec::new());
            let next = restored.store();
            restored = upper(10.0, 8.0, 3, 4);
            restored.restore(&next).expect("a state");
            assert_eq!(original.observe(second, sample, &mut left), restored.observe(second, sample, &mut right));
            assert_eq!(left, right, "seed {seed}");
        }
        assert_eq!(original, restored);
    }
}
