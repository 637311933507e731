//! Functions that several test modules use: packets as values, and capture files that are made of them and read.

#![allow(dead_code, reason = "each test module uses a part of the functions")]

use base::{Prng, Timestamp};
use netgrain_convert::{Error, Input, Memory, Plan, Report, convert};
use pcap::classic::{Resolution, Writer};
use pcap::{Direction, Reader, ng, raw};
use std::path::{Path, PathBuf};
use std::process::Command;

/// All information about a packet in a capture file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    pub ts: Timestamp,
    pub wire_len: u32,
    pub data: Vec<u8>,
    pub interface: u32,
    pub link_type: u16,
    pub direction: Direction,
    pub drops: u64,
}

impl Packet {
    pub fn new(ts: u64, data: &[u8]) -> Self {
        Self {
            ts: Timestamp::from_nanos(ts),
            wire_len: data.len() as u32,
            data: data.to_vec(),
            interface: 0,
            link_type: pcap::ETHERNET,
            direction: Direction::Unknown,
            drops: 0,
        }
    }
}

/// All packets of a capture file.
pub fn packets(bytes: &[u8]) -> Vec<Packet> {
    all(Reader::open(bytes).expect("a capture"))
}

/// All packets of a RAW file, whose format is not detected but assumed.
pub fn raw_packets(bytes: &[u8]) -> Vec<Packet> {
    all(Reader::open_as(bytes, pcap::Format::Raw).expect("a RAW file"))
}

fn all(mut reader: Reader<&[u8]>) -> Vec<Packet> {
    let mut out = Vec::new();
    while let Some(p) = reader.next().expect("an undamaged capture") {
        out.push(Packet {
            ts: p.ts.expect("a timestamp"),
            wire_len: p.wire_len,
            data: p.data.to_vec(),
            interface: p.interface,
            link_type: p.link_type,
            direction: p.direction,
            drops: p.drops,
        });
    }
    out
}

/// A pcap file with nanoseconds.
pub fn pcap(packets: &[Packet]) -> Vec<u8> {
    let link_type = packets.first().map_or(pcap::ETHERNET, |p| p.link_type);
    let mut file = Writer::new(Vec::new(), Resolution::Nanos, link_type).expect("memory");
    for p in packets {
        file.write(p.ts, p.wire_len, &p.data).expect("memory");
    }
    file.finish().expect("memory")
}

/// A RAW file without padding.
pub fn raw(packets: &[Packet]) -> Vec<u8> {
    let mut out = Vec::new();
    for p in packets {
        out.extend(raw::record_header(p.ts, p.data.len() as u16, p.wire_len));
        out.extend(&p.data);
    }
    out
}

/// A pcapng file in which all interfaces are described before the first packet.
pub fn pcapng(packets: &[Packet]) -> Vec<u8> {
    let mut file = ng::Writer::new(Vec::new(), "a test", "").expect("memory");
    for number in 0..=packets.iter().map(|p| p.interface).max().unwrap_or(0) {
        let link_type = packets.iter().find(|p| p.interface == number).map_or(pcap::ETHERNET, |p| p.link_type);
        file.interface("", link_type).expect("memory");
    }
    for p in packets {
        let drops = (p.drops > 0).then_some(p.drops);
        let options = ng::PacketOptions { direction: p.direction, drops, ..ng::PacketOptions::default() };
        file.packet(p.interface, p.ts, p.wire_len, &p.data, options).expect("memory");
    }
    file.finish().expect("memory")
}

/// Converts files in memory.
pub fn converted(files: &[&[u8]], plan: &Plan) -> Result<(Report, Memory), Error> {
    let inputs =
        files.iter().enumerate().map(|(i, bytes)| Input::open(&format!("input {i}"), *bytes).expect("a capture"));
    let mut memory = Memory::default();
    let report = convert(inputs.collect(), plan, &mut memory)?;
    assert_eq!(report.read, report.written + report.outside + report.filtered, "{report:?}");
    assert_eq!(report.files, memory.files.len() as u64);
    assert_eq!(report.bytes, memory.files.iter().map(|f| f.len() as u64).sum::<u64>());
    Ok((report, memory))
}

/// Converts one capture file to one output file; both are in memory.
pub fn one(file: &[u8], plan: &Plan) -> (Report, Vec<u8>) {
    let (report, mut memory) = converted(&[file], plan).expect("converted");
    assert_eq!(memory.files.len(), 1);
    (report, memory.files.remove(0))
}

/// Random packets in order of time, many with equal timestamps.
pub fn random(prng: &mut Prng, count: usize) -> Vec<Packet> {
    let mut ts = 1_700_000_000_000_000_000;
    (0..count)
        .map(|_| {
            ts += prng.below(3) * prng.below(400_000_000);
            let mut data = vec![0; 1 + prng.below(300) as usize];
            prng.fill(&mut data);
            let wire_len = data.len() as u32 + prng.below(2) as u32 * prng.below(1000) as u32;
            Packet { wire_len, ..Packet::new(ts, &data) }
        })
        .collect()
}

/// The uncompressed capture files of the tests, in order of their names.
pub fn captures(test: &str) -> Option<Vec<PathBuf>> {
    fn walk(directory: &Path, into: &mut Vec<PathBuf>) {
        let mut entries: Vec<PathBuf> =
            std::fs::read_dir(directory).expect("a directory").map(|e| e.expect("an entry").path()).collect();
        entries.sort();
        for path in entries {
            if path.is_dir() {
                walk(&path, into);
            } else if path.extension().is_some_and(|e| e == "pcap" || e == "pcapng") {
                into.push(path);
            }
        }
    }
    let mut files = Vec::new();
    walk(&testkit::traces(test)?, &mut files);
    assert!(files.len() > 50, "only {} captures", files.len());
    Some(files)
}

/// The standard output of a program, which must succeed.
pub fn output(mut command: Command) -> String {
    let out = command.output().expect("started");
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("text")
}
