//! The arguments of `netgrain record`.

use crate::port::SourceKindArg;
use crate::values::{CpuList, Mode, cpu_list, octal, ring_size, rotation, segment_size, speed};
use base::units;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

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
    /// Name of the store's folder for a file or a simulation [default: that of the file, or sim]
    #[arg(long, value_name = "NAME", conflicts_with = "interface")]
    pub name: Option<String>,
    /// Folder of the store: files go to STORE/IFACE/YYYY/MM/DD/HH/
    #[arg(long, value_name = "DIR", value_parser = crate::values::folder)]
    pub store: PathBuf,
    /// Take the interface for capture alone: the host no longer receives what arrives there (AF_XDP)
    #[arg(long, conflicts_with_all = ["read", "sim"])]
    pub dedicated: bool,
    /// Which way to take packets from the interface
    #[arg(long, value_enum, value_name = "KIND", default_value_t = SourceKindArg::Auto, conflicts_with_all = ["read", "sim"])]
    pub source_kind: SourceKindArg,
    /// Queues (AF_XDP) or threads (TPACKET) to capture with [default: all queues, or 1 thread]
    #[arg(long, value_name = "N", conflicts_with_all = ["read", "sim"], value_parser = base::units::whole::<u16>(1..=65535))]
    pub queues: Option<u16>,
    /// Processors for the engine threads, in turn: 2 or 2,3 or 4-7 [default: the interface's NUMA node]
    #[arg(long, value_name = "LIST", value_parser = cpu_list)]
    pub cpu: Option<CpuList>,
    /// Spin instead of sleeping while no packets come (give the thread a core of its own)
    #[arg(long)]
    pub spin: bool,
    /// AF_XDP: let the engine thread run the driver's receive loop itself (needs a core of its own)
    #[arg(long, conflicts_with_all = ["read", "sim"])]
    pub busy_poll: bool,
    /// How fast to replay a file: flat, original, or a factor such as 2x or 0.5x
    #[arg(long, value_name = "SPEED", default_value = "flat", value_parser = speed, requires = "read")]
    pub speed: capture::file::Speed,
    /// The file is HPCAP's RAW, whatever it looks like
    #[arg(long, requires = "read")]
    pub read_raw: bool,
    /// Memory of each queue's ring; descriptors add a quarter [default: 1GiB for all together, at most an eighth of the
    /// memory that the process may have; for files what they need, at most 64MiB]
    #[arg(long, value_name = "SIZE", value_parser = ring_size)]
    pub ring: Option<u64>,
    /// A new file at this size
    #[arg(long, value_name = "SIZE", value_parser = segment_size, default_value = "2GiB")]
    pub segment: u64,
    /// A new file at every multiple of this span, silence included
    #[arg(long, value_name = "SPAN", value_parser = rotation)]
    pub rotate: Option<Duration>,
    /// Most bytes kept of each packet (0: all)
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = base::units::whole::<u32>(0..=u64::from(u32::MAX)))]
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
    #[arg(long, value_name = "N", value_parser = crate::values::count)]
    pub packets: Option<u64>,
    /// Format of the files
    #[arg(long, value_enum, default_value_t = FileFormat::Pcap)]
    pub format: FileFormat,
    /// Writes in flight at a time
    #[arg(long, value_name = "N", default_value_t = engine::WRITE_DEPTH, value_parser = base::units::whole::<u32>(1..=256))]
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
    /// Interface to capture
    #[arg(short = 'i', long, value_name = "IFACE")]
    pub interface: Option<String>,
    /// Capture file to replay (pcap, pcapng, RAW; .gz and .zst too; - for standard input)
    #[arg(short = 'r', long = "read", value_name = "FILE")]
    pub read: Option<PathBuf>,
    /// Traffic to make up: 60, imix, backbone, 1000,flows=100k,rate=1Mpps
    #[arg(long, value_name = "SPEC")]
    pub sim: Option<String>,
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
    /// Where listeners attach, or `none` [default: /run/netgrain/IFACE.sock for interfaces, none for files and
    /// simulations]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Permission bits of that socket; they let nobody in by themselves (see --socket-group)
    #[arg(long, value_name = "OCTAL", default_value = "660", value_parser = octal)]
    pub socket_mode: Mode,
    /// Its owner, who may then listen and ask for groups of programs (a number, or a name of /etc/passwd)
    #[arg(long, value_name = "USER")]
    pub socket_owner: Option<String>,
    /// Its group, whose members may then listen and ask for groups of programs (a number, or a name of /etc/group)
    #[arg(long, value_name = "GROUP")]
    pub socket_group: Option<String>,
    /// Let that owner and group attach lossless readers too, which can make capture drop packets
    #[arg(long)]
    pub allow_lossless: bool,
    /// Interfaces that groups of others than root may send through [default: none]
    #[arg(long, value_name = "IFACE,...", value_delimiter = ',')]
    pub allow_forward: Vec<String>,
    /// How long a lossless reader of another process may hold up a full ring before the producer no longer waits for it
    /// (0: for ever)
    #[arg(long, value_name = "SPAN", value_parser = units::parse_span, default_value = "10s")]
    pub reader_timeout: Duration,
}
