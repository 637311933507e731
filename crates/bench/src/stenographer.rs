//! Compares netgrain with Stenographer on the same packets and queries: both record one interface of a private veth
//! pair at the same time, and then each program runs the same queries with a cold page cache. Stenographer publishes a
//! file only after it has started the next file, and its queries find the packets of a file only then. The output shows
//! this delay.
//!
//! Stenographer runs as the user of its package and with the certificates of its installation.

use crate::cpu_placement::CpuPlacement;
use crate::generator;
use crate::output::{MedianRange, Output, Stop};
use crate::process::{Helper, find};
use crate::query::{below, cold, host_at, millis, packet_paths, query, timed};
use crate::record::packet_files;
use crate::volume::ScratchDir;
use capture::auto::SourceKind;
use clap::Args;
use engine::{Capture, Format, InterfacePlan, Plan, SourcePlan, StorePlan};
use serde::Serialize;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const FROM: &str = "ng-bench0";
const TO: &str = "ng-bench1";

/// Seconds after which the daemon starts the next file; the minimum that it accepts with its other limits.
const FILE_AGE: u64 = 10;

/// Time limit for a file to appear, in addition to the rotation interval.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Certificate directory of Stenographer's package.
const CERTIFICATES: &str = "/etc/stenographer/certs";

/// Port of the daemon on the loopback interface of the private namespace.
const PORT: u16 = 1234;

/// Flags of `netgrain-bench stenographer`.
#[derive(Args, Clone, Debug)]
pub struct StenographerArgs {
    /// Directory to record into, which other users may enter; the files written there are removed
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub dir: PathBuf,
    /// Traffic to send: a frame size in bytes, imix or backbone
    #[arg(long, value_name = "SPEC", default_value = "backbone")]
    pub traffic: String,
    /// Rate of the traffic
    #[arg(long, value_name = "RATE", default_value = "100kpps")]
    pub rate: String,
    /// Duration of sending
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, value_parser = crate::arguments::seconds)]
    pub seconds: f64,
    /// Number of hosts to query
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = base::units::whole::<u32>(1..=1000))]
    pub hosts: u32,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
}

/// The stored bytes and the processor time of one recorder, and the delay until queries find its packets.
#[derive(Debug, Serialize)]
struct Stored {
    recorder: &'static str,
    bytes: u64,
    index_bytes: u64,
    /// Processor seconds while frames arrived.
    cpu_seconds: f64,
    /// Seconds from the last frame until queries found the packets of the last file.
    visible_seconds: f64,
}

/// The result of one query.
#[derive(Debug, Serialize)]
struct QueryRow {
    question: String,
    ms: f64,
    bytes: u64,
    stenographer_ms: f64,
    stenographer_bytes: u64,
    faster: f64,
}

/// Measures and prints the results.
pub fn run(args: &StenographerArgs, out: &mut dyn Write) -> Result<(), Stop> {
    base::units::parse_rate(&args.rate).map_err(Stop::error)?;
    let _: r#gen::Spec = args.traffic.parse().map_err(Stop::error)?;
    for program in ["stenographer", "stenotype", "stenocurl", "setpriv"] {
        find(program).ok_or_else(|| Stop::error(format_args!("{program} is not installed; install stenographer")))?;
    }
    let work = ScratchDir::below(&args.dir)?;
    let mut sheet = Output::begin(out, args.json, "stenographer")?;
    engine::private_pair(FROM, TO, 1500).and_then(|()| loopback_up()).map_err(|e| {
        Stop::error(format_args!("cannot create a network namespace for the measurement: {e}; run as root"))
    })?;
    let daemon = Daemon::start(work.path())?;
    let store = work.path().join("store");
    let mut plan = Plan::new(SourcePlan::Interface(InterfacePlan::new(TO, SourceKind::Tpacket)));
    plan.cpus = vec![CpuPlacement::find().engine()];
    plan.store = Some(StorePlan { dir: store.clone(), format: Format::Pcap, depth: engine::WRITE_DEPTH });
    let mut capture = Capture::start(&plan).map_err(Stop::error)?;
    let before = daemon.cpu_seconds();
    let duration = Duration::from_millis((args.seconds * 1e3).ceil() as u64);
    let sent = generator::start(FROM, &args.traffic, &args.rate, duration, None)?
        .finish(Duration::from_secs_f64(args.seconds) + TIMEOUT)?;
    let ended = Instant::now();
    std::thread::sleep(Duration::from_millis(500));
    capture.stop();
    capture.wait().map_err(Stop::error)?;
    let counts = capture.report();
    let cpu = daemon.cpu_seconds() - before;
    let visible = daemon.wait_for_all(ended)?;
    let sent = sent.lines().last().unwrap_or_default().to_owned();
    sheet.head(format_args!("sent: {sent}; netgrain stored {}", counts.counts.stored))?;
    let files = packet_paths(&store)?;
    let ours = Stored {
        recorder: "netgrain",
        bytes: packet_files(&store).map_err(Stop::error)?.1,
        index_bytes: sum(&below(&store, "ngi")?)?,
        cpu_seconds: counts.queues.iter().map(|q| q.engine_cpu_seconds).sum::<f64>()
            + counts
                .queues
                .iter()
                .filter_map(|q| q.recorder.as_ref())
                .map(|r| r.index_cpu_seconds + r.writer_cpu_seconds)
                .sum::<f64>(),
        visible_seconds: 0.5,
    };
    let theirs = Stored {
        recorder: "stenographer",
        bytes: sum(&daemon.files("packets")?)?,
        index_bytes: sum(&daemon.files("index")?)?,
        cpu_seconds: cpu,
        visible_seconds: visible.as_secs_f64(),
    };
    sheet.head("recorder           bytes on disk   index %   cpu s   visible after s")?;
    for row in [&ours, &theirs] {
        let line = format!(
            "{:<14} {:>17} {:>9.3} {:>7.2} {:>17.1}",
            row.recorder,
            row.bytes,
            100.0 * row.index_bytes as f64 / row.bytes.max(1) as f64,
            row.cpu_seconds,
            row.visible_seconds
        );
        sheet.row("stored", row, line)?;
    }
    queries(args, &store, &files, &daemon, &mut sheet)
}

fn queries(
    args: &StenographerArgs,
    store: &Path,
    files: &[PathBuf],
    daemon: &Daemon,
    sheet: &mut Output<'_>,
) -> Result<(), Stop> {
    sheet
        .head("query                                 ms        bytes   stenographer ms        bytes   times faster")?;
    let mut faster = Vec::new();
    for number in 0..args.hosts {
        let question = format!("host {}", host_at(files, (f64::from(number) + 0.5) / f64::from(args.hosts))?);
        cold()?;
        let (duration, bytes) = query(store, &question, &[])?;
        cold()?;
        let (their_duration, their_bytes) = timed(daemon.question(&question))?;
        let row = QueryRow {
            ms: millis(duration),
            bytes,
            stenographer_ms: millis(their_duration),
            stenographer_bytes: their_bytes,
            faster: their_duration.as_secs_f64() / duration.as_secs_f64(),
            question,
        };
        let line = format!(
            "{:<30} {:>9.1} {:>12} {:>17.1} {:>12} {:>14.1}",
            row.question, row.ms, row.bytes, row.stenographer_ms, row.stenographer_bytes, row.faster
        );
        sheet.row("host", &row, line)?;
        faster.push(row.faster);
    }
    sheet.verdict(format_args!("{:.1} times as fast as stenographer", MedianRange::of(faster)))
}

/// The daemon and the writer process that it starts; both end when this is dropped.
struct Daemon {
    helper: Helper,
    directory: PathBuf,
}

impl Daemon {
    fn start(directory: &Path) -> Result<Self, Stop> {
        let directory = fs::canonicalize(directory).map_err(Stop::error)?.join("stenographer");
        let config = directory.join("config");
        let with_path = |e: std::io::Error| Stop::error(format_args!("{}: {e}", directory.display()));
        for kind in ["packets", "index"] {
            fs::create_dir_all(directory.join(kind)).map_err(with_path)?;
        }
        let document = serde_json::json!({
            "Threads": [{
                "PacketsDirectory": directory.join("packets"), "IndexDirectory": directory.join("index"),
                "MaxDirectoryFiles": 30_000, "DiskFreePercentage": 1,
            }],
            "StenotypePath": find("stenotype"), "Interface": TO, "Host": "127.0.0.1", "Port": PORT,
            "Flags": [format!("--fileage_sec={FILE_AGE}"), "--blockage_sec=2", "--seccomp=none"],
            "CertPath": CERTIFICATES,
        });
        fs::write(&config, document.to_string()).map_err(with_path)?;
        let chown = Command::new("chown").args(["-R", "stenographer"]).arg(&directory).status().map_err(Stop::error)?;
        if !chown.success() {
            return Err(Stop::error("the user stenographer does not exist; install stenographer"));
        }
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "stenographer", "--regid", "stenographer", "--init-groups", "stenographer"]);
        command.arg("--config").arg(&config).arg("-syslog=false").stderr(Stdio::null());
        let mut daemon = Self { helper: Helper::start(command, "stenographer")?, directory };
        let until = Instant::now() + TIMEOUT;
        // The daemon begins to capture as soon as its writer process has opened a file.
        while fs::read_dir(daemon.directory.join("packets")).map_err(Stop::error)?.next().is_none() {
            if Instant::now() > until || !daemon.helper.is_running() {
                return Err(Stop::error("stenographer did not start to capture; start it by hand to see its error"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        std::thread::sleep(Duration::from_secs(1));
        Ok(daemon)
    }

    /// Processor seconds of daemon and writer process.
    fn cpu_seconds(&self) -> f64 {
        crate::process::cpu_seconds_with_children(self.helper.id())
    }

    /// Published files.
    fn files(&self, kind: &str) -> Result<Vec<PathBuf>, Stop> {
        let names = fs::read_dir(self.directory.join(kind)).map_err(Stop::error)?.filter_map(Result::ok);
        Ok(names.map(|e| e.path()).filter(|p| p.file_name().is_none_or(|n| n.as_encoded_bytes()[0] != b'.')).collect())
    }

    /// Waits until the files that were open at `ended` are published; returns the time that took.
    fn wait_for_all(&self, ended: Instant) -> Result<Duration, Stop> {
        let before = self.files("index")?.len();
        while self.files("index")?.len() == before {
            if ended.elapsed() > TIMEOUT {
                return Err(Stop::error("stenographer published no file"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(ended.elapsed())
    }

    fn question(&self, question: &str) -> Command {
        let mut command = Command::new("stenocurl");
        command.env("STENOGRAPHER_CONFIG", self.directory.join("config"));
        command.args(["/query", "--silent", "--fail", "--max-time", "600", "-d", question]);
        command
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // The daemon does not end its writer process.
        crate::process::end_children(self.helper.id());
    }
}

fn loopback_up() -> std::io::Result<()> {
    let mut netlink = sys::netlink::Netlink::route()?;
    let index = netlink.link("lo")?.index;
    netlink.set_up(index, true)
}

fn sum(files: &[PathBuf]) -> Result<u64, Stop> {
    files.iter().map(|f| Ok(f.metadata().map_err(Stop::error)?.len())).sum()
}
