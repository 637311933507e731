//! The binary `netgrain-bench` measures each stage alone, with stand-ins for the adjacent stages, so that a measurement
//! identifies the bottleneck. It is separate from `netgrain`, so that `netgrain` contains neither benchmark code nor
//! its dependencies.
#![forbid(unsafe_code)]

mod arguments;
mod baseline;
mod capture;
mod columns;
mod conversations;
mod cpu_placement;
mod detect;
mod disk;
mod duplicates;
mod elements;
mod engines;
mod flow;
mod generator;
mod group;
mod idle;
mod lang;
mod live;
mod member_processes;
mod output;
mod process;
mod query;
mod record;
mod replay;
mod ring;
mod send;
mod stats;
mod stenographer;
mod time;
mod volume;
mod xdp;

use crate::capture::CaptureArgs;
use crate::columns::ColumnsArgs;
use crate::detect::DetectArgs;
use crate::disk::DiskArgs;
use crate::duplicates::DuplicatesArgs;
use crate::elements::ElementsArgs;
use crate::engines::{EnginesArgs, ReaderArgs};
use crate::flow::FlowArgs;
use crate::generator::GeneratorArgs;
use crate::group::GroupArgs;
use crate::lang::LangArgs;
use crate::live::LiveArgs;
use crate::member_processes::MemberArgs;
use crate::query::QueryArgs;
use crate::record::RecordArgs;
use crate::replay::ReplayArgs;
use crate::ring::{ListenerArgs, RingArgs};
use crate::send::SendArgs;
use crate::stenographer::StenographerArgs;
use crate::time::TimeArgs;
use crate::xdp::XdpArgs;
use clap::Parser;
use clap::error::ErrorKind;
use output::Stop;
use std::io::Write;
use std::process::ExitCode;

/// Measures one stage of netgrain alone, with stand-ins for the adjacent stages.
#[derive(Parser)]
#[command(name = "netgrain-bench", version, about, propagate_version = true, max_term_width = 110)]
struct Bench {
    #[command(subcommand)]
    stage: Stage,
}

/// The stage to measure.
#[derive(clap::Subcommand, Clone, Debug)]
enum Stage {
    /// The ring: one producer, and lossy listeners in other processes
    Ring(RingArgs),
    /// A process that `netgrain-bench ring` starts
    #[command(hide = true)]
    RingListener(ListenerArgs),
    /// The engine: simulated frames are timestamped, hashed and written to the ring, without listeners
    Capture(CaptureArgs),
    /// The volume: direct sequential writes, and the link speed for which they suffice
    Disk(DiskArgs),
    /// Counters of several threads, and queues between two threads (chapter 1.5 of the thesis on PFQ)
    Elements(ElementsArgs),
    /// Ways to receive packets, compared: AF_PACKET, TPACKET_V3, libpcap, AF_XDP, and the engine (root)
    Engines(EnginesArgs),
    /// A process that `netgrain-bench engines` starts
    #[command(hide = true)]
    EnginesReader(ReaderArgs),
    /// The whole recorder, from simulated frames to files, compared with direct writing and fio
    Record(RecordArgs),
    /// Queries of stored packets, compared with tcpdump -r and the read rate of the volume
    Query(QueryArgs),
    /// Flow metering: conversations and floods from memory, compared with nfpcapd, softflowd and argus
    Flow(FlowArgs),
    /// Replay of a capture file, with packets, index, flow records and series rows, compared with nfpcapd
    Replay(ReplayArgs),
    /// Sending of captures by `netgrain replay`, compared with tcpreplay, trafgen and kernel-made frames (root)
    Send(SendArgs),
    /// Writing flow records to Parquet and ranking the top senders, compared with nfdump
    Columns(ColumnsArgs),
    /// Detection of changes: recall, precision, delay and false alarms on simulated series with labelled incidents
    Detect(DetectArgs),
    /// Detection of duplicates: accuracy by table size (thesis tables 4.6 and 4.7), speed, compared with editcap
    Duplicates(DuplicatesArgs),
    /// A group: a dispatcher that steers by flow, and members in other processes
    Group(GroupArgs),
    /// A process that `netgrain-bench group` starts
    #[command(hide = true)]
    GroupMember(MemberArgs),
    /// Comparison with Stenographer: the same packets, the same queries (root)
    Stenographer(StenographerArgs),
    /// The packet language: programs as machine code and interpreted, filters compared with libpcap's
    Lang(LangArgs),
    /// Programs in the kernel: their cost on an interface, and swaps under load (root)
    Xdp(XdpArgs),
    /// Recording of a live interface under full load with AF_XDP and TPACKET, compared with other recorders (root)
    Live(LiveArgs),
    /// Methods of timestamping: their errors in a model of link, NIC and thread, compared with those of the thesis
    Time(TimeArgs),
    /// A process that `netgrain-bench live` and `netgrain-bench stenographer` start
    #[command(hide = true)]
    Generator(GeneratorArgs),
}

fn main() -> ExitCode {
    sys::memory_limit::keep_heaps_within_limit();
    let outcome = match Bench::try_parse() {
        Ok(bench) => bench.stage.run(&mut std::io::stdout()),
        // Clap returns the texts of --help and --version as errors, but they are not failures, so they are only
        // printed.
        Err(e) if !e.use_stderr() || e.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = e.print();
            return ExitCode::from(if e.use_stderr() { 2 } else { 0 });
        }
        Err(e) => Err(one_line(&e)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            let _ = writeln!(std::io::stderr(), "netgrain-bench: {text}");
            ExitCode::from(2)
        }
    }
}

/// Formats a command-line error, the suggestion of clap and a reference to the help in one line.
fn one_line(e: &clap::Error) -> String {
    let text = e.render().to_string();
    let lines = text.lines().map(str::trim).filter(|l| !l.is_empty());
    let error: Vec<_> = lines.take_while(|l| !l.starts_with("Usage:") && !l.starts_with("For more")).collect();
    let error = error.join(" ").replace(" tip: ", "; ").replace(" [possible", "; [possible");
    format!("{}; see netgrain-bench --help", error.trim_start_matches("error: "))
}

impl Stage {
    /// Measures and prints the results. A closed pipe is no error.
    ///
    /// # Errors
    /// The error is one line that names the measurement that failed and the next step.
    fn run(&self, out: &mut dyn Write) -> Result<(), String> {
        let outcome = match self {
            Self::Ring(args) => ring::run(args, out),
            Self::RingListener(args) => ring::listen(args, out),
            Self::Capture(args) => capture::run(args, out),
            Self::Disk(args) => disk::run(args, out),
            Self::Elements(args) => elements::run(args, out),
            Self::Engines(args) => engines::run(args, out),
            Self::EnginesReader(args) => engines::read(args, out),
            Self::Record(args) => record::run(args, out),
            Self::Query(args) => query::run(args, out),
            Self::Flow(args) => flow::run(args, out),
            Self::Replay(args) => replay::run(args, out),
            Self::Send(args) => send::run(args, out),
            Self::Columns(args) => columns::run(args, out),
            Self::Detect(args) => detect::run(args, out),
            Self::Duplicates(args) => duplicates::run(args, out),
            Self::Group(args) => group::run(args, out),
            Self::GroupMember(args) => member_processes::member(args, out),
            Self::Stenographer(args) => stenographer::run(args, out),
            Self::Lang(args) => lang::run(args, out),
            Self::Xdp(args) => xdp::run(args, out),
            Self::Live(args) => live::run(args, out),
            Self::Time(args) => time::run(args, out),
            Self::Generator(args) => generator::run(args, out),
        };
        match outcome {
            Ok(()) | Err(Stop::Closed) => Ok(()),
            Err(Stop::Failed(text)) => Err(text),
        }
    }
}
