//! From flows to packets: `netgrain packets --flow` and `netgrain flows --packets`.

use super::files::{Format, format};
use super::query::{FLOW_TIME_HINT, FlowQuery, RecordSource};
use super::source::{Records, Step};
use super::{FlowsArgs, hand_over};
use crate::outcome::{Failure, Outcome};
use crate::packets::{PacketsArgs, inventory};
use crate::{interval, signals};
use ::query::FlowPackets;
use aggregate::Value;
use columns::DataFileKind;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Finds one flow by its ID in the records of the store. `None` if there is no such flow, after a message about it.
pub fn members_of(id: u64, args: &PacketsArgs) -> Result<Option<FlowPackets>, Failure> {
    let Some(store) = &args.store else { return Ok(None) };
    let (from, to) = args.when.interval(interval::now(), false)?;
    let shelves = inventory::inventories(store)?;
    let asked = FlowQuery::of_id(id, store, from, to, &args.interface);
    let members = collect(&asked, |_| true)?;
    if members.flows() == 0 {
        let (at, interval) = (store.display(), args.when.tz.zone.interval_in_words(from, to));
        let why = inventory::missing(store, &shelves, DataFileKind::Flows, &args.interface);
        let why = why.unwrap_or_else(|| format!("{at} has no record of flow {id} {interval}; {FLOW_TIME_HINT}"));
        sys::say!("netgrain: nothing found: {why}");
        return Ok(None);
    }
    Ok(Some(members))
}

/// Finds the packets of the flows that match a query; with --top, of the greatest.
pub fn packets(args: &FlowsArgs, asked: &FlowQuery) -> Result<Outcome, Failure> {
    let read = match &asked.place {
        RecordSource::Files(files) => captures(files, args)?,
        RecordSource::Store(_) | RecordSource::Network(..) => Vec::new(),
    };
    let members = match &asked.plan {
        None => collect(asked, |_| true)?,
        Some(plan) if args.group.is_empty() => {
            let report = Records::open(asked, signals::stop_flag())?.grouped(plan)?;
            let ids: HashSet<u64> = report.lines.iter().flat_map(|line| &line.values).filter_map(flow_id).collect();
            collect(asked, |id| ids.contains(&id))?
        }
        Some(_) => {
            return Err(Failure::Said("--packets: of flows, not of groups; leave out --group, or filter by it".into()));
        }
    };
    let Some((from, to)) = members.interval() else {
        sys::say!("netgrain: nothing found: {}", asked.no_match_advice());
        return Ok(Outcome::No);
    };
    let args = PacketsArgs {
        words: Vec::new(),
        filter: Vec::new(),
        store: args.store.clone(),
        read,
        when: interval::Interval::between(from, to, asked.zone.clone()),
        // The flows are already selected by interface, and a capture may name its interfaces differently than the meter
        // does.
        interface: if args.store.is_some() { args.interface.clone() } else { Vec::new() },
        write: args.write.clone(),
        format: None,
        overwrite: args.overwrite,
        flow: None,
        count: args.count,
        json: args.json,
        follow: false,
        limit: None,
        explain: args.explain,
        no_live: false,
        color: args.color,
    };
    hand_over(args, members)
}

/// The files of `-r`, if they are captures from which packets can be read.
fn captures(files: &[PathBuf], args: &FlowsArgs) -> Result<Vec<PathBuf>, Failure> {
    if files.iter().any(|path| path == Path::new("-")) {
        let text = "--packets reads the capture twice, and standard input can be read once: name a file behind -r";
        return Err(Failure::Said(text.into()));
    }
    for path in files {
        if !matches!(format(path)?, Format::Capture) {
            let text = "no capture: it holds records without their packets; name the capture behind -r, or a --store";
            return Err(Failure::Said(format!("--packets: {}: {text}", path.display())));
        }
    }
    if !args.interface.is_empty() && files.len() > 1 {
        let text = "--packets with -r and --interface: of one capture; ask each file by itself";
        return Err(Failure::Said(text.into()));
    }
    Ok(files.to_vec())
}

fn flow_id(value: &Value) -> Option<u64> {
    match value {
        Value::Flow(id) => Some(*id),
        _ => None,
    }
}

fn collect(asked: &FlowQuery, wanted: impl Fn(u64) -> bool) -> Result<FlowPackets, Failure> {
    let mut members = FlowPackets::new();
    let mut records = Records::open(asked, signals::stop_flag())?;
    loop {
        match records.next()? {
            Step::Idle => {}
            Step::End => break,
            Step::Record(record) if wanted(record.id) => {
                members.add(&record, &records.names().interface(record.interface));
            }
            Step::Record(_) => {}
        }
    }
    records.warnings().iter().for_each(|remark| sys::say!("netgrain: {remark}"));
    if let Some(store) = asked.store() {
        members.expect_late(store);
    }
    Ok(members)
}
