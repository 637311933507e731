//! A record as the filter sees it.

use flow::Record;
use wire::filter::FlowTerms;

/// What `wire::Filter` asks of a flow, out of its record.
///
/// A later record of a long flow says what its own period saw: a direction that was silent in it has no packets there.
#[inline]
pub fn terms(record: &Record) -> FlowTerms {
    let [there, back] = &record.sides;
    FlowTerms {
        src: record.key.src,
        dst: record.key.dst,
        src_port: record.key.src_port,
        dst_port: record.key.dst_port,
        protocol: record.key.protocol,
        vlans: record.around.vlans,
        macs: [there.mac, back.mac],
        seen: [there.packets > 0, back.packets > 0],
    }
}
