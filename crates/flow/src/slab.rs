//! Memory for the encodings of idle-compressed flows: slots of sixteen sizes, 16 to 256 bytes, in blocks of 4 KiB.
//!
//! Invariant: a block has slots of one size while at least one of its slots is in use; afterwards the block is free for
//! slots of any size. So blocks are reused for other sizes as the flows change, and the slab never touches more memory
//! than the largest number of blocks in use at the same time (Bonwick, The Slab Allocator, USENIX 1994, section 3). A
//! new block is used only if no block of the required size has a free slot.
//!
//! The free slots of a block form a list whose links are stored in the slots.

use crate::pool::NONE;
use base::memory::{Hints, HintsExt};

/// Words in a unit; the size of a slot is a multiple of a unit.
const UNIT: usize = 2;
type Unit = [u64; UNIT];
/// Units in a block.
const BLOCK: usize = 256;
/// The number of slot sizes. The sizes are 1, 2, 3 and so on up to `SIZES` units.
const SIZES: usize = 16;
/// Words in the largest slot.
pub(crate) const MAX_WORDS: usize = SIZES * UNIT;
/// The value that marks the end of a list of free slots.
const NOWHERE: u16 = u16::MAX;

/// The state of a block.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// The previous and the next block in the list of the blocks with the same slot size and a free slot. For a free
    /// block, only `next` is used.
    before: u32,
    next: u32,
    /// Units per slot.
    size: u16,
    taken: u16,
    /// The first unit after all slots used so far, and the first unit of the slot that was freed last.
    made: u16,
    free: u16,
}

impl Block {
    const fn has_space(&self) -> bool {
        self.free != NOWHERE || self.made as usize + self.size as usize <= BLOCK
    }
}

/// The allocator.
pub(crate) struct Slab {
    units: Vec<Unit>,
    blocks: Vec<Block>,
    /// For each slot size, the first block with a free slot.
    with_free_slot: [u32; SIZES],
    /// The first free block.
    empty: u32,
    /// The largest number of blocks.
    most: usize,
    /// Number of blocks in which at least one slot is in use.
    taken: usize,
}

impl Slab {
    /// Reserves address space for this number of bytes; memory is touched on first use.
    pub fn new(bytes: usize, hints: impl Hints) -> Self {
        // A slot is identified by the index of its first unit, a `u32` other than `NONE`, which limits the number of
        // units.
        let most = (bytes / size_of::<Unit>()).min(NONE as usize) / BLOCK;
        let (units, blocks) = (hints.reserve(most * BLOCK), hints.reserve(most));
        Self { units, blocks, with_free_slot: [NONE; SIZES], empty: NONE, most, taken: 0 }
    }

    /// Stores at least one and at most [`MAX_WORDS`] words in a slot; `None` if there is no space.
    pub fn put(&mut self, words: &[u64]) -> Option<u32> {
        let size = words.len().div_ceil(UNIT);
        let at = match self.with_free_slot[size - 1] {
            NONE => self.begin(size)?,
            at => at,
        };
        let block = &mut self.blocks[at as usize];
        let first = at as usize * BLOCK;
        let unit = if block.free == NOWHERE {
            block.made += size as u16;
            block.made as usize - size
        } else {
            let unit = block.free as usize;
            block.free = self.units[first + unit][0] as u16;
            unit
        };
        block.taken += 1;
        if !block.has_space() {
            self.unlink(at);
        }
        let place = first + unit;
        for (unit, words) in self.units[place..place + size].iter_mut().zip(words.chunks(UNIT)) {
            unit[..words.len()].copy_from_slice(words);
        }
        Some(place as u32)
    }

    /// The words stored in a slot; the slice may contain one unused word more at its end.
    pub fn of(&self, place: u32) -> &[u64] {
        let size = usize::from(self.blocks[place as usize / BLOCK].size);
        self.units[place as usize..place as usize + size].as_flattened()
    }

    /// Prefetches the first 128 bytes of a slot.
    #[inline(always)]
    pub fn fetch(&self, place: u32, hints: impl Hints) {
        let first = &self.units[place as usize];
        hints.fetch(first);
        hints.prefetch(std::ptr::from_ref(first).cast::<u8>().wrapping_add(64));
    }

    /// Frees a slot.
    pub fn free(&mut self, place: u32) {
        let (at, unit) = (place as usize / BLOCK, place as usize % BLOCK);
        let block = &mut self.blocks[at];
        let had_room = block.has_space();
        self.units[place as usize][0] = block.free.into();
        block.free = unit as u16;
        block.taken -= 1;
        if block.taken == 0 {
            self.taken -= 1;
            if had_room {
                self.unlink(at as u32);
            }
            self.blocks[at].next = std::mem::replace(&mut self.empty, at as u32);
        } else if !had_room {
            self.link(at as u32);
        }
    }

    /// Frees all slots.
    pub fn clear(&mut self) {
        self.with_free_slot = [NONE; SIZES];
        self.empty = NONE;
        self.taken = 0;
        for at in (0..self.blocks.len()).rev() {
            self.blocks[at].next = std::mem::replace(&mut self.empty, at as u32);
        }
    }

    /// Bytes touched so far.
    pub fn bytes(&self) -> usize {
        self.units.len() * size_of::<Unit>() + self.blocks.len() * size_of::<Block>()
    }

    /// Bytes of the blocks in which at least one slot is in use.
    pub fn held(&self) -> usize {
        self.taken * (BLOCK * size_of::<Unit>() + size_of::<Block>())
    }

    /// Takes a free block for slots of this number of units; `None` if no block is free.
    #[cold]
    fn begin(&mut self, size: usize) -> Option<u32> {
        let block = Block { before: NONE, next: NONE, size: size as u16, taken: 0, made: 0, free: NOWHERE };
        let at = match self.empty {
            NONE if self.blocks.len() == self.most => return None,
            NONE => {
                self.units.resize(self.units.len() + BLOCK, [0; UNIT]);
                self.blocks.push(block);
                self.blocks.len() as u32 - 1
            }
            at => {
                self.empty = self.blocks[at as usize].next;
                self.blocks[at as usize] = block;
                at
            }
        };
        self.taken += 1;
        self.link(at);
        Some(at)
    }

    /// Inserts a block into the list of the blocks with the same slot size and a free slot.
    fn link(&mut self, at: u32) {
        let block = &mut self.blocks[at as usize];
        let next = std::mem::replace(&mut self.with_free_slot[usize::from(block.size) - 1], at);
        (block.before, block.next) = (NONE, next);
        if next != NONE {
            self.blocks[next as usize].before = at;
        }
    }

    /// Removes a block from the list of the blocks with the same slot size and a free slot.
    fn unlink(&mut self, at: u32) {
        let Block { before, next, size, .. } = self.blocks[at as usize];
        match before {
            NONE => self.with_free_slot[usize::from(size) - 1] = next,
            before => self.blocks[before as usize].next = next,
        }
        if next != NONE {
            self.blocks[next as usize].before = before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NoHints;
    use base::Prng;
    use std::collections::{HashMap, HashSet};

    #[test]
    fn a_slab_is_a_map_while_it_has_free_slots() {
        let seed = testkit::seed("a_slab_is_a_map_while_it_has_free_slots");
        let mut prng = Prng::new(seed);
        let mut slab = Slab::new(40 * 4096, NoHints);
        let mut model: HashMap<u32, Vec<u64>> = HashMap::new();
        let mut refused = 0;
        for step in 0..60_000_u64 {
            // Alternating phases of growth and shrinkage; the sizes in use change over time.
            let grows = (step / 4000).is_multiple_of(2);
            if prng.below(10) < if grows { 8 } else { 3 } {
                let most = [4, 32, 9, 20][step as usize / 3000 % 4];
                let words: Vec<u64> = (0..1 + prng.below(most)).map(|_| prng.next_u64()).collect();
                match slab.put(&words) {
                    Some(place) => assert!(model.insert(place, words).is_none(), "seed {seed}, step {step}"),
                    None => refused += 1,
                }
            } else if let Some(place) = model.keys().nth(prng.below(8) as usize).copied() {
                let words = model.remove(&place).expect("the slot is in use");
                let stored = slab.of(place);
                assert!(stored.starts_with(&words) && stored.len() <= words.len() + 1, "seed {seed}, step {step}");
                slab.free(place);
            }
            if prng.below(20_000) == 0 {
                slab.clear();
                model.clear();
            }
            let blocks: HashSet<u32> = model.keys().map(|place| place / BLOCK as u32).collect();
            assert_eq!(slab.held(), blocks.len() * (4096 + size_of::<Block>()), "seed {seed}, step {step}");
            assert!(slab.bytes() <= 40 * (4096 + size_of::<Block>()));
        }
        assert!(refused > 100, "seed {seed}: the slab was full only {refused} times");
        model.iter().for_each(|(place, words)| assert!(slab.of(*place).starts_with(words), "seed {seed}"));
    }

    #[test]
    fn blocks_freed_by_one_size_are_used_by_another() {
        let mut slab = Slab::new(1 << 20, NoHints);
        let small: Vec<u32> = (0..4096).map(|n| slab.put(&[n]).expect("there is space")).collect();
        let touched = slab.bytes();
        small.iter().for_each(|place| slab.free(*place));
        for n in 0..(4096 * 16) / 128 {
            slab.put(&[n; 16]).expect("there is space");
        }
        assert_eq!((slab.bytes(), slab.held()), (touched, touched));
    }

    #[test]
    fn random_allocation_and_release_leaves_few_free_slots() {
        let seed = testkit::seed("random_allocation_and_release_leaves_few_free_slots");
        let (mut prng, mut slab) = (Prng::new(seed), Slab::new(1 << 22, NoHints));
        let mut flows: Vec<(u32, usize)> = Vec::new();
        for _ in 0..200_000 {
            if flows.len() == 10_000 {
                let (place, _) = flows.swap_remove(prng.below(10_000) as usize);
                slab.free(place);
            }
            let words = [0; 20];
            let words = &words[..6 + (prng.below(8) + prng.below(8)) as usize];
            flows.push((slab.put(words).expect("there is space"), words.len() * 8));
        }
        let bytes: usize = flows.iter().map(|f| f.1).sum();
        assert!(
            slab.held() < bytes + bytes / 5,
            "seed {seed}: the blocks in use take {} bytes, the encodings {bytes} bytes",
            slab.held()
        );
    }
}
