//! The description of one block, and its encoding as an entry of a growing index.
//!
//! ```text
//! "BLK6" | length u32 | base u32 | number u32 | block u32 | bytes u32 | first record u32 | crc of the bytes u32
//! | first ns u64 | last ns u64 | sub-blocks (`sub_blocks.rs`) | quality of the timestamps (`timestamps.rs`)
//! | 8 × groups u16 | state u16 | length of rows u32 | rows | groups by kind | crc
//! ```
//! `length` counts the whole entry. `base` is the number of entries before this one in the *chain*, which contains the
//! entries that are never replaced (see `growing.rs`). `number` is the number of entries written before this one,
//! replaced entries included. `state` is 0 if the block is full, 1 if the block continues in the next entry, and 2 if
//! the block is being filled. A set of 65 535 groups means "any key".

use crate::bytes::{CRC, Cursor, checked, close};
use crate::key::{KINDS, Sets};
use crate::rows::{self, Rows};
use crate::set::{GROUP, MAX_GROUPS, Set, decode_groups, encode_group};
use crate::sub_blocks::{NO_RECORD, SubBlocks};
use crate::timestamps;
use base::{Tally, Timestamp, TimestampQuality};

const TAG: [u8; 4] = *b"BLK6";
const LENGTH_AT: usize = 4;
const ALL: u16 = u16::MAX;

/// Number of bytes at the beginning of an entry that a reader needs to determine the length of the entry.
pub(crate) const HEAD: usize = 8;

/// The longest entry that a reader accepts: an entry with ledger rows for each second of a day and the largest key
/// sets.
const LEN_MAX: usize = 16 << 20;

/// One block of the packet file. A packet record belongs to the block in which it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Number of the block in the file; block `n` begins at `n` MiB.
    pub block: u32,
    /// Length of the block in bytes: 1 MiB, or less in the last block.
    pub bytes: u32,
    /// Offset in the block of the first packet record that starts in the block.
    pub first_record: Option<u32>,
    /// CRC32C of the bytes of the block.
    pub crc: u32,
    /// The offset of the first packet record in each sub-block.
    pub sub_blocks: SubBlocks,
    /// Earliest timestamp in the block; meaningless if the block has no packets.
    pub first: Timestamp,
    /// Latest timestamp in the block; meaningless if the block has no packets.
    pub last: Timestamp,
    /// The methods of the timestamps of the packets of the block, and the clock steps in the block. Deviation and state
    /// of the clock are the last ones before the end of the block, or the worst ones if several lie in the block.
    pub timestamps: TimestampQuality,
    /// The ledger rows since the previous block, one per second: packets stored in this block, lost packets, filtered
    /// packets and notes. A second without events has a row of zeros.
    pub rows: Rows,
    /// The key sets.
    pub sets: Sets,
}

impl Entry {
    /// The sum of the ledger rows of this entry.
    pub fn tally(&self) -> Tally {
        self.rows.total()
    }

    /// Encodes the entry for a growing index; `state`, `base` and `number` as in [`ParsedEntry`].
    pub(crate) fn encode(&self, state: EntryState, base: u32, number: u32) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.sets.bytes() + 256);
        out.extend(TAG);
        out.extend([0; 4]);
        let first_record = self.first_record.unwrap_or(NO_RECORD);
        [base, number, self.block, self.bytes, first_record, self.crc].iter().for_each(|n| out.extend(n.to_le_bytes()));
        [self.first, self.last].iter().for_each(|t| out.extend(t.nanos().to_le_bytes()));
        self.sub_blocks.encode(&mut out);
        timestamps::encode(&self.timestamps, &mut out);
        for set in &self.sets.0 {
            let groups = if let Set::Groups(groups) = set { groups.len() as u16 } else { ALL };
            out.extend(groups.to_le_bytes());
        }
        out.extend((state as u16).to_le_bytes());
        let length_at = out.len();
        out.extend([0; 4]);
        rows::encode(&self.rows, &mut out);
        let length = (out.len() - length_at - 4) as u32;
        out[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
        for set in &self.sets.0 {
            if let Set::Groups(groups) = set {
                groups.iter().for_each(|g| out.extend(encode_group(g)));
            }
        }
        close(out, LENGTH_AT)
    }

    /// Length in bytes of the entry whose first bytes are `head`; `None` if no entry begins with `head`.
    pub(crate) fn length(head: &[u8]) -> Option<usize> {
        let mut head = Cursor(head);
        let length = (head.take(4)? == TAG).then(|| head.u32())?? as usize;
        (HEAD + CRC..=LEN_MAX).contains(&length).then_some(length)
    }

    /// True if a complete or truncated entry begins with these bytes.
    pub(crate) fn begins(bytes: &[u8]) -> bool {
        bytes.starts_with(&TAG)
    }
}

/// The state of an entry in a growing index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryState {
    /// The block is full; no other entry of the block follows.
    Full = 0,
    /// The next entry of the chain continues the description of the same block.
    Continued = 1,
    /// The block is being filled: the next entry of this block replaces this entry.
    InProgress = 2,
}

/// An entry as read from a growing index.
pub(crate) struct ParsedEntry {
    pub entry: Entry,
    pub state: EntryState,
    /// Number of entries before this entry in the chain, which contains the entries that are never replaced.
    pub base: u32,
    /// Number of entries written to the file before this entry, replaced entries included.
    pub number: u32,
}

impl ParsedEntry {
    /// Parses an entry from `bytes`, which must contain nothing else.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut part = Cursor(checked(bytes)?);
        part.take(HEAD)?;
        let (base, number) = (part.u32()?, part.u32()?);
        let (block, bytes, first_record, crc) = (part.u32()?, part.u32()?, part.u32()?, part.u32()?);
        let (first, last) = (Timestamp::from_nanos(part.u64()?), Timestamp::from_nanos(part.u64()?));
        let parts = SubBlocks::decode(&mut part)?;
        let timestamps = timestamps::decode(&mut part)?;
        let mut counts = [0; KINDS];
        for count in &mut counts {
            *count = part.u16()?;
        }
        let state = match part.u16()? {
            0 => EntryState::Full,
            1 => EntryState::Continued,
            2 => EntryState::InProgress,
            _ => return None,
        };
        let length = part.u32()? as usize;
        let rows = rows::decode(part.take(length)?)?;
        let mut sets = Sets::ALL;
        for (count, set) in counts.into_iter().zip(&mut sets.0) {
            if count != ALL {
                *set = groups(&mut part, count.into())?;
            }
        }
        let first_record = (first_record != NO_RECORD).then_some(first_record);
        let entry = Entry { block, bytes, first_record, crc, sub_blocks: parts, first, last, timestamps, rows, sets };
        part.0.is_empty().then_some(Self { entry, state, base, number })
    }
}

fn groups(part: &mut Cursor<'_>, count: usize) -> Option<Set> {
    let is_size = count == 0 || count.is_power_of_two() && count <= MAX_GROUPS;
    is_size.then(|| Some(Set::Groups(decode_groups(part.take(count * GROUP)?).collect())))?
}
