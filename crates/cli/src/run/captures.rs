//! The start of a capture: plans, privileges, engine threads and retention. The order of these steps ensures that each
//! step still has the privileges that it needs.

use super::verb::Verb;
use super::{plan, sinks};
use crate::outcome::Failure;
use crate::privileges::{self, Needs};
use crate::{metrics, program, replay_overlap, retain};
use config::{Config, RetentionRules};
use engine::{Capture, MetricsServer, Observer, Plan, Report, Retention};
use meter::{Pace, RowRetention};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use store::names;

/// The running captures, and the settings from which they were started.
pub struct RunningCaptures {
    /// The configuration in force.
    pub config: Config,
    /// The plan of each interface.
    pub plans: Vec<Plan>,
    /// The captured interfaces, in the order of `plans`.
    pub interfaces: Vec<CapturedInterface>,
    /// The kind of source (live, simulated or a replay), which the sinks depend on.
    pub pace: Pace,
}

/// One interface that is captured.
pub struct CapturedInterface {
    pub capture: Capture,
    /// Retention of packet files.
    pub retention: Option<Retention>,
    /// Retention of flow records and rows.
    pub row_retention: Option<RowRetention>,
    /// The number of the interface in flow records and rows.
    pub number: u16,
    /// The name of the interface.
    pub label: String,
}

impl RunningCaptures {
    /// Reads the configuration, drops the privileges that are not needed, and starts all captures.
    ///
    /// # Errors
    /// The first setting that is invalid, or the first resource that cannot be opened or allocated.
    pub fn start(verb: Verb<'_>, stop: &Arc<AtomicBool>) -> Result<Self, Failure> {
        let config = verb.configuration()?;
        let mut plans = plan::plans(verb, &config, stop)?;
        let retention: Vec<_> = plans.iter().map(|p| plan::retention(&config, p)).collect::<Result<_, _>>()?;
        privileges::for_recording(&needs(verb, &config, &plans))?;
        for plan in plans.iter_mut().filter(|plan| plan.meter.is_some()) {
            engine::choose_key(plan, config.store.dir.as_deref(), config.series.key).map_err(Failure::say)?;
        }
        let rules = RetentionRules::of(&config);
        if plans.iter().any(|plan| retain::age_of_replay(&rules, plan)) {
            sys::say!(
                "netgrain: the maximum age of packets is not applied to a replay, because its packets may be older: \
                 netgrain retain --max-age removes them afterwards"
            );
        }
        for warning in plans.iter().filter_map(replay_overlap::warning) {
            sys::say!("netgrain: {warning}");
        }
        let pace = match (&verb.capture().sim, config.capture.interfaces.is_empty()) {
            (Some(_), _) => Pace::Simulated,
            (None, true) => Pace::Replay { stop: Arc::clone(stop) },
            (None, false) => Pace::Live,
        };
        if !matches!(pace, Pace::Live) {
            for warning in config.export.targets.iter().filter_map(|target| sinks::unresolved(target)) {
                sys::say!("netgrain: {warning}");
            }
        }
        // All captures are created before the first of them starts, because a group may receive the packets of several
        // captures.
        let mut prepared = Vec::new();
        for (number, plan) in plans.iter().enumerate() {
            let sinks = |label: &str| sinks::sinks(&config, label, number as u16, &pace);
            prepared.push(Capture::prepare(plan, &config.store.dir, sinks)?);
        }
        // The greatest lateness of flow records is saved after the interfaces are claimed, because a run that cannot
        // claim them must not change the files of another run.
        keep_flow_lateness(&config, &plans)?;
        let labels: Vec<String> = plans.iter().map(|plan| plan.source.label()).collect();
        let captures = Capture::together(prepared, &plan::groups(&config, labels.iter().map(String::as_str)))?;
        let mut interfaces = Vec::new();
        for (number, (((capture, plan), retention), label)) in
            captures.into_iter().zip(&plans).zip(retention).zip(labels).enumerate()
        {
            announce(&capture, plan);
            if let Some(text) = retention.as_ref().and_then(|plan| retain::announcement(&rules, plan)) {
                sys::say!("netgrain: {text}");
            }
            let json = verb.capture().json;
            let worker = |plan| Retention::start(plan, capture.observer(), retain::teller(json));
            let retention = retention.map(worker).transpose()?;
            let row_retention = sinks::row_retention(&config, &label, json)?;
            interfaces.push(CapturedInterface { capture, retention, row_retention, number: number as u16, label });
        }
        Ok(Self { config, plans, interfaces, pace })
    }

    /// Serves metrics, if the configuration has an address for them.
    ///
    /// # Errors
    /// netgrain cannot listen at the address.
    pub fn serve_metrics(&self) -> Result<Option<MetricsServer>, Failure> {
        let Some(address) = &self.config.status.metrics else { return Ok(None) };
        let observers: Vec<Observer> = self.interfaces.iter().map(|i| i.capture.observer()).collect();
        metrics::serve(address, move || Observer::all_measured(&observers)).map(Some)
    }

    /// True if all engine threads of all captures have ended.
    pub fn are_finished(&self) -> bool {
        self.interfaces.iter().all(|i| i.capture.finished())
    }

    /// The current report of each interface.
    pub fn reports(&self) -> Vec<Report> {
        self.interfaces.iter().map(|i| i.capture.report()).collect()
    }
}

fn needs<'a>(verb: Verb<'a>, config: &'a Config, plans: &'a [Plan]) -> Needs<'a> {
    Needs {
        ports: !config.capture.interfaces.is_empty(),
        program: plans.iter().any(|p| p.program.is_some()),
        files: !verb.capture().read.is_empty() || verb.can_reload() || config.capture.program.is_some(),
        store: config.store.dir.as_deref(),
        archive: config.packets.archive.as_deref(),
        socket: plans.iter().find_map(|p| p.socket.as_ref()).map(|s| s.path.as_path()),
        socket_owner: config.listen.owner.as_deref(),
        socket_group: config.listen.group.as_deref(),
        user: config.status.user.as_deref(),
    }
}

/// Prints the sources, the memory, the sockets and the program of an interface.
fn announce(capture: &Capture, plan: &Plan) {
    for source in capture.sources() {
        sys::say!("netgrain: {source}");
    }
    sys::say!("netgrain: {}", capture.memory_warning(plan));
    if let Some(socket) = &plan.socket {
        let groups = group_services::groups_socket(&socket.path);
        sys::say!("netgrain: listeners attach at {}, groups at {}", socket.path.display(), groups.display());
    }
    if let Some(report) = capture.report().program {
        sys::say!("netgrain: {}", program::description(&report));
    }
}

/// If flow records are stored, saves their greatest lateness (the time from the last packet of a record to the moment
/// at which the record is made) in the store directory of each interface.
fn keep_flow_lateness(config: &Config, plans: &[Plan]) -> Result<(), Failure> {
    let Some(store) = config.store.dir.as_ref().filter(|_| config.flow.record) else { return Ok(()) };
    let late = columns::flow_lateness(config.flow.longest_timeout());
    for plan in plans {
        let label = plan.source.label();
        columns::keep_flow_lateness(store, &label, late).map_err(|e| {
            let path = names::interface_directory(store, &label).join(names::FLOW_LATENESS);
            let cause = sys::advice::uncreatable(&e);
            Failure::Said(format!(
                "{}: {cause}; this file stores the greatest lateness of the flow records of the interface",
                path.display()
            ))
        })?;
    }
    Ok(())
}
