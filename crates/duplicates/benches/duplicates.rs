//! Time per packet of the detector: `cargo bench -p netgrain-duplicates`. The packets are unique, which is the most
//! frequent and the most expensive case: each packet needs the cache lines of a new bucket and of a new record.
//!
//! The time is the CPU time of the thread, so other processes on the machine change it only through the caches.
//!
//! `cargo bench -p netgrain-duplicates -- count` runs one round per table, for `valgrind --tool=callgrind`.

use base::Timestamp;
use netgrain_duplicates::{Detector, Packet, Settings};
use testkit::MemoryHints;
use wire::{build::Frame, link};

const BATCH: usize = 256;

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

fn main() {
    let is_count = std::env::args().any(|word| word == "count");
    let rounds = if is_count { 1 } else { 5 };
    for len in [60, 128, 256, 512, 1514] {
        let count = if is_count { 100_000 } else { (1 << 28) / len.max(128) as u32 };
        let bytes = frames(count, len);
        for records in [1 << 15, 1 << 18, 3_000_000] {
            if is_count && (records != 1 << 15 || len != 60) {
                continue;
            }
            let settings = Settings { records, ..Settings::default() };
            let mut detector = Detector::with_hints(settings, 1, MemoryHints).expect("valid settings");
            let mut nanos = 0;
            let mut best = f64::MAX;
            for _ in 0..=rounds {
                let begun = cpu_nanos();
                for chunk in bytes.chunks(len * BATCH) {
                    let packet = |data| {
                        nanos += 67;
                        let ts = Timestamp::from_nanos(nanos);
                        Packet { ts, data, wire_len: len as u32, link_type: link::ETHERNET, interface: 0 }
                    };
                    let packets: Vec<Packet<'_>> = chunk.chunks(len).map(packet).collect();
                    detector.inspect_batch(&packets, |_, duplicate| assert!(duplicate.is_none()));
                }
                best = best.min((cpu_nanos() - begun) as f64 * 1e-9 / f64::from(count));
                nanos += 1_000_000_000;
            }
            println!("{len:>5} B, {records:>9} records: {:.1} ns, {:.2} Mpps", best * 1e9, 1e-6 / best);
        }
    }
}
