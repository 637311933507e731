//! From flows to packets: `netgrain packets --flow` and `netgrain flows --packets`.

use super::query::{FLOW_TIME_HINT, FlowQuery};
use super::source::{Records, Step};
use super::{FlowPackets, FlowsArgs, hand_over};
use crate::outcome::{Failure, Outcome};
use crate::packets::{PacketsArgs, inventory};
use crate::{interval, signals};
use aggregate::Value;
use columns::DataFileKind;
use std::collections::HashSet;

/// What tells the packets of one flow, found by its id in the records of the store; `None` if there is no such flow, which
/// has been said then.
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

/// The packets of the flows that a question finds; with --top, of the greatest.
pub fn packets(args: &FlowsArgs, asked: &FlowQuery) -> Result<Outcome, Failure> {
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
        read: Vec::new(),
        when: interval::Interval::between(from, to, asked.zone.clone()),
        interface: args.interface.clone(),
        write: args.write.clone(),
        format: None,
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
