//! Makes stores that the recorder writes from generated packets, and the plain scan of a store with which every query
//! result is compared.
#![allow(dead_code, reason = "each test program uses its part")]

use base::{Cause, Prng, Tally, Timestamp, TimestampMethod};
use filter::Filter;
use index::Header;
use netgrain_query::{Query, QuerySource, Results, run};
use recorder::{Config, Feed, Recorder, Wait, WallClock};
use ring::{AnnotatedPosition, Annotations, BLOCK, Control, Desc, FILE_HEADER};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use store::bytes::Bytes;
use store::catalogue::{self, Entry, Hours};
use store::{DiskDevice, names};
use sys::uring::Region;
use wire::{Headers, build::Frame};

/// 2026-11-21T19:40:00Z.
pub const START: Timestamp = Timestamp::from_secs_nanos(1_795_290_000, 0);

/// One packet with its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    pub interface: String,
    pub queue: u16,
    pub ts: Timestamp,
    pub wire_len: u32,
    pub data: Vec<u8>,
}

/// The packet stream of one queue, as input of a recorder.
pub struct Stream {
    pub interface: String,
    pub queue: u16,
    pub queues: u16,
    pub format: recorder::Format,
    /// The recorder pauses for this time after each thousand packets.
    pub pause: Duration,
    /// The system clock of the recorder, if it reads one.
    pub wall: Option<fn() -> WallClock>,
    /// The timestamp method of the next packets.
    pub method: TimestampMethod,
    bytes: Vec<u8>,
    descs: Vec<Desc>,
}

impl Stream {
    pub fn new(interface: &str, queue: u16, queues: u16) -> Self {
        let (interface, format) = (interface.to_owned(), recorder::Format::Pcap);
        let (pause, wall) = (Duration::ZERO, None);
        let method = TimestampMethod::Unknown;
        Self { interface, queue, queues, format, pause, wall, method, bytes: Vec::new(), descs: Vec::new() }
    }

    /// Begins a file.
    pub fn rotate(&mut self, ts: Timestamp) {
        let end = self.bytes.len();
        self.bytes.resize(end.next_multiple_of(BLOCK as usize), 0xee);
        let pos = self.bytes.len() as u64;
        let gap = (pos - end as u64) as u32;
        self.descs.push(Desc::control(Control::Segment { pos, gap }, ts));
        self.bytes.extend(ring::file_header(65_535, 1));
        assert_eq!(self.bytes.len() as u64, pos + FILE_HEADER as u64);
    }

    pub fn packet(&mut self, ts: Timestamp, wire_len: u32, data: &[u8]) {
        let headers = Headers::of(data, wire_len, 1);
        self.descs.push(Desc {
            annotated_pos: AnnotatedPosition::new(self.bytes.len() as u64)
                .with_annotations(Annotations::new(self.method, None)),
            ts: ts.nanos(),
            caplen: data.len() as u16,
            wire_len: wire_len.min(65_535) as u16,
            l3: headers.l3(),
            l4: headers.l4(),
            ..Desc::default()
        });
        self.bytes.extend(pcap::record_header_ns(ts, data.len() as u32, wire_len));
        self.bytes.extend(data);
    }

    pub fn lose(&mut self, ts: Timestamp, packets: u64) {
        self.descs.push(Desc::control(Control::Lost { cause: Cause::RingFull, reader: 0, packets }, ts));
    }

    pub fn control(&mut self, control: Control, ts: Timestamp) {
        self.descs.push(Desc::control(control, ts));
    }

    pub fn tick(&mut self, ts: Timestamp) {
        self.descs.push(Desc::control(Control::Tick, ts));
    }

    /// Changes lengths and timestamps in some record headers, as a hostile writer would do; returns the largest number
    /// of additional records that a reader may then find.
    pub fn spoil(&mut self, prng: &mut Prng, records: usize) -> usize {
        let packets: Vec<u64> = self.descs.iter().filter(|d| d.is_packet()).map(|d| d.pos()).collect();
        for _ in 0..records {
            let at = packets[prng.below(packets.len() as u64) as usize] as usize;
            let word = match prng.below(4) {
                0 => u32::MAX,
                1 => prng.next_u64() as u32,
                2 => prng.below(65_536) as u32,
                _ => 0,
            };
            let field = at + [0, 4, 8, 8, 12][prng.below(5) as usize];
            self.bytes[field..field + 4].copy_from_slice(&word.to_le_bytes());
        }
        // If the length in a record header is changed to 0, a reader takes the following packet bytes for records; each
        // such record has at least 16 bytes.
        records * 1400 / 16 + records
    }

    /// Records everything.
    pub fn record(self, store: &Path) {
        self.record_with(store, DiskDevice::new(8));
    }

    pub fn record_with(mut self, store: &Path, device: DiskDevice) {
        let last = self.descs.last().map(|d| d.timestamp()).unwrap_or(START);
        self.descs.push(Desc::control(Control::End, last));
        let header = Header { interface: self.interface.clone(), queue: self.queue, ..header() };
        let (queues, format, wall) = (self.queues, self.format, self.wall);
        let config = Config { queues, format, wall, ..Config::new(store.to_owned(), header) };
        let mut feed = Whole { memory: Memory::of(&self.bytes), descs: self.descs, given: 0, pause: self.pause };
        let recorder = Recorder::new(config, device);
        let summary = recorder.run(&mut feed, |event| eprintln!("{event}")).expect("a thread");
        assert_eq!((summary.hidden, summary.broken), (0, None));
    }
}

pub fn header() -> Header {
    Header {
        interface: "eth1".into(),
        queue: 0,
        link_type: 1,
        snaplen: 65_535,
        timestamp_source: "test".into(),
        timestamp_error: 0,
        filter: String::new(),
        first_pos: 0,
        start: START,
        content: index::Content::Recorded,
    }
}

struct Memory {
    bytes: Vec<u8>,
    aligned: usize,
}

impl Memory {
    fn of(stream: &[u8]) -> Arc<Self> {
        let mut bytes: Vec<u8> = Vec::with_capacity(stream.len() + 2 * BLOCK as usize);
        let aligned = bytes.as_ptr().align_offset(4096);
        bytes.resize(aligned, 0);
        bytes.extend(stream);
        bytes.resize(aligned + stream.len().next_multiple_of(BLOCK as usize), 0xdd);
        Arc::new(Self { bytes, aligned })
    }
}

impl Bytes for Memory {
    fn at(&self, pos: u64, len: usize) -> &[u8] {
        &self.bytes[self.aligned + pos as usize..][..len]
    }

    fn regions(&self) -> Vec<Region> {
        Vec::new()
    }
}

struct Whole {
    memory: Arc<Memory>,
    descs: Vec<Desc>,
    given: usize,
    pause: Duration,
}

impl Feed for Whole {
    fn memory(&self) -> Arc<dyn Bytes> {
        Arc::clone(&self.memory) as Arc<dyn Bytes>
    }

    fn wait(&mut self, _timeout: Duration) -> Wait {
        if self.given < self.descs.len() { Wait::Ready } else { Wait::Gone }
    }

    fn descriptors(&mut self) -> &[Desc] {
        std::thread::sleep(self.pause);
        let from = self.given;
        self.given = (from + 1000).min(self.descs.len());
        &self.descs[from..self.given]
    }

    fn release(&mut self, _pos: u64, _descriptors: u64) {}
}

/// A UDP or TCP packet of `len` bytes between hosts of 10.0.0.0/24, with random content.
pub fn frame(prng: &mut Prng, len: usize) -> Vec<u8> {
    let mut data = vec![0; len.max(60)];
    prng.fill(&mut data);
    let host = |prng: &mut Prng| [10, 0, 0, prng.below(12) as u8];
    let (a, b, port) = (host(prng), host(prng), prng.below(200) as u16);
    let mut head = [0; 60];
    let made = match prng.below(2) {
        0 => Frame::udp4(a, 1000 + port, b, 53).fill(&mut head).len(),
        _ => Frame::tcp4(a, port, b, 443).fill(&mut head).len(),
    };
    data[..42].copy_from_slice(&head[..made.min(42)]);
    data.truncate(len.max(42));
    data
}

/// All published packet files of a store, by interface and in the order of the catalogue.
pub fn files(store: &Path) -> Vec<(String, Entry)> {
    let mut out = Vec::new();
    for interface in catalogue::interfaces(store).expect("a store") {
        let mut entries = Vec::new();
        let mut hours = Hours::forward(&store.join(&interface), Timestamp::ZERO, Timestamp::MAX);
        while let Some(hour) = hours.next().expect("an iteration") {
            entries.extend(hour.list().expect("a listing").sealed);
        }
        entries.sort();
        out.extend(entries.into_iter().map(|e| (interface.clone(), e)));
    }
    out
}

/// The packets of a packet file, read with the pcap crate.
pub fn read(path: &Path) -> Vec<Record> {
    let file = std::fs::File::open(path).expect("a file");
    let format = if path.extension().is_some_and(|e| e == "raw") { pcap::Format::Raw } else { pcap::Format::Pcap };
    let mut reader = pcap::Reader::open_as(file, format).expect("a capture");
    let mut out = Vec::new();
    while let Some(p) = reader.next().expect("a packet") {
        out.push((p.ts.expect("a timestamp"), p.wire_len, p.data.to_vec()));
    }
    out
}

/// Timestamp, wire length, bytes.
pub type Record = (Timestamp, u32, Vec<u8>);

/// The plain scan: every file is read completely, every packet is tested, and the matching packets are sorted by
/// timestamp.
pub struct Scan {
    files: Vec<(String, Entry, Vec<Record>)>,
}

impl Scan {
    pub fn of(store: &Path) -> Self {
        Self { files: files(store).into_iter().map(|(i, e)| (i, e.clone(), read(&e.path))).collect() }
    }

    pub fn packets(&self) -> usize {
        self.files.iter().map(|(.., packets)| packets.len()).sum()
    }

    /// The packets of one file.
    pub fn file(&self, path: &Path) -> &[Record] {
        self.files.iter().find(|(_, entry, _)| entry.path == path).map_or(&[], |(.., packets)| packets)
    }

    pub fn results(&self, query: &Query) -> Vec<Packet> {
        let mut found = BTreeMap::new();
        for (number, (interface, entry, packets)) in self.files.iter().enumerate() {
            if !query.interfaces.is_empty() && !query.interfaces.contains(interface) {
                continue;
            }
            for (i, (ts, wire_len, data)) in packets.iter().enumerate() {
                let headers = Headers::of(data, *wire_len, 1);
                if query.from <= *ts && *ts <= query.to && query.filter.matches(data, *wire_len, &headers) {
                    let packet = Packet {
                        interface: interface.clone(),
                        queue: entry.queue,
                        ts: *ts,
                        wire_len: *wire_len,
                        data: data.clone(),
                    };
                    found.insert((*ts, interface.clone(), entry.queue, number, i), packet);
                }
            }
        }
        found.into_values().collect()
    }
}

/// Returns all packets of a result, read one by one.
pub fn collect(results: &mut Results) -> Vec<Packet> {
    let mut out = Vec::new();
    loop {
        let (ts, wire_len, data, origin) = match results.next().expect("a result") {
            Some(found) => (found.ts, found.wire_len, found.data.to_vec(), found.origin),
            None => return out,
        };
        let origin = &results.origins()[origin];
        out.push(Packet { interface: origin.interface.clone(), queue: origin.queue, ts, wire_len, data });
    }
}

/// Returns all packets of a result; batches and single packets are read in random order.
pub fn collect_batches(results: &mut Results, prng: &mut Prng) -> Vec<Packet> {
    let mut out = Vec::new();
    loop {
        let (records, packets, origin) = if prng.below(4) == 0 {
            let Some(found) = results.next().expect("a result") else { return out };
            let mut record = pcap::record_header_ns(found.ts, found.data.len() as u32, found.wire_len).to_vec();
            record.extend(found.data);
            (record, 1, found.origin)
        } else {
            let Some(batch) = results.next_batch().expect("a result") else { return out };
            (batch.records.to_vec(), batch.packets, batch.origin)
        };
        let origin = &results.origins()[origin];
        let mut file = pcap::FILE_HEADER_NS.to_vec();
        file.extend(records);
        let mut reader = pcap::Reader::open(&file[..]).expect("records");
        let before = out.len() as u64;
        while let Some(p) = reader.next().expect("a record") {
            out.push(Packet {
                interface: origin.interface.clone(),
                queue: origin.queue,
                ts: p.ts.expect("a timestamp"),
                wire_len: p.wire_len,
                data: p.data.to_vec(),
            });
        }
        assert_eq!(out.len() as u64 - before, packets);
    }
}

pub fn everything(store: &Path) -> Results {
    run(&QuerySource::Store(store.to_owned()), Query::default()).expect("a store")
}

/// Asserts that two lists of packets are equal, and prints only the first difference.
pub fn same(found: &[Packet], expected: &[Packet], what: &str) {
    let differs = found.iter().zip(expected).position(|(a, b)| a != b);
    let at = |packets: &[Packet], i: usize| packets.get(i).map(|p| (p.interface.clone(), p.queue, p.ts, p.data.len()));
    if let Some(i) = differs {
        panic!("{what}: packet {i} is {:?} and should be {:?}", at(found, i), at(expected, i));
    }
    assert_eq!(found.len(), expected.len(), "{what}: {:?} {:?}", at(found, expected.len()), at(expected, found.len()));
}

/// Records a random store: it has one or two interfaces, one of them with several queues; recorders were restarted,
/// some of them after the clock was set back; files and packets have all sizes, and packets were lost.
pub fn random_store(store: &Path, prng: &mut Prng) {
    for (interface, queues) in [("eth1", 1 + prng.below(3) as u16), ("eth2", 1)] {
        for queue in 0..queues {
            let mut now = START.after(Duration::from_millis(prng.below(1000)));
            for _ in 0..1 + prng.below(3) {
                let mut stream = Stream::new(interface, queue, queues);
                stream.rotate(now);
                for _ in 0..prng.below(400) {
                    now = now.after(Duration::from_nanos(prng.below(20_000_000_000) >> prng.below(30)));
                    match prng.below(100) {
                        0..4 => stream.rotate(now),
                        4..8 => stream.lose(now, 1 + prng.below(100)),
                        8..16 => stream.tick(now),
                        16..40 => {
                            let len = 60_000 + prng.below(5_536) as usize;
                            stream.packet(now, len as u32, &frame(prng, len));
                        }
                        _ => {
                            let len = 42 + prng.below(1500) as usize;
                            stream.packet(now, len as u32 + prng.below(2) as u32 * 100, &frame(prng, len));
                        }
                    }
                }
                stream.record(store);
                now = match prng.below(3) {
                    0 => now.before(Duration::from_secs(prng.below(3 * 3600))),
                    _ => now.after(Duration::from_secs(prng.below(3 * 3600))),
                };
            }
        }
    }
}

/// A random query.
pub fn random_query(scan: &Scan, prng: &mut Prng) -> Query {
    let stamps: Vec<Timestamp> = scan.files.iter().flat_map(|(.., p)| p.iter().map(|(ts, ..)| *ts)).collect();
    let moment = |prng: &mut Prng| {
        let near = stamps.get(prng.below(stamps.len() as u64) as usize).copied().unwrap_or(START);
        near.after(Duration::from_nanos(prng.below(3))).before(Duration::from_nanos(prng.below(3)))
    };
    let (a, b) = (moment(prng), moment(prng));
    let mut query = Query::default();
    if prng.below(4) > 0 {
        (query.from, query.to) = (a.min(b), a.max(b));
    }
    let host = prng.below(14);
    let text = match prng.below(7) {
        0..3 => String::new(),
        3 => format!("host 10.0.0.{host}"),
        4 => format!("udp and src host 10.0.0.{host}"),
        5 => format!("port {} or host 10.0.0.{host}", prng.below(400)),
        _ => format!("not tcp and less {}", 100 + prng.below(1500)),
    };
    query.filter = Filter::parse(&text).expect("a filter");
    if prng.below(4) == 0 {
        query.interfaces = vec![if prng.below(2) == 0 { "eth1" } else { "eth2" }.to_owned()];
    }
    query
}

pub fn tally_of(results: &Results) -> Tally {
    let mut total = Tally::default();
    (0..results.origins().len()).for_each(|i| total += &results.tally(i));
    total
}

pub fn hour_of(store: &Path, interface: &str, ts: Timestamp) -> PathBuf {
    names::hour_directory(&store.join(interface), ts)
}
