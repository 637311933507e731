//! The apportionment of a time interval: each packet that arrived in the interval gets a part.
//!
//! All functions append one timestamp per packet. They compute with fractions of 32 bits, one multiplication per packet
//! and one or two divisions per batch. No product overflows: a product is a share of an interval, which is shorter than
//! 2^32 ns.

use crate::link_rate::{LinkRate, wire_bytes};
use base::Timestamp;

/// An interval in which packets arrived, at most 2^32 - 1 ns long. The start of a longer
/// interval is of no use for the apportionment, so [`Interval::new`] shortens a longer interval at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    start: u64,
    nanos: u64,
}

impl Interval {
    /// The interval from `start` to `end`; an empty interval at `start` if `end` is earlier.
    #[inline]
    pub fn new(start: Timestamp, end: Timestamp) -> Self {
        let (start, end) = (start.nanos(), end.nanos().max(start.nanos()));
        let nanos = (end - start).min(u32::MAX.into());
        Self { start: end - nanos, nanos }
    }

    /// Length in nanoseconds.
    #[inline]
    pub fn nanos(self) -> u64 {
        self.nanos
    }

    #[inline]
    fn at(self, nanos: u64) -> Timestamp {
        Timestamp::from_nanos(self.start + nanos.min(self.nanos))
    }
}

/// Divides the interval into equal parts; packet `i` of `n` arrived at the end of part `i` (equation 4.3).
pub fn uniform(interval: Interval, packets: usize, out: &mut Vec<Timestamp>) {
    let Some(step) = (interval.nanos << 32).checked_div(packets as u64) else { return };
    out.extend((1..packets as u64).map(|i| interval.at((step * i) >> 32)));
    out.push(interval.at(interval.nanos));
}

/// Divides the interval in proportion to the bytes that each frame occupies on the link; a packet arrived at the end of
/// its part (equation 4.4, with the sizes of equation 4.1).
pub fn weighted(interval: Interval, lengths: &[u32], out: &mut Vec<Timestamp>) {
    let total: u64 = lengths.iter().map(|len| wire_bytes(*len)).sum();
    let Some(per_byte) = (interval.nanos << 32).checked_div(total) else { return };
    let mut before = 0;
    out.extend(lengths.iter().map(|len| {
        before += wire_bytes(*len);
        interval.at((per_byte * before) >> 32)
    }));
    if let Some(last) = out.last_mut() {
        // Without this line, the rounded fraction could end before the interval.
        *last = interval.at(interval.nanos);
    }
}

/// The result of [`by_gaps`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupancy {
    /// The part of the interval, in nanoseconds, in which the link was idle.
    pub idle_nanos: u64,
    /// Mean time, in nanoseconds, that a packet occupied the link.
    pub packet_nanos: u64,
}

/// Divides the interval into the times that the frames occupied the link, and equal gaps between the frames.
///
/// `found` packets arrived in the interval, and `lengths` belong to the first of them; the others have the same mean
/// length. The position of a gap is unknown, so all gaps, including those before the first and after the last packet,
/// get the same expected length: `i / (n + 1)` is the mean of the `i`-th of `n` uniformly distributed times. If the
/// frames fill the interval, the result is that of [`weighted`]. Without a link rate, the link counts as idle.
pub fn by_gaps(
    interval: Interval,
    lengths: &[u32],
    found: usize,
    rate: Option<LinkRate>,
    out: &mut Vec<Timestamp>,
) -> Occupancy {
    let (taken, found) = (lengths.len() as u64, found.max(lengths.len()) as u64);
    let bytes: u64 = lengths.iter().map(|len| wire_bytes(*len)).sum();
    if taken == 0 {
        return Occupancy { idle_nanos: interval.nanos, packet_nanos: 0 };
    }
    let all_bytes = bytes * found / taken;
    let wire_nanos = rate.map_or(0, |rate| rate.nanos(all_bytes));
    let busy = wire_nanos.min(interval.nanos);
    let idle = interval.nanos - busy;
    let (per_byte, per_gap) = ((busy << 32) / all_bytes, (idle << 32) / (found + 1));
    let (mut before, mut gaps) = (0, 0);
    out.extend(lengths.iter().map(|len| {
        (before, gaps) = (before + wire_bytes(*len), gaps + per_gap);
        interval.at((per_byte * before + gaps) >> 32)
    }));
    Occupancy { idle_nanos: idle, packet_nanos: wire_nanos / found }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(start: u64, end: u64) -> Interval {
        Interval::new(Timestamp::from_nanos(start), Timestamp::from_nanos(end))
    }

    fn nanos(f: impl FnOnce(&mut Vec<Timestamp>)) -> Vec<u64> {
        let mut out = Vec::new();
        f(&mut out);
        out.into_iter().map(Timestamp::nanos).collect()
    }

    #[test]
    fn no_packet_gets_no_timestamp() {
        let all = interval(10, 20);
        assert_eq!(nanos(|out| uniform(all, 0, out)), []);
        assert_eq!(nanos(|out| weighted(all, &[], out)), []);
        assert_eq!(nanos(|out| _ = by_gaps(all, &[], 9, None, out)), []);
    }

    #[test]
    fn an_interval_that_ends_before_it_starts_is_empty_and_a_long_interval_is_shortened() {
        assert_eq!(nanos(|out| uniform(interval(20, 10), 2, out)), [20, 20]);
        let long = interval(0, 100_000_000_000);
        assert_eq!(long.nanos(), u64::from(u32::MAX));
        assert_eq!(nanos(|out| uniform(long, 1, out)), [100_000_000_000]);
    }

    #[test]
    fn uniform_and_weighted_apportionment_follow_equations_4_3_and_4_4() {
        assert_eq!(nanos(|out| uniform(interval(1000, 1400), 4, out)), [1100, 1200, 1300, 1400]);
        // The frames occupy 84, 1538 and 84 bytes.
        let lengths = [60, 1514, 60];
        assert_eq!(nanos(|out| weighted(interval(0, 1706), &lengths, out)), [84, 1622, 1706]);
        assert_eq!(nanos(|out| weighted(interval(0, 3412), &lengths, out)), [168, 3244, 3412]);
    }

    #[test]
    fn a_saturated_interval_is_apportioned_by_weight_and_an_idle_interval_by_equal_gaps() {
        let rate = LinkRate::from_mbps(8000);
        let lengths = [60, 1514, 60];
        assert_eq!(nanos(|out| _ = by_gaps(interval(0, 1706), &lengths, 3, rate, out)), [84, 1622, 1706]);
        // 1706 of 5706 ns are occupied; the remaining 4000 ns are four gaps.
        assert_eq!(nanos(|out| _ = by_gaps(interval(0, 5706), &lengths, 3, rate, out)), [1084, 3622, 4706]);
        // The frames occupy the link for 1706 ns, longer than the interval of 853 ns: the interval is apportioned by
        // weight.
        assert_eq!(nanos(|out| _ = by_gaps(interval(0, 853), &lengths, 3, rate, out)), [42, 811, 853]);
        // If the poll found six packets and three were taken, these three arrived in the first half of the interval.
        assert_eq!(nanos(|out| _ = by_gaps(interval(0, 3412), &lengths, 6, rate, out)), [84, 1622, 1706]);
        assert_eq!(nanos(|out| _ = by_gaps(interval(0, 4000), &[60, 1514, 60], 3, None, out)), [1000, 2000, 3000]);
    }
}
