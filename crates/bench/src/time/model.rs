//! A discrete-event model of the arrival of frames at a polling thread, in which the departure time of each frame is
//! known exactly.
//!
//! Frames leave the sender one after the other (`link`). The NIC writes each frame and its descriptor into memory
//! (`card`). The polling thread finds the descriptors and takes the packets (`thread`), and is interrupted by other
//! work of its CPU (`noise`). All times of the model are picoseconds.
//!
//! The parameters are properties of hardware and kernel, taken from the sources named at each constant, and are equal
//! for all methods of timestamping. They are not fitted to the figures of the thesis.

use super::card::Card;
use super::noise::Noise;
use super::picoseconds::exponential;
use super::thread::{Polls, Thread};
use base::Prng;

/// Picoseconds for which one byte occupies a link of 10 Gb/s.
pub const BYTE: u64 = 800;
/// The rate of the link in megabits per second.
pub const LINK_MBPS: u32 = 10_000;

/// The frames on the link.
#[derive(Clone, Debug)]
pub struct Link {
    /// Lengths in bytes without FCS.
    pub lengths: Vec<u32>,
    /// The time at which the last bit of each frame left the sender.
    pub departures: Vec<u64>,
}

/// The lengths of the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lengths {
    /// All frames have this length.
    Constant(u32),
    /// The lengths of the traffic `backbone` of the simulator: mean 871 bytes.
    Backbone,
}

impl Lengths {
    /// Length and number of frames among 1000 frames.
    fn distribution(self) -> Vec<(u32, u32)> {
        match self {
            Self::Constant(len) => vec![(len, 1000)],
            Self::Backbone => r#gen::backbone_lengths().map(|(len, share)| (len.into(), share.into())).collect(),
        }
    }

    /// Mean length of a frame in bytes.
    pub fn mean(self) -> f64 {
        self.distribution().iter().map(|(len, share)| f64::from(len * share)).sum::<f64>() / 1000.0
    }

    /// The load of the link, from 0 to 1, if the frames have this many bits per second.
    pub fn load(self, bits_per_second: f64) -> f64 {
        let overhead = f64::from(timestamping::WIRE_OVERHEAD);
        bits_per_second / 1e6 / f64::from(LINK_MBPS) * (self.mean() + overhead) / self.mean()
    }
}

impl Link {
    /// `frames` frames at this load, from 0 (exclusive) to 1. The gaps between the frames are distributed
    /// exponentially: the frames of many independent senders. At load 1 there are no gaps.
    pub fn new(lengths: Lengths, load: f64, frames: usize, prng: &mut Prng) -> Self {
        let distribution = lengths.distribution();
        let overhead = f64::from(timestamping::WIRE_OVERHEAD);
        let mean_gap = (lengths.mean() + overhead) * BYTE as f64 * (1.0 - load) / load;
        let (mut now, mut link) = (0, Self { lengths: Vec::new(), departures: Vec::new() });
        for _ in 0..frames {
            let mut pick = prng.below(1000) as u32;
            let chosen = distribution.iter().find(|(_, share)| {
                let found = pick < *share;
                pick = pick.wrapping_sub(*share);
                found
            });
            let len = chosen.map_or(1514, |(len, _)| *len);
            now += exponential(mean_gap, prng) + u64::from(len + timestamping::WIRE_OVERHEAD) * BYTE;
            link.lengths.push(len);
            link.departures.push(now);
        }
        link
    }
}

/// Runs the model: the frames of the link through card and thread.
pub fn run(link: &Link, card: Card, thread: Thread, noise: Noise, prng: &mut Prng) -> Polls {
    let visible = card.visible(&link.departures, prng);
    thread.run(&visible, &mut noise.events(prng), prng)
}
