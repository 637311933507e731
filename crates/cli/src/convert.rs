//! `netgrain convert`: converts, merges, splits and anonymises captures.

mod keys;
pub mod open;
pub mod targets;

use crate::interval::{self, TzArgs};
use crate::outcome::{Failure, Outcome, json, versioned};
use crate::signals;
use crate::style::plural;
use crate::values::ValueError;
use base::units::{self, show_bytes, show_count};
use base::{TimeSpec, Timestamp};
use clap::{Args, ValueEnum};
use convert::anonymise::Macs;
use convert::{Anonymiser, Format, Input, Plan, Report, Slice, Split};
use filter::Filter;
use std::path::{Path, PathBuf};
use std::time::Duration;
use targets::{Naming, Targets};

#[derive(Args)]
#[command(after_help = "Examples:
  netgrain convert trace.pcapng.gz -w trace.pcap
  netgrain convert a.pcap b.pcap -w both.pcapng                   merged in order of time
  netgrain convert big.pcap -w part.pcap --split-time 1min --slice l4
  netgrain convert in.pcap -w out.pcap --filter 'port 53' --from 10:42 --to +5min
  netgrain convert --new-key key                                  a key for the next line
  netgrain convert in.pcap -w give-away.pcap --anonymise --key-file key")]
pub struct ConvertArgs {
    /// Captures: pcap, pcapng, RAW, also compressed as .gz or .zst; - for standard input. Several are merged in order
    /// of time
    #[arg(value_name = "IN", required_unless_present = "new_key")]
    pub inputs: Vec<PathBuf>,
    /// Output file; - for standard output
    #[arg(short = 'w', long = "write", value_name = "OUT", required_unless_present = "new_key")]
    pub write: Option<PathBuf>,
    /// Format of the output [default: by the extension of OUT: .pcap, .pcapng, .raw; otherwise pcapng]
    #[arg(long, value_enum)]
    pub format: Option<OutputFormat>,
    /// Read the inputs as RAW of HPCAP, without detection of the format
    #[arg(long)]
    pub read_raw: bool,
    /// First time to include: 2026-11-21T10:42:00Z, 10:42, 1795257720.5, -10min
    #[arg(long, value_name = "TIME", value_parser = TimeSpec::parse, allow_hyphen_values = true)]
    pub from: Option<TimeSpec>,
    /// Last time to include; +5min is five minutes after --from
    #[arg(long, value_name = "TIME", value_parser = TimeSpec::parse, allow_hyphen_values = true)]
    pub to: Option<TimeSpec>,
    #[command(flatten)]
    pub tz: TzArgs,
    /// Write only packets that match this filter: host, net, port, proto, vlan, and, or, not, parentheses
    #[arg(long, value_name = "EXPRESSION")]
    pub filter: Option<String>,
    /// Maximum number of bytes kept of each packet (0: all)
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = 0,
        value_parser = base::units::whole::<u32>(0..=u64::from(u32::MAX))
    )]
    pub snaplen: u32,
    /// Truncate each packet after its headers of this layer
    #[arg(long, value_enum)]
    pub slice: Option<Layer>,
    /// Begin a new file at every multiple of this span; files are named OUT-00001, OUT-00002, …
    #[arg(long, value_name = "SPAN", value_parser = span)]
    pub split_time: Option<Duration>,
    /// Begin a new file before this size would be exceeded; RAW files are padded to exactly this size
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub split_size: Option<u64>,
    /// Begin a new file after this many packets
    #[arg(long, value_name = "N", value_parser = base::units::whole::<u64>(1..=u64::MAX))]
    pub split_packets: Option<u64>,
    /// Whether the names of the files of a split contain a number or a time
    #[arg(long, value_enum, default_value_t = Naming::Number)]
    pub split_names: Naming,
    /// Sort out-of-order packets of an input by time, with a buffer of at most SIZE
    #[arg(long, value_name = "SIZE", value_parser = size, num_args = 0..=1, require_equals = true,
          default_missing_value = "256MiB")]
    pub sort: Option<u64>,
    /// Anonymise addresses with their prefixes preserved (Crypto-PAn), and remove payloads
    #[arg(long, alias = "anonymize", requires = "key_file")]
    pub anonymise: bool,
    /// Key of --anonymise: 64 hexadecimal digits or 32 bytes, in a file that only its owner can read
    #[arg(long, value_name = "FILE", requires = "anonymise")]
    pub key_file: Option<PathBuf>,
    /// Write a new key to this file, which must not exist, and convert nothing
    #[arg(long, value_name = "FILE", exclusive = true)]
    pub new_key: Option<PathBuf>,
    /// Treatment of MAC addresses by --anonymise
    #[arg(long, value_enum, default_value_t = MacRule::All, requires = "anonymise")]
    pub macs: MacRule,
    /// Keep the payloads of TCP, UDP and ICMP echo, even if they contain addresses
    #[arg(long, requires = "anonymise")]
    pub keep_payload: bool,
    /// Replace OUT if it exists
    #[arg(long)]
    pub force: bool,
    /// Print the report as JSON, on standard output (standard error with -w -)
    #[arg(long)]
    pub json: bool,
    /// Print errors only
    #[arg(long, short)]
    pub quiet: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// pcap with nanoseconds
    Pcap,
    /// pcap with microseconds
    PcapUs,
    /// pcapng: contains interfaces, directions and numbers of lost packets
    Pcapng,
    /// HPCAP's RAW
    Raw,
}

impl OutputFormat {
    /// The format of the conversion.
    pub fn format(self) -> Format {
        match self {
            Self::Pcap => Format::Pcap,
            Self::PcapUs => Format::PcapMicros,
            Self::Pcapng => Format::PcapNg,
            Self::Raw => Format::Raw,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Layer {
    /// Link header, tags and labels
    L2,
    /// Link and network headers
    L3,
    /// Link, network and transport headers
    L4,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MacRule {
    /// Anonymise all 48 bits
    All,
    /// Keep the vendor part (OUI), and anonymise the other 24 bits
    Vendor,
    /// Keep MAC addresses unchanged
    Keep,
}

/// Runs the verb. The outcome is `No` (exit status 1) if no packet was written, an input is damaged, or the conversion
/// was interrupted.
pub fn run(args: &ConvertArgs) -> Result<Outcome, Failure> {
    if let Some(path) = &args.new_key {
        keys::create(path)?;
        sys::say!("netgrain: {} is a new key; anyone who has it can reverse the anonymisation", path.display());
        return Ok(Outcome::Yes);
    }
    let Some(out) = &args.write else { return Err(Failure::Said("name the output with -w".into())) };
    crate::output::capture_format::unpacked(out)?;
    let plan = plan(args, out)?;
    let mut targets = Targets::new(out, !plan.split.is_none(), args.split_names, args.force)?;
    let inputs = args.inputs.iter().map(|path| input(path, args.read_raw)).collect::<Result<Vec<_>, _>>()?;
    let done = convert::convert(inputs, &plan, &mut targets);
    let report = match done {
        Ok(report) => report,
        Err(convert::Error::Output(e)) if targets.is_stdout() => return Err(e.into()),
        Err(e) => return Err(Failure::Said(targets.with_path(&e))),
    };
    print(args, &plan, &report, &targets)?;
    Ok(Outcome::of(report.written > 0 && report.damaged_inputs.is_empty() && !report.stopped))
}

fn plan(args: &ConvertArgs, out: &Path) -> Result<Plan, Failure> {
    let (now, zone) = (sys::clock::realtime(), &args.tz.zone);
    interval::has_anchor(args.from, args.to)?;
    let from = args.from.map(|moment| zone.at(moment, now, None)).transpose()?;
    let to = args.to.map(|moment| zone.at(moment, now, from)).transpose()?;
    let (first, last) = (from.unwrap_or(Timestamp::ZERO), to.unwrap_or(Timestamp::MAX));
    interval::in_order(first, last, args.to, zone)?;
    if let (true, Some(hint)) = (from.is_some(), interval::empty_hint(first, last)) {
        sys::say!("netgrain: {hint}");
    }
    let anonymise = match &args.key_file {
        Some(path) => Some(Anonymiser {
            macs: match args.macs {
                MacRule::All => Macs::All,
                MacRule::Vendor => Macs::Vendor,
                MacRule::Keep => Macs::Keep,
            },
            keep_payload: args.keep_payload,
            ..Anonymiser::new(keys::read(path)?)
        }),
        None => None,
    };
    Ok(Plan {
        format: args.format.map_or_else(|| Format::of_path(out), OutputFormat::format),
        from: from.unwrap_or(Timestamp::ZERO),
        to: to.unwrap_or(Timestamp::MAX),
        filter: args
            .filter
            .as_deref()
            .map(Filter::parse)
            .transpose()
            .map_err(|e| Failure::filter(&e))?
            .unwrap_or_default(),
        snaplen: args.snaplen,
        slice: args.slice.map(|layer| match layer {
            Layer::L2 => Slice::L2,
            Layer::L3 => Slice::L3,
            Layer::L4 => Slice::L4,
        }),
        split: Split { every: args.split_time, bytes: args.split_size, packets: args.split_packets },
        sort: args.sort.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
        duplicates: None,
        anonymise,
        stop: Some(signals::stop_flag()),
    })
}

/// Opens an input and detects its format, unless it is RAW.
pub fn input(path: &Path, raw: bool) -> Result<Input<open::Bytes>, Failure> {
    let name = if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() };
    let source = open::open(path).map_err(|e| Failure::Said(format!("{name}: {}", sys::advice::unreadable(&e))))?;
    let input = if raw { Input::open_as(&name, source, pcap::Format::Raw) } else { Input::open(&name, source) };
    input.map_err(|e| Failure::Said(format!("{name}: {e}")))
}

/// Prints the summary and the warnings on standard error. Prints the JSON report on standard output, or on standard
/// error if the packets are written to standard output.
fn print(args: &ConvertArgs, plan: &Plan, report: &Report, targets: &Targets) -> Result<(), Failure> {
    if args.json {
        let object = object(plan, report, targets);
        if targets.is_stdout() { sys::say!("{}", versioned(object)) } else { json(&object)? }
    }
    if args.quiet || args.json {
        return Ok(());
    }
    let left = format!(
        "{} outside of the interval, {} did not match",
        show_count(report.outside),
        show_count(report.filtered)
    );
    if report.files == 0 {
        sys::say!(
            "netgrain: nothing found: 0 of {} packets, {left}; {} is not written",
            show_count(report.read),
            targets.name()
        );
    } else {
        sys::say!(
            "netgrain: {} of {} packets into {} of {} ({}, {}): {left}",
            show_count(report.written),
            show_count(report.read),
            plural(report.files, "file", "files"),
            targets.name(),
            plan.format,
            show_bytes(report.bytes),
        );
    }
    for warning in report.warnings(plan.format) {
        sys::say!("netgrain: {warning}");
    }
    if report.stopped {
        sys::say!("netgrain: interrupted; the packets written so far are complete");
    }
    Ok(())
}

fn object(plan: &Plan, report: &Report, targets: &Targets) -> serde_json::Value {
    let (kept, anonymised) = (&report.format_losses, &report.anonymised);
    serde_json::json!({
        "format": plan.format.to_string(),
        "read": report.read,
        "written": report.written,
        "outside": report.outside,
        "filtered": report.filtered,
        "cut": report.cut,
        "files": report.files,
        "bytes": report.bytes,
        "unsupported": report.unknown_link_types.iter().map(|(link_type, packets)| serde_json::json!({
            "link_type": link_type, "packets": packets,
        })).collect::<Vec<_>>(),
        "out_of_order": report.out_of_order,
        "late": report.late,
        "not_kept": {
            "nanos": kept.without_nanos,
            "clamped": kept.clamped,
            "unstamped": kept.unstamped,
            "wire_raised": kept.wire_raised,
            "direction": kept.without_direction,
            "drops": kept.drops,
            "interfaces": kept.interfaces,
            "fcs": kept.without_fcs,
            "over_long": kept.over_long,
            "wire_len": kept.wire_len,
        },
        "anonymised": {
            "packets": anonymised.packets,
            "payload": anonymised.payload,
            "unknown": anonymised.unknown,
            "options": anonymised.options,
        },
        "broken": report.damaged_inputs.iter().map(|b| serde_json::json!({
            "input": b.input, "offset": b.offset, "reason": b.reason,
        })).collect::<Vec<_>>(),
        "stopped": report.stopped,
        "outputs": targets.published(),
    })
}

fn size(text: &str) -> Result<u64, ValueError> {
    match units::parse_bytes(text)? {
        0 => Err(ValueError::new(format!(
            "{text} is not a size for this flag: write a size greater than 0, such as 100MB"
        ))),
        bytes => Ok(bytes),
    }
}

fn span(text: &str) -> Result<Duration, ValueError> {
    match units::parse_span(text)? {
        Duration::ZERO => Err(ValueError::new(format!(
            "{text} is not a time span for this flag: write a span longer than 0, such as 1min"
        ))),
        span => Ok(span),
    }
}
