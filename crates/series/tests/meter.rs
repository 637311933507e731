//! Compares the series meter with a simple model, which stores every packet and computes each second from the packets.

use base::{Cause, Prng, Tally, Timestamp};
use netgrain_series::{
    Direction, Distinct, MergeRule, Row, SIZE_BOUNDS, SeriesMeter, TrafficClass, Volume, address_hash, merge_rows,
    quantities,
};
use std::collections::{BTreeMap, BTreeSet};

const NANOS_PER_SEC: u64 = 1_000_000_000;
const START: u64 = 1_800_000_000;

#[derive(Clone, Copy)]
struct Packet {
    nanos: u64,
    wire_len: u32,
    direction: Direction,
    kind: TrafficClass,
    is_v6: bool,
    flags: Option<u8>,
    src: u64,
    dst: u64,
    /// True for a packet that is marked as a copy.
    is_duplicate: bool,
}

impl Packet {
    /// A packet with random fields.
    fn random(prng: &mut Prng, nanos: u64, sends: bool) -> Self {
        let kind = TrafficClass::ALL[prng.below(TrafficClass::COUNT as u64) as usize];
        let is_ip = !matches!(kind, TrafficClass::Arp | TrafficClass::Other);
        let mut host = |hosts| if is_ip { address_hash(7, &prng.below(hosts).to_be_bytes()[4..]) } else { 0 };
        let (src, dst) = (host(3000), host(50));
        Self {
            nanos,
            wire_len: SIZE_BOUNDS[prng.below(6) as usize] + prng.below(2) as u32,
            direction: if sends && prng.below(3) == 0 { Direction::Out } else { Direction::In },
            kind,
            is_v6: is_ip && prng.below(4) == 0,
            flags: (kind == TrafficClass::Tcp).then(|| prng.next_u64() as u8),
            src,
            dst,
            is_duplicate: prng.below(8) == 0,
        }
    }

    fn at(second: u64, after: u64) -> Self {
        Self::random(&mut Prng::new(after), second * NANOS_PER_SEC + after, false)
    }

    fn second(&self) -> u64 {
        self.nanos / NANOS_PER_SEC
    }

    fn count(&self, meter: &mut SeriesMeter) {
        let ts = Timestamp::from_nanos(self.nanos);
        if self.is_duplicate {
            return meter.duplicate(ts, self.wire_len, self.direction);
        }
        meter.packet(ts, self.wire_len, self.direction, self.kind, self.is_v6, self.flags, self.src, self.dst);
    }
}

fn at(second: u64) -> Timestamp {
    Timestamp::from_secs_nanos(second, 0)
}

/// The row of one second and direction, computed from all packets.
fn model_row(second: u64, direction: Direction, packets: &[Packet]) -> Row {
    let mut row = Row { second, direction, ..Row::default() };
    let mut milliseconds = BTreeMap::<u64, Volume>::new();
    let (mut sources, mut destinations) = (Distinct::EMPTY, Distinct::EMPTY);
    let count = |volume: &mut Volume, p: &Packet| {
        volume.packets += 1;
        volume.bytes += u64::from(p.wire_len);
    };
    for p in packets.iter().filter(|p| p.second() == second && p.direction == direction) {
        if p.is_duplicate {
            count(&mut row.duplicate, p);
            continue;
        }
        count(&mut row.total, p);
        count(&mut row.classes[p.kind as usize], p);
        if p.is_v6 {
            count(&mut row.ipv6, p);
        }
        row.sizes[SIZE_BOUNDS.iter().position(|bound| p.wire_len <= *bound).unwrap_or(SIZE_BOUNDS.len())] += 1;
        if let Some(flags) = p.flags {
            row.syn += u64::from(flags & 0x12 == 0x02);
            row.syn_ack += u64::from(flags & 0x12 == 0x12);
            row.fin += u64::from(flags & 0x01 != 0);
            row.rst += u64::from(flags & 0x04 != 0);
        }
        for (hash, seen) in [(p.src, &mut sources), (p.dst, &mut destinations)] {
            if hash != 0 {
                seen.insert(hash);
            }
        }
        count(milliseconds.entry(p.nanos % NANOS_PER_SEC / 1_000_000).or_default(), p);
    }
    let mut tens = BTreeMap::<u64, Volume>::new();
    for (millisecond, volume) in &milliseconds {
        let ten = tens.entry(millisecond / 10).or_default();
        ten.packets += volume.packets;
        ten.bytes += volume.bytes;
    }
    for (peak, bins) in [(&mut row.peak_1ms, &milliseconds), (&mut row.peak_10ms, &tens)] {
        peak.bytes = bins.values().map(|v| v.bytes).max().unwrap_or(0);
        peak.packets = bins.values().map(|v| v.packets).max().unwrap_or(0);
    }
    row.sources = sources.estimate().min(row.total.packets);
    row.destinations = destinations.estimate().min(row.total.packets);
    row
}

#[test]
fn rows_begin_with_the_first_tick() {
    let mut meter = SeriesMeter::new(3);
    assert!(meter.finish().is_empty());
    assert!(meter.tick(at(START)).is_empty());
    let rows = meter.tick(at(START + 2));
    assert_eq!(rows, [START, START + 1].map(|second| Row { second, interface: 3, ..Row::default() }));
}

#[test]
fn a_row_is_emitted_once_after_its_second_has_passed() {
    let mut meter = SeriesMeter::new(0);
    let packet = Packet::at(START, 999_999_999);
    packet.count(&mut meter);
    assert!(meter.tick(at(START)).is_empty());
    assert_eq!(meter.tick(at(START + 1)), [model_row(START, Direction::In, &[packet])]);
    assert!(meter.tick(at(START + 1)).is_empty() && meter.finish().is_empty());
    assert_eq!(meter.counts(), Default::default());
}

#[test]
fn silence_has_rows_of_zeros_and_a_gap_has_no_rows() {
    let mut meter = SeriesMeter::new(0);
    Packet::at(START, 0).count(&mut meter);
    let quiet = START + 1 + SeriesMeter::SILENCE_MAX;
    Packet::at(quiet, 0).count(&mut meter);
    let rows = meter.tick(at(quiet + 1));
    assert!(rows.iter().map(|r| r.second).eq(START..=quiet));
    assert!(rows[1..rows.len() - 1].iter().all(|r| *r == Row { second: r.second, ..Row::default() }));
    // The first pause between packets is just above the limit; the next pauses are longer than a hundred years.
    for (second, gaps) in [(quiet + 2 + SeriesMeter::SILENCE_MAX, 1), (START * 4, 2), (START * 8, 3)] {
        Packet::at(second, 0).count(&mut meter);
        let rows = meter.tick(at(second + 1));
        assert_eq!(rows.iter().map(|r| r.second).collect::<Vec<_>>(), [second]);
        assert_eq!(meter.counts().gaps, gaps);
    }
    assert!(meter.tick(Timestamp::MAX).is_empty());
}

#[test]
fn silence_in_a_capture_file_has_rows_for_a_minute_only() {
    let mut meter = SeriesMeter::of_capture(0);
    let mut rows = Vec::new();
    let apart =
        [0, 1, SeriesMeter::SILENCE_OF_CAPTURES + 1, SeriesMeter::SILENCE_OF_CAPTURES + 2, SeriesMeter::SILENCE_MAX];
    let mut second = START;
    for silence in apart {
        second += silence;
        rows.extend(meter.tick(at(second)));
        Packet::at(second, 0).count(&mut meter);
    }
    rows.extend(meter.finish());
    let rows_seen = 1 + 1 + SeriesMeter::SILENCE_OF_CAPTURES as usize + 1 + 1 + 1;
    assert_eq!((rows.len(), meter.counts().gaps), (rows_seen, 2));
}

#[test]
fn packets_after_the_end_begin_a_new_series() {
    let mut meter = SeriesMeter::new(0);
    Packet::at(START, 0).count(&mut meter);
    assert_eq!(meter.finish().len(), 1);
    Packet::at(START + 5, 0).count(&mut meter);
    let rows = meter.tick(at(START + 6));
    assert_eq!(rows.iter().map(|r| r.second).collect::<Vec<_>>(), [START + 5]);
    assert_eq!(meter.counts(), Default::default());
}

#[test]
fn a_late_packet_has_a_further_row_and_is_counted() {
    let mut meter = SeriesMeter::new(0);
    let packets = [Packet::at(START, 5), Packet::at(START + 1, 5), Packet::at(START, 2_000_000)];
    packets[..2].iter().for_each(|p| p.count(&mut meter));
    let mut rows = meter.tick(at(START + 1));
    packets[2].count(&mut meter);
    rows.extend(meter.tick(at(START + 2)));
    let rows_seen: Vec<(u64, u64)> = rows.iter().map(|r| (r.second, r.total.packets)).collect();
    assert_eq!(rows_seen, [(START, 1), (START, 1), (START + 1, 1)]);
    let counts = meter.counts();
    assert_eq!((counts.late_packets, counts.late_bytes), (1, packets[2].wire_len.into()));
    let sum = merge_rows(rows).next().expect("a row");
    assert_eq!(sum.total, model_row(START, Direction::In, &packets).total);
}

#[test]
fn after_a_clock_step_back_the_meter_starts_at_the_new_time() {
    let mut meter = SeriesMeter::new(0);
    Packet::at(START, 0).count(&mut meter);
    meter.tick(at(START));
    let past = START - 86_400;
    Packet::at(past, 0).count(&mut meter);
    let mut rows = meter.tick(at(past));
    Packet::at(past + 3, 0).count(&mut meter);
    rows.extend(meter.tick(at(past + 3)));
    rows.extend(meter.finish());
    assert_eq!(rows.iter().map(|r| r.second).collect::<Vec<_>>(), [START, past, past + 1, past + 2, past + 3]);
    assert_eq!((meter.counts().clock_steps_back, meter.counts().late_packets), (1, 0));
}

#[test]
fn seconds_closed_early_still_have_exact_rows() {
    let mut meter = SeriesMeter::new(0);
    let packets: Vec<Packet> = (0..1000).map(|i| Packet::at(START + i * 7919 % 40, i)).collect();
    packets.iter().for_each(|p| p.count(&mut meter));
    assert!(meter.counts().closed_early > 0);
    let rows = meter.tick(at(START + 40));
    assert!(rows.iter().map(|r| r.second).eq(START..START + 40));
    for row in rows {
        let expected = model_row(row.second, Direction::In, &packets);
        for quantity in quantities().iter().filter(|q| q.merge == MergeRule::Sum) {
            assert_eq!(quantity.of(&row), quantity.of(&expected), "{}", quantity.name);
        }
    }
}

#[test]
fn rows_of_the_outgoing_direction_begin_with_its_first_packet() {
    let mut meter = SeriesMeter::new(0);
    meter.flows(START, 5, 1, 0);
    assert_eq!(meter.tick(at(START + 1)).len(), 1);
    let mut sent = Packet::at(START + 1, 0);
    sent.direction = Direction::Out;
    sent.count(&mut meter);
    meter.flows(START + 1, 6, 2, 1);
    let tally = Tally { offered: 3, stored: 3, ..Tally::default() };
    meter.ledger(START + 1, &tally);
    let rows = meter.tick(at(START + 3));
    let rows_seen: Vec<_> =
        rows.iter().map(|r| (r.second - START, r.direction, r.flows_active, r.ledger.offered)).collect();
    let (inward, outward) = (Direction::In, Direction::Out);
    assert_eq!(rows_seen, [(1, inward, 6, 3), (1, outward, 0, 0), (2, inward, 0, 0), (2, outward, 0, 0)]);
}

/// Packets out of order, ticks at random times, clock steps forward and back: the sum of the rows of a second equals
/// the model. Quantities that cannot be added equal the model if no packet was late.
#[test]
fn rows_agree_with_the_model_on_a_random_walk_of_packets_and_clock_steps() {
    let seed = testkit::seed("rows_agree_with_the_model_on_a_random_walk_of_packets_and_clock_steps");
    let mut prng = Prng::new(seed);
    let mut rounds_without_gap = 0;
    for round in 0..60 {
        let mut meter = SeriesMeter::new(9);
        let (mut packets, mut flows, mut ledger) = (Vec::new(), BTreeMap::new(), BTreeMap::<u64, Tally>::new());
        let mut now = START * NANOS_PER_SEC;
        let (sends, jitter) = (round % 2 == 0, [1, NANOS_PER_SEC / 2, 5 * NANOS_PER_SEC][round % 3]);
        let mut rows = Vec::new();
        for _ in 0..400 {
            match prng.below(40) {
                0 => now += prng.below(20) * NANOS_PER_SEC,
                1 if round % 5 == 0 => now += prng.below(1_000_000) * NANOS_PER_SEC,
                2 if round % 5 == 1 => now -= prng.below(1_000_000) * NANOS_PER_SEC,
                3..10 => rows.extend(meter.tick(Timestamp::from_nanos(now))),
                10 => {
                    let (second, active) = (now / NANOS_PER_SEC, prng.below(9));
                    meter.flows(second, active, 2, 1);
                    let rows_seen = flows.entry(second).or_insert((0, 0, 0));
                    *rows_seen = (rows_seen.0 + active, rows_seen.1 + 2, rows_seen.2 + 1);
                    meter.tunnels(second, active, 2, 1);
                }
                11 => {
                    let mut tally = Tally { offered: 3, stored: 3, ..Tally::default() };
                    tally.add_lost(Cause::RingFull, prng.below(4));
                    meter.ledger(now / NANOS_PER_SEC, &tally);
                    *ledger.entry(now / NANOS_PER_SEC).or_default() += &tally;
                }
                _ => {
                    now += prng.below(NANOS_PER_SEC / 10);
                    for _ in 0..prng.below(20) {
                        let nanos = now - prng.below(jitter);
                        let packet = Packet::random(&mut prng, nanos, sends);
                        packet.count(&mut meter);
                        packets.push(packet);
                    }
                }
            }
        }
        rows.extend(meter.finish());
        let counts = meter.counts();
        let total: u64 = rows.iter().map(|r| r.total.packets).sum();
        let marked: u64 = rows.iter().map(|r| r.duplicate.packets).sum();
        assert_eq!(total + marked, packets.len() as u64, "seed {seed} round {round}: {counts:?}");
        rows.sort_by_key(|r| r.second);
        let rows: BTreeMap<(u64, Direction), Row> = merge_rows(rows).map(|r| ((r.second, r.direction), r)).collect();
        let seconds: BTreeSet<u64> = packets.iter().map(Packet::second).chain(flows.keys().copied()).collect();
        assert!(seconds.iter().all(|s| rows.contains_key(&(*s, Direction::In))), "seed {seed} round {round}");
        let inward: Vec<u64> = rows.keys().filter(|(_, d)| *d == Direction::In).map(|(second, _)| *second).collect();
        if counts.gaps == 0 && counts.clock_steps_back == 0 && counts.late_packets == 0 {
            assert!(
                inward.windows(2).all(|w| w[1] == w[0] + 1),
                "seed {seed} round {round}: a silent second is missing"
            );
            rounds_without_gap += 1;
        }
        for ((second, direction), row) in &rows {
            let mut expected = model_row(*second, *direction, &packets);
            expected.interface = 9;
            if *direction == Direction::In {
                (expected.flows_active, expected.flows_new, expected.flows_ended) =
                    flows.get(second).copied().unwrap_or_default();
                // The test adds the same numbers to the tunnel counters as to the flow counters.
                expected.tunnel_numbered = expected.flows_active;
                (expected.tunnel_missing, expected.tunnel_late) = (expected.flows_new, expected.flows_ended);
                expected.ledger = ledger.get(second).copied().unwrap_or_default();
            }
            if counts.late_packets == 0 && counts.closed_early == 0 {
                assert_eq!(*row, expected, "seed {seed} round {round}");
            }
            for quantity in quantities() {
                let (got, exact) = (quantity.of(row), quantity.of(&expected));
                let right = if quantity.merge == MergeRule::Sum { got == exact } else { got <= exact };
                assert!(right, "seed {seed} round {round} second {second}: {} {got} {exact}", quantity.name);
            }
        }
    }
    assert!(rounds_without_gap > 5, "seed {seed}: {rounds_without_gap} rounds without a gap");
}

/// The rows do not depend on the distribution of packets among meters or on the times of merges.
#[test]
fn merged_meters_emit_the_rows_of_a_single_meter() {
    let seed = testkit::seed("merged_meters_emit_the_rows_of_a_single_meter");
    let mut prng = Prng::new(seed);
    for round in 0..30 {
        let parts = 1 + prng.below(8) as usize;
        let mut one = SeriesMeter::new(1);
        let mut merged = SeriesMeter::new(1);
        let mut split: Vec<SeriesMeter> = (0..parts).map(|_| SeriesMeter::new(1)).collect();
        let mut now = START * NANOS_PER_SEC;
        for step in 0..200 {
            now += prng.below(NANOS_PER_SEC / 3) * (1 + prng.below(30) / 29 * 2000);
            for _ in 0..prng.below(30) {
                let back = prng.below(2 * NANOS_PER_SEC);
                let packet = Packet::random(&mut prng, now - back, true);
                packet.count(&mut one);
                packet.count(&mut split[prng.below(parts as u64) as usize]);
            }
            let second = now / NANOS_PER_SEC;
            if prng.below(5) == 0 {
                one.flows(second, 7 * parts as u64, parts as u64, 0);
                one.ledger(second, &Tally { offered: parts as u64, ..Tally::default() });
                for part in &mut split {
                    part.flows(second, 7, 1, 0);
                    part.ledger(second, &Tally { offered: 1, ..Tally::default() });
                }
            }
            if prng.below(4) == 0 {
                // Each meter of `split` counts a part of the packets. It may be merged into `merged` at any time;
                // before a tick, all of them must be merged.
                split.iter_mut().for_each(|part| merged.merge(part));
                let rows = merged.tick(Timestamp::from_nanos(now));
                assert_eq!(rows, one.tick(Timestamp::from_nanos(now)), "seed {seed} round {round} step {step}");
            } else {
                merged.merge(&mut split[prng.below(parts as u64) as usize]);
            }
        }
        split.iter_mut().for_each(|part| merged.merge(part));
        assert_eq!(merged.finish(), one.finish(), "seed {seed} round {round}");
        assert_eq!(merged.counts(), one.counts(), "seed {seed} round {round}");
    }
}

/// In each direction, the estimate is within four standard errors of the exact number.
#[test]
fn distinct_addresses_are_estimated_within_four_standard_errors() {
    let mut meter = SeriesMeter::new(0);
    let hash = |i: u32| address_hash(11, &i.to_be_bytes());
    for i in 0..60_000u32 {
        let ts = Timestamp::from_secs_nanos(START, u64::from(i) * 10_000);
        let direction = Direction::ALL[usize::from(i % 3 == 0)];
        meter.packet(ts, 60, direction, TrafficClass::Udp, false, None, hash(i % 30_000), hash(i % 250));
    }
    for row in meter.finish() {
        let sources = (0..60_000).filter(|i| (i % 3 == 0) == (row.direction == Direction::Out)).map(|i| i % 30_000);
        let exact = sources.collect::<BTreeSet<u32>>().len() as f64;
        assert!((row.sources as f64 / exact - 1.0).abs() < 4.0 * 0.01625, "{} of {exact}", row.sources);
        assert!((row.destinations as f64 / 250.0 - 1.0).abs() < 0.02, "{} of 250", row.destinations);
    }
}
