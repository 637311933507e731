//! The quality of timestamps as text and as JSON.

use crate::style::plural;
use base::{ClockSteps, TimestampQuality};
use std::fmt;

/// The quality of timestamps in one line; empty if nothing is known.
pub fn describe(quality: &TimestampQuality) -> String {
    let mut parts = Vec::new();
    if !quality.methods.is_empty() {
        let methods: Vec<&str> = quality.methods.iter().map(|method| method.name()).collect();
        parts.push(format!("methods: {}", methods.join(", ")));
    }
    if let Some(deviation) = quality.deviation_nanos {
        parts.push(format!("estimated standard deviation at most {deviation} ns"));
    }
    if let Some(clock) = quality.clock {
        let state = if clock.synchronised { "synchronised" } else { "not synchronised" };
        let (error, ppb) = (clock.maximum_error_micros, clock.frequency_ppb);
        parts.push(format!("system clock {state}, maximum error {error} \u{b5}s, correction {ppb} ppb"));
    }
    if quality.steps.steps > 0 {
        parts.push(Steps(quality.steps).to_string());
    }
    parts.join("; ")
}

/// Steps of the system clock as text.
struct Steps(ClockSteps);

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(ClockSteps { steps, forward_nanos, back_nanos }) = self;
        write!(f, "the system clock was set {}", plural(u64::from(*steps), "time", "times"))?;
        let seconds = |nanos: &u64| *nanos as f64 / 1e9;
        let largest = [("forward", forward_nanos), ("back", back_nanos)];
        for (direction, nanos) in largest.into_iter().filter(|(_, nanos)| **nanos > 0) {
            write!(f, ", at most {:.3} s {direction}", seconds(nanos))?;
        }
        Ok(())
    }
}

/// The quality of timestamps for JSON.
pub fn to_json(quality: &TimestampQuality) -> serde_json::Value {
    let clock = quality.clock.map(|clock| {
        serde_json::json!({
            "synchronised": clock.synchronised,
            "maximum_error_nanos": u64::from(clock.maximum_error_micros) * 1000,
            "frequency_ppb": clock.frequency_ppb,
        })
    });
    serde_json::json!({
        "methods": quality.methods.iter().map(|method| method.name()).collect::<Vec<_>>(),
        "deviation_nanos": quality.deviation_nanos,
        "clock": clock,
        "clock_steps": quality.steps.steps,
        "clock_step_forward_nanos": quality.steps.forward_nanos,
        "clock_step_back_nanos": quality.steps.back_nanos,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{ClockState, TimestampMethod};
    use std::num::NonZeroU32;

    #[test]
    fn the_text_has_each_known_part() {
        assert_eq!(describe(&TimestampQuality::UNKNOWN), "");
        let clock = ClockState { synchronised: false, maximum_error_micros: 250, frequency_ppb: -1500 };
        let quality = TimestampQuality {
            methods: [TimestampMethod::Poll, TimestampMethod::Wdts].into_iter().collect(),
            deviation_nanos: NonZeroU32::new(41),
            clock: Some(clock),
            steps: ClockSteps::one(-5_000_000).and(ClockSteps::one(-1)),
        };
        let text = "methods: poll, wdts; estimated standard deviation at most 41 ns; system clock not synchronised, \
                    maximum error 250 \u{b5}s, correction -1500 ppb; the system clock was set 2 times, at most \
                    0.005 s back";
        assert_eq!(describe(&quality), text);
        let json = to_json(&quality);
        assert_eq!((&json["methods"][1], &json["clock"]["maximum_error_nanos"]), (&"wdts".into(), &250_000.into()));
        assert_eq!(to_json(&TimestampQuality::UNKNOWN)["clock"], serde_json::Value::Null);
    }
}
