//! The report of a running capture: the same numbers for the live table, `--json`, `/metrics` and the summary.

use crate::recording::RecorderReport;
use crate::retention_report::RetentionReport;
use base::{Row, Tally};
use interface_program::ProgramReport;
use meter::MeterReport;
use serde::Serialize;
use std::collections::BTreeMap;
use store::device::Space;

/// A tally with named fields, for JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Packets that reached the counting point.
    pub offered: u64,
    /// Packets in the ring and the store.
    pub stored: u64,
    /// Wire bytes of the stored packets.
    pub stored_bytes: u64,
    /// Packets that the filter refused, or that the interface's program kept from the ring.
    pub filtered: u64,
    /// Copies removed.
    pub duplicate: u64,
    /// Packets lost by all causes.
    pub lost_total: u64,
    /// Packets lost by cause; causes that did not occur are left out.
    pub lost: BTreeMap<&'static str, u64>,
    /// Notes on stored packets; notes that did not occur are left out.
    pub notes: BTreeMap<&'static str, u64>,
    /// `offered - stored - filtered - duplicate - lost_total`: not zero only if netgrain has a bug.
    pub residue: i64,
}

impl From<&Tally> for Counts {
    fn from(t: &Tally) -> Self {
        Self {
            offered: t.offered,
            stored: t.stored,
            stored_bytes: t.stored_bytes,
            filtered: t.filtered,
            duplicate: t.duplicate,
            lost_total: t.lost_total(),
            lost: t.losses().map(|(c, n)| (c.name(), n)).collect(),
            notes: t.nonzero_notes().map(|(c, n)| (c.name(), n)).collect(),
            residue: t.residue(),
        }
    }
}

/// One second of the ledger, for JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Second {
    /// Seconds since 1970 (UTC).
    pub second: u64,
    /// The tally of this second.
    #[serde(flatten)]
    pub counts: Counts,
}

impl From<&Row> for Second {
    fn from(row: &Row) -> Self {
        Self { second: row.second, counts: Counts::from(&row.tally) }
    }
}

/// One listener, for JSON.
#[derive(Clone, Debug, Serialize)]
pub struct ListenerReport {
    /// The listener's slot in the ring.
    pub slot: u8,
    /// The name that the listener gave itself.
    pub name: String,
    /// Queue of the ring.
    pub queue: u16,
    /// The listener's mode: lossless or `lossy`.
    pub mode: &'static str,
    /// True if the reader timeout has passed, so that the producer no longer waits for this listener.
    pub expired: bool,
    /// Packets lost because the producer waited for this listener (lossless only).
    pub losses_caused: u64,
    /// Packets seen, as the listener reports.
    pub seen: u64,
    /// Packets missed, as the listener reports.
    pub missed: u64,
}

/// One queue, for JSON.
#[derive(Clone, Debug, Default, Serialize)]
pub struct QueueReport {
    /// Queue number.
    pub queue: u16,
    /// Description of the source.
    pub source: String,
    /// The tally of the queue's packets.
    #[serde(flatten)]
    pub counts: Counts,
    /// Fill level of the ring: 0 to 1.
    pub ring_fill: f64,
    /// Bytes of the ring (without descriptors), the kind of its pages, and whether they are locked.
    pub ring: String,
    /// Processor seconds of the engine thread.
    pub engine_cpu_seconds: f64,
    /// Estimated error of the timestamps in nanoseconds; 0 if the source makes the timestamps.
    pub clock_error_nanos: u64,
    /// The recorder of this queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorder: Option<RecorderReport>,
}

/// The state of a capture at one moment, or at its end.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Interface, file or simulation.
    pub interface: String,
    /// Seconds since the start.
    pub seconds: f64,
    /// Share of the machine's processor time since the start that the hypervisor gave to other guests: 0 to 1.
    pub steal_ratio: f64,
    /// Physical memory of the whole process in bytes, if requested; memory that is mapped twice, as rings are, counts
    /// once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// The tally of all queues.
    #[serde(flatten)]
    pub counts: Counts,
    /// The point at which `offered` is counted.
    pub counting_point: &'static str,
    /// The timestamp source.
    pub timestamp_source: &'static str,
    /// Losses to a full ring, by the lossless reader that held it.
    pub lost_by_reader: BTreeMap<String, u64>,
    /// The queues.
    pub queues: Vec<QueueReport>,
    /// How the interface's program runs, and its counters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<ProgramReport>,
    /// The report of the meter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meter: Option<MeterReport>,
    /// The listeners.
    pub listeners: Vec<ListenerReport>,
    /// The report of the retention worker of this capture; for metrics. JSON has it beside this report.
    #[serde(skip)]
    pub retention: Option<RetentionReport>,
    /// The volume of the store; for metrics.
    #[serde(skip)]
    pub volume: Option<Space>,
    /// The groups whose first interface this is; for metrics. JSON has them beside this report.
    #[serde(skip)]
    pub groups: Vec<group::GroupView>,
    /// Warnings.
    pub warnings: Vec<String>,
    /// Faults: contradictory counters, files left hidden. Empty in a healthy capture.
    pub faults: Vec<String>,
}

impl Report {
    /// True if nothing is lost and there is no fault.
    pub fn is_healthy(&self) -> bool {
        let metered = self.meter.as_ref().is_none_or(|m| m.unmetered == 0 && m.sinks.iter().all(|o| o.lost == 0));
        self.counts.lost_total == 0 && self.counts.residue == 0 && self.faults.is_empty() && metered
    }
}
