//! One worker that several queues share, for a program with flow maps.
//!
//! PFQ/lang (Enif) requires that all packets of a map entry are evaluated by the same worker. The NIC or the kernel
//! distributes the packets over the queues of an interface, and the network distributes them over several interfaces.
//! So all queues of a group use the same worker in turn, one batch at a time. A swap does not reach all queues at the
//! same moment: each queue changes to the new program between two of its batches. The first queue that runs the new
//! program waits until no queue uses the old worker, and only then transfers the state of the old worker to the new
//! worker. So each map update by a queue that still runs the old program is made exactly once.
//!
//! Invariant: a worker evaluates packets only under its lock, and does not evaluate packets after its state was
//! transferred to the next worker. The exception is a queue that did not run for longer than [`TIMEOUT`].

use crate::queue_context::map_usage;
use group::MapUsage;
use ir::FragmentTracker;
use jit::Worker;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The longest time that a queue waits during a swap until the other queues have left the old worker. Normally a queue
/// leaves it within the time of one batch, or of the sleep of an idle dispatcher. The packets that arrive during the
/// wait remain in the ring.
const TIMEOUT: Duration = Duration::from_secs(2);

/// See the module documentation.
struct SharedWorker {
    inner: Mutex<Inner>,
    left: Condvar,
}

struct Inner {
    worker: Worker,
    /// Number of queues that may still use this worker.
    users: usize,
    /// The previous worker, until its state has been transferred to this worker.
    before: Option<Arc<SharedWorker>>,
    /// True if the state of the previous worker was transferred. Another queue may request the transfer again later,
    /// but the transfer must not be repeated, because it would overwrite newer state with older state.
    has_transferred_state: bool,
}

/// The access of one queue to the shared worker.
pub struct WorkerHandle {
    shared: Arc<SharedWorker>,
    left: bool,
}

impl SharedWorker {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // The worker can be used even if a thread panicked while it held the lock: such a panic leaves the worker in a
        // state that is also possible between two batches.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the fragment tracking of this worker, or of the previous worker before the state transfer.
    fn fragments(&self) -> Arc<FragmentTracker> {
        let inner = self.lock();
        inner.before.as_ref().map_or_else(|| Arc::clone(inner.worker.datagrams()), |before| before.fragments())
    }

    /// Completes the state transfer if it is pending, and locks the worker.
    fn settled(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.lock();
        if let Some(before) = inner.before.take() {
            let old = before.settled();
            let waited = before.left.wait_timeout_while(old, TIMEOUT, |old| old.users > 0);
            let (mut old, _) = waited.unwrap_or_else(PoisonError::into_inner);
            inner.worker.transfer_state(&mut old.worker);
            inner.has_transferred_state = true;
        }
        inner
    }
}

impl WorkerHandle {
    /// Creates one handle per queue; all handles use this worker.
    pub fn of(queues: usize, worker: Worker) -> Vec<Self> {
        let inner = Inner { worker, users: queues, before: None, has_transferred_state: false };
        let shared = Arc::new(SharedWorker { inner: Mutex::new(inner), left: Condvar::new() });
        (0..queues).map(|_| Self { shared: Arc::clone(&shared), left: false }).collect()
    }

    /// Calls `use_worker` with exclusive access to the worker, after the state transfer.
    pub fn with<R>(&self, use_worker: impl FnOnce(&mut Worker) -> R) -> R {
        use_worker(&mut self.shared.settled().worker)
    }

    /// Returns the fill levels of the maps.
    pub fn maps(&self) -> Vec<MapUsage> {
        map_usage(&self.shared.lock().worker)
    }

    /// Returns the fragment tracking of this worker, or of the previous worker before the state transfer.
    pub fn fragments(&self) -> Arc<FragmentTracker> {
        self.shared.fragments()
    }

    /// Ends this queue's use of the previous worker `before`, and schedules the transfer of the state of that worker to
    /// this worker.
    pub fn take_over(&self, before: &mut Self) {
        // The queue leaves the previous worker before it takes the lock of the new worker, because another queue may
        // hold that lock while it waits until this queue has left.
        before.leave();
        let mut inner = self.shared.lock();
        if !inner.has_transferred_state {
            inner.before.get_or_insert_with(|| Arc::clone(&before.shared));
        }
    }

    /// Uses this fragment tracking, and transfers no other state. All queues pass the same fragment tracking, so the
    /// first call sets it.
    pub fn follow(&self, fragments: Arc<FragmentTracker>) {
        self.shared.lock().worker.follow(fragments);
    }

    /// Records that this queue no longer uses the worker.
    fn leave(&mut self) {
        if !std::mem::replace(&mut self.left, true) {
            self.shared.lock().users -= 1;
            self.shared.left.notify_all();
        }
    }
}

impl Drop for WorkerHandle {
    fn drop(&mut self) {
        self.leave();
    }
}
