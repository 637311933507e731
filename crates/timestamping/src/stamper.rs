//! The timestamps of successive batches of one queue.

use crate::apportionment::{Interval, by_gaps, uniform, weighted};
use crate::error_estimate::ErrorEstimate;
use crate::hold::{HOLD_MAX, Hold};
use crate::link_rate::LinkRate;
use base::{Timestamp, TimestampMethod};
use std::time::Duration;

/// A packet that a poll finds alone, at most this long after the previous poll, gets the time of the poll. The method
/// of the timestamp is then [`TimestampMethod::Poll`].
const POLL_NANOS: u64 = 1000;

/// The time from the arrival of a packet that ends the sleep of the thread to the poll is assumed to be equally
/// distributed up to this value: the kernel must run the interrupt handler and the scheduler.
const WAKE_NANOS: u64 = 20_000;

/// `udts` and `wdts` apportion at most this time. Later timestamps would otherwise lie before the end of a second that
/// passed without packets.
const BATCH_GAP_MAX: Duration = Duration::from_millis(10);

/// The methods that read the clock once for each batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchMethod {
    /// All packets get the time of the poll.
    Batch,
    /// See [`TimestampMethod::Udts`].
    Udts,
    /// See [`TimestampMethod::Wdts`].
    Wdts,
    /// Polling while the thread finds single packets soon after their arrival, and otherwise weighted apportionment.
    ///
    /// A packet arrived after the last poll that found no further packet, and before the poll that found the packet. So
    /// the interval between these two polls is apportioned, not the interval between two batches as in `wdts`: on a
    /// link that is not saturated, the interval between two batches contains long gaps. If the rate of the link is
    /// known, the frames get the time that they occupied the link, and the remaining time becomes equal gaps between
    /// them. On a saturated link nothing remains, and the result is that of `wdts`.
    ///
    /// If the interval is shorter than the time that the frames occupied the link, the NIC delayed the write of their
    /// descriptors. The stamper measures this delay, and apportions intervals that are at least as long as the delay.
    Adaptive,
}

impl BatchMethod {
    /// The name in configuration, JSON and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Batch => "batch",
            Self::Udts => "udts",
            Self::Wdts => "wdts",
            Self::Adaptive => "adaptive",
        }
    }
}

/// The packets that one poll of the source found.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// Lengths on the wire, without FCS, of the packets that the thread takes now, in the order of arrival.
    pub lengths: &'a [u32],
    /// Number of packets that the poll found, at least the number of `lengths`. The thread takes the others with its
    /// next polls.
    pub found: usize,
    /// The time of the poll.
    pub polled: Timestamp,
    /// True if the thread slept until a packet arrived.
    pub waited: bool,
}

/// Computes the timestamps of the packets of one queue, batch by batch.
#[derive(Clone, Debug)]
pub struct Stamper {
    method: BatchMethod,
    rate: Option<LinkRate>,
    /// The latest timestamp so far; zero before the first batch.
    last: Timestamp,
    /// The time of a poll before which all packets arrived that are taken already or in the backlog. All other packets
    /// arrived after this poll. Zero before the first poll.
    since: Timestamp,
    /// The number of packets that the poll at `since` found and that the thread has not taken yet.
    backlog: usize,
    /// The longest measured time from the arrival of a packet to the write of its descriptor by the NIC.
    hold: Hold,
    estimate: ErrorEstimate,
}

impl Stamper {
    /// A stamper for a queue of a link with this rate, `None` if the rate is not known.
    pub fn new(method: BatchMethod, rate: Option<LinkRate>) -> Self {
        Self {
            method,
            rate,
            last: Timestamp::ZERO,
            since: Timestamp::ZERO,
            backlog: 0,
            hold: Hold::default(),
            estimate: ErrorEstimate::default(),
        }
    }

    /// Informs the stamper of a poll that found no packet.
    #[inline]
    pub fn idle(&mut self, polled: Timestamp) {
        self.since = self.since.max(polled);
        self.backlog = 0;
        if matches!(self.method, BatchMethod::Udts | BatchMethod::Wdts) && self.last > Timestamp::ZERO {
            self.last = self.last.max(polled.before(BATCH_GAP_MAX));
        }
    }

    /// No later packet gets a timestamp before this time; `None` before the first poll.
    pub fn earliest_next(&self) -> Option<Timestamp> {
        let earliest = match self.method {
            BatchMethod::Batch => self.since.max(self.last),
            BatchMethod::Udts | BatchMethod::Wdts if self.last == Timestamp::ZERO => self.since,
            BatchMethod::Udts | BatchMethod::Wdts => self.last,
            BatchMethod::Adaptive if self.backlog > 0 => self.last,
            BatchMethod::Adaptive => self.since.before(HOLD_MAX).max(self.last),
        };
        (earliest > Timestamp::ZERO).then_some(earliest)
    }

    /// The method.
    pub fn method(&self) -> BatchMethod {
        self.method
    }

    /// Forgets all earlier times, after a step of the clock.
    pub fn restart(&mut self) {
        *self = Self::new(self.method, self.rate);
    }

    /// The estimate for all packets since the last call of this function.
    pub fn take_estimate(&mut self) -> ErrorEstimate {
        std::mem::take(&mut self.estimate)
    }

    /// Replaces the contents of `out` by one timestamp per packet of the batch, and returns the method that made them.
    pub fn stamp(&mut self, batch: &Batch<'_>, out: &mut Vec<Timestamp>) -> TimestampMethod {
        out.clear();
        let packets = batch.lengths.len();
        if packets == 0 {
            self.idle(batch.polled);
            return TimestampMethod::Batch;
        }
        let polled = batch.polled.max(self.last).max(self.since);
        // Before the first batch nothing is known about the arrival of the first packets.
        let since_batch = Interval::new(if self.last == Timestamp::ZERO { polled } else { self.last }, polled);
        let method = match self.method {
            BatchMethod::Batch => {
                out.resize(packets, polled);
                self.estimate.add_window(packets, since_batch.nanos());
                TimestampMethod::Batch
            }
            BatchMethod::Udts => {
                uniform(since_batch, packets, out);
                self.estimate.add_batch(packets, packets, since_batch.nanos(), since_batch.nanos(), 0);
                TimestampMethod::Udts
            }
            BatchMethod::Wdts => {
                weighted(since_batch, batch.lengths, out);
                let idle = since_batch.nanos().saturating_sub(self.wire_nanos(batch.lengths));
                self.estimate.add_batch(packets, packets, since_batch.nanos(), idle, 0);
                TimestampMethod::Wdts
            }
            BatchMethod::Adaptive => self.adaptive(batch, polled, out),
        };
        if self.method != BatchMethod::Adaptive {
            self.since = polled;
        }
        self.last = out.last().copied().unwrap_or(polled);
        method
    }

    fn adaptive(&mut self, batch: &Batch<'_>, polled: Timestamp, out: &mut Vec<Timestamp>) -> TimestampMethod {
        let found = batch.found.max(batch.lengths.len());
        let (old, new) = batch.lengths.split_at(self.backlog.min(batch.lengths.len()));
        let new_found = found.saturating_sub(self.backlog).max(new.len());
        if !old.is_empty() {
            self.apportion(self.last, self.since, old, self.backlog, out);
            self.backlog -= old.len();
        }
        if new.is_empty() {
            // The time after `since` is apportioned when the first of them is taken.
            return TimestampMethod::Wdts;
        }
        let last = out.last().copied().unwrap_or(self.last);
        let wire = self.wire_nanos(new) * new_found as u64 / new.len() as u64;
        let first_wire = self.wire_nanos(&new[..1]);
        let start = if old.is_empty() && batch.waited {
            // The first packet woke the thread, on average half of `WAKE_NANOS` before the poll. If the packets occupy
            // the link for longer than that, they are assumed to have arrived back to back.
            self.since.max(polled.before(Duration::from_nanos(wire.max(WAKE_NANOS / 2))))
        } else if self.since == Timestamp::ZERO {
            polled.before(Duration::from_nanos(wire))
        } else {
            let after_first = wire.saturating_sub(first_wire);
            let held = self.hold.observe(after_first, first_wire, polled.since(self.since), polled);
            self.since.min(polled.before(held))
        };
        let start = start.max(last);
        let window = Interval::new(start, polled).nanos();
        // The first packet ended after `start`, and its transmission may have begun before.
        let start = start.before(Duration::from_nanos(first_wire)).max(last);
        self.since = polled;
        self.backlog = new_found - new.len();
        if batch.waited {
            self.estimate.add_window(new.len(), WAKE_NANOS);
        }
        if new_found == 1 && old.is_empty() && (batch.waited || window <= POLL_NANOS) {
            if !batch.waited {
                self.estimate.add_window(1, window);
            }
            out.push(polled);
            return TimestampMethod::Poll;
        }
        let estimate = self.estimate;
        self.apportion(start, polled, new, new_found, out);
        if batch.waited {
            // The uncertainty of the wake-up, which is already counted, is larger than that of the apportionment.
            self.estimate = estimate;
        }
        TimestampMethod::Wdts
    }

    fn apportion(&mut self, start: Timestamp, end: Timestamp, lengths: &[u32], found: usize, out: &mut Vec<Timestamp>) {
        let interval = Interval::new(start, end);
        let occupancy = by_gaps(interval, lengths, found, self.rate, out);
        self.estimate.add_batch(lengths.len(), found, interval.nanos(), occupancy.idle_nanos, occupancy.packet_nanos);
    }

    /// The time in nanoseconds that frames of these lengths occupy the link; 0 if its rate is not known.
    fn wire_nanos(&self, lengths: &[u32]) -> u64 {
        let bytes = lengths.iter().map(|len| crate::link_rate::wire_bytes(*len)).sum();
        self.rate.map_or(0, |rate| rate.nanos(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    const METHODS: [BatchMethod; 4] = [BatchMethod::Batch, BatchMethod::Udts, BatchMethod::Wdts, BatchMethod::Adaptive];

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(1_000_000 + nanos)
    }

    fn stamps(stamper: &mut Stamper, polled: u64, lengths: &[u32], found: usize) -> (Vec<u64>, TimestampMethod) {
        let mut out = Vec::new();
        let batch = Batch { lengths, found, polled: at(polled), waited: false };
        let method = stamper.stamp(&batch, &mut out);
        (out.into_iter().map(|t| t.nanos() - 1_000_000).collect(), method)
    }

    fn adaptive() -> Stamper {
        let mut stamper = Stamper::new(BatchMethod::Adaptive, LinkRate::from_mbps(8000));
        stamper.idle(at(0));
        stamper
    }

    #[test]
    fn the_first_batch_gets_the_time_of_its_poll() {
        for method in METHODS {
            let mut stamper = Stamper::new(method, None);
            assert_eq!(stamps(&mut stamper, 500, &[60, 60], 2).0, [500, 500], "{method:?}");
        }
    }

    #[test]
    fn a_single_packet_soon_after_an_empty_poll_gets_the_time_of_the_poll() {
        let mut stamper = adaptive();
        stamper.idle(at(9000));
        assert_eq!(stamps(&mut stamper, 9100, &[60], 1), (vec![9100], TimestampMethod::Poll));
        // The thread was away for 8084 ns; the packet arrived in the middle of the idle time.
        assert_eq!(stamps(&mut stamper, 17_184, &[60], 1), (vec![13_184], TimestampMethod::Wdts));
    }

    #[test]
    fn a_saturated_batch_is_apportioned_by_weight() {
        let mut stamper = adaptive();
        for batch in 0..5 {
            let (times, method) = stamps(&mut stamper, (batch + 1) * 1706, &[60, 1514, 60], 3);
            assert_eq!(method, TimestampMethod::Wdts);
            // The transmission of the very first packet may have begun before the first poll: 84 ns.
            let near = |time: u64, expected: u64| time.abs_diff(batch * 1706 + expected) < 84;
            assert!(near(times[0], 84) && near(times[1], 1622) && near(times[2], 1706), "{times:?}");
        }
    }

    #[test]
    fn packets_that_one_poll_found_have_the_same_times_whether_taken_at_once_or_in_parts() {
        let lengths = [60; 10];
        let (whole, _) = stamps(&mut adaptive(), 100_000, &lengths, 10);
        let mut in_parts = adaptive();
        let (mut parts, _) = stamps(&mut in_parts, 100_000, &lengths[..4], 10);
        // The next two polls take the other six packets, and one packet that arrived after the first poll.
        parts.extend(stamps(&mut in_parts, 100_300, &lengths[..4], 6).0);
        parts.extend(stamps(&mut in_parts, 100_600, &[60; 3], 3).0);
        assert!((100_000..=100_600).contains(&parts[10]), "{parts:?}");
        for (a, b) in whole.iter().zip(&parts) {
            // Each later part is apportioned from the last timestamp of the part before it to the poll that found the
            // packets, so the gaps are not exactly equal.
            assert!(a.abs_diff(*b) < 2_000, "{whole:?} and {parts:?}");
        }
    }

    #[test]
    fn after_a_sleep_the_packets_arrived_in_the_last_ten_microseconds_or_one_after_the_other() {
        let mut stamper = adaptive();
        let mut out = Vec::new();
        let batch = Batch { lengths: &[60, 60], found: 2, polled: at(50_010_000), waited: true };
        assert_eq!(stamper.stamp(&batch, &mut out), TimestampMethod::Wdts);
        assert!(out[0] > at(50_000_000) && out[1] < at(50_010_000), "{out:?}");
        let lengths = [1514; 20];
        let batch = Batch { lengths: &lengths, found: 20, polled: at(60_000_000), waited: true };
        stamper.stamp(&batch, &mut out);
        let span = out[19].nanos() - out[0].nanos();
        assert!(span.abs_diff(19 * 1538) < 1538 && out[19] > at(60_000_000 - 1538), "{out:?}");
    }

    #[test]
    fn timestamps_never_decrease_or_exceed_the_poll_on_a_random_walk() {
        let mut prng = Prng::new(7);
        for method in METHODS {
            let rate = LinkRate::from_mbps(10_000).filter(|_| prng.below(2) == 0);
            let mut stamper = Stamper::new(method, rate);
            let (mut now, mut last, mut latest, mut out) = (0, Timestamp::ZERO, Timestamp::ZERO, Vec::new());
            for _ in 0..20_000 {
                // A clock that goes back a little must not make the timestamps go back.
                now = if prng.below(50) == 0 { now.max(100) - 100 } else { now + prng.below(20_000) };
                latest = latest.max(at(now));
                let n = prng.below(8) as usize;
                let lengths: Vec<u32> = (0..n).map(|_| 60 + prng.below(1455) as u32).collect();
                let found = n + if prng.below(4) == 0 { prng.below(300) as usize } else { 0 };
                let batch = Batch { lengths: &lengths, found, polled: at(now), waited: prng.below(10) == 0 };
                let earliest = stamper.earliest_next();
                stamper.stamp(&batch, &mut out);
                assert_eq!(out.len(), n);
                for t in &out {
                    assert!(*t >= last && *t <= latest, "{method:?}: {t:?} after {last:?} at {now}");
                    assert!(earliest.is_none_or(|earliest| *t >= earliest), "{method:?}: {t:?}");
                    last = *t;
                }
            }
            assert!(stamper.take_estimate().packets() > 10_000);
        }
    }
}
