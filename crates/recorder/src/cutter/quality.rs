//! The quality of the timestamps of one block while the block is being filled.
//!
//! The producer reports deviation and state of the clock once per second, but a block is filled in less than a
//! millisecond on a fast link. So a block without a report has the values of the last report before it.

use base::{ClockState, ClockSteps, TimestampMethods, TimestampQuality};
use ring::Desc;
use std::num::NonZeroU32;

/// See the module documentation.
#[derive(Default)]
pub(super) struct Quality {
    /// The bits of the timestamp methods of the packets of the block.
    method_bits: u16,
    /// The reports and steps in the block.
    block: TimestampQuality,
    /// The last report of deviation and clock.
    last: TimestampQuality,
    /// The last report before the block, which counts if the block contains no report.
    before: TimestampQuality,
}

impl Quality {
    /// Adds the timestamp method of a packet.
    ///
    /// The number of the method is tested once per block, in [`Quality::of_block`], and not for each packet.
    #[inline]
    pub fn packet(&mut self, d: &Desc) {
        self.method_bits |= d.annotations().timestamp_method_bit();
    }

    /// Adds a report of the deviation and of the state of the clock.
    pub fn report(&mut self, deviation_nanos: Option<NonZeroU32>, clock: Option<ClockState>) {
        self.last = TimestampQuality { deviation_nanos, clock, ..TimestampQuality::UNKNOWN };
        self.block = self.block.and(self.last);
        self.before = TimestampQuality::UNKNOWN;
    }

    /// Adds clock steps whose sum is `nanos`.
    pub fn step(&mut self, steps: u32, nanos: i64) {
        self.block.steps = self.block.steps.and(ClockSteps { steps, ..ClockSteps::one(nanos) });
    }

    /// Begins the next block.
    pub fn next_block(&mut self) {
        (self.method_bits, self.block, self.before) = (0, TimestampQuality::UNKNOWN, self.last);
    }

    /// The quality of the timestamps of the block so far.
    pub fn of_block(&self) -> TimestampQuality {
        let methods = TimestampMethods::from_any_bits(self.method_bits);
        TimestampQuality { methods, ..self.block.and(self.before) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::TimestampMethod;
    use ring::{AnnotatedPosition, Annotations};

    fn packet(method: TimestampMethod) -> Desc {
        let annotated_pos = AnnotatedPosition::new(0).with_annotations(Annotations::new(method, None));
        Desc { annotated_pos, ..Desc::default() }
    }

    #[test]
    fn a_block_without_a_report_has_the_last_report_and_a_block_with_reports_the_worst_of_them() {
        let state = |synchronised, error| {
            Some(ClockState { synchronised, maximum_error_micros: error, ..ClockState::default() })
        };
        let mut quality = Quality::default();
        quality.packet(&packet(TimestampMethod::Poll));
        assert_eq!((quality.of_block().deviation_nanos, quality.of_block().clock), (None, None));
        quality.report(NonZeroU32::new(30), state(false, 90));
        quality.next_block();
        assert_eq!(quality.of_block().clock, state(false, 90));
        assert!(quality.of_block().methods.is_empty(), "the methods are those of the packets of the block");
        quality.report(NonZeroU32::new(20), state(true, 40));
        assert_eq!(quality.of_block().clock, state(true, 40), "a report in the block replaces the report before it");
        quality.report(NonZeroU32::new(10), state(true, 50));
        assert_eq!(
            (quality.of_block().deviation_nanos, quality.of_block().clock),
            (NonZeroU32::new(20), state(true, 50))
        );
    }

    #[test]
    fn a_step_is_in_one_block_only() {
        let mut quality = Quality::default();
        quality.step(1, -5);
        quality.step(2, 7);
        assert_eq!(quality.of_block().steps, ClockSteps { steps: 3, forward_nanos: 7, back_nanos: 5 });
        quality.next_block();
        assert_eq!(quality.of_block().steps, ClockSteps::default());
    }
}
