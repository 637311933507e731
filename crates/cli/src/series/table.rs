//! A second, or a step of many, as a line that people read.

use crate::flows::names::Names;
use base::Timestamp;
use base::units::{show_count, show_si};
use series::{Direction, Rollup, Row};

/// What stands above seconds.
pub const SECONDS: &str = "second                interface  way    packets/s        bits/s    peak 1 ms   flows active        new        SYN    sources       lost";

/// What stands above steps.
pub const STEPS: &str = "from                  interface  way      known    packets/s     bits/s: mean          95 %      greatest    peak 1 ms     flows new       lost";

/// `2026-11-21T10:42:07Z`.
pub fn moment(second: u64) -> String {
    let text = Timestamp::from_secs_nanos(second, 0).to_string();
    format!("{}Z", text.split('.').next().unwrap_or_default())
}

/// In or out.
pub fn way(direction: Direction) -> &'static str {
    match direction {
        Direction::In => "in",
        Direction::Out => "out",
    }
}

/// What stands where nothing is known.
const UNKNOWN: &str = "-";

/// One second.
pub fn second(row: &Row, names: &Names) -> String {
    second_with(row, names, [row.flows_active, row.flows_new].map(show_count))
}

/// One second of packets that match: what flows they are of is not known.
pub fn second_of_packets(row: &Row, names: &Names) -> String {
    second_with(row, names, [UNKNOWN; 2].map(str::to_owned))
}

fn second_with(row: &Row, names: &Names, [active, new]: [String; 2]) -> String {
    let bits = |bytes: u64, scale: f64| show_si(bytes as f64 * 8.0 * scale, "b/s");
    format!(
        "{:<20}  {:<9}  {:<3}  {:>11}  {:>12}  {:>11}  {:>13}  {:>9}  {:>9}  {:>9}  {:>9}",
        moment(row.second),
        names.interface(row.interface),
        way(row.direction),
        show_count(row.total.packets),
        bits(row.total.bytes, 1.0),
        bits(row.peak_1ms.bytes, 1000.0),
        active,
        new,
        show_count(row.syn),
        show_count(row.sources),
        show_count(row.ledger.lost_total()),
    )
}

/// One step.
pub fn step(rollup: &Rollup, names: &Names) -> String {
    step_with(rollup, names, &show_count(rollup.sum.flows_new))
}

/// One step of packets that match.
pub fn step_of_packets(rollup: &Rollup, names: &Names) -> String {
    step_with(rollup, names, UNKNOWN)
}

fn step_with(rollup: &Rollup, names: &Names, new: &str) -> String {
    let row = &rollup.sum;
    let bits = |bytes: u64, scale: f64| show_si(bytes as f64 * 8.0 * scale, "b/s");
    let each = |sum: u64| sum as f64 / rollup.seconds as f64;
    format!(
        "{:<20}  {:<9}  {:<3}  {:>9}  {:>11}  {:>16}  {:>12}  {:>12}  {:>11}  {:>12}  {:>9}",
        moment(row.second),
        names.interface(row.interface),
        way(row.direction),
        format!("{}/{} s", rollup.seconds, rollup.step.seconds()),
        show_si(each(row.total.packets), "pps"),
        show_si(each(row.total.bytes) * 8.0, "b/s"),
        bits(rollup.p95.total.bytes, 1.0),
        bits(rollup.max.total.bytes, 1.0),
        bits(rollup.max.peak_1ms.bytes, 1000.0),
        new,
        show_count(row.ledger.lost_total()),
    )
}

/// Seconds of which nothing is known.
pub fn gap(from: u64, to: u64, interface: &str) -> String {
    format!(
        "{:<20}  {interface:<9}  nothing is known of {} s, to {}",
        moment(from),
        show_count(to - from + 1),
        moment(to)
    )
}
