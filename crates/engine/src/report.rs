//! The report of a running capture: the same numbers for the live table, `--json`, `/metrics` and the summary.

use crate::duplicate_report::DuplicateReport;
use crate::recording::RecorderReport;
use crate::retention_report::RetentionReport;
use base::{Row, Tally};
use interface_program::ProgramReport;
use meter::MeterReport;
use serde::Serialize;
use std::collections::BTreeMap;
use store::device::Space;
use timestamping::NicClockState;

/// The tally of the packets of a queue, an interface or a second, with named fields for JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Packets that reached the point at which the source counts.
    pub offered: u64,
    /// Packets stored in the ring and, if there is a recorder, in the store.
    pub stored: u64,
    /// Bytes on the wire of the stored packets.
    pub stored_bytes: u64,
    /// Packets that did not match the filter, or that the interface's program dropped, forwarded or passed to the host.
    pub filtered: u64,
    /// Packets removed as duplicates.
    pub duplicate: u64,
    /// Packets lost, summed over all causes.
    pub lost_total: u64,
    /// Packets lost by cause; causes that did not occur are omitted.
    pub lost: BTreeMap<&'static str, u64>,
    /// Number of packets for each note; a note without packets is omitted.
    pub notes: BTreeMap<&'static str, u64>,
    /// The difference `offered - stored - filtered - duplicate - lost_total`. It is zero unless netgrain has a bug.
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

/// The tally of one second of the ledger, for JSON.
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

/// The report of one listener, for JSON.
#[derive(Clone, Debug, Serialize)]
pub struct ListenerReport {
    /// The listener's slot in the ring.
    pub slot: u8,
    /// The name that the listener chose.
    pub name: String,
    /// The number of the ring's queue.
    pub queue: u16,
    /// The listener's mode: `lossless` or `lossy`.
    pub mode: &'static str,
    /// True if the reader timeout has passed. Then the producer no longer waits for this listener.
    pub expired: bool,
    /// Packets lost because the producer waited for this lossless listener.
    pub losses_caused: u64,
    /// Packets that the listener has read, as it reports.
    pub seen: u64,
    /// Packets that the listener has missed, as it reports.
    pub missed: u64,
}

/// The state of the system clock, as the time daemon has set it in the kernel (adjtimex(2)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClockReport {
    /// True if a time daemon synchronises the clock.
    pub synchronised: bool,
    /// Estimated error in nanoseconds.
    pub estimated_error_nanos: u64,
    /// Maximum error in nanoseconds.
    pub maximum_error_nanos: u64,
    /// Correction of the clock's rate in parts per billion.
    pub frequency_ppb: i64,
}

impl ClockReport {
    /// Reads the state from the kernel; `None` if the kernel refuses.
    pub(crate) fn read() -> Option<Self> {
        let status = sys::timex::clock_status().ok()?;
        Some(Self {
            synchronised: status.synchronised,
            estimated_error_nanos: status.estimated_error.as_nanos() as u64,
            maximum_error_nanos: status.maximum_error.as_nanos() as u64,
            frequency_ppb: status.frequency_ppb,
        })
    }
}

/// The relation of the NIC's clock to the system clock, for JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NicClockReport {
    /// System time less NIC time in nanoseconds.
    pub offset_nanos: i64,
    /// The rate of the system clock relative to that of the NIC's clock, less 1, in parts per billion.
    pub skew_ppb: i64,
    /// Estimated error of converted timestamps in nanoseconds, without the error of the system clock.
    pub error_nanos: u64,
    /// Number of steps of one of the clocks.
    pub steps: u64,
}

impl From<NicClockState> for NicClockReport {
    fn from(state: NicClockState) -> Self {
        let NicClockState { offset_nanos, skew_ppb, error, steps } = state;
        Self { offset_nanos, skew_ppb, error_nanos: error.as_nanos() as u64, steps }
    }
}

/// The report of one queue, for JSON.
#[derive(Clone, Debug, Default, Serialize)]
pub struct QueueReport {
    /// Queue number.
    pub queue: u16,
    /// Description of the source.
    pub source: String,
    /// The tally of the queue's packets.
    #[serde(flatten)]
    pub counts: Counts,
    /// Fill level of the ring, from 0 to 1.
    pub ring_fill: f64,
    /// Size of the ring (without descriptors), kind of its pages, and whether they are locked, as a text.
    pub ring: String,
    /// CPU seconds of the engine thread.
    pub engine_cpu_seconds: f64,
    /// Estimated error of the timestamps in nanoseconds; 0 if the source supplies the timestamps.
    pub clock_error_nanos: u64,
    /// Method of timestamping: poll, batch, udts, wdts, adaptive, kernel, hardware, file or schedule.
    pub timestamp_method: String,
    /// Number of packets by the method that made their timestamp; methods of no packet are omitted. Packets that were
    /// filtered or removed later are included.
    pub timestamp_methods: BTreeMap<&'static str, u64>,
    /// The relation of the NIC's clock to the system clock, if timestamps of the NIC are converted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nic_clock: Option<NicClockReport>,
    /// Estimated standard deviation in nanoseconds of the timestamps that the engine distributes to the packets of a
    /// batch; 0 with other methods.
    pub timestamp_deviation_nanos: u64,
    /// The detection of duplicates, if it is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicates: Option<DuplicateReport>,
    /// The report of the recorder of this queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorder: Option<RecorderReport>,
}

/// The counters and the status of a capture, while it runs or at its end.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Name of the interface, the file or the simulation.
    pub interface: String,
    /// Seconds since the start of the capture.
    pub seconds: f64,
    /// Steal time: the share of the machine's CPU time since the start that the hypervisor gave to other guests, from 0
    /// to 1.
    pub steal_ratio: f64,
    /// The state of the system clock, if the timestamps are those of this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockReport>,
    /// Physical memory of the process in bytes, if requested. Memory that is mapped twice, as that of rings, is counted
    /// once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// The tally over all queues.
    #[serde(flatten)]
    pub counts: Counts,
    /// The point at which `offered` is counted.
    pub counting_point: &'static str,
    /// The timestamp source.
    pub timestamp_source: &'static str,
    /// Packets lost because a ring was full, by the lossless reader that the producer waited for.
    pub lost_by_reader: BTreeMap<String, u64>,
    /// The reports of the queues.
    pub queues: Vec<QueueReport>,
    /// The state of the interface's program, and its counters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<ProgramReport>,
    /// The report of the meter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meter: Option<MeterReport>,
    /// The reports of the listeners.
    pub listeners: Vec<ListenerReport>,
    /// The report of the retention worker of this capture, for the metrics. In JSON it is separate from this report.
    #[serde(skip)]
    pub retention: Option<RetentionReport>,
    /// Size and free space of the store's volume, for the metrics.
    #[serde(skip)]
    pub volume: Option<Space>,
    /// The groups that this interface reports, for the metrics. In JSON they are separate from this report.
    #[serde(skip)]
    pub groups: Vec<group::GroupView>,
    /// The warnings of all parts of the capture.
    pub warnings: Vec<String>,
    /// The faults: contradictory counters, and files that were not published. There are none in a healthy capture.
    pub faults: Vec<String>,
}

impl Report {
    /// True if no packet or record was lost and there is no fault.
    pub fn is_healthy(&self) -> bool {
        let metered = self.meter.as_ref().is_none_or(|m| m.unmetered == 0 && m.sinks.iter().all(|o| o.lost == 0));
        self.counts.lost_total == 0 && self.counts.residue == 0 && self.faults.is_empty() && metered
    }
}
