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
    /// For each lossless reader, the number of lost packets in the last line that was printed about the reader, and the
    /// time of that line in seconds since the start of the capture.
    cost: BTreeMap<String, (u64, f64)>,
}

/// If a reader loses further packets, its losses are printed again after this many seconds. They are printed at once if
/// the number of lost packets has become ten times that of the last line.
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

    /// A message for each lossless reader whose losses are due to be printed, with the packets lost because of the
    /// reader since the start.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_warning_is_printed_once_although_the_list_changes() {
        let mut warnings = Warnings::default();
        let mut fresh_of = |all: &[&str]| {
            let all: Vec<String> = all.iter().map(|text| (*text).to_owned()).collect();
            warnings.fresh(all.iter()).iter().map(|text| (*text).to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(fresh_of(&[]), [""; 0]);
        assert_eq!(fresh_of(&["full"]), ["full"]);
        assert_eq!(fresh_of(&["stalled", "full"]), ["stalled"], "a thread earlier in the list reports a warning");
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
