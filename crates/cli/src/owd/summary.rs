//! The report of a session as text, with a histogram of the delays.

use super::sessions::{Session, SessionKey};
use crate::distribution::{plot, show_nanos};
use base::Distribution;
use base::units::{show_count, show_si};
use delay::{ClockRelation, Report};
use std::fmt::Write;
use std::time::Duration;

/// The report of a session. `sent` is the number of packets that the sender reported, if the user stated it.
pub fn of(key: &SessionKey, session: &Session, sent: Option<u64>) -> String {
    let report = session.analyser.report();
    let mut out = String::new();
    let place = match key.interface.as_str() {
        "" => String::new(),
        name => format!(" at {name}"),
    };
    let _ = writeln!(out, "session {}: {}{place}, departures taken {}", key.session, key.flow, session.place.name());
    let mut line = |title: &str, text: String| {
        let _ = writeln!(out, "  {title:<10} {text}");
    };
    line("packets", packets(&report, sent));
    line("order", order(&report));
    if let Some(text) = reordering(&report) {
        line("", text);
    }
    let advice = match &report.clocks {
        ClockRelation::Unknown { is_receiver_synchronised: false, .. } => {
            "; state the receiver's clock with --clock, or synchronise both clocks"
        }
        ClockRelation::Unknown { .. } => "; synchronise the sender's clock",
        _ => "",
    };
    line("clocks", clocks(&report.clocks) + advice);
    let plotted = match (report.delay_error(), &report.drift_free) {
        (Some(error), _) => {
            line("delay", figures(&report.delay, Some(error)));
            &report.delay
        }
        (None, Some(free)) => {
            line("delay", format!("above the smallest delay: {}", figures(&free.delay, Some(report.resolution()))));
            &free.delay
        }
        (None, None) => {
            line("delay", "unknown: the offset of the clocks is unknown, and there is only one departure".to_owned());
            &report.variation
        }
    };
    let variation = match report.variation.count() {
        0 => "unknown: no two packets with consecutive sequence numbers".to_owned(),
        _ => figures(&report.variation, Some(report.variation_error())),
    };
    line("variation", variation);
    if let (Some(free), false) = (&report.drift_free, report.clocks == ClockRelation::Same) {
        let note = if free.is_approximate { " (approximate: the delays are too irregular)" } else { "" };
        line("skew", format!("{:+.3} ppm ± {:.3} ppm{note}", free.skew.ppm(), free.slope_error * 1e6));
    }
    line("bursts", bursts(&report));
    for row in plot(plotted.histogram(), show_nanos) {
        let _ = writeln!(out, "  {row}");
    }
    out
}

fn packets(report: &Report, sent: Option<u64>) -> String {
    let sequence = &report.sequence;
    let lost = sent.map_or(sequence.lost, |sent| sent.saturating_sub(sequence.unique));
    let expected = sequence.unique + lost;
    let share = 100.0 * lost as f64 / expected.max(1) as f64;
    let mut text = format!(
        "{} received, {} lost ({share:.3} % of {}), {} duplicate",
        show_count(sequence.received),
        show_count(lost),
        show_count(expected),
        show_count(sequence.duplicates)
    );
    if sequence.undecided > 0 {
        let _ = write!(text, ", {} too late to decide whether lost or duplicate", show_count(sequence.undecided));
    }
    if let (None, Some((first, last))) = (sent, sequence.range) {
        let _ = write!(text, "; sequence {first} to {last}");
    }
    text
}

fn order(report: &Report) -> String {
    let order = &report.reordering;
    if order.reordered == 0 {
        return "no packet reordered".to_owned();
    }
    let limited = if order.limited_extents > 0 { "more than " } else { "" };
    format!(
        "{} reordered ({:.3} %); extent at most {limited}{}; late by at most {}; {} by 3 packets or more",
        show_count(order.reordered),
        100.0 * order.reordered as f64 / report.sequence.unique.max(1) as f64,
        show_count(order.extent_max),
        show_nanos(order.late_time_max.as_nanos() as f64),
        show_count(order.degree_3)
    )
}

/// Byte offsets, gaps and runs of reordering; `None` without reordered packets.
fn reordering(report: &Report) -> Option<String> {
    let detail = &report.reordering_detail;
    let mut text = format!("byte offset at most {} B", show_count(detail.byte_offset.max()?.unsigned_abs()));
    if let (Some(packets), Some(nanos)) = (detail.gap.mean(), detail.gap_time.mean()) {
        let _ = write!(text, "; gap between discontinuities (mean) {packets:.1} packets, {}", show_nanos(nanos));
    }
    if let Some(mean) = detail.runs.mean() {
        let _ = write!(text, "; runs without reordering (mean) {mean:.1} packets");
    }
    Some(text)
}

/// The relation of the clocks in words.
pub fn clocks(clocks: &ClockRelation) -> String {
    let state = |is_synchronised| if is_synchronised { "synchronised" } else { "not synchronised or unknown" };
    match clocks {
        ClockRelation::Same => "sender and receiver have the same clock".to_owned(),
        ClockRelation::Synchronised { sender, receiver } => format!(
            "synchronised: the sender's within {}, the receiver's within {}",
            show_nanos(sender.as_nanos() as f64),
            show_nanos(receiver.as_nanos() as f64)
        ),
        ClockRelation::Unknown { is_sender_synchronised, is_receiver_synchronised } => format!(
            "offset unknown: the sender's clock is {}, the receiver's {}",
            state(*is_sender_synchronised),
            state(*is_receiver_synchronised)
        ),
    }
}

/// Minimum, quantiles, maximum, mean and standard deviation, with the error of each value.
pub fn figures(values: &Distribution, error: Option<Duration>) -> String {
    let show = |value: Option<f64>| value.map_or("-".to_owned(), show_nanos);
    let quantile = |q| values.quantile(q).map(|(value, _)| value as f64);
    let mut text = format!(
        "min {}, median {}, mean {}, 99 % {}, max {}, standard deviation {}",
        show(values.min().map(|v| v as f64)),
        show(quantile(0.5)),
        show(values.mean()),
        show(quantile(0.99)),
        show(values.max().map(|v| v as f64)),
        show(values.standard_deviation())
    );
    if let Some(error) = error {
        // Quantiles have the error of their histogram bucket in addition.
        let bucket = [0.5, 0.99].into_iter().filter_map(|q| values.quantile(q)).map(|(_, error)| error).max();
        let _ = write!(text, "; each ± {}", show_nanos(error.as_nanos() as f64));
        if let Some(bucket) = bucket.filter(|bucket| *bucket > 0) {
            let _ = write!(text, ", quantiles ± {} more", show_nanos(bucket as f64));
        }
    }
    text
}

fn bursts(report: &Report) -> String {
    let bursts = &report.bursts;
    let mut text =
        format!("{} complete and in order, {} not", show_count(bursts.complete), show_count(bursts.incomplete));
    let median = |values: &Distribution| values.quantile(0.5).map(|(value, _)| value as f64);
    if let (Some(sent), Some(received)) = (median(&bursts.departure_dispersion), median(&bursts.arrival_dispersion)) {
        let _ = write!(text, "; dispersion (median) {} sent, {} received", show_nanos(sent), show_nanos(received));
        if let Some(bandwidth) = median(&bursts.bandwidth) {
            let error = 100.0 * report.bandwidth_error(received);
            let _ = write!(text, "; bandwidth (median) {} ± {error:.2} %", show_si(bandwidth, "b/s"));
        }
    }
    text
}
