//! The warning that the packets of a replayed capture are perhaps in the store already. A store accepts packets from a
//! time of which it already has packets, because they can be a legitimate addition: a later part of the same capture,
//! or packets of another capture point under the same name.

use crate::convert::open::open;
use base::Timestamp;
use base::units::show_count;
use engine::{Plan, SourcePlan};
use query::{Query, QuerySource};
use std::path::Path;
use std::time::Duration;
use store::names::interface_directory;

/// The length of the time range in which the store is searched for packets: one second, as a row of a time series. The
/// range begins at the first packet of the replayed file.
const SECOND: Duration = Duration::from_secs(1);

/// The largest number of packets that are counted. The warning does not state a larger number.
const MAX_COUNT: u64 = 1_000_000;

/// Returns a warning if the store has packets of this interface in the first second of the capture file to replay.
/// `None` for other sources, and for standard input, which can be read only once.
pub fn warning(plan: &Plan) -> Option<String> {
    let store = &plan.store.as_ref()?.dir;
    let path = match &plan.source {
        SourcePlan::File { path, .. } => path,
        SourcePlan::Files { paths, .. } => paths.first()?,
        SourcePlan::Interface(_) | SourcePlan::Sim { .. } => return None,
    };
    let interface = plan.source.label();
    if path == Path::new("-") || !interface_directory(store, &interface).exists() {
        return None;
    }
    let first = first_packet(path, &plan.source)?;
    let query_of_second = Query {
        from: first,
        to: first.after(SECOND - Duration::from_nanos(1)),
        interfaces: vec![interface.clone()],
        live: false,
        ..Query::default()
    };
    // If the store cannot be read, no warning is made here; the recorder then reports the error when it writes to the
    // store.
    let mut stored = query::run(&QuerySource::Store(store.clone()), query_of_second).ok()?;
    let mut packets = 0;
    while packets < MAX_COUNT && matches!(stored.next(), Ok(Some(_))) {
        packets += 1;
    }
    (packets > 0).then(|| {
        format!(
            "{}: {} already has {} packets of {interface} in the second from {first} on; this run adds its packets, \
             so each packet of the same capture would be stored twice: name another --store, or another --name for \
             another capture point",
            path.display(),
            store.display(),
            show_count(packets)
        )
    })
}

/// The timestamp of the first packet. `None` if the file has no packet, or if the file cannot be read; then the run
/// reports the error later.
fn first_packet(path: &Path, source: &SourcePlan) -> Option<Timestamp> {
    let format = match source {
        SourcePlan::File { options, .. } | SourcePlan::Files { options, .. } => options.format,
        SourcePlan::Interface(_) | SourcePlan::Sim { .. } => None,
    };
    let bytes = open(path).ok()?;
    let mut reader = match format {
        Some(format) => pcap::Reader::open_as(bytes, format).ok()?,
        None => pcap::Reader::open(bytes).ok()?,
    };
    reader.next().ok()??.ts
}
