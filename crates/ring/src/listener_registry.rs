//! Who listens: the meeting place of the writer's thread and the threads that let listeners in and out.
//!
//! Only the writer decides what it waits for. Others leave requests here, the writer serves them between two batches
//! ([`crate::Producer::service`]), and so a gate begins exactly at a published descriptor and no race is possible.

use crate::desc::DescPosition;
use crate::layout::CursorPage;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How a listener reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Never lapped; the writer waits for it, and drops with its name when the ring is full because of it.
    Lossless,
    /// Lapped when slow; counts exactly what it missed.
    Lossy,
}

impl Mode {
    /// The name used on the command line and in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lossless => "gate",
            Self::Lossy => "lossy",
        }
    }
}

/// One listener, as the engine knows it.
#[derive(Clone, Debug)]
pub struct ListenerState {
    /// Slot number; gates are named by it in [`crate::Control::Lost`].
    pub slot: u8,
    /// What it calls itself.
    pub name: String,
    /// How it reads.
    pub mode: Mode,
    /// Whether the writer has stopped waiting for it.
    pub expired: bool,
    /// Packets lost because this gate had not released its part of the ring.
    pub losses_caused: u64,
    /// Its cursor page.
    pub cursor: Arc<CursorPage>,
}

/// Why a listener could not be let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinError {
    /// All slots are taken.
    Full,
    /// The writer did not answer: it has ended or hangs.
    NoAnswer,
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => write!(f, "all {SLOTS} listener slots are taken; detach one first"),
            Self::NoAnswer => write!(f, "the engine thread did not answer; it has ended or is stopping"),
        }
    }
}

impl std::error::Error for JoinError {}

/// Most listeners of one ring at a time.
pub const SLOTS: usize = 64;

/// How long a newcomer waits for the writer's answer.
pub const JOIN_TIMEOUT: Duration = Duration::from_secs(5);

/// What the writer is asked to do.
pub(crate) enum Request {
    Join { slot: u8, cursor: Arc<CursorPage>, patient: bool, reply: Sender<DescPosition> },
    Leave { slot: u8 },
}

/// See the module's text.
#[derive(Default)]
pub struct ListenerRegistry {
    pending: AtomicBool,
    closed: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    requests: Vec<Request>,
    listeners: BTreeMap<u8, ListenerState>,
    /// Gates that have left but that the writer still waits for. Their slots are not given away yet, because what was
    /// lost in their name may not have been counted.
    leaving: BTreeMap<u8, ListenerState>,
    /// Losses of gates that have left, by name.
    departed: BTreeMap<String, u64>,
}

impl ListenerRegistry {
    /// Lets a listener in. A gate starts where the writer is when it serves the request; a `patient` gate is never
    /// expired (the recorder in this process).
    pub(crate) fn join(
        &self,
        name: &str,
        mode: Mode,
        patient: bool,
    ) -> Result<(ListenerState, Option<DescPosition>), JoinError> {
        let (reply, answer) = channel();
        // Made before the lock is taken, because the writer takes it too and must not wait for the kernel.
        let cursor = Arc::new(CursorPage::create(0, 0).map_err(|_| JoinError::Full)?);
        let state = {
            let mut inner = self.lock();
            if mode == Mode::Lossless && self.closed.load(Ordering::Acquire) {
                return Err(JoinError::NoAnswer);
            }
            let slot = (0..SLOTS as u8).find(|s| inner.is_free(*s)).ok_or(JoinError::Full)?;
            let state = ListenerState {
                slot,
                name: name.to_owned(),
                mode,
                expired: false,
                losses_caused: 0,
                cursor: Arc::clone(&cursor),
            };
            inner.listeners.insert(slot, state.clone());
            if mode == Mode::Lossless {
                inner.requests.push(Request::Join { slot, cursor, patient, reply });
                self.pending.store(true, Ordering::Release);
            }
            state
        };
        if mode == Mode::Lossy {
            return Ok((state, None));
        }
        if let Ok(place) = answer.recv_timeout(JOIN_TIMEOUT) {
            return Ok((state, Some(place)));
        }
        self.leave(state.slot);
        Err(JoinError::NoAnswer)
    }

    /// Lets a listener out; the writer stops waiting for it at its next batch.
    pub fn leave(&self, slot: u8) {
        let mut inner = self.lock();
        if let Some(state) = inner.listeners.remove(&slot) {
            if state.mode == Mode::Lossless && !self.closed.load(Ordering::Acquire) {
                inner.leaving.insert(slot, state);
                inner.requests.push(Request::Leave { slot });
                self.pending.store(true, Ordering::Release);
            } else {
                inner.remember(state);
            }
        }
    }

    /// Everyone who listens now.
    pub fn listeners(&self) -> Vec<ListenerState> {
        self.lock().listeners.values().cloned().collect()
    }

    /// Packets lost because of each gate, by name, whether it is still here or not.
    pub fn lost_by_reader(&self) -> BTreeMap<String, u64> {
        let inner = self.lock();
        let mut out = inner.departed.clone();
        for l in inner.listeners.values().chain(inner.leaving.values()).filter(|l| l.losses_caused > 0) {
            *out.entry(l.name.clone()).or_default() += l.losses_caused;
        }
        out
    }

    /// Writer: the requests since the last call; nearly always none.
    #[inline]
    pub(crate) fn requests(&self) -> Vec<Request> {
        if !self.pending.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut inner = self.lock();
        self.pending.store(false, Ordering::Release);
        std::mem::take(&mut inner.requests)
    }

    /// Writer: packets lost because of a gate.
    pub(crate) fn attribute_loss(&self, slot: u8, packets: u64) {
        let inner = &mut *self.lock();
        if let Some(l) = inner.listeners.get_mut(&slot).or(inner.leaving.get_mut(&slot)) {
            l.losses_caused += packets;
        }
    }

    /// Writer: this gate is not waited for any more, and all that was lost because of it has been told.
    pub(crate) fn gone(&self, slot: u8) {
        let mut inner = self.lock();
        if let Some(state) = inner.leaving.remove(&slot) {
            inner.remember(state);
        }
    }

    /// Writer: a gate is no longer waited for.
    pub(crate) fn expire(&self, slot: u8) {
        if let Some(l) = self.lock().listeners.get_mut(&slot) {
            l.expired = true;
            l.cursor.set_expired();
        }
    }

    /// Writer: no more requests will be served.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        // Dropping a request drops its reply channel, so whoever waits is told at once.
        let mut inner = self.lock();
        inner.requests.clear();
        for state in std::mem::take(&mut inner.leaving).into_values() {
            inner.remember(state);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic under the lock leaves plain data behind, which is as good as before.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn is_free(&self, slot: u8) -> bool {
        !self.listeners.contains_key(&slot) && !self.leaving.contains_key(&slot)
    }

    fn remember(&mut self, state: ListenerState) {
        if state.losses_caused > 0 {
            *self.departed.entry(state.name).or_default() += state.losses_caused;
        }
    }
}

impl fmt::Debug for ListenerRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("listeners", &self.lock().listeners.len()).finish_non_exhaustive()
    }
}
