//! `netgrain packets`: finds packets in a store or in capture files, and prints them as lines or JSON, counts them, or
//! writes them as a capture with the numbers of lost packets.

mod capture_file;
mod explain;
mod frame;
mod output;
mod query;
mod timestamps;

use crate::flow_records;
use crate::interval::Interval;
use crate::outcome::{Failure, Outcome};
use crate::output::capture_format::CaptureFormat;
use crate::overwrite::OverwriteArgs;
use crate::signals;
use crate::style::ColorArgs;
use ::query::{Batch, FlowPackets, FoundPacket, Origin, QuerySource, Results};
use base::units::show_count;
use clap::Args;
use explain::Clock;
use output::{PacketOutput, QueryEnd};
use query::PacketQuery;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

#[derive(Args)]
#[command(
    override_usage = "netgrain packets --store <DIR> [OPTIONS] [FILTER]\n       netgrain packets -r <FILE>... \
     [OPTIONS] [FILTER]",
    after_help = format!("Examples:
  netgrain packets --store /data --from -10min 'host 10.1.2.3 and port 53'
  netgrain packets --store /data --around 10:42 -i eth1 -w out.pcapng
  netgrain packets --store /data --from 2026-11-21T10:40:00+01:00 --to +5min net 10.0.0.0/8 --count
  netgrain packets --store /data --follow -w - tcp | tshark -r -
  netgrain packets -r /archive/*.pcap --explain udp port 53
  netgrain packets --store /data --flow 10096804671777846390 -w flow.pcapng

{}", crate::interval::HELP)
)]
pub struct PacketsArgs {
    /// Filter: only matching packets, with host, net, port, proto, vlan, tcp, udp, less …, and, or, not, parentheses;
    /// after `--`, words are never interpreted as file names [default: all packets]
    #[arg(value_name = "FILTER")]
    pub words: Vec<String>,
    /// FILTER after `--`; words after `--` are never interpreted as file names
    #[arg(value_name = "FILTER", last = true, hide = true)]
    pub filter: Vec<String>,
    /// Directory of the store
    #[arg(
        long,
        value_name = "DIR",
        required_unless_present = "read",
        conflicts_with = "read",
        value_parser = crate::values::directory
    )]
    pub store: Option<PathBuf>,
    /// Read captures (pcap, pcapng, RAW) or their indexes instead of a store; following words that are names of
    /// existing files are read too
    #[arg(short = 'r', long, value_name = "FILE")]
    pub read: Vec<PathBuf>,
    #[command(flatten)]
    pub when: Interval,
    /// Interface; repeat for several [default: all interfaces of the store]
    #[arg(short = 'i', long, value_name = "IFACE", value_delimiter = ',')]
    pub interface: Vec<String>,
    /// Write a capture to a file, or to standard output with -
    #[arg(short = 'w', long, value_name = "FILE", conflicts_with = "count")]
    pub write: Option<PathBuf>,
    /// Format of the capture [default: by the extension of FILE: .pcap, .pcapng; otherwise pcapng]
    #[arg(long, value_enum, requires = "write")]
    pub format: Option<CaptureFormat>,
    #[command(flatten)]
    pub overwrite: OverwriteArgs,
    /// Only packets of the flow with this ID, as `netgrain flows` prints it
    #[arg(
        long,
        value_name = "ID",
        value_parser = crate::flow_records::query::id,
        conflicts_with_all = ["read", "follow"]
    )]
    pub flow: Option<u64>,
    /// Print only the number of packets and bytes
    #[arg(long)]
    pub count: bool,
    /// Print one JSON object per packet; one object for --count, -w and --explain
    #[arg(long)]
    pub json: bool,
    /// Continue with new packets until interrupted [default of --from: now]
    #[arg(long, conflicts_with_all = ["read", "no_live"])]
    pub follow: bool,
    /// Stop after this many packets
    #[arg(long, value_name = "N", value_parser = crate::values::positive_count)]
    pub limit: Option<u64>,
    /// Print the cost of the query: the numbers of files, blocks and bytes that were considered, skipped and read, and
    /// the time
    #[arg(long)]
    pub explain: bool,
    /// Do not read the ring of a running recorder
    #[arg(long)]
    pub no_live: bool,
    #[command(flatten)]
    pub color: ColorArgs,
}

/// Runs the verb; returns `No` if nothing was found, or if a part of the data could not be read.
pub fn run(args: &PacketsArgs) -> Result<Outcome, Failure> {
    let (Some(id), Some(store)) = (args.flow, &args.store) else { return run_for_flows(args, None) };
    match flow_records::packets::of_flow(id, store, &args.when, &args.interface)? {
        Some(flow_packets) => run_for_flows(args, Some(flow_packets)),
        None => Ok(Outcome::No),
    }
}

/// As [`run`], restricted to the packets of the given flows, if any.
pub fn run_for_flows(args: &PacketsArgs, mut flow_packets: Option<FlowPackets>) -> Result<Outcome, Failure> {
    let mut packet_query = PacketQuery::of(args, crate::interval::now())?;
    let of_flows = flow_packets.is_some();
    if let Some(flow_packets) = &flow_packets {
        packet_query.narrow(flow_packets)?;
    }
    let stop = signals::stop_flag();
    let mut clock = Clock::start();
    // The priority is lowered before the writing thread starts, so that the thread inherits it.
    if let QuerySource::Store(_) = packet_query.source
        && let Some(remark) = ::query::lower_priority(&packet_query.source, ::query::Background::Batch)
    {
        sys::say!("netgrain: {remark}");
    }
    let mut output = PacketOutput::begin(args, &packet_query)?;
    let mut engine_query = packet_query.engine_query(Arc::clone(&stop));
    engine_query.with_timestamp_quality = args.explain || output.has_timestamp_quality();
    let mut results = match ::query::run(&packet_query.source, engine_query) {
        Ok(results) => results,
        Err(e) => {
            output.abandon();
            return Err(packet_query.refused(&e));
        }
    };
    let ended = write_packets(&mut results, args.limit, flow_packets.as_mut(), &mut output, &mut clock);
    clock.stop();
    let stopped = stop.load(Ordering::Relaxed);
    results.warnings().iter().for_each(|warning| sys::say!("netgrain: {warning}"));
    // If the query ends with an error, the packets found before it are written. If writing them fails too, the error of
    // the query is reported, because it came first.
    let end = match args.limit {
        Some(limit) if output.packets() >= limit => QueryEnd::Limit,
        _ if stopped => QueryEnd::Stopped,
        _ => QueryEnd::All,
    };
    let finished = output.finish(&results, ended.is_ok().then_some(end));
    if ended.is_ok() || matches!(finished, Err(Failure::ClosedPipe)) {
        finished?;
    }
    if args.explain {
        let quality = (0..results.origins().len())
            .fold(base::TimestampQuality::UNKNOWN, |all, origin| all.and(results.timestamps(origin)));
        explain::print(&results.cost(), &quality, &clock, output.packets(), args.json);
    }
    ended?;
    if let Some(flow_packets) =
        flow_packets.filter(|m| !stopped && packet_query.is_all_of(m) && m.packets() != output.packets())
    {
        let (recorded, found) = (show_count(flow_packets.packets()), show_count(output.packets()));
        let source = if args.store.is_some() { "the store has" } else { "the captures have" };
        sys::say!("netgrain: the flow records count {recorded} packets, but {source} {found}");
    }
    if output.packets() == 0 && !stopped {
        sys::say!("netgrain: nothing found: {}", packet_query.no_match_advice());
        if let (QuerySource::Store(store), false) = (&packet_query.source, of_flows)
            && let Some(remark) = flow_records::tunnel_hint::remark(
                store,
                &packet_query.filter,
                (packet_query.from, packet_query.to),
                &args.interface,
            )
        {
            sys::say!("netgrain: {remark}");
        }
    }
    Ok(Outcome::of(output.packets() > 0 && results.is_complete()))
}

/// Writes the packets, in batches of contiguous records if no packet has to be selected.
fn write_packets(
    results: &mut Results,
    limit: Option<u64>,
    mut flow_packets: Option<&mut FlowPackets>,
    output: &mut PacketOutput,
    clock: &mut Clock,
) -> Result<(), Failure> {
    let mut origins = results.origins().to_vec();
    if limit.is_some() || flow_packets.is_some() {
        while limit.is_none_or(|limit| output.packets() < limit) {
            let Some(found) = results.next().map_err(Failure::say)? else { break };
            let mut take = |origins: &[Origin], found: &FoundPacket<'_>| {
                if flow_packets.as_mut().is_some_and(|m| !m.contains(found, &origins[found.origin])) {
                    return Ok(());
                }
                clock.packet();
                output.take(origins, found)
            };
            if found.origin < origins.len() {
                take(&origins, &found)?;
                continue;
            }
            // The packet borrows from `results`, and so does the list of origins. Both cannot be borrowed at once, so
            // the first packet of each origin is copied.
            let (data, found) = (found.data.to_vec(), FoundPacket { data: &[], ..found });
            origins = results.origins().to_vec();
            take(&origins, &FoundPacket { data: &data, ..found })?;
        }
        return Ok(());
    }
    while let Some(batch) = results.next_batch().map_err(Failure::say)? {
        clock.packet();
        if batch.origin < origins.len() {
            output.take_all(&origins, &batch)?;
            continue;
        }
        let (records, batch) = (batch.records.to_vec(), Batch { records: &[], ..batch });
        origins = results.origins().to_vec();
        output.take_all(&origins, &Batch { records: &records, ..batch })?;
    }
    Ok(())
}
