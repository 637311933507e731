//! Measures writing flow records to Parquet and reading them: processor time, disk space, and the time to rank the
//! senders with the most bytes; on request compared with nfdump for the same flows.
//!
//! The records are those of [`flow::sample::TrafficModel`], passed as slices that are in the processor's cache, as a
//! flow table passes them. The cost is the processor time of three threads (the caller, the journal writer, and the
//! thread that seals journals into Parquet files) less the time that the loop takes without a writer.

mod nfdump;
mod ranking;
mod sample;

use crate::output::{MedianRange, Output, Stop};
use crate::query::cold;
use crate::volume::ScratchDir;
use base::units::{parse_count, show_bytes, show_count};
use clap::Args;
use columns::{Column, Config, DataFileKind, Query, Writer, files, scan_shared};
use flow::sample::TrafficModel;
use ranking::{TOP, row};
use sample::{ExpectedTotals, SET, Set};
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use sys::cpu::{process_time, thread_time};

/// The interface of the store.
const INTERFACE: &str = "bench0";

/// Flags of `netgrain-bench columns`.
#[derive(Args, Clone, Debug)]
pub struct ColumnsArgs {
    /// Number of records to write: each needs about 90 bytes of disk space, and 120 bytes more until it is sealed
    #[arg(long, value_name = "N", default_value = "2M", value_parser = parse_count)]
    pub records: u64,
    /// Number of runs, each of which writes all records; the output shows the median
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = base::units::whole::<u32>(1..=100))]
    pub repeat: u32,
    /// Directory for the store, which is removed at the end
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Show the bytes per record of each column
    #[arg(long)]
    pub columns: bool,
    /// Collect the same flows with nfcapd, and run the same query with nfdump (needs 200 more bytes of disk space per
    /// record)
    #[arg(long)]
    pub nfdump: bool,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
}

/// The cost of writing records.
#[derive(Clone, Debug, Serialize)]
struct StorageCost {
    records: u64,
    /// Processor time of all threads.
    ns_per_record: MedianRange,
    mrecords_per_core_second: f64,
    /// The part of `ns_per_record` that the calling thread uses.
    handing_over_ns: MedianRange,
    /// Seconds from the first record until the last file is published.
    seconds: MedianRange,
    bytes_per_record: f64,
    files: usize,
}

/// Bytes per record of one column.
#[derive(Clone, Debug, Serialize)]
struct Width {
    column: String,
    bytes_per_record: f64,
}

/// Measures and prints the results.
pub fn run(args: &ColumnsArgs, out: &mut dyn Write) -> Result<(), Stop> {
    if !(1..=100_000_000).contains(&args.records) {
        return Err(Stop::error(
            "--records: must be from 1 to 100M; the store and its journals must fit on the volume",
        ));
    }
    let work = ScratchDir::below(&args.dir)?;
    let mut sheet = Output::begin(out, args.json, "columns")?;
    let set = Set::new();
    sheet.head(format_args!(
        "{} records with {:.1} packets and {:.1} initial packets on average; the records repeat after {} different \
         ones",
        show_count(args.records),
        set.packets,
        set.initial_packets,
        show_count(SET as u64),
    ))?;
    let store = work.path().join("store");
    write_records(args, &set, &store, &mut sheet)?;
    if args.columns {
        widths(&store, &mut sheet)?;
    }
    let expected_totals = set.expected_totals(args.records);
    rankings(args, &store, &expected_totals, &mut sheet)?;
    if args.nfdump {
        nfdump::compare(&work.path().join("nfdump"), &set, args.records, &expected_totals, &mut sheet)?;
    }
    Ok(())
}

fn write_records(args: &ColumnsArgs, set: &Set, store: &Path, sheet: &mut Output<'_>) -> Result<(), Stop> {
    let with_path = |e: &dyn std::fmt::Display| Stop::error(format_args!("{}: {e}", store.display()));
    let (mut all, mut calling_thread, mut seconds) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..args.repeat {
        match std::fs::remove_dir_all(store) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(with_path(&e)),
            _ => {}
        }
        let mut writer =
            Writer::new(Config { wait_when_full: true, ..Config::new(store, INTERFACE) }).map_err(|e| with_path(&e))?;
        let (begun, cpu) = (Instant::now(), process_time());
        let (mut generator_time, mut writer_time) = (Duration::ZERO, Duration::ZERO);
        let mut before = thread_time();
        set.for_each_batch(args.records, |records| {
            let ready = thread_time();
            records.iter().for_each(|record| writer.record(record));
            let after = thread_time();
            (generator_time, writer_time) = (generator_time + (ready - before), writer_time + (after - ready));
            before = after;
        });
        let (counts, events) = writer.finish();
        let each = |time: Duration| time.as_nanos() as f64 / args.records as f64;
        all.push(each(process_time().saturating_sub(cpu).saturating_sub(generator_time)));
        calling_thread.push(each(writer_time));
        seconds.push(begun.elapsed().as_secs_f64());
        if counts.sealed != args.records {
            return Err(Stop::error(format_args!(
                "only {} of {} records were stored: {events:?}",
                counts.sealed, args.records
            )));
        }
    }
    let files = files(store, INTERFACE, DataFileKind::Flows).map_err(|e| with_path(&e))?;
    let bytes: u64 = files.iter().map(|file| file.bytes).sum();
    let ns = MedianRange::of(all);
    let row = StorageCost {
        records: args.records,
        ns_per_record: ns,
        mrecords_per_core_second: 1e3 / ns.median,
        handing_over_ns: MedianRange::of(calling_thread),
        seconds: MedianRange::of(seconds),
        bytes_per_record: bytes as f64 / args.records as f64,
        files: files.len(),
    };
    let text = format!(
        "writing: {:.2} M records/s of one core; {:.0} ns each, of which {:.0} in the calling thread; {:.2} s; {:.1} \
         B each, {} in {} files",
        row.mrecords_per_core_second,
        row.ns_per_record,
        row.handing_over_ns,
        row.seconds,
        row.bytes_per_record,
        show_bytes(bytes),
        row.files,
    );
    sheet.row("keeping", &row, text)
}

fn widths(store: &Path, sheet: &mut Output<'_>) -> Result<(), Stop> {
    let listed = files(store, INTERFACE, DataFileKind::Flows).map_err(Stop::error)?;
    let Some(file) = listed.first() else { return Ok(()) };
    for (column, bytes_per_record) in columns::widths(&file.path, DataFileKind::Flows).map_err(Stop::error)? {
        let text = format!("  {column:28} {bytes_per_record:6.2} B");
        sheet.row("column", &Width { column, bytes_per_record }, text)?;
    }
    Ok(())
}

fn rankings(
    args: &ColumnsArgs,
    store: &Path,
    expected_totals: &ExpectedTotals,
    sheet: &mut Output<'_>,
) -> Result<(), Stop> {
    let query = Query { interfaces: vec![INTERFACE.into()], ..Query::new(store) };
    for (cache, threads) in [("cold", 2), ("warm", 2), ("warm", 1)] {
        if cache == "cold"
            && let Err(stop) = cold()
        {
            let Stop::Failed(why) = stop else { return Err(stop) };
            sheet.note(format_args!("the row with a cold cache is omitted: {why}"))?;
            continue;
        }
        let begun = Instant::now();
        let found = top(&query, threads)?;
        let duration = begun.elapsed();
        check(&found, args.records, expected_totals)?;
        row("netgrain", cache, threads, duration, args.records, sheet)?;
    }
    Ok(())
}

/// Runs the aggregation of `netgrain flows --top 10 --by bytes --group src`.
fn top(query: &Query, threads: usize) -> Result<aggregate::Aggregation, Stop> {
    let fields = aggregate::Plan::fields_of("src").map_err(Stop::error)?;
    let shown = [aggregate::Measure::Flows, aggregate::Measure::Packets, aggregate::Measure::Bytes];
    let plan = aggregate::Plan::new(&fields, &shown, aggregate::Measure::Bytes).map_err(Stop::error)?.keep(TOP);
    let columns_to_scan =
        [Column::Part, Column::Src, Column::FwdPackets, Column::RevPackets, Column::FwdBytes, Column::RevBytes];
    let mut blank = TrafficModel::new(1, 1.0).record();
    blank.directions = [flow::DirectionStats::default(); 2];
    let make = || (blank.clone(), aggregate::Aggregator::new(plan.clone()), Ok(()));
    let (sums, warnings) = scan_shared(query, &columns_to_scan, threads, make, |(record, groups, outcome), batch| {
        for row in 0..batch.rows() {
            let number = |place: usize| batch.numbers(place)[row];
            record.record_index = number(0) as u32;
            record.key.src = batch.addresses(1)[row];
            (record.directions[0].packets, record.directions[1].packets) = (number(2), number(3));
            (record.directions[0].bytes, record.directions[1].bytes) = (number(4), number(5));
            if outcome.is_ok() {
                *outcome = groups.add(record);
            }
        }
    })
    .map_err(Stop::error)?;
    if let Some(warning) = warnings.first() {
        return Err(Stop::error(warning));
    }
    let mut all: Option<aggregate::Aggregator> = None;
    for (_, groups, outcome) in sums {
        outcome.map_err(Stop::error)?;
        match &mut all {
            None => all = Some(groups),
            Some(all) => all.merge(groups).map_err(Stop::error)?,
        }
    }
    all.ok_or_else(|| Stop::error("no thread returned sums"))?.finish().map_err(Stop::error)
}

/// Compares the ranking that the query returned with the records that were written.
fn check(found: &aggregate::Aggregation, records: u64, expected_totals: &ExpectedTotals) -> Result<(), Stop> {
    let mut is_correct = found.records == records && found.lines.len() == TOP.min(expected_totals.len());
    for line in &found.lines {
        let address = match line.values[..] {
            [aggregate::Value::Address(address, _)] => Some(address),
            _ => None,
        };
        let wanted = address.and_then(|address| expected_totals.get(&address));
        is_correct &= wanted.is_some_and(|(bytes, _)| line.amounts[found.by] == *bytes);
    }
    let mut sums: Vec<u64> = expected_totals.values().map(|(bytes, _)| *bytes).collect();
    sums.sort_by(|a, b| b.cmp(a));
    is_correct &= found.lines.iter().zip(&sums).all(|(line, sum)| line.amounts[found.by] == *sum);
    if is_correct {
        Ok(())
    } else {
        Err(Stop::error("the ranking does not agree with the written records; please report this"))
    }
}
