//! The timestamps of packets if the engine thread reads its clock once for each batch.

use base::{Timestamp, TimestampMethod};
use capture::FoundFrames;
use ring::Annotations;
use std::time::Duration;
use sys::clock::Clock;
use timestamping::{Batch, BatchMethod, ErrorEstimate, LinkRate, Stamper};

/// The timestamps of the present batch, and the method that computes those of the next batch.
#[derive(Debug)]
pub struct BatchClock {
    stamper: Stamper,
    /// The last reading of the clock, until the batch that the source found then is stamped.
    unanswered: Option<Timestamp>,
    stamps: Vec<Timestamp>,
    next: usize,
    /// The estimate for all packets since the last call of [`BatchClock::take_deviation`].
    unreported: ErrorEstimate,
    /// The annotations of the packets of the batch.
    batch: Annotations,
    /// The annotations of the packet whose timestamp was returned last.
    current: Annotations,
}

impl BatchClock {
    /// A clock with this method, for a link of this rate in megabits per second.
    pub fn new(method: BatchMethod, link_mbps: Option<u32>) -> Self {
        let poll = Annotations::new(TimestampMethod::Poll, None);
        Self {
            stamper: Stamper::new(method, link_mbps.and_then(LinkRate::from_mbps)),
            unanswered: None,
            stamps: Vec::new(),
            next: 0,
            unreported: ErrorEstimate::default(),
            batch: poll,
            current: poll,
        }
    }

    /// Reads the clock, immediately before the source reads its receive ring.
    #[inline]
    pub fn read(&mut self, clock: &Clock) {
        self.end_poll();
        self.unanswered = Some(clock.now());
    }

    /// Ends a poll of the source: if the last read of the receive ring found no frame, later frames arrived later.
    #[inline]
    pub fn end_poll(&mut self) {
        if let Some(polled) = self.unanswered.take() {
            self.stamper.idle(polled);
        }
    }

    /// Computes the timestamps of the frames that the last read of the receive ring found.
    #[inline]
    pub fn stamp(&mut self, frames: &FoundFrames<'_>) {
        let Some(polled) = self.unanswered.take() else { return };
        let batch = Batch { lengths: frames.lengths, found: frames.found, polled, waited: frames.waited };
        self.batch = Annotations::new(self.stamper.stamp(&batch, &mut self.stamps), None);
        self.next = 0;
    }

    /// The timestamp of the next packet; `None` if the source has not announced the packet. Then the caller reads the
    /// clock.
    #[inline]
    pub fn next(&mut self) -> Option<Timestamp> {
        let stamp = self.stamps.get(self.next).copied();
        self.current = if stamp.is_some() { self.batch } else { Annotations::new(TimestampMethod::Poll, None) };
        self.next += 1;
        stamp
    }

    /// The annotations of the packet whose timestamp [`BatchClock::next`] returned last.
    #[inline]
    pub fn annotations(&self) -> Annotations {
        self.current
    }

    /// No later packet gets an earlier timestamp; `None` before the first poll.
    pub fn earliest_next(&self) -> Option<Timestamp> {
        self.stamper.earliest_next()
    }

    /// Forgets all earlier times, after a step of the clock.
    pub fn restart(&mut self) {
        self.stamper.restart();
        (self.unanswered, self.next) = (None, 0);
        self.stamps.clear();
    }

    /// The estimate for the packets since the last call of this function.
    #[inline]
    pub fn take_estimate(&mut self) -> ErrorEstimate {
        let estimate = self.stamper.take_estimate();
        self.unreported.add(&estimate);
        estimate
    }

    /// The estimated standard deviation of the timestamps that [`BatchClock::take_estimate`] returned since the last
    /// call of this function; `None` if there were none.
    pub fn take_deviation(&mut self) -> Option<Duration> {
        let estimate = std::mem::take(&mut self.unreported);
        (estimate.packets() > 0).then(|| estimate.standard_deviation())
    }

    /// The method.
    pub fn method(&self) -> BatchMethod {
        self.stamper.method()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_that_the_source_did_not_announce_are_polled() {
        let clock = Clock::start();
        let mut batch = BatchClock::new(BatchMethod::Udts, None);
        assert_eq!((batch.next(), batch.earliest_next()), (None, None));
        batch.read(&clock);
        batch.stamp(&FoundFrames { lengths: &[60, 60], found: 2, waited: false });
        let first = batch.next().expect("a timestamp");
        assert_eq!(batch.annotations().timestamp_method(), TimestampMethod::Udts);
        assert!(batch.next() >= Some(first));
        assert_eq!((batch.next(), batch.annotations().timestamp_method()), (None, TimestampMethod::Poll));
    }

    #[test]
    fn a_restart_discards_the_timestamps_of_the_batch() {
        let clock = Clock::start();
        let mut batch = BatchClock::new(BatchMethod::Adaptive, None);
        batch.read(&clock);
        batch.stamp(&FoundFrames { lengths: &[60, 60], found: 2, waited: false });
        batch.restart();
        assert_eq!((batch.next(), batch.earliest_next()), (None, None));
    }
}
