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
    /// The fields of the index header that are equal for all files; stream position and start time are set for each
    /// file.
    pub header: Header,
    /// Number of queues of the interface; with more than one queue, file names contain the queue number.
    pub queues: u16,
    /// Number of bytes that are preallocated for each file: the size at which the producer rotates; 0 without
    /// preallocation.
    pub allocate: u64,
    /// The largest number of writes in progress.
    pub depth: usize,
    /// The grace period: time for which writes to a refusing volume are retried after the recorder was stopped.
    pub grace: Duration,
    /// The format of the packet files.
    pub format: Format,
    /// The latest timestamp of the queue's in-order files in the store: a file that begins earlier is out of order.
    pub after: Timestamp,
    /// The function that reads the system clock. The writer compares the timestamps of files with this clock, to find
    /// files with timestamps in the future. `None` if the timestamps do not come from the clock of this host.
    pub wall: Option<fn() -> WallClock>,
    /// The offered counter page, to which the writer reports the number of offered packets in the ledgers of complete
    /// files.
    pub offered_page: Option<Arc<OfferedPage>>,
}

/// The format of packet files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Nanosecond pcap, copied from the ring unchanged.
    Pcap,
    /// The RAW format of HPCAP, in files of a fixed size.
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
    /// The default settings: 8 writes in progress, a grace period of 10 s, pcap files.
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
    pub(super) fn directory(&self) -> PathBuf {
        names::interface_directory(&self.store, &self.header.interface)
    }
}
