//! Loss, duplication and reordering by sequence numbers.
//!
//! A packet is reordered if its sequence number is below that of an earlier arrival (RFC 4737 §3.3, Type-P-Reordered).
//! The extent of a reordered packet is the number of arrivals from the earliest arrival with a larger sequence number
//! to the packet (§4.2). Its late time is the time between these two arrivals (§4.3). A packet is n-reordered if the n
//! arrivals directly before it have larger sequence numbers (§5); `n` is its degree. Only the first copy of a packet
//! is an arrival in the sense of these definitions.
//!
//! For each reordered packet, the earliest arrival with a larger sequence number is an arrival whose number was larger
//! than all numbers before it. Only such arrivals are stored; they are called maxima. The sequence numbers of the
//! maxima increase in order of arrival, so a binary search finds the earliest maximum with a larger number.

use base::Timestamp;
use std::collections::VecDeque;
use std::time::Duration;

/// A packet is recognised as reordered or as a duplicate if its sequence number is below the highest by less than this
/// number. A packet with a still lower sequence number counts as undecided. This number is also the largest number of
/// maxima that are stored.
pub const WINDOW: u64 = 1 << 14;

/// The largest degree of n-reordering that is measured. Larger degrees count as this degree.
pub const DEGREE_MAX: usize = 128;

/// Counts of packets. Invariant: `received = unique + duplicates + undecided`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SequenceReport {
    /// Packets that arrived.
    pub received: u64,
    /// First copies of packets.
    pub unique: u64,
    /// Further copies of packets.
    pub duplicates: u64,
    /// Packets whose sequence number is at least [`WINDOW`] below the highest. Each is a reordered packet or a
    /// duplicate.
    pub undecided: u64,
    /// Packets that did not arrive: the number of sequence numbers from the lowest to the highest for which no packet
    /// was counted in `unique`. If there are undecided packets, the true number of lost packets may be lower by at most
    /// `undecided`.
    pub lost: u64,
    /// The lowest and the highest sequence number that arrived.
    pub range: Option<(u64, u64)>,
}

/// The reordering of packets (RFC 4737). Only the first copy of each packet is evaluated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reordering {
    /// Reordered packets.
    pub reordered: u64,
    /// The largest extent of a reordered packet, in packets.
    pub extent_max: u64,
    /// The sum of the extents of all reordered packets.
    pub extent_sum: u64,
    /// Reordered packets whose extent is a lower limit, because the earliest arrival with a larger number is no longer
    /// stored.
    pub limited_extents: u64,
    /// The largest late time of a reordered packet.
    pub late_time_max: Duration,
    /// Reordered packets with degree 3 or more. If the packets were TCP segments, the duplicate acknowledgements would
    /// have caused a retransmission of each of these packets (RFC 4737 §5).
    pub degree_3: u64,
    /// The largest degree of a reordered packet, at most [`DEGREE_MAX`].
    pub degree_max: u64,
}

/// The class of an arrival by its sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The packet has the highest sequence number so far.
    InOrder,
    /// The packet is reordered by this extent.
    Reordered(u64),
    /// A packet with this sequence number has already arrived.
    Duplicate,
    /// The sequence number is at least [`WINDOW`] below the highest.
    Undecided,
}

/// Counts arrivals by sequence number.
#[derive(Clone, Debug, Default)]
pub struct Order {
    counts: SequenceReport,
    reordering: Reordering,
    /// The index is the sequence number modulo [`WINDOW`]. The value is the last sequence number with this index that
    /// arrived, plus 1; 0 if none arrived.
    seen: Vec<u64>,
    maxima: VecDeque<Maximum>,
    /// True if maxima were removed because their number had reached [`WINDOW`].
    is_trimmed: bool,
    /// The sequence numbers of the last unique arrivals, at most [`DEGREE_MAX`], in order of arrival.
    recent: VecDeque<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Maximum {
    sequence: u64,
    /// The number of unique arrivals before this arrival.
    arrival: u64,
    time: Timestamp,
}

impl Order {
    /// Adds an arrival.
    pub fn add(&mut self, sequence: u64, time: Timestamp) -> Place {
        self.counts.received += 1;
        let place = self.place(sequence);
        match place {
            Place::Duplicate => self.counts.duplicates += 1,
            Place::Undecided => self.counts.undecided += 1,
            Place::InOrder | Place::Reordered(_) => return self.add_unique(sequence, time, place),
        }
        place
    }

    fn place(&self, sequence: u64) -> Place {
        let Some((_, highest)) = self.counts.range else { return Place::InOrder };
        if sequence > highest {
            Place::InOrder
        } else if highest - sequence >= WINDOW {
            Place::Undecided
        } else if self.has(sequence) {
            Place::Duplicate
        } else {
            Place::Reordered(0)
        }
    }

    fn has(&self, sequence: u64) -> bool {
        self.seen.get((sequence % WINDOW) as usize).is_some_and(|seen| *seen == sequence.wrapping_add(1))
    }

    fn add_unique(&mut self, sequence: u64, time: Timestamp, place: Place) -> Place {
        if self.seen.is_empty() {
            self.seen = vec![0; WINDOW as usize];
        }
        self.seen[(sequence % WINDOW) as usize] = sequence.wrapping_add(1);
        let arrival = self.counts.unique;
        self.counts.unique += 1;
        let (lowest, highest) = self.counts.range.unwrap_or((sequence, sequence));
        self.counts.range = Some((lowest.min(sequence), highest.max(sequence)));
        let place = match place {
            Place::Reordered(_) => Place::Reordered(self.count_reordered(sequence, arrival, time)),
            other => {
                if self.maxima.len() as u64 == WINDOW {
                    self.maxima.pop_front();
                    self.is_trimmed = true;
                }
                self.maxima.push_back(Maximum { sequence, arrival, time });
                other
            }
        };
        if self.recent.len() == DEGREE_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(sequence);
        place
    }

    fn count_reordered(&mut self, sequence: u64, arrival: u64, time: Timestamp) -> u64 {
        let earliest = self.maxima.partition_point(|maximum| maximum.sequence < sequence);
        let reordering = &mut self.reordering;
        reordering.reordered += 1;
        reordering.limited_extents += u64::from(earliest == 0 && self.is_trimmed);
        // The highest sequence number is always stored as a maximum, so `maxima` has an element with a larger sequence
        // number than a reordered packet.
        let extent = self.maxima.get(earliest).map_or(0, |maximum| {
            reordering.late_time_max = reordering.late_time_max.max(time.since(maximum.time));
            arrival - maximum.arrival
        });
        reordering.extent_max = reordering.extent_max.max(extent);
        reordering.extent_sum = reordering.extent_sum.saturating_add(extent);
        let degree = self.recent.iter().rev().take_while(|earlier| **earlier > sequence).count() as u64;
        reordering.degree_3 += u64::from(degree >= 3);
        reordering.degree_max = reordering.degree_max.max(degree);
        extent
    }

    /// The counts so far.
    pub fn counts(&self) -> SequenceReport {
        let span = self.counts.range.map_or(0, |(lowest, highest)| (highest - lowest).saturating_add(1));
        SequenceReport { lost: span - self.counts.unique, ..self.counts }
    }

    /// The reordering so far.
    pub const fn reordering(&self) -> Reordering {
        self.reordering
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;
    use std::collections::HashSet;

    /// The expected results: the definitions of RFC 4737 applied to the complete list of arrivals.
    fn by_definition(arrivals: &[(u64, Timestamp)]) -> (SequenceReport, Reordering) {
        let (mut seen, mut unique) = (HashSet::new(), Vec::new());
        for (sequence, time) in arrivals {
            if seen.insert(*sequence) {
                unique.push((*sequence, *time));
            }
        }
        let mut r = Reordering::default();
        for (i, (sequence, time)) in unique.iter().enumerate() {
            let Some(j) = unique[..i].iter().position(|(earlier, _)| earlier > sequence) else { continue };
            let extent = (i - j) as u64;
            let degree = unique[..i].iter().rev().take_while(|(earlier, _)| earlier > sequence).count().min(DEGREE_MAX);
            r.reordered += 1;
            r.extent_max = r.extent_max.max(extent);
            r.extent_sum += extent;
            r.late_time_max = r.late_time_max.max(time.since(unique[j].1));
            r.degree_3 += u64::from(degree >= 3);
            r.degree_max = r.degree_max.max(degree as u64);
        }
        let range = unique.iter().map(|u| u.0).min().zip(unique.iter().map(|u| u.0).max());
        let counts = SequenceReport {
            received: arrivals.len() as u64,
            unique: unique.len() as u64,
            duplicates: (arrivals.len() - unique.len()) as u64,
            undecided: 0,
            lost: range.map_or(0, |(low, high)| high - low + 1) - unique.len() as u64,
            range,
        };
        (counts, r)
    }

    fn result(arrivals: &[(u64, Timestamp)]) -> (SequenceReport, Reordering) {
        let mut order = Order::default();
        arrivals.iter().for_each(|(sequence, time)| {
            order.add(*sequence, *time);
        });
        let counts = order.counts();
        assert_eq!(counts.received, counts.unique + counts.duplicates + counts.undecided);
        (counts, order.reordering())
    }

    #[test]
    fn random_networks_agree_with_the_definitions_of_rfc_4737() {
        let seed = testkit::seed("random_networks_agree_with_the_definitions_of_rfc_4737");
        let mut prng = Prng::new(seed);
        for round in 0..300 {
            let (first, jitter) = (prng.below(1 << 40), 1 + prng.below(400));
            let (loss, duplication) = (prng.below(30), prng.below(30));
            let mut arrivals = Vec::new();
            for i in 0..prng.below(600) {
                let copies = u64::from(prng.below(100) >= loss) + u64::from(prng.below(100) < duplication);
                arrivals.extend((0..copies).map(|_| (i * 10 + prng.below(jitter), first + i)));
            }
            arrivals.sort_unstable();
            let arrivals: Vec<_> = arrivals.into_iter().map(|(t, s)| (s, Timestamp::from_nanos(t))).collect();
            assert_eq!(result(&arrivals), by_definition(&arrivals), "seed {seed}, round {round}");
        }
    }

    #[test]
    fn three_late_packets_have_the_extents_and_degrees_of_the_definition() {
        // For packets 4, 5 and 6, the earliest arrival with a larger number is packet 7, at position 3 (from 0).
        let numbers = [1, 2, 3, 7, 8, 9, 10, 4, 5, 6, 11];
        let mut order = Order::default();
        let places: Vec<Place> = numbers.iter().map(|n| order.add(*n, Timestamp::from_nanos(*n))).collect();
        assert_eq!(places[7..10], [Place::Reordered(4), Place::Reordered(5), Place::Reordered(6)]);
        assert_eq!(order.reordering().reordered, 3);
        // Directly before packet 4 there are four packets with larger numbers. Directly before packets 5 and 6 there is
        // a packet with a smaller number, so their degree is 0.
        assert_eq!((order.reordering().degree_max, order.reordering().degree_3), (4, 1));
        assert_eq!(order.counts().lost, 0);
    }

    #[test]
    fn a_packet_below_the_window_is_undecided_and_the_state_stays_bounded() {
        let mut order = Order::default();
        for n in (0..4 * WINDOW).filter(|n| n % 1000 != 7) {
            order.add(n, Timestamp::from_nanos(n));
        }
        assert_eq!(order.add(7, Timestamp::from_nanos(1 << 40)), Place::Undecided);
        assert_eq!(order.maxima.len() as u64, WINDOW);
        assert_eq!(order.counts().undecided, 1);
        let highest = 4 * WINDOW - 1;
        let late = (highest - WINDOW + 1..highest).find(|n| n % 1000 == 7).expect("a lost number");
        assert!(matches!(order.add(late, Timestamp::from_nanos(1 << 40)), Place::Reordered(extent) if extent > 15_000));
        assert_eq!(order.add(late, Timestamp::from_nanos(1 << 40)), Place::Duplicate);
    }

    #[test]
    fn sequence_numbers_up_to_the_largest_u64_are_counted() {
        let mut order = Order::default();
        for n in [0, u64::MAX, u64::MAX, u64::MAX - 1] {
            order.add(n, Timestamp::ZERO);
        }
        let counts = order.counts();
        assert_eq!((counts.unique, counts.duplicates), (3, 1));
        assert_eq!(order.reordering().reordered, 1);
    }
}
