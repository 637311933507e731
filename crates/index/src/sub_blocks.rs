//! The sub-blocks (sixteenths) of a block, so that a query can read and verify a packet without reading the complete
//! block of 1 MiB.
//!
//! A *sub-block* has 64 KiB. For each sub-block, the entry of the block gives the offset of the first record that
//! begins in it, and the CRC32C of the block's bytes up to this offset, which is a by-product of the checksum of the
//! block. Two such checksums verify the bytes between them: the CRC32C of these bytes, started with the first checksum,
//! must give the second. So any run of sub-blocks can be read and verified separately, and no run begins or ends within
//! a record, except at the limits of the block.
//!
//! ```text
//! 16 × (offset of the first record u32, CRC32C u32)          offset 2^32 - 1: no record begins in the sub-block
//! ```

use crate::bytes::Cursor;
use std::ops::Range;

/// The value in place of an offset if no record begins in a sub-block.
pub(crate) const NO_RECORD: u32 = u32::MAX;

/// Bytes of a sub-block.
pub const SUB_BLOCK: u32 = 64 << 10;

/// Sub-blocks of a block.
pub const SUB_BLOCKS: usize = 16;

/// Number of bytes that the sub-blocks of one block have in an index.
pub(crate) const ENCODED: usize = SUB_BLOCKS * 8;

/// The sub-blocks of a block that may contain a match: bit 0 is the first sub-block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubBlockMask(pub u16);

impl SubBlockMask {
    /// No sub-block.
    pub const NOWHERE: Self = Self(0);

    /// All sub-blocks, because the position of a match in the block is unknown.
    pub const ANYWHERE: Self = Self(u16::MAX);

    /// True if the block may contain a match.
    pub const fn is_somewhere(self) -> bool {
        self.0 != 0
    }

    /// True if this sub-block may contain a match.
    pub const fn has(self, part: usize) -> bool {
        part < SUB_BLOCKS && self.0 >> part & 1 == 1
    }
}

/// The number of the sub-block that contains this offset; the last sub-block for offsets beyond the block.
#[inline]
pub const fn sub_block_of(offset: u32) -> usize {
    let part = (offset / SUB_BLOCK) as usize;
    if part < SUB_BLOCKS { part } else { SUB_BLOCKS - 1 }
}

/// The offset of the first record in each sub-block of a block; all offsets are unknown if the index does not contain
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubBlocks {
    first: [u32; SUB_BLOCKS],
    crc: [u32; SUB_BLOCKS],
}

/// A byte range of a block that begins with a record, and the checksums that verify its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubBlockRange {
    /// The byte range, as offsets in the block.
    pub bytes: Range<u32>,
    /// CRC32C of the block's bytes before this range.
    pub before: u32,
    /// CRC32C of the block's bytes up to the end of this range.
    pub after: u32,
}

impl SubBlockRange {
    /// True if `bytes` has the length of the range and agrees with its checksums.
    pub fn is(&self, bytes: &[u8]) -> bool {
        bytes.len() == self.bytes.len() && crc32c::crc32c_append(self.before, bytes) == self.after
    }
}

impl Default for SubBlocks {
    fn default() -> Self {
        Self::NONE
    }
}

impl SubBlocks {
    /// All offsets are unknown, so queries read the complete block.
    pub const NONE: Self = Self { first: [NO_RECORD; SUB_BLOCKS], crc: [0; SUB_BLOCKS] };

    /// Adds a record that begins at this offset; `crc` is the CRC32C of the block's bytes before the record. Records
    /// must be added in order of offset; only the first record of each sub-block is stored.
    pub fn begin(&mut self, offset: u32, crc: u32) {
        let part = sub_block_of(offset);
        if self.first[part] == NO_RECORD {
            (self.first[part], self.crc[part]) = (offset, crc);
        }
    }

    /// Adapts the sub-blocks to a block that was truncated to this many bytes.
    pub fn cut(&mut self, bytes: u32) {
        for (first, crc) in self.first.iter_mut().zip(&mut self.crc).filter(|(first, _)| **first >= bytes) {
            (*first, *crc) = (NO_RECORD, 0);
        }
    }

    /// The offset of the first record in a sub-block, if a record begins there.
    pub fn first(&self, part: usize) -> Option<u32> {
        self.first.get(part).copied().filter(|first| *first != NO_RECORD)
    }

    /// True if the offsets of all sub-blocks are unknown.
    pub fn is_unknown(&self) -> bool {
        self.first.iter().all(|first| *first == NO_RECORD)
    }

    /// CRC32C of the bytes of the block before its first record. These bytes are the end of the last record of the
    /// previous block.
    pub fn lead(&self) -> Option<u32> {
        (0..SUB_BLOCKS).find(|part| self.first[*part] != NO_RECORD).map(|part| self.crc[part])
    }

    /// The byte range of the records that begin in these sub-blocks; `None` if no record begins in them. `bytes` and
    /// `crc` are length and CRC32C of the block.
    pub fn range_of(&self, parts: Range<usize>, bytes: u32, crc: u32) -> Option<SubBlockRange> {
        let known = |parts: Range<usize>| parts.into_iter().find(|part| self.first[*part] != NO_RECORD);
        let from = known(parts.start..parts.end.min(SUB_BLOCKS))?;
        let (end, after) =
            known(parts.end.min(SUB_BLOCKS)..SUB_BLOCKS).map_or((bytes, crc), |to| (self.first[to], self.crc[to]));
        Some(SubBlockRange { bytes: self.first[from]..end, before: self.crc[from], after })
    }

    /// True if the checksums of all sub-blocks match the block's bytes.
    pub fn sum(&self, block: &[u8]) -> bool {
        let (mut at, mut sum) = (0, 0);
        (0..SUB_BLOCKS).filter(|part| self.first[*part] != NO_RECORD).all(|part| {
            let Some(bytes) = block.get(at..self.first[part] as usize) else { return false };
            (at, sum) = (self.first[part] as usize, crc32c::crc32c_append(sum, bytes));
            sum == self.crc[part]
        })
    }

    /// True if the first record of each sub-block has the same offset as in `other`; checksums are not compared.
    pub fn begin_as(&self, other: &Self) -> bool {
        self.first == other.first
    }

    /// True if the offsets of these sub-blocks are possible in a block that has `bytes` bytes and whose first record
    /// begins at `first_record`.
    pub fn fit(&self, bytes: u32, first_record: Option<u32>) -> bool {
        let inside = |part: usize, first: u32| first == NO_RECORD || first < bytes && sub_block_of(first) == part;
        self.is_unknown()
            || (0..SUB_BLOCKS).all(|part| inside(part, self.first[part]))
                && (0..SUB_BLOCKS).find_map(|part| self.first(part)) == first_record
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for (first, crc) in self.first.iter().zip(&self.crc) {
            out.extend(first.to_le_bytes());
            out.extend(crc.to_le_bytes());
        }
    }

    pub(crate) fn decode(part: &mut Cursor<'_>) -> Option<Self> {
        let mut out = Self::NONE;
        for (first, crc) in out.first.iter_mut().zip(&mut out.crc) {
            (*first, *crc) = (part.u32()?, part.u32()?);
        }
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    /// A block of records of all lengths, some longer than a sub-block: the offsets of the records, and the bytes.
    fn block(prng: &mut Prng) -> (Vec<u32>, Vec<u8>) {
        let mut bytes = vec![0; 1 + prng.below(1 << 20) as usize];
        prng.fill(&mut bytes);
        let (mut firsts, mut at) = (Vec::new(), prng.below(70_000) as u32);
        while (at as usize) < bytes.len() {
            firsts.push(at);
            at += if prng.below(30) == 0 { 1 + prng.below(150_000) as u32 } else { 1 + prng.below(2000) as u32 };
        }
        (firsts, bytes)
    }

    #[test]
    fn any_run_of_sub_blocks_is_verified_and_changed_bytes_are_not() {
        let seed = testkit::seed("any_run_of_sub_blocks_is_verified_and_changed_bytes_are_not");
        let mut prng = Prng::new(seed);
        for round in 0..60 {
            let (firsts, mut bytes) = block(&mut prng);
            let (len, crc) = (bytes.len() as u32, crc32c::crc32c(&bytes));
            let mut parts = SubBlocks::NONE;
            firsts.iter().for_each(|at| parts.begin(*at, crc32c::crc32c(&bytes[..*at as usize])));
            assert!(parts.fit(len, firsts.first().copied()) && parts.sum(&bytes), "seed {seed} round {round}");
            assert_eq!(parts.lead(), firsts.first().map(|at| crc32c::crc32c(&bytes[..*at as usize])));
            let from = prng.below(16) as usize;
            let to = from + 1 + prng.below(16 - from as u64) as usize;
            let of = |at: &&u32| (from..to).contains(&sub_block_of(**at));
            let Some(sub_range) = parts.range_of(from..to, len, crc) else {
                assert!(!firsts.iter().any(|at| of(&at)), "seed {seed} round {round}");
                continue;
            };
            let end = firsts.iter().find(|at| sub_block_of(**at) >= to).copied().unwrap_or(len);
            assert_eq!(Some(sub_range.bytes.start), firsts.iter().find(of).copied(), "seed {seed} round {round}");
            assert_eq!(sub_range.bytes.end, end, "seed {seed} round {round}");
            let range = sub_range.bytes.start as usize..end as usize;
            assert!(sub_range.is(&bytes[range.clone()]), "seed {seed} round {round}");
            bytes[range.start + prng.below(range.len() as u64) as usize] ^= 1 << prng.below(8);
            assert!(!sub_range.is(&bytes[range.clone()]), "seed {seed} round {round}: a flipped bit was not detected");
            assert!(
                !sub_range.is(&bytes[range.start..range.end - 1]),
                "seed {seed} round {round}: a missing byte was not detected"
            );
        }
    }

    #[test]
    fn truncated_sub_blocks_are_removed_and_impossible_offsets_rejected() {
        let mut parts = SubBlocks::NONE;
        for at in [24, 70_000, 140_000, 1_048_570] {
            parts.begin(at, at * 3);
        }
        assert!(parts.fit(1 << 20, Some(24)) && !parts.fit(1 << 20, Some(25)) && !parts.fit(140_000, Some(24)));
        parts.cut(140_000);
        assert_eq!([0, 1, 2, 15].map(|part| parts.first(part)), [Some(24), Some(70_000), None, None]);
        assert!(parts.fit(140_000, Some(24)));
        let mut bytes = Vec::new();
        parts.encode(&mut bytes);
        assert_eq!((SubBlocks::decode(&mut Cursor(&bytes)), bytes.len()), (Some(parts), ENCODED));
        // The second sub-block gets the offset 50 000, which is in the first sub-block.
        bytes[8..12].copy_from_slice(&50_000u32.to_le_bytes());
        assert!(SubBlocks::decode(&mut Cursor(&bytes)).is_some_and(|parts| !parts.fit(140_000, Some(24))));
        assert!(SubBlocks::NONE.fit(0, None) && SubBlocks::NONE.range_of(0..16, 1 << 20, 5).is_none());
    }
}
