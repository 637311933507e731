//! The detectors of `netgrain alarms test`, chosen by flags.

use super::args::{DetectorArg, TestArgs};
use super::csv_series::Second;
use crate::outcome::Failure;
use detect::{Adaptive, Event, Sample, SynFlood, Threshold, Verdict, adaptive, syn_flood, threshold};
use serde_json::{Value, json};

/// A detector with its parameters.
pub enum Detector {
    Adaptive(adaptive::Checked, Box<Adaptive>),
    Threshold(threshold::Parameters, Threshold),
    SynFlood(syn_flood::Parameters, SynFlood),
}

impl Detector {
    /// The detector of the flags, except the detector `long-term`, whose results are no events.
    ///
    /// # Errors
    /// The parameters contradict each other.
    pub fn new(args: &TestArgs) -> Result<Self, Failure> {
        let seconds = |span: std::time::Duration| span.as_secs();
        match args.detector {
            DetectorArg::Adaptive | DetectorArg::LongTerm => {
                let usual = adaptive::Parameters::default();
                let parameters = adaptive::Parameters {
                    run_length: args.false_alarm_interval.as_secs_f64(),
                    strength: args.strength,
                    duration: args.duration.map_or(usual.duration, seconds),
                    return_seconds: args.return_time.map_or(usual.return_seconds, seconds),
                    adopt_seconds: seconds(args.adopt),
                    ..usual
                };
                let checked = adaptive::Checked::new(parameters).map_err(Failure::say)?;
                Ok(Self::Adaptive(checked, Box::default()))
            }
            DetectorArg::Threshold => {
                let usual = threshold::Parameters::default();
                let limit = |limit: Option<f64>, clear: Option<f64>| {
                    limit.map(|limit| threshold::Limit { limit, clear: clear.unwrap_or(limit) })
                };
                let parameters = threshold::Parameters {
                    upper: limit(args.upper, args.clear_upper),
                    lower: limit(args.lower, args.clear_lower),
                    duration: args.duration.map_or(usual.duration, seconds),
                    return_seconds: args.return_time.map_or(usual.return_seconds, seconds),
                    ..usual
                };
                let detector = Threshold::new(parameters)
                    .map_err(|e| Failure::Said(format!("--detector threshold: {e} (--upper, --lower)")))?;
                Ok(Self::Threshold(parameters, detector))
            }
            DetectorArg::SynFlood => {
                let parameters =
                    syn_flood::Parameters { period: seconds(args.period), ..syn_flood::Parameters::default() };
                Ok(Self::SynFlood(parameters, SynFlood::new(parameters).map_err(Failure::say)?))
            }
        }
    }

    /// Continues with a second.
    pub fn observe(&mut self, second: &Second, events: &mut Vec<Event>) -> Verdict {
        let sample = |index: usize| second.samples.get(index).copied().unwrap_or(Sample::Missing);
        match self {
            Self::Adaptive(parameters, detector) => detector.observe(parameters, second.second, sample(0), events),
            Self::Threshold(_, detector) => detector.observe(second.second, sample(0), events),
            Self::SynFlood(_, detector) => detector.observe(second.second, sample(0), sample(1), events),
        }
    }

    /// The parameters as a JSON object.
    pub fn parameters(&self) -> Value {
        match self {
            Self::Adaptive(checked, _) => {
                let of = checked.get();
                json!({
                    "false_alarm_interval_seconds": of.run_length,
                    "strength": of.strength,
                    "duration_seconds": of.duration,
                    "return_seconds": of.return_seconds,
                    "adopt_seconds": of.adopt_seconds,
                    "spread_min": of.spread_min,
                })
            }
            Self::Threshold(of, _) => json!({
                "upper": of.upper.map(|upper| upper.limit),
                "clear_upper": of.upper.map(|upper| upper.clear),
                "lower": of.lower.map(|lower| lower.limit),
                "clear_lower": of.lower.map(|lower| lower.clear),
                "duration_seconds": of.duration,
                "return_seconds": of.return_seconds,
            }),
            Self::SynFlood(of, _) => json!({
                "period_seconds": of.period,
                "bound": of.bound,
                "limit": of.limit,
                "fin_min": of.fin_min,
            }),
        }
    }
}
