//! The accounting of a meter. Every packet is counted in a flow or in [`Counts::other`]; every flow that started is
//! active or has ended with a flow end reason.

use crate::record::EndReason;

/// A histogram of the delay with which the meter makes flow records, in steps of [`ExpiryDelays::STEP_MS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpiryDelays {
    /// Number of flow records by delay: the time from the end of the timeout to the whole second at which the meter
    /// made the record. The first element counts delays up to [`ExpiryDelays::STEP_MS`], the second up to twice that,
    /// the last all delays above one second.
    pub records: [u64; ExpiryDelays::STEPS],
    /// The sum of the delays of all flow records in nanoseconds.
    pub nanos: u64,
}

impl ExpiryDelays {
    /// The number of steps of the histogram, including the last step for delays above one second.
    pub const STEPS: usize = 9;

    /// The width of a step of the histogram in milliseconds.
    pub const STEP_MS: u64 = 125;

    pub(crate) fn count(&mut self, late_nanos: u64) {
        let step = late_nanos.saturating_sub(1) / (Self::STEP_MS * 1_000_000);
        self.records[(step as usize).min(self.records.len() - 1)] += 1;
        self.nanos = self.nanos.saturating_add(late_nanos);
    }
}

/// The counters of a meter since its start; fields described as "current" are gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets counted in a flow.
    pub packets: u64,
    /// Packets that are not IP and belong to no flow.
    pub other: u64,
    /// Current number of flows, including the flows whose record is due.
    pub active: u64,
    /// Current number of idle-compressed flows ([`crate::Config::compress_after`]); they are included in `active`.
    pub compressed: u64,
    /// Flows that started.
    pub started: u64,
    /// Number of records for each [`EndReason`], whose number is the index. Each record except those with
    /// [`EndReason::ActiveTimeout`] ended a flow.
    pub records: [u64; 6],
    /// Flows that ended after an active timeout without another packet, hence without another record.
    pub ended_without_record: u64,
    /// Records with the end reason [`EndReason::LackOfResources`] that were made because one shard was full while other
    /// shards were not.
    pub shard_full: u64,
    /// Packets with a timestamp before that of an earlier packet of their flow; they were counted at the earlier
    /// packet's timestamp.
    pub backward_timestamps: u64,
    /// Backward clock steps of more than [`crate::STEP_BACK`]; at each, all flows ended and the meter's time restarted.
    pub restarts: u64,
    /// Histogram of the delay with which the meter made the flow records with the end reasons idle timeout, active
    /// timeout and end of flow.
    pub expiry_delays: ExpiryDelays,
    /// Bytes of memory that flows have touched so far, tables included.
    pub bytes: u64,
    /// The part of `bytes` that flows, the flow table and the lists of free memory use at present; the rest is free for
    /// new flows.
    pub held: u64,
}

impl Counts {
    /// Flows that ended.
    pub fn ended(&self) -> u64 {
        self.records.iter().sum::<u64>() - self.records[EndReason::ActiveTimeout as usize] + self.ended_without_record
    }

    /// The sum of the counters of several meters.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        self.packets += other.packets;
        self.other += other.other;
        self.active += other.active;
        self.compressed += other.compressed;
        self.started += other.started;
        for (a, b) in self.records.iter_mut().zip(other.records) {
            *a += b;
        }
        self.ended_without_record += other.ended_without_record;
        self.shard_full += other.shard_full;
        self.backward_timestamps += other.backward_timestamps;
        // Every meter counts the same clock steps, so a sum would count each step once per meter.
        self.restarts = self.restarts.max(other.restarts);
        for (a, b) in self.expiry_delays.records.iter_mut().zip(other.expiry_delays.records) {
            *a += b;
        }
        self.expiry_delays.nanos = self.expiry_delays.nanos.saturating_add(other.expiry_delays.nanos);
        self.bytes += other.bytes;
        self.held += other.held;
        self
    }
}
