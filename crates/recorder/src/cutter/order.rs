//! Counts packets whose timestamps are not in stream order, and the largest time by which they are too early. Causes
//! are the replay of captures in another order than that of time, and a clock that was set back.

use base::Timestamp;
use std::time::Duration;

/// Packets with an earlier timestamp than a packet before them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutOfOrderCounts {
    /// Number of such packets.
    pub packets: u64,
    /// The largest difference to the latest timestamp before such a packet.
    pub most: Duration,
}

impl OutOfOrderCounts {
    /// Adds the packets of `other` and keeps the larger difference.
    pub fn add(&mut self, other: Self) {
        self.packets += other.packets;
        self.most = self.most.max(other.most);
    }
}

/// The order of the timestamps of a stream so far.
#[derive(Default)]
pub(super) struct OrderTracker {
    /// The latest timestamp of the stream.
    latest: Timestamp,
    late: OutOfOrderCounts,
    mixed: bool,
}

impl OrderTracker {
    /// Adds the timestamp of a packet. Only an out-of-order packet calls `in_file`, which returns the latest timestamp
    /// before it in its file.
    // PERF: a comparison and a store per packet; out-of-order packets are counted out of line.
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

    /// The out-of-order packets since the last call, and true if one of them was out of order within its file.
    pub fn report(&mut self) -> (OutOfOrderCounts, bool) {
        (std::mem::take(&mut self.late), std::mem::take(&mut self.mixed))
    }
}
