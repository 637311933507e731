//! The packets of the real captures, for the unit tests and the integration tests of this crate.
#![allow(dead_code, reason = "each test program uses a part of this module")]

use base::Timestamp;
use pcap::Reader;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use wire::Decoded;

/// A packet that owns its bytes.
pub struct Captured {
    pub ts: Timestamp,
    pub wire_len: u32,
    pub data: Vec<u8>,
    pub decoded: Decoded,
    pub offset: u64,
}

/// All captures in a directory and its subdirectories, sorted by name.
pub fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("the directory can be read");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    let is_capture = |path: &Path| {
        let name = path.to_string_lossy();
        [".pcap", ".pcapng", ".pcap.gz", ".trace"].iter().any(|end| name.ends_with(end))
    };
    let below = |path: PathBuf| match path.is_dir() {
        true => files(&path),
        false if is_capture(&path) => vec![path],
        false => Vec::new(),
    };
    paths.into_iter().flat_map(below).collect()
}

/// The packets of a file, up to the first unreadable record.
pub fn packets(path: &Path) -> Vec<Captured> {
    let file = File::open(path).expect("the capture can be opened");
    let file: Box<dyn Read> = match path.extension() {
        Some(end) if end == "gz" => Box::new(flate2::read::MultiGzDecoder::new(file)),
        _ => Box::new(file),
    };
    let Ok(mut reader) = Reader::open(file) else { return Vec::new() };
    let mut packets = Vec::new();
    while let Ok(Some(p)) = reader.next() {
        let decoded = Decoded::of(p.data, p.wire_len, p.link_type);
        let ts = p.ts.unwrap_or(Timestamp::ZERO);
        packets.push(Captured { ts, wire_len: p.wire_len, data: p.data.to_vec(), decoded, offset: p.offset });
    }
    packets
}
