//! The growing layout is the layout of an index while its packet file is being written. This module also computes the
//! offsets of new entries.
//!
//! ```text
//! header | to the next page | 4 slots of 16 KiB | entry | entry | …
//! ```
//! The *chain* follows the slots: one entry for each full block, in order, never rewritten. Each second, the recorder
//! writes a new entry for the block that is being *filled* into a slot, with its position in the chain and an
//! increasing number. It writes only into a slot that contains neither the entry that was synced last, nor the entry of
//! a sync in progress, nor the newest entry. So a power failure never tears a synced entry, and a reader finds a
//! complete entry at any moment. If a slot is neither empty nor complete, it is being written or contains a torn entry.
//! The recorder uses the slots in order, so if a slot is empty and a later slot is used, the entry of the empty slot
//! was lost. (The loss of the entry in the last used slot is not detected, because its zeros look like a slot that was
//! never written. In this case a reader uses the previous entry, which describes fewer packets, but only packets that
//! exist. The sealed index does not depend on the slots.)
//!
//! An entry that is too long for a slot (for example with the ledger rows of an hour of an interface with little
//! traffic) is appended to the chain and marked as continued. The next entries of the block then contain only the later
//! ledger rows. So no entry is overwritten that may still be needed, however long the block is being filled. A
//! continued entry admits every key, because only the last entry of the block contains the key sets.

use crate::entry::{EntryState, HEAD, ParsedEntry};
use crate::key::Sets;
use crate::read_at::{ReadAt, up_to};
use crate::rows::ReadLimits;
use crate::{Entry, Header, Index, Rows, Tail};
use std::io;

/// Number of slots: for the entry synced last, the entry of a sync in progress, the newest entry, and the next one.
const SLOTS: usize = 4;

/// Length of a slot in bytes: enough for the largest key sets and some minutes of ledger rows that all differ.
const SLOT: usize = 16 << 10;

/// Alignment of the slots in the index file, so that no two slots share a page.
const PAGE: usize = 4096;

/// Number of bytes of the chain that one read returns.
const WINDOW: usize = 256 << 10;

/// Offset of the slots in an index with a header of this length.
const fn slots_at(header: usize) -> usize {
    header.next_multiple_of(PAGE)
}

/// Offset of the chain in an index with a header of this length.
const fn chain_at(header: usize) -> usize {
    slots_at(header) + SLOTS * SLOT
}

/// The write positions in the growing index of one packet file.
#[derive(Clone, Debug)]
pub struct Growing {
    slots: u64,
    /// Offset at which the next entry of the chain will be written.
    chain: u64,
    /// Number of entries in the chain.
    entries: u32,
    /// Number of entries written to the slots and the chain.
    written: u32,
    /// Ledger rows of the block being filled that no entry of the chain contains.
    rows: Rows,
    /// The slot with the newest entry. The slots `newest`, `syncing` and `synced` must not be overwritten.
    newest: Option<usize>,
    /// The slot with the entry of a sync in progress.
    syncing: Option<usize>,
    /// The slot with the entry that was synced last.
    synced: Option<usize>,
}

/// A write to the index.
#[derive(Clone, Debug)]
pub struct IndexWrite {
    /// The offset in the index.
    pub at: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
    state: EntryState,
    rows: Rows,
}

impl Growing {
    /// The write positions in an index that has no entries yet. `header` is its encoded header ([`Header::encode`]).
    pub fn behind(header: &[u8]) -> Self {
        Self {
            slots: slots_at(header.len()) as u64,
            chain: chain_at(header.len()) as u64,
            entries: 0,
            written: 0,
            rows: Rows::new(),
            newest: None,
            syncing: None,
            synced: None,
        }
    }

    /// Offset of the chain. The recorder writes zeros between the header and this offset when it creates the index, to
    /// reserve space for the slots.
    pub fn begins(&self) -> u64 {
        self.chain
    }

    /// Encodes the write that makes `entry` the newest entry of its block. `news` are the ledger rows since the
    /// previous write for that block; `last` is true if the block is full. The function changes no state, so a failed
    /// write can be repeated.
    pub fn write_entry(&self, entry: &Entry, news: &Rows, last: bool) -> IndexWrite {
        let mut rows = self.rows.clone();
        rows.merge(news);
        let mut entry = Entry { rows, ..entry.clone() };
        let encode = |entry: &Entry, state| entry.encode(state, self.entries, self.written);
        let mut state = if last { EntryState::Full } else { EntryState::InProgress };
        let mut bytes = encode(&entry, state);
        if state == EntryState::InProgress && bytes.len() > SLOT {
            (state, entry.sets) = (EntryState::Continued, Sets::ALL);
            bytes = encode(&entry, state);
        }
        let at = if state == EntryState::InProgress { self.slots + (self.free() * SLOT) as u64 } else { self.chain };
        IndexWrite { at, bytes, state, rows: entry.rows }
    }

    /// Confirms a write.
    pub fn entry_written(&mut self, write: IndexWrite) {
        self.written += 1;
        if write.state == EntryState::InProgress {
            (self.newest, self.rows) = (Some(self.free()), write.rows);
            return;
        }
        (self.newest, self.rows) = (None, Rows::new());
        self.chain += write.bytes.len() as u64;
        self.entries += 1;
    }

    /// Registers that the caller begins a sync of the index file.
    pub fn sync_begins(&mut self) {
        self.syncing = self.newest;
    }

    /// The sync has succeeded.
    pub fn sync_ends(&mut self) {
        self.synced = self.syncing.take();
    }

    fn free(&self) -> usize {
        let kept = [self.newest, self.syncing, self.synced];
        (0..SLOTS).find(|slot| !kept.contains(&Some(*slot))).unwrap_or(0)
    }
}

/// Reads the valid entries of the chain, and the entries of the slots. The chain is read in pieces, so that a forged
/// length cannot cause a large allocation.
pub(crate) fn read(source: &impl ReadAt, header: Header, header_len: usize) -> io::Result<Index> {
    let (slots, broken) = read_slots(source, slots_at(header_len))?;
    let mut chain = Chain {
        entries: Vec::new(),
        read_entries: 0,
        sums: ReadLimits::new(),
        continued: false,
        newest: None,
        earlier: Vec::new(),
    };
    let mut at = chain_at(header_len);
    let (mut window, mut from) = (Vec::new(), at);
    loop {
        chain.merge_written(&slots);
        let rest = window.get(at - from..).unwrap_or(&[]);
        let wanted = Entry::length(rest).unwrap_or(HEAD);
        if rest.len() < wanted {
            (window, from) = (up_to(source, at as u64, wanted.max(WINDOW))?, at);
        }
        let rest = &window[at - from..];
        let reported = Entry::length(rest).and_then(|length| {
            // The piece in `window` may contain only the beginning of the entry; then the complete entry is read
            // separately.
            let whole = if length > rest.len() { up_to(source, at as u64, length).ok() } else { None };
            Some((ParsedEntry::parse(whole.as_deref().unwrap_or(rest).get(..length)?)?, length))
        });
        match reported {
            Some((reported, length)) if reported.state != EntryState::InProgress && chain.add(&reported) => {
                at += length
            }
            _ => break,
        }
    }
    // True if the torn entry was the only entry of its block.
    let torn = chain.newest.is_none() && (broken.is_some() || Entry::begins(&window[at - from..]));
    let broken = if source.size()? > at as u64 { Some(at as u64) } else { broken };
    let Chain { mut entries, mut earlier, newest, continued, .. } = chain;
    if newest.is_some() && continued {
        earlier.extend(entries.pop());
    }
    entries.extend(newest);
    earlier.reverse();
    Ok(Index { header, entries, tail: Tail::Open { at, broken, torn, earlier } })
}

/// The entries of the slots, oldest first, and the offset of the first slot that is neither empty nor complete.
fn read_slots(source: &impl ReadAt, at: usize) -> io::Result<(Vec<ParsedEntry>, Option<u64>)> {
    let (mut slots, mut broken) = (Vec::new(), None);
    let bytes = up_to(source, at as u64, SLOTS * SLOT)?;
    let used = bytes.iter().rposition(|b| *b != 0).unwrap_or(0);
    for (i, slot) in bytes.chunks(SLOT).enumerate() {
        let reported = Entry::length(slot).and_then(|length| ParsedEntry::parse(slot.get(..length)?));
        match reported.filter(|reported| reported.state == EntryState::InProgress) {
            Some(reported) => slots.push(reported),
            // Slots after the last byte that is not zero were never used. If a slot before this byte is empty, its
            // entry was lost.
            None if i * SLOT > used || bytes[used] == 0 => {}
            None => broken = broken.or(Some((at + i * SLOT) as u64)),
        }
    }
    slots.sort_by_key(|reported| reported.number);
    Ok((slots, broken))
}

struct Chain {
    entries: Vec<Entry>,
    /// Number of entries read from the chain; a block with continued entries has several entries.
    read_entries: u32,
    sums: ReadLimits,
    /// True if the last entry of `entries` is marked as continued.
    continued: bool,
    /// The newest slot entry of the block that is being filled: the block after the last block of the chain, or the
    /// continued block.
    newest: Option<Entry>,
    /// Replaced entries, oldest first.
    earlier: Vec<Entry>,
}

impl Chain {
    /// Adds the next entry of the chain; returns false if its block or its number does not follow that of the previous
    /// entry.
    fn add(&mut self, reported: &ParsedEntry) -> bool {
        let Some((entry, sums)) = self.joined(reported) else { return false };
        if self.continued {
            self.earlier.extend(self.entries.pop());
        }
        self.earlier.extend(self.newest.take());
        self.entries.push(entry);
        self.sums = sums;
        self.read_entries += 1;
        self.continued = reported.state == EntryState::Continued;
        true
    }

    /// Uses the slot entries that belong after the present end of the chain. The last of them, which has the most
    /// packets, becomes `newest`; the others become earlier entries.
    fn merge_written(&mut self, slots: &[ParsedEntry]) {
        for reported in slots {
            if let Some((entry, _)) = self.joined(reported) {
                self.earlier.extend(self.newest.replace(entry));
            }
        }
    }

    /// Adds to the entry the ledger rows of the entries that it continues. Returns the entry, and the new sums of all
    /// ledger rows; `None` if the entry does not belong to this position of the chain, or if a sum exceeds its limit.
    fn joined(&self, reported: &ParsedEntry) -> Option<(Entry, ReadLimits)> {
        let before = if self.continued { self.entries.last() } else { None };
        let block = before.map_or(self.entries.len() as u32, |before| before.block);
        if reported.base != self.read_entries || reported.entry.block != block {
            return None;
        }
        let mut sums = self.sums.clone();
        // Check the limits before any addition: a forged entry can have a correct checksum.
        if !sums.add(&reported.entry.rows) {
            return None;
        }
        let mut rows = before.map(|before| before.rows.clone()).unwrap_or_default();
        rows.merge(&reported.entry.rows);
        Some((Entry { rows, ..reported.entry.clone() }, sums))
    }
}
