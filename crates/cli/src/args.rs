//! The command line as one table: parsing, help, man pages and completions come from it.

use base::units;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// Sees a network at every grain.
#[derive(Parser)]
#[command(name = "netgrain", version, about, propagate_version = true, max_term_width = 110)]
pub struct Netgrain {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Watch ports at every grain: packets, flow records and one row each second, stored and exported
    Run(Box<crate::run::RunArgs>),
    /// Record every packet of a port, stamped and accounted for
    Record(Box<RecordArgs>),
    /// Check or print the configuration of `netgrain run`
    Config(crate::config::ConfigArgs),
    /// Read along with a running engine from another process
    Listen(ListenArgs),
    /// Split what a running engine captures among programs that wait for it
    Group(Box<crate::group::GroupArgs>),
    /// Find packets again, by time and filter: in the ring, the open file and sealed files as one
    Packets(Box<crate::packets::PacketsArgs>),
    /// Find flow records by time and filter, add them up, rank them, and go on to their packets
    Flows(Box<crate::flows::FlowsArgs>),
    /// A port's curve: packets, bytes, flows, bursts and losses of each second, or of steps
    Series(Box<crate::series::SeriesArgs>),
    /// Give foreign captures the index that makes them as quick to search as a store
    Index(Box<crate::index::IndexArgs>),
    /// Make room in a store: remove or archive the oldest files, by free space, size and age
    Retain(Box<crate::retain::RetainArgs>),
    /// Check a store or captures: order, checksums, counts, the ledger against the content, gaps
    Verify(Box<crate::verify::VerifyArgs>),
    /// Mend what a crash or a bad disk left of a store or a capture
    Repair(Box<crate::repair::RepairArgs>),
    /// Turn captures into captures: format, slice, split, merge, anonymise
    Convert(Box<crate::convert::ConvertArgs>),
    /// Find what makes capture fail, lose or lie on this machine, and mend it
    Doctor(Box<crate::doctor::DoctorArgs>),
    /// Send frames that carry their own truth
    Gen(GenArgs),
    /// Check stored frames of `netgrain gen` for missing, duplicated, reordered and damaged ones
    Check(CheckArgs),
    /// Check, explain, tidy and try programs of the packet language
    Lang(Box<crate::lang::LangArgs>),
    /// Every grain on this machine in less than a minute: one incident walked through curve, flows and packets
    Demo(crate::demo::DemoArgs),
    /// Measure a stage by itself, with dummies in place of its neighbours
    Bench(BenchArgs),
    /// Print shell completions
    #[command(hide = true)]
    Completions { shell: clap_complete::Shell },
    /// Write man pages into a folder
    #[command(hide = true)]
    Man { dir: PathBuf },
}

#[derive(Args)]
#[command(after_help = "Examples:
  netgrain record -i eth1 --store /data/store --dedicated
  netgrain record -i eth0 --store /data/store --filter 'not port 22' --rotate 1min
  netgrain record -i eth1 --store /data/store --dedicated -e 'main = udp >-> steer_flow'
  netgrain record -r trace.pcap.zst --store /data/store
  netgrain record --sim imix,rate=1Mpps --store /data/store --duration 10s")]
pub struct RecordArgs {
    #[command(flatten)]
    pub source: SourceArgs,
    /// Folder of the store: files go to STORE/IFACE/YYYY/MM/DD/HH/
    #[arg(long, value_name = "DIR")]
    pub store: PathBuf,
    /// Take the port for capture alone: the host no longer receives what arrives there (AF_XDP)
    #[arg(long)]
    pub dedicated: bool,
    /// Which way to take packets from the port
    #[arg(long, value_enum, default_value_t = SourceKind::Auto)]
    pub source_kind: SourceKind,
    /// Queues (AF_XDP) or threads (TPACKET) to capture with [default: all queues, or 1 thread]
    #[arg(long, value_name = "N")]
    pub queues: Option<u16>,
    /// Processors for the engine threads, in turn: 2 or 2,3 or 4-7 [default: the port's NUMA node]
    #[arg(long, value_name = "LIST", value_parser = cpu_list)]
    pub cpu: Option<CpuList>,
    /// Spin instead of sleeping while no packets come (give the thread a core of its own)
    #[arg(long)]
    pub spin: bool,
    /// AF_XDP: let the engine thread run the driver's receive loop itself (needs a core of its own)
    #[arg(long)]
    pub busy_poll: bool,
    /// How fast to replay a file: flat, original, or a factor such as 2x or 0.5x
    #[arg(long, value_name = "SPEED", default_value = "flat", value_parser = speed, requires = "read")]
    pub speed: capture::file::Speed,
    /// The file is HPCAP's RAW, whatever it looks like
    #[arg(long, requires = "read")]
    pub read_raw: bool,
    /// Memory of each queue's ring; descriptors add a quarter [default: 1GiB for all together, at most an eighth of the
    /// memory]
    #[arg(long, value_name = "SIZE", value_parser = ring_size)]
    pub ring: Option<u64>,
    /// A new file at this size
    #[arg(long, value_name = "SIZE", value_parser = segment_size, default_value = "2GiB")]
    pub segment: u64,
    /// A new file at every multiple of this span, silence included
    #[arg(long, value_name = "SPAN", value_parser = rotation)]
    pub rotate: Option<Duration>,
    /// Most bytes kept of each packet (0: all)
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub snaplen: u32,
    /// Keep only packets that match: host net port proto vlan, and or not, parentheses
    #[arg(long, value_name = "EXPRESSION")]
    pub filter: Option<String>,
    #[command(flatten)]
    pub program: crate::program::PortProgramArgs,
    /// Stop after this long
    #[arg(long, value_name = "SPAN", value_parser = units::parse_span)]
    pub duration: Option<Duration>,
    /// Stop after this many stored packets (of each queue)
    #[arg(long, value_name = "N")]
    pub packets: Option<u64>,
    /// Format of the files
    #[arg(long, value_enum, default_value_t = FileFormat::Pcap)]
    pub format: FileFormat,
    /// Writes in flight at a time
    #[arg(long, value_name = "N", default_value_t = engine::WRITE_DEPTH, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub depth: u32,
    #[command(flatten)]
    pub retention: crate::retain::RuleArgs,
    #[command(flatten)]
    pub socket: SocketArgs,
    /// Record as this user, with no more than capturing takes; the store must be writable for it
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Serve Prometheus metrics at http://ADDRESS/metrics
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<String>,
    /// One JSON object per second, and the report with the whole ledger at the end
    #[arg(long)]
    pub json: bool,
    /// No table or objects while it runs: only remarks, and the report at the end
    #[arg(long, short)]
    pub quiet: bool,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
pub struct SourceArgs {
    /// Port to capture
    #[arg(short = 'i', long, value_name = "IFACE")]
    pub interface: Option<String>,
    /// Capture file to replay (pcap, pcapng, RAW; .gz and .zst too; - for standard input)
    #[arg(short = 'r', long = "read", value_name = "FILE")]
    pub read: Option<PathBuf>,
    /// Traffic to make up: 60, imix, backbone, 1000,flows=100k,rate=1Mpps
    #[arg(long, value_name = "SPEC")]
    pub sim: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SourceKind {
    /// AF_XDP on a port that is dedicated or that the host does not use, otherwise TPACKET
    Auto,
    /// AF_XDP (needs --dedicated on a port that the host uses)
    AfXdp,
    /// TPACKET_V3: shares the packets with the host
    Tpacket,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FileFormat {
    /// Nanosecond pcap, with a block index beside each file
    Pcap,
    /// HPCAP's RAW, with its padding
    Raw,
}

#[derive(Args)]
pub struct SocketArgs {
    /// Where listeners attach, or `none` [default: /run/netgrain/IFACE.sock for ports, none for files and simulations]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Permission bits of that socket
    #[arg(long, value_name = "OCTAL", default_value = "660", value_parser = octal)]
    pub socket_mode: Mode,
    /// Its owner, who may then listen (a number, or a name of /etc/passwd)
    #[arg(long, value_name = "USER")]
    pub socket_owner: Option<String>,
    /// Its group, whose members may then listen (a number, or a name of /etc/group)
    #[arg(long, value_name = "GROUP")]
    pub socket_group: Option<String>,
    /// Let that owner and group attach gates too, which can make capture drop packets
    #[arg(long)]
    pub allow_gates: bool,
    /// Ports that groups of others than root may send through [default: none]
    #[arg(long, value_name = "PORT,...", value_delimiter = ',')]
    pub allow_forward: Vec<String>,
    /// How long a gate of another process may hold up a full ring before it is no longer waited for (0: for ever)
    #[arg(long, value_name = "SPAN", value_parser = units::parse_span, default_value = "10s")]
    pub gate_expiry: Duration,
}

#[derive(Args)]
#[command(after_help = "Examples:
  netgrain listen -i eth1                      counts once a second
  netgrain listen -i eth1 --print              one line per packet
  netgrain listen -i eth1 -w - | tcpdump -r -  any tool that reads pcap")]
pub struct ListenArgs {
    /// Interface of the engine to attach to
    #[arg(short = 'i', long, value_name = "IFACE", required_unless_present = "socket")]
    pub interface: Option<String>,
    /// Its socket [default: /run/netgrain/IFACE.sock]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Write a capture to a file, or to standard output with -
    #[arg(short = 'w', long, value_name = "FILE", conflicts_with = "print")]
    pub write: Option<PathBuf>,
    /// Its format [default: as FILE ends: .pcap, .pcapng; otherwise pcapng]
    #[arg(long, value_enum, requires = "write")]
    pub format: Option<crate::packets::CaptureFormat>,
    /// Print one line per packet
    #[arg(long)]
    pub print: bool,
    /// Only packets that match
    #[arg(long, value_name = "EXPRESSION")]
    pub filter: Option<String>,
    /// Never miss a packet: the engine waits for this listener, and drops when it is too slow
    #[arg(long)]
    pub gate: bool,
    /// Stop after this many packets
    #[arg(short = 'c', long, value_name = "N")]
    pub packets: Option<u64>,
    /// Stop after this long
    #[arg(long, value_name = "SPAN", value_parser = units::parse_span)]
    pub duration: Option<Duration>,
    /// Name shown in the engine's tables
    #[arg(long, value_name = "NAME", default_value = "netgrain listen")]
    pub name: String,
    /// Counts as JSON, one object per second and one at the end
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
#[command(after_help = "Examples:
  netgrain gen -i veth0 60                     flat out
  netgrain gen -i veth0 imix,flows=10k --rate 500kpps --duration 10s
  netgrain gen -w frames.pcap 1000 --packets 1M")]
pub struct GenArgs {
    /// Traffic: a size (60), several, imix, backbone; with options: 1000,flows=100k,seed=7
    #[arg(value_name = "SPEC", default_value = "60")]
    pub spec: String,
    /// Port to send from
    #[arg(short = 'i', long, value_name = "IFACE", required_unless_present = "write")]
    pub interface: Option<String>,
    /// Write a capture file instead of sending
    #[arg(short = 'w', long, value_name = "FILE", conflicts_with = "interface")]
    pub write: Option<PathBuf>,
    /// How fast: flat, 1.6Mpps, 10Gbit [default: flat, or what SPEC says]
    #[arg(long, value_name = "RATE", value_parser = units::parse_rate)]
    pub rate: Option<units::Rate>,
    /// Stop after this many frames
    #[arg(long, value_name = "N", value_parser = count)]
    pub packets: Option<u64>,
    /// Stop after this long
    #[arg(long, value_name = "SPAN", value_parser = units::parse_span)]
    pub duration: Option<Duration>,
    /// How to send
    #[arg(long, value_enum, default_value_t = SendMethod::Auto, conflicts_with = "write")]
    pub method: SendMethod,
    /// Queue to send on (AF_XDP)
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub queue: u16,
    /// Processor to send from
    #[arg(long, value_name = "N")]
    pub cpu: Option<usize>,
    /// What was sent, as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SendMethod {
    /// Live frames for one size flat out on a veth port whose other end takes them, otherwise AF_XDP
    Auto,
    /// Frames made inside the kernel: the fastest way onto a veth port
    LiveFrames,
    /// AF_XDP transmit: every traffic, every rate, every port
    AfXdp,
}

#[derive(Args)]
pub struct CheckArgs {
    /// Store folder or capture files
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// How many frames were sent, so that missing ones at the end are noticed too
    #[arg(long, value_name = "N", value_parser = count)]
    pub sent: Option<u64>,
    /// The verdict as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    pub stage: bench::Stage,
}

/// Processors as given on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuList(pub Vec<usize>);

pub fn cpu_list(text: &str) -> Result<CpuList, String> {
    let bad = || format!("{text:?} is not a list of processors: write 2 or 2,3 or 4-7");
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().map_err(|_| bad())?, last.parse().map_err(|_| bad())?);
        if first > last || last > 4096 {
            return Err(bad());
        }
        cpus.extend(first..=last);
    }
    Ok(CpuList(cpus))
}

fn ring_size(text: &str) -> Result<u64, String> {
    at_least(text, 8 << 20, "8MiB")
}

/// The smallest files that a recorder makes.
pub const LEAST_SEGMENT: u64 = 2 << 20;

fn segment_size(text: &str) -> Result<u64, String> {
    at_least(text, LEAST_SEGMENT, "2MiB")
}

fn at_least(text: &str, least: u64, shown: &str) -> Result<u64, String> {
    let bytes = units::parse_bytes(text).map_err(|e| e.to_string())?;
    if bytes < least { Err(format!("{text} is too small: at least {shown}")) } else { Ok(bytes) }
}

fn rotation(text: &str) -> Result<Duration, String> {
    let span = units::parse_span(text).map_err(|e| e.to_string())?;
    if span.as_secs() == 0 || span.subsec_nanos() > 0 {
        return Err(format!("{text} is not a number of whole seconds, at least 1s"));
    }
    Ok(span)
}

pub fn speed(text: &str) -> Result<capture::file::Speed, String> {
    use capture::file::Speed;
    match text {
        "flat" => Ok(Speed::Flat),
        "original" => Ok(Speed::ORIGINAL),
        _ => match text.strip_suffix('x').and_then(|f| f.parse::<f64>().ok()) {
            Some(factor) if factor.is_finite() && factor > 0.0 => Ok(Speed::Scaled(factor)),
            _ => Err(format!("{text:?} is not a speed: write flat, original, 2x, 0.5x")),
        },
    }
}

/// Permission bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode(pub u32);

pub fn octal(text: &str) -> Result<Mode, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(Mode(mode)),
        _ => Err(format!("{text:?} is not a mode: write 660 or 600")),
    }
}

/// `1000000`, `1M`, `100k`.
pub fn count(text: &str) -> Result<u64, String> {
    let bad = || format!("{text:?} is not a number of packets: write 100k, 1M, 1000000");
    let (digits, scale) = match text.chars().last() {
        Some('k') => (&text[..text.len() - 1], 1000),
        Some('M') => (&text[..text.len() - 1], 1_000_000),
        Some('G') => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok().and_then(|n| n.checked_mul(scale)).ok_or_else(bad)
}

/// As [`count`], and at least one: of nothing at all nobody can say whether it was found.
pub fn some(text: &str) -> Result<u64, String> {
    match count(text)? {
        0 => Err("at least 1; --count tells how many there are".to_owned()),
        n => Ok(n),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_table_is_sound() {
        Netgrain::command().debug_assert();
    }

    #[test]
    fn lists_modes_and_counts() {
        assert_eq!(cpu_list("2,4-6").unwrap().0, [2, 4, 5, 6]);
        assert!(cpu_list("a").is_err() && cpu_list("6-4").is_err());
        assert_eq!(octal("660").unwrap().0, 0o660);
        assert!(octal("9").is_err());
        assert_eq!(count("2M"), Ok(2_000_000));
        assert!(count("many").is_err());
        assert!(ring_size("1KiB").is_err() && segment_size("1").is_err());
        assert!(rotation("0s").is_err() && rotation("300ms").is_err() && rotation("1min").is_ok());
    }
}
