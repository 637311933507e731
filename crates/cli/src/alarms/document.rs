//! The events and the totals as JSON (`docs/reference/schemas/alarm-event.schema.json` and
//! `alarms-totals.schema.json`).

use super::verdicts::Verdicts;
use crate::outcome::versioned;
use base::Timestamp;
use detect::{Alarm, Event, Reading, SampleCounts};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The document of an event.
pub fn event(event: &Event, detector: &str, parameters: &Value) -> Value {
    let (name, end, reason) = match event {
        Event::Begin(_) => ("begin", None, None),
        Event::Update(_) => ("update", None, None),
        Event::End { second, reason, .. } => ("end", Some(time(*second)), Some(reason.name())),
    };
    let Alarm { change, onset, confirmed, peak, seconds } = *event.alarm();
    versioned(json!({
        "event": name,
        "detector": detector,
        "parameters": parameters,
        "change": change.name(),
        "onset": time(onset),
        "confirmed": time(confirmed),
        "end": end,
        "end_reason": reason,
        "peak": reading(&peak),
        "seconds": counts(&seconds),
    }))
}

/// The document at the end.
pub fn totals(verdicts: &Verdicts, days: &BTreeMap<u64, u64>, alarms: u64) -> Value {
    let days: Vec<Value> =
        days.iter().map(|(day, alarms)| json!({"day": &time(day * 86_400)[..10], "alarms": alarms})).collect();
    versioned(json!({
        "alarms": alarms,
        "seconds": counts(&verdicts.samples),
        "warm_up_seconds": verdicts.warm_up,
        "withheld_seconds": verdicts.withheld,
        "days": days,
    }))
}

fn reading(reading: &Reading) -> Value {
    // A band without a limit on one side has no number there.
    let finite = |value: f64| value.is_finite().then_some(value);
    json!({
        "time": time(reading.second),
        "observed": finite(reading.observed),
        "expected": finite(reading.expected),
        "low": finite(reading.low),
        "high": finite(reading.high),
    })
}

fn counts(counts: &SampleCounts) -> Value {
    json!({"observed": counts.observed, "missing": counts.missing, "untrusted": counts.untrusted})
}

fn time(second: u64) -> String {
    let text = Timestamp::from_secs_nanos(second, 0).to_string();
    format!("{}Z", &text[..19])
}
