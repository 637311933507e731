//! A file in memory; its frames have arrived when it is written.

use crate::common::Memory;
use base::Timestamp;
use netgrain_capture::file::{File, Options};
use pcap::classic;
use std::io::Cursor;
use std::time::Duration;

pub struct Rig;

impl crate::Rig for Rig {
    type Source = File;
    const LIVE: bool = false;

    fn new(_test: &str) -> Option<Self> {
        Some(Self)
    }

    fn start(&mut self, frames: &[Vec<u8>], _memory: Memory) -> (File, Vec<Vec<u8>>) {
        let mut file = classic::Writer::new(Vec::new(), classic::Resolution::Nanos, pcap::ETHERNET).unwrap();
        let mut stamp = Timestamp::from_secs_nanos(1_700_000_000, 0);
        for frame in frames {
            file.write(stamp, frame.len() as u32, frame).unwrap();
            stamp = stamp.after(Duration::from_micros(1));
        }
        let source = Cursor::new(file.finish().unwrap());
        (File::from_reader("memory", source, Options::default()).unwrap_or_else(|e| panic!("{e}")), frames.to_vec())
    }

    fn send(&mut self, _frames: &[Vec<u8>]) {
        unreachable!("only live rigs are asked")
    }
}
