//! The arguments of `netgrain replay`.

use crate::interval::Interval;
use crate::values::{ValueError, count, directory};
use base::units;
use clap::{Args, ValueEnum};
use replay::control::Command;
use replay::rewrite::{PrefixMap, RandomAddress, VlanEdit};
use replay::{Method, Pace, Truncated};
use std::path::PathBuf;
use std::time::Duration;
use wire::MacAddr;

/// The arguments that have no effect on a command to a running replay.
const OF_A_REPLAY: [&str; 29] = [
    "files",
    "store",
    "recorded_on",
    "interface",
    "second",
    "second_by",
    "second_when",
    "speed",
    "passes",
    "max_gap",
    "filter",
    "truncated",
    "map",
    "flow_multiplier",
    "random_flows",
    "random_source",
    "random_destination",
    "seed",
    "source_mac",
    "destination_mac",
    "second_source_mac",
    "second_destination_mac",
    "vlan",
    "fix_checksums",
    "buffer",
    "method",
    "queue",
    "cpu",
    "json",
];

#[derive(Args)]
#[command(after_help = "Examples:
  netgrain replay trace.pcap -i veth0                             with the original timing
  netgrain replay trace.pcap -i veth0 --speed 10x --loop 0        until Ctrl-C
  netgrain replay trace.pcap -i veth0 --speed 500kpps --flow-multiplier 20
  netgrain replay --store /data --from 10:42 --to +5min -i veth0
  netgrain replay both.pcapng -i veth0 --second veth2 --second-when 'src net 10.0.0.0/8'
  netgrain replay trace.pcap -i veth0 --control /run/replay.sock
  netgrain replay --control /run/replay.sock --command 'speed 2x'

SIGUSR1 pauses the replay, and a second SIGUSR1 resumes it; after Ctrl-Z and fg the replay continues where it \
    stopped.")]
pub struct ReplayArgs {
    /// Captures: pcap, pcapng, RAW, also compressed as .gz or .zst; - for standard input. Several are merged in order
    /// of time
    #[arg(value_name = "FILE", required_unless_present_any = ["store", "command"], conflicts_with = "store")]
    pub files: Vec<PathBuf>,
    /// Replay the packets of a store
    #[arg(long, value_name = "DIR", value_parser = directory)]
    pub store: Option<PathBuf>,
    /// With --store: replay only the packets of this interface; can be repeated
    #[arg(long, value_name = "NAME", requires = "store")]
    pub recorded_on: Vec<String>,
    #[command(flatten)]
    pub when: Interval,
    /// Interface to send from
    #[arg(short = 'i', long, value_name = "IFACE", required_unless_present = "command")]
    pub interface: Option<String>,
    /// Second interface, for the packets of --second-by or --second-when
    #[arg(long, value_name = "IFACE")]
    pub second: Option<String>,
    /// Packets for the second interface
    #[arg(long, value_enum, default_value_t = SecondBy::Direction, requires = "second")]
    pub second_by: SecondBy,
    /// Packets for the second interface, as a filter, in place of --second-by
    #[arg(long, value_name = "FILTER", requires = "second", conflicts_with = "second_by")]
    pub second_when: Option<String>,
    /// Speed: original, a factor (2x, 0.5x), packets per second (100kpps), bits per second (900Mbit), or flat (as fast
    /// as possible)
    #[arg(long, value_name = "SPEED", default_value = "original")]
    pub speed: Pace,
    /// Replay the capture this many times; 0 for no end
    #[arg(long = "loop", value_name = "N", default_value_t = 1, value_parser = count)]
    pub passes: u64,
    /// Shorten longer intervals of the capture to this span
    #[arg(long, value_name = "SPAN", value_parser = units::parse_span)]
    pub max_gap: Option<Duration>,
    /// Replay only packets that match this filter
    #[arg(long, value_name = "FILTER")]
    pub filter: Option<String>,
    /// Treatment of packets that were captured truncated
    #[arg(long, value_enum, default_value_t = TruncatedRule::Skip)]
    pub truncated: TruncatedRule,
    /// Replace a prefix of IP addresses: 10.1.0.0/16=192.168.0.0/16; can be repeated, the first prefix that contains an
    /// address applies
    #[arg(long, value_name = "OLD=NEW")]
    pub map: Vec<PrefixMap>,
    /// Send each packet N times, each time with other addresses, so that there are N times as many flows
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = units::whole::<u32>(1..=u64::from(replay::rewrite::MAX_COPIES)))]
    pub flow_multiplier: u32,
    /// Change this number of low bits of both addresses of each flow, differently in each pass of --loop
    #[arg(long, value_name = "BITS", value_parser = units::whole::<u8>(1..=32))]
    pub random_flows: Option<u8>,
    /// Random source addresses: number of low bits, and after a comma the number of packets after which the addresses
    /// repeat (16 or 16,1024)
    #[arg(long, value_name = "BITS[,PERIOD]")]
    pub random_source: Option<RandomAddress>,
    /// Random destination addresses, as for --random-source
    #[arg(long, value_name = "BITS[,PERIOD]")]
    pub random_destination: Option<RandomAddress>,
    /// Chooses the addresses of the random flags
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count)]
    pub seed: u64,
    /// Source MAC address of all frames
    #[arg(long, value_name = "MAC")]
    pub source_mac: Option<MacAddr>,
    /// Destination MAC address of all frames
    #[arg(long, value_name = "MAC")]
    pub destination_mac: Option<MacAddr>,
    /// Source MAC address of the frames on the second interface
    #[arg(long, value_name = "MAC", requires = "second")]
    pub second_source_mac: Option<MacAddr>,
    /// Destination MAC address of the frames on the second interface
    #[arg(long, value_name = "MAC", requires = "second")]
    pub second_destination_mac: Option<MacAddr>,
    /// Change the outermost VLAN tag: add:100, set:100 (keeps the priority) or remove
    #[arg(long, value_name = "CHANGE")]
    pub vlan: Option<VlanEdit>,
    /// Compute the checksums of IPv4, TCP, UDP and ICMP anew
    #[arg(long)]
    pub fix_checksums: bool,
    /// Memory for reading ahead
    #[arg(long, value_name = "SIZE", default_value = "32MiB", value_parser = buffer)]
    pub buffer: usize,
    /// Method of sending
    #[arg(long, value_enum, default_value_t = ReplayMethod::Auto)]
    pub method: ReplayMethod,
    /// Queue to send on (AF_XDP)
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = units::whole::<u16>(0..=65535))]
    pub queue: u16,
    /// Processor to send from
    #[arg(long, value_name = "N", value_parser = units::whole::<usize>(0..=4096))]
    pub cpu: Option<usize>,
    /// Unix socket at which the replay accepts the commands of --command
    #[arg(long, value_name = "SOCKET")]
    pub control: Option<PathBuf>,
    /// Send a command to the replay with this --control, and print its answer: pause, resume, stop, status, or speed
    /// SPEED
    #[arg(long, value_name = "COMMAND", requires = "control", conflicts_with_all = OF_A_REPLAY)]
    pub command: Option<Command>,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}

/// The rule of the second interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SecondBy {
    /// Packets that the capturing host sent, according to the pcapng file
    Direction,
    /// Packets of all files except the first, or, in a single file or a store, of all interfaces except the first
    Input,
}

/// The treatment of truncated packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TruncatedRule {
    /// Do not send them
    Skip,
    /// Fill them with zeros up to their length on the wire
    Pad,
    /// Send the captured bytes
    Send,
}

impl From<TruncatedRule> for Truncated {
    fn from(rule: TruncatedRule) -> Self {
        match rule {
            TruncatedRule::Skip => Self::Skip,
            TruncatedRule::Pad => Self::Pad,
            TruncatedRule::Send => Self::Send,
        }
    }
}

/// The method of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReplayMethod {
    /// af-xdp if the interface permits it, otherwise packet-socket
    Auto,
    /// AF_XDP transmit
    AfXdp,
    /// A packet socket
    PacketSocket,
}

impl From<ReplayMethod> for Method {
    fn from(method: ReplayMethod) -> Self {
        match method {
            ReplayMethod::Auto => Self::Auto,
            ReplayMethod::AfXdp => Self::AfXdp,
            ReplayMethod::PacketSocket => Self::PacketSocket,
        }
    }
}

/// The smallest and the largest buffer.
const BUFFER: std::ops::RangeInclusive<u64> = 512 << 10..=64 << 30;

fn buffer(text: &str) -> Result<usize, ValueError> {
    let bytes = units::parse_bytes(text)?;
    let bytes = usize::try_from(bytes).ok().filter(|_| BUFFER.contains(&bytes));
    bytes.ok_or_else(|| ValueError::new(format!("{text} is no size of a buffer: write 512KiB to 64GiB")))
}
