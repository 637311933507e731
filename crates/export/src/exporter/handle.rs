//! The meter's side of the exporter: offering a record does not block unless
//! [`Settings::offer_timeout`](super::Settings) is set.

use super::counts::{Counts, Shared, Unsent};
use flow::Record;
use series::Row;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::{Duration, Instant};

/// A job in the queue.
pub(super) enum QueueItem {
    Flow(Box<Record>),
    Row(Box<Row>),
    /// The ledger of losses of a series row that is not exported. The ledger is added to the loss statistics of its
    /// interface.
    Ledger(Box<Row>),
}

/// Offers records to an exporter; one for each meter thread.
#[derive(Clone)]
pub struct Handle {
    pub(super) queue: SyncSender<QueueItem>,
    pub(super) shared: Arc<Shared>,
    pub(super) offer_timeout: Duration,
    pub(super) stop_waiting: Arc<AtomicBool>,
    pub(super) flows: bool,
    pub(super) series: bool,
}

impl Handle {
    /// Offers a flow record. Waits only if there is an offer timeout. Returns false if the record will not be sent.
    pub fn flow(&self, record: &Record) -> bool {
        self.flows && self.offer(QueueItem::Flow(Box::new(record.clone())))
    }

    /// Offers a row of a time series.
    pub fn row(&self, row: &Row) -> bool {
        if self.series {
            return self.offer(QueueItem::Row(Box::new(*row)));
        }
        // A ledger of losses that is offered without its series row is used only for the loss statistics. So it is
        // counted neither as an offered nor as an unsent record.
        if self.queue.try_send(QueueItem::Ledger(Box::new(*row))).is_ok() {
            self.shared.queued.fetch_add(1, SeqCst);
        }
        false
    }

    /// Counters of all handles together.
    pub fn counts(&self) -> Counts {
        self.shared.counts()
    }

    fn offer(&self, job: QueueItem) -> bool {
        self.shared.offering.fetch_add(1, SeqCst);
        self.shared.offered.fetch_add(1, SeqCst);
        let result = self.try_offer(job);
        if let Err(cause) = result {
            self.shared.count_unsent(cause, 1);
        }
        self.shared.offering.fetch_sub(1, SeqCst);
        result.is_ok()
    }

    fn try_offer(&self, mut job: QueueItem) -> Result<(), Unsent> {
        let mut since = None;
        loop {
            if self.shared.closed.load(SeqCst) {
                return Err(Unsent::Stopped);
            }
            match self.queue.try_send(job) {
                Ok(()) => {
                    self.shared.queued.fetch_add(1, SeqCst);
                    return Ok(());
                }
                Err(TrySendError::Disconnected(_)) => return Err(Unsent::Stopped),
                Err(TrySendError::Full(back)) => job = back,
            }
            if !self.waits(&mut since) {
                return Err(if self.shared.down.load(SeqCst) { Unsent::Unreachable } else { Unsent::QueueFull });
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// How long an offer waits for an unresponsive collector after [`Settings::stop_waiting`](super::Settings) was set.
const CLOSING_CHECK: Duration = Duration::from_millis(300);

impl Handle {
    /// True if an offer that finds the queue full should continue to wait. `since` contains the number of jobs that the
    /// thread had taken when the offer began to wait, and the time at which it began.
    fn waits(&self, since: &mut Option<(u64, Instant)>) -> bool {
        if self.offer_timeout.is_zero() || self.shared.ending.load(SeqCst) {
            return false;
        }
        // Even after an interrupt, a collector that continues to accept records receives all of them.
        let timeout =
            if self.stop_waiting.load(SeqCst) { self.offer_timeout.min(CLOSING_CHECK) } else { self.offer_timeout };
        let taken = self.shared.taken.load(SeqCst);
        if self.shared.stalled_at.load(SeqCst) == taken + 1 {
            return false;
        }
        let (before, from) = *since.get_or_insert_with(|| (taken, Instant::now()));
        if before != taken {
            *since = None;
        } else if from.elapsed() >= timeout {
            self.shared.stalled_at.store(taken + 1, SeqCst);
            return false;
        }
        true
    }
}

impl flow::Sink for Handle {
    fn record(&mut self, record: &Record) {
        self.flow(record);
    }
}
