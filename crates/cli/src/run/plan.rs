//! Makes the plans for the engine from the configuration, one for each interface.

use super::sources::{refused_for_several, sources};
use super::verb::Verb;
use crate::outcome::Failure;
use crate::retain;
use config::{Config, DuplicateTable, Group, RetentionRules};
use duplicates::Settings;
use engine::{DuplicatePlan, DuplicateScope, Plan, RetentionPlan, SharedDuplicates, SocketPlan, SourcePlan, StorePlan};
use group_services::GroupPlan;
use interface_program::ProgramPlan;
use meter::MeterPlan;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The error for a configuration without a source of packets, with an example of each kind of source.
const NO_SOURCE: &str = "no source of packets: add an interface (-i eth1), a capture file (-r monday.pcap) or a \
    simulation (--sim 60,packets=1000); see netgrain run --help";

/// The error for mirrored interfaces in a capture of one interface.
const ONE_MIRROR: &str = "capture.duplicate_mirrored_interfaces compares the packets of several interfaces, and this \
    capture has one (several capture files are one interface): leave the key out, or use netgrain dedup \
    --mirrored-interfaces for capture files";

/// Returns one plan for each captured interface, or the plans of capture files or of a simulation.
/// [`engine::choose_key`] sets the secrets of the meters.
///
/// # Errors
/// Two settings contradict each other (the error names a key or flag), or a source cannot be captured.
pub fn plans(verb: Verb<'_>, config: &Config, stop: &AtomicBool) -> Result<Vec<Plan>, Failure> {
    let args = verb.capture();
    if args.read.is_empty() && args.sim.is_none() && config.capture.interfaces.is_empty() {
        return Err(Failure::say(NO_SOURCE));
    }
    if let Some(first) = config::contradictions(config).first() {
        return Err(verb.refused(first));
    }
    has_destination(config)?;
    let sources = sources(args, config, stop)?;
    if let Some(problem) = refused_for_several(config, sources.len()).filter(|_| sources.len() > 1) {
        return Err(verb.refused(&problem));
    }
    if config.capture.duplicate_mirrored_interfaces && sources.len() < 2 {
        return Err(Failure::say(ONE_MIRROR));
    }
    let labels: Vec<String> = sources.iter().map(SourcePlan::label).collect();
    let groups = groups(config, labels.iter().map(String::as_str));
    let shared = SharedDuplicates::default();
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
        plan.duplicates = duplicates(config, number as u16, &shared);
        plan.program = program(verb, config)?;
        plan.cpus = config.capture.cpus.clone().map(|c| c.0).unwrap_or_default();
        plan.spin = config.capture.spin;
        plan.timestamps = config.capture.timestamps;
        plan.switch_timestamps = config.capture.switch_timestamps;
        (plan.duration, plan.packets) = (args.duration, args.packets);
        plan.reader_timeout = (config.listen.reader_timeout > Duration::ZERO).then_some(config.listen.reader_timeout);
        if let Some(dir) = config.store.dir.as_ref().filter(|_| config.packets.record) {
            let (format, depth) = (verb.format(), config.packets.depth.0 as u32);
            plan.store = Some(StorePlan { dir: dir.clone(), format, depth });
        }
        plan.socket = socket(config, &plan.source)?;
        plan.meter = meter(config, number as u16, plan.shares);
        // A reload may add an interface to a group later, so each plan gets all groups.
        plan.groups.clone_from(&groups);
        Ok(plan)
    };
    sources.into_iter().enumerate().map(plan).collect()
}

/// The detection of duplicates for the interface with this number; `None` if it is off. `shared` is the table of all
/// interfaces.
fn duplicates(config: &Config, interface: u16, shared: &SharedDuplicates) -> Option<DuplicatePlan> {
    let capture = &config.capture;
    let settings = Settings {
        classes: capture.duplicate_classes,
        window: capture.duplicate_window,
        repeat_window: capture.duplicate_repeat_window,
        mirrored_interfaces: capture.duplicate_mirrored_interfaces,
        records: usize::try_from(capture.duplicate_records.0).unwrap_or(usize::MAX),
        ..Settings::default()
    };
    let scope = match capture.duplicate_table {
        DuplicateTable::Queue => DuplicateScope::Queue,
        DuplicateTable::Interface => DuplicateScope::Interface,
        DuplicateTable::All => DuplicateScope::Shared(shared.clone()),
    };
    Some(DuplicatePlan { scope, interface, ..DuplicatePlan::new(capture.duplicates.action()?, settings) })
}

/// The program of the packet language for the interfaces: the expression on the command line, or the file that the
/// configuration key `capture.program` names.
///
/// # Errors
/// The program file cannot be read.
pub fn program(verb: Verb<'_>, config: &Config) -> Result<Option<ProgramPlan>, Failure> {
    match (&verb.capture().program.expression, &config.capture.program) {
        (Some(text), _) => Ok(Some(ProgramPlan { name: "-e".into(), text: text.clone() })),
        (None, Some(path)) => config::read_program(path).map(Some).map_err(Failure::say),
        (None, None) => Ok(None),
    }
}

/// The retention plan for the packets of one interface, if it has rules.
///
/// # Errors
/// The retention rules cannot be satisfied.
pub fn retention(config: &Config, plan: &Plan) -> Result<Option<RetentionPlan>, Failure> {
    match &plan.store {
        Some(store) => retain::plan(&RetentionRules::of(config), &store.dir, plan),
        None => Ok(None),
    }
}

/// Returns an error if the configuration would neither store, export, count nor distribute the packets.
fn has_destination(config: &Config) -> Result<(), Failure> {
    let (packets, flow) = (&config.packets, &config.flow);
    let kept = config.store.dir.is_some() && (packets.record || flow.record || config.series.record);
    let sent = !config.export.targets.is_empty() && (flow.record || config.series.record);
    if !kept && !sent && config.status.metrics.is_none() && config.group.is_empty() {
        let how = "add --store DIR for a store, --export udp:HOST for a collector, or --metrics 127.0.0.1:9100";
        return Err(Failure::Said(format!("packets and records would not be stored, exported or counted: {how}")));
    }
    Ok(())
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

/// The ID of a user or group.
///
/// # Errors
/// No entry of the file has this name.
fn id(name: Option<&str>, file: &str) -> Result<Option<u32>, Failure> {
    let Some(name) = name else { return Ok(None) };
    sys::unix::id_of(name, Path::new(file))
        .map(Some)
        .ok_or_else(|| Failure::Said(format!("{name}: not a number and not in {file}")))
}

/// The groups of the configuration that get packets of the interfaces `ports`. Of the interfaces of each group, only
/// those in `ports` are kept. An interface of a capture file or simulation is matched by its own name or by the name of
/// the capture.
pub fn groups<'a>(config: &Config, ports: impl Iterator<Item = &'a str> + Clone) -> Vec<GroupPlan> {
    let here = |group: &Group| {
        // A group for a capture applies to all interfaces that are found in the files of the capture.
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
    fn an_invalid_value_is_refused_with_the_name_of_its_key() {
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
            let found = config::contradictions(&config);
            assert!(found.first().is_some_and(|problem| problem.text.contains(key)), "{key}: {found:?}");
        }
    }

    #[test]
    fn a_run_without_a_destination_is_refused() {
        let config = Config::default();
        assert!(matches!(has_destination(&config), Err(Failure::Said(text)) if text.contains("would not be stored")));
    }

    #[test]
    fn without_flow_records_and_rows_there_is_no_meter() {
        let mut config = Config::default();
        assert!(meter(&config, 3, 1).is_some_and(|m| m.interface == 3 && m.flows.is_some() && m.series));
        config.flow.record = false;
        assert!(meter(&config, 0, 1).is_some_and(|m| m.flows.is_none()));
        config.series.record = false;
        assert!(meter(&config, 0, 1).is_none());
    }
}
