//! Tests of the content of a growing index: after each write, and after a power failure.

use crate::common;

use base::{Prng, Tally};
use common::{entry, header, random_frame};
use netgrain_index::{Entry, Growing, Reader, Rows};

/// A simulated recorder, which writes index entries one after the other, and the bytes of its index file.
struct IndexWriter {
    file: Vec<u8>,
    growing: Growing,
    /// The entries that the last completed sync covered.
    synced: Vec<Entry>,
    /// The newest entry of each block.
    content: Vec<Entry>,
    /// True if the last block is still being filled.
    filling: bool,
    second: u64,
}

impl IndexWriter {
    fn new() -> Self {
        let file = header().encode();
        let growing = Growing::behind(&file);
        Self { file, growing, synced: Vec::new(), content: Vec::new(), filling: false, second: 1000 }
    }

    /// Creates the next entry, with `rows` new ledger rows, and returns offset and bytes of the write. `last` is true
    /// if the block is full afterwards.
    fn next(&mut self, last: bool, rows: u64, prng: &mut Prng) -> (u64, Vec<u8>) {
        let block = self.content.len() as u32 - u32::from(self.filling);
        let frames: Vec<_> = (0..prng.below(30))
            .map(|_| random_frame(prng))
            .map(|frame| (frame.clone(), frame.len() as u32, 1))
            .collect();
        let mut news = Rows::new();
        for _ in 0..rows {
            self.second += 1 + prng.below(3);
            let stored = 1 + prng.below(1 << 20);
            news.add(self.second, &Tally { offered: stored, stored, stored_bytes: 99 * stored, ..Tally::default() });
        }
        let mut reported = entry(block, 1 + prng.below(1 << 20) as u32, &frames);
        reported.rows = if self.filling { self.content[block as usize].rows.clone() } else { Rows::new() };
        reported.rows.merge(&news);
        let write = self.growing.write_entry(&reported, &news, last);
        let placed = (write.at, write.bytes.clone());
        self.growing.entry_written(write);
        self.content.truncate(block as usize);
        self.content.push(reported);
        self.filling = !last;
        placed
    }

    fn write(&mut self, (at, bytes): &(u64, Vec<u8>)) {
        put(&mut self.file, *at, bytes);
    }
}

fn put(file: &mut Vec<u8>, at: u64, bytes: &[u8]) {
    let end = at as usize + bytes.len();
    file.resize(file.len().max(end), 0);
    file[at as usize..end].copy_from_slice(bytes);
}

/// The values that the test compares: for each block its number, its length, its checksum and its ledger rows.
type Content = Vec<(u32, u32, u32, Rows)>;

fn of(entries: &[Entry]) -> Content {
    entries.iter().map(|e| (e.block, e.bytes, e.crc, e.rows.clone())).collect()
}

fn read(file: &[u8]) -> (Content, Reader) {
    let mut reader = Reader::open(&file).expect("an index");
    let blocks = reader.blocks().to_vec();
    let content = blocks.iter().enumerate();
    let content = content
        .map(|(i, b)| (b.number, b.bytes, b.crc, reader.rows(&file, i).expect("the rows of the block")))
        .collect();
    (content, reader)
}

#[test]
fn a_torn_write_leaves_the_previous_entry() {
    let seed = testkit::seed("a_torn_write_leaves_the_previous_entry");
    let mut prng = Prng::new(seed);
    for (last, rows) in [(false, 3), (true, 3), (false, 2000)] {
        let mut writer = IndexWriter::new();
        for ends in [true, false, false, false] {
            let write = writer.next(ends, 3, &mut prng);
            writer.write(&write);
        }
        let before = of(&writer.content);
        let write = writer.next(last, rows, &mut prng);
        let after = of(&writer.content);
        let step = write.1.len() / 500 + 1;
        for torn in (0..write.1.len()).step_by(step).chain([write.1.len()]) {
            // The pages of a write may reach the disk in any order, so the test writes either only the first or only
            // the last bytes.
            for back in [false, true] {
                let mut file = writer.file.clone();
                match back {
                    false => put(&mut file, write.0, &write.1[..torn]),
                    true => put(&mut file, write.0 + (write.1.len() - torn) as u64, &write.1[write.1.len() - torn..]),
                }
                // The write may be complete although it was torn, if the previous content of the slot has the same
                // bytes.
                let whole = file[write.0 as usize..].starts_with(&write.1);
                let (content, reader) = read(&file);
                let note = format!("seed {seed}: {torn} of {} bytes, the last {back}", write.1.len());
                assert!(content == if whole { after.clone() } else { before.clone() }, "{note}");
                assert!(!reader.is_torn(), "{note}: other entries are left");
                if whole {
                    assert_eq!(reader.end(), Some(file.len() as u64), "{note}");
                }
            }
        }
    }
}

#[test]
fn a_damaged_newest_entry_is_detected() {
    let seed = testkit::seed("a_damaged_newest_entry_is_detected");
    let mut prng = Prng::new(seed);
    let mut writer = IndexWriter::new();
    for ends in [true, false, false] {
        let write = writer.next(ends, 3, &mut prng);
        writer.write(&write);
    }
    let (at, bytes) = writer.next(false, 3, &mut prng);
    writer.write(&(at, bytes.clone()));
    // The loss of the newest entry is detected as long as at least one of its bytes is left.
    for blank in [1, 4, 8, 64, 512, bytes.len() - 4] {
        let mut file = writer.file.clone();
        put(&mut file, at, &vec![0; blank]);
        let (content, reader) = read(&file);
        assert_eq!(content.len(), 2, "seed {seed}: the previous entries are left");
        assert_eq!(reader.end(), Some(at), "seed {seed}: {blank} of {} bytes are zeros", bytes.len());
    }
}

#[test]
fn an_erased_slot_is_detected_unless_it_was_the_last() {
    let seed = testkit::seed("an_erased_slot_is_detected_unless_it_was_the_last");
    let mut prng = Prng::new(seed);
    let mut writer = IndexWriter::new();
    let writes: Vec<(u64, Vec<u8>)> = (0..2).map(|_| writer.next(false, 3, &mut prng)).collect();
    let first = of(&writer.content[..1]);
    writes.iter().for_each(|write| writer.write(write));
    let without = |(at, bytes): &(u64, Vec<u8>)| {
        let mut file = writer.file.clone();
        put(&mut file, *at, &vec![0; bytes.len()]);
        file
    };
    let (content, reader) = read(&without(&writes[0]));
    assert_eq!(content, first, "seed {seed}: the newest entry");
    assert_eq!(
        (reader.end(), reader.is_torn()),
        (Some(writes[0].0), false),
        "seed {seed}: the loss of the earlier entry is detected"
    );
    let (content, reader) = read(&without(&writes[1]));
    assert_eq!((content.len(), content != first), (1, true), "seed {seed}: the previous entry counts");
    assert_eq!(
        reader.end(),
        Some(writer.file.len() as u64),
        "seed {seed}: the loss of the last slot cannot be detected"
    );
}

#[test]
fn synced_entries_survive_a_power_failure() {
    let seed = testkit::seed("synced_entries_survive_a_power_failure");
    let mut slots = 0;
    for round in 0..20 {
        let mut prng = Prng::new(seed ^ round);
        let mut writer = IndexWriter::new();
        let mut durable = writer.file.clone();
        // `unsynced` has the writes that are not synced yet. During a sync, `syncing` is the number of these writes
        // that the sync covers.
        let mut unsynced: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut syncing: Option<(usize, Vec<Entry>)> = None;
        for _ in 0..80 {
            match prng.below(10) {
                0..2 if syncing.is_none() => {
                    writer.growing.sync_begins();
                    syncing = Some((unsynced.len(), writer.content.clone()));
                }
                2..4 if syncing.is_some() => {
                    let (count, content) = syncing.take().expect("a sync");
                    unsynced.drain(..count).for_each(|(at, bytes)| put(&mut durable, at, &bytes));
                    writer.growing.sync_ends();
                    writer.synced = content;
                }
                chance => {
                    let rows = if prng.below(40) == 0 { 1500 } else { prng.below(5) };
                    let write = writer.next(chance == 9, rows, &mut prng);
                    writer.write(&write);
                    unsynced.push(write);
                }
            }
            let (content, reader) = read(&writer.file);
            assert!(content == of(&writer.content), "seed {seed} round {round}: the reader returns the newest entries");
            assert_eq!(reader.end(), Some(writer.file.len() as u64), "seed {seed} round {round}");
            let mut survived = durable.clone();
            for (at, bytes) in &unsynced {
                let torn = match prng.below(3) {
                    0 => 0,
                    1 => prng.below(bytes.len() as u64 + 1) as usize,
                    _ => bytes.len(),
                };
                put(&mut survived, *at, &bytes[..torn]);
            }
            let (content, reader) = read(&survived);
            let note = format!("seed {seed} round {round}: {} of {} blocks", content.len(), writer.synced.len());
            assert!(content.len() >= writer.synced.len(), "{note}");
            // Newer entries may have replaced the synced entries; then the reader returns the synced entries as earlier
            // entries.
            let known: Vec<_> = content.into_iter().chain(of(reader.earlier())).collect();
            assert!(of(&writer.synced).iter().all(|write| known.contains(write)), "{note}");
            slots += reader.earlier().len();
        }
    }
    assert!(slots > 300, "only {slots} entries were replaced");
}
