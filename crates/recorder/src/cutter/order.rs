//! Counts out-of-order packets, whose timestamp is earlier than that of a preceding packet in the stream, and
//! determines the largest difference. Out-of-order packets are caused by the replay of captures that are not in order
//! of time, and by a clock that was set back.

use base::Timestamp;
use std::time::Duration;

/// The number of packets with an earlier timestamp than a preceding packet, and the largest difference of the two
/// timestamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutOfOrderCounts {
    /// Number of out-of-order packets.
    pub packets: u64,
    /// The largest difference between an out-of-order packet and the latest timestamp of the packets that precede it.
    pub most: Duration,
}

impl OutOfOrderCounts {
    /// Adds the number of packets of `other`, and stores the larger one of the two time differences.
    pub fn add(&mut self, other: Self) {
        self.packets += other.packets;
        self.most = self.most.max(other.most);
    }
}

/// Tracks whether the timestamps of a stream are in order.
#[derive(Default)]
pub(super) struct OrderTracker {
    /// The latest timestamp of the stream so far.
    latest: Timestamp,
    late: OutOfOrderCounts,
    mixed: bool,
}

impl OrderTracker {
    /// Adds the timestamp of a packet. `in_file` is called only if the packet is out of order; it returns the latest
    /// timestamp of the packets that precede this packet in the file.
    // PERF: a comparison and a store per packet; out-of-order packets are counted in a separate function, which is not
    // inlined.
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

    /// Returns the counts of out-of-order packets since the last call, and true if one of these packets was out of
    /// order within its file.
    pub fn report(&mut self) -> (OutOfOrderCounts, bool) {
        (std::mem::take(&mut self.late), std::mem::take(&mut self.mixed))
    }
}
