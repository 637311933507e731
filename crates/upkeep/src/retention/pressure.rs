//! Limits the rate at which retention removes files to free space.
//!
//! The removal of a file frees no space while a process has the file open. Without pauses, the worker would then remove
//! all files of the store and free no space. So after some removals that freed no space, the worker pauses after each
//! removal. If very little space is free, the worker removes as many bytes between two pauses as the recorder may need
//! in that time, because the recorder may have filled the freed space.

use std::time::Duration;

/// Time for which the worker of one interface waits until the workers of other interfaces, which have older files, free
/// space.
const WAIT_FOR_OTHERS: Duration = Duration::from_secs(1);

/// After this many removals in succession that freed no space, the worker waits [`SETTLE_TIME`] after each removal.
const UNSETTLED: u32 = 3;

/// The pause of [`UNSETTLED`].
const SETTLE_TIME: Duration = Duration::from_secs(1);

/// The state of the rule for free space.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SpacePressure {
    state: PressureState,
    /// Number of bytes removed since the last pause without an increase of the free space.
    unsettled_bytes: u64,
    /// The end of the pause.
    not_before: Duration,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PressureState {
    /// The rule is met.
    #[default]
    Enough,
    /// Too little space is free since `since`; the last `unsettled` removals freed no space.
    Short { since: Duration, unsettled: u32 },
}

/// The effect of a removal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Removal {
    /// Bytes of the removed files.
    pub bytes: u64,
    /// True if the removal has increased the free space of the volume by at least half of `bytes`.
    pub is_effective: bool,
    /// True if very little space is free.
    pub is_pressing: bool,
    /// Number of bytes that the recorder may need within a second.
    pub ahead: u64,
}

impl SpacePressure {
    /// Registers whether too little space is free.
    pub fn update(&mut self, is_short: bool, up: Duration) {
        self.state = match (is_short, self.state) {
            (false, _) => PressureState::Enough,
            (true, PressureState::Enough) => PressureState::Short { since: up, unsettled: 0 },
            (true, short @ PressureState::Short { .. }) => short,
        };
    }

    /// True if the next removal is permitted now: no pause is running.
    pub fn allows(&self, up: Duration) -> bool {
        up >= self.not_before
    }

    /// True while the worker waits for the workers of interfaces with older files.
    pub fn waits_for_others(&self, up: Duration) -> bool {
        matches!(self.state, PressureState::Short { since, .. } if up < since + WAIT_FOR_OTHERS)
    }

    /// Registers a removal. Returns true if recent removals did not increase the free space, so that the worker pauses.
    pub fn removed(&mut self, removal: Removal, up: Duration) -> bool {
        let PressureState::Short { unsettled, .. } = &mut self.state else { return false };
        if removal.is_effective {
            (*unsettled, self.unsettled_bytes) = (0, 0);
            return false;
        }
        *unsettled += 1;
        if *unsettled < UNSETTLED {
            return false;
        }
        self.unsettled_bytes += removal.bytes;
        if !removal.is_pressing || self.unsettled_bytes >= removal.ahead {
            self.not_before = up + SETTLE_TIME;
            self.unsettled_bytes = 0;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_EFFECT: Removal = Removal { bytes: 10, is_effective: false, is_pressing: false, ahead: 25 };

    fn short() -> SpacePressure {
        let mut pressure = SpacePressure::default();
        pressure.update(true, Duration::ZERO);
        pressure
    }

    #[test]
    fn the_third_removal_without_effect_begins_a_pause() {
        let (mut pressure, now) = (short(), Duration::from_secs(5));
        assert!(!pressure.removed(NO_EFFECT, now) && !pressure.removed(NO_EFFECT, now));
        assert!(!pressure.removed(Removal { is_effective: true, ..NO_EFFECT }, now));
        assert!(!pressure.removed(NO_EFFECT, now) && !pressure.removed(NO_EFFECT, now) && pressure.allows(now));
        assert!(pressure.removed(NO_EFFECT, now));
        assert!(!pressure.allows(now) && pressure.allows(now + SETTLE_TIME));
    }

    #[test]
    fn with_little_space_the_pause_begins_after_the_recorders_bytes() {
        let (mut pressure, now) = (short(), Duration::from_secs(5));
        let pressing = Removal { is_pressing: true, ..NO_EFFECT };
        for removals in 1..=4 {
            pressure.removed(pressing, now);
            assert!(pressure.allows(now), "a pause after {removals} removals, which is too early");
        }
        assert!(pressure.removed(pressing, now) && !pressure.allows(now), "no pause after 30 bytes");
    }

    #[test]
    fn the_wait_for_other_workers_begins_when_space_becomes_short() {
        let mut pressure = short();
        assert!(pressure.waits_for_others(Duration::ZERO));
        pressure.update(true, WAIT_FOR_OTHERS);
        assert!(!pressure.waits_for_others(WAIT_FOR_OTHERS));
        pressure.update(false, WAIT_FOR_OTHERS);
        pressure.update(true, 2 * WAIT_FOR_OTHERS);
        assert!(pressure.waits_for_others(2 * WAIT_FOR_OTHERS));
    }
}
