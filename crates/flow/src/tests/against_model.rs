//! Compares every field of the records with the model.

use super::model::{Model, secs};
use super::traffic::{Owned, Traffic};
use super::{all, records};
use crate::record::{DirectionStats, EndReason, Record};
use crate::{Config, KeyFields, Meter};
use base::Prng;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wire::IpProtocol;

fn config(prng: &mut Prng) -> Config {
    let mut chance = |one_in| prng.below(one_in) == 0;
    let levels = KeyFields { vlans: !chance(3), tunnel: !chance(3), teid: chance(2) };
    let bidirectional = !chance(3);
    let active = [None, Some(secs(3)), Some(secs(40)), Some(secs(300))][prng.below(4) as usize];
    let idle_of = match prng.below(2) {
        0 => Vec::new(),
        _ => vec![(IpProtocol::UDP, secs(prng.below(40))), (IpProtocol::ICMP, secs(600))],
    };
    Config {
        idle_timeout: secs(1 + prng.below(40)),
        protocol_idle_timeouts: idle_of,
        active_timeout: active,
        close_timeout: secs(prng.below(8)),
        compress_after: [Duration::ZERO, Duration::from_nanos(1), Duration::from_millis(300), secs(3)]
            [prng.below(4) as usize],
        key_fields: levels,
        bidirectional,
        capacity: 10_000,
        initial_packets: prng.below(20) as usize,
        payload: [0, 5, 300][prng.below(3) as usize],
        seed: prng.next_u64(),
    }
}

/// Removes the fields that the model does not compute, and sorts records with the same timestamp.
fn plain(mut records: Vec<Record>) -> Vec<Record> {
    records.iter_mut().for_each(|r| r.id = 0);
    for run in records.chunk_by_mut(|a, b| a.last() == b.last()) {
        run.sort_by_cached_key(|r| format!("{r:?}"));
    }
    records
}

#[test]
fn every_field_of_every_record_equals_the_model() {
    let seed = testkit::seed("every_field_of_every_record_equals_the_model");
    let mut kinds = BTreeMap::new();
    for round in 0..60 {
        let mut prng = Prng::new(seed ^ round);
        let config = config(&mut prng);
        let mut traffic = Traffic::new(prng.next_u64());
        let packets: Vec<Owned> = (0..1500).map(|_| traffic.packet()).collect();
        let mut meter = Meter::new(config.clone(), 3);
        let real = plain(records(&mut meter, &packets, &mut prng));
        let mut model = Model::new(config.clone(), 3);
        let mut expected = Vec::new();
        packets.iter().for_each(|p| model.push(p, &mut expected));
        model.finish(&mut expected);
        let expected = plain(expected);
        for (n, (real, expected)) in real.iter().zip(&expected).enumerate() {
            assert_eq!(real, expected, "seed {seed}, round {round}, record {n} under {config:#?}");
        }
        assert_eq!(real.len(), expected.len(), "seed {seed}, round {round}");
        let counts = meter.counts();
        assert_eq!(counts.packets + counts.other, 1500, "seed {seed}, round {round}");
        assert_eq!(real.iter().map(Record::packets).sum::<u64>(), counts.packets, "seed {seed}, round {round}");
        assert_eq!((counts.started, counts.active), (counts.ended(), 0), "seed {seed}, round {round}");
        for record in real {
            *kinds.entry((record.end_reason, record.tcp_state)).or_insert(0) += 1;
        }
    }
    for end in [EndReason::IdleTimeout, EndReason::ActiveTimeout, EndReason::EndOfFlow, EndReason::ForcedEnd] {
        assert!(kinds.keys().any(|k| k.0 == end), "no record ended by {end:?}");
    }
    assert!(kinds.len() > 15, "only {kinds:?}");
}

/// The IDs that several flows share, because the flows have the same key and started in the same nanosecond. The test
/// cannot assign their records to flows.
fn twins(whole: &[Record]) -> BTreeSet<u64> {
    let mut seen = BTreeSet::new();
    whole.iter().map(|r| r.id).filter(|id| !seen.insert(*id)).collect()
}

/// Merges all records of each flow.
fn joined(records: Vec<Record>) -> BTreeMap<u64, Record> {
    let mut flows: BTreeMap<u64, Record> = BTreeMap::new();
    for next in records {
        let Some(all) = flows.get_mut(&next.id) else {
            flows.insert(next.id, next);
            continue;
        };
        assert_eq!(next.record_index, all.record_index + 1, "no record is missing");
        assert!(next.first() >= all.last(), "records of a flow do not overlap");
        (all.record_index, all.end_reason, all.tcp_state) = (next.record_index, next.end_reason, next.tcp_state);
        (all.syn_rtt, all.ack_rtt) = (next.syn_rtt, next.ack_rtt);
        for (all, next) in all.directions.iter_mut().zip(next.directions) {
            *all = sum(all, &next);
        }
    }
    flows
}

fn sum(a: &DirectionStats, b: &DirectionStats) -> DirectionStats {
    if a.packets == 0 || b.packets == 0 {
        return if a.packets == 0 { *b } else { *a };
    }
    let moments = |a: crate::Stats, an: u64, b: crate::Stats, bn: u64| match (an, bn) {
        (0, _) => b,
        (_, 0) => a,
        _ => crate::Stats {
            min: a.min.min(b.min),
            max: a.max.max(b.max),
            sum: a.sum + b.sum,
            squares: a.squares + b.squares,
        },
    };
    let mut flags = a.flags;
    flags.iter_mut().zip(b.flags).for_each(|(a, b)| *a += b);
    DirectionStats {
        first: a.first,
        last: b.last,
        packets: a.packets + b.packets,
        bytes: a.bytes + b.bytes,
        ip_bytes: a.ip_bytes + b.ip_bytes,
        payload_bytes: a.payload_bytes + b.payload_bytes,
        payload_packets: a.payload_packets + b.payload_packets,
        length: moments(a.length, a.packets, b.length, b.packets),
        iat: moments(a.iat, a.iat_count, b.iat, b.iat_count),
        iat_count: a.iat_count + b.iat_count,
        flags,
        zero_window: a.zero_window + b.zero_window,
        retransmitted: a.retransmitted + b.retransmitted,
        retransmitted_bytes: a.retransmitted_bytes + b.retransmitted_bytes,
        out_of_order: a.out_of_order + b.out_of_order,
        ttl: (a.ttl.0.min(b.ttl.0), a.ttl.1.max(b.ttl.1)),
        dscp: (a.dscp.0.min(b.dscp.0), a.dscp.1.max(b.dscp.1)),
        mac: a.mac,
        tunnel_sequence: a
            .tunnel_sequence
            .map_or(b.tunnel_sequence, |(first, last)| Some((first, b.tunnel_sequence.map_or(last, |b| b.1)))),
    }
}

#[test]
fn interim_records_add_up_to_the_record_without_an_active_timeout() {
    let seed = testkit::seed("interim_records_add_up_to_the_record_without_an_active_timeout");
    for round in 0..30 {
        let mut traffic = Traffic::new(seed ^ round);
        let packets: Vec<Owned> = (0..2000).map(|_| traffic.packet()).collect();
        let mut whole = all(Config { active_timeout: None, capacity: 5000, ..Config::default() }, &packets);
        let mut parts = all(Config { active_timeout: Some(secs(5)), capacity: 5000, ..Config::default() }, &packets);
        assert!(parts.len() > whole.len(), "seed {seed}, round {round}");
        let twins = twins(&whole);
        let packets_of =
            |records: &[Record]| -> u64 { records.iter().filter(|r| twins.contains(&r.id)).map(Record::packets).sum() };
        assert_eq!(packets_of(&whole), packets_of(&parts), "seed {seed}, round {round}");
        assert!(twins.len() * 100 < whole.len(), "seed {seed}, round {round}: {} twins", twins.len());
        [&mut whole, &mut parts].into_iter().for_each(|records| records.retain(|r| !twins.contains(&r.id)));
        let level = |flows: &mut BTreeMap<u64, Record>| {
            // These fields are not compared: the end reason, because a flow without packets after an interim record has
            // no further record, and index, location and initial packets, because they belong to single records.
            for record in flows.values_mut() {
                (record.end_reason, record.record_index, record.location) = (EndReason::IdleTimeout, 0, None);
                record.initial_packets.clear();
            }
        };
        let (mut whole, mut parts) = (joined(whole), joined(parts));
        level(&mut whole);
        level(&mut parts);
        assert_eq!(whole.len(), parts.len(), "seed {seed}, round {round}");
        for (id, whole) in &whole {
            assert_eq!(parts.get(id), Some(whole), "seed {seed}, round {round}");
        }
    }
}
