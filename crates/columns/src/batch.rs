//! Batches of a journal: the encoder of the writer, and the scan with which a reader finds the undamaged batches of a
//! damaged journal.
//!
//! ```text
//! at    bytes  is
//! 0     4      length of the content, which follows this header
//! 4     4      number of rows
//! 8     4      CRC32C of the content
//! 12    4      number of synced bytes of the journal when this batch was appended
//! 16    4      CRC32C of bytes 0 to 15, of the journal's id and of the offset of this batch in it (64 bits each)
//! 20           the rows, as columns (`crate::block`)
//! last  1      E5
//! ```
//!
//! A batch header is valid only in its own journal and at its own offset, because its checksum covers both. Hence,
//! after damage, a reader finds the next batch by testing each byte offset for a valid header. Packet bytes that happen
//! to contain a copy of a journal, even of this journal, are never mistaken for a batch. Bytes that belong to no
//! complete batch are damaged if a later header states that they were synced. Otherwise a crash interrupted their write
//! (a torn batch): at the end of the journal, or before a batch that the file system wrote first.

use crate::builder::Builder;
use crate::tables::Schema;
use std::fmt;

/// Offsets of the fields of a batch header.
mod at {
    use std::ops::Range;
    pub const LENGTH: Range<usize> = 0..4;
    pub const ROWS: Range<usize> = 4..8;
    pub const CONTENT: Range<usize> = 8..12;
    pub const VERIFIED: Range<usize> = 12..16;
    pub const CHECK: Range<usize> = 16..20;
}

/// Bytes of a batch header.
const HEAD: usize = at::CHECK.end;

/// The last byte of a batch. It is not zero, because unwritten bytes of a file are zero; so it shows whether the batch
/// was written to its end.
const END: u8 = 0xe5;

/// The rows of the next batch. Each row is encoded when it is added.
pub struct BatchBytes<T: Schema> {
    builder: Builder<T>,
    bytes: Vec<u8>,
    count: u32,
}

impl<T: Schema> Default for BatchBytes<T> {
    fn default() -> Self {
        Self { builder: Builder::default(), bytes: Vec::new(), count: 0 }
    }
}

impl<T: Schema> BatchBytes<T> {
    /// Appends a row.
    pub fn push(&mut self, row: &T) {
        if self.bytes.is_empty() {
            self.bytes.resize(HEAD, 0);
        }
        self.builder.push(row, &mut self.bytes);
        self.count += 1;
    }

    /// Number of rows.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Number of encoded bytes of the batch, without the last rows (a few hundred at most), which the builder has not
    /// yet encoded.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the batch, and begins the next one in the empty buffer `room`. The header of the returned batch still
    /// lacks the number of synced bytes and the checksum, which [`place`] writes. `room` gets the length of the
    /// returned batch as its capacity. If it got the capacity of the returned batch, each buffer would become as large
    /// as the largest batch so far, but the limit for batches that wait for the disk counts only their lengths.
    pub fn take(&mut self, mut room: Vec<u8>) -> Vec<u8> {
        if !self.bytes.is_empty() {
            self.builder.finish(&mut self.bytes);
            self.bytes.push(END);
            let (head, content) = self.bytes.split_at_mut(HEAD);
            head[at::LENGTH].copy_from_slice(&(content.len() as u32).to_le_bytes());
            head[at::ROWS].copy_from_slice(&self.count.to_le_bytes());
            head[at::CONTENT].copy_from_slice(&crc32c::crc32c(content).to_le_bytes());
        }
        self.count = 0;
        room.reserve(self.bytes.len());
        std::mem::replace(&mut self.bytes, room)
    }
}

/// Completes the header of a batch: writes the number of bytes of the journal that were synced so far, and the
/// checksum, which also covers the journal's id and the offset of the batch.
pub fn place(batch: &mut [u8], id: u64, place: u64, synced: u64) {
    if let Some(head) = batch.first_chunk_mut::<HEAD>() {
        head[at::VERIFIED].copy_from_slice(&(synced as u32).to_le_bytes());
        let check = check(head, id, place);
        head[at::CHECK].copy_from_slice(&check.to_le_bytes());
    }
}

/// Computes the checksum of the header of the batch that is at offset `place` of the journal `id`. The checksum covers
/// the fields before it in the header, `id` and `place`.
fn check(head: &[u8; HEAD], id: u64, place: u64) -> u32 {
    let mut all = [0; HEAD + 12];
    all[..at::CHECK.start].copy_from_slice(&head[..at::CHECK.start]);
    all[at::CHECK.start..][..8].copy_from_slice(&id.to_le_bytes());
    all[at::CHECK.start + 8..].copy_from_slice(&place.to_le_bytes());
    crc32c::crc32c(&all)
}

/// The result of a scan of a journal's bytes after the journal header.
#[derive(Default)]
pub struct JournalBatches {
    /// Begin and end of the columns of each complete batch.
    pub batches: Vec<(usize, usize)>,
    /// Number of rows in all complete batches of the journal.
    pub rows: usize,
    /// Ranges of bytes of the journal that belong to no complete batch.
    gaps: Vec<Gap>,
    /// Number of bytes at the beginning of the journal that are known to have been synced; more may have been synced.
    verified: usize,
}

/// A range of bytes that belongs to no complete batch.
#[derive(Clone, Copy)]
struct Gap {
    begin: usize,
    end: usize,
    /// True if the bytes look like an interrupted write.
    is_torn: bool,
}

/// Number of consecutive zero bytes that are regarded as never written: one disk sector. Columns may contain shorter
/// runs of zeros.
const UNWRITTEN: usize = 512;

impl Gap {
    /// The gap at an incomplete batch whose header is valid; `is_cut` is true if the journal ends before the batch
    /// does.
    fn of_batch(bytes: &[u8], begin: usize, end: usize, is_cut: bool) -> Self {
        let all = &bytes[begin..end];
        Self { begin, end, is_torn: is_cut || all.last() == Some(&0) || has_hole(all) }
    }

    /// A gap in which no batch header is valid; it may contain any number of batches.
    fn of_any(bytes: &[u8], begin: usize, end: usize) -> Self {
        let all = &bytes[begin..end];
        // A batch begins with its length, which is not zero.
        let begins = all.first_chunk().is_some_and(|first: &[u8; 4]| *first != [0; 4]);
        let is_all_there = all.len() > HEAD && begins && all.last() == Some(&END) && !has_hole(all);
        Self { begin, end, is_torn: !is_all_there }
    }

    fn len(&self) -> u64 {
        (self.end - self.begin) as u64
    }
}

/// True if the bytes contain a range that was probably never written.
fn has_hole(bytes: &[u8]) -> bool {
    bytes.split(|byte| *byte != 0).any(|zeros| zeros.len() >= UNWRITTEN)
}

/// A range of a journal that was written completely and is damaged now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Offset of the first damaged byte.
    pub at: u64,
    /// Number of damaged bytes.
    pub bytes: u64,
    /// True if a crash may have interrupted the write of these bytes. No sync is known to have covered any of them, so
    /// they may be incomplete and not damaged.
    pub or_torn: bool,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.or_torn { "damaged or incompletely written" } else { "damaged" };
        write!(f, "{} bytes from offset {} are {how}; their rows are missing", self.bytes, self.at)
    }
}

impl JournalBatches {
    /// Scans the bytes of the journal `id` from the offset `from`.
    pub fn of(bytes: &[u8], id: u64, from: usize) -> Self {
        let (mut found, mut at) = (Self::default(), from);
        while at < bytes.len() {
            let Some((place, head)) = next(bytes, id, at) else {
                found.gaps.push(Gap::of_any(bytes, at, bytes.len()));
                break;
            };
            if place > at {
                found.gaps.push(Gap::of_any(bytes, at, place));
            }
            found.verified = found.verified.max(head.verified);
            let begin = place + HEAD;
            let end = begin.saturating_add(head.length);
            match bytes.get(begin..end) {
                Some(content) if crc32c::crc32c(content) == head.content => {
                    found.batches.push((begin, end - 1));
                    found.rows += head.rows;
                }
                // The checksum of the header covers the length of the batch, so no other batch begins within that
                // length.
                _ => found.gaps.push(Gap::of_batch(bytes, place, end.min(bytes.len()), end > bytes.len())),
            }
            at = end;
        }
        found
    }

    /// Number of bytes in batches of which a crash interrupted the write.
    pub fn torn(&self) -> u64 {
        self.gaps.iter().filter(|gap| !self.is_damaged(gap)).map(Gap::len).sum()
    }

    /// The range of bytes that was written completely and is damaged now: it was synced, or does not look like an
    /// interrupted write.
    pub fn damage(&self) -> Option<Damage> {
        let damaged = || self.gaps.iter().filter(|gap| self.is_damaged(gap));
        let at = damaged().next()?.begin as u64;
        let or_torn = damaged().all(|gap| gap.begin >= self.verified);
        Some(Damage { at, bytes: damaged().map(Gap::len).sum(), or_torn })
    }

    fn is_damaged(&self, gap: &Gap) -> bool {
        gap.begin < self.verified || !gap.is_torn
    }
}

/// The fields of a batch header that a reader needs.
struct BatchHeader {
    length: usize,
    rows: usize,
    content: u32,
    verified: usize,
}

impl BatchHeader {
    /// The batch header at this offset, if it is valid. The plausibility tests reject most offsets before the checksum
    /// is computed.
    fn at(bytes: &[u8], id: u64, place: usize) -> Option<Self> {
        let head = bytes.get(place..)?.first_chunk::<HEAD>()?;
        let [length, rows, content, synced, checksum] =
            [at::LENGTH, at::ROWS, at::CONTENT, at::VERIFIED, at::CHECK].map(|range| word(&head[range]));
        let read = Self { length: length as usize, rows: rows as usize, content, verified: synced as usize };
        let may_be = read.verified <= place && read.length > 0 && read.rows > 0;
        (may_be && check(head, id, place as u64) == checksum).then_some(read)
    }
}

fn word(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// The next valid batch header at or after `from`, with its offset. The offset is `from` unless the journal is damaged.
fn next(bytes: &[u8], id: u64, from: usize) -> Option<(usize, BatchHeader)> {
    (from..bytes.len()).find_map(|place| Some((place, BatchHeader::at(bytes, id, place)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_layout::DataFileKind;
    use crate::journal::{Journal, LoadedJournal, SortedRows};
    use crate::volume;
    use base::{Prng, Timestamp};
    use series::Row;
    use std::path::Path;
    use testkit::TempDir;

    /// Bytes of a header.
    const HEADER: usize = 24;

    /// A batch that the test wrote: its position in the journal, the seconds of its rows, and the number of bytes of
    /// the journal that were synced before it was written.
    struct Written {
        range: (usize, usize),
        seconds: Vec<u64>,
        verified: usize,
    }

    /// Writes a journal of some batches and syncs the journal after some of them.
    fn journal(prng: &mut Prng, root: &Path) -> (Vec<u8>, Vec<Written>) {
        let mut journal =
            Journal::create::<Row>(volume::real(), root, DataFileKind::Series, Timestamp::ZERO).expect("a journal");
        let (mut end, mut synced, mut second, mut written) = (HEADER, 0, 0, Vec::new());
        for _ in 0..1 + prng.below(20) {
            let (mut batch, mut seconds) = (BatchBytes::default(), Vec::new());
            for _ in 0..1 + prng.below(40) {
                second += 1;
                let mut row = Row { second, ..Row::default() };
                row.total.packets = prng.next_u64() >> prng.below(64);
                batch.push(&row);
                seconds.push(second);
            }
            let bytes = batch.take(Vec::new());
            let range = (end, end + bytes.len());
            end = range.1;
            journal.append(bytes).expect("written");
            written.push(Written { range, seconds, verified: synced });
            if prng.below(3) == 0 {
                journal.sync().expect("synced");
                synced = end;
            }
        }
        let bytes = std::fs::read(&journal.path).expect("the journal");
        journal.close();
        (bytes, written)
    }

    fn load(bytes: &[u8]) -> (LoadedJournal<Row>, Vec<u64>) {
        let loaded = LoadedJournal::<Row>::of(bytes.to_vec(), DataFileKind::Series).expect("its header is whole");
        let (mut sorted, mut seconds) = (SortedRows::new(&loaded).expect("columns"), Vec::new());
        loop {
            let rows = sorted.next().expect("rows");
            if rows.is_empty() {
                return (loaded, seconds);
            }
            seconds.extend(rows.iter().map(|row| row.second));
        }
    }

    /// Overwrites some bytes: with random bytes, with zeros, with other bytes of the same journal, or with bytes of
    /// another journal.
    fn damage(prng: &mut Prng, bytes: &mut Vec<u8>, other: &[u8]) {
        let place = |prng: &mut Prng, len: usize| HEADER + prng.below((len - HEADER) as u64) as usize;
        let at = place(prng, bytes.len());
        let most = (bytes.len() - at).min(1 << prng.below(13));
        let count = 1 + prng.below(most as u64) as usize;
        match prng.below(6) {
            0 => bytes[at..at + count].fill(0),
            1 => {
                let from = place(prng, bytes.len()).min(bytes.len() - count);
                bytes.copy_within(from..from + count, at);
            }
            2 if other.len() >= at + count => bytes[at..at + count].copy_from_slice(&other[at..at + count]),
            3 => bytes.truncate(at),
            4 => bytes[at] ^= 1 << prng.below(8),
            _ => bytes[at..at + count].iter_mut().for_each(|byte| *byte = prng.next_u64() as u8),
        }
    }

    #[test]
    fn damage_loses_only_its_batches_and_is_reported_if_they_were_synced() {
        let seed = testkit::seed("damage_loses_only_its_batches_and_is_reported_if_they_were_synced");
        let mut prng = Prng::new(seed);
        let (dir, mut reported) = (TempDir::new("columns-damage"), 0);
        for round in 0..60 {
            let (whole, written) = journal(&mut prng, dir.path());
            let (other, _) = journal(&mut prng, dir.path());
            for attempt in 0..30 {
                let note = format!("seed {seed} round {round} attempt {attempt}");
                let mut bytes = whole.clone();
                for _ in 0..=prng.below(3) {
                    if bytes.len() > HEADER {
                        damage(&mut prng, &mut bytes, &other);
                    }
                }
                let same = |from: usize, to: usize| bytes.get(from..to) == Some(&whole[from..to]);
                let is_whole = |w: &&Written| same(w.range.0, w.range.1);
                let expected: Vec<u64> = written.iter().filter(is_whole).flat_map(|w| w.seconds.clone()).collect();
                let kept: usize = written.iter().filter(is_whole).map(|w| w.range.1 - w.range.0).sum();
                let heads = written.iter().filter(|w| same(w.range.0, w.range.0 + HEAD));
                let synced = heads.map(|w| w.verified).max().unwrap_or(0);
                let is_damaged = |w: &Written| w.range.0 < synced && !is_whole(&w);
                let (loaded, seconds) = load(&bytes);
                assert_eq!(seconds, expected, "{note}");
                let is_sure = loaded.damage.is_some_and(|damage| !damage.or_torn);
                assert_eq!(is_sure, written.iter().any(is_damaged), "{note}");
                let out = loaded.torn + loaded.damage.map_or(0, |damage| damage.bytes);
                assert_eq!(out as usize, bytes.len() - HEADER - kept, "{note}: bytes that are reported as missing");
                reported += usize::from(is_sure);
            }
        }
        assert!(reported > 100, "{reported}");
    }

    #[test]
    fn a_journal_that_grows_is_not_damaged_wherever_it_ends() {
        let mut prng = Prng::new(testkit::seed("a_journal_that_grows_is_not_damaged_wherever_it_ends"));
        let dir = TempDir::new("columns-grows");
        let (bytes, written) = journal(&mut prng, dir.path());
        for end in HEADER..=bytes.len() {
            let (loaded, seconds) = load(&bytes[..end]);
            let whole: usize = written.iter().filter(|w| w.range.1 <= end).map(|w| w.seconds.len()).sum();
            assert_eq!((loaded.damage, seconds.len()), (None, whole), "{end} of {} bytes", bytes.len());
        }
    }

    #[test]
    fn a_flipped_bit_in_the_unsynced_last_batch_is_reported() {
        let mut prng = Prng::new(testkit::seed("a_flipped_bit_in_the_unsynced_last_batch_is_reported"));
        let dir = TempDir::new("columns-last");
        for round in 0..20 {
            let (bytes, written) = journal(&mut prng, dir.path());
            let last = written.last().expect("a batch");
            for at in last.range.0..last.range.1 {
                let mut bytes = bytes.clone();
                bytes[at] ^= 1 << prng.below(8);
                let (loaded, _) = load(&bytes);
                let damage = loaded.damage.expect("damage");
                let size = (last.range.1 - last.range.0) as u64;
                assert_eq!((damage.at, damage.bytes), (last.range.0 as u64, size), "round {round}, byte {at}");
                assert_eq!(loaded.torn, 0, "round {round}, byte {at}");
            }
        }
    }

    #[test]
    fn an_incompletely_written_batch_is_torn_and_not_damaged() {
        let mut prng = Prng::new(testkit::seed("an_incompletely_written_batch_is_torn_and_not_damaged"));
        let dir = TempDir::new("columns-unwritten");
        let (bytes, written) = journal(&mut prng, dir.path());
        let (from, to) = written.last().expect("a batch").range;
        for at in from..to {
            let mut bytes = bytes.clone();
            bytes[at..].fill(0);
            let (loaded, _) = load(&bytes);
            assert_eq!(loaded.damage, None, "zeros from byte {at} of a batch from byte {from} to {to}");
        }
    }
}
