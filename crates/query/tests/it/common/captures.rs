//! Packets of real captures, and capture files with these packets in every format.

#![allow(dead_code, reason = "each test program uses its own part")]

use base::{Prng, Timestamp};
use pcap::{ETHERNET, Reader, classic, ng, raw};
use std::io::Write;
use std::path::Path;
use wire::{EtherType, Family, Headers, IpProtocol, Ipv6};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    pub ts: Timestamp,
    pub wire_len: u32,
    pub data: Vec<u8>,
}

/// All Ethernet packets of the captures below a directory for which netgrain's filter and tcpdump's filter have the
/// same meaning.
pub fn collect(directory: &Path, packets: &mut Vec<Packet>) {
    let mut paths: Vec<_> =
        std::fs::read_dir(directory).expect("a directory").map(|e| e.expect("an entry").path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect(&path, packets);
        } else if path.extension().is_some_and(|e| e == "pcap")
            && let Ok(mut reader) = Reader::open(std::fs::File::open(&path).expect("a file"))
        {
            while let Ok(Some(p)) = reader.next() {
                if p.link_type == ETHERNET && p.wire_len < 65_000 && has_same_meaning(p.data, p.wire_len) {
                    let ts = p.ts.expect("a timestamp");
                    packets.push(Packet { ts, wire_len: p.wire_len, data: p.data.to_vec() });
                }
            }
        }
    }
}

/// True if the packet is not malformed and has no VLAN tags, MPLS labels or extension headers, which the filters of
/// tcpdump do not skip.
fn has_same_meaning(bytes: &[u8], wire_len: u32) -> bool {
    let headers = Headers::of(bytes, wire_len, ETHERNET);
    let Some(announced) = bytes.get(12..14).map(|b| EtherType(u16::from_be_bytes([b[0], b[1]]))) else { return false };
    let extended = || {
        let next = Ipv6::parse(bytes, 14).map_or(IpProtocol::NONE, |ip| ip.next_header());
        headers.family() == Family::V6 && next.is_extension()
    };
    !headers.malformed() && announced == headers.ethertype() && !extended()
}

/// Formats that a capture can have.
pub const KINDS: [Kind; 6] = [Kind::Nanos, Kind::Micros, Kind::BigEndian, Kind::Ng, Kind::Sections, Kind::Raw];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Nanos,
    Micros,
    BigEndian,
    /// pcapng with several interfaces, one of which is described only after the first packets.
    Ng,
    /// pcapng of three sections.
    Sections,
    Raw,
}

impl Kind {
    /// The timestamp as this format stores it.
    pub fn stamp(self, ts: Timestamp) -> Timestamp {
        match self {
            Self::Micros => Timestamp::from_nanos(ts.nanos() / 1000 * 1000),
            _ => ts,
        }
    }

    pub fn write(self, path: &Path, packets: &[Packet]) {
        std::fs::write(path, self.bytes(packets)).expect("a file");
    }

    pub fn bytes(self, packets: &[Packet]) -> Vec<u8> {
        match self {
            Self::Nanos => plain(packets, classic::Resolution::Nanos),
            Self::Micros => plain(packets, classic::Resolution::Micros),
            Self::BigEndian => big_endian(&plain(packets, classic::Resolution::Nanos)),
            Self::Ng => section(packets, 3),
            Self::Sections => packets.chunks(packets.len() / 3 + 1).flat_map(|part| section(part, 2)).collect(),
            Self::Raw => {
                let mut out = Vec::new();
                for p in packets {
                    out.extend(raw::record_header(p.ts, p.data.len() as u16, p.wire_len));
                    out.extend(&p.data);
                }
                out
            }
        }
    }
}

fn plain(packets: &[Packet], resolution: classic::Resolution) -> Vec<u8> {
    let mut out = classic::Writer::new(Vec::new(), resolution, ETHERNET).expect("memory");
    packets.iter().for_each(|p| out.write(p.ts, p.wire_len, &p.data).expect("memory"));
    out.finish().expect("memory")
}

fn section(packets: &[Packet], interfaces: usize) -> Vec<u8> {
    let mut out = ng::Writer::new(Vec::new(), "a test", "").expect("memory");
    let mut described = 1;
    out.interface("eth0", ETHERNET).expect("memory");
    for (i, p) in packets.iter().enumerate() {
        if described < interfaces && i * interfaces > described * packets.len() {
            out.interface(&format!("eth{described}"), ETHERNET).expect("memory");
            described += 1;
        }
        let interface = (i % described) as u32;
        out.packet(interface, p.ts, p.wire_len, &p.data, ng::PacketOptions::default()).expect("memory");
    }
    out.finish().expect("memory")
}

/// Converts a capture to the byte order of a big-endian machine.
fn big_endian(file: &[u8]) -> Vec<u8> {
    let mut out = file.to_vec();
    for (at, len) in [(0, 4), (4, 2), (6, 2), (8, 4), (12, 4), (16, 4), (20, 4)] {
        out[at..at + len].reverse();
    }
    let mut at = classic::FILE_HEADER;
    while at < out.len() {
        let caplen = u32::from_le_bytes([out[at + 8], out[at + 9], out[at + 10], out[at + 11]]) as usize;
        (0..4).for_each(|word| out[at + 4 * word..at + 4 * word + 4].reverse());
        at += classic::RECORD_HEADER + caplen;
    }
    out
}

/// Changes the order of packets: some are slightly out of order, and the last third precedes the others.
pub fn disorder(packets: &mut [Packet], prng: &mut Prng) {
    let len = packets.len();
    for i in 0..len {
        if prng.below(10) == 0 {
            packets.swap(i, (i + prng.below(3000) as usize).min(len - 1));
        }
    }
    packets.rotate_right(len / 3);
}

/// A random filter with values that occur in these packets.
pub fn filter(packets: &[Packet], prng: &mut Prng) -> String {
    let p = &packets[prng.below(packets.len() as u64) as usize];
    let headers = Headers::of(&p.data, p.wire_len, ETHERNET);
    let key = wire::FlowKey::of(&p.data, &headers);
    let mut part = || match (key, prng.below(12)) {
        (Some(k), 0) => format!("host {}", k.src),
        (Some(k), 1) => format!("dst host {}", k.dst),
        (Some(k), 2 | 3) => format!("port {}", k.dst_port),
        (Some(k), 4) => format!("src port {}", k.src_port),
        (Some(k), 5) if k.src.is_ipv4() => {
            format!("net {}", k.src.to_string().rsplit_once('.').map_or("10", |(n, _)| n))
        }
        (Some(k), 6) => format!("host {} and host {} and port {}", k.src, k.dst, k.src_port),
        (_, 7) => format!("less {}", p.wire_len),
        (_, 8) => "arp".to_owned(),
        (_, 9) => ["tcp", "udp", "icmp", "ip6"][prng.below(4) as usize].to_owned(),
        (_, 10) => format!("portrange {}-{}", prng.below(1000), 1000 + prng.below(60_000)),
        _ => "ip".to_owned(),
    };
    let (a, b, c) = (part(), part(), part());
    match prng.below(6) {
        0 => a,
        1 => format!("({a}) and ({b})"),
        2 => format!("({a}) or ({b})"),
        3 => format!("not ({a})"),
        4 => format!("({a}) and not ({b})"),
        _ => format!("(({a}) or ({b})) and ({c})"),
    }
}

/// The numbers of the packets that tcpdump selects. In the file for tcpdump, the timestamp of each packet is its
/// number.
pub fn tcpdump(directory: &testkit::TempDir, packets: &[Packet], filter: &str) -> Vec<usize> {
    let path = directory.join("numbered.pcap");
    if !path.exists() {
        let numbered = |(i, p): (usize, &Packet)| Packet { ts: Timestamp::from_secs_nanos(i as u64, 0), ..p.clone() };
        let all: Vec<Packet> = packets.iter().enumerate().map(numbered).collect();
        let mut file = std::fs::File::create(&path).expect("a file");
        file.write_all(&Kind::Nanos.bytes(&all)).expect("written");
    }
    let out = std::process::Command::new("tcpdump").arg("-nr").arg(&path).args(["-w", "-", filter]).output();
    let out = out.expect("tcpdump runs");
    assert!(out.status.success(), "{filter}: {}", String::from_utf8_lossy(&out.stderr));
    let mut reader = Reader::open(&out.stdout[..]).expect("a capture");
    let mut selected = Vec::new();
    while let Some(p) = reader.next().expect("a valid capture") {
        selected.push(p.ts.expect("a timestamp").secs() as usize);
    }
    selected
}
