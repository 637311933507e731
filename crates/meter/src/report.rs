//! The report of a meter, and the check that flow records and series rows contain the same packets.

use serde::Serialize;
use std::collections::BTreeMap;
use wire::SessionCounts;

/// The counters of one meter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MeterReport {
    /// Metered packets: counted in the series, and in a flow if they belong to one.
    pub packets: u64,
    /// Bytes on the wire of the metered packets.
    pub bytes: u64,
    /// Stored packets that the engine marked as copies of earlier packets. They are counted apart in the series rows,
    /// and are in no flow.
    pub duplicates: u64,
    /// Bytes on the wire of the packets that `duplicates` counts.
    pub duplicate_bytes: u64,
    /// Packets that were stored (or offered to listeners) but are counted in no flow and no series row, because the
    /// meter was too slow.
    pub unmetered: u64,
    /// Packets that belong to no flow, because they are not IP packets or because too few bytes were captured.
    pub without_flow: u64,
    /// Sum of the packets in all flow records made so far.
    pub in_records: u64,
    /// Sum of the packets in all series rows made so far.
    pub in_rows: u64,
    /// Sum of the marked copies in all series rows made so far.
    pub duplicates_in_rows: u64,
    /// Number of flows in the flow table.
    pub active: u64,
    /// Number of flows begun.
    pub started: u64,
    /// Number of flow records by flow end reason.
    pub records: BTreeMap<&'static str, u64>,
    /// Number of flow records by expiry delay, for the end reasons idle timeout, active timeout and end of flow. The
    /// expiry delay is the time from the timeout of the flow to the moment at which the record is made. The ranges are
    /// up to 1/8 s, up to 2/8 s, …, up to 1 s, and longer.
    pub expiry_delays: [u64; 9],
    /// The sum of the expiry delays, in nanoseconds, of the records that `expiry_delays` counts.
    pub expiry_delay_nanos: u64,
    /// Packets with an earlier timestamp than the previous packet of their flow. They are counted with the timestamp of
    /// the previous packet.
    pub backward_timestamps: u64,
    /// Bytes of memory that the flow tables have used so far.
    pub flow_bytes: u64,
    /// Number of series rows made.
    pub rows: u64,
    /// Counters of the sequence numbers of tunnels.
    pub tunnels: TunnelReport,
    /// Number of frames by decode error (docs/reference/decoding.md); errors that did not occur are omitted.
    pub decode_errors: BTreeMap<&'static str, u64>,
    /// The reports of the sinks.
    pub sinks: Vec<SinkReport>,
    /// CPU time of the meter's threads in milliseconds.
    pub cpu_millis: u64,
    /// True if the meter has ended and all sinks have finished.
    pub ended: bool,
}

/// Counters of the tunnels with sequence numbers (ERSPAN, GRE, GTP-U): docs/reference/decoding.md.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TunnelReport {
    /// Number of packets with a tunnel sequence number.
    pub numbered: u64,
    /// Number of tunnel sessions begun. A session is one direction between two outer addresses, with one kind of tunnel
    /// and one key.
    pub sessions: u64,
    /// Number of tunnel sequence numbers skipped.
    pub missing: u64,
    /// Number of skipped tunnel sequence numbers that arrived later than higher numbers.
    pub late: u64,
    /// Number of tunnel sequence numbers that arrived twice.
    pub duplicate: u64,
    /// Number of tunnel sequence numbers that differ too much from the earlier numbers of their session to be
    /// classified.
    pub out_of_window: u64,
    /// Number of tunnel sessions that restarted with another sequence number.
    pub restarts: u64,
    /// Number of tunnel sessions evicted because the table of sessions was full.
    pub evicted: u64,
}

impl TunnelReport {
    pub(crate) const fn of(counts: &SessionCounts) -> Self {
        let SessionCounts { numbered, started: sessions, missing, late, duplicate, out_of_window, restarts, evicted } =
            *counts;
        Self { numbered, sessions, missing, late, duplicate, out_of_window, restarts, evicted }
    }
}

/// The report of one sink of records and series rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SinkReport {
    /// The sink's name.
    pub name: String,
    /// Flow records passed to the sink.
    pub records: u64,
    /// Rows passed to the sink.
    pub rows: u64,
    /// Records and series rows that the sink could not deliver.
    pub lost: u64,
    /// The sink's current error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl MeterReport {
    /// Returns contradictions between the counters: records and series rows must contain the same packets. `stored` is
    /// the packet count of the ledger.
    pub fn contradictions(&self, stored: u64, flows: bool, series: bool) -> Vec<String> {
        let mut faults = Vec::new();
        if !self.ended {
            return faults;
        }
        let mut differ = |what: &str, a: u64, b: u64| {
            if a != b {
                faults.push(format!("{what} differ: {a} and {b} packets; please report this"));
            }
        };
        let processed = self.packets + self.duplicates + self.unmetered;
        differ("metered packets plus duplicates plus unmetered packets, and stored packets,", processed, stored);
        if series {
            differ("packets in series rows, and metered packets,", self.in_rows, self.packets);
            let duplicates = self.duplicates_in_rows;
            differ("duplicates in series rows, and duplicates of the meter,", duplicates, self.duplicates);
        }
        if flows {
            differ(
                "packets in flow records plus packets without a flow, and metered packets,",
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

    fn consistent_report() -> MeterReport {
        MeterReport {
            packets: 90,
            duplicates: 4,
            duplicates_in_rows: 4,
            unmetered: 6,
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
            (MeterReport { in_rows: 89, ..consistent_report() }, 100, "series"),
            (MeterReport { in_records: 84, ..consistent_report() }, 100, "flow"),
            (MeterReport { unmetered: 9, ..consistent_report() }, 100, "stored"),
            (MeterReport { duplicates_in_rows: 3, ..consistent_report() }, 100, "duplicates"),
            (MeterReport { duplicates: 0, duplicates_in_rows: 0, ..consistent_report() }, 100, "stored"),
            (consistent_report(), 101, "stored"),
        ] {
            let contradictions = report.contradictions(stored, true, true);
            assert!(
                contradictions.len() == 1 && contradictions[0].contains(data_type),
                "{data_type}: {contradictions:?}"
            );
        }
    }

    #[test]
    fn disabled_or_incomplete_data_types_are_no_contradiction() {
        assert!(consistent_report().contradictions(100, true, true).is_empty());
        let only_series = MeterReport { in_records: 0, without_flow: 0, ..consistent_report() };
        assert!(only_series.contradictions(100, false, true).is_empty());
        let running = MeterReport { ended: false, in_rows: 3, ..consistent_report() };
        assert!(running.contradictions(7, true, true).is_empty());
    }
}
