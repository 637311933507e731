//! The counters of a detector.

use crate::Class;
use std::time::Duration;

/// The number of intervals of [`TimeCounts`].
pub const INTERVALS: usize = 40;

/// The number of counted decreases of the TTL: 0 to 6, and all larger decreases.
pub const TTL_DROPS: usize = 8;

/// The distribution of the times between packets and their duplicates, in intervals that double.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeCounts {
    /// The number of times in each interval. Interval 0 is 0 ns; interval `i` is from `2^(i-1)` ns to below `2^i` ns.
    pub intervals: [u64; INTERVALS],
    /// The shortest time.
    pub min: Duration,
    /// The longest time.
    pub max: Duration,
    /// The sum of all times.
    pub sum: Duration,
}

impl Default for TimeCounts {
    fn default() -> Self {
        Self { intervals: [0; INTERVALS], min: Duration::MAX, max: Duration::ZERO, sum: Duration::ZERO }
    }
}

impl TimeCounts {
    fn add(&mut self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let interval = (u64::BITS - nanos.leading_zeros()) as usize;
        self.intervals[interval.min(INTERVALS - 1)] += 1;
        (self.min, self.max) = (self.min.min(time), self.max.max(time));
        self.sum = self.sum.saturating_add(time);
    }

    /// The number of times.
    pub fn count(&self) -> u64 {
        self.intervals.iter().sum()
    }

    /// The mean; `None` without times.
    pub fn mean(&self) -> Option<Duration> {
        let count = self.count();
        (count > 0).then(|| Duration::from_nanos((self.sum.as_nanos() / u128::from(count)) as u64))
    }

    /// An upper bound of the time below which this share of the times is, at most twice that time; `None` without
    /// times.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let count = self.count();
        let wanted = ((count as f64 * share).ceil() as u64).clamp(1, count.max(1));
        let mut below = 0;
        for (interval, times) in self.intervals.iter().enumerate() {
            below += times;
            if count > 0 && below >= wanted {
                return Some(Duration::from_nanos(1 << interval).min(self.max));
            }
        }
        None
    }
}

/// The counters of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCounts {
    /// Duplicates.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// The times from a packet to its duplicate.
    pub times: TimeCounts,
    /// Duplicates by the decrease of the TTL; the last element counts all larger decreases.
    pub ttl_drops: [u64; TTL_DROPS],
    /// Duplicates with other VLAN tags than the earlier packet.
    pub vlan_changed: u64,
    /// Duplicates with another type of service or traffic class than the earlier packet.
    pub tos_changed: u64,
    /// Duplicates without payload above the transport header.
    pub without_payload: u64,
}

/// The counters of a detector. All are totals since the detector was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that were compared. `packets = unique + duplicates`, where the sum of the classes are the duplicates.
    pub packets: u64,
    /// The duplicates by class, by [`Class::index`].
    pub classes: [ClassCounts; Class::COUNT],
    /// Packets that are equal to a packet in the window, without evidence that they are copies. They are not
    /// duplicates.
    pub repeats: u64,
    /// Copies that are not reported, because their chain already has [`crate::Settings::copies_max`] copies with the
    /// same TTL. Mirrors do not make so many copies.
    pub over_limit: u64,
    /// Packets that differ from an earlier packet as NAT or a proxy changes packets, before the binding of addresses is
    /// confirmed. They are not reported.
    pub unconfirmed: u64,
    /// Packets that differ from a packet of another interface as from their own copy after a router: the copy was
    /// captured first. They are reported only with [`crate::Settings::unordered_interfaces`].
    pub reversed: u64,
    /// Packets whose record was overwritten before the end of the window in time, because the table is too small for
    /// the rate. Duplicates of such packets are missed.
    pub overwritten: u64,
    /// Packets whose entry in the index was evicted by other packets while the window contained them. Duplicates of
    /// such packets are missed.
    pub evicted: u64,
    /// Packets whose entry in the index was replaced by an equal packet while the window contained them, because the
    /// index has at most six entries for equal packets. Duplicates of such packets can be missed. More records do not
    /// change this number.
    pub crowded: u64,
    /// Bindings of addresses that were replaced by others. Their flows must confirm them again, and duplicates of the
    /// classes NAT and proxying are missed.
    pub bindings_replaced: u64,
    /// The shortest time from the timestamp of a packet to the overwriting of its record; `None` if no record was
    /// overwritten.
    pub shortest_reach: Option<Duration>,
}

impl Counts {
    /// The number of duplicates of all classes.
    pub fn duplicates(&self) -> u64 {
        self.classes.iter().map(|class| class.packets).sum()
    }

    /// The counters of a class.
    pub fn class(&self, class: Class) -> &ClassCounts {
        &self.classes[class.index()]
    }

    /// True if the detector found every duplicate that its rules define: no record was lost within the window. This
    /// holds for timestamps in order.
    pub fn is_complete(&self) -> bool {
        self.overwritten + self.evicted + self.crowded + self.bindings_replaced == 0
    }

    pub(crate) fn add(&mut self, duplicate: &crate::Duplicate, wire_len: u32) {
        let class = &mut self.classes[duplicate.class.index()];
        class.packets += 1;
        class.bytes += u64::from(wire_len);
        class.times.add(duplicate.time);
        class.ttl_drops[usize::from(duplicate.ttl_drop).min(TTL_DROPS - 1)] += 1;
        class.vlan_changed += u64::from(duplicate.is_vlan_changed);
        class.tos_changed += u64::from(duplicate.is_tos_changed);
        class.without_payload += u64::from(!duplicate.has_payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_upper_bounds_within_a_factor_of_two() {
        let mut times = TimeCounts::default();
        assert_eq!((times.quantile(0.5), times.mean()), (None, None));
        for nanos in 1..=1000 {
            times.add(Duration::from_nanos(nanos));
        }
        let median = times.quantile(0.5).map(|time| time.as_nanos());
        assert!(median.is_some_and(|nanos| (500..=1000).contains(&nanos)), "{median:?}");
        assert_eq!(times.quantile(1.0), Some(Duration::from_nanos(1000)));
        assert_eq!((times.mean(), times.count()), (Some(Duration::from_nanos(500)), 1000));
    }

    #[test]
    fn the_longest_time_has_an_interval() {
        let mut times = TimeCounts::default();
        times.add(crate::settings::WINDOW_MAX);
        times.add(Duration::ZERO);
        assert_eq!((times.intervals[0], times.count()), (1, 2));
    }
}
