//! Time per packet of the detector: `cargo bench -p netgrain-duplicates`. The packets are unique, which is the most
//! frequent and the most expensive case: each packet needs the cache lines of a new bucket and of a new record.
//!
//! | way | packets are |
//! |---|---|
//! | batch | prepared and prefetched in batches of 32, as in `netgrain dedup` |
//! | single | prepared and compared one after the other |
//! | ahead | prepared and prefetched 32 packets ahead, as by an engine thread with a table of its own |
//! | shared | as ahead, in a table of shards with a lock each, as by engine threads that share a table |
//!
//! The time is the CPU time of the thread, so other processes on the machine change it only through the caches.
//!
//! `cargo bench -p netgrain-duplicates -- count WAY` runs one round with a table of 32 Ki records, for
//! `valgrind --tool=callgrind`; the instructions per packet are the difference to `count none`, divided by 100 000.

use base::Timestamp;
use netgrain_duplicates::{Detector, Duplicate, Packet, Prefetcher, Prepared, Preparer, Settings};
use std::sync::Mutex;
use testkit::MemoryHints;
use wire::{build::Frame, link};

const BATCH: usize = 256;

/// Packets that are prepared before the first of them is compared.
const AHEAD: usize = 32;

const WAYS: [&str; 4] = ["batch", "single", "ahead", "shared"];

/// The table of a way.
enum Table {
    None,
    Own(Box<Detector<MemoryHints>>),
    Shared(Vec<Mutex<Detector<MemoryHints>>>),
}

struct Bench {
    way: &'static str,
    table: Table,
    preparer: Preparer,
    prefetchers: Vec<Prefetcher<MemoryHints>>,
    prepared: Vec<Prepared>,
}

impl Bench {
    fn new(way: &'static str, settings: &Settings) -> Self {
        let shards = if way == "shared" { settings.shards() } else { 1 };
        let settings = Settings { records: settings.records.div_ceil(shards), ..settings.clone() };
        let detector = |_| Detector::with_hints(settings.clone(), 1, MemoryHints).expect("valid settings");
        let mut detectors: Vec<_> = (0..shards).map(detector).collect();
        let (preparer, prefetchers) = (detectors[0].preparer(), detectors.iter().map(Detector::prefetcher).collect());
        let table = match way {
            "none" => Table::None,
            "shared" => Table::Shared(detectors.into_iter().map(Mutex::new).collect()),
            _ => Table::Own(Box::new(detectors.remove(0))),
        };
        Self { way, table, preparer, prefetchers, prepared: Vec::with_capacity(AHEAD) }
    }

    fn inspect(&mut self, packets: &[Packet<'_>]) {
        let is_unique = |duplicate: Option<Duplicate>| assert!(duplicate.is_none());
        match (&mut self.table, self.way) {
            (Table::None, _) => (),
            (Table::Own(detector), "batch") => detector.inspect_batch(packets, |_, duplicate| is_unique(duplicate)),
            (Table::Own(detector), "single") => packets.iter().for_each(|packet| is_unique(detector.inspect(packet))),
            (table, _) => {
                let shards = self.prefetchers.len();
                for chunk in packets.chunks(AHEAD) {
                    self.prepared.clear();
                    for packet in chunk {
                        let prepared = self.preparer.prepare(packet);
                        self.prefetchers[prepared.shard(shards)].prefetch(&prepared);
                        self.prepared.push(prepared);
                    }
                    for (packet, prepared) in chunk.iter().zip(&self.prepared) {
                        match table {
                            Table::Own(detector) => is_unique(detector.inspect_prepared(packet, prepared)),
                            Table::Shared(table) => {
                                let mut shard = table[prepared.shard(shards)].lock().expect("no panic");
                                is_unique(shard.inspect_prepared(packet, prepared));
                            }
                            Table::None => (),
                        }
                    }
                }
            }
        }
    }
}

/// Unique UDP datagrams of this length, with identifications.
fn frames(count: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; count as usize * len];
    for (number, frame) in (0..count).zip(bytes.chunks_mut(len)) {
        let payload = number.to_be_bytes();
        let id = (number % 65_535) as u16 + 1;
        let source = [10, 0, (number >> 8) as u8, number as u8];
        Frame::udp4(source, 4000, [10, 1, 0, 1], 53).fragment(id, 0, false).payload(&payload).fill(frame);
    }
    bytes
}

/// Nanoseconds that this thread has run: the first number of its schedstat (Documentation/scheduler/sched-stats.rst).
fn cpu_nanos() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux with schedstat");
    text.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number")
}

/// The CPU time in seconds per packet of the fastest round.
fn best_of(rounds: u32, bench: &mut Bench, bytes: &[u8], len: usize) -> f64 {
    let (mut nanos, mut best) = (0, f64::MAX);
    for _ in 0..rounds {
        let begun = cpu_nanos();
        for chunk in bytes.chunks(len * BATCH) {
            let packet = |data| {
                nanos += 67;
                let ts = Timestamp::from_nanos(nanos);
                Packet { ts, data, wire_len: len as u32, link_type: link::ETHERNET, interface: 0 }
            };
            bench.inspect(&chunk.chunks(len).map(packet).collect::<Vec<_>>());
        }
        best = best.min((cpu_nanos() - begun) as f64 * 1e-9 / (bytes.len() / len) as f64);
        nanos += 1_000_000_000;
    }
    best
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if let Some(at) = words.iter().position(|word| word == "count") {
        let wanted = words.get(at + 1).map_or("batch", String::as_str);
        let way = WAYS.into_iter().find(|way| *way == wanted).unwrap_or("none");
        let settings = Settings { records: 1 << 15, ..Settings::default() };
        best_of(1, &mut Bench::new(way, &settings), &frames(100_000, 60), 60);
        return;
    }
    println!("way      length    records       memory   ns/packet      Mpps");
    for len in [60, 128, 256, 512, 1514] {
        let bytes = frames((1 << 28) / len.max(128) as u32, len);
        for records in [1 << 15, 1 << 18, 3_000_000] {
            for way in WAYS {
                let settings = Settings { records, ..Settings::default() };
                let best = best_of(6, &mut Bench::new(way, &settings), &bytes, len);
                let memory = base::units::show_bytes(settings.memory());
                println!("{way:<8} {len:>4} B {records:>10} {memory:>12} {:>11.1} {:>9.2}", best * 1e9, 1e-6 / best);
            }
        }
    }
}
