//! The receiver of the frames of a source.

use crate::Frame;

/// The frames that one read of a source's receive ring found.
#[derive(Clone, Copy, Debug)]
pub struct FoundFrames<'a> {
    /// Lengths on the wire, without FCS, of the frames that the source delivers next, in order. If a frame turns out to
    /// be invalid, it is not delivered.
    pub lengths: &'a [u32],
    /// Number of frames that were found, at least the number of `lengths`.
    pub found: usize,
    /// True if the source slept until a frame arrived.
    pub waited: bool,
}

/// The receiver of the frames of a source.
pub trait FrameSink {
    /// True if the sink needs [`FrameSink::reads`] and [`FrameSink::found`]. The value is constant during a poll.
    fn needs_batches(&self) -> bool {
        false
    }

    /// Called immediately before each read of the receive ring, so that the sink can read its clock.
    fn reads(&mut self) {}

    /// Called after a read of the receive ring that found frames, before the first of these frames. Sources that do not
    /// know the lengths of the next frames do not call it.
    fn found(&mut self, frames: &FoundFrames<'_>) {
        let _ = frames;
    }

    /// Takes one frame.
    fn take(&mut self, frame: &Frame<'_>);
}

/// A sink that passes each frame to a function.
pub struct EachFrame<F>(pub F);

impl<F: FnMut(&Frame<'_>)> FrameSink for EachFrame<F> {
    #[inline]
    fn take(&mut self, frame: &Frame<'_>) {
        (self.0)(frame);
    }
}
