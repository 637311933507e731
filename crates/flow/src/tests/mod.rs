//! Compares the flow table with the model, and has tests that need no model: floods, clock steps, collisions, arbitrary
//! frames.

mod against_model;
mod behaviour;
#[path = "../../tests/it/common/captures.rs"]
mod captures;
mod compressed;
mod limits;
mod model;
mod sharded;
pub(crate) mod traffic;

use crate::record::Record;
use crate::{Config, Meter};
use base::{Prng, Timestamp};
use traffic::Owned;

/// The timestamp 1000 s plus `seconds`.
fn at(seconds: f64) -> Timestamp {
    Timestamp::from_nanos(1_000_000_000_000 + (seconds * 1e9).round() as u64)
}

/// All flow records that the meter makes of these packets, which it gets in batches of random sizes.
fn records(meter: &mut Meter, packets: &[Owned], prng: &mut Prng) -> Vec<Record> {
    let mut out = Vec::new();
    let mut rest = packets;
    while !rest.is_empty() {
        let (now, later) = rest.split_at(rest.len().min(1 + prng.below(100) as usize));
        meter.push(&now.iter().map(Owned::lend).collect::<Vec<_>>(), &mut out);
        rest = later;
    }
    meter.finish(&mut out);
    out
}

/// All flow records that a meter with this configuration makes of these packets.
fn all(config: Config, packets: &[Owned]) -> Vec<Record> {
    records(&mut Meter::new(config, 0), packets, &mut Prng::new(1))
}
