//! Where flow records and rows go: the store, and collectors.

use crate::config::Config;
use crate::outcome::Failure;
use engine::{CollectorOutlet, ColumnRules, EngineError, GrainKeeping, GrainRules, Outlet, StoreOutlet, parse_target};
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
    for target in &config.export.targets {
        parse_target(target).map_err(|e| Failure::Said(format!("export.targets: {e}")))?;
        if target.starts_with(FILE) && config.capture.interfaces.len() > 1 {
            return Err(Failure::Said(format!(
                "export.targets: {target}: a file is of one interface; run them apart, or export to a collector"
            )));
        }
    }
    let made = config.flow.record || config.series.record;
    if !config.export.targets.is_empty() && !made {
        return Err(Failure::Said(
            "export.targets: nothing to export: flow.record or series.record must be true".into(),
        ));
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
        all.push(Box::new(CollectorOutlet::new(target, interface, config.flow.record, !live)?));
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
            let _ = crate::record::json(&serde_json::json!({ "event": { "kind": "remark", "text": text } }));
        } else {
            let _ = writeln!(std::io::stderr(), "{clear}netgrain: {text}");
        }
    };
    GrainKeeping::start(store, label, rules(config), tell).map(Some)
}

/// What is to be kept of them.
pub fn rules(config: &Config) -> GrainRules {
    let of = |max_age| ColumnRules { max_age, max_size: None };
    GrainRules { flows: of(config.flow.max_age), series: of(config.series.max_age) }
}
