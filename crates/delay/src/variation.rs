//! Delay variation between packets with consecutive sequence numbers (RFC 3393 §1.3; the selection function takes
//! packets `i - 1` and `i`).
//!
//! The delays of the last packets are stored by sequence number, so the two packets of a pair may arrive in either
//! order.

use crate::order::WINDOW;

/// The delays of the last packets, stored by sequence number.
#[derive(Clone, Debug, Default)]
pub struct Delays {
    /// The index is the sequence number modulo [`WINDOW`]. The value is the last sequence number with this index that
    /// arrived, and the delay of its packet.
    slots: Vec<Option<(u64, i64)>>,
}

impl Delays {
    /// Adds the first copy of a packet. Returns two variations: the delay of this packet minus that of the packet with
    /// the previous sequence number, and the delay of the packet with the next sequence number minus that of this
    /// packet. A variation is `None` if the other packet has not arrived.
    pub fn add(&mut self, sequence: u64, delay: i64) -> [Option<i64>; 2] {
        if self.slots.is_empty() {
            self.slots = vec![None; WINDOW as usize];
        }
        self.slots[(sequence % WINDOW) as usize] = Some((sequence, delay));
        let of = |sequence: Option<u64>| sequence.and_then(|sequence| self.delay(sequence));
        [
            of(sequence.checked_sub(1)).map(|before| delay.saturating_sub(before)),
            of(sequence.checked_add(1)).map(|after| after.saturating_sub(delay)),
        ]
    }

    fn delay(&self, sequence: u64) -> Option<i64> {
        self.slots[(sequence % WINDOW) as usize].filter(|(stored, _)| *stored == sequence).map(|(_, delay)| delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;
    use std::collections::BTreeMap;

    #[test]
    fn all_pairs_of_consecutive_numbers_have_a_variation_in_any_order_of_arrival() {
        let seed = testkit::seed("all_pairs_of_consecutive_numbers_have_a_variation_in_any_order_of_arrival");
        let mut prng = Prng::new(seed);
        for round in 0..200 {
            let first = prng.next_u64() >> 1;
            let mut packets: Vec<(u64, u64, i64)> = Vec::new();
            for i in 0..prng.below(500) {
                if prng.below(5) > 0 {
                    packets.push((i + prng.below(200), first + i, prng.below(1 << 40) as i64 - (1 << 39)));
                }
            }
            packets.sort_unstable();
            let mut delays = Delays::default();
            let mut found: Vec<i64> = packets.iter().flat_map(|(_, n, d)| delays.add(*n, *d)).flatten().collect();
            let all: BTreeMap<u64, i64> = packets.iter().map(|(_, sequence, delay)| (*sequence, *delay)).collect();
            let mut expected: Vec<i64> =
                all.iter().filter_map(|(n, d)| n.checked_sub(1).and_then(|n| all.get(&n)).map(|b| d - b)).collect();
            found.sort_unstable();
            expected.sort_unstable();
            assert_eq!(found, expected, "seed {seed}, round {round}");
        }
    }
}
