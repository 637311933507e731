//! An estimate of the standard deviation of timestamps, from what the methods know about the arrival of packets.

use std::time::Duration;

/// The random part of the delay of a NIC and of the reading of the clock is assumed to be equally distributed over this
/// time: 99 % of the DMA writes of a NIC are within 80 ns (Neugebauer et al., SIGCOMM 2018).
const JITTER_NANOS: f64 = 80.0;

/// The mean variance of the timestamps of many packets. The estimate is the uncertainty of the arrival time within the
/// interval in which a packet must have arrived; it contains neither the constant delay of the NIC nor the error of the
/// clock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ErrorEstimate {
    packets: u64,
    /// Sum of the variances of all packets, in square nanoseconds.
    variance_sum: f64,
}

impl ErrorEstimate {
    /// Adds packets whose arrival time is equally probable everywhere in a window of this length.
    #[inline]
    pub fn add_window(&mut self, packets: usize, window_nanos: u64) {
        let width = window_nanos as f64;
        self.packets += packets as u64;
        self.variance_sum += packets as f64 * (width * width + JITTER_NANOS * JITTER_NANOS) / 12.0;
    }

    /// Adds `packets` of the `found` packets that arrived at unknown times in an interval. The link was idle for
    /// `idle_nanos` of the interval, and each packet occupied it for `packet_nanos`. The mean variance of `n` ordered
    /// uniform times in a unit interval is `1 / (6 (n + 1))` (order statistics of the uniform distribution). The last
    /// packet ended at most one packet before the poll, so the position of the batch is uncertain by one packet or by
    /// the interval, whichever is shorter.
    #[inline]
    pub fn add_batch(&mut self, packets: usize, found: usize, interval_nanos: u64, idle_nanos: u64, packet_nanos: u64) {
        let (idle, shift) = (idle_nanos as f64, packet_nanos.min(interval_nanos) as f64);
        self.packets += packets as u64;
        let position = (shift * shift + JITTER_NANOS * JITTER_NANOS) / 12.0;
        self.variance_sum += packets as f64 * (idle * idle / (6.0 * (found as f64 + 1.0)) + position);
    }

    /// Adds the packets of another estimate.
    #[inline]
    pub fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.variance_sum += other.variance_sum;
    }

    /// Sum of the variances of all packets, in square nanoseconds.
    pub fn variance_sum(&self) -> f64 {
        self.variance_sum
    }

    /// Number of packets.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// The estimated standard deviation; zero without packets.
    pub fn standard_deviation(&self) -> Duration {
        if self.packets == 0 {
            return Duration::ZERO;
        }
        Duration::from_nanos((self.variance_sum / self.packets as f64).sqrt() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    #[test]
    fn the_estimate_of_idle_batches_equals_the_deviation_of_random_arrivals() {
        let mut prng = Prng::new(5);
        for n in [1usize, 2, 7, 40] {
            let (mut squares, rounds) = (0.0, 20_000);
            for _ in 0..rounds {
                let mut times: Vec<f64> = (0..n).map(|_| prng.unit() * 10_000.0).collect();
                times.sort_by(f64::total_cmp);
                let expected = (1..=n).map(|i| 10_000.0 * i as f64 / (n as f64 + 1.0));
                squares += times.iter().zip(expected).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
            }
            let real = (squares / (rounds * n) as f64).sqrt();
            let mut estimate = ErrorEstimate::default();
            estimate.add_batch(n, n, 10_000, 10_000, 0);
            let ratio = estimate.standard_deviation().as_nanos() as f64 / real;
            assert!((0.98..1.02).contains(&ratio), "{n} packets: {ratio}");
        }
    }

    #[test]
    fn without_packets_there_is_no_deviation() {
        assert_eq!(ErrorEstimate::default().standard_deviation(), Duration::ZERO);
    }
}
