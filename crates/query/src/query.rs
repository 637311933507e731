//! What is asked.

use base::Timestamp;
use filter::Filter;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Where to look.
#[derive(Clone, Debug)]
pub enum QuerySource {
    /// A store: its sealed files, the file that is being written, and the ring of a recorder that runs.
    Store(PathBuf),
    /// Capture files of anyone, with an index beside them or without.
    Files(Vec<PathBuf>),
}

/// Which packets are wanted.
#[derive(Clone, Debug)]
pub struct Query {
    /// The first moment of the interval.
    pub from: Timestamp,
    /// The last moment, itself included.
    pub to: Timestamp,
    /// Which of them.
    pub filter: Filter,
    /// Interfaces of the store; empty for all.
    pub interfaces: Vec<String>,
    /// Go on with packets as they arrive, until `stop` or `to`.
    pub follow: bool,
    /// Look into the ring of a running recorder too.
    pub live: bool,
    /// Where packets of one queue lie that answer, if that is known: sealed files of that queue are read there alone.
    pub seek: Option<SeekHint>,
    /// Ends the answer early, from another thread or a signal.
    pub stop: Option<Arc<AtomicBool>>,
}

/// Where the packets of one queue lie that can be an answer. It spares reading, and is no condition: others beside them are
/// given too if they match, and those of other queues, of files whose place in the stream is not known and of the one that is
/// being written are found by time and keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeekHint {
    /// The interface, as the recorder was told its name.
    pub interface: String,
    /// Its queue.
    pub queue: u16,
    /// Positions of records in the stream of the queue: from the first of some packets to the last of them.
    pub positions: Vec<RangeInclusive<u64>>,
}

impl Default for Query {
    /// Every packet there is at this moment.
    fn default() -> Self {
        Self {
            from: Timestamp::ZERO,
            to: Timestamp::from_nanos(u64::MAX),
            filter: Filter::default(),
            interfaces: Vec::new(),
            follow: false,
            live: true,
            seek: None,
            stop: None,
        }
    }
}
