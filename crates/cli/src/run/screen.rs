//! Text output of all data types: one line during the run, and the comparison of the data types at the end.

use base::units::{show_bytes, show_count, show_si};
use engine::Report;
use flow::EndReason;
use meter::{MeterReport, TunnelReport};
use std::fmt::Write as _;
use std::io::{IsTerminal, Write};

/// Shows the state once a second: one line that is overwritten on a terminal, plain lines elsewhere.
pub struct Line {
    last: Totals,
    terminal: bool,
    lines: u64,
}

/// The header is repeated after this many plain lines.
const HEADER_EVERY: u64 = 20;

const HEADER: &str = "  time    packets       wire     ring       flows    new/s    ended/s  lost";

/// Sums over all interfaces.
#[derive(Clone, Copy, Default)]
struct Totals {
    seconds: f64,
    packets: u64,
    bytes: u64,
    fill: f64,
    active: u64,
    begun: u64,
    lost: u64,
    unmetered: u64,
    unsent: u64,
}

impl Totals {
    fn of(reports: &[Report]) -> Self {
        let mut all = Self::default();
        for r in reports {
            all.seconds = all.seconds.max(r.seconds);
            all.packets += r.counts.stored;
            all.bytes += r.counts.stored_bytes;
            all.fill = r.queues.iter().map(|q| q.ring_fill).fold(all.fill, f64::max);
            all.lost += r.counts.lost_total;
            if let Some(meter) = &r.meter {
                all.active += meter.active;
                all.begun += meter.started;
                all.unmetered += meter.unmetered;
                all.unsent += meter.sinks.iter().map(|o| o.lost).sum::<u64>();
            }
        }
        all
    }
}

impl Line {
    /// Starts the output.
    pub fn new() -> Self {
        Self { last: Totals::default(), terminal: std::io::stderr().is_terminal(), lines: 0 }
    }

    /// Prints the state.
    pub fn show(&mut self, reports: &[Report]) {
        let now = Totals::of(reports);
        let mut line = line(&now, &self.last);
        let trouble = reports.iter().find_map(trouble);
        if let Some(trouble) = trouble {
            let _ = write!(line, "  ! {trouble}");
        }
        let mut err = std::io::stderr().lock();
        // A closed standard error does not stop the capture.
        let _ = if self.terminal {
            write!(err, "\r\x1b[K{line}")
        } else {
            if self.lines.is_multiple_of(HEADER_EVERY) {
                let _ = writeln!(err, "{HEADER}");
            }
            writeln!(err, "{line}")
        };
        let _ = err.flush();
        self.lines += 1;
        self.last = now;
    }

    /// Ends the line that is overwritten.
    pub fn done(&self) {
        if self.terminal && self.lines > 0 {
            let _ = writeln!(std::io::stderr());
        }
    }
}

fn line(now: &Totals, last: &Totals) -> String {
    let span = (now.seconds - last.seconds).max(1e-9);
    let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / span;
    let ended = |t: &Totals| t.begun.saturating_sub(t.active);
    let mut lost = format!("{} lost", show_count(now.lost));
    for (what, n) in [("unmetered", now.unmetered), ("not exported", now.unsent)] {
        if n > 0 {
            let _ = write!(lost, ", {} {what}", show_count(n));
        }
    }
    format!(
        "{:>6.0}s {:>10} {:>10} {:>6.1} % {:>10} {:>8} {:>10}  {lost}",
        now.seconds,
        show_si(rate(now.packets, last.packets), "pps"),
        show_si(rate(now.bytes, last.bytes) * 8.0, "b/s"),
        now.fill * 100.0,
        show_count(now.active),
        show_si(rate(now.begun, last.begun), ""),
        show_si(rate(ended(now), ended(last)), ""),
    )
}

fn trouble(report: &Report) -> Option<String> {
    let recorder = report.queues.iter().find_map(|q| q.recorder.as_ref()?.error.clone());
    let mut egresses = report.meter.iter().flat_map(|m| &m.sinks);
    recorder.or_else(|| egresses.find_map(|o| o.error.as_ref().map(|trouble| format!("{}: {trouble}", o.name))))
}

/// The last part of the summary: the outcome of the packets in each data type.
pub fn data_types(m: &MeterReport) -> String {
    let mut out = String::from("data types (packets):\n");
    let mut row = |name: &str, value: u64, more: &str| {
        let _ = writeln!(out, "  {name:<14}{:>18}  {more}", show_count(value));
    };
    row("metered", m.packets, &format!("{} on the wire", show_bytes(m.bytes)));
    if m.unmetered > 0 {
        row("unmetered", m.unmetered, "in no flow and no row, because the meter was too slow: give it a processor");
    }
    row("in rows", m.in_rows, &format!("{} rows, one for each second and direction", show_count(m.rows)));
    let records: u64 = m.records.values().sum();
    row("in flows", m.in_records, &format!("{} records of {} flows", show_count(records), show_count(m.started)));
    row("in no flow", m.without_flow, "not IP");
    if m.tunnels.numbered > 0 {
        let _ = writeln!(out, "{}", tunnels(&m.tunnels));
    }
    for (end, n) in &m.records {
        let _ = writeln!(out, "records with flow end reason {end}: {}{}", show_count(*n), meaning(end));
    }
    for (odd, n) in &m.decode_errors {
        let _ = writeln!(out, "odd: {odd} {}", show_count(*n));
    }
    for o in &m.sinks {
        let lost = if o.lost > 0 { format!(", {} NOT brought there", show_count(o.lost)) } else { String::new() };
        let trouble = o.error.as_ref().map(|t| format!("; {t}")).unwrap_or_default();
        let (records, rows) = (show_count(o.records), show_count(o.rows));
        let _ = writeln!(out, "to {}: {records} records, {rows} rows{lost}{trouble}", o.name);
    }
    let _ = writeln!(out, "processor time: meter {:.2} s", m.cpu_millis as f64 / 1e3);
    out
}

/// The meaning of a flow end reason that is not in its name.
fn meaning(reason: &str) -> &'static str {
    match EndReason::ALL.into_iter().find(|end| end.name() == reason) {
        Some(EndReason::ForcedEnd) => " (ended before their time, because the run or the capture file ended)",
        Some(EndReason::LackOfResources) => {
            " (ended before their time, because the flow table was full: set flow.capacity higher)"
        }
        _ => "",
    }
}

/// Packets that were lost before capture, by the sequence numbers of tunnels.
fn tunnels(t: &TunnelReport) -> String {
    let (numbered, sessions) = (show_count(t.numbered), show_count(t.sessions));
    let mut line = format!("numbers of tunnels: {numbered} in {sessions} sessions, {} missing", show_count(t.missing));
    for (n, what) in [
        (t.late, "of them late"),
        (t.duplicate, "duplicate"),
        (t.out_of_window, "out of window"),
        (t.restarts, "times begun anew"),
        (t.evicted, "sessions too many"),
    ] {
        if n > 0 {
            let _ = write!(line, ", {} {what}", show_count(n));
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_tunnels_are_told_where_there_are_any() {
        let tunnels = TunnelReport { numbered: 100, sessions: 2, missing: 7, late: 3, ..TunnelReport::default() };
        let said = data_types(&MeterReport { tunnels, ..MeterReport::default() });
        assert!(said.contains("\nnumbers of tunnels: 100 in 2 sessions, 7 missing, 3 of them late\n"), "{said}");
        assert!(!data_types(&MeterReport::default()).contains("tunnels"));
    }
    use meter::SinkReport;

    #[test]
    fn records_that_ended_before_their_time_are_shown_with_the_reason() {
        let records = [("forced_end", 3), ("idle_timeout", 4), ("lack_of_resources", 5)].into();
        let said = data_types(&MeterReport { records, ..MeterReport::default() });
        for line in [
            "records with flow end reason forced_end: 3 (ended before their time, because the run or the capture file ended)",
            "records with flow end reason idle_timeout: 4",
            "flow end reason lack_of_resources: 5 (ended before their time, because the flow table was full: set",
        ] {
            assert!(said.lines().any(|l| l.contains(line)), "{said}");
        }
    }

    #[test]
    fn what_is_not_in_every_data_type_is_said_and_what_is_in_all_takes_no_line() {
        let sink = SinkReport { name: "udp 192.0.2.1:4739".into(), records: 7, lost: 2, ..SinkReport::default() };
        let bad = MeterReport { unmetered: 12, sinks: vec![sink], ..MeterReport::default() };
        let said = data_types(&bad);
        assert!(said.contains("unmetered") && said.contains("2 NOT brought there"), "{said}");
        let good = data_types(&MeterReport { packets: 5, ..MeterReport::default() });
        assert!(!good.contains("unmetered") && !good.contains("NOT"), "{good}");
    }

    #[test]
    fn the_line_tells_rates_since_the_last_one() {
        let last = Totals { seconds: 10.0, packets: 1000, begun: 5, active: 5, ..Totals::default() };
        let now = Totals { seconds: 12.0, packets: 5000, begun: 25, active: 15, unmetered: 3, ..Totals::default() };
        let line = line(&now, &last);
        assert!(line.contains("2.00 kpps") && line.contains("10.0 ") && line.contains("5.00 "), "{line}");
        assert!(line.ends_with("0 lost, 3 unmetered"), "{line}");
    }
}
