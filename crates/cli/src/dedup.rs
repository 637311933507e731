//! `netgrain dedup`: removes duplicates from captures, or reports them.

mod report;

use crate::convert::targets::{Naming, Targets};
use crate::convert::{OutputFormat, input};
use crate::outcome::{Failure, Outcome};
use crate::signals;
use crate::style::{ColorArgs, WidthArgs};
use crate::values::{ValueError, count, positive_count};
use base::units;
use clap::Args;
use convert::{Discard, Format, Plan, Report, convert_with_hints};
use duplicates::{Classes, Settings, settings};
use filter::Filter;
use meter::MemoryHints;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Args)]
#[command(after_help = "Examples:
  netgrain dedup mirror.pcap -w clean.pcap
  netgrain dedup a.pcapng b.pcapng --report                       merged in order of time; writes nothing
  netgrain dedup mirror.pcap.gz -w clean.pcap --classes all --report
  netgrain dedup mirror.pcap -w clean.pcap --window 200ms --records 3M --json
  netgrain dedup mirror.pcap -w clean.pcap --exact --window-packets 4    as editcap -d

Assumption: no sender sends the same bytes, including an identification other than 0, twice within the window. With a \
    longer window, retransmissions, polls and keep-alives can contradict it. A packet without identification (IPv6, \
    IPv4 with identification 0, ARP) that is equal to a packet before it can be a repeat of its sender. Such packets \
    are not removed by default; --repeat-window and --mirrored-interfaces change this.")]
pub struct DedupArgs {
    /// Captures: pcap, pcapng, RAW, also compressed as .gz or .zst; - for standard input. Several are merged in order
    /// of time
    #[arg(value_name = "FILE", required = true)]
    pub inputs: Vec<PathBuf>,
    /// Write the packets without duplicates to this file; - for standard output
    #[arg(short = 'w', long = "write", value_name = "OUT", required_unless_present = "report")]
    pub write: Option<PathBuf>,
    /// Print a table of the duplicates by class, with times and TTL differences
    #[arg(long)]
    pub report: bool,
    /// Format of the output [default: by the extension of OUT: .pcap, .pcapng, .raw; otherwise pcapng]
    #[arg(long, value_enum)]
    pub format: Option<OutputFormat>,
    /// Read the inputs as RAW of HPCAP, without detection of the format
    #[arg(long)]
    pub read_raw: bool,
    /// Compare only packets that match this filter; other packets are not written
    #[arg(long, value_name = "EXPRESSION")]
    pub filter: Option<String>,
    /// Classes to remove, separated by commas: switching, routing, nat, proxying, fragment; or all
    #[arg(long, value_name = "LIST", default_value_t = Classes::USUAL, conflicts_with = "exact")]
    pub classes: Classes,
    /// Longest time between a packet and its last duplicate, at most 60s. No sender may send the same bytes twice
    /// within this time
    #[arg(long, value_name = "SPAN", default_value = "1ms", value_parser = span)]
    pub window: Duration,
    /// Largest number of packets from a packet to its last duplicate: 1 compares neighbours [default: the records]
    #[arg(long, value_name = "N", value_parser = positive_count)]
    pub window_packets: Option<u64>,
    /// Number of packets that the table holds; each needs about 170 bytes of memory
    #[arg(long, value_name = "N", default_value = "256Ki", value_parser = records)]
    pub records: u64,
    /// Bytes of each packet that the table stores and compares, two MAC addresses included; a 64-bit hash represents
    /// the other bytes
    #[arg(
        long,
        value_name = "N",
        default_value_t = settings::STORED_BYTES as u64,
        value_parser = base::units::whole::<u64>(settings::STORED_BYTES_MIN as u64..=settings::STORED_BYTES_MAX as u64)
    )]
    pub stored_bytes: u64,
    /// Longest time between two equal TCP segments without identification that are duplicates, with payload or FIN, at
    /// most 4 packets apart; a sender retransmits after one round trip at the earliest
    #[arg(long, value_name = "SPAN", default_value = "10us", value_parser = base::units::parse_span)]
    pub retransmission_window: Duration,
    /// Longest time between two other equal packets without identification that are duplicates; 0s excludes them
    #[arg(long, value_name = "SPAN", default_value = "0s", value_parser = base::units::parse_span)]
    pub repeat_window: Duration,
    /// Equal unicast packets from different interfaces or files are duplicates, also without identification
    #[arg(long)]
    pub mirrored_interfaces: bool,
    /// Remove each frame that is equal to a frame before it in the window, as editcap does, also repeats of the sender
    #[arg(long)]
    pub exact: bool,
    /// Replace OUT if it exists
    #[arg(long)]
    pub force: bool,
    /// Print the report as JSON, on standard output (standard error with -w -)
    #[arg(long)]
    pub json: bool,
    /// Print errors only
    #[arg(long, short, conflicts_with = "report")]
    pub quiet: bool,
    #[command(flatten)]
    pub width: WidthArgs,
    #[command(flatten)]
    pub color: ColorArgs,
}

/// Runs the verb. The outcome is `No` (exit status 1) if the inputs have no packets, an input is damaged, or the work
/// was interrupted.
pub fn run(args: &DedupArgs) -> Result<Outcome, Failure> {
    let settings = settings_of(args)?;
    let plan = plan(args, settings.clone())?;
    let (report, targets) = match &args.write {
        Some(out) => {
            crate::output::capture_format::unpacked(out)?;
            let mut targets = Targets::new(out, false, Naming::Number, args.force)?;
            let report = match convert_with_hints(inputs(args)?, &plan, &mut targets, MemoryHints) {
                Ok(report) => report,
                Err(convert::Error::Output(e)) if targets.is_stdout() => return Err(e.into()),
                Err(e) => return Err(Failure::Said(targets.with_path(&e))),
            };
            (report, Some(targets))
        }
        None => {
            let report = convert_with_hints(inputs(args)?, &plan, &mut Discard, MemoryHints).map_err(Failure::say)?;
            (report, None)
        }
    };
    report::print(args, &settings, &plan, &report, targets.as_ref())?;
    Ok(outcome(&report))
}

fn outcome(report: &Report) -> Outcome {
    Outcome::of(report.written > 0 && report.damaged_inputs.is_empty() && !report.stopped)
}

fn inputs(args: &DedupArgs) -> Result<Vec<convert::Input<crate::convert::open::Bytes>>, Failure> {
    args.inputs.iter().map(|path| input(path, args.read_raw)).collect()
}

fn plan(args: &DedupArgs, settings: Settings) -> Result<Plan, Failure> {
    let filter = args.filter.as_deref().map(Filter::parse).transpose().map_err(|e| Failure::filter(&e))?;
    let usual = || Format::of_path(args.write.as_deref().unwrap_or(Path::new("-")));
    Ok(Plan {
        format: args.format.map_or_else(usual, OutputFormat::format),
        filter: filter.unwrap_or_default(),
        duplicates: Some(settings),
        stop: Some(signals::stop_flag()),
        ..Plan::default()
    })
}

fn settings_of(args: &DedupArgs) -> Result<Settings, Failure> {
    let records = args.window_packets.filter(|_| args.exact).unwrap_or(0).max(args.records);
    let settings = Settings {
        classes: if args.exact { Classes::NONE.with(duplicates::Class::Switching) } else { args.classes },
        window: args.window,
        window_packets: args.window_packets.unwrap_or(u64::MAX),
        records: usize::try_from(records).unwrap_or(usize::MAX),
        stored_bytes: usize::try_from(args.stored_bytes).unwrap_or(usize::MAX),
        retransmission_window: args.retransmission_window,
        repeat_window: args.repeat_window,
        mirrored_interfaces: args.mirrored_interfaces,
        exact: args.exact,
        ..Settings::default()
    };
    let available = sys::cpu::memory_bytes();
    if settings.memory() > available {
        return Err(Failure::Said(format!(
            "--records {}: the table needs {}, and this machine has {}: choose fewer records",
            units::show_count(settings.records as u64),
            units::show_bytes(settings.memory()),
            units::show_bytes(available)
        )));
    }
    Ok(settings)
}

fn span(text: &str) -> Result<Duration, ValueError> {
    let span = units::parse_span(text)?;
    if span.is_zero() || span > settings::WINDOW_MAX {
        return Err(ValueError::new(format!("{text} is out of range: write a span from 1ns to 60s, such as 200ms")));
    }
    Ok(span)
}

fn records(text: &str) -> Result<u64, ValueError> {
    let wrong = || {
        ValueError::new(format!(
            "{text} is no number of records from 1 to {}: write 256Ki or 3M",
            settings::RECORDS_MAX
        ))
    };
    // Powers of two are usual: 32Ki are the 32 768 records of HPCAP.
    let records = match text.strip_suffix("Ki") {
        Some(number) => count(number).map_err(|_| wrong())?.saturating_mul(1024),
        None => count(text).map_err(|_| wrong())?,
    };
    if (1..=settings::RECORDS_MAX as u64).contains(&records) { Ok(records) } else { Err(wrong()) }
}
