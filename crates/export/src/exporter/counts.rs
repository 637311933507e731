//! What became of what was offered: counted by every handle and by the thread, read by anybody.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// Why a record was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Unsent {
    /// The queue was full although the collector takes messages: it is slower than the meter.
    QueueFull = 0,
    /// The collector could not be reached, or broke off.
    Unreachable,
    /// It does not fit a message.
    TooLarge,
    /// It was offered after the end.
    Stopped,
}

impl Unsent {
    /// How many there are.
    pub const COUNT: usize = 4;
    /// All, in the order of their numbers.
    pub const ALL: [Self; Self::COUNT] = [Self::QueueFull, Self::Unreachable, Self::TooLarge, Self::Stopped];

    /// The name used in JSON, metrics and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::Unreachable => "unreachable",
            Self::TooLarge => "too_large",
            Self::Stopped => "stopped",
        }
    }

    /// What one count says.
    pub const fn description(self) -> &'static str {
        match self {
            Self::QueueFull => "the queue was full although the collector takes messages: it is slower than the meter",
            Self::Unreachable => "the collector could not be reached, or broke off before it had taken them",
            Self::TooLarge => "they do not fit a message",
            Self::Stopped => "they were offered after the exporter had ended",
        }
    }
}

/// What became of what was offered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records and seconds.
    pub offered: u64,
    /// Of these, handed to the kernel, and not refused by the collector's machine since.
    pub sent: u64,
    /// Not sent, by [`Unsent`].
    pub unsent: [u64; Unsent::COUNT],
    /// Sent without payload or first packets, because they would not have fitted.
    pub trimmed: u64,
    /// Messages sent.
    pub messages: u64,
    /// Bytes of these.
    pub octets: u64,
    /// Ways to collectors that were opened.
    pub sessions: u64,
    /// What is wrong now, if anything.
    pub error: Option<String>,
}

impl Counts {
    /// Neither sent nor given up yet.
    pub fn waiting(&self) -> u64 {
        self.offered.saturating_sub(self.sent + self.unsent.iter().sum::<u64>())
    }
}

/// The counts while they change.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub offered: AtomicU64,
    pub sent: AtomicU64,
    pub unsent: [AtomicU64; Unsent::COUNT],
    pub trimmed: AtomicU64,
    pub messages: AtomicU64,
    pub octets: AtomicU64,
    pub sessions: AtomicU64,
    pub error: Mutex<Option<String>>,
    pub down: AtomicBool,
    /// The end has been asked for; the thread sends what waits.
    pub ending: AtomicBool,
    /// When the end has to have come; set before `ending` is.
    pub until: OnceLock<Instant>,
    /// Nothing more is taken.
    pub closed: AtomicBool,
    /// The end came without the thread, which hangs in a call. It sends nothing more; what waits for it is unreachable.
    pub abandoned: AtomicBool,
    /// Jobs that were put into the queue.
    pub queued: AtomicU64,
    /// Jobs that the thread has taken out of the queue.
    pub taken: AtomicU64,
    /// One more than had been taken when waiting was in vain; nobody waits again before another is taken. Patience is with
    /// the collector, not with each offer: a replay of millions of records would wait for a dead one millions of times.
    pub stalled_at: AtomicU64,
    /// Offers under way: once closed, the thread waits for them before it counts what is left.
    pub offering: AtomicU64,
}

impl Shared {
    pub fn give_up(&self, cause: Unsent, items: u64) {
        self.unsent[cause as usize].fetch_add(items, SeqCst);
    }

    /// What was taken for sent has not arrived; says how many there were.
    pub fn take_back(&self, sent: &mut Option<u64>) -> u64 {
        let items = sent.take().unwrap_or(0);
        self.sent.fetch_sub(items, SeqCst);
        self.give_up(Unsent::Unreachable, items);
        items
    }

    pub fn say(&self, trouble: Option<String>) {
        self.down.store(trouble.is_some(), SeqCst);
        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    pub fn counts(&self) -> Counts {
        // What is subtracted is read first, so that nothing waits less than not at all.
        let get = |n: &AtomicU64| n.load(SeqCst);
        let (sent, unsent) = (get(&self.sent), self.unsent.each_ref().map(get));
        let mut counts = Counts {
            sent,
            unsent,
            offered: get(&self.offered),
            trimmed: get(&self.trimmed),
            messages: get(&self.messages),
            octets: get(&self.octets),
            sessions: get(&self.sessions),
            error: self.error.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        };
        if self.abandoned.load(SeqCst) {
            counts.unsent[Unsent::Unreachable as usize] += counts.waiting();
        }
        counts
    }
}
