//! The instance of a program for one queue. It has its own worker, or it uses the worker that all queues of the group
//! share.

use crate::queue_context::{QueueContext, Scratch, map_usage};
use crate::shared_worker::WorkerHandle;
use group::{FragmentCounts, MapUsage, Packet, Program, Verdict};
use ir::fragment_tracker::CAPACITY;
use ir::{COUNTERS, FragmentTracker};
use jit::Worker;
use std::any::Any;
use std::sync::Arc;

/// See the module documentation.
pub struct Instance {
    context: QueueContext,
    scratch: Scratch,
    access: WorkerAccess,
}

enum WorkerAccess {
    /// The instance owns its worker, because the program has no flow maps or the group has only one queue.
    Own {
        worker: Worker,
        /// The worker's counters at the state transfer. These values are subtracted from the worker's counters, because
        /// the group itself adds the counts of earlier programs.
        base: Box<[u64; COUNTERS as usize]>,
    },
    /// The instance shares a worker with the other queues of the group, because the program has flow maps.
    Shared {
        handle: WorkerHandle,
        /// The program's counters, which count only the packets of this queue.
        counters: Vec<u64>,
    },
}

impl Instance {
    /// Creates an instance with its own worker.
    pub fn new(context: QueueContext, worker: Worker) -> Self {
        let access = WorkerAccess::Own { worker, base: Box::new([0; COUNTERS as usize]) };
        Self { context, scratch: Scratch::default(), access }
    }

    /// Creates an instance that shares a worker with the other queues.
    pub fn sharing(context: QueueContext, handle: WorkerHandle) -> Self {
        let counters = vec![0; context.counters.len()];
        Self { context, scratch: Scratch::default(), access: WorkerAccess::Shared { handle, counters } }
    }

    /// Returns the fragment tracking.
    fn fragments(&self) -> Arc<FragmentTracker> {
        match &self.access {
            WorkerAccess::Own { worker, .. } => Arc::clone(worker.datagrams()),
            WorkerAccess::Shared { handle, .. } => handle.fragments(),
        }
    }
}

impl Program for Instance {
    fn evaluate(&mut self, batch: &[Packet<'_>], out: &mut [Verdict]) {
        let Self { context, scratch, access } = self;
        match access {
            WorkerAccess::Own { worker, .. } => context.evaluate(worker, scratch, batch, out),
            WorkerAccess::Shared { handle, counters } => handle.with(|worker| {
                let base = *worker.counters();
                context.evaluate(worker, scratch, batch, out);
                let more = context.counters_since(worker, &base);
                counters.iter_mut().zip(more).for_each(|(sum, n)| *sum = sum.wrapping_add(n));
            }),
        }
    }

    fn counters(&self) -> Vec<u64> {
        let mut counters = match &self.access {
            WorkerAccess::Own { worker, base } => self.context.counters_since(worker, base),
            WorkerAccess::Shared { counters, .. } => counters.clone(),
        };
        counters.push(self.scratch.log_lines());
        counters
    }

    fn maps(&self) -> Vec<MapUsage> {
        match &self.access {
            WorkerAccess::Own { worker, .. } => map_usage(worker),
            // Each queue reports the maps that all queues share; the caller uses the report of one running queue.
            WorkerAccess::Shared { handle, .. } => handle.maps(),
        }
    }

    fn datagrams(&self) -> Option<FragmentCounts> {
        let counts = self.fragments().counts();
        Some(FragmentCounts {
            created: counts.datagrams,
            entries: counts.held(),
            capacity: CAPACITY as u64,
            evicted: counts.evicted,
            expired: counts.expired,
            replaced: counts.replaced,
            matched: counts.matched,
            orphaned: counts.orphaned,
        })
    }

    fn transfer_state(&mut self, before: &mut dyn Program) {
        let before: &mut dyn Any = before;
        // Only instances of this type have state to transfer; a shorthand program (`crate::shorthand`) has none.
        let Some(before) = before.downcast_mut::<Self>() else { return };
        match (&mut self.access, &mut before.access) {
            (WorkerAccess::Own { worker, base }, WorkerAccess::Own { worker: before, .. }) => {
                worker.transfer_state(before);
                **base = *worker.counters();
            }
            (WorkerAccess::Shared { handle, .. }, WorkerAccess::Shared { handle: before, .. }) => {
                handle.take_over(before);
            }
            (WorkerAccess::Own { worker, .. }, WorkerAccess::Shared { .. }) => worker.follow(before.fragments()),
            (WorkerAccess::Shared { handle, .. }, WorkerAccess::Own { .. }) => handle.follow(before.fragments()),
        }
    }
}
