//! A lossless ring reader as a [`Feed`]: the recorder reads packets directly from the ring's memory, without a copy.

use crate::feed::{Feed, Wait};
use ring::{Desc, DescPosition, IdleBackoff, LosslessReader, RingMemory};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::bytes::Bytes;
use sys::uring::Region;

/// The largest number of descriptors per batch; between two batches the recorder releases the ring memory of written
/// blocks.
const MAX: usize = 16 << 10;

/// A [`Feed`] over a lossless ring reader.
pub struct RingFeed {
    reader: LosslessReader,
    memory: Arc<HeldBytes>,
    /// The pause between two reads of the ring's head position.
    backoff: IdleBackoff,
}

impl RingFeed {
    /// A feed for this reader. The reader must join before the producer writes its first descriptor, so that the stream
    /// begins with a segment.
    pub fn new(reader: LosslessReader) -> Self {
        let memory = Arc::new(HeldBytes(Arc::clone(reader.memory())));
        let backoff = IdleBackoff::of(reader.memory().byte_capacity());
        Self { reader, memory, backoff }
    }
}

impl Feed for RingFeed {
    fn memory(&self) -> Arc<dyn Bytes> {
        Arc::clone(&self.memory) as Arc<dyn Bytes>
    }

    fn wait(&mut self, timeout: Duration) -> Wait {
        let until = Instant::now() + timeout;
        loop {
            // The end flag is read before the head position, so that no descriptor that was published before the end is
            // missed.
            let ended = self.reader.ended();
            if self.reader.waiting() > 0 {
                self.backoff.reset();
                return Wait::Ready;
            }
            if ended {
                return Wait::Gone;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Wait::Idle;
            }
            std::thread::sleep(self.backoff.next_sleep().min(left));
        }
    }

    fn descriptors(&mut self) -> &[Desc] {
        self.reader.next(MAX)
    }

    fn release(&mut self, pos: u64, descriptors: u64) {
        self.reader.release(DescPosition { desc: descriptors, pos });
    }
}

/// The bytes of the stream that the lossless reader has not released.
struct HeldBytes(Arc<RingMemory>);

impl Bytes for HeldBytes {
    fn at(&self, pos: u64, len: usize) -> &[u8] {
        // SAFETY: the recorder requests only bytes that its reader received and has not released (see `Feed::release`).
        unsafe { self.0.held_bytes(pos, len) }
    }

    fn regions(&self) -> Vec<Region> {
        let memory = self.0.bytes();
        vec![Region { address: memory.base() as usize, len: memory.len() }]
    }

    fn is_warm(&self) -> bool {
        self.0.bytes().is_prefaulted()
    }
}
