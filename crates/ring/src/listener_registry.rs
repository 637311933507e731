//! Registration of listeners between the producer thread and the threads that admit and remove listeners.
//!
//! Only the producer decides which readers it waits for. Other threads queue requests here, and the producer serves
//! them between two batches ([`crate::Producer::service`]). Therefore a lossless reader starts exactly at a published
//! descriptor, without a race.

use crate::desc::DescPosition;
use crate::layout::CursorPage;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How the producer treats a listener that is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The producer never overwrites unreleased packets; it drops packets while the ring is full and counts the loss
    /// for that reader.
    Lossless,
    /// The producer overtakes a slow listener, which counts exactly the packets that it missed.
    Lossy,
}

impl Mode {
    /// The name of the mode on the command line and in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lossless => "lossless",
            Self::Lossy => "lossy",
        }
    }
}

/// One listener, as the engine's status shows it.
#[derive(Clone, Debug)]
pub struct ListenerState {
    /// Slot number; [`crate::Control::Lost`] names a lossless reader by its slot.
    pub slot: u8,
    /// Name that the listener sent.
    pub name: String,
    /// Lossless or lossy.
    pub mode: Mode,
    /// True if the reader timeout has expired: the producer no longer waits for this listener.
    pub expired: bool,
    /// Packets lost because this lossless reader had not released its packets.
    pub losses_caused: u64,
    /// The listener's cursor page.
    pub cursor: Arc<CursorPage>,
}

/// Reasons to refuse a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinError {
    /// All slots are taken.
    Full,
    /// The producer did not respond: it has ended or hangs.
    NoAnswer,
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => write!(f, "all {SLOTS} listener slots are in use; end a listener first"),
            Self::NoAnswer => write!(f, "the engine thread did not respond; it has ended or is stopping"),
        }
    }
}

impl std::error::Error for JoinError {}

/// Largest number of listeners of one ring at a time.
pub const SLOTS: usize = 64;

/// How long a joining listener waits for the producer's response.
pub const JOIN_TIMEOUT: Duration = Duration::from_secs(5);

/// A request to the producer.
pub(crate) enum Request {
    Join { slot: u8, cursor: Arc<CursorPage>, has_no_timeout: bool, reply: Sender<DescPosition> },
    Leave { slot: u8 },
}

/// The listeners of one ring and the requests that the producer has not yet served.
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
    /// Lossless readers that have left and for which the producer still waits. Their slots stay reserved, because
    /// losses that are not counted yet may be due to these readers.
    leaving: BTreeMap<u8, ListenerState>,
    /// Losses due to lossless readers that have left, by name.
    departed: BTreeMap<String, u64>,
}

impl ListenerRegistry {
    /// Admits a listener. A lossless reader starts at the position that the producer has when it serves the request. If
    /// `has_no_timeout`, no reader timeout applies to the reader (for example the recorder in this process).
    pub(crate) fn join(
        &self,
        name: &str,
        mode: Mode,
        has_no_timeout: bool,
    ) -> Result<(ListenerState, Option<DescPosition>), JoinError> {
        let (reply, reply_receiver) = channel();
        // The cursor page is created before the lock is taken: the producer takes the lock too and must not wait for a
        // system call.
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
                inner.requests.push(Request::Join { slot, cursor, has_no_timeout, reply });
                self.pending.store(true, Ordering::Release);
            }
            state
        };
        if mode == Mode::Lossy {
            return Ok((state, None));
        }
        if let Ok(position) = reply_receiver.recv_timeout(JOIN_TIMEOUT) {
            return Ok((state, Some(position)));
        }
        self.leave(state.slot);
        Err(JoinError::NoAnswer)
    }

    /// Removes a listener; the producer stops waiting for it before its next batch.
    pub fn leave(&self, slot: u8) {
        let mut inner = self.lock();
        if let Some(state) = inner.listeners.remove(&slot) {
            if state.mode == Mode::Lossless && !self.closed.load(Ordering::Acquire) {
                inner.leaving.insert(slot, state);
                inner.requests.push(Request::Leave { slot });
                self.pending.store(true, Ordering::Release);
            } else {
                inner.keep_losses(state);
            }
        }
    }

    /// All present listeners.
    pub fn listeners(&self) -> Vec<ListenerState> {
        self.lock().listeners.values().cloned().collect()
    }

    /// Packets lost because of each lossless reader, by name, including readers that have left.
    pub fn lost_by_reader(&self) -> BTreeMap<String, u64> {
        let inner = self.lock();
        let mut out = inner.departed.clone();
        for l in inner.listeners.values().chain(inner.leaving.values()).filter(|l| l.losses_caused > 0) {
            *out.entry(l.name.clone()).or_default() += l.losses_caused;
        }
        out
    }

    /// Called by the producer: returns the requests since the last call; almost always empty.
    #[inline]
    pub(crate) fn requests(&self) -> Vec<Request> {
        if !self.pending.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut inner = self.lock();
        self.pending.store(false, Ordering::Release);
        std::mem::take(&mut inner.requests)
    }

    /// Called by the producer: adds packets lost because of a lossless reader.
    pub(crate) fn attribute_loss(&self, slot: u8, packets: u64) {
        let inner = &mut *self.lock();
        if let Some(l) = inner.listeners.get_mut(&slot).or(inner.leaving.get_mut(&slot)) {
            l.losses_caused += packets;
        }
    }

    /// Called by the producer: frees the slot of a reader for which it no longer waits, after all losses due to the
    /// reader are counted.
    pub(crate) fn free_slot(&self, slot: u8) {
        let mut inner = self.lock();
        if let Some(state) = inner.leaving.remove(&slot) {
            inner.keep_losses(state);
        }
    }

    /// Called by the producer: marks the reader timeout of this lossless reader as expired.
    pub(crate) fn expire(&self, slot: u8) {
        if let Some(l) = self.lock().listeners.get_mut(&slot) {
            l.expired = true;
            l.cursor.set_expired();
        }
    }

    /// Called by the producer: ends the service of requests.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        // Dropping a request drops its reply channel, so the waiting thread gets an error at once.
        let mut inner = self.lock();
        inner.requests.clear();
        for state in std::mem::take(&mut inner.leaving).into_values() {
            inner.keep_losses(state);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic under the lock cannot leave these plain values inconsistent.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn is_free(&self, slot: u8) -> bool {
        !self.listeners.contains_key(&slot) && !self.leaving.contains_key(&slot)
    }

    fn keep_losses(&mut self, state: ListenerState) {
        if state.losses_caused > 0 {
            *self.departed.entry(state.name).or_default() += state.losses_caused;
        }
    }
}

impl fmt::Debug for ListenerRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListenerRegistry").field("listeners", &self.lock().listeners.len()).finish_non_exhaustive()
    }
}
