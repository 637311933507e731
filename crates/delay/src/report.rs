//! The results of an analysis, with an error beside each figure.

use crate::{BurstReport, ClockRelation, Reordering, SequenceReport, Skew};
use base::{Distribution, Timestamp};
use std::time::Duration;

/// The results of one session.
#[derive(Clone, Debug)]
pub struct Report {
    /// Received, unique, duplicate and lost packets.
    pub sequence: SequenceReport,
    /// The reordering of packets.
    pub reordering: Reordering,
    /// Arrival minus departure of the first copies, in nanoseconds. If the offset of the clocks is unknown, only
    /// differences of these values have a meaning.
    pub delay: Distribution,
    /// Differences of the delays of packets with consecutive sequence numbers, in nanoseconds (RFC 3393).
    pub variation: Distribution,
    /// The relation between the clocks.
    pub clocks: ClockRelation,
    /// The delays after removal of the skew; `None` unless two packets have different departures.
    pub drift_free: Option<DriftFree>,
    /// The bursts.
    pub bursts: BurstReport,
    /// The first and the last departure.
    pub departures: Option<(Timestamp, Timestamp)>,
    /// The first and the last arrival.
    pub arrivals: Option<(Timestamp, Timestamp)>,
    /// The resolution of the departure times.
    pub departure_resolution: Duration,
    /// The resolution of the arrival times.
    pub arrival_resolution: Duration,
}

/// Delays above the line of the smallest delays. They contain no offset and no constant drift of the clocks.
#[derive(Clone, Debug)]
pub struct DriftFree {
    /// The line of the smallest delays.
    pub skew: Skew,
    /// The largest error of the slope in nanoseconds per nanosecond that the resolution of the timestamps causes.
    pub slope_error: f64,
    /// True if the hull had too many vertices, so that the line may be above some of the points.
    pub is_approximate: bool,
    /// The delays above the line, in nanoseconds.
    pub delay: Distribution,
    /// True if `delay` has all packets, false if a sample of them.
    pub is_complete: bool,
}

impl Report {
    /// The largest error that rounding of both times causes in a difference of an arrival and a departure, and also in
    /// the difference of two such differences.
    pub fn resolution(&self) -> Duration {
        self.departure_resolution + self.arrival_resolution
    }

    /// The largest error of a delay; `None` if the offset of the clocks is unknown. The error does not include the time
    /// between the point at which the departure was taken and the departure from the NIC.
    pub fn delay_error(&self) -> Option<Duration> {
        Some(self.clocks.offset_max()?.saturating_add(self.resolution()))
    }

    /// The largest error of a difference of two delays over a short time, in which the clocks do not drift apart.
    pub fn variation_error(&self) -> Duration {
        self.resolution()
    }

    /// The relative error of the bandwidth of a burst with this dispersion, in nanoseconds.
    pub fn bandwidth_error(&self, dispersion: f64) -> f64 {
        self.arrival_resolution.as_nanos() as f64 / dispersion.max(1.0)
    }
}
