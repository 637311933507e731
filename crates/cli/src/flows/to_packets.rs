//! `netgrain flows --packets`: finds the packets of the flows that a query selects.

use super::FlowsArgs;
use crate::flow_records::files::{Format, format};
use crate::flow_records::packets::collect;
use crate::flow_records::query::{FlowQuery, RecordSource};
use crate::flow_records::source::Records;
use crate::outcome::{Failure, Outcome};
use crate::packets::{self, PacketsArgs};
use crate::{interval, signals};
use aggregate::Value;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Finds the packets of the flows that match a query; with --top, only the packets of the flows in the ranking.
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
    packets::run_for_flows(&args, Some(flow_packets))
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
