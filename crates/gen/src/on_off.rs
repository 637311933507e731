//! Self-similar traffic: the sum of many sources that are on and off in turn, with heavy-tailed durations of both
//! states.
//!
//! While a source is on, it sends packets with equal gaps; while it is off, it sends nothing. If the durations have a
//! Pareto distribution with exponent `a` between 1 and 2, the sum of many sources is self-similar with the Hurst
//! parameter `(3 - a) / 2` (Willinger, Taqqu, Sherman, Wilson: "Self-similarity through high-variability", IEEE/ACM
//! Transactions on Networking 5(1), 1997). If the durations have an exponential distribution, the Hurst parameter is
//! 1/2.

use crate::distribution::Distribution;
use base::Prng;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The largest number of sources.
pub const MAX_SOURCES: u32 = 1 << 20;

/// The sources of self-similar traffic.
#[derive(Clone, Debug, PartialEq)]
pub struct OnOff {
    /// Number of sources, 1 to 1 048 576.
    pub sources: u32,
    /// Distribution of the durations of the on state, in nanoseconds.
    pub on: Distribution,
    /// Distribution of the durations of the off state, in nanoseconds.
    pub off: Distribution,
    /// The gap between the packets of a source that is on, in nanoseconds, at least 1.
    pub gap: u64,
}

/// The departure times of the packets of all sources.
#[derive(Clone, Debug)]
pub struct OnOffDepartures {
    settings: OnOff,
    prng: Prng,
    /// For each source, the time of its next packet, the number of the source, and the end of its on state. Times are
    /// in nanoseconds.
    next: BinaryHeap<Reverse<(u64, u32, u64)>>,
}

impl OnOffDepartures {
    /// Departures from time 0 on. At time 0, each source is at a random moment of its off state.
    pub fn new(settings: OnOff, seed: u64) -> Self {
        let mut prng = Prng::new(seed);
        let mut next = BinaryHeap::with_capacity(settings.sources as usize);
        for source in 0..settings.sources {
            let off = settings.off.sample(&mut prng) * prng.unit();
            let on = settings.on.sample(&mut prng);
            let begin = off.round() as u64;
            next.push(Reverse((begin, source, begin.saturating_add(on.round() as u64))));
        }
        Self { settings, prng, next }
    }

    /// The time of the next packet in nanoseconds, and the number of its source. A source sends at least one packet in
    /// each on state.
    pub fn depart(&mut self) -> (u64, u32) {
        let Some(Reverse((time, source, end))) = self.next.pop() else { return (u64::MAX, 0) };
        let following = time.saturating_add(self.settings.gap.max(1));
        let state = if following < end {
            (following, source, end)
        } else {
            let off = self.settings.off.sample(&mut self.prng).round() as u64;
            let on = self.settings.on.sample(&mut self.prng).round() as u64;
            let begin = end.max(following).saturating_add(off);
            (begin, source, begin.saturating_add(on))
        };
        self.next.push(Reverse(state));
        (time, source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The Hurst parameter `H`, estimated by the variance-time plot: the variance of the mean of `m` consecutive counts
    /// is proportional to `m^(2H-2)`.
    fn hurst(counts: &[f64]) -> f64 {
        let variance = |m: usize| {
            let means: Vec<f64> = counts.chunks_exact(m).map(|chunk| chunk.iter().sum::<f64>() / m as f64).collect();
            let mean = means.iter().sum::<f64>() / means.len() as f64;
            means.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / means.len() as f64
        };
        let points: Vec<(f64, f64)> =
            (0..8).map(|n| 1usize << n).map(|m| ((m as f64).ln(), variance(m).ln())).collect();
        let n = points.len() as f64;
        let (sx, sy) = points.iter().fold((0.0, 0.0), |(sx, sy), (x, y)| (sx + x, sy + y));
        let (sxx, sxy) = points.iter().fold((0.0, 0.0), |(sxx, sxy), (x, y)| (sxx + x * x, sxy + x * y));
        1.0 + (n * sxy - sx * sy) / (n * sxx - sx * sx) / 2.0
    }

    /// The number of packets in each interval of 100 ms, over 3000 s.
    fn counts(duration: &str, seed: u64) -> Vec<f64> {
        let duration: Distribution = duration.parse().unwrap();
        let settings = OnOff { sources: 100, on: duration.clone(), off: duration, gap: 50_000_000 };
        let mut departures = OnOffDepartures::new(settings, seed);
        let mut counts = vec![0.0; 30_000];
        loop {
            let (time, _) = departures.depart();
            match counts.get_mut((time / 100_000_000) as usize) {
                Some(count) => *count += 1.0,
                None => return counts,
            }
        }
    }

    #[test]
    fn heavy_tailed_durations_make_self_similar_traffic_and_exponential_durations_do_not() {
        let seed = 18;
        // Theory: (3 - 1.2) / 2 = 0.9 for infinitely many sources and scales; the estimate from finite scales is lower.
        let heavy = hurst(&counts("pareto:1.2:50ms:1000s", seed));
        let light = hurst(&counts("exp:50ms", seed));
        assert!((0.75..1.0).contains(&heavy), "Hurst parameter {heavy} with exponent 1.2, seed {seed}");
        assert!((0.4..0.62).contains(&light), "Hurst parameter {light} with exponential durations, seed {seed}");
    }

    #[test]
    fn times_do_not_decrease_and_each_source_keeps_its_gap() {
        let settings = OnOff {
            sources: 20,
            on: Distribution::Exponential(1e6),
            off: Distribution::Uniform(0.0, 1e6),
            gap: 10_000,
        };
        let mut departures = OnOffDepartures::new(settings, 5);
        let (mut before, mut last) = (0, vec![None; 20]);
        for _ in 0..50_000 {
            let (time, source) = departures.depart();
            assert!(time >= before, "seed 5");
            let previous: Option<u64> = last[source as usize].replace(time);
            assert!(previous.is_none_or(|previous| time - previous >= 10_000), "source {source}, seed 5");
            before = time;
        }
    }
}
