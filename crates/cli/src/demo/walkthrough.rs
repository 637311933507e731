//! The analysis of the incident as an operator would do it: the time series shows when it happened, flow records show
//! the host, packets show the details. Each step is a command on the store. Its result must agree exactly with the
//! packets that were sent.

use super::incident::{SCANNER, Second, seconds};
use super::queries::{QueryRun, objects, query};
use base::units::show_count;
use meter::MeterReport;
use std::io::{self, Write};
use std::path::Path;

/// One query and its purpose.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Step {
    /// The data type of the result: `series`, `flows` or `packets`.
    pub data_type: &'static str,
    /// The purpose of the query.
    pub purpose: String,
    /// The result.
    pub result: QueryRun,
}

/// The analysis.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Walkthrough {
    /// The steps in order.
    pub steps: Vec<Step>,
    /// Contradictions between data types, or between a data type and the senders.
    pub disagreements: Vec<String>,
}

/// The fields of a group that the demo reads from the output of `netgrain flows --group src`.
#[derive(serde::Deserialize)]
struct SourceHost {
    src: String,
    flows: u64,
    packets: u64,
}

/// The fields of a flow record that the demo reads.
#[derive(serde::Deserialize)]
struct Flow {
    id: String,
    first: String,
}

/// The report of `netgrain packets --count --json`.
#[derive(serde::Deserialize)]
struct Counted {
    packets: u64,
}

impl Walkthrough {
    /// Analyses the store, which should have `scanned` frames of the scanning host.
    pub fn through(store: &Path, meter: &MeterReport, scanned: u64) -> Self {
        let mut walk = Self::default();
        let Some((from, to)) = walk.series(store, meter, scanned) else { return walk };
        let interval = ["--from", &from, "--to", &to];
        walk.flows(store, interval, scanned);
        walk.packets(store, interval, scanned);
        walk
    }

    /// Finds the time of the incident: the seconds with SYNs.
    fn series(&mut self, store: &Path, meter: &MeterReport, scanned: u64) -> Option<(String, String)> {
        self.step("series", "when did the incident happen?".into(), query("series", store, &[]));
        let fields = ["--json", "--fields", "second,packets,tcp_syn"];
        let rows: Vec<Second> = objects(&query("series", store, &fields));
        self.same(
            "the number of packets in the series rows differs from the number of metered packets",
            rows.iter().map(|r| r.packets).sum(),
            meter.packets,
        );
        self.same(
            "the number of SYNs in the series rows differs from the number of SYNs that were sent",
            rows.iter().map(|r| r.tcp_syn).sum(),
            scanned,
        );
        let (from, to) = seconds(&rows)?;
        let moment = |at: base::Timestamp| format!("{}Z", at.to_string().split('.').next().unwrap_or_default());
        Some((moment(from), moment(to)))
    }

    /// Finds the scanning host, by the numbers of flows and of packets.
    fn flows(&mut self, store: &Path, [f, from, t, to]: [&str; 4], scanned: u64) {
        let purpose = format!("which hosts began the most flows, from {from} to {to}?");
        let top = |by| [f, from, t, to, "--group", "src", "--by", by, "--top", "3"];
        self.step("flows", purpose, query("flows", store, &top("flows")));
        self.step("flows", "which hosts sent the most packets?".into(), query("flows", store, &top("packets")));
        let hosts: Vec<SourceHost> = objects(&query("flows", store, &[&top("flows")[..], &["--json"]].concat()));
        self.check_scanner(&hosts, scanned);
    }

    /// Compares the source address that has the most flows with the scanning host. The addresses, the numbers of flows
    /// and the numbers of packets must be equal.
    fn check_scanner(&mut self, hosts: &[SourceHost], scanned: u64) {
        match hosts.first() {
            Some(first) if first.src == SCANNER.to_string() => {
                self.same(
                    "the number of flows of the scanning host differs from the number of hosts that it contacted",
                    first.flows,
                    scanned,
                );
                self.same(
                    "the number of packets in the flows of the scanning host differs from the number that it sent",
                    first.packets,
                    scanned,
                );
            }
            other => {
                let named = other.map_or("no host", |host| host.src.as_str());
                self.disagreements
                    .push(format!("the flow records show that {named} began the most flows; expected {SCANNER}"));
            }
        }
    }

    /// Finds the first flow of the scanning host and its packets, then all its packets.
    fn packets(&mut self, store: &Path, [f, from, t, to]: [&str; 4], scanned: u64) {
        let filter = format!("src host {SCANNER}");
        let first = [f, from, t, to, filter.as_str(), "--limit", "3"];
        self.step("flows", format!("which flows did {SCANNER} begin?"), query("flows", store, &first));
        let flows: Vec<Flow> =
            objects(&query("flows", store, &[&first[..], &["--json", "--fields", "id,first"]].concat()));
        if let Some(Flow { id, first }) = flows.first() {
            let words = ["--flow", id, "--from", first, "--to", "+1s", "--explain"];
            self.step(
                "packets",
                "which packets does the first of these flows have?".into(),
                query("packets", store, &words),
            );
            let counted: Vec<Counted> = objects(&query("packets", store, &["--flow", id, "--count", "--json"]));
            self.same(
                "the number of stored packets of the first flow differs from the number in its flow record",
                counted.iter().map(|c| c.packets).sum(),
                1,
            );
        }
        let all = [f, from, t, to, filter.as_str(), "--count"];
        let purpose = format!("which packets did {SCANNER} send?");
        self.step("packets", purpose, query("packets", store, &[&all[..], &["--explain"]].concat()));
        let counted: Vec<Counted> = objects(&query("packets", store, &[&all[..], &["--json"]].concat()));
        self.same(
            "the number of stored packets of the scanning host differs from the number that it sent",
            counted.iter().map(|c| c.packets).sum(),
            scanned,
        );
    }

    fn step(&mut self, data_type: &'static str, purpose: String, result: QueryRun) {
        if !result.found {
            self.disagreements.push(format!("no result of: {}", result.command));
        }
        self.steps.push(Step { data_type, purpose, result });
    }

    /// Compares two numbers; if they differ, adds the text `difference` and both numbers to the disagreements.
    pub fn same(&mut self, difference: &str, a: u64, b: u64) {
        if a != b {
            self.disagreements.push(format!("{difference}: {} and {}", show_count(a), show_count(b)));
        }
    }

    /// Prints the analysis as text.
    pub fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let mut data_type = "";
        for (number, step) in self.steps.iter().enumerate() {
            if step.data_type != data_type {
                writeln!(out)?;
                data_type = step.data_type;
            }
            writeln!(out, "{}. {}: {}", number + 1, step.data_type, step.purpose)?;
            step.result.describe(out)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_numbers_and_queries_without_result_are_disagreements() {
        let mut walk = Walkthrough::default();
        walk.same("packets", 7, 7);
        assert!(walk.disagreements.is_empty());
        walk.same("packets", 8, 9);
        assert_eq!(walk.disagreements, ["packets: 8 and 9"]);
        let none = QueryRun { command: "netgrain x".into(), ms: 1.0, found: false, text: "".into(), stderr: "".into() };
        walk.step("flows", "who?".into(), none);
        assert!(walk.disagreements[1].ends_with("netgrain x"));
    }

    #[test]
    fn flow_records_of_another_host_or_count_are_disagreements() {
        let host = |src: &str, flows| SourceHost { src: src.into(), flows, packets: 60 };
        let disagreements_of = |hosts: &[SourceHost]| {
            let mut walk = Walkthrough::default();
            walk.check_scanner(hosts, 60);
            walk.disagreements
        };
        assert!(disagreements_of(&[])[0].contains("no host began"));
        assert!(disagreements_of(&[host("10.0.0.1", 60), host("203.0.113.66", 60)])[0].contains("10.0.0.1 began"));
        assert_eq!(disagreements_of(&[host("203.0.113.66", 59)]).len(), 1);
        assert!(disagreements_of(&[host("203.0.113.66", 60)]).is_empty());
    }
}
