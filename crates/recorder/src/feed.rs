//! What the recorder needs of the ring's reading side: a gate, which the producer never overtakes.

use ring::Desc;
use std::sync::Arc;
use std::time::Duration;
use store::bytes::Bytes;

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// There are descriptors.
    Ready,
    /// There were none in time.
    Idle,
    /// There will never be any: the producer is gone without having said so in the stream.
    Gone,
}

/// A gate listener.
pub trait Feed {
    /// The memory that holds the stream.
    fn memory(&self) -> Arc<dyn Bytes>;

    /// Waits for descriptors.
    fn wait(&mut self, timeout: Duration) -> Wait;

    /// The next descriptors, contiguous, each given once; empty if there are none now. The first one ever is a
    /// [`ring::Control::Segment`].
    fn descriptors(&mut self) -> &[Desc];

    /// The stream before `pos`, and the first `descriptors` ever given, are needed no more.
    fn release(&mut self, pos: u64, descriptors: u64);
}
