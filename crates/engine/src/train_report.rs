//! The result of sending trains.

use base::{Distribution, ErrorEstimate};

/// The differences of achieved and requested gaps, in nanoseconds: positive if a gap was too long.
#[derive(Clone, Debug, Default)]
pub struct GapErrors {
    /// The gaps between packets of one burst.
    pub inside_bursts: Distribution,
    /// The gaps between bursts and between trains.
    pub between_bursts: Distribution,
}

/// The counters of a sender of trains. `made = sent + refused + unlaunched`.
#[derive(Clone, Debug, Default)]
pub struct TrainReport {
    /// Packets that became due. Their sequence numbers are 0 to `made - 1`.
    pub made: u64,
    /// Packets that the kernel accepted and did not report as dropped.
    pub sent: u64,
    /// Packets that the kernel refused because the queue of the interface was full.
    pub refused: u64,
    /// Packets that the queueing discipline dropped because their launch time had passed.
    pub unlaunched: u64,
    /// Bytes of all packets, without FCS.
    pub bytes: u64,
    /// Nanoseconds from the first departure to the last departure.
    pub nanos: u64,
    /// Achieved gaps minus requested gaps. The achieved gaps are those of the times at which the sender read its clock
    /// before the system calls. With launch times, these are the times at which the kernel got the packets, which says
    /// nothing about the departures; then there are no values.
    pub gaps: GapErrors,
    /// Departures minus planned departures, in nanoseconds. With launch times, the time by which the kernel got the
    /// packets later than planned.
    pub lateness: Distribution,
    /// The error estimate of the sender's clock at the last packet.
    pub clock: Option<ErrorEstimate>,
    /// How often the system clock was set during the run. Departures before and after a step do not fit together.
    pub clock_steps: u64,
}
