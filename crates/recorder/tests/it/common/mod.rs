//! A producer in memory, and checks of the files that the recorder must write for its stream.
#![allow(dead_code, reason = "each test program uses its part")]

use base::{Cause, ClockState, Ledger, Note, Prng, Tally, Timestamp, TimestampMethod};
use filter::KeyCondition;
use index::{Header, Index, Tail};
use netgrain_recorder::cutter::{Cutter, Job};
use netgrain_recorder::writer::{Config, Event, Totals, Writer};
use ring::{AnnotatedPosition, Annotations, BLOCK, Control, Desc, FILE_HEADER, RECORD_HEADER, flag};
use std::net::Ipv4Addr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use store::bytes::Bytes;
use store::device::{Device, Surviving};
use sys::uring::Region;

/// 2026-11-21T19:40:00Z.
pub const START: u64 = 1_795_290_000_000_000_000;
pub const SECOND: u64 = 1_000_000_000;

/// Memory that contains the complete stream; it panics on access to a released byte.
pub struct Memory {
    base: u64,
    bytes: Vec<u8>,
    aligned: usize,
    pub released: AtomicU64,
}

impl Bytes for Memory {
    fn at(&self, pos: u64, len: usize) -> &[u8] {
        assert!(pos >= self.released.load(Relaxed), "position {pos} was released");
        &self.bytes[self.aligned + (pos - self.base) as usize..][..len]
    }

    fn regions(&self) -> Vec<Region> {
        let address = self.bytes.as_ptr() as usize + self.aligned;
        vec![Region { address, len: (self.bytes.len() - self.aligned) & !4095 }]
    }
}

/// The position, start time and ledger that the test expects in the file of one segment.
pub struct Segment {
    pub pos: u64,
    pub end: u64,
    pub start: Timestamp,
    pub ledger: Ledger,
}

/// A stream being produced.
pub struct Stream {
    pub base: u64,
    pub bytes: Vec<u8>,
    pub descs: Vec<Desc>,
    pub segments: Vec<Segment>,
    pub now: u64,
}

impl Stream {
    /// A stream whose first segment begins at stream position `base`, a multiple of the block size, and at the time
    /// 19:40.
    pub fn new(base: u64) -> Self {
        assert_eq!(base % BLOCK, 0);
        let mut s = Self { base, bytes: Vec::new(), descs: Vec::new(), segments: Vec::new(), now: START };
        s.segment();
        s
    }

    pub fn pos(&self) -> u64 {
        self.base + self.bytes.len() as u64
    }

    /// Bytes left in the block.
    pub fn room(&self) -> u64 {
        BLOCK - self.pos() % BLOCK
    }

    fn row(&mut self, tally: Tally) {
        let second = self.now / SECOND;
        self.segments.last_mut().expect("a segment is open").ledger.add(second, &tally);
    }

    pub fn segment(&mut self) {
        let end = self.pos();
        if let Some(open) = self.segments.last_mut() {
            open.end = end;
        }
        // The bytes between two segments have no meaning and must not be written to the disk.
        self.bytes.resize(self.bytes.len().next_multiple_of(BLOCK as usize), 0xee);
        let pos = self.pos();
        let ts = Timestamp::from_nanos(self.now);
        self.descs.push(Desc::control(Control::Segment { pos, gap: (pos - end) as u32 }, ts));
        self.segments.push(Segment { pos, end: pos, start: ts, ledger: Ledger::new() });
        // The pcap file header: nanosecond pcap, version 2.4, snaplen 65535, Ethernet.
        for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 65_535, 1] {
            self.bytes.extend(word.to_le_bytes());
        }
        assert_eq!(self.bytes.len() % BLOCK as usize, FILE_HEADER);
    }

    /// A UDP packet between two of a few hosts, `caplen` bytes long, with random content.
    pub fn packet(&mut self, prng: &mut Prng, caplen: u16, flags: u8) {
        let mut data = vec![0u8; usize::from(caplen)];
        prng.fill(&mut data);
        let method = TimestampMethod::ALL[self.descs.len() / 100 % TimestampMethod::COUNT];
        let annotations = Annotations::new(method, None);
        let mut d = Desc {
            annotated_pos: AnnotatedPosition::new(self.pos()).with_annotations(annotations),
            ts: self.now,
            caplen,
            wire_len: caplen,
            flags,
            ..Desc::default()
        };
        if caplen >= 42 {
            let (a, b) = (prng.below(8) as u8, prng.below(8) as u8);
            data[12..38].copy_from_slice(&[
                8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, a, 10, 0, 0, b, 0x10, a, 0, 53,
            ]);
            (d.l3, d.l4) = (14, 34);
        }
        for word in [(self.now / SECOND) as u32, (self.now % SECOND) as u32, u32::from(caplen), u32::from(caplen)] {
            self.bytes.extend(word.to_le_bytes());
        }
        self.bytes.extend(&data);
        self.descs.push(d);
        let mut tally = Tally { offered: 1, stored: 1, stored_bytes: u64::from(caplen), ..Tally::default() };
        tally.notes[Note::Outgoing as usize] = u64::from(flags & flag::OUTGOING != 0);
        self.row(tally);
    }

    /// Adds a packet of a real capture; its header offsets are computed from the number of its VLAN tags.
    pub fn real_packet(&mut self, data: &[u8]) {
        let (pos, caplen) = (self.pos(), data.len() as u16);
        let mut l3 = 14;
        while data.get(l3 - 2..l3).is_some_and(|t| t == [0x81, 0x00] || t == [0x88, 0xa8]) {
            l3 += 4;
        }
        for word in [(self.now / SECOND) as u32, (self.now % SECOND) as u32, u32::from(caplen), u32::from(caplen)] {
            self.bytes.extend(word.to_le_bytes());
        }
        self.bytes.extend(data);
        let l3 = l3 as u8;
        self.descs.push(Desc {
            annotated_pos: AnnotatedPosition::new(pos),
            ts: self.now,
            caplen,
            wire_len: caplen,
            l3,
            ..Desc::default()
        });
        self.row(Tally { offered: 1, stored: 1, stored_bytes: u64::from(caplen), ..Tally::default() });
    }

    pub fn lose(&mut self, cause: Cause, packets: u64) {
        self.descs.push(Desc::control(Control::Lost { cause, reader: 0, packets }, Timestamp::from_nanos(self.now)));
        let mut tally = Tally::default();
        tally.add_lost(cause, packets);
        self.row(tally);
    }

    pub fn filter(&mut self, packets: u64) {
        self.descs.push(Desc::control(Control::Filtered { packets }, Timestamp::from_nanos(self.now)));
        self.row(Tally { offered: packets, filtered: packets, ..Tally::default() });
    }

    /// A report of the quality of timestamps, as the producer writes it once per second.
    pub fn report_timestamps(&mut self, prng: &mut Prng) {
        let clock = ClockState {
            synchronised: prng.below(2) == 0,
            maximum_error_micros: prng.below(1000) as u32,
            frequency_ppb: prng.below(1000) as i32 - 500,
        };
        let clock = (prng.below(4) > 0).then_some(clock);
        let control = Control::Timestamps { deviation_nanos: NonZeroU32::new(prng.below(100) as u32), clock };
        self.descs.push(Desc::control(control, Timestamp::from_nanos(self.now)));
    }

    /// A step of the system clock; the packet time continues.
    pub fn clock_step(&mut self, nanos: i64) {
        let control = Control::ClockStep { steps: 1, nanos };
        self.descs.push(Desc::control(control, Timestamp::from_nanos(self.now)));
        let mut tally = Tally::default();
        tally.notes[Note::ClockStep as usize] = 1;
        self.row(tally);
    }

    /// Advances to the next second.
    pub fn tick(&mut self) {
        self.now = (self.now / SECOND + 1) * SECOND;
        self.descs.push(Desc::control(Control::Tick, Timestamp::from_nanos(self.now)));
        self.row(Tally::default());
    }

    pub fn end(&mut self) {
        self.descs.push(Desc::control(Control::End, Timestamp::from_nanos(self.now)));
        let end = self.pos();
        self.segments.last_mut().expect("a segment is open").end = end;
    }

    /// A random stream of `steps` events: packets, ticks, losses, segments.
    pub fn random(base: u64, steps: u64, prng: &mut Prng) -> Self {
        let mut s = Self::new(base);
        for _ in 0..steps {
            s.now += prng.below(SECOND / 20);
            match prng.below(100) {
                0..3 => s.segment(),
                3..5 => s.report_timestamps(prng),
                5..6 => s.clock_step(prng.below(1 << 30) as i64 - (1 << 29)),
                6..12 => s.tick(),
                12..16 => s.lose(Cause::ALL[prng.below(Cause::COUNT as u64) as usize], prng.below(1000)),
                16..20 => s.filter(prng.below(1000)),
                20..25 => {
                    for _ in 0..prng.below(20) {
                        s.packet(prng, 65_535, 0);
                    }
                }
                // A packet that ends at or near the end of the block.
                25..30 if s.room() < 60_000 => {
                    let fit = s.room().saturating_sub(RECORD_HEADER as u64);
                    let caplen = (fit + prng.below(3)).saturating_sub(prng.below(3)) as u16;
                    s.packet(prng, caplen, flag::OUTGOING);
                }
                _ => {
                    let caplen = prng.below(1515) as u16;
                    let flags = if prng.below(3) == 0 { flag::OUTGOING } else { 0 };
                    s.packet(prng, caplen, flags);
                }
            }
        }
        s.end();
        s
    }

    pub fn memory(&self) -> Arc<Memory> {
        let mut bytes: Vec<u8> = Vec::with_capacity(self.bytes.len() + 2 * BLOCK as usize);
        let aligned = bytes.as_ptr().align_offset(4096);
        bytes.resize(aligned, 0);
        bytes.extend(&self.bytes);
        bytes.resize(aligned + self.bytes.len().next_multiple_of(BLOCK as usize), 0xdd);
        Arc::new(Memory { base: self.base, bytes, aligned, released: AtomicU64::new(0) })
    }

    /// The bytes of a range of stream positions.
    pub fn at(&self, from: u64, to: u64) -> &[u8] {
        &self.bytes[(from - self.base) as usize..(to - self.base) as usize]
    }

    /// All seconds of all segments.
    pub fn ledger(&self) -> Ledger {
        let mut all = Ledger::new();
        self.segments.iter().for_each(|s| all.merge(&s.ledger));
        all
    }
}

pub fn header() -> Header {
    Header {
        interface: "eth1".into(),
        queue: 0,
        link_type: 1,
        snaplen: 65_535,
        timestamp_source: "simulated".into(),
        timestamp_error: 100,
        filter: String::new(),
        first_pos: 0,
        start: Timestamp::ZERO,
        content: index::Content::Recorded,
    }
}

pub fn config() -> Config {
    Config { allocate: BLOCK, ..Config::new(PathBuf::from("store"), header()) }
}

/// The result of a run.
pub struct Outcome {
    pub totals: Totals,
    pub events: Vec<Event>,
    pub done: bool,
    pub released: u64,
    pub descriptors: u64,
}

/// Runs cutter and writer step by step with a simulated clock. `interfere` is called before each step with the number
/// of the step and the time; the run ends when it returns false.
pub fn run<D: Device>(
    stream: &Stream,
    device: D,
    config: Config,
    prng: &mut Prng,
    mut interfere: impl FnMut(u64, &mut Writer<D>, Duration) -> bool,
) -> Outcome {
    let memory = stream.memory();
    let mut cutter = Cutter::new(Arc::clone(&memory) as Arc<dyn Bytes>);
    let mut writer = Writer::new(device, config);
    let mut jobs: std::collections::VecDeque<Job> = Default::default();
    let mut rest = &stream.descs[..];
    let mut events = Vec::new();
    let mut now = Duration::ZERO;
    for step in 0..200_000 {
        while writer.has_room() && (!rest.is_empty() || !jobs.is_empty()) {
            if let Some(job) = jobs.pop_front() {
                writer.accept(job);
                continue;
            }
            let (batch, later) = rest.split_at((1 + prng.below(200) as usize).min(rest.len()));
            rest = later;
            let mut made = Vec::new();
            cutter.read_descriptors(batch, &mut made).expect("a valid stream");
            jobs.extend(made);
        }
        let is_continued = interfere(step, &mut writer, now);
        writer.step(now, Duration::ZERO);
        now += Duration::from_millis(3);
        events.append(&mut writer.take_events());
        memory.released.store(writer.released().pos, Relaxed);
        if !is_continued || writer.is_done() {
            break;
        }
    }
    Outcome {
        totals: writer.totals().clone(),
        events,
        done: writer.is_done(),
        released: writer.released().pos,
        descriptors: writer.released().descriptors,
    }
}

/// Checks all published packet files and returns the segment number of each file.
pub fn check_published(stream: &Stream, files: &Surviving, note: &str) -> Vec<usize> {
    let mut found = Vec::new();
    for (path, bytes) in files {
        let name = path.file_name().and_then(|n| n.to_str()).expect("names are text");
        if name.starts_with('.') || !name.ends_with(".pcap") {
            continue;
        }
        let index = files.get(&path.with_extension("ngi")).unwrap_or_else(|| panic!("{note}: {name} has no index"));
        let index = Index::parse(index).unwrap_or_else(|e| panic!("{note}: {name}: {e}"));
        let number = stream.segments.iter().position(|s| s.pos == index.header.first_pos).expect("a known segment");
        check_file(stream, &stream.segments[number], bytes, &index, &format!("{note}: {name}"));
        found.push(number);
    }
    found.sort_unstable();
    found
}

fn check_file(stream: &Stream, segment: &Segment, bytes: &[u8], index: &Index, note: &str) {
    assert_eq!(index.header.start, segment.start, "{note}");
    let Tail::Complete(footer) = &index.tail else { panic!("{note}: no footer") };
    let end = segment.pos + footer.bytes;
    assert_eq!(bytes.len() as u64, footer.bytes, "{note}: length");
    assert!(bytes == stream.at(segment.pos, end), "{note}: content differs from the stream");
    let inside: Vec<&Desc> =
        stream.descs.iter().filter(|d| d.is_packet() && d.pos() >= segment.pos && d.pos() < segment.end).collect();
    let stored = inside.iter().filter(|d| d.end() <= end).count() as u64;
    assert!(
        end == segment.end || inside.iter().any(|d| d.end() == end) || footer.bytes == 24,
        "{note}: the file ends within a packet"
    );
    let mut sum = Ledger::new();
    for entry in &index.entries {
        entry.rows.iter().for_each(|r| sum.add(r.second, &r.tally));
        let from = segment.pos + u64::from(entry.block) * BLOCK;
        let to = from + u64::from(entry.bytes);
        assert_eq!(entry.crc, crc32c::crc32c(stream.at(from, to)), "{note}: block {}", entry.block);
        let here: Vec<&&Desc> = inside.iter().filter(|d| d.pos() >= from && d.pos() < to && d.end() <= end).collect();
        assert_eq!(entry.tally().stored, here.len() as u64, "{note}: block {}", entry.block);
        if let (Some(first), Some(last)) = (here.first(), here.last()) {
            assert_eq!(entry.first_record, Some((first.pos() - from) as u32), "{note}");
            assert_eq!((entry.first.nanos(), entry.last.nanos()), (first.ts, last.ts), "{note}: timestamps");
        }
        let mut parts = index::SubBlocks::NONE;
        for d in &here {
            let offset = (d.pos() - from) as u32;
            if parts.first(index::sub_block_of(offset)).is_none() {
                parts.begin(offset, crc32c::crc32c(stream.at(from, d.pos())));
            }
        }
        assert_eq!(entry.sub_blocks, parts, "{note}: sub-blocks of block {}", entry.block);
        for d in here.iter().filter(|d| d.l4 == 34) {
            let part = index::sub_block_of((d.pos() - from) as u32);
            let packet = stream.at(d.pos() + 16, d.end());
            let host = Ipv4Addr::new(packet[26], packet[27], packet[28], packet[29]);
            assert!(
                entry.sets.sub_block_mask(&KeyCondition::Host(host.into())).has(part),
                "{note}: {host} wrongly excluded"
            );
            assert!(entry.sets.admit(&KeyCondition::Ports(53, 53)), "{note}: port wrongly excluded");
        }
    }
    let rows: Ledger = footer.rows.iter().fold(Ledger::new(), |mut l, r| {
        l.add(r.second, &r.tally);
        l
    });
    assert_eq!(rows, sum, "{note}: footer and entries");
    assert_eq!(rows.total().stored, stored, "{note}: stored");
    assert_eq!(rows.total().residue(), 0, "{note}: residue");
    if end == segment.end
        && rows.total().lost[Cause::Disk as usize] == segment.ledger.total().lost[Cause::Disk as usize]
    {
        assert_eq!(rows, segment.ledger, "{note}: ledger");
    }
}

/// An implementation of `Feed` that delivers the descriptors of a complete stream in batches of 1000.
pub struct FakeFeed<'a> {
    pub stream: &'a Stream,
    pub memory: Arc<Memory>,
    pub delivered: usize,
    pub released: (u64, u64),
}

impl<'a> FakeFeed<'a> {
    pub fn new(stream: &'a Stream) -> Self {
        Self { stream, memory: stream.memory(), delivered: 0, released: (0, 0) }
    }
}

impl netgrain_recorder::Feed for FakeFeed<'_> {
    fn memory(&self) -> Arc<dyn Bytes> {
        Arc::clone(&self.memory) as Arc<dyn Bytes>
    }

    fn wait(&mut self, timeout: Duration) -> netgrain_recorder::Wait {
        if self.delivered < self.stream.descs.len() {
            return netgrain_recorder::Wait::Ready;
        }
        std::thread::sleep(timeout);
        netgrain_recorder::Wait::Gone
    }

    fn descriptors(&mut self) -> &[Desc] {
        let from = self.delivered;
        self.delivered = (from + 1000).min(self.stream.descs.len());
        &self.stream.descs[from..self.delivered]
    }

    fn release(&mut self, pos: u64, descriptors: u64) {
        assert!(pos >= self.released.0 && descriptors >= self.released.1, "released positions never decrease");
        assert!(descriptors <= self.delivered as u64, "only delivered descriptors are released");
        self.released = (pos, descriptors);
        self.memory.released.store(pos, Relaxed);
    }
}

/// Every file below a directory.
pub fn read_all(directory: &std::path::Path) -> Surviving {
    let mut files = Surviving::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).expect("a directory").map(|e| e.expect("an entry").path()) {
            if entry.is_dir() {
                directories.push(entry);
            } else if !entry.ends_with(store::hold::HOLD) {
                let bytes = std::fs::read(&entry).expect("a file");
                files.insert(entry, bytes);
            }
        }
    }
    files
}
