//! The interface through which the recorder reads the ring. A feed is a lossless reader: the producer does not
//! overwrite bytes that the feed has not released.

use ring::Desc;
use std::sync::Arc;
use std::time::Duration;
use store::bytes::Bytes;

/// The result of a wait for descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Descriptors are available.
    Ready,
    /// The timeout passed without descriptors.
    Idle,
    /// The producer exited without an end descriptor in the stream, so no more descriptors follow.
    Gone,
}

/// A lossless reader of the ring.
pub trait Feed {
    /// The memory that contains the stream.
    fn memory(&self) -> Arc<dyn Bytes>;

    /// Waits until descriptors are available, the producer has exited, or `timeout` has passed.
    fn wait(&mut self, timeout: Duration) -> Wait;

    /// Returns the next descriptors; each descriptor is returned once. The result is empty if no descriptor is
    /// available. The first descriptor of the stream is a [`ring::Control::Segment`].
    fn descriptors(&mut self) -> &[Desc];

    /// Releases the bytes of the stream before position `pos` and the first `descriptors` descriptors of the stream:
    /// the producer may overwrite them.
    fn release(&mut self, pos: u64, descriptors: u64);
}
