//! The report of a capture as text, on standard output at the end.

use crate::distribution::show_nanos;
use crate::style::plural;
use base::units::{show_bytes, show_count};
use engine::{DuplicateReport, Report};
use flow::EndReason;
use meter::{MeterReport, SinkReport, TunnelReport};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The share of stolen CPU time above which a ring that holds a few milliseconds of traffic overflows.
const STEAL_NOTICEABLE: f64 = 0.01;

/// The name of the recorder in the list of ring readers.
const RECORDER: &str = "recorder";

/// The final report as text: the accounting equation, loss causes and notes.
pub fn summary(r: &Report) -> String {
    let mut out = String::new();
    let c = &r.counts;
    let _ = writeln!(out, "{} for {:.1} s, timestamps: {}", r.interface, r.seconds, r.timestamp_source);
    for q in &r.queues {
        let _ = writeln!(out, "  {}; ring of {}", q.source, q.ring);
    }
    if let Some(bytes) = r.memory_bytes {
        let _ = writeln!(
            out,
            "  memory of the process at the end: {} (a ring is mapped twice and counted once)",
            show_bytes(bytes)
        );
    }
    let _ = writeln!(out, "ledger (packets, {}):", r.counting_point);
    let mut row = |name: &str, value: u64, more: &str| {
        let _ = writeln!(out, "  {name:<14}{:>18}  {more}", show_count(value));
    };
    row("offered", c.offered, "");
    row("stored", c.stored, &format!("{} on the wire", show_bytes(c.stored_bytes)));
    row("filtered", c.filtered, "");
    row("duplicate", c.duplicate, "");
    row("lost", c.lost_total, "");
    for queue in &r.queues {
        if let Some(duplicates) = &queue.duplicates {
            let _ = writeln!(out, "{}", detected(queue.queue, duplicates));
        }
    }
    let mut row = |name: &str, value: u64, more: &str| {
        let _ = writeln!(out, "  {name:<14}{:>18}  {more}", show_count(value));
    };
    let refused = r.queues.iter().find_map(|q| q.recorder.as_ref()?.refused.as_deref());
    for cause in base::Cause::ALL {
        if let Some(n) = c.lost.get(cause.name()) {
            let reported = (cause == base::Cause::RingFull).then(|| behind(&r.lost_by_reader, refused)).flatten();
            let reported = reported.unwrap_or_else(|| format!("{}; {}", cause.description(), cause.remedy()));
            row(&format!("  {}", cause.name()), *n, &reported);
        }
    }
    for (reader, n) in &r.lost_by_reader {
        row("  because of", *n, reader);
    }
    for (note, n) in &c.notes {
        row(&format!("({note})"), *n, "");
    }
    if r.queues.iter().all(|q| q.recorder.is_none()) {
        let _ = writeln!(
            out,
            "no packets are written to disk (--no-packets, or no --store): stored means stored in the ring"
        );
    }
    if c.residue != 0 {
        let _ = writeln!(out, "  residue {} packets: this is a bug in netgrain, please report it", c.residue);
    }
    for q in &r.queues {
        if let Some(w) = &q.recorder {
            let _ = writeln!(
                out,
                "queue {}: {}, {} written; processor time: engine {:.2} s, index {:.2} s, writer {:.2} s",
                q.queue,
                plural(w.files, "file", "files"),
                show_bytes(w.bytes),
                q.engine_cpu_seconds,
                w.index_cpu_seconds,
                w.writer_cpu_seconds
            );
        }
    }
    for l in r.listeners.iter().filter(|l| ![RECORDER, "meter"].contains(&l.name.as_str())) {
        let _ = writeln!(out, "listener {} ({}): {} missed", l.name, l.mode, show_count(l.missed));
    }
    if r.steal_ratio > STEAL_NOTICEABLE && !r.is_healthy() {
        let _ = writeln!(
            out,
            "note: the hypervisor gave {:.1} % of the processor time to other guests during the capture, which may \
             have caused the losses (see netgrain doctor)",
            r.steal_ratio * 100.0
        );
    }
    for fault in &r.faults {
        let _ = writeln!(out, "FAULT: {fault}");
    }
    for remark in &r.warnings {
        let _ = writeln!(out, "note: {remark}");
    }
    out
}

/// A text about the losses if only the recorder was too slow; `None` in all other cases. The general text about readers
/// is not used for the recorder, because it would suggest that there are listeners.
fn behind(lost_by_reader: &BTreeMap<String, u64>, refused: Option<&str>) -> Option<String> {
    if !lost_by_reader.keys().eq([RECORDER]) {
        return None;
    }
    Some(match refused {
        Some(why) => format!("the ring was full because the recorder could not write: {why}"),
        None => {
            "the ring was full because the recorder could not keep up: use a larger ring (--ring) or a faster volume \
             (netgrain-bench disk measures it)"
                .into()
        }
    })
}

/// The last part of the summary: the outcome of the packets in each data type.
pub fn data_types(m: &MeterReport) -> String {
    let mut out = String::from("data types (packets):\n");
    let mut row = |name: &str, value: u64, more: &str| {
        let _ = writeln!(out, "  {name:<14}{:>18}  {more}", show_count(value));
    };
    row("metered", m.packets, &format!("{} on the wire", show_bytes(m.bytes)));
    if m.duplicates > 0 {
        let bytes = show_bytes(m.duplicate_bytes);
        row("duplicates", m.duplicates, &format!("{bytes} on the wire, stored and marked, in no flow"));
    }
    if m.unmetered > 0 {
        row(
            "unmetered",
            m.unmetered,
            "in no flow record and no row, because the meter was too slow: give it a processor of its own",
        );
    }
    row("in rows", m.in_rows, &format!("{}, one for each second and direction", plural(m.rows, "row", "rows")));
    let records: u64 = m.records.values().sum();
    row(
        "in flows",
        m.in_records,
        &format!("{} of {}", plural(records, "record", "records"), plural(m.started, "flow", "flows")),
    );
    row("in no flow", m.without_flow, "not IP");
    if m.tunnels.numbered > 0 {
        let _ = writeln!(out, "{}", tunnels(&m.tunnels));
    }
    for (end, n) in &m.records {
        let _ = writeln!(out, "records with flow end reason {end}: {}{}", show_count(*n), meaning(end));
    }
    for (error, n) in &m.decode_errors {
        let _ = writeln!(out, "packets with decode error {error}: {}", show_count(*n));
    }
    for sink in &m.sinks {
        let _ = writeln!(out, "{}", sink_line(sink));
    }
    let _ = writeln!(out, "processor time: meter {:.2} s", m.cpu_millis as f64 / 1e3);
    out
}

/// A line about a sink: the records and rows that were passed to the sink, and how many of them were sent or written.
fn sink_line(sink: &SinkReport) -> String {
    let done = if sink.name.starts_with(meter::STORE_NAME) { "written" } else { "sent" };
    let (records, rows) = (plural(sink.records, "record", "records"), plural(sink.rows, "row", "rows"));
    let outcome = match sink.lost {
        0 => format!("all {done}"),
        lost => {
            let delivered = (sink.records + sink.rows).saturating_sub(lost);
            format!("{} {done}, {} NOT {}", show_count(delivered), show_count(lost), done.to_uppercase())
        }
    };
    let error = sink.error.as_ref().map(|e| format!("; {e}")).unwrap_or_default();
    format!("to {}: {records}, {rows}: {outcome}{error}", sink.name)
}

/// A line about the detection of duplicates in a queue: the duplicates by class, and the reach of the table.
fn detected(queue: u16, duplicates: &DuplicateReport) -> String {
    let span = |nanos: u64| show_nanos(nanos as f64);
    let found = duplicates.found.iter().filter(|(_, n)| **n > 0);
    let found: Vec<_> = found.map(|(class, n)| format!("{class} {}", show_count(*n))).collect();
    let found = if found.is_empty() { "none".to_owned() } else { found.join(", ") };
    let mut line =
        format!("duplicates of queue {queue}: {found}; the table reaches back {}", span(duplicates.reach_nanos));
    if let Some(shortest) = duplicates.shortest_reach_nanos {
        let _ = write!(line, ", at the shortest {}", span(shortest));
    }
    if duplicates.forgotten > 0 {
        let _ = write!(
            line,
            "; {} left the table before the window ended: set more capture.duplicate_records",
            plural(duplicates.forgotten, "packet", "packets")
        );
    }
    line
}

/// An explanation of a flow end reason; empty if the name of the reason is sufficient.
fn meaning(reason: &str) -> &'static str {
    match EndReason::ALL.into_iter().find(|end| end.name() == reason) {
        Some(EndReason::ForcedEnd) => " (the run or the capture file ended before the flow)",
        Some(EndReason::LackOfResources) => " (the flow table was full: set a larger flow.capacity)",
        _ => "",
    }
}

/// A line about packets that were lost before the capture, as the sequence numbers of tunnels show.
fn tunnels(t: &TunnelReport) -> String {
    let (numbered, sessions) = (show_count(t.numbered), show_count(t.sessions));
    let mut line =
        format!("tunnel sequence numbers: {numbered} in {sessions} sessions, {} missing", show_count(t.missing));
    for (n, name) in [
        (t.late, "late"),
        (t.duplicate, "duplicate"),
        (t.out_of_window, "out of window"),
        (t.restarts, "restarts"),
        (t.evicted, "sessions evicted"),
    ] {
        if n > 0 {
            let _ = write!(line, ", {} {name}", show_count(n));
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_by_the_recorder_alone_are_not_blamed_on_listeners() {
        let readers = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), 5)).collect();
        let full =
            behind(&readers(&["recorder"]), Some("No space left on device (os error 28); free space on the volume"));
        let full = full.expect("a reason");
        assert!(full.contains("could not write: No space left") && full.contains("free space"), "{full}");
        assert!(behind(&readers(&["recorder"]), None).is_some_and(|slow| slow.contains("a faster volume")));
        assert_eq!(behind(&readers(&["recorder", "probe"]), Some("full")), None);
        assert_eq!(behind(&readers(&[]), None), None);
    }

    #[test]
    fn duplicates_are_printed_by_class_with_the_reach_of_the_table() {
        let found = [("routing", 1200), ("switching", 0)].into();
        let report = DuplicateReport { found, reach_nanos: 21_000_000, ..DuplicateReport::default() };
        let line = detected(2, &report);
        assert!(line.starts_with("duplicates of queue 2: routing 1 200; the table reaches back 21"), "{line}");
        let report = DuplicateReport { shortest_reach_nanos: Some(18_000_000), forgotten: 7, ..report };
        let line = detected(2, &report);
        assert!(line.contains("at the shortest 18") && line.contains("7 packets left the table"), "{line}");
    }

    #[test]
    fn tunnel_sequence_numbers_are_printed_if_there_are_any() {
        let tunnels = TunnelReport { numbered: 100, sessions: 2, missing: 7, late: 3, ..TunnelReport::default() };
        let text = data_types(&MeterReport { tunnels, ..MeterReport::default() });
        assert!(text.contains("\ntunnel sequence numbers: 100 in 2 sessions, 7 missing, 3 late\n"), "{text}");
        assert!(!data_types(&MeterReport::default()).contains("tunnels"));
    }

    #[test]
    fn records_that_ended_early_are_printed_with_the_reason() {
        let records = [("forced_end", 3), ("idle_timeout", 4), ("lack_of_resources", 5)].into();
        let text = data_types(&MeterReport { records, ..MeterReport::default() });
        for line in [
            "records with flow end reason forced_end: 3 (the run or the capture file ended before the flow)",
            "records with flow end reason idle_timeout: 4",
            "flow end reason lack_of_resources: 5 (the flow table was full: set",
        ] {
            assert!(text.lines().any(|l| l.contains(line)), "{text}");
        }
    }

    #[test]
    fn packets_missing_from_a_data_type_have_a_line_of_their_own() {
        let sink = SinkReport { name: "udp 192.0.2.1:4739".into(), records: 7, lost: 2, ..SinkReport::default() };
        let bad = MeterReport { unmetered: 12, sinks: vec![sink], ..MeterReport::default() };
        let text = data_types(&bad);
        assert!(text.contains("unmetered"), "{text}");
        assert!(text.contains("to udp 192.0.2.1:4739: 7 records, 0 rows: 5 sent, 2 NOT SENT\n"), "{text}");
        let good = data_types(&MeterReport { packets: 5, ..MeterReport::default() });
        assert!(!good.contains("unmetered") && !good.contains("NOT"), "{good}");
    }
}
