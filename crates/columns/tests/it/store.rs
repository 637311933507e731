//! Tests of query results after crashes, damage, changes by other programs, retention and compaction.

use crate::common;

use base::{Prng, Timestamp};
use flow::Record;
use netgrain_columns::{
    Column, Config, DataFileKind, HeldSince, Query, RetentionRules, Writer, compact, files, flows, recover, retain,
    scan, scan_shared, series, uncompacted_days,
};
use series::Row;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use store::{Hold, names};
use testkit::TempDir;

fn site(seed: u64, n: usize) -> Vec<Record> {
    let mut site = common::TrafficModel::new(seed, 100.0);
    (0..n).map(|_| site.record()).collect()
}

fn config(store: &Path) -> Config {
    Config { wait_when_full: true, ..Config::new(store, "eth1") }
}

/// Leaves a journal as after a crash, and returns its path.
fn crashed(store: &Path, records: &[Record]) -> PathBuf {
    let mut writer = Writer::new(config(store)).expect("threads");
    for (i, record) in records.iter().enumerate() {
        writer.record(record);
        // A batch every few records.
        if i % 7 == 6 {
            writer.tick(Timestamp::from_nanos(i as u64 * 1_000_000_000));
        }
    }
    drop(writer);
    let directory = names::interface_directory(store, "eth1");
    let find = || {
        let names = fs::read_dir(&directory).ok()?.flatten().map(|e| e.path());
        let mut found: Vec<PathBuf> = names.filter(|p| p.extension().is_some_and(|e| e == "partial")).collect();
        found.pop()
    };
    for _ in 0..10_000 {
        // The writer's thread closes the journal when all rows are in it.
        if let Some(path) = find()
            && fs::File::open(&path).is_ok_and(|f| f.try_lock().is_ok())
            && flows(&Query::new(store)).is_ok_and(|a| a.count() == records.len())
        {
            return path;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{}: no journal with all {} records in it", directory.display(), records.len());
}

fn in_order(mut records: Vec<Record>) -> Vec<Record> {
    records.sort_by_key(|r| (r.first(), r.id, r.record_index));
    records
}

fn all(store: &Path) -> Vec<Record> {
    flows(&Query::new(store)).expect("a store").collect()
}

#[test]
fn a_journal_truncated_at_any_byte_yields_its_complete_batches() {
    let store = TempDir::new("columns-torn");
    let records = site(1, 40);
    let path = crashed(store.path(), &records);
    let bytes = fs::read(&path).expect("a journal");
    let mut counts = BTreeSet::new();
    for cut in 0..=bytes.len() {
        fs::write(&path, &bytes[..cut]).expect("a shorter journal");
        let found = all(store.path());
        assert!(found.len().is_multiple_of(7) || found.len() == records.len(), "{cut}: {}", found.len());
        assert_eq!(found, in_order(records[..found.len()].to_vec()), "cut at {cut}");
        counts.insert(found.len());
        if cut % 1009 == 1000 {
            let recovered = recover(store.path(), "eth1").expect("a directory");
            assert_eq!(recovered.rows, found.len() as u64, "{:?}", recovered.warnings);
            assert_eq!(all(store.path()), found, "cut at {cut}, sealed");
            files(store.path(), "eth1", DataFileKind::Flows).expect("a listing").iter().for_each(|f| {
                fs::remove_file(&f.path).expect("a file");
            });
        }
    }
    assert_eq!(counts.len(), 7, "{counts:?}");
}

#[test]
fn recovery_ignores_journals_that_running_writers_seal() {
    let store = TempDir::new("columns-meanwhile");
    let records = site(3, 40);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..150 {
                let mut writer = Writer::new(config(store.path())).expect("threads");
                records.iter().for_each(|record| writer.record(record));
                writer.finish();
            }
            over.store(true, Ordering::Relaxed);
        });
        while !over.load(Ordering::Relaxed) {
            // The interface directory does not exist before the first journal is created. A missing directory is no
            // error.
            let recovered = recover(store.path(), "eth1").expect("a directory");
            assert!(recovered.warnings.is_empty(), "{:?}", recovered.warnings);
            assert_eq!(recovered.journals, 0, "recovery took the journal of a running writer");
        }
    });
    assert_eq!(all(store.path()).len(), 150 * records.len());
}

#[test]
fn random_byte_changes_lose_only_their_batches_of_a_journal() {
    let seed = testkit::seed("random_byte_changes_lose_only_their_batches_of_a_journal");
    let mut prng = Prng::new(seed);
    let store = TempDir::new("columns-fuzz-journal");
    let records = site(seed, 40);
    let path = crashed(store.path(), &records);
    let bytes = fs::read(&path).expect("a journal");
    // Bytes of the journal header and of a batch header.
    const HEADER: usize = 24;
    const HEAD: usize = 20;
    let (mut batches, mut at) = (Vec::new(), HEADER);
    while let Some(length) = bytes.get(at..at + 4) {
        let end = at + HEAD + u32::from_le_bytes([length[0], length[1], length[2], length[3]]) as usize;
        batches.push(at..end);
        at = end;
    }
    assert_eq!((at, batches.len()), (bytes.len(), 6));
    for round in 0..2000 {
        let mut broken = bytes.clone();
        for _ in 0..=prng.below(3) {
            let at = prng.below(broken.len() as u64) as usize;
            broken[at] ^= 1 << prng.below(8);
        }
        fs::write(&path, &broken).expect("a journal");
        let found = all(store.path());
        let mut expected = Vec::new();
        for (range, some) in batches.iter().zip(records.chunks(7)) {
            if broken[..HEADER] == bytes[..HEADER] && broken[range.clone()] == bytes[range.clone()] {
                expected.extend_from_slice(some);
            }
        }
        assert_eq!(found, in_order(expected), "seed {seed} round {round}");
        assert!(found.len() < records.len(), "seed {seed} round {round}: a flipped bit changed no result");
    }
}

#[test]
fn damaged_empty_and_foreign_files_are_reported_and_the_rest_is_read() {
    let seed = testkit::seed("damaged_empty_and_foreign_files_are_reported_and_the_rest_is_read");
    let mut prng = Prng::new(seed);
    let store = TempDir::new("columns-damage");
    let records = site(2, 400);
    let mut writer = Writer::new(Config { flows_most: 200, ..config(store.path()) }).expect("threads");
    records.iter().for_each(|record| writer.record(record));
    writer.finish();
    let sealed = files(store.path(), "eth1", DataFileKind::Flows).expect("a listing");
    assert_eq!(sealed.len(), 2);
    let directory = sealed[0].path.parent().expect("an hour");
    for (name, content) in [("20261121T104000.000000000Z.flows.parquet", &b""[..]), ("notes.txt", b"hello")] {
        fs::write(directory.join(name), content).expect("a file");
    }
    fs::write(directory.join("20261121T104000.000000001Z.flows.parquet"), b"PAR1 is not all there is to it PAR1")
        .expect("a file");
    let mut results = flows(&Query::new(store.path())).expect("a store");
    assert_eq!(results.by_ref().collect::<Vec<_>>(), in_order(records.clone()));
    assert_eq!(results.warnings().len(), 2, "{:?}", results.warnings());

    let bytes = fs::read(&sealed[1].path).expect("a file");
    let first_half = &in_order(records)[..200];
    for round in 0..150 {
        let mut broken = bytes.clone();
        if prng.below(4) == 0 {
            broken.truncate(prng.below(bytes.len() as u64) as usize);
        }
        for _ in 0..prng.below(40) {
            let at = prng.below(broken.len().max(1) as u64) as usize;
            broken.iter_mut().skip(at).take(1).for_each(|byte| *byte = prng.next_u64() as u8);
        }
        fs::write(&sealed[1].path, &broken).expect("a file");
        // The undamaged file is read, independent of the damage of the other file.
        let found: BTreeSet<u64> = flows(&Query::new(store.path())).expect("a store").map(|r| r.id).collect();
        assert!(first_half.iter().all(|r| found.contains(&r.id)), "seed {seed} round {round}");
    }
}

#[test]
fn a_flipped_bit_in_a_page_is_reported_and_changes_no_value() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    let seed = testkit::seed("a_flipped_bit_in_a_page_is_reported_and_changes_no_value");
    let mut prng = Prng::new(seed);
    let store = TempDir::new("columns-flipped");
    let records = in_order(site(seed, 600));
    let mut writer = Writer::new(config(store.path())).expect("threads");
    records.iter().for_each(|record| writer.record(record));
    writer.finish();
    let path = files(store.path(), "eth1", DataFileKind::Flows).expect("a listing").remove(0).path;
    let bytes = fs::read(&path).expect("a file");
    let opened = SerializedFileReader::new(fs::File::open(&path).expect("a file")).expect("Parquet");
    let columns = opened.metadata().row_group(0).columns().to_vec();
    for round in 0..300 {
        let column = &columns[prng.below(columns.len() as u64) as usize];
        // A page header is shorter than this number of bytes; page checksums do not cover the headers.
        const HEADER: u64 = 48;
        let (begin, len) = column.byte_range();
        let data = column.data_page_offset() as u64 + HEADER;
        if data >= begin + len {
            continue;
        }
        let at = data + prng.below(begin + len - data);
        let mut broken = bytes.clone();
        broken[at as usize] ^= 1 << prng.below(8);
        fs::write(&path, &broken).expect("a file");
        let name = column.column_path().string();
        let mut results = flows(&Query::new(store.path())).expect("a store");
        // The values of a derived column follow from other columns. So damage of a derived column is reported, but no
        // record is missing.
        let is_made = ["last", "duration_ns", "second", "packets", "bytes"].contains(&&name[..]);
        let left: &[Record] = if is_made { &records } else { &[] };
        assert!(results.by_ref().collect::<Vec<_>>() == left, "seed {seed} round {round}: {name}");
        assert_eq!(results.warnings().len(), 1, "seed {seed} round {round}: {name}");
        // A scan computes the end of a record from its begin and its duration.
        let columns_to_scan = Column::ALL.iter().find(|c| c.name() == name && name != "last");
        if let Some(columns_to_scan) = columns_to_scan {
            let mut rows = 0;
            let warnings =
                scan(&Query::new(store.path()), &[*columns_to_scan], |batch| rows += batch.rows()).expect("a store");
            assert_eq!((rows, warnings.len()), (0, 1), "seed {seed} round {round}: {name}");
            assert!(warnings[0].contains(&path.display().to_string()), "{warnings:?}");
        }
    }
}

#[test]
fn a_reader_beside_the_writer_gets_every_record_once_and_in_order() {
    let store = TempDir::new("columns-beside");
    let records = site(3, 6000);
    let root = store.path().to_owned();
    let given = records.clone();
    let writing = std::thread::spawn(move || {
        let mut writer = Writer::new(Config { flows_most: 700, ..config(&root) }).expect("threads");
        for (i, record) in given.iter().enumerate() {
            writer.record(record);
            if i % 20 == 0 {
                writer.tick(Timestamp::from_nanos(i as u64 * 20_000_000));
                std::thread::sleep(Duration::from_micros(500));
            }
        }
        writer.finish().0
    });
    let mut seen = 0;
    while !writing.is_finished() {
        let Ok(results) = flows(&Query::new(store.path())) else { continue };
        let found: Vec<_> = results.collect();
        assert!(found.len() >= seen, "{} after {seen}", found.len());
        assert!(found.is_sorted_by_key(|r| (r.first(), r.id)));
        let ids: BTreeSet<u64> = found.iter().map(|r| r.id).collect();
        assert_eq!(ids.len(), found.len(), "a record was returned twice");
        seen = found.len();
    }
    assert_eq!(writing.join().expect("a writer").sealed, 6000);
    assert_eq!(all(store.path()), in_order(records));
}

#[test]
fn a_crash_between_publication_and_journal_removal_doubles_no_row() {
    let store = TempDir::new("columns-twice");
    let records = site(4, 50);
    let path = crashed(store.path(), &records);
    let journal = fs::read(&path).expect("a journal");
    recover(store.path(), "eth1").expect("a directory");
    assert!(!path.exists());
    fs::write(&path, &journal).expect("the journal again");
    assert_eq!(all(store.path()), in_order(records.clone()));
    let mut rows = 0;
    scan(&Query::new(store.path()), &[Column::Src], |batch| rows += batch.rows()).expect("a store");
    assert_eq!(rows, 50);
    assert_eq!(recover(store.path(), "eth1").expect("a directory").rows, 50);
    assert_eq!(files(store.path(), "eth1", DataFileKind::Flows).expect("a listing").len(), 1);
    assert_eq!(all(store.path()), in_order(records));
}

#[test]
fn a_kill_during_sealing_leaves_no_file_that_is_read_or_blocks_sealing() {
    let seed = testkit::seed("a_kill_during_sealing_leaves_no_file_that_is_read_or_blocks_sealing");
    let mut prng = Prng::new(seed);
    let store = TempDir::new("columns-killed");
    let records = in_order(site(seed, 80));
    let journal = crashed(store.path(), &records);
    let journaled = fs::read(&journal).expect("a journal");
    recover(store.path(), "eth1").expect("a directory");
    let sealed = files(store.path(), "eth1", DataFileKind::Flows).expect("a listing").remove(0);
    let whole = fs::read(&sealed.path).expect("a file");
    let hidden =
        sealed.path.with_file_name(names::hidden(&names::stem(sealed.start, None, 0), DataFileKind::Flows.ending()));
    for round in 0..60 {
        fs::remove_file(&sealed.path).expect("a file");
        fs::write(&journal, &journaled).expect("the journal again");
        let cut = prng.below(1 + whole.len() as u64) as usize;
        fs::write(&hidden, &whole[..cut]).expect("the file of the killed process");
        assert_eq!(all(store.path()), records, "seed {seed} round {round}: cut at {cut}");
        let recovered = recover(store.path(), "eth1").expect("a directory");
        assert_eq!((recovered.rows, recovered.warnings.len()), (80, 0), "seed {seed} round {round}: cut at {cut}");
        assert_eq!(all(store.path()), records, "seed {seed} round {round}: cut at {cut}, sealed");
        assert!(!hidden.exists() && !journal.exists(), "seed {seed} round {round}: cut at {cut}");
    }
}

#[test]
fn a_journal_that_cannot_be_sealed_is_kept_reported_and_sealed_later() {
    let store = TempDir::new("columns-refused");
    let records = in_order(site(8, 60));
    let root = names::interface_directory(store.path(), "eth1");
    fs::create_dir_all(&root).expect("a directory");
    // The test creates a file with the name of the year directory.
    fs::write(root.join("2026"), b"in the way").expect("a file");
    let mut writer = Writer::new(config(store.path())).expect("threads");
    records.iter().for_each(|record| writer.record(record));
    let (counts, events) = writer.finish();
    assert_eq!((counts.journaled, counts.sealed, counts.files), (60, 0, 0));
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(recover(store.path(), "eth1").expect("a directory").warnings.len(), 1);
    fs::remove_file(root.join("2026")).expect("a file");
    assert_eq!(all(store.path()), records);
    assert_eq!(recover(store.path(), "eth1").expect("a directory").rows, 60);
    assert_eq!(all(store.path()), records);
}

#[test]
fn an_unreadable_journal_is_kept_under_another_name() {
    let store = TempDir::new("columns-aside");
    let path = crashed(store.path(), &site(5, 10));
    fs::write(&path, b"not a journal").expect("a file");
    let recovered = recover(store.path(), "eth1").expect("a directory");
    assert_eq!(recovered.warnings.len(), 1);
    assert!(!path.exists());
    let kept = fs::read_dir(store.path().join("eth1")).expect("a directory").flatten();
    assert!(kept.into_iter().any(|e| e.file_name().to_string_lossy().ends_with(".damaged")));
}

#[test]
fn a_scan_agrees_with_the_records_for_random_intervals() {
    let seed = testkit::seed("a_scan_agrees_with_the_records_for_random_intervals");
    let mut prng = Prng::new(seed);
    let store = TempDir::new("columns-scan");
    let records = site(6, 3000);
    let mut writer = Writer::new(Config { flows_most: 900, ..config(store.path()) }).expect("threads");
    records.iter().for_each(|record| writer.record(record));
    writer.finish();
    for round in 0..20 {
        let moment = |p: &mut Prng| Timestamp::from_nanos(common::START * 1_000_000_000 + p.below(40_000_000_000));
        let (a, b) = (moment(&mut prng), moment(&mut prng));
        let id = (round % 5 == 4).then(|| records[prng.below(3000) as usize].id);
        let query = Query { from: a.min(b), to: a.max(b), id, ..Query::new(store.path()) };
        let wanted = |r: &&Record| r.first() <= query.to && r.last() >= query.from && id.is_none_or(|id| r.id == id);
        let wanted: Vec<_> = in_order(records.iter().filter(wanted).cloned().collect());
        assert_eq!(flows(&query).expect("a store").collect::<Vec<_>>(), wanted, "seed {seed} round {round}");
        let mut sums = (0, 0, 0);
        scan(&query, &[Column::Src, Column::FwdBytes, Column::DstPort], |batch| {
            sums.0 += batch.addresses(0).iter().filter(|a| a.is_ipv4()).count() as u64;
            sums.1 += batch.numbers(1).iter().sum::<u64>();
            sums.2 += batch.numbers(2).iter().sum::<u64>();
        })
        .expect("a store");
        let v4 = wanted.iter().filter(|r| r.key.src.is_ipv4()).count() as u64;
        let ports = wanted.iter().map(|r| u64::from(r.key.dst_port)).sum::<u64>();
        assert_eq!(sums, (v4, wanted.iter().map(|r| r.directions[0].bytes).sum(), ports), "seed {seed} round {round}");
        for threads in 1..4 {
            let add = |sum: &mut (u64, u64), batch: &netgrain_columns::Batch| {
                sum.0 += batch.numbers(0).iter().sum::<u64>();
                sum.1 += batch.numbers(1).iter().sum::<u64>();
            };
            let columns_to_scan = [Column::FwdBytes, Column::DstPort];
            let (shared, _) = scan_shared(&query, &columns_to_scan, threads, || (0, 0), add).expect("a store");
            assert_eq!(shared.len(), threads);
            let all = shared.iter().fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
            assert_eq!(all, (sums.1, sums.2), "seed {seed} round {round}: {threads} threads");
        }
    }
}

#[test]
fn a_filter_excludes_row_groups_without_a_matching_record() {
    let store = TempDir::new("columns-need");
    let records = site(7, 500);
    let mut writer = Writer::new(config(store.path())).expect("threads");
    records.iter().for_each(|record| writer.record(record));
    writer.finish();
    let count_matching = |filter: &str| {
        let need = filter.parse::<filter::FlowFilter>().expect("a filter").need();
        flows(&Query { need, ..Query::new(store.path()) }).expect("a store").count()
    };
    assert_eq!(count_matching("host 203.0.113.77 or port 65535"), 0);
    assert_eq!(count_matching(&format!("host {}", records[9].key.src)), 500);
    assert_eq!(count_matching("port 53"), 500);
}

#[test]
fn retention_removes_the_oldest_files_by_age_and_size_but_no_held_ones() {
    let store = TempDir::new("columns-retain");
    let mut writer = Writer::new(config(store.path())).expect("threads");
    for hour in 0..4 {
        (0..10).for_each(|i| writer.row(&Row { second: common::START + hour * 3600 + i, ..Row::default() }));
    }
    writer.finish();
    let list = || files(store.path(), "eth1", DataFileKind::Series).expect("a listing");
    let now = Timestamp::from_secs_nanos(common::START + 4 * 3600, 0);
    let mut waiting = HeldSince::default();
    let mut retain_at = |rules: RetentionRules, up: u64| {
        let waited = (&mut waiting, Duration::from_secs(up));
        retain(store.path(), "eth1", DataFileKind::Series, &rules, now, waited).expect("a store")
    };
    assert_eq!(list().len(), 4);
    let held = Hold::reader(list()[0].path.parent().expect("an hour")).expect("a hold");
    let age = RetentionRules { max_age: Some(Duration::from_secs(3 * 3600 - 1)), ..RetentionRules::default() };
    let kept = retain_at(age, 0);
    assert_eq!((kept.held, kept.removed.len(), kept.files), (1, 1, 3));
    assert!(kept.by.iter().any(|holder| holder.pid == std::process::id()), "{:?}", kept.by);
    drop(held);
    assert_eq!((retain_at(age, 0).removed.len(), list().len()), (1, 2));
    let mut keep = |rules: RetentionRules| retain_at(rules, 0);
    let size = RetentionRules { max_size: Some(list()[1].bytes), ..RetentionRules::default() };
    let last = list()[1].path.clone();
    assert_eq!((keep(size).removed.len(), list()[0].path.clone()), (1, last));
    let none =
        retain(store.path(), "eth1", DataFileKind::Flows, &age, now, (&mut HeldSince::default(), Duration::ZERO));
    assert_eq!(none.expect("a store").files, 0);
}

#[test]
fn retention_waits_for_a_reader_and_then_removes_the_held_files() {
    let store = TempDir::new("columns-retain-held");
    let mut writer = Writer::new(config(store.path())).expect("threads");
    for hour in 0..3 {
        (0..10).for_each(|i| writer.row(&Row { second: common::START + hour * 3600 + i, ..Row::default() }));
    }
    writer.finish();
    let list = || files(store.path(), "eth1", DataFileKind::Series).expect("a listing");
    let now = Timestamp::from_secs_nanos(common::START + 3 * 3600, 0);
    let largest = list().iter().map(|file| file.bytes).max();
    let rules = RetentionRules { max_size: largest, ..RetentionRules::default() };
    let mut waiting = HeldSince::default();
    let mut keep = |up: Duration| {
        retain(store.path(), "eth1", DataFileKind::Series, &rules, now, (&mut waiting, up)).expect("a store")
    };
    let hold = |at: usize| Hold::reader(list()[at].path.parent().expect("an hour")).expect("a hold");
    let (_first, second, last) = (hold(0), hold(1), hold(2));
    for up in [Duration::ZERO, rules.wait / 2] {
        let kept = keep(up);
        assert_eq!(
            (kept.held, kept.overruled, kept.removed.len()),
            (1, 0, 0),
            "retention waits for the reader of the oldest file"
        );
    }
    drop((second, last));
    let kept = keep(rules.wait);
    assert_eq!((kept.overruled, kept.removed.len(), list().len()), (0, 2, 1), "retention removes the next files first");
    let age = RetentionRules { max_age: Some(Duration::from_secs(1)), ..rules };
    let kept =
        retain(store.path(), "eth1", DataFileKind::Series, &age, now, (&mut waiting, 2 * rules.wait)).expect("a store");
    assert_eq!(
        (kept.overruled, kept.removed.len(), list().len()),
        (1, 1, 0),
        "retention removes the held file after the wait"
    );
}

#[test]
fn a_day_of_rows_becomes_one_file_and_no_row_is_returned_twice() {
    let store = TempDir::new("columns-compact");
    let mut writer = Writer::new(config(store.path())).expect("threads");
    let rows: Vec<Row> =
        (0..5 * 3600).step_by(60).map(|i| Row { second: common::START + i, ..Row::default() }).collect();
    rows.iter().for_each(|row| writer.row(row));
    writer.finish();
    let all = || series(&Query::new(store.path())).expect("a store").collect::<Vec<_>>();
    let list = || files(store.path(), "eth1", DataFileKind::Series).expect("a listing");
    let (before, day) = (list(), Timestamp::from_secs_nanos(common::START / 86_400 * 86_400 + 86_400, 0));
    assert!(compact(store.path(), "eth1", day.before(Duration::from_secs(1))).expect("a store").is_empty());
    let held = Hold::reader(before[2].path.parent().expect("an hour")).expect("a hold");
    assert_eq!(compact(store.path(), "eth1", day).expect("a store").len(), 1);
    assert_eq!((list().len(), all()), (2, rows.clone()));
    drop(held);
    assert!(compact(store.path(), "eth1", day).expect("a store").is_empty());
    assert_eq!((list().len(), all()), (1, rows));
}

#[test]
fn a_day_that_cannot_be_compacted_is_reported_with_the_damaged_file() {
    let store = TempDir::new("columns-apart");
    let mut writer = Writer::new(config(store.path())).expect("threads");
    for i in (0..3 * 3600).step_by(60) {
        writer.row(&Row { second: common::START + i, ..Row::default() });
    }
    writer.finish();
    let list = || files(store.path(), "eth1", DataFileKind::Series).expect("a listing");
    let day = Timestamp::from_secs_nanos(common::START / 86_400 * 86_400 + 86_400, 0);
    let uncompacted = || uncompacted_days(store.path(), "eth1", day).expect("a listing");
    assert_eq!(uncompacted(), [""; 0], "no file prevents compaction");
    let bad = list()[1].path.clone();
    let whole = std::fs::read(&bad).expect("the file");
    let mut flipped = whole.clone();
    flipped[40] ^= 4;
    std::fs::write(&bad, flipped).expect("the file");
    let several = list().len();
    assert!(several > 2 && compact(store.path(), "eth1", day).expect("a store").is_empty());
    let [line] = &uncompacted()[..] else { panic!("{:?}", uncompacted()) };
    let others = format!("{} other files", several - 1);
    assert!(line.contains(&bad.display().to_string()) && line.contains("does not match its checksum"), "{line}");
    assert!(line.contains(&others), "{line}");
    std::fs::write(&bad, whole).expect("the file");
    assert_eq!(compact(store.path(), "eth1", day).expect("a store").len(), 1);
    assert_eq!(uncompacted(), [""; 0]);
}

/// Writes rows of some seconds, with two packets each, with a new writer, as a replay of a capture does.
fn replay(store: &std::path::Path, seconds: &[u64]) {
    let mut writer = Writer::new(config(store)).expect("threads");
    for second in seconds {
        let mut row = Row { second: *second, ..Row::default() };
        row.total.packets = 2;
        writer.row(&row);
    }
    let (counts, events) = writer.finish();
    assert_eq!(counts.sealed, seconds.len() as u64, "{events:?}");
}

fn packets_of(store: &std::path::Path) -> u64 {
    let results = series(&Query::new(store)).expect("a store");
    results.map(|row| row.total.packets).sum()
}

#[test]
fn rows_of_repeated_replays_add_up_with_compactions_between_them() {
    let store = TempDir::new("columns-replays");
    let day = Timestamp::from_secs_nanos((common::START / 86_400 + 1) * 86_400, 0);
    for time in 1..=5 {
        replay(store.path(), &[common::START]);
        assert_eq!(packets_of(store.path()), 2 * time, "kept {time} times");
        compact(store.path(), "eth1", day).expect("a store");
        assert_eq!(packets_of(store.path()), 2 * time, "kept {time} times, compacted");
        // The second compaction removes files that a reader held during the first.
        compact(store.path(), "eth1", day).expect("a store");
        let left = files(store.path(), "eth1", DataFileKind::Series).expect("a listing").len();
        assert_eq!((left, packets_of(store.path())), (1, 2 * time));
    }
}

#[test]
fn compaction_keeps_all_rows_of_a_capture_that_jumps_in_time() {
    const DAY: u64 = 86_400;
    let store = TempDir::new("columns-jumps");
    // The timestamps go forward by days, back and forward again, so a day gets several files of the same first
    // timestamp.
    let seconds: Vec<u64> = [0, 2, 0, 1, 2, 0, 2].iter().map(|day| common::START + day * DAY).collect();
    let end = Timestamp::from_secs_nanos((common::START / DAY + 4) * DAY, 0);
    for time in 1..=3 {
        replay(store.path(), &seconds);
        let want = 2 * time * seconds.len() as u64;
        assert_eq!(packets_of(store.path()), want, "kept {time} times");
        compact(store.path(), "eth1", end).expect("a store");
        assert_eq!(packets_of(store.path()), want, "kept {time} times, compacted");
    }
    assert_eq!(files(store.path(), "eth1", DataFileKind::Series).expect("a listing").len(), 3);
}

#[test]
fn recovery_removes_hidden_files_of_ended_processes_only() {
    let store = TempDir::new("columns-hidden");
    replay(store.path(), &[common::START]);
    let sealed = files(store.path(), "eth1", DataFileKind::Series).expect("a listing").remove(0);
    let hidden = |kind: DataFileKind, copy| {
        sealed.path.with_file_name(names::hidden(&names::stem(sealed.start, None, copy), kind.ending()))
    };
    let (ended, running) = (
        [hidden(DataFileKind::Series, 1), hidden(DataFileKind::Series, 7), hidden(DataFileKind::Flows, 0)],
        hidden(DataFileKind::Series, 2),
    );
    ended.iter().for_each(|path| fs::write(path, b"half").expect("a file"));
    let mut writer = store::DiskDevice::plain();
    let file = store::Device::create(&mut writer, &running, store::device::Content::Index).expect("a file");
    let recovered = recover(store.path(), "eth1").expect("a directory");
    assert_eq!((recovered.hidden, recovered.journals, recovered.warnings.len()), (3, 0, 0));
    assert!(ended.iter().all(|path| !path.exists()) && running.exists() && sealed.path.exists());
    store::Device::close(&mut writer, file);
    assert_eq!(recover(store.path(), "eth1").expect("a directory").hidden, 1, "its writer has ended");
    assert_eq!(packets_of(store.path()), 2);
}

#[test]
fn a_replaced_file_that_a_reader_holds_stays_replaced_after_compaction() {
    let store = TempDir::new("columns-held");
    let day = Timestamp::from_secs_nanos((common::START / 86_400 + 1) * 86_400, 0);
    replay(store.path(), &[common::START, common::START + 3600]);
    let hour = files(store.path(), "eth1", DataFileKind::Series).expect("a listing")[1].path.clone();
    let held = Hold::reader(hour.parent().expect("an hour")).expect("a hold");
    compact(store.path(), "eth1", day).expect("a store");
    replay(store.path(), &[common::START]);
    compact(store.path(), "eth1", day).expect("a store");
    assert!(hour.exists(), "a reader holds its hour");
    assert_eq!(packets_of(store.path()), 6);
    drop(held);
    compact(store.path(), "eth1", day).expect("a store");
    assert_eq!((hour.exists(), packets_of(store.path())), (false, 6));
}

#[test]
fn compaction_beside_sealing_of_the_same_timestamp_keeps_all_rows() {
    const TIMES: u64 = 40;
    let store = TempDir::new("columns-compact-beside-seal");
    let day = Timestamp::from_secs_nanos((common::START / 86_400 + 1) * 86_400, 0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // A file that was listed may have been removed since the listing, so an error is ignored; the next
                // round lists the files again.
                let _ = compact(store.path(), "eth1", day);
            }
        });
        let replays = scope.spawn(|| (0..TIMES).for_each(|_| replay(store.path(), &[common::START])));
        let outcome = replays.join();
        done.store(true, Ordering::Relaxed);
        outcome.expect("every row is sealed");
    });
    assert_eq!(packets_of(store.path()), 2 * TIMES);
    let hour = names::hour_directory(
        &names::interface_directory(store.path(), "eth1"),
        Timestamp::from_secs_nanos(common::START, 0),
    );
    let left: Vec<_> = fs::read_dir(hour)
        .expect("the hour")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(names::PARTIAL))
        .collect();
    assert_eq!(left, Vec::<String>::new(), "a hidden file was left");
}

const DAY: u64 = 86_400;

/// The configuration of a replay: one file per day.
fn of_days(store: &Path) -> Config {
    let day = Duration::from_secs(DAY);
    Config { flows_every: day, series_every: day, ..config(store) }
}

/// Writes records that begin at these seconds and last up to 39 s, with a row for each second, with one writer.
fn replay_flows(store: &Path, seconds: &[u64], seed: u64) -> Vec<Record> {
    let mut site = common::TrafficModel::new(seed, 100.0);
    let mut writer = Writer::new(of_days(store)).expect("threads");
    let mut records = Vec::new();
    for (i, second) in seconds.iter().enumerate() {
        let mut record = site.record();
        let first = Timestamp::from_secs_nanos(*second, i as u64);
        let last = first.after(Duration::from_secs(i as u64 % 40));
        for direction in &mut record.directions {
            (direction.first, direction.last) = (first, last);
        }
        record.flow_start = first;
        writer.tick(last.after(Duration::from_secs(15)));
        writer.record(&record);
        writer.row(&Row { second: *second, ..Row::default() });
        records.push(record);
    }
    let (counts, events) = writer.finish();
    assert_eq!((counts.submitted, counts.sealed), (2 * seconds.len() as u64, 2 * seconds.len() as u64), "{events:?}");
    in_order(records)
}

fn count(store: &Path, kind: DataFileKind) -> usize {
    files(store, "eth1", kind).expect("a listing").len()
}

#[test]
fn a_capture_of_days_makes_one_file_per_kind_and_day() {
    const DAYS: u64 = 15;
    let store = TempDir::new("columns-days");
    let seconds: Vec<u64> = (0..DAYS * 60).map(|i| common::START / DAY * DAY + i * (DAY / 60) + 5).collect();
    let records = replay_flows(store.path(), &seconds, 21);
    assert_eq!(
        (count(store.path(), DataFileKind::Flows), count(store.path(), DataFileKind::Series)),
        (DAYS as usize, DAYS as usize)
    );
    let far = files(store.path(), "eth1", DataFileKind::Flows).expect("a listing").into_iter();
    assert!(far.map(|file| file.path).all(|path| path.to_string_lossy().ends_with(".day.flows.parquet")));
    assert_eq!(all(store.path()), records);
    for record in records.iter().step_by(7) {
        for at in [record.first(), record.last()] {
            let query = Query { from: at, to: at, ..Query::new(store.path()) };
            let found: Vec<_> = flows(&query).expect("a store").collect();
            assert!(found.contains(record), "{at:?}: {} found", found.len());
            let mut rows = 0;
            scan(&query, &[Column::Src], |batch| rows += batch.rows()).expect("a store");
            assert!(rows >= 1, "{at:?}");
        }
    }
    // A second, short replay adds its own files.
    replay_flows(store.path(), &seconds[..2], 22);
    assert_eq!(
        (count(store.path(), DataFileKind::Flows), all(store.path()).len()),
        (DAYS as usize + 1, records.len() + 2)
    );
}

#[test]
fn a_capture_that_alternates_between_days_makes_one_file_per_day() {
    let store = TempDir::new("columns-back-and-forth");
    let seconds: Vec<u64> = (0..600).map(|i| common::START + i % 8 * DAY + i).collect();
    let records = replay_flows(store.path(), &seconds, 23);
    // The time goes back only after the first pass over the eight days. During that pass the writer may complete a file
    // for each day, so each day may get two files.
    let (flows, rows) = (count(store.path(), DataFileKind::Flows), count(store.path(), DataFileKind::Series));
    assert!(flows <= 16 && rows <= 16, "{flows} and {rows} files");
    assert_eq!(all(store.path()), records);
    let rows: Vec<u64> = series(&Query::new(store.path())).expect("a store").map(|row| row.second).collect();
    assert!(rows.is_sorted() && rows.len() == seconds.len());
    // If the rows are of more days than there may be growing files, more files result, and no record is lost.
    let store = TempDir::new("columns-back-and-forth");
    let seconds: Vec<u64> = (0..200).map(|i| common::START + i * 7 % 50 * DAY + i).collect();
    let records = replay_flows(store.path(), &seconds, 24);
    assert_eq!(all(store.path()), records);
}
