//! The distributions of the reordering metrics of RFC 4737, and its reordering-free runs.
//!
//! A reordering discontinuity is the earliest arrival with a larger sequence number than a reordered packet (§4.5). The
//! gap of a discontinuity is the distance to the discontinuity before it, in arrivals and in time, at the moment at
//! which the first packet that is reordered by the discontinuity arrives. The first discontinuity has no gap.
//!
//! A reordering-free run is the number of arrivals in order that a reordered packet ends (§4.6). A reordered packet
//! directly after a reordered packet ends a run of 0 arrivals.

use base::{Distribution, Timestamp};

/// The largest `n` for which the number of n-reordered packets is counted.
pub const N_REORDERED: usize = 10;

/// The distributions of the metrics of all reordered packets.
#[derive(Clone, Debug, Default)]
pub struct ReorderingDetail {
    /// The extents, in packets (§4.2).
    pub extent: Distribution,
    /// The late times, in nanoseconds (§4.3).
    pub late_time: Distribution,
    /// The byte offsets (§4.4): the bytes of the packets with larger sequence numbers that arrived before the reordered
    /// packet. A receiver stores these bytes until the reordered packet arrives. The bytes are those of the frames,
    /// without FCS.
    pub byte_offset: Distribution,
    /// The gaps between reordering discontinuities, in arrivals (§4.5).
    pub gap: Distribution,
    /// The gaps between reordering discontinuities, in nanoseconds (§4.5).
    pub gap_time: Distribution,
    /// The numbers of n-reordered packets (§5.4), for n from 1 to [`N_REORDERED`].
    pub n_reordered: [u64; N_REORDERED],
    /// The reordering-free runs.
    pub runs: RunReport,
}

/// The reordering-free runs that a reordered packet ended (§4.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunReport {
    /// Number of runs.
    pub count: u64,
    /// Sum of the lengths of the runs, in arrivals.
    pub sum: u64,
    /// Sum of the squares of the lengths.
    pub sum_of_squares: u128,
    /// The longest run.
    pub longest: u64,
    /// Length of the run that has not ended yet.
    pub present: u64,
}

impl RunReport {
    /// The mean length of a run; `None` without runs.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// The mean length of the run of a packet that arrives in order; `None` without such packets. Long runs have more
    /// packets, so this mean is larger than [`RunReport::mean`].
    pub fn mean_of_packets(&self) -> Option<f64> {
        (self.sum > 0).then(|| self.sum_of_squares as f64 / self.sum as f64)
    }

    /// Adds a packet in order.
    pub(crate) const fn extend(&mut self) {
        self.present += 1;
    }

    /// Ends the present run by a reordered packet.
    pub(crate) fn end(&mut self) {
        let length = std::mem::take(&mut self.present);
        self.count += 1;
        self.sum += length;
        self.sum_of_squares = self.sum_of_squares.saturating_add(u128::from(length) * u128::from(length));
        self.longest = self.longest.max(length);
    }
}

/// The metrics of a reordered packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReorderedPacket {
    pub extent: u64,
    pub late_nanos: u64,
    pub byte_offset: u64,
    pub degree: u64,
}

impl ReorderingDetail {
    /// Adds a reordered packet.
    pub(crate) fn add(&mut self, packet: ReorderedPacket) {
        self.extent.add(signed(packet.extent));
        self.late_time.add(signed(packet.late_nanos));
        self.byte_offset.add(signed(packet.byte_offset));
        for (n, count) in (1..).zip(&mut self.n_reordered) {
            *count += u64::from(packet.degree >= n);
        }
        self.runs.end();
    }

    /// Adds the gap between two discontinuities, each given by the number of its arrival and its time.
    pub(crate) fn add_gap(&mut self, earlier: (u64, Timestamp), later: (u64, Timestamp)) {
        self.gap.add(signed(later.0 - earlier.0));
        let nanos = i128::from(later.1.nanos()) - i128::from(earlier.1.nanos());
        self.gap_time.add(i64::try_from(nanos).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX }));
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
