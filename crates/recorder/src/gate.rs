//! The ring's own gate as a [`Feed`]: what the recorder reads lies where the producer wrote it.

use crate::feed::{Feed, Wait};
use ring::{Desc, Gate, Place, RingMemory};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::bytes::Bytes;
use sys::uring::Region;

/// How long to sleep between two looks at the head. Descriptors come in batches many times a millisecond or hardly at all,
/// and nobody waits for the disk: a wake-up call from the producer would cost it more than this costs us.
const NAP: Duration = Duration::from_micros(500);

/// How long the naps become while nothing comes: the smallest ring (8 MiB) holds what comes meanwhile at 10 Gb/s three times,
/// and a silent port costs a quarter of what naps of the first length do.
const LONG_NAP: Duration = Duration::from_millis(2);

/// As many descriptors as are walked between two looks at what the writer has finished.
const MOST: usize = 16 << 10;

/// A gate that feeds a recorder.
pub struct GateFeed {
    gate: Gate,
    memory: Arc<Held>,
}

impl GateFeed {
    /// The gate must have joined before the producer wrote its first descriptor, so that the stream begins with a segment.
    pub fn new(gate: Gate) -> Self {
        let memory = Arc::new(Held(Arc::clone(gate.memory())));
        Self { gate, memory }
    }
}

impl Feed for GateFeed {
    fn memory(&self) -> Arc<dyn Bytes> {
        Arc::clone(&self.memory) as Arc<dyn Bytes>
    }

    fn wait(&mut self, timeout: Duration) -> Wait {
        let until = Instant::now() + timeout;
        let mut nap = NAP;
        loop {
            // Asked first: what was published before the end is seen by the look that follows.
            let ended = self.gate.ended();
            if self.gate.waiting() > 0 {
                return Wait::Ready;
            }
            if ended {
                return Wait::Gone;
            }
            if Instant::now() >= until {
                return Wait::Idle;
            }
            std::thread::sleep(nap);
            nap = (nap * 2).min(LONG_NAP);
        }
    }

    fn descriptors(&mut self) -> &[Desc] {
        self.gate.next(MOST)
    }

    fn release(&mut self, pos: u64, descriptors: u64) {
        self.gate.release(Place { desc: descriptors, pos });
    }
}

/// The ring's bytes, held by the gate.
struct Held(Arc<RingMemory>);

impl Bytes for Held {
    fn at(&self, pos: u64, len: usize) -> &[u8] {
        // SAFETY: the recorder asks only for what its gate was given and has not released (see `Feed::release`).
        unsafe { self.0.held_bytes(pos, len) }
    }

    fn regions(&self) -> Vec<Region> {
        let memory = self.0.bytes();
        vec![Region { address: memory.base() as usize, len: memory.len() }]
    }

    fn is_warm(&self) -> bool {
        self.0.bytes().is_warm()
    }
}
