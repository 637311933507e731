//! Finds the packets of flow records.

use super::query::{FLOW_TIME_HINT, FlowQuery};
use super::source::{Records, Step};
use crate::interval::{self, Interval};
use crate::inventory;
use crate::outcome::Failure;
use crate::signals;
use ::query::FlowPackets;
use columns::DataFileKind;
use std::path::Path;

/// Finds one flow by its ID in the records of the store. If the store has no such flow, prints a message and returns
/// `None`.
pub fn of_flow(id: u64, store: &Path, when: &Interval, interfaces: &[String]) -> Result<Option<FlowPackets>, Failure> {
    let (from, to) = when.interval(interval::now(), false)?;
    let found = inventory::inventories(store)?;
    let flow_query = FlowQuery::of_id(id, store, from, to, interfaces);
    let flow_packets = collect(&flow_query, |_| true)?;
    if flow_packets.flows() == 0 {
        let (at, interval) = (store.display(), when.tz.zone.interval_in_words(from, to));
        let text = inventory::missing(store, &found, DataFileKind::Flows, interfaces);
        let text = text.unwrap_or_else(|| format!("{at} has no record of flow {id} {interval}; {FLOW_TIME_HINT}"));
        sys::say!("netgrain: nothing found: {text}");
        return Ok(None);
    }
    Ok(Some(flow_packets))
}

/// Returns the packets of the flow records that a flow query selects. Flows whose ID `wanted` rejects are left out.
pub fn collect(flow_query: &FlowQuery, wanted: impl Fn(u64) -> bool) -> Result<FlowPackets, Failure> {
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
