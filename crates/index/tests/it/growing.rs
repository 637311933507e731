//! An index while its packet file grows: what it says at each moment, and what is left of it when the power fails.

use crate::common;

use base::{Prng, Tally};
use common::{entry, header, random_frame};
use netgrain_index::{Entry, Growing, Reader, Rows};

/// A recorder that tells of one block after another, and the file that it tells it in.
struct Telling {
    file: Vec<u8>,
    growing: Growing,
    /// As it was when the last sync ended.
    synced: Vec<Entry>,
    /// What has been said of the blocks.
    said: Vec<Entry>,
    /// Something is known of the last block, and more will come.
    filling: bool,
    second: u64,
}

impl Telling {
    fn new() -> Self {
        let file = header().encode();
        let growing = Growing::behind(&file);
        Self { file, growing, synced: Vec::new(), said: Vec::new(), filling: false, second: 1000 }
    }

    /// The next words: of the same block while it fills, which has `rows` more seconds now.
    fn next(&mut self, last: bool, rows: u64, prng: &mut Prng) -> (u64, Vec<u8>) {
        let block = self.said.len() as u32 - u32::from(self.filling);
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
        reported.rows = if self.filling { self.said[block as usize].rows.clone() } else { Rows::new() };
        reported.rows.merge(&news);
        let words = self.growing.write_entry(&reported, &news, last);
        let placed = (words.at, words.bytes.clone());
        self.growing.entry_written(words);
        self.said.truncate(block as usize);
        self.said.push(reported);
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

/// What is said of each block: number, bytes, checksum, rows.
type Said = Vec<(u32, u32, u32, Rows)>;

fn of(entries: &[Entry]) -> Said {
    entries.iter().map(|e| (e.block, e.bytes, e.crc, e.rows.clone())).collect()
}

fn read(file: &[u8]) -> (Said, Reader) {
    let mut reader = Reader::open(&file).expect("an index");
    let blocks = reader.blocks().to_vec();
    let said = blocks.iter().enumerate();
    let said = said.map(|(i, b)| (b.number, b.bytes, b.crc, reader.rows(&file, i).expect("its rows"))).collect();
    (said, reader)
}

#[test]
fn words_torn_at_any_byte_leave_what_was_said_before() {
    let seed = testkit::seed("words_torn_at_any_byte_leave_what_was_said_before");
    let mut prng = Prng::new(seed);
    for (last, rows) in [(false, 3), (true, 3), (false, 2000)] {
        let mut telling = Telling::new();
        for ends in [true, false, false, false] {
            let words = telling.next(ends, 3, &mut prng);
            telling.write(&words);
        }
        let before = of(&telling.said);
        let words = telling.next(last, rows, &mut prng);
        let after = of(&telling.said);
        let step = words.1.len() / 500 + 1;
        for torn in (0..words.1.len()).step_by(step).chain([words.1.len()]) {
            // Whatever order the pages of a write reach the disk in.
            for back in [false, true] {
                let mut file = telling.file.clone();
                match back {
                    false => put(&mut file, words.0, &words.1[..torn]),
                    true => put(&mut file, words.0 + (words.1.len() - torn) as u64, &words.1[words.1.len() - torn..]),
                }
                // What was in the slot before may begin in the same way.
                let whole = file[words.0 as usize..].starts_with(&words.1);
                let (said, reader) = read(&file);
                let note = format!("seed {seed}: {torn} of {} bytes, the last {back}", words.1.len());
                assert!(said == if whole { after.clone() } else { before.clone() }, "{note}");
                assert!(!reader.is_torn(), "{note}: other words are left");
                if whole {
                    assert_eq!(reader.end(), Some(file.len() as u64), "{note}");
                }
            }
        }
    }
}

#[test]
fn words_that_are_damaged_anywhere_are_not_passed_over_without_a_remark() {
    let seed = testkit::seed("words_that_are_damaged_anywhere_are_not_passed_over_without_a_remark");
    let mut prng = Prng::new(seed);
    let mut telling = Telling::new();
    for ends in [true, false, false] {
        let words = telling.next(ends, 3, &mut prng);
        telling.write(&words);
    }
    let (at, bytes) = telling.next(false, 3, &mut prng);
    telling.write(&(at, bytes.clone()));
    // The last word is seen to have gone as long as any byte of it is left.
    for blank in [1, 4, 8, 64, 512, bytes.len() - 4] {
        let mut file = telling.file.clone();
        put(&mut file, at, &vec![0; blank]);
        let (said, reader) = read(&file);
        assert_eq!(said.len(), 2, "seed {seed}: the words before are left");
        assert_eq!(reader.end(), Some(at), "seed {seed}: {blank} of {} bytes are zeros", bytes.len());
    }
}

#[test]
fn a_slot_of_zeros_is_missed_unless_it_was_the_last_to_be_taken() {
    let seed = testkit::seed("a_slot_of_zeros_is_missed_unless_it_was_the_last_to_be_taken");
    let mut prng = Prng::new(seed);
    let mut telling = Telling::new();
    let words: Vec<(u64, Vec<u8>)> = (0..2).map(|_| telling.next(false, 3, &mut prng)).collect();
    let first = of(&telling.said[..1]);
    words.iter().for_each(|words| telling.write(words));
    let without = |(at, bytes): &(u64, Vec<u8>)| {
        let mut file = telling.file.clone();
        put(&mut file, *at, &vec![0; bytes.len()]);
        file
    };
    let (said, reader) = read(&without(&words[0]));
    assert_eq!(said, first, "seed {seed}: the newest words");
    assert_eq!((reader.end(), reader.is_torn()), (Some(words[0].0), false), "seed {seed}: those before are missed");
    let (said, reader) = read(&without(&words[1]));
    assert_eq!((said.len(), said != first), (1, true), "seed {seed}: the words before count");
    assert_eq!(reader.end(), Some(telling.file.len() as u64), "seed {seed}: nobody can know");
}

#[test]
fn what_was_synced_survives_whatever_the_power_takes_of_later_words() {
    let seed = testkit::seed("what_was_synced_survives_whatever_the_power_takes_of_later_words");
    let mut slots = 0;
    for round in 0..20 {
        let mut prng = Prng::new(seed ^ round);
        let mut telling = Telling::new();
        let mut durable = telling.file.clone();
        // Words that are not safe yet; where a sync is under way, how many it will make so.
        let mut loose: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut syncing: Option<(usize, Vec<Entry>)> = None;
        for _ in 0..80 {
            match prng.below(10) {
                0..2 if syncing.is_none() => {
                    telling.growing.sync_begins();
                    syncing = Some((loose.len(), telling.said.clone()));
                }
                2..4 if syncing.is_some() => {
                    let (count, said) = syncing.take().expect("a sync");
                    loose.drain(..count).for_each(|(at, bytes)| put(&mut durable, at, &bytes));
                    telling.growing.sync_ends();
                    telling.synced = said;
                }
                chance => {
                    let rows = if prng.below(40) == 0 { 1500 } else { prng.below(5) };
                    let words = telling.next(chance == 9, rows, &mut prng);
                    telling.write(&words);
                    loose.push(words);
                }
            }
            let (said, reader) = read(&telling.file);
            assert!(said == of(&telling.said), "seed {seed} round {round}: what was said is read");
            assert_eq!(reader.end(), Some(telling.file.len() as u64), "seed {seed} round {round}");
            let mut survived = durable.clone();
            for (at, bytes) in &loose {
                let torn = match prng.below(3) {
                    0 => 0,
                    1 => prng.below(bytes.len() as u64 + 1) as usize,
                    _ => bytes.len(),
                };
                put(&mut survived, *at, &bytes[..torn]);
            }
            let (said, reader) = read(&survived);
            let note = format!("seed {seed} round {round}: {} of {} blocks", said.len(), telling.synced.len());
            assert!(said.len() >= telling.synced.len(), "{note}");
            // Newer words may have taken their place; if so the older ones are there too.
            let known: Vec<_> = said.into_iter().chain(of(reader.earlier())).collect();
            assert!(of(&telling.synced).iter().all(|words| known.contains(words)), "{note}");
            slots += reader.earlier().len();
        }
    }
    assert!(slots > 300, "{slots} words were replaced");
}
