//! A capture file in the nanosecond pcap format, written without the crate that reads it.

use crate::common::Memory;
use netgrain_capture::file::{File, Options};
use testkit::TempDir;

pub struct Rig(TempDir);

impl crate::conformance::Rig for Rig {
    type Source = File;
    const LIVE: bool = false;

    fn new(test: &str) -> Option<Self> {
        Some(Self(TempDir::new(test)))
    }

    fn start(&mut self, frames: &[Vec<u8>], _: Memory) -> (File, Vec<Vec<u8>>) {
        let words = |words: [u32; 4]| words.into_iter().flat_map(u32::to_le_bytes);
        // Magic number, version 2.4, two zero words; then the snaplen and the link type Ethernet.
        let mut bytes: Vec<u8> = words([0xa1b2_3c4d, 4 << 16 | 2, 0, 0]).collect();
        bytes.extend([262_144u32, 1].into_iter().flat_map(u32::to_le_bytes));
        for (i, frame) in (0..).zip(frames) {
            bytes.extend(words([
                1_700_000_000 + i / 1000,
                i % 1000 * 1_000_000,
                frame.len() as u32,
                frame.len() as u32,
            ]));
            bytes.extend(frame);
        }
        let path = self.0.join("frames.pcap");
        std::fs::write(&path, bytes).expect("write the capture");
        (File::open(&path, Options::default()).unwrap_or_else(|e| panic!("{e}")), frames.to_vec())
    }

    fn send(&mut self, _: &[Vec<u8>]) {
        unreachable!("no frame arrives at an open file");
    }
}
