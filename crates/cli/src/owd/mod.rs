//! `netgrain owd`: evaluates the trains of `netgrain gen` at the receiver: one-way delay, delay variation, loss, order,
//! bandwidth. The packets come from an interface, a store or captures.

pub mod clock;
pub mod clock_watch;
mod document;
mod packet;
mod packet_rows;
mod sessions;
mod source;
pub mod summary;

use crate::interval::Interval;
use crate::outcome::{Failure, Outcome};
use crate::output::target::ProtectedPaths;
use crate::overwrite::OverwriteArgs;
use crate::style::plural;
use base::units;
use clap::Args;
use clock::ClockArg;
use packet_rows::PacketRows;
use sessions::Sessions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Args)]
#[command(
    override_usage = "netgrain owd -i <IFACE> [OPTIONS] [FILTER]\n       netgrain owd --store <DIR> [OPTIONS] \
     [FILTER]\n       netgrain owd -r <FILE>... [OPTIONS] [FILTER]",
    after_help = format!("Examples:
  netgrain owd -i eth1 --duration 60s          receive trains and report at the end
  netgrain owd --store /data --from -10min -i eth1 --json
  netgrain owd -r received.pcap --clock 20us   the receiver's clock was synchronised within 20 µs
  netgrain owd --store /data -i eth1 --parquet packets.parquet
  netgrain owd -r received.pcap --csv udp port 20862 > packets.csv

{}", crate::interval::HELP)
)]
pub struct OwdArgs {
    /// Filter: only matching packets [default: all packets with the payload of a train]; after `--`, words are never
    /// interpreted as file names
    #[arg(value_name = "FILTER")]
    pub words: Vec<String>,
    /// FILTER after `--`; words after `--` are never interpreted as file names
    #[arg(value_name = "FILTER", last = true, hide = true)]
    pub filter: Vec<String>,
    /// Directory of the store
    #[arg(long, value_name = "DIR", conflicts_with = "read", value_parser = crate::values::directory)]
    pub store: Option<PathBuf>,
    /// Read captures (pcap, pcapng, RAW); following words that are names of existing files are read too
    #[arg(short = 'r', long, value_name = "FILE")]
    pub read: Vec<PathBuf>,
    /// Interface to receive from; with --store, an interface of the store, repeat for several
    #[arg(short = 'i', long, value_name = "IFACE", value_delimiter = ',')]
    pub interface: Vec<String>,
    #[command(flatten)]
    pub when: Interval,
    /// Clock of the receiver: auto, same (also the sender's clock), unknown, or its largest error, such as 20us, if it
    /// was synchronised. auto is the state of this host's clock with -i, otherwise unknown
    #[arg(long, value_name = "CLOCK", default_value = "auto", value_parser = ClockArg::parse)]
    pub clock: ClockArg,
    /// Only packets of this session
    #[arg(long, value_name = "N", value_parser = base::units::whole::<u32>(0..=4_294_967_295))]
    pub session: Option<u32>,
    /// Number of packets that the sender reported; packets lost before the first and after the last arrival then count
    /// too
    #[arg(long, value_name = "N", value_parser = crate::values::positive_count, requires = "session")]
    pub sent: Option<u64>,
    /// With -i: stop after this time
    #[arg(long, value_name = "SPAN", value_parser = units::parse_span, conflicts_with_all = ["store", "read"])]
    pub duration: Option<Duration>,
    /// With -i: stop after this many packets of trains
    #[arg(long, value_name = "N", value_parser = crate::values::positive_count, conflicts_with_all = ["store", "read"])]
    pub packets: Option<u64>,
    /// Print one JSON object per session
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print CSV with a header and one line per packet, instead of the report
    #[arg(long, conflicts_with = "parquet")]
    pub csv: bool,
    /// Also write a Parquet file with one row per packet
    #[arg(long, value_name = "FILE")]
    pub parquet: Option<PathBuf>,
    #[command(flatten)]
    pub overwrite: OverwriteArgs,
}

/// Runs the verb; returns `No` if no packet of a train was found, or if a part of the data could not be read.
pub fn run(args: &OwdArgs) -> Result<Outcome, Failure> {
    let mut sessions = Sessions::new(args.session);
    let is_complete = match &args.parquet {
        Some(path) => with_parquet(args, path, &mut sessions)?,
        None => {
            let mut rows = args.csv.then(PacketRows::csv).transpose()?;
            let is_complete = source::read(args, &mut sessions, &mut rows)?;
            rows.map(PacketRows::finish).transpose()?;
            is_complete
        }
    };
    let notes = sessions.notes();
    notes.iter().for_each(|note| sys::say!("netgrain: {note}"));
    if sessions.is_empty() {
        sys::say!(
            "netgrain: no packet of a train in {}; `netgrain gen train,…` sends trains",
            plural(sessions.packets(), "packet", "packets")
        );
        return Ok(Outcome::No);
    }
    if !args.csv {
        let mut out = std::io::BufWriter::new(std::io::stdout().lock());
        for (key, session) in sessions.all() {
            match args.json {
                true => writeln!(out, "{}", document::of(key, session, args.sent, sessions.clock_steps()))?,
                false => write!(out, "{}", summary::of(key, session, args.sent))?,
            }
        }
        out.flush()?;
    }
    Ok(Outcome::of(is_complete))
}

/// Reads the packets and writes their rows to a Parquet file. Returns false if a part of the packets could not be read.
fn with_parquet(args: &OwdArgs, path: &Path, sessions: &mut Sessions) -> Result<bool, Failure> {
    let protected = ProtectedPaths { store: args.store.as_deref(), files: &args.read, force: args.overwrite.force };
    let mut is_complete = false;
    crate::parquet::write(path, protected, "packets", |out| {
        let mut rows = match PacketRows::parquet(out) {
            Ok(rows) => Some(rows),
            Err(e) => return (Ok(0), Err(e)),
        };
        let read = source::read(args, sessions, &mut rows);
        let written = rows.map_or(Ok(0), PacketRows::finish);
        let read = read.map(|complete| {
            is_complete = complete;
            written.as_ref().copied().unwrap_or(0)
        });
        (read, written.map(|_| ()))
    })?;
    Ok(is_complete)
}
