//! Where flow records and rows go: the store, and collectors.

use crate::config::{Config, Size};
use crate::outcome::{Failure, json};
use engine::{CollectorOutlet, ColumnRules, Destination, EngineError, GrainKeeping, GrainRules, Outlet, StoreOutlet};
use std::io::{IsTerminal, Write};

/// What outlets for collectors are called among themselves.
pub const EXPORT: &str = "export";

/// In front of a target that is a file.
const FILE: &str = "file:";

/// Refuses what cannot be before anything is opened.
///
/// # Errors
/// The target that is not understood.
pub fn check(config: &Config) -> Result<(), Failure> {
    let made = (config.flow.record, config.series.record);
    for target in &config.export.targets {
        let to = Destination::parse(target).map_err(|e| Failure::Said(format!("export.targets: {e}")))?;
        if target.starts_with(FILE) && config.capture.interfaces.len() > 1 {
            return Err(Failure::Said(format!(
                "export.targets: {target}: a file is of one interface; run them apart, or export to a collector"
            )));
        }
        let nothing = |kinds, key, other| {
            Failure::Said(format!(
                "export.targets: {target} gets {kinds}, of which none are made: {key} must be true, or write {target},kinds={other}"
            ))
        };
        match (to.flows && made.0, to.series && made.1) {
            (false, false) if made == (false, false) => {
                let text = "export.targets: nothing to export: flow.record or series.record must be true";
                return Err(Failure::Said(text.into()));
            }
            (false, false) if to.flows => return Err(nothing("flow records", "flow.record", "series")),
            (false, false) => return Err(nothing("rows", "series.record", "flows")),
            _ => {}
        }
    }
    Ok(())
}

/// All outlets of one interface; `live` ones drop and count where a replay waits.
///
/// # Errors
/// What cannot be opened.
pub fn outlets(config: &Config, label: &str, number: u16, live: bool) -> Result<Vec<Box<dyn Outlet>>, EngineError> {
    let mut all = exports(config, label, number, live)?;
    if let Some(store) = &config.store.dir {
        all.push(Box::new(StoreOutlet::new(store, label, !live)?));
    }
    Ok(all)
}

/// Those for collectors.
///
/// # Errors
/// As [`outlets`].
pub fn exports(config: &Config, label: &str, number: u16, live: bool) -> Result<Vec<Box<dyn Outlet>>, EngineError> {
    let mut all: Vec<Box<dyn Outlet>> = Vec::new();
    for target in &config.export.targets {
        let interface = (number, label.to_owned());
        all.push(Box::new(CollectorOutlet::new(target, interface, !live)?));
    }
    Ok(all)
}

/// Looks after the records and rows of one interface that are in the store, if there is one.
///
/// # Errors
/// When the system refuses the thread.
pub fn keeping(config: &Config, label: &str, as_json: bool) -> Result<Option<GrainKeeping>, EngineError> {
    let made = config.flow.record || config.series.record;
    let Some(store) = config.store.dir.as_ref().filter(|_| made) else { return Ok(None) };
    let clear = if std::io::stderr().is_terminal() { "\r\x1b[K" } else { "" };
    let tell = move |text: &str| {
        // Whoever reads may have gone; the work is done all the same.
        if as_json {
            let _ = json(&serde_json::json!({ "event": { "kind": "remark", "text": text } }));
        } else {
            let _ = writeln!(std::io::stderr(), "{clear}netgrain: {text}");
        }
    };
    GrainKeeping::start(store, label, rules(config), tell).map(Some)
}

/// What is to be kept of them.
pub fn rules(config: &Config) -> GrainRules {
    let of = |max_age, max_size: Option<Size>| ColumnRules { max_age, max_size: max_size.map(|size| size.0) };
    let (flow, series) = (&config.flow, &config.series);
    GrainRules { flows: of(flow.max_age, flow.max_size), series: of(series.max_age, series.max_size) }
}
