//! Tests that one shard and many shards make the same records, in one thread or in several, for any times of the ticks.

use super::at;
use super::traffic::{Owned, Plan, Traffic};
use crate::record::{EndReason, Record};
use crate::{Config, Hints, Meter, NoHints, Packet, Router, ShardMerger, Shards};
use base::{Prng, Timestamp};
use std::sync::atomic::{AtomicUsize, Ordering};

/// All records, in their order, from `count` shards.
pub(super) fn sharded(config: &Config, packets: &[Owned], count: usize) -> Vec<Record> {
    let mut shards = Shards::new(config, 1, count);
    let (mut out, mut prng) = (Vec::new(), Prng::new(count as u64));
    let mut rest = packets;
    while !rest.is_empty() {
        let (now, later) = rest.split_at(rest.len().min(1 + prng.below(200) as usize));
        shards.push(&now.iter().map(Owned::lend).collect::<Vec<_>>(), &mut out);
        rest = later;
    }
    shards.finish(&mut out);
    assert_eq!(shards.counts().records[crate::EndReason::LackOfResources as usize], 0, "the table was large enough");
    out
}

#[test]
fn shards_change_neither_the_records_nor_their_order() {
    let seed = testkit::seed("shards_change_neither_the_records_nor_their_order");
    for round in 0..20 {
        let mut traffic = Traffic::new(seed ^ round);
        let packets: Vec<Owned> = (0..3000).map(|_| traffic.packet()).collect();
        let config = Config { capacity: 4000, seed: round, bidirectional: round % 4 > 0, ..Config::default() };
        let one = sharded(&config, &packets, 1);
        for count in [2, 3, 8] {
            assert_eq!(one, sharded(&config, &packets, count), "seed {seed}, round {round}, {count} shards");
        }
    }
}

#[test]
fn threads_that_synchronise_at_each_second_make_the_same_records() {
    let seed = testkit::seed("threads_that_synchronise_at_each_second_make_the_same_records");
    let mut traffic = Traffic::new(seed);
    let packets: Vec<Owned> = (0..5000).map(|_| traffic.packet()).collect();
    let config = Config { capacity: 5000, ..Config::default() };
    let mut router = Router::new(&config, 4);
    let mut meters: Vec<Meter> = (0..4).map(|_| Meter::new(Shards::part(&config, 4), 1)).collect();
    let mut gathers: Vec<ShardMerger> = (0..4).map(|_| ShardMerger::default()).collect();
    let mut out: Vec<Record> = Vec::new();
    // All meters process the packets up to a tick before any meter continues, as their threads would.
    let mut stretches: Vec<(Option<Timestamp>, Vec<&Owned>)> = vec![(None, Vec::new())];
    for packet in &packets {
        if router.second(packet.ts) {
            stretches.push((Some(packet.ts), Vec::new()));
        }
        stretches.last_mut().expect("the list is not empty").1.push(packet);
    }
    for (tick, stretch) in &stretches {
        std::thread::scope(|scope| {
            for (n, (meter, gather)) in meters.iter_mut().zip(&mut gathers).enumerate() {
                let router = &router;
                scope.spawn(move || {
                    if let Some(tick) = tick {
                        meter.tick(*tick, gather);
                    }
                    let own: Vec<Packet> = stretch.iter().map(|p| p.lend()).filter(|p| router.shard(p) == n).collect();
                    meter.push(&own, gather);
                });
            }
        });
        ShardMerger::merge(&mut gathers, &mut out);
    }
    meters.iter_mut().zip(&mut gathers).for_each(|(m, g)| m.finish(g));
    ShardMerger::merge(&mut gathers, &mut out);
    assert_eq!(out, sharded(&config, &packets, 1), "seed {seed}");
}

#[test]
fn ticks_between_the_packets_change_nothing() {
    let seed = testkit::seed("ticks_between_the_packets_change_nothing");
    let mut traffic = Traffic::new(seed);
    traffic.jumps = false;
    let mut packets: Vec<Owned> = (0..5000).map(|_| traffic.packet()).collect();
    // The packets are sorted by time, as a live source delivers them.
    packets.sort_by_key(|p| p.ts);
    let config = Config { capacity: 5000, ..Config::default() };
    let (mut meter, mut ticked) = (Meter::new(config.clone(), 1), Vec::new());
    for pair in packets.windows(2) {
        meter.push(&[pair[0].lend()], &mut ticked);
        let (from, to) = (pair[0].ts.nanos(), pair[1].ts.nanos());
        let ticks = traffic.prng.below(4);
        let mut when: Vec<u64> = (0..ticks).map(|_| from + traffic.prng.below(to - from + 1)).collect();
        when.sort_unstable();
        when.iter().for_each(|t| meter.tick(Timestamp::from_nanos(*t), &mut ticked));
    }
    meter.push(&[packets[packets.len() - 1].lend()], &mut ticked);
    meter.finish(&mut ticked);
    assert_eq!(ticked, sharded(&config, &packets, 1), "seed {seed}");
}

static LINES: AtomicUsize = AtomicUsize::new(0);
static RESERVED: AtomicUsize = AtomicUsize::new(0);

/// Counts the hints.
#[derive(Clone, Copy)]
struct Counting;

impl Hints for Counting {
    fn reserved(self, region: std::ops::Range<*const u8>) {
        RESERVED.fetch_add(region.end.addr() - region.start.addr(), Ordering::Relaxed);
    }

    fn prefetch(self, _: *const u8) {
        LINES.fetch_add(1, Ordering::Relaxed);
    }
}

/// All records of these packets, and the bytes that the meter has touched.
fn hinted(hints: impl Hints, config: &Config, packets: &[Owned]) -> (Vec<Record>, usize) {
    let (mut meter, mut out) = (Meter::with_hints(config.clone(), 1, hints), Vec::<Record>::new());
    packets.chunks(90).for_each(|p| meter.push(&p.iter().map(Owned::lend).collect::<Vec<_>>(), &mut out));
    let bytes = meter.counts().bytes as usize;
    meter.finish(&mut out);
    (out, bytes)
}

#[test]
fn hints_are_called_and_change_no_record() {
    let seed = testkit::seed("hints_are_called_and_change_no_record");
    let mut traffic = Traffic::new(seed);
    let mix: Vec<Owned> = (0..3000).map(|_| traffic.packet()).collect();
    // In a flood, the entries of the flows to evict are also prefetched.
    let flood = (0..3000).map(|n| Plan::udp(1, 2, (n, 53)).frame(at(f64::from(n % 7) + f64::from(n) / 1000.0)));
    for (capacity, packets, is_full) in [(4000, mix, false), (600, flood.collect(), true)] {
        let config = Config { capacity, ..Config::default() };
        let (plain, bytes) = hinted(NoHints, &config, &packets);
        assert_eq!(
            plain.iter().any(|r| r.end_reason == EndReason::LackOfResources),
            is_full,
            "seed {seed}, capacity {capacity}"
        );
        assert_eq!(hinted(Counting, &config, &packets).0, plain, "seed {seed}, capacity {capacity}");
        assert!(RESERVED.swap(0, Ordering::Relaxed) > bytes / 2, "at least half of the touched memory was reserved");
        assert!(LINES.swap(0, Ordering::Relaxed) > packets.len(), "more than one line was prefetched per packet");
    }
}
