//! The numbers of packets that the interface lost, by second. A flow record contains the number for its period.

use std::collections::BTreeMap;

/// The largest number of seconds with losses that are stored; it suffices for more than an hour in which every second
/// has losses.
const MAX: usize = 4096;

/// The number of lost packets of each second with losses.
#[derive(Default)]
pub(crate) struct Losses(BTreeMap<u64, u64>);

impl Losses {
    /// Adds the packets lost in a second. The order of the calls need not be the order of the seconds.
    pub fn add(&mut self, second: u64, packets: u64) {
        *self.0.entry(second).or_default() += packets;
        if self.0.len() > MAX
            && let (Some((first, _)), Some((last, _))) = (self.0.first_key_value(), self.0.last_key_value())
        {
            // Removes the entry whose second is farthest from the added second. The removed entry may be the first or
            // the last entry, because a clock step may go in either direction.
            let far = if second.abs_diff(*first) > second.abs_diff(*last) { *first } else { *last };
            self.0.remove(&far);
        }
    }

    /// Handles a backward clock step to `second`: removes the losses of later seconds, because these seconds will occur
    /// again.
    pub fn step_back(&mut self, second: u64) {
        self.0.split_off(&second.saturating_add(1));
    }

    /// True if there are no losses.
    #[inline(always)]
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of packets lost in the seconds from `first` to `last`, both included.
    pub fn between(&self, first: u64, last: u64) -> u64 {
        if first > last { 0 } else { self.0.range(first..=last).map(|s| s.1).sum() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backward_clock_step_removes_losses_of_later_seconds() {
        let mut losses = Losses::default();
        losses.add(7200, 5);
        losses.add(4_102_444_800, 1); // one timestamp of the year 2100
        losses.step_back(3600);
        for second in 3600..3700 {
            losses.add(second, 2);
        }
        assert_eq!((losses.between(3600, 3699), losses.between(3610, 3610)), (200, 2));
        assert_eq!((losses.between(7200, 7200), losses.between(0, u64::MAX)), (0, 200));
    }

    #[test]
    fn the_second_farthest_from_now_is_removed_first() {
        let mut losses = Losses::default();
        losses.add(9_000_000, 1);
        for second in 0..2 * MAX as u64 {
            losses.add(second, 1);
        }
        let newest = 2 * MAX as u64 - 1;
        assert_eq!(losses.between(newest - 4000, newest), 4001);
        assert!(losses.0.len() <= MAX && losses.between(9_000_000, 9_000_000) == 0);
    }
}
