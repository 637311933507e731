//! Whether packets come in the order of their stamps, and how far from it they are where they do not: the replay of captures
//! in another order than that of time, or a clock that was set back.

use base::Timestamp;
use std::time::Duration;

/// Packets that were earlier than one before them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutOfOrderCounts {
    /// How many.
    pub packets: u64,
    /// By how much, at most.
    pub most: Duration,
}

impl OutOfOrderCounts {
    /// Both together.
    pub fn add(&mut self, other: Self) {
        self.packets += other.packets;
        self.most = self.most.max(other.most);
    }
}

/// What was seen of a stream so far.
#[derive(Default)]
pub(super) struct OrderTracker {
    /// The latest stamp of the stream.
    latest: Timestamp,
    late: OutOfOrderCounts,
    mixed: bool,
}

impl OrderTracker {
    /// A packet. `in_file` is asked only of a late one: the latest stamp before it in its file.
    // PERF: a comparison and a store per packet; what is late is counted out of line.
    #[inline]
    pub fn packet(&mut self, ts: Timestamp, in_file: impl FnOnce() -> Timestamp) {
        if ts >= self.latest {
            self.latest = ts;
        } else {
            self.late(ts, in_file());
        }
    }

    #[cold]
    fn late(&mut self, ts: Timestamp, in_file: Timestamp) {
        self.late.add(OutOfOrderCounts { packets: 1, most: self.latest.since(ts) });
        self.mixed |= ts < in_file;
    }

    /// What was late since the last call, and whether anything was so within its file.
    pub fn report(&mut self) -> (OutOfOrderCounts, bool) {
        (std::mem::take(&mut self.late), std::mem::take(&mut self.mixed))
    }
}
