//! What keeping flow records costs: `cargo bench -p netgrain-columns [-- FOLDER [RECORDS]]`. Records of a site with some
//! thousands of hosts go through a writer; then their journal is sealed alone, on one thread; then the store is asked for its
//! top talkers, and read back record by record. Prints bytes per record on disk, column by column with `--columns`; with
//! `--nfdump` asks nfdump for the same of the same flows, which nfcapd collected from our IPFIX.

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "beside/nfdump.rs"]
mod nfdump;

use netgrain_columns::{Column, Config, Kind, Query, Writer, files, flows, recover, scan_shared};
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use sys::cpu::thread_time;

/// Different records: so many that no row group has the noise of one twice, which would compress.
const SET: usize = 200_000;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let folder = args.first().map_or_else(|| std::env::temp_dir().join("netgrain-bench-columns"), PathBuf::from);
    let records: u64 = args.get(1).and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    let _ = std::fs::remove_dir_all(&folder);
    // One set of records, some seconds later each time: making them costs more than keeping them.
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
    let (mut done, mut truth) = (0, HashMap::new());
    while done < records {
        let round = done / SET as u64;
        let begun = thread_time();
        for record in set.iter_mut().take((records - done).min(SET as u64) as usize) {
            later(record, round);
            id += 1;
            record.id = base::hash::mix64(id);
            writer.record(record);
        }
        busy += thread_time() - begun;
        if truth.is_empty() {
            truth = truth_of(&set, records);
        }
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
    for round in 1..=2 {
        for record in &mut set {
            later(record, round);
            id += 1;
            record.id = base::hash::mix64(id);
            writer.record(record);
        }
    }
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
    // As `netgrain flows --top 10 --by bytes --group src` asks; the first time cold, as far as a cache can be emptied.
    for (cache, threads) in [("cold", 2), ("warm", 2), ("warm", 1)] {
        if cache == "cold" {
            all.iter().for_each(|file| common::forget(&file.path));
        }
        let started = Instant::now();
        let found = top(&query, threads);
        report(&format!("top talkers, {cache}, {threads} threads"), found.records, started.elapsed().as_secs_f64());
        assert_eq!(found.records, records);
        for line in &found.lines {
            let report::Value::Address(address, _) = line.values[0] else { panic!("not an address: {line:?}") };
            assert_eq!(line.amounts[found.by], truth[&address].0, "{address}");
        }
    }
    if std::env::args().any(|a| a == "--nfdump") {
        nfdump::compare(&folder.join("nfdump"), &mut set, records, &truth);
    }
    if std::env::args().any(|a| a == "--keep") {
        return;
    }

    let started = thread_time();
    let rows = flows(&query).expect("an answer").take(1_000_000).count();
    report("whole records, in order of time", rows as u64, (thread_time() - started).as_secs_f64());
    let _ = std::fs::remove_dir_all(&folder);
}

/// New moments, else the repetition would compress. Those of a round follow those of the one before.
fn later(record: &mut flow::Record, round: u64) {
    let shift = Duration::from_nanos(10_000_000_007 * u64::from(round > 0));
    for side in &mut record.sides {
        if side.packets > 0 {
            (side.first, side.last) = (side.first.after(shift), side.last.after(shift));
        }
    }
    record.began = record.began.after(shift);
}

fn top(query: &Query, threads: usize) -> report::Report {
    let fields = report::Plan::fields_of("src").expect("a field");
    let shown = [report::Measure::Flows, report::Measure::Packets, report::Measure::Bytes];
    let plan = report::Plan::new(&fields, &shown, report::Measure::Bytes).expect("a plan").keep(10);
    let asked = [
        Column::Part,
        Column::End,
        Column::Src,
        Column::FwdPackets,
        Column::RevPackets,
        Column::FwdBytes,
        Column::RevBytes,
    ];
    let mut blank = common::Site::new(1, 1.0).record();
    blank.sides = Default::default();
    let make = || (blank.clone(), report::Groups::new(plan.clone()));
    let (sums, remarks) = scan_shared(query, &asked, threads, make, |(record, groups), batch| {
        for row in 0..batch.rows() {
            let number = |place: usize| batch.numbers(place)[row];
            record.part = number(0) as u32;
            record.key.src = batch.addresses(2)[row];
            (record.sides[0].packets, record.sides[1].packets) = (number(3), number(4));
            (record.sides[0].bytes, record.sides[1].bytes) = (number(5), number(6));
            groups.add(record).expect("groups");
        }
    })
    .expect("a scan");
    assert!(remarks.is_empty(), "{remarks:?}");
    let merged = sums.into_iter().map(|(_, groups)| groups).reduce(|mut all, one| {
        all.merge(one).expect("groups");
        all
    });
    merged.expect("a thread").finish().expect("groups")
}

fn report(what: &str, records: u64, seconds: f64) {
    let nanos = seconds * 1e9 / records as f64;
    println!("{what}: {:.2} M records/s, {nanos:.0} ns each", records as f64 / seconds / 1e6);
}

/// Bytes on the wire, and of IP from the source, by source; of the set as often as it is recorded.
fn truth_of(set: &[flow::Record], records: u64) -> HashMap<IpAddr, (u64, u64)> {
    let mut truth: HashMap<IpAddr, (u64, u64)> = HashMap::new();
    for (i, record) in set.iter().enumerate() {
        let times = records / set.len() as u64 + u64::from((i as u64) < records % set.len() as u64);
        let sum = truth.entry(record.key.src).or_default();
        *sum = (sum.0 + record.bytes() * times, sum.1 + record.sides[0].ip_bytes * times);
    }
    truth
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
