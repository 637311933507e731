//! The model of the NIC: when the descriptor of a frame becomes visible to the thread.

use super::picoseconds::{MICRO, NANO, exponential};
use base::Prng;

/// Delay from the last bit on the wire to the write of the descriptor. The value has no influence on inter-arrival
/// times. PCIe writes of a NIC take 0.5 to 1 µs (Neugebauer et al., "Understanding PCIe performance for end host
/// networking", SIGCOMM 2018).
const DMA: u64 = 900 * NANO;
/// Mean of the random part of the delay, which is distributed exponentially. With 20 ns, 99 % of the delays are within
/// 92 ns; Neugebauer et al. measured 80 ns on a server CPU.
const DMA_JITTER: u64 = 20 * NANO;

/// The way in which the NIC writes descriptors into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Card {
    /// Each descriptor at once, as the NIC of the thesis (Intel 82599) in its default setting.
    Immediate,
    /// Four descriptors (one cache line) at a time, or those of the last 2 µs, as the drivers i40e and ice set up for
    /// polling (write-back on interrupt throttle).
    Coalesced,
}

/// Number of descriptors that a coalescing NIC writes together.
const GROUP: usize = 4;
/// Longest time for which a coalescing NIC holds a descriptor back.
const HOLD: u64 = 2 * MICRO;

impl Card {
    /// The name in the output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Immediate => "immediate",
            Self::Coalesced => "coalesced",
        }
    }

    /// The time at which the descriptor of each frame becomes visible. The NIC keeps the order of the frames.
    pub fn visible(self, departures: &[u64], prng: &mut Prng) -> Vec<u64> {
        let mut last = 0;
        let mut visible = Vec::with_capacity(departures.len());
        let mut write = |departure: u64, frames: usize, visible: &mut Vec<u64>| {
            last = (departure + DMA + exponential(DMA_JITTER as f64, prng)).max(last);
            visible.resize(visible.len() + frames, last);
        };
        match self {
            Self::Immediate => departures.iter().for_each(|departure| write(*departure, 1, &mut visible)),
            Self::Coalesced => {
                let mut next = 0;
                while let Some(first) = departures.get(next) {
                    let held = departures[next..].iter().take(GROUP).take_while(|d| **d <= first + HOLD).count();
                    let at = if held == GROUP { departures[next + GROUP - 1] } else { first + HOLD };
                    write(at, held, &mut visible);
                    next += held;
                }
            }
        }
        visible
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coalescing_card_writes_groups_of_four_or_after_two_microseconds() {
        let departures = [0, 100, 200, 300, 10_000, 10_500].map(|nanos| nanos * NANO);
        let visible = Card::Coalesced.visible(&departures, &mut Prng::new(1));
        assert_eq!(visible[0], visible[3]);
        assert!(visible[0] >= 300 * NANO + DMA);
        assert_eq!(visible[4], visible[5]);
        assert!(visible[4] >= 12_000 * NANO + DMA);
    }

    #[test]
    fn the_order_of_frames_is_kept() {
        let departures: Vec<u64> = (0..1000).map(|n| n * 10 * NANO).collect();
        for card in [Card::Immediate, Card::Coalesced] {
            let visible = card.visible(&departures, &mut Prng::new(2));
            assert!(visible.is_sorted() && visible.len() == departures.len());
            assert!(visible.iter().zip(&departures).all(|(v, d)| *v >= d + DMA));
        }
    }
}
