//! The alarms and the totals as text.

use super::verdicts::Verdicts;
use crate::style::plural;
use crate::zone::Zone;
use base::Timestamp;
use detect::{Event, SampleCounts};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The titles of the lines of [`alarm`].
pub fn titles() -> String {
    format!(
        "{:<20}  {:>9}  {:>9}  {:<8}  {:>10}  {:>10}  {:<23}  no verdict\n",
        "begin", "confirmed", "duration", "change", "peak", "expected", "band"
    )
}

/// The line of an alarm at its end, or at the end of the series.
pub fn alarm(event: &Event, zone: &Zone) -> String {
    let alarm = event.alarm();
    let (duration, reason) = match event {
        Event::End { second, reason, .. } => {
            let reason = match reason {
                detect::EndReason::Returned => "",
                detect::EndReason::Adopted => "; the level is taken as normal",
                detect::EndReason::NoData => "; no data",
            };
            (format!("{} s", second.saturating_sub(alarm.onset)), reason)
        }
        Event::Begin(_) | Event::Update(_) => ("open".to_owned(), "; the series ended"),
    };
    let peak = alarm.peak;
    let band = format!("{}..{}", number(peak.low), number(peak.high));
    let SampleCounts { missing, untrusted, .. } = alarm.seconds;
    let confirmed = format!("+{} s", alarm.confirmed - alarm.onset);
    format!(
        "{:<20}  {confirmed:>9}  {duration:>9}  {:<8}  {:>10}  {:>10}  {band:<23}  {} s{reason}\n",
        zone.show_second(Timestamp::from_secs_nanos(alarm.onset, 0)),
        alarm.change,
        number(peak.observed),
        number(peak.expected),
        missing + untrusted
    )
}

/// The totals at the end.
pub fn totals(verdicts: &Verdicts, days: &BTreeMap<u64, u64>, alarms: u64) -> String {
    let SampleCounts { observed, missing, untrusted } = verdicts.samples;
    let mut text = format!(
        "{} in {} with a value; {missing} s missing, {untrusted} s untrusted, {} s of warm-up, \
         {} s without a verdict\n",
        plural(alarms, "alarm", "alarms"),
        plural(observed, "second", "seconds"),
        verdicts.warm_up,
        verdicts.withheld
    );
    if alarms > 0 {
        let _ = writeln!(text, "alarms per day (UTC):");
        for (day, alarms) in days.iter().filter(|(_, alarms)| **alarms > 0) {
            let date = Timestamp::from_secs_nanos(day * 86_400, 0).to_string();
            let _ = writeln!(text, "  {}  {alarms}", &date[..10]);
        }
        let quiet = days.values().filter(|alarms| **alarms == 0).count() as u64;
        let _ = writeln!(text, "  {} without an alarm", plural(quiet, "day", "days"));
    }
    text
}

/// A number with four significant digits.
fn number(value: f64) -> String {
    const PREFIXES: [(f64, &str); 4] = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    if !value.is_finite() {
        return if value > 0.0 { "∞".to_owned() } else { "-∞".to_owned() };
    }
    let (unit, prefix) = PREFIXES.into_iter().find(|(unit, _)| value.abs() >= *unit).unwrap_or((1.0, ""));
    let scaled = value / unit;
    let digits = if scaled.abs() >= 100.0 {
        1
    } else if scaled.abs() >= 10.0 {
        2
    } else {
        3
    };
    let text = format!("{scaled:.digits$}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{}{prefix}", if text == "-0" { "0" } else { text })
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_have_four_digits_and_a_prefix() {
        let shown = [0.0, 5.0, 12.345, 1234.5, 8e9, -1_234_567.0, -0.0001, f64::INFINITY].map(number);
        assert_eq!(shown, ["0", "5", "12.35", "1.234k", "8G", "-1.235M", "0", "∞"]);
    }
}
