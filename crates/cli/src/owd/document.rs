//! The report of a session as JSON (`docs/reference/schemas/owd.schema.json`).

use super::sessions::{Session, SessionKey};
use crate::distribution::to_json;
use crate::outcome::versioned;
use delay::{ClockRelation, Report};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// The JSON document of a session. `sent` is the number of packets that the sender reported, if the user stated it.
/// `clock_steps` is the number of steps of this
/// host's clock during a live measurement.
pub fn of(key: &SessionKey, session: &Session, sent: Option<u64>, clock_steps: Option<u64>) -> Value {
    let report = session.analyser.report();
    let parts: [Value; 7] = [
        identity(key, session),
        packets(&report, sent),
        reordering(&report),
        times(&report),
        json!({ "clock_steps": clock_steps }),
        delays(&report),
        bursts(&report),
    ];
    let keys = parts.into_iter().flat_map(|part| match part {
        Value::Object(keys) => keys,
        _ => Map::new(),
    });
    versioned(Value::Object(keys.collect()))
}

fn identity(key: &SessionKey, session: &Session) -> Value {
    json!({
        "interface": key.interface,
        "session": key.session,
        "source": key.flow.src.to_string(),
        "source_port": key.flow.src_port.0,
        "destination": key.flow.dst.to_string(),
        "destination_port": key.flow.dst_port.0,
        "departure_place": session.place.name(),
    })
}

fn packets(report: &Report, sent: Option<u64>) -> Value {
    let (sequence, order) = (&report.sequence, &report.reordering);
    json!({
        "received": sequence.received,
        "unique": sequence.unique,
        "duplicates": sequence.duplicates,
        "undecided": sequence.undecided,
        "lost": sent.map_or(sequence.lost, |sent| sent.saturating_sub(sequence.unique)),
        "sent": sent,
        "first_sequence": sequence.range.map(|range| range.0),
        "last_sequence": sequence.range.map(|range| range.1),
        "reordered": order.reordered,
        "reordering_extent_max": order.extent_max,
        "reordering_extent_mean": (order.reordered > 0).then(|| order.extent_sum as f64 / order.reordered as f64),
        "reordering_limited_extents": order.limited_extents,
        "reordering_late_time_max_ns": nanos(order.late_time_max),
        "reordering_degree_3": order.degree_3,
        "reordering_degree_max": order.degree_max,
    })
}

fn reordering(report: &Report) -> Value {
    let (detail, unique) = (&report.reordering_detail, report.sequence.unique);
    json!({
        "reordered_ratio": (unique > 0).then(|| report.reordering.reordered as f64 / unique as f64),
        "reordering_extent": to_json(&detail.extent),
        "reordering_late_time_ns": to_json(&detail.late_time),
        "reordering_byte_offset": to_json(&detail.byte_offset),
        "reordering_gap": to_json(&detail.gap),
        "reordering_gap_ns": to_json(&detail.gap_time),
        "n_reordered": detail.n_reordered,
        "reordering_free_runs": {
            "count": detail.runs.count,
            "longest": detail.runs.longest,
            "mean": detail.runs.mean(),
            "mean_of_packets": detail.runs.mean_of_packets(),
        },
    })
}

fn times(report: &Report) -> Value {
    let (sender, receiver) = match report.clocks {
        ClockRelation::Synchronised { sender, receiver } => (Some(nanos(sender)), Some(nanos(receiver))),
        ClockRelation::Same | ClockRelation::Unknown { .. } => (None, None),
    };
    json!({
        "first_departure_ns": report.departures.map(|range| range.0.nanos()),
        "last_departure_ns": report.departures.map(|range| range.1.nanos()),
        "first_arrival_ns": report.arrivals.map(|range| range.0.nanos()),
        "last_arrival_ns": report.arrivals.map(|range| range.1.nanos()),
        "clocks": report.clocks.name(),
        "sender_clock_error_ns": sender,
        "receiver_clock_error_ns": receiver,
        "departure_resolution_ns": nanos(report.departure_resolution),
        "arrival_resolution_ns": nanos(report.arrival_resolution),
    })
}

fn delays(report: &Report) -> Value {
    let drift_free = report.drift_free.as_ref().map(|free| {
        json!({
            "skew_ppm": free.skew.ppm(),
            "skew_error_ppm": free.slope_error * 1e6,
            "is_approximate": free.is_approximate,
            "is_complete": free.is_complete,
            "delay_ns": to_json(&free.delay),
        })
    });
    json!({
        "delay_error_ns": report.delay_error().map(nanos),
        "delay_ns": to_json(&report.delay),
        "variation_error_ns": nanos(report.variation_error()),
        "variation_ns": to_json(&report.variation),
        "drift_free": drift_free,
    })
}

fn bursts(report: &Report) -> Value {
    let bursts = &report.bursts;
    json!({
        "bursts_complete": bursts.complete,
        "bursts_incomplete": bursts.incomplete,
        "bursts_undispersed": bursts.undispersed,
        "departure_dispersion_ns": to_json(&bursts.departure_dispersion),
        "arrival_dispersion_ns": to_json(&bursts.arrival_dispersion),
        "bandwidth_error_share": bursts.arrival_dispersion.mean().map(|mean| report.bandwidth_error(mean)),
        "bandwidth_bits_per_second": to_json(&bursts.bandwidth),
    })
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
