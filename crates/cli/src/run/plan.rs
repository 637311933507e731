//! Makes the plans for the engine from the configuration, one for each interface.

use super::RunArgs;
use crate::outcome::Failure;
use crate::port::port;
use crate::record::id;
use crate::retain;
use crate::signals;
use capture::file::Port;
use config::{Config, FILE, Group, RetentionRules};
use engine::{Format, Plan, RetentionPlan, SocketPlan, SourcePlan, StorePlan};
use group_services::GroupPlan;
use interface_program::ProgramPlan;
use meter::MeterPlan;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// One plan for each interface, or one for files or a simulation. [`engine::choose_key`] sets the secrets of the
/// meters.
///
/// # Errors
/// The contradiction, with the name of its key.
pub fn plans(args: &RunArgs, config: &Config) -> Result<Vec<Plan>, Failure> {
    let has_source = !args.read.is_empty() || args.sim.is_some() || !config.capture.interfaces.is_empty();
    if !has_source {
        return say(NO_SOURCE);
    }
    check(config)?;
    let sources = sources(args, config)?;
    let labels: Vec<String> = sources.iter().map(SourcePlan::label).collect();
    let groups = groups(config, labels.iter().map(String::as_str));
    let plan = |(number, source): (usize, SourcePlan)| -> Result<Plan, Failure> {
        let mut plan = Plan::new(source);
        plan.ring = config.capture.ring.map(|size| size.0);
        plan.shares = labels.len() as u16;
        plan.segment = config.packets.segment.0;
        plan.rotate = config.packets.rotate;
        if config.capture.snaplen.0 > 0 {
            plan.snaplen = plan.snaplen.min(u32::try_from(config.capture.snaplen.0).unwrap_or(u32::MAX));
        }
        plan.filter.clone_from(&config.capture.filter);
        plan.program = program(args, config)?;
        plan.cpus = config.capture.cpus.clone().map(|c| c.0).unwrap_or_default();
        plan.spin = config.capture.spin;
        (plan.duration, plan.packets) = (args.duration, args.packets);
        plan.reader_timeout = (config.listen.reader_timeout > Duration::ZERO).then_some(config.listen.reader_timeout);
        if let Some(dir) = config.store.dir.as_ref().filter(|_| config.packets.record) {
            let depth = config.packets.depth.0 as u32;
            plan.store = Some(StorePlan { dir: dir.clone(), format: Format::Pcap, depth });
        }
        plan.socket = socket(config, &plan.source)?;
        plan.meter = meter(config, number as u16, plan.shares);
        // A reload may add an interface to a group later, so each plan gets all groups.
        plan.groups.clone_from(&groups);
        Ok(plan)
    };
    sources.into_iter().enumerate().map(plan).collect()
}

/// The program of the interfaces, from the command line or from the file of its key.
///
/// # Errors
/// The file cannot be read.
pub fn program(args: &RunArgs, config: &Config) -> Result<Option<ProgramPlan>, Failure> {
    match (&args.program.expression, &config.capture.program) {
        (Some(_), _) => args.program.plan(),
        (None, Some(path)) => crate::program::read(path).map(Some),
        (None, None) => Ok(None),
    }
}

/// The retention plan for the packets of one interface, if it has rules.
///
/// # Errors
/// The rules cannot be satisfied.
pub fn retention(config: &Config, plan: &Plan) -> Result<Option<RetentionPlan>, Failure> {
    match &plan.store {
        Some(store) => retain::plan(&RetentionRules::of(config), &store.dir, plan),
        None => Ok(None),
    }
}

fn say<T>(text: &str) -> Result<T, Failure> {
    Err(Failure::Said(text.to_owned()))
}

/// The sources with an example of each.
const NO_SOURCE: &str = "no source of packets: add an interface (-i eth1), a capture file (-r monday.pcap) or a simulation \
    (--sim 60,packets=1000); see netgrain run --help";

fn check(config: &Config) -> Result<(), Failure> {
    if let Some(first) = config::contradictions(config).into_iter().next() {
        return Err(Failure::Said(first.text));
    }
    let (packets, flow) = (&config.packets, &config.flow);
    let kept = config.store.dir.is_some() && (packets.record || flow.record || config.series.record);
    let sent = !config.export.targets.is_empty() && (flow.record || config.series.record);
    if !kept && !sent && config.status.metrics.is_none() && config.group.is_empty() {
        let how = "add --store DIR for a store, --export udp:HOST for a collector, or --metrics 127.0.0.1:9100";
        return Err(Failure::Said(format!("nothing would be kept: {how}")));
    }
    Ok(())
}

fn sources(args: &RunArgs, config: &Config) -> Result<Vec<SourcePlan>, Failure> {
    if !args.read.is_empty() {
        let ports = captures(&args.read, args.speed, args.name.clone())?;
        if ports.len() > 1 {
            check_several(config, ports.len())?;
        }
        return Ok(ports);
    }
    if let Some(spec) = &args.sim {
        let spec = spec.parse().map_err(Failure::say)?;
        return Ok(vec![SourcePlan::Sim { spec, start: None, name: args.name.clone() }]);
    }
    let capture = &config.capture;
    let queues = capture.queues.map(|n| u16::try_from(n.0).unwrap_or(u16::MAX));
    let one = |name: &String| port(name, capture.source, capture.dedicated, queues, capture.busy_poll);
    capture.interfaces.iter().map(one).collect()
}

/// Capture files as one stream, or as one for each of their interfaces.
///
/// # Errors
/// The stop flag was set while the files were examined.
pub fn captures(
    files: &[PathBuf],
    speed: capture::file::Speed,
    name: Option<String>,
) -> Result<Vec<SourcePlan>, Failure> {
    let plan = |paths: &[PathBuf], name, port| {
        let options = capture::file::Options { speed, format: None, port };
        SourcePlan::Files { paths: paths.to_vec(), options, name }
    };
    let whole = plan(files, name, None);
    let stop = signals::stop_flag();
    let ports = capture::file::ports(files, &stop);
    if stop.load(Ordering::Relaxed) {
        return say("interrupted while the capture was looked through for its interfaces; nothing was done");
    }
    let one = |port: Port| {
        let label = format!("{}.{}", whole.label(), port.name);
        plan(&port.paths, Some(label), Some((port.name, port.link_type)))
    };
    Ok(if ports.is_empty() { vec![whole] } else { ports.into_iter().map(one).collect() })
}

/// Checks settings that do not work with several interfaces, for files whose number of interfaces was not known before.
fn check_several(config: &Config, ports: usize) -> Result<(), Failure> {
    let one = "give the capture by standard input (-r -) to have it as one interface";
    if let Some(target) = config.export.targets.iter().find(|target| target.starts_with(FILE)) {
        return say(&format!("export.targets: {target}: a file is of one interface, the capture of {ports}; {one}"));
    }
    match config.listen.socket.to_str() {
        Some("auto" | "none") => Ok(()),
        _ => say(&format!("listen.socket: one socket is for one interface, the capture is of {ports}; {one}")),
    }
}

fn socket(config: &Config, source: &SourcePlan) -> Result<Option<SocketPlan>, Failure> {
    let listen = &config.listen;
    let path = match listen.socket.to_str() {
        Some("none") => return Ok(None),
        Some("auto") if !matches!(source, SourcePlan::Interface(_)) => return Ok(None),
        Some("auto") => engine::default_socket(&source.label()),
        _ => listen.socket.clone(),
    };
    Ok(Some(SocketPlan {
        path,
        mode: listen.mode.0,
        uid: id(listen.owner.as_deref(), "/etc/passwd")?,
        gid: id(listen.group.as_deref(), "/etc/group")?,
        allow_lossless: listen.lossless,
        forward: listen.forward.clone(),
    }))
}

/// The groups for these interfaces, each restricted to its interfaces among them. Interfaces of files and simulations
/// have other names than the configured interfaces.
pub fn groups<'a>(config: &Config, ports: impl Iterator<Item = &'a str> + Clone) -> Vec<GroupPlan> {
    let here = |group: &Group| {
        // A group for a capture applies to all interfaces that the capture turns out to have.
        let has_whole = |port: &str| {
            let is_part = |whole: &String| port.strip_prefix(&**whole).is_some_and(|rest| rest.starts_with('.'));
            !config.capture.interfaces.iter().any(|known| known == port) && group.interfaces.iter().any(is_part)
        };
        let of = ports.clone().filter(|port| group.has(port) || has_whole(port));
        let of: Vec<String> = of.map(str::to_owned).collect();
        (!of.is_empty()).then(|| GroupPlan { ports: Some(of), ..group.plan() })
    };
    config.group.iter().filter_map(here).collect()
}

fn meter(config: &Config, number: u16, shares: u16) -> Option<MeterPlan> {
    let flow = &config.flow;
    let flows = flow.record.then(|| flow::Config {
        idle_timeout: flow.idle_timeout,
        protocol_idle_timeouts: flow.protocol_idle_timeouts.iter().map(|of| (of.protocol, of.idle)).collect(),
        active_timeout: flow.active_timeout,
        close_timeout: flow.close_timeout,
        compress_after: flow.compress_after,
        key_fields: flow::KeyFields { vlans: flow.by_vlan, tunnel: flow.by_tunnel, teid: flow.by_teid },
        bidirectional: flow.bidirectional,
        capacity: flow.capacity.map_or_else(|| engine::default_flows(shares), |flows| flows.0) as usize,
        initial_packets: flow.initial_packets.0 as usize,
        payload: flow.payload.0 as u16,
        seed: 0,
    });
    let wanted = flow.record || config.series.record;
    let shards = flow.shards.0 as usize;
    wanted.then_some(MeterPlan { interface: number, flows, shards, series: config.series.record, key: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::{RawValue, set};

    #[test]
    fn what_cannot_be_is_refused_by_the_name_of_its_key() {
        for (key, value) in [
            ("capture.ring", "1MiB"),
            ("packets.segment", "1k"),
            ("packets.rotate", "300ms"),
            ("packets.depth", "0"),
            ("flow.shards", "0"),
            ("flow.capacity", "0"),
            ("flow.payload", "70000"),
            ("flow.idle_timeout", "0s"),
            ("flow.protocol_idle_timeouts", "udp=0s"),
        ] {
            let mut config = Config::default();
            config.store.dir = Some("/data".into());
            set(&mut config, key, &RawValue::from_flag(value)).expect("read");
            match check(&config) {
                Err(Failure::Said(text)) => assert!(text.contains(key), "{key}: {text}"),
                other => panic!("{key}={value}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_run_of_which_nothing_would_be_left_is_refused() {
        let config = Config::default();
        assert!(matches!(check(&config), Err(Failure::Said(text)) if text.contains("nothing would be kept")));
    }

    #[test]
    fn without_data_types_above_the_packets_there_is_no_meter() {
        let mut config = Config::default();
        assert!(meter(&config, 3, 1).is_some_and(|m| m.interface == 3 && m.flows.is_some() && m.series));
        config.flow.record = false;
        assert!(meter(&config, 0, 1).is_some_and(|m| m.flows.is_none()));
        config.series.record = false;
        assert!(meter(&config, 0, 1).is_none());
    }
}
