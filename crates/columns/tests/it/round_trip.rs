//! What goes in comes out, through journal and Parquet, in the order of time.

use crate::common;

use base::{Prng, Timestamp};
use netgrain_columns::{Config, Event, Query, Writer, flows, series};
use testkit::TempDir;

#[test]
fn every_field_of_any_record_comes_back_from_the_journal_and_from_the_file() {
    let seed = testkit::seed("every_field_of_any_record_comes_back_from_the_journal_and_from_the_file");
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
    let mut answer = flows(&Query::new(store.path())).expect("a store");
    for (i, record) in records.iter().enumerate() {
        assert_eq!(answer.next().as_ref(), Some(record), "seed {seed}, record {i}: {:?}", answer.warnings());
    }
    assert_eq!(answer.next(), None);
    assert!(answer.warnings().is_empty(), "{:?}", answer.warnings());
}

#[test]
fn a_handful_of_records_comes_back_whichever_they_are() {
    // Of few records, columns of rows and of their packets look alike that are not of the same places.
    let seed = testkit::seed("a_handful_of_records_comes_back_whichever_they_are");
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
        let answer = flows(&Query::new(store.path())).expect("a store");
        assert_eq!(answer.collect::<Vec<_>>(), records, "seed {seed}, round {round}");
    }
}

#[test]
fn what_was_learnt_of_one_row_group_does_the_next_no_harm() {
    // Ways of compressing and encoding are chosen once for a file; the second row group is unlike the first, and ends
    // early.
    let seed = testkit::seed("what_was_learnt_of_one_row_group_does_the_next_no_harm");
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
    let mut answer = flows(&Query::new(store.path())).expect("a store");
    for (i, record) in records.iter().enumerate() {
        assert_eq!(answer.next().as_ref(), Some(record), "seed {seed}, record {i}: {:?}", answer.warnings());
    }
    assert_eq!(answer.next(), None);
}

#[test]
fn a_file_is_the_same_for_any_number_of_sealing_threads() {
    let seed = testkit::seed("a_file_is_the_same_for_any_number_of_sealing_threads");
    let mut site = common::TrafficModel::new(seed, 20_000.0);
    let records: Vec<_> = (0..70_000).map(|_| site.record()).collect();
    let made = |hands: usize| {
        let store = TempDir::new("columns-hands");
        let config = Config { wait_when_full: true, hands, ..Config::new(store.path(), "eth1") };
        let mut writer = Writer::new(config).expect("threads");
        records.iter().for_each(|record| writer.record(record));
        let (counts, events) = writer.finish();
        assert_eq!((counts.sealed, counts.files), (70_000, 1), "seed {seed}: {events:?}");
        let [Event::Sealed { path, .. }] = &events[..] else { panic!("seed {seed}: {events:?}") };
        let bytes = std::fs::read(path).expect("the file");
        // The footer has the number of the file, which no two files share.
        let footer = u32::from_le_bytes(*bytes[..bytes.len() - 4].last_chunk().expect("a length")) as usize;
        bytes[..bytes.len() - 8 - footer].to_vec()
    };
    let one = made(1);
    assert!(one.len() > 1 << 20, "{} bytes", one.len());
    assert!([2, 5].into_iter().all(|hands| made(hands) == one), "seed {seed}");
}

#[test]
fn every_field_of_any_row_comes_back() {
    let seed = testkit::seed("every_field_of_any_row_comes_back");
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
