//! The target reads block indexes, both sealed indexes and growing indexes, to which a recorder still appends. Reading
//! the whole index and reading parts of the index must give the same result. If the index is valid, the target seals
//! it, and the sealed index must have the same blocks.
//!
//! ```text
//! byte 0, bit 0: do not repair the checksums | the index; a growing index without the empty slots after its header
//! ```

use crate::Target;
use crate::targets::bytes::{repair, u32_at, u64_at};
use base::{ClockState, ClockSteps, Prng, Row, Tally, Timestamp, TimestampMethod, TimestampQuality};
use filter::KeyCondition;
use index::{
    BlockKeys, Builder, Content, Entry, Format, Growing, Header, Index, Reader, SUB_BLOCK, SUB_BLOCKS, SubBlocks, Tail,
};
use std::num::NonZeroU32;
use std::ops::Range;

pub const TARGET: Target = Target { name: "block_index", run, seeds, rounds: 2500, memory: 96 << 20 };

/// Offset of the field that contains the length of the index header.
const LENGTH_AT: usize = 12;

/// Size of the slots of a growing index, and their alignment, in bytes.
const SLOTS: usize = 64 << 10;
const PAGE: usize = 4096;

/// The magic bytes of a summary of an index, and of an index entry.
const SUMMARY: &[u8] = b"SUM5";
const ENTRY: &[u8] = b"BLK6";

fn run(bytes: &[u8]) {
    let Some((&mode, bytes)) = bytes.split_first() else { return };
    let mut bytes = bytes.to_vec();
    let is_sealed = u32_at(&bytes, LENGTH_AT).is_some_and(|at| bytes.get(at..).is_some_and(|b| b.starts_with(SUMMARY)));
    if mode & 1 == 0 {
        repair_checksums(&mut bytes, is_sealed);
    }
    if let (false, Some(head)) = (is_sealed, u32_at(&bytes, LENGTH_AT).filter(|head| *head <= bytes.len())) {
        let slots = head.next_multiple_of(PAGE) - head + SLOTS;
        bytes.splice(head..head, vec![0; slots]);
    }
    check(&bytes);
}

fn check(bytes: &[u8]) {
    let index = Index::parse(bytes);
    let mut reader = Reader::open(&bytes).ok();
    if let (Ok(index), Some(reader)) = (&index, &mut reader) {
        assert_eq!(reader.header(), &index.header);
        let numbers: Vec<u32> = reader.blocks().iter().map(|block| block.number).collect();
        assert_eq!(numbers, index.entries.iter().map(|entry| entry.block).collect::<Vec<_>>());
    }
    let conditions = [
        KeyCondition::Ports(1, 3),
        KeyCondition::Host("10.0.0.1".parse().expect("an address")),
        KeyCondition::Net("10.0.0.0".parse().expect("an address"), 12),
        KeyCondition::Vlan(None),
        KeyCondition::Protocol(6),
    ];
    for condition in &conditions {
        let Some(reader) = &mut reader else { break };
        let candidates = reader.candidates(&bytes, condition);
        if let (Ok(index), Ok(candidates)) = (&index, candidates) {
            let admitted: Vec<bool> = index.entries.iter().map(|entry| entry.sets.admit(condition)).collect();
            assert_eq!(candidates, admitted, "{condition:?}");
        }
        drop(reader.sub_block_mask(&bytes, condition));
    }
    if let Some(reader) = &mut reader {
        (0..reader.blocks().len()).for_each(|block| drop(reader.rows(&bytes, block)));
        drop(reader.sub_blocks(&bytes, 0..reader.blocks().len()));
    }
    if let Ok(index) = index {
        check_sealed_again(&index);
    }
}

/// Seals the index, in the same way as the growing index of a recorder that crashed is sealed later.
fn check_sealed_again(index: &Index) {
    let context = match &index.tail {
        Tail::Complete(footer) => footer.context.clone(),
        Tail::Open { .. } => Vec::new(),
    };
    let mut builder = Builder::new(index.header.clone());
    index.entries.iter().for_each(|entry| builder.push(entry.clone()));
    let bytes = index.entries.iter().map(|entry| u64::from(entry.bytes)).sum();
    let mut sealed = Vec::new();
    builder.finish(bytes, Timestamp::ZERO, &context, &mut sealed).expect("memory");
    let again = Index::parse(&sealed).expect("a sealed index");
    assert_eq!(again.header, index.header);
    let without_sets = |entry: &Entry| Entry { sets: index::Sets::ALL, ..entry.clone() };
    let blocks = |index: &Index| index.entries.iter().map(without_sets).collect::<Vec<_>>();
    assert_eq!(blocks(&again), blocks(index));
}

fn repair_checksums(bytes: &mut [u8], is_sealed: bool) -> Option<()> {
    let head = u32_at(bytes, LENGTH_AT)?;
    repair(bytes, 0..head);
    if is_sealed { repair_sealed(bytes, head) } else { repair_entries(bytes, head) }
}

fn repair_sealed(bytes: &mut [u8], summary: usize) -> Option<()> {
    const TABLE_ROW: usize = 52;
    const QUALITY: usize = 36;
    const SUB_BLOCK_DATA: usize = SUB_BLOCKS * 8 + 4;
    let size = (bytes.len() as u64).to_le_bytes();
    bytes.get_mut(summary + 8..summary + 16)?.copy_from_slice(&size);
    repair(bytes, summary..summary.checked_add(u32_at(bytes, summary + 4)?)?);
    let [table, parts, rows, timestamps] = [48, 56, 64, 72].map(|at| u64_at(bytes, summary + at));
    let blocks = u32_at(bytes, summary + 116)?.min(1 << 12);
    let span = |at: usize, len: usize| Some(at..at.checked_add(len)?);
    repair(bytes, span(table?, blocks * TABLE_ROW + 4)?);
    repair(bytes, span(timestamps?, blocks * QUALITY + 4)?);
    let sets: Vec<(usize, usize)> = (0..8)
        .filter_map(|i| Some((u64_at(bytes, summary + 120 + 12 * i)?, u32_at(bytes, summary + 128 + 12 * i)?)))
        .collect();
    for (at, groups) in sets {
        (0..groups.min(64))
            .try_for_each(|i| repair(bytes, span(at.checked_add(i * (32 * blocks + 4))?, 32 * blocks + 4)?));
    }
    for block in 0..blocks {
        let row = table?.checked_add(block * TABLE_ROW)?;
        let (at, len) = (u32_at(bytes, row + 44)?, u32_at(bytes, row + 48)?);
        repair(bytes, span(rows?.checked_add(at)?, len)?);
    }
    (0..blocks).try_for_each(|block| repair(bytes, span(parts?.checked_add(block * SUB_BLOCK_DATA)?, SUB_BLOCK_DATA)?))
}

fn repair_entries(bytes: &mut [u8], from: usize) -> Option<()> {
    let mut at = from;
    while let Some(found) = bytes.get(at..)?.windows(4).position(|tag| tag == ENTRY) {
        at += found;
        let len = u32_at(bytes, at + 4)?;
        let end = at.checked_add(len).filter(|end| *end <= bytes.len() && len >= 12);
        at = match end {
            Some(end) => {
                repair(bytes, at..end);
                end
            }
            None => at + 4,
        };
    }
    Some(())
}

fn header(content: Content) -> Header {
    Header {
        interface: "eth1".into(),
        queue: 3,
        link_type: 1,
        snaplen: 65_535,
        timestamp_source: "tsc".into(),
        timestamp_error: 700,
        filter: "port 53".into(),
        first_pos: 1 << 33,
        start: Timestamp::from_nanos(5),
        content,
    }
}

fn entry(prng: &mut Prng, block: u32) -> Entry {
    let (mut keys, mut parts) = (BlockKeys::default(), SubBlocks::NONE);
    let stored = prng.below(4);
    for i in 0..stored as u32 {
        let frame = testkit::random_frame(prng);
        keys.enter(i as usize);
        parts.begin(i * SUB_BLOCK + 24, i);
        keys.add(&frame, frame.len() as u32, 1);
    }
    let second = 1_795_290_000 + u64::from(block);
    Entry {
        block,
        bytes: 1 << 20,
        first_record: (stored > 0).then_some(24),
        crc: block,
        sub_blocks: parts,
        first: Timestamp::from_secs_nanos(second, 1),
        last: Timestamp::from_secs_nanos(second, 999),
        timestamps: quality(prng),
        rows: [Row { second, tally: Tally { stored, offered: stored, ..Tally::default() } }].into_iter().collect(),
        sets: keys.sets(),
    }
}

fn quality(prng: &mut Prng) -> TimestampQuality {
    let clock = ClockState {
        synchronised: prng.below(2) == 0,
        maximum_error_micros: prng.below(1 << 20) as u32,
        frequency_ppb: prng.below(1000) as i32 - 500,
    };
    TimestampQuality {
        methods: TimestampMethod::ALL.into_iter().filter(|_| prng.below(4) == 0).collect(),
        deviation_nanos: NonZeroU32::new(prng.below(100) as u32),
        clock: (prng.below(2) == 0).then_some(clock),
        steps: if prng.below(4) == 0 { ClockSteps::one(prng.below(99) as i64 - 50) } else { ClockSteps::default() },
    }
}

fn sealed(header: &Header, entries: &[Entry], context: &[Range<u64>]) -> Vec<u8> {
    let mut builder = Builder::new(header.clone());
    entries.iter().for_each(|entry| builder.push(entry.clone()));
    let mut out = vec![0];
    let bytes = entries.iter().map(|entry| u64::from(entry.bytes)).sum();
    let mut index = Vec::new();
    builder.finish(bytes, Timestamp::from_nanos(9), context, &mut index).expect("memory");
    out.extend(index);
    out
}

fn growing(header: &Header, entries: &[Entry]) -> Vec<u8> {
    let mut out = header.encode();
    let mut growing = Growing::behind(&out);
    for entry in entries {
        let write = growing.write_entry(entry, &entry.rows, true);
        out.extend(&write.bytes);
        growing.entry_written(write);
    }
    [&[0], &out[..]].concat()
}

fn seeds() -> Vec<Vec<u8>> {
    let mut prng = Prng::new(7);
    let entries: Vec<Entry> = (0..4).map(|block| entry(&mut prng, block)).collect();
    let foreign = header(Content::Foreign { format: Format::PcapNg, bytes: 4 << 20, modified: 77 });
    let recorded = header(Content::Recorded);
    vec![
        sealed(&recorded, &entries, &[]),
        sealed(&foreign, &entries[..1], std::slice::from_ref(&(0..28))),
        growing(&recorded, &entries),
        growing(&recorded, &entries[..1]),
        growing(&recorded, &[]),
    ]
}
