//! Makes recorded streams for the tests, and checks their files after damage and recovery. The producer and the
//! simulated clock are those of the recorder's tests.
#![allow(dead_code, reason = "each test program uses its part")]

#[path = "../../../../recorder/tests/it/common/mod.rs"]
mod recorded;

pub use recorded::*;

use base::{Cause, Note, Prng, Tally};
use filter::KeyCondition;
use index::{Index, Tail};
use netgrain_upkeep::recovery::Recovery;
use ring::{BLOCK, Desc};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::device::{Device, Surviving};

/// The directory of the recorded interface.
pub fn root() -> PathBuf {
    PathBuf::from("store/eth1")
}

/// Runs a recovery to its end; returns its events as text.
pub fn recover<D: Device>(device: D) -> Vec<String> {
    let mut recovery = Recovery::new(device, &root());
    recovery.run();
    recovery.take_events().iter().map(ToString::to_string).collect()
}

/// The published files of an interface: their number, the sum of their ledgers, and their packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    pub files: usize,
    pub tally: Tally,
    /// The numbers that the packets have in the stream, in the order of the packets in the files.
    pub packets: Vec<usize>,
}

/// Checks every published file against the offered stream: its packets are unchanged packets of the stream, in order;
/// its index describes them exactly; its ledger balances and counts no more packets than were offered.
pub fn check(stream: &Stream, files: &Surviving, note: &str) -> Published {
    let mut out = Published::default();
    let packets: Vec<&Desc> = stream.descs.iter().filter(|d| d.is_packet()).collect();
    for (path, bytes) in files {
        let name = path.file_name().and_then(|n| n.to_str()).expect("names are text");
        if name.starts_with('.') || !name.ends_with(".pcap") {
            continue;
        }
        let note = format!("{note}: {name}");
        let index = files.get(&path.with_extension("ngi")).unwrap_or_else(|| panic!("{note}: no index"));
        let index = Index::parse(index).unwrap_or_else(|e| panic!("{note}: {e}"));
        check_file(stream, &packets, bytes, &index, &mut out, &note);
        out.files += 1;
    }
    assert!(out.packets.is_sorted_by(|a, b| a < b), "{note}: duplicate or out-of-order packets");
    out
}

fn check_file(stream: &Stream, packets: &[&Desc], bytes: &[u8], index: &Index, out: &mut Published, note: &str) {
    let Tail::Complete(footer) = &index.tail else { panic!("{note}: no footer") };
    assert_eq!(bytes.len() as u64, footer.bytes, "{note}: length");
    let total = footer.rows.total();
    assert_eq!(total.residue(), 0, "{note}: residue in {total:?}");
    let segment = stream.segments.iter().find(|s| s.pos == index.header.first_pos && s.start == index.header.start);
    if let Some(segment) = segment {
        let model = segment.ledger.total();
        assert!(total.offered <= model.offered, "{note}: {} offered of {}", total.offered, model.offered);
    }
    let mut seconds = index::Rows::new();
    let mut at = 24;
    let mut number = out.packets.last().map_or(0, |n| n + 1);
    let mut by_block = vec![0u64; index.entries.len()];
    let mut parts = vec![index::SubBlocks::NONE; index.entries.len()];
    let mut changed = 0;
    while at < bytes.len() {
        let word = |i: usize| u32::from_le_bytes(bytes[at + 4 * i..at + 4 * i + 4].try_into().expect("four bytes"));
        let end = at + 16 + word(2) as usize;
        let ts = u64::from(word(0)) * SECOND + u64::from(word(1));
        let record = &bytes[at..end];
        let is = |d: &Desc| d.ts == ts && d.end() - d.pos() == record.len() as u64;
        let same = |d: &Desc| is(d) && stream.at(d.pos(), d.end()) == record;
        let found = packets[number..].iter().position(|d| same(d)).or_else(|| {
            changed += 1;
            packets[number..].iter().position(|d| is(d))
        });
        number += found.unwrap_or_else(|| panic!("{note}: byte {at} is no packet of the stream"));
        let d = packets[number];
        let (block, entry) = (at / BLOCK as usize, &index.entries[at / BLOCK as usize]);
        by_block[block] += 1;
        let offset = (at % BLOCK as usize) as u32;
        let part = index::sub_block_of(offset);
        if parts[block].first(part).is_none() {
            parts[block].begin(offset, crc32c::crc32c(&bytes[at - offset as usize..at]));
        }
        if by_block[block] == 1 {
            assert_eq!(entry.first_record, Some((at % BLOCK as usize) as u32), "{note}: first record");
            assert_eq!(entry.first.nanos(), ts, "{note}: first timestamp");
        }
        assert!(entry.last.nanos() >= ts, "{note}: last timestamp");
        // If no checksum covers a packet, its header bytes may be changed too, so its keys are not tested.
        if d.l4 == 34 && same(d) {
            let host = Ipv4Addr::new(record[42], record[43], record[44], record[45]);
            assert!(
                entry.sets.sub_block_mask(&KeyCondition::Host(host.into())).has(part),
                "{note}: {host} wrongly excluded"
            );
            assert!(
                index.candidates(&KeyCondition::Ports(53, 53)).any(|b| b == entry.block),
                "{note}: port wrongly excluded"
            );
        }
        let bytes = u64::from(word(3));
        seconds.add(ts / SECOND, &Tally { offered: 1, stored: 1, stored_bytes: bytes, ..Tally::default() });
        out.packets.push(number);
        number += 1;
        at = end;
    }
    assert!(changed <= total.notes[Note::Unverified as usize], "{note}: {changed} packets are changed");
    for (i, entry) in index.entries.iter().enumerate() {
        let block = &bytes[i * BLOCK as usize..][..entry.bytes as usize];
        assert_eq!(entry.sub_blocks, parts[i], "{note}: sub-blocks of block {i}");
        assert_eq!(entry.crc, crc32c::crc32c(block), "{note}: block {i}");
        assert_eq!(entry.tally().stored, by_block[i], "{note}: block {i}");
    }
    for row in footer.rows.iter() {
        let here = seconds.iter().find(|r| r.second == row.second).map(|r| r.tally).unwrap_or_default();
        assert_eq!((row.tally.stored, row.tally.stored_bytes), (here.stored, here.stored_bytes), "{note}: {row:?}");
    }
    assert_eq!(total.stored, seconds.total().stored, "{note}: stored");
    out.tally += &total;
}

/// Asserts that no hidden file is left, and that each index has a packet file. Exempt are files that recovery reported
/// as not changed, because a power failure had destroyed both their header and their index.
pub fn check_clean(files: &Surviving, reported: &[String], note: &str) {
    let is_kept = |name: &str| {
        let stem = name.trim_start_matches('.').trim_end_matches(".partial");
        let stem = stem.trim_end_matches(".ngi").trim_end_matches(".pcap").trim_end_matches(".sealed");
        reported.iter().any(|t| t.contains(stem) && (t.contains("not changed") || t.contains("is kept for")))
    };
    for path in files.keys() {
        let name = path.file_name().and_then(|n| n.to_str()).expect("names are text");
        assert!(!name.starts_with('.') || is_kept(name), "{note}: {name} is left: {reported:#?}");
        if name.ends_with(".ngi") {
            assert!(files.contains_key(&path.with_extension("pcap")), "{note}: {name} has no packets");
        }
    }
}

/// Number of packets that were lost by a crash.
pub fn lost(tally: &Tally) -> u64 {
    tally.lost[Cause::Crash as usize]
}

/// A stream of `segments` segments with `packets` packets each, which are at most `longest` bytes long, with ticks,
/// lost and filtered packets between them.
pub fn segments(prng: &mut Prng, segments: u64, packets: u64, longest: u64) -> Stream {
    let mut stream = Stream::new(0);
    for segment in 0..segments {
        for packet in 0..packets {
            stream.now += SECOND / 10;
            let caplen = (60 + prng.below(longest)).min(65_535) as u16;
            stream.packet(prng, caplen, 0);
            if packet % 8 == 7 {
                stream.tick();
            }
            if packet % 11 == 3 {
                stream.lose(Cause::RingFull, 2);
                stream.filter(1);
            }
        }
        if segment + 1 < segments {
            stream.segment();
        }
    }
    stream.end();
    stream
}

/// A path of a volume.
pub fn path(text: &str) -> PathBuf {
    Path::new(text).to_owned()
}

/// The time by which one step advances the simulated clock.
pub const STEP: Duration = Duration::from_millis(3);
