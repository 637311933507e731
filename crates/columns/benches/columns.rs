//! What keeping flow records costs: `cargo bench -p netgrain-columns [-- FOLDER [RECORDS]]`. Records of a site with some
//! thousands of hosts go through a writer; then their journal is sealed alone, on one thread; then the store is asked for its
//! top talkers, and read back record by record. Prints bytes per record on disk, column by column with `--columns`.

#[path = "../tests/common/mod.rs"]
mod common;

use netgrain_columns::{Column, Config, Kind, Query, Writer, files, flows, recover, scan};
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use sys::cpu::thread_time;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let folder = args.first().map_or_else(|| std::env::temp_dir().join("netgrain-bench-columns"), PathBuf::from);
    let records: u64 = args.get(1).and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    let _ = std::fs::remove_dir_all(&folder);
    // One set of records, some seconds later each time: making them costs more than keeping them.
    const SET: usize = 200_000;
    let mut site = common::Site::new(1, 20_000.0);
    let mut set: Vec<_> = (0..SET).map(|_| site.record()).collect();
    set.sort_by_key(flow::Record::last);
    let early: usize = set.iter().map(|r| r.early.len()).sum();
    let packets: u64 = set.iter().map(flow::Record::packets).sum();
    println!(
        "{records} records: {:.1} packets and {:.1} early ones each",
        packets as f64 / SET as f64,
        early as f64 / SET as f64
    );

    // Left as journals, so that sealing is measured alone.
    let config = Config { patient: true, flows_every: Duration::from_secs(100_000), ..Config::new(&folder, "bench0") };
    let started = Instant::now();
    let mut writer = Writer::new(config).expect("threads");
    let (mut id, mut busy) = (0, Duration::ZERO);
    let mut done = 0;
    while done < records {
        let round = done / SET as u64;
        let begun = thread_time();
        for record in set.iter_mut().take((records - done).min(SET as u64) as usize) {
            // New moments and ids, else the repetition would compress.
            let shift = Duration::from_nanos(10_000_000_007 * u64::from(round > 0));
            for side in &mut record.sides {
                if side.packets > 0 {
                    (side.first, side.last) = (side.first.after(shift), side.last.after(shift));
                }
            }
            record.began = record.began.after(shift);
            id += 1;
            record.id = base::hash::mix64(id);
            writer.record(record);
        }
        busy += thread_time() - begun;
        done += SET as u64;
    }
    report("journal: packing and handing over", records, busy.as_secs_f64());
    let counts = {
        let (counts, _) = writer.finish();
        counts
    };
    report("all: journal, sealing beside it", records, started.elapsed().as_secs_f64());
    println!("{counts:?}");

    // The same again as one journal that a crash left, sealed on this thread.
    let crashed = folder.join("crashed");
    let mut writer = Writer::new(Config { patient: true, ..Config::new(&crashed, "bench0") }).expect("threads");
    set.iter().for_each(|record| writer.record(record));
    drop(writer);
    std::thread::sleep(Duration::from_secs(1));
    let started = thread_time();
    let recovered = recover(&crashed, "bench0").expect("a store");
    report("sealing alone, processor time", recovered.things, (thread_time() - started).as_secs_f64());

    let all = files(&folder, "bench0", Kind::Flows).expect("a listing");
    let bytes: u64 = all.iter().map(|f| f.bytes).sum();
    println!("{} files, {:.1} bytes per record on disk", all.len(), bytes as f64 / records as f64);
    if std::env::args().any(|a| a == "--columns") {
        columns(&all[0].path);
    }

    let query = Query { interfaces: vec!["bench0".into()], ..Query::new(&folder) };
    let started = thread_time();
    let mut talkers: HashMap<IpAddr, u64> = HashMap::new();
    let mut rows = 0;
    let asked = [Column::Src, Column::Dst, Column::FwdBytes, Column::RevBytes];
    let remarks = scan(&query, &asked, |batch| {
        rows += batch.rows() as u64;
        let ends = batch.addresses(0).iter().zip(batch.addresses(1));
        for ((src, dst), (fwd, rev)) in ends.zip(batch.numbers(2).iter().zip(batch.numbers(3))) {
            *talkers.entry(*src).or_default() += fwd;
            *talkers.entry(*dst).or_default() += rev;
        }
    })
    .expect("a scan");
    remarks.iter().for_each(|remark| println!("{remark}"));
    report("top talkers, by source and destination", rows, (thread_time() - started).as_secs_f64());
    let started = thread_time();
    let mut talkers: HashMap<IpAddr, u64> = HashMap::new();
    let mut rows = 0;
    scan(&query, &[Column::Src, Column::FwdBytes], |batch| {
        rows += batch.rows() as u64;
        for (src, bytes) in batch.addresses(0).iter().zip(batch.numbers(1)) {
            *talkers.entry(*src).or_default() += bytes;
        }
    })
    .expect("a scan");
    report("top talkers, by source", rows, (thread_time() - started).as_secs_f64());

    let started = thread_time();
    let rows = flows(&query).expect("an answer").take(1_000_000).count();
    report("whole records, in order of time", rows as u64, (thread_time() - started).as_secs_f64());
    let _ = std::fs::remove_dir_all(&folder);
}

fn report(what: &str, records: u64, seconds: f64) {
    let nanos = seconds * 1e9 / records as f64;
    println!("{what}: {:.2} M records/s, {nanos:.0} ns each", records as f64 / seconds / 1e6);
}

/// Bytes per record of each column of a file.
fn columns(path: &std::path::Path) {
    use parquet::file::reader::FileReader;
    let file = std::fs::File::open(path).expect("a file");
    let reader = parquet::file::serialized_reader::SerializedFileReader::new(file).expect("Parquet");
    let rows = reader.metadata().file_metadata().num_rows() as f64;
    let mut sums: HashMap<String, (i64, i64)> = HashMap::new();
    for column in reader.metadata().row_groups().iter().flat_map(|g| g.columns()) {
        let sum = sums.entry(column.column_path().string()).or_default();
        sum.0 += column.compressed_size();
        sum.1 += i64::from(column.bloom_filter_length().unwrap_or(0));
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(_, (bytes, _))| -bytes);
    for (name, (bytes, filter)) in sums {
        println!("  {:28} {:6.2} + {:.2}", name, bytes as f64 / rows, filter as f64 / rows);
    }
}
