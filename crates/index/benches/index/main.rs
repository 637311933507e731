//! Benchmarks of the index: `cargo bench -p netgrain-index`. They measure the data structures considered for the key
//! sets, on real captures and on worst cases; the cost of key collection per packet; and the cost of a query on a
//! sealed index. Each table takes a few seconds. `-- collecting` prints only the table of key collection, and `--
//! collecting 'two new'` prints this table only for traffic whose name contains "two new". Run the benchmarks on an
//! idle machine.

#[path = "../../src/bytes.rs"]
#[allow(dead_code, reason = "the benchmark uses only a part of the module")]
mod bytes;
#[path = "../../src/key.rs"]
#[allow(dead_code, unused_imports, reason = "as above")]
mod key;
#[path = "../../src/set.rs"]
#[allow(dead_code, unused_imports, unreachable_pub, missing_docs, reason = "as above")]
mod set;
#[path = "../../src/set_sizing.rs"]
#[allow(dead_code, reason = "as above")]
mod set_sizing;

mod candidates;
mod traffic;

use base::{Prng, Row, Tally, Timestamp, TimestampQuality};
use filter::KeyCondition;
use netgrain_index::{BlockKeys, Builder, Content, Entry, Header, Reader, Rows, SUB_BLOCK, SUB_BLOCKS, SubBlocks};
use std::time::Instant;
use traffic::{Load, Packet};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let mut loads = traffic::loads();
    if let Some(name) = args.get(1) {
        loads.retain(|load| load.name.contains(name));
    }
    println!("key collection, per packet (minimum of many runs)\n");
    println!("{:<44} packets/block   add ns         end of block ns   bytes/block", "traffic");
    loads.iter().for_each(collecting);
    if args.iter().any(|arg| arg == "collecting") {
        return;
    }
    println!("\ncandidate index structures for the hosts of a block\n");
    for load in &loads {
        candidates::compare(load);
    }
    println!("one sealed index of 1000 blocks\n");
    println!("{:<44} index %   seal ms    false positives for absent hosts %      bytes read per query", "traffic");
    loads.iter().for_each(sealed);
}

fn collecting(load: &Load) {
    let (mut add, mut end) = (f64::MAX, f64::MAX);
    let mut keys = BlockKeys::default();
    let mut bytes = 0;
    let packets: usize = load.blocks.iter().map(Vec::len).sum();
    for _ in 0..(2_000_000 / packets).clamp(3, 300) {
        let (mut adding, mut ending) = (0, 0);
        bytes = 0;
        for block in &load.blocks {
            let t = Instant::now();
            collect(&mut keys, block);
            adding += t.elapsed().as_nanos();
            let t = Instant::now();
            bytes += keys.sets().bytes();
            keys.clear();
            ending += t.elapsed().as_nanos();
        }
        add = add.min(adding as f64 / packets as f64);
        end = end.min(ending as f64 / packets as f64);
    }
    let blocks = load.blocks.len();
    println!("{:<44} {:>13} {add:>8.1} {end:>23.1} {:>13}", load.name, packets / blocks, bytes / blocks);
}

/// Collects the keys of a block whose packets are spread evenly over its sub-blocks.
fn collect(keys: &mut BlockKeys, packets: &[Packet]) -> SubBlocks {
    let mut parts = SubBlocks::NONE;
    for (part, packets) in packets.chunks(packets.len().div_ceil(SUB_BLOCKS).max(1)).enumerate() {
        parts.begin(part as u32 * SUB_BLOCK + 24, 0);
        keys.enter(part);
        packets.iter().for_each(|p| keys.add(&p.frame, p.wire_len, p.link_type));
    }
    parts
}

fn sealed(load: &Load) {
    const BLOCKS: u32 = 1000;
    let mut keys = BlockKeys::default();
    let entries: Vec<Entry> = (0..BLOCKS)
        .map(|block| {
            let packets = &load.blocks[block as usize % load.blocks.len()];
            let parts = collect(&mut keys, packets);
            let sets = keys.sets();
            keys.clear();
            let (stored, second) = (packets.len() as u64, u64::from(block));
            let rows: Rows =
                [Row { second, tally: Tally { stored, offered: stored, ..Tally::default() } }].into_iter().collect();
            let (first, last) = (Timestamp::from_secs_nanos(second, 0), Timestamp::from_secs_nanos(second, 1));
            Entry {
                block,
                bytes: 1 << 20,
                first_record: Some(24),
                crc: 0,
                sub_blocks: parts,
                first,
                last,
                timestamps: TimestampQuality::UNKNOWN,
                rows,
                sets,
            }
        })
        .collect();
    let t = Instant::now();
    let mut builder = Builder::new(header());
    entries.into_iter().for_each(|e| builder.push(e));
    let mut file = Vec::new();
    let bytes = u64::from(BLOCKS) << 20;
    builder.finish(bytes, Timestamp::ZERO, &[], &mut file).expect("memory has no errors");
    let took = t.elapsed().as_secs_f64() * 1e3;
    let (mut prng, mut admitted, mut read) = (Prng::new(3), 0, 0);
    const QUERIES: u32 = 200;
    for _ in 0..QUERIES {
        // Addresses of the benchmarking network of RFC 2544, which captures rarely contain.
        let host = KeyCondition::Host(std::net::Ipv4Addr::from(0xc612_0000 | prng.next_u64() as u32 >> 15).into());
        let mut reader = Reader::begin(&&file[..]).expect("a sealed index");
        let candidates = reader.candidates(&&file[..], &host).expect("memory has no errors");
        admitted += candidates.iter().filter(|c| **c).count();
        read = reader.bytes_read();
    }
    println!(
        "{:<44} {:>7.3} {took:>9.1} {:>37.3} {read:>25}",
        load.name,
        100.0 * file.len() as f64 / bytes as f64,
        100.0 * admitted as f64 / f64::from(QUERIES * BLOCKS),
    );
}

fn header() -> Header {
    Header {
        interface: "bench".into(),
        queue: 0,
        link_type: 1,
        snaplen: 65_535,
        timestamp_source: "simulated".into(),
        timestamp_error: 0,
        filter: String::new(),
        first_pos: 0,
        start: Timestamp::ZERO,
        content: Content::Recorded,
    }
}
