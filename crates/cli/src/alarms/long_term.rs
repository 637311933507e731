//! The detector `long-term` of `netgrain alarms test`: stationary and significant changes of the daily load.

use super::args::TestArgs;
use super::csv_series::{self, Columns};
use crate::outcome::{Failure, Outcome, versioned};
use crate::style::plural;
use base::Timestamp;
use detect::Sample;
use detect::long_term::{Day, DayBuilder, LongTermChange, Parameters, changes};
use serde_json::{Value, json};
use std::io::{Read, Write};

/// The largest number of days. The search tries each day of an interval as a split.
const DAYS_MAX: usize = 1000;

/// Reads the series and prints the changes; returns `No` if there is none.
pub fn run(args: &TestArgs, source: Box<dyn Read>, columns: &Columns) -> Result<Outcome, Failure> {
    let (mut builder, mut days, mut skipped, mut last) = (DayBuilder::default(), Vec::new(), 0u64, None);
    let mut add = |done: Option<(u64, Option<Day>)>| match done {
        Some((day, Some(vector))) => days.push((day, vector)),
        Some((_, None)) => skipped += 1,
        None => {}
    };
    csv_series::read(source, columns, |second| {
        let sample = second.samples.first().copied().unwrap_or(Sample::Missing);
        add(builder.observe(second.second, sample));
        last = Some(second.second);
    })
    .map_err(|e| Failure::Said(format!("{}: {e}", args.csv.display())))?;
    // A further day ends the last day of the series.
    add(last.and_then(|last| builder.observe(last + 86_400, Sample::Missing)));
    if days.len() > DAYS_MAX {
        return Err(Failure::Said(format!(
            "{}: the series has {} complete days, and at most {DAYS_MAX} are compared: select a part of the file",
            args.csv.display(),
            days.len()
        )));
    }
    let vectors: Vec<Day> = days.iter().map(|(_, vector)| *vector).collect();
    let found = changes(&vectors, &Parameters::default());
    let date = |change: &LongTermChange| {
        let day = days.get(change.day).map_or(0, |(day, _)| *day);
        Timestamp::from_secs_nanos(day * 86_400, 0).to_string()[..10].to_owned()
    };
    let mut out = std::io::stdout().lock();
    if args.json {
        let all: Vec<Value> = found.iter().map(|change| document(change, &date(change))).collect();
        let totals = json!({"days": days.len(), "skipped_days": skipped, "changes": all});
        writeln!(out, "{}", versioned(totals))?;
    } else {
        for change in &found {
            writeln!(
                out,
                "from {}: mean {:.4e} instead of {:.4e}, p = {:.2e} (T² = {:.1}, {} of the day)",
                date(change),
                change.after,
                change.before,
                change.p_value,
                change.test.statistic,
                plural(change.test.dimension as u64, "average", "averages")
            )?;
        }
        writeln!(
            out,
            "{} in {}; {} with a missing part",
            plural(found.len() as u64, "change", "changes"),
            plural(days.len() as u64, "complete day", "complete days"),
            plural(skipped, "day", "days")
        )?;
    }
    out.flush()?;
    Ok(Outcome::of(!found.is_empty()))
}

fn document(change: &LongTermChange, day: &str) -> Value {
    json!({
        "day": day,
        "before": change.before,
        "after": change.after,
        "p_value": change.p_value,
        "dimension": change.test.dimension,
        "statistic": change.test.statistic,
        "degrees": change.test.degrees,
    })
}
