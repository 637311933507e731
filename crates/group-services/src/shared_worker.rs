//! One worker for several queues, for a program with flow maps.
//!
//! PFQ/lang (Enif) requires that all packets of a map entry are evaluated by the same worker. The NIC or the kernel
//! distributes the packets over the queues of an interface, and the network over several interfaces, so here all queues
//! use the same worker in turn, one batch at a time. A swap reaches the queues one batch apart. The first queue that
//! runs the new program waits until no queue uses the old worker, and only then takes over all its state. So no update
//! made in between is lost or made twice.
//!
//! Invariant: a worker evaluates packets only under its lock, and not after its state was taken over, unless a queue
//! did not run for longer than [`TIMEOUT`].

use crate::queue_context::map_usage;
use group::MapUsage;
use ir::FragmentTracker;
use jit::Worker;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The longest time that a queue waits in a swap for the other queues. They need one batch, or the sleep of an idle
/// dispatcher; the ring holds the packets that arrive meanwhile.
const TIMEOUT: Duration = Duration::from_secs(2);

/// See the module documentation.
struct SharedWorker {
    inner: Mutex<Inner>,
    left: Condvar,
}

struct Inner {
    worker: Worker,
    /// Queues that may still use this worker.
    users: usize,
    /// The worker whose state this one takes over as soon as no queue uses it.
    before: Option<Arc<SharedWorker>>,
    /// True if the state was taken over. A queue may name the old worker only after that; a second transfer would
    /// restore older state.
    has_transferred_state: bool,
}

/// One queue's access to the worker.
pub struct WorkerHandle {
    shared: Arc<SharedWorker>,
    left: bool,
}

impl SharedWorker {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic under the lock leaves the worker in the same state as after any batch.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the fragment tracking; before the state transfer, that of the previous worker.
    fn fragments(&self) -> Arc<FragmentTracker> {
        let inner = self.lock();
        inner.before.as_ref().map_or_else(|| Arc::clone(inner.worker.datagrams()), |before| before.fragments())
    }

    /// Locks the worker after the state transfer.
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
    /// Makes a handle for each of so many queues, all with this worker.
    pub fn of(queues: usize, worker: Worker) -> Vec<Self> {
        let inner = Inner { worker, users: queues, before: None, has_transferred_state: false };
        let shared = Arc::new(SharedWorker { inner: Mutex::new(inner), left: Condvar::new() });
        (0..queues).map(|_| Self { shared: Arc::clone(&shared), left: false }).collect()
    }

    /// Calls `use_worker` with the worker, alone and after the state transfer.
    pub fn with<R>(&self, use_worker: impl FnOnce(&mut Worker) -> R) -> R {
        use_worker(&mut self.shared.settled().worker)
    }

    /// Returns the fill levels of the maps.
    pub fn maps(&self) -> Vec<MapUsage> {
        map_usage(&self.shared.lock().worker)
    }

    /// Returns the fragment tracking; before the state transfer, that of the previous worker.
    pub fn fragments(&self) -> Arc<FragmentTracker> {
        self.shared.fragments()
    }

    /// Ends this queue's use of the previous worker, whose state this worker takes over.
    pub fn take_over(&self, before: &mut Self) {
        // This comes first, because a queue that waits for it holds the lock taken next.
        before.leave();
        let mut inner = self.shared.lock();
        if !inner.has_transferred_state {
            inner.before.get_or_insert_with(|| Arc::clone(&before.shared));
        }
    }

    /// Takes over the fragment tracking only. It is the same for all queues, so the first call sets it.
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
