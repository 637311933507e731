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
//!
//! The byte offset of a reordered packet (§4.4) is the sum of the lengths of the earlier arrivals with larger sequence
//! numbers. All these numbers are less than [`WINDOW`] above the number of the packet, so the lengths of the last
//! [`WINDOW`] sequence numbers are stored.

use crate::reordering_detail::{ReorderedPacket, ReorderingDetail};
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
    /// The lengths in bytes of the packets in `seen`.
    bytes: Vec<u32>,
    detail: ReorderingDetail,
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
    /// True if a packet is reordered by this arrival.
    is_discontinuity: bool,
}

impl Order {
    /// Adds an arrival of this length in bytes.
    pub fn add(&mut self, sequence: u64, time: Timestamp, bytes: u32) -> Place {
        self.counts.received += 1;
        let place = self.place(sequence);
        match place {
            Place::Duplicate => self.counts.duplicates += 1,
            Place::Undecided => self.counts.undecided += 1,
            Place::InOrder | Place::Reordered(_) => return self.add_unique(sequence, time, bytes, place),
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

    fn add_unique(&mut self, sequence: u64, time: Timestamp, bytes: u32, place: Place) -> Place {
        if self.seen.is_empty() {
            self.seen = vec![0; WINDOW as usize];
            self.bytes = vec![0; WINDOW as usize];
        }
        let slot = (sequence % WINDOW) as usize;
        (self.seen[slot], self.bytes[slot]) = (sequence.wrapping_add(1), bytes);
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
                self.maxima.push_back(Maximum { sequence, arrival, time, is_discontinuity: false });
                self.detail.runs.extend();
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
        let (extent, late) = self
            .maxima
            .get(earliest)
            .map_or((0, Duration::ZERO), |maximum| (arrival - maximum.arrival, time.since(maximum.time)));
        reordering.late_time_max = reordering.late_time_max.max(late);
        reordering.extent_max = reordering.extent_max.max(extent);
        reordering.extent_sum = reordering.extent_sum.saturating_add(extent);
        let degree = self.recent.iter().rev().take_while(|earlier| **earlier > sequence).count() as u64;
        reordering.degree_3 += u64::from(degree >= 3);
        reordering.degree_max = reordering.degree_max.max(degree);
        let late_nanos = u64::try_from(late.as_nanos()).unwrap_or(u64::MAX);
        let byte_offset = self.bytes_above(sequence);
        self.detail.add(ReorderedPacket { extent, late_nanos, byte_offset, degree });
        self.mark_discontinuity(earliest);
        extent
    }

    /// Number of bytes of the arrivals with larger sequence numbers.
    fn bytes_above(&self, sequence: u64) -> u64 {
        let highest = self.counts.range.map_or(sequence, |(_, highest)| highest);
        let above = (sequence..highest).map(|below| below + 1).filter(|number| self.has(*number));
        above.map(|number| u64::from(self.bytes[(number % WINDOW) as usize])).sum()
    }

    /// Marks a maximum as a reordering discontinuity, and adds its gap if it was not marked before.
    fn mark_discontinuity(&mut self, index: usize) {
        let Some(maximum) = self.maxima.get_mut(index) else { return };
        if std::mem::replace(&mut maximum.is_discontinuity, true) {
            return;
        }
        let later = (maximum.arrival, maximum.time);
        if let Some(earlier) = self.maxima.range(..index).rev().find(|maximum| maximum.is_discontinuity) {
            self.detail.add_gap((earlier.arrival, earlier.time), later);
        }
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

    /// The distributions of the reordering metrics so far.
    pub const fn detail(&self) -> &ReorderingDetail {
        &self.detail
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reordering_detail::{N_REORDERED, RunReport};
    use base::{Distribution, Prng};
    use std::collections::{BTreeSet, HashSet};

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
            order.add(*sequence, *time, 100);
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

    /// The metrics of RFC 4737 that have distributions, as lists in order of arrival.
    #[derive(Debug, Default, PartialEq)]
    struct Lists {
        extents: Vec<i64>,
        late_times: Vec<i64>,
        byte_offsets: Vec<i64>,
        gaps: Vec<i64>,
        gap_times: Vec<i64>,
        n_reordered: [u64; N_REORDERED],
        runs: RunReport,
    }

    /// The definitions of RFC 4737 §4.2 to §4.6 and §5.4, applied to the complete list of unique arrivals.
    fn lists(unique: &[(u64, u64, u32)]) -> Lists {
        let (mut lists, mut discontinuities, mut next_expected) = (Lists::default(), BTreeSet::new(), 0);
        for (i, (sequence, time, _)) in unique.iter().enumerate() {
            if *sequence >= next_expected {
                next_expected = sequence + 1;
                lists.runs.present += 1;
                continue;
            }
            let run = std::mem::take(&mut lists.runs.present);
            lists.runs.count += 1;
            lists.runs.sum += run;
            lists.runs.sum_of_squares += u128::from(run * run);
            lists.runs.longest = lists.runs.longest.max(run);
            let j = unique.iter().position(|(earlier, ..)| earlier > sequence).expect("a discontinuity");
            lists.extents.push((i - j) as i64);
            lists.late_times.push((time - unique[j].1) as i64);
            let qualified = unique[..i].iter().filter(|(earlier, ..)| earlier > sequence);
            lists.byte_offsets.push(qualified.map(|(.., bytes)| i64::from(*bytes)).sum());
            for n in 1..=N_REORDERED {
                let is_n = i >= n && unique[i - n..i].iter().all(|(earlier, ..)| earlier > sequence);
                lists.n_reordered[n - 1] += u64::from(is_n);
            }
            if let (true, Some(earlier)) = (!discontinuities.contains(&j), discontinuities.range(..j).next_back()) {
                lists.gaps.push((j - earlier) as i64);
                lists.gap_times.push((unique[j].1 - unique[*earlier].1) as i64);
            }
            discontinuities.insert(j);
        }
        lists
    }

    fn distribution(values: &[i64]) -> Distribution {
        let mut all = Distribution::new();
        values.iter().for_each(|value| all.add(*value));
        all
    }

    #[test]
    fn the_distributions_agree_with_the_definitions_of_rfc_4737() {
        let seed = testkit::seed("the_distributions_agree_with_the_definitions_of_rfc_4737");
        let mut prng = Prng::new(seed);
        for round in 0..300 {
            let (first, jitter, loss) = (prng.below(1 << 40), 1 + prng.below(300), prng.below(30));
            let mut arrivals = Vec::new();
            for i in 0..prng.below(500) {
                if prng.below(100) >= loss {
                    arrivals.push((i * 10 + prng.below(jitter), first + i, 60 + prng.below(1455) as u32));
                }
            }
            arrivals.sort_unstable();
            let unique: Vec<_> = arrivals.into_iter().map(|(time, sequence, bytes)| (sequence, time, bytes)).collect();
            let mut order = Order::default();
            unique.iter().for_each(|(s, time, bytes)| _ = order.add(*s, Timestamp::from_nanos(*time), *bytes));
            let (expected, found) = (lists(&unique), order.detail());
            let why = format!("seed {seed}, round {round}");
            for (values, distribution_found) in [
                (&expected.extents, &found.extent),
                (&expected.late_times, &found.late_time),
                (&expected.byte_offsets, &found.byte_offset),
                (&expected.gaps, &found.gap),
                (&expected.gap_times, &found.gap_time),
            ] {
                let expected = distribution(values);
                let summary = |d: &Distribution| {
                    let quantiles = [0.1, 0.5, 0.9].map(|q| d.quantile(q));
                    (d.count(), d.min(), d.max(), d.mean().map(f64::to_bits), quantiles)
                };
                assert_eq!(summary(distribution_found), summary(&expected), "{why}");
            }
            assert_eq!((found.n_reordered, found.runs), (expected.n_reordered, expected.runs), "{why}");
        }
    }

    #[test]
    fn two_reorderings_have_the_gap_the_runs_and_the_byte_offsets_of_the_definition() {
        // The discontinuities are packet 3, at position 1, and packet 8, at position 6 (both from 0).
        let mut order = Order::default();
        for (at, n) in [1, 3, 4, 2, 5, 6, 8, 7, 9].into_iter().enumerate() {
            order.add(n, Timestamp::from_nanos(at as u64 * 100), 1000);
        }
        let detail = order.detail();
        assert_eq!((detail.gap.min(), detail.gap_time.min(), detail.gap.count()), (Some(5), Some(500), 1));
        assert_eq!((detail.byte_offset.min(), detail.byte_offset.max()), (Some(1000), Some(2000)));
        assert_eq!(detail.n_reordered[..3], [2, 1, 0]);
        let runs = RunReport { count: 2, sum: 6, sum_of_squares: 18, longest: 3, present: 1 };
        assert_eq!((detail.runs, runs.mean(), runs.mean_of_packets()), (runs, Some(3.0), Some(3.0)));
    }

    #[test]
    fn three_late_packets_have_the_extents_and_degrees_of_the_definition() {
        // For packets 4, 5 and 6, the earliest arrival with a larger number is packet 7, at position 3 (from 0).
        let numbers = [1, 2, 3, 7, 8, 9, 10, 4, 5, 6, 11];
        let mut order = Order::default();
        let places: Vec<Place> = numbers.iter().map(|n| order.add(*n, Timestamp::from_nanos(*n), 100)).collect();
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
            order.add(n, Timestamp::from_nanos(n), 100);
        }
        assert_eq!(order.add(7, Timestamp::from_nanos(1 << 40), 100), Place::Undecided);
        assert_eq!(order.maxima.len() as u64, WINDOW);
        assert_eq!(order.counts().undecided, 1);
        let highest = 4 * WINDOW - 1;
        let late = (highest - WINDOW + 1..highest).find(|n| n % 1000 == 7).expect("a lost number");
        assert!(
            matches!(order.add(late, Timestamp::from_nanos(1 << 40), 100), Place::Reordered(extent) if extent > 15_000)
        );
        assert_eq!(order.add(late, Timestamp::from_nanos(1 << 40), 100), Place::Duplicate);
    }

    #[test]
    fn sequence_numbers_up_to_the_largest_u64_are_counted() {
        let mut order = Order::default();
        for n in [0, u64::MAX, u64::MAX, u64::MAX - 1] {
            order.add(n, Timestamp::ZERO, 100);
        }
        let counts = order.counts();
        assert_eq!((counts.unique, counts.duplicates), (3, 1));
        assert_eq!(order.reordering().reordered, 1);
    }
}
