//! Counters of the submitted records: incremented by the handles and the thread, readable from any thread.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// The cause for which a record was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Unsent {
    /// The queue was full although the collector accepts messages: the collector is slower than the meter.
    QueueFull = 0,
    /// The collector could not be reached, or closed the connection.
    Unreachable,
    /// The record does not fit into a message of the permitted length.
    TooLarge,
    /// The record was offered after the exporter had ended.
    Stopped,
}

impl Unsent {
    /// Number of causes.
    pub const COUNT: usize = 4;
    /// All causes, in the order of their numbers.
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

    /// The description of the cause, as a sentence about one record.
    pub const fn description(self) -> &'static str {
        match self {
            Self::QueueFull => {
                "the queue was full although the collector accepts messages: the collector is slower than the meter"
            }
            Self::Unreachable => {
                "the collector could not be reached, or closed the connection before it had received the records"
            }
            Self::TooLarge => "the record does not fit into a message",
            Self::Stopped => "the record was offered after the exporter had ended",
        }
    }
}

/// Counters of offered records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Flow records and series rows that were offered to the exporter.
    pub offered: u64,
    /// Flow records and series rows that were passed to the kernel and not reported as undeliverable afterwards.
    pub sent: u64,
    /// Not sent, by [`Unsent`].
    pub unsent: [u64; Unsent::COUNT],
    /// Records that were sent without payload or initial packets, because the complete record would not have fitted
    /// into a message.
    pub trimmed: u64,
    /// Messages sent.
    pub messages: u64,
    /// Bytes of these messages.
    pub octets: u64,
    /// Connections opened to collectors.
    pub sessions: u64,
    /// The error that currently prevents the connection to the collector, if there is one.
    pub error: Option<String>,
}

impl Counts {
    /// Number of offered records that are neither sent nor counted as unsent yet.
    pub fn waiting(&self) -> u64 {
        self.offered.saturating_sub(self.sent + self.unsent.iter().sum::<u64>())
    }
}

/// The counters, which the exporter and its handles update while the exporter runs.
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
    /// True after the end was requested; the thread then only sends the waiting records.
    pub ending: AtomicBool,
    /// The deadline for sending the waiting records at the end; set before `ending` is set.
    pub until: OnceLock<Instant>,
    /// Offers are no longer accepted.
    pub closed: AtomicBool,
    /// True if the exporter ended while its thread was blocked in a call. The thread sends nothing more, and the
    /// waiting records count as unreachable.
    pub abandoned: AtomicBool,
    /// Jobs added to the queue.
    pub queued: AtomicU64,
    /// Number of jobs that the thread has taken from the queue.
    pub taken: AtomicU64,
    /// When an offer has timed out, this field is set to the value of `taken` plus one. As long as `taken` does not
    /// increase after that, further offers do not wait. So the timeout applies once to an unresponsive collector, and
    /// not to each of the millions of records of a replay.
    pub stalled_at: AtomicU64,
    /// Number of offers in progress. After the queue was closed, the thread waits until this number is 0, and then
    /// counts the jobs that remain in the queue.
    pub offering: AtomicU64,
}

impl Shared {
    pub fn count_unsent(&self, cause: Unsent, items: u64) {
        self.unsent[cause as usize].fetch_add(items, SeqCst);
    }

    /// Moves records that were counted as sent but did not arrive to the records counted as unsent, with the cause
    /// "unreachable". `sent` contains their number and is cleared. Returns the number.
    pub fn take_back(&self, sent: &mut Option<u64>) -> u64 {
        let items = sent.take().unwrap_or(0);
        self.sent.fetch_sub(items, SeqCst);
        self.count_unsent(Unsent::Unreachable, items);
        items
    }

    pub fn set_error(&self, error: Option<String>) {
        self.down.store(error.is_some(), SeqCst);
        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }

    pub fn counts(&self) -> Counts {
        // The subtrahends are read first, so that the number of waiting records is never negative.
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
