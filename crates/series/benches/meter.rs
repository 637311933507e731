//! Measures the series meter: `cargo bench -p netgrain-series`. Prints nanoseconds per packet for traffic of one and of
//! two directions, and microseconds for closing, merging and rolling up a second. The packets are made before the
//! measurement.

use base::{Prng, Timestamp};
use netgrain_series::{Direction, RollupBuilder, Row, SeriesMeter, Step, TrafficClass, address_hash};
use std::hint::black_box;
use std::time::Instant;

const PACKETS: usize = 1 << 16;
const ROUNDS: usize = 200;
/// Packets per second of the traffic, which determines how often a new second begins.
const RATE: u64 = 2_000_000;

#[derive(Clone, Copy)]
struct Packet {
    wire_len: u32,
    direction: Direction,
    kind: TrafficClass,
    is_v6: bool,
    flags: Option<u8>,
    src: u64,
    dst: u64,
}

fn packets(hosts: u64, both: bool) -> Vec<Packet> {
    let mut prng = Prng::new(4);
    let random_packet = |_| {
        let kind = if prng.below(10) < 7 { TrafficClass::Tcp } else { TrafficClass::Udp };
        Packet {
            wire_len: [60, 66, 590, 1514][prng.below(4) as usize],
            direction: if both && prng.below(2) == 0 { Direction::Out } else { Direction::In },
            kind,
            is_v6: prng.below(5) == 0,
            flags: (kind == TrafficClass::Tcp).then_some([0x10, 0x18, 0x02, 0x11][prng.below(4) as usize]),
            src: address_hash(1, &prng.below(hosts).to_be_bytes()),
            dst: address_hash(1, &prng.below(hosts).to_be_bytes()),
        }
    };
    (0..PACKETS).map(random_packet).collect()
}

fn measure_packets(name: &str, packets: &[Packet]) {
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let mut meter = SeriesMeter::new(0);
        let (mut nanos, mut rows, mut next) = (0, 0, 1_000_000_000);
        let begun = Instant::now();
        for _ in 0..ROUNDS {
            for p in packets {
                nanos += 1_000_000_000 / RATE;
                if nanos >= next {
                    rows += meter.tick(Timestamp::from_nanos(nanos)).len();
                    next += 1_000_000_000;
                }
                let ts = Timestamp::from_nanos(nanos);
                meter.packet(ts, p.wire_len, p.direction, p.kind, p.is_v6, p.flags, p.src, p.dst);
            }
        }
        black_box(rows);
        best = best.min(begun.elapsed().as_nanos() as f64 / (ROUNDS * packets.len()) as f64);
    }
    println!("{name:<44} {best:>8.2} ns per packet, ticks included");
}

fn measure(name: &str, times: u64, mut operation: impl FnMut(u64)) {
    let begun = Instant::now();
    (0..times).for_each(&mut operation);
    println!("{name:<44} {:>8.1} µs", begun.elapsed().as_nanos() as f64 / 1000.0 / times as f64);
}

fn main() {
    measure_packets("one direction, 1 k hosts", &packets(1000, false));
    measure_packets("one direction, 1 M hosts", &packets(1_000_000, false));
    measure_packets("two directions, 1 M hosts", &packets(1_000_000, true));
    let full = |second| {
        let mut meter = SeriesMeter::new(0);
        for p in &packets(1000, false)[..5000] {
            let ts = Timestamp::from_secs_nanos(second, 1000);
            meter.packet(ts, p.wire_len, p.direction, p.kind, p.is_v6, p.flags, p.src, p.dst);
        }
        meter
    };
    let mut counters: Vec<SeriesMeter> = (0..1000).map(|i| full(i / 2)).collect();
    let mut total = SeriesMeter::new(0);
    let mut rows: Vec<Row> = Vec::new();
    measure("merging one second of two meters", 1000, |i| total.merge(&mut counters[i as usize]));
    let mut counters: Vec<SeriesMeter> = (0..1000).map(full).collect();
    measure("closing a second", 1000, |i| rows.extend(counters[i as usize].tick(Timestamp::from_secs_nanos(i + 1, 0))));
    let mut roller = RollupBuilder::new(Step::Hour);
    measure("adding the row of a second to the roll-up of an hour", 36_000, |i| {
        black_box(roller.push(&Row { second: i, ..rows[i as usize % rows.len()] }));
    });
}
