//! Rows and records that the tests write into a store.
#![allow(dead_code, unused_imports, reason = "each program uses its part")]

use base::Prng;
use flow::sample::any;
pub use flow::sample::{START, TrafficModel, any_record};
use series::{Direction, Row};

/// A row with random values.
pub fn any_row(prng: &mut Prng, second: u64) -> Row {
    let mut row = Row { second, interface: prng.below(3) as u16, ..Row::default() };
    row.direction = if prng.below(2) == 0 { Direction::In } else { Direction::Out };
    row.total.packets = any(prng);
    row.total.bytes = any(prng);
    row.classes.iter_mut().for_each(|v| (v.packets, v.bytes) = (any(prng), any(prng)));
    row.sizes.iter_mut().for_each(|n| *n = any(prng));
    row.ipv6.bytes = any(prng);
    (row.syn, row.syn_ack, row.fin, row.rst) = (any(prng), any(prng), any(prng), any(prng));
    (row.flows_active, row.flows_new, row.flows_ended) = (any(prng), any(prng), any(prng));
    (row.sources, row.destinations) = (any(prng), any(prng));
    (row.peak_1ms.bytes, row.peak_10ms.packets) = (any(prng), any(prng));
    (row.tunnel_numbered, row.tunnel_missing, row.tunnel_late) = (any(prng), any(prng), any(prng));
    (row.duplicate.packets, row.duplicate.bytes) = (any(prng), any(prng));
    row.ledger.offered = any(prng);
    row.ledger.lost.iter_mut().for_each(|n| *n = any(prng));
    row.ledger.notes.iter_mut().for_each(|n| *n = any(prng));
    row
}
