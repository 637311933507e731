//! The mailbox of a queue: the user parts of the next programs. Each waits there until the first packet of its generation
//! arrives.

use capture::afxdp::XdpDispatcher;
use capture::egress::Egress;
use jit::Worker;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The user part of one program for one queue.
pub(crate) struct UserPart {
    /// The generation; each program of an interface has one more than the previous program.
    pub generation: u32,
    /// True if a packet may arrive without its generation.
    pub may_lack_generation: bool,
    /// True if the kernel part runs all stages.
    pub all_in_kernel: bool,
    /// The instance that evaluates packets.
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
    /// The XDP dispatcher, if it marks packets with their generation. The sources own it.
    dispatcher: Option<Weak<XdpDispatcher>>,
}

impl ProgramMailbox {
    /// Appends the next program.
    pub fn post(&self, user_part: UserPart) {
        let mut inner = self.lock();
        inner.user_parts.push_back(user_part);
        self.waiting.store(true, Ordering::Release);
    }

    /// Removes a program whose swap failed.
    pub fn retract(&self, generation: u32) {
        let mut inner = self.lock();
        inner.user_parts.retain(|user_part| user_part.generation != generation);
        self.waiting.store(!inner.user_parts.is_empty(), Ordering::Release);
    }

    /// Sets the XDP dispatcher of the interface that the packets come from. The queue has acknowledged no generation to a newly opened
    /// interface.
    pub fn set_dispatcher(&self, dispatcher: Option<Weak<XdpDispatcher>>) {
        let mut inner = self.lock();
        inner.dispatcher = dispatcher;
        self.acknowledged.store(0, Ordering::Release);
    }

    /// True if a program waits.
    pub fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Acquire)
    }

    /// True if the queue has acknowledged this generation to the kernel.
    pub fn has_acknowledged(&self, generation: u32) -> bool {
        self.acknowledged.load(Ordering::Acquire) == generation
    }

    /// Returns the next program if a packet of `queue` with this generation (or with none) belongs to that program.
    pub fn take(&self, generation: Option<u32>, queue: u16) -> Option<UserPart> {
        let mut inner = self.lock();
        let due = inner.user_parts.front().is_some_and(|next| match (generation, &inner.dispatcher) {
            (Some(generation), _) => next.generation <= generation,
            (None, None) => true,
            // The current program processed the packet, unless packets of the next program cannot carry their
            // generation.
            (None, Some(dispatcher)) => {
                let untagged = dispatcher.upgrade().and_then(|dispatcher| dispatcher.last_untagged(queue.into()).ok());
                untagged.is_some_and(|untagged| next.generation <= untagged)
            }
        });
        let next = if due { inner.user_parts.pop_front() } else { None };
        self.waiting.store(!inner.user_parts.is_empty(), Ordering::Release);
        next
    }

    /// Acknowledges to the kernel that a packet of this generation has arrived in `queue`: later packets need no
    /// generation.
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
