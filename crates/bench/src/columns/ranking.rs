//! The results of rankings.

use crate::output::{Output, Stop};
use serde::Serialize;
use std::time::Duration;

/// Number of top senders that the query returns.
pub const TOP: usize = 10;

/// Prints the result of one ranking.
pub fn row(
    by: &'static str,
    cache: &'static str,
    threads: usize,
    duration: Duration,
    records: u64,
    sheet: &mut Output<'_>,
) -> Result<(), Stop> {
    let (ms, ns_per_record) = (duration.as_secs_f64() * 1e3, duration.as_nanos() as f64 / records as f64);
    let ranking = Ranking { by, cache, threads, ms, ns_per_record };
    let text =
        format!("top {TOP} senders, {by}, {cache}, {threads} threads: {ms:.0} ms, {ns_per_record:.0} ns per record");
    sheet.row("ranking", &ranking, text)
}

/// Duration of one top-N query.
#[derive(Clone, Debug, Serialize)]
struct Ranking {
    by: &'static str,
    cache: &'static str,
    threads: usize,
    ms: f64,
    ns_per_record: f64,
}
