//! Measures writing flow records to Parquet and reading them: processor time, disk space, and the time to rank the
//! senders with the most bytes; on request beside nfdump with the same flows.
//!
//! The records are those of [`flow::sample::TrafficModel`], passed as slices that are in the processor's cache, as a
//! flow table passes them. The cost is the processor time of three threads (the caller, the journal writer, and the
//! thread that seals journals into Parquet files) less the time that the loop takes without a writer.

mod nfdump;

use crate::output::{MedianRange, Output, Stop};
use crate::query::cold;
use crate::volume::ScratchDir;
use base::units::{parse_count, show_bytes, show_count};
use clap::Args;
use columns::{Column, Config, DataFileKind, Query, Writer, files, scan_shared};
use flow::Record;
use flow::sample::TrafficModel;
use serde::Serialize;
use std::collections::HashMap;
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use sys::cpu::{process_time, thread_time};

/// Number of different records: so many that no row group holds the random values of a record twice, which would
/// compress.
const SET: usize = 200_000;

/// Records prepared together: few enough to stay in the processor's cache.
const LENT: usize = 256;

/// Number of top senders that the query returns.
const TOP: usize = 10;

/// The interface of the store.
const INTERFACE: &str = "bench0";

/// Flags of `netgrain-bench columns`.
#[derive(Args, Clone, Debug)]
pub struct ColumnsArgs {
    /// Records to keep: some 90 bytes of disk each, and until they are sealed 120 more
    #[arg(long, value_name = "N", default_value = "2M", value_parser = parse_count)]
    pub records: u64,
    /// Times that they are kept; the median is shown
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = base::units::whole::<u32>(1..=100))]
    pub repeat: u32,
    /// Folder for the store; it is removed again
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Show what each column takes
    #[arg(long)]
    pub columns: bool,
    /// Let nfcapd collect the same flows, and ask nfdump the same (200 bytes of disk for each record more)
    #[arg(long)]
    pub nfdump: bool,
    /// One JSON object per line
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
    /// From the first record until the last file is published.
    seconds: MedianRange,
    bytes_per_record: f64,
    files: usize,
}

/// Duration of one top-N query.
#[derive(Clone, Debug, Serialize)]
struct Ranking {
    by: &'static str,
    cache: &'static str,
    threads: usize,
    ms: f64,
    ns_per_record: f64,
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
        return Err(Stop::say("--records: from 1 to 100M, of which the store and its journals must fit on the volume"));
    }
    let work = ScratchDir::below(&args.dir)?;
    let mut sheet = Output::begin(out, args.json, "columns")?;
    let set = Set::new();
    sheet.head(format_args!(
        "{} records, {:.1} packets and {:.1} early ones each, {} different ones before any comes again",
        show_count(args.records),
        set.packets,
        set.early,
        show_count(SET as u64),
    ))?;
    let store = work.path().join("store");
    keeping(args, &set, &store, &mut sheet)?;
    if args.columns {
        widths(&store, &mut sheet)?;
    }
    let truth = set.truth(args.records);
    rankings(args, &store, &truth, &mut sheet)?;
    if args.nfdump {
        nfdump::beside(&work.path().join("nfdump"), &set, args.records, &truth, &mut sheet)?;
    }
    Ok(())
}

/// For each source address: bytes on the wire, and bytes of IP packets from the source.
type ExpectedTotals = HashMap<IpAddr, (u64, u64)>;

/// The sample records and their averages.
struct Set {
    records: Vec<Record>,
    packets: f64,
    early: f64,
}

impl Set {
    fn new() -> Self {
        let mut site = TrafficModel::new(1, 20_000.0);
        let mut records: Vec<Record> = (0..SET).map(|_| site.record()).collect();
        // A meter exports records in order of their last packet.
        records.sort_by_key(Record::last);
        let mean = |sum: u64| sum as f64 / SET as f64;
        let packets = mean(records.iter().map(Record::packets).sum());
        let early = mean(records.iter().map(|record| record.initial_packets.len() as u64).sum());
        Self { records, packets, early }
    }

    /// Calls `each` with `records` records, a few at a time. A repeated record gets a later time and another flow id,
    /// since an exact repetition would compress.
    fn lend(&self, records: u64, mut each: impl FnMut(&[Record])) {
        let mut lent: Vec<Record> = Vec::with_capacity(LENT);
        let mut done = 0;
        while done < records {
            lent.clear();
            for n in done..records.min(done + LENT as u64) {
                let mut record = self.records[n as usize % SET].clone();
                later(&mut record, n / SET as u64);
                record.id = base::hash::mix64(n);
                lent.push(record);
            }
            done += lent.len() as u64;
            each(&lent);
        }
    }

    fn truth(&self, records: u64) -> ExpectedTotals {
        let mut truth = ExpectedTotals::new();
        for (i, record) in self.records.iter().enumerate() {
            let times = records / SET as u64 + u64::from((i as u64) < records % SET as u64);
            let sum = truth.entry(record.key.src).or_default();
            *sum = (sum.0 + record.bytes() * times, sum.1 + record.directions[0].ip_bytes * times);
        }
        truth
    }
}

/// Shifts the times of a record by `rounds` rounds.
fn later(record: &mut Record, rounds: u64) {
    let shift = Duration::from_nanos(10_000_000_007 * rounds);
    for side in record.directions.iter_mut().filter(|side| side.packets > 0) {
        (side.first, side.last) = (side.first.after(shift), side.last.after(shift));
    }
    record.flow_start = record.flow_start.after(shift);
}

fn keeping(args: &ColumnsArgs, set: &Set, store: &Path, sheet: &mut Output<'_>) -> Result<(), Stop> {
    let said = |e: &dyn std::fmt::Display| Stop::say(format_args!("{}: {e}", store.display()));
    let (mut all, mut handing, mut seconds) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..args.repeat {
        match std::fs::remove_dir_all(store) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(said(&e)),
            _ => {}
        }
        let mut writer =
            Writer::new(Config { wait_when_full: true, ..Config::new(store, INTERFACE) }).map_err(|e| said(&e))?;
        let (begun, cpu) = (Instant::now(), process_time());
        let (mut lent_by, mut kept) = (Duration::ZERO, Duration::ZERO);
        let mut before = thread_time();
        set.lend(args.records, |records| {
            let ready = thread_time();
            records.iter().for_each(|record| writer.record(record));
            let after = thread_time();
            (lent_by, kept) = (lent_by + (ready - before), kept + (after - ready));
            before = after;
        });
        let (counts, events) = writer.finish();
        let each = |time: Duration| time.as_nanos() as f64 / args.records as f64;
        all.push(each(process_time().saturating_sub(cpu).saturating_sub(lent_by)));
        handing.push(each(kept));
        seconds.push(begun.elapsed().as_secs_f64());
        if counts.sealed != args.records {
            return Err(Stop::say(format_args!(
                "only {} of {} records were kept: {events:?}",
                counts.sealed, args.records
            )));
        }
    }
    let files = files(store, INTERFACE, DataFileKind::Flows).map_err(|e| said(&e))?;
    let bytes: u64 = files.iter().map(|file| file.bytes).sum();
    let ns = MedianRange::of(all);
    let row = StorageCost {
        records: args.records,
        ns_per_record: ns,
        mrecords_per_core_second: 1e3 / ns.median,
        handing_over_ns: MedianRange::of(handing),
        seconds: MedianRange::of(seconds),
        bytes_per_record: bytes as f64 / args.records as f64,
        files: files.len(),
    };
    let text = format!(
        "keeping: {:.2} M records/s of one core; {:.0} ns each, of which {:.0} by who hands over; {:.2} s; {:.1} B each, {} in {} files",
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
    let listed = files(store, INTERFACE, DataFileKind::Flows).map_err(Stop::say)?;
    let Some(file) = listed.first() else { return Ok(()) };
    for (column, bytes_per_record) in columns::widths(&file.path, DataFileKind::Flows).map_err(Stop::say)? {
        let text = format!("  {column:28} {bytes_per_record:6.2} B");
        sheet.row("column", &Width { column, bytes_per_record }, text)?;
    }
    Ok(())
}

fn rankings(args: &ColumnsArgs, store: &Path, truth: &ExpectedTotals, sheet: &mut Output<'_>) -> Result<(), Stop> {
    let query = Query { interfaces: vec![INTERFACE.into()], ..Query::new(store) };
    for (cache, threads) in [("cold", 2), ("warm", 2), ("warm", 1)] {
        if cache == "cold"
            && let Err(stop) = cold()
        {
            let Stop::Said(why) = stop else { return Err(stop) };
            sheet.remark_line(format_args!("no cold row: {why}"))?;
            continue;
        }
        let begun = Instant::now();
        let found = top(&query, threads)?;
        let took = begun.elapsed();
        check(&found, args.records, truth)?;
        row("netgrain", cache, threads, took, args.records, sheet)?;
    }
    Ok(())
}

fn row(
    by: &'static str,
    cache: &'static str,
    threads: usize,
    took: Duration,
    records: u64,
    sheet: &mut Output<'_>,
) -> Result<(), Stop> {
    let (ms, ns_per_record) = (took.as_secs_f64() * 1e3, took.as_nanos() as f64 / records as f64);
    let ranking = Ranking { by, cache, threads, ms, ns_per_record };
    let text =
        format!("top {TOP} senders, {by}, {cache}, {threads} threads: {ms:.0} ms, {ns_per_record:.0} ns a record");
    sheet.row("ranking", &ranking, text)
}

/// Runs the aggregation of `netgrain flows --top 10 --by bytes --group src`.
fn top(query: &Query, threads: usize) -> Result<aggregate::Aggregation, Stop> {
    let fields = aggregate::Plan::fields_of("src").map_err(Stop::say)?;
    let shown = [aggregate::Measure::Flows, aggregate::Measure::Packets, aggregate::Measure::Bytes];
    let plan = aggregate::Plan::new(&fields, &shown, aggregate::Measure::Bytes).map_err(Stop::say)?.keep(TOP);
    let asked = [Column::Part, Column::Src, Column::FwdPackets, Column::RevPackets, Column::FwdBytes, Column::RevBytes];
    let mut blank = TrafficModel::new(1, 1.0).record();
    blank.directions = [flow::DirectionStats::default(); 2];
    let make = || (blank.clone(), aggregate::Aggregator::new(plan.clone()), Ok(()));
    let (sums, remarks) = scan_shared(query, &asked, threads, make, |(record, groups, outcome), batch| {
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
    .map_err(Stop::say)?;
    if let Some(remark) = remarks.first() {
        return Err(Stop::say(remark));
    }
    let mut all: Option<aggregate::Aggregator> = None;
    for (_, groups, outcome) in sums {
        outcome.map_err(Stop::say)?;
        match &mut all {
            None => all = Some(groups),
            Some(all) => all.merge(groups).map_err(Stop::say)?,
        }
    }
    all.ok_or_else(|| Stop::say("no thread added anything up"))?.finish().map_err(Stop::say)
}

/// Compares an answer with the records that were written.
fn check(found: &aggregate::Aggregation, records: u64, truth: &ExpectedTotals) -> Result<(), Stop> {
    let mut right = found.records == records && found.lines.len() == TOP.min(truth.len());
    for line in &found.lines {
        let address = match line.values[..] {
            [aggregate::Value::Address(address, _)] => Some(address),
            _ => None,
        };
        let wanted = address.and_then(|address| truth.get(&address));
        right &= wanted.is_some_and(|(bytes, _)| line.amounts[found.by] == *bytes);
    }
    let mut sums: Vec<u64> = truth.values().map(|(bytes, _)| *bytes).collect();
    sums.sort_by(|a, b| b.cmp(a));
    right &= found.lines.iter().zip(&sums).all(|(line, sum)| line.amounts[found.by] == *sum);
    if right {
        Ok(())
    } else {
        Err(Stop::say("the ranking is not that of the records that were kept: a bug of netgrain's"))
    }
}
