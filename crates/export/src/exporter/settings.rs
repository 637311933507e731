//! The settings of an exporter.

use crate::encode::{Config, Fields};
use crate::target::Target;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Default capacity of the queue of an exporter: this number of flow records and series rows, of about 1.2 kB each.
pub const QUEUE: usize = 16_384;

/// Default time for sending the waiting records at the end. [`Exporter::leave`](super::Exporter::leave) is called on
/// all exporters at the same time, so all of them together need no more time than one. Together with the additional
/// time of [`Exporter::finish`](super::Exporter::finish) it is less than 5 s.
pub const GRACE: Duration = Duration::from_millis(4500);

/// The export protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// IPFIX (RFC 7011).
    #[default]
    Ipfix,
    /// NetFlow version 9 (RFC 3954), over UDP only.
    NetflowV9,
}

/// The source of export times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The system clock.
    #[default]
    System,
    /// The clock is the latest timestamp in the exported flow records and series rows, so that repeated exports of the
    /// same capture give identical messages.
    Data,
}

/// Settings of an exporter.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The export target.
    pub target: Target,
    /// The protocol.
    pub protocol: Protocol,
    /// True to export flow records.
    pub flows: bool,
    /// True to export rows of time series. Collectors may mistake rows for flows. The ledgers of the rows are added to
    /// the loss statistics in any case.
    pub series: bool,
    /// The encoder's configuration.
    pub encode: Config,
    /// Greatest number of waiting records.
    pub queue: usize,
    /// How long an offer (a call that puts a record into the queue) waits while the queue is full and the exporter's
    /// thread takes no record from it. Zero if the packets come from an interface; if they come from a file, reading
    /// can wait. After an offer has timed out, no offer waits until the thread takes a record again.
    pub offer_timeout: Duration,
    /// If true, a call that puts a record into the full queue waits at most 0.3 s: a replay that the user interrupts
    /// must not wait for a collector.
    pub stop_waiting: Arc<AtomicBool>,
    /// Longest time that a record waits for its message to become full.
    pub batch_delay: Duration,
    /// How long [`Exporter::finish`](super::Exporter::finish) tries to send the waiting records, from
    /// [`Exporter::leave`](super::Exporter::leave) on.
    pub grace: Duration,
    /// The exporter reconnects if establishing a TCP connection takes longer than this, or if the peer reads nothing
    /// for this time.
    pub io_timeout: Duration,
    /// The source of export times.
    pub clock: Clock,
    /// Numbers and names of the interfaces whose data are exported.
    pub interfaces: Vec<(u16, String)>,
}

impl Settings {
    /// Returns the defaults for a target. A collector gets flow records with [`Fields::Standard`]. Multicast groups and
    /// files get flow records and series rows with [`Fields::Full`].
    pub fn new(target: Target) -> Self {
        let encode = if target.is_reliable() { Config::reliable() } else { Config::default() };
        // Multicast groups and files are read by `netgrain flows` and `netgrain series`, which support all fields.
        // Collectors are other programs.
        let ours = matches!(target, Target::Multicast { .. } | Target::File(_));
        let fields = if ours { Fields::Full } else { Fields::Standard };
        let encode = Config { fields, ..encode };
        Self {
            series: ours,
            protocol: Protocol::Ipfix,
            flows: true,
            encode,
            target,
            queue: QUEUE,
            offer_timeout: Duration::ZERO,
            stop_waiting: Arc::default(),
            batch_delay: Duration::from_millis(500),
            grace: GRACE,
            io_timeout: Duration::from_secs(3),
            clock: Clock::System,
            interfaces: Vec::new(),
        }
    }
}
