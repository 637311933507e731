//! The verb and its arguments, `run` or `record`. `record` is `run` without a meter. Each method in this module
//! implements a difference between the two verbs, or contains code that both share.

use super::args::{CaptureArgs, FileFormat, RecordArgs, RunArgs, flag_of};
use crate::outcome::Failure;
use config::{Config, Problem, RawValue};
use engine::Format;

/// The verb with its arguments.
#[derive(Clone, Copy)]
pub enum Verb<'a> {
    /// `netgrain run`
    Run(&'a RunArgs),
    /// `netgrain record`
    Record(&'a RecordArgs),
}

impl<'a> Verb<'a> {
    /// The arguments of both verbs.
    pub fn capture(self) -> &'a CaptureArgs {
        match self {
            Verb::Run(args) => &args.capture,
            Verb::Record(args) => &args.capture,
        }
    }

    /// The format of packet files.
    pub fn format(self) -> Format {
        match self {
            Verb::Record(args) if args.format == FileFormat::Raw => Format::Raw,
            Verb::Record(_) | Verb::Run(_) => Format::Pcap,
        }
    }

    /// True if the command line names a configuration file.
    pub fn has_config_file(self) -> bool {
        matches!(self, Verb::Run(args) if args.config.is_some())
    }

    /// True if SIGHUP rereads a file.
    pub fn can_reload(self) -> bool {
        self.has_config_file() || self.capture().program.program.is_some()
    }

    /// The message that is printed at SIGHUP if there is no file to reread.
    pub fn no_reload(self) -> &'static str {
        match self {
            Verb::Run(_) => "SIGHUP rereads the files of --config and --program, but there are none; recording goes on",
            Verb::Record(_) => "SIGHUP rereads the file of --program, but --program is not given; recording goes on",
        }
    }

    /// The configuration, from defaults, configuration files, `--set` and flags; later sources replace earlier ones.
    /// The configuration of `record` makes neither flow records nor series rows, so its plans have no meter.
    ///
    /// # Errors
    /// The file or a value of `--set` is invalid.
    pub fn configuration(self) -> Result<Config, Failure> {
        let mut config = Config::default();
        match self {
            Verb::Run(args) => configure_run(args, &mut config)?,
            Verb::Record(_) => (config.flow.record, config.series.record) = (false, false),
        }
        configure_capture(self.capture(), &mut config);
        Ok(config)
    }

    /// Returns the error for an invalid value. Its text names the key of the value for `run`, and the flag for
    /// `record`.
    pub fn refused(self, problem: &Problem) -> Failure {
        let Problem { key, text } = problem;
        let (Verb::Record(_), Some(flag)) = (self, flag_of(key)) else { return Failure::say(text) };
        let cause = text.strip_prefix(key.as_str()).map_or(text.as_str(), |rest| rest.trim_start_matches(": "));
        // The error text of a retention rule already begins with its flag.
        if cause.starts_with(&flag) { Failure::say(cause) } else { Failure::Said(format!("{flag}: {cause}")) }
    }
}

/// Sets the configuration keys that only `run` has: a given flag replaces the value of its key.
fn configure_run(args: &RunArgs, config: &mut Config) -> Result<(), Failure> {
    if let Some(path) = &args.config {
        *config = config::load(path).map_err(Failure::say)?;
    }
    for text in &args.set {
        let Some((key, value)) = text.split_once('=') else {
            return Err(Failure::Said(format!("--set {text}: write --set KEY=VALUE, as in flow.idle_timeout=15s")));
        };
        config::set(config, key.trim(), &RawValue::from_flag(value.trim()))
            .map_err(|e| Failure::Said(format!("--set: {e}")))?;
    }
    if !args.export.is_empty() {
        config.export.targets.clone_from(&args.export);
    }
    config.packets.record &= !args.no_packets;
    if let Some(shards) = args.shards {
        config.flow.shards = config::Count(shards);
    }
    Ok(())
}

/// Sets the configuration keys that both verbs have: a given flag replaces the value of its key.
fn configure_capture(args: &CaptureArgs, config: &mut Config) {
    let Config { capture, store, packets, listen, status, .. } = config;
    if !args.interface.is_empty() {
        capture.interfaces.clone_from(&args.interface);
    }
    if !args.read.is_empty() || args.sim.is_some() {
        capture.interfaces.clear();
    }
    capture.source = args.source_kind.map_or(capture.source, Into::into);
    capture.dedicated |= args.dedicated;
    capture.queues = args.queues.map(|n| config::Count(n.into())).or(capture.queues);
    replace(&mut capture.cpus, &args.cpu);
    capture.spin |= args.spin;
    capture.timestamps = args.timestamps.unwrap_or(capture.timestamps);
    capture.switch_timestamps = args.switch_timestamps.unwrap_or(capture.switch_timestamps);
    capture.busy_poll |= args.busy_poll;
    capture.ring = args.ring.map(config::Size).or(capture.ring);
    capture.snaplen = args.snaplen.map_or(capture.snaplen, |bytes| config::Count(bytes.into()));
    replace(&mut capture.filter, &args.filter);
    // A program on the command line replaces the program file, which may then be missing.
    capture.program = match &args.program.expression {
        Some(_) => None,
        None => args.program.program.clone().or(capture.program.take()),
    };
    replace(&mut store.dir, &args.store);
    store.dir = store.dir.take().map(|dir| sys::nofollow::resolve(&dir));
    let rules = &args.retention;
    store.wait_for_readers = rules.wait_for_readers.unwrap_or(store.wait_for_readers);
    packets.segment = args.segment.map_or(packets.segment, config::Size);
    packets.rotate = args.rotate.or(packets.rotate);
    packets.depth = args.depth.map_or(packets.depth, |n| config::Count(n.into()));
    if rules.keep_free.is_some() {
        packets.keep_free = config::Keep(rules.keep_free);
    }
    packets.max_size = rules.max_size.map(config::Size).or(packets.max_size);
    packets.max_age = rules.max_age.map(config::Age).or(packets.max_age);
    packets.archive = packets.archive.take().map(|dir| sys::nofollow::resolve(&dir));
    replace(&mut packets.archive, &rules.archive);
    let socket = &args.socket;
    listen.socket = socket.socket.clone().unwrap_or_else(|| std::mem::take(&mut listen.socket));
    listen.mode = socket.socket_mode.unwrap_or(listen.mode);
    replace(&mut listen.owner, &socket.socket_owner);
    replace(&mut listen.group, &socket.socket_group);
    listen.lossless |= socket.allow_lossless;
    if !socket.allow_forward.is_empty() {
        listen.forward.clone_from(&socket.allow_forward);
    }
    listen.reader_timeout = socket.reader_timeout.unwrap_or(listen.reader_timeout);
    replace(&mut status.metrics, &args.metrics);
    replace(&mut status.user, &args.user);
}

fn replace<T: Clone>(value: &mut Option<T>, given: &Option<T>) {
    if given.is_some() {
        value.clone_from(given);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::{Command, Netgrain};
    use clap::Parser;

    fn parsed(line: &str) -> Command {
        Netgrain::try_parse_from(line.split(' ')).map(|netgrain| netgrain.command).unwrap_or_else(|e| panic!("{e}"))
    }

    /// The configuration of a command line of `run` or `record`.
    fn configuration(line: &str) -> Config {
        let config = match parsed(line) {
            Command::Run(args) => Verb::Run(&args).configuration(),
            Command::Record(args) => Verb::Record(&args).configuration(),
            _ => panic!("{line}"),
        };
        config.unwrap_or_else(|e| panic!("{line}: {e:?}"))
    }

    const SHARED: &str = "-i eth1 -i eth2 --store /data --source-kind tpacket --dedicated --queues 2 --cpu 2,3 \
        --spin --timestamps udts --switch-timestamps metawatch --busy-poll --ring 8MiB --snaplen 96 --filter tcp \
        --program p.ng --wait-for-readers 7s --segment 4MiB --rotate 1min --depth 3 --keep-free 5% --max-size 2TB \
        --max-age 30d --archive /slow \
        --socket /s --socket-mode 600 --socket-owner 1 --socket-group 2 --allow-lossless --allow-forward eth3 \
        --reader-timeout 2s --metrics 127.0.0.1:1 --user nobody";

    #[test]
    fn a_flag_sets_the_same_key_in_both_verbs() {
        let (run, mut record) =
            (configuration(&format!("netgrain run {SHARED}")), configuration(&format!("netgrain record {SHARED}")));
        assert!(!record.flow.record && !record.series.record);
        (record.flow.record, record.series.record) = (true, true);
        assert_eq!(run, record);
        let usual = Config::default();
        let only_of_run = ["packets.record", "flow.shards", "export.targets"];
        for key in config::KEYS {
            let has_flag = flag_of(key.name).is_some() && !only_of_run.contains(&key.name);
            assert_eq!(run.show(key.name) != usual.show(key.name), has_flag, "{}", key.name);
        }
    }

    #[test]
    fn record_names_the_flag_and_run_the_key() {
        let (run, record) = (parsed("netgrain run -i eth1"), parsed("netgrain record -i eth1 --store /data"));
        let (Command::Run(run), Command::Record(record)) = (run, record) else { panic!("other verbs") };
        let said = |verb: Verb<'_>, key: &str, cause: &str| {
            let problem = Problem { key: key.into(), text: format!("{key}: {cause}") };
            match verb.refused(&problem) {
                Failure::Said(text) => text,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(said(Verb::Run(&run), "capture.filter", "wrong"), "capture.filter: wrong");
        assert_eq!(said(Verb::Record(&record), "capture.filter", "wrong"), "--filter: wrong");
        assert_eq!(said(Verb::Record(&record), "packets.max_size", "--max-size 1: small"), "--max-size 1: small");
    }
}
