//! Where packets answer nothing because the conversation is in a tunnel: the filter of packets is about the outermost packet,
//! that of flows about what is in it. Whoever gets no packets, or a curve of zeros, is told that there are such flows.

use super::query::{FlowQuery, RecordSource};
use super::source::{Records, Step};
use crate::signals;
use crate::zone::Zone;
use base::Timestamp;
use filter::{Filter, FlowFilter};
use std::path::Path;

/// Records that are looked at for one in a tunnel, so that a question that was answered at once stays one.
const SAMPLE_SIZE: u64 = 100_000;

/// What to say of flows in tunnels that answer this filter, if there are any in the store.
pub fn remark(
    store: &Path,
    filter: &Filter,
    (from, to): (Timestamp, Timestamp),
    interfaces: &[String],
) -> Option<String> {
    if filter.is_empty() {
        return None;
    }
    let asked = FlowQuery {
        place: RecordSource::Store(store.to_owned()),
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
    let mut records = Records::open(&asked, signals::stop_flag()).ok()?.within(SAMPLE_SIZE);
    loop {
        match records.next().ok()? {
            Step::Record(record) if record.encapsulation.tunnel.is_some() => {
                return Some(format!(
                    "there are flows of `{filter}` in tunnels ({} is the first), and the filter of packets is about what is \
                     outside: netgrain flows --store {} '{filter}' --packets gives theirs",
                    record.id,
                    store.display()
                ));
            }
            Step::Record(record) if record.encapsulation.vlans[0].is_some() || record.encapsulation.mpls.is_some() => {
                return Some(format!(
                    "there are flows of `{filter}` under VLAN tags or MPLS labels ({} is the first), which a filter of packets \
                     looks through at the word: `anylink ({filter})`",
                    record.id
                ));
            }
            Step::Record(_) | Step::Idle => {}
            Step::End => return None,
        }
    }
}
