//! The packets of the real captures.
#![allow(dead_code, reason = "each test program uses a part of this module")]

use base::Timestamp;
use pcap::Reader;
use std::path::{Path, PathBuf};
use std::process::Command;

pub struct Packet {
    pub bytes: Vec<u8>,
    pub wire_len: u32,
    pub link_type: u16,
    pub ts: Timestamp,
}

/// All captures in a directory and its subdirectories, sorted by name.
pub fn files(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut paths: Vec<_> = std::fs::read_dir(directory).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap().to_string_lossy();
        if path.is_dir() {
            files.extend(self::files(&path));
        } else if [".pcap", ".pcapng", ".pcap.gz"].iter().any(|end| name.ends_with(end)) {
            files.push(path);
        }
    }
    files
}

/// The first packets of a capture, up to the first damaged record.
pub fn packets(file: &Path, most: usize) -> Vec<Packet> {
    let bytes = if file.extension().is_some_and(|e| e == "gz") {
        Command::new("gzip").arg("-dc").arg(file).output().expect("gzip").stdout
    } else {
        std::fs::read(file).unwrap()
    };
    let mut reader = Reader::open(&bytes[..]).unwrap();
    let mut packets = Vec::new();
    while packets.len() < most
        && let Ok(Some(p)) = reader.next()
    {
        let (bytes, ts) = (p.data.to_vec(), p.ts.unwrap_or_default());
        packets.push(Packet { bytes, wire_len: p.wire_len, link_type: p.link_type, ts });
    }
    packets
}
