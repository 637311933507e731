//! Analyses the packets of one session at the receiver: delays, order, loss, clock skew and bursts.

use crate::bursts::Bursts;
use crate::clocks::worse;
use crate::order::{Order, Place};
use crate::sample::Sample;
use crate::skew::Hull;
use crate::variation::Delays;
use crate::{ClockRelation, DriftFree, ReceiverClock, Report};
use base::{Distribution, ErrorEstimate, Timestamp};
use std::time::Duration;

/// A packet at the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The number of the packet within its session.
    pub sequence: u64,
    /// The number of the train of the packet.
    pub train: u32,
    /// The number of the burst of the packet within its train.
    pub burst: u32,
    /// The number of the packet within its burst.
    pub index: u16,
    /// The number of packets of the burst; 1 for packets that are not sent in bursts.
    pub burst_size: u16,
    /// The time of departure of the packet, by the sender's clock.
    pub departure: Timestamp,
    /// The time of arrival of the packet, by the receiver's clock.
    pub arrival: Timestamp,
    /// The length of the frame in bytes, without FCS.
    pub bytes: u32,
}

/// The position of a packet in its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrivalKind {
    /// The first copy of a packet whose sequence number is higher than those of all packets before it.
    InOrder,
    /// The first copy of a packet that arrives after a packet with a higher sequence number. The value is the
    /// reordering extent (RFC 4737 §4.2).
    Reordered(u64),
    /// A further copy of a packet that has already arrived.
    Duplicate,
    /// A packet whose sequence number is at least [`crate::WINDOW`] below the highest. The analyser cannot decide
    /// whether the packet is reordered or a duplicate.
    Undecided,
}

impl ArrivalKind {
    /// The name of the kind in output for users and programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::InOrder => "in-order",
            Self::Reordered(_) => "reordered",
            Self::Duplicate => "duplicate",
            Self::Undecided => "undecided",
        }
    }
}

/// The results for one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketResult {
    /// The position of the packet in its session.
    pub kind: ArrivalKind,
    /// Arrival minus departure, in nanoseconds.
    pub delay: i64,
    /// The delay of this packet minus the delay of the packet with the previous sequence number, in nanoseconds. `None`
    /// if that packet has not arrived before this packet.
    pub variation: Option<i64>,
}

/// The analysis of one session, with bounded memory.
#[derive(Clone, Debug)]
pub struct Analyser {
    receiver: ReceiverClock,
    sender: Option<ErrorEstimate>,
    order: Order,
    delays: Delays,
    delay: Distribution,
    variation: Distribution,
    hull: Hull,
    sample: Sample,
    bursts: Bursts,
    departures: Range,
    arrivals: Range,
    /// The departure of the first packet that arrived. The hull and the sample store departures relative to it.
    origin: Option<Timestamp>,
}

impl Analyser {
    /// An analyser without packets. `receiver` describes the clock that makes the arrival times.
    pub fn new(receiver: ReceiverClock) -> Self {
        Self {
            receiver,
            sender: None,
            order: Order::default(),
            delays: Delays::default(),
            delay: Distribution::new(),
            variation: Distribution::new(),
            hull: Hull::default(),
            sample: Sample::new(),
            bursts: Bursts::default(),
            departures: Range::default(),
            arrivals: Range::default(),
            origin: None,
        }
    }

    /// Changes the description of the clock that makes the arrival times. The report uses the last description, so the
    /// caller passes the worst state that the clock had.
    pub const fn set_receiver(&mut self, receiver: ReceiverClock) {
        self.receiver = receiver;
    }

    /// Adds a packet. The caller adds packets in order of arrival. `error` is the error estimate of the sender's clock
    /// at the departure of the packet.
    pub fn add(&mut self, arrival: &Arrival, error: ErrorEstimate) -> PacketResult {
        self.sender = Some(self.sender.map_or(error, |before| worse(before, error)));
        let delay = difference(arrival.arrival, arrival.departure);
        let kind = match self.order.add(arrival.sequence, arrival.arrival, arrival.bytes) {
            Place::InOrder => ArrivalKind::InOrder,
            Place::Reordered(extent) => ArrivalKind::Reordered(extent),
            Place::Duplicate => return PacketResult { kind: ArrivalKind::Duplicate, delay, variation: None },
            Place::Undecided => return PacketResult { kind: ArrivalKind::Undecided, delay, variation: None },
        };
        self.departures.add(arrival.departure);
        self.arrivals.add(arrival.arrival);
        self.delay.add(delay);
        let variations = self.delays.add(arrival.sequence, delay);
        variations.into_iter().flatten().for_each(|variation| self.variation.add(variation));
        let departure = difference(arrival.departure, *self.origin.get_or_insert(arrival.departure));
        self.hull.add(departure, delay);
        self.sample.add(departure, delay);
        self.bursts.add(arrival);
        PacketResult { kind, delay, variation: variations[0] }
    }

    /// The results for all packets that were added so far.
    pub fn report(&self) -> Report {
        let resolution = self.departures.resolution() + self.arrivals.resolution();
        Report {
            sequence: self.order.counts(),
            reordering: self.order.reordering(),
            reordering_detail: self.order.detail().clone(),
            delay: self.delay.clone(),
            variation: self.variation.clone(),
            clocks: ClockRelation::of(self.sender, self.receiver),
            drift_free: self.drift_free(resolution),
            bursts: self.bursts.report(),
            departures: self.departures.range,
            arrivals: self.arrivals.range,
            departure_resolution: self.departures.resolution(),
            arrival_resolution: self.arrivals.resolution(),
        }
    }

    fn drift_free(&self, resolution: Duration) -> Option<DriftFree> {
        let skew = self.hull.skew()?;
        let mut delay = Distribution::new();
        self.sample.points().iter().for_each(|(at, value)| delay.add(skew.above(*at, *value)));
        Some(DriftFree {
            skew,
            slope_error: resolution.as_nanos() as f64 / skew.base as f64,
            is_approximate: self.hull.is_thinned(),
            delay,
            is_complete: self.sample.is_complete(),
        })
    }
}

/// `later - earlier` in nanoseconds, saturating.
fn difference(later: Timestamp, earlier: Timestamp) -> i64 {
    let nanos = i128::from(later.nanos()) - i128::from(earlier.nanos());
    i64::try_from(nanos).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX })
}

/// The smallest and the largest of the added times, and the counts from which their resolution is computed.
#[derive(Clone, Copy, Debug, Default)]
struct Range {
    range: Option<(Timestamp, Timestamp)>,
    /// The number of times that were added.
    count: u64,
    /// The number of added times that are multiples of 10, of 100 and of 1000 nanoseconds.
    multiples: [u64; 3],
}

impl Range {
    fn add(&mut self, time: Timestamp) {
        self.range = Some(self.range.map_or((time, time), |(min, max)| (min.min(time), max.max(time))));
        self.count += 1;
        let mut step = 10;
        for count in &mut self.multiples {
            if !time.nanos().is_multiple_of(step) {
                break;
            }
            *count += 1;
            step *= 10;
        }
    }

    /// The largest of 1, 10, 100 and 1000 nanoseconds of which all added times are multiples. Captures have a
    /// resolution of a nanosecond or a microsecond. Times that are multiples of a larger unit come from a schedule with
    /// round gaps, not from a coarser clock. With fewer than two times the resolution is a nanosecond, because a single
    /// time can be a round number by chance.
    fn resolution(&self) -> Duration {
        let tens = self.multiples.iter().take_while(|count| self.count > 1 && **count == self.count).count();
        Duration::from_nanos(10u64.pow(tens as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    const START: u64 = 1_700_000_000_000_000_001;

    fn arrival(sequence: u64, departure: u64, arrival: u64) -> Arrival {
        Arrival {
            sequence,
            train: 0,
            burst: sequence as u32,
            index: 0,
            burst_size: 1,
            departure: Timestamp::from_nanos(START + departure),
            arrival: Timestamp::from_nanos(START + arrival),
            bytes: 200,
        }
    }

    fn good() -> ErrorEstimate {
        ErrorEstimate::of(Duration::from_micros(3), true)
    }

    #[test]
    fn a_session_without_packets_has_no_figures() {
        let report = Analyser::new(ReceiverClock::Unknown).report();
        assert_eq!(report.delay.mean(), None);
        assert_eq!(report.sequence, crate::SequenceReport::default());
        assert!(report.drift_free.is_none() && report.delay_error().is_none());
    }

    #[test]
    fn duplicates_and_undecided_packets_have_no_influence_on_the_delays() {
        let mut analyser = Analyser::new(ReceiverClock::SameAsSender);
        analyser.add(&arrival(0, 0, 100), good());
        let duplicate = analyser.add(&arrival(0, 0, 9000), good());
        assert_eq!(duplicate, PacketResult { kind: ArrivalKind::Duplicate, delay: 9000, variation: None });
        analyser.add(&arrival(crate::WINDOW + 5, 10, 110), good());
        assert_eq!(analyser.add(&arrival(1, 10, 99_999), good()).kind, ArrivalKind::Undecided);
        let report = analyser.report();
        assert_eq!((report.delay.min(), report.delay.max()), (Some(100), Some(100)));
        let s = report.sequence;
        assert_eq!(s.received, s.unique + s.duplicates + s.undecided);
        assert_eq!((s.unique, s.duplicates, s.undecided, s.lost), (2, 1, 1, crate::WINDOW + 4));
    }

    #[test]
    fn a_planted_offset_and_drift_do_not_change_the_delays_above_the_smallest() {
        let mut prng = Prng::new(7679);
        let queueing: Vec<i64> = (0..20_000).map(|_| (-50_000.0 * (1.0 - prng.unit()).ln()) as i64).collect();
        let run = |offset: i64, ppm: i64| {
            let mut analyser = Analyser::new(ReceiverClock::Unknown);
            for (i, queueing) in queueing.iter().enumerate() {
                let departure = i as i64 * 1_000_003;
                let arrival_time = departure + 300_000 + queueing + offset + departure * ppm / 1_000_000;
                analyser.add(&arrival(i as u64, departure as u64, arrival_time as u64), good());
            }
            analyser.report()
        };
        let (plain, drifting) = (run(0, 0), run(77_000_000_000, 37));
        assert_eq!(drifting.delay_error(), None, "the offset is unknown");
        let skew = drifting.drift_free.as_ref().expect("a skew");
        let plain = plain.drift_free.as_ref().expect("a skew");
        assert!((skew.skew.ppm() - plain.skew.ppm() - 37.0).abs() < 0.01, "{}", skew.skew.ppm());
        for q in [0.1, 0.5, 0.9, 0.99] {
            let (a, error) = skew.delay.quantile(q).expect("a quantile");
            let (b, _) = plain.delay.quantile(q).expect("a quantile");
            assert!(a.abs_diff(b) <= 2 * error + 2, "quantile {q}: {a} {b}");
        }
    }

    #[test]
    fn the_error_of_a_delay_is_the_sum_of_clock_errors_and_resolutions() {
        let mut analyser = Analyser::new(ReceiverClock::Synchronised(Duration::from_micros(10)));
        for i in 0..100u64 {
            let mut late = arrival(i, i * 1_000_000, 0);
            late.arrival = Timestamp::from_nanos(START / 1000 * 1000 + i * 1_001_000);
            analyser.add(&late, good());
        }
        let report = analyser.report();
        assert_eq!(report.arrival_resolution, Duration::from_micros(1));
        assert_eq!(report.departure_resolution, Duration::from_nanos(1));
        assert_eq!(report.variation_error(), Duration::from_nanos(1001));
        assert_eq!(report.delay_error(), Some(good().error() + Duration::from_micros(10) + Duration::from_nanos(1001)));
    }

    #[test]
    fn times_at_the_ends_of_the_range_do_not_overflow() {
        let mut analyser = Analyser::new(ReceiverClock::Unknown);
        for (i, (departure, time)) in [(0, u64::MAX), (u64::MAX, 0), (u64::MAX, u64::MAX), (0, 0)].iter().enumerate() {
            let arrival = Arrival {
                departure: Timestamp::from_nanos(*departure),
                arrival: Timestamp::from_nanos(*time),
                ..arrival(i as u64 * (u64::MAX / 3), 0, 0)
            };
            analyser.add(&arrival, good());
        }
        let report = analyser.report();
        assert_eq!((report.delay.min(), report.delay.max()), (Some(i64::MIN), Some(i64::MAX)));
        assert!(report.drift_free.is_some());
    }
}
