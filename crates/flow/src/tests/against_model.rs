//! Everything that a record says, held against the model.

use super::model::{Model, secs};
use super::traffic::{Owned, Traffic};
use super::{all, records};
use crate::record::{EndReason, Record, Side};
use crate::{Config, Levels, Meter};
use base::Prng;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wire::IpProtocol;

fn config(prng: &mut Prng) -> Config {
    let mut chance = |one_in| prng.below(one_in) == 0;
    let levels = Levels { vlans: !chance(3), tunnel: !chance(3), teid: chance(2) };
    let bidirectional = !chance(3);
    let active = [None, Some(secs(3)), Some(secs(40)), Some(secs(300))][prng.below(4) as usize];
    let idle_of = match prng.below(2) {
        0 => Vec::new(),
        _ => vec![(IpProtocol::UDP, secs(prng.below(40))), (IpProtocol::ICMP, secs(600))],
    };
    Config {
        idle: secs(1 + prng.below(40)),
        idle_of,
        active,
        linger: secs(prng.below(8)),
        rest: [Duration::ZERO, Duration::from_nanos(1), Duration::from_millis(300), secs(3)][prng.below(4) as usize],
        levels,
        bidirectional,
        capacity: 10_000,
        early: prng.below(20) as usize,
        payload: [0, 5, 300][prng.below(3) as usize],
        seed: prng.next_u64(),
    }
}

/// Without what the model does not know, and with records of the same moment in an order of their own.
fn plain(mut records: Vec<Record>) -> Vec<Record> {
    records.iter_mut().for_each(|r| r.id = 0);
    for run in records.chunk_by_mut(|a, b| a.last() == b.last()) {
        run.sort_by_cached_key(|r| format!("{r:?}"));
    }
    records
}

#[test]
fn every_field_of_every_record_is_that_of_the_model() {
    let seed = testkit::seed("every_field_of_every_record_is_that_of_the_model");
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
        assert_eq!((counts.begun, counts.active), (counts.ended(), 0), "seed {seed}, round {round}");
        for record in real {
            *kinds.entry((record.end, record.tcp)).or_insert(0) += 1;
        }
    }
    for end in [EndReason::Idle, EndReason::Active, EndReason::Ended, EndReason::Forced] {
        assert!(kinds.keys().any(|k| k.0 == end), "no record ended by {end:?}");
    }
    assert!(kinds.len() > 15, "only {kinds:?}");
}

/// Flows that share their id, since they have the same ends and began in the same nanosecond: which of their records belongs to which
/// nobody can say.
fn twins(whole: &[Record]) -> BTreeSet<u64> {
    let mut seen = BTreeSet::new();
    whole.iter().map(|r| r.id).filter(|id| !seen.insert(*id)).collect()
}

/// One record of all of a flow.
fn joined(records: Vec<Record>) -> BTreeMap<u64, Record> {
    let mut flows: BTreeMap<u64, Record> = BTreeMap::new();
    for next in records {
        let Some(all) = flows.get_mut(&next.id) else {
            flows.insert(next.id, next);
            continue;
        };
        assert_eq!(next.part, all.part + 1, "no part is missing");
        assert!(next.first() >= all.last(), "records of a flow do not overlap");
        (all.part, all.end, all.tcp) = (next.part, next.end, next.tcp);
        (all.syn_rtt, all.ack_rtt) = (next.syn_rtt, next.ack_rtt);
        for (all, next) in all.sides.iter_mut().zip(next.sides) {
            *all = sum(all, &next);
        }
    }
    flows
}

fn sum(a: &Side, b: &Side) -> Side {
    if a.packets == 0 || b.packets == 0 {
        return if a.packets == 0 { *b } else { *a };
    }
    let moments = |a: crate::Moments, an: u64, b: crate::Moments, bn: u64| match (an, bn) {
        (0, _) => b,
        (_, 0) => a,
        _ => crate::Moments {
            min: a.min.min(b.min),
            max: a.max.max(b.max),
            sum: a.sum + b.sum,
            squares: a.squares + b.squares,
        },
    };
    let mut flags = a.flags;
    flags.iter_mut().zip(b.flags).for_each(|(a, b)| *a += b);
    Side {
        first: a.first,
        last: b.last,
        packets: a.packets + b.packets,
        bytes: a.bytes + b.bytes,
        ip_bytes: a.ip_bytes + b.ip_bytes,
        payload_bytes: a.payload_bytes + b.payload_bytes,
        payload_packets: a.payload_packets + b.payload_packets,
        length: moments(a.length, a.packets, b.length, b.packets),
        gap: moments(a.gap, a.gaps, b.gap, b.gaps),
        gaps: a.gaps + b.gaps,
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
        let mut whole = all(Config { active: None, capacity: 5000, ..Config::default() }, &packets);
        let mut parts = all(Config { active: Some(secs(5)), capacity: 5000, ..Config::default() }, &packets);
        assert!(parts.len() > whole.len(), "seed {seed}, round {round}");
        let twins = twins(&whole);
        let packets_of =
            |records: &[Record]| -> u64 { records.iter().filter(|r| twins.contains(&r.id)).map(Record::packets).sum() };
        assert_eq!(packets_of(&whole), packets_of(&parts), "seed {seed}, round {round}");
        assert!(twins.len() * 100 < whole.len(), "seed {seed}, round {round}: {} twins", twins.len());
        [&mut whole, &mut parts].into_iter().for_each(|records| records.retain(|r| !twins.contains(&r.id)));
        let level = |flows: &mut BTreeMap<u64, Record>| {
            // A flow that is silent after an interim record has no other; first packets and locator end with their record.
            for record in flows.values_mut() {
                (record.end, record.part, record.locator) = (EndReason::Idle, 0, None);
                record.early.clear();
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
