//! The receiver of the frames of a source.

use crate::Frame;

/// The largest number of frames that a source shows before it delivers the first of them.
pub const AHEAD_MAX: usize = 32;

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

    /// True if the sink needs [`FrameSink::ahead`]. The value is constant during a poll.
    fn needs_ahead(&self) -> bool {
        false
    }

    /// Shows a frame that the source will deliver soon in the same poll, at most [`AHEAD_MAX`] frames ahead, so that
    /// the sink can prefetch memory. From this call to the end of the poll the source neither moves nor changes the
    /// bytes of the frame. Sources that cannot look ahead do not call it, and they may omit frames; only bytes and wire
    /// length of the frame are valid.
    fn ahead(&mut self, frame: &Frame<'_>) {
        let _ = frame;
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
