//! Measures the whole recorder, from simulated frames to published files, in the same run as the write rate of the
//! volume without capture: our direct writer, and `fio` if installed.
//!
//! The simulation makes frames as fast as possible, so that the volume always has writes in its queue; packets that the
//! ring cannot hold are lost and counted. A last run at 90 % of the reached rate must lose no packet.

use crate::cpu_placement::CpuPlacement;
use crate::output::{MedianRange, Output, Stop};
use crate::volume::{self, ScratchDir, WriteMode, gbps};
use base::units::{parse_bytes, show_bytes, show_count};
use capture::sim;
use clap::Args;
use engine::{Capture, Format, Plan, SourcePlan, StorePlan};
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Duration of the measurement of the engine without a store.
const ENGINE_ALONE: Duration = Duration::from_millis(300);

/// Flags of `netgrain-bench record`.
#[derive(Args, Clone, Debug)]
pub struct RecordArgs {
    /// Directory on the volume to record to; the files written there are removed
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Traffic to record, by size or name
    #[arg(long, value_name = "SPEC", default_value = "1000")]
    pub traffic: String,
    /// Duration of each run
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0, value_parser = crate::arguments::seconds)]
    pub seconds: f64,
    /// Number of runs of each writer, in turn; the output shows medians
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = base::units::whole::<u32>(1..=1000))]
    pub repeat: u32,
    /// Memory of the ring
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "512MiB")]
    pub ring: u64,
    /// Size of each file
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "1GiB")]
    pub segment: u64,
    /// Writes in flight
    #[arg(
        long,
        value_name = "N",
        default_value_t = engine::WRITE_DEPTH,
        value_parser = base::units::whole::<u32>(1..=256)
    )]
    pub depth: u32,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
}

/// The result of one recording.
#[derive(Clone, Debug, Serialize)]
struct Recorded {
    /// Gb/s of packet files; the time ends when the last file is published.
    gbps: f64,
    mpps: f64,
    seconds: f64,
    files: usize,
    bytes: u64,
    offered: u64,
    stored: u64,
    lost: u64,
    /// The number of lost packets with loss cause `ring_full`.
    ring_full: u64,
    /// Processor seconds per second of real time, of the threads that write, index, and capture.
    writer_cores: f64,
    index_cores: f64,
    engine_cores: f64,
}

/// The conclusion of the measurement.
#[derive(Debug, Serialize)]
struct Summary {
    traffic: String,
    repeat: u32,
    seconds: f64,
    /// Our direct writer, Gb/s.
    direct: MedianRange,
    /// `fio`, Gb/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    fio: Option<MedianRange>,
    /// The recorder, Gb/s.
    record: MedianRange,
    /// Rate of each recording divided by the rate of the direct writer just before it.
    of_direct: MedianRange,
    #[serde(skip_serializing_if = "Option::is_none")]
    of_fio: Option<MedianRange>,
    /// Rate of the engine alone, in Gb/s of pcap records.
    engine_gbps: f64,
    bottleneck: &'static str,
}

/// Measures and prints the results.
pub fn run(args: &RecordArgs, out: &mut dyn Write) -> Result<(), Stop> {
    let spec: sim::Spec = args.traffic.parse().map_err(Stop::error)?;
    let work = ScratchDir::below(&args.dir)?;
    let span = Duration::from_secs_f64(args.seconds);
    let mut sheet = Output::begin(out, args.json, "record")?;
    sheet.head(format_args!(
        "sim:{spec} -> ring of {} -> files of {} in {}; {} runs of {} s in turn; Gb/s",
        show_bytes(args.ring),
        show_bytes(args.segment),
        args.dir.display(),
        args.repeat,
        args.seconds
    ))?;
    sheet
        .head("run    direct    fio   record    Mpps      stored        lost   cores: writer  index  engine   files")?;
    let mode = WriteMode { block: ring::BLOCK, depth: args.depth, file: args.segment };
    let (mut direct, mut fio, mut runs) = (Vec::new(), Vec::new(), Vec::new());
    for number in 1..=args.repeat {
        let written = volume::write(work.path(), mode, span, 1)?;
        direct.push(written.rate());
        fio.extend(volume::fio(work.path(), mode, &written)?);
        let recorded = record(args, &spec, work.path(), span)?;
        let line = recorded.line(&number.to_string(), direct.last().copied(), fio.last().copied());
        sheet.row("recording", &recorded, line)?;
        runs.push(recorded);
    }
    if fio.is_empty() {
        sheet.note("fio is not installed: the comparison is with the direct writer of netgrain only")?;
    }
    let summary = summarise(args, &spec, &direct, &fio, &runs)?;
    let paced = paced(args, &spec, work.path(), summary.record.min)?;
    let line = paced.line("90 %", None, None);
    sheet.row("paced", &paced, line)?;
    let line = summary.line();
    sheet.row("summary", &summary, line)?;
    let cores = MedianRange::of(runs.iter().map(|r| r.writer_cores));
    sheet.verdict(format_args!(
        "the recorder reaches {:.1} % of the rate of direct writes, its writer uses {:.3} core; bottleneck: {}; at 90 \
         % of that rate {} packets are lost",
        100.0 * summary.of_direct.median,
        cores.median,
        summary.bottleneck,
        show_count(paced.lost)
    ))
}

impl Recorded {
    fn line(&self, run: &str, direct: Option<f64>, fio: Option<f64>) -> String {
        let baseline = |gbps: Option<f64>| gbps.map_or("-".to_owned(), |g| format!("{g:.2}"));
        format!(
            "{run:<5} {:>7} {:>6} {:>8.2} {:>7.2} {:>11} {:>11}  {:>14.3} {:>6.2} {:>7.2} {:>7}",
            baseline(direct),
            baseline(fio),
            self.gbps,
            self.mpps,
            show_count(self.stored),
            show_count(self.lost),
            self.writer_cores,
            self.index_cores,
            self.engine_cores,
            self.files
        )
    }
}

impl Summary {
    fn line(&self) -> String {
        let mut line = format!("record / direct {:.3}", self.of_direct);
        if let Some(of_fio) = self.of_fio {
            line += &format!("; record / fio {of_fio:.3}");
        }
        line + &format!(
            "; the engine alone reaches {:.2} Gb/s, direct writes {:.2} Gb/s",
            self.engine_gbps, self.direct.median
        )
    }
}

fn summarise(
    args: &RecordArgs,
    spec: &sim::Spec,
    direct: &[f64],
    fio: &[f64],
    runs: &[Recorded],
) -> Result<Summary, Stop> {
    let engine_gbps = engine_alone(args, spec)?;
    let of = |baseline: &[f64]| MedianRange::of(runs.iter().zip(baseline).map(|(r, baseline)| r.gbps / baseline));
    let direct_spread = MedianRange::of(direct.iter().copied());
    Ok(Summary {
        traffic: args.traffic.clone(),
        repeat: args.repeat,
        seconds: args.seconds,
        direct: direct_spread,
        fio: (!fio.is_empty()).then(|| MedianRange::of(fio.iter().copied())),
        record: MedianRange::of(runs.iter().map(|r| r.gbps)),
        of_direct: of(direct),
        of_fio: (!fio.is_empty()).then(|| of(fio)),
        engine_gbps,
        bottleneck: if engine_gbps < direct_spread.median { "the engine" } else { "the volume" },
    })
}

/// Gb/s of pcap records that the engine writes into the ring without a recorder.
fn engine_alone(args: &RecordArgs, spec: &sim::Spec) -> Result<f64, Stop> {
    let mut plan = plan(args, spec.clone(), ENGINE_ALONE);
    plan.store = None;
    let mut capture = Capture::start(&plan).map_err(Stop::error)?;
    capture.wait().map_err(Stop::error)?;
    let counts = capture.report().counts;
    let bytes = counts.stored_bytes + counts.stored * ring::RECORD_HEADER as u64;
    Ok(gbps(bytes, ENGINE_ALONE.as_secs_f64()))
}

/// Records at 90 % of the lowest rate that the recordings reached.
fn paced(args: &RecordArgs, spec: &sim::Spec, directory: &Path, reached: f64) -> Result<Recorded, Stop> {
    let mean = r#gen::Traffic::new(spec).mean_len();
    let packets = 0.9 * reached * 1e9 / 8.0 / (mean + ring::RECORD_HEADER as f64);
    let spec = sim::Spec { rate: base::units::Rate::Packets(packets.max(1.0)), ..spec.clone() };
    record(args, &spec, directory, Duration::from_secs_f64(args.seconds))
}

fn plan(args: &RecordArgs, spec: sim::Spec, span: Duration) -> Plan {
    let mut plan = Plan::new(SourcePlan::Sim { spec, start: None, name: None });
    plan.ring = Some(args.ring);
    plan.segment = args.segment;
    plan.cpus = vec![CpuPlacement::find().engine()];
    plan.duration = Some(span);
    plan
}

/// Records into a new store, determines its size from the file system, and removes it.
fn record(args: &RecordArgs, spec: &sim::Spec, directory: &Path, span: Duration) -> Result<Recorded, Stop> {
    let dir = directory.join("store");
    let mut plan = plan(args, spec.clone(), span);
    plan.store = Some(StorePlan { dir: dir.clone(), format: Format::Pcap, depth: args.depth });
    let mut capture = Capture::start(&plan).map_err(Stop::error)?;
    let started = Instant::now();
    capture.wait().map_err(Stop::error)?;
    let seconds = started.elapsed().as_secs_f64();
    let report = capture.report();
    let counts = &report.counts;
    let (files, bytes) = packet_files(&dir).map_err(|e| Stop::error(format_args!("{}: {e}", dir.display())))?;
    std::fs::remove_dir_all(&dir).map_err(|e| Stop::error(format_args!("{}: {e}", dir.display())))?;
    let header = (files * ring::FILE_HEADER) as u64;
    let expected = header + counts.stored_bytes + counts.stored * ring::RECORD_HEADER as u64;
    if counts.residue != 0 || bytes != expected {
        return Err(Stop::error(format_args!(
            "the residue of the ledger is {} packets, and the files have {bytes} bytes where the ledger has \
             {expected}; please report this",
            counts.residue
        )));
    }
    let recorder = report.queues.first().and_then(|q| q.recorder.clone()).unwrap_or_default();
    Ok(Recorded {
        gbps: gbps(bytes, seconds),
        mpps: counts.stored as f64 / seconds / 1e6,
        seconds,
        files,
        bytes,
        offered: counts.offered,
        stored: counts.stored,
        lost: counts.lost_total,
        ring_full: counts.lost.get(base::Cause::RingFull.name()).copied().unwrap_or(0),
        writer_cores: recorder.writer_cpu_seconds / seconds,
        index_cores: recorder.index_cpu_seconds / seconds,
        engine_cores: report.queues.iter().map(|q| q.engine_cpu_seconds).sum::<f64>() / seconds,
    })
}

/// Number of packet files below a directory, and their bytes, as the file system shows them.
pub fn packet_files(directory: &Path) -> std::io::Result<(usize, u64)> {
    let (mut files, mut bytes) = (0, 0);
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            let (f, b) = packet_files(&path)?;
            (files, bytes) = (files + f, bytes + b);
        } else if path.extension().is_some_and(|e| e == "pcap") {
            (files, bytes) = (files + 1, bytes + entry.metadata()?.len());
        }
    }
    Ok((files, bytes))
}
