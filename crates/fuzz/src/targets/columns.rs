//! The target reads journals and Parquet files that contain flow records or series rows. If a Parquet file was read
//! without an error, its content is written to a new file; when this file is read, the content must be the same.
//!
//! ```text
//! byte 0, bit 0: do not repair the checksums; bit 1: series rows instead of flow records | the file
//! ```

use crate::Target;
use crate::targets::bytes::{repair, u32_at, u64_at};
use base::{Prng, Timestamp};
use columns::{
    Config, Query, Writer, flows, judge_journal, read_flows, read_series, series, write_flows, write_series,
};
use flow::Record;
use flow::sample::any_record;
use series::Row;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::names;
use testkit::TempDir;

pub const JOURNAL: Target =
    Target { name: "journal", run: run_journal, seeds: journal_seeds, rounds: 600, memory: 64 << 20 };
pub const PARQUET: Target =
    Target { name: "parquet", run: run_parquet, seeds: parquet_seeds, rounds: 60, memory: 64 << 20 };

/// Lengths of the header of a journal and of the header of a batch, in bytes.
const HEADER: usize = 24;
const HEAD: usize = 20;

thread_local! {
    /// The directory for the input files of this thread.
    static DIRECTORY: TempDir = TempDir::new("fuzz-columns");
}

/// Writes the bytes into a file of this name, and calls `use_file` with the path of the store and of the file.
fn with_file(name: &str, bytes: &[u8], use_file: impl FnOnce(&Path, &Path)) {
    DIRECTORY.with(|directory| {
        let interface = names::interface_directory(directory.path(), "eth1");
        fs::create_dir_all(&interface).expect("a directory");
        let path = interface.join(name);
        fs::write(&path, bytes).expect("a file");
        use_file(directory.path(), &path);
        fs::remove_file(&path).expect("the file");
    });
}

fn run_journal(bytes: &[u8]) {
    let Some((&mode, bytes)) = bytes.split_first() else { return };
    let mut bytes = bytes.to_vec();
    if mode & 1 == 0 {
        repair_journal(&mut bytes);
    }
    let kind = if mode & 2 == 0 { "flows" } else { "series" };
    with_file(&format!("20261121T104000.000000000Z.{kind}.partial"), &bytes, |store, path| {
        drop(judge_journal(path).expect("the journal file can be read"));
        let query = Query::new(store);
        if mode & 2 == 0 {
            let records: Vec<Record> = flows(&query).expect("a store").collect();
            assert!(records.is_sorted_by_key(|r| (r.first(), r.id)), "{records:?}");
        } else {
            let rows: Vec<Row> = series(&query).expect("a store").collect();
            assert!(rows.is_sorted_by_key(|row| row.second), "{rows:?}");
        }
    });
}

fn repair_journal(bytes: &mut [u8]) -> Option<()> {
    repair(bytes, 0..HEADER);
    let (id, mut at) = (u64_at(bytes, 12)? as u64, HEADER);
    while at + HEAD <= bytes.len() {
        let length = u32_at(bytes, at)?.min(bytes.len() - at - HEAD);
        let batch = &mut bytes[at..at + HEAD + length];
        let content = crc32c::crc32c(&batch[HEAD..]);
        batch[..4].copy_from_slice(&(length as u32).to_le_bytes());
        batch[8..12].copy_from_slice(&content.to_le_bytes());
        let check = [&batch[..16], &id.to_le_bytes(), &(at as u64).to_le_bytes()].concat();
        batch[16..20].copy_from_slice(&crc32c::crc32c(&check).to_le_bytes());
        at += HEAD + length;
    }
    Some(())
}

fn run_parquet(bytes: &[u8]) {
    let Some((&mode, bytes)) = bytes.split_first() else { return };
    with_file("input.parquet", bytes, |_, path| {
        if mode & 2 == 0 {
            let Ok(file) = read_flows(path) else { return };
            let names = file.names().to_vec();
            let Ok(records) = file.collect::<Result<Vec<Record>, _>>() else { return };
            let mut written = Vec::new();
            write_flows(&mut written, &mut records.iter().cloned(), &|| names.clone()).expect("memory");
            fs::write(path, &written).expect("a file");
            let again: Vec<Record> = read_flows(path).expect("our file").map(|r| r.expect("our record")).collect();
            assert_eq!(again, records);
        } else {
            let Ok(file) = read_series(path) else { return };
            let Ok(rows) = file.collect::<Result<Vec<Row>, _>>() else { return };
            let mut written = Vec::new();
            write_series(&mut written, &mut rows.iter().cloned(), &Vec::new).expect("memory");
            fs::write(path, &written).expect("a file");
            let again: Vec<Row> = read_series(path).expect("our file").map(|r| r.expect("our row")).collect();
            assert_eq!(again.len(), rows.len());
        }
    });
}

fn records() -> Vec<Record> {
    let mut prng = Prng::new(13);
    (0..6).map(|_| any_record(&mut prng)).collect()
}

fn rows() -> Vec<Row> {
    (0..6).map(|i| Row { second: 1_795_305_600 + i, interface: 1, syn: i, ..Row::default() }).collect()
}

/// Returns the contents of journals as they remain in a store if the writing process ends without closing them.
fn journal_seeds() -> Vec<Vec<u8>> {
    let store = TempDir::new("fuzz-journal");
    let mut writer =
        Writer::new(Config { wait_when_full: true, ..Config::new(store.path(), "eth1") }).expect("threads");
    for (i, (record, row)) in records().iter().zip(rows()).enumerate() {
        writer.record(record);
        writer.row(&row);
        writer.tick(Timestamp::from_nanos(i as u64 * 1_000_000_000));
    }
    drop(writer);
    ["flows", "series"]
        .iter()
        .zip([0, 2])
        .map(|(kind, mode)| [&[mode], &remaining_journal(&store, kind)[..]].concat())
        .collect()
}

/// Waits until no thread locks the journal of this kind, and returns the content of the file.
fn remaining_journal(store: &TempDir, kind: &str) -> Vec<u8> {
    let directory = names::interface_directory(store.path(), "eth1");
    let find = || {
        let paths = fs::read_dir(&directory).ok()?.flatten().map(|entry| entry.path());
        let mut journals = paths.filter(|path| path.to_string_lossy().ends_with(&format!(".{kind}.partial")));
        journals.next().filter(|path| fs::File::open(path).is_ok_and(|file| file.try_lock().is_ok()))
    };
    let wait = || std::thread::sleep(Duration::from_millis(5));
    let found: Option<PathBuf> = (0..10_000).find_map(|_| {
        find().or_else(|| {
            wait();
            None
        })
    });
    fs::read(found.unwrap_or_else(|| panic!("{}: no journal of {kind}", directory.display()))).expect("a journal")
}

fn parquet_seeds() -> Vec<Vec<u8>> {
    let names = || vec![(1, "eth1".to_owned())];
    let (mut flow_file, mut series_file) = (vec![0], vec![2]);
    let mut records = records();
    records.sort_by_key(|r| (r.first(), r.id));
    write_flows(&mut flow_file, &mut records.into_iter(), &names).expect("memory");
    write_series(&mut series_file, &mut rows().into_iter(), &names).expect("memory");
    vec![flow_file, series_file]
}
