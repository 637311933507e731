//! `netgrain packets`: finds packets in a store or in capture files, and prints them as lines or JSON, counts them, or
//! writes them as a capture with the numbers of lost packets.

pub mod background_writer;
mod capture_file;
mod explain;
mod frame;
pub mod inventory;
mod output;
mod query;
pub mod target;

use crate::flows;
use crate::interval::Interval;
use crate::outcome::{Failure, Outcome};
use crate::overwrite::OverwriteArgs;
use crate::signals;
use crate::style::ColorArgs;
use ::query::{Batch, FlowPackets, FoundPacket, Origin, QuerySource, Results};
use base::units::show_count;
use clap::{Args, ValueEnum};
use explain::Clock;
use output::PacketOutput;
use query::PacketQuery;
use std::path::{Path, PathBuf};
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
    /// Only packets that match: host net port proto vlan tcp udp less …, and or not, parentheses [default: all]
    #[arg(value_name = "FILTER")]
    pub words: Vec<String>,
    /// FILTER after --, where no word is taken for a file
    #[arg(value_name = "FILTER", last = true)]
    pub filter: Vec<String>,
    /// Folder of the store
    #[arg(long, value_name = "DIR", required_unless_present = "read", conflicts_with = "read", value_parser = crate::values::folder)]
    pub store: Option<PathBuf>,
    /// Read captures (pcap, pcapng, RAW) or their indexes instead of a store; words after it that are files are read
    /// too
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
    #[arg(long, value_name = "ID", value_parser = crate::flows::id, conflicts_with_all = ["read", "follow"])]
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
    /// Print the cost of the query: files, blocks and bytes considered, skipped and read, and the time
    #[arg(long)]
    pub explain: bool,
    /// Do not read the ring of a running recorder
    #[arg(long)]
    pub no_live: bool,
    #[command(flatten)]
    pub color: ColorArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CaptureFormat {
    /// With interfaces, loss counters and the query
    Pcapng,
    /// Nanosecond pcap: packets only, of one link type
    Pcap,
}

impl CaptureFormat {
    /// The format of a written file: as given, otherwise by the extension; all verbs use the same rule.
    pub fn of(wanted: Option<Self>, path: &Path) -> Result<Self, Failure> {
        unpacked(path)?;
        match (wanted, convert::Format::of_path(path)) {
            (Some(format), _) => Ok(format),
            (None, convert::Format::Pcap | convert::Format::PcapMicros) => Ok(Self::Pcap),
            (None, convert::Format::PcapNg) => Ok(Self::Pcapng),
            (None, convert::Format::Raw) => Err(Failure::Said(format!(
                "{}: RAW is written by netgrain convert alone: name a .pcapng or .pcap, or say --format",
                path.display()
            ))),
        }
    }
}

/// Refuses the extension of a compressed file.
pub fn unpacked(path: &Path) -> Result<(), Failure> {
    match convert::packer_of(path) {
        None => Ok(()),
        Some(packer) => Err(Failure::Said(format!(
            "{}: what is written is not packed: leave the ending out, or say -w - | {packer} > {}",
            path.display(),
            path.display()
        ))),
    }
}

/// Runs the verb. `No` if nothing was found, or if a part could not be read.
pub fn run(args: &PacketsArgs) -> Result<Outcome, Failure> {
    let Some(id) = args.flow else { return run_among(args, None) };
    let Some(members) = flows::members_of(id, args)? else { return Ok(Outcome::No) };
    run_among(args, Some(members))
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
                flows::tunnel_hint::remark(store, &asked.filter, (asked.from, asked.to), &args.interface)
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
