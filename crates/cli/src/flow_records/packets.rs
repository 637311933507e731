//! The packets of flow records.

use super::query::{FLOW_TIME_HINT, FlowQuery};
use super::source::{Records, Step};
use crate::interval::{self, Interval};
use crate::inventory;
use crate::outcome::Failure;
use crate::signals;
use ::query::FlowPackets;
use columns::DataFileKind;
use std::path::Path;

/// Finds one flow by its ID in the records of the store. `None` if there is no such flow, after a message about it.
pub fn of_flow(id: u64, store: &Path, when: &Interval, interfaces: &[String]) -> Result<Option<FlowPackets>, Failure> {
    let (from, to) = when.interval(interval::now(), false)?;
    let shelves = inventory::inventories(store)?;
    let asked = FlowQuery::of_id(id, store, from, to, interfaces);
    let members = collect(&asked, |_| true)?;
    if members.flows() == 0 {
        let (at, interval) = (store.display(), when.tz.zone.interval_in_words(from, to));
        let why = inventory::missing(store, &shelves, DataFileKind::Flows, interfaces);
        let why = why.unwrap_or_else(|| format!("{at} has no record of flow {id} {interval}; {FLOW_TIME_HINT}"));
        sys::say!("netgrain: nothing found: {why}");
        return Ok(None);
    }
    Ok(Some(members))
}

/// The packets of the records of a query whose flow is wanted, by its ID.
pub fn collect(asked: &FlowQuery, wanted: impl Fn(u64) -> bool) -> Result<FlowPackets, Failure> {
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
