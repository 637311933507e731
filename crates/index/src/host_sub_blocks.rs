//! Maps the hosts of a block to the sub-blocks (sixteenths) in which they occur, so that a query for one host reads 64
//! KiB instead of 1 MiB.
//!
//! A group is a table of 16 rows and 16 columns; each column stands for a sub-block. A host has one row in each half of
//! its group, and it may occur in the sub-blocks that are marked in both of its rows. Rows are marked for each packet,
//! even if its tuple is not new, because one multiplication and two words per host cost less than a list of the hosts
//! of each sub-block. The groups are folded like those of other kinds, but only if the fold adds almost no false
//! positives, because each false positive costs a read of 64 KiB.
//!
// PERF: 24 → 9 instructions per host of a packet. The 24 instructions were needed with complete groups in memory, where
// a row is found by shifts within a word. With the two halves in separate arrays, rows are separate 16-bit elements,
// and the second row number is computed from the first.

use crate::set::Group;
use crate::sub_blocks::{SUB_BLOCKS, SubBlockMask};

/// Number of groups while the block is being filled. With 1500 pairs of host and sub-block in a block, the false
/// positive rate for hosts that are not in the block is 1/30.
const GROUPS: usize = 64;

/// Number of rows in each half of a group, the table of hosts and sub-blocks with 16 rows.
const ROWS: usize = 8;

/// A hash shifted right by this number of bits is the number of the group (upper bits) and of the first row (lower
/// bits).
const FIRST_ROW: u32 = u64::BITS - (GROUPS * ROWS).trailing_zeros();

/// The matrices of hosts and sub-blocks of one block while its packets arrive. One array has the rows of the first half
/// of every group, the other array those of the second half.
pub(crate) struct HostMapBuilder {
    halves: [Box<[u16; GROUPS * ROWS]>; 2],
    /// The bit mask of the current sub-block; the set bit is that of its column.
    column: u16,
    groups: Box<[Group; GROUPS]>,
}

/// The row numbers of a host in the first and second array of [`HostMapBuilder`]. The second row is the first row XOR
/// three bits of the hash that do not select the first row.
#[inline(always)]
fn rows_of(hash: u64) -> [usize; 2] {
    let first = (hash >> FIRST_ROW) as usize;
    [first, first ^ ((hash >> 46) as usize % ROWS)]
}

/// The sub-blocks in which the host with this hash may occur; `group` is the group of the host.
#[inline]
pub(crate) fn sub_block_mask(group: &Group, hash: u64) -> SubBlockMask {
    let row = |half: usize, row: usize| (group[2 * half + row / 4] >> (SUB_BLOCKS * (row % 4))) as u16;
    let [a, b] = rows_of(hash).map(|row| row % ROWS);
    SubBlockMask(row(0, a) & row(1, b))
}

impl HostMapBuilder {
    pub fn new() -> Self {
        let half = || Box::new([0; GROUPS * ROWS]);
        Self { halves: [half(), half()], column: 1, groups: Box::new([[0; 4]; GROUPS]) }
    }

    /// Sets the current sub-block, in which the records of the next packets begin.
    pub fn enter(&mut self, part: usize) {
        self.column = 1 << part.min(SUB_BLOCKS - 1);
    }

    /// Marks the current sub-block for a host.
    #[inline(always)]
    pub fn mark(&mut self, hash: u64) {
        for (half, row) in self.halves.iter_mut().zip(rows_of(hash)) {
            half[row % (GROUPS * ROWS)] |= self.column;
        }
    }

    /// The groups, and an estimate of the number of marked pairs of host and sub-block.
    pub fn filled(&mut self) -> (&[Group], usize) {
        let (mut pairs, [a, b]) = (0, &self.halves);
        for (group, (a, b)) in self.groups.iter_mut().zip(a.as_chunks::<ROWS>().0.iter().zip(b.as_chunks::<ROWS>().0)) {
            let word = |rows: &[u16]| rows.iter().rev().fold(0, |word, row| word << SUB_BLOCKS | u64::from(*row));
            *group = [word(&a[..4]), word(&a[4..]), word(&b[..4]), word(&b[4..])];
            pairs += (group[0].count_ones() + group[1].count_ones()) as usize;
        }
        (&self.groups[..], pairs)
    }

    pub fn clear(&mut self) {
        self.halves.iter_mut().for_each(|half| half.fill(0));
        self.column = 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{self, KeyKind};
    use crate::set_sizing::{self, Occupancy};
    use base::Prng;
    use std::collections::BTreeSet;

    #[test]
    fn every_marked_sub_block_is_found_at_any_size_and_few_others() {
        let seed = testkit::seed("every_marked_sub_block_is_found_at_any_size_and_few_others");
        let mut prng = Prng::new(seed);
        let mut builder = HostMapBuilder::new();
        for pairs in [1, 20, 300, 1500, 5000] {
            builder.clear();
            let mut marked = BTreeSet::new();
            for _ in 0..pairs {
                let (host, part) = (prng.below(pairs) as u32, prng.below(SUB_BLOCKS as u64) as usize);
                builder.enter(part);
                builder.mark(key::place_v4(host));
                marked.insert((host, part));
            }
            let (groups, counted) = builder.filled();
            let groups = groups.to_vec();
            let groups = &groups[..];
            let mut set = set_sizing::fold(groups, GROUPS);
            let mut share = [Occupancy::of(KeyKind::HostSubBlocks, groups, counted)];
            set_sizing::fit(&mut share, 2048);
            let estimate = share[0].wrong();
            let fitting = share[0].set(groups, counted);
            let wrong = |set: &crate::Set| {
                let other = 1 << 24..(1 << 24) + 4000u32;
                let masks =
                    other.map(|host| sub_block_mask(&set.may_contain(key::place_v4(host)), key::place_v4(host)));
                f64::from(masks.map(|mask| mask.0.count_ones()).sum::<u32>()) / (16.0 * 4000.0)
            };
            let measured = wrong(&fitting);
            // Two hosts of one group have the same rows with a probability of 1/64, which the estimate ignores.
            assert!(
                measured < 1.6 * estimate + 1.0 / 64.0 && estimate < 2.5 * measured + 2e-2,
                "seed {seed}: {pairs} pairs: measured {measured}, estimated {estimate}"
            );
            loop {
                for (host, part) in &marked {
                    let hash = key::place_v4(*host);
                    assert!(sub_block_mask(&set.may_contain(hash), hash).has(*part), "seed {seed}: {pairs} pairs");
                }
                if set.bytes() == crate::GROUP {
                    break;
                }
                set.fold();
            }
        }
    }
}
