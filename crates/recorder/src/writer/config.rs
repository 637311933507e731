//! The settings of a recorder.

use crate::wall_clock::WallClock;
use base::Timestamp;
use index::Header;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use store::names;
use store::offered_page::OfferedPage;

/// The settings of a recorder.
#[derive(Clone, Debug)]
pub struct Config {
    /// The root directory of the store.
    pub store: PathBuf,
    /// The index header fields common to all files; position and start are filled in for each file.
    pub header: Header,
    /// Number of queues of the interface; with more than one, file names carry the queue.
    pub queues: u16,
    /// Bytes preallocated for each file: the size at which the producer rotates; 0 for none.
    pub allocate: u64,
    /// Most writes in progress at once.
    pub depth: usize,
    /// Time for which a refusing volume is retried after the recorder is stopped.
    pub grace: Duration,
    /// The format of the packet files.
    pub format: Format,
    /// The latest timestamp of the queue's in-order files in the store: a file that begins earlier is out of order.
    pub after: Timestamp,
    /// The clock of this machine, if the timestamps come from it: it shows which files lie in the future.
    pub wall: Option<fn() -> WallClock>,
    /// The offered counter page, which also keeps the number of packets that the files account for.
    pub offered_page: Option<Arc<OfferedPage>>,
}

/// The format of packet files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Nanosecond pcap, copied from the ring unchanged.
    Pcap,
    /// HPCAP's RAW, in files of a fixed size.
    Raw {
        /// Bytes of a full file.
        file_bytes: u64,
    },
}

impl Format {
    /// The ending of the names of packet files in this format.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Pcap => "pcap",
            Self::Raw { .. } => "raw",
        }
    }
}

impl Config {
    /// The default settings: 8 writes, 10 s of grace, pcap.
    pub fn new(store: PathBuf, header: Header) -> Self {
        Self {
            store,
            header,
            queues: 1,
            allocate: 0,
            depth: 8,
            grace: Duration::from_secs(10),
            format: Format::Pcap,
            after: Timestamp::ZERO,
            wall: None,
            offered_page: None,
        }
    }

    /// The directory of the interface.
    pub(super) fn folder(&self) -> PathBuf {
        names::interface_folder(&self.store, &self.header.interface)
    }
}
