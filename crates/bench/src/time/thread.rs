//! The model of the thread that polls the NIC, as the engine thread does.

use super::noise::Interruptions;
use super::picoseconds::{MICRO, NANO, exponential};
use base::Prng;

/// The thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thread {
    /// The thread polls without pause (`--spin`), as the kernel thread of HPCAP.
    Spinning,
    /// The thread sleeps while no packet is there, and for 60 µs after a small batch, as the engine thread without
    /// `--spin`.
    Sleeping,
}

/// One poll that found packets.
#[derive(Clone, Copy, Debug)]
pub struct Poll {
    /// The time of the poll.
    pub polled: u64,
    /// The time of the last poll before it that found no packet; `None` if the poll before it found packets.
    pub idle_before: Option<u64>,
    /// The thread slept until a packet arrived.
    pub waited: bool,
    /// Number of packets found.
    pub found: usize,
    /// Number of packets taken.
    pub taken: usize,
}

/// The polls of one run, and when the thread took each packet.
#[derive(Clone, Debug, Default)]
pub struct Polls {
    /// The polls that found packets, in order.
    pub polls: Vec<Poll>,
    /// For each packet, the time at which the thread took it: the time that a clock reading per packet returns.
    pub taken_at: Vec<u64>,
}

/// A poll that finds nothing: one load of an index that another CPU or the NIC writes.
const EMPTY_POLL: u64 = 30 * NANO;
/// The work for each poll that finds packets, in addition to the work for the packets.
const BATCH_WORK: u64 = 60 * NANO;
/// The work for each packet: 20 million packets per second, the aim of the engine.
const PACKET_WORK: u64 = 50 * NANO;
/// The largest number of packets that one poll takes (`engine::BATCH`).
const BUDGET: usize = 256;
/// The batches after which the engine sleeps, and how long (`engine::worker`).
const SMALL: std::ops::Range<usize> = 8..BUDGET / 2;
const PAUSE: u64 = 60 * MICRO;
/// The time from the end of a sleep to the next instruction of the thread: at least 3 µs, mean 8 µs.
const WAKE_SHORTEST: u64 = 3 * MICRO;
const WAKE_MEAN_MORE: u64 = 5 * MICRO;

impl Thread {
    /// The name in the output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Spinning => "spinning",
            Self::Sleeping => "sleeping",
        }
    }

    /// Takes all packets, which become visible at these times.
    pub fn run(self, visible: &[u64], noise: &mut Interruptions, prng: &mut Prng) -> Polls {
        let mut out = Polls::default();
        let (mut now, mut next, mut found_to) = (0, 0, 0);
        let (mut idle_before, mut waited) = (None, false);
        while let Some(arrival) = visible.get(next) {
            if *arrival > now {
                // The thread polls in vain, until the packet is visible or other work interrupts the thread.
                let until = noise.next().min(*arrival);
                let polls = if self == Self::Spinning { until.saturating_sub(now + 1) / EMPTY_POLL } else { 0 };
                now += polls * EMPTY_POLL;
                idle_before = Some(now);
                if self == Self::Sleeping {
                    now = noise.resume((*arrival).max(now), wake(prng));
                    waited = true;
                } else {
                    now = noise.complete(now, EMPTY_POLL);
                }
                continue;
            }
            while visible.get(found_to).is_some_and(|arrival| *arrival <= now) {
                found_to += 1;
            }
            let found = found_to - next;
            let taken = found.min(BUDGET);
            out.polls.push(Poll { polled: now, idle_before: idle_before.take(), waited, found, taken });
            waited = false;
            now = noise.complete(now, BATCH_WORK);
            for _ in 0..taken {
                out.taken_at.push(now);
                now = noise.complete(now, PACKET_WORK);
            }
            next += taken;
            if self == Self::Sleeping && SMALL.contains(&taken) {
                now = noise.resume(now + PAUSE, wake(prng));
            }
        }
        out
    }
}

fn wake(prng: &mut Prng) -> u64 {
    WAKE_SHORTEST + exponential(WAKE_MEAN_MORE as f64, prng)
}

#[cfg(test)]
mod tests {
    use super::super::noise::Noise;
    use super::*;

    #[test]
    fn each_packet_is_taken_once_and_not_before_it_is_visible() {
        for thread in [Thread::Spinning, Thread::Sleeping] {
            let mut prng = Prng::new(4);
            let mut now = 0;
            let visible: Vec<u64> = (0..50_000)
                .map(|_| {
                    now += prng.below(3 * MICRO);
                    now
                })
                .collect();
            let polls = thread.run(&visible, &mut Noise::Host.events(&mut prng.clone()), &mut prng);
            assert_eq!(polls.polls.iter().map(|p| p.taken).sum::<usize>(), visible.len());
            assert!(polls.taken_at.is_sorted());
            assert!(polls.taken_at.iter().zip(&visible).all(|(taken, visible)| taken >= visible));
            let mut first = 0;
            for poll in &polls.polls {
                // Exactly the packets that were visible at the poll were found, and none was visible at an empty poll.
                assert!(visible[first + poll.found - 1] <= poll.polled);
                assert!(visible.get(first + poll.found).is_none_or(|v| *v > poll.polled));
                assert!(poll.idle_before.is_none_or(|idle| visible[first] > idle), "{poll:?}");
                first += poll.taken;
            }
        }
    }
}
