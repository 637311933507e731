//! The arguments of `netgrain run` and `netgrain record`. Both verbs have the arguments of [`CaptureArgs`], each with
//! one definition and one help text. The help of `run` also names the configuration key of an argument, and shows the
//! default of this key.

use crate::port::SourceKindArg;
use crate::program::PortProgramArgs;
use crate::retain::RuleArgs;
use crate::values::{CpuList, Mode, count, cpu_list, directory, octal, ring_size, rotation, segment_size, speed};
use base::units;
use clap::{Arg, ArgGroup, Args, ValueEnum};
use config::Config;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args)]
#[command(
    mut_args(|arg| with_default(with_key(arg))),
    after_help = "Examples:
  netgrain run -i eth1 --store /data/store --dedicated
  netgrain run --config /etc/netgrain.toml --set flow.idle_timeout=15s
  netgrain run -r monday.pcap tuesday.pcap --store /data/store --shards 2
A key in parentheses is the key of the configuration that the flag sets: netgrain config --dump prints all keys."
)]
pub struct RunArgs {
    /// Configuration file; flags have precedence
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Set any key of the configuration
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    #[command(flatten)]
    pub capture: CaptureArgs,
    /// Do not record the packets, only flow records and rows
    #[arg(long, help_heading = None::<&str>)]
    pub no_packets: bool,
    /// Number of shards of the flow table; the records do not depend on this number
    #[arg(long, value_name = "N", value_parser = base::units::whole::<u64>(0..=u64::MAX), help_heading = None::<&str>)]
    pub shards: Option<u64>,
    /// Collector of flow records and rows, such as udp:HOST or tcp:HOST,fields=biflow; may be given several times
    #[arg(long, value_name = "TARGET", help_heading = None::<&str>)]
    pub export: Vec<String>,
}

#[derive(Args)]
#[command(
    mut_args(|arg| with_default(required_by_record(arg))),
    group(ArgGroup::new("source").args(["interface", "read", "sim"]).required(true)),
    after_help = "Examples:
  netgrain record -i eth1 --store /data/store --dedicated
  netgrain record -i eth0 --store /data/store --filter 'not port 22' --rotate 1min
  netgrain record -i eth1 --store /data/store --dedicated -e 'main = udp >-> steer_flow'
  netgrain record -r trace.pcap.zst --store /data/store
  netgrain record --sim imix,rate=1Mpps --store /data/store --duration 10s"
)]
pub struct RecordArgs {
    #[command(flatten)]
    pub capture: CaptureArgs,
    /// Format of the packet files
    #[arg(long, value_enum, default_value_t = FileFormat::Pcap, help_heading = None::<&str>)]
    pub format: FileFormat,
}

/// The format of packet files. `run` has no choice: flow records refer to packets by their position in pcap files.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FileFormat {
    /// Nanosecond pcap, with a block index beside each file
    Pcap,
    /// HPCAP RAW, with its padding
    Raw,
}

/// The arguments of both verbs. The groups with a heading come last, because clap gives their heading to the arguments
/// after them too. A value that is not given is `None`, so that the configuration file or its default
/// decides.
#[derive(Args)]
pub struct CaptureArgs {
    /// Interface to capture; may be given several times
    #[arg(short = 'i', long, value_name = "IFACE", conflicts_with_all = ["read", "sim"])]
    pub interface: Vec<String>,
    /// Capture files to replay as one stream, in the given order (pcap, pcapng, RAW, also .gz and .zst; - for standard
    /// input); netgrain convert merges files in order of time
    #[arg(short = 'r', long = "read", value_name = "FILE", num_args = 1.., conflicts_with = "sim")]
    pub read: Vec<PathBuf>,
    /// Traffic to simulate: 60, imix, backbone, 1000,flows=100k,rate=1Mpps
    #[arg(long, value_name = "SPEC")]
    pub sim: Option<String>,
    /// Name of the directory in the store to which the packets of files or of a simulation are recorded [default: the
    /// name of the first file, or sim]
    #[arg(long, value_name = "NAME", conflicts_with = "interface")]
    pub name: Option<String>,
    /// Replay speed of files: flat (as fast as possible), original, or a factor such as 2x or 0.5x
    #[arg(long, value_name = "SPEED", default_value = "flat", value_parser = speed, requires = "read")]
    pub speed: capture::file::Speed,
    /// Read the files as HPCAP RAW, whatever their content looks like
    #[arg(long, requires = "read")]
    pub read_raw: bool,
    /// Directory of the store: packet files go to STORE/IFACE/YYYY/MM/DD/HH/
    #[arg(long, value_name = "DIR", value_parser = directory)]
    pub store: Option<PathBuf>,
    /// Dedicate the interfaces to the capture, by AF_XDP: the host no longer receives from them
    #[arg(long, conflicts_with_all = ["read", "sim"])]
    pub dedicated: bool,
    /// The kind of source for interfaces
    #[arg(long, value_enum, value_name = "KIND", conflicts_with_all = ["read", "sim"])]
    pub source_kind: Option<SourceKindArg>,
    /// Queues (AF_XDP) or threads (TPACKET) of each interface [default: all queues, or 1 thread]
    #[arg(
        long,
        value_name = "N",
        conflicts_with_all = ["read", "sim"],
        value_parser = base::units::whole::<u16>(1..=65535)
    )]
    pub queues: Option<u16>,
    /// Processors for the engine threads, in turn: 2 or 2,3 or 4-7 [default: those of the interface's NUMA node]
    #[arg(long, value_name = "LIST", value_parser = cpu_list)]
    pub cpu: Option<CpuList>,
    /// Let the engine threads spin instead of sleep while no packets come; each needs a core of its own
    #[arg(long)]
    pub spin: bool,
    /// Method of timestamping: auto, poll, batch, udts, wdts, adaptive, kernel, hardware [default: auto]
    #[arg(long, value_name = "METHOD", conflicts_with = "read")]
    pub timestamps: Option<config::TimestampSetting>,
    /// Use the timestamps that a switch added, and remove its bytes: metawatch, arista-header, off [default: off]
    #[arg(long, value_name = "FORMAT")]
    pub switch_timestamps: Option<config::SwitchTimestamps>,
    /// AF_XDP: let the engine thread run the driver's receive loop; it needs a core of its own
    #[arg(long, conflicts_with_all = ["read", "sim"])]
    pub busy_poll: bool,
    /// Memory of each queue's ring; descriptors add a quarter [default: 1GiB for all queues of an interface, at most an
    /// eighth of the memory that the process may have; for files as much as they need, at most 64MiB]
    #[arg(long, value_name = "SIZE", value_parser = ring_size)]
    pub ring: Option<u64>,
    /// Begin a new packet file at this size
    #[arg(long, value_name = "SIZE", value_parser = segment_size)]
    pub segment: Option<u64>,
    /// Begin a new packet file at every multiple of this span, even if no packets arrive
    #[arg(long, value_name = "SPAN", value_parser = rotation)]
    pub rotate: Option<Duration>,
    /// Maximum number of bytes kept of each packet; 0 keeps all bytes
    #[arg(long, value_name = "BYTES", value_parser = base::units::whole::<u32>(0..=u64::from(u32::MAX)))]
    pub snaplen: Option<u32>,
    /// Keep only packets that match: host net port proto vlan, and or not, parentheses
    #[arg(long, value_name = "EXPRESSION")]
    pub filter: Option<String>,
    #[command(flatten)]
    pub program: PortProgramArgs,
    /// Stop after this time
    #[arg(long, value_name = "SPAN", value_parser = units::parse_span)]
    pub duration: Option<Duration>,
    /// Stop after this many stored packets of each queue
    #[arg(long, value_name = "N", value_parser = count)]
    pub packets: Option<u64>,
    /// Number of concurrent writes to packet files
    #[arg(long, value_name = "N", value_parser = base::units::whole::<u32>(1..=256))]
    pub depth: Option<u32>,
    /// Change to this user and keep only the capabilities that a capture needs; the user must be able to write to the
    /// store
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Serve Prometheus metrics at http://ADDRESS/metrics
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<String>,
    /// Print a JSON object per second and interface, and at the end the report of each interface with its ledger
    #[arg(long)]
    pub json: bool,
    /// Print only warnings while it runs, and the report at the end
    #[arg(long, short)]
    pub quiet: bool,
    #[command(flatten)]
    pub retention: RuleArgs,
    #[command(flatten)]
    pub socket: SocketArgs,
}

/// The ring socket, for listeners and groups of programs.
#[derive(Args)]
#[command(next_help_heading = "Listeners and groups")]
pub struct SocketArgs {
    /// Path of the ring socket, at which listeners attach, or `none` [default: /run/netgrain/IFACE.sock for interfaces,
    /// none for files and simulations]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Permission bits of the socket; whatever the bits, only root, the engine's user, and the owner and the group of
    /// the socket may connect
    #[arg(long, value_name = "OCTAL", value_parser = octal)]
    pub socket_mode: Option<Mode>,
    /// Owner of the socket, who may attach listeners and manage groups: a number, or a name of /etc/passwd
    #[arg(long, value_name = "USER")]
    pub socket_owner: Option<String>,
    /// Group of the socket, whose members may attach listeners and manage groups: a number, or a name of /etc/group
    #[arg(long, value_name = "GROUP")]
    pub socket_group: Option<String>,
    /// Let the owner and the group attach lossless readers too, which can make the capture lose packets
    #[arg(long)]
    pub allow_lossless: bool,
    /// Interfaces through which groups of users other than root may send [default: none]
    #[arg(long, value_name = "IFACE,...", value_delimiter = ',')]
    pub allow_forward: Vec<String>,
    /// Time for which the producer waits at a full ring for a lossless reader of another process; 0 for ever
    #[arg(long, value_name = "SPAN", value_parser = units::parse_span)]
    pub reader_timeout: Option<Duration>,
}

/// The flags that set a key of the configuration, by the id of the flag.
const KEYS: [(&str, &str); 34] = [
    ("interface", "capture.interfaces"),
    ("source_kind", "capture.source"),
    ("dedicated", "capture.dedicated"),
    ("queues", "capture.queues"),
    ("cpu", "capture.cpus"),
    ("spin", "capture.spin"),
    ("timestamps", "capture.timestamps"),
    ("switch_timestamps", "capture.switch_timestamps"),
    ("busy_poll", "capture.busy_poll"),
    ("ring", "capture.ring"),
    ("snaplen", "capture.snaplen"),
    ("filter", "capture.filter"),
    ("program", "capture.program"),
    ("store", "store.dir"),
    ("wait_for_readers", "store.wait_for_readers"),
    ("no_packets", "packets.record"),
    ("segment", "packets.segment"),
    ("rotate", "packets.rotate"),
    ("depth", "packets.depth"),
    ("keep_free", "packets.keep_free"),
    ("max_size", "packets.max_size"),
    ("max_age", "packets.max_age"),
    ("archive", "packets.archive"),
    ("shards", "flow.shards"),
    ("export", "export.targets"),
    ("socket", "listen.socket"),
    ("socket_mode", "listen.mode"),
    ("socket_owner", "listen.owner"),
    ("socket_group", "listen.group"),
    ("allow_lossless", "listen.lossless"),
    ("allow_forward", "listen.forward"),
    ("reader_timeout", "listen.reader_timeout"),
    ("metrics", "status.metrics"),
    ("user", "status.user"),
];

/// The flag that sets a key, as `--flag`.
pub fn flag_of(key: &str) -> Option<String> {
    let (flag, _) = KEYS.iter().find(|(_, of)| *of == key)?;
    Some(format!("--{}", flag.replace('_', "-")))
}

fn key_of(arg: &Arg) -> Option<&'static str> {
    KEYS.iter().find(|(flag, _)| arg.get_id() == flag).map(|(_, key)| *key)
}

/// For `record`, makes `--store` a required argument, because packet files are its only output.
fn required_by_record(arg: Arg) -> Arg {
    if arg.get_id() == "store" { arg.required(true) } else { arg }
}

/// Adds the configuration key of an argument to its help text, before the default.
fn with_key(arg: Arg) -> Arg {
    let Some(key) = key_of(&arg) else { return arg };
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    match help.split_once(DEFAULT) {
        Some((meaning, default)) => arg.help(format!("{meaning} ({key}){DEFAULT}{default}")),
        None => arg.help(format!("{help} ({key})")),
    }
}

/// The text with which the default begins in a help text.
const DEFAULT: &str = " [default";

/// Adds the default of the configuration key to the help text of the argument, if the text names none. It is not a
/// default of the parser, because a flag that is not given must not replace the value of the configuration file.
fn with_default(arg: Arg) -> Arg {
    let Some(key) = key_of(&arg) else { return arg };
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let default = Config::default().show(key).trim_matches('"').to_owned();
    if help.contains(DEFAULT) || ["", "none", "[]", "true", "false"].contains(&default.as_str()) {
        return arg;
    }
    arg.help(format!("{help}{DEFAULT}: {default}]"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Command;
    use std::collections::BTreeSet;

    #[test]
    fn each_flag_with_a_key_exists_and_its_key_too() {
        let run = RunArgs::augment_args(Command::new("run"));
        for (flag, key) in KEYS {
            assert!(run.get_arguments().any(|arg| arg.get_id() == flag), "{flag}");
            assert!(config::KEYS.iter().any(|known| known.name == key), "{key}");
        }
        assert_eq!(flag_of("store.wait_for_readers").as_deref(), Some("--wait-for-readers"));
    }

    #[test]
    fn record_has_the_flags_of_run_except_those_of_the_meter_and_the_configuration() {
        let of =
            |command: Command| command.get_arguments().map(|arg| arg.get_id().to_string()).collect::<BTreeSet<_>>();
        let run = of(RunArgs::augment_args(Command::new("run")));
        let record = of(RecordArgs::augment_args(Command::new("record")));
        let only = |one: &BTreeSet<String>, other| one.difference(other).cloned().collect::<Vec<_>>();
        assert_eq!(only(&run, &record), ["config", "export", "no_packets", "set", "shards"]);
        assert_eq!(only(&record, &run), ["format"]);
    }

    #[test]
    fn the_help_of_run_has_keys_and_both_helps_have_the_defaults_of_the_configuration() {
        let help = |command: Command, flag: &str| {
            let mut arguments = command.get_arguments();
            let arg = arguments.find(|arg| arg.get_id() == flag).expect("a flag");
            arg.get_help().map(ToString::to_string).unwrap_or_default()
        };
        let run = |flag| help(RunArgs::augment_args(Command::new("run")), flag);
        let record = |flag| help(RecordArgs::augment_args(Command::new("record")), flag);
        assert!(run("segment").ends_with("at this size (packets.segment) [default: 2GiB]"), "{}", run("segment"));
        assert!(record("segment").ends_with("at this size [default: 2GiB]"), "{}", record("segment"));
        assert!(run("queues").ends_with("(capture.queues) [default: all queues, or 1 thread]"), "{}", run("queues"));
        assert!(run("filter").ends_with("parentheses (capture.filter)"), "{}", run("filter"));
    }
}
