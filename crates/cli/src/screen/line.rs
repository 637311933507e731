//! The state of a capture in one line, on standard error once a second.

use base::units::{show_bytes, show_count, show_si};
use engine::Report;
use meter::MeterReport;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write};

/// Prints the state of the capture once a second: on a terminal in one line that is overwritten, otherwise in a new
/// line each time. With a meter the line has columns about flows, without a meter columns about the disk; both together
/// would not fit into 80 columns of text.
pub struct StatusLine {
    last: Totals,
    terminal: bool,
    lines: u64,
}

/// On an output that is not a terminal, the header is repeated after this many lines.
const HEADER_EVERY: u64 = 20;

const HEADER: &str = "  time    packets       wire     ring        disk  lost";
const HEADER_WITH_METER: &str = "  time    packets       wire     ring       flows    new/s    ended/s  lost";

impl StatusLine {
    /// Starts the output.
    pub fn new() -> Self {
        Self { last: Totals::default(), terminal: std::io::stderr().is_terminal(), lines: 0 }
    }

    /// Prints a status line with the sums over all interfaces.
    pub fn show(&mut self, reports: &[Report]) {
        let now = Totals::of(reports);
        let mut line = line(&now, &self.last);
        if let Some(error) = reports.iter().find_map(write_error) {
            let _ = write!(line, "  ! {error}");
        }
        let mut err = std::io::stderr().lock();
        // A closed standard error does not stop the capture.
        let _ = if self.terminal {
            write!(err, "\r\x1b[K{line}")
        } else {
            if self.lines.is_multiple_of(HEADER_EVERY) {
                let _ = writeln!(err, "{}", if now.flows.is_some() { HEADER_WITH_METER } else { HEADER });
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

/// The sums of the counters of all interfaces.
#[derive(Clone, Default)]
struct Totals {
    /// The duration of the capture in seconds; with several interfaces, the longest of their durations.
    seconds: f64,
    packets: u64,
    bytes: u64,
    /// Bytes of packet files.
    written: u64,
    /// The fill level of the fullest ring.
    fill: f64,
    lost: u64,
    lost_by_cause: BTreeMap<&'static str, u64>,
    /// The flow counters of the meters; `None` if no interface has a meter.
    flows: Option<FlowTotals>,
}

#[derive(Clone, Copy, Default)]
struct FlowTotals {
    active: u64,
    started: u64,
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
            all.written += r.queues.iter().filter_map(|q| q.recorder.as_ref()).map(|r| r.bytes).sum::<u64>();
            all.fill = r.queues.iter().map(|q| q.ring_fill).fold(all.fill, f64::max);
            all.lost += r.counts.lost_total;
            for (cause, n) in &r.counts.lost {
                *all.lost_by_cause.entry(cause).or_default() += n;
            }
            if let Some(meter) = &r.meter {
                all.flows.get_or_insert_default().add(meter);
            }
        }
        all
    }

    /// The last column: `0 lost`, or the losses with their causes; then the packets that were not metered and the
    /// records that were not exported.
    fn losses(&self) -> String {
        let mut text = format!("{} lost", show_count(self.lost));
        if self.lost > 0 {
            let causes = self.lost_by_cause.iter().map(|(cause, n)| format!("{cause} {}", show_count(*n)));
            let _ = write!(text, " ({})", causes.collect::<Vec<_>>().join(", "));
        }
        let flows = self.flows.unwrap_or_default();
        for (name, n) in [("unmetered", flows.unmetered), ("not exported", flows.unsent)] {
            if n > 0 {
                let _ = write!(text, ", {} {name}", show_count(n));
            }
        }
        text
    }
}

impl FlowTotals {
    fn add(&mut self, meter: &MeterReport) {
        self.active += meter.active;
        self.started += meter.started;
        self.unmetered += meter.unmetered;
        self.unsent += meter.sinks.iter().map(|sink| sink.lost).sum::<u64>();
    }

    fn ended(&self) -> u64 {
        self.started.saturating_sub(self.active)
    }
}

/// A status line: the rates since the previous line, and the losses since the start.
fn line(now: &Totals, last: &Totals) -> String {
    let span = (now.seconds - last.seconds).max(1e-9);
    let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / span;
    let columns = match now.flows {
        Some(flows) => {
            let before = last.flows.unwrap_or_default();
            format!(
                "{:>10} {:>8} {:>10}",
                show_count(flows.active),
                show_si(rate(flows.started, before.started), ""),
                show_si(rate(flows.ended(), before.ended()), "")
            )
        }
        None => format!("{:>10}/s", show_bytes(rate(now.written, last.written) as u64)),
    };
    format!(
        "{:>6.0}s {:>10} {:>10} {:>6.1} % {columns}  {}",
        now.seconds,
        show_si(rate(now.packets, last.packets), "pps"),
        show_si(rate(now.bytes, last.bytes) * 8.0, "b/s"),
        now.fill * 100.0,
        now.losses(),
    )
}

/// The write error of a recorder; if no recorder has a write error, the error of a sink of the meter.
fn write_error(report: &Report) -> Option<String> {
    let recorder = report.queues.iter().find_map(|q| q.recorder.as_ref()?.error.clone());
    let mut sinks = report.meter.iter().flat_map(|m| &m.sinks);
    recorder.or_else(|| sinks.find_map(|sink| sink.error.as_ref().map(|e| format!("{}: {e}", sink.name))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_rates_since_the_last_line() {
        let flows = |started, active, unmetered| Some(FlowTotals { active, started, unmetered, unsent: 0 });
        let last = Totals { seconds: 10.0, packets: 1000, flows: flows(5, 5, 0), ..Totals::default() };
        let now = Totals { seconds: 12.0, packets: 5000, flows: flows(25, 15, 3), ..Totals::default() };
        let line = line(&now, &last);
        assert!(line.contains("2.00 kpps") && line.contains("10.0 ") && line.contains("5.00 "), "{line}");
        assert!(line.ends_with("0 lost, 3 unmetered"), "{line}");
    }

    #[test]
    fn without_a_meter_the_line_has_the_rate_of_the_disk_and_losses_have_their_causes() {
        let (lost, cause) = (5, BTreeMap::from([("ring_full", 5)]));
        let now = Totals { seconds: 2.0, written: 4 << 20, lost, lost_by_cause: cause, ..Totals::default() };
        let line = line(&now, &Totals::default());
        assert!(line.contains("2.0 MiB/s") || line.contains("2.00 MiB/s") || line.contains("2 MiB/s"), "{line}");
        assert!(line.ends_with("5 lost (ring_full 5)"), "{line}");
    }
}
