//! What can be wrong with values that are each of the right kind: too small, too large, or not fitting together.

use super::table::Config;
use super::value::Size;
use crate::values::{LEAST_RING, LEAST_SEGMENT};

/// More parts than this gain nothing: one thread decodes for all of them.
const MOST_SHARDS: u64 = 64;

/// All of it, each in one line that names the key.
pub fn contradictions(config: &Config) -> Vec<String> {
    let (packets, flow) = (&config.packets, &config.flow);
    let ring = config.capture.ring.is_some_and(|Size(ring)| ring < LEAST_RING);
    let rotate = packets.rotate.is_some_and(|span| span.as_secs() == 0 || span.subsec_nanos() > 0);
    let capacity = 1..=flow::Config::MOST_FLOWS as u64;
    let most = u64::from(u16::MAX);
    let at_once = flow.idle.is_zero() || flow.active.is_some_and(|span| span.is_zero());
    let rules = [
        (ring, "capture.ring: at least 8MiB"),
        (packets.segment.0 < LEAST_SEGMENT, "packets.segment: at least 2MiB"),
        (rotate, "packets.rotate: a number of whole seconds, at least 1s"),
        (!(1..=256).contains(&packets.depth.0), "packets.depth: from 1 to 256"),
        (!(1..=MOST_SHARDS).contains(&flow.shards.0), "flow.shards: from 1 to 64"),
        (!capacity.contains(&flow.capacity.0), "flow.capacity: from 1 to 1073741824"),
        (flow.payload.0 > most || flow.early.0 > most, "flow.payload and flow.early: at most 65535"),
        (at_once, "flow.idle and flow.active: more than nothing"),
        (flow.idle_of.iter().any(|of| of.idle.is_zero()), "flow.idle_of: more than nothing for each protocol"),
    ];
    let mut found: Vec<String> = rules.iter().filter(|(wrong, _)| *wrong).map(|(_, text)| (*text).to_owned()).collect();
    let ports = &config.capture.interfaces;
    // Files and simulations have other names than ports: what is captured is not known before it runs.
    for group in config.group.iter().filter(|_| !ports.is_empty()) {
        for port in group.ports.iter().filter(|port| !ports.contains(port)) {
            let all = ports.join(", ");
            found.push(format!("group {}: no port {port} among those that are captured ({all})", group.name));
        }
    }
    found
}
