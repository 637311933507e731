//! `netgrain flows`: selects flow records by time and filter from a store, IPFIX files or the network; prints them as
//! lines, JSON or CSV, groups and ranks them, or prints their packets.

mod listing;
mod live;
mod parquet;
mod query;
mod ranking;
mod to_packets;

use crate::flow_records::query::FlowQuery;
use crate::flow_records::source::{Records, Step};
use crate::interval::{self, Interval};
use crate::outcome::{Failure, Outcome};
use crate::output::background_writer::BackgroundWriter;
use crate::output::target::Target;
use crate::overwrite::{self, OverwriteArgs};
use crate::signals;
use crate::style::{ColorArgs, WidthArgs, plural};
use aggregate::{Field, Measure, Plan};
use base::units::{show_bytes, show_count, show_si};
use clap::Args;
use export::text;
use flow::Record;
use listing::Listing;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Instant;

#[derive(Args)]
#[command(
    override_usage = "netgrain flows --store <DIR> [OPTIONS] [FILTER]\n       netgrain flows -r <FILE>... [OPTIONS] \
     [FILTER]\n       netgrain flows --live --from-multicast <GROUP:PORT> [OPTIONS] [FILTER]",
    after_help = format!("Examples:
  netgrain flows --store /data --from -10min 'host 10.1.2.3 and port 53'
  netgrain flows --store /data --around 10:42 --top 10 --by bytes
  netgrain flows --store /data --from -1h --group src/24,dport --by flows --top 20
  netgrain flows --store /data --from 10:40 --to +5min --group host --by retransmitted --json
  netgrain flows --store /data --around 10:42 --top 1 --packets -w top.pcapng
  netgrain flows --store /data --live net 10.0.0.0/8
  netgrain flows --store /data --live --group host --top 20 --every 30s
  netgrain flows -r monday.pcap tuesday.pcapng.gz --top 10 'port 443'
  netgrain flows --live --from-multicast 239.128.0.0:4739 --multicast-interface eth0

A filter applies to the whole flow record, inside of any tunnel: src is the initiator (the sender of the first \
    packet), dst is the responder, as for --group. In addition to the primitives for packets there are bytes packets \
    bps pps bpp flags (of both directions; after src or dst, of the packets that this host sent) and duration rtt \
    state end of the flow: 'src host 10.1.2.3 and bytes > 1M and duration > 10s and state reset'.

{}", interval::HELP)
)]
pub struct FlowsArgs {
    /// Filter: only matching flows, with host, net, port, proto, vlan, tcp, udp, bytes, duration, state …, and, or,
    /// not, parentheses; after `--`, words are never interpreted as file names [default: all flows]
    #[arg(value_name = "FILTER")]
    pub words: Vec<String>,
    /// FILTER after `--`; words after `--` are never interpreted as file names
    #[arg(value_name = "FILTER", last = true, hide = true)]
    pub filter: Vec<String>,
    /// Directory of the store
    #[arg(
        long,
        value_name = "DIR",
        required_unless_present_any = ["read", "from_multicast"],
        conflicts_with_all = ["read", "from_multicast"],
        value_parser = crate::values::directory
    )]
    pub store: Option<PathBuf>,
    /// Read files instead of a store: captures (as for run -r; - for standard input), from which the records are
    /// computed, or files of records: IPFIX (RFC 5655) or Parquet of netgrain; following words that are names of
    /// existing files are read too
    #[arg(short = 'r', long, value_name = "FILE")]
    pub read: Vec<PathBuf>,
    #[command(flatten)]
    pub when: Interval,
    /// Interface; repeat for several [default: all interfaces of the store]
    #[arg(short = 'i', long, value_name = "IFACE", value_delimiter = ',')]
    pub interface: Vec<String>,
    /// Print only the N greatest flows, or with --group the N greatest groups
    #[arg(long, value_name = "N", value_parser = base::units::whole::<u32>(1..=u64::from(u32::MAX)))]
    pub top: Option<u32>,
    /// Measure of the ranking: bytes packets flows records sent received duration retransmitted rtt syn … [default:
    /// bytes]
    #[arg(long, value_name = "MEASURE", value_parser = Measure::parse)]
    pub by: Option<Measure>,
    /// Sum the records by these fields: src (the initiator) dst host (also src/24, src/24/48) sport dport port proto
    /// vlan mpls tunnel interface end state flow
    #[arg(long, value_name = "FIELDS", value_delimiter = ',', value_parser = Field::parse)]
    pub group: Vec<Field>,
    /// Measures to print for each group, or (with --json or --csv) fields to print of each record
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub fields: Vec<String>,
    /// Stop after this many records
    #[arg(long, value_name = "N", value_parser = crate::values::count, conflicts_with_all = ["top", "group", "by"])]
    pub limit: Option<u64>,
    /// Print one JSON object per record or group
    #[arg(long, conflicts_with_all = ["csv", "parquet"])]
    pub json: bool,
    /// Print CSV with a header
    #[arg(long, conflicts_with = "parquet")]
    pub csv: bool,
    /// Print text lines in the format of M3OMon (legacy), one line per direction of a record
    #[arg(
        long,
        value_enum,
        value_name = "FORMAT",
        conflicts_with_all = ["json", "csv", "parquet", "top", "group", "by", "fields", "packets"]
    )]
    pub format: Option<LegacyFormat>,
    /// With --format legacy: write the first payload bytes of the flows to this file; each printed line contains the
    /// offset of its bytes in the file
    #[arg(long, value_name = "FILE", requires = "format")]
    pub payload: Option<PathBuf>,
    /// Write the records with all their fields, or the groups, to a Parquet file
    #[arg(long, value_name = "FILE")]
    pub parquet: Option<PathBuf>,
    /// Continue with new records until interrupted [default of --from: now]; with --top or --group print a ranking
    /// after each period
    #[arg(long, conflicts_with_all = ["read", "parquet", "packets"])]
    pub live: bool,
    /// With --live and --top or --group: period of the rankings; a ranking includes the records that arrived in its
    /// period [default: 10s]
    #[arg(long, value_name = "SPAN", requires = "live", value_parser = live::every)]
    pub every: Option<std::time::Duration>,
    /// With --live: longest time from the last packet of a flow to its record [default: computed from the timeouts of
    /// the run that writes the store; at least 90s]
    #[arg(long, value_name = "SPAN", requires = "live", value_parser = base::units::parse_span)]
    pub max_lateness: Option<std::time::Duration>,
    /// With --live: read the records that another machine sends to this multicast group, or to this UDP port of this
    /// machine
    #[arg(long, value_name = "GROUP:PORT", requires = "live", value_parser = crate::values::group_and_port)]
    pub from_multicast: Option<SocketAddr>,
    /// With --from-multicast: the interface of this machine that receives the packets of the group [default: the
    /// interface of the kernel's route]
    #[arg(long, value_name = "IFACE", requires = "from_multicast")]
    pub multicast_interface: Option<String>,
    /// Print the packets of these flows instead of the records: from the store, or from the captures of -r
    #[arg(long, conflicts_with_all = ["csv", "parquet", "fields", "limit"])]
    pub packets: bool,
    /// With --packets: print only the number of packets and bytes
    #[arg(long, requires = "packets", conflicts_with = "write")]
    pub count: bool,
    /// With --packets: write a capture to a file, or to standard output with -
    #[arg(short = 'w', long, value_name = "FILE", requires = "packets")]
    pub write: Option<PathBuf>,
    #[command(flatten)]
    pub overwrite: OverwriteArgs,
    /// Print the cost of the query
    #[arg(long)]
    pub explain: bool,
    #[command(flatten)]
    pub width: WidthArgs,
    #[command(flatten)]
    pub color: ColorArgs,
}

impl FlowsArgs {
    /// The layout and colours of a table of groups.
    fn table_style(&self) -> ranking::TableStyle {
        ranking::TableStyle {
            room: self.width.available_width(),
            paint: self.color.paint(),
            zone: self.when.tz.zone.clone(),
        }
    }
}

/// A text format that the tools of M3OMon read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LegacyFormat {
    /// M3OMon's lines (docs/reference/flow-records.md, docs/reference/time-series.md)
    Legacy,
}

/// The measures that are printed for a group if the user names none.
const SHOWN: [Measure; 3] = [Measure::Flows, Measure::Packets, Measure::Bytes];

/// The group fields of a ranking of single flows: the flow ID and the flow key.
const FLOW: [&str; 7] = ["flow", "interface", "proto", "src", "sport", "dst", "dport"];

/// Runs the verb. The outcome is `No` (exit status 1) if nothing was found, or if a part of the data could not be read.
pub fn run(args: &FlowsArgs) -> Result<Outcome, Failure> {
    let flow_query = query::query(args, interval::now())?;
    let protected = parquet::protected(&flow_query, args.overwrite.force);
    if args.payload.as_deref().is_some_and(overwrite::is_stdout) {
        return Err(Failure::Said(
            "--payload cannot be -, because standard output gets the lines of the records; name a file".into(),
        ));
    }
    for path in [&args.write, &args.parquet, &args.payload].into_iter().flatten() {
        protected.check(path)?;
    }
    if let Some(store) = flow_query.store()
        && let Some(remark) =
            ::query::lower_priority(&::query::QuerySource::Store(store.to_owned()), ::query::Background::Batch)
    {
        sys::say!("netgrain: {remark}");
    }
    if args.packets {
        return to_packets::packets(args, &flow_query);
    }
    let begun = Instant::now();
    let mut records = Records::open(&flow_query, signals::stop_flag())?;
    let found = match (&flow_query.plan, &args.parquet) {
        (Some(plan), _) if args.live => live::rank(args, plan, &mut records)?,
        (Some(plan), _) => rank(args, &flow_query, plan, &mut records)?,
        (None, Some(path)) => parquet::records(path, protected, &flow_query, &mut records)?,
        (None, None) => list(args, &flow_query, &mut records)?,
    };
    let warnings = records.warnings();
    warnings.iter().for_each(|warning| sys::say!("netgrain: {warning}"));
    if args.explain {
        explain(&records, found, begun.elapsed().as_secs_f64(), args.json);
    }
    if found == 0 && !records.is_stopped() {
        let among =
            if records.is_complete() { "nothing found" } else { "nothing found in the data that could be read" };
        sys::say!("netgrain: {among}: {}", flow_query.no_match_advice());
    }
    Ok(Outcome::of(found > 0 && records.is_complete()))
}

/// Prints the records; returns their number.
fn list(args: &FlowsArgs, flow_query: &FlowQuery, records: &mut Records) -> Result<u64, Failure> {
    if args.format == Some(LegacyFormat::Legacy) {
        return legacy(args, flow_query, records);
    }
    let out = BackgroundWriter::new(io::stdout());
    let form = match (args.json, args.csv) {
        (true, _) => Some(text::Format::Ndjson),
        (_, true) => Some(text::Format::Csv),
        _ => None,
    };
    let Some(form) = form else { return lines(args, flow_query, records, out) };
    let fields = match &args.fields[..] {
        [] => None,
        some => Some(text::choose::<Record>(&some.join(",")).map_err(|e| Failure::Said(format!("--fields: {e}")))?),
    };
    let mut out = text::Writer::new(out, form, fields)?;
    let (mut found, mut named) = (0, 0);
    while flow_query.limit.is_none_or(|limit| found < limit) {
        let record = match records.next()? {
            Step::Idle => continue,
            Step::End => break,
            Step::Record(record) => record,
        };
        // Names of interfaces arrive between records, from files and from exporters, so the names that arrived since
        // the previous record are passed on before each record.
        for (number, name) in records.names().all().iter().skip(named) {
            out.name_interface(*number, name);
        }
        named = records.names().all().len();
        out.write(&record)?;
        found += 1;
    }
    out.into_inner().finish()?;
    Ok(found)
}

/// Prints the records in the format of M3OMon.
fn legacy(args: &FlowsArgs, flow_query: &FlowQuery, records: &mut Records) -> Result<u64, Failure> {
    let Some(path) = &args.payload else { return legacy_lines(flow_query, records, io::sink()) };
    let (target, payload) = Target::open(path, args.live, parquet::protected(flow_query, args.overwrite.force))?;
    let found = legacy_lines(flow_query, records, io::BufWriter::new(payload));
    match found {
        Ok(1..) => target.publish()?,
        _ => _ = target.remove(),
    }
    found
}

/// Prints the records in the format of M3OMon, and writes the first bytes of the flows.
fn legacy_lines(flow_query: &FlowQuery, records: &mut Records, payload: impl Write) -> Result<u64, Failure> {
    let mut out = text::legacy::LegacyFlows::new(BackgroundWriter::new(io::stdout()), payload);
    let mut found = 0;
    while flow_query.limit.is_none_or(|limit| found < limit) {
        match records.next()? {
            Step::Idle => {}
            Step::End => break,
            Step::Record(record) => {
                out.write(&record)?;
                found += 1;
            }
        }
    }
    let (lines, mut payload) = out.into_inner();
    payload.flush()?;
    lines.finish()?;
    Ok(found)
}

fn lines(
    args: &FlowsArgs,
    flow_query: &FlowQuery,
    records: &mut Records,
    mut out: BackgroundWriter,
) -> Result<u64, Failure> {
    let mut listing = Listing::new(args.width.available_width(), args.color.paint(), &flow_query.zone);
    let (mut found, mut packets, mut bytes) = (0u64, 0u64, 0u64);
    let mut line = Vec::new();
    while flow_query.limit.is_none_or(|limit| found < limit) {
        let record = match records.next()? {
            Step::Idle => continue,
            Step::End => break,
            Step::Record(record) => record,
        };
        line.clear();
        if found == 0 {
            writeln!(line, "{}", listing.header(records.names()))?;
        }
        writeln!(line, "{}", listing.line(&record, records.names()))?;
        out.write_all(&line)?;
        found += 1;
        packets = packets.saturating_add(record.packets());
        bytes = bytes.saturating_add(record.bytes());
    }
    out.finish()?;
    if found > 0 {
        let (found, packets) = (plural(found, "record", "records"), plural(packets, "packet", "packets"));
        sys::say!("netgrain: {found} of {packets}, {} on the wire", show_bytes(bytes));
        listing.dropped().iter().for_each(|dropped| sys::say!("netgrain: {dropped}"));
    }
    Ok(found)
}

/// Prints groups and their sums; returns the number of records.
fn rank(args: &FlowsArgs, flow_query: &FlowQuery, plan: &Plan, records: &mut Records) -> Result<u64, Failure> {
    let report = records.grouped(plan)?;
    if let Some(path) = &args.parquet {
        parquet::groups(path, parquet::protected(flow_query, args.overwrite.force), &report, records.names())?;
        return Ok(report.records);
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut dropped = None;
    if report.records > 0 {
        match (args.json, args.csv) {
            (true, _) => ranking::objects(&report, records.names(), None, &mut out)?,
            (_, true) => {
                ranking::csv_header(&report, false, &mut out)?;
                ranking::csv(&report, records.names(), None, &mut out)?;
            }
            _ => dropped = ranking::table(&report, records.names(), &args.table_style(), &mut out)?,
        }
        out.flush()?;
    }
    if report.records > 0 && !args.json && !args.csv {
        sys::say!("netgrain: {}", ranking::summary(&report, &flow_query.zone));
        if args.group.is_empty() {
            sys::say!("netgrain: {}", ranking::advice_to_group());
        }
        dropped.iter().for_each(|dropped| sys::say!("netgrain: {dropped}"));
    }
    Ok(report.records)
}

fn explain(records: &Records, found: u64, seconds: f64, json: bool) {
    let examined = records.examined();
    if json {
        let value = serde_json::json!({ "explain": {
            "records_scanned": examined, "records": found, "seconds": seconds,
        } });
        sys::say!("{}", crate::outcome::versioned(value));
        return;
    }
    let rate = show_si(examined as f64 / seconds.max(1e-9), "records/s");
    sys::say!(
        "records  {:>14} examined    {:>14} found\ntime     {:>14} in total    {rate}",
        show_count(examined),
        show_count(found),
        format!("{:.3} ms", seconds * 1e3)
    );
}
