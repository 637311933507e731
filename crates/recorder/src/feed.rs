//! The interface through which the recorder reads the ring: a lossless reader, which the producer never overtakes.

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
    /// No more descriptors will come: the producer exited without an end descriptor in the stream.
    Gone,
}

/// A lossless reader of the ring.
pub trait Feed {
    /// The memory that holds the stream.
    fn memory(&self) -> Arc<dyn Bytes>;

    /// Waits until there are descriptors, the producer is gone, or `timeout` has passed.
    fn wait(&mut self, timeout: Duration) -> Wait;

    /// The next descriptors, contiguous; each descriptor is returned once. Empty if there are none now. The first
    /// descriptor of the stream is a [`ring::Control::Segment`].
    fn descriptors(&mut self) -> &[Desc];

    /// Releases the stream before position `pos` and the first `descriptors` descriptors of the stream: the producer
    /// may overwrite them.
    fn release(&mut self, pos: u64, descriptors: u64);
}
