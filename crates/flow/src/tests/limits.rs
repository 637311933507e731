//! Hostile input to a meter.

use super::model::secs;
use super::traffic::{Owned, Plan, Traffic};
use super::{all, at, records};
use crate::record::{EndReason, Record};
use crate::{Config, Meter, Packet};
use base::{Prng, Timestamp};
use std::time::Duration;
use wire::tcp_flags::{ACK, SYN};
use wire::{Decoded, link};

fn lend(packets: &[Owned]) -> Vec<Packet<'_>> {
    packets.iter().map(Owned::lend).collect()
}

#[test]
fn flows_with_equal_hashes_are_distinguished() {
    let seed = testkit::seed("flows_with_equal_hashes_are_distinguished");
    for spread in [0, 0xffff << 48, 0x1 << 32] {
        let mut traffic = Traffic::new(seed);
        let packets: Vec<Owned> = (0..3000).map(|_| traffic.packet()).collect();
        let config = Config { capacity: 2000, idle_timeout: secs(3), ..Config::default() };
        let mut meter = Meter::new(config.clone(), 0);
        meter.keys.spread = spread;
        let collided = records(&mut meter, &packets, &mut Prng::new(seed));
        assert_eq!(meter.counts().records[EndReason::LackOfResources as usize], 0, "seed {seed}");
        assert_eq!(collided, all(config, &packets), "seed {seed}, spread {spread:x}");
    }
}

#[test]
fn a_growing_table_makes_the_same_records_as_a_large_table() {
    let seed = testkit::seed("a_growing_table_makes_the_same_records_as_a_large_table");
    let mut traffic = Traffic::new(seed);
    let packets: Vec<Owned> = (0..5000).map(|_| traffic.packet()).collect();
    for idle in [1, 3, 30] {
        let config =
            Config { capacity: 100_000, idle_timeout: secs(idle), compress_after: secs(idle) / 2, ..Config::default() };
        let (mut grows, mut large) = (Meter::new(config.clone(), 0), Meter::new(config, 0));
        let least = grows.table.bytes();
        large.table.grow(100_000);
        let made = records(&mut grows, &packets, &mut Prng::new(seed));
        assert_eq!(made, records(&mut large, &packets, &mut Prng::new(seed)), "seed {seed}, idle for {idle} s");
        assert_eq!(grows.counts().records[EndReason::LackOfResources as usize], 0, "seed {seed}");
        assert!(grows.table.bytes() > least, "seed {seed}: the table did not grow");
        assert!(grows.table.bytes() < large.table.bytes(), "seed {seed}: the table is larger than necessary");
    }
}

#[test]
fn flows_with_equal_hashes_beyond_the_searched_buckets_are_evicted() {
    let mut meter = Meter::new(Config { capacity: 2000, ..Config::default() }, 0);
    meter.keys.spread = 0;
    let packets: Vec<Owned> = (0..500).map(|n| Plan::udp(1, 2, (n, 53)).frame(at(f64::from(n) / 1000.0))).collect();
    let mut out: Vec<Record> = Vec::new();
    meter.push(&lend(&packets), &mut out);
    let counts = meter.counts();
    assert_eq!((counts.active, counts.shard_full, out.len()), (96, 404, 404));
    assert!(out.iter().all(|r| r.end_reason == EndReason::LackOfResources));
    meter.finish(&mut out);
    assert_eq!(out.iter().map(Record::packets).sum::<u64>(), 500);
}

#[test]
fn a_table_for_one_flow_counts_every_packet() {
    let seed = testkit::seed("a_table_for_one_flow_counts_every_packet");
    let mut traffic = Traffic::new(seed);
    let packets: Vec<Owned> = (0..5000).map(|_| traffic.packet()).collect();
    for capacity in [0, 1, 2, 3, 11] {
        let mut meter = Meter::new(Config { capacity, ..Config::default() }, 0);
        let out = records(&mut meter, &packets, &mut Prng::new(seed));
        let counts = meter.counts();
        assert!(counts.records[EndReason::LackOfResources as usize] > 0, "{capacity} flows");
        assert_eq!(out.iter().map(Record::packets).sum::<u64>(), counts.packets, "{capacity} flows");
        assert_eq!(counts.packets + counts.other, 5000);
        assert_eq!((counts.started, counts.active), (counts.ended(), 0));
    }
}

#[test]
fn a_flood_into_a_full_table_takes_no_more_memory_and_spares_active_flows() {
    let (mut meter, mut ends) = (Meter::new(Config { capacity: 1000, ..Config::default() }, 0), Vec::new());
    let mut flat = None;
    for n in 0..50_000_u32 {
        let when = f64::from(n) / 20_000.0;
        let mut flood = Plan::tcp(9, 2, ((n >> 8) as u16, n as u16), SYN, n).frame(at(when));
        flood.data[26..30].copy_from_slice(&n.to_be_bytes());
        meter.push(&[flood.lend()], &mut ends);
        if n % 50 == 0 {
            let talks = Plan::tcp(1, 2, (1, 1), ACK, 0).carrying(10).frame(at(when));
            meter.push(&[talks.lend()], &mut ends);
        }
        if n == 5000 {
            flat = Some(meter.counts().bytes);
        }
    }
    assert_eq!(Some(meter.counts().bytes), flat);
    assert_eq!(meter.counts().active, 1000);
    assert!(ends.iter().all(|r: &Record| r.packets() == 1), "no active flow was evicted");
    meter.finish(&mut ends);
    assert_eq!(ends.iter().map(Record::packets).sum::<u64>(), 51_000);
}

#[test]
fn a_full_table_evicts_flows_without_further_packets_in_turn() {
    let (mut meter, mut out) = (Meter::new(Config { capacity: 100, ..Config::default() }, 0), Vec::<Record>::new());
    let packet = |port: u16, ms: u16| Plan::udp(1, 2, (port, 53)).frame(at(f64::from(ms) / 1000.0));
    let mut packets: Vec<Owned> = (0..100).map(|n| packet(n, n)).collect();
    // Five flows get further packets. They are fewer than eight successive flows, so none of them is evicted.
    packets.extend((20..25).map(|n| packet(n, 100 + n)));
    packets.extend((100..160).map(|n| packet(n, 100 + n)));
    meter.push(&lend(&packets), &mut out);
    let ended: Vec<u16> = out.iter().map(|r| r.key.src_port).collect();
    assert_eq!(ended, (0..20).chain(25..65).collect::<Vec<_>>());
    // If all flows had further packets, the meter would evict the flow that has been idle longest among the next eight.
    out.clear();
    let again: Vec<Owned> = (20..25).chain(65..160).map(|n| packet(n, 300 + n)).collect();
    meter.push(&lend(&again), &mut out);
    meter.push(&lend(&[packet(999, 500)]), &mut out);
    assert_eq!(out.iter().map(|r| r.key.src_port).collect::<Vec<_>>(), [65]);
}

#[test]
fn a_gap_of_years_takes_no_time() {
    let mut out: Vec<Record> = Vec::new();
    let mut meter = Meter::new(Config::default(), 0);
    let century = Timestamp::from_secs_nanos(100 * 365 * 86_400, 0);
    for step in 0..1000 {
        let when = if step % 2 == 0 { at(0.5) } else { century };
        meter.push(&[Plan::udp(1, 2, (1, 2)).frame(when).lend()], &mut out);
    }
    meter.tick(Timestamp::MAX, &mut out);
    assert_eq!(out.len(), 1000);
    assert_eq!(meter.counts().restarts, 499);
    assert!(out.iter().all(|r| matches!(r.end_reason, EndReason::IdleTimeout | EndReason::ForcedEnd)));
}

#[test]
fn a_gap_of_centuries_with_active_flows_takes_no_time() {
    // If the meter processed every second, this would take a day.
    let century = 100 * 365 * 86_400;
    let idle = Duration::from_secs(5 * century);
    let config =
        Config { idle_timeout: idle, active_timeout: Some(Duration::from_secs(3 * century)), ..Config::default() };
    let (mut meter, mut out) = (Meter::new(config, 0), Vec::<Record>::new());
    let packets: Vec<Owned> = (0..50).map(|n| Plan::udp(1, 2, (n, 2)).frame(at(f64::from(n) * 1000.0))).collect();
    meter.push(&lend(&packets), &mut out);
    for centuries in 1..=5 {
        meter.tick(Timestamp::from_secs_nanos(500 + centuries * century, 0), &mut out);
        let expected = if centuries < 4 { 0 } else { 50 };
        // The flows get their first records when the active timeout of three centuries expires. They have no later
        // packets, hence no further records.
        assert_eq!(out.len(), expected, "after {centuries} centuries");
    }
    assert_eq!(meter.counts().active, 50);
    meter.tick(Timestamp::from_secs_nanos(1_000_000 + 5 * century, 0), &mut out);
    assert_eq!((meter.counts().active, out.len()), (0, 50));
    assert!(out.iter().map(|r| r.key.src_port).eq(0..50));
}

#[test]
fn skipped_seconds_make_the_same_records_as_single_seconds() {
    let seed = testkit::seed("skipped_seconds_make_the_same_records_as_single_seconds");
    let mut prng = Prng::new(seed);
    for round in 0..10 {
        let mut when = 0.0;
        let packets: Vec<Owned> = (0..300)
            .map(|_| {
                when += match prng.below(20) {
                    0 => 20_000.0,
                    1 => 700.0,
                    n => n as f64,
                };
                Plan::udp(1, 2, (prng.below(20) as u16, 2)).frame(at(when))
            })
            .collect();
        let active = [None, Some(Duration::from_secs(1300)), Some(Duration::from_secs(9000))][round % 3];
        let config = Config { idle_timeout: Duration::from_secs(5000), active_timeout: active, ..Config::default() };
        let (mut meter, mut out) = (Meter::new(config.clone(), 0), Vec::<Record>::new());
        for packet in &packets {
            // With one tick per second, time never advances by a whole turn of the wheel in one call.
            let from = meter.second.unwrap_or(packet.ts.secs());
            (from..packet.ts.secs()).for_each(|s| meter.tick(Timestamp::from_secs_nanos(s, 0), &mut out));
            meter.push(&[packet.lend()], &mut out);
        }
        meter.finish(&mut out);
        assert_eq!(all(config, &packets), out, "seed {seed}, round {round}");
    }
}

#[test]
fn the_last_representable_timestamp_is_valid() {
    let packets = [Plan::udp(1, 2, (1, 2)).frame(Timestamp::MAX), Plan::udp(1, 2, (1, 2)).frame(Timestamp::ZERO)];
    let records = all(Config::default(), &packets);
    assert_eq!(records.iter().map(|r| r.first()).collect::<Vec<_>>(), [Timestamp::MAX, Timestamp::ZERO]);
}

#[test]
fn a_small_backward_step_is_counted_with_an_inter_arrival_time_of_zero() {
    let packets = [5.0, 4.0, 6.0].map(|t| Plan::udp(1, 2, (1, 2)).frame(at(t)));
    let (mut meter, mut out) = (Meter::new(Config::default(), 0), Vec::new());
    meter.push(&packets.each_ref().map(Owned::lend), &mut out);
    meter.finish(&mut out);
    assert_eq!(meter.counts().backward_timestamps, 1);
    let side = &out[0].directions[0];
    assert_eq!((side.first, side.last, side.iat.min, side.iat.max), (at(5.0), at(6.0), 0, 1_000_000_000));
}

#[test]
fn counters_begin_another_record_before_they_overflow() {
    let packets: Vec<Owned> = (0..1000).map(|n| Plan::udp(1, 2, (1, 2)).frame(at(f64::from(n) / 1000.0))).collect();
    let (mut meter, mut out) = (Meter::new(Config::default(), 0), Vec::new());
    meter.most_packets = 300;
    meter.push(&lend(&packets), &mut out);
    meter.finish(&mut out);
    assert_eq!(out.iter().map(Record::packets).collect::<Vec<_>>(), [300, 300, 300, 100]);
    assert_eq!(out.iter().map(|r| r.directions[0].iat_count).sum::<u64>(), 999);
}

#[test]
fn arbitrary_frames_are_counted() {
    let seed = testkit::seed("arbitrary_frames_are_counted");
    let mut prng = Prng::new(seed);
    let config = Config { capacity: 500, payload: 40, initial_packets: 15, ..Config::default() };
    let (mut meter, mut out) = (Meter::new(config, 0), Vec::<Record>::new());
    for round in 0..200_000_u64 {
        let mut bytes = [0; 200];
        prng.fill(&mut bytes);
        let plan = Plan::tcp(prng.below(3) as u8, prng.below(3) as u8, (1, 2), prng.next_u64() as u8, round as u32);
        let plan = Plan { v6: prng.below(2) == 0, ..plan.carrying(prng.below(30) as u32) };
        let mut frame = plan.frame(Timestamp::ZERO).data;
        for _ in 0..prng.below(4) {
            let at = prng.below(frame.len() as u64) as usize;
            frame[at] = prng.next_u64() as u8;
        }
        // The frame consists of the headers of a valid packet and random bytes. It is truncated at a random byte, and
        // in a tenth of the rounds its wire length is random.
        let keep = frame.len().min(200);
        bytes[..keep].copy_from_slice(&frame[..keep]);
        if prng.below(2) == 0 && plan.v6 {
            bytes[12..14].copy_from_slice(&[0x86, 0xdd]);
        } else if prng.below(2) == 0 {
            bytes[12..14].copy_from_slice(&[8, 0]);
        }
        let data = &bytes[..prng.below(201) as usize];
        let wire_len = if prng.below(10) == 0 { prng.next_u64() as u32 } else { data.len() as u32 };
        let decoded = Decoded::of(data, wire_len, [link::ETHERNET, link::RAW_IP][prng.below(2) as usize]);
        let ts = Timestamp::from_nanos(prng.below(1 << 40));
        meter.push(&[Packet { ts, wire_len, data, decoded: &decoded, position: round, queue: 0 }], &mut out);
    }
    meter.finish(&mut out);
    let counts = meter.counts();
    assert!(counts.packets > 10_000 && counts.other > 10_000, "{counts:?}");
    assert_eq!(out.iter().map(Record::packets).sum::<u64>(), counts.packets, "seed {seed}");
}

#[test]
fn each_flow_of_a_small_table_ends_as_itself_if_its_eviction_is_predicted_twice() {
    let packet = |port: u16, us: u16| Plan::udp(1, 2, (port, 53)).frame(at(f64::from(us) / 1e6));
    // The table is full of flows with one packet each. Then three new flows send 17 packets each. In a single batch,
    // the meter predicts the next flow to evict for each of these packets that it prepares before the new flow is in
    // the table. Then 60 new flows evict all flows of the table.
    let mut packets: Vec<Owned> = (0..32).map(|n| packet(n, n)).collect();
    packets.extend((0..51).map(|n| packet(1000 + n / 17, 100 + n)));
    packets.extend((0..60).map(|n| packet(2000 + n, 200 + n)));
    let ids = |capacity: usize, batches: usize| -> Vec<(u16, u64)> {
        let mut out = Vec::<Record>::new();
        let mut meter = Meter::new(Config { capacity, ..Config::default() }, 0);
        // The table is full before the tested batch.
        meter.push(&lend(&packets[..32]), &mut out);
        packets[32..].chunks(batches).for_each(|some| meter.push(&lend(some), &mut out));
        meter.finish(&mut out);
        let mut ids: Vec<_> = out.iter().map(|r| (r.key.src_port, r.id)).collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(ids(32, usize::MAX), ids(4000, 1));
}
