//! One worker for several queues: the instance of a program with flow maps.
//!
//! PFQ/lang (Enif) requires that all packets of a map entry are evaluated by the same worker. The NIC or the kernel
//! distributes the packets over the queues of an interface, and the network over several interfaces, so here all queues
//! use the same worker in turn, one batch at a time. A swap reaches the queues one batch apart. The first queue that
//! runs the new program waits until no queue uses the old worker, and only then takes over all its state. So no update
//! made in between is lost or made twice.
//!
//! Invariant: a worker evaluates packets only under its lock, and not after its state was taken over, unless a queue
//! did not run for longer than [`TIMEOUT`].

use crate::language::{self, QueueContext, Scratch, fillings};
use group::{MapUsage, Packet, Program, Verdict};
use ir::COUNTERS;
use ir::FragmentTracker;
use jit::Worker;
use std::any::Any;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The longest time that a queue waits in a swap for the other queues. They need one batch, or the sleep of an idle
/// dispatcher; the ring holds the packets that arrive meanwhile.
const TIMEOUT: Duration = Duration::from_secs(2);

/// See the module documentation.
pub struct SharedWorker {
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
struct Handle {
    shared: Arc<SharedWorker>,
    asking: QueueContext,
    desk: Scratch,
    /// The counts of this queue's packets.
    counted: Vec<u64>,
    left: bool,
}

impl SharedWorker {
    /// Makes an instance for each queue, all with this worker.
    pub fn handles(queues: Vec<QueueContext>, worker: Worker) -> Vec<Box<dyn Program>> {
        let inner = Inner { worker, users: queues.len(), before: None, has_transferred_state: false };
        let shared = Arc::new(Self { inner: Mutex::new(inner), left: Condvar::new() });
        let handle = |asking: QueueContext| Handle {
            counted: asking.counted(&shared.lock().worker, &[0; COUNTERS as usize]),
            shared: Arc::clone(&shared),
            asking,
            desk: Scratch::default(),
            left: false,
        };
        queues.into_iter().map(|queue| Box::new(handle(queue)) as Box<dyn Program>).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic under the lock leaves the worker in the same state as after any batch.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the fragment tracking; before the state transfer, that of the previous worker.
    fn datagrams(&self) -> Arc<FragmentTracker> {
        let inner = self.lock();
        inner.before.as_ref().map_or_else(|| Arc::clone(inner.worker.datagrams()), |before| before.datagrams())
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

/// Returns the fragment tracking of a program that has one worker for all queues.
pub fn datagrams_of(program: &dyn Any) -> Option<Arc<FragmentTracker>> {
    program.downcast_ref::<Handle>().map(|handle| handle.shared.datagrams())
}

impl Handle {
    /// Records that this queue no longer uses the worker.
    fn leave(&mut self) {
        if !std::mem::replace(&mut self.left, true) {
            self.shared.lock().users -= 1;
            self.shared.left.notify_all();
        }
    }
}

impl Program for Handle {
    fn evaluate(&mut self, batch: &[Packet<'_>], out: &mut [Verdict]) {
        let mut inner = self.shared.settled();
        let base = *inner.worker.counters();
        self.asking.requests(&mut inner.worker, &mut self.desk, batch, out);
        let counted = self.asking.counted(&inner.worker, &base);
        self.counted.iter_mut().zip(counted).for_each(|(sum, n)| *sum = sum.wrapping_add(n));
    }

    fn counters(&self) -> Vec<u64> {
        self.counted.iter().copied().chain([self.desk.lines()]).collect()
    }

    fn maps(&self) -> Vec<MapUsage> {
        // Each queue reports the maps of all queues: the caller uses the report of one running queue.
        fillings(&self.shared.lock().worker)
    }

    fn datagrams(&self) -> Option<group::FragmentCounts> {
        Some(language::reported(&self.shared.datagrams()))
    }

    fn transfer_state(&mut self, before: &mut dyn Program) {
        let before: &mut dyn Any = before;
        if let Some(before) = before.downcast_mut::<Self>() {
            // This comes first, because a queue that waits for it holds the lock taken next.
            before.leave();
            let mut inner = self.shared.lock();
            if !inner.has_transferred_state {
                inner.before.get_or_insert_with(|| Arc::clone(&before.shared));
            }
        } else if let Some(datagrams) = language::datagrams_of(before) {
            // The tracker is the same for all queues, so the first call sets it.
            self.shared.lock().worker.follow(datagrams);
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use crate::language::{ProgramContext, compile};
    use group::{Delivery, IngressInterface, Packet, Program, Verdict};
    use ring::Desc;
    use wire::{build::Frame, link};

    /// Two queues with this program.
    fn queues(text: &str) -> Vec<Box<dyn Program>> {
        let source = IngressInterface { name: "nosuch0".into(), number: 3 };
        let ground = ProgramContext { link_type: link::ETHERNET, hash_key: 7, from: vec![source.clone()] };
        compile(text, &ground).expect("sound").instances(&[source.clone(), source], "g").expect("small")
    }

    fn hash(queue: &mut Box<dyn Program>, frame: &[u8]) -> u32 {
        let desc = Desc::default();
        let mut out = [Verdict::default()];
        queue.evaluate(&[Packet { desc: &desc, bytes: frame, wire_len: frame.len() as u32 }], &mut out);
        let Delivery::Steer(hash) = out[0].delivery else { panic!("{:?}", out[0].delivery) };
        hash
    }

    #[test]
    fn parts_of_a_datagram_go_together_over_queues_and_swaps() {
        let mut buffer = [0; 600];
        let mut tcp = |payload: &[u8]| {
            let frame = Frame::tcp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 443).payload(payload);
            frame.write(&mut buffer).expect("room").to_vec()
        };
        let (whole, cut) = (tcp(&[]), tcp(&[0; 400]));
        let programs = [
            "main = steer_flow",
            "main = ip >-> mark 7 >-> steer_flow",
            "n = flow_map 0 key_3tuple\nmain = incr_fstate n >-> steer_flow",
        ];
        for (id, (before, after)) in (0..).zip(programs.iter().flat_map(|a| programs.map(|b| (*a, b)))) {
            let context = format!("{before:?}, then {after:?}");
            let (mut old, mut new) = (queues(before), queues(after));
            let parts = testkit::fragments(&cut, id, 96);
            let flow = hash(&mut old[1], &whole);
            assert_eq!(hash(&mut old[0], &parts[0]), flow, "{context}");
            assert_eq!(hash(&mut old[1], &parts[1]), flow, "{context}: over the other queue");
            let counted = old[0].datagrams().expect("it remembers some");
            assert_eq!(
                (counted.created, counted.entries, counted.matched, counted.orphaned),
                (1, 1, 1, 0),
                "{context}"
            );
            new.iter_mut().zip(&mut old).for_each(|(new, old)| new.transfer_state(&mut **old));
            assert!(
                new.iter().all(|queue| queue.datagrams() == Some(counted)),
                "{context}: before the next packet, too"
            );
            assert_eq!(hash(&mut new[1], &parts[2]), flow, "{context}: by the next program");
            // The first queue is the last to reach its fragment.
            let parts = testkit::fragments(&cut, 100 + id, 96);
            let alone = hash(&mut new[0], &parts[3]);
            assert!(alone != flow && hash(&mut new[1], &parts[0]) == alone, "{context}");
            let after = group::FragmentCounts { created: 2, entries: 2, matched: 2, orphaned: 1, ..counted };
            assert!(new.iter().all(|queue| queue.datagrams() == Some(after)), "{context}");
        }
    }
}
