//! `netgrain packets`: finds packets in a store or in capture files, and prints them as lines or JSON, counts them, or
//! writes them as a capture with the numbers of lost packets.

mod capture_file;
mod explain;
mod frame;
mod output;
mod query;

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
use output::PacketOutput;
use query::PacketQuery;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

#[derive(Args)]
#[command(
    override_usage = "netgrain packets --store <DIR> [OPTIONS] [FILTER]\n       netgrain packets -r <FILE>... [OPTIONS] [FILTER]",
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
    /// Which packets: host net port proto vlan tcp udp less …, and or not, parentheses [default: all]
    #[arg(value_name = "FILTER")]
    pub words: Vec<String>,
    /// The same behind --, where no word is taken for a file
    #[arg(value_name = "FILTER", last = true)]
    pub filter: Vec<String>,
    /// Folder of the store
    #[arg(long, value_name = "DIR", required_unless_present = "read", conflicts_with = "read", value_parser = crate::values::folder)]
    pub store: Option<PathBuf>,
    /// Captures of anyone instead (pcap, pcapng, RAW), or the indexes of them; also the words behind it that are files
    #[arg(short = 'r', long, value_name = "FILE")]
    pub read: Vec<PathBuf>,
    #[command(flatten)]
    pub when: Interval,
    /// Interface, again for several [default: all that the store has]
    #[arg(short = 'i', long, value_name = "IFACE", value_delimiter = ',')]
    pub interface: Vec<String>,
    /// Write a capture to a file, or to standard output with -
    #[arg(short = 'w', long, value_name = "FILE", conflicts_with = "count")]
    pub write: Option<PathBuf>,
    /// Its format [default: as FILE ends: .pcap, .pcapng; otherwise pcapng]
    #[arg(long, value_enum, requires = "write")]
    pub format: Option<CaptureFormat>,
    #[command(flatten)]
    pub overwrite: OverwriteArgs,
    /// Only packets of this flow, by the id that `netgrain flows` shows
    #[arg(long, value_name = "ID", value_parser = crate::flow_records::query::id, conflicts_with_all = ["read", "follow"])]
    pub flow: Option<u64>,
    /// Only how many packets and bytes
    #[arg(long)]
    pub count: bool,
    /// One JSON object per packet; of --count, -w and --explain one object
    #[arg(long)]
    pub json: bool,
    /// Go on with packets as they arrive [default of --from: now]
    #[arg(long, conflicts_with_all = ["read", "no_live"])]
    pub follow: bool,
    /// Stop after this many packets
    #[arg(long, value_name = "N", value_parser = crate::values::some)]
    pub limit: Option<u64>,
    /// Say what the answer cost: files, blocks and bytes considered, skipped and read, and the time
    #[arg(long)]
    pub explain: bool,
    /// Leave out the ring of a running recorder
    #[arg(long)]
    pub no_live: bool,
    #[command(flatten)]
    pub color: ColorArgs,
}

/// Runs the verb. `No` if nothing was found, or if a part could not be read.
pub fn run(args: &PacketsArgs) -> Result<Outcome, Failure> {
    let (Some(id), Some(store)) = (args.flow, &args.store) else { return run_among(args, None) };
    match flow_records::packets::of_flow(id, store, &args.when, &args.interface)? {
        Some(members) => run_among(args, Some(members)),
        None => Ok(Outcome::No),
    }
}

/// As [`run`], restricted to the packets of the given flows, if any.
pub fn run_among(args: &PacketsArgs, mut members: Option<FlowPackets>) -> Result<Outcome, Failure> {
    let mut asked = PacketQuery::of(args, crate::interval::now())?;
    let of_flows = members.is_some();
    if let Some(members) = &members {
        asked.narrow(members)?;
    }
    let stop = signals::stop_flag();
    let mut clock = Clock::start();
    // Lowered before the writing thread starts, which inherits the priority.
    if let QuerySource::Store(_) = asked.place
        && let Some(remark) = ::query::lower_priority(&asked.place, ::query::Background::Batch)
    {
        sys::say!("netgrain: {remark}");
    }
    let mut given = PacketOutput::begin(args, &asked)?;
    let mut answer = match ::query::run(&asked.place, asked.question(Arc::clone(&stop))) {
        Ok(answer) => answer,
        Err(e) => {
            given.abandon();
            return Err(asked.refused(&e));
        }
    };
    let ended = give(&mut answer, args.limit, members.as_mut(), &mut given, &mut clock);
    clock.stop();
    let stopped = stop.load(Ordering::Relaxed);
    answer.warnings().iter().for_each(|remark| sys::say!("netgrain: {remark}"));
    // The packets found before the error are written nevertheless. If writing fails too, the first error is the cause.
    let finished = given.finish(&answer, stopped, ended.is_ok());
    if ended.is_ok() || matches!(finished, Err(Failure::ClosedPipe)) {
        finished?;
    }
    if args.explain {
        explain::print(&answer.cost(), &clock, given.packets(), args.json);
    }
    ended?;
    if let Some(members) = members.filter(|m| !stopped && asked.is_all_of(m) && m.packets() != given.packets()) {
        let (reported, there) = (show_count(members.packets()), show_count(given.packets()));
        let place = if args.store.is_some() { "the store gives" } else { "the captures give" };
        sys::say!("netgrain: the flow records tell of {reported} packets, {place} {there}");
    }
    if given.packets() == 0 && !stopped {
        sys::say!("netgrain: nothing found: {}", asked.no_match_advice());
        if let (QuerySource::Store(store), false) = (&asked.place, of_flows)
            && let Some(remark) =
                flow_records::tunnel_hint::remark(store, &asked.filter, (asked.from, asked.to), &args.interface)
        {
            sys::say!("netgrain: {remark}");
        }
    }
    Ok(Outcome::of(given.packets() > 0 && answer.is_complete()))
}

/// Writes the packets, in batches of contiguous records if no packet has to be selected.
fn give(
    answer: &mut Results,
    limit: Option<u64>,
    mut members: Option<&mut FlowPackets>,
    given: &mut PacketOutput,
    clock: &mut Clock,
) -> Result<(), Failure> {
    let mut origins = answer.origins().to_vec();
    if limit.is_some() || members.is_some() {
        while limit.is_none_or(|limit| given.packets() < limit) {
            let Some(found) = answer.next().map_err(Failure::say)? else { break };
            let mut take = |origins: &[Origin], found: &FoundPacket<'_>| {
                if members.as_mut().is_some_and(|m| !m.contains(found, &origins[found.origin])) {
                    return Ok(());
                }
                clock.packet();
                given.take(origins, found)
            };
            if found.origin < origins.len() {
                take(&origins, &found)?;
                continue;
            }
            // The result lends either a packet or the list of origins, so the first packet of each origin is copied.
            let (data, found) = (found.data.to_vec(), FoundPacket { data: &[], ..found });
            origins = answer.origins().to_vec();
            take(&origins, &FoundPacket { data: &data, ..found })?;
        }
        return Ok(());
    }
    while let Some(batch) = answer.next_batch().map_err(Failure::say)? {
        clock.packet();
        if batch.origin < origins.len() {
            given.take_all(&origins, &batch)?;
            continue;
        }
        let (records, batch) = (batch.records.to_vec(), Batch { records: &[], ..batch });
        origins = answer.origins().to_vec();
        given.take_all(&origins, &Batch { records: &records, ..batch })?;
    }
    Ok(())
}
