//! Atomics of the ring protocol: the atomics of `std`, or of loom in the tests that explore every interleaving.

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU64, Ordering, fence};
