//! Checks of values that are valid by type: out of range, unknown to the engine or to this machine, or contradicting
//! each other. `run` reports the first problem and `config --check` reports all, from the same list.

use super::table::Config;
use super::value::{DuplicateMode, DuplicateTable, Size};
use crate::program::read_program;
use crate::retention::RetentionRules;
use crate::units::{MIN_RING, MIN_SEGMENT};
use filter::Filter;
use interface_program::ProgramPlan;
use meter::Destination;
use std::fmt;
use std::io;
use std::net::ToSocketAddrs;
use std::path::Path;
use sys::privilege;

/// The largest number of shards of the flow table. More shards do not make the meter faster, because one thread decodes
/// the packets for all shards.
const MAX_SHARDS: u64 = 64;

/// The maximum length of an interface name in bytes. It also applies to alternative names (if_link.h: ALTIFNAMSIZ minus
/// its zero byte).
const NAME_MAX: usize = 127;

/// The prefix by which an export target is recognized as a file.
pub const FILE: &str = "file:";

/// The accepted syntax of a metrics address, as advice for users.
pub const METRICS_FORM: &str = "write an address and a port, as in 127.0.0.1:9600";

/// One invalid value or contradiction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The key whose value is the problem, as `section.key`, or `group.N` for the group with index N, counted from 0.
    pub key: String,
    /// The error, with the name of the key.
    pub text: String,
}

impl Problem {
    fn new(key: &str, text: impl std::fmt::Display) -> Self {
        Self { key: key.to_owned(), text: format!("{key}: {text}") }
    }
}

/// Returns all problems of a configuration except missing interfaces and unreachable collectors, which only a run
/// detects.
pub fn contradictions(config: &Config) -> Vec<Problem> {
    let mut found = contradictions_now(config);
    names(config, &mut found);
    found
}

/// Returns the problems that a reload can introduce. Account names and addresses are not resolved again, because the
/// start of the run has resolved them.
pub fn contradictions_now(config: &Config) -> Vec<Problem> {
    let mut found = numbers(config);
    ports(config, &mut found);
    targets(config, &mut found);
    words(config, &mut found);
    keeping(config, &mut found);
    found
}

/// Values out of their range.
fn numbers(config: &Config) -> Vec<Problem> {
    let (packets, flow) = (&config.packets, &config.flow);
    let ring = config.capture.ring.is_some_and(|Size(ring)| ring < MIN_RING);
    let rotate = packets.rotate.is_some_and(|span| span.as_secs() == 0 || span.subsec_nanos() > 0);
    let capacity = 1..=flow::Config::MAX_FLOWS as u64;
    let most = u64::from(u16::MAX);
    let rules = [
        (ring, "capture.ring", "at least 8MiB"),
        (
            !(1..=duplicates::settings::RECORDS_MAX as u64).contains(&config.capture.duplicate_records.0),
            "capture.duplicate_records",
            "from 1 to 268435456",
        ),
        (
            config.capture.duplicate_window.is_zero()
                || config.capture.duplicate_window > duplicates::settings::WINDOW_MAX,
            "capture.duplicate_window",
            "more than 0, at most 60s",
        ),
        (
            config.capture.duplicate_mirrored_interfaces && config.capture.duplicate_table != DuplicateTable::All,
            "capture.duplicate_mirrored_interfaces",
            "false, or set capture.duplicate_table to all, so that packets of different interfaces are compared",
        ),
        (
            config.capture.duplicates == DuplicateMode::Drop
                && config.capture.duplicate_classes.contains(duplicates::Class::Proxying),
            "capture.duplicate_classes",
            "without proxying, or set capture.duplicates to mark: the segments that a proxy sends belong to another \
             connection, which would lack them",
        ),
        (packets.segment.0 < MIN_SEGMENT, "packets.segment", "at least 2MiB"),
        (rotate, "packets.rotate", "a number of whole seconds, at least 1s"),
        (!(1..=256).contains(&packets.depth.0), "packets.depth", "from 1 to 256"),
        (!(1..=MAX_SHARDS).contains(&flow.shards.0), "flow.shards", "from 1 to 64"),
        (flow.capacity.is_some_and(|flows| !capacity.contains(&flows.0)), "flow.capacity", "from 1 to 1073741824"),
        (flow.payload.0 > most, "flow.payload", "at most 65535"),
        (flow.initial_packets.0 > most, "flow.initial_packets", "at most 65535"),
        (flow.idle_timeout.is_zero(), "flow.idle_timeout", "more than 0"),
        (flow.active_timeout.is_some_and(|span| span.is_zero()), "flow.active_timeout", "more than 0"),
        (
            flow.protocol_idle_timeouts.iter().any(|of| of.idle.is_zero()),
            "flow.protocol_idle_timeouts",
            "each timeout must be more than 0",
        ),
    ];
    rules.into_iter().filter(|rule| rule.0).map(|(_, key, text)| Problem::new(key, text)).collect()
}

fn ports(config: &Config, found: &mut Vec<Problem>) {
    let (ports, key) = (&config.capture.interfaces, "capture.interfaces");
    for (i, port) in ports.iter().enumerate() {
        let plain = |c: char| !c.is_whitespace() && !c.is_control() && c != '/';
        if port.is_empty() || port.len() > NAME_MAX || [".", ".."].contains(&&**port) || !port.chars().all(plain) {
            found.push(Problem::new(key, format!("{port:?} is not the name of an interface; ip link lists the names")));
        }
        if ports[..i].contains(port) {
            found.push(Problem::new(key, format!("{port} is listed twice; write it once")));
        }
    }
    let socket = &config.listen.socket;
    if ports.len() > 1 && socket != Path::new("auto") && socket != Path::new("none") {
        found.push(Problem::new(
            "listen.socket",
            "a socket serves one interface; write auto or none for several interfaces",
        ));
    }
    // The names of interfaces in files and simulations are unknown before the run starts, so they are not checked.
    for (i, group) in config.group.iter().enumerate().filter(|_| !ports.is_empty()) {
        for port in group.interfaces.iter().filter(|port| !ports.contains(port)) {
            let text = format!(
                "group {}: interface {port} is not captured; the captured interfaces are {}",
                group.name,
                ports.join(", ")
            );
            found.push(Problem { key: format!("group.{i}"), text });
        }
    }
}

fn targets(config: &Config, found: &mut Vec<Problem>) {
    let (targets, several) = (&config.export.targets, config.capture.interfaces.len() > 1);
    let made = (config.flow.record, config.series.record);
    let mut report = |text: String| found.push(Problem::new("export.targets", text));
    if !targets.is_empty() && made == (false, false) {
        report("nothing to export: flow.record or series.record must be true".into());
    }
    for (i, target) in targets.iter().enumerate() {
        let to = match Destination::parse(target) {
            Ok(to) => to,
            Err(e) => {
                report(e.to_string());
                continue;
            }
        };
        if targets[..i].contains(target) {
            report(format!("{target} is listed twice; write it once"));
        }
        if target.starts_with(FILE) && several {
            report(format!(
                "{target}: a file has the data of one interface; start a run for each interface, or export to a \
                 collector"
            ));
        }
        if made == (false, false) || (to.flows && made.0) || (to.series && made.1) {
            continue;
        }
        let (kinds, key, other) =
            if to.flows { ("flow records", "flow.record", "series") } else { ("rows", "series.record", "flows") };
        report(format!(
            "{target} exports {kinds}, but this run makes no {kinds}: set {key} to true, or write \
             {target},kinds={other}"
        ));
    }
}

/// Checks that the capture filter compiles, and that the packet programs compile.
fn words(config: &Config, found: &mut Vec<Problem>) {
    if let Some(Err(e)) = config.capture.filter.as_deref().map(Filter::parse) {
        found.push(Problem::new("capture.filter", e));
    }
    let sound = |path: &Path| {
        let ProgramPlan { name, text } = read_program(path).map_err(|e| e.to_string())?;
        lang::compile(&text).map(drop).map_err(|e| {
            let (line, column) = e.place(&text);
            format!("{name}, line {line}, column {column}: {}", e.what)
        })
    };
    if let Some(Err(text)) = config.capture.program.as_deref().map(sound) {
        found.push(Problem::new("capture.program", text));
    }
}

/// Checks names that this machine must resolve: accounts, addresses.
fn names(config: &Config, found: &mut Vec<Problem>) {
    let (listen, status) = (&config.listen, &config.status);
    for (key, name, file) in
        [("listen.owner", &listen.owner, "/etc/passwd"), ("listen.group", &listen.group, "/etc/group")]
    {
        if let Some(name) = name.as_ref().filter(|name| sys::unix::id_of(name, Path::new(file)).is_none()) {
            found.push(Problem::new(key, format!("{name}: not a number and not in {file}")));
        }
    }
    if let Some(name) = status.user.as_ref().filter(|name| privilege::account(name).is_none()) {
        found.push(Problem::new("status.user", format!("{name}: no user in /etc/passwd has this name or number")));
    }
    if let Some(Err(text)) = status.metrics.as_deref().map(check_metrics_address) {
        found.push(Problem::new("status.metrics", text));
    }
}

/// Checks retention rules for packets: rules that would keep no packet, or an archive without a limit.
fn keeping(config: &Config, found: &mut Vec<Problem>) {
    let Some(store) = config.store.dir.as_ref().filter(|_| config.packets.record) else { return };
    if let Err(e) = RetentionRules::of(config).for_files_of(store, Some(config.packets.segment.0)) {
        found.push(Problem::new(e.key(), e));
    }
}

/// Checks that metrics can be served at an address, without opening a socket.
///
/// # Errors
/// The address has invalid syntax, or this machine cannot resolve its host name.
pub fn check_metrics_address(address: &str) -> Result<(), MetricsAddressError> {
    if let Some(port) = address.strip_prefix(':').and_then(|port| port.parse().ok()) {
        return Err(MetricsAddressError::PortOnly(port));
    }
    let unresolved = |error| MetricsAddressError::Unresolved { address: address.to_owned(), error };
    address.to_socket_addrs().map(drop).map_err(unresolved)
}

/// The reason why metrics cannot be served at an address.
#[derive(Debug)]
pub enum MetricsAddressError {
    /// The address before this port is missing.
    PortOnly(u16),
    /// The text is not an address with a port, or this machine cannot resolve its host name.
    Unresolved {
        /// The text.
        address: String,
        /// The error of the system.
        error: io::Error,
    },
}

impl fmt::Display for MetricsAddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PortOnly(port) => write!(
                f,
                ":{port}: the address before the port is missing: write 127.0.0.1:{port} to serve this machine only, \
                 or 0.0.0.0:{port} to serve other machines too"
            ),
            Self::Unresolved { address, error } => write!(f, "{address}: {error}; {METRICS_FORM}"),
        }
    }
}

impl std::error::Error for MetricsAddressError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_addresses_are_checked_without_opening_a_socket() {
        for good in ["127.0.0.1:9600", "[::1]:80", "0.0.0.0:0"] {
            assert!(check_metrics_address(good).is_ok(), "{good}");
        }
        let message = check_metrics_address(":80").unwrap_err().to_string();
        assert!(message.contains("127.0.0.1:80") && message.contains("0.0.0.0:80"), "{message}");
        for bad in ["", ":", "80", "127.0.0.1", "127.0.0.1:x", ":x"] {
            assert!(check_metrics_address(bad).is_err_and(|e| e.to_string().contains(METRICS_FORM)), "{bad}");
        }
    }
}
