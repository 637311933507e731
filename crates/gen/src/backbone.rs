//! A model of traffic whose flows have the heavy-tailed lengths of a backbone.
//!
//! The figures are from the AGH university network in 2015, over 4.03 G unsampled flows (Jurkiewicz, Rzym, Boryło:
//! "Flow length and size distributions in campus Internet traffic", Computer Communications 167, 2021; repository
//! `flow-models`, `data/agh_2015`): 47.8 % of the flows have one packet, 84 % at most 8, 0.1 % more than 10 000; the
//! flows of more than 10 000 packets carry about 70 % of the packets; the mean is 78.6 packets of 871 bytes.
//!
//! The model draws flow lengths from four classes. Within the two classes of long flows, lengths follow power laws with
//! exponents 1 and 1/2. The inverse functions of these laws need only division and square root, whose results are equal
//! on every machine. A constant number of flows is active at a time, each packet belongs to a random active flow, and a
//! new flow replaces a flow that has ended. The first flows are drawn with the distribution of the flows that are
//! active at a random moment (in proportion to their length, at a random position within the flow), so that the packets
//! have their long-run statistics from the beginning.

use base::Prng;

/// Frame lengths, and for each the number of frames of this length among 1000 frames; the mean is 871.1 bytes.
pub(crate) const SIZES: [(u16, u16); 9] =
    [(60, 239), (64, 109), (128, 40), (256, 20), (512, 25), (750, 16), (1024, 15), (1250, 46), (1514, 490)];

/// Frame lengths of the traffic `backbone` in bytes without FCS, and for each the number of frames among 1000.
pub fn backbone_lengths() -> impl Iterator<Item = (u16, u16)> {
    SIZES.into_iter()
}

/// Of 1000 flows, the number of flows that have one packet, at most eight packets, and at most ten thousand packets.
const SINGLE: u64 = 478;
const UP_TO_EIGHT: u64 = 840;
const UP_TO_10K: u64 = 999;

/// Of the 362 flows (of 1000) with two to eight packets, the number of flows of each length.
const SHORT: [(u32, u64); 7] = [(2, 140), (3, 70), (4, 50), (5, 34), (6, 28), (7, 22), (8, 18)];

/// The bounds of the class of flows with 9 to 10 000 packets. Of 10 000 flows of this class, 6 864 follow the steeper
/// law (mean 62.7 packets) and the others the flatter law (mean 299.5 packets); the mean of all is 137.0 packets.
const MIDDLE: (f64, f64) = (9.0, 10_001.0);
const MIDDLE_STEEP: u64 = 6864;
/// Of 10 000 packets that belong to flows of 9 to 10 000 packets, the number of packets whose flow has a length drawn
/// from the steeper law.
const MIDDLE_STEEP_PACKETS: u64 = 3142;

/// The bounds of the class of flows with more than 10 000 packets; their mean is 55 020 packets.
const LONG: (f64, f64) = (10_001.0, 2_395_000.0);

/// Of 100 000 packets, the number of packets that belong to flows of one packet, of at most eight packets, and of at
/// most ten thousand packets.
const PACKETS_SINGLE: u64 = 608;
const PACKETS_SHORT: u64 = PACKETS_SINGLE + 1687;
const PACKETS_MIDDLE: u64 = PACKETS_SHORT + 27_705;

/// The active flows, and the flows drawn for the next packets. Each active flow takes 16 bytes.
#[derive(Clone, Debug)]
pub(crate) struct Backbone {
    alive: Vec<ActiveFlow>,
    next_id: u64,
    prng: Prng,
    /// The flows of the next packets. Several flows are drawn at once, so that the cache misses of the draws overlap.
    drawn: [u64; DRAWN],
    taken: usize,
}

const DRAWN: usize = 32;

#[derive(Clone, Copy, Debug)]
struct ActiveFlow {
    id: u64,
    left: u32,
}

impl Backbone {
    pub(crate) fn new(flows: u32, mut prng: Prng) -> Self {
        let alive = (0..u64::from(flows))
            .map(|id| {
                let length = length_weighted(&mut prng);
                ActiveFlow { id, left: 1 + prng.below(u64::from(length)) as u32 }
            })
            .collect();
        Self { alive, next_id: u64::from(flows), prng, drawn: [0; DRAWN], taken: DRAWN }
    }

    /// The flow of the next packet.
    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        if self.taken == DRAWN {
            self.draw();
        }
        self.taken += 1;
        self.drawn[self.taken - 1]
    }

    #[inline(never)]
    fn draw(&mut self) {
        for drawn in &mut self.drawn {
            let slot = self.prng.below(self.alive.len() as u64) as usize;
            let flow = &mut self.alive[slot];
            *drawn = flow.id;
            flow.left -= 1;
            if flow.left == 0 {
                *flow = ActiveFlow { id: self.next_id, left: length(&mut self.prng) };
                self.next_id += 1;
            }
        }
        self.taken = 0;
    }
}

/// The length in packets of a new flow.
fn length(prng: &mut Prng) -> u32 {
    match prng.below(1000) {
        0..SINGLE => 1,
        SINGLE..UP_TO_EIGHT => weighted(prng, &SHORT),
        UP_TO_EIGHT..UP_TO_10K if prng.below(10_000) < MIDDLE_STEEP => steep(prng, MIDDLE) as u32,
        UP_TO_EIGHT..UP_TO_10K => flat(prng, MIDDLE) as u32,
        _ => steep(prng, LONG) as u32,
    }
}

/// The length of the flow to which a random packet belongs: the distribution of [`length`] weighted by the length.
fn length_weighted(prng: &mut Prng) -> u32 {
    match prng.below(100_000) {
        0..PACKETS_SINGLE => 1,
        PACKETS_SINGLE..PACKETS_SHORT => {
            weighted(prng, &SHORT.map(|(length, flows)| (length, flows * u64::from(length))))
        }
        PACKETS_SHORT..PACKETS_MIDDLE if prng.below(10_000) < MIDDLE_STEEP_PACKETS => {
            steep_weighted(prng, MIDDLE) as u32
        }
        PACKETS_SHORT..PACKETS_MIDDLE => flat_weighted(prng, MIDDLE) as u32,
        _ => steep_weighted(prng, LONG) as u32,
    }
}

fn weighted(prng: &mut Prng, table: &[(u32, u64)]) -> u32 {
    let mut rest = prng.below(table.iter().map(|(_, weight)| weight).sum());
    for (value, weight) in table {
        match rest.checked_sub(*weight) {
            Some(r) => rest = r,
            None => return *value,
        }
    }
    unreachable!("the random number is less than the sum of the weights, so the loop returns a value")
}

/// Density proportional to `x^-2` (a Pareto law with exponent 1) between the bounds.
fn steep(prng: &mut Prng, (low, high): (f64, f64)) -> f64 {
    1.0 / (1.0 / low - prng.unit() * (1.0 / low - 1.0 / high))
}

/// Density proportional to `x^-1.5` (a Pareto law with exponent 1/2) between the bounds.
fn flat(prng: &mut Prng, (low, high): (f64, f64)) -> f64 {
    let root = 1.0 / low.sqrt() - prng.unit() * (1.0 / low.sqrt() - 1.0 / high.sqrt());
    1.0 / (root * root)
}

/// Draws a length from [`flat`] weighted by the length: the density is proportional to `x^-0.5`.
fn flat_weighted(prng: &mut Prng, (low, high): (f64, f64)) -> f64 {
    let root = low.sqrt() + prng.unit() * (high.sqrt() - low.sqrt());
    root * root
}

/// [`steep`] weighted by the length: density proportional to `1/x`. The inverse of this law would need a power, so
/// draws of density `x^-0.5` are accepted with probability `sqrt(low / x)`: one in five for the long flows.
fn steep_weighted(prng: &mut Prng, (low, high): (f64, f64)) -> f64 {
    loop {
        let x = flat_weighted(prng, (low, high));
        let keep = prng.unit();
        if keep * keep * x < low {
            return x;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_weights_sum_to_their_totals() {
        assert_eq!(SIZES.iter().map(|(_, w)| w).sum::<u16>(), 1000);
        assert_eq!(SHORT.iter().map(|(_, w)| w).sum::<u64>(), UP_TO_EIGHT - SINGLE);
        let mean = SIZES.iter().map(|(size, w)| u64::from(*size) * u64::from(*w)).sum::<u64>() as f64 / 1000.0;
        assert!((mean - 871.0).abs() < 0.5, "{mean}");
    }

    /// The tolerance: shares of flows within 0.1 percentage points (0.005 for the longest flows), the mean length
    /// within 5 %, the share of packets in the longest flows within 3 percentage points of 70 %. The tail is so heavy
    /// that the mean of ten million flows still has a standard error of 2 %.
    #[test]
    fn ten_million_new_flows_have_the_published_lengths() {
        let mut prng = Prng::new(2015);
        let (mut single, mut up_to_eight, mut long, mut packets, mut long_packets) = (0u64, 0u64, 0u64, 0u64, 0u64);
        const FLOWS: u64 = 10_000_000;
        for _ in 0..FLOWS {
            let n = u64::from(length(&mut prng));
            single += u64::from(n == 1);
            up_to_eight += u64::from(n <= 8);
            long += u64::from(n > 10_000);
            packets += n;
            long_packets += if n > 10_000 { n } else { 0 };
        }
        let percent = |n: u64, of: u64| 100.0 * n as f64 / of as f64;
        let near = |what: &str, value: f64, wanted: f64, within: f64| {
            assert!((value - wanted).abs() <= within, "{what}: {value}, but {wanted} in the article, seed 2015");
        };
        near("one packet", percent(single, FLOWS), 47.8, 0.1);
        near("at most 8", percent(up_to_eight, FLOWS), 84.0, 0.1);
        near("more than 10 000", percent(long, FLOWS), 0.1, 0.005);
        near("mean length", packets as f64 / FLOWS as f64, 78.6, 78.6 * 0.05);
        near("packets in the longest", percent(long_packets, packets), 70.0, 3.0);
    }

    /// For each law of flow lengths and its weighted law (such as [`steep`] and [`steep_weighted`]): the mean logarithm
    /// of the lengths that the law draws, each weighted by the length, equals the mean logarithm of the lengths that
    /// the weighted law draws.
    #[test]
    fn weighted_laws_agree_with_new_flows_weighted_by_their_length() {
        type Law = fn(&mut Prng, (f64, f64)) -> f64;
        let laws: [(Law, Law, (f64, f64)); 3] =
            [(steep, steep_weighted, MIDDLE), (flat, flat_weighted, MIDDLE), (steep, steep_weighted, LONG)];
        let mut prng = Prng::new(9);
        for (number, (fresh, weighted, bounds)) in laws.into_iter().enumerate() {
            const DRAWS: u32 = 1_000_000;
            let (mut sum, mut weights, mut sum_weighted) = (0.0, 0.0, 0.0);
            for _ in 0..DRAWS {
                let x = fresh(&mut prng, bounds);
                assert!(bounds.0 <= x && x < bounds.1, "law {number} drew the length {x}, seed 9");
                (sum, weights) = (sum + x * x.ln(), weights + x);
                let x = weighted(&mut prng, bounds);
                assert!(bounds.0 <= x && x < bounds.1, "weighted law {number} drew the length {x}, seed 9");
                sum_weighted += x.ln();
            }
            let (fresh, weighted) = (sum / weights, sum_weighted / f64::from(DRAWS));
            assert!(
                (fresh - weighted).abs() < 0.03,
                "mean logarithm of the lengths: law {number}, weighted by length: {fresh}; its weighted law: {weighted}"
            );
        }
    }

    #[test]
    fn the_classes_of_first_flows_have_the_packet_shares_of_new_flows() {
        const DRAWS: u64 = 10_000_000;
        let mut prng = Prng::new(10);
        let class = |n: u32| [1, 8, 10_000].into_iter().filter(|bound| n > *bound).count();
        let (mut fresh, mut weighted) = ([0u64; 4], [0u64; 4]);
        for _ in 0..DRAWS {
            let n = length(&mut prng);
            fresh[class(n)] += u64::from(n);
            weighted[class(length_weighted(&mut prng))] += 1;
        }
        let all: u64 = fresh.iter().sum();
        for (class, (fresh, weighted)) in fresh.iter().zip(weighted).enumerate() {
            let (fresh, weighted) = (*fresh as f64 / all as f64, weighted as f64 / DRAWS as f64);
            assert!(
                (fresh - weighted).abs() < 0.03 && (fresh / weighted - 1.0).abs() < 0.1,
                "length class {class} has {fresh} of the packets of new flows, but {weighted} of the first flows"
            );
        }
    }

    #[test]
    fn an_ended_flow_is_replaced_and_does_not_return() {
        let mut link = Backbone::new(100, Prng::new(5));
        let ids = |link: &Backbone| link.alive.iter().map(|f| f.id).collect::<HashSet<u64>>();
        let mut gone = HashSet::new();
        for _ in 0..2000 {
            let (before, fresh) = (ids(&link), link.next_id);
            let drawn: Vec<u64> = (0..DRAWN).map(|_| link.next()).collect();
            assert!(drawn.iter().all(|id| before.contains(id) || (fresh..link.next_id).contains(id)), "seed 5");
            assert!(drawn.iter().all(|id| !gone.contains(id)), "seed 5");
            let after = ids(&link);
            assert_eq!(after.len(), 100);
            gone.extend((0..link.next_id).filter(|id| !after.contains(id)));
        }
        assert!(gone.len() > 100, "only {} flows ended, seed 5", gone.len());
    }
}
