//! Measures `netgrain run -r` of a capture file, which writes packets, index, flow records and series rows, compared
//! with nfpcapd, which reads the same file and writes flows only.
//!
//! Both programs read the file from the page cache and write below the same directory, and the programs take turns.
//! netgrain syncs its files before it ends; nfpcapd does not. Between two runs sync(1) writes the dirty pages of the
//! first run.

use crate::conversations::{ConversationModel, SNAPLEN};
use crate::output::{MedianRange, Output, Stop};
use crate::process::{find, netgrain};
use crate::volume::ScratchDir;
use base::units::{show_bytes, show_count};
use clap::Args;
use serde::Serialize;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Bytes of the header of a pcap file.
const FILE_HEADER: u64 = 24;

/// Flags of `netgrain-bench replay`.
#[derive(Args, Clone, Debug)]
pub struct ReplayArgs {
    /// Capture file to read instead of generated conversations
    #[arg(short = 'r', long = "read", value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Packets to generate
    #[arg(long, value_name = "N", default_value = "4M", value_parser = base::units::parse_count)]
    pub packets: u64,
    /// Concurrent conversations among them
    #[arg(long, value_name = "N", default_value = "200k", value_parser = base::units::parse_count)]
    pub conversations: u64,
    /// Snaplen: the greatest number of bytes stored of each packet
    #[arg(
        long,
        value_name = "N",
        default_value_t = SNAPLEN as u32,
        value_parser = base::units::whole::<u32>(64..=65_535)
    )]
    pub snaplen: u32,
    /// Number of runs of each program, in turn; the output shows medians
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = base::units::whole::<u32>(1..=1000))]
    pub repeat: u32,
    /// Directory for the capture, the store and the files of nfpcapd, which are removed at the end
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Omit nfpcapd
    #[arg(long)]
    pub no_baselines: bool,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
}

/// The result of one program.
#[derive(Debug, Serialize)]
struct Row {
    program: &'static str,
    seconds: MedianRange,
    /// CPU time of all threads, user and system, to a hundredth of a second.
    cpu_seconds: MedianRange,
    /// Bytes of all its files.
    written_bytes: u64,
}

impl Row {
    fn line(&self) -> String {
        let (wall, cpu) = (format!("{:.3}", self.seconds), format!("{:.2}", self.cpu_seconds));
        format!("{:<10} {wall:>24} {cpu:>20} {:>12}", self.program, show_bytes(self.written_bytes))
    }
}

/// The results of one program's runs.
#[derive(Default)]
struct Runs {
    seconds: Vec<f64>,
    cpu: Vec<f64>,
    bytes: u64,
}

impl Runs {
    fn row(self, program: &'static str) -> Row {
        Row {
            program,
            seconds: MedianRange::of(self.seconds),
            cpu_seconds: MedianRange::of(self.cpu),
            written_bytes: self.bytes,
        }
    }

    /// Runs a command to its end, lists the files that it wrote into `directory`, and removes them.
    fn run(&mut self, mut command: Command, name: &str, directory: &Path) -> Result<Vec<(PathBuf, u64)>, Stop> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let cpu = children_cpu();
        let begun = Instant::now();
        let status = command.status().map_err(|e| Stop::error(format_args!("{name} cannot be started: {e}")))?;
        self.seconds.push(begun.elapsed().as_secs_f64());
        self.cpu.push(children_cpu() - cpu);
        if !status.success() {
            return Err(Stop::error(format_args!("{name} failed: {status}")));
        }
        let mut files = Vec::new();
        list(directory, &mut files).map_err(|e| Stop::error(format_args!("{}: {e}", directory.display())))?;
        self.bytes = files.iter().map(|(_, bytes)| bytes).sum();
        fs::remove_dir_all(directory).map_err(|e| Stop::error(format_args!("{}: {e}", directory.display())))?;
        // The files are synced, because the kernel would otherwise write this run's pages during the next run.
        let _ = Command::new("sync").status();
        Ok(files)
    }
}

/// Measures and prints the results.
pub fn run(args: &ReplayArgs, out: &mut dyn Write) -> Result<(), Stop> {
    let mut sheet = Output::begin(out, args.json, "replay")?;
    let work = ScratchDir::below(&args.dir)?;
    let file = match &args.file {
        Some(file) => file.clone(),
        None => made(args, &work)?,
    };
    let bytes = fs::metadata(&file).map_err(|e| Stop::error(format_args!("{}: {e}", file.display())))?.len();
    // This read loads the file into the page cache.
    let read = File::open(&file).and_then(|mut file| std::io::copy(&mut file, &mut std::io::sink()));
    read.map_err(|e| Stop::error(format_args!("{}: {e}", file.display())))?;
    let what = match &args.file {
        Some(file) => file.display().to_string(),
        None => format!(
            "{} packets of {} conversations, at most {} bytes stored of each packet",
            show_count(args.packets),
            show_count(args.conversations),
            args.snaplen
        ),
    };
    sheet.head(format_args!("{what}: {}; {} runs in turn, medians", show_bytes(bytes), args.repeat))?;
    sheet.head("program            wall s (min..max)     cpu s (min..max)      written")?;
    let baseline = find("nfpcapd").filter(|_| !args.no_baselines);
    let program = netgrain()?;
    let (mut ours, mut theirs) = (Runs::default(), Runs::default());
    for _ in 0..args.repeat {
        let store = work.path().join("store");
        let mut command = Command::new(&program);
        command.args(["run", "--quiet", "--name", "replay", "-r"]).arg(&file).arg("--store").arg(&store);
        let files = ours.run(command, "netgrain run", &store)?;
        if args.file.is_none() {
            check(&files, bytes)?;
        }
        if let Some(program) = &baseline {
            let flows = work.path().join("nfpcapd");
            fs::create_dir(&flows).map_err(|e| Stop::error(format_args!("{}: {e}", flows.display())))?;
            let mut command = Command::new(program);
            command.arg("-r").arg(&file).arg("-l").arg(&flows).args(["-s", "1514"]);
            theirs.run(command, "nfpcapd", &flows)?;
        }
    }
    let ours = ours.row("netgrain");
    sheet.row("replay", &ours, ours.line())?;
    if baseline.is_none() {
        return match args.no_baselines {
            true => Ok(()),
            false => sheet.note("nfpcapd is not installed: its row is omitted"),
        };
    }
    let theirs = theirs.row("nfpcapd");
    sheet.row("replay", &theirs, theirs.line())?;
    let ratio = theirs.seconds.median / ours.seconds.median;
    sheet.verdict(format_args!("{ratio:.2} times as fast as nfpcapd, which stores flows only and syncs nothing"))
}

/// A generated capture file, twenty seconds long.
fn made(args: &ReplayArgs, work: &ScratchDir) -> Result<PathBuf, Stop> {
    let conversations =
        u32::try_from(args.conversations).map_err(|_| Stop::error("too many conversations; at most 4294967295"))?;
    let path = work.path().join("replay.pcap");
    let conversation_model =
        ConversationModel { packets: args.packets, conversations, step: 20_000_000_000 / args.packets.max(1), seed: 1 };
    let file = File::create(&path).map_err(|e| Stop::error(format_args!("{}: {e}", path.display())))?;
    conversation_model.write_cut(BufWriter::with_capacity(1 << 20, file), args.snaplen as usize)?;
    Ok(path)
}

/// Checks that a store is complete: as many bytes of packets as the capture, an index beside each packet file, flow
/// records and series rows.
fn check(files: &[(PathBuf, u64)], bytes: u64) -> Result<(), Stop> {
    let of = |end: &str| files.iter().filter(|(path, _)| path.to_string_lossy().ends_with(end)).collect::<Vec<_>>();
    let stored: u64 = of(".pcap").iter().map(|(_, bytes)| bytes - FILE_HEADER).sum();
    if stored != bytes - FILE_HEADER {
        let wanted = bytes - FILE_HEADER;
        return Err(Stop::error(format_args!(
            "{stored} of {wanted} bytes of packet records are stored; please report this"
        )));
    }
    let kinds = [of(".ngi").len() == of(".pcap").len(), !of(".flows.parquet").is_empty()];
    if kinds != [true; 2] || of(".series.parquet").is_empty() {
        return Err(Stop::error("an index, flow records or rows are missing in the store; please report this"));
    }
    Ok(())
}

/// All files below a directory, with their lengths.
fn list(directory: &Path, files: &mut Vec<(PathBuf, u64)>) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => list(&entry.path(), files)?,
            false => files.push((entry.path(), entry.metadata()?.len())),
        }
    }
    Ok(())
}

/// Processor seconds of the child processes that have ended so far: fields 16 and 17 of `/proc/self/stat` (proc(5)), in
/// ticks of 1/100 s. The fields are counted from the end of the process name, because the name may contain blanks.
fn children_cpu() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().skip(13).take(2);
    fields.filter_map(|f| f.parse::<f64>().ok()).sum::<f64>() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incomplete_store_is_an_error() {
        let file = |name: &str, bytes| (PathBuf::from("/store/x").join(name), bytes);
        let mut files = vec![file("a.pcap", 124), file("a.ngi", 9), file("b.flows.parquet", 9)];
        assert!(check(&files, 124).is_err(), "no rows");
        files.push(file("b.series.parquet", 9));
        assert!(check(&files, 124).is_ok());
        assert!(check(&files, 125).is_err(), "a missing byte");
        files.push(file("c.pcap", 24));
        assert!(check(&files, 124).is_err(), "a file without an index");
    }
}
