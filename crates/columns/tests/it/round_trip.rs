//! Tests that flow records and series rows are read back unchanged, in order of time, from the journal and from the
//! Parquet file.

use crate::common;

use base::{Prng, Timestamp};
use netgrain_columns::{Config, Event, Query, Writer, flows, series};
use testkit::TempDir;

#[test]
fn every_field_of_random_records_survives_journal_and_file() {
    let seed = testkit::seed("every_field_of_random_records_survives_journal_and_file");
    let mut prng = Prng::new(seed);
    let store = TempDir::new("columns-round-trip");
    let mut records: Vec<_> = (0..3000).map(|_| common::any_record(&mut prng)).collect();
    let mut writer =
        Writer::new(Config { wait_when_full: true, ..Config::new(store.path(), "eth1") }).expect("threads");
    records.iter().for_each(|record| writer.record(record));
    writer.tick(Timestamp::from_nanos(1));
    records.sort_by_key(|r| (r.first(), r.id, r.record_index));
    let (counts, events) = writer.finish();
    assert_eq!((counts.submitted, counts.journaled, counts.sealed), (3000, 3000, 3000), "{events:?}");
    let mut results = flows(&Query::new(store.path())).expect("a store");
    for (i, record) in records.iter().enumerate() {
        assert_eq!(results.next().as_ref(), Some(record), "seed {seed}, record {i}: {:?}", results.warnings());
    }
    assert_eq!(results.next(), None);
    assert!(results.warnings().is_empty(), "{:?}", results.warnings());
}

#[test]
fn one_to_five_random_records_are_read_back_unchanged() {
    // With few records, the presence bitmap of the rows can have the same bits as that of the list entries, although
    // the two bitmaps apply to different positions.
    let seed = testkit::seed("one_to_five_random_records_are_read_back_unchanged");
    let mut prng = Prng::new(seed);
    for round in 0..100 {
        let store = TempDir::new("columns-handful");
        let mut site = common::TrafficModel::new(prng.next_u64(), 100.0);
        let count = 1 + prng.below(5) as usize;
        let mut records: Vec<_> = (0..count).map(|_| site.record()).collect();
        for record in &mut records {
            record.initial_packets.truncate(prng.below(4) as usize);
        }
        let mut writer =
            Writer::new(Config { wait_when_full: true, ..Config::new(store.path(), "eth1") }).expect("threads");
        records.iter().for_each(|record| writer.record(record));
        let (counts, events) = writer.finish();
        assert_eq!(counts.sealed, count as u64, "seed {seed}, round {round}: {events:?}");
        records.sort_by_key(|r| (r.first(), r.id, r.record_index));
        let results = flows(&Query::new(store.path())).expect("a store");
        assert_eq!(results.collect::<Vec<_>>(), records, "seed {seed}, round {round}");
    }
}

#[test]
fn encodings_chosen_for_one_row_group_do_not_damage_the_next() {
    // The compression method and the encoding are chosen once per file; the second row group has different values and
    // is not full.
    let seed = testkit::seed("encodings_chosen_for_one_row_group_do_not_damage_the_next");
    let mut prng = Prng::new(seed);
    let store = TempDir::new("columns-groups");
    let mut site = common::TrafficModel::new(prng.next_u64(), 20_000.0);
    let mut records: Vec<_> = (0..70_000).map(|_| site.record()).collect();
    for record in &mut records[66_000..] {
        record
            .directions
            .iter_mut()
            .for_each(|side| (side.bytes, side.ttl) = (prng.next_u64(), (prng.below(9) as u8, 255)));
        record.initial_packets.iter_mut().for_each(|early| early.length = prng.below(3) as u16);
    }
    let mut writer =
        Writer::new(Config { wait_when_full: true, ..Config::new(store.path(), "eth1") }).expect("threads");
    records.iter().for_each(|record| writer.record(record));
    let (counts, events) = writer.finish();
    assert_eq!((counts.sealed, counts.files), (70_000, 1), "seed {seed}: {events:?}");
    records.sort_by_key(|r| (r.first(), r.id, r.record_index));
    let mut results = flows(&Query::new(store.path())).expect("a store");
    for (i, record) in records.iter().enumerate() {
        assert_eq!(results.next().as_ref(), Some(record), "seed {seed}, record {i}: {:?}", results.warnings());
    }
    assert_eq!(results.next(), None);
}

#[test]
fn a_file_is_the_same_for_any_number_of_sealing_threads() {
    let seed = testkit::seed("a_file_is_the_same_for_any_number_of_sealing_threads");
    let mut site = common::TrafficModel::new(seed, 20_000.0);
    let records: Vec<_> = (0..70_000).map(|_| site.record()).collect();
    let made = |sealing_threads: usize| {
        let store = TempDir::new("columns-hands");
        let config = Config { wait_when_full: true, sealing_threads, ..Config::new(store.path(), "eth1") };
        let mut writer = Writer::new(config).expect("threads");
        records.iter().for_each(|record| writer.record(record));
        let (counts, events) = writer.finish();
        assert_eq!((counts.sealed, counts.files), (70_000, 1), "seed {seed}: {events:?}");
        let [Event::Sealed { path, .. }] = &events[..] else { panic!("seed {seed}: {events:?}") };
        let bytes = std::fs::read(path).expect("the file");
        // The footer has the file id, which differs between files.
        let footer = u32::from_le_bytes(*bytes[..bytes.len() - 4].last_chunk().expect("a length")) as usize;
        bytes[..bytes.len() - 8 - footer].to_vec()
    };
    let one = made(1);
    assert!(one.len() > 1 << 20, "{} bytes", one.len());
    assert!([2, 5].into_iter().all(|sealing_threads| made(sealing_threads) == one), "seed {seed}");
}

#[test]
fn every_field_of_random_rows_is_read_back_unchanged() {
    let seed = testkit::seed("every_field_of_random_rows_is_read_back_unchanged");
    let mut prng = Prng::new(seed);
    let store = TempDir::new("columns-rows");
    let mut rows: Vec<_> = (0..2000).map(|i| common::any_row(&mut prng, common::START + i * 5)).collect();
    let mut writer =
        Writer::new(Config { wait_when_full: true, ..Config::new(store.path(), "eth1") }).expect("threads");
    rows.iter().for_each(|row| writer.row(row));
    let (counts, events) = writer.finish();
    assert_eq!((counts.sealed, counts.files), (2000, 4), "{events:?}");
    let found: Vec<_> = series(&Query::new(store.path())).expect("a store").collect();
    rows.sort_by_key(|r| (r.second, r.interface, r.direction as u8));
    assert_eq!(found, rows, "seed {seed}");
}
