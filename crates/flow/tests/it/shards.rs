//! Tests with real captures that any number of shards makes the same records, and that every IP packet is in one
//! record.

use crate::captures;

use captures::Captured;
use netgrain_flow::{Config, Packet, Record, Shards};

/// All records, and the number of packets that belong to no flow.
fn records(captured: &[Captured], config: &Config, shards: usize) -> (Vec<Record>, u64) {
    let (mut shards, mut out) = (Shards::new(config, 0, shards), Vec::new());
    for batch in captured.chunks(100) {
        let lend = |c: &Captured| (c.ts, c.wire_len, c.offset);
        let packets: Vec<Packet> = batch
            .iter()
            .map(|c| {
                let (ts, wire_len, position) = lend(c);
                Packet { ts, wire_len, data: &c.data, decoded: &c.decoded, position, queue: 0 }
            })
            .collect();
        shards.push(&packets, &mut out);
    }
    shards.finish(&mut out);
    (out, shards.counts().other)
}

#[test]
fn every_capture_makes_the_same_records_in_one_two_and_eight_shards() {
    let Some(directory) = testkit::traces("every_capture_makes_the_same_records_in_one_two_and_eight_shards") else {
        return;
    };
    let (mut total, mut flows, mut numbered) = (0, 0, 0);
    for path in captures::files(&directory) {
        let captured = captures::packets(&path);
        for config in [
            Config { capacity: 200_000, ..Config::default() },
            Config { capacity: 200_000, bidirectional: false, payload: 50, seed: 5, ..Config::default() },
        ] {
            let (one, other) = records(&captured, &config, 1);
            for shards in [2, 8] {
                assert!(records(&captured, &config, shards).0 == one, "{}: {shards} shards", path.display());
            }
            let in_flows: u64 = one.iter().map(Record::packets).sum();
            assert_eq!(in_flows + other, captured.len() as u64, "{}", path.display());
            flows += one.len();
            numbered += one.iter().filter(|r| r.directions.iter().any(|s| s.tunnel_sequence.is_some())).count();
        }
        total += captured.len();
    }
    assert!(
        total > 10_000 && flows > 1000 && numbered > 5,
        "{total} packets, {flows} records, {numbered} records with tunnel sequence numbers"
    );
}
