//! Tests with faults of the volume: a power failure at any step, a full volume, failing writes and syncs, and flipped
//! bits. After each fault, every synced row must be found exactly once with its values, and each damaged file must be
//! reported by name.

use crate::common;

use base::{Prng, Timestamp};
use flow::Record;
use netgrain_columns::{
    Column, Config, Counts, DataFileKind, Disks, Event, Query, Writer, compact_on, files, flows, judge_journal,
    read_flows, read_series, recover, recover_on, scan, series,
};
use parquet::file::reader::{FileReader, SerializedFileReader};
use series::Row;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use store::device::{Fault, MemoryDevice, Surviving};
use testkit::TempDir;

/// The path of the store, on the volume in memory.
const STORE: &str = "/store";

/// Number of records: enough for three full files and an incomplete one.
const FLOWS: usize = 100;

fn site(seed: u64) -> Vec<Record> {
    let mut site = common::TrafficModel::new(seed, 100.0);
    (0..FLOWS).map(|_| site.record()).collect()
}

fn writer(device: &MemoryDevice) -> Writer {
    let device = device.clone();
    let disks: Disks = Arc::new(move || Box::new(device.clone()));
    let config = Config { flows_most: 30, wait_when_full: true, ..Config::new(STORE, "eth1") };
    Writer::on(config, disks).expect("threads")
}

/// Writes all records with one writer, which appends a batch every few records.
fn write(device: &MemoryDevice, records: &[Record]) -> (Counts, Vec<Event>) {
    let mut writer = writer(device);
    for (i, record) in records.iter().enumerate() {
        writer.record(record);
        if i % 7 == 6 {
            writer.tick(Timestamp::from_nanos(i as u64 * 1_000_000_000));
        }
    }
    writer.finish()
}

/// Writes records of several days with a writer that makes one file per day and seals some of the files together.
fn write_days(device: &MemoryDevice, records: &[Record]) -> (Counts, Vec<Event>) {
    let device = device.clone();
    let disks: Disks = Arc::new(move || Box::new(device.clone()));
    let day = Duration::from_secs(86_400);
    let config = Config { flows_every: day, series_every: day, wait_when_full: true, ..Config::new(STORE, "eth1") };
    let mut writer = Writer::on(config, disks).expect("threads");
    for record in records {
        writer.tick(record.last());
        writer.record(record);
    }
    writer.finish()
}

/// The records of [`site`], with every two successive records moved to another time, so that the records are spread
/// over several days.
fn site_of_days(seed: u64) -> Vec<Record> {
    let mut records = site(seed);
    records.truncate(24);
    for (i, record) in records.iter_mut().enumerate() {
        let later = |moment: Timestamp| moment.after(Duration::from_secs(i as u64 / 2 * 43_200));
        for direction in &mut record.directions {
            (direction.first, direction.last) = (later(direction.first), later(direction.last));
        }
        record.flow_start = later(record.flow_start);
    }
    records
}

/// Writes these files to a real volume.
fn laid_out(files: &Surviving) -> TempDir {
    let dir = TempDir::new("columns-faults");
    for (path, bytes) in files {
        let path = dir.join(path.strip_prefix("/").expect("absolute"));
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(path, bytes).expect("a file");
    }
    dir
}

fn store_of(dir: &TempDir) -> PathBuf {
    let store = dir.join(&STORE[1..]);
    fs::create_dir_all(&store).expect("a directory");
    store
}

/// The records of a store by id; fails if a record occurs twice or has other values than were written.
fn found(store: &Path, given: &BTreeMap<u64, &Record>, note: &str) -> BTreeMap<u64, Record> {
    let mut found = BTreeMap::new();
    for record in flows(&Query::new(store)).expect("a store") {
        assert_eq!(
            given.get(&record.id).copied(),
            Some(&record),
            "{note}: a record has other values than were written"
        );
        assert!(found.insert(record.id, record).is_none(), "{note}: a record occurs twice");
    }
    found
}

fn by_id(records: &[Record]) -> BTreeMap<u64, &Record> {
    records.iter().map(|record| (record.id, record)).collect()
}

fn journals(files: &Surviving) -> usize {
    files.keys().filter(|path| path.to_string_lossy().ends_with(".partial")).count()
}

#[test]
fn a_power_failure_at_any_call_neither_loses_nor_doubles_synced_rows() {
    let seed = testkit::seed("a_power_failure_at_any_call_neither_loses_nor_doubles_synced_rows");
    power_fails(seed, &site(seed), 4, write);
}

#[test]
fn a_power_failure_during_group_sealing_neither_loses_nor_doubles_rows() {
    let seed = testkit::seed("a_power_failure_during_group_sealing_neither_loses_nor_doubles_rows");
    power_fails(seed, &site_of_days(seed), 6, write_days);
}

/// Simulates a power failure at each call of a writer that makes `wanted` files of these records.
fn power_fails(
    seed: u64,
    records: &[Record],
    wanted: u64,
    write: impl Fn(&MemoryDevice, &[Record]) -> (Counts, Vec<Event>),
) {
    let mut prng = Prng::new(seed);
    let given = by_id(records);
    let device = MemoryDevice::new(seed);
    let (counts, events) = write(&device, records);
    assert_eq!((counts.sealed, counts.files), (records.len() as u64, wanted), "{events:?}");
    let dir = laid_out(&device.synced());
    assert_eq!(found(&store_of(&dir), &given, "no failure").len(), records.len(), "published files are synced");
    assert_eq!(journals(&device.synced()), 0);
    let calls = device.calls();
    for at in 0..calls {
        let device = MemoryDevice::new(seed);
        device.set_fault(Fault { crash_at: Some(at), ..Fault::default() });
        let (counts, _) = write(&device, records);
        let note = format!("seed {seed}, call {at} of {calls}");
        let synced = found(&store_of(&laid_out(&device.synced())), &given, &note);
        assert!(synced.len() as u64 >= counts.sealed, "{note}: {} of {} sealed", synced.len(), counts.sealed);
        for _ in 0..3 {
            let dir = laid_out(&device.surviving(&mut prng));
            let store = store_of(&dir);
            let before = found(&store, &given, &note);
            assert!(synced.keys().all(|id| before.contains_key(id)), "{note}: a synced record is missing");
            let recovered = recover(&store, "eth1").expect("a store");
            assert!(
                recovered.damaged.is_empty(),
                "{note}: unsynced bytes were reported as damage: {:?}",
                recovered.damaged
            );
            // If the header of a journal was not synced, the journal has no synced rows.
            let damaged = recovered.warnings.iter().filter(|e| e.to_string().contains("header")).count();
            assert_eq!(recovered.warnings.len(), damaged, "{note}: {:?}", recovered.warnings);
            assert_eq!(found(&store, &given, &note), before, "{note}: recovery changed the result");
        }
    }
}

#[test]
fn recovery_can_be_interrupted_at_any_call_and_repeated() {
    let seed = testkit::seed("recovery_can_be_interrupted_at_any_call_and_repeated");
    let mut prng = Prng::new(seed);
    let records = site(seed);
    let given = by_id(&records);
    let device = MemoryDevice::new(seed);
    // No journal is sealed, because the process of each writer is killed.
    for some in records.chunks(40) {
        let mut writer = writer(&device);
        some.iter().take(30).for_each(|record| writer.record(record));
        drop(writer);
        let begun = std::time::Instant::now();
        let whole = || {
            let dir = laid_out(&device.files());
            let earlier = records.chunks(40).take_while(|chunk| chunk.as_ptr() <= some.as_ptr());
            flows(&Query::new(store_of(&dir)))
                .is_ok_and(|a| a.count() == earlier.map(|chunk| chunk.len().min(30)).sum())
        };
        while !whole() {
            assert!(
                begun.elapsed() < Duration::from_secs(120),
                "the writer did not journal its rows within two minutes"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        device.kill();
    }
    let left = device.files();
    let all = found(&store_of(&laid_out(&left)), &given, "the journals");
    assert_eq!((journals(&left), all.len()), (3, 80));
    let device = MemoryDevice::with(seed, left.clone());
    recover_on(&mut device.clone(), Path::new(STORE), "eth1").expect("a store");
    assert_eq!(journals(&device.files()), 0);
    for at in 0..device.calls() {
        let device = MemoryDevice::with(seed ^ at, left.clone());
        device.set_fault(Fault { crash_at: Some(at), ..Fault::default() });
        // An interrupted recovery may return warnings or an error.
        let _ = recover_on(&mut device.clone(), Path::new(STORE), "eth1");
        for _ in 0..3 {
            let note = format!("seed {seed}, call {at}");
            let dir = laid_out(&device.surviving(&mut prng));
            let store = store_of(&dir);
            assert_eq!(found(&store, &given, &note), all, "{note}");
            let recovered = recover(&store, "eth1").expect("a store");
            assert!(recovered.warnings.is_empty(), "{note}: {:?}", recovered.warnings);
            assert_eq!(found(&store, &given, &note), all, "{note}: after recovery");
        }
    }
}

#[test]
fn compaction_can_be_interrupted_at_any_call_and_repeated() {
    let seed = testkit::seed("compaction_can_be_interrupted_at_any_call_and_repeated");
    let mut prng = Prng::new(seed);
    let device = MemoryDevice::new(seed);
    let mut writer = writer(&device);
    let rows: Vec<Row> = (0..4 * 60).map(|i| common::any_row(&mut prng, common::START + i * 60)).collect();
    rows.iter().for_each(|row| writer.row(row));
    let (counts, events) = writer.finish();
    assert!(counts.files >= 4, "{counts:?}: {events:?}");
    let left = device.synced();
    let all = |dir: &TempDir| -> Vec<Row> {
        let results = series(&Query::new(store_of(dir))).expect("a store");
        let mut results = results.collect::<Vec<_>>();
        results.sort_by_key(|row| (row.second, row.interface, row.direction));
        results
    };
    let wanted = all(&laid_out(&left));
    assert_eq!(wanted.len(), rows.len());
    let day = Timestamp::from_secs_nanos((common::START / 86_400 + 1) * 86_400, 0);
    let device = MemoryDevice::with(seed, left.clone());
    assert_eq!(compact_on(&mut device.clone(), Path::new(STORE), "eth1", day).expect("a store").len(), 1);
    assert_eq!(device.files().len(), 1);
    for at in 0..device.calls() {
        let device = MemoryDevice::with(seed ^ at, left.clone());
        device.set_fault(Fault { crash_at: Some(at), ..Fault::default() });
        let _ = compact_on(&mut device.clone(), Path::new(STORE), "eth1", day);
        for _ in 0..3 {
            let survived = device.surviving(&mut prng);
            let note = format!("seed {seed}, call {at}: {:?}", survived.keys());
            assert!(all(&laid_out(&survived)) == wanted, "{note}");
            let device = MemoryDevice::with(seed, survived);
            compact_on(&mut device.clone(), Path::new(STORE), "eth1", day).expect("a store");
            assert!(all(&laid_out(&device.files())) == wanted, "{note}: after repeating compaction");
            let sealed = device.files().into_keys().filter(|path| path.to_string_lossy().ends_with(".parquet")).count();
            assert_eq!(sealed, 1, "{note}");
        }
    }
}

#[test]
fn written_rows_survive_a_full_or_failing_volume_and_others_are_counted() {
    let seed = testkit::seed("written_rows_survive_a_full_or_failing_volume_and_others_are_counted");
    let mut prng = Prng::new(seed);
    let records = site(seed);
    let given = by_id(&records);
    for round in 0..60 {
        let device = MemoryDevice::new(seed ^ round);
        let fault = match round % 3 {
            0 => Fault { capacity: Some(prng.below(60_000)), quota: round % 2 == 0, ..Fault::default() },
            1 => Fault { sync_error: 1 + prng.below(800), ..Fault::default() },
            _ => Fault { io_error: 1 + prng.below(400), ..Fault::default() },
        };
        device.set_fault(fault);
        let (counts, events) = write(&device, &records);
        let note = format!("seed {seed} round {round}: {counts:?} {events:?}");
        assert_eq!(counts.submitted, counts.journaled + counts.refused + counts.dropped, "{note}");
        assert!(counts.sealed == FLOWS as u64 || !events.is_empty(), "{note}: no event was reported");
        let is_trouble = |event: &Event| matches!(event, Event::Trouble(e) if e.to_string().contains("/store/"));
        assert!(events.iter().all(|e| matches!(e, Event::Sealed { .. }) || is_trouble(e)), "{note}");
        let dir = laid_out(&device.files());
        let before = found(&store_of(&dir), &given, &note);
        assert_eq!(before.len() as u64, counts.journaled, "{note}");
        // Every published file is synced, even if earlier operations failed.
        let synced = found(&store_of(&laid_out(&device.synced())), &given, &note);
        assert!(synced.len() as u64 >= counts.sealed, "{note}");
        // A power failure at this point: recovery finds every synced record exactly once, even if journals that were
        // already sealed reappear.
        for _ in 0..3 {
            let dir = laid_out(&device.surviving(&mut prng));
            let store = store_of(&dir);
            recover(&store, "eth1").expect("a store");
            let survived = found(&store, &given, &note);
            assert!(synced.keys().all(|id| survived.contains_key(id)), "{note}");
        }
        // After the fault ends, the next start seals the remaining journals.
        device.set_fault(Fault::default());
        device.kill();
        let recovered = recover_on(&mut device.clone(), Path::new(STORE), "eth1").expect("a store");
        assert!(recovered.warnings.is_empty(), "{note}: {:?}", recovered.warnings);
        assert_eq!(journals(&device.files()), 0, "{note}");
        let dir = laid_out(&device.synced());
        assert_eq!(found(&store_of(&dir), &given, &note), before, "{note}: after recovery");
    }
}

/// Flips single bits at random positions of a file and runs a query after each flip; returns the number of flips that
/// the query reported.
fn flips<T: PartialEq>(
    path: &Path,
    prng: &mut Prng,
    note: &str,
    wanted: &[T],
    run: impl Fn() -> (Vec<T>, Vec<String>),
) -> u32 {
    let bytes = fs::read(path).expect("a file");
    let mut reported = 0;
    for _ in 0..400 {
        let at = prng.below(bytes.len() as u64) as usize;
        let mut broken = bytes.clone();
        broken[at] ^= 1 << prng.below(8);
        fs::write(path, &broken).expect("a file");
        let (results, warnings) = run();
        if warnings.is_empty() {
            assert!(
                results == wanted,
                "{note}: the flipped bit at {at} of {} changed the result without a warning",
                bytes.len()
            );
        } else {
            reported += 1;
            assert!(warnings.iter().all(|warning| warning.contains(&path.display().to_string())), "{warnings:?}");
            assert!(results.is_empty() || results == wanted, "{note}: a partial result with the flipped bit at {at}");
        }
    }
    fs::write(path, &bytes).expect("a file");
    reported
}

#[test]
fn a_flipped_bit_in_a_file_is_reported_or_changes_no_result() {
    let seed = testkit::seed("a_flipped_bit_in_a_file_is_reported_or_changes_no_result");
    let mut prng = Prng::new(seed);
    let store = TempDir::new("columns-bits");
    let records = site(seed);
    let rows: Vec<Row> = (0..50).map(|i| common::any_row(&mut prng, common::START + i)).collect();
    let mut writer =
        Writer::new(Config { wait_when_full: true, ..Config::new(store.path(), "eth1") }).expect("threads");
    records.iter().for_each(|record| writer.record(record));
    rows.iter().for_each(|row| writer.row(row));
    writer.finish();
    let of = |kind| files(store.path(), "eth1", kind).expect("a listing").remove(0).path;
    // A query for an address reads the Bloom filters.
    let need = format!("host {}", records[5].key.src).parse::<filter::FlowFilter>().expect("a filter").need();
    let query = Query { need, ..Query::new(store.path()) };
    let run = || {
        let mut results = flows(&query).expect("a store");
        (results.by_ref().collect::<Vec<_>>(), results.warnings())
    };
    let (wanted, warnings) = run();
    assert_eq!((wanted.len(), warnings.len()), (FLOWS, 0));
    let reported = flips(&of(DataFileKind::Flows), &mut prng, &format!("seed {seed}, flows"), &wanted, run);
    assert!(reported > 390, "seed {seed}: only {reported} of 400 were reported");
    let run = || {
        let mut results = series(&Query::new(store.path())).expect("a store");
        (results.by_ref().collect::<Vec<_>>(), results.warnings())
    };
    let (wanted, _) = run();
    let reported = flips(&of(DataFileKind::Series), &mut prng, &format!("seed {seed}, series"), &wanted, run);
    assert!(reported > 390, "seed {seed}: only {reported} of 400 were reported");
}

/// Number of records in a row group (`seal::GROUP`).
const GROUP: usize = 1 << 16;

/// Overwrites some bytes of a column of a row group.
fn damage_column(path: &Path, bytes: &[u8], group: usize, name: &str) {
    let file = SerializedFileReader::new(bytes::Bytes::copy_from_slice(bytes)).expect("a file");
    let columns = file.metadata().row_group(group).columns();
    let (at, length) =
        columns.iter().find(|column| column.column_path().string() == name).expect("a column").byte_range();
    let mut broken = bytes.to_vec();
    broken[(at + length / 2) as usize] ^= 0x55;
    fs::write(path, broken).expect("a file");
}

#[test]
fn a_damaged_column_of_series_rows_affects_only_queries_that_need_it() {
    let seed = testkit::seed("a_damaged_column_of_series_rows_affects_only_queries_that_need_it");
    let store = TempDir::new("columns-bad-series-column");
    let mut prng = Prng::new(seed);
    let rows: Vec<Row> = (0..60).map(|second| common::any_row(&mut prng, 1_700_000_000 + second)).collect();
    let mut writer =
        Writer::new(Config { wait_when_full: true, ..Config::new(store.path(), "eth1") }).expect("threads");
    rows.iter().for_each(|row| writer.row(row));
    writer.finish();
    let path = files(store.path(), "eth1", DataFileKind::Series).expect("a listing").remove(0).path;
    let bytes = fs::read(&path).expect("a file");
    let of = |fields: Option<&[&str]>| {
        let fields = fields.map(|fields| fields.iter().map(|field| (*field).to_owned()).collect());
        let query = Query { fields: fields.clone(), ..Query::new(store.path()) };
        let mut results = series(&query).expect("a store");
        let found: Vec<Row> = results.by_ref().collect();
        let alone = read_series(&path).expect("a file").of_fields(fields);
        let (alone, _errors): (Vec<_>, Vec<_>) = alone.partition(Result::is_ok);
        assert_eq!(alone.len(), found.len(), "a file outside of a store has the same rows");
        (found, results.warnings())
    };
    let counts = |rows: &[Row]| rows.iter().map(|row| (row.second, row.total.packets)).collect::<Vec<_>>();
    damage_column(&path, &bytes, 0, "ipv6_packets");
    for needed in [None, Some(&["time", "ipv6_packets"][..]), Some(&["packets", "quantity_of_old"])] {
        let (found, warnings) = of(needed);
        assert!(found.is_empty() && warnings.len() == 1, "{needed:?}: {warnings:?}");
        assert!(
            warnings[0].contains("column ipv6_packets") && warnings[0].contains("has no other rows"),
            "{warnings:?}"
        );
    }
    let (found, warnings) = of(Some(&["time", "interface", "direction", "packets"]));
    assert_eq!(counts(&found), counts(&rows));
    assert!(warnings.len() == 1 && warnings[0].contains("the result does not need this data"), "{warnings:?}");
    // The order of the rows depends on these columns.
    for column in ["second", "interface_id", "direction"] {
        damage_column(&path, &bytes, 0, column);
        let (found, warnings) = of(Some(&["packets"]));
        assert!(found.is_empty() && warnings.len() == 1, "{column}: {warnings:?}");
    }
}

#[test]
fn a_damaged_column_loses_its_row_group_only_in_queries_that_need_it() {
    let seed = testkit::seed("a_damaged_column_loses_its_row_group_only_in_queries_that_need_it");
    let store = TempDir::new("columns-bad-column");
    let mut site = common::TrafficModel::new(seed, 20_000.0);
    let mut records: Vec<_> = (0..GROUP + 4000).map(|_| site.record()).collect();
    let mut writer =
        Writer::new(Config { wait_when_full: true, ..Config::new(store.path(), "eth1") }).expect("threads");
    records.iter().for_each(|record| writer.record(record));
    writer.finish();
    records.sort_by_key(|r| (r.first(), r.id, r.record_index));
    let path = files(store.path(), "eth1", DataFileKind::Flows).expect("a listing").remove(0).path;
    let bytes = fs::read(&path).expect("a file");
    let run = |query: &Query| {
        let mut results = flows(query).expect("a store");
        (results.by_ref().collect::<Vec<_>>(), results.warnings())
    };
    let all = Query::new(store.path());
    let (rest, spared) = (&records[GROUP..], &records[..GROUP]);
    for (group, left, lost, from) in [(0, rest, GROUP, 0), (1, spared, rest.len(), GROUP)] {
        damage_column(&path, &bytes, group, "fwd_ttl_min");
        let (results, warnings) = run(&all);
        assert!(results == left, "row group {group}: {} records", results.len());
        let text = format!("{lost} rows from row {from} on cannot be read");
        assert!(warnings.len() == 1 && warnings[0].contains("column fwd_ttl_min"), "{warnings:?}");
        assert!(warnings[0].contains(&text) && warnings[0].contains(&path.display().to_string()), "{warnings:?}");
        // A query for fields that do not need the damaged column returns all records.
        let few = Query { fields: Some(vec!["src_port".into(), "fwd_bytes".into()]), ..all.clone() };
        let (results, warnings) = run(&few);
        let ports = |records: &[Record]| -> Vec<(u16, u64)> {
            records.iter().map(|record| (record.key.src_port, record.directions[0].bytes)).collect()
        };
        assert!(ports(&results) == ports(&records), "row group {group}: {} records", results.len());
        assert!(warnings.len() == 1 && warnings[0].contains("the result does not need this data"), "{warnings:?}");
        // The first field is stored in the damaged column. The second name is not the name of a column, so the query
        // reads all columns.
        for field in ["fwd_ttl_min", "fwd_flags_of_old"] {
            let (results, _) = run(&Query { fields: Some(vec![field.into()]), ..all.clone() });
            assert_eq!(results.len(), left.len(), "{field}");
        }
        let (mut sum, wanted) = (0, records.iter().map(|record| record.directions[0].packets).sum::<u64>());
        let warnings = scan(&all, &[Column::FwdPackets], |batch| sum += batch.numbers(0).iter().sum::<u64>());
        assert_eq!((sum, warnings.expect("a store")), (wanted, Vec::new()));
        // Reads the file with the function for files outside of a store.
        let (reported, errors): (Vec<_>, Vec<_>) = read_flows(&path).expect("a file").partition(Result::is_ok);
        assert!(errors.len() == 1 && reported.into_iter().flatten().collect::<Vec<_>>() == left, "{errors:?}");
    }
    // A column that is derived from others is not needed, but its damage is reported.
    damage_column(&path, &bytes, 0, "duration_ns");
    let (results, warnings) = run(&all);
    assert!(results == records && warnings.len() == 1 && warnings[0].contains("duration_ns"), "{warnings:?}");
    damage_column(&path, &bytes, 1, "fwd_packets");
    let mut count = 0;
    let warnings = scan(&all, &[Column::FwdPackets], |batch| count += batch.rows()).expect("a store");
    assert!(count == GROUP && warnings.len() == 1, "{count}: {warnings:?}");
    assert!(warnings[0].contains("column fwd_packets") && warnings[0].contains("4000 rows"), "{warnings:?}");
}

#[test]
fn damage_at_the_end_of_a_series_journal_is_reported_and_the_journal_kept() {
    let seed = testkit::seed("a_series_journal_damaged_at_its_end");
    let mut prng = Prng::new(seed);
    let device = MemoryDevice::new(seed);
    let mut writer = writer(&device);
    (0..50).for_each(|i| writer.row(&common::any_row(&mut prng, common::START + i)));
    writer.tick(Timestamp::from_nanos(1));
    drop(writer);
    let begun = std::time::Instant::now();
    let count = || series(&Query::new(store_of(&laid_out(&device.files())))).map_or(0, Iterator::count);
    while count() < 50 {
        assert!(begun.elapsed() < Duration::from_secs(120), "the writer did not journal its rows within two minutes");
        std::thread::sleep(Duration::from_millis(5));
    }
    device.kill();
    let left = device.files();
    let (path, bytes) = left.iter().find(|(path, _)| path.to_string_lossy().ends_with(".partial")).expect("a journal");
    for _ in 0..40 {
        // The flipped bit is within the last 1000 bytes, which are in the batch with the rows.
        let most = (bytes.len() - 24).min(1000) as u64;
        let at = bytes.len() - 1 - prng.below(most) as usize;
        let mut broken = left.clone();
        broken.get_mut(path).expect("a journal")[at] ^= 1 << prng.below(8);
        let dir = laid_out(&broken);
        let store = store_of(&dir);
        let note = format!("seed {seed}, byte {at} of {}", bytes.len());
        let mut results = series(&Query::new(&store)).expect("a store");
        assert!(results.by_ref().count() < 50, "{note}");
        assert_eq!(results.warnings().len(), 1, "{note}");
        let journal = dir.join(path.strip_prefix("/").expect("absolute"));
        assert!(judge_journal(&journal).expect("readable").is_some(), "{note}");
        let recovered = recover(&store, "eth1").expect("a store");
        assert_eq!((recovered.damaged.len(), recovered.warnings.len()), (1, 0), "{note}");
    }
}
