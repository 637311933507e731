//! Real captures through the flow table: the same records from any number of shards, and every packet in one of them.

use base::Timestamp;
use netgrain_flow::{Config, Packet, Record, Shards};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use wire::Decoded;

struct Captured {
    ts: Timestamp,
    wire_len: u32,
    data: Vec<u8>,
    decoded: Decoded,
    offset: u64,
}

/// The packets of a file, up to where it can be read.
fn packets(path: &Path) -> Vec<Captured> {
    let file = File::open(path).expect("the capture can be opened");
    let file: Box<dyn Read> = match path.extension() {
        Some(end) if end == "gz" => Box::new(flate2::read::MultiGzDecoder::new(file)),
        _ => Box::new(file),
    };
    let Ok(mut reader) = pcap::Reader::open(file) else { return Vec::new() };
    let mut packets = Vec::new();
    while let Ok(Some(p)) = reader.next() {
        let decoded = Decoded::of(p.data, p.wire_len, p.link_type);
        let ts = p.ts.unwrap_or(Timestamp::ZERO);
        packets.push(Captured { ts, wire_len: p.wire_len, data: p.data.to_vec(), decoded, offset: p.offset });
    }
    packets
}

/// All records, and how many packets made none.
fn records(captured: &[Captured], config: &Config, shards: usize) -> (Vec<Record>, u64) {
    let (mut shards, mut out) = (Shards::new(config, 0, shards), Vec::new());
    for batch in captured.chunks(100) {
        let lend = |c: &Captured| (c.ts, c.wire_len, c.offset);
        let packets: Vec<Packet> = batch
            .iter()
            .map(|c| {
                let (ts, wire_len, position) = lend(c);
                Packet { ts, wire_len, data: &c.data, decoded: &c.decoded, position, queue: 0 }
            })
            .collect();
        shards.push(&packets, &mut out);
    }
    shards.finish(&mut out);
    (out, shards.counts().other)
}

fn captures(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the folder can be read").flatten() {
        let path = entry.path();
        let name = path.to_string_lossy().into_owned();
        match path.is_dir() {
            true => captures(&path, found),
            false if [".pcap", ".pcap.gz", ".trace"].iter().any(|end| name.ends_with(end)) => found.push(path),
            false => (),
        }
    }
}

#[test]
fn every_capture_makes_the_same_records_in_one_two_and_eight_shards() {
    let Some(folder) = testkit::traces("every_capture_makes_the_same_records_in_one_two_and_eight_shards") else {
        return;
    };
    let mut paths = Vec::new();
    captures(&folder, &mut paths);
    paths.sort();
    let (mut total, mut flows) = (0, 0);
    for path in paths {
        let captured = packets(&path);
        for config in [
            Config { capacity: 200_000, ..Config::default() },
            Config { capacity: 200_000, bidirectional: false, payload: 50, seed: 5, ..Config::default() },
        ] {
            let (one, other) = records(&captured, &config, 1);
            for shards in [2, 8] {
                assert!(records(&captured, &config, shards).0 == one, "{}: {shards} shards", path.display());
            }
            let in_flows: u64 = one.iter().map(Record::packets).sum();
            assert_eq!(in_flows + other, captured.len() as u64, "{}", path.display());
            flows += one.len();
        }
        total += captured.len();
    }
    assert!(total > 10_000 && flows > 1000, "{total} packets, {flows} records");
}
