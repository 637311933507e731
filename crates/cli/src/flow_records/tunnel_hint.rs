//! A hint for a packet query without result if matching flows are inside a tunnel: the packet filter applies to the
//! outermost packet, the flow filter to the innermost.

use super::query::{FlowQuery, RecordSource};
use super::source::{Records, Step};
use crate::signals;
use crate::zone::Zone;
use base::Timestamp;
use filter::{Filter, FlowFilter};
use std::path::Path;

/// The maximum number of records examined, so that the hint does not slow down a fast query.
const SAMPLE_SIZE: u64 = 100_000;

/// The hint, if the store has flows in tunnels that match this filter.
pub fn remark(
    store: &Path,
    filter: &Filter,
    (from, to): (Timestamp, Timestamp),
    interfaces: &[String],
) -> Option<String> {
    if filter.is_empty() {
        return None;
    }
    let flow_query = FlowQuery {
        source: RecordSource::Store(store.to_owned()),
        from,
        to,
        zone: Zone::Utc,
        of_flows: FlowFilter::parse(&filter.to_string()).ok()?,
        interfaces: interfaces.to_vec(),
        plan: None,
        limit: None,
        follow: false,
        late: None,
        id: None,
        fields: None,
    };
    let mut records = Records::open(&flow_query, signals::stop_flag()).ok()?.within(SAMPLE_SIZE);
    loop {
        match records.next().ok()? {
            Step::Record(record) if record.encapsulation.tunnel.is_some() => {
                return Some(format!(
                    "flows inside of tunnels match `{filter}` (the first is {}), but a packet filter applies to the \
                     outer packet: netgrain flows --store {} '{filter}' --packets finds their packets",
                    record.id,
                    store.display()
                ));
            }
            Step::Record(record) if record.encapsulation.vlans[0].is_some() || record.encapsulation.mpls.is_some() => {
                return Some(format!(
                    "flows with VLAN tags or MPLS labels match `{filter}` (the first is {}), but a packet filter \
                     looks behind them only after the word anylink: `anylink ({filter})`",
                    record.id
                ));
            }
            Step::Record(_) | Step::Idle => {}
            Step::End => return None,
        }
    }
}
