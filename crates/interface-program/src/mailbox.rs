//! The mailbox of a queue contains the user parts of the next programs. Each user part remains there until the first
//! packet of its generation arrives.

use capture::afxdp::XdpDispatcher;
use capture::egress::Egress;
use jit::Worker;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The user part of one program for one queue.
pub(crate) struct UserPart {
    /// The generation: a number that grows by 1 with each program of the interface.
    pub generation: u32,
    /// True if a packet may arrive without its generation.
    pub may_lack_generation: bool,
    /// True if the kernel part runs all stages.
    pub all_in_kernel: bool,
    /// The program instance that evaluates packets.
    pub worker: Worker,
    /// See [`ir::Meta::Ingress`].
    pub ingress: u16,
    /// True if the program also forwards packets that this host sent.
    pub forwards_own: bool,
    /// The program's egress interfaces.
    pub egresses: Arc<Vec<Egress>>,
}

/// See the module documentation.
#[derive(Default)]
pub(crate) struct ProgramMailbox {
    /// True if the mailbox is not empty.
    waiting: AtomicBool,
    /// The last generation that the queue acknowledged to the kernel.
    acknowledged: AtomicU32,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    user_parts: VecDeque<UserPart>,
    /// The XDP dispatcher, if it marks packets with their generation. The sources own the dispatcher.
    dispatcher: Option<Weak<XdpDispatcher>>,
}

impl ProgramMailbox {
    /// Appends the user part of the next program.
    pub fn post(&self, user_part: UserPart) {
        let mut inner = self.lock();
        inner.user_parts.push_back(user_part);
        self.waiting.store(true, Ordering::Release);
    }

    /// Removes the user part of a program whose swap failed.
    pub fn retract(&self, generation: u32) {
        let mut inner = self.lock();
        inner.user_parts.retain(|user_part| user_part.generation != generation);
        self.waiting.store(!inner.user_parts.is_empty(), Ordering::Release);
    }

    /// Sets the XDP dispatcher of the interface from which the packets arrive. On a newly opened interface, the queue
    /// has acknowledged no generation yet.
    pub fn set_dispatcher(&self, dispatcher: Option<Weak<XdpDispatcher>>) {
        let mut inner = self.lock();
        inner.dispatcher = dispatcher;
        self.acknowledged.store(0, Ordering::Release);
    }

    /// True if the mailbox contains a user part.
    pub fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Acquire)
    }

    /// True if the queue has acknowledged this generation to the kernel.
    pub fn has_acknowledged(&self, generation: u32) -> bool {
        self.acknowledged.load(Ordering::Acquire) == generation
    }

    /// Removes and returns the user part of the next program, if a packet of `queue` with this generation (or with
    /// none) belongs to that program.
    pub fn take(&self, generation: Option<u32>, queue: u16) -> Option<UserPart> {
        let mut inner = self.lock();
        let due = inner.user_parts.front().is_some_and(|next| match (generation, &inner.dispatcher) {
            (Some(generation), _) => next.generation <= generation,
            (None, None) => true,
            // A packet without a generation belongs to the current program, unless the kernel could not write the
            // generation to packets of the next program.
            (None, Some(dispatcher)) => {
                let untagged = dispatcher.upgrade().and_then(|dispatcher| dispatcher.last_untagged(queue.into()).ok());
                untagged.is_some_and(|untagged| next.generation <= untagged)
            }
        });
        let next = if due { inner.user_parts.pop_front() } else { None };
        self.waiting.store(!inner.user_parts.is_empty(), Ordering::Release);
        next
    }

    /// Acknowledges to the kernel that a packet of this generation has arrived in `queue`. Later packets of this
    /// generation need not carry their generation.
    pub fn acknowledge(&self, queue: u16, generation: u32) {
        let inner = self.lock();
        if self.acknowledged.swap(generation, Ordering::AcqRel) == generation {
            return;
        }
        if let Some(dispatcher) = inner.dispatcher.as_ref().and_then(Weak::upgrade) {
            // If the acknowledgement fails, packets continue to carry their generation.
            let _ = dispatcher.acknowledge(queue.into(), generation);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
