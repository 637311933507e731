//! The report of `netgrain dedup`: a summary, a table by class, and a JSON document.

use super::DedupArgs;
use crate::convert::targets::Targets;
use crate::outcome::{Failure, json, versioned};
use crate::style::plural;
use crate::table_layout::{Align, Cell, Column, Layout, Step};
use base::units::{show_bytes, show_count};
use convert::{DuplicateReport, Plan, Report};
use duplicates::{Class, ClassCounts, Counts, INTERVALS, Settings, TTL_DROPS};
use std::io::Write;
use std::time::Duration;

/// Prints the table on standard output, summary and warnings on standard error. The JSON document is on standard
/// output, or on standard error if the packets are written to standard output.
pub fn print(
    args: &DedupArgs,
    settings: &Settings,
    plan: &Plan,
    report: &Report,
    targets: Option<&Targets>,
) -> Result<(), Failure> {
    let Some(found) = &report.duplicates else { return Ok(()) };
    let is_stdout = targets.is_some_and(Targets::is_stdout);
    if args.json {
        let object = object(settings, report, found, targets);
        if is_stdout {
            sys::say!("{}", versioned(object))
        } else {
            json(&object)?
        }
        return Ok(());
    }
    if args.report {
        let lines = table(args, report, found);
        if is_stdout {
            lines.iter().for_each(|line| sys::say!("{line}"));
        } else {
            let mut out = std::io::stdout().lock();
            lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
            out.flush()?;
        }
    }
    if !args.quiet {
        summary(settings, plan, report, found, targets);
    }
    Ok(())
}

fn summary(settings: &Settings, plan: &Plan, report: &Report, found: &DuplicateReport, targets: Option<&Targets>) {
    let counts = &found.counts;
    let written = match targets {
        Some(targets) if report.files > 0 => {
            format!("{} written to {} ({})", show_count(report.written), targets.name(), plan.format)
        }
        Some(targets) => format!("no packets, so {} is not written", targets.name()),
        None => "nothing is written without -w".to_owned(),
    };
    sys::say!(
        "netgrain: {} of {} are duplicates; {written}",
        show_count(report.duplicate),
        plural(report.read - report.outside - report.filtered, "packet", "packets")
    );
    sys::say!(
        "netgrain: the table of {} records ({}) reaches back {}",
        show_count(settings.records as u64),
        show_bytes(settings.memory()),
        show_time(found.reach)
    );
    for warning in warnings(settings, report, counts) {
        sys::say!("netgrain: {warning}");
    }
}

fn warnings(settings: &Settings, report: &Report, counts: &Counts) -> Vec<String> {
    let mut lines = Vec::new();
    if counts.repeats > 0 {
        lines.push(format!(
            "{} equal to a packet before, without evidence of a copy, and {} not removed",
            plural(counts.repeats, "packet is", "packets are"),
            if counts.repeats == 1 { "is" } else { "are" }
        ));
    }
    if counts.over_limit > 0 {
        lines.push(format!(
            "{} of a packet with {} copies before: more than mirrors make, so a sender repeats equal packets within \
             the window, and {} not removed; choose a shorter --window",
            plural(counts.over_limit, "packet is a copy", "packets are copies"),
            settings.copies_max,
            if counts.over_limit == 1 { "the packet is" } else { "the packets are" }
        ));
    }
    if counts.unconfirmed > 0 {
        lines.push(format!(
            "{} addresses as after NAT or a proxy, before enough packets confirmed these addresses, and {} not removed",
            plural(counts.unconfirmed, "packet has changed", "packets have changed"),
            if counts.unconfirmed == 1 { "is" } else { "are" }
        ));
    }
    if counts.reversed > 0 {
        lines.push(format!(
            "{} after the copy that a router sent on another interface, and the copy is not removed: check the clocks \
             of the captures",
            plural(counts.reversed, "packet was captured", "packets were captured")
        ));
    }
    if counts.overwritten > 0 {
        lines.push(format!(
            "the table forgot {} before the end of the window of {}, after {} at the earliest: duplicates can be \
             missing; use more --records or a shorter --window",
            plural(counts.overwritten, "packet", "packets"),
            show_time(settings.window),
            show_time(counts.shortest_reach.unwrap_or_default())
        ));
    }
    if counts.evicted > 0 {
        lines.push(format!(
            "{} evicted from the index of the table: duplicates can be missing; use more --records or fewer --classes",
            plural(counts.evicted, "packet was", "packets were")
        ));
    }
    if counts.crowded > 0 {
        lines.push(format!(
            "{} equal to more than 5 packets of the window: their duplicates can be missing, also with more --records; \
             use a shorter --window",
            plural(counts.crowded, "packet was", "packets were")
        ));
    }
    if counts.bindings_replaced > 0 {
        lines.push(format!(
            "{} of NAT or a proxy replaced by others: duplicates of these classes can be missing",
            plural(counts.bindings_replaced, "address was", "addresses were")
        ));
    }
    if report.out_of_order > 0 {
        lines.push(format!(
            "{} earlier than the packet before; netgrain convert --sort puts packets in order",
            plural(report.out_of_order, "timestamp is", "timestamps are")
        ));
    }
    lines.extend(
        report
            .damaged_inputs
            .iter()
            .map(|d| format!("{}: byte {}: {}; everything before this byte was compared", d.input, d.offset, d.reason)),
    );
    if report.stopped {
        lines.push("interrupted; the packets compared so far are complete".to_owned());
    }
    lines
}

const COLUMNS: [Column; 8] = [
    column("class", 9, Align::Left),
    column("packets", 11, Align::Right),
    column("share", 7, Align::Right),
    column("bytes", 9, Align::Right),
    column("time min", 9, Align::Right),
    column("mean", 9, Align::Right),
    column("max", 9, Align::Right),
    column("TTL decrease: packets", 21, Align::Rest),
];

const STEPS: [Step; 3] = [Step::Drop(3), Step::Drop(5), Step::Drop(2)];

const fn column(title: &'static str, width: usize, align: Align) -> Column {
    Column { title, width, align, narrow: None }
}

fn table(args: &DedupArgs, report: &Report, found: &DuplicateReport) -> Vec<String> {
    let layout = Layout::new(&COLUMNS, &STEPS, args.width.available_width(), args.color.paint());
    let compared = found.counts.packets.max(1);
    let share = |packets: u64| format!("{:.2} %", packets as f64 * 100.0 / compared as f64);
    let mut lines = vec![layout.header()];
    for class in Class::ALL.into_iter().filter(|class| args.classes.contains(*class)) {
        let counts = found.counts.class(class);
        let time = |time: Option<Duration>| time.map_or_else(|| "-".to_owned(), show_time);
        let times = &counts.times;
        let is_any = counts.packets > 0;
        let cells = [
            class.to_string(),
            show_count(counts.packets),
            share(counts.packets),
            show_bytes(counts.bytes),
            time(is_any.then_some(times.min)),
            time(times.mean()),
            time(is_any.then_some(times.max)),
            ttl_text(counts),
        ];
        lines.push(layout.line(cells.into_iter().map(|text| -> Cell { (text, None) }).collect()));
    }
    let all = found.counts.duplicates();
    let bytes = found.counts.classes.iter().map(|class| class.bytes).sum();
    let mut cells = ["all".to_owned(), show_count(all), share(all), show_bytes(bytes)].to_vec();
    cells.resize(COLUMNS.len(), String::new());
    lines.push(layout.line(cells.into_iter().map(|text| -> Cell { (text, None) }).collect()));
    lines.extend(layout.dropped().map(|text| format!("({text})")));
    lines.extend(times(found));
    debug_assert_eq!(all, report.duplicate);
    lines
}

/// The distribution of the times from a packet to its duplicates. Many times near the end of the window mean that a
/// longer window would find more duplicates, or that senders repeat packets within the window.
fn times(found: &DuplicateReport) -> Vec<String> {
    let mut intervals = [0; INTERVALS];
    for class in &found.counts.classes {
        intervals.iter_mut().zip(class.times.intervals).for_each(|(sum, packets)| *sum += packets);
    }
    let all = found.counts.duplicates();
    let line = |(interval, packets): (usize, u64)| {
        let below = show_time(Duration::from_nanos(1 << interval));
        format!("{below:>11} {:>13} {:>8.2} %", show_count(packets), packets as f64 * 100.0 / all.max(1) as f64)
    };
    let lines = intervals.into_iter().enumerate().filter(|(_, packets)| *packets > 0).map(line);
    let header = (all > 0).then(|| format!("{:>11} {:>13} {:>10}", "time below", "packets", "share"));
    header.into_iter().chain(lines).collect()
}

fn ttl_text(counts: &ClassCounts) -> String {
    let drops = counts.ttl_drops.iter().enumerate().filter(|(_, packets)| **packets > 0);
    let text = drops.map(|(drop, packets)| match drop {
        _ if drop == TTL_DROPS - 1 => format!("{drop} or more: {}", show_count(*packets)),
        _ => format!("{drop}: {}", show_count(*packets)),
    });
    text.collect::<Vec<_>>().join(", ")
}

/// A time with three significant digits.
fn show_time(time: Duration) -> String {
    let nanos = time.as_nanos() as f64;
    let (value, unit) = match nanos {
        n if n < 1e3 => return format!("{n} ns"),
        n if n < 1e6 => (n / 1e3, "us"),
        n if n < 1e9 => (n / 1e6, "ms"),
        n => (n / 1e9, "s"),
    };
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.digits$} {unit}")
}

fn object(
    settings: &Settings,
    report: &Report,
    found: &DuplicateReport,
    targets: Option<&Targets>,
) -> serde_json::Value {
    let counts = &found.counts;
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let classes = settings.classes.iter().map(|class| class_object(class, counts.class(class)));
    serde_json::json!({
        "read": report.read,
        "filtered": report.filtered,
        "written": if targets.is_some() { report.written } else { 0 },
        "duplicates": report.duplicate,
        "repeats": counts.repeats,
        "over_limit": counts.over_limit,
        "unconfirmed": counts.unconfirmed,
        "reversed": counts.reversed,
        "complete": counts.is_complete(),
        "overwritten": counts.overwritten,
        "evicted": counts.evicted,
        "crowded": counts.crowded,
        "bindings_replaced": counts.bindings_replaced,
        "out_of_order": report.out_of_order,
        "window_ns": nanos(settings.window),
        "window_packets": settings.window_packets.min(settings.records as u64),
        "exact": settings.exact,
        "records": settings.records,
        "stored_bytes": settings.stored_bytes,
        "memory_bytes": settings.memory(),
        "reach_ns": nanos(found.reach),
        "shortest_reach_ns": counts.shortest_reach.map(nanos),
        "classes": classes.collect::<Vec<_>>(),
        "broken": report.damaged_inputs.iter().map(|b| serde_json::json!({
            "input": b.input, "offset": b.offset, "reason": b.reason,
        })).collect::<Vec<_>>(),
        "stopped": report.stopped,
        "outputs": targets.map(Targets::published).unwrap_or_default(),
    })
}

fn class_object(class: Class, counts: &ClassCounts) -> serde_json::Value {
    let times = &counts.times;
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let of_any = |time: Duration| (counts.packets > 0).then(|| nanos(time));
    let intervals = times.intervals.iter().enumerate().filter(|(_, packets)| **packets > 0);
    serde_json::json!({
        "class": class.name(),
        "packets": counts.packets,
        "bytes": counts.bytes,
        "time_min_ns": of_any(times.min),
        "time_mean_ns": times.mean().map(nanos),
        "time_median_at_most_ns": times.quantile(0.5).map(nanos),
        "time_p99_at_most_ns": times.quantile(0.99).map(nanos),
        "time_max_ns": of_any(times.max),
        "times": intervals.map(|(interval, packets)| serde_json::json!({
            "below_ns": 1u64 << interval, "packets": packets,
        })).collect::<Vec<_>>(),
        "ttl_decreases": counts.ttl_drops,
        "vlan_changed": counts.vlan_changed,
        "tos_changed": counts.tos_changed,
        "without_payload": counts.without_payload,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits_and_a_unit() {
        for (nanos, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1000, "1.00 us"),
            (9_996, "10.0 us"),
            (21_340_000, "21.3 ms"),
            (200_000_000, "200 ms"),
            (1_500_000_000, "1.50 s"),
        ] {
            assert_eq!(show_time(Duration::from_nanos(nanos)), text);
        }
    }
}
