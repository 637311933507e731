//! Tests of index files of both layouts: a reader returns the written content, a query reads few bytes, and damaged
//! bytes cause no panic.

use crate::common;

use base::{Prng, Timestamp, TimestampQuality};
use common::{entry, header, random_frame};
use filter::KeyCondition;
use netgrain_index::{Builder, Content, Entry, Format, Growing, Header, Index, IndexError, Reader, Tail};
use std::ops::Range;

/// Blocks of packets: some packets of a block have a source address that occurs only in this block, the others have
/// addresses that occur in many blocks.
fn blocks(count: u32, prng: &mut Prng) -> Vec<Entry> {
    (0..count)
        .map(|block| {
            let packets: Vec<_> = (0..prng.below(40))
                .map(|_| {
                    let mut frame = random_frame(prng);
                    if frame.len() > 34 && frame[12..14] == [8, 0] {
                        frame[26..30].copy_from_slice(&[172, 16, (block >> 8) as u8, block as u8]);
                    }
                    let wire_len = frame.len() as u32;
                    (frame, wire_len, 1)
                })
                .collect();
            entry(block, 1 << 20, &packets)
        })
        .collect()
}

fn seal(header: &Header, entries: &[Entry], context: &[Range<u64>]) -> Vec<u8> {
    let mut builder = Builder::new(header.clone());
    entries.iter().for_each(|e| builder.push(e.clone()));
    let mut out = Vec::new();
    let bytes = entries.iter().map(|e| u64::from(e.bytes)).sum();
    builder.finish(bytes, Timestamp::from_nanos(9), context, &mut out).expect("memory has no errors");
    out
}

fn grow(header: &Header, entries: &[Entry]) -> Vec<u8> {
    let mut out = header.encode();
    let mut growing = Growing::behind(&out);
    for e in entries {
        let write = growing.write_entry(e, &e.rows, true);
        out.resize(write.at as usize, 0);
        out.extend(&write.bytes);
        growing.entry_written(write);
    }
    out
}

/// Offset of the first entry of a complete block in a growing index with this header.
fn chain(header: &Header, entries: &[Entry]) -> usize {
    Growing::behind(&header.encode()).write_entry(&entries[0], &entries[0].rows, true).at as usize
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize
}

fn u64_at(bytes: &[u8], at: usize) -> usize {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes")) as usize
}

/// Runs all operations of a reader, to test that none of them panics.
fn read_all(bytes: &[u8]) -> Option<Vec<bool>> {
    drop(Index::parse(bytes));
    let mut reader = Reader::open(&bytes).ok()?;
    for need in [
        KeyCondition::Ports(1, 3),
        KeyCondition::Net("10.0.0.0".parse().unwrap(), 12),
        KeyCondition::Vlan(None),
        KeyCondition::Protocol(6),
    ] {
        reader.candidates(&bytes, &need).expect("memory has no errors");
    }
    (0..reader.blocks().len()).for_each(|b| drop(reader.rows(&bytes, b)));
    drop(reader.sub_blocks(&bytes, 0..reader.blocks().len() + 1));
    drop(reader.timestamps(&bytes));
    reader.candidates(&bytes, &KeyCondition::Host("172.16.0.1".parse().unwrap())).ok()
}

#[test]
fn files_that_are_no_index_are_rejected_with_the_reason() {
    let entries = blocks(3, &mut Prng::new(1));
    let whole = seal(&header(), &entries, &[]);
    assert_eq!(Index::parse(b"PK\x03\x04"), Err(IndexError::NotAnIndex));
    let mut old = whole.clone();
    old[8] = 5;
    let error = Index::parse(&old).expect_err("version 5");
    assert!(error.to_string().starts_with("index version 5, this program reads 8"), "{error}");
    for end in 0..whole.len() {
        let error = Index::parse(&whole[..end]).expect_err("a truncated sealed index");
        let part = if let IndexError::Damaged { part } = error { part } else { "header" };
        assert!(Reader::begin(&&whole[..end]).is_err(), "cut at {end}: {part}");
    }
    // Additional bytes after the end of the index are an error.
    let more = [&whole[..], &[0]].concat();
    assert_eq!(Index::parse(&more), Err(IndexError::Damaged { part: "end" }));
}

#[test]
fn queries_for_absent_hosts_find_few_sub_blocks_in_dense_traffic() {
    let test = "queries_for_absent_hosts_find_few_sub_blocks_in_dense_traffic";
    let seed = testkit::seed(test);
    let mut prng = Prng::new(seed);
    let frame = |prng: &mut Prng| {
        let mut frame = vec![0; 1000];
        let [a, b] = [(); 2].map(|()| (prng.next_u64() as u32 >> 4 | 0x1000_0000).to_be_bytes());
        let [p, q] = [(); 2].map(|()| prng.next_u64() as u16);
        wire::build::Frame::udp4(a, p, b, q).fill(&mut frame);
        (frame, 1000, 1)
    };
    let entries: Vec<Entry> =
        (0..64).map(|block| entry(block, 1 << 20, &(0..1184).map(|_| frame(&mut prng)).collect::<Vec<_>>())).collect();
    let bytes = seal(&header(), &entries, &[]);
    assert!(bytes.len() * 100 <= 64 << 20, "seed {seed}: {} bytes of index for 64 MiB", bytes.len());
    let (mut false_positives, queries) = (0, 500);
    for i in 0..queries {
        let host = KeyCondition::Host(std::net::Ipv4Addr::from(0xc612_0000 + i).into());
        let mut reader = Reader::begin(&&bytes[..]).expect("a sealed index");
        let masks = reader.sub_block_mask(&&bytes[..], &host).expect("memory has no errors");
        false_positives += masks.iter().map(|masks| masks.0.count_ones()).sum::<u32>();
    }
    // The expected number is 30 false positives per 10 000 blocks; it would be 580 if the Bloom filter of hosts had as
    // few bytes as that of flows.
    let share = f64::from(false_positives) / f64::from(64 * queries);
    assert!(share < 0.008, "seed {seed}: a share of {share} of the sub-blocks was found for hosts that no block has");
}

#[test]
fn a_summary_that_contradicts_the_blocks_is_rejected() {
    let mut entries = blocks(3, &mut Prng::new(1));
    let header = header();
    let mut bytes = seal(&header, &entries, &[]);
    // In the summary, the length of the packet file follows three fields: the tag, the length of the summary, and the
    // size of the index.
    let summary = u32_at(&bytes, 12);
    bytes[summary + 16] ^= 1;
    let end = summary + u32_at(&bytes, summary + 4);
    let crc = crc32c::crc32c(&bytes[summary..end - 4]);
    bytes[end - 4..end].copy_from_slice(&crc.to_le_bytes());
    let error = Index::parse(&bytes).expect_err("a wrong length of the packet file");
    assert!(error.to_string().starts_with("bytes: 3145729 in the summary, 3145728 in the blocks"), "{error}");
    entries[1].block = 5;
    assert_eq!(Index::parse(&seal(&header, &entries, &[])), Err(IndexError::Damaged { part: "table" }));
}

#[test]
fn a_truncated_growing_index_is_read_up_to_its_end() {
    let entries = blocks(5, &mut Prng::new(2));
    let bytes = grow(&header(), &entries);
    let head = header().encode().len();
    // The index is not cut between the end of the header and the first entry, because it has only empty slots there.
    for len in (0..=head).chain(chain(&header(), &entries)..=bytes.len()) {
        match Index::parse(&bytes[..len]) {
            Ok(index) => {
                assert!(len >= head && index.entries == entries[..index.entries.len()], "cut at {len}");
                let Tail::Open { at, broken, .. } = index.tail else { panic!("cut at {len}: sealed") };
                assert_eq!(broken, (len > at).then_some(at as u64), "cut at {len}");
                let reader = Reader::open(&&bytes[..len]).expect("the same index");
                assert_eq!(reader.end(), Some(at.min(len) as u64), "cut at {len}");
                assert_eq!((reader.blocks().len(), reader.is_sealed()), (index.entries.len(), false));
            }
            Err(e) => assert!(len < head, "cut at {len}: {e}"),
        }
    }
    assert_eq!(Index::parse(&bytes).expect("the whole index").entries, entries);
}

#[test]
fn a_sealed_index_has_the_content_of_the_growing_index() {
    let mut prng = Prng::new(3);
    for count in [0, 1, 2, 7, 300] {
        let entries = blocks(count, &mut prng);
        let foreign = Content::Foreign { format: Format::PcapNg, bytes: 77, modified: 1 << 60 };
        let header = Header { content: foreign, ..header() };
        let context = [0..24, 24..30, 100..200];
        let bytes = seal(&header, &entries, &context);
        let index = Index::parse(&bytes).expect("a sealed index");
        assert_eq!(index.header, header);
        let Tail::Complete(footer) = &index.tail else { panic!("not sealed") };
        assert_eq!((footer.bytes, footer.end.nanos()), (u64::from(count) << 20, 9));
        assert_eq!(footer.context, [0..30, 100..200]);
        let mut reader = Reader::open(&&bytes[..]).expect("the same index");
        let growing = Reader::open(&&grow(&header, &entries)[..]).expect("the growing index");
        assert_eq!(reader.blocks(), growing.blocks());
        let (summary, before) = (reader.summary().clone(), growing.summary().clone());
        assert_eq!((summary.tally, summary.stamps, summary.blocks), (before.tally, before.stamps, before.blocks));
        for (i, (a, b)) in index.entries.iter().zip(&entries).enumerate() {
            assert_eq!((a.block, a.bytes, a.crc, &a.rows), (b.block, b.bytes, b.crc, &b.rows));
            assert_eq!(reader.rows(&&bytes[..], i).expect("the rows of the block"), b.rows);
            assert_eq!(a.sub_blocks, b.sub_blocks);
        }
        let parts: Vec<_> = entries.iter().map(|e| e.sub_blocks).collect();
        assert_eq!(reader.sub_blocks(&&bytes[..], 0..entries.len() + 1).expect("memory has no errors"), parts);
        for block in 0..count {
            let host = KeyCondition::Host([172, 16, (block >> 8) as u8, block as u8].into());
            let candidates = reader.candidates(&&bytes[..], &host).expect("memory has no errors");
            assert_eq!(candidates[block as usize], entries[block as usize].sets.admit(&host), "{block}");
            assert!(candidates.iter().filter(|c| **c).count() <= 3, "{block}: {candidates:?}");
        }
    }
}

#[test]
fn a_query_reads_one_stripe_or_only_the_summary() {
    let mut prng = Prng::new(4);
    let entries = blocks(1000, &mut prng);
    let bytes = seal(&header(), &entries, &[]);
    let mut reader = Reader::begin(&&bytes[..]).expect("a sealed index");
    assert_eq!(reader.bytes_read(), 8192);
    assert_eq!(reader.summary().stamps.expect("packets").1, entries.iter().map(|e| e.last).max().expect("blocks"));
    reader.candidates(&&bytes[..], &KeyCondition::Host("172.16.0.1".parse().unwrap())).expect("candidates");
    assert_eq!(reader.bytes_read(), 8192 + 2 * 32_004);
    assert!(reader.blocks().is_empty());
    reader.load(&&bytes[..]).expect("the table");
    assert_eq!((reader.blocks().len(), reader.bytes_read()), (1000, 8192 + 2 * 32_004 + 52 * 1000 + 4));
    // The first read covers a small index completely.
    let small = seal(&header(), &entries[..3], &[]);
    let mut reader = Reader::open(&&small[..]).expect("a sealed index");
    reader.candidates(&&small[..], &KeyCondition::Vlan(Some(5))).expect("candidates");
    assert_eq!(reader.bytes_read(), small.len() as u64);
}

#[test]
fn the_index_stays_below_one_percent_for_any_traffic() {
    let seed = testkit::seed("the_index_stays_below_one_percent_for_any_traffic");
    let mut prng = Prng::new(seed);
    for (packets, len) in [(1032, 1000), (13_800, 60), (200, 5000)] {
        let full: Vec<_> = (0..packets)
            .map(|_| {
                let mut frame = random_frame(&mut prng);
                frame.resize(60, 0);
                frame[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
                prng.fill(&mut frame[26..38]);
                (frame, len, 1)
            })
            .collect();
        let entries: Vec<Entry> = (0..8).map(|block| entry(block, 1 << 20, &full)).collect();
        for e in &entries {
            let write = Growing::behind(&[]).write_entry(e, &e.rows, true);
            assert!(write.bytes.len() * 100 <= 1 << 20, "growing: {} bytes", write.bytes.len());
        }
        let sealed = seal(&header(), &entries, &[]);
        assert!(sealed.len() * 100 <= 8 << 20, "sealed: {} bytes of {}", sealed.len(), 8 << 20);
        let hosts = (0..200).filter(|_| {
            let host = KeyCondition::Host(std::net::Ipv4Addr::from(prng.next_u64() as u32).into());
            entries[0].sets.admit(&host)
        });
        let wrong = hosts.count();
        // A block of 13 800 packets has 27 600 hosts. The Bloom filter of so many hosts has many false positives,
        // because the index has at most 1 % of the size of the packet file. A block of 2000 packets has few.
        assert!(packets > 2000 || wrong < 10, "{packets} packets: {wrong} false positives of 200");
    }
}

#[test]
fn damage_is_detected_or_excludes_no_block() {
    // `NETGRAIN_FUZZ_ITERS` multiplies the rounds.
    let rounds = std::env::var("NETGRAIN_FUZZ_ITERS").ok().and_then(|r| r.parse().ok()).unwrap_or(1) * 3_000;
    let seed = testkit::seed("damage_is_detected_or_excludes_no_block");
    let mut prng = Prng::new(seed);
    let entries = blocks(12, &mut prng);
    for bytes in [seal(&header(), &entries, &[]), grow(&header(), &entries)] {
        let right = read_all(&bytes).expect("the undamaged index");
        let mut read = 0;
        for round in 0..rounds {
            let mut damaged = bytes.clone();
            for _ in 0..=prng.below(4) {
                let at = prng.below(damaged.len() as u64) as usize;
                match prng.below(4) {
                    0 => damaged[at] ^= 1 << prng.below(8),
                    1 => damaged[at] = prng.next_u64() as u8,
                    2 if prng.below(10) == 0 => damaged.truncate(at.max(1)),
                    _ => drop(damaged.splice(at..at, (0..prng.below(9) * prng.below(2)).map(|i| i as u8))),
                }
            }
            if let Some(candidates) = read_all(&damaged) {
                read += 1;
                for (block, candidate) in candidates.iter().enumerate() {
                    assert!(
                        *candidate || !right[block],
                        "seed {seed} round {round}: block {block} is wrongly excluded"
                    );
                }
                let mut reader = Reader::open(&&damaged[..]).expect("an index that was read before");
                let parts = reader.sub_blocks(&&damaged[..], 0..12).expect("memory has no errors");
                for (parts, entry) in parts.iter().zip(&entries).filter(|(parts, _)| !parts.is_unknown()) {
                    assert_eq!(*parts, entry.sub_blocks, "seed {seed} round {round}");
                }
            }
            if let Ok(index) = Index::parse(&damaged) {
                for (a, b) in index.entries.iter().zip(&entries) {
                    assert_eq!((&a.rows, a.crc), (&b.rows, b.crc), "seed {seed} round {round}");
                }
            }
        }
        assert!(read > 10, "only {read} damaged indexes were readable");
    }
}

#[test]
fn wrong_numbers_with_correct_checksums_cause_no_panic() {
    let rounds = std::env::var("NETGRAIN_FUZZ_ITERS").ok().and_then(|r| r.parse().ok()).unwrap_or(1) * 4_000;
    let seed = testkit::seed("wrong_numbers_with_correct_checksums_cause_no_panic");
    let mut prng = Prng::new(seed);
    let entries = blocks(4, &mut prng);
    let whole = seal(&header(), &entries, &[0..24, 40..48]);
    let summary = u32_at(&whole, 12);
    let summary_end = summary + u32_at(&whole, summary + 4);
    let table = u64_at(&whole, summary + 48);
    let parts = u64_at(&whole, summary + 56);
    let rows = u64_at(&whole, summary + 64);
    let first_rows = rows..rows + u32_at(&whole, table + 48);
    let grown = grow(&header(), &entries);
    let entry = chain(&header(), &entries);
    let entry = entry..entry + u32_at(&grown, entry + 4);
    let pieces: [(&[u8], Range<usize>, usize); 6] = [
        (&whole, 0..summary, 12),
        (&whole, summary..summary_end, 8),
        (&whole, table..table + 52 * 4 + 4, 0),
        (&whole, parts..parts + 132, 0),
        (&whole, first_rows, 0),
        (&grown, entry, 8),
    ];
    for (bytes, part, from) in pieces {
        for _ in 0..rounds {
            let mut changed = bytes.to_vec();
            let content = part.start..part.end - 4;
            for _ in 0..=prng.below(3) {
                let at = content.start + from + prng.below((content.len() - from) as u64) as usize;
                let len = 1 + prng.below(8).min((content.end - at - 1) as u64) as usize;
                let value = [0, 1, u64::MAX, prng.next_u64(), 1 << prng.below(64)][prng.below(5) as usize];
                changed[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
            }
            let crc = crc32c::crc32c(&changed[content.clone()]);
            changed[content.end..part.end].copy_from_slice(&crc.to_le_bytes());
            read_all(&changed);
        }
    }
}

#[test]
fn random_bytes_are_not_an_index() {
    let mut prng = Prng::new(9);
    for _ in 0..20_000 {
        let mut bytes = vec![0; prng.below(300) as usize];
        prng.fill(&mut bytes);
        if prng.below(2) == 0 && bytes.len() > 16 {
            bytes[..12].copy_from_slice(b"\x89NGI\r\n\x1a\n\x04\0\x01\0");
        }
        assert!(read_all(&bytes).is_none());
    }
}

#[test]
fn too_many_context_ranges_are_joined_into_one() {
    let context: Vec<Range<u64>> = (0..5000).map(|i| 100 * i..100 * i + 10).collect();
    let bytes = seal(&header(), &blocks(1, &mut Prng::new(5)), &context);
    let reader = Reader::open(&&bytes[..]).expect("a sealed index");
    let read = &reader.summary().context;
    assert!(read.len() <= 4096 && read.last().expect("at least one range").end == 499_910);
    assert!(context.iter().all(|c| read.iter().any(|r| r.start <= c.start && c.end <= r.end)));
}

#[test]
fn both_layouts_return_the_quality_of_the_timestamps_of_each_block_and_of_the_file() {
    let entries = blocks(40, &mut Prng::new(12));
    let expected: Vec<_> = (0..40).map(common::quality).collect();
    let together = expected.iter().fold(TimestampQuality::UNKNOWN, |sum, quality| sum.and(*quality));
    for bytes in [seal(&header(), &entries, &[]), grow(&header(), &entries)] {
        let bytes = &bytes[..];
        let mut reader = Reader::begin(&bytes).expect("a valid index");
        assert_eq!(reader.summary().timestamps, together);
        assert_eq!(reader.timestamps(&bytes).expect("memory has no errors"), expected);
    }
}

#[test]
fn a_summary_with_another_quality_than_its_blocks_is_damaged() {
    let entries = blocks(2, &mut Prng::new(13));
    let mut bytes = seal(&header(), &entries, &[]);
    let (at, quality) = (header().encode().len(), 80);
    bytes[at + quality + 4] ^= 1;
    let length = u32_at(&bytes, at + 4);
    let crc = crc32c::crc32c(&bytes[at..at + length - 4]).to_le_bytes();
    bytes[at + length - 4..at + length].copy_from_slice(&crc);
    assert_eq!(Index::parse(&bytes), Err(IndexError::Damaged { part: "timestamps" }));
}
