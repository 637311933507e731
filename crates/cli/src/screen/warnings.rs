//! Warnings during a capture, on standard error.

use base::units::show_count;
use engine::Report;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};

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
    fn costs(&mut self, lost_by_gate: &BTreeMap<String, u64>, seconds: f64) -> Vec<String> {
        let mut said = Vec::new();
        for (gate, lost) in lost_by_gate.iter().filter(|(_, lost)| **lost > 0) {
            let reported = self.cost.get(gate).copied();
            let is_due = reported
                .is_none_or(|(n, at)| *lost > n && (*lost >= n.saturating_mul(10) || seconds - at >= COST_AGAIN));
            if is_due {
                self.cost.insert(gate.clone(), (*lost, seconds));
                let all = show_count(*lost);
                said.push(format!(
                    "{gate} has cost {all} packets so far: the ring was full because of it (lost: ring_full)"
                ));
            }
        }
        said
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_remark_is_told_once_also_where_others_came_before_it_or_are_forgotten() {
        let mut remarks = Warnings::default();
        let mut hear = |all: &[&str]| {
            let all: Vec<String> = all.iter().map(|text| (*text).to_owned()).collect();
            remarks.fresh(all.iter()).iter().map(|text| (*text).to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(hear(&[]), [""; 0]);
        assert_eq!(hear(&["full"]), ["full"]);
        assert_eq!(hear(&["mended", "full"]), ["mended"], "an earlier thread has begun to speak");
        assert_eq!(hear(&["full", "free"]), ["free"], "as many as before, and one is forgotten");
        assert_eq!(hear(&["full", "free"]), [""; 0]);
        assert_eq!(hear(&["free", "full"]), [""; 0]);
    }

    #[test]
    fn what_a_gate_costs_is_said_at_once_then_tenfold_or_each_minute() {
        let mut remarks = Warnings::default();
        let mut said = |lost: u64, seconds: f64| {
            let gates = BTreeMap::from([("slow".to_owned(), lost), ("quick".to_owned(), 0)]);
            remarks.costs(&gates, seconds).join("; ")
        };
        assert_eq!(said(0, 1.0), "");
        assert!(said(7, 2.0).starts_with("slow has cost 7 packets so far"));
        assert_eq!(said(60, 3.0), "");
        assert!(said(1_000_000, 4.0).contains("1 000 000"));
        assert_eq!(said(2_000_000, 63.0), "");
        assert!(said(2_000_000, 64.0).contains("2 000 000"));
        assert_eq!(said(2_000_000, 1000.0), "", "nothing was lost since");
    }
}
