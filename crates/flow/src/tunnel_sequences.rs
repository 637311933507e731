//! Sequence numbers of tunnels (ERSPAN II and III, GRE, GTP-U): the first and the last number that each direction of a
//! flow had in the current record.
//!
//! Invariant: if the flow at an index is in a tunnel, the values at this index belong to that flow; for other flows the
//! values are not read.
//!
//! Few flows have sequence numbers, and the entries of flows have no free bytes. Therefore the numbers are stored
//! separately, in blocks that are allocated when the first flow of a block has a number. The values remain while a flow
//! is compressed. For flows without sequence numbers, the only cost is one test of a byte of the key.

/// Flows per block.
const FLOWS: usize = 64;

/// The tunnel sequence numbers of one flow.
#[derive(Clone, Copy, Debug, Default)]
struct SequenceRange {
    first: [u32; 2],
    last: [u32; 2],
    /// For each direction, true if a packet of this direction in the current record had a sequence number.
    there: [bool; 2],
}

const _: () = assert!(size_of::<SequenceRange>() == BYTES);

/// Number of bytes that the sequence numbers of one flow take.
pub(crate) const BYTES: usize = 20;

/// The tunnel sequence numbers of all flows.
#[derive(Default)]
pub(crate) struct TunnelSequences {
    blocks: Vec<Option<Box<[SequenceRange; FLOWS]>>>,
    count: usize,
}

impl TunnelSequences {
    pub fn bytes(&self) -> usize {
        self.count * FLOWS * BYTES + self.blocks.len() * size_of::<Option<Box<[SequenceRange; FLOWS]>>>()
    }

    /// Begins a record, in which no packet has had a sequence number yet.
    #[inline(always)]
    pub fn begin(&mut self, flow: u32) {
        if let Some(Some(block)) = self.blocks.get_mut(flow as usize / FLOWS) {
            block[flow as usize % FLOWS].there = [false; 2];
        }
    }

    /// Records the sequence number of a packet.
    pub fn note(&mut self, flow: u32, side: usize, number: u32) {
        let (at, place) = (flow as usize / FLOWS, flow as usize % FLOWS);
        if self.blocks.len() <= at {
            self.blocks.resize_with(at + 1, || None);
        }
        let block = self.blocks[at].get_or_insert_with(|| {
            self.count += 1;
            Box::new([SequenceRange::default(); FLOWS])
        });
        let numbered = &mut block[place];
        if !numbered.there[side] {
            (numbered.there[side], numbered.first[side]) = (true, number);
        }
        numbered.last[side] = number;
    }

    /// The first and the last sequence number of each direction.
    pub fn of(&self, flow: u32) -> [Option<(u32, u32)>; 2] {
        let Some(Some(block)) = self.blocks.get(flow as usize / FLOWS) else { return [None; 2] };
        let SequenceRange { first, last, there } = block[flow as usize % FLOWS];
        [0, 1].map(|side| there[side].then_some((first[side], last[side])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;
    use std::collections::BTreeMap;

    #[test]
    fn sequence_numbers_are_a_map_with_blocks_allocated_on_first_use() {
        let seed = testkit::seed("sequence_numbers_are_a_map_with_blocks_allocated_on_first_use");
        let mut prng = Prng::new(seed);
        let (mut numbers, mut map) = (TunnelSequences::default(), BTreeMap::<(u32, usize), (u32, u32)>::new());
        for _ in 0..20_000 {
            // Two blocks in use, far from each other.
            let flow = [0, 6400][prng.below(2) as usize] + prng.below(64) as u32;
            let (side, number) = (prng.below(2) as usize, prng.next_u64() as u32);
            if prng.below(5) == 0 {
                numbers.begin(flow);
                map.retain(|(of, _), _| *of != flow);
            } else {
                numbers.note(flow, side, number);
                map.entry((flow, side)).or_insert((number, number)).1 = number;
            }
            let other = prng.below(7000) as u32;
            for flow in [flow, other] {
                assert_eq!(numbers.of(flow), [0, 1].map(|s| map.get(&(flow, s)).copied()), "seed {seed}");
            }
        }
        assert_eq!(numbers.bytes(), 2 * 64 * BYTES + 101 * 8, "seed {seed}");
    }
}
