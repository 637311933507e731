//! The report of a meter, and the check that its data types agree.

use serde::Serialize;
use std::collections::BTreeMap;
use wire::SessionCounts;

/// The counters of one meter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MeterReport {
    /// Packets that were metered: counted in the series, and in a flow if they belong to one.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Packets that are stored (or were offered to listeners) but are in no flow and no row, because the meter was too
    /// slow.
    pub unmetered: u64,
    /// Packets that belong to no flow: not IP, or captured with too few bytes.
    pub without_flow: u64,
    /// Packets in the flow records so far.
    pub in_records: u64,
    /// Packets in the rows so far.
    pub in_rows: u64,
    /// Flows in the table.
    pub active: u64,
    /// Flows begun.
    pub started: u64,
    /// Records, by end reason.
    pub records: BTreeMap<&'static str, u64>,
    /// Records ended by idle timeout, active timeout or end of flow, by their delay after the end of the timeout: up to
    /// 1/8 s, up to 2/8 s, …, up to 1 s, longer.
    pub lateness: [u64; 9],
    /// The sum of these delays in nanoseconds.
    pub lateness_nanos: u64,
    /// Packets with an earlier timestamp than the packet before them in their flow, counted with the timestamp of that
    /// packet.
    pub backward_timestamps: u64,
    /// Bytes of memory that the flow tables have used so far.
    pub flow_bytes: u64,
    /// Rows made.
    pub rows: u64,
    /// Sequence number counters of tunnels.
    pub tunnels: TunnelReport,
    /// Frames by decode error (docs/reference/flow-records.md), without errors that did not occur.
    pub decode_errors: BTreeMap<&'static str, u64>,
    /// The sinks of records and rows.
    pub sinks: Vec<SinkReport>,
    /// Processor time of the meter's threads in milliseconds.
    pub cpu_millis: u64,
    /// True if the meter has ended and all sinks have finished.
    pub ended: bool,
}

/// Sequence number counters of tunnels with sequence numbers (ERSPAN, GRE, GTP-U): docs/reference/decoding.md.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TunnelReport {
    /// Sequence numbers seen.
    pub numbered: u64,
    /// Tunnel sessions begun: one direction between two outer addresses, of one kind and key.
    pub sessions: u64,
    /// Sequence numbers skipped.
    pub missing: u64,
    /// Skipped sequence numbers that arrived later.
    pub late: u64,
    /// Sequence numbers that arrived twice.
    pub duplicate: u64,
    /// Sequence numbers too far from the others to be classified.
    pub out_of_window: u64,
    /// Sessions that restarted with another sequence number.
    pub restarts: u64,
    /// Sessions evicted because the table was full.
    pub evicted: u64,
}

impl TunnelReport {
    pub(crate) const fn of(counts: &SessionCounts) -> Self {
        let SessionCounts {
            numbered,
            started: begun,
            missing,
            late,
            duplicate: repeated,
            out_of_window: astray,
            restarts,
            evicted: displaced,
        } = *counts;
        Self {
            numbered,
            sessions: begun,
            missing,
            late,
            duplicate: repeated,
            out_of_window: astray,
            restarts,
            evicted: displaced,
        }
    }
}

/// The report of one sink of records and rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SinkReport {
    /// The sink's name.
    pub name: String,
    /// Flow records passed to the sink.
    pub records: u64,
    /// Rows passed to the sink.
    pub rows: u64,
    /// Records and rows that the sink lost.
    pub lost: u64,
    /// The sink's current error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl MeterReport {
    /// Returns contradictions between the counters: records and rows must contain the same packets. `stored` is the
    /// packet count of the ledger.
    pub fn contradictions(&self, stored: u64, flows: bool, series: bool) -> Vec<String> {
        let mut faults = Vec::new();
        if !self.ended {
            return faults;
        }
        let mut differ = |what: &str, a: u64, b: u64| {
            if a != b {
                faults.push(format!("{what}: {a} and {b} packets; please report this"));
            }
        };
        differ("metered and unmetered against stored", self.packets + self.unmetered, stored);
        if series {
            differ("the series against those metered", self.in_rows, self.packets);
        }
        if flows {
            differ(
                "flow records and packets without a flow against those metered",
                self.in_records + self.without_flow,
                self.packets,
            );
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole() -> MeterReport {
        MeterReport {
            packets: 90,
            unmetered: 10,
            without_flow: 5,
            in_records: 85,
            in_rows: 90,
            ended: true,
            ..MeterReport::default()
        }
    }

    #[test]
    fn a_packet_that_is_missing_in_one_data_type_is_a_contradiction() {
        for (report, stored, data_type) in [
            (MeterReport { in_rows: 89, ..whole() }, 100, "series"),
            (MeterReport { in_records: 84, ..whole() }, 100, "flow"),
            (MeterReport { unmetered: 9, ..whole() }, 100, "stored"),
            (whole(), 101, "stored"),
        ] {
            let contradictions = report.contradictions(stored, true, true);
            assert!(
                contradictions.len() == 1 && contradictions[0].contains(data_type),
                "{data_type}: {contradictions:?}"
            );
        }
    }

    #[test]
    fn data_types_that_agree_or_are_not_made_or_not_yet_complete_are_no_contradiction() {
        assert!(whole().contradictions(100, true, true).is_empty());
        let only_series = MeterReport { in_records: 0, without_flow: 0, ..whole() };
        assert!(only_series.contradictions(100, false, true).is_empty());
        let running = MeterReport { ended: false, in_rows: 3, ..whole() };
        assert!(running.contradictions(7, true, true).is_empty());
    }
}
