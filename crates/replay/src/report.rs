//! The report of a replay.
//!
//! Two equations hold: `packets.residue() == 0` (see [`crate::prepare`]) for packets, and `frames = sent + dropped +
//! unsent` for the frames that were made of packets.

use crate::prepare::PacketCounts;
use crate::stream::DamagedInput;
use base::{Distribution, Histogram};
use serde::Serialize;

/// The frames of one interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InterfaceReport {
    /// Name of the interface.
    pub name: String,
    /// `af-xdp` or `packet-socket`.
    pub method: String,
    /// Frames that the driver accepted and did not report as dropped.
    pub sent: u64,
    /// Frames that the driver dropped or the kernel refused.
    pub dropped: u64,
    /// Bytes of the frames passed to the interface.
    pub bytes: u64,
}

/// The errors of the gaps between consecutive frames: the absolute difference between the gap with which two frames
/// were passed to the interface and the gap of the schedule. All times are nanoseconds. Quantiles have a relative error
/// of at most 1/256.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GapErrors {
    /// Number of gaps.
    pub gaps: u64,
    /// Mean error.
    pub mean_nanos: u64,
    /// Median error.
    pub p50_nanos: u64,
    /// 90th percentile.
    pub p90_nanos: u64,
    /// 99th percentile.
    pub p99_nanos: u64,
    /// 99.9th percentile.
    pub p999_nanos: u64,
    /// Largest error.
    pub max_nanos: u64,
    /// The numbers of gaps by ranges of their error. Ranges end at powers of two; ranges without gaps are omitted.
    pub histogram: Vec<GapErrorRange>,
}

/// The gaps whose error is in one range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GapErrorRange {
    /// End of the range in nanoseconds, exclusive. The range begins at half of this value, rounded down.
    pub below_nanos: u64,
    /// Number of gaps.
    pub gaps: u64,
}

impl From<&Distribution> for GapErrors {
    fn from(errors: &Distribution) -> Self {
        let nanos = |value: i64| value.unsigned_abs();
        let quantile = |share| errors.quantile(share).map_or(0, |(value, _)| nanos(value));
        Self {
            gaps: errors.count(),
            mean_nanos: errors.mean().unwrap_or(0.0).round() as u64,
            p50_nanos: quantile(0.5),
            p90_nanos: quantile(0.9),
            p99_nanos: quantile(0.99),
            p999_nanos: quantile(0.999),
            max_nanos: errors.max().map_or(0, nanos),
            histogram: by_power_of_two(errors.histogram()),
        }
    }
}

/// Counts the values of a histogram in ranges that end at powers of two. Ranges without values are omitted. The values
/// are not negative.
fn by_power_of_two(histogram: &Histogram) -> Vec<GapErrorRange> {
    let mut ranges: Vec<GapErrorRange> = Vec::new();
    for bucket in histogram.buckets() {
        let below_nanos = bucket.to.unsigned_abs().saturating_add(1).next_power_of_two();
        match ranges.last_mut() {
            Some(last) if last.below_nanos == below_nanos => last.gaps += bucket.count,
            _ => ranges.push(GapErrorRange { below_nanos, gaps: bucket.count }),
        }
    }
    ranges
}

/// The report of a replay, during the replay and at its end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The pace at the end.
    pub speed: String,
    /// Number of passes over the capture that were completed.
    pub passes: u64,
    /// The packets that were read.
    pub packets: PacketCounts,
    /// Frames made of these packets.
    pub frames: u64,
    /// Frames that the driver accepted and did not report as dropped.
    pub sent: u64,
    /// Frames that the driver dropped or the kernel refused.
    pub dropped: u64,
    /// Frames that were made and not sent, because the replay was stopped or the interface failed.
    pub unsent: u64,
    /// Bytes of the frames that were passed to the interfaces.
    pub bytes: u64,
    /// Time from the first frame to the last frame, without pauses; for the pace `flat`, to the time at which the
    /// interfaces had accepted all frames.
    pub nanos: u64,
    /// Time from the first frame to the last frame according to the schedule; 0 for the pace `flat`.
    pub scheduled_nanos: u64,
    /// Sum of the durations of all pauses.
    pub paused_nanos: u64,
    /// The largest delay of a frame after its due time; 0 for the pace `flat`.
    pub late_max_nanos: u64,
    /// The errors of the gaps; no gaps for the pace `flat`.
    pub gap_errors: GapErrors,
    /// Number of times that the sending loop had to wait for the thread that reads the capture.
    pub input_waits: u64,
    /// Packets whose timestamp is earlier than the highest timestamp before them, by at most one second. They were sent
    /// without an interval.
    pub out_of_order: u64,
    /// Steps back of the timestamps by more than one second. The intervals after such a step are counted from the new
    /// timestamp.
    pub steps_back: u64,
    /// Intervals that were shortened to the longest permitted interval.
    pub shortened_gaps: u64,
    /// Packets without a timestamp, in one pass.
    pub unstamped: u64,
    /// Packets whose stated wire length was below the captured length, in one pass.
    pub wire_raised: u64,
    /// The damaged inputs.
    pub damaged: Vec<DamagedInput>,
    /// The interfaces.
    pub interfaces: Vec<InterfaceReport>,
    /// True if the replay was stopped before its end.
    pub stopped: bool,
}

impl Report {
    /// The duration of the replay minus the duration of the schedule, in nanoseconds; 0 for the pace `flat`.
    pub fn duration_error_nanos(&self) -> i64 {
        if self.scheduled_nanos == 0 { 0 } else { self.nanos as i64 - self.scheduled_nanos as i64 }
    }

    /// True if all packets that the filter selects were sent: no packet was skipped, no frame was dropped, no input is
    /// damaged, and the replay was not stopped.
    pub fn is_complete(&self) -> bool {
        let nothing_lost = self.packets.skipped() == 0 && self.dropped == 0 && self.unsent == 0;
        nothing_lost && self.damaged.is_empty() && !self.stopped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ranges_of_gap_errors_are_powers_of_two() {
        let mut errors = Distribution::new();
        [0, 0, 1, 2, 3, 4, 1000, 1023, 1024].into_iter().for_each(|value| errors.add(value));
        let report = GapErrors::from(&errors);
        let ranges: Vec<(u64, u64)> = report.histogram.iter().map(|range| (range.below_nanos, range.gaps)).collect();
        assert_eq!(ranges, [(1, 2), (2, 1), (4, 2), (8, 1), (1024, 2), (2048, 1)]);
        assert_eq!((report.gaps, report.mean_nanos, report.p50_nanos, report.max_nanos), (9, 340, 3, 1024));
        assert_eq!(GapErrors::from(&Distribution::new()), GapErrors::default());
    }
}
