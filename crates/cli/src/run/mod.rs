//! `netgrain run`: records all data types. Packets are recorded as by `record`; in addition a meter makes flow records
//! and one series row each second, which go to the store and to collectors.

pub mod plan;
mod reload;
mod screen;
mod sinks;

use crate::group::show;
use crate::outcome::{self, Failure, Outcome, json};
use crate::port::SourceKindArg;
use crate::privileges::{self, Needs};
use crate::retain;
use crate::screen::Warnings;
use crate::service::Service;
use crate::signals;
use crate::values::CpuList;
use base::units;
use clap::Args;
use config::{Config, RawValue, RetentionRules};
use engine::{Capture, MetricsServer, Observer, Pace, Plan, Report, Retention, RowRetention, Second};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use store::names;

#[derive(Args)]
#[command(after_help = "Examples:
  netgrain run -i eth1 --store /data/store --dedicated
  netgrain run --config /etc/netgrain.toml --set flow.idle_timeout=15s
  netgrain run -r monday.pcap tuesday.pcap --store /data/store --shards 2
Every flag but -r, --sim, -e and those that say how long is a key of the configuration: netgrain config --dump has them all.")]
pub struct RunArgs {
    /// Interface to watch; may be given several times
    #[arg(short = 'i', long, value_name = "IFACE", conflicts_with_all = ["read", "sim"])]
    pub interface: Vec<String>,
    /// Capture files to replay as one stream, in the order given (pcap, pcapng, RAW; .gz and .zst too; - for standard
    /// input); netgrain convert puts several into the order of time
    #[arg(short = 'r', long = "read", value_name = "FILE", num_args = 1.., conflicts_with = "sim")]
    pub read: Vec<PathBuf>,
    /// Traffic to make up: 60, imix, backbone, 1000,flows=100k,rate=1Mpps
    #[arg(long, value_name = "SPEC")]
    pub sim: Option<String>,
    /// Name of the store's folder for files and simulations [default: that of the first file, or sim]
    #[arg(long, value_name = "NAME", conflicts_with = "interface")]
    pub name: Option<String>,
    /// How fast to replay files: flat, original, or a factor such as 2x or 0.5x
    #[arg(long, value_name = "SPEED", default_value = "flat", value_parser = crate::values::speed, requires = "read")]
    pub speed: capture::file::Speed,
    /// Configuration file; flags win
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Set any key of the configuration
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Folder of the store (store.dir)
    #[arg(long, value_name = "DIR", value_parser = crate::values::folder)]
    pub store: Option<PathBuf>,
    /// Take the interfaces for capture alone (capture.dedicated)
    #[arg(long, conflicts_with_all = ["read", "sim"])]
    pub dedicated: bool,
    /// Which way to take packets from the interfaces (capture.source)
    #[arg(long, value_enum, value_name = "KIND", conflicts_with_all = ["read", "sim"])]
    pub source_kind: Option<SourceKindArg>,
    /// Processors for the capture threads, in turn (capture.cpus)
    #[arg(long, value_name = "LIST", value_parser = crate::values::cpu_list)]
    pub cpu: Option<CpuList>,
    /// Only packets that match (capture.filter)
    #[arg(long, value_name = "EXPRESSION")]
    pub filter: Option<String>,
    #[command(flatten)]
    pub program: crate::program::PortProgramArgs,
    /// Memory of each queue's ring; descriptors add a quarter (capture.ring)
    #[arg(long, value_name = "SIZE", value_parser = crate::values::ring_size)]
    pub ring: Option<u64>,
    /// A new packet file at every multiple of this span, silence included (packets.rotate)
    #[arg(long, value_name = "SPAN", value_parser = crate::values::rotation)]
    pub rotate: Option<Duration>,
    /// Do not record the packets, only what is made of them (packets.record)
    #[arg(long)]
    pub no_packets: bool,
    /// Parts of the flow table; the records are the same for any number (flow.shards)
    #[arg(long, value_name = "N", value_parser = base::units::whole::<u64>(0..=u64::MAX))]
    pub shards: Option<u64>,
    /// Collector of flow records and rows, such as udp:HOST or tcp:HOST,fields=biflow; may be given several times
    /// (export.targets)
    #[arg(long, value_name = "TARGET")]
    pub export: Vec<String>,
    /// Serve Prometheus metrics at http://ADDRESS/metrics (status.metrics)
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<String>,
    /// Run as this user, with no more than capturing takes (status.user)
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Stop after this long
    #[arg(long, value_name = "SPAN", value_parser = units::parse_span)]
    pub duration: Option<Duration>,
    /// Stop after this many packets (of each queue)
    #[arg(long, value_name = "N", value_parser = crate::values::count)]
    pub packets: Option<u64>,
    /// One JSON object per second and interface, and the report with the whole ledger at the end
    #[arg(long)]
    pub json: bool,
    /// No line or objects while it runs: only remarks, and the report at the end
    #[arg(long, short)]
    pub quiet: bool,
    /// Of packet files (packets.keep_free, packets.max_size, packets.max_age, packets.archive)
    #[command(flatten)]
    pub retention: retain::RuleArgs,
}

/// How often the loop checks signals and the end of the captures.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The period of the status output.
const PERIOD: Duration = Duration::from_secs(1);

/// One interface that is captured.
pub(crate) struct Port {
    pub capture: Capture,
    pub retention: Option<Retention>,
    pub data_types: Option<RowRetention>,
    /// Its number in flow records and rows.
    pub number: u16,
    /// Its name.
    pub label: String,
}

/// Runs the verb. `No` if packets were lost, or the data types contradict each other.
pub fn run(args: &RunArgs) -> Result<Outcome, Failure> {
    let mut config = configuration(args)?;
    let mut plans = plan::plans(args, &config)?;
    let keeping: Vec<_> = plans.iter().map(|p| plan::retention(&config, p)).collect::<Result<_, _>>()?;
    privileges::for_recording(&Needs {
        ports: !config.capture.interfaces.is_empty(),
        program: plans.iter().any(|p| p.program.is_some()),
        files: !args.read.is_empty() || args.config.is_some() || config.capture.program.is_some(),
        store: config.store.dir.as_deref(),
        archive: config.packets.archive.as_deref(),
        socket: plans.iter().find_map(|p| p.socket.as_ref()).map(|s| s.path.as_path()),
        socket_owner: config.listen.owner.as_deref(),
        socket_group: config.listen.group.as_deref(),
        user: config.status.user.as_deref(),
    })?;
    for plan in &mut plans {
        engine::choose_key(plan, config.store.dir.as_deref(), config.series.key).map_err(Failure::say)?;
    }
    let (stop, hangup) = (signals::stop_flag(), signals::hangup_flag());
    let pace = match (&args.sim, config.capture.interfaces.is_empty()) {
        (Some(_), _) => Pace::Simulated,
        (None, true) => Pace::Replay { stop: Arc::clone(&stop) },
        (None, false) => Pace::Live,
    };
    for warning in plans.iter().filter_map(crate::replay_overlap::warning) {
        sys::say!("netgrain: {warning}");
    }
    // All captures are created before the first starts, because a group may have packets of several.
    let mut made = Vec::new();
    for (number, plan) in plans.iter().enumerate() {
        let egresses = |label: &str| sinks::sinks(&config, label, number as u16, &pace);
        made.push(Capture::made(plan, &config.store.dir, egresses)?);
    }
    // Written after the interfaces are claimed: a run that is refused must not change the files of another run.
    keep_flow_lateness(&config, &plans)?;
    let labels: Vec<String> = plans.iter().map(|plan| plan.source.label()).collect();
    let captures = Capture::together(made, &plan::groups(&config, labels.iter().map(String::as_str)))?;
    let mut ports = Vec::new();
    for (number, ((capture, plan), keeping)) in captures.into_iter().zip(&plans).zip(keeping).enumerate() {
        let number = number as u16;
        for source in capture.sources() {
            sys::say!("netgrain: {source}");
        }
        sys::say!("netgrain: {}", capture.memory_warning(plan));
        if let Some(socket) = &plan.socket {
            let groups = engine::groups_socket(&socket.path);
            sys::say!("netgrain: listeners attach at {}, groups at {}", socket.path.display(), groups.display());
        }
        if let Some(report) = capture.report().program {
            sys::say!("netgrain: {}", crate::program::description(&report));
        }
        let rules = RetentionRules::of(&config);
        if let Some(text) = keeping.as_ref().and_then(|plan| retain::announcement(&rules, plan)) {
            sys::say!("netgrain: {text}");
        }
        let worker = |plan| Retention::start(plan, capture.observer(), retain::teller(args.json));
        let retention = keeping.map(worker).transpose()?;
        let label = plan.source.label();
        let data_types = sinks::keeping(&config, &label, args.json)?;
        ports.push(Port { capture, retention, data_types, number, label });
    }
    let mut service = Service::begin();
    service.ready();
    let metrics = config.status.metrics.as_deref().map(|address| serve(address, &ports)).transpose()?;
    privileges::keep_calls_of_capture()?;
    let mut show = Show::new(args);
    let begun = Instant::now();
    let mut due = Instant::now() + PERIOD;
    while !stop.load(Ordering::Relaxed) && !ports.iter().all(|p| p.capture.finished()) {
        // A small capture is replayed in less time than one check interval.
        std::thread::sleep(CHECK_INTERVAL.min(begun.elapsed() / 8));
        if hangup.swap(false, Ordering::Relaxed) {
            reload::reload(args, &mut config, &plans, &mut ports, &pace);
        }
        if due <= Instant::now() {
            due += PERIOD;
            let reports: Vec<Report> = ports.iter().map(|p| p.capture.report()).collect();
            reports.iter().for_each(|r| service.notify(r));
            show.show(&ports, &reports)?;
        }
    }
    service.stopping();
    show.done();
    ports.iter().for_each(|p| p.capture.stop());
    let ended: Vec<_> = ports.iter_mut().map(|p| p.capture.wait()).collect();
    drop(metrics);
    let mut healthy = true;
    let mut reports = Vec::new();
    let memory = sys::cpu::resident_bytes();
    for port in &mut ports {
        let report = Report { memory_bytes: Some(memory), ..port.capture.report() };
        healthy &= report.is_healthy();
        finish(args, port, &report)?;
        reports.push(report);
    }
    for (ended, report) in ended.into_iter().zip(&reports) {
        healthy &= outcome::ended(ended, report)?;
    }
    if show.gone {
        return Err(Failure::ClosedPipe);
    }
    Ok(Outcome::of(healthy))
}

/// The configuration from defaults, file and flags, in increasing priority.
pub(crate) fn configuration(args: &RunArgs) -> Result<Config, Failure> {
    let mut config = match &args.config {
        Some(path) => config::load(path).map_err(Failure::say)?,
        None => Config::default(),
    };
    for text in &args.set {
        let Some((key, value)) = text.split_once('=') else {
            return Err(Failure::Said(format!("--set {text}: write --set KEY=VALUE, as in flow.idle_timeout=15s")));
        };
        config::set(&mut config, key.trim(), &RawValue::from_flag(value.trim()))
            .map_err(|e| Failure::Said(format!("--set: {e}")))?;
    }
    if !args.interface.is_empty() {
        config.capture.interfaces.clone_from(&args.interface);
    }
    if !args.read.is_empty() || args.sim.is_some() {
        config.capture.interfaces.clear();
    }
    if !args.export.is_empty() {
        config.export.targets.clone_from(&args.export);
    }
    let over = |given: &Option<String>, key: &mut Option<String>| {
        if given.is_some() {
            key.clone_from(given);
        }
    };
    over(&args.filter, &mut config.capture.filter);
    over(&args.metrics, &mut config.status.metrics);
    over(&args.user, &mut config.status.user);
    // A program on the command line replaces the program file, which may then be missing.
    config.capture.program = match &args.program.expression {
        Some(_) => None,
        None => args.program.program.clone().or(config.capture.program),
    };
    config.store.dir = args.store.clone().or(config.store.dir).map(|dir| sys::nofollow::resolve(&dir));
    config.packets.archive = config.packets.archive.map(|dir| sys::nofollow::resolve(&dir));
    config.capture.cpus = args.cpu.clone().or(config.capture.cpus);
    config.capture.dedicated |= args.dedicated;
    config.capture.source = args.source_kind.map_or(config.capture.source, Into::into);
    config.packets.record &= !args.no_packets;
    config.capture.ring = args.ring.map(config::Size).or(config.capture.ring);
    let (packets, rules) = (&mut config.packets, &args.retention);
    packets.rotate = args.rotate.or(packets.rotate);
    if rules.keep_free.is_some() {
        packets.keep_free = config::Keep(rules.keep_free);
    }
    packets.max_size = rules.max_size.map(config::Size).or(packets.max_size);
    packets.max_age = rules.max_age.map(config::Age).or(packets.max_age);
    packets.archive = rules.archive.clone().or(packets.archive.take());
    if let Some(shards) = args.shards {
        config.flow.shards = config::Count(shards);
    }
    Ok(config)
}

fn serve(address: &str, ports: &[Port]) -> Result<MetricsServer, Failure> {
    let observers: Vec<Observer> = ports.iter().map(|p| p.capture.observer()).collect();
    let reports = move || Observer::all_measured(&observers);
    crate::metrics::serve(address, reports)
}

/// The output during the run. Output errors are ignored so that the capture continues.
struct Show {
    json: bool,
    quiet: bool,
    line: screen::Line,
    remarks: Vec<Warnings>,
    gone: bool,
}

impl Show {
    fn new(args: &RunArgs) -> Self {
        let (json, quiet) = (args.json, args.quiet);
        Self { json, quiet, line: screen::Line::new(), remarks: Vec::new(), gone: false }
    }

    fn show(&mut self, ports: &[Port], reports: &[Report]) -> Result<(), Failure> {
        if self.json && !self.quiet {
            for (port, report) in ports.iter().zip(reports) {
                let kept = port.retention.as_ref().map(Retention::report);
                match json(&serde_json::json!({ "live": report, "retention": kept })) {
                    Ok(()) => {}
                    Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => {
                        if !std::mem::replace(&mut self.gone, true) {
                            sys::say!("netgrain: nobody reads the reports any more; the work goes on");
                        }
                    }
                    Err(e) => return Err(e.into()),
                }
            }
            return Ok(());
        }
        self.remarks.resize_with(reports.len(), Warnings::default);
        self.remarks.iter_mut().zip(reports).for_each(|(remarks, report)| remarks.print(report));
        if !self.quiet {
            self.line.show(reports);
        }
        Ok(())
    }

    fn done(&self) {
        self.line.done();
    }
}

fn finish(args: &RunArgs, port: &mut Port, report: &Report) -> Result<(), Failure> {
    // Ended first, so that its messages precede the report.
    let kept = port.retention.take().map(Retention::end);
    let groups = port.capture.group_accounting();
    if args.json {
        let ledger: Vec<Second> = port.capture.ledger().rows().map(|row| Second::from(&row)).collect();
        json(&serde_json::json!({ "report": report, "ledger": ledger, "retention": kept, "groups": groups }))?;
    } else {
        let kept = kept.as_ref().map(retain::summary).unwrap_or_default();
        let data_types = report.meter.as_ref().map(screen::data_types).unwrap_or_default();
        let program = report.program.as_ref().map(crate::program::summary).unwrap_or_default();
        std::io::stdout().write_all((crate::screen::summary(report) + &program + &data_types + &kept).as_bytes())?;
        if !groups.is_empty() {
            // Losses of members are reported, but do not make the recording incomplete.
            let _ = show::stats(&groups, false)?;
        }
    }
    Ok(())
}

/// A configuration with these values, for tests.
#[cfg(test)]
pub fn with(pairs: &[(&str, &str)]) -> Config {
    config::with(pairs).expect("right")
}

/// Writes the greatest delay of flow records beside them, for each interface that records flows into the store.
fn keep_flow_lateness(config: &Config, plans: &[Plan]) -> Result<(), Failure> {
    let Some(store) = config.store.dir.as_ref().filter(|_| config.flow.record) else { return Ok(()) };
    let late = columns::flow_lateness(config.flow.longest_timeout());
    for plan in plans {
        let label = plan.source.label();
        columns::keep_flow_lateness(store, &label, late).map_err(|e| {
            let path = names::interface_folder(store, &label).join(names::FLOW_LATENESS);
            let cause = sys::advice::uncreatable(&e);
            Failure::Said(format!("{}: {cause}; the file has the greatest delay of flow records", path.display()))
        })?;
    }
    Ok(())
}
