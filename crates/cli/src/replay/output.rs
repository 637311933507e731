//! The report of a replay as text and as JSON.

use crate::outcome::json;
use crate::style::plural;
use base::units::{show_count, show_si};
use replay::Report;
use std::io::{self, Write};

/// The line that is printed each second while the replay runs.
pub fn progress(report: &Report) -> String {
    let seconds = report.nanos as f64 / 1e9;
    format!("sent {} in {seconds:.0} s{}", plural(report.sent, "frame", "frames"), rates(report))
}

/// The rates with a colon before them; empty if the replay had no duration.
fn rates(report: &Report) -> String {
    if report.nanos == 0 {
        return String::new();
    }
    let rate = |count: f64| count * 1e9 / report.nanos as f64;
    format!(": {}, {}", show_si(rate(report.sent as f64), "pps"), show_si(rate(report.bytes as f64 * 8.0), "b/s"))
}

/// Prints the report on standard output, and the warnings on standard error.
pub fn print(report: &Report, as_json: bool) -> io::Result<()> {
    if as_json {
        let mut document = serde_json::to_value(report).map_err(io::Error::other)?;
        document["duration_error_nanos"] = report.duration_error_nanos().into();
        return json(&document);
    }
    let mut out = io::stdout().lock();
    for line in lines(report) {
        writeln!(out, "{line}")?;
    }
    out.flush()?;
    for warning in warnings(report) {
        sys::say!("netgrain: {warning}");
    }
    Ok(())
}

fn lines(report: &Report) -> Vec<String> {
    let seconds = report.nanos as f64 / 1e9;
    let mut lines = vec![format!(
        "sent {} in {seconds:.6} s{}; {} dropped by the driver",
        plural(report.sent, "frame", "frames"),
        rates(report),
        show_count(report.dropped),
    )];
    if report.scheduled_nanos > 0 {
        lines.push(format!(
            "schedule: {:.6} s, error {}{}; latest frame {} late",
            report.scheduled_nanos as f64 / 1e9,
            if report.duration_error_nanos() < 0 { "-" } else { "+" },
            span(report.duration_error_nanos().unsigned_abs()),
            span(report.late_max_nanos),
        ));
    }
    let errors = &report.gap_errors;
    if errors.gaps > 0 {
        lines.push(format!(
            "error of {}: median {}, 90 % {}, 99 % {}, 99.9 % {}, largest {}",
            plural(errors.gaps, "gap", "gaps"),
            span(errors.p50_nanos),
            span(errors.p90_nanos),
            span(errors.p99_nanos),
            span(errors.p999_nanos),
            span(errors.max_nanos),
        ));
        let most = errors.histogram.iter().map(|range| range.gaps).max().unwrap_or(1);
        for range in &errors.histogram {
            let bar = "#".repeat((range.gaps * 40).div_ceil(most.max(1)) as usize);
            lines.push(format!("  below {:>8} {:>12} {bar}", span(range.below_nanos), show_count(range.gaps)));
        }
    }
    if report.interfaces.iter().filter(|interface| interface.bytes > 0).count() > 1 {
        for interface in &report.interfaces {
            let (sent, dropped) = (show_count(interface.sent), show_count(interface.dropped));
            lines.push(format!("{}: {sent} sent, {dropped} dropped", interface.name));
        }
    }
    lines
}

/// A time as text with a unit, such as `1.2 µs`.
fn span(nanos: u64) -> String {
    match nanos {
        0..1_000 => format!("{nanos} ns"),
        1_000..1_000_000 => format!("{:.1} µs", nanos as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", nanos as f64 / 1e6),
        _ => format!("{:.1} s", nanos as f64 / 1e9),
    }
}

/// The warnings of the report: one text for each reason why a packet was skipped or changed, and for each damaged
/// input.
fn warnings(report: &Report) -> Vec<String> {
    let (packets, rewrite) = (&report.packets, &report.packets.rewrite);
    let counted = [
        (packets.truncated, "truncated by the capture and not sent; --truncated pad fills them with zeros"),
        (packets.sent_truncated, "sent without the bytes that the capture truncated"),
        (packets.padded, "filled with zeros, because the capture truncated them"),
        (packets.over_mtu, "longer than the MTU permits and not sent; ip link set IFACE mtu N permits longer frames"),
        (packets.too_short, "shorter than an Ethernet header and not sent"),
        (packets.other_link, "of another link type than Ethernet and not sent"),
        (
            report.out_of_order,
            "earlier than a packet before them by at most 1 s; sent without an interval, in the order of the file",
        ),
        (report.unstamped, "without a timestamp; sent without an interval"),
        (report.wire_raised, "with a wire length below the captured length; sent with the captured length"),
    ];
    let changed = [
        (rewrite.without_addresses, "without addresses that could be changed, sent unchanged"),
        (rewrite.without_tag, "without a VLAN tag, sent unchanged"),
        (rewrite.without_checksum, "sent without new checksums, because they are fragments or truncated"),
    ];
    let mut all: Vec<String> = Vec::new();
    let found = |(count, _): &&(u64, &str)| *count > 0;
    all.extend(counted.iter().filter(found).map(|(n, text)| format!("{} {text}", plural(*n, "packet", "packets"))));
    all.extend(changed.iter().filter(found).map(|(n, text)| format!("{} {text}", plural(*n, "frame", "frames"))));
    if report.steps_back > 0 {
        all.push(format!(
            "{} of the timestamps by more than 1 s; the intervals after such a step are counted from the new time",
            plural(report.steps_back, "step back", "steps back")
        ));
    }
    if report.shortened_gaps > 0 {
        all.push(format!("{} shortened to --max-gap", plural(report.shortened_gaps, "interval", "intervals")));
    }
    if report.input_waits > 1 && report.scheduled_nanos > 0 {
        all.push(format!(
            "the replay waited {} for the reading of the capture; a larger --buffer helps if the file is slow only at \
             times",
            plural(report.input_waits, "time", "times")
        ));
    }
    for damaged in &report.damaged {
        let offset = damaged.offset.map(|offset| format!("byte {offset}: ")).unwrap_or_default();
        all.push(format!("{}: {offset}{}; the packets before it were sent", damaged.input, damaged.reason));
    }
    if report.unsent > 0 {
        all.push(format!("{} read and not sent", plural(report.unsent, "frame", "frames")));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use replay::prepare::PacketCounts;

    #[test]
    fn each_reason_for_a_skipped_packet_is_a_warning() {
        let packets =
            PacketCounts { truncated: 1, over_mtu: 2, too_short: 3, other_link: 4, ..PacketCounts::default() };
        let report = Report { packets, out_of_order: 5, unsent: 6, ..Report::default() };
        let all = warnings(&report);
        let starts = ["1 packet ", "2 packets ", "3 packets ", "4 packets ", "5 packets ", "6 frames "];
        assert!(all.len() == 6 && all.iter().zip(starts).all(|(text, start)| text.starts_with(start)), "{all:#?}");
        assert!(warnings(&Report::default()).is_empty());
    }

    #[test]
    fn the_schedule_and_the_gaps_are_shown_unless_the_speed_is_flat() {
        let at_once = lines(&Report { sent: 1, bytes: 60, ..Report::default() });
        assert_eq!(at_once, ["sent 1 frame in 0.000000 s; 0 dropped by the driver"], "no rate without a duration");
        let mut report = Report { sent: 3, nanos: 2_000_001_000, ..Report::default() };
        assert_eq!(lines(&report).len(), 1);
        report.scheduled_nanos = 2_000_000_000;
        report.gap_errors.gaps = 2;
        let all = lines(&report);
        assert!(all[0].starts_with("sent 3 frames in 2.000001 s: "), "{all:?}");
        assert!(all[1].starts_with("schedule: 2.000000 s, error +1.0 µs"), "{all:?}");
        assert!(all[2].starts_with("error of 2 gaps: median 0 ns"), "{all:?}");
    }
}
