//! The quality of the timestamps of a block or of a second: their methods, their estimated deviation, the state of the
//! system clock, and the steps of the system clock.

use crate::TimestampMethod;
use std::num::NonZeroU32;

/// A set of timestamp methods. The bit of a method is its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimestampMethods(u16);

impl TimestampMethods {
    /// The empty set: no packets, or packets whose methods are not recorded.
    pub const NONE: Self = Self(0);

    /// The set with this bitmap; `None` if a bit belongs to no method.
    pub const fn from_bits(bits: u16) -> Option<Self> {
        if bits >> TimestampMethod::COUNT == 0 { Some(Self(bits)) } else { None }
    }

    /// The set with this bitmap, in which the bits of numbers without a method stand for [`TimestampMethod::Unknown`].
    pub const fn from_any_bits(bits: u16) -> Self {
        let defined = bits & ((1 << TimestampMethod::COUNT) - 1);
        Self(if defined == bits { bits } else { defined | 1 << TimestampMethod::Unknown as u8 })
    }

    /// The bitmap.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Adds a method.
    #[inline]
    pub const fn insert(&mut self, method: TimestampMethod) {
        self.0 |= 1 << method as u8;
    }

    /// The union of both sets.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// True if the set has no method.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The methods, in the order of their numbers.
    pub fn iter(self) -> impl Iterator<Item = TimestampMethod> {
        TimestampMethod::ALL.into_iter().filter(move |method| self.0 >> *method as u8 & 1 == 1)
    }
}

impl FromIterator<TimestampMethod> for TimestampMethods {
    fn from_iter<I: IntoIterator<Item = TimestampMethod>>(methods: I) -> Self {
        let mut set = Self::NONE;
        methods.into_iter().for_each(|method| set.insert(method));
        set
    }
}

/// The state of the system clock, as the time daemon has set it in the kernel (adjtimex(2)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockState {
    /// True if a time daemon synchronises the clock.
    pub synchronised: bool,
    /// Maximum error in microseconds.
    pub maximum_error_micros: u32,
    /// Correction of the rate of the clock in parts per billion.
    pub frequency_ppb: i32,
}

impl ClockState {
    /// The worse value of each property: not synchronised, the larger maximum error, the correction with the larger
    /// magnitude.
    #[must_use]
    pub fn worse(self, other: Self) -> Self {
        let magnitude = |ppb: i32| (ppb.unsigned_abs(), ppb);
        Self {
            synchronised: self.synchronised && other.synchronised,
            maximum_error_micros: self.maximum_error_micros.max(other.maximum_error_micros),
            frequency_ppb: std::cmp::max_by_key(self.frequency_ppb, other.frequency_ppb, |ppb| magnitude(*ppb)),
        }
    }
}

/// Steps of the system clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockSteps {
    /// Number of steps.
    pub steps: u32,
    /// The largest step forward in nanoseconds; 0 without a step forward.
    pub forward_nanos: u64,
    /// The largest step back in nanoseconds; 0 without a step back.
    pub back_nanos: u64,
}

impl ClockSteps {
    /// One step by this number of nanoseconds; a negative number is a step back.
    pub const fn one(nanos: i64) -> Self {
        let size = nanos.unsigned_abs();
        let (forward_nanos, back_nanos) = if nanos < 0 { (0, size) } else { (size, 0) };
        Self { steps: 1, forward_nanos, back_nanos }
    }

    /// The steps of both. The number of steps saturates.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            steps: self.steps.saturating_add(other.steps),
            forward_nanos: self.forward_nanos.max(other.forward_nanos),
            back_nanos: self.back_nanos.max(other.back_nanos),
        }
    }
}

/// The quality of the timestamps of some packets. The default says that nothing is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimestampQuality {
    /// The methods that made the timestamps.
    pub methods: TimestampMethods,
    /// The estimated standard deviation in nanoseconds; `None` if it is not known.
    pub deviation_nanos: Option<NonZeroU32>,
    /// The state of the system clock; `None` if it is not known, or if the timestamps are not those of the system
    /// clock.
    pub clock: Option<ClockState>,
    /// The steps of the system clock.
    pub steps: ClockSteps,
}

impl TimestampQuality {
    /// Nothing is known, and the clock was not set.
    pub const UNKNOWN: Self = Self {
        methods: TimestampMethods::NONE,
        deviation_nanos: None,
        clock: None,
        steps: ClockSteps { steps: 0, forward_nanos: 0, back_nanos: 0 },
    };

    /// The quality of the packets of both: all methods, the larger deviation, the worse state of the clock, and all
    /// steps. A known value replaces an unknown value.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            methods: self.methods.union(other.methods),
            deviation_nanos: self.deviation_nanos.max(other.deviation_nanos),
            clock: match (self.clock, other.clock) {
                (Some(clock), Some(other)) => Some(clock.worse(other)),
                (clock, other) => clock.or(other),
            },
            steps: self.steps.and(other.steps),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prng;

    fn random(prng: &mut Prng) -> TimestampQuality {
        let clock = ClockState {
            synchronised: prng.below(2) == 0,
            maximum_error_micros: prng.below(5) as u32,
            frequency_ppb: prng.below(9) as i32 - 4,
        };
        TimestampQuality {
            methods: TimestampMethods((prng.below(1 << TimestampMethod::COUNT)) as u16),
            deviation_nanos: NonZeroU32::new(prng.below(4) as u32),
            clock: (prng.below(3) > 0).then_some(clock),
            steps: if prng.below(3) > 0 { ClockSteps::one(prng.below(9) as i64 - 4) } else { ClockSteps::default() },
        }
    }

    #[test]
    fn the_union_of_qualities_depends_neither_on_order_nor_on_grouping() {
        let mut prng = Prng::new(11);
        for _ in 0..2000 {
            let [a, b, c] = [(); 3].map(|()| random(&mut prng));
            assert_eq!(a.and(b), b.and(a));
            assert_eq!(a.and(b).and(c), a.and(b.and(c)));
            assert_eq!(a.and(TimestampQuality::UNKNOWN), a);
        }
    }

    #[test]
    fn a_set_contains_the_inserted_methods_and_unknown_bits_are_refused() {
        let set: TimestampMethods = [TimestampMethod::Wdts, TimestampMethod::Poll].into_iter().collect();
        assert_eq!(set.iter().map(TimestampMethod::name).collect::<Vec<_>>(), ["poll", "wdts"]);
        assert_eq!(TimestampMethods::from_bits(set.bits()), Some(set));
        assert_eq!(TimestampMethods::from_bits(1 << TimestampMethod::COUNT), None);
        let with_unknown = [TimestampMethod::Unknown, TimestampMethod::Poll].into_iter().collect();
        assert_eq!(TimestampMethods::from_any_bits(1 << TimestampMethod::COUNT | 2), with_unknown);
        assert_eq!(TimestampMethods::from_any_bits(set.bits()), set);
        assert!(TimestampMethods::NONE.is_empty() && TimestampMethods::NONE.iter().next().is_none());
    }

    #[test]
    fn a_step_has_a_direction_and_the_largest_steps_remain() {
        let steps = [2, -7, 5, i64::MIN].into_iter().map(ClockSteps::one).fold(ClockSteps::default(), ClockSteps::and);
        assert_eq!(steps, ClockSteps { steps: 4, forward_nanos: 5, back_nanos: 1 << 63 });
    }
}
