//! Evaluates the replies to test packets at the sender.
//!
//! The round-trip delay is `(T4 - T1) - (T3 - T2)`. The sender sends the test packet at T1, the reflector receives it
//! at T2 and sends the reply at T3, and the sender receives the reply at T4. So the round-trip delay is the time that
//! both packets spend between the sender and the reflector. An offset between the two clocks does not change the
//! round-trip delay; a difference between their rates does. The crate `delay` computes the one-way delays of the two
//! directions.

use crate::Reply;
use base::{Distribution, ErrorEstimate, Timestamp};
use delay::{Analyser, Arrival, ReceiverClock, Report, worse};
use std::collections::VecDeque;

/// The largest number of test packets for which the sender still accepts a reply. Older test packets without a reply
/// count as lost.
const OUTSTANDING_MAX: usize = 1 << 16;

/// The class of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyKind {
    /// The first reply to a test packet.
    First,
    /// A further reply to a test packet.
    Duplicate,
    /// A reply to a test packet that this sender did not send, or for which it no longer accepts a reply.
    Unknown,
}

/// The test packets of a sender and their replies.
#[derive(Clone, Debug)]
pub struct Measurement {
    own_clock: ReceiverClock,
    own_error: ErrorEstimate,
    /// The worst error estimate in a reply.
    reflector_error: Option<ErrorEstimate>,
    /// For each of the last test packets, its time T1, and true if a reply has arrived. The first element belongs to
    /// the test packet with the number `oldest`.
    outstanding: VecDeque<(Timestamp, bool)>,
    oldest: u32,
    sent: u64,
    counts: [u64; 3],
    round_trip: Distribution,
    reflection: Distribution,
    /// The analysis of the direction to the reflector. It is created at the first reply, because the reply states
    /// whether the reflector's clock is synchronised.
    forward: Option<Analyser>,
    backward: Analyser,
    /// True if the sequence number of a reply differed from that of its test packet, which shows that the reflector
    /// numbers its replies.
    is_stateful: bool,
    ttl: Option<(u8, u8)>,
}

/// The results of a sender. `sent = first + lost`.
#[derive(Clone, Debug)]
pub struct MeasurementReport {
    /// Test packets sent.
    pub sent: u64,
    /// Test packets with a reply.
    pub first: u64,
    /// Test packets without a reply.
    pub lost: u64,
    /// Test packets that were lost on the way to the reflector. `None` unless a reply showed that the reflector numbers
    /// its replies.
    pub lost_forward: Option<u64>,
    /// Replies that were lost on the way from the reflector. `None` unless a reply showed that the reflector numbers
    /// its replies.
    pub lost_backward: Option<u64>,
    /// Further replies to a test packet.
    pub duplicates: u64,
    /// Replies to test packets that this sender did not send, or for which it no longer accepts a reply.
    pub unknown: u64,
    /// The round-trip delays `(T4 - T1) - (T3 - T2)`, in nanoseconds.
    pub round_trip: Distribution,
    /// The times `T3 - T2` between the arrival of a test packet at the reflector and the departure of its reply, in
    /// nanoseconds.
    pub reflection: Distribution,
    /// The delays on the way to the reflector; `None` if no reply arrived.
    pub forward: Option<Report>,
    /// The delays on the way from the reflector; `None` if no reply arrived.
    pub backward: Option<Report>,
    /// The smallest and the largest TTL or hop limit of test packets at the reflector.
    pub ttl: Option<(u8, u8)>,
}

impl Measurement {
    /// A measurement without test packets. `own_clock` is the state of the sender's clock, and `own_error` the error
    /// estimate that the test packets contain.
    pub fn new(own_clock: ReceiverClock, own_error: ErrorEstimate) -> Self {
        Self {
            own_clock,
            own_error,
            reflector_error: None,
            outstanding: VecDeque::new(),
            oldest: 0,
            sent: 0,
            counts: [0; 3],
            round_trip: Distribution::new(),
            reflection: Distribution::new(),
            forward: None,
            backward: Analyser::new(own_clock),
            is_stateful: false,
            ttl: None,
        }
    }

    /// Changes the state of the sender's clock. `own_clock` is the worst state so far, which applies to the whole
    /// measurement. `own_error` applies to the following test packets.
    pub fn set_clock(&mut self, own_clock: ReceiverClock, own_error: ErrorEstimate) {
        (self.own_clock, self.own_error) = (own_clock, own_error);
        self.backward.set_receiver(own_clock);
    }

    /// Registers a test packet with the time T1, and returns its number.
    pub fn send(&mut self, time: Timestamp) -> u32 {
        if self.outstanding.len() == OUTSTANDING_MAX {
            self.outstanding.pop_front();
            self.oldest = self.oldest.wrapping_add(1);
        }
        let sequence = self.oldest.wrapping_add(self.outstanding.len() as u32);
        self.outstanding.push_back((time, false));
        self.sent += 1;
        sequence
    }

    /// Adds a reply that arrived at the time T4.
    pub fn receive(&mut self, reply: &Reply, time: Timestamp) -> ReplyKind {
        let kind = self.evaluate(reply, time);
        self.counts[kind as usize] += 1;
        kind
    }

    fn evaluate(&mut self, reply: &Reply, time: Timestamp) -> ReplyKind {
        let index = reply.test_sequence.wrapping_sub(self.oldest) as usize;
        let Some((sent, has_reply)) = self.outstanding.get_mut(index) else { return ReplyKind::Unknown };
        let (sent, is_duplicate) = (*sent, std::mem::replace(has_reply, true));
        self.is_stateful |= reply.sequence != reply.test_sequence;
        // If the network duplicated a test packet, the two replies of a stateful reflector have different numbers, and
        // both count for the way back. If the network duplicated a reply, the analyser ignores the second copy.
        self.backward.add(&arrival(reply.sequence, reply.sent, time), reply.error);
        if is_duplicate {
            return ReplyKind::Duplicate;
        }
        let (low, high) = self.ttl.unwrap_or((reply.test_ttl, reply.test_ttl));
        self.ttl = Some((low.min(reply.test_ttl), high.max(reply.test_ttl)));
        let inside = difference(reply.sent, reply.received);
        self.reflection.add(inside);
        self.round_trip.add(difference(time, sent).saturating_sub(inside));
        let reflector_error = self.reflector_error.map_or(reply.error, |before| worse(before, reply.error));
        self.reflector_error = Some(reflector_error);
        let reflector_clock = match (self.own_clock, reflector_error.is_synchronised()) {
            (ReceiverClock::SameAsSender, _) => ReceiverClock::SameAsSender,
            (_, true) => ReceiverClock::Synchronised(reflector_error.error()),
            (_, false) => ReceiverClock::Unknown,
        };
        let forward = self.forward.get_or_insert_with(|| Analyser::new(reflector_clock));
        forward.set_receiver(reflector_clock);
        forward.add(&arrival(reply.test_sequence, sent, reply.received), self.own_error);
        ReplyKind::First
    }

    /// Number of test packets without a reply so far.
    pub const fn lost(&self) -> u64 {
        self.sent - self.counts[ReplyKind::First as usize]
    }

    /// The results so far.
    pub fn report(&self) -> MeasurementReport {
        let [first, duplicates, unknown] = self.counts;
        let lost = self.lost();
        // The numbers that are missing between the lowest and the highest number of a reply are those of replies that
        // were lost. The lowest number need not be 0, because the reflector may continue the numbers of an earlier
        // session from the same port. Replies that were lost before the first or after the last reply that arrived
        // count as test packets lost before the reflector, because the sender cannot distinguish the two cases.
        let backward = self.backward.report();
        let lost_backward = self.is_stateful.then(|| backward.sequence.lost.min(lost));
        let forward = self.forward.as_ref().map(Analyser::report);
        MeasurementReport {
            sent: self.sent,
            first,
            lost,
            lost_forward: lost_backward.map(|backward| lost - backward),
            lost_backward,
            duplicates,
            unknown,
            round_trip: self.round_trip.clone(),
            reflection: self.reflection.clone(),
            backward: forward.is_some().then_some(backward),
            forward,
            ttl: self.ttl,
        }
    }
}

fn arrival(sequence: u32, departure: Timestamp, arrival: Timestamp) -> Arrival {
    let sequence = u64::from(sequence);
    Arrival { sequence, train: 0, burst: 0, index: 0, burst_size: 1, departure, arrival, bytes: 0 }
}

fn difference(later: Timestamp, earlier: Timestamp) -> i64 {
    let nanos = i128::from(later.nanos()) - i128::from(earlier.nanos());
    i64::try_from(nanos).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;
    use std::time::Duration;

    const START: u64 = 1_700_000_000_000_000_000;

    fn error() -> ErrorEstimate {
        ErrorEstimate::of(Duration::from_micros(30), true)
    }

    fn reply(sequence: u32, test_sequence: u32, received: u64, sent: u64) -> Reply {
        let time = |nanos| Timestamp::from_nanos(START + nanos);
        Reply { sequence, sent: time(sent), error: error(), received: time(received), test_sequence, test_ttl: 64 }
    }

    #[test]
    fn unknown_and_duplicate_replies_are_counted_separately() {
        let mut measurement = Measurement::new(ReceiverClock::Unknown, error());
        let now = Timestamp::from_nanos(START);
        assert_eq!(measurement.receive(&reply(0, 0, 1, 2), now), ReplyKind::Unknown);
        assert_eq!(measurement.send(now), 0);
        assert_eq!(measurement.send(now), 1);
        assert_eq!(measurement.receive(&reply(1, 1, 1, 2), now), ReplyKind::First);
        assert_eq!(measurement.receive(&reply(1, 1, 1, 2), now), ReplyKind::Duplicate);
        assert_eq!(measurement.receive(&reply(2, 2, 1, 2), now), ReplyKind::Unknown);
        let report = measurement.report();
        assert_eq!((report.sent, report.first, report.lost, report.duplicates, report.unknown), (2, 1, 1, 1, 2));
        assert_eq!((report.lost_forward, report.lost_backward), (None, None));
    }

    #[test]
    fn the_round_trip_excludes_the_reflector_and_does_not_depend_on_the_offset_of_its_clock() {
        let mut prng = Prng::new(8762);
        for offset in [0u64, 3_000_000_000] {
            let mut measurement = Measurement::new(ReceiverClock::Synchronised(Duration::from_micros(1)), error());
            let mut expected = Vec::new();
            for i in 0..500u64 {
                let (forward, inside, backward) =
                    (100_000 + prng.below(9000), 10_000 + prng.below(90_000), 200_000 + prng.below(9000));
                let sent = i * 1_000_003;
                let n = measurement.send(Timestamp::from_nanos(START + sent));
                let received = sent + forward + offset;
                let back = Timestamp::from_nanos(START + sent + forward + inside + backward);
                measurement.receive(&reply(n, n, received, received + inside), back);
                expected.push((forward + backward) as i64);
            }
            let report = measurement.report();
            assert_eq!(report.round_trip.min(), expected.iter().min().copied(), "seed 8762");
            assert_eq!(report.round_trip.max(), expected.iter().max().copied(), "seed 8762");
            let forward = report.forward.expect("a direction");
            assert_eq!(forward.delay_error(), Some(error().error() * 2 + Duration::from_nanos(2)));
            let least = forward.delay.min().expect("a delay") - offset as i64;
            assert!((100_000..109_000).contains(&least), "{least}, seed 8762");
        }
    }

    #[test]
    fn the_numbers_of_a_stateful_reflector_show_the_direction_of_losses() {
        let mut measurement = Measurement::new(ReceiverClock::Unknown, error());
        let mut replies = 0;
        for i in 0..100u64 {
            let sent = Timestamp::from_nanos(START + i * 1000);
            let n = measurement.send(sent);
            // Test packets 0, 10, 20 and so on are lost before the reflector. The replies to test packets 5, 15, 25 and
            // so on are lost after the reflector.
            if n.is_multiple_of(10) {
                continue;
            }
            replies += 1;
            if n % 10 != 5 {
                measurement.receive(&reply(replies - 1, n, i * 1000, i * 1000), sent);
            }
        }
        let report = measurement.report();
        assert_eq!((report.sent, report.first, report.lost), (100, 80, 20));
        assert_eq!((report.lost_forward, report.lost_backward), (Some(10), Some(10)));
    }

    /// Test packets 0 to 29; `is_reflected` and `is_returned` state what arrives. The reflector numbers its replies
    /// from
    /// `begin`. `copies` is the number of copies of each reply.
    fn stateful(begin: u32, copies: usize, is_reflected: fn(u32) -> bool, is_returned: fn(u32) -> bool) -> [u64; 3] {
        let mut measurement = Measurement::new(ReceiverClock::Unknown, error());
        let mut next = begin;
        for i in 0..30 {
            let sent = Timestamp::from_nanos(START + i * 1000);
            let n = measurement.send(sent);
            if is_reflected(n) {
                next += 1;
                if is_returned(n) {
                    (0..copies).for_each(|_| _ = measurement.receive(&reply(next - 1, n, i * 1000, i * 1000), sent));
                }
            }
        }
        let report = measurement.report();
        [report.lost, report.lost_forward.expect("a stateful reflector"), report.lost_backward.unwrap()]
    }

    #[test]
    fn a_reflector_that_continues_old_numbers_has_the_same_losses() {
        for begin in [0, 77] {
            let losses = stateful(begin, 1, |n| n % 10 != 3, |n| n % 10 != 5);
            assert_eq!(losses, [6, 3, 3], "numbers from {begin}");
        }
    }

    #[test]
    fn replies_that_the_network_duplicates_are_no_further_reflected_packets() {
        assert_eq!(stateful(0, 2, |n| n % 10 != 3, |n| n % 10 != 5), [6, 3, 3]);
    }

    #[test]
    fn a_test_packet_that_the_network_duplicates_is_reflected_twice() {
        let mut measurement = Measurement::new(ReceiverClock::Unknown, error());
        let now = Timestamp::from_nanos(START);
        (0..4).for_each(|_| _ = measurement.send(now));
        // Test packet 1 was duplicated, and the reply 3 to test packet 2 was lost.
        for (number, test) in [(0, 0), (1, 1), (2, 1), (4, 3)] {
            measurement.receive(&reply(number, test, 1, 2), now);
        }
        let report = measurement.report();
        assert_eq!((report.first, report.duplicates, report.lost), (3, 1, 1));
        assert_eq!((report.lost_forward, report.lost_backward), (Some(0), Some(1)));
    }

    #[test]
    fn the_worst_state_of_both_clocks_counts() {
        let synchronised = ReceiverClock::Synchronised(Duration::from_micros(1));
        let mut measurement = Measurement::new(synchronised, error());
        let now = Timestamp::from_nanos(START);
        (0..3).for_each(|_| _ = measurement.send(now));
        measurement.receive(&reply(0, 0, 1, 2), now);
        let known = |measurement: &Measurement| {
            let report = measurement.report();
            [report.forward, report.backward].map(|way| way.expect("a way").delay_error().is_some())
        };
        assert_eq!(known(&measurement), [true, true]);
        let lost = ErrorEstimate::of(Duration::from_micros(30), false);
        measurement.receive(&Reply { error: lost, ..reply(1, 1, 1, 2) }, now);
        measurement.receive(&reply(2, 2, 1, 2), now);
        assert_eq!(known(&measurement), [false, false], "the reflector lost its synchronisation for a time");
        let mut measurement = Measurement::new(synchronised, error());
        measurement.send(now);
        measurement.set_clock(ReceiverClock::Unknown, lost);
        measurement.receive(&reply(0, 0, 1, 2), now);
        assert_eq!(known(&measurement), [false, false], "the sender lost its synchronisation");
    }

    #[test]
    fn the_number_of_stored_test_packets_is_bounded() {
        let mut measurement = Measurement::new(ReceiverClock::Unknown, error());
        let now = Timestamp::from_nanos(START);
        for n in 0..OUTSTANDING_MAX as u32 + 10 {
            assert_eq!(measurement.send(now), n);
        }
        assert_eq!(measurement.receive(&reply(9, 9, 0, 0), now), ReplyKind::Unknown);
        assert_eq!(measurement.receive(&reply(10, 10, 0, 0), now), ReplyKind::First);
        assert_eq!(measurement.outstanding.len(), OUTSTANDING_MAX);
    }
}
