//! The dispersion of bursts, and the bandwidth that it implies.
//!
//! The dispersion of a burst is the time from its first to its last arrival. If packets leave the sender faster than
//! the slowest link of the path carries them, the dispersion is the time in which this link carried all packets but the
//! first. So the bandwidth of the slowest link is the length of these packets divided by the dispersion (Dovrolis,
//! Ramanathan and Moore: "What do packet dispersion techniques measure?", INFOCOM 2001). If the packets leave the
//! sender more slowly, the result is the rate of the sender. If packets of other traffic are between the packets of the
//! burst, the result is the rate at which the burst arrived.
//!
//! The bandwidth is computed only from complete bursts that arrive in order, because a lost packet reduces the number
//! of bytes of a burst, but not its dispersion.

use crate::Arrival;
use base::Distribution;
use std::collections::VecDeque;

/// The largest number of open bursts, which are bursts of which packets may still arrive. If this number of bursts is
/// open, the first packet of a further burst closes the oldest open burst.
pub const OPEN_BURSTS: usize = 64;

/// Counts, dispersions and bandwidths of the bursts of a session.
#[derive(Clone, Debug, Default)]
pub struct BurstReport {
    /// Bursts of which all packets arrived once and in order.
    pub complete: u64,
    /// Bursts with lost or reordered packets, from the lowest to the highest burst of which a packet arrived. A burst
    /// of which no packet arrived counts if it lies between these bursts.
    pub incomplete: u64,
    /// Complete bursts of several packets whose first and last packet have the same arrival time. Their bandwidth is
    /// unknown.
    pub undispersed: u64,
    /// The times from the first to the last departure of each complete burst of several packets, in nanoseconds.
    pub departure_dispersion: Distribution,
    /// The times from the first to the last arrival of each complete burst of several packets, in nanoseconds.
    pub arrival_dispersion: Distribution,
    /// The bandwidths of complete bursts with a dispersion above 0, in bits per second, computed from frame lengths
    /// without FCS.
    pub bandwidth: Distribution,
}

#[derive(Clone, Copy, Debug)]
struct Burst {
    train: u32,
    burst: u32,
    size: u16,
    received: u16,
    /// True if the packets arrived with the indexes 0, 1, 2 and so on, in this order.
    is_in_order: bool,
    /// Departure and arrival of the first packet of the burst that arrived, in nanoseconds since 1970.
    first: (u64, u64),
    last: (u64, u64),
    /// The sum of the frame lengths of all packets except the first, in bytes.
    bytes: u64,
}

/// Groups packets by their bursts, in order of arrival.
#[derive(Clone, Debug, Default)]
pub struct Bursts {
    open: VecDeque<Burst>,
    /// Train and burst number of the highest burst that was closed. Later packets of this burst, and of lower bursts
    /// that are not open, are ignored.
    closed: Option<(u32, u32)>,
    /// The lowest and the highest number of a burst, counted over all trains.
    numbers: Option<(u64, u64)>,
    report: BurstReport,
}

impl Bursts {
    /// Adds a packet. The caller adds only the first copy of each packet.
    pub fn add(&mut self, arrival: &Arrival) {
        let name = (arrival.train, arrival.burst);
        // All bursts of a session have one size, and the packets of a session are numbered without gaps.
        let first = arrival.sequence.saturating_sub(u64::from(arrival.index));
        let number = first / u64::from(arrival.burst_size.max(1));
        self.numbers = Some(self.numbers.map_or((number, number), |(low, high)| (low.min(number), high.max(number))));
        let times = (arrival.departure.nanos(), arrival.arrival.nanos());
        if let Some(burst) = self.open.iter_mut().rev().find(|burst| (burst.train, burst.burst) == name) {
            burst.is_in_order &= arrival.index == burst.received && arrival.burst_size == burst.size;
            burst.received = burst.received.saturating_add(1);
            burst.last = times;
            burst.bytes += u64::from(arrival.bytes);
            if burst.received >= burst.size {
                self.close_complete();
            }
            return;
        }
        if self.closed.is_some_and(|closed| name <= closed) {
            return;
        }
        if self.open.len() == OPEN_BURSTS {
            self.close_oldest();
        }
        self.open.push_back(Burst {
            train: arrival.train,
            burst: arrival.burst,
            size: arrival.burst_size,
            received: 1,
            is_in_order: arrival.index == 0,
            first: times,
            last: times,
            bytes: 0,
        });
        self.close_complete();
    }

    /// Closes the oldest open burst if all its packets have arrived, and repeats this for the next burst.
    fn close_complete(&mut self) {
        while self.open.front().is_some_and(|burst| burst.received >= burst.size) {
            self.close_oldest();
        }
    }

    fn close_oldest(&mut self) {
        if let Some(burst) = self.open.pop_front() {
            self.closed = self.closed.max(Some((burst.train, burst.burst)));
            self.report.count(&burst);
        }
    }

    /// The report on the bursts so far. Open bursts of which packets are still missing count as incomplete.
    pub fn report(&self) -> BurstReport {
        let mut report = self.report.clone();
        self.open.iter().for_each(|burst| report.count(burst));
        // The bursts of which no packet arrived, or of which packets arrived only after a later burst was closed.
        let all = self.numbers.map_or(0, |(low, high)| (high - low).saturating_add(1));
        report.incomplete = report.incomplete.max(all.saturating_sub(report.complete));
        report
    }
}

impl BurstReport {
    fn count(&mut self, burst: &Burst) {
        if burst.received != burst.size || !burst.is_in_order {
            self.incomplete += 1;
            return;
        }
        self.complete += 1;
        if burst.size < 2 {
            return;
        }
        let span = |from: u64, to: u64| i64::try_from(to.saturating_sub(from)).unwrap_or(i64::MAX);
        self.departure_dispersion.add(span(burst.first.0, burst.last.0));
        let dispersion = span(burst.first.1, burst.last.1);
        self.arrival_dispersion.add(dispersion);
        if dispersion == 0 {
            self.undispersed += 1;
            return;
        }
        let bits_per_second = u128::from(burst.bytes) * 8 * 1_000_000_000 / u128::from(dispersion.unsigned_abs());
        self.bandwidth.add(i64::try_from(bits_per_second).unwrap_or(i64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Timestamp;

    fn arrival(burst: u32, index: u16, at: u64) -> Arrival {
        Arrival {
            sequence: u64::from(burst) * 5 + u64::from(index),
            train: 0,
            burst,
            index,
            burst_size: 5,
            departure: Timestamp::from_nanos(u64::from(burst) * 1_000_000 + u64::from(index)),
            arrival: Timestamp::from_nanos(at),
            bytes: 1000,
        }
    }

    #[test]
    fn a_burst_with_a_lost_or_reordered_packet_has_no_bandwidth() {
        let mut bursts = Bursts::default();
        [0, 1, 3, 4].iter().for_each(|index| bursts.add(&arrival(0, *index, u64::from(*index))));
        [0, 1, 3, 2, 4].iter().for_each(|index| bursts.add(&arrival(1, *index, u64::from(*index))));
        let report = bursts.report();
        assert_eq!((report.complete, report.incomplete, report.bandwidth.count()), (0, 2, 0));
    }

    #[test]
    fn the_bandwidth_of_a_burst_is_its_length_without_the_first_packet_per_dispersion() {
        let mut bursts = Bursts::default();
        for burst in 0..3 {
            // 4000 bytes in 32 µs are 1 Gb/s.
            (0..5).for_each(|i| bursts.add(&arrival(burst, i, u64::from(burst) * 1_000_000 + u64::from(i) * 8000)));
        }
        let report = bursts.report();
        assert_eq!((report.complete, report.incomplete), (3, 0));
        assert_eq!((report.bandwidth.min(), report.bandwidth.max()), (Some(1_000_000_000), Some(1_000_000_000)));
        assert_eq!(report.arrival_dispersion.mean(), Some(32_000.0));
        assert_eq!(report.departure_dispersion.mean(), Some(4.0));
    }

    #[test]
    fn bursts_that_overlap_are_separated_and_the_oldest_is_closed_at_the_limit() {
        let mut bursts = Bursts::default();
        for index in 0..5 {
            (0..OPEN_BURSTS as u32).for_each(|b| bursts.add(&arrival(b, index, u64::from(index) * 8000)));
        }
        assert_eq!(bursts.report().complete, OPEN_BURSTS as u64);
        let mut bursts = Bursts::default();
        for index in 0..5 {
            (0..=OPEN_BURSTS as u32).for_each(|b| bursts.add(&arrival(b, index, u64::from(index) * 8000)));
        }
        let report = bursts.report();
        assert_eq!(
            (report.complete, report.incomplete),
            (OPEN_BURSTS as u64, 1),
            "late packets do not complete a burst that was closed at the limit"
        );
        assert!(bursts.open.len() <= OPEN_BURSTS);
    }

    #[test]
    fn a_burst_that_was_lost_completely_or_came_too_late_is_incomplete() {
        let mut bursts = Bursts::default();
        for burst in [3, 4, 6, 5, 9] {
            (0..5).for_each(|i| bursts.add(&arrival(burst, i, u64::from(i) * 8000)));
        }
        // Burst 5 came after burst 6 was closed, and bursts 7 and 8 were lost.
        let report = bursts.report();
        assert_eq!((report.complete, report.incomplete), (4, 3));
    }

    #[test]
    fn a_burst_without_dispersion_has_an_unknown_bandwidth() {
        let mut bursts = Bursts::default();
        (0..5).for_each(|i| bursts.add(&arrival(0, i, 77)));
        let report = bursts.report();
        assert_eq!((report.complete, report.undispersed, report.bandwidth.count()), (1, 1, 0));
    }
}
