//! The quality of the timestamps of the present second, and clock steps, that no control descriptor in the stream
//! reports yet.

use crate::desc::Control;
use base::ClockState;
use std::num::NonZeroU32;

/// See the module documentation.
#[derive(Default)]
pub struct PendingTimestamps {
    /// Number of packets whose variance was estimated in the present second.
    packets: u64,
    /// Sum of the estimated variances of these packets, in square nanoseconds.
    variance_sum: f64,
    clock: Option<ClockState>,
    /// Number of steps of the system clock.
    steps: u32,
    /// Sum of these steps in nanoseconds.
    step_nanos: i64,
}

impl PendingTimestamps {
    /// Adds the estimated variances of packets, in square nanoseconds.
    #[inline]
    pub fn add_variance(&mut self, packets: u64, sum: f64) {
        self.packets += packets;
        self.variance_sum += sum;
    }

    /// Stores the state of the system clock, which remains until the next call.
    pub fn set_clock(&mut self, state: ClockState) {
        self.clock = Some(state);
    }

    /// Adds a step of the system clock.
    pub fn add_step(&mut self, nanos: i64) {
        self.steps = self.steps.saturating_add(1);
        self.step_nanos = self.step_nanos.saturating_add(nanos);
    }

    /// The steps that are not in the stream yet.
    pub fn steps(&self) -> Option<Control> {
        (self.steps > 0).then_some(Control::ClockStep { steps: self.steps, nanos: self.step_nanos })
    }

    /// Removes the steps, after they were written to the stream.
    pub fn steps_written(&mut self) {
        (self.steps, self.step_nanos) = (0, 0);
    }

    /// The quality of the timestamps; `None` if nothing is known.
    pub fn quality(&self) -> Option<Control> {
        let deviation = if self.packets > 0 { (self.variance_sum / self.packets as f64).sqrt() } else { 0.0 };
        // The conversion saturates. An estimate below a nanosecond counts as one nanosecond, because 0 means unknown.
        let deviation_nanos = NonZeroU32::new(deviation.ceil() as u32);
        let is_known = deviation_nanos.is_some() || self.clock.is_some();
        is_known.then_some(Control::Timestamps { deviation_nanos, clock: self.clock })
    }

    /// Removes the variances, after the quality was written to the stream.
    pub fn quality_written(&mut self) {
        (self.packets, self.variance_sum) = (0, 0.0);
    }
}
