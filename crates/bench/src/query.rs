//! Measures queries of stored packets, each in a separate process, and in the same run the alternatives: `tcpdump -r`
//! over the same files, and the sequential read rate of the volume. The benchmark drops the page cache before each
//! query, so that each result is read from the disk, and reports results that differ.

use crate::cpu_placement::CpuPlacement;
use crate::output::{MedianRange, Output, Stop};
use crate::process::{find, netgrain};
use crate::record::packet_files;
use crate::volume::ScratchDir;
use base::Timestamp;
use base::units::{parse_bytes, show_bytes, show_count};
use capture::sim;
use clap::Args;
use engine::{Capture, Format, Plan, SourcePlan, StorePlan};
use serde::Serialize;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Number of bytes that one read requests from a pipe.
const READ: usize = 1 << 20;

/// Bytes of a pcap file header.
pub const FILE_HEADER: u64 = 24;

/// Flags of `netgrain-bench query`.
#[derive(Args, Clone, Debug)]
pub struct QueryArgs {
    /// Directory on the volume for the store, which is removed at the end
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Query this store instead of a generated store
    #[arg(long, value_name = "DIR", conflicts_with = "size")]
    pub store: Option<PathBuf>,
    /// Size of the store
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "10GiB")]
    pub size: u64,
    /// Traffic of the store
    #[arg(long, value_name = "SPEC", default_value = "backbone")]
    pub traffic: String,
    /// Size of each file
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "1GiB")]
    pub segment: u64,
    /// Number of hosts, distributed over the store; each program queries each host once
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = base::units::whole::<u32>(1..=1000))]
    pub hosts: u32,
    /// Numbers of files for which the time to the first packet is measured; an empty list omits this measurement
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "10,100,1000,10000",
          value_parser = base::units::whole::<u32>(0..=1_000_000))]
    pub files: Vec<u32>,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
}

/// The result of one query, by netgrain and by tcpdump.
#[derive(Clone, Debug, Serialize)]
struct QueryRow {
    question: String,
    /// Size of the result as a pcap file, in bytes.
    bytes: u64,
    /// Duration of the query process if the query ends after its first packet.
    first_ms: f64,
    /// Duration of the complete query.
    ms: f64,
    tcpdump_ms: Option<f64>,
    /// tcpdump's time divided by ours.
    faster: Option<f64>,
}

/// Duration of a process that only prints its version.
#[derive(Clone, Copy, Debug, Serialize)]
struct Start {
    ms: MedianRange,
    tcpdump_ms: Option<MedianRange>,
}

/// Rate at which a query of the whole store returns packets, read rate of the volume, and their ratio.
#[derive(Clone, Debug, Serialize)]
struct FullScan {
    gbps: f64,
    volume_gbps: f64,
    share: f64,
}

/// Duration of queries for one packet in a store with this number of files.
#[derive(Clone, Debug, Serialize)]
struct Depth {
    files: usize,
    bytes: u64,
    /// Duration of a query for any packet, for a packet of the last second, and for a host that occurs only in the last
    /// file.
    any_ms: MedianRange,
    last_second_ms: MedianRange,
    needle_ms: MedianRange,
}

/// Measures and prints the results.
pub fn run(args: &QueryArgs, out: &mut dyn Write) -> Result<(), Stop> {
    let work = ScratchDir::below(&args.dir)?;
    let mut sheet = Output::begin(out, args.json, "query")?;
    let made = work.path().join("store");
    let store = match &args.store {
        Some(store) => store.clone(),
        None => {
            make(args, &made)?;
            made.clone()
        }
    };
    let files = packet_paths(&store)?;
    let bytes = packet_files(&store).map_err(|e| Stop::error(format_args!("{}: {e}", store.display())))?.1;
    let index = index_bytes(&store)?;
    sheet.head(format_args!(
        "{} in {} files ({}); index {:.3} % of the packet bytes; cold cache; duration of the whole process",
        show_bytes(bytes),
        files.len(),
        args.store.as_ref().map_or(&args.traffic[..], |_| "existing store"),
        100.0 * index as f64 / bytes.max(1) as f64
    ))?;
    hosts(args, &store, &files, work.path(), &mut sheet)?;
    full_scan(&store, &files, bytes, &mut sheet)?;
    if args.store.is_none() {
        std::fs::remove_dir_all(&made).map_err(|e| Stop::error(format_args!("{}: {e}", made.display())))?;
    }
    depths(args, &made, &mut sheet)
}

/// Records a store of the requested size from simulated traffic, faster than real time.
fn make(args: &QueryArgs, dir: &Path) -> Result<(), Stop> {
    let mut spec: sim::Spec = args.traffic.parse().map_err(Stop::error)?;
    let record = r#gen::Traffic::new(&spec).mean_len() + ring::RECORD_HEADER as f64;
    spec.packets = Some((args.size as f64 / record) as u64);
    if matches!(spec.rate, base::units::Rate::Flat) {
        // The packet rate is below the rate at which the most varied traffic can be indexed, so that no packet is lost.
        spec.rate = base::units::Rate::Packets(1e6);
    }
    let mut plan = Plan::new(SourcePlan::Sim { spec, start: None, name: None });
    plan.segment = args.segment;
    plan.cpus = vec![CpuPlacement::find().engine()];
    record_all(plan, dir)
}

fn record_all(mut plan: Plan, dir: &Path) -> Result<(), Stop> {
    plan.store = Some(StorePlan { dir: dir.to_owned(), format: Format::Pcap, depth: engine::WRITE_DEPTH });
    let mut capture = Capture::start(&plan).map_err(Stop::error)?;
    capture.wait().map_err(Stop::error)
}

/// Queries one host after the other, with netgrain and tcpdump.
fn hosts(args: &QueryArgs, store: &Path, files: &[PathBuf], work: &Path, sheet: &mut Output<'_>) -> Result<(), Stop> {
    let list = work.join("files");
    let names: String = files.iter().map(|f| format!("{}\n", f.display())).collect();
    std::fs::write(&list, names).map_err(|e| Stop::error(format_args!("{}: {e}", list.display())))?;
    let tcpdump = find("tcpdump");
    if tcpdump.is_none() {
        sheet.note("tcpdump is not installed: its column is omitted")?;
    }
    start_time(tcpdump.as_deref(), sheet)?;
    sheet
        .head("query, times in ms                  packet bytes  1st packet   complete      tcpdump   times faster")?;
    let mut rows = Vec::new();
    for number in 0..args.hosts {
        let at = (f64::from(number) + 0.5) / f64::from(args.hosts);
        let question = format!("host {}", host_at(files, at)?);
        cold()?;
        let (first, one) = query(store, &question, &["--limit", "1"])?;
        cold()?;
        let (whole, bytes) = query(store, &question, &[])?;
        let baseline = match &tcpdump {
            Some(program) => {
                cold()?;
                let mut command = Command::new(program);
                // tcpdump must read as root, since root owns the files.
                command.args(["-n", "-Z", "root", "-V"]).arg(&list).args(["-w", "-", &question]);
                let (duration, theirs) = timed(command)?;
                if theirs != bytes {
                    return Err(Stop::error(format_args!(
                        "{question}: the result of netgrain has {bytes} bytes, that of tcpdump {theirs}; please \
                         report this"
                    )));
                }
                Some(duration)
            }
            None => None,
        };
        if one <= FILE_HEADER {
            return Err(Stop::error(format_args!(
                "{question}: no packet was found, but the files contain packets of the host; please report this"
            )));
        }
        let row = QueryRow {
            question,
            bytes,
            first_ms: millis(first),
            ms: millis(whole),
            tcpdump_ms: baseline.map(millis),
            faster: baseline.map(|t| t.as_secs_f64() / whole.as_secs_f64()),
        };
        let number = |n: Option<f64>| n.map_or("-".to_owned(), |n| format!("{n:.1}"));
        let line = format!(
            "{:<34} {:>13} {:>11.1} {:>10.1} {:>12} {:>14}",
            row.question,
            show_count(row.bytes),
            row.first_ms,
            row.ms,
            number(row.tcpdump_ms),
            number(row.faster)
        );
        sheet.row("host", &row, line)?;
        rows.push(row);
    }
    let first = MedianRange::of(rows.iter().map(|r| r.first_ms));
    match rows.iter().map(|r| r.faster).collect::<Option<Vec<f64>>>() {
        Some(faster) => sheet.head(format_args!(
            "queries for one host: {:.1} times as fast as tcpdump -r; time to the first packet: {:.1} ms",
            MedianRange::of(faster),
            first
        )),
        None => sheet.head(format_args!("queries for one host: time to the first packet: {first:.1} ms")),
    }
}

/// Duration of a process that only prints its version, which is part of the duration of each query: the pages of the
/// program are read from the disk too.
fn start_time(tcpdump: Option<&Path>, sheet: &mut Output<'_>) -> Result<(), Stop> {
    let take = |program: &Path| -> Result<MedianRange, Stop> {
        let mut all = Vec::new();
        for _ in 0..5 {
            cold()?;
            let mut command = Command::new(program);
            command.arg("--version");
            all.push(millis(timed(command)?.0));
        }
        Ok(MedianRange::of(all))
    };
    let (ours, theirs) = (take(&netgrain()?)?, tcpdump.map(take).transpose()?);
    let row = Start { ms: ours, tcpdump_ms: theirs };
    let line = match theirs {
        Some(theirs) => format!("time to start and end a process: netgrain {ours:.1} ms, tcpdump {theirs:.1} ms"),
        None => format!("time to start and end a process: netgrain {ours:.1} ms"),
    };
    sheet.row("start", &row, line)
}

/// Measures a query of the whole store with output to /dev/null, and a plain direct read of the same files.
fn full_scan(store: &Path, files: &[PathBuf], bytes: u64, sheet: &mut Output<'_>) -> Result<(), Stop> {
    let rate = |duration: Duration| bytes as f64 * 8.0 / duration.as_secs_f64() / 1e9;
    let (mut ours, mut volume) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        cold()?;
        let started = Instant::now();
        read_directly(files)?;
        volume.push(rate(started.elapsed()));
        cold()?;
        let mut command = packets(store, "", &[])?;
        command.stdout(Stdio::null());
        let started = Instant::now();
        let status = command.status().map_err(Stop::error)?;
        if !status.success() {
            return Err(Stop::error(format_args!("netgrain packets failed: {status}")));
        }
        ours.push(rate(started.elapsed()));
    }
    let (ours, volume) = (MedianRange::of(ours), MedianRange::of(volume));
    let row = FullScan { gbps: ours.median, volume_gbps: volume.median, share: ours.median / volume.median };
    let line = format!(
        "query of all packets: {ours:.2} Gb/s, direct read of the same files: {volume:.2} Gb/s; ratio {:.1} %",
        100.0 * row.share
    );
    sheet.row("everything", &row, line)
}

/// Queries stores that contain the same traffic in an increasing number of files.
fn depths(args: &QueryArgs, store: &Path, sheet: &mut Output<'_>) -> Result<(), Stop> {
    let mut rows: Vec<Depth> = Vec::new();
    for wanted in &args.files {
        if rows.is_empty() {
            sheet.head(
                "files         bytes ms until a packet: any    of the last second    of a host in the last file",
            )?;
        }
        make_files(*wanted, store)?;
        let files = packet_paths(store)?;
        let last = files.last().ok_or_else(|| Stop::error("the generated store has no files"))?;
        let last_second = second_of(last)?;
        let needle = format!("host {}", host_at(std::slice::from_ref(last), 0.9)?);
        let take = |filter: &str, more: &[&str]| -> Result<MedianRange, Stop> {
            let mut all = Vec::new();
            for _ in 0..5 {
                cold()?;
                let (duration, bytes) = query(store, filter, &[&["--limit", "1"], more].concat())?;
                if bytes <= FILE_HEADER {
                    return Err(Stop::error(format_args!(
                        "{filter:?} found no packet in a store of {wanted} files; please report this"
                    )));
                }
                all.push(millis(duration));
            }
            Ok(MedianRange::of(all))
        };
        let row = Depth {
            files: files.len(),
            bytes: packet_files(store).map_err(Stop::error)?.1,
            any_ms: take("", &[])?,
            last_second_ms: take("", &["--from", &last_second])?,
            needle_ms: take(&needle, &[])?,
        };
        let line = format!(
            "{:<8} {:>10} {:>22.1} {:>21.1} {:>29.1}",
            show_count(row.files as u64),
            show_bytes(row.bytes),
            row.any_ms,
            row.last_second_ms,
            row.needle_ms
        );
        sheet.row("files", &row, line)?;
        rows.push(row);
        std::fs::remove_dir_all(store).map_err(|e| Stop::error(format_args!("{}: {e}", store.display())))?;
    }
    let (Some(few), Some(many)) = (rows.first(), rows.last()) else { return Ok(()) };
    sheet.verdict(format_args!(
        "from {} to {} files, the time to the first packet grows by a factor of {:.2}, to the first packet of the \
         last second by {:.2}",
        few.files,
        many.files,
        many.any_ms.median / few.any_ms.median,
        many.last_second_ms.median / few.last_second_ms.median
    ))
}

/// Makes a store of `files` files, one for each second of virtual time, with a hundred packets each.
fn make_files(files: u32, dir: &Path) -> Result<(), Stop> {
    let mut spec: sim::Spec = "1000,flows=1M".parse().map_err(Stop::error)?;
    spec.rate = base::units::Rate::Packets(100.0);
    spec.packets = Some(u64::from(files) * 100);
    let start = Timestamp::from_secs_nanos(sys::clock::realtime().secs() - u64::from(files) - 3600, 0);
    let mut plan = Plan::new(SourcePlan::Sim { spec, start: Some(start), name: None });
    plan.rotate = Some(Duration::from_secs(1));
    plan.segment = 16 << 20;
    record_all(plan, dir)
}

/// The command of a query as a user would enter it.
fn packets(store: &Path, filter: &str, more: &[&str]) -> Result<Command, Stop> {
    let mut command = Command::new(netgrain()?);
    command.arg("packets").arg("--store").arg(store).args(["--format", "pcap", "-w", "-"]).args(more);
    if !filter.is_empty() {
        command.arg(filter);
    }
    command.stderr(Stdio::null());
    Ok(command)
}

/// Duration of a query and bytes of its result.
pub fn query(store: &Path, filter: &str, more: &[&str]) -> Result<(Duration, u64), Stop> {
    timed(packets(store, filter, more)?)
}

/// As [`query()`], for a query that may have no results.
pub fn query_any(store: &Path, filter: &str, more: &[&str]) -> Result<(Duration, u64), Stop> {
    run_to_end(packets(store, filter, more)?, &[0, 1])
}

/// Runs a command to its end; returns its duration and the bytes that it printed.
pub fn timed(command: Command) -> Result<(Duration, u64), Stop> {
    run_to_end(command, &[0])
}

fn run_to_end(mut command: Command, good: &[i32]) -> Result<(Duration, u64), Stop> {
    let started = Instant::now();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(Stop::error)?;
    let mut bytes = 0;
    let mut buffer = vec![0; READ];
    if let Some(output) = &mut child.stdout {
        loop {
            match output.read(&mut buffer).map_err(Stop::error)? {
                0 => break,
                n => bytes += n as u64,
            }
        }
    }
    let status = child.wait().map_err(Stop::error)?;
    if !status.code().is_some_and(|code| good.contains(&code)) {
        return Err(Stop::error(format_args!("{command:?} failed: {status}")));
    }
    Ok((started.elapsed(), bytes))
}

/// Drops the page cache.
pub fn cold() -> Result<(), Stop> {
    std::fs::write("/proc/sys/vm/drop_caches", "3")
        .map_err(|e| Stop::error(format_args!("the page cache cannot be dropped: {e}; run as root")))
}

/// Reads all files with direct I/O, as fast as possible with blocking calls. Several threads read, so that the volume
/// always has a read in its queue.
fn read_directly(files: &[PathBuf]) -> Result<u64, Stop> {
    /// Number of reads in flight, each of `PIECE` bytes.
    const DEPTH: u64 = 4;
    const PIECE: u64 = 4 << 20;
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..DEPTH)
            .map(|own| {
                scope.spawn(move || -> std::io::Result<u64> {
                    // Direct I/O needs aligned memory.
                    let mut memory = vec![0u8; PIECE as usize + 4096];
                    let skip = memory.as_ptr().align_offset(4096);
                    let piece = &mut memory[skip..skip + PIECE as usize];
                    let mut bytes = 0;
                    for path in files {
                        let file = sys::disk::open(path, true)?;
                        let len = file.metadata()?.len();
                        for at in (own * PIECE..len).step_by((DEPTH * PIECE) as usize) {
                            bytes += std::os::unix::fs::FileExt::read_at(&file, piece, at)? as u64;
                        }
                    }
                    Ok(bytes)
                })
            })
            .collect();
        let mut bytes = 0;
        for reader in readers {
            bytes += reader.join().map_err(|_| Stop::error("a reading thread panicked"))?.map_err(Stop::error)?;
        }
        Ok(bytes)
    })
}

/// Returns the packet files below a directory, in the order of their names.
pub fn packet_paths(directory: &Path) -> Result<Vec<PathBuf>, Stop> {
    let mut found = below(directory, "pcap")?;
    found.sort_unstable_by(|a, b| a.file_name().cmp(&b.file_name()));
    Ok(found)
}

pub fn below(directory: &Path, ending: &str) -> Result<Vec<PathBuf>, Stop> {
    let failed = |e: std::io::Error| Stop::error(format_args!("{}: {e}", directory.display()));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            found.append(&mut below(&path, ending)?);
        } else if path.extension().is_some_and(|e| e == ending) {
            found.push(path);
        }
    }
    Ok(found)
}

fn index_bytes(store: &Path) -> Result<u64, Stop> {
    let mut bytes = 0;
    for path in below(store, "ngi")? {
        bytes += path.metadata().map_err(Stop::error)?.len();
    }
    Ok(bytes)
}

/// Returns the source address of a packet at a relative position in the files: 0 is the begin of the first file, and 1
/// is the end of the last file.
pub fn host_at(files: &[PathBuf], share: f64) -> Result<std::net::IpAddr, Stop> {
    let file = &files[((files.len() as f64 * share) as usize).min(files.len().saturating_sub(1))];
    let part = (files.len() as f64 * share).fract();
    let source = File::open(file).map_err(|e| Stop::error(format_args!("{}: {e}", file.display())))?;
    let len = source.metadata().map_err(Stop::error)?.len();
    let mut reader = pcap::Reader::open(source).map_err(Stop::error)?;
    while let Some(packet) = reader.next().map_err(Stop::error)? {
        let headers = wire::Headers::of(packet.data, packet.wire_len, packet.link_type);
        if packet.offset as f64 >= part * 0.99 * len as f64
            && let Some(key) = wire::FlowKey::of(packet.data, &headers)
        {
            return Ok(key.src);
        }
    }
    Err(Stop::error(format_args!("{}: no packet with addresses", file.display())))
}

/// Returns the timestamp of the first packet of a file.
fn second_of(file: &Path) -> Result<String, Stop> {
    let source = File::open(file).map_err(|e| Stop::error(format_args!("{}: {e}", file.display())))?;
    let mut reader = pcap::Reader::open(source).map_err(Stop::error)?;
    let first = reader.next().map_err(Stop::error)?.and_then(|p| p.ts);
    Ok(first.ok_or_else(|| Stop::error(format_args!("{}: no packet", file.display())))?.to_string())
}

pub fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
