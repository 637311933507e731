//! The default detector: an adaptive baseline, and CUSUM on the standardised residuals.
//!
//! * The expected value is the nearer of two levels: the recent level, and the level by time of week (robust means of
//!   each hour of the week, moved by a local correction).
//! * Abrupt changes: the distance from the recent level, without its correlation from second to second, is standardised
//!   by a robust spread. The spread has a floor: the square root of the level for counts (Poisson), and a share of the
//!   level for all series. Two one-sided CUSUM have limits that are designed for an average run length between false
//!   alarms ([`cusum`]).
//! * Slow changes: CUSUM on the means of the residuals over ten seconds, with the same design.
//! * During an alarm, nothing is learned. An alarm that lasts longer than [`Parameters::adopt_seconds`] ends, and its
//!   level becomes normal.
//!
//! [`cusum`]: crate::cusum

use crate::cusum::{self, Cusum, SCORE_MAX, ScoreDistribution};
use crate::episode::{EndRule, Episode};
use crate::event::{Change, EndReason, Event, Reading, Verdict};
use crate::levels::Levels;
use crate::profile::{Hour, Profile, SLOTS, slot_of};
use crate::residuals::Residuals;
use crate::sample::{Sample, SampleCounts};
use crate::slow::{SlowChange, SlowSums};
use crate::state::{self, Codec, Field, Kind, StateError};
use std::fmt;

/// Seconds with a value before the first verdict.
pub const WARM_UP_SECONDS: u32 = 900;

/// Seconds with a value, after a gap or after a new level was adopted, before the next verdict.
const SETTLE_SECONDS: u16 = 120;

/// A gap of this length ends the memory of the sums.
const SHORT_GAP_SECONDS: u32 = 10;

/// After a gap of this length, the recent level is estimated anew.
const LONG_GAP_SECONDS: u32 = 300;

/// Seconds after which the limits of the sums are computed anew.
const DESIGN_SECONDS: u32 = 600;

/// The smallest number of values (one per second) with which an hour updates its slot of the profile.
const HOUR_SECONDS_MIN: u16 = 1800;

/// The largest and the smallest reference value of the sums, in standard deviations of the scores.
const REFERENCE_MAX: f64 = 1.5;
const REFERENCE_MIN: f64 = 0.4;

/// A level of the profile above this multiple of its spread changes the seasonal level by a factor.
const PROPORTIONAL_SPREADS: f64 = 3.0;

/// The smallest spread of a series of counts.
const COUNT_SPREAD_MIN: f64 = 0.5;

/// The smallest spread of the means of half a minute, as a share of the spread of the seconds: a slow change below
/// about one spread of the seconds is no alarm.
const MEAN_SPREAD_SHARE: f64 = 0.7;

/// A residual below this multiple of the spread agrees with the level by time of week.
const UNUSUAL_SPREADS: f64 = 1.0;

/// The band of normal values, in spreads on each side of the expected value.
const BAND_SPREADS: f64 = 3.0;

/// The parameters of an [`Adaptive`] detector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// The designed average time between two false alarms, in seconds.
    pub run_length: f64,
    /// The strength of the changes to detect, in standard deviations of the series about its expected value.
    pub strength: f64,
    /// Seconds of change before an alarm begins.
    pub duration: u64,
    /// Seconds in the normal range after which an alarm ends.
    pub return_seconds: u64,
    /// Seconds after which a new level is normal.
    pub adopt_seconds: u64,
    /// Seconds in succession without a trusted value after which an alarm ends.
    pub no_data_seconds: u64,
    /// The smallest spread, as a share of the expected value.
    pub spread_min: f64,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            run_length: 12.0 * 7.0 * 86_400.0,
            strength: 4.0,
            duration: 3,
            return_seconds: 15,
            adopt_seconds: 3600,
            no_data_seconds: 300,
            spread_min: 0.005,
        }
    }
}

/// The reason why parameters are not usable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ParameterError {
    /// The run length is not from an hour to a thousand years.
    RunLength,
    /// The strength is not from 0.5 to 100.
    Strength,
    /// A duration is 0.
    Zero,
    /// The smallest spread is not from 0 to 1.
    Spread,
}

impl fmt::Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RunLength => "the time between false alarms must be from an hour to a thousand years",
            Self::Strength => "the strength must be from 0.5 to 100 standard deviations",
            Self::Zero => "durations must be at least one second",
            Self::Spread => "the smallest spread must be a share of the expected value, from 0 to 1",
        })
    }
}

impl std::error::Error for ParameterError {}

impl Parameters {
    fn check(&self) -> Result<(), ParameterError> {
        let durations = [self.duration, self.return_seconds, self.adopt_seconds, self.no_data_seconds];
        if !(3600.0..=3.2e10).contains(&self.run_length) {
            Err(ParameterError::RunLength)
        } else if !(0.5..=100.0).contains(&self.strength) {
            Err(ParameterError::Strength)
        } else if durations.contains(&0) {
            Err(ParameterError::Zero)
        } else if !(0.0..=1.0).contains(&self.spread_min) {
            Err(ParameterError::Spread)
        } else {
            Ok(())
        }
    }

    const fn end_rule(&self) -> EndRule {
        EndRule {
            return_seconds: self.return_seconds,
            adopt_seconds: self.adopt_seconds,
            no_data_seconds: self.no_data_seconds,
        }
    }
}

/// The values of the present hour.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct HourSums {
    /// The slot, and a mark that the hour has begun.
    slot: u16,
    count: u16,
    squares: f32,
    levels: f64,
}

impl Field for HourSums {
    fn visit(&mut self, codec: &mut dyn Codec) {
        codec.u16(&mut self.slot);
        codec.u16(&mut self.count);
        codec.f32(&mut self.squares);
        codec.f64(&mut self.levels);
    }
}

/// The reference value and the limits of the two sums, in standard deviations of the scores.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Design {
    reference: f32,
    increase: f32,
    decrease: f32,
    /// Values until the next computation.
    left: u32,
}

impl Field for Design {
    fn visit(&mut self, codec: &mut dyn Codec) {
        codec.f32(&mut self.reference);
        codec.f32(&mut self.increase);
        codec.f32(&mut self.decrease);
        codec.u32(&mut self.left);
    }
}

/// The part of the detector that is stored.
#[derive(Clone, Debug, Default, PartialEq)]
struct State {
    last_second: u64,
    profile: Profile,
    hour: HourSums,
    levels: Levels,
    residuals: Residuals,
    scores: ScoreDistribution,
    design: Design,
    increase: Cusum,
    decrease: Cusum,
    slow: SlowSums,
    /// The spread of the present slot.
    slot_spread: f32,
    /// A residual below this level, in the sense of the change, is normal during an alarm.
    return_level: f32,
    /// True if a value was no whole number.
    has_fractions: bool,
    /// Values until the next verdict.
    settle: u16,
    /// Seconds in succession without a trusted value.
    gap: u32,
    /// Seconds without a trusted value since a sum was 0.
    missing: u16,
    untrusted: u16,
    episode: Option<Box<Episode>>,
}

impl Field for State {
    fn visit(&mut self, codec: &mut dyn Codec) {
        codec.u64(&mut self.last_second);
        self.profile.visit(codec);
        self.hour.visit(codec);
        self.levels.visit(codec);
        self.residuals.visit(codec);
        self.scores.visit(codec);
        self.design.visit(codec);
        self.increase.visit(codec);
        self.decrease.visit(codec);
        self.slow.visit(codec);
        codec.f32(&mut self.slot_spread);
        codec.f32(&mut self.return_level);
        codec.bool(&mut self.has_fractions);
        codec.u16(&mut self.settle);
        codec.u32(&mut self.gap);
        codec.u16(&mut self.missing);
        codec.u16(&mut self.untrusted);
        state::optional(&mut self.episode, codec);
    }
}

/// The adaptive detector.
#[derive(Clone, Debug, PartialEq)]
pub struct Adaptive {
    state: State,
}

/// Parameters that were checked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Checked(Parameters);

impl Checked {
    /// Checks parameters. All detectors of a kind share them, so that a detector stores its state alone.
    ///
    /// # Errors
    /// A parameter is out of its range.
    pub fn new(parameters: Parameters) -> Result<Self, ParameterError> {
        parameters.check().map(|()| Self(parameters))
    }

    /// The parameters.
    pub const fn get(&self) -> &Parameters {
        &self.0
    }
}

impl Default for Adaptive {
    fn default() -> Self {
        let state = State { settle: WARM_UP_SECONDS as u16, ..State::default() };
        Self { state }
    }
}

impl Adaptive {
    /// Continues with the sample of a second, and appends the events of this second. Seconds between the last second
    /// and this second are missing. A second that is not after the last second is ignored.
    pub fn observe(&mut self, parameters: &Checked, second: u64, sample: Sample, events: &mut Vec<Event>) -> Verdict {
        let last = self.state.last_second;
        if last > 0 && second <= last {
            return Verdict::Withheld;
        }
        if last > 0 && second > last + 1 {
            self.without_value(&parameters.0, last + 1, second - last - 1, Sample::Missing, events);
        }
        self.state.last_second = second;
        match sample.trusted() {
            Some(value) => self.value(&parameters.0, second, value, events),
            None => {
                self.without_value(&parameters.0, second, 1, sample, events);
                Verdict::Withheld
            }
        }
    }

    /// The number of hours of the week for which the detector has a level, of 168.
    pub fn trained_hours(&self) -> usize {
        self.state.profile.trained()
    }

    /// Number of hours of a week.
    pub const HOURS: usize = SLOTS;

    fn without_value(
        &mut self,
        parameters: &Parameters,
        second: u64,
        count: u64,
        sample: Sample,
        events: &mut Vec<Event>,
    ) {
        let state = &mut self.state;
        let number = u32::try_from(count).unwrap_or(u32::MAX);
        let withheld = u16::try_from(count).unwrap_or(u16::MAX);
        match sample {
            Sample::Untrusted => state.untrusted = state.untrusted.saturating_add(withheld),
            Sample::Missing | Sample::Value(_) => state.missing = state.missing.saturating_add(withheld),
        }
        state.gap = state.gap.saturating_add(number);
        state.residuals.forget_last();
        if state.gap >= SHORT_GAP_SECONDS {
            state.reset_sums();
        }
        if let Some(episode) = &mut state.episode
            && let Some(end) = episode.no_value(sample, second, count, &parameters.end_rule())
        {
            events.push(end);
            state.episode = None;
        }
    }

    fn value(&mut self, parameters: &Parameters, second: u64, value: f64, events: &mut Vec<Event>) -> Verdict {
        let state = &mut self.state;
        state.has_fractions |= value.fract() != 0.0;
        if !state.levels.is_started() && state.residuals.count() == 0 {
            state.levels.restart(value);
            state.residuals.restart(value.abs() / 10.0 + value.abs().sqrt());
        }
        state.end_gap(value);
        state.begin_hour(second);
        state.levels.advance(state.profile.level(second), PROPORTIONAL_SPREADS * state.residuals.spread());
        let residual = state.levels.residual(value);
        let expected = value - residual;
        let floor = state.floor(parameters, expected);
        if state.episode.is_some() {
            return state.continue_alarm(parameters, second, value, floor, events);
        }
        let scored = state.residuals.score(value - state.levels.recent(), floor);
        if let Some((change, run)) = state.add_values(parameters, scored.score, value, residual) {
            let (missing, untrusted) = (u64::from(state.missing), u64::from(state.untrusted));
            state.reset_sums();
            let band = BAND_SPREADS * state.residuals.spread().max(floor);
            let reading = Reading { second, observed: value, expected, low: expected - band, high: expected + band };
            let seconds = SampleCounts { observed: run, missing, untrusted };
            let onset = second.saturating_sub(seconds.total() - 1);
            let (episode, event) = Episode::begin(change, onset, seconds, reading);
            events.push(event);
            state.episode = Some(Box::new(episode));
            state.residuals.forget_last();
            return Verdict::Alarm;
        }
        state.learn(value, scored, floor);
        if state.residuals.count() < WARM_UP_SECONDS {
            Verdict::WarmUp
        } else if state.settle > 0 {
            Verdict::Withheld
        } else {
            Verdict::Normal
        }
    }

    /// The stored form of the state, without the parameters.
    pub fn store(&self) -> Vec<u8> {
        state::store(Kind::Adaptive, &self.state)
    }

    /// A detector with a stored state.
    ///
    /// # Errors
    /// The bytes are no state of this detector.
    pub fn restore(bytes: &[u8]) -> Result<Self, StateError> {
        let mut state = State::default();
        state::restore(Kind::Adaptive, bytes, &mut state)?;
        Ok(Self { state })
    }
}

impl State {
    fn reset_sums(&mut self) {
        self.increase = Cusum::default();
        self.decrease = Cusum::default();
        self.slow.reset();
        (self.missing, self.untrusted) = (0, 0);
    }

    /// After a long gap, the values can have any level.
    fn end_gap(&mut self, value: f64) {
        if self.gap >= LONG_GAP_SECONDS && self.episode.is_none() {
            self.levels.restart(value);
            self.settle = self.settle.max(SETTLE_SECONDS);
        }
        self.gap = 0;
    }

    /// At the begin of an hour, the values of the last hour train their slot.
    fn begin_hour(&mut self, second: u64) {
        let slot = slot_of(second) as u16 + 1;
        if self.hour.slot == slot {
            return;
        }
        let last = self.hour;
        if last.count >= HOUR_SECONDS_MIN && last.slot > 0 {
            let count = f64::from(last.count);
            let hour = Hour { level: last.levels / count, spread: (f64::from(last.squares) / count).sqrt() };
            self.profile.learn(last.slot as usize - 1, hour);
            self.scores.age();
        }
        self.hour = HourSums { slot, ..HourSums::default() };
        let spread = |second| self.profile.spread(second).unwrap_or(0.0);
        self.slot_spread = spread(second).max(spread(second + 1800)) as f32;
    }

    /// The smallest spread at an expected value.
    fn floor(&self, parameters: &Parameters, expected: f64) -> f64 {
        let counts = if self.has_fractions { f64::MIN_POSITIVE } else { expected.abs().sqrt().max(COUNT_SPREAD_MIN) };
        counts.max(parameters.spread_min * expected.abs())
    }

    /// Adds a score to both sums. Returns the change that is confirmed, and the seconds with a value since its onset.
    fn add_score(&mut self, parameters: &Parameters, score: f64) -> Option<(Change, u64)> {
        if self.settle > 0 {
            self.settle -= 1;
            return None;
        }
        if self.design.left == 0 {
            self.design(parameters);
        }
        self.design.left -= 1;
        let reference = f64::from(self.design.reference);
        self.increase.add(score, reference);
        self.decrease.add(-score, reference);
        if self.increase.run == 0 && self.decrease.run == 0 {
            (self.missing, self.untrusted) = (0, 0);
        }
        let is_over = |cusum: &Cusum, limit: f32| cusum.sum > limit && u64::from(cusum.above) >= parameters.duration;
        if is_over(&self.increase, self.design.increase) {
            Some((Change::Increase, self.increase.run.into()))
        } else if is_over(&self.decrease, self.design.decrease) {
            Some((Change::Decrease, self.decrease.run.into()))
        } else {
            None
        }
    }

    /// Adds a second to all sums. Returns the change that is confirmed, and the seconds with a value since its onset.
    fn add_values(&mut self, parameters: &Parameters, score: f64, value: f64, residual: f64) -> Option<(Change, u64)> {
        let spread = self.residuals.spread().max(self.floor(parameters, value - residual));
        let fast = self.add_score(parameters, score);
        let slow = self.add_slow(parameters, residual, spread);
        if let Some((change, _)) = fast
            && residual * change.sign() < UNUSUAL_SPREADS * spread
        {
            // The values left the recent level, but agree with the level by time of week.
            self.levels.set_recent(value - residual);
            self.reset_sums();
            return None;
        }
        if let Some(found) = fast {
            self.return_level = (parameters.strength / 2.0 * spread) as f32;
            return Some(found);
        }
        slow.map(|slow| {
            self.return_level = (slow.mean.abs() / 2.0) as f32;
            (slow.change, slow.seconds)
        })
    }

    /// Adds a residual to the sums of slow changes. The sums are used only if there is a seasonal level; without it,
    /// the usual rise each morning would be reported as a slow change.
    fn add_slow(&mut self, parameters: &Parameters, residual: f64, spread: f64) -> Option<SlowChange> {
        if self.settle > 0 || !self.levels.has_seasonal() {
            return None;
        }
        let limited = residual.clamp(-SCORE_MAX * spread, SCORE_MAX * spread);
        let least = (MEAN_SPREAD_SHARE * spread).max(f64::from(self.slot_spread));
        self.slow.add(limited, least, parameters.run_length)
    }

    /// Computes the reference value for the smallest change to detect, and the limits for the run length. Each of the
    /// two sums gets half of the rate of false alarms.
    fn design(&mut self, parameters: &Parameters) {
        let visible = parameters.strength * self.residuals.visibility();
        let reference = (visible / 2.0).clamp(REFERENCE_MIN, REFERENCE_MAX);
        let run_length = 2.0 * parameters.run_length;
        let ratio = |length| self.residuals.sum_ratio(length);
        let limit = |sign| cusum::limit(run_length, reference, self.scores.exponent(sign, reference), ratio);
        // One extreme value less than the smallest duration raises no alarm together with a usual value.
        let least = (parameters.duration - 1) as f64 * (SCORE_MAX - reference) + 1.5;
        let (increase, decrease) = (limit(1.0).max(least), limit(-1.0).max(least));
        self.design = Design {
            reference: reference as f32,
            increase: increase as f32,
            decrease: decrease as f32,
            left: DESIGN_SECONDS,
        };
    }

    /// Learns from a value, but not its level while a sum is above half of its limit, because the value probably
    /// belongs to a change.
    fn learn(&mut self, value: f64, scored: crate::residuals::Scored, floor: f64) {
        let spread = self.residuals.spread().max(floor);
        let is_suspicious = self.increase.sum > self.design.increase / 2.0
            || self.decrease.sum > self.design.decrease / 2.0
            || self.slow.is_suspicious();
        if !is_suspicious || self.settle > 0 {
            let factor = self.levels.learn(value, spread, PROPORTIONAL_SPREADS * spread);
            // Noise of traffic is proportional to its level, or, for counts of packets, to the root of its level.
            self.residuals.scale(if factor > 1.0 { factor } else { factor.sqrt() });
        }
        if self.settle == 0 {
            self.scores.add(scored.score);
        }
        self.residuals.learn(&scored, is_suspicious);
        let distance = (value - self.levels.recent()).clamp(-BAND_SPREADS * spread, BAND_SPREADS * spread);
        self.hour.count += 1;
        self.hour.levels += self.levels.recent() + distance;
        let residual = self.levels.residual(value).clamp(-SCORE_MAX * spread, SCORE_MAX * spread);
        self.hour.squares += (residual * residual) as f32;
    }

    fn continue_alarm(
        &mut self,
        parameters: &Parameters,
        second: u64,
        value: f64,
        floor: f64,
        events: &mut Vec<Event>,
    ) -> Verdict {
        let Some(mut episode) = self.episode.take() else { return Verdict::Normal };
        self.levels.follow_alarm(value);
        let residual = self.levels.residual(value);
        let (expected, spread) = (value - residual, self.residuals.spread().max(floor));
        let band = BAND_SPREADS * spread;
        let reading = Reading { second, observed: value, expected, low: expected - band, high: expected + band };
        let is_normal = residual * episode.change().sign() < f64::from(self.return_level);
        let event = episode.value(reading, is_normal, &parameters.end_rule());
        events.extend(event);
        let Some(Event::End { reason, .. }) = event else {
            self.episode = Some(episode);
            return Verdict::Alarm;
        };
        self.reset_sums();
        self.levels.set_recent(expected);
        self.residuals.continue_at(residual.clamp(-band, band));
        if reason == EndReason::Adopted {
            let level = self.levels.during_alarm();
            self.levels.restart(level);
            self.levels.learn(level, spread, f64::INFINITY);
            self.residuals.widen();
            self.settle = SETTLE_SECONDS;
        }
        Verdict::Normal
    }
}

#[cfg(test)]
mod tests;
