//! Blocks of packets as benchmark input: generated worst cases, and real captures if they are available.

use base::Prng;
use std::path::{Path, PathBuf};
use wire::build::Frame;

/// A packet as the recorder passes it to the index.
pub struct Packet {
    pub frame: Vec<u8>,
    pub wire_len: u32,
    pub link_type: u16,
}

/// Blocks of one kind of traffic.
pub struct Load {
    pub name: &'static str,
    pub blocks: Vec<Vec<Packet>>,
}

/// Bytes of a pcap record header, which precedes the packet data.
const RECORD: usize = 16;

pub fn loads() -> Vec<Load> {
    let wide = |prng: &mut Prng| prng.next_u64() as u32;
    let mut loads = vec![
        generated("one flow, 1000 B", 1000, |_| (0x0a00_0001, 4000, 0x0a00_0002, 443)),
        generated("300 flows of 200 hosts, 1000 B", 1000, |prng| {
            let n = prng.below(300) as u32;
            (0x0a00_0000 + n % 200, 1024 + 7 * n as u16, 0x0a01_0000 + n % 20, 443)
        }),
        generated("each packet from a new client, 1000 B", 1000, |prng| {
            (wide(prng), wide(prng) as u16, 0x0a00_0002, 443)
        }),
        generated("each packet between two new hosts and ports, 1000 B", 1000, |prng| {
            (wide(prng), wide(prng) as u16, wide(prng), wide(prng) as u16)
        }),
        generated("flood from random addresses, 60 B", 60, |prng| (wide(prng), wide(prng) as u16, 0x0a00_0002, 443)),
    ];
    let directory = std::env::var_os("NETGRAIN_TRACES")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces"), PathBuf::from);
    for (name, part) in [
        ("capture: many protocols (zeek, flowtest)", ""),
        ("capture: mixed traffic (mercury)", "mercury"),
        ("capture: floods (stopddos)", "stopddos"),
    ] {
        let blocks = captured(&directory.join(part), if part.is_empty() { &["zeek", "flowtest"] } else { &[] });
        if blocks.is_empty() {
            eprintln!(
                "no captures in {}; set NETGRAIN_TRACES to a directory of captures",
                directory.join(part).display()
            );
        } else {
            loads.push(Load { name, blocks });
        }
    }
    loads
}

fn generated(name: &'static str, len: usize, ends: impl Fn(&mut Prng) -> (u32, u16, u32, u16)) -> Load {
    let mut prng = Prng::new(1);
    let mut block = || -> Vec<Packet> {
        (0..(1 << 20) / (RECORD + len))
            .map(|_| {
                let (a, p, b, q) = ends(&mut prng);
                let mut frame = vec![0; len];
                Frame::udp4(a.to_be_bytes(), p, b.to_be_bytes(), q).fill(&mut frame);
                Packet { frame, wire_len: len as u32, link_type: 1 }
            })
            .collect()
    };
    Load { name, blocks: (0..3).map(|_| block()).collect() }
}

/// The packets of all captures below a directory, in the order of the paths, split into blocks. If `named` is not
/// empty, only the subdirectories with these names are read.
fn captured(directory: &Path, named: &[&str]) -> Vec<Vec<Packet>> {
    let mut directories: Vec<PathBuf> = named.iter().map(|n| directory.join(n)).collect();
    if named.is_empty() {
        directories.push(directory.to_owned());
    }
    let mut files = Vec::new();
    while let Some(directory) = directories.pop() {
        for path in std::fs::read_dir(&directory).into_iter().flatten().filter_map(|e| Some(e.ok()?.path())) {
            if path.is_dir() { directories.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    let (mut blocks, mut block, mut bytes) = (Vec::new(), Vec::new(), 0);
    for path in files {
        let content = std::fs::read(&path).unwrap_or_default();
        let Ok(mut reader) = pcap::Reader::open(&content[..]) else { continue };
        while let Ok(Some(p)) = reader.next() {
            bytes += RECORD + p.data.len();
            block.push(Packet { frame: p.data.to_vec(), wire_len: p.wire_len, link_type: p.link_type });
            if bytes >= 1 << 20 {
                bytes = 0;
                blocks.push(std::mem::take(&mut block));
            }
        }
    }
    if blocks.is_empty() && !block.is_empty() {
        blocks.push(block);
    }
    blocks
}
