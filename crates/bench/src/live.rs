//! Measures the whole recorder on a live interface: a generator process sends at full rate over a veth pair in a
//! network namespace made for this measurement. First runs the engine (AF_XDP, TPACKET; packets alone, and with flow
//! records and time series), then each other installed capture program alone with the same load.
//!
//! The benchmark checks every result independently: the generator adds sequence numbers and checksums to the frames,
//! and a checker that shares no code with the recorder reads the files of netgrain. The files of another capture
//! program are not read by the checker: the number of sent frames that are missing in its file counts as lost.

use crate::baseline::{self, Baseline};
use crate::cpu_placement::CpuPlacement;
use crate::generator::{self, Sent};
use crate::output::{MedianRange, Output, Stop};
use crate::process::Helper;
use crate::query::{self, FILE_HEADER};
use crate::volume::ScratchDir;
use base::units::{parse_bytes, show_count};
use capture::auto::SourceKind;
use clap::{Args, ValueEnum};
use engine::{Capture, Format, InterfacePlan, Plan, SocketPlan, SourcePlan, StorePlan};
use meter::{MeterPlan, StoreSink};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use sys::netns::Namespace;

/// The two ends of the veth pair.
const FROM: &str = "ng-bench0";
const TO: &str = "ng-bench1";

/// Time within which frames in transit arrive after the generator has ended.
const TRANSIT_TIME: Duration = Duration::from_millis(500);

/// Time that the generator may run beyond the requested duration.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Flags of `netgrain-bench live`.
#[derive(Args, Clone, Debug)]
pub struct LiveArgs {
    /// Directory to record into; the files written there are removed
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Traffic to send: frame sizes in bytes, or names of traffic (imix, backbone)
    #[arg(long, value_name = "LIST", default_value = "60,1000", value_delimiter = ',')]
    pub sizes: Vec<String>,
    /// Rate: flat (as fast as possible), 500kpps, 5Gbit
    #[arg(long, value_name = "RATE", default_value = "flat")]
    pub rate: String,
    /// Number of flows; by default the number that the generator uses for this traffic
    #[arg(long, value_name = "N")]
    pub flows: Option<String>,
    /// Duration of sending in each run
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = crate::arguments::seconds)]
    pub seconds: f64,
    /// Number of runs for each recorder, in turn; the output shows medians
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = base::units::whole::<u32>(1..=1000))]
    pub repeat: u32,
    /// Memory of the ring
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "512MiB")]
    pub ring: u64,
    /// Run this query in a separate process each second during the recording: 'host 10.0.0.1'
    #[arg(long, value_name = "EXPRESSION")]
    pub query: Option<String>,
    /// Data types to store; the benchmark runs each value separately
    #[arg(long, value_name = "LIST", default_value = "packets", value_delimiter = ',')]
    pub data_types: Vec<DataTypes>,
    /// Capture sources to measure
    #[arg(long, value_name = "LIST", default_value = "af_xdp,tpacket", value_delimiter = ',')]
    pub sources: Vec<SourceName>,
    /// Omit tcpdump, dumpcap and netsniff-ng
    #[arg(long)]
    pub no_baselines: bool,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
}

/// The stored data types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DataTypes {
    /// Packets only
    Packets,
    /// Packets and time series
    Series,
    /// Packets and flow records
    Flows,
    /// Packets, flow records and time series
    All,
}

impl DataTypes {
    const fn name(self) -> &'static str {
        match self {
            Self::Packets => "",
            Self::Series => " + series",
            Self::Flows => " + flows",
            Self::All => " + flows + series",
        }
    }

    /// Returns the meter plan that makes the flow records and series rows of this selection; `None` for packets alone.
    fn plan(self) -> Option<MeterPlan> {
        let whole = MeterPlan::new(0);
        match self {
            Self::Packets => None,
            Self::Series => Some(MeterPlan { flows: None, ..whole }),
            Self::Flows => Some(MeterPlan { series: false, ..whole }),
            Self::All => Some(whole),
        }
    }
}

/// A capture source, by its name on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SourceName {
    /// AF_XDP, through an XDP program
    #[value(name = "af_xdp")]
    AfXdp,
    /// TPACKET_V3, parallel to the network stack of the kernel
    Tpacket,
}

impl SourceName {
    const fn kind(self) -> SourceKind {
        match self {
            Self::AfXdp => SourceKind::AfXdp,
            Self::Tpacket => SourceKind::Tpacket,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::AfXdp => "netgrain af_xdp",
            Self::Tpacket => "netgrain tpacket",
        }
    }
}

/// The result of one recorder with one load, over all runs.
#[derive(Debug, Default, Serialize)]
struct Row {
    recorder: String,
    traffic: String,
    seconds: f64,
    repeat: u32,
    /// Millions of frames per second that the generator sent.
    sent_mpps: Option<MedianRange>,
    /// Gigabits of frames per second.
    sent_gbps: Option<MedianRange>,
    /// Share of the sent frames that the recorder's files contain.
    stored_share: Option<MedianRange>,
    /// Processor seconds of all the recorder's threads, per second of sending.
    cores: Option<MedianRange>,
    /// Sums over all runs.
    sent: u64,
    offered: Option<u64>,
    stored: u64,
    missing: u64,
    /// Lost packets by loss cause of the ledger.
    lost: BTreeMap<&'static str, u64>,
    /// `unmetered` is the number of stored packets that the meter did not process; `records` and `rows` are the numbers
    /// of flow records and of series rows.
    unmetered: u64,
    records: u64,
    rows: u64,
    /// Processor seconds by thread, per second of sending (medians).
    threads: BTreeMap<&'static str, f64>,
    /// The last line that the checker of the stored frames printed for the last run.
    verdict: Option<String>,
    /// Duration of each query in milliseconds, and the number of queries that found packets.
    query_ms: Option<MedianRange>,
    answered: u64,
}

/// One run.
pub struct Run {
    sent: Sent,
    bytes_per_frame: f64,
    offered: Option<u64>,
    stored: u64,
    lost: BTreeMap<&'static str, u64>,
    unmetered: u64,
    records: u64,
    rows: u64,
    threads: BTreeMap<&'static str, f64>,
    verdict: Option<String>,
    /// For each query, its duration in milliseconds and the number of bytes of its result.
    queries: Vec<(f64, u64)>,
}

/// Measures and prints the results.
pub fn run(args: &LiveArgs, out: &mut dyn Write) -> Result<(), Stop> {
    let mut args = args.clone();
    if let Some(flows) = &args.flows {
        args.sizes.iter_mut().for_each(|size| *size += &format!(",flows={flows}"));
    }
    let args = &args;
    let specs =
        args.sizes.iter().map(|s| s.parse::<r#gen::Spec>().map_err(Stop::error)).collect::<Result<Vec<_>, _>>()?;
    base::units::parse_rate(&args.rate).map_err(Stop::error)?;
    let work = ScratchDir::below(&args.dir)?;
    let mut sheet = Output::begin(out, args.json, "live")?;
    let baselines = if args.no_baselines { Vec::new() } else { Baseline::installed(&mut sheet)? };
    let home = NamespaceGuard(Namespace::current().map_err(Stop::error)?);
    let outcome = measure(args, &specs, &baselines, work.path(), &mut sheet);
    drop(home);
    outcome
}

/// Returns the thread to its original network namespace when dropped; the private namespace is then removed with its
/// interfaces.
pub struct NamespaceGuard(pub Namespace);

impl Drop for NamespaceGuard {
    fn drop(&mut self) {
        if let Err(e) = self.0.enter() {
            // If the thread continued, it would measure or send in the wrong namespace.
            panic!("the thread cannot return to its network namespace: {e}");
        }
    }
}

fn measure(
    args: &LiveArgs,
    specs: &[r#gen::Spec],
    baselines: &[Baseline],
    directory: &Path,
    sheet: &mut Output<'_>,
) -> Result<(), Stop> {
    engine::private_pair(FROM, TO, 1500).map_err(|e| {
        Stop::error(format_args!("cannot create a network namespace for the measurement: {e}; run as root"))
    })?;
    let namespace = Namespace::current().map_err(Stop::error)?;
    let places = CpuPlacement::find();
    sheet.head(format_args!(
        "gen (processor {}) -> veth -> recorder (processor {}) -> files in {}; {} runs of {} s in turn, medians",
        places.other(0),
        places.engine(),
        args.dir.display(),
        args.repeat,
        args.seconds
    ))?;
    sheet.head("recorder      traffic    sent Mpps   Gb/s    stored %  (min..max)        cores   missing of sent")?;
    for (name, spec) in args.sizes.iter().zip(specs) {
        let bytes = r#gen::Traffic::new(spec).mean_len();
        let combinations =
            args.sources.iter().flat_map(|by| args.data_types.iter().map(|data_types| (*by, *data_types)));
        let mut engines: Vec<((SourceName, DataTypes), Vec<Run>)> = combinations.map(|c| (c, Vec::new())).collect();
        let mut others: Vec<Vec<Run>> = baselines.iter().map(|_| Vec::new()).collect();
        for _ in 0..args.repeat {
            for ((by, data_types), runs) in &mut engines {
                runs.push(engine(args, name, by.kind(), *data_types, bytes, &places, directory)?);
            }
            for (baseline, runs) in baselines.iter().zip(&mut others) {
                runs.push(run_baseline(args, name, baseline, bytes, &places, directory, &namespace)?);
            }
        }
        let engines =
            engines.into_iter().map(|((by, data_types), runs)| (format!("{}{}", by.name(), data_types.name()), runs));
        for (recorder, runs) in engines.chain(baselines.iter().map(|r| r.name().to_owned()).zip(others)) {
            let row = Row::of(args, recorder, name, &runs);
            let line = row.line();
            sheet.row("live", &row, line)?;
        }
    }
    Ok(())
}

impl Row {
    fn of(args: &LiveArgs, recorder: String, traffic: &str, runs: &[Run]) -> Self {
        let seconds = |r: &Run| r.sent.nanos.max(1) as f64 / 1e9;
        let median_range = |value: &dyn Fn(&Run) -> f64| Some(MedianRange::of(runs.iter().map(value)));
        let mut row = Self {
            recorder,
            traffic: traffic.to_owned(),
            seconds: args.seconds,
            repeat: args.repeat,
            sent_mpps: median_range(&|r| r.sent.sent as f64 / seconds(r) / 1e6),
            sent_gbps: median_range(&|r| r.sent.sent as f64 * r.bytes_per_frame * 8.0 / seconds(r) / 1e9),
            stored_share: median_range(&|r| r.stored as f64 / r.sent.sent.max(1) as f64),
            cores: median_range(&|r| r.threads.values().sum::<f64>() / seconds(r)),
            verdict: runs.last().and_then(|r| r.verdict.clone()),
            ..Self::default()
        };
        let queries = || runs.iter().flat_map(|r| &r.queries);
        row.query_ms = queries().next().map(|_| MedianRange::of(queries().map(|(ms, _)| *ms)));
        row.answered = queries().filter(|(_, bytes)| *bytes > FILE_HEADER).count() as u64;
        for r in runs {
            row.sent += r.sent.sent;
            row.stored += r.stored;
            row.missing += r.sent.sent.saturating_sub(r.stored);
            row.offered = r.offered.map(|n| n + row.offered.unwrap_or(0));
            (row.unmetered, row.records, row.rows) =
                (row.unmetered + r.unmetered, row.records + r.records, row.rows + r.rows);
            for (cause, n) in &r.lost {
                *row.lost.entry(cause).or_default() += n;
            }
            for thread in r.threads.keys() {
                let share = |r: &Run| r.threads.get(thread).copied().unwrap_or(0.0) / seconds(r);
                row.threads.insert(thread, MedianRange::of(runs.iter().map(share)).median);
            }
        }
        row
    }

    fn line(&self) -> String {
        let median = |s: &Option<MedianRange>| s.map_or(0.0, |s| s.median);
        let share = self.stored_share.map_or_else(String::new, |s| {
            format!("{:.2} ({:.2}..{:.2})", 100.0 * s.median, 100.0 * s.min, 100.0 * s.max)
        });
        let mut line = format!(
            "{:<16} {:<9} {:>7.3} {:>6.2}    {share:<24} {:>6.2}   {} of {}",
            self.recorder,
            self.traffic,
            median(&self.sent_mpps),
            median(&self.sent_gbps),
            median(&self.cores),
            show_count(self.missing),
            show_count(self.sent)
        );
        for (cause, n) in &self.lost {
            line += &format!("; {cause} {}", show_count(*n));
        }
        if self.records + self.rows > 0 {
            line += &format!(
                "\n                 {} flow records, {} rows; {} unmetered packets",
                show_count(self.records),
                self.rows,
                show_count(self.unmetered)
            );
        }
        if self.threads.len() > 1 {
            let threads: Vec<String> = self.threads.iter().map(|(name, share)| format!("{name} {share:.2}")).collect();
            line += &format!("\n                 cores: {}", threads.join(", "));
        }
        if let Some(queries) = self.query_ms {
            let found = self.answered;
            line += &format!("\n                 each query took {queries:.1} ms; {found} queries found packets");
        }
        if let Some(verdict) = &self.verdict {
            line += &format!("\n                 checker, last run: {verdict}");
        }
        line
    }
}

/// Starts the generator in the namespace of this thread.
fn start_generator(args: &LiveArgs, traffic: &str, places: &CpuPlacement) -> Result<Helper, Stop> {
    let duration = Duration::from_millis((args.seconds * 1e3).ceil() as u64);
    generator::start(FROM, traffic, &args.rate, duration, Some(places.other(0)))
}

/// Waits for the end of the generator and for frames in transit.
fn sent(generator: Helper, args: &LiveArgs) -> Result<Sent, Stop> {
    let text = generator.finish(Duration::from_secs_f64(args.seconds) + TIMEOUT)?;
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last).map_err(|e| Stop::error(format_args!("the generator printed {last:?}: {e}")))
}

fn engine(
    args: &LiveArgs,
    traffic: &str,
    kind: SourceKind,
    data_types: DataTypes,
    bytes_per_frame: f64,
    places: &CpuPlacement,
    directory: &Path,
) -> Result<Run, Stop> {
    let dir = directory.join("store");
    let mut plan = Plan::new(SourcePlan::Interface(InterfacePlan::new(TO, kind)));
    plan.ring = Some(args.ring);
    plan.cpus = vec![places.engine()];
    plan.store = Some(StorePlan { dir: dir.clone(), format: Format::Pcap, depth: engine::WRITE_DEPTH });
    // The queries also read packets from the ring, as during `netgrain record`.
    plan.socket = args.query.is_some().then(|| SocketPlan {
        path: directory.join("socket"),
        mode: 0o600,
        uid: None,
        gid: None,
        allow_lossless: false,
        forward: Vec::new(),
    });
    plan.meter = data_types.plan();
    let egresses = |label: &str| Ok(vec![Box::new(StoreSink::new(&dir, label, false)?) as Box<dyn meter::Sink>]);
    let mut capture = Capture::claimed(&plan, &Some(dir.clone()), egresses).map_err(Stop::error)?;
    let ended = AtomicBool::new(false);
    let (sent, queries) = std::thread::scope(|scope| {
        let querying = args.query.as_ref().map(|filter| scope.spawn(|| query_each_second(&dir, filter, &ended)));
        let sent = start_generator(args, traffic, places).and_then(|generator| sent(generator, args));
        ended.store(true, Relaxed);
        let queries = querying.map(|a| a.join().unwrap_or_else(|_| Err(Stop::error("the querying thread panicked"))));
        Ok::<_, Stop>((sent?, queries.transpose()?.unwrap_or_default()))
    })?;
    let until = Instant::now() + TRANSIT_TIME;
    while Instant::now() < until && capture.report().counts.offered < sent.sent {
        std::thread::sleep(Duration::from_millis(10));
    }
    capture.stop();
    capture.wait().map_err(Stop::error)?;
    let report = capture.report();
    let options = checker::Options { sent: (sent.dropped == 0).then_some(sent.sent), ..Default::default() };
    let checked = checker::check(std::slice::from_ref(&dir), options).map_err(Stop::error)?;
    std::fs::remove_dir_all(&dir).map_err(|e| Stop::error(format_args!("{}: {e}", dir.display())))?;
    let counts = &report.counts;
    if !report.faults.is_empty() {
        let faults = report.faults.join("; ");
        return Err(Stop::error(format_args!(
            "after {} packets: {faults}; check the free space in --dir",
            counts.stored
        )));
    }
    if counts.residue != 0 || checked.records != counts.stored {
        return Err(Stop::error(format_args!(
            "the residue of the ledger is {} packets, and the files have {} packets where the ledger has {}; please \
             report this",
            counts.residue, checked.records, counts.stored
        )));
    }
    let meter = report.meter.unwrap_or_default();
    if let Some(sink) = meter.sinks.iter().find(|o| o.lost > 0) {
        return Err(Stop::error(format_args!("{}: {} records and rows were not stored", sink.name, sink.lost)));
    }
    let recorders = || report.queues.iter().filter_map(|q| q.recorder.as_ref());
    Ok(Run {
        sent,
        bytes_per_frame,
        offered: Some(counts.offered),
        stored: checked.frames,
        lost: counts.lost.clone(),
        unmetered: meter.unmetered,
        records: meter.records.values().sum(),
        rows: meter.rows,
        threads: BTreeMap::from([
            ("meter", meter.cpu_millis as f64 / 1e3),
            ("engine", report.queues.iter().map(|q| q.engine_cpu_seconds).sum()),
            ("index", recorders().map(|r| r.index_cpu_seconds).sum()),
            ("writer", recorders().map(|r| r.writer_cpu_seconds).sum()),
        ]),
        verdict: checked.to_string().lines().last().map(str::to_owned),
        queries,
    })
}

/// Queries the packets of the last two seconds, once a second, while the interface is under load.
fn query_each_second(store: &Path, filter: &str, ended: &AtomicBool) -> Result<Vec<(f64, u64)>, Stop> {
    let mut queries = Vec::new();
    let mut due = Instant::now() + Duration::from_secs(1);
    while !ended.load(Relaxed) {
        if Instant::now() >= due {
            let (duration, bytes) = query::query_any(store, filter, &["--from", "-2s"])?;
            queries.push((query::millis(duration), bytes));
            due += Duration::from_secs(1);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(queries)
}

fn run_baseline(
    args: &LiveArgs,
    traffic: &str,
    baseline: &Baseline,
    bytes_per_frame: f64,
    places: &CpuPlacement,
    directory: &Path,
    namespace: &Namespace,
) -> Result<Run, Stop> {
    let file = directory.join("baseline.pcap");
    let running = baseline.start(TO, &file, namespace, places.engine())?;
    let sent = sent(start_generator(args, traffic, places)?, args)?;
    std::thread::sleep(TRANSIT_TIME);
    let cpu = running.end()?;
    let stored = baseline::packets(&file)?;
    std::fs::remove_file(&file).map_err(|e| Stop::error(format_args!("{}: {e}", file.display())))?;
    Ok(Run {
        sent,
        bytes_per_frame,
        offered: None,
        stored,
        lost: BTreeMap::new(),
        unmetered: 0,
        records: 0,
        rows: 0,
        threads: BTreeMap::from([("all", cpu)]),
        verdict: None,
        queries: Vec::new(),
    })
}
