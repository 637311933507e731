//! The results of an analysis, and the errors of the results.

use crate::{BurstReport, ClockRelation, Reordering, ReorderingDetail, SequenceReport, Skew};
use base::{Distribution, Timestamp};
use std::time::Duration;

/// The results of one session.
#[derive(Clone, Debug)]
pub struct Report {
    /// Numbers of received, unique, duplicate and lost packets.
    pub sequence: SequenceReport,
    /// The reordering of packets.
    pub reordering: Reordering,
    /// The distributions of the reordering metrics.
    pub reordering_detail: ReorderingDetail,
    /// Arrival minus departure of the first copies, in nanoseconds. If the offset of the clocks is unknown, only
    /// differences between these values are meaningful.
    pub delay: Distribution,
    /// Differences of the delays of packets with consecutive sequence numbers, in nanoseconds (RFC 3393).
    pub variation: Distribution,
    /// The relation between the clocks.
    pub clocks: ClockRelation,
    /// The delays after removal of the skew; `None` unless two packets have different departures.
    pub drift_free: Option<DriftFree>,
    /// Counts, dispersions and bandwidths of the bursts.
    pub bursts: BurstReport,
    /// The earliest and the latest departure.
    pub departures: Option<(Timestamp, Timestamp)>,
    /// The earliest and the latest arrival.
    pub arrivals: Option<(Timestamp, Timestamp)>,
    /// The resolution of the departure times.
    pub departure_resolution: Duration,
    /// The resolution of the arrival times.
    pub arrival_resolution: Duration,
}

/// The differences between the delays and the line of the smallest delays (see [`Skew`]). The offset and a constant
/// drift of the clocks have no influence on them.
#[derive(Clone, Debug)]
pub struct DriftFree {
    /// The line of the smallest delays.
    pub skew: Skew,
    /// The largest error of the slope in nanoseconds per nanosecond that the resolution of the timestamps causes.
    pub slope_error: f64,
    /// True if vertices of the convex hull were removed because their number exceeded [`crate::HULL_MAX`]. The line may
    /// then be above some of the points (departure, delay).
    pub is_approximate: bool,
    /// The delays above the line, in nanoseconds.
    pub delay: Distribution,
    /// True if `delay` is made of all packets; false if it is made of a random sample of the packets.
    pub is_complete: bool,
}

impl Report {
    /// The largest error of a delay that is caused by the rounding of departure and arrival times to their resolutions.
    /// The error of the difference of two delays has the same limit.
    pub fn resolution(&self) -> Duration {
        self.departure_resolution + self.arrival_resolution
    }

    /// The largest error of a delay; `None` if the offset of the clocks is unknown. The error does not include the time
    /// from the point at which the departure time was taken until the packet leaves the NIC.
    pub fn delay_error(&self) -> Option<Duration> {
        Some(self.clocks.offset_max()?.saturating_add(self.resolution()))
    }

    /// The largest error of the difference of two delays, if the time between the two packets is so short that the
    /// drift of the clocks is negligible.
    pub fn variation_error(&self) -> Duration {
        self.resolution()
    }

    /// The relative error of the bandwidth of a burst. `dispersion` is the time from the first to the last arrival of
    /// the burst, in nanoseconds.
    pub fn bandwidth_error(&self, dispersion: f64) -> f64 {
        self.arrival_resolution.as_nanos() as f64 / dispersion.max(1.0)
    }
}
