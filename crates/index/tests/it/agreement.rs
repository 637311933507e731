//! Index and filter agree: a block is skipped only if no packet in it can match. The tests use filters and frames of
//! all kinds and conditions, and both layouts.

use crate::common;

use base::{Prng, Timestamp};
use common::{LINKS, entry, header, part_of_packet, random_filter, random_frame, relinked};
use filter::Filter;
use netgrain_index::{BlockKeys, Builder, Entry, Reader};
use wire::build::Frame;
use wire::{EtherType, Headers, link};

type Packet = (Vec<u8>, u32, u16);

fn matches(filter: &Filter, (frame, wire_len, link_type): &Packet) -> bool {
    filter.matches(frame, *wire_len, &Headers::of(frame, *wire_len, *link_type))
}

fn sealed(entries: &[Entry]) -> Vec<u8> {
    let mut builder = Builder::new(header());
    entries.iter().for_each(|e| builder.push(e.clone()));
    let mut out = Vec::new();
    let bytes = entries.iter().map(|e| u64::from(e.bytes)).sum();
    builder.finish(bytes, Timestamp::ZERO, &[], &mut out).expect("memory has no errors");
    out
}

/// Runs all filters on these blocks in both layouts; returns the number of blocks that match and the number of blocks
/// that the index excluded.
fn check(blocks: &[Vec<Packet>], filters: &[String], bytes: u32, note: &str) -> (usize, usize) {
    let entries: Vec<Entry> = blocks.iter().enumerate().map(|(i, b)| entry(i as u32, bytes, b)).collect();
    let file = sealed(&entries);
    let mut reader = Reader::begin(&&file[..]).expect("a sealed index");
    let (mut found, mut ruled_out) = (0, 0);
    for text in filters {
        let filter = Filter::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        let need = filter.need();
        let masks = reader.sub_block_mask(&&file[..], &need).expect("memory has no errors");
        assert_eq!(masks.len(), blocks.len());
        for ((block, entry), masks) in blocks.iter().zip(&entries).zip(masks) {
            let growing = entry.sets.sub_block_mask(&need);
            ruled_out += usize::from(!masks.is_somewhere());
            let mut matching = block.iter().enumerate().filter(|(_, p)| matches(&filter, p)).peekable();
            found += usize::from(matching.peek().is_some());
            for (i, packet) in matching {
                let part = part_of_packet(i, block.len());
                assert!(growing.has(part), "{note}: {text} is skipped by the growing index: {packet:02x?}");
                assert!(masks.has(part), "{note}: {text} is skipped by the sealed index: {packet:02x?}");
            }
        }
    }
    (found, ruled_out)
}

#[test]
fn no_block_with_a_matching_packet_is_skipped() {
    let seed = testkit::seed("no_block_with_a_matching_packet_is_skipped");
    let mut prng = Prng::new(seed);
    let (mut found, mut ruled_out) = (0, 0);
    for round in 0..40 {
        let blocks: Vec<Vec<Packet>> = (0..1 + prng.below(40))
            .map(|_| {
                let link_type = LINKS[prng.below(LINKS.len() as u64) as usize];
                let packets = (0..prng.below(6)).map(|_| {
                    let frame = relinked(random_frame(&mut prng), link_type);
                    let wire_len = frame.len() as u32 + [0, 4, 2000][prng.below(3) as usize];
                    (frame, wire_len, link_type)
                });
                packets.collect()
            })
            .collect();
        let filters: Vec<String> = (0..150).map(|_| random_filter(&mut prng, 3)).collect();
        let (f, r) = check(&blocks, &filters, 1 << 20, &format!("seed {seed} round {round}"));
        (found, ruled_out) = (found + f, ruled_out + r);
    }
    // Without this check, the test would pass with an index that excludes no block.
    assert!(found > 10_000 && ruled_out > 10_000, "{found} found, {ruled_out} ruled out");
}

/// The test checks that the inner VLAN tag is a key even if the previous packet has the same outer tag and all its
/// other values are equal. This must hold also if MPLS labels make the headers of both packets equally long, or if both
/// packets were truncated before their network header.
#[test]
fn a_tag_within_the_tag_of_the_packet_before_is_found() {
    let tagged = |ids: &[u16], label: bool| {
        let mut frame = Frame::udp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 2);
        for id in ids {
            frame = frame.tag(EtherType::VLAN, *id);
        }
        if label {
            frame = frame.label(16);
        }
        let mut bytes = vec![0; frame.header_len()];
        frame.fill(&mut bytes);
        bytes
    };
    let filters: Vec<String> = ["vlan 5", "vlan 7", "vlan 8", "vlan", "udp"].map(String::from).into();
    let kinds = [tagged(&[5], false), tagged(&[5], true), tagged(&[5, 7], false), tagged(&[5, 7, 8], false)];
    for cut in [usize::MAX, 26, 22] {
        for (a, b) in (0..kinds.len()).flat_map(|a| (0..kinds.len()).map(move |b| (a, b))) {
            let packets = [&kinds[a], &kinds[b]].map(|bytes| {
                let frame = bytes[..cut.min(bytes.len())].to_vec();
                (frame, bytes.len() as u32, link::ETHERNET)
            });
            check(&[packets.to_vec()], &filters, 1 << 20, &format!("{a} then {b}, cut at {cut}"));
        }
    }
}

#[test]
fn no_block_with_matching_random_bytes_is_skipped() {
    let seed = testkit::seed("no_block_with_matching_random_bytes_is_skipped");
    let mut prng = Prng::new(seed);
    let mut keys = BlockKeys::default();
    let filters: Vec<Filter> =
        (0..200).map(|_| Filter::parse(&random_filter(&mut prng, 2)).expect("a filter")).collect();
    for round in 0..3000 {
        let mut frame = vec![0; prng.below(120) as usize];
        prng.fill(&mut frame);
        let link_type = LINKS[prng.below(LINKS.len() as u64) as usize];
        if frame.len() > 20 && prng.below(2) == 0 {
            // The frame has enough bytes for a VLAN tag and a network header.
            let types = [[0x81, 0], [0x88, 0xa8], [8, 0], [8, 6], [0x86, 0xdd], [0x88, 0x47]];
            for at in [12, 16] {
                frame[at..at + 2].copy_from_slice(&types[prng.below(6) as usize]);
            }
        }
        let packet = (frame, prng.below(3000) as u32, link_type);
        keys.clear();
        keys.add(&packet.0, packet.1, link_type);
        let sets = keys.sets();
        for filter in filters.iter().filter(|f| matches(f, &packet)) {
            assert!(sets.admit(&filter.need()), "seed {seed} round {round}: {filter} is skipped: {packet:02x?}");
        }
    }
}

/// Tests all filter expressions of the corpus that is also compared with tcpdump, with and without `anylink`, on frames
/// that are complete, truncated, or have a wrong byte.
#[test]
fn packets_that_an_expression_matches_have_its_keys() {
    const CORPUS: &str = include_str!("../../../filter/tests/corpus.txt");
    let test = "packets_that_an_expression_matches_have_its_keys";
    let seed = testkit::seed(test);
    let mut prng = Prng::new(seed);
    let any = CORPUS.lines().map(|text| format!("anylink ({text})"));
    let filters: Vec<Filter> =
        CORPUS.lines().map(str::to_owned).chain(any).filter_map(|text| Filter::parse(&text).ok()).collect();
    assert!(filters.len() > 1000, "{} filters", filters.len());
    let mut keys = BlockKeys::default();
    let (mut found, mut ruled_out) = (0, 0);
    for round in 0..400 {
        let link_type = LINKS[prng.below(LINKS.len() as u64) as usize];
        let mut frame = relinked(random_frame(&mut prng), link_type);
        let wire_len = frame.len() as u32;
        match prng.below(4) {
            0 => frame.truncate(prng.below(frame.len() as u64 + 1).min(80) as usize),
            1 if !frame.is_empty() => {
                let at = prng.below(frame.len().min(60) as u64) as usize;
                frame[at] ^= 1 << prng.below(8);
            }
            _ => {}
        }
        let packet = (frame, wire_len, link_type);
        keys.clear();
        keys.add(&packet.0, packet.1, link_type);
        let sets = keys.sets();
        for filter in &filters {
            let has = sets.admit(&filter.need());
            if matches(filter, &packet) {
                assert!(has, "seed {seed} round {round}: {filter} needs {:?}: {packet:02x?}", filter.need());
                found += 1;
            }
            ruled_out += usize::from(!has);
        }
    }
    assert!(found > 10_000 && ruled_out > 10_000, "{found} found, {ruled_out} ruled out");
}

#[test]
fn packets_of_real_captures_are_found_in_blocks_of_any_size() {
    let test = "packets_of_real_captures_are_found_in_blocks_of_any_size";
    let Some(traces) = testkit::traces(test) else { return };
    let seed = testkit::seed(test);
    let mut prng = Prng::new(seed);
    let (mut found, mut ruled_out) = (0, 0);
    for path in captures(&traces) {
        let bytes = std::fs::read(&path).expect("a capture");
        let Ok(mut reader) = pcap::Reader::open(&bytes[..]) else { continue };
        let mut blocks: Vec<Vec<Packet>> = vec![Vec::new()];
        let mut filters: Vec<String> = Vec::new();
        let mut left = 1 + prng.below(200);
        while let Ok(Some(packet)) = reader.next() {
            if blocks.len() > 60 {
                break;
            }
            let packet: Packet = (packet.data.to_vec(), packet.wire_len, packet.link_type);
            if filters.len() < 40 {
                filters.extend(matching_filters(&packet));
            }
            blocks.last_mut().expect("at least one block").push(packet);
            left -= 1;
            if left == 0 {
                left = 1 + prng.below(200);
                blocks.push(Vec::new());
            }
        }
        filters.extend((0..20).map(|_| random_filter(&mut prng, 2)));
        let (f, r) = check(&blocks, &filters, 60_000, &format!("seed {seed}: {}", path.display()));
        (found, ruled_out) = (found + f, ruled_out + r);
    }
    assert!(found > 1000 && ruled_out > 1000, "{found} found, {ruled_out} ruled out");
}

/// Filters that match this packet: conditions on its addresses, networks, ports and flow.
fn matching_filters(packet: &Packet) -> Vec<String> {
    let headers = Headers::of(&packet.0, packet.1, packet.2);
    let mut out: Vec<String> = headers.vlan().map(|id| format!("vlan {id}")).into_iter().collect();
    let Some(flow) = wire::FlowKey::of(&packet.0, &headers) else { return out };
    let protocol = flow.protocol.0;
    out.push(format!("src host {}", flow.src));
    out.push(format!("host {} and host {} and proto {protocol}", flow.src, flow.dst));
    if flow.src_port.0 > 0 {
        let (p, q) = (flow.src_port.0, flow.dst_port.0);
        out.push(format!("port {p} and not port {}", q.wrapping_add(1)));
        out.push(format!(
            "src {} and src port {p} and dst {} and dst port {q} and proto {protocol}",
            flow.src, flow.dst
        ));
    }
    if let std::net::IpAddr::V4(a) = flow.dst {
        for length in [3, 8, 12, 16, 21, 24, 30] {
            let net = std::net::Ipv4Addr::from(a.to_bits() >> (32 - length) << (32 - length));
            out.push(format!("net {net}/{length}"));
        }
    }
    out
}

fn captures(directory: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut out = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for path in std::fs::read_dir(&directory).expect("a directory").map(|e| e.expect("an entry").path()) {
            match path.extension().and_then(|e| e.to_str()) {
                _ if path.is_dir() => directories.push(path),
                Some("pcap" | "pcapng" | "trace") => out.push(path),
                _ => {}
            }
        }
    }
    out.sort();
    out
}
