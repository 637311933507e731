//! The warnings of an engine thread about its timestamps.

use capture::{SourceInfo, TimestampSource};
use timestamping::TimestampSetting;

/// The largest number of warnings about clock steps; later steps are only counted.
pub const STEP_WARNINGS_MAX: u64 = 8;

/// The warnings about conditions that were found when the source was opened.
pub fn on_opening(info: &SourceInfo, setting: TimestampSetting) -> Vec<String> {
    let SourceInfo { name, queue, timestamp_fallback, timestamp_warning, .. } = info;
    let fallback = timestamp_fallback.as_ref().map(|reason| {
        format!(
            "{name} queue {queue}: timestamps = {setting} is not available: {reason}; the packets get the time at \
             which the engine thread takes them (method poll)"
        )
    });
    let warning = timestamp_warning.as_ref().map(|text| format!("{name} queue {queue}: {text}"));
    fallback.into_iter().chain(warning).collect()
}

/// The warning that the source had no timestamp for this number of packets.
pub fn missing(info: &SourceInfo, packets: u64) -> String {
    let SourceInfo { name, queue, .. } = info;
    let (clock, advice) = match info.timestamp_source {
        TimestampSource::Hardware => {
            ("NIC", format!("; if the NIC can timestamp all frames, `hwstamp_ctl -i {name} -r 1` sets it to do so"))
        }
        _ => ("kernel", String::new()),
    };
    format!(
        "{name} queue {queue}: packets without a timestamp of the {clock} arrive ({packets} so far); they get the time \
         at which the engine thread takes them (method poll), and `timestamp_methods` in the report counts them{advice}"
    )
}

/// The warning about the step of the system clock with this number, counted from 1, by `nanos` nanoseconds. The size
/// has milliseconds, so that the warnings of all queues are equal.
pub fn clock_step(number: u64, nanos: i64) -> String {
    let direction = if nanos < 0 { "back" } else { "forward" };
    let seconds = nanos.unsigned_abs() as f64 / 1e9;
    let end = if number == STEP_WARNINGS_MAX { "; further steps are only counted" } else { "" };
    format!("the system clock was set {direction} by {seconds:.3} s; the packets that follow have the new time{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warning_about_a_clock_step_has_direction_and_size() {
        let first = clock_step(1, -3_600_000_400_000);
        let text = "the system clock was set back by 3600.000 s; the packets that follow have the new time";
        assert_eq!(first, text);
        let last = clock_step(STEP_WARNINGS_MAX, 2_500_000);
        assert!(last.contains("forward by 0.003 s") && last.ends_with("; further steps are only counted"), "{last}");
    }
}
