//! What a volume may do to a store of columns: power that fails at any step, no room, writes and syncs that fail, bits
//! that flip. What was synced is there afterwards, once, as it was given; what is not as it was written is told with
//! its name.

use crate::common;

use base::{Prng, Timestamp};
use flow::Record;
use netgrain_columns::{
    Column, Config, Counts, DataFileKind, Disks, Event, Query, Writer, compact_on, files, flows, judge_journal,
    read_flows, recover, recover_on, scan, series,
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

/// The store, on the volume in memory.
const STORE: &str = "/store";

/// Three files of records and an unsealed rest, or hours of rows.
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

/// All records through a writer, a batch every few.
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

/// All records, of several days, through a writer that makes a file of each day and seals some of them together.
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

/// The same records, in pairs of different days.
fn site_of_days(seed: u64) -> Vec<Record> {
    let mut records = site(seed);
    records.truncate(24);
    for (i, record) in records.iter_mut().enumerate() {
        let later = |moment: Timestamp| moment.after(Duration::from_secs(i as u64 / 2 * 43_200));
        for side in &mut record.directions {
            (side.first, side.last) = (later(side.first), later(side.last));
        }
        record.flow_start = later(record.flow_start);
    }
    records
}

/// These files on a real volume.
fn laid_out(files: &Surviving) -> TempDir {
    let dir = TempDir::new("columns-faults");
    for (path, bytes) in files {
        let path = dir.join(path.strip_prefix("/").expect("absolute"));
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, bytes).expect("a file");
    }
    dir
}

fn store_of(dir: &TempDir) -> PathBuf {
    let store = dir.join(&STORE[1..]);
    fs::create_dir_all(&store).expect("a folder");
    store
}

/// What is found there, by id: once, and as it was given.
fn found(store: &Path, given: &BTreeMap<u64, &Record>, note: &str) -> BTreeMap<u64, Record> {
    let mut found = BTreeMap::new();
    for record in flows(&Query::new(store)).expect("a store") {
        assert_eq!(given.get(&record.id).copied(), Some(&record), "{note}: not as it was given");
        assert!(found.insert(record.id, record).is_none(), "{note}: a record is there twice");
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
fn a_power_failure_at_any_call_loses_nothing_that_was_synced_and_doubles_nothing() {
    let seed = testkit::seed("a_power_failure_at_any_call_loses_nothing_that_was_synced_and_doubles_nothing");
    power_fails(seed, &site(seed), 4, write);
}

#[test]
fn a_power_failure_while_files_of_several_days_are_sealed_together_loses_nothing_either() {
    let seed = testkit::seed("a_power_failure_while_files_of_several_days_are_sealed_together_loses_nothing_either");
    power_fails(seed, &site_of_days(seed), 6, write_days);
}

/// At any call of a writer, which makes so many files of these records.
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
    assert_eq!(found(&store_of(&dir), &given, "no failure").len(), records.len(), "what is published is synced");
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
            assert!(synced.keys().all(|id| before.contains_key(id)), "{note}: what was synced is gone");
            let recovered = recover(&store, "eth1").expect("a store");
            assert!(
                recovered.damaged.is_empty(),
                "{note}: what no sync vouched for is no damage: {:?}",
                recovered.damaged
            );
            // A journal whose header was not synced holds nothing that was.
            let damaged = recovered.warnings.iter().filter(|e| e.to_string().contains("header")).count();
            assert_eq!(recovered.warnings.len(), damaged, "{note}: {:?}", recovered.warnings);
            assert_eq!(found(&store, &given, &note), before, "{note}: recovery changed something");
        }
    }
}

#[test]
fn recovery_may_be_cut_off_at_any_call_and_done_again() {
    let seed = testkit::seed("recovery_may_be_cut_off_at_any_call_and_done_again");
    let mut prng = Prng::new(seed);
    let records = site(seed);
    let given = by_id(&records);
    let device = MemoryDevice::new(seed);
    // Nobody seals: each writer's process is killed.
    for some in records.chunks(40) {
        let mut writer = writer(&device);
        some.iter().take(30).for_each(|record| writer.record(record));
        drop(writer);
        let begun = std::time::Instant::now();
        let whole = || {
            let dir = laid_out(&device.files());
            let upto = records.chunks(40).take_while(|chunk| chunk.as_ptr() <= some.as_ptr());
            flows(&Query::new(store_of(&dir))).is_ok_and(|a| a.count() == upto.map(|chunk| chunk.len().min(30)).sum())
        };
        while !whole() {
            assert!(begun.elapsed() < Duration::from_secs(120), "the writer never journaled what it was given");
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
        // What it could not do is told, or it is cut off altogether.
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
fn a_day_may_be_cut_off_at_any_call_of_its_becoming_one_file() {
    let seed = testkit::seed("a_day_may_be_cut_off_at_any_call_of_its_becoming_one_file");
    let mut prng = Prng::new(seed);
    let device = MemoryDevice::new(seed);
    let mut writer = writer(&device);
    let rows: Vec<Row> = (0..4 * 60).map(|i| common::any_row(&mut prng, common::START + i * 60)).collect();
    rows.iter().for_each(|row| writer.row(row));
    let (counts, events) = writer.finish();
    assert!(counts.files >= 4, "{counts:?}: {events:?}");
    let left = device.synced();
    let all = |dir: &TempDir| -> Vec<Row> {
        let answer = series(&Query::new(store_of(dir))).expect("a store");
        let mut answer = answer.collect::<Vec<_>>();
        answer.sort_by_key(|row| (row.second, row.interface, row.direction));
        answer
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
            assert!(all(&laid_out(&device.files())) == wanted, "{note}: done again");
            let sealed = device.files().into_keys().filter(|path| path.to_string_lossy().ends_with(".parquet")).count();
            assert_eq!(sealed, 1, "{note}");
        }
    }
}

#[test]
fn what_a_full_or_failing_volume_took_is_there_and_what_it_refused_is_counted() {
    let seed = testkit::seed("what_a_full_or_failing_volume_took_is_there_and_what_it_refused_is_counted");
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
        assert!(counts.sealed == FLOWS as u64 || !events.is_empty(), "{note}: nothing was said");
        let is_trouble = |event: &Event| matches!(event, Event::Trouble(e) if e.to_string().contains("/store/"));
        assert!(events.iter().all(|e| matches!(e, Event::Sealed { .. }) || is_trouble(e)), "{note}");
        let dir = laid_out(&device.files());
        let before = found(&store_of(&dir), &given, &note);
        assert_eq!(before.len() as u64, counts.journaled, "{note}");
        // What is published is synced, whatever failed before.
        let synced = found(&store_of(&laid_out(&device.synced())), &given, &note);
        assert!(synced.len() as u64 >= counts.sealed, "{note}");
        // A failure of the power now: recovery finds what was synced, and what came back of sealed journals is no
        // second time.
        for _ in 0..3 {
            let dir = laid_out(&device.surviving(&mut prng));
            let store = store_of(&dir);
            recover(&store, "eth1").expect("a store");
            let survived = found(&store, &given, &note);
            assert!(synced.keys().all(|id| survived.contains_key(id)), "{note}");
        }
        // The volume has recovered, and the next start seals the rest.
        device.set_fault(Fault::default());
        device.kill();
        let recovered = recover_on(&mut device.clone(), Path::new(STORE), "eth1").expect("a store");
        assert!(recovered.warnings.is_empty(), "{note}: {:?}", recovered.warnings);
        assert_eq!(journals(&device.files()), 0, "{note}");
        let dir = laid_out(&device.synced());
        assert_eq!(found(&store_of(&dir), &given, &note), before, "{note}: after recovery");
    }
}

/// Flips bits of a whole file, one at a time, and asks.
fn flips<T: PartialEq>(
    path: &Path,
    prng: &mut Prng,
    note: &str,
    wanted: &[T],
    ask: impl Fn() -> (Vec<T>, Vec<String>),
) -> u32 {
    let bytes = fs::read(path).expect("a file");
    let mut reported = 0;
    for _ in 0..400 {
        let at = prng.below(bytes.len() as u64) as usize;
        let mut broken = bytes.clone();
        broken[at] ^= 1 << prng.below(8);
        fs::write(path, &broken).expect("a file");
        let (answer, remarks) = ask();
        if remarks.is_empty() {
            assert!(answer == wanted, "{note}: the bit at {at} of {} was believed", bytes.len());
        } else {
            reported += 1;
            assert!(remarks.iter().all(|remark| remark.contains(&path.display().to_string())), "{remarks:?}");
            assert!(answer.is_empty() || answer == wanted, "{note}: a part was given with the bit at {at}");
        }
    }
    fs::write(path, &bytes).expect("a file");
    reported
}

#[test]
fn a_flipped_bit_anywhere_in_a_file_is_told_with_its_name_or_changes_nothing() {
    let seed = testkit::seed("a_flipped_bit_anywhere_in_a_file_is_told_with_its_name_or_changes_nothing");
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
    // The address makes the filters be asked.
    let need = format!("host {}", records[5].key.src).parse::<filter::FlowFilter>().expect("a filter").need();
    let asked = Query { need, ..Query::new(store.path()) };
    let ask = || {
        let mut answer = flows(&asked).expect("a store");
        (answer.by_ref().collect::<Vec<_>>(), answer.warnings())
    };
    let (wanted, remarks) = ask();
    assert_eq!((wanted.len(), remarks.len()), (FLOWS, 0));
    let reported = flips(&of(DataFileKind::Flows), &mut prng, &format!("seed {seed}, flows"), &wanted, ask);
    assert!(reported > 390, "seed {seed}: only {reported} of 400 were told");
    let ask = || {
        let mut answer = series(&Query::new(store.path())).expect("a store");
        (answer.by_ref().collect::<Vec<_>>(), answer.warnings())
    };
    let (wanted, _) = ask();
    let reported = flips(&of(DataFileKind::Series), &mut prng, &format!("seed {seed}, series"), &wanted, ask);
    assert_eq!(reported, 400, "seed {seed}");
}

/// Records of a row group (`seal::GROUP`).
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
fn a_bad_column_costs_its_row_group_and_only_answers_that_need_it() {
    let seed = testkit::seed("a_bad_column_costs_its_row_group_and_only_answers_that_need_it");
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
    let ask = |query: &Query| {
        let mut answer = flows(query).expect("a store");
        (answer.by_ref().collect::<Vec<_>>(), answer.warnings())
    };
    let all = Query::new(store.path());
    let (rest, spared) = (&records[GROUP..], &records[..GROUP]);
    for (group, left, lost, from) in [(0, rest, GROUP, 0), (1, spared, rest.len(), GROUP)] {
        damage_column(&path, &bytes, group, "fwd_ttl_min");
        let (answer, remarks) = ask(&all);
        assert!(answer == left, "row group {group}: {} records", answer.len());
        let said = format!("{lost} rows, the first at {from}, cannot be read");
        assert!(remarks.len() == 1 && remarks[0].contains("column fwd_ttl_min"), "{remarks:?}");
        assert!(remarks[0].contains(&said) && remarks[0].contains(&path.display().to_string()), "{remarks:?}");
        // Fields that have nothing to do with it.
        let few = Query { fields: Some(vec!["src_port".into(), "fwd_bytes".into()]), ..all.clone() };
        let (answer, remarks) = ask(&few);
        let ports = |records: &[Record]| -> Vec<(u16, u64)> {
            records.iter().map(|record| (record.key.src_port, record.directions[0].bytes)).collect()
        };
        assert!(ports(&answer) == ports(&records), "row group {group}: {} records", answer.len());
        assert!(remarks.len() == 1 && remarks[0].contains("this answer is made without"), "{remarks:?}");
        // The field itself, and a field that no column has.
        for field in ["fwd_ttl_min", "fwd_flags_of_old"] {
            let (answer, _) = ask(&Query { fields: Some(vec![field.into()]), ..all.clone() });
            assert_eq!(answer.len(), left.len(), "{field}");
        }
        let (mut sum, wanted) = (0, records.iter().map(|record| record.directions[0].packets).sum::<u64>());
        let remarks = scan(&all, &[Column::FwdPackets], |batch| sum += batch.numbers(0).iter().sum::<u64>());
        assert_eq!((sum, remarks.expect("a store")), (wanted, Vec::new()));
        // The file by itself.
        let (reported, errors): (Vec<_>, Vec<_>) = read_flows(&path).expect("a file").partition(Result::is_ok);
        assert!(errors.len() == 1 && reported.into_iter().flatten().collect::<Vec<_>>() == left, "{errors:?}");
    }
    // What others say too is not missed, and yet told.
    damage_column(&path, &bytes, 0, "duration_ns");
    let (answer, remarks) = ask(&all);
    assert!(answer == records && remarks.len() == 1 && remarks[0].contains("duration_ns"), "{remarks:?}");
    damage_column(&path, &bytes, 1, "fwd_packets");
    let mut count = 0;
    let remarks = scan(&all, &[Column::FwdPackets], |batch| count += batch.rows()).expect("a store");
    assert!(count == GROUP && remarks.len() == 1, "{count}: {remarks:?}");
    assert!(remarks[0].contains("column fwd_packets") && remarks[0].contains("4000 rows"), "{remarks:?}");
}

#[test]
fn a_series_journal_damaged_at_its_end_is_told_by_answers_judged_and_kept_by_recovery() {
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
        assert!(begun.elapsed() < Duration::from_secs(120), "the writer never journaled what it was given");
        std::thread::sleep(Duration::from_millis(5));
    }
    device.kill();
    let left = device.files();
    let (path, bytes) = left.iter().find(|(path, _)| path.to_string_lossy().ends_with(".partial")).expect("a journal");
    for _ in 0..40 {
        // Within the last kB, or the batch, where the rows are.
        let most = (bytes.len() - 24).min(1000) as u64;
        let at = bytes.len() - 1 - prng.below(most) as usize;
        let mut broken = left.clone();
        broken.get_mut(path).expect("a journal")[at] ^= 1 << prng.below(8);
        let dir = laid_out(&broken);
        let store = store_of(&dir);
        let note = format!("seed {seed}, byte {at} of {}", bytes.len());
        let mut answer = series(&Query::new(&store)).expect("a store");
        assert!(answer.by_ref().count() < 50, "{note}");
        assert_eq!(answer.warnings().len(), 1, "{note}");
        let journal = dir.join(path.strip_prefix("/").expect("absolute"));
        assert!(judge_journal(&journal).expect("readable").is_some(), "{note}");
        let recovered = recover(&store, "eth1").expect("a store");
        assert_eq!((recovered.damaged.len(), recovered.warnings.len()), (1, 0), "{note}");
    }
}
