//! The timestamps that each method gives to the packets of a run of the model, and their errors.

use super::model::{LINK_MBPS, Link};
use super::picoseconds::NANO;
use super::thread::Polls;
use crate::stats::percentile;
use base::Timestamp;
use serde::Serialize;
use timestamping::{Batch, BatchMethod, ErrorEstimate, LinkRate, Stamper};

/// A method of timestamping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The clock is read for each packet.
    Poll,
    /// The clock is read once for each batch.
    Batch(BatchMethod),
}

/// The errors of the time between successive packets: the measured time less the true time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct InterArrivalError {
    /// Mean in nanoseconds.
    pub mean_ns: f64,
    /// Standard deviation in nanoseconds.
    pub deviation_ns: f64,
    /// 99.9th percentile of the absolute values in nanoseconds.
    pub p999_ns: f64,
}

impl Method {
    /// All methods, in the order of the output.
    pub const ALL: [Self; 5] = [
        Self::Batch(BatchMethod::Batch),
        Self::Batch(BatchMethod::Udts),
        Self::Batch(BatchMethod::Wdts),
        Self::Poll,
        Self::Batch(BatchMethod::Adaptive),
    ];

    /// The name in the output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Poll => "poll",
            Self::Batch(method) => method.name(),
        }
    }

    /// The timestamps of all packets in nanoseconds, and their estimated error.
    pub fn timestamps(self, link: &Link, polls: &Polls) -> (Vec<u64>, ErrorEstimate) {
        match self {
            Self::Poll => poll(polls),
            Self::Batch(method) => batches(method, link, polls),
        }
    }
}

fn poll(polls: &Polls) -> (Vec<u64>, ErrorEstimate) {
    let mut estimate = ErrorEstimate::default();
    let (mut first, mut since) = (0, 0);
    for poll in &polls.polls {
        since = poll.idle_before.unwrap_or(since);
        for taken in &polls.taken_at[first..first + poll.taken] {
            estimate.add_window(1, (taken - since) / NANO);
        }
        since = poll.polled;
        first += poll.taken;
    }
    (polls.taken_at.iter().map(|taken| START + taken / NANO).collect(), estimate)
}

fn batches(method: BatchMethod, link: &Link, polls: &Polls) -> (Vec<u64>, ErrorEstimate) {
    let mut stamper = Stamper::new(method, LinkRate::from_mbps(LINK_MBPS));
    let (mut all, mut stamps) = (Vec::with_capacity(link.lengths.len()), Vec::new());
    let time = |picoseconds: u64| Timestamp::from_nanos(START + picoseconds / NANO);
    for poll in &polls.polls {
        if let Some(idle) = poll.idle_before {
            stamper.idle(time(idle));
        }
        let lengths = &link.lengths[all.len()..all.len() + poll.taken];
        let batch = Batch { lengths, found: poll.found, polled: time(poll.polled), waited: poll.waited };
        stamper.stamp(&batch, &mut stamps);
        all.extend(stamps.iter().map(|t| t.nanos()));
    }
    (all, stamper.take_estimate())
}

/// The model begins at this time in nanoseconds, because timestamp zero means that there is no timestamp.
const START: u64 = 1_000_000_000;

impl InterArrivalError {
    /// Compares timestamps in nanoseconds with departures in picoseconds.
    pub fn of(timestamps: &[u64], departures: &[u64]) -> Self {
        let gaps = timestamps.windows(2).map(|t| t[1] as f64 - t[0] as f64);
        let truth = departures.windows(2).map(|d| (d[1] as f64 - d[0] as f64) / NANO as f64);
        let errors: Vec<f64> = gaps.zip(truth).map(|(gap, truth)| gap - truth).collect();
        let n = errors.len().max(1) as f64;
        let mean = errors.iter().sum::<f64>() / n;
        let variance = errors.iter().map(|e| (e - mean).powi(2)).sum::<f64>() / n;
        let mut absolute: Vec<f64> = errors.iter().map(|e| e.abs()).collect();
        absolute.sort_by(f64::total_cmp);
        Self { mean_ns: mean, deviation_ns: variance.sqrt(), p999_ns: percentile(&absolute, 99.9) }
    }
}

/// The standard deviation in nanoseconds of the timestamps themselves around their mean delay.
pub fn absolute_deviation(timestamps: &[u64], departures: &[u64]) -> f64 {
    let delay = |(t, d): (&u64, &u64)| *t as f64 - *d as f64 / NANO as f64;
    let n = timestamps.len().max(1) as f64;
    let mean = timestamps.iter().zip(departures).map(delay).sum::<f64>() / n;
    (timestamps.iter().zip(departures).map(delay).map(|d| (d - mean).powi(2)).sum::<f64>() / n).sqrt()
}

#[cfg(test)]
mod tests {
    use super::super::card::Card;
    use super::super::model::{Lengths, run};
    use super::super::noise::Noise;
    use super::super::thread::Thread;
    use super::*;
    use base::Prng;

    fn deviations(lengths: Lengths, load: f64, card: Card, thread: Thread, frames: usize) -> [f64; 5] {
        let mut prng = Prng::new(load.to_bits());
        let link = Link::new(lengths, load, frames, &mut prng);
        let polls = run(&link, card, thread, Noise::Host, &mut prng);
        Method::ALL.map(|method| {
            let (times, _) = method.timestamps(&link, &polls);
            assert!(times.is_sorted(), "{} goes back", method.name());
            InterArrivalError::of(&times, &link.departures).deviation_ns
        })
    }

    const TRAFFIC: [Lengths; 2] = [Lengths::Constant(1514), Lengths::Backbone];

    #[test]
    fn adaptive_is_within_a_tenth_of_the_better_pure_method_at_every_load() {
        for card in [Card::Immediate, Card::Coalesced] {
            for thread in [Thread::Spinning, Thread::Sleeping] {
                for lengths in TRAFFIC {
                    for percent in 1..=100 {
                        let [_, _, wdts, poll, adaptive] =
                            deviations(lengths, f64::from(percent) / 100.0, card, thread, 20_000);
                        assert!(
                            adaptive <= 1.1 * wdts.min(poll),
                            "{lengths:?} at {percent} %, {card:?}, {thread:?}: wdts {wdts:.0}, poll {poll:.0}, \
                             adaptive {adaptive:.0} ns"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_spinning_thread_reaches_the_accuracy_of_the_thesis() {
        for lengths in TRAFFIC {
            let [_, _, _, _, saturated] = deviations(lengths, 1.0, Card::Immediate, Thread::Spinning, 200_000);
            assert!(saturated <= 111.0, "{lengths:?} at line rate: {saturated:.0} ns");
        }
        let load = Lengths::Backbone.load(564e6);
        let [_, _, _, _, original] = deviations(Lengths::Backbone, load, Card::Immediate, Thread::Spinning, 200_000);
        assert!(original <= 418.0, "at 564 Mb/s: {original:.0} ns");
    }

    #[test]
    fn the_estimate_of_adaptive_is_within_a_factor_of_two_of_the_true_deviation() {
        for thread in [Thread::Spinning, Thread::Sleeping] {
            for load in [0.05, 0.5, 1.0] {
                let mut prng = Prng::new(9);
                let link = Link::new(Lengths::Backbone, load, 100_000, &mut prng);
                let polls = run(&link, Card::Immediate, thread, Noise::Host, &mut prng);
                let (times, estimate) = Method::Batch(BatchMethod::Adaptive).timestamps(&link, &polls);
                let (real, said) = (absolute_deviation(&times, &link.departures), estimate.standard_deviation());
                let ratio = said.as_nanos() as f64 / real;
                assert!((0.5..2.0).contains(&ratio), "{thread:?} at load {load}: {said:?} estimated, {real:.0} ns");
            }
        }
    }

    #[test]
    fn exact_timestamps_have_no_error() {
        let departures = [1000, 5000, 6000];
        let error = InterArrivalError::of(&[101, 105, 106], &departures);
        assert_eq!(error, InterArrivalError { mean_ns: 0.0, deviation_ns: 0.0, p999_ns: 0.0 });
        assert_eq!(absolute_deviation(&[101, 105, 106], &departures), 0.0);
        assert_eq!(InterArrivalError::of(&[100, 200], &[0, 90_000]).mean_ns, 10.0);
    }
}
