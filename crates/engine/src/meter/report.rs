//! What a meter says of itself, and whether its grains agree.

use serde::Serialize;
use std::collections::BTreeMap;
use wire::SessionCounts;

/// One meter, for documents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MeterReport {
    /// Packets that were metered: counted in the series, and in a flow if they belong to one.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Packets that are stored (or were offered to listeners) and in no flow and no curve, because the meter was too slow.
    pub unmetered: u64,
    /// Packets that belong to no flow: not IP, or not enough of them captured.
    pub without_flow: u64,
    /// Packets in the flow records so far.
    pub in_records: u64,
    /// Packets in the rows so far.
    pub in_rows: u64,
    /// Flows in the table.
    pub active: u64,
    /// Flows begun.
    pub started: u64,
    /// Records made, by the reason why.
    pub records: BTreeMap<&'static str, u64>,
    /// Idle, active and ended records by how late they were made, against the moment at which their timeout was over: up to an
    /// eighth of a second, up to two, …, up to a second, later.
    pub lateness: [u64; 9],
    /// The same times added up, in nanoseconds.
    pub lateness_nanos: u64,
    /// Packets with an earlier time than the one before them in their flow, counted as if they had come with it.
    pub backward_timestamps: u64,
    /// Bytes of memory that flows have touched so far, tables included.
    pub flow_bytes: u64,
    /// Rows made.
    pub rows: u64,
    /// What is missing in tunnels that number their packets.
    pub tunnels: TunnelReport,
    /// Frames by what is odd about them (docs/reference/flow-records.md); those that did not occur are left out.
    pub decode_errors: BTreeMap<&'static str, u64>,
    /// Where records and rows go.
    pub sinks: Vec<SinkReport>,
    /// Processor time of the meter's threads in milliseconds.
    pub cpu_millis: u64,
    /// It has ended, and everything is where it goes.
    pub ended: bool,
}

/// Tunnels that number their packets (ERSPAN, GRE, GTP-U), for documents: docs/reference/decoding.md.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TunnelReport {
    /// Numbers that were seen.
    pub numbered: u64,
    /// Sessions that began to be followed: one direction between two outer addresses, of one kind and number.
    pub sessions: u64,
    /// Numbers that were passed over.
    pub missing: u64,
    /// Of these, numbers that came after all, behind later ones.
    pub late: u64,
    /// Numbers that had come already.
    pub duplicate: u64,
    /// Numbers too far from the others to say anything.
    pub out_of_window: u64,
    /// Sessions that began anew with another number.
    pub restarts: u64,
    /// Sessions that had to make place for others.
    pub evicted: u64,
}

impl TunnelReport {
    pub(super) const fn of(counts: &SessionCounts) -> Self {
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

/// One place where records and rows go, for documents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SinkReport {
    /// Which.
    pub name: String,
    /// Flow records that it took.
    pub records: u64,
    /// Rows that it took.
    pub rows: u64,
    /// Records and rows that never went there.
    pub lost: u64,
    /// The trouble it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl MeterReport {
    /// What contradicts: the same packets must be in every grain. `stored` are the packets of the ledger.
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
    fn a_packet_that_is_missing_in_one_grain_is_a_contradiction() {
        for (report, stored, data_type) in [
            (MeterReport { in_rows: 89, ..whole() }, 100, "series"),
            (MeterReport { in_records: 84, ..whole() }, 100, "flow"),
            (MeterReport { unmetered: 9, ..whole() }, 100, "stored"),
            (whole(), 101, "stored"),
        ] {
            let said = report.contradictions(stored, true, true);
            assert!(said.len() == 1 && said[0].contains(data_type), "{data_type}: {said:?}");
        }
    }

    #[test]
    fn grains_that_agree_or_are_not_made_or_not_yet_complete_are_no_contradiction() {
        assert!(whole().contradictions(100, true, true).is_empty());
        let only_series = MeterReport { in_records: 0, without_flow: 0, ..whole() };
        assert!(only_series.contradictions(100, false, true).is_empty());
        let running = MeterReport { ended: false, in_rows: 3, ..whole() };
        assert!(running.contradictions(7, true, true).is_empty());
    }
}
