//! The sinks of flow records and rows: the store, and collectors.

use crate::outcome::json;
use columns::RetentionRules as ColumnRules;
use config::{Age, Config, Size};
use engine::EngineError;
use export::{IPFIX_PORT, Target};
use meter::{CollectorSink, Destination, Pace, RowRetention, RowRetentionRules, Sink, StoreSink};
use std::io::{IsTerminal, Write};
use std::net::ToSocketAddrs;

/// The kind of all sinks for collectors, as [`Sink::kind`] returns it.
pub const EXPORT: &str = "export";

/// All sinks of one interface.
///
/// # Errors
/// A sink cannot be opened.
pub fn sinks(config: &Config, label: &str, number: u16, pace: &Pace) -> Result<Vec<Box<dyn Sink>>, EngineError> {
    let mut all = exports(&config.export.targets, label, number, pace)?;
    if let Some(store) = &config.store.dir {
        all.push(Box::new(StoreSink::new(store, label, !matches!(pace, Pace::Live))?));
    }
    Ok(all)
}

/// The sinks for these collectors.
///
/// # Errors
/// As [`sinks`].
pub fn exports(targets: &[String], label: &str, number: u16, pace: &Pace) -> Result<Vec<Box<dyn Sink>>, EngineError> {
    let mut all: Vec<Box<dyn Sink>> = Vec::new();
    for target in targets {
        let interface = (number, label.to_owned());
        all.push(Box::new(CollectorSink::new(target, interface, pace.clone())?));
    }
    Ok(all)
}

/// A warning about a collector whose host name cannot be resolved; `None` for all other targets. The name service may
/// need many seconds, so a live capture does not call this function before its start: its exporters report the error.
pub fn unresolved(target: &str) -> Option<String> {
    let (Target::Udp { host, port } | Target::Tcp { host, port }) = Destination::parse(target).ok()?.target else {
        return None;
    };
    let error = (host.as_str(), port.unwrap_or(IPFIX_PORT)).to_socket_addrs().err()?;
    Some(format!(
        "{target}: the host name {host} cannot be resolved ({error}); check the name: nothing is sent to this \
         collector until the name can be resolved"
    ))
}

/// Starts the retention of the flow records and series rows of one interface, if the capture writes flow records or
/// series rows to a store.
///
/// # Errors
/// The thread cannot be started.
pub fn row_retention(config: &Config, label: &str, as_json: bool) -> Result<Option<RowRetention>, EngineError> {
    let has_rows = config.flow.record || config.series.record;
    let Some(store) = config.store.dir.as_ref().filter(|_| has_rows) else { return Ok(None) };
    let clear = if std::io::stderr().is_terminal() { "\r\x1b[K" } else { "" };
    let tell = move |text: &str| {
        // Output errors are ignored; retention continues.
        if as_json {
            let _ = json(&serde_json::json!({ "event": { "kind": "warning", "text": text } }));
        } else {
            let _ = writeln!(std::io::stderr(), "{clear}netgrain: {text}");
        }
    };
    Ok(Some(RowRetention::start(store, label, rules(config), tell)?))
}

/// The retention rules for flow records and rows.
pub fn rules(config: &Config) -> RowRetentionRules {
    let of = |max_age: Option<Age>, max_size: Option<Size>| ColumnRules {
        max_age: max_age.map(|age| age.0),
        wait: config.store.wait_for_readers,
        max_size: max_size.map(|size| size.0),
    };
    let (flow, series) = (&config.flow, &config.series);
    RowRetentionRules { flows: of(flow.max_age, flow.max_size), series: of(series.max_age, series.max_size) }
}
