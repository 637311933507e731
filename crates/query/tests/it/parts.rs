//! Tests of reads of sub-blocks: queries read few bytes, find all packets, and detect damage in the bytes that they
//! read.

use crate::common;

use base::{Prng, Timestamp};
use common::*;
use filter::Filter;
use index::{Reader, SUB_BLOCK};
use netgrain_query::{Cost, Query, QuerySource, Results, SeekHint, run};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;
use testkit::TempDir;
use wire::build::Frame;

/// A packet between two hosts; each host is a number that is added to the address 10.1.0.0.
fn packet_between(prng: &mut Prng, a: u32, b: u32, len: usize) -> Vec<u8> {
    let mut data = vec![0; len.max(60)];
    prng.fill(&mut data);
    let host = |n: u32| (0x0a01_0000 + n).to_be_bytes();
    let mut head = [0; 60];
    let made = Frame::udp4(host(a), 1000, host(b), 53).fill(&mut head).len();
    data[..42].copy_from_slice(&head[..made.min(42)]);
    data
}

fn name(host: u32) -> String {
    format!("host {}", std::net::Ipv4Addr::from(0x0a01_0000 + host))
}

fn query_for(filter: &str) -> Query {
    Query { filter: Filter::parse(filter).expect("a filter"), ..Query::default() }
}

fn query_store(dir: &Path, query: &Query) -> (Vec<Packet>, Results) {
    let mut results = run(&QuerySource::Store(dir.to_owned()), query.clone()).expect("a store");
    (collect(&mut results), results)
}

/// Records files of `packets` packets each, from `hosts` hosts, of which few have many packets; `len` gives the packet
/// lengths.
fn store(
    dir: &Path,
    (files, packets, hosts): (u64, u64, u64),
    format: recorder::Format,
    prng: &mut Prng,
    len: impl Fn(&mut Prng) -> usize,
) -> Vec<PathBuf> {
    let mut stream = Stream::new("eth1", 0, 1);
    stream.format = format;
    for i in 0..files * packets {
        let ts = START.after(Duration::from_micros(i));
        if i % packets == 0 {
            stream.rotate(ts);
        }
        let (a, b) = (prng.below(hosts) >> prng.below(8), prng.below(hosts));
        let len = len(prng);
        let data = packet_between(prng, a as u32, b as u32, len);
        stream.packet(ts, data.len() as u32, &data);
        if prng.below(3000) == 0 {
            stream.tick(ts);
        }
    }
    stream.record(dir);
    common::files(dir).into_iter().map(|(_, entry)| entry.path).collect()
}

fn mixed(prng: &mut Prng) -> usize {
    // Some records are longer than a sub-block, so that no record begins in some sub-blocks.
    if prng.below(40) == 0 { 30_000 + prng.below(35_536) as usize } else { 60 + prng.below(1400) as usize }
}

#[test]
fn a_host_with_few_packets_costs_reads_of_single_sub_blocks() {
    let mut prng = Prng::new(testkit::seed("a_host_with_few_packets_costs_reads_of_single_sub_blocks"));
    let dir = TempDir::new("query-parts-few");
    store(dir.path(), (3, 8000, 4000), recorder::Format::Pcap, &mut prng, |_| 1000);
    let scan = Scan::of(dir.path());
    let (mut bytes, mut packets) = (0, 0);
    for host in (1000..4000).step_by(97) {
        let query = query_for(&name(host));
        let expected = scan.results(&query);
        let (found, results) = query_store(dir.path(), &query);
        same(&found, &expected, &name(host));
        assert_eq!(results.warnings(), Vec::<String>::new());
        (bytes, packets) = (bytes + results.cost().bytes_read, packets + expected.len() as u64);
    }
    // Expected number of bytes read per packet: a sub-block, the rest of a record that crosses the end of the
    // sub-block, and page alignment. A second sub-block is added for false positives.
    let most = packets * (2 * u64::from(SUB_BLOCK) + 16_384);
    assert!(packets > 100 && bytes < most, "{bytes} bytes were read for {packets} packets, at most {most} expected");
}

#[test]
fn sub_block_reads_match_a_plain_scan_in_both_formats() {
    let test = "sub_block_reads_match_a_plain_scan_in_both_formats";
    let seed = testkit::seed(test);
    let mut prng = Prng::new(seed);
    let raw = recorder::Format::Raw { file_bytes: 5 << 20 };
    for (round, format) in [recorder::Format::Pcap, raw, recorder::Format::Pcap].into_iter().enumerate() {
        let dir = TempDir::new("query-parts-any");
        store(dir.path(), (4, 3000, 800), format, &mut prng, mixed);
        let scan = Scan::of(dir.path());
        let (mut read, mut all) = (0, 0);
        for _ in 0..60 {
            let host = |prng: &mut Prng| name((prng.below(800) >> prng.below(8)) as u32);
            let (a, b) = (host(&mut prng), host(&mut prng));
            let filter = match prng.below(6) {
                0 => format!("{a} and {b}"),
                1 => format!("{a} or {b}"),
                2 => format!("{a} and not {b}"),
                3 => format!("{a} and greater 2000"),
                _ => a,
            };
            let mut query = query_for(&filter);
            if prng.below(3) == 0 {
                query.from = START.after(Duration::from_micros(prng.below(6000)));
                query.to = query.from.after(Duration::from_micros(prng.below(6000)));
            }
            let what = format!("seed {seed} round {round}: {filter}");
            let expected = scan.results(&query);
            let (found, results) = query_store(dir.path(), &query);
            same(&found, &expected, &what);
            let Cost { bytes, bytes_read, blocks, blocks_read, .. } = results.cost();
            assert!(blocks_read <= blocks && results.warnings().is_empty(), "{what}: {:?}", results.warnings());
            (read, all) = (read + bytes_read, all + bytes);
            let mut results = run(&QuerySource::Store(dir.path().to_owned()), query).expect("a store");
            same(&collect_batches(&mut results, &mut prng), &expected, &what);
        }
        assert!(read < all / 2, "round {round}: {read} of {all} bytes were read");
    }
}

#[test]
fn a_flipped_bit_affects_only_queries_that_read_its_sub_block() {
    let test = "a_flipped_bit_affects_only_queries_that_read_its_sub_block";
    let seed = testkit::seed(test);
    let mut prng = Prng::new(seed);
    let dir = TempDir::new("query-parts-damage");
    let paths = store(dir.path(), (2, 4000, 3000), recorder::Format::Pcap, &mut prng, mixed);
    let scan = Scan::of(dir.path());
    let (mut hurt, mut spared) = (0, 0);
    for round in 0..150 {
        let path = &paths[prng.below(2) as usize];
        let original = fs::read(path).expect("a file");
        let mut damaged = original.clone();
        let at = prng.below(original.len() as u64) as usize;
        damaged[at] ^= 1 << prng.below(8);
        fs::write(path, &damaged).expect("a file");
        let query = query_for(&name((prng.below(3000) >> prng.below(6)) as u32));
        let expected = scan.results(&query);
        let (found, results) = query_store(dir.path(), &query);
        let what = format!("seed {seed} round {round}: byte {at}");
        if results.is_complete() {
            same(&found, &expected, &what);
            spared += 1;
        } else {
            let missing: Vec<&Packet> = expected.iter().filter(|p| !found.contains(p)).collect();
            assert!(found.iter().all(|p| expected.contains(p)), "{what}: a packet that was not recorded");
            assert!(found.len() + missing.len() == expected.len(), "{what}");
            assert!(results.warnings().iter().any(|r| r.contains(path.to_str().expect("a name"))), "{what}");
            hurt += 1;
        }
        fs::write(path, &original).expect("a file");
    }
    assert!(hurt > 5 && spared > 50, "{hurt} rounds with loss, {spared} without");
}

#[test]
fn a_flipped_bit_in_an_index_does_not_change_the_result() {
    let seed = testkit::seed("a_flipped_bit_in_an_index_does_not_change_the_result");
    let mut prng = Prng::new(seed);
    let dir = TempDir::new("query-parts-index");
    let paths = store(dir.path(), (2, 4000, 3000), recorder::Format::Pcap, &mut prng, mixed);
    let scan = Scan::of(dir.path());
    let u = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize;
    for round in 0..120 {
        let index = paths[prng.below(2) as usize].with_extension("ngi");
        let original = fs::read(&index).expect("an index");
        // The summary, which follows the header, contains the offset of the sub-block data.
        let parts = u(&original, u(&original, 12) + 56);
        let blocks = Reader::open(&&original[..]).expect("an index").blocks().len();
        let at = match prng.below(3) {
            0 => prng.below(original.len() as u64) as usize,
            _ => parts + prng.below(blocks as u64 * 132) as usize,
        };
        let mut damaged = original.clone();
        damaged[at] ^= 1 << prng.below(8);
        if prng.below(12) == 0 {
            damaged.truncate(at);
        }
        fs::write(&index, &damaged).expect("an index");
        let query = query_for(&name((prng.below(3000) >> prng.below(6)) as u32));
        let (found, results) = query_store(dir.path(), &query);
        let what = format!("seed {seed} round {round}: byte {at} of {}", original.len());
        same(&found, &scan.results(&query), &what);
        assert!(results.is_complete(), "{what}: {:?}", results.warnings());
        fs::write(&index, &original).expect("an index");
    }
}

/// The stream position of each packet of a file.
fn positions(path: &Path) -> Vec<(u64, Timestamp)> {
    let index = File::open(path.with_extension("ngi")).expect("an index");
    let first = Reader::open(&index).expect("an index").header().first_pos;
    let mut reader = pcap::Reader::open(File::open(path).expect("a file")).expect("a capture");
    let mut out = Vec::new();
    while let Some(p) = reader.next().expect("a packet") {
        out.push((first + p.offset, p.ts.expect("a stamp")));
    }
    out
}

#[test]
fn packets_are_found_by_stream_position_with_few_reads() {
    let seed = testkit::seed("packets_are_found_by_stream_position_with_few_reads");
    let mut prng = Prng::new(seed);
    let dir = TempDir::new("query-seek");
    let paths = store(dir.path(), (3, 4000, 50), recorder::Format::Pcap, &mut prng, mixed);
    // Another interface has packets with timestamps in the same seconds as the first interface. The seek hint contains
    // no stream positions for the other interface.
    let mut other = Stream::new("eth2", 0, 1);
    other.rotate(START);
    for i in 0..200 {
        let data = packet_between(&mut prng, i % 50, 7, 300);
        other.packet(START.after(Duration::from_micros(50 * u64::from(i))), 300, &data);
    }
    other.record(dir.path());
    let scan = Scan::of(dir.path());
    let known: Vec<(u64, Timestamp)> = paths.iter().flat_map(|path| positions(path)).collect();
    let (mut skipped, mut read, mut without) = (0, 0, 0);
    for round in 0..40 {
        let from = prng.below(known.len() as u64) as usize;
        let to = (from + prng.below(200) as usize).min(known.len() - 1);
        let span = known[from].0..=known[to].0;
        let mut query = query_for(&name(prng.below(50) as u32));
        let expected = scan.results(&query);
        without += query_store(dir.path(), &query).1.cost().bytes_read;
        let positions = vec![span.clone()];
        query.seek = Some(SeekHint { interface: "eth1".to_owned(), queue: 0, positions });
        let (found, results) = query_store(dir.path(), &query);
        let what = format!("seed {seed} round {round}: packets {from} to {to}");
        assert!(found.iter().all(|p| expected.contains(p)), "{what}: a packet outside of the query");
        let inside = |p: &Packet| p.interface == "eth2" || known[from].1 <= p.ts && p.ts <= known[to].1;
        for packet in expected.iter().filter(|p| inside(p)) {
            assert!(found.contains(packet), "{what}: {:?} is missing", packet.ts);
        }
        let cost = results.cost();
        (skipped, read) = (skipped + cost.blocks_skipped_sub_block, read + cost.bytes_read);
        let skips = cost.blocks_skipped_time + cost.blocks_skipped_keys + cost.blocks_skipped_sub_block;
        assert!(skips + cost.blocks_read <= cost.blocks, "{what}: {cost:?}");
    }
    assert!(skipped > 100 && read * 5 < without, "{skipped} blocks skipped, {read} of {without} bytes read");
}
