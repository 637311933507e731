//! What a meter counts about itself. Every packet is in a flow or in [`Counts::other`], every flow that began is still there
//! or ended for a reason.

use crate::record::EndReason;

/// How late records are made, in steps of [`Lateness::STEP_MS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// Records by time between the moment at which a timeout was over and the whole second at which the record was made:
    /// the first counts those up to [`Lateness::STEP_MS`] late, the next those up to twice that, the last all beyond a second.
    pub records: [u64; Lateness::STEPS],
    /// The same times added up, in nanoseconds.
    pub nanos: u64,
}

impl Lateness {
    /// Steps that are counted, the last one included.
    pub const STEPS: usize = 9;

    /// Milliseconds of one step.
    pub const STEP_MS: u64 = 125;

    pub(crate) fn count(&mut self, late_nanos: u64) {
        let step = late_nanos.saturating_sub(1) / (Self::STEP_MS * 1_000_000);
        self.records[(step as usize).min(self.records.len() - 1)] += 1;
        self.nanos = self.nanos.saturating_add(late_nanos);
    }
}

/// See the module. Sums over the life of the meter, but for what is said to be there now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that were given to a flow.
    pub packets: u64,
    /// Packets that are not IP, and make no flow.
    pub other: u64,
    /// Flows that are there now, those included that wait for their record.
    pub active: u64,
    /// Of these, those at rest: packed, until a packet or a record needs them ([`crate::Config::rest`]).
    pub compressed: u64,
    /// Flows that began.
    pub started: u64,
    /// Records by [`EndReason`], which is the index. All but those of [`EndReason::ActiveTimeout`] ended a flow.
    pub records: [u64; 6],
    /// Flows that ended after an active timeout without another packet, and so without another record.
    pub ended_without_record: u64,
    /// Of the records of [`EndReason::LackOfResources`], those whose part of the table was full though the rest was not.
    pub shard_full: u64,
    /// Packets that came with a time before that of an earlier packet of their flow, and were counted with that one's.
    pub backward_timestamps: u64,
    /// Steps back of more than [`crate::STEP_BACK`]: every flow ended, and time began anew.
    pub restarts: u64,
    /// How late idle, active and ended records were made.
    pub lateness: Lateness,
    /// Bytes of memory touched for flows so far, tables included.
    pub bytes: u64,
    /// Of these, what is taken now: by flows, and by the table and the lists that find room for more. Others can use the rest.
    pub held: u64,
}

impl Counts {
    /// Flows that ended.
    pub fn ended(&self) -> u64 {
        self.records.iter().sum::<u64>() - self.records[EndReason::ActiveTimeout as usize] + self.ended_without_record
    }

    /// Those of several meters together.
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
        // Every meter sees every step of the clock.
        self.restarts = self.restarts.max(other.restarts);
        for (a, b) in self.lateness.records.iter_mut().zip(other.lateness.records) {
            *a += b;
        }
        self.lateness.nanos = self.lateness.nanos.saturating_add(other.lateness.nanos);
        self.bytes += other.bytes;
        self.held += other.held;
        self
    }
}
