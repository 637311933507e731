//! Text output during a capture and at its end.

use base::units::{show_bytes, show_count, show_si};
use engine::Report;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Prints the state of a running capture once a second: one line that is overwritten on a terminal, plain lines
/// elsewhere.
pub struct Ticker {
    last: Option<Report>,
    warnings: Warnings,
    next: Instant,
    terminal: bool,
    lines: u64,
}

/// The period of the lines.
const PERIOD: Duration = Duration::from_secs(1);

/// The header is repeated after this many plain lines.
const HEADER_EVERY: u64 = 20;

impl Ticker {
    /// Starts the period.
    pub fn new() -> Self {
        let (next, terminal) = (Instant::now() + PERIOD, std::io::stderr().is_terminal());
        Self { last: None, warnings: Warnings::default(), next, terminal, lines: 0 }
    }

    /// True if a period has passed.
    pub fn is_due(&self) -> bool {
        Instant::now() >= self.next
    }

    /// Starts the next period without a line.
    pub fn skip(&mut self) {
        self.next += PERIOD;
    }

    /// Prints the line.
    pub fn show(&mut self, report: Report) {
        let line = self.line(&report);
        self.warnings.print(&report);
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
        self.last = Some(report);
    }

    /// Ends the line that is overwritten.
    pub fn done(&self) {
        if self.terminal && self.lines > 0 {
            let _ = writeln!(std::io::stderr());
        }
    }

    /// The rates since the last report.
    fn line(&self, now: &Report) -> String {
        let zero = (0, 0, 0, 0.0);
        let of = |r: &Report| (r.counts.stored, r.counts.stored_bytes, written(r), r.seconds);
        let (packets, bytes, disk, seconds) = self.last.as_ref().map_or(zero, of);
        let span = (now.seconds - seconds).max(1e-9);
        let rate = |now: u64, then: u64, scale: f64| now.saturating_sub(then) as f64 * scale / span;
        let fill = now.queues.iter().map(|q| q.ring_fill).fold(0.0, f64::max);
        let mut line = format!(
            "{:>6.0}s {:>10} {:>10} {:>6.1} % {:>10}/s  {}",
            now.seconds,
            show_si(rate(now.counts.stored, packets, 1.0), "pps"),
            show_si(rate(now.counts.stored_bytes, bytes, 8.0), "b/s"),
            fill * 100.0,
            show_bytes(rate(written(now), disk, 1.0) as u64),
            losses(now),
        );
        for trouble in now.queues.iter().filter_map(|q| q.recorder.as_ref()?.error.as_ref()).take(1) {
            let _ = write!(line, "  ! {trouble}");
        }
        line
    }
}

/// The reader name of the recorder.
const RECORDER: &str = "recorder";

const HEADER: &str = "  time    packets       wire     ring        disk  lost";

fn written(r: &Report) -> u64 {
    r.queues.iter().filter_map(|q| q.recorder.as_ref()).map(|r| r.bytes).sum()
}

/// `0 lost`, or each loss cause with its count.
fn losses(r: &Report) -> String {
    if r.counts.lost_total == 0 {
        return "0 lost".into();
    }
    let causes: Vec<String> = r.counts.lost.iter().map(|(c, n)| format!("{c} {}", show_count(*n))).collect();
    format!("{} lost: {}", show_count(r.counts.lost_total), causes.join(", "))
}

/// Prints warnings when they occur; the summary repeats them.
#[derive(Default)]
pub struct Warnings {
    /// The warnings of the last report.
    reported: Vec<String>,
    /// For each lossless reader, the lost packets when they were last printed, and the time of that line in seconds of
    /// the report.
    cost: BTreeMap<String, (u64, f64)>,
}

/// Continuing losses are printed again after this many seconds, or at once if they are ten times as many.
const COST_AGAIN: f64 = 60.0;

impl Warnings {
    /// Prints new warnings, faults, and packets lost because of a lossless reader, one line each.
    pub fn print(&mut self, report: &Report) {
        let costs = self.costs(&report.lost_by_reader, report.seconds);
        let mut err = std::io::stderr().lock();
        let clear = if err.is_terminal() { "\r\x1b[K" } else { "" };
        for text in self.fresh(report.warnings.iter().chain(&report.faults)) {
            // A closed standard error does not stop the capture.
            let _ = writeln!(err, "{clear}netgrain: {text}");
        }
        for text in costs {
            let _ = writeln!(err, "{clear}netgrain: {text}");
        }
    }

    /// Packets lost because of lossless readers since they were last printed.
    fn costs(&mut self, lost_by_reader: &BTreeMap<String, u64>, seconds: f64) -> Vec<String> {
        let mut messages = Vec::new();
        for (reader, lost) in lost_by_reader.iter().filter(|(_, lost)| **lost > 0) {
            let reported = self.cost.get(reader).copied();
            let is_due = reported
                .is_none_or(|(n, at)| *lost > n && (*lost >= n.saturating_mul(10) || seconds - at >= COST_AGAIN));
            if is_due {
                self.cost.insert(reader.clone(), (*lost, seconds));
                let all = show_count(*lost);
                messages.push(format!(
                    "{reader}: {all} packets lost so far because this lossless reader kept the ring full (lost: \
                     ring_full)"
                ));
            }
        }
        messages
    }

    /// The warnings that the last report did not have. They are compared by text and not by position, because the lists
    /// of several threads are concatenated and each drops its oldest entries.
    fn fresh<'a>(&mut self, now: impl Iterator<Item = &'a String>) -> Vec<&'a str> {
        let now: Vec<&String> = now.collect();
        let fresh = now.iter().filter(|text| !self.reported.contains(text)).map(|text| text.as_str()).collect();
        self.reported = now.into_iter().cloned().collect();
        fresh
    }
}

/// With a larger share of stolen CPU time, a ring of a few milliseconds overflows.
const STEAL_NOTICEABLE: f64 = 0.01;

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
    if c.residue != 0 {
        let _ = writeln!(out, "  residue {} packets: this is a bug in netgrain, please report it", c.residue);
    }
    for q in &r.queues {
        if let Some(w) = &q.recorder {
            let _ = writeln!(
                out,
                "queue {}: {} file(s), {} written; processor time: engine {:.2} s, index {:.2} s, writer {:.2} s",
                q.queue,
                w.files,
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

/// The reason of losses if the recorder was the only lossless reader behind: the general text about readers would
/// suggest listeners that do not exist.
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
    fn each_warning_is_printed_once_although_the_list_changes() {
        let mut warnings = Warnings::default();
        let mut fresh_of = |all: &[&str]| {
            let all: Vec<String> = all.iter().map(|text| (*text).to_owned()).collect();
            warnings.fresh(all.iter()).iter().map(|text| (*text).to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(fresh_of(&[]), [""; 0]);
        assert_eq!(fresh_of(&["full"]), ["full"]);
        assert_eq!(fresh_of(&["mended", "full"]), ["mended"], "a thread earlier in the list reports a warning");
        assert_eq!(fresh_of(&["full", "free"]), ["free"], "as many warnings as before, but the oldest was dropped");
        assert_eq!(fresh_of(&["full", "free"]), [""; 0]);
        assert_eq!(fresh_of(&["free", "full"]), [""; 0]);
    }

    #[test]
    fn losses_by_a_reader_are_printed_at_once_then_tenfold_or_each_minute() {
        let mut warnings = Warnings::default();
        let mut messages = |lost: u64, seconds: f64| {
            let readers = BTreeMap::from([("slow".to_owned(), lost), ("quick".to_owned(), 0)]);
            warnings.costs(&readers, seconds).join("; ")
        };
        assert_eq!(messages(0, 1.0), "");
        assert!(messages(7, 2.0).starts_with("slow: 7 packets lost so far"));
        assert_eq!(messages(60, 3.0), "");
        assert!(messages(1_000_000, 4.0).contains("1 000 000"));
        assert_eq!(messages(2_000_000, 63.0), "");
        assert!(messages(2_000_000, 64.0).contains("2 000 000"));
        assert_eq!(messages(2_000_000, 1000.0), "", "nothing was lost since");
    }
}
