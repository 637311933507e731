//! SYN floods by non-parametric CUSUM (Wang, Zhang and Shin: "Detecting SYN Flooding Attacks", INFOCOM 2002).
//!
//! Each connection has a SYN at its begin and a FIN at its end, so the difference of both, divided by the mean number
//! of FIN, is small and does not depend on the site or the time of day. With the upper bound `a` of the normal
//! difference, the sum `y = max(0, y + (SYN - FIN) / F - a)` over observation periods raises an alarm above `N`. The
//! paper has periods of 20 s, `a` = 0.35 and `N` = 1.05, which is three periods at twice `a`.
//!
//! Differences from the paper: `F` is not updated during an alarm, and is at least [`Parameters::fin_min`]; the sum is
//! limited to `2 N`, so that the end of a flood is visible after at most `N / a` periods without a flood.

use crate::episode::{EndRule, Episode};
use crate::event::{Change, Event, Reading, Verdict};
use crate::sample::{Sample, SampleCounts};
use crate::state::{self, Codec, Field, Kind, StateError};
use std::fmt;

/// The parameters of a [`SynFlood`] detector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// Length of an observation period, in seconds with a value.
    pub period: u64,
    /// `a`: the upper bound of the normal mean of the normalised difference.
    pub bound: f64,
    /// `N`: the sum above which an alarm begins.
    pub limit: f64,
    /// The weight of the previous mean in the mean number of FIN, at least 0 and below 1.
    pub memory: f64,
    /// The smallest mean number of FIN in a period, so that a site with few connections raises no alarm for each SYN.
    pub fin_min: f64,
    /// Seconds in succession without a trusted value after which an alarm ends.
    pub no_data_seconds: u64,
}

impl Default for Parameters {
    fn default() -> Self {
        Self { period: 20, bound: 0.35, limit: 1.05, memory: 0.9, fin_min: 50.0, no_data_seconds: 300 }
    }
}

/// The reason why parameters are not usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterError {
    /// The period is 0.
    Period,
    /// The bound, the limit or the smallest number of FIN is not a positive number.
    NotPositive,
    /// [`Parameters::memory`] is not in the range from 0 (inclusive) to 1 (exclusive).
    Memory,
}

impl fmt::Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Period => "the observation period must be at least one second",
            Self::NotPositive => "bound, limit and smallest number of FIN must be positive numbers",
            Self::Memory => "memory, the weight of the previous mean number of FIN, must be at least 0 and below 1",
        })
    }
}

impl std::error::Error for ParameterError {}

#[derive(Clone, Debug, Default, PartialEq)]
struct State {
    last_second: u64,
    /// Sums of the present period.
    syn: f64,
    fin: f64,
    seconds: SampleCounts,
    /// The mean number of FIN in a period; 0 before the first period.
    mean_fin: f64,
    sum: f64,
    /// The first second of the present period, and of the periods since the sum was 0.
    period_begin: u64,
    run_begin: u64,
    run: SampleCounts,
    gap: u64,
    episode: Option<Box<Episode>>,
}

impl Field for State {
    fn visit(&mut self, codec: &mut dyn Codec) {
        codec.u64(&mut self.last_second);
        codec.f64(&mut self.syn);
        codec.f64(&mut self.fin);
        self.seconds.visit(codec);
        codec.f64(&mut self.mean_fin);
        codec.f64(&mut self.sum);
        codec.u64(&mut self.period_begin);
        codec.u64(&mut self.run_begin);
        self.run.visit(codec);
        codec.u64(&mut self.gap);
        state::optional(&mut self.episode, codec);
    }
}

/// The detector of SYN floods. Its readings have the unit SYN per period.
#[derive(Clone, Debug, PartialEq)]
pub struct SynFlood {
    parameters: Parameters,
    state: State,
}

impl SynFlood {
    /// A detector without history.
    ///
    /// # Errors
    /// A parameter is out of its range.
    pub fn new(parameters: Parameters) -> Result<Self, ParameterError> {
        let positive = [parameters.bound, parameters.limit, parameters.fin_min];
        if parameters.period == 0 {
            Err(ParameterError::Period)
        } else if !positive.iter().all(|value| value.is_finite() && *value > 0.0) {
            Err(ParameterError::NotPositive)
        } else if !(0.0..1.0).contains(&parameters.memory) {
            Err(ParameterError::Memory)
        } else {
            Ok(Self { parameters, state: State::default() })
        }
    }

    /// Continues with the numbers of SYN and FIN of a second, and appends the events of this second. If either sample
    /// has no trusted value, the second has none.
    pub fn observe(&mut self, second: u64, syn: Sample, fin: Sample, events: &mut Vec<Event>) -> Verdict {
        let last = self.state.last_second;
        if last > 0 && second <= last {
            return Verdict::Withheld;
        }
        if last > 0 && second > last + 1 {
            self.without_value(last + 1, second - last - 1, Sample::Missing, events);
        }
        self.state.last_second = second;
        let (Some(syn_count), Some(fin_count)) = (syn.trusted(), fin.trusted()) else {
            let sample = if [syn, fin].contains(&Sample::Untrusted) { Sample::Untrusted } else { Sample::Missing };
            self.without_value(second, 1, sample, events);
            return Verdict::Withheld;
        };
        let state = &mut self.state;
        state.gap = 0;
        if state.seconds.total() == 0 {
            state.period_begin = second;
        }
        state.seconds.observed += 1;
        state.syn += syn_count;
        state.fin += fin_count;
        if state.seconds.observed >= self.parameters.period {
            self.end_period(second, events);
        }
        match (&self.state.episode, self.state.mean_fin > 0.0) {
            (Some(_), _) => Verdict::Alarm,
            (None, false) => Verdict::WarmUp,
            (None, true) => Verdict::Normal,
        }
    }

    fn rule(&self) -> EndRule {
        // One period with the sum below half of the limit ends the alarm.
        EndRule { return_seconds: 1, adopt_seconds: u64::MAX, no_data_seconds: self.parameters.no_data_seconds }
    }

    fn end_period(&mut self, second: u64, events: &mut Vec<Event>) {
        let (parameters, rule) = (self.parameters, self.rule());
        let state = &mut self.state;
        let (syn, fin, seconds) = (state.syn, state.fin, state.seconds);
        (state.syn, state.fin, state.seconds) = (0.0, 0.0, SampleCounts::default());
        if state.mean_fin == 0.0 {
            state.mean_fin = fin.max(parameters.fin_min);
            return;
        }
        let normal_fin = state.mean_fin.max(parameters.fin_min);
        let score = (syn - fin) / normal_fin - parameters.bound;
        if state.sum == 0.0 {
            (state.run_begin, state.run) = (state.period_begin, SampleCounts::default());
        }
        state.run.observed += seconds.observed;
        state.run.missing += seconds.missing;
        state.run.untrusted += seconds.untrusted;
        state.sum = (state.sum + score).clamp(0.0, 2.0 * parameters.limit);
        let high = fin + parameters.bound * normal_fin;
        let reading = Reading { second, observed: syn, expected: fin, low: 0.0, high };
        if let Some(mut episode) = state.episode.take() {
            let is_normal = score < 0.0 && state.sum < parameters.limit;
            let event = episode.value(reading, is_normal, &rule);
            events.extend(event);
            match event {
                Some(Event::End { .. }) => state.sum = 0.0,
                _ => state.episode = Some(episode),
            }
        } else if state.sum > parameters.limit {
            let (episode, event) = Episode::begin(Change::Increase, state.run_begin, state.run, reading);
            events.push(event);
            state.episode = Some(Box::new(episode));
        } else {
            state.mean_fin = parameters.memory * state.mean_fin + (1.0 - parameters.memory) * fin;
            // The mean is above 0 from the first period on.
            state.mean_fin = state.mean_fin.max(f64::MIN_POSITIVE);
        }
    }

    fn without_value(&mut self, second: u64, count: u64, sample: Sample, events: &mut Vec<Event>) {
        let rule = self.rule();
        let state = &mut self.state;
        state.gap += count;
        if state.gap >= self.parameters.no_data_seconds {
            // A period with a long gap has no meaning.
            (state.syn, state.fin, state.seconds, state.sum) = (0.0, 0.0, SampleCounts::default(), 0.0);
        } else if state.seconds.total() > 0 {
            match sample {
                Sample::Untrusted => state.seconds.untrusted += count,
                Sample::Missing | Sample::Value(_) => state.seconds.missing += count,
            }
        }
        if let Some(episode) = &mut state.episode
            && let Some(end) = episode.no_value(sample, second, count, &rule)
        {
            events.push(end);
            state.episode = None;
        }
    }

    /// The stored form of the state, without the parameters.
    pub fn store(&self) -> Vec<u8> {
        state::store(Kind::SynFlood, &self.state)
    }

    /// Replaces the state by a stored state.
    ///
    /// # Errors
    /// The bytes are no state of this detector; the detector is unchanged.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<(), StateError> {
        let mut state = State::default();
        state::restore(Kind::SynFlood, bytes, &mut state)?;
        self.state = state;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    fn detector() -> SynFlood {
        SynFlood::new(Parameters::default()).expect("parameters")
    }

    /// Feeds `seconds` seconds with about `rate` connections per second and a flood from `flood` on.
    fn run(
        detector: &mut SynFlood,
        prng: &mut Prng,
        seconds: std::ops::Range<u64>,
        rate: u64,
        flood: f64,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        for second in seconds {
            // 10 % of the connections end without FIN.
            let syn = prng.below(2 * rate + 1) as f64;
            let fin = prng.below(2 * rate + 1) as f64 * 0.9;
            detector.observe(second, Sample::Value(syn + flood), Sample::Value(fin), &mut events);
        }
        events
    }

    #[test]
    fn parameters_out_of_range_are_refused() {
        let usual = Parameters::default();
        let new = |parameters| SynFlood::new(parameters).map(|_| ());
        assert_eq!(new(Parameters { period: 0, ..usual }), Err(ParameterError::Period));
        assert_eq!(new(Parameters { limit: 0.0, ..usual }), Err(ParameterError::NotPositive));
        assert_eq!(new(Parameters { fin_min: f64::NAN, ..usual }), Err(ParameterError::NotPositive));
        assert_eq!(new(Parameters { memory: 1.0, ..usual }), Err(ParameterError::Memory));
    }

    #[test]
    fn a_day_of_connections_of_any_rate_raises_no_alarm() {
        let mut prng = Prng::new(testkit::seed("a_day_of_connections_of_any_rate_raises_no_alarm"));
        for rate in [0, 1, 10, 1000] {
            assert_eq!(run(&mut detector(), &mut prng, 1000..87_400, rate, 0.0), [], "{rate}");
        }
    }

    #[test]
    fn a_flood_of_twice_the_bound_is_found_within_three_periods() {
        let mut prng = Prng::new(testkit::seed("a_flood_of_twice_the_bound_is_found_within_three_periods"));
        let mut detector = detector();
        assert_eq!(run(&mut detector, &mut prng, 1000..11_000, 100, 0.0), []);
        let events = run(&mut detector, &mut prng, 11_000..11_200, 100, 90.0);
        let Some(Event::Begin(begin)) = events.first() else { panic!("{events:?}") };
        assert!(begin.confirmed < 11_000 + 3 * 20, "{begin:?}");
        assert!(begin.onset >= 10_900 && begin.onset <= 11_020, "{begin:?}");
        assert!(begin.peak.observed > begin.peak.high, "{begin:?}");
        let after = run(&mut detector, &mut prng, 11_200..12_000, 100, 0.0);
        let Some(Event::End { second, .. }) = after.last() else { panic!("{after:?}") };
        assert!(*second <= 11_200 + 6 * 20, "{after:?}");
    }

    #[test]
    fn untrusted_seconds_do_not_count_as_a_period() {
        let mut detector = detector();
        let mut events = Vec::new();
        for second in 1000..1100 {
            detector.observe(second, Sample::Value(100.0), Sample::Value(100.0), &mut events);
        }
        for second in 1100..1200 {
            let verdict = detector.observe(second, Sample::Value(9000.0), Sample::Untrusted, &mut events);
            assert_eq!(verdict, Verdict::Withheld);
        }
        assert_eq!(events, []);
    }

    #[test]
    fn a_restored_state_continues_as_the_original() {
        let mut prng = Prng::new(testkit::seed("a_restored_state_continues_as_the_original"));
        let mut original = detector();
        run(&mut original, &mut prng, 1000..3010, 50, 0.0);
        run(&mut original, &mut prng, 3010..3090, 50, 200.0);
        let mut restored = detector();
        restored.restore(&original.store()).expect("a state");
        assert_eq!(restored, original);
        assert!(original.store().len() <= 1024);
        assert_eq!(restored.restore(&[]), Err(StateError::NoState));
    }
}
