//! The input of a query: source, interval, filter and options.

use base::Timestamp;
use filter::Filter;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The source of the packets that a query selects: a store or capture files.
#[derive(Clone, Debug)]
pub enum QuerySource {
    /// A store: its sealed files, the growing files, and the rings of running recorders.
    Store(PathBuf),
    /// Foreign captures, with or without an index.
    Files(Vec<PathBuf>),
}

/// Interval, filter and options that select packets.
#[derive(Clone, Debug)]
pub struct Query {
    /// The first timestamp of the interval.
    pub from: Timestamp,
    /// The last timestamp of the interval, inclusive.
    pub to: Timestamp,
    /// The filter that the packets must match.
    pub filter: Filter,
    /// Names of the interfaces of the store; empty for all interfaces.
    pub interfaces: Vec<String>,
    /// If true, the query continues with new packets as they arrive, until `stop` is set or `to` is reached.
    pub follow: bool,
    /// If true, the query also reads the ring of a running recorder.
    pub live: bool,
    /// Stream positions between which the matching packets of one queue are, if known. The query reads sealed files of
    /// that queue only at these positions.
    pub seek: Option<SeekHint>,
    /// If true, the query reads the quality of the timestamps of the selected blocks from the indexes
    /// ([`Results::timestamps`](crate::Results::timestamps)).
    pub with_timestamp_quality: bool,
    /// The query ends early when another thread or a signal handler sets this flag.
    pub stop: Option<Arc<AtomicBool>>,
}

/// Stream positions between which the matching packets of one queue are. The hint saves reads and is not a condition:
/// the result may also contain other packets that match. Packets of other queues, of growing files and of files with
/// unknown stream positions are selected by time and keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeekHint {
    /// The name of the interface, as in the configuration of the recorder.
    pub interface: String,
    /// The queue of that interface.
    pub queue: u16,
    /// Ranges of stream positions that contain the matching packets; for example one range for each flow record, from
    /// the position of its first packet to the position of its last packet.
    pub positions: Vec<RangeInclusive<u64>>,
}

impl Default for Query {
    /// The default selects all packets that exist at this moment.
    fn default() -> Self {
        Self {
            from: Timestamp::ZERO,
            to: Timestamp::from_nanos(u64::MAX),
            filter: Filter::default(),
            interfaces: Vec::new(),
            follow: false,
            live: true,
            seek: None,
            with_timestamp_quality: false,
            stop: None,
        }
    }
}
