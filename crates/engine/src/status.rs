//! What a running capture says of itself: the same numbers for the live table, `--json`, `/metrics` and the summary.

use crate::meter::MeterReport;
use crate::program::{MapUsage, ProgramReport, UserOutcomes};
use crate::retention::RetentionReport;
use base::{Row, Tally};
use recorder::ThreadWaits;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use store::device::Space;

/// One engine thread, as it last described itself.
#[derive(Clone, Debug, Default)]
pub struct WorkerStatus {
    /// Everything so far.
    pub tally: Tally,
    /// How full the ring is, judged by its slowest gate: 0 to 1.
    pub fill: f64,
    /// Estimated error of this thread's stamps.
    pub clock_error: Duration,
    /// Processor time of the thread.
    pub cpu: Duration,
    /// Frames taken from the source since it was opened.
    pub frames: u64,
    /// What the kernel half of the port's program disposed of, and what it left undecided.
    pub kernel_outcomes: capture::ProgramOutcomes,
    /// As above.
    pub undecided: u64,
    /// What its user half did.
    pub user_outcomes: UserOutcomes,
    /// What its user half counted.
    pub counted: Vec<u64>,
    /// What it remembers, by the name of the map.
    pub map_usage: Vec<(String, MapUsage)>,
    /// Things a person should know, in order.
    pub warnings: Vec<String>,
    /// Things that are wrong.
    pub faults: Vec<String>,
}

/// A tally in words, for documents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Packets that reached the counting point.
    pub offered: u64,
    /// Packets in the ring and the store.
    pub stored: u64,
    /// Wire bytes of those.
    pub stored_bytes: u64,
    /// Packets that the filter refused, or the port's program kept from the ring.
    pub filtered: u64,
    /// Copies removed.
    pub duplicate: u64,
    /// Packets lost, all causes together.
    pub lost_total: u64,
    /// Packets lost by cause; causes that did not occur are left out.
    pub lost: BTreeMap<&'static str, u64>,
    /// Remarks on stored packets; those that did not occur are left out.
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

/// One second of the ledger, for documents.
#[derive(Clone, Debug, Serialize)]
pub struct Second {
    /// Seconds since 1970 (UTC).
    pub second: u64,
    /// What happened in it.
    #[serde(flatten)]
    pub counts: Counts,
}

impl From<&Row> for Second {
    fn from(row: &Row) -> Self {
        Self { second: row.second, counts: Counts::from(&row.tally) }
    }
}

/// One listener, for documents.
#[derive(Clone, Debug, Serialize)]
pub struct ListenerReport {
    /// Its slot in the ring.
    pub slot: u8,
    /// What it calls itself.
    pub name: String,
    /// Queue of its ring.
    pub queue: u16,
    /// `gate` or `lossy`.
    pub mode: &'static str,
    /// No longer waited for.
    pub expired: bool,
    /// Packets lost because of it (gates).
    pub losses_caused: u64,
    /// Packets it says it has seen.
    pub seen: u64,
    /// Packets it says it has missed.
    pub missed: u64,
}

/// One queue, for documents.
#[derive(Clone, Debug, Default, Serialize)]
pub struct QueueReport {
    /// Queue number.
    pub queue: u16,
    /// The source in its own words.
    pub source: String,
    /// What its packets went through.
    #[serde(flatten)]
    pub counts: Counts,
    /// How full the ring is: 0 to 1.
    pub ring_fill: f64,
    /// Bytes of the ring (without descriptors), what its pages are, and whether they are locked.
    pub ring: String,
    /// Processor seconds of the engine thread.
    pub engine_cpu_seconds: f64,
    /// Estimated error of its stamps in nanoseconds; 0 where the source stamps.
    pub clock_error_nanos: u64,
    /// What the recorder of this queue has written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorder: Option<RecorderReport>,
}

/// One recorder, for documents.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RecorderReport {
    /// Packets in the files, counted once more by the recorder itself when it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
    /// Bytes written to packet files.
    pub bytes: u64,
    /// Files published.
    pub files: u64,
    /// Files that keep a hidden name because something about them failed.
    pub hidden: u64,
    /// Processor seconds of the thread that writes.
    pub writer_cpu_seconds: f64,
    /// Processor seconds of the thread that checksums and indexes.
    pub index_cpu_seconds: f64,
    /// How the files are written, in words.
    pub device: String,
    /// The trouble it is in right now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Why the volume refused to be written last, and what to do about it, also when that is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Which of its threads wait for the disk right now: for a watchdog; it changes a thousand times a second.
    #[serde(skip)]
    pub waiting: ThreadWaits,
}

/// A capture at one moment, or at its end.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Interface, file or simulation.
    pub interface: String,
    /// Seconds since the start.
    pub seconds: f64,
    /// The share of the machine's processor time that its hypervisor gave to others since then: 0 to 1.
    pub steal_ratio: f64,
    /// Physical memory of the whole process in bytes, where it was asked: memory that is mapped twice, as rings are, counts once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// All queues together.
    #[serde(flatten)]
    pub counts: Counts,
    /// Where `offered` begins to count.
    pub counting_point: &'static str,
    /// Who stamps the packets.
    pub timestamp_source: &'static str,
    /// Losses to a full ring, by the gate that held it.
    pub lost_by_reader: BTreeMap<String, u64>,
    /// The queues.
    pub queues: Vec<QueueReport>,
    /// How the port's program runs, and what it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<ProgramReport>,
    /// What the meter has made of the packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meter: Option<MeterReport>,
    /// Who listens.
    pub listeners: Vec<ListenerReport>,
    /// What retention has done, where it looks after this capture: in the metrics; documents have it beside the report.
    #[serde(skip)]
    pub retention: Option<RetentionReport>,
    /// The volume that holds the store: in the metrics.
    #[serde(skip)]
    pub volume: Option<Space>,
    /// The groups whose first port this is: in the metrics; documents have them beside the report.
    #[serde(skip)]
    pub groups: Vec<group::GroupView>,
    /// Things a person should know.
    pub warnings: Vec<String>,
    /// Things that are wrong: counts that contradict each other, files left hidden. Empty in a healthy capture.
    pub faults: Vec<String>,
}

impl Report {
    /// Nothing lost, nothing wrong.
    pub fn is_healthy(&self) -> bool {
        let metered = self.meter.as_ref().is_none_or(|m| m.unmetered == 0 && m.sinks.iter().all(|o| o.lost == 0));
        self.counts.lost_total == 0 && self.counts.residue == 0 && self.faults.is_empty() && metered
    }
}
