//! The expected level and spread by time of week: 168 slots of an hour, 4 bytes each.
//!
//! The week begins on Thursday at 0 h UTC, because 1970-01-01 was a Thursday. Levels between the middles of two slots
//! are interpolated. In the first week, a day before represents an hour that has no value yet.
//!
//! ```text
//!  31                     12 11          0
//!  ┌────────────────────────┬─────────────┐
//!  │ upper 20 bits of an f32│ spread code │   code 0: the slot has no value
//!  └────────────────────────┴─────────────┘   spread = 2^((code - 1) / 32 - 40)
//! ```
//!
//! The relative error of a level is at most 2⁻¹², that of a spread 1.1 %.

use crate::state::{Codec, Field};

/// Slots of a week.
pub(crate) const SLOTS: usize = 168;

/// Seconds of a slot.
const SLOT_SECONDS: u64 = 3600;

/// Bits of the spread code.
const CODE_BITS: u32 = 12;

/// The largest spread code.
const CODE_MAX: f64 = ((1 << CODE_BITS) - 1) as f64;

/// Steps of the spread code for a factor of two.
const STEPS: f64 = 32.0;

/// The binary logarithm of the smallest spread.
const SPREAD_MIN_LOG2: f64 = -40.0;

/// The weight of a new hour in a slot that has a value.
const NEW_WEIGHT: f64 = 0.4;

/// The weight of a new hour whose level differs from the slot by more than half: probably a holiday or an incident.
const STRANGE_WEIGHT: f64 = 0.1;

/// The level and the spread of an hour of the week.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Hour {
    /// Robust mean of the values.
    pub level: f64,
    /// Robust standard deviation of the values about their local level.
    pub spread: f64,
}

/// The levels and spreads of all hours of the week.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Profile {
    slots: [u32; SLOTS],
}

impl Default for Profile {
    fn default() -> Self {
        Self { slots: [0; SLOTS] }
    }
}

/// The slot of a second.
pub(crate) const fn slot_of(second: u64) -> usize {
    (second / SLOT_SECONDS % SLOTS as u64) as usize
}

impl Profile {
    /// The level at a second, if both adjacent slots have a value.
    pub fn level(&self, second: u64) -> Option<f64> {
        let (before, after, share) = neighbours(second);
        let (before, after) = (self.slot_or_day_before(before)?, self.slot_or_day_before(after)?);
        Some(level(before) * (1.0 - share) + level(after) * share)
    }

    /// The spread at a second, if both adjacent slots have a value.
    pub fn spread(&self, second: u64) -> Option<f64> {
        let (before, after, share) = neighbours(second);
        let (before, after) = (self.slot_or_day_before(before)?, self.slot_or_day_before(after)?);
        Some(spread(before) * (1.0 - share) + spread(after) * share)
    }

    /// In the first week, the same hour of the last day that has a value represents a slot without a value.
    fn slot_or_day_before(&self, slot: usize) -> Option<u32> {
        let days = (0..7).map(|day| self.slots[(slot + SLOTS - 24 * day) % SLOTS]);
        days.into_iter().find(|slot| code(*slot) > 0)
    }

    /// Adds an hour of values to its slot.
    pub fn learn(&mut self, slot: usize, hour: Hour) {
        let merged = match unpack(self.slots[slot]) {
            None => hour,
            Some(old) => {
                let is_strange = (hour.level - old.level).abs() > (old.level.abs() / 2.0).max(3.0 * old.spread);
                let weight = if is_strange { STRANGE_WEIGHT } else { NEW_WEIGHT };
                let merge = |old: f64, new: f64| old + weight * (new - old);
                Hour { level: merge(old.level, hour.level), spread: merge(old.spread, hour.spread) }
            }
        };
        self.slots[slot] = pack(merged);
    }

    /// Number of slots with a value.
    pub fn trained(&self) -> usize {
        self.slots.iter().filter(|slot| code(**slot) > 0).count()
    }
}

impl Field for Profile {
    fn visit(&mut self, codec: &mut dyn Codec) {
        self.slots.iter_mut().for_each(|slot| codec.u32(slot));
    }
}

/// The two slots whose middles enclose a second, and the share of the second slot.
fn neighbours(second: u64) -> (usize, usize, f64) {
    let from_middle = second + SLOT_SECONDS / 2;
    let after = slot_of(from_middle);
    let share = (from_middle % SLOT_SECONDS) as f64 / SLOT_SECONDS as f64;
    ((after + SLOTS - 1) % SLOTS, after, share)
}

const fn code(slot: u32) -> u32 {
    slot & ((1 << CODE_BITS) - 1)
}

fn level(slot: u32) -> f64 {
    f64::from(f32::from_bits(slot & !((1 << CODE_BITS) - 1)))
}

fn spread(slot: u32) -> f64 {
    ((f64::from(code(slot)) - 1.0) / STEPS + SPREAD_MIN_LOG2).exp2()
}

fn unpack(slot: u32) -> Option<Hour> {
    (code(slot) > 0).then(|| Hour { level: level(slot), spread: spread(slot) })
}

fn pack(hour: Hour) -> u32 {
    let code = ((hour.spread.max(f64::MIN_POSITIVE).log2() - SPREAD_MIN_LOG2) * STEPS).round() + 1.0;
    let limit = f64::from(f32::MAX) / 2.0;
    let bits = (hour.level.clamp(-limit, limit) as f32).to_bits() + (1 << (CODE_BITS - 1));
    (bits & !((1 << CODE_BITS) - 1)) | code.clamp(1.0, CODE_MAX) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    #[test]
    fn packed_hours_have_small_errors() {
        let seed = testkit::seed("packed_hours_have_small_errors");
        let mut prng = Prng::new(seed);
        for _ in 0..20_000 {
            let sign = if prng.below(2) == 0 { 1.0 } else { -1.0 };
            let level = sign * (prng.unit() * 80.0 - 30.0).exp2();
            let spread = (prng.unit() * 100.0 - 35.0).exp2();
            let found = unpack(pack(Hour { level, spread })).expect("a value");
            assert!((found.level / level - 1.0).abs() <= 1.0 / 4096.0, "seed {seed}: {level} {found:?}");
            assert!((found.spread / spread - 1.0).abs() <= 0.0110, "seed {seed}: {spread} {found:?}");
        }
        assert_eq!(unpack(pack(Hour { level: 0.0, spread: 0.0 })).map(|hour| hour.level), Some(0.0));
        assert_eq!(unpack(0), None);
    }

    #[test]
    fn levels_are_interpolated_between_the_middles_of_slots() {
        let mut profile = Profile::default();
        profile.learn(0, Hour { level: 100.0, spread: 1.0 });
        assert_eq!(profile.level(1800), None);
        profile.learn(1, Hour { level: 200.0, spread: 1.0 });
        profile.learn(SLOTS - 1, Hour { level: 50.0, spread: 1.0 });
        assert_eq!(profile.level(1800), Some(100.0));
        assert_eq!(profile.level(3600), Some(150.0));
        assert_eq!(profile.level(0), Some(75.0));
        assert_eq!(profile.level(7 * 86_400 + 3600), Some(150.0));
        assert_eq!(profile.trained(), 3);
        // Without a value, the day before represents an hour.
        assert_eq!(profile.level(86_400 + 3600), Some(150.0));
        profile.learn(25, Hour { level: 300.0, spread: 1.0 });
        assert_eq!(profile.level(86_400 + 3600), Some(200.0));
    }

    #[test]
    fn a_strange_hour_has_little_weight() {
        let mut profile = Profile::default();
        let usual = Hour { level: 100.0, spread: 2.0 };
        profile.learn(5, usual);
        profile.learn(5, Hour { level: 110.0, spread: 2.0 });
        let normal = unpack(profile.slots[5]).expect("a value").level;
        assert!((normal - 104.0).abs() < 0.1, "{normal}");
        profile.learn(5, Hour { level: 1000.0, spread: 2.0 });
        let strange = unpack(profile.slots[5]).expect("a value").level;
        assert!((strange - (104.0 + 89.6)).abs() < 0.2, "{strange}");
    }
}
