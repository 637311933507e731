//! The state that the threads of a writer share: the number of bytes that wait for the disk, buffers for reuse,
//! counters and events.

use crate::error::ColumnsError;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Condvar, Mutex, PoisonError};

/// An event that the sealing thread or the journaling thread reports.
#[derive(Debug)]
pub enum Event {
    /// A file was published.
    Sealed {
        /// Its path.
        path: PathBuf,
        /// Number of its rows.
        rows: u64,
    },
    /// An operation failed. A journal that could not be sealed remains, is read by queries, and is sealed by the next
    /// recovery.
    Trouble(ColumnsError),
}

/// Number of buffers of synced batches that are kept for reuse.
///
/// PERF: a buffer in newly allocated memory costs some 90 ns per record, because the kernel clears each new page.
const SPARE: usize = 128;

/// See the module.
#[derive(Default)]
pub struct Shared {
    /// Number of bytes in batches that are not yet written to a journal.
    pub waiting: Mutex<u64>,
    /// Buffers of synced batches, for reuse.
    pub spare: Mutex<Vec<Vec<u8>>>,
    /// Notified when `waiting` decreases.
    pub buffers: Condvar,
    pub journaled: AtomicU64,
    pub refused: AtomicU64,
    pub sealed: AtomicU64,
    pub files: AtomicU64,
    /// Number of bytes in complete journals that are being sealed or wait to be sealed.
    pub closed: AtomicU64,
    pub events: Mutex<Vec<Event>>,
}

impl Shared {
    pub fn report(&self, event: Event) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }

    /// Frees the buffers.
    pub fn forget(&self) {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Keeps the buffers of batches for reuse.
    pub fn keep(&self, batches: Vec<Vec<u8>>) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let room = SPARE.saturating_sub(spare.len());
        spare.extend(batches.into_iter().take(room).map(|mut bytes| {
            bytes.clear();
            bytes
        }));
    }
}
