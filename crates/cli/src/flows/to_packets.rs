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
pub fn packets_of_flow(id: u64, args: &PacketsArgs) -> Result<Option<FlowPackets>, Failure> {
    let Some(store) = &args.store else { return Ok(None) };
    let (from, to) = args.when.interval(interval::now(), false)?;
    let interfaces = inventory::inventories(store)?;
    let flow_query = FlowQuery::of_id(id, store, from, to, &args.interface);
    let flow_packets = collect(&flow_query, |_| true)?;
    if flow_packets.flows() == 0 {
        let (at, interval) = (store.display(), args.when.tz.zone.interval_in_words(from, to));
        let text = inventory::missing(store, &interfaces, DataFileKind::Flows, &args.interface);
        let text = text.unwrap_or_else(|| format!("{at} has no record of flow {id} {interval}; {FLOW_TIME_HINT}"));
        sys::say!("netgrain: nothing found: {text}");
        return Ok(None);
    }
    Ok(Some(flow_packets))
}

/// Finds the packets of the flows that match a query; with --top, of the greatest flows.
pub fn packets(args: &FlowsArgs, flow_query: &FlowQuery) -> Result<Outcome, Failure> {
    let read = match &flow_query.source {
        RecordSource::Files(files) => captures(files, args)?,
        RecordSource::Store(_) | RecordSource::Network(..) => Vec::new(),
    };
    let flow_packets = match &flow_query.plan {
        None => collect(flow_query, |_| true)?,
        Some(plan) if args.group.is_empty() => {
            let report = Records::open(flow_query, signals::stop_flag())?.grouped(plan)?;
            let ids: HashSet<u64> = report.lines.iter().flat_map(|line| &line.values).filter_map(flow_id).collect();
            collect(flow_query, |id| ids.contains(&id))?
        }
        Some(_) => {
            return Err(Failure::Said(
                "--packets selects flows, not groups; leave out --group, or use a filter for the group".into(),
            ));
        }
    };
    let Some((from, to)) = flow_packets.interval() else {
        sys::say!("netgrain: nothing found: {}", flow_query.no_match_advice());
        return Ok(Outcome::No);
    };
    let args = PacketsArgs {
        words: Vec::new(),
        filter: Vec::new(),
        store: args.store.clone(),
        read,
        when: interval::Interval::between(from, to, flow_query.zone.clone()),
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
    hand_over(args, flow_packets)
}

/// The files of `-r`, if they are captures from which packets can be read.
fn captures(files: &[PathBuf], args: &FlowsArgs) -> Result<Vec<PathBuf>, Failure> {
    if files.iter().any(|path| path == Path::new("-")) {
        let text = "--packets reads the capture twice, and standard input can be read only once: name a file after -r";
        return Err(Failure::Said(text.into()));
    }
    for path in files {
        if !matches!(format(path)?, Format::Capture) {
            let text = "not a capture: the file has records without packets; name the capture after -r, or a --store";
            return Err(Failure::Said(format!("--packets: {}: {text}", path.display())));
        }
    }
    if !args.interface.is_empty() && files.len() > 1 {
        let text = "--packets with -r and --interface works with one capture; run one command for each file";
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

fn collect(flow_query: &FlowQuery, wanted: impl Fn(u64) -> bool) -> Result<FlowPackets, Failure> {
    let mut flow_packets = FlowPackets::new();
    let mut records = Records::open(flow_query, signals::stop_flag())?;
    loop {
        match records.next()? {
            Step::Idle => {}
            Step::End => break,
            Step::Record(record) if wanted(record.id) => {
                flow_packets.add(&record, &records.names().interface(record.interface));
            }
            Step::Record(_) => {}
        }
    }
    records.warnings().iter().for_each(|warning| sys::say!("netgrain: {warning}"));
    if let Some(store) = flow_query.store() {
        flow_packets.expect_late(store);
    }
    Ok(flow_packets)
}
