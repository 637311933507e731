//! The growing layout: what an index looks like while its packet file is written, and where the next words go in it.
//!
//! ```text
//! header | to the next page | 4 slots of 16 KiB | entry | entry | …
//! ```
//! Behind the slots lies the *chain*: one entry for each block that is full, one behind the other, never written again. What
//! is known of the block that is *filling* is said anew each second, in a slot, with its place in the chain and a number
//! that grows. A slot is written only if it holds neither the words that were synced last, nor those that a sync is about
//! to make safe, nor the newest: whatever a failure of the power tears, what was synced stays whole, and at whatever moment
//! a reader comes, it finds words that are. A slot that is not empty and not whole is being written, or was torn. Slots are
//! taken in order, so one that is empty before one that is not has lost its words. (Only of the last one that was ever taken
//! this cannot be told: nothing but zeros looks as if it had never been written. The words before it count then, which tell
//! of fewer packets and of none that are not there. The sealed index does not depend on it.)
//!
//! Words that are too long for a slot (the ledger rows of an hour of a quiet port) go to the chain, to be continued: those
//! that follow tell only the rows since. So nothing is ever written over that somebody may still need, however long the
//! block takes. Words to be continued admit every key; those that follow bring the sets.

use crate::entry::{EntryState, HEAD, ParsedEntry};
use crate::key::Sets;
use crate::read::{Tail, up_to};
use crate::reader::ReadAt;
use crate::rows::ReadLimits;
use crate::{Entry, Header, Index, Rows};
use std::io;

/// Slots: for the words synced last, for those being synced, for the newest, and for those that come.
const SLOTS: usize = 4;

/// Room of one: the largest sets, and some minutes of ledger rows that all differ.
const SLOT: usize = 16 << 10;

/// No two slots share one.
const PAGE: usize = 4096;

/// Bytes of the chain that are read at once.
const WINDOW: usize = 256 << 10;

/// Where the slots of an index with so long a header begin.
const fn slots_at(header: usize) -> usize {
    header.next_multiple_of(PAGE)
}

/// Where its chain does.
const fn chain_at(header: usize) -> usize {
    slots_at(header) + SLOTS * SLOT
}

/// Where the words about the blocks of one packet file go.
#[derive(Clone, Debug)]
pub struct Growing {
    slots: u64,
    /// Where the next entry of the chain goes, and how many there are.
    chain: u64,
    entries: u32,
    /// How many words there were.
    written: u32,
    /// What the chain does not tell of the block that is filling.
    rows: Rows,
    /// Slots that must stay as they are.
    newest: Option<usize>,
    syncing: Option<usize>,
    synced: Option<usize>,
}

/// Bytes for one place in the index.
#[derive(Clone, Debug)]
pub struct IndexWrite {
    /// Where.
    pub at: u64,
    /// What.
    pub bytes: Vec<u8>,
    state: EntryState,
    rows: Rows,
}

impl Growing {
    /// Behind a header, which is as long as [`Header::encode`] makes it.
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

    /// Where the first entry goes: what lies before it can be given room, as zeros, when the file is made.
    pub fn begins(&self) -> u64 {
        self.chain
    }

    /// What to write so that the index tells of a block as `entry` does, whose rows have grown by `news` since it was told
    /// of before; `last` if nothing more comes for that block. Changes nothing: a write that fails is asked for again.
    pub fn write_entry(&self, entry: &Entry, news: &Rows, last: bool) -> IndexWrite {
        let mut rows = self.rows.clone();
        rows.merge(news);
        let mut entry = Entry { rows, ..entry.clone() };
        let encode = |entry: &Entry, stand| entry.encode(stand, self.entries, self.written);
        let mut stand = if last { EntryState::Full } else { EntryState::InProgress };
        let mut bytes = encode(&entry, stand);
        if stand == EntryState::InProgress && bytes.len() > SLOT {
            (stand, entry.sets) = (EntryState::Continued, Sets::ALL);
            bytes = encode(&entry, stand);
        }
        let at = if stand == EntryState::InProgress { self.slots + (self.free() * SLOT) as u64 } else { self.chain };
        IndexWrite { at, bytes, state: stand, rows: entry.rows }
    }

    /// They are written.
    pub fn entry_written(&mut self, words: IndexWrite) {
        self.written += 1;
        if words.state == EntryState::InProgress {
            (self.newest, self.rows) = (Some(self.free()), words.rows);
            return;
        }
        (self.newest, self.rows) = (None, Rows::new());
        self.chain += words.bytes.len() as u64;
        self.entries += 1;
    }

    /// A sync of the index begins.
    pub fn sync_begins(&mut self) {
        self.syncing = self.newest;
    }

    /// It has ended well.
    pub fn sync_ends(&mut self) {
        self.synced = self.syncing.take();
    }

    fn free(&self) -> usize {
        let kept = [self.newest, self.syncing, self.synced];
        (0..SLOTS).find(|slot| !kept.contains(&Some(*slot))).unwrap_or(0)
    }
}

/// The entries of the chain as far as they can be believed, through a window, so that a hostile length costs nothing, and
/// what the slots say.
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
        let told = Entry::length(rest).and_then(|length| {
            // The length may be known only now; what is longer than the window is read once more.
            let whole = if length > rest.len() { up_to(source, at as u64, length).ok() } else { None };
            Some((ParsedEntry::parse(whole.as_deref().unwrap_or(rest).get(..length)?)?, length))
        });
        match told {
            Some((told, length)) if told.state != EntryState::InProgress && chain.add(&told) => at += length,
            _ => break,
        }
    }
    // Words about a block of which nothing else is known.
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

/// What the slots hold, oldest first, and where the first begins that is not empty and not whole.
fn read_slots(source: &impl ReadAt, at: usize) -> io::Result<(Vec<ParsedEntry>, Option<u64>)> {
    let (mut slots, mut broken) = (Vec::new(), None);
    let bytes = up_to(source, at as u64, SLOTS * SLOT)?;
    let used = bytes.iter().rposition(|b| *b != 0).unwrap_or(0);
    for (i, slot) in bytes.chunks(SLOT).enumerate() {
        let told = Entry::length(slot).and_then(|length| ParsedEntry::parse(slot.get(..length)?));
        match told.filter(|told| told.state == EntryState::InProgress) {
            Some(told) => slots.push(told),
            // All of it: words of which only the beginning is gone were words.
            None if i * SLOT > used || bytes[used] == 0 => {}
            None => broken = broken.or(Some((at + i * SLOT) as u64)),
        }
    }
    slots.sort_by_key(|told| told.number);
    Ok((slots, broken))
}

struct Chain {
    entries: Vec<Entry>,
    /// How many were read: a block that is told of in pieces has several.
    read_entries: u32,
    sums: ReadLimits,
    /// The last entry is to be continued.
    continued: bool,
    /// The newest words about the block behind, or about the one that is continued.
    newest: Option<Entry>,
    /// Words that others have replaced, oldest first.
    earlier: Vec<Entry>,
}

impl Chain {
    /// Takes the next entry; false if it cannot be that.
    fn add(&mut self, told: &ParsedEntry) -> bool {
        let Some((entry, sums)) = self.joined(told) else { return false };
        if self.continued {
            self.earlier.extend(self.entries.pop());
        }
        self.earlier.extend(self.newest.take());
        self.entries.push(entry);
        self.sums = sums;
        self.read_entries += 1;
        self.continued = told.state == EntryState::Continued;
        true
    }

    /// Takes what the slots say at this place of the chain.
    fn merge_written(&mut self, slots: &[ParsedEntry]) {
        for told in slots {
            if let Some((entry, _)) = self.joined(told) {
                self.earlier.extend(self.newest.replace(entry));
            }
        }
    }

    /// What is told here together with what it continues, and the sums with it.
    fn joined(&self, told: &ParsedEntry) -> Option<(Entry, ReadLimits)> {
        let before = if self.continued { self.entries.last() } else { None };
        let block = before.map_or(self.entries.len() as u32, |before| before.block);
        if told.base != self.read_entries || told.entry.block != block {
            return None;
        }
        let mut sums = self.sums.clone();
        // Before anything is added up: rows behind a right checksum may be anything.
        if !sums.add(&told.entry.rows) {
            return None;
        }
        let mut rows = before.map(|before| before.rows.clone()).unwrap_or_default();
        rows.merge(&told.entry.rows);
        Some((Entry { rows, ..told.entry.clone() }, sums))
    }
}
