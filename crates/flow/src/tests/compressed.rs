//! Tests of idle-compressed flows: decompression restores them exactly, and they take few bytes.

use super::at;
use super::captures::{self, Captured};
use super::model::secs;
use super::sharded::sharded;
use super::traffic::{Owned, Plan, Traffic};
use crate::entry::{Entry, bit};
use crate::meter::compressed::CompressedFlows;
use crate::packet_list::LOG;
use crate::pool::NONE;
use crate::record::Record;
use crate::tunnel_sequences;
use crate::{Config, Meter, NoHints, Shards};
use base::{Prng, Timestamp};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use wire::tcp_flags::{ACK, PSH, SYN};

/// Bytes of one flow: its entry, its links on the wheel, its slots in a table of exactly the required size, and its
/// packet list, counters or encoding.
fn bytes(meter: &Meter, flow: u32) -> usize {
    let hot = &meter.flows[flow].hot;
    let v6 = if hot.has(bit::V6) { 24 } else { 0 };
    let is_numbered = hot.tunnel > 0 && meter.numbers.of(flow) != [None; 2];
    let numbers = if is_numbered { tunnel_sequences::BYTES } else { 0 };
    let chunk = |chunk: u32| if chunk == NONE { 0 } else { 72 };
    let form = match hot.bits & bit::COMPRESSED {
        0 => chunk(hot.more),
        bit::PAIR => 128 + chunk(meter.pairs[hot.more].chunk()),
        bit::FULL => 448 + chunk(meter.fulls[hot.more].chunk),
        _ if hot.more == NONE => 0,
        _ => size_of_val(meter.compressed.slab.of(hot.more)),
    };
    size_of::<Entry>() + 8 + 11 + v6 + numbers + form
}

/// The bytes of memory that each flow of a meter takes.
fn all_bytes(meter: &Meter) -> Vec<usize> {
    let used = (0..meter.flows.len() as u32).filter(|f| meter.flows[*f].hot.has(bit::USED));
    used.map(|flow| bytes(meter, flow)).collect()
}

/// A meter whose flows last for centuries and are compressed after a second.
fn patient() -> Meter {
    let idle = secs(1 << 33);
    Meter::new(
        Config {
            idle_timeout: idle,
            close_timeout: idle,
            active_timeout: None,
            compress_after: secs(1),
            ..Config::default()
        },
        0,
    )
}

/// Advances time until every flow that can be compressed is compressed.
fn compress_all(meter: &mut Meter) {
    let mut out: Vec<Record> = Vec::new();
    let second = meter.second.expect("the meter has had packets") + 2;
    // Each slot is inspected once per second, and a tick compresses at most a thousand flows.
    for second in second..second + 4 {
        let ticks = meter.counts().active / 1000 + 1;
        (0..ticks).for_each(|_| meter.tick(Timestamp::from_secs_nanos(second, 0), &mut out));
    }
    assert!(out.is_empty(), "no flow ended");
}

fn mean(bytes: &[usize]) -> f64 {
    bytes.iter().sum::<usize>() as f64 / bytes.len() as f64
}

/// A TCP flow of `packets` packets: requests, responses in full segments and acknowledgements, as seen at a server. One
/// in `again` data segments is retransmitted.
fn talk(prng: &mut Prng, n: u32, packets: u32, again: Option<u64>, v6: bool) -> Vec<Owned> {
    let mut next = [prng.next_u64() as u32, prng.next_u64() as u32];
    let mut now = f64::from(n) / 1000.0;
    let port = (n % 60_000) as u16;
    let (mut out, mut burst) = (Vec::new(), 0);
    for i in 0..packets {
        let side = match i {
            0 | 2 => 0,
            1 => 1,
            _ if burst > 0 => 1,
            _ => usize::from(prng.below(3) > 0),
        };
        burst = if burst > 0 { burst - 1 } else { prng.below(4) };
        let payload = match (i, side) {
            (0..3, _) => 0,
            (_, 0) => [0, 0, 100 + prng.below(500) as u32][prng.below(3) as usize],
            _ => [0, 1448, 1448, 1448, prng.below(1448) as u32][prng.below(5) as usize],
        };
        let flags = match i {
            0 => SYN,
            1 => SYN | ACK,
            _ if payload > 0 && payload < 1448 => ACK | PSH,
            _ => ACK,
        };
        let is_again = again.is_some_and(|one_in| payload > 0 && (i == 3 || prng.below(one_in) == 0));
        let seq = if is_again { next[side].wrapping_sub(payload) } else { next[side] };
        let ends = if side == 0 { (1, 2, (port, 443)) } else { (2, 1, (443, port)) };
        let plan = Plan { v6, ..Plan::tcp(ends.0, ends.1, ends.2, flags, seq).carrying(payload) };
        let mut owned = plan.frame(at(now));
        owned.position = 24 + (now * 1e8) as u64;
        out.push(owned);
        next[side] = seq.wrapping_add(payload + (flags & SYN).count_ones());
        // The time between packets is microseconds within a burst; between bursts it is a network's round-trip time or
        // a user's pause.
        now += match prng.below(3) {
            0 => prng.below(50_000) as f64 / 1e9,
            1 => prng.below(60_000_000) as f64 / 1e9,
            _ => prng.below(400_000_000) as f64 / 1e9,
        };
    }
    out
}

/// Bytes per flow of these packets, uncompressed and compressed, and the number of flows that were compressed.
fn uncompressed_and_compressed(packets: &[Owned]) -> (Vec<usize>, Vec<usize>, u64) {
    let (mut meter, mut out) = (patient(), Vec::<Record>::new());
    let compressed_flows = std::mem::replace(&mut meter.compressed, CompressedFlows::new(0, 1, NoHints));
    packets.chunks(64).for_each(|p| meter.push(&p.iter().map(Owned::lend).collect::<Vec<_>>(), &mut out));
    let uncompressed = all_bytes(&meter);
    meter.compressed = compressed_flows;
    if !uncompressed.is_empty() {
        compress_all(&mut meter);
    }
    assert!(out.is_empty(), "no flow ended");
    (uncompressed, all_bytes(&meter), meter.counts().compressed)
}

#[test]
fn a_compressed_flow_of_any_length_takes_less_than_256_bytes_on_average() {
    let seed = testkit::seed("a_compressed_flow_of_any_length_takes_less_than_256_bytes_on_average");
    let mut prng = Prng::new(seed);
    for (v6, again) in [(false, None), (false, Some(20)), (true, None), (true, Some(20))] {
        for packets in [1, 2, 10, 11, 20, 100, 1000] {
            let mut all: Vec<Owned> = (0..100).flat_map(|n| talk(&mut prng, n, packets, again, v6)).collect();
            all.sort_by_key(|p| p.ts);
            let (uncompressed, compressed, compressed_flows) = uncompressed_and_compressed(&all);
            let (version, order) =
                (if v6 { 6 } else { 4 }, if again.is_some() { "retransmissions" } else { "in order" });
            let most = compressed.iter().max().expect("there are flows");
            println!(
                "{packets} packets, IPv{version}, {order}: {:.0} -> {:.0}, at most {most}",
                mean(&uncompressed),
                mean(&compressed)
            );
            assert_eq!(uncompressed.len(), 100, "seed {seed}");
            assert!(
                mean(&compressed) < 256.0 && *most <= 300,
                "seed {seed}: {packets} packets take {}",
                mean(&compressed)
            );
            if packets > LOG as u32 {
                assert_eq!(compressed_flows, 100, "seed {seed}: {packets} packets");
                assert!(mean(&uncompressed) >= 346.0, "seed {seed}");
            }
        }
    }
}

/// The packets of a capture file, up to the first unreadable record.
fn packets(path: &Path) -> Vec<Owned> {
    let owned = |c: Captured| {
        let Captured { ts, wire_len, data, decoded, offset } = c;
        Owned { ts, wire_len, data, decoded, position: offset, queue: 0 }
    };
    let mut packets: Vec<Owned> = captures::packets(path).into_iter().map(owned).collect();
    // The packets are sorted by timestamp, so that the time never steps back. Pauses of more than an hour are shortened
    // to an hour, because the meter processes every second while flows are active.
    packets.sort_by_key(|p: &Owned| p.ts);
    let (mut before, mut removed) = (None, Duration::ZERO);
    for packet in &mut packets {
        let gap = packet.ts.since(*before.get_or_insert(packet.ts));
        before = Some(packet.ts);
        removed += gap.saturating_sub(secs(3600));
        packet.ts = packet.ts.before(removed);
    }
    packets
}

#[test]
fn few_flows_of_real_captures_take_more_than_256_bytes_compressed() {
    let Some(directory) = testkit::traces("few_flows_of_real_captures_take_more_than_256_bytes_compressed") else {
        return;
    };
    let mut all = Vec::new();
    let mut directories: BTreeMap<PathBuf, (Vec<usize>, Vec<usize>)> = BTreeMap::new();
    for path in captures::files(&directory) {
        let (uncompressed, compressed, _) = uncompressed_and_compressed(&packets(&path));
        let kind = path
            .strip_prefix(&directory)
            .expect("the path is in the directory")
            .components()
            .next()
            .expect("the path has components");
        let sums = directories.entry(PathBuf::from(kind.as_os_str())).or_default();
        sums.0.extend(&uncompressed);
        sums.1.extend(&compressed);
        all.extend(compressed);
    }
    for (name, (uncompressed, compressed)) in directories.iter().filter(|f| !f.1.0.is_empty()) {
        let over = |all: &[usize]| all.iter().filter(|b| **b > 256).count();
        println!(
            "{}: {} flows, mean {:.0} -> {:.0}, over 256: {} -> {}, at most {}",
            name.display(),
            uncompressed.len(),
            mean(uncompressed),
            mean(compressed),
            over(uncompressed),
            over(compressed),
            compressed.iter().max().expect("there are flows"),
        );
        assert!(mean(compressed) < 230.0 && over(compressed) * 50 < compressed.len().max(50), "{}", name.display());
    }
    assert!(all.len() > 40_000, "{} flows", all.len());
}

#[test]
fn compression_changes_no_record() {
    let seed = testkit::seed("compression_changes_no_record");
    let mut forms = BTreeMap::new();
    for round in 0..12 {
        let mut traffic = Traffic::new(seed ^ round);
        let packets: Vec<Owned> = (0..3000).map(|_| traffic.packet()).collect();
        let active = [None, Some(secs(3)), Some(secs(300))][round as usize % 3];
        let config = Config {
            capacity: 4000,
            idle_timeout: secs(100),
            active_timeout: active,
            compress_after: Duration::ZERO,
            ..Config::default()
        };
        let never = sharded(&config, &packets, 1);
        for (compressed, shards) in
            [(Duration::from_nanos(1), 1), (secs(1), 1), (Duration::from_nanos(1), 3), (secs(2), 8)]
        {
            let records = sharded(&Config { compress_after: compressed, ..config.clone() }, &packets, shards);
            assert_eq!(records, never, "seed {seed}, round {round}, {compressed:?}, {shards} shards");
        }
        // The packets are metered one by one, so that the test can inspect which flows are compressed.
        let (mut meter, mut out) = (Meter::new(Config { compress_after: secs(1), ..config }, 1), Vec::<Record>::new());
        for packet in &packets {
            meter.push(&[packet.lend()], &mut out);
            for flow in 0..meter.flows.len() as u32 {
                let hot = &meter.flows[flow].hot;
                if hot.has(bit::USED) && hot.is_compressed() {
                    let head = meter.head(flow);
                    *forms.entry((head.is_full, head.part > 0, hot.more == NONE)).or_insert(0) += 1;
                }
            }
        }
        meter.finish(&mut out);
        assert_eq!(out, never, "seed {seed}, round {round}, packet by packet");
        assert_eq!((meter.counts().compressed, meter.counts().active), (0, 0), "seed {seed}, round {round}");
    }
    // The test must have compressed compact and wide counters, in first and in later records, with encodings that fit
    // into the entry and encodings that do not.
    assert!(forms.len() >= 6, "seed {seed}: {forms:?}");
}

#[test]
fn memory_freed_by_compression_is_reused() {
    let mut prng = Prng::new(testkit::seed("memory_freed_by_compression_is_reused"));
    // A hundred flows start per second, each with twenty packets over two seconds; all are active at the end.
    let mut all: Vec<Owned> = (0..6000)
        .flat_map(|n| {
            let mut talk = talk(&mut prng, n, 20, (n % 5 == 0).then_some(10), false);
            talk.iter_mut().for_each(|p| p.ts = p.ts.after(Duration::from_millis(9 * u64::from(n))));
            talk
        })
        .collect();
    all.sort_by_key(|p| p.ts);
    let bytes = |compressed: bool| {
        let (mut meter, mut out) = (patient(), Vec::<Record>::new());
        if !compressed {
            meter.compressed = CompressedFlows::new(0, 1, NoHints);
        }
        all.chunks(64).for_each(|p| meter.push(&p.iter().map(Owned::lend).collect::<Vec<_>>(), &mut out));
        assert_eq!(meter.counts().active, 6000);
        meter.counts().bytes
    };
    let (never, compressed) = (bytes(false), bytes(true));
    assert!(compressed + 6000 * 120 < never, "{compressed} bytes touched, {never} without compression");
}

#[test]
fn flows_stay_uncompressed_if_the_slab_is_full() {
    let mut prng = Prng::new(testkit::seed("flows_stay_uncompressed_if_the_slab_is_full"));
    let mut all: Vec<Owned> = (0..2000).flat_map(|n| talk(&mut prng, n, 100, None, true)).collect();
    all.sort_by_key(|p| p.ts);
    let (mut meter, mut out) = (patient(), Vec::<Record>::new());
    // The smallest slab: sixteen blocks of 4 KiB.
    meter.compressed = CompressedFlows::new(1_000_000_000, 1, NoHints);
    all.chunks(64).for_each(|p| meter.push(&p.iter().map(Owned::lend).collect::<Vec<_>>(), &mut out));
    compress_all(&mut meter);
    let counts = meter.counts();
    assert!(
        (400..1600).contains(&counts.compressed),
        "{} of {} flows are compressed",
        counts.compressed,
        counts.active
    );
    meter.finish(&mut out);
    let config = Config { compress_after: Duration::ZERO, ..meter.config.clone() };
    assert_eq!(out, super::all(config, &all));
}

#[test]
fn a_meter_that_restarts_within_a_second_inspects_no_freed_slot() {
    let (mut meter, mut out) = (patient(), Vec::<Record>::new());
    // More flows with wide counters than the number of slots that the meter inspects for one packet.
    let zero = |port: u16, when| Plan { window: 0, ..Plan::tcp(1, 2, (port, 443), SYN, 7) }.frame(at(when));
    let floods: Vec<Owned> = (0..2000).map(|n| zero(n, 0.5)).collect();
    meter.push(&floods.iter().map(Owned::lend).collect::<Vec<_>>(), &mut out);
    meter.push(&[zero(0, 9.1).lend()], &mut out);
    meter.push(&[zero(1, 9.2).lend()], &mut out);
    assert!((1..2000).contains(&meter.counts().compressed), "some flows are compressed, and the sweep is incomplete");
    meter.finish(&mut out);
    meter.push(&[Plan::udp(1, 2, (3, 53)).frame(at(9.3)).lend()], &mut out);
    meter.push(&[Plan::udp(1, 2, (4, 53)).frame(at(9.4)).lend()], &mut out);
    meter.finish(&mut out);
    assert_eq!(out.iter().map(Record::packets).sum::<u64>(), 2004);
}

#[test]
fn ticks_alone_compress_flows_in_any_number_of_shards() {
    for shards in [1, 3] {
        let config = Config { compress_after: secs(1), ..Config::default() };
        let (mut meters, mut out) = (Shards::new(&config, 0, shards), Vec::<Record>::new());
        let mut prng = Prng::new(7);
        for n in 0..300 {
            let packets = talk(&mut prng, n, 20, None, false);
            meters.push(&packets.iter().map(Owned::lend).collect::<Vec<_>>(), &mut out);
        }
        let second = meters.counts().compressed;
        for ahead in 12..18 {
            meters.tick(at(f64::from(ahead)), &mut out);
        }
        let counts = meters.counts();
        assert_eq!((counts.active, counts.compressed), (300, 300), "{shards} shards, {second} before");
    }
}
